r"""Robust k-means: samples count the less, the farther they are, and not at all beyond.

With one radius r, gamma = 1 / r^2, and D the squared distance to the nearest center,

    F = sum_i w_i rho(gamma D_i) / gamma,   rho(u) = u - u^2 / 2 below 1, 1/2 beyond.

rho is concave. So for given D the line that touches it lies above, its slope is
(1 - gamma D)_+, and the weighted mean of each cluster, with these slopes as weights,
lowers the line and F with it. The next assignment lowers every D. Hence F never rises.
"""

import torch

from sklearn_kmtrf.kernels._accumulators import total
from sklearn_kmtrf.kernels._lloyd import LloydRun
from sklearn_kmtrf.kernels._update import relocate_empty
from sklearn_kmtrf.kernels._weighing import WeighedAssignment


class RobustAssignment(WeighedAssignment):
    """The nearest center of each sample, and what it counts.

    Parameters
    ----------
    nearest, given
        As of `WeighedAssignment`.

    squared_radius : float
        Greater than 0.
    """

    def __init__(self, nearest, given, squared_radius):
        super().__init__(nearest, given)
        self.squared_radius = squared_radius

    def _weigh(self, distances):
        slopes = (1 - distances / self.squared_radius).clamp_(min=0)
        return slopes if self.given is None else slopes.mul_(self.given)

    def objective(self):
        """F, in squared units of the frame."""
        inside = (self._distances / self.squared_radius).clamp_(max=1)
        loss = inside.mul_(1 - inside / 2)
        return float(total(loss, self.given)) * self.squared_radius

    def resolution(self):
        """Squared movement of the centers that is rounding of their sums."""
        counted = float(self.weights.sum())
        if counted == 0:
            return 0.0
        near = self._distances.masked_fill(self.weights == 0, 0)
        typical = float(near @ self.weights) / counted
        size = float(self.centers.square().sum()) + len(self.centers) * typical
        eps = torch.finfo(torch.float64).eps
        return 4 * eps**2 * self.samples.n_samples * size


def robust_kmeans(assignment, centers, *, max_iterations, tolerance, on_iteration=None):
    """Iterations of robust k-means from given centers.

    A center with no sample within the radius moves to the sample farthest from its own
    center that has a weight.

    Parameters
    ----------
    assignment : RobustAssignment
        New.

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
        The history has F of the centers after each iteration.
    """
    history, converged, stopped = [], False, False
    assignment.move_to(centers)
    objective = assignment.objective()
    while len(history) < max_iterations and not (converged or stopped):
        new = _new_centers(assignment)
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


def _new_centers(assignment):
    """Weighted means, after centers without weight moved to samples with some."""
    sums = assignment.sums
    if not sums.counts.all():
        sums, *_ = relocate_empty(assignment, 0.0)
    return assignment.means(sums)
