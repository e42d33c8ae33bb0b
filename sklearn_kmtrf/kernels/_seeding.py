"""Greedy k-means++: initial centers, with the draws of scikit-learn.

Each new center is the best of 2 + log k candidates drawn with probability proportional
to D, their squared distance to the centers chosen so far (Arthur and Vassilvitskii,
"The advantages of careful seeding", 2007, section 5). D is kept in float64, since the
draws depend on it.

A candidate c leaves the potential sum w min(D, |x - c|^2). It is bounded from the
scores L of :mod:`sklearn_kmtrf.kernels._nearest`, which for dense samples are float32:

    |x - c|^2 <= L <= (1 + 4 h) |x - c|^2 + 6 h |x|^2.

With R = (1 + 4 h) D + 7 h |x|^2, which is kept beside D, only samples with L < R can
come nearer to a center, and there

    max(0, D - |x - c|^2) <= R - L <= max(0, D - |x - c|^2) + R - D.

So candidates are ordered by sum w min(L, R), as far as these sums differ by more than
sum w (R - D) over the samples with L < R. Those which do not are compared by their
exact gains, on these samples alone.
"""

import math

import numpy as np
import torch

from sklearn_kmtrf.kernels._accumulators import total
from sklearn_kmtrf.kernels._blocks import inflation
from sklearn_kmtrf.kernels._nearest import Centers, squared_distances
from sklearn_kmtrf.kernels._select import pick, put_, where
from sklearn_kmtrf.kernels._small import SmallPotential, is_small


def greedy_kmeans_plusplus(samples, weights, n_clusters, random_state):
    """Indices of samples that serve as initial centers.

    Draws from `random_state` what ``sklearn.cluster.kmeans_plusplus`` draws, in the
    same order, so the same seed gives the same samples. A sample of weight 0 is never
    chosen.

    Parameters
    ----------
    samples : Samples

    weights : ndarray (n_samples,), float64, or None

    n_clusters : int
        At most the number of samples.

    random_state : numpy.random.RandomState

    Returns
    -------
    indices : ndarray (n_clusters,), int64
    """
    n_trials = 2 + int(np.log(n_clusters))
    choose = WeightedChoice(samples.n_samples, weights)
    first = choose.first(random_state)
    kind = SmallPotential if is_small(samples, n_trials) else _Potential
    potential = kind(samples, weights, first)
    indices = [first]
    while len(indices) < n_clusters:
        draws = random_state.uniform(size=n_trials)
        candidates = choose.by_distance(potential.closest, draws)
        indices.append(candidates[potential.add_best(candidates)])
    return np.array(indices)


class WeightedChoice:
    """Draws samples by weight, and by weight times squared distance."""

    def __init__(self, n_samples, weights):
        self.n_samples, self.weights = n_samples, weights
        has_none = weights is not None and not np.all(weights > 0)
        self.positive = np.flatnonzero(weights) if has_none else None

    def first(self, random_state):
        """One sample, by weight: what ``random_state.choice`` draws."""
        n_samples = self.n_samples
        if self.weights is not None:
            return random_state.choice(n_samples, p=self.weights / self.weights.sum())
        # The cumulated shares i / n that a draw is looked up in are off by rounding.
        draw = random_state.random_sample()
        place = draw * n_samples
        if abs(place - round(place)) > 4 * np.finfo(float).eps * n_samples**2:
            return int(place)
        shares = np.full(n_samples, 1 / n_samples).cumsum()
        return int(np.searchsorted(shares / shares[-1], draw, side="right"))

    def by_distance(self, closest, draws):
        """Samples at which the cumulated weighted distance passes some shares of it.

        Parameters
        ----------
        closest : ndarray (n_samples,)
            Squared distances.

        draws : ndarray (c,)
            In [0, 1).
        """
        mass = closest if self.weights is None else self.weights * closest
        return self._with_weight(self._where_cumulated(mass, draws))

    def _where_cumulated(self, mass, draws):
        """Where the cumulated mass passes some shares of it."""
        if self.n_samples <= 2**12:
            cumulated = np.cumsum(mass)
            return np.searchsorted(cumulated, draws * cumulated[-1])
        # In two steps, for most of the sums are not needed one by one.
        width = max(1, math.isqrt(self.n_samples))
        starts = np.arange(0, self.n_samples, width)
        cumulated = np.cumsum(np.add.reduceat(mass, starts))
        draws = draws * cumulated[-1]
        parts = np.searchsorted(cumulated, draws)
        found = np.empty(len(draws), dtype=np.int64)
        for place, part in enumerate(np.minimum(parts, len(starts) - 1)):
            before = cumulated[part - 1] if part else 0.0
            inside = np.cumsum(mass[starts[part] :][:width])
            found[place] = starts[part] + np.searchsorted(inside, draws[place] - before)
        return found

    def _with_weight(self, found):
        """Samples that rounding put past the end, or on one without weight."""
        if self.positive is None:
            return np.minimum(found, self.n_samples - 1)
        place = np.searchsorted(self.positive, found)
        return self.positive[np.minimum(place, len(self.positive) - 1)]


