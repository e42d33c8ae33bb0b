"""Clustering estimators that are transformers, with the scikit-learn API.

The estimators are loaded when they are first used: importing the package alone loads
neither scikit-learn nor torch.
"""

from importlib import import_module

from sklearn_kmtrf._version import __version__

_ESTIMATORS = {
    "SphericalTransformerKMeans": "sklearn_kmtrf._spherical_kmeans",
    "TransformerKMeans": "sklearn_kmtrf._kmeans",
}

__all__ = [*sorted(_ESTIMATORS), "__version__"]


def __getattr__(name):
    if name in _ESTIMATORS:
        return getattr(import_module(_ESTIMATORS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__
