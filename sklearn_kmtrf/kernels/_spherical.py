"""Lloyd's loop on directions: the update head of spherical k-means.

Among unit vectors the one nearest to all samples of a cluster is the direction of their
sum. The rest of the loop is that of k-means on the rows of `_unit`.
"""

import torch

from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._circuit_run import CircuitAssignment
from sklearn_kmtrf.kernels._small import SmallAssignment
from sklearn_kmtrf.kernels._unit import unit_rows_
from sklearn_kmtrf.kernels._update import update

# A sum of unit rows that is no more than this share of their weight is rounding, and
# has no direction.
_CANCELLED = 1e-12


class _Directions:
    """Centers are directions of sums: before the `Assignment` that it changes."""

    def means(self, sums):
        """New centers from sums, (k, d); one without direction keeps its place."""
        lengths = sums.sums.norm(dim=1)
        short = (lengths <= _CANCELLED * sums.mass) | (sums.counts == 0)
        return torch.where(short[:, None], self.centers, unit_rows_(sums.sums.clone()))

    def update(self):
        """Where the centers go from here: an `Update`."""
        return update(self)


class SphericalAssignment(_Directions, Assignment):
    """The nearest direction of each sample."""


class SmallSphericalAssignment(_Directions, SmallAssignment):
    """The same for small data."""


class SphericalCircuitAssignment(CircuitAssignment, SphericalAssignment):
    """The same as a circuit finds it.

    Parameters
    ----------
    samples : Samples
        Dense.

    weights : tensor (n_samples,), float64, or None
        0 for the samples without a direction, and 1 for the others; the circuit knows
        that by itself.

    circuit : ClusteringCircuit
    """

    def __init__(self, samples, weights, circuit):
        super().__init__(samples, circuit)
        self.weights = weights
