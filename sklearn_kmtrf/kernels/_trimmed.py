"""Trimmed k-means: concentration steps, and who is trimmed.

One step of Cuesta-Albertos, Gordaliza and Matran ("Trimmed k-means: an attempt to
robustify quantizers", Annals of Statistics, 1997): of all samples the farthest from
their nearest centers are left out, and each center moves to the mean of the others.
"""

import math

import numpy as np
import torch

from sklearn_kmtrf.kernels._weighing import (
    WeighedAssignment,
    distance_blur,
    exact_distances,
)

# A share of a sample's weight that is this close to none or to all of it is rounding.
_SLIVER = 1e-9


def kept_mass(trim_fraction, n_samples, weights, at_least=0):
    """How much weight stays when a fraction is trimmed.

    Parameters
    ----------
    trim_fraction : float
        In [0, 1).

    n_samples : int

    weights : ndarray or tensor (n_samples,), float64, or None
        None weighs every sample 1.

    at_least : int, default=0
        Number of samples, or of units of weight that count them, that must stay.

    Returns
    -------
    mass : float
        A whole number if the weights are: they count samples, of which
        ceil(trim_fraction n) are trimmed. Other weights have no unit to round to, and
        exactly the fraction is trimmed.
    """
    total = float(n_samples if weights is None else weights.sum())
    trimmed = trim_fraction * total
    if weights is None or bool((weights == weights.round()).all()):
        # 0.07 * 100 is a little more than 7: it must not trim 8.
        eps = np.finfo(np.float64).eps
        trimmed = math.ceil(trimmed * (1 - 4 * eps) - 1e-9)
        trimmed = max(0, min(trimmed, total - at_least))
    return total - trimmed


def keep_nearest(distances, weights, mass, blur, refine):
    """Give the nearest samples their weight, until a mass is given away.

    Of samples at equal distances those of lower index come first.

    Parameters
    ----------
    distances : tensor (n_samples,), float64
        Squared, off by rounding; where that matters they are refined in place.

    weights : tensor (n_samples,), float64, or None

    mass : float
        Weight to give away.

    blur : callable
        ``blur(distances)`` bounds the rounding of each, (n_samples,).

    refine : callable
        ``refine(index)`` returns distances of some samples without that rounding.

    Returns
    -------
    kept : tensor (n_samples,), float64
        Weights that are left: 0 for trimmed samples, and a part for the sample at the
        boundary if it is not trimmed as a whole.
    """
    whole = torch.ones_like(distances) if weights is None else weights
    if mass <= 0:
        return torch.zeros_like(whole)
    boundary = _boundary(distances, weights, mass)
    index = near_boundary(distances, boundary, blur(distances))
    kept = torch.where(distances < boundary, whole, 0.0)
    kept[index] = 0
    left = mass - float(kept.sum())
    if weights is None and len(index) == left:
        kept[index] = 1
        return kept
    exact = refine(index)
    distances[index] = exact
    index = index[exact.argsort(stable=True)]
    own = whole[index]
    share = (left - (own.cumsum(0) - own)).clamp_(min=0)
    share = torch.minimum(share, own)
    share[share < _SLIVER * own] = 0
    kept[index] = torch.where(share > (1 - _SLIVER) * own, own, share)
    return kept


def near_boundary(distances, boundary, blur):
    """Samples that rounding may put on either side of one that is at the boundary.

    Parameters
    ----------
    distances : tensor (n_samples,)

    boundary : float
        One of them.

    blur : tensor (n_samples,)
        Bound on the rounding of each.

    Returns
    -------
    index : tensor (m,), int64
        Among them that of the boundary itself.
    """
    blur += blur[distances == boundary].max()
    return ((distances - boundary).abs_() <= blur).nonzero()[:, 0]


def _boundary(distances, weights, mass):
    """Distance up to which the samples have a mass, a number."""
    if weights is None:
        place = round(mass) - 1
        if distances.device.type == "cpu":  # NumPy's selection is the faster one
            return float(np.partition(distances.numpy(), place)[place])
        return float(distances.kthvalue(place + 1).values)
    ordered, order = distances.sort()
    cumulated = weights[order].cumsum(0)
    enough = mass * (1 - 1e-12)
    place = int(torch.searchsorted(cumulated, enough))
    return float(ordered[min(place, len(ordered) - 1)])


def lower_median(distances, weights):
    """Lower weighted median: half of the weight is at this distance or nearer."""
    total = len(distances) if weights is None else float(weights.sum())
    half = (total + 1) // 2 if weights is None else total / 2
    return _boundary(distances, weights, half)


class TrimmedAssignment(WeighedAssignment):
    """The nearest center of each sample, and which samples are kept.

    Parameters
    ----------
    nearest, given
        As of `WeighedAssignment`.

    mass : float
        Weight that is kept.
    """

    def __init__(self, nearest, given, mass):
        super().__init__(nearest, given)
        self.mass = mass

    def _weigh(self, distances):
        return keep_nearest(distances, self.given, self.mass, self._blur, self._refined)

    def _blur(self, distances):
        norms = self.samples.squared_norms
        return distance_blur(distances, norms, self.labels, self.centers)

    def _refined(self, index):
        """Distances of some samples that do not depend on their block."""
        parts = []
        for part, block in self.samples.parts(index, len(self.centers)):
            every = torch.arange(len(part), device=part.device)
            parts.append(exact_distances(block, self.centers, self.labels[part], every))
        return torch.cat(parts)

    def squared_radius(self):
        """Squared distance of the farthest sample that is kept, by `pair_distances`."""
        inside = self._distances.masked_fill(self.weights == 0, -math.inf)
        index = near_boundary(inside, inside.max(), self._blur(self._distances))
        return float(self._refined(index).max())

    def objective(self):
        """Weighted sum of the squared distances of the kept samples."""
        # Trimmed ones may be so far that their distance overflows.
        kept = self._distances.masked_fill(self.weights == 0, 0)
        return float(kept @ self.weights)


def distances_by_radius(block, labels, centers, squared_radius):
    """Distances of the rows of a block, of which it is sure on which side they are.

    Whether one exceeds the root of `squared_radius` depends on nothing but its row: in
    fit and in predict it is the same.

    Parameters
    ----------
    block : DenseBlock or CSRBlock

    labels : tensor (m,), int64
        Nearest center of each row.

    centers : tensor (n_clusters, n_features), float64

    squared_radius : float

    Returns
    -------
    distances : tensor (m,), float64
        Not squared.
    """
    distances = block.distances_to(centers, labels)
    blur = distance_blur(distances, block.squared_norms, labels, centers)
    near = (distances - squared_radius).abs_() <= blur
    index = near.nonzero()[:, 0]
    if len(index):
        distances[index] = exact_distances(block, centers, labels, index)
    return distances.sqrt_()
