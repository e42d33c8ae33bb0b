"""Samples as a stream of row blocks: dense arrays, memory maps and CSR matrices.

Every kernel loops ``for block in samples.blocks(width)``, or asks for the block of some
rows, and lets the block do what depends on how X is stored: scores of centers, squared
lengths, distances and sums by label. Blocks lie on the device, in the frame of
:mod:`sklearn_kmtrf.kernels._frame`.

Dense samples are tokens [x, |x|^2, 1] in float32 (Theorem 2.2): one product with
[-2c, 1, |c|^2] is the squared distance. For data in memory the tokens are made once:
the one float32 copy of X. float64 rows are made block by block where they are needed.
"""

import warnings
from functools import cache, cached_property

import numpy as np
import scipy.sparse as sp
import torch

from sklearn_kmtrf.kernels._frame import frame_of_csr, frame_of_dense

# Numbers in one block and its scores: they stay in a core's cache between the steps of
# an iteration.
BLOCK_ELEMENTS = 2**18
# Fewer rows than this make the calls, not the numbers, the cost.
_FEWEST_ROWS = 512

# Added to squared lengths in float32, so that products which underflow do not make a
# squared distance negative.
_FLOOR = 2.0**-100


def inflation(n_features, dtype):
    """The h of `_nearest`: what is added to scores so that rounding only adds."""
    return 2 * (n_features + 4) * torch.finfo(dtype).eps


