"""Iterations of algorithms without labels that come to rest: robust and soft k-means.

Lloyd's algorithm has converged when no label changes. Where samples count by real
numbers there is always some last digit that does, so here the movement of the centers
decides.
"""

import torch

from sklearn_kmtrf.kernels._lloyd import LloydRun


def descend(assignment, centers, *, max_iterations, tolerance, on_iteration=None):
    """Move centers to where an assignment says, until they hardly move.

    Parameters
    ----------
    assignment : RobustAssignment or SoftAssignment
        New. It knows the objective of the centers that it was moved to, where they go
        from there (`next_centers`), and which movement is rounding (`resolution`).

    centers : tensor (n_clusters, n_features), float64
        Start, in the frame of the samples.

    max_iterations : int

    tolerance : float
        Squared movement of the centers that ends the run, in units of the frame.

    on_iteration : callable, default=None
        As of :func:`~sklearn_kmtrf.kernels._lloyd.lloyd`; the movement is None if it
        is no more than rounding.

    Returns
    -------
    run : LloydRun
        The history has the objective of the centers after each iteration.
    """
    history, converged, stopped = [], False, False
    assignment.move_to(centers)
    objective = assignment.objective()
    while len(history) < max_iterations and not (converged or stopped):
        new = assignment.next_centers()
        movement = float((new - centers).square().sum())
        if movement <= assignment.resolution():
            movement = None
        converged = movement is None or movement <= tolerance
        began_with, centers = objective, new
        assignment.move_to(centers)
        objective = assignment.objective()
        history.append(objective)
        if on_iteration is not None:
            stopped = bool(on_iteration(began_with, centers, movement))
    return LloydRun(assignment, objective, centers, len(history), converged, history)


def movement_resolution(samples, centers, typical):
    """Squared movement of centers (k, d) that is rounding of the sums behind them.

    `typical` is the mean squared distance of a sample to its center.
    """
    size = float(centers.square().sum()) + len(centers) * typical
    eps = torch.finfo(torch.float64).eps
    return 4 * eps**2 * samples.n_samples * size
