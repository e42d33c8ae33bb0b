"""Nearest and second nearest center of every sample: hard-max attention, certified.

**Scores.** The scores of a block are one matrix product. With h = 4 (d + 4) u, u the
unit roundoff, it computes

    L_ij = -2 x_i.c_j + (1 + h) |x_i|^2 + (1 + h) |c_j|^2.

A sum of d products, in whatever order, is off by at most d u |x| |c| to first order,
so all rounding in L_ij, that of the squared lengths included, is less than
3 (d + 4) u (|x_i|^2 + |c_j|^2). What h adds is more. For the true squared distance s_ij

    s_ij <= L_ij <= s_ij + 2 h (|x_i|^2 + |c_j|^2),

and since |c_j|^2 <= 2 |x_i|^2 + 2 s_ij, also L_ij <= (1 + 4 h) s_ij + 6 h |x_i|^2: one
far center does not blur the others.

**Packing.** L is not negative, so its bits order like its value. The lowest
ceil(log2 k) bits of each score are replaced by j, which changes it by at most q = 2 u
2^ceil(log2 k) of itself. Then one `amin`, which runs at the speed of memory, returns
score and index of the nearest center, and a second one the runner-up.

**Certainty.** The nearest center is a if every other score L_j has
L_j - 6 h |x|^2 > (1 + 4 h) L_a, for then s_j > s_a. Three factors 1 + q pay for the
packing of both, a fourth one and 7 for 6 for the rounding of the bound itself. For the
few rows that do not pass (exact ties among them) the centers within reach are compared
by differences, summed in an order that depends on nothing but d. So the answer for a
row does not depend on the block it is in, nor on the number of threads, and exact ties
go to the lower index.

Scores of dense samples are in float32 whatever the dtype of X: u = 2^-24.
"""

from functools import cached_property
from typing import NamedTuple

import torch

from sklearn_kmtrf.kernels._blocks import BLOCK_ELEMENTS, inflation, rows_per_block
from sklearn_kmtrf.kernels._select import where

# Relative error of the squares of distances in their expanded form; smaller ones that
# it would not leave so exact are computed by differences.
DISTANCE_ERROR = 1e-10


class Nearest(NamedTuple):
    """The two nearest centers of the rows of a block.

    Attributes
    ----------
    labels : tensor (m,), int64
        Index of the nearest center, provisional for undecided rows.

    distances : tensor (m,)
        Its L, the index packed in.

    seconds : tensor (m,)
        The L of the second nearest center.

    undecided : tensor (u,), int64
        Rows whose scores are too close to tell.

    near : tensor (u, n_clusters), bool
        The centers that may be nearest to them.
    """

    labels: torch.Tensor
    distances: torch.Tensor
    seconds: torch.Tensor
    undecided: torch.Tensor
    near: torch.Tensor


class Centers:
    """Centers of the frame with what every block needs of them.

    Parameters
    ----------
    values : tensor of shape (n_clusters, n_features), float64
    """

    def __init__(self, values):
        n_clusters = len(values)
        self.values = values
        self.squared_norms = values.square().sum(1)  # (k,)
        self.index_mask = (1 << (n_clusters - 1).bit_length()) - 1

    @cached_property
    def tokens(self):
        """[-2c, 1, (1 + h) |c|^2], (k, d + 2), float32."""
        n_clusters, n_features = self.values.shape
        tokens = self.values.new_ones((n_clusters, n_features + 2), dtype=torch.float32)
        tokens[:, :n_features] = -2 * self.values
        h = inflation(n_features, torch.float32)
        tokens[:, n_features + 1] = (1 + h) * self.squared_norms
        return tokens

    @cached_property
    def columns(self):
        """The values (d, k), contiguous."""
        return self.values.T.contiguous()

    @cached_property
    def distinctive(self):
        """Centers in the features in which they differ, and those features.

        A pair of the values (k, c) and the index (c,), which is None for all features.
        """
        differ = (self.values != self.values[0]).any(0)
        differ[0] |= not differ.any()
        if differ.all():
            return self.values, None
        columns = where(differ)
        return self.values[:, columns], columns

    @cached_property
    def index(self):
        """The number of each center, (k, 1), in both widths of scores."""
        index = torch.arange(len(self), device=self.values.device)[:, None]
        return {torch.int64: index, torch.int32: index.int()}

    def __len__(self):
        """Count the centers."""
        return len(self.values)

    def rounding(self, magnitudes):
        """Bound on the error of ``|c|^2 - 2 x.c``, shape of `magnitudes`."""
        longest = self.squared_norms.max().sqrt()
        h = inflation(self.values.shape[1], torch.float64)
        return h * longest * (longest + 2 * magnitudes)


def nearest_centers(block, centers):
    """Index of the nearest center of each row of a block, (m,), int64.

    The lower one where two are equally near.

    Parameters
    ----------
    block : DenseBlock or CSRBlock

    centers : Centers
    """
    nearest = two_nearest(block, centers)
    if len(nearest.undecided):
        nearest.labels[nearest.undecided] = decide(
            block, nearest.undecided, nearest.near, centers
        )
    return nearest.labels


