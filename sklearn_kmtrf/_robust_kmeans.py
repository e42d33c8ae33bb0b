"""RobustTransformerKMeans: k-means in which far samples count less, or nothing."""

from dataclasses import replace
from functools import partial
from numbers import Real

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_kmtrf._base import BaseTransformerKMeans, Search
from sklearn_kmtrf._contaminated import (
    SHORT_ITERATIONS,
    SHORT_STARTS,
    BaseContaminated,
    best_quarter,
    by_objective,
)
from sklearn_kmtrf._starts import number_of_runs
from sklearn_kmtrf.circuits import ClusteringCircuit, robust_circuit
from sklearn_kmtrf.kernels._descent import descend
from sklearn_kmtrf.kernels._lloyd import lloyd
from sklearn_kmtrf.kernels._robust import RobustAssignment
from sklearn_kmtrf.kernels._trimmed import TrimmedAssignment, kept_mass, lower_median

# Share that the starts trim.
_START_TRIM = 0.25


class RobustTransformerKMeans(BaseContaminated):
    r"""Robust k-means by a transformer whose update heads are sparsemax attention.

    A sample at distance d from its nearest center counts :math:`(1 - d^2 / r^2)_+` in
    the mean: one farther than the radius r from every center has no say, one at half
    the radius has 3/4. No sample, however far, moves a center by more than a little.
    What runs is :func:`~sklearn_kmtrf.circuits.robust_circuit`, as a stream of exact
    block computations.

    Parameters
    ----------
    n_clusters : int, default=8
        The number of clusters to form, and of centers to find.

    gamma : 'auto' or float, default='auto'
        1 / r^2, in inverse squared units of X, greater than 0; towards 0 this becomes
        k-means. 'auto' has r^2 = (4 + 16 / n_features) m, where m is the median squared
        distance to the nearest center after the start, the smallest among the starts
        that are run to the end: on clean normal data it costs a few percent of
        precision.

    init : {'k-means++', 'random'}, callable or array-like of shape \
            (n_clusters, n_features), default='k-means++'
        Where the centers begin:

        * 'k-means++': greedy k-means++ in which far samples are no more likely than
          others, and candidates are compared by the sum of the smallest three quarters
          of the squared distances;
        * 'random': distinct samples drawn by weight;
        * an array: these centers, in the units of X;
        * a callable: called as ``init(X, n_clusters, random_state=random_state)`` once
          per start, with dense X centered near its medians; what it returns is copied.

        Other starts than an array make three steps of trimmed k-means, with a quarter
        of the samples left out, before the iterations begin.

    n_init : 'auto' or int, default='auto'
        Number of starts, of which the best quarter is run to the end. 'auto' is 1 for
        an array and 20 otherwise.

    max_iter : int, default=300
        Most iterations of one run.

    tol : float, default=1e-4
        A run ends when the summed squared movement of the centers in one iteration is
        at most `tol` times m / n_features (for a given `gamma` the m that 'auto' would
        have made it of, or the median squared distance to the middle of the data if
        that is less), or no more than rounding.

    verbose : int, default=0
        Prints each iteration if not 0.

    random_state : int, RandomState instance or None, default=None
        Seed of the starts.

    weights : 'constructed' or ClusteringCircuit, default='constructed'
        Where the parameters of the circuit come from. 'constructed' has them in
        closed form, and runs at any size. A circuit that
        :func:`~sklearn_kmtrf.circuits.robust_circuit` built is run as it is, with its
        radius, in its own precision: on dense X, without sample weights, and with all
        attention weights of its update head in memory.

    device : str, torch.device or None, default=None
        Where to compute: None is the device of X (the CPU for NumPy arrays), 'auto' a
        GPU if there is one.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centers, in the dtype of X.

    labels_ : ndarray of shape (n_samples,), int32
        Nearest center of each sample, however far; always equal to ``predict(X)``.

    radius_ : float
        The radius r, in the units of X.

    gamma_ : float
        1 / r^2, as it was used.

    inertia_ : float
        The objective: the weighted sum of :math:`d^2 - d^4 / (2 r^2)` over samples
        within the radius, and of r^2 / 2 over all others; always equal to
        ``-score(X, sample_weight=sample_weight)``.

    n_iter_ : int
        Iterations of the best run.

    converged_ : bool
        False if the best run was ended by `max_iter` or by a callback.

    objective_history_ : ndarray of shape (n_iter_,)
        Inertia of the best run after each iteration. Never rises.

    objective_histories_ : list of ndarray
        The same for every run to the end.

    initial_centers_ : ndarray of shape (n_clusters, n_features)
        Centers that the iterations of the best run began with.

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
    TrimmedTransformerKMeans : Leaves out a given share of the samples.

    Notes
    -----
    In terms of :math:`\gamma = 1 / r^2` and the squared distance D the objective is
    :math:`\sum_i w_i \, \rho(\gamma D_i) / \gamma` with :math:`\rho(u) = u - u^2 / 2`
    up to 1 and 1/2 beyond. It is concave in D, which is why neither half of an
    iteration can raise it. For each center the weights are a sparsemax over its samples
    [1]_.

    A center without any sample within the radius moves to the farthest sample that has
    one; if there is none anywhere, given centers are replaced by those of the start
    that 'auto' makes. Memory beyond X is a few numbers per sample and one block of
    rows.

    References
    ----------
    .. [1] Martins, Astudillo. "From softmax to sparsemax", ICML 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_kmtrf import RobustTransformerKMeans
    >>> X = np.array([[0.0], [1.0], [2.0], [50.0], [51.0], [52.0], [9e9]])
    >>> kmeans = RobustTransformerKMeans(2, random_state=0).fit(X)
    >>> np.sort(kmeans.cluster_centers_, axis=0).round(2)
    array([[ 1.],
           [51.]])
    """

    _algorithms = ("robust k-means",)

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

    def _kept(self, n_samples, weights):
        return kept_mass(_START_TRIM, n_samples, weights, at_least=self.n_clusters)

    def _constructed_circuit(self):
        return robust_circuit(
            self.n_features_in_, len(self.cluster_centers_), radius=self.radius_
        )

    def _check_parameters(self, X):
        super()._check_parameters(X)
        if isinstance(self.weights, ClusteringCircuit) and self.gamma != "auto":
            raise ValueError(
                f"The 'gamma' parameter of {type(self).__name__} must be 'auto' when "
                "the 'weights' parameter is a circuit, which has a radius of its own. "
                f"Got {self.gamma!r} instead."
            )

    def _n_runs(self):
        n_starts = number_of_runs(self, auto=SHORT_STARTS)
        return best_quarter(n_starts)

    def _given_radius(self, frame):
        """Squared radius that the user gave, in the frame; None for 'auto'."""
        if isinstance(self.weights, ClusteringCircuit):
            radius = self.weights.config.update.gamma
        elif self.gamma == "auto":
            return None
        else:
            radius = 1 / np.sqrt(self.gamma)
        # Nothing in the frame is as far, or two samples as near, as these.
        return float(np.clip(radius * frame.scale, 2.0**-500, 2.0**500)) ** 2

    def _run(self, problem, centers, report, squared_radius):
        """Iterations from given centers, by the kernel or a given circuit."""
        nearest = self._kernel_or_circuit(problem.samples)
        return descend(
            RobustAssignment(nearest, problem.weights, squared_radius),
            centers,
            max_iterations=self.max_iter,
            tolerance=problem.tolerance,
            on_iteration=report,
        )

    def _short_run(self, problem, initial):
        """Trimmed steps from a start, and the median squared distance after them."""
        mass = self._kept(problem.samples.n_samples, problem.weights)
        nearest = self._kernel(problem.samples)
        run = lloyd(
            TrimmedAssignment(nearest, problem.weights, mass),
            initial,
            max_iterations=SHORT_ITERATIONS,
            tolerance=0.0,
        )
        radius = self._automatic_radius(run.assignment.distances(), problem)
        return run._replace(assignment=None), radius

    def _automatic_radius(self, distances, problem):
        """Squared radius for squared distances to the nearest centers, not 0."""
        factor = _radius_factor(problem.samples.n_features)
        radius = factor * lower_median(distances, problem.weights)
        # Where more than half of the samples lie on centers the others decide.
        off = distances[distances > 0]
        least = np.finfo(np.float64).eps * float(off.median()) if len(off) else 1.0
        return max(radius, least)

    def _search(self, problem, starts, progress, n_runs):
        """Short trimmed runs from all starts, of which the best quarter goes on."""
        samples = problem.samples
        squared_radius = self._given_radius(samples.frame)
        initials, short, radii = [], [], []
        for _ in range(self._n_starts()):
            initials.append(starts.next())
            run, radius = self._short_run(problem, initials[-1])
            progress.say("Initialization complete")
            short.append(run)
            radii.append(radius)
        chosen = by_objective(short)
        if squared_radius is None:
            squared_radius = min(radii[place] for place in chosen)
        self._squared_radius = squared_radius
        begins = [short[place].centers for place in chosen]
        if not self._draws_starts() and self._reaches(problem, initials[0]):
            begins = initials
        within = self.tol * squared_radius / _radius_factor(samples.n_features)
        tolerance = min(problem.tolerance, within / samples.n_features)
        problem = replace(problem, tolerance=tolerance)
        run = partial(self._run, squared_radius=squared_radius)
        runs = []
        for begin in begins:
            found = self._reported_run(problem, begin, samples.X.dtype, progress, run)
            runs.append(found._replace(assignment=None))
            if progress.stopped:
                break
        best = by_objective(runs)[0]
        return Search(runs[best], begins[best], [run.history for run in runs])

    def _reaches(self, problem, centers):
        """Whether any sample has a weight with these centers."""
        return bool((self._moved_to(problem, centers).weights > 0).any())

    def _moved_to(self, problem, centers):
        """The kernel's assignment to some centers."""
        assignment = RobustAssignment(
            self._kernel(problem.samples), problem.weights, self._squared_radius
        )
        assignment.move_to(centers)
        return assignment

    def _state(self, problem, centers, dtype):
        state = super()._state(problem, centers, dtype)
        frame = problem.samples.frame
        radius = np.sqrt(self._squared_radius) / frame.scale
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            gamma = self.gamma if self.gamma != "auto" else (1 / radius) ** 2
        return {
            **state,
            "_squared_radius": self._squared_radius,
            "radius_": float(radius),
            "gamma_": float(gamma),
        }

    def _publish(self, assignment, problem):
        centers = self._centers_in_frame(problem.samples)
        super()._publish(self._moved_to(problem, centers), problem)

    def _objective(self, problem):
        centers = self._centers_in_frame(problem.samples)
        return self._moved_to(problem, centers).inertia()


def _radius_factor(n_features):
    """Squared radius of 'auto' over the median squared distance."""
    return 4 + 16 / n_features
