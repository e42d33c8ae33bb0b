"""Clusters of contaminated data: trimmed and robust k-means next to KMeans.

Each data set gets outliers, scattered or in small tight groups, and what counts is the
adjusted Rand index of its own samples (labels of the nearest centers) against its
classes. "clean" is KMeans on the data before any outlier came. Rows are means over data
sets and draws.

    python examples/benchmarks/bench_contaminated.py
    python examples/benchmarks/bench_contaminated.py --draws 5 --plot contaminated.png
"""

import argparse
import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from sklearn_kmtrf import RobustTransformerKMeans, TrimmedTransformerKMeans

SHARES = (0.05, 0.1, 0.2)


def mixture(n_samples, n_features, n_clusters, seed):
    """Normal clusters at random places, and which sample is of which."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_clusters, n_features)) * 3
    labels = np.arange(n_samples) % n_clusters
    return centers[labels] + rng.normal(size=(n_samples, n_features)), labels


def data_sets():
    """Name, samples and classes of each data set."""
    for name, load in (("wine", load_wine), ("iris", load_iris)):
        X, y = load(return_X_y=True)
        yield name, StandardScaler().fit_transform(X), y
    X, y = load_digits(return_X_y=True)
    yield "digits", X / 4, y
    yield "mixture, d 4 k 5", *mixture(1000, 4, 5, 0)
    yield "mixture, d 8 k 8", *mixture(2000, 8, 8, 1)


def scattered(X, y, n_outliers, rng):
    """Uniform in three times the box of the data."""
    low, high = X.min(0), X.max(0)
    middle, reach = (low + high) / 2, 1.5 * (high - low)
    return rng.uniform(middle - reach, middle + reach, size=(n_outliers, X.shape[1]))


def groups(X, y, n_outliers, rng):
    """Tight groups far away, each lighter than a quarter of the lightest cluster."""
    most = max(1, int(np.bincount(y).min() / 4) - 1)
    n_groups = -(-n_outliers // most)
    directions = rng.normal(size=(n_groups, X.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    reach = np.linalg.norm(X - X.mean(0), axis=1).max()
    places = X.mean(0) + directions * reach * rng.uniform(2, 4, size=(n_groups, 1))
    noise = rng.normal(size=(n_outliers, X.shape[1])) * X.std() * 0.05
    return places[np.arange(n_outliers) % n_groups] + noise


def contestants(n_clusters, share, seed):
    """Estimators by name, in the order of the columns."""
    return {
        "KMeans": KMeans(n_clusters, n_init=10, random_state=seed),
        "trimmed, true share": TrimmedTransformerKMeans(
            n_clusters, trim_fraction=share / (1 + share), random_state=seed
        ),
        "trimmed .25": TrimmedTransformerKMeans(
            n_clusters, trim_fraction=0.25, random_state=seed
        ),
        "robust": RobustTransformerKMeans(n_clusters, random_state=seed),
    }


def agreement(model, X, y, outliers):
    """Adjusted Rand index of the clean samples, by nearest center."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.vstack([X, outliers]))
    return adjusted_rand_score(y, model.transform(X).argmin(1))


def measure(n_draws):
    """Mean index for each kind and share: {(kind, share): {name: index}}."""
    means = {}
    for kind in (scattered, groups):
        for share in SHARES:
            found = {}
            for _, X, y in data_sets():
                n_clusters = len(np.unique(y))
                for seed in range(n_draws):
                    rng = np.random.default_rng(seed)
                    outliers = kind(X, y, round(share * len(X)), rng)
                    clean = KMeans(n_clusters, n_init=10, random_state=seed)
                    found.setdefault("clean", []).append(agreement(clean, X, y, X[:0]))
                    models = contestants(n_clusters, share, seed)
                    for name, model in models.items():
                        index = agreement(model, X, y, outliers)
                        found.setdefault(name, []).append(index)
            means[kind.__name__, share] = {n: np.mean(v) for n, v in found.items()}
            yield kind.__name__, share, means[kind.__name__, share]


def plot(rows, path):
    """Draw the table."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for ax, kind in zip(axes, ("scattered", "groups"), strict=True):
        own = [(share, row) for name, share, row in rows if name == kind]
        for name in own[0][1]:
            style = "k--" if name == "clean" else "o-"
            ax.plot([s for s, _ in own], [r[name] for _, r in own], style, label=name)
        ax.set(title=f"{kind} outliers", xlabel="outliers per sample")
    axes[0].set_ylabel("adjusted Rand index")
    axes[1].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main():
    """Parse the command line, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--plot", help="write the picture to this file")
    arguments = parser.parse_args()
    rows = []
    for kind, share, row in measure(arguments.draws):
        if not rows:
            print(f"{'outliers':18}" + "".join(f"{name:>21}" for name in row))
        rows.append((kind, share, row))
        cells = "".join(f"{value:21.3f}" for value in row.values())
        print(f"{kind:10}{share:8.0%}{cells}", flush=True)
    if arguments.plot:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
