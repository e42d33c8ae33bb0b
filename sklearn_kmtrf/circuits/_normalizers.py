"""Normalizers: maps from attention scores to attention weights.

Every normalizer has the signature ``(scores, *, gamma=1.0, dim=-1, ...)`` and
returns weights of the shape of `scores`: non-negative, summing to one along
`dim`, differentiable where the map is. `gamma`, the inverse temperature,
multiplies the scores. It is a number, or a tensor that broadcasts against
`scores` (one gamma per query). A score of minus infinity is a mask: its weight
is exactly zero and the others are as if it were not there; a row of nothing but
masks gets weights zero, never NaN.

The package ``entmax`` is not used: its sparsemax returns NaN on masked rows and
loses the one in ``1 + m z`` on scores of 1e17. Here the row maximum is
subtracted first and everything more than one below it, which can have no
weight, is raised to one below it. That leaves numbers between -1 and 0.
"""

from sklearn_kmtrf.circuits._dense_normalizers import (
    check_gamma,
    gumbel_noise,
    gumbel_softmax,
    hardmax,
    linear,
    softmax,
)
from sklearn_kmtrf.circuits._sparse_normalizers import normmax, sparsemax

#: Normalizers by name, as a circuit's configuration gives them.
NORMALIZERS = {
    "softmax": softmax,
    "hardmax": hardmax,
    "linear": linear,
    "sparsemax": sparsemax,
    "normmax": normmax,
    "gumbel_softmax": gumbel_softmax,
}

__all__ = [
    "NORMALIZERS",
    "check_gamma",
    "gumbel_noise",
    "gumbel_softmax",
    "hardmax",
    "linear",
    "normmax",
    "softmax",
    "sparsemax",
]
