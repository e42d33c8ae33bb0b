"""What the estimators for contaminated data share: medians, and many short starts."""

import copy
import math
from abc import abstractmethod

import scipy.sparse as sp
import torch

from sklearn_kmtrf._base import BaseTransformerKMeans
from sklearn_kmtrf._validation import check_scale
from sklearn_kmtrf.circuits import ClusteringCircuit
from sklearn_kmtrf.kernels._accumulators import sums_by_label
from sklearn_kmtrf.kernels._blocks import rows_per_block
from sklearn_kmtrf.kernels._capped_seeding import capped_kmeans_plusplus
from sklearn_kmtrf.kernels._circuit_run import CircuitAssignment
from sklearn_kmtrf.kernels._median_frame import (
    median_frame_of_csr,
    median_frame_of_dense,
)
from sklearn_kmtrf.kernels._samples import samples_of
from sklearn_kmtrf.kernels._small import is_small
from sklearn_kmtrf.kernels._trimmed import lower_median
from sklearn_kmtrf.kernels._weighing import Labels, SmallLabels

# The number of short starts if the user does not say, and their iterations.
SHORT_STARTS, SHORT_ITERATIONS = 20, 3


class BaseContaminated(BaseTransformerKMeans):
    """Base of the estimators for data with outliers.

    Nothing here depends on how far an outlier is: samples are centered at medians, the
    tolerance is a share of a median, and starts are drawn with capped distances. There
    are many of them, of which the best quarter is run to the end.
    """

    def _samples(self, X, device, frame=None, keep=None):
        if frame is None:
            if sp.issparse(X):
                frame = median_frame_of_csr(X)
            else:
                frame = median_frame_of_dense(X, rows_per_block(X.shape[1]))
        return samples_of(X, device, frame, keep=keep)

    def _origin(self, X):
        return median_frame_of_dense(X, rows_per_block(X.shape[1])).shift

    def _tolerance(self, samples, weights):
        """`tol` times the typical squared deviation of a feature.

        That is the median squared distance to the mean of the inner half of the
        samples, over the number of features: half of the samples may be anywhere.
        """
        if self.tol == 0:
            return 0.0
        if weights is not None:
            weights = torch.tensor(weights, device=samples.device)
        norms = samples.squared_norms
        inner = (norms <= lower_median(norms, weights)).double()
        counted = inner if weights is None else inner * weights
        nobody = torch.zeros_like(samples.rows([0]))
        labels = torch.zeros_like(norms).long()
        middle = sums_by_label(samples, counted, labels, nobody).means(nobody)
        parts = [
            block.distances_to(middle, labels[rows])
            for rows, block in samples.blocks(1)
        ]
        typical = lower_median(torch.cat(parts), weights)
        return self.tol * typical / samples.n_features

    @abstractmethod
    def _kept(self, n_samples, weights):
        """Weight that the starts keep of samples of these weights."""

    def _seeds(self, samples, weights, random_state):
        mass = self._kept(samples.n_samples, weights)
        return capped_kmeans_plusplus(
            samples, weights, self.n_clusters, random_state, mass
        )

    def _n_starts(self):
        """The number of short starts: 1 if they are given."""
        if not self._draws_starts():
            return 1
        return SHORT_STARTS if self.n_init == "auto" else self.n_init

    def _draws_starts(self):
        """Whether starts are drawn or called for, not given."""
        return isinstance(self.init, str) or callable(self.init)

    def _kernel(self, samples):
        """What finds the nearest centers of samples."""
        small = is_small(samples, self.n_clusters)
        return (SmallLabels if small else Labels)(samples, None)

    def _kernel_or_circuit(self, samples):
        """The same, or the circuit that the user gave."""
        if not isinstance(self.weights, ClusteringCircuit):
            return self._kernel(samples)
        check_scale(self, samples.frame.scale)
        circuit = copy.deepcopy(self.weights).to(samples.device).eval()
        return CircuitAssignment(samples, circuit)


def best_quarter(n_starts):
    """How many of some short starts are run to the end."""
    return math.ceil(n_starts / 4)


def by_objective(runs):
    """Places of the best quarter of some runs, best first.

    Runs that differ by rounding, that is after ten digits, stay in order, so that the
    choice among them is the same for any number of threads.
    """
    digits = [float(f"{run.objective:.9e}") for run in runs]
    order = sorted(range(len(runs)), key=digits.__getitem__)
    return order[: best_quarter(len(runs))]
