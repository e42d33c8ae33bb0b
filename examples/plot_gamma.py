"""
=======================================================
From soft to hard attention: the gap to Lloyd's algorithm
=======================================================

The circuit of Lloyd's algorithm is exact when its soft-max is a hard-max. At a
finite inverse temperature gamma a sample gives a little of its weight to other
centers too: at most (k - 1) exp(-gamma Delta), with Delta the difference of its
squared distances to the second nearest and the nearest center. This example
repeats two experiments of "Transformer circuits can realize clustering
algorithms": one validation problem followed for ten iterations, and a small
sweep over the scale of the data.
"""

# %%
# The validation problem
# ----------------------
# Ten thousand samples of a mixture of five components in the unit square,
# gamma = 10,000, the first five samples as centers. NumPy does Lloyd's
# iterations beside the circuit.
import matplotlib.pyplot as plt
import numpy as np
import torch

from sklearn_kmtrf.circuits import iterate, lloyd_circuit


def mixture(n_samples, n_features, n_clusters, seed):
    """Samples of equal components, scaled to the unit cube."""
    rng = np.random.default_rng(seed)
    centers = rng.random((n_clusters, n_features))
    X = centers[rng.integers(0, n_clusters, n_samples)]
    X = X + 0.1 * rng.normal(size=X.shape)
    low, high = X.min(axis=0), X.max(axis=0)
    return (X - low) / (high - low)


def squared_distances(X, centers):
    """All squared distances, without an array of n x k x d."""
    return sum((X[:, [a]] - centers[:, a]) ** 2 for a in range(X.shape[1]))


def lloyd(X, centers):
    """One iteration; a center without samples keeps its place."""
    labels = squared_distances(X, centers).argmin(axis=1)
    new = centers.copy()
    for j in np.unique(labels):
        new[j] = X[labels == j].mean(axis=0)
    return new, labels


X = mixture(10_000, 2, 5, seed=1)
samples = torch.from_numpy(X)
gaps = {}
for scratch in ("one-hot", "binary"):
    circuit = lloyd_circuit(2, 5, scratch=scratch, gamma=1e4)
    centers, gaps[scratch] = X[:5], []
    for output in iterate(circuit, samples, samples[:5], 10):
        centers, labels = lloyd(X, centers)
        gaps[scratch].append(np.abs(output.centers.numpy() - centers).max())
    n_equal = int((output.labels.numpy() == labels).sum())
    rounded = output.codes.round()
    n_discrete = int(((output.codes - rounded).abs() < 1e-7).all(-1).sum())
    print(
        f"{scratch:8s} largest difference of a center {max(gaps[scratch]):.1e}; "
        f"{n_equal} of 10,000 labels equal, {n_discrete} discrete codes"
    )

# %%
# The sweep
# ---------
# What counts is gamma times the squared scale of the data, since scores are
# squared distances. For each the logarithm of the objective after ten
# iterations is compared to Lloyd's.
scales = np.array([1, 2, 5, 10, 20, 50, 100])
settings = [(2, 5, 100), (2, 20, 1000), (10, 5, 1000), (10, 20, 1000)]
curves = {}
for d, k, n in settings:
    X = mixture(n, d, k, seed=d + k)
    centers = X[:k]
    for _ in range(10):
        centers = lloyd(X, centers)[0]
    best = np.log(squared_distances(X, centers).min(axis=1).sum())
    curve = []
    for scale in scales:
        data = torch.from_numpy(scale * X)
        circuit = lloyd_circuit(d, k, gamma=1.0)
        last = iterate(circuit, data, data[:k], 10)[-1].centers.numpy() / scale
        curve.append(np.log(squared_distances(X, last).min(axis=1).sum()) - best)
    curves[f"d = {d}, k = {k}, n = {n:,}"] = curve

# %%
# The figure
# ----------
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for (scratch, gap), marker in zip(gaps.items(), "os", strict=True):
    left.semilogy(range(1, 11), gap, marker=marker, label=scratch)
left.set(xlabel="iteration", ylabel="largest difference of a center")
left.set_title("gamma = 10,000 in the unit square")
left.legend(title="scratch")
for (name, curve), marker in zip(curves.items(), "osv^", strict=True):
    right.semilogx(scales**2.0, curve, marker=marker, label=name)
right.axhline(0, color="black", linewidth=0.8)
right.set(xlabel="gamma times squared scale", ylabel="log objective minus Lloyd's")
right.set_title("soft attention becomes Lloyd's")
right.legend(fontsize="small")
plt.show()

# %%
# Left: both circuits follow Lloyd's algorithm; one-hot scratch is nearer, since a
# sample between two clusters is shared there, and almost lost to both with binary
# codes. Right: from gamma times squared scale of about a thousand the objective
# is Lloyd's (at times a little better, because soft steps take another path).
