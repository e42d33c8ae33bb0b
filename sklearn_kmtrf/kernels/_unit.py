"""Samples as directions: every row scaled to length one, for spherical k-means.

For unit rows and unit centers |x - c|^2 = 2 (1 - x.c), so the nearest center is the one
of the largest cosine, and kernels, bounds and seeding are those of k-means.

Each row is divided by its largest entry before its length is taken: no square
overflows or underflows. A row of zeros stays one.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch

from sklearn_kmtrf.kernels._blocks import rows_per_block
from sklearn_kmtrf.kernels._frame import Frame
from sklearn_kmtrf.kernels._nearest import pair_distances, row_sums
from sklearn_kmtrf.kernels._samples import samples_of

# Between these a row is divided by its length at once.
_SHORTEST, _LONGEST = 2.0**-960, 2.0**960
# Directions closer than this differ by the rounding of their lengths.
_SAME = 32 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class UnitFrame(Frame):
    """The map ``x -> x / |x|``: what is shifted and scaled is each row by itself."""

    is_shift = False

    def enter(self, values):
        """Rows of the user as directions, a new float64 array."""
        values = np.array(values, dtype=np.float64, order="C")
        return unit_rows_(torch.from_numpy(values)).numpy()

    def leave(self, values):
        """Directions are what they are in the units of the user."""
        return np.asarray(values, dtype=np.float64)

    def leave_squared(self, values):
        """Squared distances of unit vectors as what the cosine lacks to 1."""
        return np.asarray(values, dtype=np.float64) / 2


def unit_rows_(rows):
    """Scale rows (m, d), float64, to length one in place; zero rows stay zero.

    As `circuits.unit_rows`, but the answer for a row depends on nothing but that row.
    """
    largest = rows.abs().amax(1, keepdim=True)
    empty = largest == 0
    rows /= largest.masked_fill_(empty, 1)
    lengths = row_sums(rows.square()).sqrt_()[:, None]
    rows /= lengths.masked_fill_(empty, 1)
    return rows


def unit_csr(X):
    """A CSR matrix with rows of length one, float64; it shares the indices of X."""
    values = np.empty(X.nnz)
    step = rows_per_block(X.nnz // max(1, X.shape[0]))
    for start in range(0, X.shape[0], step):
        indptr = X.indptr[start : start + step + 1]
        stored, counts = slice(indptr[0], indptr[-1]), np.diff(indptr)
        part = X.data[stored].astype(np.float64)
        for divisor in _divisors(part, indptr):
            part /= np.repeat(divisor, counts)
        values[stored] = part
    return type(X)((values, X.indices, X.indptr), shape=X.shape)


def _divisors(values, indptr):
    """Two numbers for each of some CSR rows that divide it to length one, (2, m)."""
    counts, out = np.diff(indptr), np.ones((2, len(indptr) - 1))
    filled = counts > 0
    if not filled.any():
        return out
    begins = indptr[:-1][filled] - indptr[0]
    largest = np.maximum.reduceat(np.abs(values), begins)
    largest[largest == 0] = 1
    values = values / np.repeat(largest, counts[filled])
    lengths = np.sqrt(np.add.reduceat(np.square(values), begins))
    lengths[lengths == 0] = 1
    at_once = (largest > _SHORTEST) & (largest < _LONGEST)
    # One division, for nearly all; the first divisor is then 1, which changes nothing.
    lengths[at_once] *= largest[at_once]
    out[0, filled] = np.where(at_once, 1, largest)
    out[1, filled] = lengths
    return out


def unit_samples_of(X, device, frame=None, *, keep=None):
    """Samples of an array, as directions.

    Parameters
    ----------
    X : ndarray or SciPy CSR matrix of shape (n_samples, n_features)
        float32 or float64, finite.

    device : torch.device

    frame : UnitFrame, default=None

    keep : bool, default=None
        Whether dense X may be kept as one float32 copy; see `samples_of`.

    Returns
    -------
    samples : DenseSamples or CSRSamples
    """
    frame = frame or UnitFrame(np.zeros(X.shape[1]))
    if sp.issparse(X):
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        X = unit_csr(X)
    return samples_of(X, device, frame, keep=keep)


def merge_coinciding(centers):
    """Unit centers (k, d), those that differ by rounding made equal to the first.

    Rows of one direction and of different lengths are unit rows that differ in their
    last bits, and may have been told apart by those.
    """
    n_clusters, n_features = centers.shape
    step = torch.arange(n_features, dtype=centers.dtype, device=centers.device)
    # Directions that coincide do so on any line, and are neighbors in order.
    place, order = (centers @ torch.cos(step)).sort()  # (k,)
    apart = (place.diff() > _SAME * (1 + n_features)).nonzero()[:, 0] + 1
    bounds = [0, *apart.tolist(), n_clusters]
    merged = centers.clone()
    for start, stop in pairwise(bounds):
        left = order[start:stop].sort().values
        while len(left) > 1:
            member = torch.arange(len(left), device=left.device)
            distances = pair_distances(
                centers[left], centers[left[:1]], member, torch.zeros_like(member)
            )
            same = distances <= _SAME**2
            merged[left[same]] = centers[left[0]]
            left = left[~same]
    return merged


def rows_without_direction(samples):
    """Which samples are rows of zeros, a bool tensor (n_samples,)."""
    return samples.squared_norms == 0
