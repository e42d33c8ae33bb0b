"""Samples as a stream of blocks: dense arrays, memory maps and CSR matrices.

Every kernel loops ``for rows, block in samples.blocks(width)``, or asks for the block
of some rows. Nothing of the size of X is made, but for the tokens of dense X in memory:
one float32 copy, made once for all passes.
"""

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch

from sklearn_kmtrf.kernels._blocks import (
    CSRBlock,
    DenseBlock,
    fits_a_block,
    rows_per_block,
    sums_of_squares,
    write_tokens_,
)
from sklearn_kmtrf.kernels._frame import frame_of_csr, frame_of_dense
from sklearn_kmtrf.kernels._select import pick


class Samples:
    """Rows of a data set, read block by block; see `DenseSamples`, `CSRSamples`.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)

    frame : Frame
        In which the kernels work.

    device : torch.device
        Where blocks are put.

    Attributes
    ----------
    whole : tensor (n_samples, n_features), float64, or None
        All rows in the frame, for dense X of no more than one block.
    """

    whole = None

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

    @cached_property
    def squared_norms(self):
        """Squared length of each sample, (n_samples,), float64."""
        return torch.cat([block.squared_norms for _, block in self.blocks(1)])

    @cached_property
    def blur(self):
        """The blur of each sample, see `DenseBlock`, in the dtype of its scores."""
        return torch.cat([block.blur for _, block in self.blocks(1)])

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
        super().__init__(np.asarray(X), frame, device)
        if fits_a_block(X.size):
            self.whole = self.rows(slice(None))
        self._keep = keep

    @cached_property
    def _read(self):
        """Tokens, squared lengths and mean of all rows, from one pass over X."""
        tokens = torch.empty(
            (self.n_samples, self.n_features + 2),
            dtype=DenseBlock.dtype,
            device=self.device,
        )
        norms = tokens.new_empty(self.n_samples, dtype=torch.float64)
        total = tokens.new_zeros(self.n_features, dtype=torch.float64)
        step = self.rows_per_block(self.n_features)
        for start in range(0, self.n_samples, step):
            rows = slice(start, start + step)
            values = self.rows(rows)
            norms[rows] = sums_of_squares(values)
            write_tokens_(tokens[rows], values, norms[rows])
            total += values.sum(0)
        return tokens, norms, total / self.n_samples

    @cached_property
    def squared_norms(self):
        """Squared length of each sample, (n_samples,), float64."""
        if self.whole is not None:
            return sums_of_squares(self.whole)
        return self._read[1] if self._keep else super().squared_norms

    @cached_property
    def mean(self):
        """Mean of the samples in the frame, weights aside, (n_features,), float64."""
        if self.whole is not None:
            return self.whole.mean(0)
        return self._read[2] if self._keep else super().mean

    def rows_per_block(self, width):
        """Rows of a block when each needs `width` numbers beside its own."""
        return rows_per_block(self.n_features + width)

    def block(self, rows):
        """The block of a slice or an index tensor."""
        return DenseBlock(self, rows)

    @cached_property
    def is_near_origin(self):
        """Whether products with X as it is keep their digits.

        ``(x - shift).c`` is then ``x.c - shift.c``, and no row need be copied.
        """
        plain = self.frame.is_shift and self.X.dtype == np.float64
        if not (plain and self._keep and self.whole is None):
            return False
        if self.device.type != "cpu" or not self.X.flags.c_contiguous:
            return False
        return float(self.offset.square().sum()) <= 16 * float(
            self.squared_norms.mean()
        )

    @cached_property
    def offset(self):
        """The shift as a tensor (n_features,)."""
        return torch.tensor(self.frame.offset, device=self.device)

    @property
    def keeps_norms(self):
        """Whether squared lengths are known without reading X."""
        return self._keep or "squared_norms" in vars(self)

    def tokens_of(self, rows):
        """Tokens of a slice or an index tensor if they are kept, else None."""
        return pick(self._read[0], rows) if self._keep else None

    def rows(self, indices, columns=None):
        """Rows by index, dense, in the frame: a tensor (len(indices), d), float64.

        Only some columns of them where those are given.
        """
        if columns is not None:
            return self.rows(indices)[:, columns]
        if self.whole is not None:
            if not isinstance(indices, slice):
                indices = torch.as_tensor(indices, device=self.device)
            return pick(self.whole, indices)
        if isinstance(indices, slice):
            values = self.X[indices]
        else:
            if isinstance(indices, torch.Tensor):
                indices = indices.cpu().numpy()
            values = np.take(self.X, indices, axis=0)
        return torch.from_numpy(self.frame.enter(values)).to(self.device)


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
        norms = None
        if "squared_norms" in vars(self):
            norms = pick(self.squared_norms, rows)
        if isinstance(rows, slice):
            indptr = self.X.indptr[rows.start : rows.stop + 1]
            stored = slice(indptr[0], indptr[-1])
            indices, values = self.X.indices[stored], self.X.data[stored]
        else:
            some = self.X[rows.cpu().numpy()]
            indptr, indices, values = some.indptr, some.indices, some.data
        if self.frame.scale != 1:
            values = values * self.frame.scale
        # Within a block 32 bits are enough, whatever the matrix came with.
        tensors = (
            torch.from_numpy(_writeable(part, dtype)).to(self.device)
            for part, dtype in (
                (indptr - indptr[0], np.int32),
                (indices, np.int32),
                (values, np.float64),
            )
        )
        return CSRBlock(*tensors, self._offset, self.n_features, norms)

    def rows(self, indices, columns=None):
        """Rows by index, dense, in the frame: a tensor (len(indices), d), float64.

        Only some columns of them where those are given.
        """
        indices = torch.as_tensor(indices)
        block = self.block(indices)
        every = torch.arange(len(indices), device=self.device)
        return block.rows(every, columns)


def _writeable(array, dtype):
    """The array itself if it has the type and torch takes it without a warning."""
    array = np.asarray(array, dtype=dtype)
    return array if array.flags.writeable else array.copy()


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
