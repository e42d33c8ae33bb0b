"""How a constructed circuit runs at any size: streaming, exact, no n x k array.

A circuit (:mod:`sklearn_kmtrf.circuits`) is the definition: dense, small, readable.
A kernel is its execution: it streams over blocks of rows, keeps a few numbers per
sample, and gives the same centers after every iteration. Private: the estimators are
the door.
"""
