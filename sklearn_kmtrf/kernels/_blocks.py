"""Samples as a stream of row blocks: dense arrays, memory maps and CSR matrices.

Every kernel loops ``for block in samples.blocks(width)`` and asks the block for three
things only: products with centers, squared norms, and sums by label. A block is float64
on the device, in the frame of :mod:`sklearn_kmtrf.kernels._frame`; nothing of the size
of X is ever made.
"""

import warnings
from functools import cache, cached_property

import numpy as np
import scipy.sparse as sp
import torch

from sklearn_kmtrf.kernels._frame import frame_of_csr, frame_of_dense

# Numbers in one block and its scores: 2 MB of float64, so that they stay in a
# core's cache between the steps of an iteration.
BLOCK_ELEMENTS = 2**18
# Fewer rows than this make the calls, not the numbers, the cost.
_FEWEST_ROWS = 256


# Twice the unit roundoff of float64.
EPS = torch.finfo(torch.float64).eps


def inflation(n_features):
    """The h of `_nearest`: what is added to scores so that rounding only adds."""
    return 2 * (n_features + 4) * EPS


def rows_per_block(width):
    """Rows of a block in which each row needs `width` numbers."""
    return max(_FEWEST_ROWS, BLOCK_ELEMENTS // max(1, width))


class Block:
    """A few rows of the samples, in the frame.

    Parameters
    ----------
    start, stop : int
        Range of the rows in the whole array.

    n_features : int
    """

    def __init__(self, start, stop, n_features):
        self.start, self.stop = start, stop
        self.inflation = inflation(n_features)

    @cached_property
    def inflated_norms(self):
        """The part of the scores that the rows add, (m,)."""
        return self.squared_norms + self.inflation * self.squared_magnitudes

    @cached_property
    def blur(self):
        """How much scores may differ for rounding beside their relative error, (m,)."""
        return 7 * self.inflation * self.squared_magnitudes


class DenseBlock(Block):
    """A few rows of a dense array.

    Parameters
    ----------
    start : int
        Index of the first row in the whole array.

    values : tensor of shape (m, n_features), float64
        Rows in the frame.
    """

    def __init__(self, start, values):
        super().__init__(start, start + len(values), values.shape[1])
        self.values = values

    def products(self, centers):
        """Inner products with centers (k, d) of the frame, shape (m, k)."""
        return self.values @ centers.T

    def scores(self, centers):
        """Inflated squared distances, transposed: the L of `_nearest`, (k, m)."""
        own = self.inflated_norms.expand(len(centers), -1)
        scores = torch.addmm(own, centers.values, self.values.T, alpha=-2)
        return scores.add_(centers.inflated_norms[:, None])

    @cached_property
    def squared_norms(self):
        """Squared length of each row, shape (m,)."""
        return _sums_of_squares(self.values)

    @property
    def squared_magnitudes(self):
        """Squared length that bounds the rounding of the row's products, (m,)."""
        return self.squared_norms

    def distances_to(self, centers, labels):
        """Squared distance of each row to the center of its label, shape (m,)."""
        return _sums_of_squares(self.values - centers[labels])

    def rows(self, indices):
        """Rows by their number within the block, shape (len(indices), d)."""
        return self.values[indices]

    def add_sums_(self, sums, labels, weights, mass):
        """Add the weighted rows to the sums (k, d) of their labels, in place.

        `mass` (k,) is the weight of each label within this block.
        """
        rows = self.values if weights is None else self.values * weights[:, None]
        sums.index_add_(0, labels, rows)


class CSRBlock(Block):
    """A few rows of a CSR matrix, never made dense.

    Parameters
    ----------
    start : int
        Index of the first row in the whole matrix.

    indptr, indices, values : tensors
        The rows in CSR form, values in float64 and at the scale of the frame.

    offset : tensor of shape (n_features,) or None
        Subtracted from every row in effect, never in storage; None if zero.
    """

    def __init__(self, start, indptr, indices, values, offset, n_features):
        super().__init__(start, start + len(indptr) - 1, n_features)
        self.indices, self.values = indices, values
        self.offset = offset
        self.shape = (len(indptr) - 1, n_features)
        _accept_beta_state()
        self.matrix = torch.sparse_csr_tensor(
            indptr, indices, values, size=self.shape, check_invariants=False
        )
        counts = indptr[1:] - indptr[:-1]
        self.row_of_value = torch.repeat_interleave(counts.long())  # (nnz,)

    def products(self, centers):
        """Inner products with centers (k, d) of the frame, shape (m, k)."""
        out = self.matrix @ centers.T.contiguous()
        return out if self.offset is None else out - centers @ self.offset

    def _sums_of_rows(self, values):
        """Sum of one number for each stored value, row by row, shape (m,)."""
        sums = values.new_zeros(self.shape[0])
        return sums.scatter_add_(0, self.row_of_value, values)

    def scores(self, centers):
        """Inflated squared distances, transposed: the L of `_nearest`, (k, m)."""
        scores = self.products(centers.values).mul_(-2).T.contiguous()
        scores.add_(self.inflated_norms).add_(centers.inflated_norms[:, None])
        return scores.clamp_(min=0)

    @cached_property
    def _stored_squared_norms(self):
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
        index = small.nonzero()[:, 0]
        step = rows_per_block(self.shape[1])
        for part in index.split(step):
            rows = (
                self.rows(part)
                if self.offset is None
                else self.rows(part) + self.offset
            )
            distances[part] = _sums_of_squares(rows - centers[labels[part]])
        return distances

    def rows(self, indices):
        """Dense rows by their number within the block, (len(indices), d)."""
        wanted, back = indices.unique(return_inverse=True)
        place = indices.new_full((self.shape[0],), -1)
        place[wanted] = torch.arange(len(wanted), device=place.device)
        place = place[self.row_of_value]  # (nnz,)
        stored = place >= 0
        rows = self.values.new_zeros(len(wanted), self.shape[1])
        columns = self.indices[stored].long()
        rows[place[stored], columns] = self.values[stored]
        return (rows if self.offset is None else rows - self.offset)[back]

    def add_sums_(self, sums, labels, weights, mass):
        """Add the weighted rows to the sums (k, d) of their labels, in place.

        `mass` (k,) is the weight of each label within this block.
        """
        values = self.values
        if weights is not None:
            values = values * weights[self.row_of_value]
        cell = labels[self.row_of_value] * self.shape[1] + self.indices  # (nnz,)
        sums.view(-1).scatter_add_(0, cell, values)
        if self.offset is not None:
            sums.sub_(mass[:, None] * self.offset)


class Samples:
    """Rows of a data set, read block by block; see `DenseSamples`, `CSRSamples`.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)

    frame : Frame
        In which the kernels work.

    device : torch.device
        Where blocks are put.
    """

    def __init__(self, X, frame, device):
        self.X, self.frame, self.device = X, frame, device
        self.n_samples, self.n_features = X.shape
        self._only_block = None

    def blocks(self, width):
        """Blocks in order of rows, each row needing `width` numbers beside its own."""
        rows = self._rows_per_block(width)
        if self.n_samples <= rows:
            # Small data are one block: it is made once and kept.
            if self._only_block is None:
                self._only_block = self._block(0, self.n_samples)
            yield self._only_block
            return
        for start in range(0, self.n_samples, rows):
            yield self._block(start, min(start + rows, self.n_samples))

    def _rows_per_block(self, width):
        raise NotImplementedError

    def _block(self, start, stop):
        raise NotImplementedError

    def rows(self, indices):
        """Rows by index, dense, in the frame: a tensor (len(indices), d), float64."""
        raise NotImplementedError


class DenseSamples(Samples):
    """Rows of a dense array of any order and any strides, or of a memory map."""

    def _rows_per_block(self, width):
        return rows_per_block(self.n_features + width)

    def _block(self, start, stop):
        return DenseBlock(start, self._enter(self.X[start:stop]))

    def rows(self, indices):
        """Rows by index, dense, in the frame: a tensor (len(indices), d), float64."""
        return self._enter(self.X[np.asarray(indices)])

    def _enter(self, rows):
        # A copy in float64 and C order: X itself is neither aliased nor written.
        values = np.array(rows, dtype=np.float64, order="C")
        return self.frame.enter_(torch.from_numpy(values).to(self.device))


class CSRSamples(Samples):
    """Rows of a SciPy CSR matrix with sorted, unique indices of any width."""

    def __init__(self, X, frame, device):
        super().__init__(X, frame, device)
        offset = torch.from_numpy(frame.offset).to(device)
        self._offset = offset if offset.any() else None

    def _rows_per_block(self, width):
        stored = self.X.nnz // max(1, self.n_samples)
        return rows_per_block(stored + width)

    def _block(self, start, stop):
        indptr = self.X.indptr[start : stop + 1]
        stored = slice(indptr[0], indptr[-1])
        values = np.array(self.X.data[stored], dtype=np.float64)
        parts = (
            # Within a block 32 bits are enough, whatever the matrix came with.
            np.asarray(indptr - indptr[0], dtype=np.int32),
            np.array(self.X.indices[stored], dtype=np.int32),
            values if self.frame.scale == 1 else values * self.frame.scale,
        )
        tensors = (torch.from_numpy(part).to(self.device) for part in parts)
        return CSRBlock(start, *tensors, self._offset, self.n_features)

    def rows(self, indices):
        """Rows by index, dense, in the frame: a tensor (len(indices), d), float64."""
        rows = self.X[np.asarray(indices)].toarray()
        values = torch.from_numpy(self.frame.enter(rows))
        return values.to(self.device)


def samples_of(X, device, frame=None):
    """Samples of an array, in their own frame or in a given one.

    Parameters
    ----------
    X : ndarray or SciPy CSR matrix of shape (n_samples, n_features)
        float32 or float64, finite.

    device : torch.device

    frame : Frame, default=None
        None makes the frame that fits X.

    Returns
    -------
    samples : DenseSamples or CSRSamples
    """
    if sp.issparse(X):
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return CSRSamples(X, frame or frame_of_csr(X), device)
    if frame is None:
        frame = frame_of_dense(X, rows_per_block(X.shape[1]))
    return DenseSamples(X, frame, device)


def _sums_of_squares(rows):
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
