"""Blocks of rows: what depends on how the samples are stored.

A block of some rows knows the scores of centers, squared lengths, distances, and sums
by label. It lies on the device, in the frame of :mod:`sklearn_kmtrf.kernels._frame`.

A dense row is a token [x, |x|^2, 1] in float32 (Theorem 2.2): one product with
[-2c, 1, |c|^2] is the squared distance. float64 rows are made where they are needed.
"""

import warnings
from functools import cache, cached_property

import numpy as np
import torch

from sklearn_kmtrf.kernels._select import pick, where

# Numbers in one block and its scores: they stay in a core's cache between the steps of
# an iteration.
BLOCK_ELEMENTS = 2**18
# Fewer rows than this make the calls, not the numbers, the cost.
_FEWEST_ROWS = 512

# Multiplications in a product that is not worth a thread.
SMALL_PRODUCT = 2**18

# Added to squared lengths in float32, so that products which underflow do not make a
# squared distance negative.
_FLOOR = 2.0**-100


def inflation(n_features, dtype):
    """The h of `_nearest`: what is added to scores so that rounding only adds."""
    return 2 * (n_features + 4) * torch.finfo(dtype).eps


def rows_per_block(width):
    """Rows of a block in which each row needs `width` numbers."""
    return max(_FEWEST_ROWS, BLOCK_ELEMENTS // max(1, width))


def product(left, right):
    """Matrix product; a small one on the CPU by NumPy.

    The BLAS of torch wakes its threads for the smallest product, and waits for them
    when the machine has other work. That of NumPy does not.
    """
    size = left.shape[0] * left.shape[1] * right.shape[1]
    if left.device.type == "cpu" and size <= SMALL_PRODUCT:
        # Rows far beyond the training data may overflow, which `_nearest` sees.
        with np.errstate(over="ignore", invalid="ignore"):
            return torch.from_numpy(np.matmul(left.numpy(), right.numpy()))
    return left @ right


def fits_a_block(n_numbers):
    """Whether so many numbers are no more than one block."""
    return n_numbers <= BLOCK_ELEMENTS


class DenseBlock:
    """Some rows of a dense array.

    Parameters
    ----------
    samples : DenseSamples

    place : slice or tensor of shape (m,), int64
        Which rows.
    """

    dtype = torch.float32

    def __init__(self, samples, place):
        self._samples, self._place = samples, place

    @cached_property
    def values(self):
        """Rows in the frame, (m, d), float64."""
        return self._samples.rows(self._place)

    @cached_property
    def tokens(self):
        """[x, (1 + h) |x|^2, 1], (m, d + 2), float32."""
        tokens = self._samples.tokens_of(self._place)
        if tokens is None:
            m, d = self.values.shape
            tokens = self.values.new_empty((m, d + 2), dtype=self.dtype)
            write_tokens_(tokens, self.values, self.squared_norms)
        return tokens

    @cached_property
    def squared_norms(self):
        """Squared length of each row, shape (m,), float64."""
        if self._samples.keeps_norms:
            return pick(self._samples.squared_norms, self._place)
        return sums_of_squares(self.values)

    @property
    def squared_magnitudes(self):
        """Squared length that bounds the rounding of the row's products, (m,)."""
        if not self._samples.is_near_origin:
            return self.squared_norms
        return 2 * (self.squared_norms + self._samples.offset.square().sum())

    @cached_property
    def blur(self):
        """How much scores may differ for rounding beside their relative error, (m,)."""
        n_features = self.tokens.shape[1] - 2
        h = inflation(n_features, self.dtype)
        floor = self.tokens.new_tensor(4 * _FLOOR)
        return torch.add(floor, self.tokens[:, n_features], alpha=7 * h)

    def scores(self, centers):
        """Inflated squared distances, transposed: the L of `_nearest`, (k, m)."""
        return product(centers.tokens, self.tokens.T)

    def products(self, centers):
        """Inner products with `Centers`, shape (m, k), float64."""
        samples, place = self._samples, self._place
        if not samples.is_near_origin:
            return product(self.values, centers.values.T)
        if isinstance(place, slice):
            rows = samples.X[place]
        else:
            rows = np.take(samples.X, place.numpy(), axis=0)
        products = np.matmul(rows, centers.columns.numpy())
        return torch.from_numpy(products).sub_(centers.values @ samples.offset)

    def distances_to(self, centers, labels):
        """Squared distance of each row to the center of its label, shape (m,)."""
        return sums_of_squares(self.values - pick(centers, labels))

    def rows(self, indices, columns=None):
        """Rows by their number within the block, (len(indices), d), float64.

        Only some columns of them where those are given.
        """
        if "values" in vars(self):
            rows = self.values[indices]
            return rows if columns is None else rows[:, columns]
        if isinstance(self._place, slice):
            return self._samples.rows(indices + self._place.start, columns)
        return self._samples.rows(self._place[indices], columns)

    def add_sums_(self, sums, labels, weights, sign=1):
        """Add the weighted rows to the sums (k, d) of their labels, in place."""
        rows = self.values if weights is None else self.values * weights[:, None]
        sums.index_add_(0, labels, rows, alpha=sign)

    def add_shared_sums_(self, sums, shares):
        """Add the rows to all sums (k, d), by their shares (m, k), in place."""
        sums += product(shares.T, self.values)


class CSRBlock:
    """Some rows of a CSR matrix, never made dense.

    Parameters
    ----------
    indptr, indices, values : tensors
        The rows in CSR form, values in float64 and at the scale of the frame.

    offset : tensor of shape (n_features,) or None
        Subtracted from every row in effect, never in storage; None if zero.

    n_features : int

    squared_norms : tensor of shape (m,), float64, default=None
        Squared length of each row; None computes it.
    """

    dtype = torch.float64

    def __init__(self, indptr, indices, values, offset, n_features, squared_norms=None):
        if squared_norms is not None:
            self.squared_norms = squared_norms
        self._indptr = indptr
        self.indices, self.values = indices, values
        self.offset = offset
        self.shape = (len(indptr) - 1, n_features)
        _accept_beta_state()
        self.matrix = torch.sparse_csr_tensor(
            indptr, indices, values, size=self.shape, check_invariants=False
        )

    @cached_property
    def row_of_value(self):
        """The row of each stored value, (nnz,)."""
        counts = self._indptr[1:] - self._indptr[:-1]
        return torch.repeat_interleave(counts.long())

    def products(self, centers):
        """Inner products with `Centers`, shape (m, k)."""
        out = self.matrix @ centers.columns
        return out if self.offset is None else out - centers.values @ self.offset

    def _sums_of_rows(self, values):
        """Sum of one number for each stored value, row by row, shape (m,)."""
        sums = values.new_zeros(self.shape[0])
        return sums.scatter_add_(0, self.row_of_value, values)

    def scores(self, centers):
        """Inflated squared distances, transposed: the L of `_nearest`, (k, m)."""
        h = inflation(self.shape[1], self.dtype)
        scores = self.products(centers).mul_(-2).T.contiguous()
        scores.add_(self.squared_norms + h * self.squared_magnitudes)
        return scores.add_((1 + h) * centers.squared_norms[:, None]).clamp_(min=0)

    @cached_property
    def blur(self):
        """How much scores may differ for rounding beside their relative error, (m,)."""
        return 7 * inflation(self.shape[1], self.dtype) * self.squared_magnitudes

    @cached_property
    def _stored_squared_norms(self):
        if self.offset is None and "squared_norms" in vars(self):
            return self.squared_norms
        return self._sums_of_rows(self.values.square())

    @cached_property
    def squared_norms(self):
        """Squared length of each row, shape (m,)."""
        norms = self._stored_squared_norms
        if self.offset is None:
            return norms
        cross = self.matrix @ self.offset
        return (norms - 2 * cross + self.offset.square().sum()).clamp_(min=0)

    @cached_property
    def squared_magnitudes(self):
        """Squared length that bounds the rounding of the row's products, (m,)."""
        if self.offset is None:
            return self.squared_norms
        # The offset is added after the fact, so both parts carry their own rounding.
        return (self._stored_squared_norms.sqrt() + self.offset.norm()).square_()

    def distances_to(self, centers, labels):
        """Squared distance of each row to the center of its label, shape (m,)."""
        if self.offset is not None:
            centers = centers + self.offset
        norms = centers.square().sum(1)[labels]  # (m,)
        own = centers.view(-1)[labels[self.row_of_value] * self.shape[1] + self.indices]
        distances = self._sums_of_rows(self.values * (self.values - 2 * own)) + norms
        # Rows that lie on their center but for rounding are worth being made dense.
        small = distances <= 1e-10 * (norms + self._stored_squared_norms)
        index = where(small)
        step = rows_per_block(self.shape[1])
        for part in index.split(step):
            rows = (
                self.rows(part)
                if self.offset is None
                else self.rows(part) + self.offset
            )
            distances[part] = sums_of_squares(rows - centers[labels[part]])
        return distances

    def rows(self, indices, columns=None):
        """Dense rows by their number within the block, (len(indices), d).

        Only some columns of them where those are given.
        """
        if columns is None:
            columns = torch.arange(self.shape[1], device=indices.device)
        wanted, back = indices.unique(return_inverse=True)
        row = _places(wanted, self.shape[0])[self.row_of_value]  # (nnz,)
        column = _places(columns, self.shape[1])[self.indices.long()]  # (nnz,)
        stored = (row >= 0) & (column >= 0)
        rows = self.values.new_zeros(len(wanted), len(columns))
        rows[row[stored], column[stored]] = self.values[stored]
        return (rows if self.offset is None else rows - self.offset[columns])[back]

    def add_sums_(self, sums, labels, weights, sign=1):
        """Add the weighted rows to the sums (k, d) of their labels, in place."""
        values = self.values
        if weights is not None:
            values = values * weights[self.row_of_value]
        cell = labels[self.row_of_value] * self.shape[1] + self.indices  # (nnz,)
        sums.view(-1).scatter_add_(0, cell, values * sign)
        if self.offset is not None:
            mass = torch.bincount(labels, weights, minlength=len(sums))
            sums.sub_(mass[:, None] * self.offset, alpha=sign)

    def add_shared_sums_(self, sums, shares):
        """Add the rows to all sums (k, d), by their shares (m, k), in place."""
        sums += (self.matrix.t() @ shares).T
        if self.offset is not None:
            sums -= shares.sum(0)[:, None] * self.offset


def _places(wanted, size):
    """Where each of `size` numbers stands in `wanted`, -1 for those that do not."""
    places = wanted.new_full((size,), -1)
    places[wanted] = torch.arange(len(wanted), device=wanted.device)
    return places


def write_tokens_(tokens, values, squared_norms):
    """Write [x, (1 + h) |x|^2, 1] into float32 tokens (m, d + 2), in place."""
    n_features = values.shape[1]
    tokens[:, :n_features] = values
    h = inflation(n_features, tokens.dtype)
    tokens[:, n_features] = (1 + h) * squared_norms + _FLOOR
    tokens[:, n_features + 1] = 1


def sums_of_squares(rows):
    """Squared lengths of rows (m, d), by a product: fast also for few features."""
    return rows.square() @ rows.new_ones(rows.shape[1])


@cache
def _accept_beta_state():
    """Have torch say only to us, and only once, that its CSR tensors are in beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pointers = torch.tensor([0, 1], dtype=torch.int32)
        values = torch.ones(1, dtype=torch.float64)
        torch.sparse_csr_tensor(
            pointers, pointers[:1], values, size=(1, 1), check_invariants=False
        )
