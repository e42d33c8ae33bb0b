"""Small data: the same answers by a few NumPy calls.

Below some thousand samples the number of calls is the cost, and bounds save nothing.
All scores are made anew in float64, with the same certainty: rows whose two nearest
centers are closer than the rounding of the product are compared by differences.
"""

import math

import numpy as np
import torch

from sklearn_kmtrf.kernels._accumulators import CenterSums, total
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._blocks import SMALL_PRODUCT, inflation
from sklearn_kmtrf.kernels._nearest import compare_directly
from sklearn_kmtrf.kernels._update import CANCELLED, Update

# Sums are made anew when more than this share of the labels changed.
_MOST_CHANGED = 0.25

# Multiplications in one product of samples and centers, and scores that it makes.
MOST_WORK, MOST_SCORES = 2**21, 2**17


def _product(left, right):
    """Matrix product in parts so small that NumPy's BLAS wakes no threads for them."""
    work = left.shape[0] * left.shape[1] * right.shape[1]
    if work <= SMALL_PRODUCT:
        return left @ right
    if left.shape[1] > right.shape[1]:
        step = max(1, SMALL_PRODUCT * left.shape[1] // work)
        parts = range(0, left.shape[1], step)
        return sum(left[:, a : a + step] @ right[a : a + step] for a in parts)
    step = max(1, SMALL_PRODUCT * right.shape[1] // work)
    parts = range(0, right.shape[1], step)
    return np.concatenate([left @ right[:, a : a + step] for a in parts], axis=1)


def is_small(samples, n_clusters):
    """Whether this path is the faster one.

    Parameters
    ----------
    samples : Samples

    n_clusters : int
    """
    return (
        samples.whole is not None
        and samples.device.type == "cpu"
        and samples.whole.numel() * n_clusters <= MOST_WORK
        and samples.n_samples * n_clusters <= MOST_SCORES
    )


class SmallAssignment(Assignment):
    """The nearest center of each sample, from all scores at once.

    Parameters and attributes are those of `Assignment`; the samples are dense, on the
    CPU, and kept whole.
    """

    def __init__(self, samples, weights):
        self.samples, self.weights = samples, weights
        self._codes = None  # (k, n)
        values, squares = samples.whole.numpy(), samples.squared_norms.numpy()
        ones = np.ones(len(values))
        weights = ones if weights is None else weights.numpy()
        # [x, 1] is the token of the assignment head; the update head adds up
        # [w x, w, whether w is positive].
        self._tokens = np.column_stack([values, ones])
        self._summands = np.column_stack(
            [values * weights[:, None], weights, weights > 0]
        )
        self._lengths = np.sqrt(squares)
        self._spread = float(weights @ squares)

    def move_to(self, centers):
        """Assign every sample to the nearest of other centers; see `Assignment`."""
        if self._codes is not None and torch.equal(centers, self.centers):
            return 0
        self.centers = centers
        codes = self._near(centers)
        if np.count_nonzero(codes) > codes.shape[1]:
            self._decide(codes)
        # Each sample now has one center near: the codes of the scratch.
        before, self._codes = self._codes, codes
        if before is None:
            changed = np.arange(codes.shape[1])
        else:
            changed = np.flatnonzero((codes > before).any(0))
        if len(changed) > _MOST_CHANGED * codes.shape[1]:
            self._renew_sums()
        elif len(changed):
            self._update_sums(changed, before[:, changed])
        return len(changed)

    def _renew_sums(self):
        """Sum all samples by label, by a product with the codes."""
        self._sums = _product(self._codes.astype(np.float64), self._summands)

    def _update_sums(self, index, old):
        """Move the samples of an index from the sums of their old codes (k, m)."""
        signs = np.subtract(self._codes[:, index], old, dtype=np.float64)
        self._sums += _product(signs, self._summands[index])
        # Taking away leaves a rest by rounding where there should be nothing.
        self._sums[self._sums[:, -1] == 0] = 0

    @property
    def labels(self):
        """Nearest of the centers for each sample; None before the first `move_to`."""
        if self._codes is None:
            return None
        return torch.from_numpy(self._codes.argmax(0))

    def _near(self, centers):
        """Which centers are nearest to each sample as far as scores tell, (k, n)."""
        values = centers.numpy()
        squares = np.einsum("kd,kd->k", values, values)
        queries = np.empty((len(values), values.shape[1] + 1))
        np.multiply(values, -2, out=queries[:, :-1])
        queries[:, -1] = squares
        scores = _product(queries, self._tokens.T)
        best = scores.min(0)
        self._saved = float(self._summands[:, -2] @ best)
        longest = math.sqrt(squares.max())
        blur = 2 * inflation(values.shape[1], torch.float64) * longest
        return scores <= best + blur * (longest + 2 * self._lengths)

    def _decide(self, near):
        """Leave one center near to each sample, in place."""
        uncertain = np.flatnonzero(np.count_nonzero(near, axis=0) != 1)
        labels = compare_directly(
            self.samples.rows(uncertain),
            self.centers,
            torch.from_numpy(near[:, uncertain].T),
        )
        near[:, uncertain] = False
        near[labels.numpy(), uncertain] = True

    @property
    def sums(self):
        """`CenterSums` of the samples by label."""
        *columns, mass, counts = self._sums.T
        return CenterSums(
            torch.from_numpy(np.column_stack(columns)),
            torch.from_numpy(mass.copy()),
            torch.from_numpy(counts.astype(np.int64)),
        )

    def objective(self):
        """Weighted sum of squared distances; see `Assignment`."""
        objective = self._spread + self._saved
        if objective < CANCELLED * self._spread:
            self._renew_sums()
            return self.inertia()
        return objective

    def update(self):
        """Where the centers go from here: an `Update`.

        The new center is the mean, so the objective falls by W |t|^2 where a center
        with samples of weight W moves by t.
        """
        sums, mass, counts = self._sums[:, :-2], self._sums[:, -2], self._sums[:, -1]
        if not counts.all():
            return super().update()
        began_with = self.objective()
        new = sums / mass[:, None]
        move = new - self.centers.numpy()
        squares = np.einsum("kd,kd->k", move, move)
        centers, left = torch.from_numpy(new), began_with - float(mass @ squares)
        if left < CANCELLED * began_with:
            left = float(total(self.distances(centers), self.weights))
        return Update(centers, began_with, left, float(squares.sum()))


class SmallPotential:
    """What a new center would save, from distances to all candidates at once.

    Parameters
    ----------
    samples : Samples
        Dense, on the CPU, and kept whole.

    weights : ndarray (n_samples,), float64, or None

    first : int
        Index of the first center.

    Attributes
    ----------
    closest : ndarray (n_samples,), float64
        Squared distance to the nearest center.
    """

    def __init__(self, samples, weights, first):
        self._values, self._weights = samples.whole.numpy(), weights
        self._squares = samples.squared_norms.numpy()
        h = inflation(samples.n_features, torch.float64)
        self._blur = 2 * h * (self._squares + self._squares.max())
        self.closest = self._distances(np.array([first]))[0]

    def _total(self, numbers):
        return numbers.sum(-1) if self._weights is None else numbers @ self._weights

    def _distances(self, candidates):
        """Squared distances to candidate samples, (c, n).

        What the expanded form cannot tell from 0 is computed by differences, so
        duplicates of a candidate are at distance 0 and are not drawn again.
        """
        centers = self._values[candidates]
        distances = _product(centers, -2 * self._values.T)
        distances += self._squares[candidates, None]
        distances += self._squares
        place, row = np.nonzero(distances <= self._blur)
        difference = self._values[row] - centers[place]
        distances[place, row] = np.einsum("pd,pd->p", difference, difference)
        return distances

    def add_best(self, candidates):
        """Choose the candidate that leaves the least potential; returns its place."""
        left = np.minimum(self._distances(candidates), self.closest)  # (c, n)
        best = int(self._total(left).argmin())
        self.closest = left[best]
        return best
