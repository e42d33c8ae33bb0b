"""Capped seeding: initial centers among contaminated data.

Greedy k-means++ draws far samples, and of contaminated data those are the outliers.
Here the squared distance D of a sample to the centers chosen so far is capped at q, the
distance within which the share to keep lies, so that an outlier is drawn no more than
another sample beyond q. And candidates, also those for the first center, are compared
by what matters in the end: the sum of D over the nearest samples, the share to keep.
"""

import numpy as np

from sklearn_kmtrf.kernels._nearest import Centers, squared_distances
from sklearn_kmtrf.kernels._seeding import WeightedChoice

# Sums this close, relative to the smaller one, may differ by the order of summation.
_ROUNDING = 1e-12


def capped_kmeans_plusplus(samples, weights, n_clusters, random_state, mass):
    """Indices of samples that serve as initial centers.

    A sample of weight 0 is never chosen.

    Parameters
    ----------
    samples : Samples

    weights : ndarray (n_samples,), float64, or None

    n_clusters : int
        At most the number of samples.

    random_state : numpy.random.RandomState

    mass : float
        Weight of the samples to keep, greater than 0.

    Returns
    -------
    indices : ndarray (n_clusters,), int64
    """
    n_trials = 2 + int(np.log(n_clusters))
    choose = WeightedChoice(samples.n_samples, weights)
    share = None if weights is None else weights / weights.sum()
    candidates = random_state.choice(samples.n_samples, size=n_trials, p=share)
    closest, indices = np.inf, []
    while True:
        left = np.minimum(_squared_distances(samples, candidates), closest)  # (c, n)
        capped = [_capped(distances, weights, mass) for distances in left]
        potentials = np.array([potential for _, potential in capped])
        best = int(np.argmax(potentials <= potentials.min() * (1 + _ROUNDING)))
        indices.append(candidates[best])
        if len(indices) == n_clusters:
            return np.array(indices)
        closest = left[best]
        chance = np.minimum(closest, capped[best][0])
        draws = random_state.uniform(size=n_trials)
        candidates = choose.by_distance(chance, draws)


def _capped(distances, weights, mass):
    """The distance within which a mass lies, and the sum of the distances within."""
    if weights is None:
        place = round(mass) - 1
        ordered = np.partition(distances, place)
        return ordered[place], ordered[: place + 1].sum()
    order = distances.argsort(kind="stable")
    ordered, own = distances[order], weights[order]
    before = own.cumsum() - own
    kept = np.clip(mass - before, 0, own)
    place = min(np.searchsorted(before, mass), len(own)) - 1
    return ordered[place], ordered[: place + 1] @ kept[: place + 1]


def _squared_distances(samples, candidates):
    """Squared distances of all samples to some of them, (c, n), float64."""
    centers = Centers(samples.rows(candidates))
    distances = np.empty((len(centers), samples.n_samples))
    for rows, block in samples.blocks(len(centers)):
        distances[:, rows] = squared_distances(block, centers).T.cpu().numpy()
    return distances
