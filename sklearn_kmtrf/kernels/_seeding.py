"""Greedy k-means++: initial centers, with the draws of scikit-learn.

Each new center is the best of 2 + log k candidates drawn with probability proportional
to D, their squared distance to the centers chosen so far (Arthur and Vassilvitskii,
"The advantages of careful seeding", 2007, section 5). D is kept in float64, since the
draws depend on it.

A candidate c leaves the potential sum w min(D, |x - c|^2). It is bounded from the
scores L of :mod:`sklearn_kmtrf.kernels._nearest`, which for dense samples are float32:

    |x - c|^2 <= L <= (1 + 4 h) |x - c|^2 + 6 h |x|^2.

With R = (1 + 4 h) D + 7 h |x|^2, which is kept beside D, only samples with L < R can
come nearer to a center, and sum w min(L, R) exceeds the potential by at most
4 h times itself and 7 h sum w |x|^2. Where that leaves more than one candidate they are
compared by their exact gains, on the samples with L < R alone.
"""

import numpy as np
import torch

from sklearn_kmtrf.kernels._blocks import inflation
from sklearn_kmtrf.kernels._nearest import Centers
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
    choose = _WeightedChoice(samples.n_samples, weights)
    first = choose.first(random_state)
    kind = SmallPotential if is_small(samples, n_trials) else _Potential
    potential = kind(samples, weights, first)
    indices = [first]
    while len(indices) < n_clusters:
        value = potential.value()
        draws = random_state.uniform(size=n_trials) * value
        candidates = choose.by_distance(potential.closest, draws)
        indices.append(candidates[potential.add_best(candidates, value)])
    return np.array(indices)


class _WeightedChoice:
    """Draws samples by weight, and by weight times squared distance."""

    def __init__(self, n_samples, weights):
        self.n_samples, self.weights = n_samples, weights
        has_none = weights is not None and not np.all(weights > 0)
        self.positive = np.flatnonzero(weights) if has_none else None

    def first(self, random_state):
        """One sample, by weight."""
        weights = np.ones(self.n_samples) if self.weights is None else self.weights
        return random_state.choice(self.n_samples, p=weights / weights.sum())

    def by_distance(self, closest, draws):
        """Samples at which the cumulated weighted distance passes the draws."""
        mass = closest if self.weights is None else self.weights * closest
        found = np.searchsorted(np.cumsum(mass), draws)
        # Rounding may put a draw past the end or on a sample without weight.
        if self.positive is None:
            return np.minimum(found, len(closest) - 1)
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
        spread = samples.squared_norms
        self.spread = float(spread.sum() if weights is None else spread @ self.weights)
        self._closest = torch.empty(
            samples.n_samples, dtype=torch.float64, device=samples.device
        )
        self._reach = []
        center = samples.rows([first])
        for rows, block in samples.blocks(1):
            self._closest[rows] = _distances(block, center)
            self._reach.append(self._reach_of(self._closest[rows], block))
        self._reach = torch.cat(self._reach)

    @property
    def closest(self):
        """D as a NumPy array."""
        return self._closest.cpu().numpy()

    def value(self):
        """The potential: weighted sum of D."""
        closest = self.closest
        weights = None if self.weights is None else self.weights.cpu().numpy()
        return closest.sum() if weights is None else closest @ weights

    def _reach_of(self, closest, block):
        """R of some rows, rounded up, in the dtype of their scores."""
        h = inflation(self.samples.n_features, block.dtype)
        scaled = closest * ((1 + 4 * h) * (1 + 2 * torch.finfo(block.dtype).eps))
        return scaled.to(block.dtype) + block.blur

    def add_best(self, candidates, value):
        """Choose the candidate that leaves the least potential; returns its place.

        Parameters
        ----------
        candidates : ndarray (c,)
            Indices of samples.

        value : float
            The potential now.
        """
        centers = Centers(self.samples.rows(candidates))
        estimates = np.zeros(len(candidates))
        # Which candidates each sample may be closer to, (c, n).
        near = torch.empty(
            (len(candidates), self.samples.n_samples),
            dtype=torch.bool,
            device=self.samples.device,
        )
        for rows, block in self.samples.blocks(len(candidates)):
            scores, reach = block.scores(centers), self._reach[rows]
            torch.lt(scores, reach, out=near[:, rows])
            left = torch.minimum(scores, reach, out=scores)
            if self.weights is not None:
                left = left * self.weights[rows]
            estimates += left.sum(1, dtype=torch.float64).cpu().numpy()
        h = inflation(self.samples.n_features, block.dtype)
        most = estimates.min()
        error = (4 * h + 8 * torch.finfo(block.dtype).eps) * most + 8 * h * self.spread
        rivals = np.flatnonzero(estimates <= most + error)
        gains, distances = {}, {}
        for place in rivals:
            index = near[place].nonzero()[:, 0]
            distances[place] = index, self._distances_to(index, centers.values[place])
            gains[place] = self._gain(*distances[place])
        best = max(rivals, key=lambda place: (gains[place], -place))
        self._lower(*distances[best])
        return best

    def _distances_to(self, index, center):
        """Squared distances of some rows to a center, by differences."""
        distances = [
            _distances(block, center[None]) for _, block in self.samples.parts(index, 1)
        ]
        return torch.cat(distances) if distances else self._closest[:0]

    def _gain(self, index, distances):
        """What the potential loses on some rows."""
        saved = (self._closest[index] - distances).clamp_(min=0)
        if self.weights is not None:
            saved *= self.weights[index]
        return float(saved.sum())

    def _lower(self, index, distances):
        """Bring D, and R with it, down to the distances to a new center."""
        closer = distances < self._closest[index]
        index, distances = index[closer], distances[closer]
        self._closest[index] = distances
        place = 0
        for part, block in self.samples.parts(index, 1):
            here = distances[place : place + len(part)]
            self._reach[part] = self._reach_of(here, block)
            place += len(part)


def _distances(block, center):
    """Squared distances of a block's rows to one center (1, d), by differences."""
    own = torch.zeros_like(block.squared_norms).long()
    return block.distances_to(center, own)
