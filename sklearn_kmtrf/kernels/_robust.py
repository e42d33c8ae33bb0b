r"""Robust k-means: samples count the less, the farther they are, and not at all beyond.

With one radius r, gamma = 1 / r^2, and D the squared distance to the nearest center,

    F = sum_i w_i rho(gamma D_i) / gamma,   rho(u) = u - u^2 / 2 below 1, 1/2 beyond.

rho is concave. So for given D the line that touches it lies above, its slope is
(1 - gamma D)_+, and the weighted mean of each cluster, with these slopes as weights,
lowers the line and F with it. The next assignment lowers every D. Hence F never rises.
"""

from sklearn_kmtrf.kernels._accumulators import total
from sklearn_kmtrf.kernels._descent import movement_resolution
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

    def next_centers(self):
        """Weighted means of the clusters.

        A center with no sample within the radius moves to the sample farthest from its
        own center that has a weight.
        """
        sums = self.sums
        if not sums.counts.all():
            sums, *_ = relocate_empty(self, 0.0)
        return self.means(sums)

    def resolution(self):
        """Squared movement of the centers that is rounding of their sums."""
        counted = float(self.weights.sum())
        if counted == 0:
            return 0.0
        near = self._distances.masked_fill(self.weights == 0, 0)
        typical = float(near @ self.weights) / counted
        return movement_resolution(self.samples, self.centers, typical)
