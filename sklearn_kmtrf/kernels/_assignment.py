"""Labels that follow the centers, with exact bounds from one iteration to the next.

When every center moves a little, most samples keep their nearest one, and it can be
known which. Let sample i be nearer to its center a than to any other by at least
slack_i (a difference of distances). If center j moves by t_j, distances to it change by
at most t_j, so a stays nearest while the movements since then satisfy

    sum over iterations of (t_a + max_{j != a} t_j) < slack_i

(Hamerly, "Making k-means even faster", 2010). `spent[a]` is that sum for a center;
a sample stores the value of `spent` at which its slack runs out, and one comparison
finds the samples that must be scored again. The sums of the update head change only by
the samples whose label changed.
"""

import torch

from sklearn_kmtrf.kernels._accumulators import CenterSums
from sklearn_kmtrf.kernels._nearest import Centers, nearest_centers, slack_of

# A pass over all rows costs less than gathering more than this share of them.
_MOST_ACTIVE = 0.5
# Sums are made anew when more than this share of the labels changed.
_MOST_CHANGED = 0.4
# Covers the rounding of bounds kept in float32.
_SAFETY = 2.0**-20
# A sum of squares that is less than this share of what it is the rest of keeps fewer
# than eleven digits, and is summed by differences instead.
CANCELLED = 1e-5


class Assignment:
    """The nearest center of each sample, and the sums of each center's samples.

    Parameters
    ----------
    samples : Samples

    weights : tensor (n_samples,), float64, or None

    Attributes
    ----------
    labels : tensor (n_samples,), int64
        Nearest of `centers`, set by `move_to`.

    centers : tensor (n_clusters, n_features), float64

    sums : CenterSums
        Of the samples by label.
    """

    def __init__(self, samples, weights):
        self.samples, self.weights = samples, weights
        self.labels = None

    def move_to(self, centers):
        """Assign every sample to the nearest of other centers.

        Parameters
        ----------
        centers : tensor (n_clusters, n_features), float64
            In the frame of the samples.

        Returns
        -------
        n_changed : int
            Number of labels that changed; all of them at first.
        """
        if self.labels is None:
            self._assign_all(centers)
            return self.samples.n_samples
        self._spend(centers)
        safe = self._runs_out > self._spent.float()[self.labels]
        active = safe.logical_not_().nonzero()[:, 0]
        if len(active) > _MOST_ACTIVE * self.samples.n_samples:
            self._spent.zero_()
            parts, active = self.samples.blocks(len(centers)), slice(None)
            before = self.labels.clone()
        else:
            parts = self.samples.parts(active, len(centers))
            before = self.labels[active]
        prepared = Centers(centers)
        for rows, block in parts:
            self._score(rows, block, prepared)
        # Found at the end, not block by block: small tensors that outlive the large
        # ones made between them keep the allocator from using their memory again.
        changed = (self.labels[active] != before).nonzero()[:, 0]
        index = changed if isinstance(active, slice) else active[changed]
        self._update_sums(index, before[changed])
        return len(index)

    def _assign_all(self, centers):
        """The first assignment, and the sums with it."""
        n_samples, device = self.samples.n_samples, self.samples.device
        self.centers = centers
        self.labels = torch.empty(n_samples, dtype=torch.int64, device=device)
        self._runs_out = torch.empty(n_samples, dtype=torch.float32, device=device)
        self._spent = centers.new_zeros(len(centers))
        self.sums = CenterSums.zeros(centers)
        prepared = Centers(centers)
        for rows, block in self.samples.blocks(len(centers)):
            nearest = nearest_centers(block, prepared)
            self.labels[rows] = nearest.labels
            self._runs_out[rows] = slack_of(nearest, block, prepared)
            self.sums.add_(block, nearest.labels, self._weights_of(rows))

    def _weights_of(self, rows):
        return None if self.weights is None else self.weights[rows]

    def _spend(self, centers):
        """Charge the movement to new centers to every slack."""
        moved = (centers - self.centers).square().sum(1).sqrt()  # (k,)
        self.centers = centers
        farthest = moved.argmax()
        others = moved[farthest].expand(len(moved)).clone()
        others[farthest] = 0
        if len(moved) > 1:
            others[farthest] = moved.topk(2).values[1]
        self._spent += (moved + others) * (1 + _SAFETY)

    def _score(self, rows, block, prepared):
        """Score some rows anew: labels, and when their slack runs out."""
        nearest = nearest_centers(block, prepared)
        self.labels[rows] = nearest.labels
        slack = slack_of(nearest, block, prepared)
        runs_out = slack + self._spent.float()[nearest.labels]
        self._runs_out[rows] = runs_out.sub_(_SAFETY * runs_out.abs())

    def _update_sums(self, index, old):
        """Move the samples of an index from the sums of their old labels."""
        if len(index) > _MOST_CHANGED * self.samples.n_samples:
            self.sums = sums_by_label(
                self.samples, self.weights, self.labels, self.centers
            )
            return
        place = 0
        for part, block in self.samples.parts(index, 1):
            weights = self._weights_of(part)
            self.sums.add_(block, self.labels[part], weights)
            from_labels = old[place : place + len(part)]
            self.sums.add_(block, from_labels, weights, sign=-1)
            place += len(part)

    def means(self, sums):
        """New centers from sums, (k, d); one without samples keeps its place."""
        return sums.means(self.centers)

    def distances(self, centers=None, labels=None):
        """Squared distance of each sample to its center, by differences, (n,).

        Other centers and labels may be given.
        """
        centers = self.centers if centers is None else centers
        labels = self.labels if labels is None else labels
        out = centers.new_empty(self.samples.n_samples)
        for rows, block in self.samples.blocks(len(centers)):
            out[rows] = block.distances_to(centers, labels[rows])
        return out

    def inertia(self):
        """Weighted sum of squared distances of the samples, by differences.

        Depends on nothing but labels and centers: what `inertia_` and `score` return.
        """
        return float(total(self.distances(), self.weights))

    def objective(self):
        """The same within eleven digits, without looking at the samples.

        From the sums: sum w |x|^2 - sum_j (2 S_j.c_j - W_j |c_j|^2), unless too little
        is left of the difference. Then a few samples lie far beyond the rest, and may
        have left their rounding in the sums of clusters that they left: those too are
        made anew.
        """
        spread = total(self.samples.squared_norms, self.weights)
        sums, mass = self.sums.sums, self.sums.mass
        saved = self.centers * (2 * sums - mass[:, None] * self.centers)
        objective = spread - saved.sum()
        if objective < CANCELLED * spread:
            self.sums = sums_by_label(
                self.samples, self.weights, self.labels, self.centers
            )
            return self.inertia()
        return float(objective)


def total(numbers, weights):
    """Weighted sum of one number for each sample; None weighs each 1."""
    return numbers.sum() if weights is None else numbers @ weights


def sums_by_label(samples, weights, labels, centers):
    """Sums of all samples by label, from scratch."""
    sums = CenterSums.zeros(centers)
    for rows, block in samples.blocks(1):
        sums.add_(block, labels[rows], None if weights is None else weights[rows])
    return sums
