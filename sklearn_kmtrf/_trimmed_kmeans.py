"""TrimmedTransformerKMeans: k-means that leaves the farthest samples out."""

from functools import partial
from numbers import Real

import numpy as np
import torch
from sklearn.utils._param_validation import Interval

from sklearn_kmtrf._base import BaseTransformerKMeans, Search
from sklearn_kmtrf._contaminated import (
    SHORT_ITERATIONS,
    SHORT_STARTS,
    BaseContaminated,
    best_quarter,
    by_objective,
)
from sklearn_kmtrf._starts import number_of_runs
from sklearn_kmtrf.circuits import ClusteringCircuit, trimmed_circuit
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._circuit_run import CircuitAssignment
from sklearn_kmtrf.kernels._lloyd import lloyd
from sklearn_kmtrf.kernels._nearest import Centers
from sklearn_kmtrf.kernels._small import SmallAssignment
from sklearn_kmtrf.kernels._trimmed import (
    TrimmedAssignment,
    distances_by_radius,
    kept_mass,
)


class TrimmedTransformerKMeans(BaseContaminated):
    """Trimmed k-means by a transformer whose layers are its concentration steps.

    The `trim_fraction` of the samples that is farthest from all centers is left out of
    every mean, so that outliers, however far, move no center [1]_. In each step every
    sample goes to its nearest center, the ceil(trim_fraction n_samples) with the
    largest distances are trimmed, and each center moves to the mean of those that it
    keeps. What runs is :func:`~sklearn_kmtrf.circuits.trimmed_circuit`, as a stream of
    exact block computations.

    Parameters
    ----------
    n_clusters : int, default=8
        The number of clusters to form, and of centers to find.

    trim_fraction : float, default=0.05
        Share of the samples to leave out, in [0, 1). Rather too large than too small:
        an outlier that is kept may cost a cluster, a good sample that is trimmed costs
        little. With 0 this is :class:`TransformerKMeans`, exactly.

    init : {'k-means++', 'random'}, callable or array-like of shape \
            (n_clusters, n_features), default='k-means++'
        Where the centers begin:

        * 'k-means++': greedy k-means++ in which far samples are no more likely than
          others, and candidates are compared by the trimmed objective;
        * 'random': distinct samples drawn by weight;
        * an array: these centers, in the units of X;
        * a callable: called as ``init(X, n_clusters, random_state=random_state)`` once
          per start, with dense X centered near its medians; what it returns is copied.

    n_init : 'auto' or int, default='auto'
        Number of starts. Each makes three iterations, and the best quarter is run to
        the end. 'auto' is 1 for an array and 20 otherwise.

    max_iter : int, default=300
        Most iterations of one run, the first three among them.

    tol : float, default=1e-4
        A run ends when no sample changes its cluster, or when the summed squared
        movement of the centers in one iteration is at most `tol` times the typical
        squared deviation of a feature (a median, on which outliers have no influence).

    verbose : int, default=0
        Prints each iteration if not 0.

    random_state : int, RandomState instance or None, default=None
        Seed of the starts.

    weights : 'constructed' or ClusteringCircuit, default='constructed'
        Where the parameters of the circuit come from. 'constructed' has them in
        closed form, and runs at any size. A circuit that
        :func:`~sklearn_kmtrf.circuits.trimmed_circuit` built with the same
        `trim_fraction` is run as it is, in its own precision: on dense X, without
        sample weights, and with all attention weights of its update head in memory.

    device : str, torch.device or None, default=None
        Where to compute: None is the device of X (the CPU for NumPy arrays), 'auto' a
        GPU if there is one.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centers, in the dtype of X.

    labels_ : ndarray of shape (n_samples,), int32
        Label of each sample, -1 where it is trimmed; always equal to ``predict(X)``.
        Samples that tie at the radius count as kept, so that in this rare case there
        are fewer of -1 than are trimmed from the means.

    radius_ : float
        Distance from the centers to the farthest kept sample; infinite if
        `trim_fraction` is 0. A sample beyond it is labelled -1.

    offset_ : float
        Minus `radius_`: the least of `score_samples` that is kept.

    inertia_ : float
        Sum of the squared distances of the kept samples to their centers; always equal
        to ``-score(X, sample_weight=sample_weight)``.

    n_iter_ : int
        Iterations of the best run.

    converged_ : bool
        False if the best run was ended by `max_iter` or by a callback.

    objective_history_ : ndarray of shape (n_iter_,)
        Inertia of the best run after each iteration, with the centers that the
        iteration found and the labels and kept samples that it found them from. Never
        rises.

    objective_histories_ : list of ndarray
        The same for every start, the short ones among them.

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
    RobustTransformerKMeans : Weights that fall with distance, instead of a share to
        trim.
    trimming_curves : The objective for several numbers of clusters and fractions, to
        choose both.

    Notes
    -----
    Sample weights are units of weight to trim, from the farthest sample inwards; the
    sample at the boundary keeps the rest of its weight. Whole numbers count samples,
    and ceil(trim_fraction times their sum) is trimmed; otherwise it is exactly the
    fraction. An empty cluster takes the farthest kept sample.

    Memory beyond X is a few numbers per sample and one block of rows.

    References
    ----------
    .. [1] Cuesta-Albertos, Gordaliza, Matran. "Trimmed k-means: an attempt to robustify
       quantizers", Annals of Statistics 25(2), 1997.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_kmtrf import TrimmedTransformerKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0],
    ...               [10, 2], [10, 4], [10, 0], [900, 900]])
    >>> kmeans = TrimmedTransformerKMeans(2, trim_fraction=1 / 7, random_state=0).fit(X)
    >>> kmeans.cluster_centers_[kmeans.cluster_centers_[:, 0].argsort()]
    array([[ 1.,  2.],
           [10.,  2.]])
    >>> int(kmeans.labels_[-1])
    -1
    >>> kmeans.radius_
    2.0
    >>> kmeans.decision_function([[10, 3], [10, 7]])
    array([ 1., -3.])
    """

    _algorithms = ("trimmed k-means",)

    _parameter_constraints: dict = {
        **BaseTransformerKMeans._parameter_constraints,
        "trim_fraction": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        trim_fraction=0.05,
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
        self.trim_fraction = trim_fraction
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.weights = weights
        self.device = device

    # A base to take a step from: plain k-means where nothing is trimmed.

    @property
    def _step(self):
        return super() if self.trim_fraction else super(BaseContaminated, self)

    def _samples(self, X, device, frame=None, keep=None):
        return self._step._samples(X, device, frame, keep)

    def _origin(self, X):
        return self._step._origin(X)

    def _tolerance(self, samples, weights):
        return self._step._tolerance(samples, weights)

    def _seeds(self, samples, weights, random_state):
        return self._step._seeds(samples, weights, random_state)

    def _kept(self, n_samples, weights):
        return kept_mass(self.trim_fraction, n_samples, weights)

    def _constructed_circuit(self):
        return trimmed_circuit(
            self.n_features_in_,
            len(self.cluster_centers_),
            trim_fraction=float(self.trim_fraction),
        )

    def _check_parameters(self, X):
        super()._check_parameters(X)
        if not isinstance(self.weights, ClusteringCircuit):
            return
        built_for = self.weights.config.update.gamma
        if built_for != self.trim_fraction:
            raise ValueError(
                f"The circuit given as weights of {type(self).__name__} must be built "
                f"for trim_fraction = {self.trim_fraction}. Got a circuit for "
                f"{built_for} instead."
            )

    def _check_kept(self, problem):
        """Check that enough is left when the fraction is trimmed."""
        n_samples, weights = problem.samples.n_samples, problem.weights
        mass = self._kept(n_samples, weights)
        if mass <= 0 or (weights is None and mass < self.n_clusters):
            total = n_samples if weights is None else float(weights.sum())
            raise ValueError(
                f"The 'trim_fraction' parameter of {type(self).__name__} must leave at "
                f"least n_clusters={self.n_clusters} samples, and some weight. Got "
                f"{self.trim_fraction!r}, which leaves {mass:g} of {total:g}."
            )

    def _n_runs(self):
        # The short starts and the runs to the end.
        n_starts = number_of_runs(
            self, auto=SHORT_STARTS if self.trim_fraction else None
        )
        if n_starts == 1 or not self.trim_fraction:
            return n_starts
        return n_starts + best_quarter(n_starts)

    def _assignment(self, problem, nearest):
        """Nearest centers and kept samples, by a kernel or a circuit."""
        if self.trim_fraction:
            mass = self._kept(problem.samples.n_samples, problem.weights)
            return TrimmedAssignment(nearest, problem.weights, mass)
        if isinstance(nearest, CircuitAssignment):
            return nearest
        small = isinstance(nearest, SmallAssignment)
        return (SmallAssignment if small else Assignment)(
            problem.samples, problem.weights
        )

    def _run(self, problem, centers, report, max_iterations=None):
        """Concentration steps from given centers, by the kernel or a given circuit."""
        return lloyd(
            self._assignment(problem, self._kernel_or_circuit(problem.samples)),
            centers,
            max_iterations=max_iterations or self.max_iter,
            tolerance=problem.tolerance,
            on_iteration=report,
        )

    def _search(self, problem, starts, progress, n_runs):
        """Short runs from all starts, of which the best quarter goes on to the end."""
        self._check_kept(problem)
        if n_runs == 1 or not self.trim_fraction:
            return super()._search(problem, starts, progress, n_runs)
        short = min(SHORT_ITERATIONS, self.max_iter)
        initials, runs = [], []
        for _ in range(n_runs - best_quarter(self._n_starts())):
            initials.append(starts.next())
            progress.say("Initialization complete")
            runs.append(self._limited_run(problem, initials[-1], progress, short))
            if progress.stopped:
                break
        kept = by_objective(runs)
        for place in kept:
            begun = runs[place]
            left = self.max_iter - begun.n_iterations
            if begun.converged or not left or progress.stopped:
                continue
            run = self._limited_run(problem, begun.centers, progress, left)
            runs[place] = run._replace(
                n_iterations=begun.n_iterations + run.n_iterations,
                history=begun.history + run.history,
            )
        best = kept[by_objective([runs[place] for place in kept])[0]]
        return Search(runs[best], initials[best], [run.history for run in runs])

    def _limited_run(self, problem, centers, progress, max_iterations):
        """A run of some iterations; without its assignment, to save memory."""
        run = partial(self._run, max_iterations=max_iterations)
        dtype = problem.samples.X.dtype
        found = self._reported_run(problem, centers, dtype, progress, run)
        return found._replace(assignment=None)

    def _moved_to(self, problem, centers):
        """The kernel's assignment to centers as published."""
        assignment = self._assignment(problem, self._kernel(problem.samples))
        assignment.move_to(centers)
        return assignment

    def _state(self, problem, centers, dtype):
        state = super()._state(problem, centers, dtype)
        squared = np.inf
        if self.trim_fraction:
            frame = problem.samples.frame
            published = torch.from_numpy(frame.enter(state["cluster_centers_"]))
            published = published.to(problem.samples.device)
            squared = self._moved_to(problem, published).squared_radius()
        radius = float(np.sqrt(squared) / state["_frame"].scale)
        return {
            **state,
            "_squared_radius": squared,
            "radius_": radius,
            "offset_": -radius,
        }

    def _publish(self, assignment, problem):
        centers = self._centers_in_frame(problem.samples)
        assignment = self._moved_to(problem, centers)
        labels = assignment.labels.clone()
        if self.trim_fraction:
            for rows, block in problem.samples.blocks(1):
                distances = distances_by_radius(
                    block, labels[rows], assignment.centers, self._squared_radius
                )
                labels[rows] = self._trim(labels[rows], distances)
        self.labels_ = labels.to(torch.int32).cpu().numpy()
        self.inertia_ = float(problem.objective(assignment.inertia()))

    def _trim(self, labels, distances):
        """Labels, but -1 beyond the radius."""
        radius = distances.new_tensor(self._squared_radius).sqrt()
        return torch.where(distances <= radius, labels, -1)

    def _labels_and_distances(self, block, centers):
        """Label and distance of each row of a block, trimmed or not."""
        labels = self._nearest_of(block, centers)
        return labels, distances_by_radius(
            block, labels, centers.values, self._squared_radius
        )

    def _labels_of(self, block, centers):
        return self._trim(*self._labels_and_distances(block, centers))

    def _objective(self, problem):
        centers = self._centers_in_frame(problem.samples)
        return self._moved_to(problem, centers).inertia()

    def score_samples(self, X):
        """Minus the distance of each sample to its nearest center.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, in any float dtype.

        Returns
        -------
        scores : ndarray of shape (n_samples,), float64
            In the units of X; the lower, the more of an outlier.
        """
        with torch.inference_mode():
            X, samples = self._samples_like_training(X)
            centers = Centers(self._centers_in_frame(samples))
            scores = np.empty(samples.n_samples)
            for rows, block in samples.blocks(len(centers)):
                _, distances = self._labels_and_distances(block, centers)
                scores[rows] = -(distances / self._frame.scale).cpu().numpy()
        return scores

    def decision_function(self, X):
        """Distance left to the radius; negative for samples that are trimmed.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, in any float dtype.

        Returns
        -------
        decision : ndarray of shape (n_samples,), float64
            `score_samples` minus `offset_`, in the units of X. Negative exactly where
            `predict` says -1.
        """
        return self.score_samples(X) - self.offset_
