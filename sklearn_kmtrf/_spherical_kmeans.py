"""SphericalTransformerKMeans: k-means of directions, by the cosine."""

import copy

import numpy as np

from sklearn_kmtrf._base import BaseTransformerKMeans
from sklearn_kmtrf.circuits import ClusteringCircuit, spherical_circuit
from sklearn_kmtrf.kernels._circuit_run import CircuitAssignment
from sklearn_kmtrf.kernels._lloyd import lloyd
from sklearn_kmtrf.kernels._nearest import center_distances
from sklearn_kmtrf.kernels._small import is_small
from sklearn_kmtrf.kernels._spherical import (
    SmallSphericalAssignment,
    SphericalAssignment,
    SphericalCircuitAssignment,
)
from sklearn_kmtrf.kernels._unit import (
    merge_coinciding,
    rows_without_direction,
    unit_samples_of,
)


class SphericalTransformerKMeans(BaseTransformerKMeans):
    r"""Spherical k-means: clusters of directions, for text and other counts.

    Every row of X is scaled to length one, and centers are unit vectors too. What is
    minimized is the weighted sum of what cosines lack to one [1]_,

    .. math:: \sum_i w_i (1 - \cos(x_i, c_{a(i)})),

    by turns of the nearest center, :math:`a(i) = \arg\max_j x_i \cdot c_j`, and of the
    direction of the sum of its samples. So the length of a row never matters, as with
    tf-idf of documents of any length. k-means on the same unit rows (with centers that
    are means, not directions) prefers clusters whose samples agree.

    A transformer does this with dot-product attention and tokens of length one [2]_;
    `circuit_` is that transformer. Read more in the user guide.

    Parameters
    ----------
    n_clusters : int, default=8
        The number of clusters to form, and of centers to find.

    init : {'k-means++', 'random'}, callable or array-like of shape \
            (n_clusters, n_features), default='k-means++'
        Where the centers begin:

        * 'k-means++': greedy k-means++ [3]_ with ``1 - cos`` as distance;
        * 'random': distinct samples drawn by weight;
        * an array: the directions of its rows;
        * a callable: called as ``init(X, n_clusters, random_state=random_state)`` once
          per start, with X as it was given; the directions of what it returns.

    n_init : 'auto' or int, default='auto'
        Number of starts, of which the best is kept. 'auto' is 1 for 'k-means++' and an
        array, 10 for 'random' and a callable.

    max_iter : int, default=300
        Most iterations of one run.

    tol : float, default=1e-4
        A run ends when no label changes, or when the summed squared movement of the
        centers in one iteration is at most `tol` times the variance of the unit rows,
        averaged over features.

    verbose : int, default=0
        Prints each iteration if not 0.

    random_state : int, RandomState instance or None, default=None
        Seed of the starts.

    weights : 'constructed' or ClusteringCircuit, default='constructed'
        Where the parameters of the circuit come from. 'constructed' has them in closed
        form, and runs at any size. A circuit that
        :func:`~sklearn_kmtrf.circuits.spherical_circuit` built is run as it is, in its
        own precision: on dense X of its width, without sample weights, and with all
        attention weights of its update head in memory.

    device : str, torch.device or None, default=None
        Where to compute: None is the device of X (the CPU for NumPy arrays), 'auto' a
        GPU if there is one.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centers of length one, in the dtype of X.

    labels_ : ndarray of shape (n_samples,), int32
        Label of each sample; always equal to ``predict(X)``.

    inertia_ : float
        Weighted sum of one minus the cosine of the samples to their centers; always
        equal to ``-score(X, sample_weight=sample_weight)``.

    n_iter_ : int
        Iterations of the best run.

    converged_ : bool
        False if the best run was ended by `max_iter` or by a callback.

    objective_history_ : ndarray of shape (n_iter_,)
        Inertia of the best run after each iteration, with the centers that the
        iteration found and the labels that it found them from. Never rises.

    objective_histories_ : list of ndarray
        The same for every run.

    initial_centers_ : ndarray of shape (n_clusters, n_features)
        Centers that the best run began with, of length one.

    circuit_ : ClusteringCircuit
        The transformer whose iterations these are: `weights` if that is a circuit,
        or the constructed one, built when it is asked for.

    device_ : torch.device
        Where it was run.

    n_features_in_ : int
        Number of features seen during fit.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during fit. Defined only when X has feature names that
        are all strings.

    See Also
    --------
    TransformerKMeans : k-means, by distance.

    Notes
    -----
    A row of zeros has no direction. It stays a row of zeros, as far from all centers as
    a right angle: its label is 0, it adds its weight to `inertia_`, and it has no say
    in where centers begin and go.

    A cluster whose samples cancel (their sum is shorter than 1e-12 of their weight)
    keeps its center. A cluster without samples gets the sample that is farthest from
    its own center. With one feature there are two directions; angles must be given as
    cosine and sine.

    Sparse X is never made dense. Memory beyond X is a few numbers per sample, one block
    of rows, and of sparse X the stored values once more. Rows may be as long as 1e200
    or as short as 1e-200.

    References
    ----------
    .. [1] Dhillon, Modha. "Concept decompositions for large sparse text data using
       clustering", Machine Learning 42, 2001.

    .. [2] Clarkson, Horesh, Ito, Park, Ram. "Transformer Circuits Can Realize
       Clustering Algorithms", ICML 2026. arXiv:2506.19125.

    .. [3] Arthur, Vassilvitskii. "k-means++: the advantages of careful seeding",
       SODA 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_kmtrf import SphericalTransformerKMeans
    >>> X = np.array([[1, 0], [30, 1], [0, 2], [1, 50]])
    >>> model = SphericalTransformerKMeans(n_clusters=2, random_state=0).fit(X)
    >>> model.labels_
    array([1, 1, 0, 0], dtype=int32)
    >>> model.predict([[1000, 1]])
    array([1], dtype=int32)
    """

    _algorithms = ("spherical k-means",)

    def __init__(
        self,
        n_clusters=8,
        *,
        init="k-means++",
        n_init="auto",
        max_iter=300,
        tol=1e-4,
        verbose=0,
        random_state=None,
        weights="constructed",
        device=None,
    ):
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.weights = weights
        self.device = device

    def _constructed_circuit(self):
        return spherical_circuit(self.n_features_in_, len(self.cluster_centers_))

    def _samples(self, X, device, frame=None, keep=None):
        return unit_samples_of(X, device, frame, keep=keep)

    def _set_aside(self, samples, weights):
        """No weight for rows without direction; each costs its own: 1 - 0."""
        zero = rows_without_direction(samples).cpu().numpy()
        if not zero.any():
            return weights, 0.0
        weights = np.ones(samples.n_samples) if weights is None else weights
        return np.where(zero, 0.0, weights), float(weights[zero].sum())

    def _seeds(self, samples, weights, random_state):
        if weights is not None and not weights.any():
            raise ValueError(
                f"X must have a row that is not zero, and has a weight, for "
                f"{type(self).__name__} with init='k-means++'. Got none."
            )
        return super()._seeds(samples, weights, random_state)

    def _origin(self, X):
        """Directions are seen from the origin, by a callable `init` too."""
        return np.zeros(X.shape[1])

    def _run(self, problem, centers, report):
        """Spherical k-means from given centers, by the kernel or a given circuit."""
        if not centers.any(1).all():
            raise ValueError(
                f"The initial centers of {type(self).__name__} must have directions. "
                "Got a row of zeros instead."
            )
        return lloyd(
            self._assignment(problem),
            centers,
            max_iterations=self.max_iter,
            tolerance=problem.tolerance,
            on_iteration=report,
        )

    def _assignment(self, problem):
        """What assigns samples to centers: the kernel, or the circuit given."""
        samples, weights = problem.samples, problem.weights
        if isinstance(self.weights, ClusteringCircuit):
            circuit = copy.deepcopy(self.weights).to(samples.device).eval()
            return SphericalCircuitAssignment(samples, weights, circuit)
        small = is_small(samples, self.n_clusters)
        kernel = SmallSphericalAssignment if small else SphericalAssignment
        return kernel(samples, weights)

    def _publish_run(self, problem, search, dtype):
        best = search.best._replace(centers=merge_coinciding(search.best.centers))
        super()._publish_run(problem, search._replace(best=best), dtype)

    def _publish(self, assignment, problem):
        """Set `labels_` and `inertia_`, of the nearest centers whatever the circuit."""
        if isinstance(assignment, CircuitAssignment):
            assignment = SphericalAssignment(problem.samples, problem.weights)
        super()._publish(assignment, problem)
        self.labels_[rows_without_direction(problem.samples).cpu().numpy()] = 0

    def _nearest_of(self, block, centers):
        """Nearest center of each row; a row of zeros has equally many right angles."""
        labels = super()._nearest_of(block, centers)
        return labels.masked_fill_(block.squared_norms == 0, 0)

    def _distances_of(self, block, centers):
        """One minus the cosine of each row to all centers, by |x - c|^2 / 2."""
        distances = center_distances(block, centers).square_().div_(2)
        return distances.masked_fill_((block.squared_norms == 0)[:, None], 1)

    def transform(self, X):
        """Cosine distance of each sample to each cluster center.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, in any float dtype.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_clusters)
            One minus the cosine, from 0 to 2, in the dtype of X; dense also for sparse
            X. The smallest of a row is at the label that `predict` gives.
        """
        return super().transform(X)

    def score(self, X, y=None, sample_weight=None):
        """Minus the objective of X with the fitted centers.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        y : Ignored
            Not used, present here for API consistency by convention.

        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weight of each sample.

        Returns
        -------
        score : float
            Minus the weighted sum of one minus the cosine to the nearest centers.
        """
        return super().score(X, sample_weight=sample_weight)
