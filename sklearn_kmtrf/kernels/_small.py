"""Small data: the same answers by a few NumPy calls.

Below some thousand samples the number of calls is the cost, and bounds save nothing.
All scores are made anew in float64, with the same certainty: rows whose two nearest
centers are closer than the rounding of the product are compared by differences.
"""

import numpy as np
import torch

from sklearn_kmtrf.kernels._accumulators import CenterSums
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._blocks import SMALL_PRODUCT, inflation
from sklearn_kmtrf.kernels._nearest import compare_directly

# Multiplications in one product of samples and centers, and scores that it makes.
MOST_WORK, MOST_SCORES = 2**21, 2**17


def _product(left, right):
    """Matrix product in parts so small that NumPy's BLAS wakes no threads for them."""
    step = max(1, SMALL_PRODUCT // (left.shape[1] * right.shape[1]))
    if step >= len(left):
        return left @ right
    parts = range(0, len(left), step)
    return np.concatenate([left[start : start + step] @ right for start in parts])


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
        super().__init__(samples, weights)
        self._values = samples.whole.numpy()
        self._lengths = np.sqrt(samples.squared_norms.numpy())
        self._rows = np.arange(samples.n_samples)
        self._weights = None if weights is None else weights.numpy()

    def move_to(self, centers):
        """Assign every sample to the nearest of other centers; see `Assignment`."""
        values = centers.numpy()
        squares = np.einsum("kd,kd->k", values, values)
        scores = _product(self._values, -2 * values.T) + squares  # (n, k)
        labels = scores.argmin(1)
        best = scores[self._rows, labels]
        scores[self._rows, labels] = np.inf
        longest = np.sqrt(squares.max())
        h = inflation(values.shape[1], torch.float64)
        reach = best + 2 * h * longest * (longest + 2 * self._lengths)
        uncertain = np.flatnonzero(scores.min(1) <= reach)
        if len(uncertain):
            scores[self._rows, labels] = best
            near = scores[uncertain] <= reach[uncertain, None]
            labels[uncertain] = compare_directly(
                self.samples.rows(uncertain), centers, torch.from_numpy(near)
            ).numpy()
        before, self.labels = self.labels, torch.from_numpy(labels)
        self.centers = centers
        n_changed = len(labels)
        if before is not None:
            n_changed = np.count_nonzero(before.numpy() != labels)
        if n_changed:
            self.sums = self._sums(labels, centers)
        return n_changed

    def _sums(self, labels, centers):
        """Sums by label, by a product with the one-hot codes."""
        codes = (labels == np.arange(len(centers))[:, None]).astype(
            np.float64
        )  # (k, n)
        counts = codes.sum(1)
        mass = counts
        if self._weights is not None:
            counts = codes @ (self._weights > 0)
            codes *= self._weights
            mass = codes.sum(1)
        return CenterSums(
            torch.from_numpy(_product(codes, self._values)),
            torch.from_numpy(mass),
            torch.from_numpy(counts.astype(np.int64)),
        )


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

    def value(self):
        """The potential: weighted sum of `closest`."""
        return self._total(self.closest)

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

    def add_best(self, candidates, value):
        """Choose the candidate that leaves the least potential; returns its place."""
        left = np.minimum(self._distances(candidates), self.closest)  # (c, n)
        best = int(self._total(left).argmin())
        self.closest = left[best]
        return best