def two_nearest(block, centers):
    """Nearest and second nearest center of each row as far as scores can tell.

    Parameters
    ----------
    block : DenseBlock or CSRBlock

    centers : Centers

    Returns
    -------
    nearest : Nearest
    """
    scores = block.scores(centers)  # (k, m)
    best, second, labels = _two_smallest(scores, centers)
    eps = torch.finfo(scores.dtype).eps
    packing = (centers.index_mask + 1) * eps
    h = inflation(centers.values.shape[1], scores.dtype)
    reach = torch.add(block.blur, best, alpha=(1 + packing) ** 4 * (1 + 4 * h))
    # Not "second <= reach": scores that overflowed are undecided too.
    certain = second > reach
    if certain.all():
        return Nearest(labels, best, second, labels[:0], certain[:0, None])
    undecided = where(certain.logical_not_())
    near = (scores[:, undecided] > reach[undecided]).logical_not_().T
    return Nearest(labels, best, second, undecided, near)


def decide(source, index, near, centers):
    """Labels of undecided rows, (u,): the nearest of some centers, by differences.

    Parameters
    ----------
    source : Samples or block
        Has ``rows(index, columns)``.

    index : tensor (u,), int64
        The rows.

    near : tensor (u, n_clusters), bool
        The centers that may be nearest.

    centers : Centers
    """
    # In parts, for sparse rows are made dense here, and only where centers differ,
    # which is nowhere else for the rows of one-hot codes.
    values, columns = centers.distinctive
    labels = torch.empty_like(index)
    step = rows_per_block(values.shape[1])
    for start in range(0, len(index), step):
        some = slice(start, start + step)
        rows = source.rows(index[some], columns)
        labels[some] = compare_directly(rows, values, near[some])
    return labels


def slack_of(nearest, block, centers):
    """How much nearer each row is to its center than to any other, at least, (m,).

    In distance, not squared, float32: s_a <= L_a (1 + q) and
    (1 + 4 h) s_j >= L_j (1 - q) - 6 h |x|^2 for all others. Not positive for rows that
    had to be compared directly.

    What is computed below rounds six times at most before a root, and once after it:
    with 16 units less under the one root and 16 more under the other the difference is
    no more than it should be.
    """
    eps = torch.finfo(nearest.distances.dtype).eps
    packing = (centers.index_mask + 1) * eps
    h = inflation(centers.values.shape[1], nearest.distances.dtype)
    lower = (1 - packing) / (1 + 4 * h) * (1 - 16 * eps)
    least = nearest.seconds.mul(lower).sub_(block.blur).clamp_(min=0).sqrt_()
    most = nearest.distances.mul((1 + packing) * (1 + 16 * eps)).sqrt_()
    slack = least.sub_(most)
    if slack.dtype == torch.float32:
        return slack
    # Towards zero by more than the conversion may round.
    return slack.mul_(1 - 2.0**-20).float()


def _two_smallest(scores, centers):
    """Smallest and second smallest of each column of scores (k, m), and its index.

    The index is packed into the scores themselves. With b the bits of the smallest one,
    those of the others become 2^31 - (bits - b) where integers have 32 bits, and its
    own the least integer there is: the largest of them is that of the second smallest.
    """
    width = torch.int64 if scores.dtype == torch.float64 else torch.int32
    bits = scores.view(width)
    bits.bitwise_and_(~centers.index_mask).bitwise_or_(centers.index[width])
    best = bits.amin(0)  # (m,)
    turned = best + torch.iinfo(width).min
    second = turned - (turned - bits).amax(0)
    best, second, labels = (
        best.view(scores.dtype),
        second.view(scores.dtype),
        (best & centers.index_mask).long(),
    )
    if len(centers) == 1:
        second.fill_(torch.inf)
    return best, second, labels


def squared_distances(block, centers):
    """Squared distances of each row of a block to all centers, shape (m, k), float64.

    Entries that are small beside the lengths of row and center are computed by
    differences, so a sample on a center has distance 0. All are right to
    `DISTANCE_ERROR` of themselves.

    Parameters
    ----------
    block : DenseBlock or CSRBlock

    centers : Centers
    """
    squares = block.products(centers)
    torch.add(block.squared_norms[:, None], squares, alpha=-2, out=squares)
    squares.add_(centers.squared_norms)
    magnitudes = block.squared_magnitudes
    if not len(magnitudes):
        return squares
    # First the least for the longest, which is all that most blocks need.
    if squares.amin() > centers.rounding(magnitudes.amax().sqrt()) / DISTANCE_ERROR:
        return squares
    allowance = centers.rounding(magnitudes.sqrt())
    small = squares <= (allowance / DISTANCE_ERROR)[:, None]
    index = where(small.any(1))
    # In parts, for rows of a sparse block are made dense here.
    for part in index.split(rows_per_block(centers.values.shape[1])):
        place, column = small[part].nonzero(as_tuple=True)
        squares[part[place], column] = pair_distances(
            block.rows(part), centers.values, place, column
        )
    return squares.clamp_(min=0)


