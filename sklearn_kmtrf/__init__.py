"""Clustering estimators that are transformers, with the scikit-learn API.

The estimators are loaded when they are first used: importing the package alone loads
neither scikit-learn nor torch.
"""

from importlib import import_module

from sklearn_kmtrf._version import __version__

_ESTIMATORS = {
    "RobustTransformerKMeans": "sklearn_kmtrf._robust_kmeans",
    "SoftTransformerKMeans": "sklearn_kmtrf._soft_kmeans",
    "SphericalTransformerKMeans": "sklearn_kmtrf._spherical_kmeans",
    "TransformerKMeans": "sklearn_kmtrf._kmeans",
    "TrimmedTransformerKMeans": "sklearn_kmtrf._trimmed_kmeans",
}
_FUNCTIONS = {"trimming_curves": "sklearn_kmtrf._trimming_curves"}
_PUBLIC = {**_ESTIMATORS, **_FUNCTIONS}

__all__ = [*sorted(_PUBLIC), "__version__"]


def __getattr__(name):
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__
