"""The frame in which distances are computed: shifted and scaled without rounding.

k-means does not change when the data are shifted or scaled, but floating point does:
far from the origin ``|x|^2 - 2 x.c + |c|^2`` cancels, near 1e200 it overflows, near
1e-200 it underflows. Kernels therefore see ``(x - shift) * scale``.

The shift lies near the mean but has few bits, and the scale is a power of two. So for
nearly all data (integers, floats of one magnitude, a large common offset) the frame is
exact: samples at equal distances stay at equal distances.
"""

from dataclasses import dataclass

import numpy as np

# Bits of the shift below the spread of a feature.
_SHIFT_BITS = 10


@dataclass(frozen=True)
class Frame:
    """The map ``x -> (x - shift) * scale``.

    Parameters
    ----------
    shift : ndarray of shape (n_features,), float64
        In the units of the data.

    scale : float
        A power of two.
    """

    shift: np.ndarray
    scale: float = 1.0

    @property
    def is_shift(self):
        """Whether the map is a subtraction and nothing else."""
        return self.scale == 1

    @property
    def offset(self):
        """The shift in the units of the frame, (n_features,)."""
        return self.shift * self.scale

    def enter(self, values):
        """Values of the user in the units of the frame.

        Parameters
        ----------
        values : ndarray of shape (..., n_features), any float dtype

        Returns
        -------
        values : ndarray of the same shape, float64
            New, in C order.
        """
        how = {"dtype": np.float64, "order": "C"}
        # Each order of the two steps is safe where the other one is not: huge values
        # overflow in the subtraction, tiny ones would lose bits in the product.
        # Rows far beyond the training data may overflow, which `_nearest` sees.
        with np.errstate(over="ignore", invalid="ignore"):
            if self.scale < 1:
                values = np.multiply(values, self.scale, **how)
                values -= self.offset
                return values
            values = np.subtract(values, self.shift, **how)
            if self.scale > 1:
                values *= self.scale
            return values

    def leave(self, values):
        """Values of the frame in the units of the user; inverts `enter`."""
        return np.asarray(values, dtype=np.float64) / self.scale + self.shift

    def leave_squared(self, values):
        """Squared distances of the frame in the squared units of the user."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(values, dtype=np.float64) / self.scale / self.scale


def frame_of_dense(X, block_rows):
    """The frame of a dense array: near its mean, at a safe scale.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features), float32 or float64

    block_rows : int
        Rows read at a time.

    Returns
    -------
    frame : Frame
    """
    n_samples, n_features = X.shape
    low = np.full(n_features, np.inf)
    high = np.full(n_features, -np.inf)
    mean = np.zeros(n_features)
    for start in range(0, n_samples, block_rows):
        block = X[start : start + block_rows]
        np.minimum(low, _by_column(np.min, block), out=low)
        np.maximum(high, _by_column(np.max, block), out=high)
        with np.errstate(over="ignore", invalid="ignore"):
            share = _by_column(np.sum, block, dtype=np.float64) / n_samples
        if not np.isfinite(share).all():
            # Values near the largest float.
            share = (block.astype(np.float64) / n_samples).sum(axis=0)
        mean += share
    shift = np.clip(round_to_spread(mean, low, high), low, high)
    with np.errstate(over="ignore"):
        reach = max(np.max(high - shift), np.max(shift - low))
    return Frame(shift, _safe_scale(min(reach, np.finfo(np.float64).max)))


def _by_column(reduce, block, **options):
    """Reduce the columns of a block, many rows at once where there are few columns."""
    n_rows, n_columns = block.shape
    together = 256 // n_columns
    if together < 2 or n_rows < 2 * together or not block.flags.c_contiguous:
        return reduce(block, axis=0, **options)
    whole = n_rows // together * together
    wide = reduce(block[:whole].reshape(-1, together * n_columns), axis=0, **options)
    parts = np.concatenate([wide.reshape(together, n_columns), block[whole:]])
    return reduce(parts, axis=0, **options)


def frame_of_csr(X):
    """The frame of a CSR matrix: not shifted, since zeros must stay zeros."""
    reach = np.abs(X.data).max(initial=0.0)
    return Frame(np.zeros(X.shape[1]), _safe_scale(float(reach)))


def round_to_spread(mean, low, high):
    """`mean` rounded to a few bits below the spread of each feature.

    A shift that is a short binary number leaves the differences to it exact: with
    integer-valued data, for example, all of them are.
    """
    with np.errstate(over="ignore"):
        spread = np.minimum(high - low, np.finfo(np.float64).max)
    exponent = np.frexp(spread)[1] - _SHIFT_BITS
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.ldexp(np.round(np.ldexp(mean, -exponent)), exponent)
    rounded = np.where(np.isfinite(rounded), rounded, mean)
    return np.where(spread == 0, low, rounded)


def _safe_scale(reach):
    """One, or the power of two that brings numbers up to `reach` into [1/2, 1).

    One where squares of such numbers, and of far smaller ones, are well inside the
    range of float32.
    """
    if reach == 0 or 2.0**-10 <= reach <= 2.0**40:
        return 1.0
    exponent = int(np.clip(-np.frexp(reach)[1], -1000, 1000))
    return float(np.ldexp(1.0, exponent))
