"""TransformerKMeans: k-means by a transformer that performs Lloyd's algorithm."""

import copy
import warnings

from sklearn.utils._param_validation import StrOptions

from sklearn_kmtrf._base import BaseTransformerKMeans
from sklearn_kmtrf._progress import FIT_STACKLEVEL
from sklearn_kmtrf._validation import check_scale
from sklearn_kmtrf.circuits import ClusteringCircuit
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._circuit_run import CircuitAssignment
from sklearn_kmtrf.kernels._lloyd import lloyd
from sklearn_kmtrf.kernels._small import SmallAssignment, is_small


class TransformerKMeans(BaseTransformerKMeans):
    """K-means clustering by a transformer whose layers are Lloyd's iterations.

    A drop-in replacement for :class:`sklearn.cluster.KMeans`: with the same data and
    the same `random_state` it returns the same labels, the same number of iterations,
    and the same centers and inertia up to rounding, but for exact ties, which go to the
    lower index. (For float32 data they are those of KMeans on the same data in float64
    from the same centers; its own draws and sums in float32 are left to rounding.)
    What it runs is the constructed circuit of [1]_, Theorem 2.1, as a stream of exact
    block computations; `circuit_` is that circuit, to look at.

    Parameters
    ----------
    n_clusters : int, default=8
        The number of clusters to form, and of centers to find.

    init : {'k-means++', 'random'}, callable or array-like of shape \
            (n_clusters, n_features), default='k-means++'
        Where the centers begin:

        * 'k-means++': greedy k-means++ [2]_, the best of ``2 + int(log(n_clusters))``
          candidates drawn with probability proportional to weighted squared distance;
        * 'random': distinct samples drawn by weight;
        * an array: these centers, in the units of X;
        * a callable: called as ``init(X, n_clusters, random_state=random_state)`` once
          per start, with dense X centered at its mean; what it returns is copied.

    n_init : 'auto' or int, default='auto'
        Number of starts, of which the best is kept. 'auto' is 1 for 'k-means++' and an
        array, 10 for 'random' and a callable.

    max_iter : int, default=300
        Most iterations of one run.

    tol : float, default=1e-4
        A run ends when no label changes, or when the summed squared movement of the
        centers in one iteration is at most `tol` times the mean variance of the
        features.

    verbose : int, default=0
        Prints each iteration if not 0.

    random_state : int, RandomState instance or None, default=None
        Seed of the starts.

    copy_x : bool, default=True
        Accepted for compatibility. X is never written, whatever it says.

    algorithm : {'lloyd', 'elkan'}, default='lloyd'
        Accepted for compatibility. Both give the same result in the same way.

    weights : 'constructed' or ClusteringCircuit, default='constructed'
        Where the parameters of the circuit come from. 'constructed' has them in
        closed form, and performs Lloyd's algorithm exactly, at any size. A circuit
        that :func:`~sklearn_kmtrf.circuits.lloyd_circuit` built is run as it is,
        in its own precision: on dense X of its width, without sample weights, and
        with all attention weights of its update head in memory.

    device : str, torch.device or None, default=None
        Where to compute: None is the device of X (the CPU for NumPy arrays), 'auto' a
        GPU if there is one.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centers, in the dtype of X.

    labels_ : ndarray of shape (n_samples,), int32
        Label of each sample; always equal to ``predict(X)``.

    inertia_ : float
        Weighted sum of squared distances of the samples to their centers; always equal
        to ``-score(X, sample_weight=sample_weight)``.

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
        Centers that the best run began with.

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
    sklearn.cluster.KMeans : The estimator that this one replaces.

    Notes
    -----
    Memory beyond X is a few numbers per sample and one block of rows; no array of shape
    (n_samples, n_clusters) is made. Distances are computed in float64 in a frame near
    the mean of the data, and samples whose nearest centers are too close to call in
    that form are decided by differences, ties going to the lower index.

    References
    ----------
    .. [1] Clarkson, Horesh, Ito, Park, Ram. "Transformer Circuits Can Realize
       Clustering Algorithms", ICML 2026. arXiv:2506.19125.

    .. [2] Arthur, Vassilvitskii. "k-means++: the advantages of careful seeding",
       SODA 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_kmtrf import TransformerKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0],
    ...               [10, 2], [10, 4], [10, 0]])
    >>> kmeans = TransformerKMeans(n_clusters=2, random_state=0).fit(X)
    >>> kmeans.labels_
    array([1, 1, 1, 0, 0, 0], dtype=int32)
    >>> kmeans.predict([[0, 0], [12, 3]])
    array([1, 0], dtype=int32)
    >>> kmeans.cluster_centers_
    array([[10.,  2.],
           [ 1.,  2.]])
    """

    _algorithms = ("lloyd",)

    _parameter_constraints: dict = {
        **BaseTransformerKMeans._parameter_constraints,
        "copy_x": ["boolean"],
        "algorithm": [StrOptions({"lloyd", "elkan"})],
    }

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
        copy_x=True,
        algorithm="lloyd",
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
        self.copy_x = copy_x
        self.algorithm = algorithm
        self.weights = weights
        self.device = device

    def _check_parameters(self, X):
        super()._check_parameters(X)
        if self.algorithm == "elkan" and self.n_clusters == 1:
            warnings.warn(
                "algorithm='elkan' doesn't make sense for a single cluster. "
                "Using 'lloyd' instead.",
                RuntimeWarning,
                stacklevel=FIT_STACKLEVEL + 1,
            )

    def _run(self, problem, centers, report):
        """Lloyd's algorithm from given centers, by the kernel or a given circuit."""
        return lloyd(
            self._assignment(problem),
            centers,
            max_iterations=self.max_iter,
            tolerance=problem.tolerance,
            on_iteration=report,
        )

    def _assignment(self, problem):
        """What assigns samples to centers: the kernel, or the circuit given."""
        if not isinstance(self.weights, ClusteringCircuit):
            small = is_small(problem.samples, self.n_clusters)
            kernel = SmallAssignment if small else Assignment
            return kernel(problem.samples, problem.weights)
        check_scale(self, problem.samples.frame.scale)
        circuit = copy.deepcopy(self.weights).to(problem.samples.device).eval()
        return CircuitAssignment(problem.samples, circuit)

    def _publish(self, assignment, problem):
        """Set `labels_` and `inertia_`, of the nearest centers whatever the circuit."""
        if isinstance(assignment, CircuitAssignment):
            assignment = Assignment(problem.samples, problem.weights)
        super()._publish(assignment, problem)
