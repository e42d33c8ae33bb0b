"""Proves, in long double, that two answers to one k-means problem differ by a tie only.

Ours and scikit-learn's may part where two rows, candidates, far rows or runs tie within
64 roundings: scikit-learn lets rounding decide, we take the lower index. They also part
where a relocation of empty clusters takes a row of weight 0, which we do not, or the
last sample of a cluster, which scikit-learn then puts in an odd place. `explain`
follows both from the common start to the first step at which they part, and returns
what tied there, or None if nothing did.
"""

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.cluster._kmeans import _kmeans_plusplus

from sklearn_kmtrf import TransformerKMeans

EPS = 64 * np.finfo(np.float64).eps


def quiet_fit(estimator, X, weights=None):
    """Fit without the warnings about duplicates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X, sample_weight=weights)


def squared_distances(X, centers):
    """All squared distances in long double, and the size of their terms."""
    X, centers = X.astype(np.longdouble), centers.astype(np.longdouble)
    distances = np.stack([((X - c) ** 2).sum(1) for c in centers], axis=1)
    size = (X**2).sum(1)[:, None] + (centers**2).sum(1)
    return distances, size


def explain(X, weights, params):
    """What tied where ours and scikit-learn's fit part; None if nothing did.

    Parameters
    ----------
    X : ndarray
        Dense and centered.

    weights : ndarray or None

    params : dict
        Parameters of both estimators, `n_init` an integer, `random_state` a seed.
    """
    state, inertias = np.random.RandomState(params["random_state"]).get_state(), []
    for _ in range(params["n_init"]):
        single, rng = dict(params, n_init=1), _replay(state)
        theirs = quiet_fit(KMeans(**dict(single, random_state=rng)), X, weights)
        tied = _explain_run(X, weights, single, state)
        if tied:
            return tied
        inertias.append(theirs.inertia_)
        state = rng.get_state()
    close = np.diff(np.sort(inertias))[:1] <= EPS * (X**2).sum()
    return "runs" if close.any() else None


def _replay(state):
    rng = np.random.RandomState()
    rng.set_state(state)
    return rng


def _explain_run(X, weights, params, state):
    k, w = params["n_clusters"], np.ones(len(X)) if weights is None else weights
    start = params["init"]
    if isinstance(start, str) and start == "k-means++":
        if _seeds_tie(X, w, k, state):
            return "candidates"
        start = _kmeans_plusplus(X, k, (X**2).sum(1), w, _replay(state))[0]
    elif isinstance(start, str):
        start = X[_replay(state).choice(len(X), k, replace=False, p=w / w.sum())]
    return _explain_iterations(X, weights, dict(params, init=start))


def _seeds_tie(X, w, n_clusters, state):
    """Whether two candidates of greedy k-means++ tie, or a draw falls on a border."""
    chosen = _kmeans_plusplus(X, n_clusters, (X**2).sum(1), w, _replay(state))[1]
    rng = _replay(state)
    rng.choice(len(X), p=w / w.sum())
    size = 4 * (X**2).sum(1).max() * w.sum()
    closest = squared_distances(X, X[chosen[:1]])[0][:, 0]
    for c in range(1, n_clusters):
        cumulated = np.cumsum(w * closest)
        draws = rng.uniform(size=2 + int(np.log(n_clusters))) * cumulated[-1]
        if np.abs(cumulated[:, None] - draws).min() <= EPS * size:
            return True
        ids = np.minimum(np.searchsorted(cumulated, draws), len(X) - 1)
        added = np.minimum(squared_distances(X, X[ids])[0], closest[:, None])
        potentials = w @ added
        rivals = potentials[ids != chosen[c]]
        if len(rivals) and rivals.min() - potentials.min() <= EPS * size:
            return True
        last = squared_distances(X, X[chosen[c : c + 1]])[0][:, 0]
        closest = np.minimum(closest, last)
    return False


def _explain_iterations(X, weights, params):
    """The same from given centers: follow both, one iteration at a time."""
    centers = np.asarray(params["init"], dtype=float)
    for n in range(1, params.get("max_iter", 300) + 1):
        tied = _step_ties(X, weights, centers)
        if tied:
            return tied
        ours, theirs = (
            quiet_fit(cls(**dict(params, max_iter=n)), X, weights)
            for cls in (TransformerKMeans, KMeans)
        )
        apart = np.abs(ours.cluster_centers_ - theirs.cluster_centers_).max()
        if apart > 1e-9 * np.abs(X).max() or theirs.n_iter_ < n:
            return None
        centers = theirs.cluster_centers_
    return None


def _step_ties(X, weights, centers):
    """What ties in one iteration from `centers`; None if nothing does."""
    distances, size = squared_distances(X, centers)
    nearest = np.sort(distances, axis=1)
    if len(centers) > 1:
        gap = nearest[:, 1] - nearest[:, 0]
        if np.any(gap <= EPS * size.max(1)):
            return "rows"
    w = np.ones(len(X)) if weights is None else weights
    mass = np.bincount(distances.argmin(1), w, minlength=len(centers))
    n_empty = np.count_nonzero(mass == 0)
    if n_empty:
        order = np.argsort(nearest[:, 0])[::-1]
        far = nearest[order[: n_empty + 1], 0]
        if np.any(-np.diff(far) <= EPS * size.max()):
            return "far rows"
        if np.any(w[order[:n_empty]] == 0):
            return "weightless far row"
        # scikit-learn may put a cluster that lost its last sample on a sum of samples.
        left = mass - np.bincount(
            distances.argmin(1)[order[:n_empty]],
            w[order[:n_empty]],
            minlength=len(centers),
        )
        if np.any(left[mass > 0] == 0):
            return "emptied cluster"
    return None
