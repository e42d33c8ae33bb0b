"""SoftTransformerKMeans: samples belong to all clusters, by soft-max attention."""

import copy
import warnings
from numbers import Real

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_kmtrf._base import BaseTransformerKMeans, Search
from sklearn_kmtrf._progress import FIT_STACKLEVEL
from sklearn_kmtrf._validation import check_scale
from sklearn_kmtrf.circuits import ClusteringCircuit, soft_circuit
from sklearn_kmtrf.kernels._accumulators import total
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._descent import descend
from sklearn_kmtrf.kernels._nearest import Centers
from sklearn_kmtrf.kernels._soft import (
    LARGEST_GAMMA,
    LEAST_GAMMA,
    SoftAssignment,
    SoftCircuitAssignment,
    attention,
    in_range,
    likelihood_loss,
    tied_variance_gamma,
)

# Iterations in which gamma is estimated before it is fixed.
_ESTIMATION = 20
# Centers nearer than this, in gamma times squared distance, are one center: their
# shares of a sample have the same odds wherever it lies.
_COINCIDENT = 0.01


class SoftTransformerKMeans(BaseTransformerKMeans):
    r"""Soft k-means by a transformer whose assignment head is soft-max attention.

    Sample i belongs to cluster j with the share
    :math:`P_{ij} \propto e^{-\gamma \|x_i - c_j\|^2}`, and centers are means weighted
    by their shares: a mixture of equally heavy normal distributions with one variance
    :math:`1 / (2 \gamma)`. What runs is
    :func:`~sklearn_kmtrf.circuits.soft_circuit`, as a stream of exact block
    computations; :meth:`predict_proba` returns the shares.

    Parameters
    ----------
    n_clusters : int, default=8
        The number of clusters to form, and of centers to find.

    gamma : 'auto' or float, default='auto'
        Inverse temperature, in inverse squared units of X, finite and greater than 0.
        Large values make this k-means, small ones make centers coincide. 'auto'
        estimates it by maximum likelihood: from n_features / (2 m), where m is the mean
        squared distance to the nearest initial center, by twenty iterations of the
        expectation-maximization algorithm with one variance. Then it is fixed.

    init : {'k-means++', 'random'}, callable or array-like of shape \
            (n_clusters, n_features), default='k-means++'
        Where the centers begin, as of :class:`TransformerKMeans`.

    n_init : 'auto' or int, default='auto'
        Number of starts, of which the best is kept: the lowest free energy for a given
        `gamma`, the highest likelihood for 'auto'. 'auto' is 1 for 'k-means++' and an
        array, 10 for 'random' and a callable.

    max_iter : int, default=300
        Most iterations of one run.

    tol : float, default=1e-4
        A run ends when the summed squared movement of the centers in one iteration is
        at most `tol` times the mean variance of the features, or no more than rounding.

    verbose : int, default=0
        Prints each iteration if not 0.

    random_state : int, RandomState instance or None, default=None
        Seed of the starts.

    weights : 'constructed' or ClusteringCircuit, default='constructed'
        Where the parameters of the circuit come from. 'constructed' has them in
        closed form, and runs at any size. A circuit that
        :func:`~sklearn_kmtrf.circuits.soft_circuit` built is run as it is, with its
        inverse temperature, in its own precision: on dense X, without sample weights,
        and with all attention weights of its update head in memory.

    device : str, torch.device or None, default=None
        Where to compute: None is the device of X (the CPU for NumPy arrays), 'auto' a
        GPU if there is one.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centers, in the dtype of X.

    labels_ : ndarray of shape (n_samples,), int32
        Nearest center of each sample, which has the largest share of it; always equal
        to ``predict(X)`` and to ``predict_proba(X).argmax(axis=1)``.

    gamma_ : float
        The inverse temperature that was used.

    inertia_ : float
        The free energy :math:`-\frac1\gamma \sum_i w_i \log \sum_j
        e^{-\gamma \|x_i - c_j\|^2}`, which may be negative; always equal to
        ``-score(X, sample_weight=sample_weight)``.

    n_iter_ : int
        Iterations of the best run, with gamma fixed.

    converged_ : bool
        False if the best run was ended by `max_iter` or by a callback.

    objective_history_ : ndarray of shape (n_iter_,)
        Free energy of the best run after each iteration. Never rises.

    objective_histories_ : list of ndarray
        The same for every run.

    initial_centers_ : ndarray of shape (n_clusters, n_features)
        Centers that the iterations of the best run began with: for a given `gamma`
        those of `init`.

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
    TransformerKMeans : The limit of large gamma.
    sklearn.mixture.GaussianMixture : Clusters of different weights and shapes.

    Notes
    -----
    A cluster with covariance S attracts two centers to one place if gamma is less than
    1 / (2 l), l the largest eigenvalue of S. Fit warns when centers coincide: when
    :math:`\gamma \|c - c'\|^2 < 0.01`. A center that has no share of any sample keeps
    its place.

    Centers that are equally near to a sample but for rounding have equal shares of it,
    however large gamma is. Memory beyond X is one
    block of rows.

    References
    ----------
    .. [1] Clarkson, Horesh, Ito, Park, Ram. "Transformer Circuits Can Realize
       Clustering Algorithms", ICML 2026. arXiv:2506.19125.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_kmtrf import SoftTransformerKMeans
    >>> X = np.array([[0.0], [1.0], [2.0], [6.0], [7.0], [8.0]])
    >>> model = SoftTransformerKMeans(2, gamma=0.25, random_state=0).fit(X)
    >>> np.sort(model.cluster_centers_, axis=0).round(2)
    array([[1.],
           [7.]])
    >>> model.predict_proba([[4.0], [5.0]]).round(2).max(axis=1)
    array([0.5 , 0.95])
    """

    _algorithms = ("soft k-means",)

    _parameter_constraints: dict = {
        **BaseTransformerKMeans._parameter_constraints,
        "gamma": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        gamma="auto",
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
        self.gamma = gamma
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.weights = weights
        self.device = device

    def _constructed_circuit(self):
        return soft_circuit(
            self.n_features_in_, len(self.cluster_centers_), gamma=self.gamma_
        )

    def _check_parameters(self, X):
        super()._check_parameters(X)
        if isinstance(self.weights, ClusteringCircuit) and self.gamma != "auto":
            raise ValueError(
                f"The 'gamma' parameter of {type(self).__name__} must be 'auto' when "
                "the 'weights' parameter is a circuit, which has a gamma of its own. "
                f"Got {self.gamma!r} instead."
            )

    def _given_gamma(self, frame):
        """Inverse temperature that the user gave, in the frame; None for 'auto'."""
        if isinstance(self.weights, ClusteringCircuit):
            check_scale(self, frame.scale)
            gamma = self.weights.config.assignment.gamma
        elif self.gamma == "auto":
            return None
        else:
            gamma = self.gamma
        gamma = float(frame.leave_squared(gamma))
        return float(np.clip(gamma, LEAST_GAMMA, LARGEST_GAMMA))

    def _search(self, problem, starts, progress, n_runs):
        """Runs from all starts, each with its gamma; the likeliest one."""
        n_features = problem.samples.n_features
        given = self._given_gamma(problem.samples.frame)
        histories, least = [], np.inf
        for _ in range(n_runs):
            initial, gamma = starts.next(), given
            if given is None:
                initial, gamma = self._estimated_gamma(problem, initial)
            progress.say("Initialization complete")
            self._gamma = gamma
            run = self._reported_run(problem, initial, starts.X.dtype, progress)
            histories.append(run.history)
            freedom = run.assignment.total_weight * n_features
            loss = likelihood_loss(run.objective, gamma, freedom)
            if loss < least or len(histories) == 1:
                least, best = loss, (run, initial, gamma)
            if progress.stopped:
                break
        *found, self._gamma = best
        return Search(*found, histories)

    def _estimated_gamma(self, problem, initial):
        """Centers after the estimation of gamma, and gamma, in the frame."""
        samples, weights = problem.samples, problem.weights
        nearest = Assignment(samples, weights)
        nearest.move_to(initial)
        scatter = float(total(nearest.distances(), weights))
        # Samples that lie on centers would leave no temperature at all.
        spread = samples.n_features * samples.mean_variance()
        assignment = SoftAssignment(samples, weights, gamma=1.0)
        if spread == 0:
            return initial, assignment.gamma
        mass = assignment.total_weight
        least = np.finfo(np.float64).eps * spread * mass
        freedom = mass * samples.n_features
        assignment.gamma = in_range(freedom, 2 * max(scatter, least))
        centers = tied_variance_gamma(assignment, initial, _ESTIMATION, least)
        return centers, assignment.gamma

    def _run(self, problem, centers, report):
        """Iterations from given centers, by the kernel or a given circuit."""
        return descend(
            self._assignment(problem),
            centers,
            max_iterations=self.max_iter,
            tolerance=problem.tolerance,
            on_iteration=report,
        )

    def _assignment(self, problem):
        """What shares samples among centers: the kernel, or the circuit given."""
        samples, weights = problem.samples, problem.weights
        if not isinstance(self.weights, ClusteringCircuit):
            return SoftAssignment(samples, weights, self._gamma)
        circuit = copy.deepcopy(self.weights).to(samples.device).eval()
        return SoftCircuitAssignment(samples, self._gamma, circuit)

    def _state(self, problem, centers, dtype):
        state = super()._state(problem, centers, dtype)
        scale = problem.samples.frame.scale
        with np.errstate(over="ignore", under="ignore"):
            gamma = self._gamma * scale * scale if self.gamma == "auto" else self.gamma
        return {**state, "_gamma": self._gamma, "gamma_": float(gamma)}

    def _publish(self, assignment, problem):
        # Blocks are made as score makes them, so that the sums are the same bit by bit.
        X, frame = problem.samples.X, problem.samples.frame
        samples = self._samples(X, problem.samples.device, frame, keep=False)
        self.labels_ = self._labels(samples)
        centers = self._centers_in_frame(samples)
        shared = SoftAssignment(samples, problem.weights, self._gamma)
        shared.move_to(centers)
        self.inertia_ = float(problem.objective(shared.objective()))
        apart = torch.cdist(centers, centers).square_().mul_(self._gamma)
        twins = (apart < _COINCIDENT).tril_(-1).any(1)
        self._n_distinct = int((~twins).sum())

    def _warn(self):
        if self._n_distinct < self.n_clusters:
            warnings.warn(
                f"Number of distinct centers ({self._n_distinct}) found smaller than "
                f"n_clusters ({self.n_clusters}): others coincide with them. A larger "
                "gamma or fewer clusters would keep them apart.",
                ConvergenceWarning,
                stacklevel=FIT_STACKLEVEL + 1,
            )

    def _objective(self, problem):
        shared = SoftAssignment(problem.samples, problem.weights, self._gamma)
        shared.move_to(self._centers_in_frame(problem.samples))
        return shared.objective()

    def predict_proba(self, X):
        """Share of each cluster in each sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, in any float dtype.

        Returns
        -------
        shares : ndarray of shape (n_samples, n_clusters)
            Between 0 and 1, in the dtype of X; rows add up to 1, and have their
            largest share at the label that `predict` gives.
        """
        with torch.inference_mode():
            X, samples = self._samples_like_training(X)
            centers = Centers(self._centers_in_frame(samples))
            out = np.empty((samples.n_samples, len(centers)), dtype=X.dtype)
            dtype = torch.from_numpy(out[:0]).dtype
            for rows, block in samples.blocks(2 * len(centers)):
                shares, *_ = attention(block, centers, self._gamma)
                shares = shares.to(dtype)
                _put_largest_at_label(shares, self._nearest_of(block, centers))
                out[rows] = shares.cpu().numpy()
        return out

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
            Minus the free energy, in the squared units of X.
        """
        return super().score(X, sample_weight=sample_weight)


def _put_largest_at_label(shares, labels):
    """Make the first largest share of each row that of its label, in place."""
    labels, largest = labels[:, None], shares.amax(1, keepdim=True)
    before = torch.arange(shares.shape[1], device=shares.device) < labels
    below = torch.nextafter(largest, torch.zeros_like(largest))
    shares.copy_(torch.where(before & (shares == largest), below, shares))
    shares.scatter_(1, labels, largest)
