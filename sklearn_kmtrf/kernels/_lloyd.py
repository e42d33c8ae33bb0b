"""Lloyd's iterations: the constructed circuit on samples of any number."""

from typing import NamedTuple

import torch

from sklearn_kmtrf.kernels._assignment import Assignment


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
        step = assignment.update()
        centers = step.centers
        history.append(step.objective)
        movement = step.movement if n_changed else None
        converged = movement is None or movement <= tolerance
        if on_iteration is not None:
            stopped = bool(on_iteration(step.began_with, centers, movement))
    assignment.move_to(centers)
    objective = assignment.objective()
    return LloydRun(assignment, objective, centers, len(history), converged, history)
