"""What every estimator shares: validation, restarts, predict, transform and score."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_kmtrf._device import resolve_device, usable_device
from sklearn_kmtrf._progress import (
    FIT_STACKLEVEL,
    CallbackSupportMixin,
    FitProgress,
    with_callbacks,
)
from sklearn_kmtrf._starts import Starts, number_of_runs
from sklearn_kmtrf._validation import (
    check_circuit,
    unchanged_on_error,
    validate_samples,
    validate_weights,
)
from sklearn_kmtrf.circuits import ClusteringCircuit, lloyd_circuit
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._lloyd import LloydRun
from sklearn_kmtrf.kernels._nearest import (
    Centers,
    center_distances,
    nearest_centers,
    put_smallest_at_label,
)
from sklearn_kmtrf.kernels._samples import Samples, samples_of
from sklearn_kmtrf.kernels._seeding import greedy_kmeans_plusplus


@dataclass(frozen=True)
class Problem:
    """Validated data as the kernels see them.

    Attributes
    ----------
    samples : Samples

    weights : tensor of shape (n_samples,), float64, or None
        Divided by `weight_unit`; None weighs every sample 1.

    weight_unit : float
        A power of two.

    tolerance : float
        Squared movement of the centers that ends a run, in units of the frame.

    aside : float
        What samples that were set aside add to the objective, in units of the user
        but for `weight_unit`.
    """

    samples: Samples
    weights: torch.Tensor | None
    weight_unit: float
    tolerance: float = 0.0
    aside: float = 0.0

    def objective(self, values):
        """Objectives of the kernels in the units of the user."""
        with np.errstate(over="ignore", under="ignore"):
            values = self.samples.frame.leave_squared(values) + self.aside
            return values * self.weight_unit


class Search(NamedTuple):
    """What the runs of one fit found.

    Attributes
    ----------
    best : LloydRun

    initial : tensor (n_clusters, n_features), float64
        Where it began, in the frame.

    histories : list of list of float
        Of every run.
    """

    best: LloydRun
    initial: torch.Tensor
    histories: list


class BaseTransformerKMeans(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClusterMixin,
    BaseEstimator,
    ABC,
):
    """Base of the estimators: all but the iteration.

    A subclass stores its parameters, names the algorithms of the circuits that it can
    run, and implements `_run`, one run from given centers. Where it differs from
    k-means in more than the iteration it overrides one of the steps that follow: how
    samples enter the frame (`_samples`) and which of them have a say (`_set_aside`),
    what ends a run (`_tolerance`), where runs begin (`_seeds`, `_origin`) and which
    are made (`_n_runs`, `_search`), and what labels, distances and objective are
    (`_publish`, `_nearest_of`, `_labels_of`, `_distances_of`, `_objective`) and which
    of them deserve a warning (`_warn`).
    """

    _algorithms: tuple

    _parameter_constraints: dict = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"k-means++", "random"}), callable, "array-like"],
        "n_init": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
        "weights": [str, ClusteringCircuit],
        "device": [None, str, torch.device],
    }

    @abstractmethod
    def _run(self, problem, centers, report):
        """One run from given centers.

        Parameters
        ----------
        problem : Problem

        centers : tensor of shape (n_clusters, n_features), float64
            Start, in the frame.

        report : callable
            Called after each iteration as ``report(objective, centers, movement)``; a
            true value ends the run.

        Returns
        -------
        run : LloydRun
        """

    def _constructed_circuit(self):
        """The circuit of the fitted estimator, in closed form."""
        return lloyd_circuit(self.n_features_in_, len(self.cluster_centers_))

    def _samples(self, X, device, frame=None, keep=None):
        """Samples of validated X: in their own frame, or in a given one."""
        return samples_of(X, device, frame, keep=keep)

    def _set_aside(self, samples, weights):
        """Weights once samples that can have no say have none, and what those cost.

        Parameters
        ----------
        samples : Samples

        weights : ndarray of shape (n_samples,) or None

        Returns
        -------
        weights : ndarray of shape (n_samples,) or None

        aside : float
            As `Problem` keeps it.
        """
        return weights, 0.0

    def _tolerance(self, samples, weights):
        """Squared movement of the centers, in the frame, that ends a run."""
        return self.tol * samples.mean_variance() if self.tol > 0 else 0.0

    def _seeds(self, samples, weights, random_state):
        """Indices of the samples that ``init="k-means++"`` begins with."""
        return greedy_kmeans_plusplus(samples, weights, self.n_clusters, random_state)

    def _n_runs(self):
        """How many runs a fit makes and reports."""
        return number_of_runs(self)

    def _origin(self, X):
        """What dense X is centered at for a callable `init`, (n_features,)."""
        return X.mean(axis=0)

    def _nearest_of(self, block, centers):
        """Nearest center of each row of a block, a tensor (m,)."""
        return nearest_centers(block, centers)

    def _labels_of(self, block, centers):
        """Label of each row of a block, a tensor (m,)."""
        return self._nearest_of(block, centers)

    def _distances_of(self, block, centers):
        """Distances of each row of a block to all centers, (m, k), in the frame."""
        return center_distances(block, centers)

    def _objective(self, problem):
        """The objective of samples in the frame, for `cluster_centers_` as they are."""
        assignment = Assignment(problem.samples, problem.weights)
        assignment.move_to(self._centers_in_frame(problem.samples))
        return assignment.inertia()

    def _check_parameters(self, X):
        """Check parameters that `_parameter_constraints` cannot, some against X."""
        if isinstance(self.weights, ClusteringCircuit):
            check_circuit(self, X)
        elif self.weights != "constructed":
            raise ValueError(
                f"The 'weights' parameter of {type(self).__name__} must be "
                f"'constructed' or a ClusteringCircuit in this version. "
                f"Got {self.weights!r} instead."
            )
        if X.shape[0] < self.n_clusters:
            raise ValueError(
                f"n_samples={X.shape[0]} should be >= n_clusters={self.n_clusters}."
            )

    # Fit

    @_fit_context(prefer_skip_nested_validation=True)
    @with_callbacks
    def fit(self, X, y=None, sample_weight=None):
        """Compute the clustering.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples to cluster, finite. float32 and float64 are kept, everything else
            becomes float64; sparse formats other than CSR are converted. X is never
            written.

        y : Ignored
            Not used, present here for API consistency by convention.

        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weight of each sample, not negative and not all zero. None weighs every
            sample 1. A sample of weight 0 is labelled and otherwise without say.

        Returns
        -------
        self : object
            Fitted estimator.

        Raises
        ------
        ValueError
            If X, `sample_weight` or a parameter is not as said. The estimator is then
            as it was before.
        """
        with unchanged_on_error(self):
            device = resolve_device(self.device, X)
            X = validate_samples(self, X, reset=True)
            self._check_parameters(X)
            weights, unit = validate_weights(self, sample_weight, X)
            if weights is not None and self.weights != "constructed":
                raise ValueError(
                    "sample_weight must be None when the 'weights' parameter is a "
                    "circuit, whose heads have no sample weights. "
                    "weights='constructed' takes them."
                )
            n_runs = self._n_runs()
            metadata = None if weights is None else {"sample_weight": sample_weight}
            progress = FitProgress(self, {"X": X, "y": y, "metadata": metadata}, n_runs)
            with torch.inference_mode():
                samples = self._samples(X, device)
                weights, aside = self._set_aside(samples, weights)
                starts = Starts(
                    self, X, samples, weights, check_random_state(self.random_state)
                )
                problem = Problem(
                    samples,
                    _tensor_of_weights(weights, device),
                    unit,
                    self._tolerance(samples, weights),
                    aside,
                )
                search = self._search(problem, starts, progress, n_runs)
                self._publish_run(problem, search, X.dtype)
            progress.end(lambda: {})
            self._warn()
        return self

    def _warn(self):
        """Warn of what the fit found; called in the body of fit."""
        n_distinct = len(np.unique(self.labels_[self.labels_ >= 0]))
        if n_distinct < self.n_clusters:
            warnings.warn(
                f"Number of distinct clusters ({n_distinct}) found smaller than "
                f"n_clusters ({self.n_clusters}). Possibly due to duplicate points "
                "in X.",
                ConvergenceWarning,
                stacklevel=FIT_STACKLEVEL + 1,
            )

    def _search(self, problem, starts, progress, n_runs):
        """Run from each start; the best run, its start, and all histories."""
        best, histories = None, []
        for _ in range(n_runs):
            initial = starts.next()
            progress.say("Initialization complete")
            run = self._reported_run(problem, initial, starts.X.dtype, progress)
            histories.append(run.history)
            # As in scikit-learn, a run that differs by rounding and by the names of
            # its clusters does not replace an earlier one.
            if best is None or (
                run.objective < best.objective
                and not _same_clustering(
                    run.assignment.labels, best.assignment.labels, self.n_clusters
                )
            ):
                best, best_initial = run, initial
            if progress.stopped:
                break
        return Search(best, best_initial, histories)

    def _publish_run(self, problem, search, dtype):
        """Set the fitted attributes."""
        best = search.best
        vars(self).update(self._state(problem, best.centers, dtype))
        initial = self._frame.leave(search.initial.cpu().numpy())
        self.initial_centers_ = initial.astype(dtype)
        self.n_iter_ = best.n_iterations
        self.converged_ = best.converged
        self.objective_history_, *self.objective_histories_ = (
            problem.objective(history) for history in (best.history, *search.histories)
        )
        # Labels and objective of the centers as published, that is rounded to the
        # dtype of X: what predict and score will say.
        self._publish(best.assignment, problem)

    def _publish(self, assignment, problem):
        """Set `labels_` and `inertia_`, for `cluster_centers_` as they are."""
        assignment.move_to(self._centers_in_frame(problem.samples))
        self.labels_ = assignment.labels.to(torch.int32).cpu().numpy()
        self.inertia_ = float(problem.objective(assignment.inertia()))

    def _reported_run(self, problem, initial, dtype, progress, run=None):
        """`_run`, or what is given for it, with each iteration told to the user."""
        report = progress.run(self.max_iter)
        latest = initial

        def fitted():
            return self._state(problem, latest, dtype)

        def on_iteration(objective, centers, movement):
            nonlocal latest
            latest = centers
            if not report.is_followed:
                return False
            number = report.n_iterations
            stop = report.iteration(problem.objective(objective), fitted)
            if movement is None:
                progress.say(f"Converged at iteration {number}: strict convergence.")
            elif movement <= problem.tolerance:
                shift, within = map(
                    problem.samples.frame.leave_squared, (movement, problem.tolerance)
                )
                progress.say(
                    f"Converged at iteration {number}: center shift {shift} within "
                    f"tolerance {within}."
                )
            return stop

        found = (run or self._run)(problem, initial, on_iteration)
        report.end(fitted)
        return found

    def _state(self, problem, centers, dtype):
        """Attributes that make predict work, for centers of the frame."""
        frame = problem.samples.frame
        centers = frame.leave(centers.cpu().numpy()).astype(dtype)
        return {
            "cluster_centers_": centers,
            "device_": problem.samples.device,
            "_frame": frame,
            "_n_features_out": len(centers),
        }

    # After fit

    @property
    def circuit_(self):
        """The transformer whose iterations `fit` performs.

        A :class:`~sklearn_kmtrf.circuits.ClusteringCircuit`: the one that was given
        as `weights`, or the constructed one, built on demand in float64 on the CPU.
        """
        check_is_fitted(self)
        if isinstance(self.weights, ClusteringCircuit):
            return self.weights
        return self._constructed_circuit()

    def _samples_like_training(self, X):
        """Validated X in the frame of the training data."""
        check_is_fitted(self)
        X = validate_samples(self, X, reset=False)
        device = usable_device(self.device_)
        return X, self._samples(X, device, self._frame, keep=False)

    def _centers_in_frame(self, samples):
        """`cluster_centers_`, which the user may have edited, (k, d), float64."""
        if not np.isfinite(self.cluster_centers_).all():
            raise ValueError(
                f"The attribute 'cluster_centers_' of {type(self).__name__} must be "
                "finite. Got NaN or infinity instead."
            )
        centers = self._frame.enter(self.cluster_centers_)
        return torch.from_numpy(centers).to(samples.device)

    def fit_predict(self, X, y=None, sample_weight=None):
        """Compute the clustering and return the label of each sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples to cluster.

        y : Ignored
            Not used, present here for API consistency by convention.

        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weight of each sample.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index of the cluster of each sample.
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def predict(self, X):
        """Nearest cluster center of each sample.

        The answer for a row depends on nothing but that row; where two centers are
        equally near it is the one of lower index.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, in any float dtype.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index of the cluster of each sample.
        """
        with torch.inference_mode():
            _, samples = self._samples_like_training(X)
            return self._labels(samples)

    def _labels(self, samples):
        """Label of each sample, for `cluster_centers_` as they are."""
        centers = Centers(self._centers_in_frame(samples))
        labels = np.empty(samples.n_samples, dtype=np.int32)
        for rows, block in samples.blocks(len(centers)):
            labels[rows] = self._labels_of(block, centers).cpu().numpy()
        return labels

    def fit_transform(self, X, y=None, sample_weight=None):
        """Compute the clustering and return the distances of X to its centers.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples to cluster.

        y : Ignored
            Not used, present here for API consistency by convention.

        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weight of each sample.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_clusters)
            As `transform` returns it.
        """
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def transform(self, X):
        """Euclidean distance of each sample to each cluster center.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, in any float dtype.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_clusters)
            Distances, not squared, in the units and the dtype of X; dense also for
            sparse X. The smallest of a row is at the label that `predict` gives.
        """
        with torch.inference_mode():
            X, samples = self._samples_like_training(X)
            centers = Centers(self._centers_in_frame(samples))
            out = np.empty((samples.n_samples, len(centers)), dtype=X.dtype)
            dtype = torch.from_numpy(out[:0]).dtype
            for rows, block in samples.blocks(len(centers)):
                distances = self._distances_of(block, centers) / self._frame.scale
                distances = distances.to(dtype)
                put_smallest_at_label(
                    distances,
                    lambda index, first=rows.start: self._nearest_of(
                        samples.block(index + first), centers
                    ),
                )
                out[rows] = distances.cpu().numpy()
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
            Minus the weighted sum of squared distances to the nearest centers, in the
            squared units of X.
        """
        with torch.inference_mode():
            X, samples = self._samples_like_training(X)
            weights, unit = validate_weights(self, sample_weight, X)
            weights, aside = self._set_aside(samples, weights)
            weights = _tensor_of_weights(weights, samples.device)
            problem = Problem(samples, weights, unit, aside=aside)
            objective = self._objective(problem)
        return -float(problem.objective(objective))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _tensor_of_weights(weights, device):
    """Weights on the device; copied, for those of the user may be read-only."""
    return None if weights is None else torch.tensor(weights, device=device)


def _same_clustering(labels, others, n_clusters):
    """Whether the clusters of `labels` lie within clusters of `others`."""
    names = others.new_zeros(n_clusters)
    names[labels] = others
    return torch.equal(names[labels], others)