def center_distances(block, centers):
    """Euclidean distances of each row of a block to all centers, shape (m, k).

    See `squared_distances`. Those of rows whose squares overflow are right too.

    Parameters
    ----------
    block : DenseBlock or CSRBlock

    centers : Centers

    Returns
    -------
    distances : tensor (m, k), float64
    """
    distances = squared_distances(block, centers).sqrt_()
    far = where(torch.isfinite(block.squared_norms).logical_not_())
    for index in far:
        # Their squares overflow: in units in which the row has length about 1 the
        # centers are where its own rounding is.
        row = block.rows(index[None])
        unit = _power_of_two(row.abs().amax())
        difference = row * unit - centers.values * unit
        distances[index] = difference.square().sum(1).sqrt() / unit
    return distances


def pair_distances(rows, centers, row, column):
    """Squared distances of pairs by differences: exact to d roundings of themselves.

    Parameters
    ----------
    rows : tensor (r, d)

    centers : tensor (k, d)

    row, column : tensors (p,), int64
        The pairs.

    Returns
    -------
    distances : tensor (p,)
    """
    n_features = rows.shape[1]
    pairs = max(2, BLOCK_ELEMENTS // n_features)
    distances = rows.new_empty(len(row))
    for start in range(0, len(row), pairs):
        some = slice(start, start + pairs)
        difference = rows[row[some]] - centers[column[some]]
        distances[some] = row_sums(difference.square_())
    return distances


def row_sums(values):
    """Sums of the rows of (p, d), in an order that p has no influence on."""
    if len(values) == 1:
        # torch splits the sum of a single long row among its threads; two rows are
        # summed one by one.
        return values.expand(2, -1).contiguous().sum(1)[:1]
    return values.sum(1)


def put_smallest_at_label(distances, labels_of):
    """Make the first smallest distance of each row that to its label, in place.

    Rounding, that of `center_distances` or that to float32, may leave another one in a
    tie ahead.

    Parameters
    ----------
    distances : tensor (m, k), float32 or float64

    labels_of : callable
        Returns the labels of rows by their number, int64.
    """
    smallest = distances.amin(1)
    error = 4 * max(DISTANCE_ERROR, torch.finfo(distances.dtype).eps)
    close = distances <= (smallest * (1 + error))[:, None]
    index = where(close.sum(1) > 1)
    if not len(index):
        return
    labels, some = labels_of(index), distances[index]
    smallest = smallest[index, None]
    before = torch.arange(some.shape[1], device=some.device) < labels[:, None]
    above = torch.nextafter(smallest, smallest.new_tensor(torch.inf))
    some = torch.where(before & (some == smallest), above, some)
    distances[index] = some.scatter_(1, labels[:, None], smallest)


def compare_directly(rows, centers, near):
    """Label of each row among the centers marked in `near` (r, k), by differences.

    The nearest by ``sum (x - c)^2`` is b. The others are compared to it by

        (|x - c|^2 - |x - b|^2) / 2 = sum (c - b) ((c - x) + (b - x)) / 2,

    which keeps its digits where both distances are large beside their difference.
    """
    row, column = near.nonzero(as_tuple=True)
    distances = pair_distances(rows, centers, row, column)
    best = _first_smallest(distances, row, column, near)
    gaps = _pair_gaps(rows, centers, row, column, best[row])
    return _first_smallest(gaps, row, column, near)


def _first_smallest(numbers, row, column, near):
    """Column of the smallest number of each row, the lowest where there are several."""
    n_rows, n_columns = near.shape
    # Beyond overflow there is no order left; the lowest index is as good as any.
    numbers = numbers.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    smallest = numbers.new_full((n_rows,), torch.inf)
    smallest.scatter_reduce_(0, row, numbers, "amin")
    first = column.new_full((n_rows,), n_columns)
    hit = numbers == smallest[row]
    return first.scatter_reduce_(0, row[hit], column[hit], "amin")


def _pair_gaps(rows, centers, row, column, other):
    """Half the squared distance of pairs less that to other centers, (p,)."""
    gaps = rows.new_empty(len(row))
    step = max(2, BLOCK_ELEMENTS // rows.shape[1])
    for start in range(0, len(row), step):
        some = slice(start, start + step)
        x, ours, theirs = rows[row[some]], centers[column[some]], centers[other[some]]
        # In this order: far from the origin the sum of two centers would lose a bit.
        middle = ((ours - x) + (theirs - x)) / 2
        gaps[some] = row_sums((ours - theirs) * middle)
    return gaps


def _power_of_two(values):
    """Powers of two whose products with `values` lie in [1/2, 1)."""
    exponent = torch.frexp(values)[1]
    return torch.ldexp(torch.ones_like(values), -exponent)
