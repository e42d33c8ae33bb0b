"""Random problems that tests share: shapes, ties, duplicates, empty clusters.

Two correct programs may differ on a row whose two nearest centers are equally
near up to rounding. Such rows are not generated: a draw in which they occur is
replaced by another. Ties that are exact in any order of summation (whole
numbers, eighths, equal centers) stay in.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests._reference import squared_distances

# (n, d, k): primes, d from 1 to 64, k from 1 to 100.
SHAPES = [
    (7, 1, 1),
    (11, 2, 3),
    (29, 1, 5),
    (31, 3, 2),
    (53, 5, 7),
    (101, 2, 13),
    (103, 17, 11),
    (107, 7, 31),
    (101, 64, 5),
    (113, 37, 100),
]
KINDS = ("normal", "duplicates", "ties", "empty", "far", "k_is_n")


class Problem(NamedTuple):
    """Samples and starting centers, with a name for messages."""

    name: str
    X: np.ndarray
    C: np.ndarray


def draw(kind, n, d, k, rng):
    """Samples and centers of a kind."""
    if kind == "k_is_n":
        n = min(n, 31)
        k = n
    X = rng.normal(size=(n, d))
    if kind == "ties":
        X = rng.integers(-4, 5, size=(n, d)).astype(np.float64)
    if kind == "far":
        X = 10 * X + 100
    if kind == "duplicates":
        # Eighths: sums of products are exact, by matrix products too, so that
        # equal centers tie exactly however their scores are computed.
        X = np.round(8 * X[rng.integers(0, n, size=n)]) / 8
    C = X[rng.permutation(n)[:k]].copy()
    if kind == "empty":
        C[k // 2 :] += 30 + np.arange(k - k // 2)[:, None]
    return X, C


def is_decided(distances):
    """Whether every row has a nearest center that rounding cannot change."""
    if distances.shape[1] == 1:
        return True
    first, second = np.partition(distances, 1, axis=1)[:, :2].T
    return bool((second - first > 1e-9 * (1 + first)).all())


def is_stable(X, C, step: Callable, n_iterations, distances=squared_distances):
    """Whether an algorithm's assignments are decided in every iteration.

    Equal centers tie exactly, and so do whole numbers and eighths in the first
    iteration: only distinct centers are compared, and that iteration is not.
    """
    for iteration in range(n_iterations):
        exact = iteration == 0 and (np.round(8 * X) == 8 * X).all()
        if not exact and not is_decided(distances(X, np.unique(C, axis=0))):
            return False
        C = step(X, C)[0]
    return True


def problems(accept, seed=0, kinds=KINDS):
    """One problem for each kind and shape: the first draw that is accepted.

    `accept(X, C)` says whether a draw is free of undecided rows.
    """
    found = []
    for number, (n, d, k) in enumerate(SHAPES):
        for kind in kinds:
            for attempt in range(200):
                rng = np.random.default_rng([seed, number, KINDS.index(kind), attempt])
                X, C = draw(kind, n, d, k, rng)
                if accept(X, C):
                    name = f"{kind} n={len(X)} d={d} k={len(C)} attempt={attempt}"
                    found.append(Problem(name, X, C))
                    break
    return found
