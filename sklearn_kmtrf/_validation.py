"""Checks of what the user passes to fit, predict, transform and score."""

from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import _check_sample_weight, validate_data

# Largest arrays of attention weights that a circuit is asked to hold.
MOST_UPDATE_WEIGHTS = 2**26
MOST_SAMPLES_OF_FULL_ATTENTION = 2**12

# Weights between these two, and their sums, are far from overflow and underflow.
_SMALLEST, _LARGEST = 2.0**-300, 2.0**300
# Scales of data whose squares do not overflow or underflow.
_SMALLEST_SCALE, _LARGEST_SCALE = 2.0**-400, 2.0**400


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
        X = X.detach().cpu()
        # NumPy has no bfloat16.
        X = (X.double() if X.dtype == torch.bfloat16 else X).numpy()
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


def check_circuit(estimator, X):
    """Check that the circuit given as `weights` fits the estimator and the data.

    Parameters
    ----------
    estimator : estimator
        With a ClusteringCircuit as `weights`.

    X : ndarray or CSR matrix of shape (n_samples, n_features)

    Raises
    ------
    ValueError
        If it is of another algorithm, width or number of clusters, or would need more
        memory than is reasonable, or X is sparse.
    """
    circuit, name = estimator.weights, type(estimator).__name__
    n_samples, n_features = X.shape
    if circuit.config.algorithm not in estimator._algorithms:
        raise ValueError(
            f"The circuit given as weights of {name} must perform one of "
            f"{list(estimator._algorithms)}. Got {circuit.config.algorithm!r} instead."
        )
    for wanted, got, what in (
        (n_features, circuit.n_features, "n_features of the data"),
        (estimator.n_clusters, circuit.n_clusters, "n_clusters"),
    ):
        if got != wanted:
            raise ValueError(
                f"The circuit given as weights of {name} must be built for "
                f"{what} = {wanted}. Got a circuit for {got} instead."
            )
    if sp.issparse(X):
        raise ValueError(
            f"X must be dense when a circuit is given as weights of {name}. "
            "Got a sparse matrix instead; weights='constructed' takes it."
        )
    full = circuit.config.sample_reset.pattern == "full"
    if full and n_samples > MOST_SAMPLES_OF_FULL_ATTENTION:
        raise ValueError(
            "A circuit with full sample attention must have at most "
            f"{MOST_SAMPLES_OF_FULL_ATTENTION} samples. Got {n_samples} instead; "
            "sample_attention='diagonal' gives the same result."
        )
    if n_samples * estimator.n_clusters > MOST_UPDATE_WEIGHTS:
        raise ValueError(
            "A circuit given as weights must have at most "
            f"{MOST_UPDATE_WEIGHTS} pairs of samples and clusters. "
            f"Got {n_samples} x {estimator.n_clusters} instead; "
            "weights='constructed' runs the same algorithm at any size."
        )


def check_scale(estimator, scale):
    """Check that a circuit given as `weights` can square the data.

    Parameters
    ----------
    estimator : estimator
        Named in the error.

    scale : float
        Of the frame of the data.

    Raises
    ------
    ValueError
        If squares overflow or underflow.
    """
    if not _SMALLEST_SCALE < scale < _LARGEST_SCALE:
        raise ValueError(
            "X must have values whose squares are finite and not zero when a "
            f"circuit is given as weights of {type(estimator).__name__}. "
            "Got values near the ends of the floating-point range instead."
        )


@contextmanager
def unchanged_on_error(estimator):
    """Take back what the body set if it fails; callbacks are not its own."""

    def state():
        return {k: v for k, v in vars(estimator).items() if "callback" not in k}

    before = state()
    try:
        yield
    except BaseException:
        for name in state():
            delattr(estimator, name)
        vars(estimator).update(before)
        raise
