r"""Soft k-means: soft-max attention of every sample to every center, block by block.

With D_ij the squared distances and P_i the soft-max of -gamma D_i, the centers move to
the means weighted by P. The free energy

    F = -(1 / gamma) sum_i w_i log sum_j exp(-gamma D_ij)

is the least over P of sum w P D + (1 / gamma) sum w P log P. P is where that least is,
and the new centers lower the first sum for this P. Hence F never rises.

**Ties.** For a large gamma a sample that is equally near to two centers would choose
one of them by rounding. So differences of D within the rounding are nothing.
"""

import math

import torch

from sklearn_kmtrf.kernels._accumulators import CenterSums, total
from sklearn_kmtrf.kernels._blocks import inflation
from sklearn_kmtrf.kernels._circuit_run import CircuitAssignment
from sklearn_kmtrf.kernels._descent import movement_resolution
from sklearn_kmtrf.kernels._nearest import (
    DISTANCE_ERROR,
    Centers,
    nearest_centers,
    squared_distances,
)
from sklearn_kmtrf.kernels._select import where

# Inverse temperatures of the frame; beyond them nothing changes any more.
LEAST_GAMMA, LARGEST_GAMMA = 1e-300, 1e300
# Error of an exponent that is not worth a thought.
_EXPONENT_ERROR = 1e-12
# A center with less than this share of the mass is where the numbers end.
_NO_MASS = 1e-280


class SoftAssignment:
    """The attention of all samples to the centers, summed up.

    Parameters
    ----------
    samples : Samples

    weights : tensor (n_samples,), float64, or None

    gamma : float
        Inverse temperature, in the frame.

    Attributes
    ----------
    centers : tensor (n_clusters, n_features), float64
        Set by `move_to`.

    sums : CenterSums
        Of the samples, each shared among the centers.

    scatter : float
        Sum of the squared distances, each weighted by its share.
    """

    def __init__(self, samples, weights, gamma):
        self.samples, self.weights, self.gamma = samples, weights, gamma
        self.total_weight = (
            samples.n_samples if weights is None else float(weights.sum())
        )

    def move_to(self, centers):
        """Share every sample among other centers (k, d) of the frame."""
        self.centers, packed = centers, Centers(centers)
        self.sums = CenterSums.zeros(centers)
        self.scatter = self._free_energy = 0.0
        for rows, block in self.samples.blocks(2 * len(centers)):
            weights = None if self.weights is None else self.weights[rows]
            shares, energies, scatters = attention(block, packed, self.gamma)
            if weights is not None:
                shares.mul_(weights[:, None])
                # A row so far that nothing is finite may have no weight.
                energies.masked_fill_(weights == 0, 0)
            self.sums.add_shares_(block, shares)
            self.scatter += float(total(scatters, weights))
            self._free_energy += float(total(energies, weights))

    def objective(self):
        """The free energy of the centers moved to, in squared units of the frame."""
        return self._free_energy

    def next_centers(self):
        """Weighted means; a center with next to no mass keeps its place."""
        lost = self.sums.mass <= _NO_MASS * self.total_weight
        return torch.where(lost[:, None], self.centers, self.sums.means(self.centers))

    def scatter_around(self, centers):
        """The scatter of the same shares around their means `centers`."""
        moved = (centers - self.centers).square().sum(1)
        return self.scatter - float(self.sums.mass @ moved)

    def resolution(self):
        """Squared movement of the centers that is rounding of their sums."""
        typical = self.scatter / self.total_weight
        return movement_resolution(self.samples, self.centers, typical)


class SoftCircuitAssignment(SoftAssignment):
    """The same, with the next centers from a circuit that the user gave.

    Parameters
    ----------
    samples : Samples
        Dense.

    gamma : float
        That of the circuit, in the frame.

    circuit : ClusteringCircuit
        On the device of the samples; in its own dtype, and in the units of the data.
    """

    def __init__(self, samples, gamma, circuit):
        super().__init__(samples, None, gamma)
        self._run = CircuitAssignment(samples, circuit)

    def next_centers(self):
        """The centers that one iteration of the circuit finds."""
        self._run.move_to(self.centers)
        return self._run.found


def attention(block, centers, gamma):
    """Shares of the rows of a block among all centers.

    Parameters
    ----------
    block : DenseBlock or CSRBlock

    centers : Centers

    gamma : float

    Returns
    -------
    shares : tensor (m, k), float64
        Rows add up to 1.

    energies : tensor (m,)
        Free energy of each row.

    scatters : tensor (m,)
        Mean squared distance of each row to the centers, weighted by its shares.
    """
    gaps = squared_distances(block, centers)  # (m, k)
    least = gaps.amin(1)
    beyond = where(torch.isfinite(least).logical_not_())
    if len(beyond):
        # Squares overflow: at any temperature such a row is its nearest center's.
        labels = nearest_centers(block, centers)[beyond]
        gaps[beyond] = torch.inf
        gaps[beyond, labels] = least[beyond] = 0
    gaps.sub_(least[:, None])
    blur = _distance_blur(block, centers, least)
    if gamma * float(blur.amax()) > _EXPONENT_ERROR:
        gaps.masked_fill_(gaps <= 2 * blur[:, None], 0)
    least[beyond] = torch.inf
    shares = torch.mul(gaps, -gamma).exp_()
    sums = shares.sum(1)
    shares.div_(sums[:, None])
    spread = gaps.masked_fill_(shares == 0, 0).mul_(shares).sum(1)
    return shares, least - sums.log() / gamma, least + spread


def _distance_blur(block, centers, least):
    """How far the smallest squared distance of each row may be from the truth, (m,)."""
    h = inflation(centers.values.shape[1], torch.float64)
    expanded = centers.rounding(block.squared_magnitudes.sqrt())
    return torch.minimum(expanded, DISTANCE_ERROR * least).add_(least, alpha=h)


def tied_variance_gamma(assignment, centers, n_iterations, least_scatter):
    """Iterations in which gamma is estimated too, by maximum likelihood.

    Those of the expectation-maximization algorithm for a mixture of normal
    distributions with equal weights and one variance 1 / (2 gamma).

    Parameters
    ----------
    assignment : SoftAssignment
        New. Its gamma is the one to begin with, and changes.

    centers : tensor (n_clusters, n_features), float64
        Start, in the frame of the samples.

    n_iterations : int

    least_scatter : float
        The scatter is taken to be at least this.

    Returns
    -------
    centers : tensor (n_clusters, n_features), float64
    """
    freedom = assignment.total_weight * centers.shape[1]
    for _ in range(n_iterations):
        assignment.move_to(centers)
        centers = assignment.next_centers()
        scatter = max(assignment.scatter_around(centers), least_scatter)
        assignment.gamma = in_range(freedom, 2 * scatter)
    return centers


def in_range(numerator, denominator):
    """A quotient as an inverse temperature of the frame."""
    if denominator <= numerator / LARGEST_GAMMA:
        return LARGEST_GAMMA
    return max(numerator / denominator, LEAST_GAMMA)


def likelihood_loss(free_energy, gamma, freedom):
    """Minus the log likelihood of that mixture, up to a constant.

    Runs with a gamma of their own are compared by it; `freedom` is the weight of all
    samples times the number of features.
    """
    return gamma * free_energy - freedom / 2 * math.log(gamma)
