"""Greedy k-means++: initial centers, with the draws of scikit-learn.

Each new center is the best of 2 + log k candidates drawn with probability proportional
to their squared distance to the centers chosen so far (Arthur and Vassilvitskii, "The
advantages of careful seeding", 2007, section 5).
"""

import numpy as np
import torch

from sklearn_kmtrf.kernels._nearest import Centers, pair_distances


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
    indices = np.empty(n_clusters, dtype=np.int64)
    indices[0] = choose.first(random_state)
    closest = np.full(samples.n_samples, np.inf)
    potential = _add_center(samples, closest, indices[:1], weights)
    for c in range(1, n_clusters):
        draws = random_state.uniform(size=n_trials) * potential
        candidates = choose.by_distance(closest, draws)
        potentials = _potentials(samples, closest, candidates, weights)
        indices[c] = candidates[np.argmin(potentials)]
        potential = _add_center(samples, closest, indices[c : c + 1], weights)
    return indices


class _WeightedChoice:
    """Draws samples by weight, and by weight times squared distance."""

    def __init__(self, n_samples, weights):
        self.weights = np.ones(n_samples) if weights is None else weights
        has_none = weights is not None and not np.all(weights > 0)
        self.positive = np.flatnonzero(weights) if has_none else None

    def first(self, random_state):
        """One sample, by weight."""
        return random_state.choice(
            len(self.weights), p=self.weights / self.weights.sum()
        )

    def by_distance(self, closest, draws):
        """Samples at which the cumulated weighted distance passes the draws."""
        cumulated = np.cumsum(self.weights * closest)
        found = np.searchsorted(cumulated, draws)
        # Rounding may put a draw past the end or on a sample without weight.
        if self.positive is None:
            return np.minimum(found, len(closest) - 1)
        place = np.searchsorted(self.positive, found)
        return self.positive[np.minimum(place, len(self.positive) - 1)]


def _distances(samples, block, candidates):
    """Squared distances of a block's rows to candidate samples, (m, c).

    What the expanded form cannot tell from 0 is computed by differences, so duplicates
    of a candidate are at distance 0 and are not drawn again.
    """
    prepared = Centers(candidates)
    squares = block.products(candidates).mul_(-2).add_(prepared.squared_norms)
    squares.add_(block.squared_norms[:, None])
    row, column = (
        squares <= 8 * prepared.rounding(block.squared_magnitudes.sqrt())[:, None]
    ).nonzero(as_tuple=True)
    if len(row):
        pair = torch.arange(len(row), device=row.device)
        squares[row, column] = pair_distances(block.rows(row), candidates, pair, column)
    return squares.clamp_(min=0)


def _potentials(samples, closest, candidates, weights):
    """Weighted sum of distances if each candidate alone were added, (c,)."""
    rows = samples.rows(candidates)
    total = np.zeros(len(candidates))
    for part, block in samples.blocks(len(rows)):
        before = torch.from_numpy(closest[part]).to(samples.device)
        distances = _distances(samples, block, rows)
        distances = torch.minimum(distances, before[:, None])
        if weights is None:
            gained = distances.sum(0)
        else:
            gained = torch.from_numpy(weights[part]).to(samples.device) @ distances
        total += gained.cpu().numpy()
    return total


def _add_center(samples, closest, index, weights):
    """Lower `closest` to the distance to a new center; return the new potential."""
    center = samples.rows(index)
    for part, block in samples.blocks(1):
        distances = _distances(samples, block, center)[:, 0].cpu().numpy()
        np.minimum(closest[part], distances, out=closest[part])
    return closest.sum() if weights is None else closest @ weights
