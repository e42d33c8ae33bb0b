"""Where the runs of a fit begin: the ``init`` and ``n_init`` parameters."""

import warnings

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import check_array

from sklearn_kmtrf._progress import FIT_STACKLEVEL


def number_of_runs(estimator, auto=None):
    """The number of starts that `init` and `n_init` ask for.

    Parameters
    ----------
    estimator : estimator
        With parameters `init` and `n_init`.

    auto : int, default=None
        What ``n_init="auto"`` is where no centers are given. None: 1 for k-means++,
        and 10 where starts are random.

    Returns
    -------
    n_runs : int
    """
    init, n_init = estimator.init, estimator.n_init
    given = not isinstance(init, str) and not callable(init)
    if n_init == "auto":
        if given or (auto is None and init == "k-means++"):
            return 1
        return auto or 10
    if given and n_init != 1:
        warnings.warn(
            "Explicit initial center position passed: performing only one init in "
            f"{type(estimator).__name__} instead of n_init={n_init}.",
            RuntimeWarning,
            stacklevel=FIT_STACKLEVEL + 2,
        )
        return 1
    return n_init


class Starts:
    """Draws the initial centers of one run after the other.

    Parameters
    ----------
    estimator : estimator
        With parameters `init` and `n_clusters`, `_seeds` and `_origin`.

    X : ndarray or CSR matrix of shape (n_samples, n_features)
        In the units of the user.

    samples : Samples
        The same in the frame.

    weights : ndarray of shape (n_samples,) or None

    random_state : numpy.random.RandomState

    Raises
    ------
    ValueError
        If an array `init` has the wrong shape, or too few samples have a weight.
    """

    def __init__(self, estimator, X, samples, weights, random_state):
        self.name, self._seeds = type(estimator).__name__, estimator._seeds
        self._origin = estimator._origin
        self.init, self.n_clusters = estimator.init, estimator.n_clusters
        self.X, self.samples, self.weights = X, samples, weights
        self.random_state = random_state
        self._centered = None
        if isinstance(self.init, str):
            self._next = {"k-means++": self._plusplus, "random": self._random}[
                self.init
            ]
        elif callable(self.init):
            self._next = self._called
        else:
            given = self._checked(self.init)
            self._next = lambda: samples.frame.enter(given)

    def next(self):
        """Initial centers of the next run in the frame, a tensor (k, d), float64."""
        centers = self._next()
        if not isinstance(centers, torch.Tensor):
            centers = torch.from_numpy(centers).to(self.samples.device)
        return centers

    def _plusplus(self):
        indices = self._seeds(self.samples, self.weights, self.random_state)
        return self.samples.rows(indices)

    def _random(self):
        n_samples = self.samples.n_samples
        share = np.ones(n_samples) if self.weights is None else self.weights
        n_positive = np.count_nonzero(share)
        if n_positive < self.n_clusters:
            raise ValueError(
                f"{self.name} with init='random' needs at least "
                f"n_clusters={self.n_clusters} samples of positive weight. "
                f"Got {n_positive} instead."
            )
        indices = self.random_state.choice(
            n_samples, size=self.n_clusters, replace=False, p=share / share.sum()
        )
        return self.samples.rows(indices)

    def _called(self):
        # As in scikit-learn, a callable sees dense data centered. What it returns may
        # be a view of them, and is copied.
        if self._centered is None:
            sparse = sp.issparse(self.X)
            self._shift = 0.0 if sparse else self._origin(self.X)
            self._centered = self.X if sparse else self.X - self._shift
        centers = self.init(
            self._centered, self.n_clusters, random_state=self.random_state
        )
        return self.samples.frame.enter(self._checked(centers) + self._shift)

    def _checked(self, centers):
        """Centers of the user as a new array (k, d), float64."""
        centers = check_array(
            centers, dtype=np.float64, copy=True, order="C", input_name="init"
        )
        for axis, (wanted, meaning) in enumerate(
            [
                (self.n_clusters, "number of clusters"),
                (self.samples.n_features, "number of features of the data"),
            ]
        ):
            if centers.shape[axis] != wanted:
                raise ValueError(
                    f"The shape of the initial centers {centers.shape} does not match "
                    f"the {meaning} {wanted}."
                )
        return centers
