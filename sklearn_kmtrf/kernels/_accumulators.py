"""Partial sums of the update head: what blocks, devices and machines send each other.

The update head averages the samples that carry a center's code. The average needs only
sums, and sums merge in any grouping: a row range in memory, a chunk of a memory map or
a partition on another machine each contribute one `CenterSums`.
"""

from dataclasses import dataclass

import torch


@dataclass
class CenterSums:
    """Sums over some of the samples, by label.

    Attributes
    ----------
    sums : tensor (n_clusters, n_features), float64
        Weighted sum of the samples of each label.

    mass : tensor (n_clusters,), float64
        Weight of each label.

    objective : tensor (), float64
        Weighted sum of the squared distances to the nearest centers.

    spread : tensor (), float64
        Weighted sum of the squared lengths: the unit of the objective's rounding.
    """

    sums: torch.Tensor
    mass: torch.Tensor
    objective: torch.Tensor
    spread: torch.Tensor

    @classmethod
    def zeros(cls, centers):
        """No sample yet, for centers (k, d)."""
        return cls(
            torch.zeros_like(centers),
            centers.new_zeros(len(centers)),
            centers.new_zeros(()),
            centers.new_zeros(()),
        )

    def add_(self, block, labels, distances, weights):
        """Add the rows of a block, in place.

        Parameters
        ----------
        block : DenseBlock or CSRBlock
            Of m rows.

        labels : tensor (m,), int64

        distances : tensor (m,), float64
            What each row adds to the objective.

        weights : tensor (m,), float64, or None
            None weighs every sample 1.
        """
        n_clusters = len(self.mass)
        mass = torch.bincount(labels, weights, minlength=n_clusters).to(self.mass.dtype)
        self.mass += mass
        block.add_sums_(self.sums, labels, weights, mass)
        if weights is None:
            self.objective += distances.sum()
            self.spread += block.squared_norms.sum()
        else:
            self.objective += distances @ weights
            self.spread += block.squared_norms @ weights

    def merge_(self, other):
        """Add the sums over other samples, in place; associative up to rounding."""
        self.sums += other.sums
        self.mass += other.mass
        self.objective += other.objective
        self.spread += other.spread

    def means(self, centers):
        """The new centers (k, d); one without mass keeps its place in `centers`."""
        occupied = self.mass > 0
        means = self.sums / torch.where(occupied, self.mass, 1.0)[:, None]
        return torch.where(occupied[:, None], means, centers)