class _Potential:
    """Squared distances to the centers chosen so far, and what a new one would save.

    Parameters
    ----------
    samples : Samples

    weights : ndarray (n_samples,), float64, or None

    first : int
        Index of the first center.

    Attributes
    ----------
    closest : ndarray (n_samples,), float64
        D, squared distance to the nearest center.
    """

    def __init__(self, samples, weights, first):
        self.samples = samples
        self.weights = None
        if weights is not None:
            self.weights = torch.tensor(weights, device=samples.device)
        center = Centers(samples.rows([first]))
        self._closest = torch.empty_like(samples.squared_norms)
        for rows, block in samples.blocks(1):
            self._closest[rows] = squared_distances(block, center)[:, 0]
        self._reach = self._reach_of(self._closest, samples.blur)

    @property
    def closest(self):
        """D as a NumPy array."""
        return self._closest.cpu().numpy()

    def _reach_of(self, closest, blur):
        """R of some rows, rounded up, in the dtype of their scores."""
        h = inflation(self.samples.n_features, blur.dtype)
        scaled = closest * ((1 + 4 * h) * (1 + 2 * torch.finfo(blur.dtype).eps))
        return scaled.to(blur.dtype).add_(blur)

    def add_best(self, candidates):
        """Choose the candidate that leaves the least potential; returns its place.

        Parameters
        ----------
        candidates : ndarray (c,)
            Indices of samples.
        """
        centers = Centers(self.samples.rows(candidates))
        estimates = np.zeros(len(candidates))
        # What is left of R with each candidate, (c, n).
        left = self._reach.new_empty((len(candidates), self.samples.n_samples))
        for rows, block in self.samples.blocks(len(candidates)):
            least = torch.minimum(
                block.scores(centers), self._reach[rows], out=left[:, rows]
            )
            if self.weights is not None:
                least = least * self.weights[rows]
            estimates += least.sum(1, dtype=torch.float64).cpu().numpy()
        best = int(estimates.argmin())
        index = where(left[best] < self._reach)
        excess = pick(self._reach, index) - pick(self._closest, index)
        error = float(total(excess, self._weights_of(index)))
        rivals = np.flatnonzero(estimates <= estimates[best] * (1 + 2**-40) + error)
        found = {best: (index, self._lowered(index, centers.values[best]))}
        if len(rivals) > 1:
            for place in rivals[rivals != best]:
                index = where(left[place] < self._reach)
                found[place] = index, self._lowered(index, centers.values[place])
            best = max(rivals, key=lambda place: (self._gain(*found[place]), -place))
        index, lowered = found[best]
        put_(self._closest, index, lowered)
        reach = self._reach_of(lowered, pick(self.samples.blur, index))
        put_(self._reach, index, reach)
        return best

    def _lowered(self, index, center):
        """D of some rows with one more center."""
        center, lowered = Centers(center[None]), pick(self._closest, index)
        place = 0
        for part, block in self.samples.parts(index, 1):
            here = lowered[place : place + len(part)]
            torch.minimum(here, squared_distances(block, center)[:, 0], out=here)
            place += len(part)
        return lowered

    def _gain(self, index, lowered):
        """What the potential loses when D of some rows is lowered."""
        return float(
            total(pick(self._closest, index) - lowered, self._weights_of(index))
        )

    def _weights_of(self, index):
        return None if self.weights is None else pick(self.weights, index)
