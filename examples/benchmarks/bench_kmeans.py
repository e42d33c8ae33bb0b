"""Time and inertia of TransformerKMeans over those of scikit-learn's KMeans.

Each row is one data set. The contestants fit it in turns in one process, with the same
seeds; a cell is the median over seeds of a ratio, ours over theirs, so what slows the
machine down for a while slows both. ``fit`` has its default parameters: validation and
seeding are included. scikit-learn-intelex takes part where it is installed; it seeds
differently, so its number of iterations differs too.

    python examples/benchmarks/bench_kmeans.py --threads 1
    python examples/benchmarks/bench_kmeans.py --threads 2 --rows digits,100k
"""

import argparse
import importlib.util
import time

import numpy as np
import scipy.sparse as sp
import sklearn
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris
from threadpoolctl import threadpool_limits

from sklearn_kmtrf import TransformerKMeans


def blobs(n_samples, n_features, n_components, *, spread=0.1):
    """A mixture of normal clusters in the unit cube."""
    rng = np.random.default_rng(0)
    centers = rng.random((n_components, n_features))
    X = rng.normal(size=(n_samples, n_features)) * spread
    X += centers[rng.integers(n_components, size=n_samples)]
    return X


def structureless(n_samples, n_features):
    """Uniform in the unit cube."""
    return np.random.default_rng(0).random((n_samples, n_features))


def sparse(n_samples, n_features, density):
    """CSR with values uniform in [0, 1]."""
    rng = np.random.default_rng(0)
    return sp.random_array(
        (n_samples, n_features), density=density, format="csr", rng=rng
    )


# name: (number of clusters, data)
PROBLEMS = {
    "iris, k 3": (3, lambda: load_iris().data),
    "digits, k 10": (10, lambda: load_digits().data),
    "5k x 10, k 8": (8, lambda: blobs(5_000, 10, 8)),
    "100k x 2, k 8": (8, lambda: blobs(100_000, 2, 8)),
    "100k x 32, k 10": (10, lambda: blobs(100_000, 32, 10)),
    "100k x 16, k 100": (100, lambda: blobs(100_000, 16, 100)),
    "20k x 784, k 10": (10, lambda: blobs(20_000, 784, 10)),
    "20k x 128, k 500": (500, lambda: blobs(20_000, 128, 500)),
    "1M x 8, k 20": (20, lambda: blobs(1_000_000, 8, 20)),
    "50k x 64 uniform, k 50": (50, lambda: structureless(50_000, 64)),
    "20k x 10k CSR, k 20": (20, lambda: sparse(20_000, 10_000, 0.005)),
}


def contestants():
    """Estimator classes by name, ours first."""
    found = {"ours": TransformerKMeans, "scikit-learn": KMeans}
    if importlib.util.find_spec("sklearnex"):
        from sklearnex.cluster import KMeans as IntelKMeans

        found["intelex"] = IntelKMeans
    return found


def measure(X, n_clusters, seeds, classes):
    """Seconds and inertia of each fit: two dicts of lists, one entry a seed."""
    seconds = {name: [] for name in classes}
    inertia = {name: [] for name in classes}
    for seed in seeds:
        for name, cls in classes.items():
            # Fast fits are repeated, so that the clock is not what is measured.
            best, begun = np.inf, time.perf_counter()
            while time.perf_counter() - begun < 0.2 or not np.isfinite(best):
                start = time.perf_counter()
                model = cls(n_clusters, random_state=seed).fit(X)
                best = min(best, time.perf_counter() - start)
            seconds[name].append(best)
            inertia[name].append(model.inertia_)
    return seconds, inertia


def median_ratio(values, other):
    """Median over seeds of ours over another's."""
    return float(np.median(np.divide(values["ours"], values[other])))


def run(names, dtypes, n_seeds):
    """Measure and print the table, a row as soon as it is known."""
    classes = contestants()
    others = [name for name in classes if name != "ours"]
    columns = [f"time / {o}" for o in others] + [f"inertia / {o}" for o in others]
    print(f"{'data':24} {'dtype':8} {'ours ms':>9} " + " ".join(columns))
    ratios = {o: [] for o in others}
    for name in names:
        n_clusters, make = PROBLEMS[name]
        for dtype in dtypes:
            X = make().astype(dtype)
            measure(X, n_clusters, [0], classes)  # warm caches and thread pools
            seconds, inertia = measure(X, n_clusters, range(n_seeds), classes)
            cells = [median_ratio(seconds, o) for o in others]
            for other, cell in zip(others, cells, strict=True):
                ratios[other].append(cell)
            cells += [median_ratio(inertia, o) for o in others]
            row = " ".join(
                f"{c:{len(t)}.4g}" for c, t in zip(cells, columns, strict=True)
            )
            ours = 1e3 * np.median(seconds["ours"])
            print(f"{name:24} {dtype:8} {ours:9.1f} {row}", flush=True)
    for other in others:
        mean = np.exp(np.mean(np.log(ratios[other])))
        print(f"geometric mean of time / {other}: {mean:.3f}")


def main():
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--rows", default="", help="parts of names, comma-separated")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    wanted = arguments.rows.split(",")
    names = [name for name in PROBLEMS if any(part in name for part in wanted)]
    print(f"scikit-learn {sklearn.__version__}, torch {torch.__version__}, ", end="")
    print(f"threads: {arguments.threads}")
    with threadpool_limits(arguments.threads):
        run(names, arguments.dtypes.split(","), arguments.seeds)


if __name__ == "__main__":
    main()