def rows_per_block(width):
    """Rows of a block in which each row needs `width` numbers."""
    return max(_FEWEST_ROWS, BLOCK_ELEMENTS // max(1, width))


class DenseBlock:
    """Some rows of a dense array.

    Parameters
    ----------
    tokens : tensor of shape (m, n_features + 2), float32, or None
        Made from the values if None.

    make_values : callable
        Returns the rows in the frame, a tensor (m, n_features), float64.

    squared_norms : tensor of shape (m,), float64, or None
        Computed from the values if None.
    """

    dtype = torch.float32

    def __init__(self, make_values, tokens=None, squared_norms=None):
        self._make_values = make_values
        if tokens is not None:
            self.tokens, self.squared_norms = tokens, squared_norms

    @cached_property
    def values(self):
        """Rows in the frame, (m, d), float64."""
        return self._make_values()

    @cached_property
    def tokens(self):
        """[x, (1 + h) |x|^2, 1], (m, d + 2), float32."""
        n_features = self.values.shape[1]
        tokens = self.values.new_ones(
            (len(self.values), n_features + 2), dtype=self.dtype
        )
        tokens[:, :n_features] = self.values
        h = inflation(n_features, self.dtype)
        tokens[:, n_features] = (1 + h) * self.squared_norms + _FLOOR
        return tokens

    @cached_property
    def squared_norms(self):
        """Squared length of each row, shape (m,), float64."""
        return _sums_of_squares(self.values)

    @property
    def squared_magnitudes(self):
        """Squared length that bounds the rounding of the row's scores, (m,)."""
        return self.squared_norms

    @cached_property
    def blur(self):
        """How much scores may differ for rounding beside their relative error, (m,)."""
        h = inflation(self.tokens.shape[1] - 2, self.dtype)
        return (7 * h * self.squared_norms + 4 * _FLOOR).to(self.dtype)

    def scores(self, centers):
        """Inflated squared distances, transposed: the L of `_nearest`, (k, m)."""
        return centers.tokens @ self.tokens.T

    def products(self, centers):
        """Inner products with centers (k, d) of the frame, shape (m, k), float64."""
        return self.values @ centers.T

    def distances_to(self, centers, labels):
        """Squared distance of each row to the center of its label, shape (m,)."""
        return _sums_of_squares(self.values - centers[labels])

    def rows(self, indices):
        """Rows by their number within the block, shape (len(indices), d)."""
        return self.values[indices]

    def add_sums_(self, sums, labels, weights, sign=1):
        """Add the weighted rows to the sums (k, d) of their labels, in place."""
        rows = self.values if weights is None else self.values * weights[:, None]
        sums.index_add_(0, labels, rows, alpha=sign)


class CSRBlock:
    """Some rows of a CSR matrix, never made dense.

    Parameters
    ----------
    indptr, indices, values : tensors
        The rows in CSR form, values in float64 and at the scale of the frame.

    offset : tensor of shape (n_features,) or None
        Subtracted from every row in effect, never in storage; None if zero.
    """

    dtype = torch.float64

    def __init__(self, indptr, indices, values, offset, n_features):
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
        h = inflation(self.shape[1], self.dtype)
        scores = self.products(centers.values).mul_(-2).T.contiguous()
        scores.add_(self.squared_norms + h * self.squared_magnitudes)
        return scores.add_((1 + h) * centers.squared_norms[:, None]).clamp_(min=0)

    @cached_property
    def blur(self):
        """How much scores may differ for rounding beside their relative error, (m,)."""
        return 7 * inflation(self.shape[1], self.dtype) * self.squared_magnitudes

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

    def blocks(self, width):
        """Pairs of a slice and its block, in order.

        `width` is how many numbers a row needs beside its own.
        """
        step = self.rows_per_block(width)
        for start in range(0, self.n_samples, step):
            rows = slice(start, min(start + step, self.n_samples))
            yield rows, self.block(rows)

    def parts(self, index, width):
        """The same for the rows of an index tensor, in parts of it."""
        for part in index.split(self.rows_per_block(width)):
            yield part, self.block(part)

    def rows(self, indices):
        """Rows by index, dense, in the frame: a tensor (len(indices), d), float64."""
        raise NotImplementedError

    @cached_property
    def squared_norms(self):
        """Squared length of each sample, (n_samples,), float64."""
        return torch.cat([block.squared_norms for _, block in self.blocks(1)])

    @cached_property
    def mean(self):
        """Mean of the samples in the frame, weights aside, (n_features,), float64."""
        total = torch.zeros(1, self.n_features, dtype=torch.float64, device=self.device)
        for _, block in self.blocks(1):
            block.add_sums_(total, torch.zeros_like(block.squared_norms).long(), None)
        return total[0] / self.n_samples

    def mean_variance(self):
        """Variance of the samples, averaged over features: the unit of ``tol``.

        Weights do not enter, as in scikit-learn.
        """
        variance = self.squared_norms.mean() - self.mean.square().sum()
        return max(0.0, float(variance) / self.n_features)


class DenseSamples(Samples):
    """Rows of a dense array of any order and any strides, or of a memory map.

    Parameters
    ----------
    keep : bool
        Whether tokens are made once and kept: one float32 copy of X.
    """

    def __init__(self, X, frame, device, keep):
        super().__init__(X, frame, device)
        # A single block is kept whole.
        self._values = None
        if X.size <= BLOCK_ELEMENTS:
            self._values = self.rows(slice(None))
        self._tokens = None
        if keep:
            self._tokens = torch.empty(
                (self.n_samples, self.n_features + 2),
                dtype=DenseBlock.dtype,
                device=device,
            )
            norms = self.squared_norms = torch.empty(
                self.n_samples, dtype=torch.float64, device=device
            )
            for start in range(0, self.n_samples, self.rows_per_block(1)):
                rows = slice(start, start + self.rows_per_block(1))
                block = DenseBlock(lambda rows=rows: self.rows(rows))
                self._tokens[rows], norms[rows] = block.tokens, block.squared_norms

    def rows_per_block(self, width):
        """Rows of a block when each needs `width` numbers beside its own."""
        return rows_per_block(self.n_features + width)

    def block(self, rows):
        """The block of a slice or an index tensor."""

        def make_values():
            return self.rows(rows)

        if self._tokens is None:
            return DenseBlock(make_values)
        return DenseBlock(make_values, self._tokens[rows], self.squared_norms[rows])

    def rows(self, indices):
        """Rows by index, dense, in the frame: a tensor (len(indices), d), float64."""
        if self._values is not None:
            return self._values[indices]
        if isinstance(indices, torch.Tensor):
            indices = indices.cpu().numpy()
        # A copy in float64 and C order: X itself is neither aliased nor written.
        values = np.array(self.X[indices], dtype=np.float64, order="C")
        return self.frame.enter_(torch.from_numpy(values).to(self.device))


class CSRSamples(Samples):
    """Rows of a SciPy CSR matrix with sorted, unique indices of any width."""

    def __init__(self, X, frame, device):
        super().__init__(X, frame, device)
        offset = torch.from_numpy(frame.offset).to(device)
        self._offset = offset if offset.any() else None

    def rows_per_block(self, width):
        """Rows of a block when each needs `width` numbers beside its own."""
        stored = self.X.nnz // max(1, self.n_samples)
        return rows_per_block(stored + width)

    def block(self, rows):
        """The block of a slice or an index tensor."""
        if isinstance(rows, slice):
            indptr = self.X.indptr[rows.start : rows.stop + 1]
            stored = slice(indptr[0], indptr[-1])
            indices, values = self.X.indices[stored], self.X.data[stored]
        else:
            some = self.X[rows.cpu().numpy()]
            indptr, indices, values = some.indptr, some.indices, some.data
        values = np.array(values, dtype=np.float64)
        parts = (
            # Within a block 32 bits are enough, whatever the matrix came with.
            np.asarray(indptr - indptr[0], dtype=np.int32),
            np.array(indices, dtype=np.int32),
            values if self.frame.scale == 1 else values * self.frame.scale,
        )
        tensors = (torch.from_numpy(part).to(self.device) for part in parts)
        return CSRBlock(*tensors, self._offset, self.n_features)

    def rows(self, indices):
        """Rows by index, dense, in the frame: a tensor (len(indices), d), float64."""
        rows = self.X[np.asarray(indices)].toarray()
        values = torch.from_numpy(self.frame.enter(rows))
        return values.to(self.device)


def samples_of(X, device, frame=None, *, keep=None):
    """Samples of an array, in their own frame or in a given one.

    Parameters
    ----------
    X : ndarray or SciPy CSR matrix of shape (n_samples, n_features)
        float32 or float64, finite.

    device : torch.device

    frame : Frame, default=None
        None makes the frame that fits X.

    keep : bool, default=None
        Whether dense X may be kept as one float32 copy, for many passes. None: if it
        is not a memory map.

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
    if keep is None:
        keep = not is_memory_map(X)
    return DenseSamples(X, frame, device, keep)


def is_memory_map(X):
    """Whether an array, or what it is a view of, is mapped from a file."""
    while X is not None:
        if isinstance(X, np.memmap):
            return True
        X = getattr(X, "base", None)
    return False


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
