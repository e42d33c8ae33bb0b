"""Checks of what the user passes to fit, predict, transform and score."""

from contextlib import contextmanager

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight, validate_data

# Weights between these two, and their sums, are far from overflow and underflow.
_SMALLEST, _LARGEST = 2.0**-300, 2.0**300


def validate_samples(estimator, X, *, reset):
    """X as an array or CSR matrix of float32 or float64.

    Parameters
    ----------
    estimator : estimator
        Named in errors; remembers the features if `reset`.

    X : {array-like, sparse matrix, tensor} of shape (n_samples, n_features)

    reset : bool
        Whether this is a fit, which sets the features, or must match one.

    Returns
    -------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        Not a copy where none is needed.

    Raises
    ------
    ValueError
        If X is empty, of another rank, not finite, or of other features than in fit.
    """
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    return validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        accept_large_sparse=True,
        dtype=[np.float64, np.float32],
    )


def validate_weights(estimator, sample_weight, X):
    """Weights in units of a power of two, and that unit.

    Parameters
    ----------
    estimator : estimator
        Named in errors.

    sample_weight : array-like of shape (n_samples,), float or None

    X : ndarray or CSR matrix of shape (n_samples, n_features)

    Returns
    -------
    weights : ndarray of shape (n_samples,), float64, or None
        None if `sample_weight` is.

    unit : float
        1.0 unless sums of the weights would overflow or underflow.

    Raises
    ------
    ValueError
        If a weight is negative or not finite, or all are zero.
    """
    if sample_weight is None:
        return None, 1.0
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    wrong = ~((weights >= 0) & np.isfinite(weights))
    if wrong.any():
        raise ValueError(
            f"The sample weights of {type(estimator).__name__} must be finite and not "
            f"negative. Got {weights[wrong][0]} instead."
        )
    largest = weights.max()
    if largest == 0:
        raise ValueError("Sample weights must contain at least one non-zero number.")
    if _SMALLEST <= largest <= _LARGEST:
        return weights, 1.0
    exponent = int(np.clip(np.frexp(largest)[1], -1000, 1000))
    unit = float(np.ldexp(1.0, exponent))
    return weights / unit, unit


@contextmanager
def unchanged_on_error(estimator):
    """Take back the fitted attributes that were set if the body fails."""
    before = {k: v for k, v in vars(estimator).items() if k.endswith("_")}
    try:
        yield
    except BaseException:
        for name in [k for k in vars(estimator) if k.endswith("_")]:
            delattr(estimator, name)
        vars(estimator).update(before)
        raise
