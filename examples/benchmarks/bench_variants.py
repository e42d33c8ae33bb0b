"""Tables of the variants: quality and time beside the programs that users have now.

Each estimator has one function in `TABLES`, which prints its tables. Contestants fit
the same data from the same seeds in turns in one process; a time is a median of ratios,
ours over theirs, so what slows the machine down for a while slows both.

    python examples/benchmarks/bench_variants.py
    python examples/benchmarks/bench_variants.py --only spherical,soft --seeds 3
"""

import argparse
import ast
import sysconfig
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from sklearn_kmtrf import SphericalTransformerKMeans


def timed(model, X):
    """The fitted model, and the seconds that the fit took."""
    start = time.perf_counter()
    model.fit(X)
    return model, time.perf_counter() - start


def print_row(cells, widths):
    """One line of a table: text to the left, numbers to the right."""
    text = (
        f"{c:{w}}" if isinstance(c, str) else f"{c:{w}.4f}"
        for c, w in zip(cells, widths, strict=True)
    )
    print(" ".join(text), flush=True)


def docstrings(n_most):
    """Docstrings of the installed packages, each once, in order of file."""
    found = {}
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*.py")):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
        for node in ast.walk(tree):
            text = isinstance(node, kinds) and ast.get_docstring(node)
            if text and len(text) > 40:
                found[text] = None
    texts = list(found)
    rng = np.random.default_rng(0)
    return [texts[i] for i in np.sort(rng.permutation(len(texts))[:n_most])]


def spherical(n_seeds):
    """Objective and time over those of KMeans on rows of length one."""
    text = TfidfVectorizer(max_features=20_000).fit_transform(docstrings(20_000))
    digits = load_digits().data
    density = text.nnz / np.prod(text.shape)
    print(f"tf-idf of docstrings: {text.shape}, density {density:.4f}")
    print(
        "objective: sum of 1 - cos over that of KMeans on rows of length one with its"
    )
    print(
        "centers normalized, from the same seeds: mean, sd, largest; time: median ratio"
    )
    widths = (22, 8, 10, 8, 8, 8, 9)
    print_row(
        ("data", "dtype", "objective", "sd", "largest", "time", "ours ms"), widths
    )
    for name, X, n_clusters, starts in (
        ("docstrings, k 20", text, 20, n_seeds),
        ("docstrings, k 50", text, 50, n_seeds),
        ("digits, k 10", digits, 10, 20),
        ("digits, k 50", digits, 50, 20),
    ):
        for dtype in (np.float64, np.float32):
            rows = normalize(X.astype(dtype))
            objectives, times, seconds = [], [], []
            for seed in range(starts):
                params = {"n_clusters": n_clusters, "random_state": seed}
                ours, own = timed(SphericalTransformerKMeans(**params), rows)
                theirs, other = timed(KMeans(**params), rows)
                cosines = rows @ normalize(theirs.cluster_centers_).T
                objectives.append(ours.inertia_ / float((1 - cosines.max(1)).sum()))
                times.append(own / other)
                seconds.append(own)
            cells = (np.mean(objectives), np.std(objectives), np.max(objectives))
            cells += (np.median(times), 1e3 * np.median(seconds))
            print_row((name, np.dtype(dtype).name, *map(float, cells)), widths)


TABLES = {"spherical": spherical}


def main():
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="names, comma-separated")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(TABLES)
    unknown = set(names) - set(TABLES)
    if unknown:
        parser.error(f"--only must name some of {list(TABLES)}. Got {unknown} instead")
    torch.set_num_threads(arguments.threads)
    print(f"scikit-learn {sklearn.__version__}, torch {torch.__version__}, ", end="")
    print(f"threads: {arguments.threads}")
    with threadpool_limits(arguments.threads):
        for name in names:
            print(f"\n== {name} ==")
            TABLES[name](arguments.seeds)


if __name__ == "__main__":
    main()
