"""Data with outliers, for the estimators that withstand them."""

import numpy as np


def contaminated(n=300, d=3, k=3, n_far=30, far=1e3, seed=0):
    """Tight clusters and far samples; the first n are clean, row i of cluster i % k."""
    rng = np.random.default_rng(seed)
    centers = 8 * np.eye(k, d)
    clean = centers[np.arange(n) % k] + rng.normal(size=(n, d)) * 0.5
    return np.vstack([clean, rng.uniform(-far, far, size=(n_far, d))]), centers


def matched(found, centers):
    """Centers in the order of the true ones nearest to them."""
    distances = np.linalg.norm(found[:, None] - centers, axis=2)
    order = distances.argmin(0)
    assert len(set(order)) == len(centers)
    return found[order]
