"""The frame of contaminated data: near the medians, at the scale of the bulk.

The mean and the largest value belong to the farthest sample as soon as there is one.
In a frame made of them the other samples lie far from the origin, or all in one place,
and lose the digits that tell them apart. Here the shift is near the median of each
feature and the scale follows the typical distance to it, and not one sample can move
either by much.

Both are medians over blocks of the medians of a block, found in one pass each. They
say how to compute and not what, so near the median is good enough.
"""

import numpy as np

from sklearn_kmtrf.kernels._frame import Frame, round_to_spread

# Exponent of the largest length in the frame: its square is finite, also as a sum.
_LARGEST_EXPONENT = 500


def median_frame_of_dense(X, block_rows):
    """The frame of a dense array, near its medians.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features), float32 or float64

    block_rows : int
        Rows read at a time.

    Returns
    -------
    frame : Frame
    """
    blocks = range(0, len(X), block_rows)
    quartiles = [_quartiles(X[start : start + block_rows]) for start in blocks]
    low, middle, high = _median(np.array(quartiles))
    shift = round_to_spread(middle, low, high)
    # Where half of the samples share a value, that is the one to be exact.
    shift = np.where(low == high, middle, np.clip(shift, low, high))
    typical, largest = [], 0.0
    for start in blocks:
        with np.errstate(over="ignore"):
            reach = np.abs(X[start : start + block_rows] - shift).max(axis=1)
        reach = np.minimum(reach, np.finfo(np.float64).max)
        typical.append(_median(reach[reach > 0]))
        largest = max(largest, reach.max())
    return Frame(shift, _scale(_median(np.array(typical)), largest))


def median_frame_of_csr(X):
    """The frame of a CSR matrix: not shifted, at the scale of its typical value."""
    values = np.abs(X.data[X.data != 0]).astype(np.float64)
    return Frame(np.zeros(X.shape[1]), _scale(_median(values), values.max(initial=0)))


def _median(values):
    """The lower median along the first axis, one of the values; 0 of none."""
    if not len(values):
        return 0.0
    middle = (len(values) - 1) // 2
    return np.partition(values, middle, axis=0)[middle]


def _quartiles(block):
    """Values of each feature near its quartiles, (3, n_features), float64."""
    places = [(len(block) - 1) * quarter // 4 for quarter in (1, 2, 3)]
    return np.partition(block, places, axis=0)[places].astype(np.float64)


def _scale(typical, largest):
    """The power of two that brings the typical length into [1/2, 1) if it may."""
    if largest == 0:
        return 1.0
    exponent = _LARGEST_EXPONENT - np.frexp(largest)[1]
    if typical > 0:
        exponent = min(exponent, -np.frexp(typical)[1])
    return float(np.ldexp(1.0, int(np.clip(exponent, -1000, 1000))))
