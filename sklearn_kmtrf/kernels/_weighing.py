"""Samples that count by their distance: an assignment with weights of its own.

The update heads of trimmed and of robust k-means give a sample a weight that follows
from D, its squared distance to the nearest center. Here is what they share: labels come
from an `Assignment`, D is found by differences, and the sums of the update head are
made anew. (They are not corrected by what has changed, as those of plain k-means are:
a far sample that leaves a sum leaves its rounding behind, which may be larger than all
the rest.)
"""

from abc import ABC, abstractmethod

import torch

from sklearn_kmtrf.kernels._accumulators import sums_by_label
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._blocks import inflation
from sklearn_kmtrf.kernels._nearest import pair_distances
from sklearn_kmtrf.kernels._small import SmallAssignment
from sklearn_kmtrf.kernels._update import update


class Labels(Assignment):
    """The nearest center of each sample; sums are left to others."""

    def _renew_sums(self):
        pass

    def _update_sums(self, index, old):
        pass


class SmallLabels(SmallAssignment):
    """The same for small data."""

    sums = None

    def _renew_sums(self):
        pass

    def _update_sums(self, index, old):
        pass


class WeighedAssignment(ABC):
    """Nearest centers, and a weight for each sample that follows from its distance.

    Parameters
    ----------
    nearest : Assignment
        New, without weights. It finds the labels.

    given : tensor (n_samples,), float64, or None
        Weights of the user; None weighs every sample 1.

    Attributes
    ----------
    weights : tensor (n_samples,), float64
        What each sample counts in the update, set by `move_to`.

    sums : CenterSums
        Of the samples by label, with these weights.
    """

    def __init__(self, nearest, given):
        self.nearest, self.given = nearest, given
        self.samples = nearest.samples
        self.weights = None

    @property
    def labels(self):
        """Nearest center of each sample, whatever its weight, (n_samples,)."""
        return self.nearest.labels

    @property
    def centers(self):
        """The centers (k, d) that were moved to."""
        return self.nearest.centers

    @abstractmethod
    def _weigh(self, distances):
        """Weights of the samples at squared distances (n_samples,)."""

    @abstractmethod
    def objective(self):
        """The objective of the centers moved to."""

    def inertia(self):
        """The objective as `inertia_` and `score` return it: the same."""
        return self.objective()

    def move_to(self, centers):
        """Assign and weigh every sample by other centers.

        Parameters
        ----------
        centers : tensor (n_clusters, n_features), float64
            In the frame of the samples.

        Returns
        -------
        n_changed : int
            Number of samples that count and whose label or weight changed.
        """
        labels, weights = self.labels, self.weights
        labels = None if labels is None else labels.clone()
        self.nearest.move_to(centers)
        self._distances = self.nearest.distances()
        self.weights = self._weigh(self._distances)
        n_changed = self.samples.n_samples
        if weights is not None:
            moved = (labels != self.labels) & (self.weights > 0)
            n_changed = int((moved | (weights != self.weights)).sum())
        if n_changed:
            self.sums = sums_by_label(self.samples, self.weights, self.labels, centers)
        self.nearest.sums = self.sums
        return n_changed

    def distances(self, centers=None, labels=None):
        """Squared distance of each sample to its center, a new tensor (n_samples,).

        Other centers and labels may be given.
        """
        if centers is None and labels is None:
            return self._distances.clone()
        return self.nearest.distances(centers, labels)

    def means(self, sums):
        """New centers from sums, (k, d); one without samples keeps its place."""
        return self.nearest.means(sums)

    def update(self):
        """Where the centers go from here: an `Update`."""
        return update(self)


def distance_blur(distances, squared_norms, labels, centers):
    """How far squared distances by differences may be from those of `pair_distances`.

    Each is the sum of d terms, for sparse rows of terms as large as |x|^2 and |c|^2.
    """
    h = 8 * inflation(centers.shape[1], torch.float64)
    longest = centers.square().sum(1)[labels]
    return longest.add_(squared_norms).add_(distances).mul_(h)


def exact_distances(block, centers, labels, index):
    """Squared distances of some rows of a block that depend on nothing but the row."""
    rows = block.rows(index)
    own = torch.arange(len(rows), device=rows.device)
    return pair_distances(rows, centers, own, labels[index])
