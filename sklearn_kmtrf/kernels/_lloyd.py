"""Lloyd's iterations: the constructed circuit on samples of any number."""

from typing import NamedTuple

import numpy as np
import torch

from sklearn_kmtrf.kernels._accumulators import CenterSums
from sklearn_kmtrf.kernels._blocks import inflation
from sklearn_kmtrf.kernels._nearest import Centers, nearest_centers

# Below this share of the samples' own squared lengths the expanded form leaves fewer
# than eleven digits of the objective, and it is summed by differences instead.
_CANCELLED = 1e-5


class LloydRun(NamedTuple):
    """One run from one start, in the frame of the samples.

    Attributes
    ----------
    labels : tensor (n_samples,), int64
        Nearest of `centers`.

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

    labels: torch.Tensor
    objective: float
    centers: torch.Tensor
    n_iterations: int
    converged: bool
    history: list


def assign(samples, weights, centers):
    """Labels and objective of centers: the assignment head alone, streamed.

    Parameters
    ----------
    samples : Samples

    weights : tensor (n_samples,), float64, or None

    centers : tensor (n_clusters, n_features), float64
        In the frame of the samples.

    Returns
    -------
    labels : tensor (n_samples,), int64

    objective : float
        Weighted sum of squared distances, by differences.
    """
    prepared = Centers(centers)
    labels = torch.empty(samples.n_samples, dtype=torch.int64, device=samples.device)
    objective = centers.new_zeros(())
    for block in samples.blocks(len(centers)):
        rows = slice(block.start, block.stop)
        labels[rows] = nearest_centers(block, prepared).labels
        distances = block.distances_to(centers, labels[rows])
        objective += _total(distances, None if weights is None else weights[rows])
    return labels, float(objective)


def own_distances(samples, centers, labels):
    """Squared distance of each sample to the center of its label, (n_samples,)."""
    parts = [
        block.distances_to(centers, labels[block.start : block.stop])
        for block in samples.blocks(len(centers))
    ]
    return torch.cat(parts)


def _total(distances, weights):
    """Weighted sum of distances; None weighs each 1."""
    return distances.sum() if weights is None else distances @ weights


def lloyd_iteration(samples, weights, centers, labels):
    """One pass over the samples: assignment head, then the sums of the update head.

    Parameters
    ----------
    samples : Samples

    weights : tensor (n_samples,), float64, or None

    centers : tensor (n_clusters, n_features), float64

    labels : tensor (n_samples,), int64
        Overwritten with the nearest centers.

    Returns
    -------
    sums : CenterSums
        `sums.means(centers)` are the new centers.
    """
    prepared = Centers(centers)
    sums = CenterSums.zeros(centers)
    for block in samples.blocks(len(centers)):
        rows = slice(block.start, block.stop)
        nearest = nearest_centers(block, prepared)
        labels[rows] = nearest.labels
        block_weights = None if weights is None else weights[rows]
        sums.add_(block, nearest.labels, nearest.distances, block_weights)
    # What the scores were inflated by.
    added = sums.spread + sums.mass @ prepared.squared_norms
    sums.objective -= inflation(samples.n_features) * added
    if sums.objective < _CANCELLED * sums.spread:
        sums.objective = _total(own_distances(samples, centers, labels), weights)
    return sums


def lloyd(
    samples,
    weights,
    centers,
    *,
    max_iterations,
    tolerance,
    on_iteration=None,
    iteration=lloyd_iteration,
):
    """Lloyd's algorithm from given centers, with scikit-learn's rules.

    Stops when no label changes, or when the squared movement of all centers together
    is at most `tolerance`. A center without samples moves to a sample far from its
    own center, see `_relocate_empty`.

    Parameters
    ----------
    samples : Samples

    weights : tensor (n_samples,), float64, or None

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

    iteration : callable, default=lloyd_iteration
        What does one iteration, if not the kernel.

    Returns
    -------
    run : LloydRun
    """
    labels = torch.empty(samples.n_samples, dtype=torch.int64, device=samples.device)
    before = torch.full_like(labels, -1)
    history, converged, stopped = [], False, False
    while len(history) < max_iterations and not (converged or stopped):
        sums = iteration(samples, weights, centers, labels)
        began_with = float(sums.objective)
        relocated = _relocate_empty(samples, weights, centers, labels, sums)
        new = sums.means(centers)
        new[relocated.unfilled] = new[sums.mass.argmax()].clone()
        history.append(_objective_after(sums, centers, new, relocated))
        unchanged = torch.equal(labels, before)
        movement = None if unchanged else float((new - centers).square().sum())
        converged = unchanged or movement <= tolerance
        centers = new
        if on_iteration is not None:
            stopped = bool(on_iteration(began_with, centers, movement))
        labels, before = before, labels
    if unchanged and not len(relocated.clusters):
        labels = before
        objective = float(_total(own_distances(samples, centers, labels), weights))
    else:
        labels, objective = assign(samples, weights, centers)
    return LloydRun(labels, objective, centers, len(history), converged, history)


def mean_variance(samples):
    """Variance of the samples, averaged over features: the unit of ``tol``.

    Weights do not enter, as in scikit-learn. Computed as the objective of one center,
    less what the mean saves.
    """
    origin = torch.zeros(
        1, samples.n_features, dtype=torch.float64, device=samples.device
    )
    sums = CenterSums.zeros(origin)
    for block in samples.blocks(1):
        nothing = torch.zeros_like(block.squared_norms)
        sums.add_(block, nothing.long(), nothing, None)
    mean = sums.sums[0] / samples.n_samples
    variance = sums.spread / samples.n_samples - mean.square().sum()
    return max(0.0, float(variance) / samples.n_features)


class _Relocation(NamedTuple):
    """What became of the clusters without mass in one iteration."""

    clusters: torch.Tensor  # that got a sample, (e,)
    objective: float  # weighted squared distances that the moved samples had
    unfilled: torch.Tensor  # clusters that nothing was left for


def _relocate_empty(samples, weights, centers, labels, sums):
    """Give each center without mass the sample farthest from its own, in place.

    The rule of scikit-learn: the e farthest samples (in the order in which
    ``numpy.argpartition`` leaves them) become the e empty clusters, and leave their
    own. Unlike there, a sample of weight 0 is no target, and `sums` of the clusters
    that lose samples are summed anew rather than corrected, so that no rounding is
    left of a cluster that loses its last sample. A cluster for which there is no
    sample off its center is put on the heaviest one.
    """
    empty = (sums.mass == 0).nonzero()[:, 0]
    if not len(empty):
        return _Relocation(empty, 0.0, empty)
    distances = own_distances(samples, centers, labels)
    if weights is not None:
        distances[weights == 0] = -1
    on_host = distances.cpu().numpy()
    if on_host.max() <= 0:
        return _Relocation(empty[:0], 0.0, empty)
    farthest = np.argpartition(on_host, -len(empty))[: -len(empty) - 1 : -1]
    farthest = farthest[on_host[farthest] >= 0]
    clusters = empty[: len(farthest)]
    moved = torch.from_numpy(np.ascontiguousarray(farthest)).to(labels.device)
    weight = centers.new_ones(len(moved)) if weights is None else weights[moved]
    rows = samples.rows(farthest)
    donors = labels[moved].unique()
    after = labels.clone()
    after[moved] = clusters
    _sum_anew(samples, weights, after, donors, sums)
    sums.sums[clusters] = rows * weight[:, None]
    sums.mass[clusters] = weight
    unfilled = (sums.mass == 0).nonzero()[:, 0]
    return _Relocation(clusters, float(distances[moved] @ weight), unfilled)


def _sum_anew(samples, weights, labels, clusters, sums):
    """Recompute the sums of some clusters from their samples, in place."""
    fresh = CenterSums.zeros(sums.sums)
    for block in samples.blocks(len(sums.mass)):
        rows = slice(block.start, block.stop)
        block_weights = None if weights is None else weights[rows]
        fresh.add_(
            block, labels[rows], torch.zeros_like(block.squared_norms), block_weights
        )
    sums.sums[clusters] = fresh.sums[clusters]
    sums.mass[clusters] = fresh.mass[clusters]


def _objective_after(sums, centers, new, relocated):
    """Objective of the new centers, every sample with the cluster it has now.

    For the samples of one cluster, of weight W and sum S, and a move from c to c + t,

        sum w |x - c - t|^2 = sum w |x - c|^2 - 2 t.(S - W c) + W |t|^2,

    so the old objective and the sums give the new one. A relocated sample lies on its
    new center: it leaves the objective with what it had.
    """
    move = new - centers
    pull = sums.sums - sums.mass[:, None] * centers
    saved = (move * (2 * pull - sums.mass[:, None] * move)).sum(1)  # (k,)
    saved[relocated.clusters] = 0
    saved[relocated.unfilled] = 0
    return max(0.0, float(sums.objective) - relocated.objective - float(saved.sum()))
