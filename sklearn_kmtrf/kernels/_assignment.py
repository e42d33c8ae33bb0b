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

from sklearn_kmtrf.kernels._accumulators import sums_by_label, total
from sklearn_kmtrf.kernels._blocks import fits_a_block
from sklearn_kmtrf.kernels._nearest import Centers, decide, slack_of, two_nearest
from sklearn_kmtrf.kernels._select import pick, put_, where
from sklearn_kmtrf.kernels._update import CANCELLED, update

# Sums are made anew when more than this share of the labels changed.
_MOST_CHANGED = 0.4
# Covers the rounding of bounds kept in float32.
_SAFETY = 2.0**-20


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
        if torch.equal(centers, self.centers):
            return 0
        self._spend(centers)
        active = self._unsafe()
        share = _most_active(len(centers), self.samples.n_features)
        if len(active) > share * self.samples.n_samples:
            self._spent.zero_()
            parts, active = self.samples.blocks(len(centers)), slice(None)
            before = self.labels.clone()
        else:
            parts = self.samples.parts(active, len(centers))
            before = pick(self.labels, active)
        self._score(parts)
        # Found at the end, not block by block: small tensors that outlive the large
        # ones made between them keep the allocator from using their memory again.
        changed = where(pick(self.labels, active) != before)
        index = changed if isinstance(active, slice) else pick(active, changed)
        self._update_sums(index, pick(before, changed))
        return len(index)

    def _assign_all(self, centers):
        """The first assignment, and the sums with it."""
        n_samples, device = self.samples.n_samples, self.samples.device
        self.centers = centers
        self.labels = torch.empty(n_samples, dtype=torch.int64, device=device)
        self._runs_out = torch.empty(n_samples, dtype=torch.float32, device=device)
        self._spent = centers.new_zeros(len(centers))
        self._score(self.samples.blocks(len(centers)))
        self._renew_sums()

    def _weights_of(self, rows):
        return None if self.weights is None else pick(self.weights, rows)

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

    def _unsafe(self):
        """Index of the samples whose slack has run out."""
        spent = self._spent.float()
        index = where(self._runs_out <= spent.max())
        own = pick(spent, pick(self.labels, index))
        return pick(index, where(pick(self._runs_out, index) <= own))

    def _score(self, parts):
        """Score some rows anew: labels, and when their slack runs out.

        Parameters
        ----------
        parts : iterable of pairs of rows and their block
        """
        centers = Centers(self.centers)
        spent = self._spent.float() if self._spent.any() else None
        undecided = []
        for rows, block in parts:
            nearest = two_nearest(block, centers)
            put_(self.labels, rows, nearest.labels)
            runs_out = slack_of(nearest, block, centers)
            if spent is not None:
                runs_out += pick(spent, nearest.labels)
                runs_out.sub_(_SAFETY * runs_out.abs())
            put_(self._runs_out, rows, runs_out)
            if len(nearest.undecided):
                index = nearest.undecided
                index = index + rows.start if isinstance(rows, slice) else rows[index]
                undecided.append((index, nearest.near))
                if not fits_a_block(sum(near.numel() for _, near in undecided)):
                    self._decide(undecided, centers)
                    undecided = []
        if undecided:
            self._decide(undecided, centers)

    def _decide(self, undecided, centers):
        """Label rows that scores could not, all in one go."""
        index, near = map(torch.cat, zip(*undecided, strict=True))
        self.labels[index] = decide(self.samples, index, near, centers)
        self._runs_out[index] = -torch.inf

    def _renew_sums(self):
        """Sum all samples by label, from scratch."""
        self.sums = sums_by_label(self.samples, self.weights, self.labels, self.centers)

    def _update_sums(self, index, old):
        """Move the samples of an index from the sums of their old labels."""
        if len(index) > _MOST_CHANGED * self.samples.n_samples:
            self._renew_sums()
            return
        place = 0
        for part, block in self.samples.parts(index, 1):
            weights = self._weights_of(part)
            self.sums.add_(block, pick(self.labels, part), weights)
            from_labels = old[place : place + len(part)]
            self.sums.add_(block, from_labels, weights, sign=-1)
            place += len(part)

    def update(self):
        """Where the centers go from here: an `Update`."""
        return update(self)

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
            self._renew_sums()
            return self.inertia()
        return float(objective)


def _most_active(n_clusters, n_features):
    """Share of the rows from which on a pass over all costs less than gathering some.

    In nanoseconds, as measured: rows in order cost their scores, gathered ones also
    their way to and fro.
    """
    width = n_features + 2
    in_order = 4 + n_clusters * width / 45
    return in_order / (in_order + 25 + 0.6 * width)
