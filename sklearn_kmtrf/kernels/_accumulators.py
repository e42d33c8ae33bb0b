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

    counts : tensor (n_clusters,), int64
        Number of samples of positive weight of each label.
    """

    sums: torch.Tensor
    mass: torch.Tensor
    counts: torch.Tensor

    @classmethod
    def zeros(cls, centers):
        """No sample yet, for centers (k, d)."""
        mass = centers.new_zeros(len(centers))
        return cls(torch.zeros_like(centers), mass, mass.long())

    def add_(self, block, labels, weights, sign=1):
        """Add the rows of a block, in place, or take them away.

        Parameters
        ----------
        block : DenseBlock or CSRBlock
            Of m rows.

        labels : tensor (m,), int64

        weights : tensor (m,), float64, or None
            None weighs every sample 1.

        sign : {1, -1}, default=1
            -1 takes the rows away.
        """
        k = len(self.mass)
        block.add_sums_(self.sums, labels, weights, sign)
        if weights is None:
            counts = torch.bincount(labels, minlength=k)
            self.mass.add_(counts, alpha=sign)
        else:
            self.mass.add_(torch.bincount(labels, weights, minlength=k), alpha=sign)
            counts = torch.bincount(labels[weights > 0], minlength=k)
        self.counts.add_(counts, alpha=sign)
        if sign < 0:
            # Taking away leaves a rest by rounding where there should be nothing.
            empty = self.counts == 0
            self.mass[empty] = 0
            self.sums[empty] = 0

    def add_shares_(self, block, shares):
        """Add the rows of a block, each shared among all labels, in place.

        Parameters
        ----------
        block : DenseBlock or CSRBlock
            Of m rows.

        shares : tensor (m, n_clusters), float64
            Weight of each row for each label.
        """
        block.add_shared_sums_(self.sums, shares)
        self.mass += shares.sum(0)
        self.counts += (shares > 0).sum(0)

    def merge_(self, other):
        """Add the sums over other samples, in place; associative up to rounding."""
        self.sums += other.sums
        self.mass += other.mass
        self.counts += other.counts

    def copy(self):
        """The same sums, to be changed on their own."""
        return CenterSums(self.sums.clone(), self.mass.clone(), self.counts.clone())

    def means(self, centers):
        """The new centers (k, d); one without mass keeps its place in `centers`."""
        occupied = self.counts > 0
        means = self.sums / torch.where(occupied, self.mass, 1.0)[:, None]
        return torch.where(occupied[:, None], means, centers)


def total(numbers, weights):
    """Weighted sum of one number for each sample; None weighs each 1."""
    return numbers.sum() if weights is None else numbers @ weights


def sums_by_label(samples, weights, labels, centers):
    """Sums of all samples by label, from scratch."""
    sums = CenterSums.zeros(centers)
    for rows, block in samples.blocks(1):
        sums.add_(block, labels[rows], None if weights is None else weights[rows])
    return sums
