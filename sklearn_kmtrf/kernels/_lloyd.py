"""Lloyd's iterations: the constructed circuit on samples of any number."""

from typing import NamedTuple

import numpy as np
import torch

from sklearn_kmtrf.kernels._assignment import (
    CANCELLED,
    Assignment,
    sums_by_label,
    total,
)


class LloydRun(NamedTuple):
    """One run from one start, in the frame of the samples.

    Attributes
    ----------
    assignment : Assignment
        The nearest of `centers` for each sample.

    objective : float
        Weighted sum of squared distances to `centers`.

    centers : tensor (n_clusters, n_features)

    n_iterations : int

    converged : bool
        False if `max_iterations` or a callback ended the run.

    history : list of float
        The objective of the centers after each iteration, each sample counted with
        the cluster that the iteration gave it.
    """

    assignment: Assignment
    objective: float
    centers: torch.Tensor
    n_iterations: int
    converged: bool
    history: list


def lloyd(assignment, centers, *, max_iterations, tolerance, on_iteration=None):
    """Lloyd's algorithm from given centers, with scikit-learn's rules.

    Stops when no label changes, or when the squared movement of all centers together
    is at most `tolerance`. A center without samples moves to a sample far from its
    own center, see `_relocate_empty`.

    Parameters
    ----------
    assignment : Assignment
        New, of the samples and their weights.

    centers : tensor (n_clusters, n_features), float64
        Start, in the frame of the samples.

    max_iterations : int

    tolerance : float
        In squared units of the frame.

    on_iteration : callable, default=None
        Called after each iteration as ``on_iteration(objective, centers, movement)``
        with the objective of the centers that the iteration began with, the new
        centers, and their squared movement (None if no label changed). A true return
        value ends the run.

    Returns
    -------
    run : LloydRun
    """
    history, converged, stopped = [], False, False
    while len(history) < max_iterations and not (converged or stopped):
        n_changed = assignment.move_to(centers)
        began_with = assignment.objective()
        new, objective = _update(assignment, began_with)
        history.append(objective)
        movement = float((new - centers).square().sum()) if n_changed else None
        converged = movement is None or movement <= tolerance
        centers = new
        if on_iteration is not None:
            stopped = bool(on_iteration(began_with, centers, movement))
    assignment.move_to(centers)
    objective = assignment.objective()
    return LloydRun(assignment, objective, centers, len(history), converged, history)


def _update(assignment, objective):
    """New centers, and their objective with every sample in the cluster it has now.

    For the samples of one cluster, of weight W and sum S, and a move from c to c + t,

        sum w |x - c - t|^2 = sum w |x - c|^2 - 2 t.(S - W c) + W |t|^2,

    so the old objective and the sums give the new one, unless too little is left. A
    relocated sample lies on its new center: it leaves the objective with what it had.
    """
    centers, sums = assignment.centers, assignment.sums
    labels, left = assignment.labels, objective
    if sums.counts.all():
        new, relocated = assignment.means(sums), None
    else:
        sums, relocated, labels, left = _relocate_empty(assignment, objective)
        new = assignment.means(sums)
        unfilled = (sums.counts == 0).nonzero()[:, 0]
        if len(unfilled):
            new[unfilled] = new[sums.mass.argmax()].clone()
    move = new - centers
    mass = sums.mass[:, None]
    saved = (move * (2 * (sums.sums - mass * centers) - mass * move)).sum(1)  # (k,)
    if relocated is not None:
        saved[relocated] = 0
    left -= float(saved.sum())
    if left < CANCELLED * objective:
        left = float(total(assignment.distances(new, labels), assignment.weights))
    return new, left


def _relocate_empty(assignment, objective):
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
    empty = (sums.counts == 0).nonzero()[:, 0]
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
