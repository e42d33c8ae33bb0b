"""The update head: where the centers go, and what becomes of empty clusters."""

from typing import NamedTuple

import numpy as np
import torch

from sklearn_kmtrf.kernels._accumulators import sums_by_label, total
from sklearn_kmtrf.kernels._select import where

# A sum of squares that is less than this share of what it is the rest of keeps fewer
# than eleven digits, and is summed by differences instead.
CANCELLED = 1e-5


class Update(NamedTuple):
    """One step of the centers.

    Attributes
    ----------
    centers : tensor (n_clusters, n_features), float64
        Where they are now.

    began_with : float
        The objective before.

    objective : float
        The objective of the new centers, with the labels of the old ones.

    movement : float
        Sum of the squared distances that the centers moved.
    """

    centers: torch.Tensor
    began_with: float
    objective: float
    movement: float


def update(assignment):
    """Move the centers, and find their objective with the labels there are.

    For the samples of one cluster, of weight W and sum S, and a move from c to c + t,

        sum w |x - c - t|^2 = sum w |x - c|^2 - 2 t.(S - W c) + W |t|^2,

    so the old objective and the sums give the new one, unless too little is left. A
    relocated sample lies on its new center: it leaves the objective with what it had.
    """
    objective = assignment.objective()
    centers, sums = assignment.centers, assignment.sums
    labels, left = assignment.labels, objective
    if sums.counts.all():
        new, relocated = assignment.means(sums), None
    else:
        sums, relocated, labels, left = relocate_empty(assignment, objective)
        new = assignment.means(sums)
        unfilled = where(sums.counts == 0)
        if len(unfilled):
            new[unfilled] = new[sums.mass.argmax()].clone()
    move = new - centers
    mass = sums.mass[:, None]
    saved = (move * (2 * (sums.sums - mass * centers) - mass * move)).sum(1)  # (k,)
    if relocated is not None:
        saved[relocated] = 0
    left -= float(saved.sum())
    if left < CANCELLED * objective:
        distances, weights = assignment.distances(new, labels), assignment.weights
        if weights is not None:
            # Samples without a say may be so far that their distance overflows.
            distances.masked_fill_(weights == 0, 0)
        left = float(total(distances, weights))
    return Update(new, objective, left, float(move.square().sum()))


def relocate_empty(assignment, objective):
    """Sums after each center without mass took the sample farthest from its own.

    The rule of scikit-learn: the e farthest samples (in the order in which
    ``numpy.argpartition`` leaves them) become the e empty clusters, and leave their
    own. Unlike there, a sample of weight 0 is no target, and the sums of the clusters
    that lose samples are made anew rather than corrected, so that no rounding is left
    of a cluster that loses its last sample. A cluster for which there is no sample off
    its center stays empty.

    Returns
    -------
    sums : CenterSums

    relocated : tensor, int64
        The clusters that got a sample.

    labels : tensor (n_samples,), int64
        After the samples moved.

    objective : float
        Without what they had.
    """
    sums, weights = assignment.sums.copy(), assignment.weights
    empty = where(sums.counts == 0)
    distances = assignment.distances()
    if weights is not None:
        distances[weights == 0] = -1
    on_host = distances.cpu().numpy()
    if on_host.max() <= 0:
        return sums, empty[:0], assignment.labels, objective
    farthest = np.argpartition(on_host, -len(empty))[: -len(empty) - 1 : -1]
    farthest = np.ascontiguousarray(farthest[on_host[farthest] >= 0])
    clusters = empty[: len(farthest)]
    moved = torch.from_numpy(farthest).to(empty.device)
    after = assignment.labels.clone()
    after[moved] = clusters
    fresh = sums_by_label(assignment.samples, weights, after, assignment.centers)
    touched = torch.cat([assignment.labels[moved], clusters])
    for name in ("sums", "mass", "counts"):
        getattr(sums, name)[touched] = getattr(fresh, name)[touched]
    weight = 1.0 if weights is None else weights[moved]
    left = objective - float((distances[moved] * weight).sum())
    return sums, clusters, after, left
