"""Trimmed k-means for several numbers of clusters and fractions, to choose both."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_kmtrf._trimmed_kmeans import TrimmedTransformerKMeans


def trimming_curves(
    X,
    *,
    n_clusters=(1, 2, 3, 4),
    trim_fractions=(0.0, 0.04, 0.08, 0.12, 0.16, 0.2),
    sample_weight=None,
    **params,
):
    """Fit trimmed k-means for each number of clusters and each fraction.

    The curves of the objective against the fraction, one for each number of clusters,
    help to choose both, as the classification trimmed likelihood curves of [1]_ do. A
    fraction is large enough where the curve stops to fall steeply: what is trimmed from
    there on are samples like the others. A number of clusters is large enough if one
    more cluster does not lower the curve beyond that fraction.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples to cluster.

    n_clusters : int or sequence of int, default=(1, 2, 3, 4)
        Numbers of clusters.

    trim_fractions : float or sequence of float, \
            default=(0.0, 0.04, 0.08, 0.12, 0.16, 0.2)
        Shares of the samples to leave out, in [0, 1).

    sample_weight : array-like of shape (n_samples,) or float, default=None
        Weight of each sample.

    **params : dict
        Further parameters of :class:`TrimmedTransformerKMeans`, such as
        ``random_state``.

    Returns
    -------
    table : dict of ndarrays
        One entry for each pair, by number of clusters and then by fraction, to be read
        as a table: ``pandas.DataFrame(table)``. Its columns are

        * ``n_clusters``, ``trim_fraction``: the pair;
        * ``objective``: `inertia_`, in squared units of X. For one number of clusters
          it never rises with the fraction;
        * ``radius``: `radius_`, in units of X;
        * ``smallest_share``: weight of the smallest cluster, as a share of all. Where
          it is small, the cluster may be a group of outliers;
        * ``n_iter``, ``converged``: of the fit.

    Raises
    ------
    ValueError
        If the data or a parameter is not as :class:`TrimmedTransformerKMeans` needs it.

    See Also
    --------
    TrimmedTransformerKMeans : The estimator that is fitted.

    References
    ----------
    .. [1] Garcia-Escudero, Gordaliza, Matran, Mayo-Iscar. "Exploring the number of
       groups in robust model-based clustering", Statistics and Computing 21, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_kmtrf import trimming_curves
    >>> X = np.array([[0.0], [2.0], [10.0], [12.0], [500.0]])
    >>> table = trimming_curves(
    ...     X, n_clusters=[1, 2], trim_fractions=[0.0, 0.2], random_state=0
    ... )
    >>> for row in zip(*(table[c].tolist() for c in ("n_clusters", "trim_fraction"))):
    ...     print(row)
    (1, 0.0)
    (1, 0.2)
    (2, 0.0)
    (2, 0.2)
    >>> table["objective"][[1, 2, 3]]
    array([104., 104.,   4.])
    """
    rows = []
    for k in np.atleast_1d(n_clusters).tolist():
        fractions, curve = np.atleast_1d(trim_fractions).tolist(), {}
        before = None
        # In rising order: the centers of a fraction serve the next one as one more
        # start, which cannot end above it.
        for fraction in sorted(set(fractions)):
            before = _best_fit(X, k, fraction, sample_weight, params, before)
            curve[fraction] = _row(before, sample_weight)
        rows += [curve[fraction] for fraction in fractions]
    return {name: np.array([row[name] for row in rows]) for name in _COLUMNS}


_COLUMNS = (
    "n_clusters",
    "trim_fraction",
    "objective",
    "radius",
    "smallest_share",
    "n_iter",
    "converged",
)


def _best_fit(X, n_clusters, trim_fraction, sample_weight, params, before):
    """The fit of one pair, or from the centers of the fraction before if better."""
    model = TrimmedTransformerKMeans(n_clusters, trim_fraction=trim_fraction, **params)
    with warnings.catch_warnings():
        # Fewer clusters than asked for: the table says so by a share of 0.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, sample_weight=sample_weight)
        if before is None:
            return model
        continued = TrimmedTransformerKMeans(
            n_clusters,
            trim_fraction=trim_fraction,
            **{**params, "init": before.cluster_centers_, "n_init": 1},
        ).fit(X, sample_weight=sample_weight)
    return continued if continued.inertia_ < model.inertia_ else model


def _row(model, sample_weight):
    """What the table says of a fit."""
    weights = np.ones(len(model.labels_))
    if sample_weight is not None:
        weights = weights * np.asarray(sample_weight, dtype=float)
    kept = model.labels_ >= 0
    shares = np.bincount(model.labels_[kept], weights[kept], minlength=model.n_clusters)
    return {
        "n_clusters": model.n_clusters,
        "trim_fraction": model.trim_fraction,
        "objective": model.inertia_,
        "radius": model.radius_,
        "smallest_share": shares.min() / weights.sum(),
        "n_iter": model.n_iter_,
        "converged": model.converged_,
    }
