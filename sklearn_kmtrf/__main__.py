"""Command line: ``python -m sklearn_kmtrf``."""

import argparse
import contextlib
import os
import sys
import textwrap
import time
import warnings
from statistics import median
from types import SimpleNamespace

import numpy as np

import sklearn_kmtrf
from sklearn_kmtrf._plot import check_picture, draw_clusters, save_picture
from sklearn_kmtrf._table import InputError, read_table, write_all, write_labels

PROGRAM = "python -m sklearn_kmtrf"

# What --estimator accepts: short name -> public class.
ESTIMATORS = {
    "kmeans": "TransformerKMeans",
    "robust": "RobustTransformerKMeans",
    "soft": "SoftTransformerKMeans",
    "spherical": "SphericalTransformerKMeans",
    "trimmed": "TrimmedTransformerKMeans",
}

DELIMITER_NAMES = {"comma": ",", "semicolon": ";", "space": " ", "tab": "\t"}

# Data sets of the demo: name, loader in sklearn.datasets, number of clusters, whether
# its features have different units.
DEMO_DATA = (
    ("digits", "load_digits", 10, False),
    ("iris", "load_iris", 3, False),
    ("wine", "load_wine", 3, True),
    ("breast cancer", "load_breast_cancer", 2, True),
)


def main(argv=None):
    """Run the command line.

    Parameters
    ----------
    argv : list of str, default=None
        Arguments; by default those of the process.

    Returns
    -------
    status : int
        0 when all went well, 2 for bad input, 130 when interrupted, 141 when the
        reader of the output went away. Messages go to standard error.
    """
    program = PROGRAM
    # File names and headers may hold what the terminal cannot show.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            options = _make_parser().parse_args(argv)
            program = f"{PROGRAM} {options.command}"
            options.run(options)
            status = 0
        except SystemExit as stop:
            status = stop.code
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except InputError as error:
        return _refuse(program, error)
    except MemoryError:
        return _refuse(program, "The data do not fit in memory.")
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _discard_output()
        return 141
    except OSError as error:
        _discard_output()
        return _refuse(program, f"Cannot write the output: {error.strerror}.")


def _refuse(program, message):
    """Report bad input; returns the exit status."""
    print(f"{program}: error: {' '.join(str(message).split())}", file=sys.stderr)
    return 2


def _discard_output():
    """Spare Python the complaint that the rest of the output cannot be written."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


class Parser(argparse.ArgumentParser):
    """Parser whose errors are one sentence on one line."""

    def error(self, message):
        """Refuse the arguments."""
        message = message[:1].upper() + message[1:].rstrip(".")
        self.exit(2, f"{self.prog}: error: {message}. See {self.prog} --help.\n")


def _make_parser():
    """Make the parser of the command line."""
    parser = Parser(
        prog=PROGRAM,
        description="Clustering by transformers that perform k-means exactly.",
        epilog=f"example: {PROGRAM} fit points.csv -k 3 --out labels.csv",
        allow_abbrev=False,
    )
    version = f"sklearn_kmtrf {sklearn_kmtrf.__version__}"
    parser.add_argument("--version", action="version", version=version)

    def without_command(options):
        parser.print_help()
        parser.exit(2)

    parser.set_defaults(run=without_command, command="")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_demo(commands)
    _add_fit(commands)
    return parser


def _add_demo(commands):
    """Add the parser of the command demo."""
    demo = commands.add_parser(
        "demo",
        help="compare with scikit-learn's KMeans on bundled data sets",
        description="Cluster data sets that come with scikit-learn with its KMeans "
        "and with TransformerKMeans, from the same random state, and print both.",
        epilog=f"example: {PROGRAM} demo --repeat 11",
        allow_abbrev=False,
    )
    demo.set_defaults(run=_demo, command="demo")
    _add_seed(demo)
    text = "timed fits of each estimator; the median counts (default: 5)"
    demo.add_argument("--repeat", type=_positive, default=5, metavar="N", help=text)


def _add_fit(commands):
    """Add the parser of the command fit."""
    fit = commands.add_parser(
        "fit",
        help="cluster the rows of a file",
        description="Cluster the rows of a delimited text file in UTF-8. Every column "
        "must hold numbers. The first line is a header if some cell of it is text.",
        epilog=f"example: {PROGRAM} fit points.csv -k 3 --out labels.csv --plot p.png",
        allow_abbrev=False,
    )
    fit.set_defaults(run=_fit, command="fit")
    add = fit.add_argument
    add("file", metavar="FILE", help="file to read; - is standard input")
    text = "number of clusters"
    add("-k", "--n-clusters", type=_positive, required=True, metavar="K", help=text)
    text = f"one of {', '.join(ESTIMATORS)} (default: kmeans)"
    add("--estimator", choices=ESTIMATORS, default="kmeans", metavar="NAME", help=text)
    text = "file for the labels: the header 'label', then one line for each row"
    add("--out", metavar="LABELS", help=text)
    text = "file for a picture of the clusters: .png, .svg or .pdf"
    add("--plot", metavar="PICTURE", help=text)
    _add_seed(fit)
    text = "number of starts; the best counts (default: the estimator's)"
    add("--n-init", type=_positive, metavar="N", help=text)
    text = "first bring every column to mean 0 and standard deviation 1"
    add("--scale", action="store_true", help=text)
    text = (
        "character between cells, or comma, semicolon, space, tab "
        "(default: comma, semicolon or tab, whichever the file uses)"
    )
    add("--delimiter", type=_delimiter, metavar="CHAR", help=text)


def _add_seed(parser):
    """Add the option --seed."""
    text = "seed of the random numbers (default: 0)"
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help=text)


def _integer(text, least, most):
    """Turn an argument into an integer within a range."""
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise argparse.ArgumentTypeError(
            f"must be an integer from {least} to {most}. Got {text!r} instead"
        )
    return value


def _positive(text):
    """Turn an argument into a number of things."""
    return _integer(text, 1, 2**31 - 1)


def _seed(text):
    """Turn an argument into a seed of a RandomState."""
    return _integer(text, 0, 2**32 - 1)


def _delimiter(text):
    """Turn an argument into what separates cells."""
    character = DELIMITER_NAMES.get(text, text)
    if len(character) != 1 or character.isalnum() or character in "+-._\"'\r\n":
        raise argparse.ArgumentTypeError(
            "must be one character that is no part of a number, or "
            f"{', '.join(DELIMITER_NAMES)}. Got {text!r} instead"
        )
    return character


def _fit(options):
    """Cluster the rows of a file; writes nothing if that fails."""
    _check_outputs(options)
    source = "standard input" if options.file == "-" else options.file
    table = read_table(options.file, options.delimiter)
    n_samples, n_features = table.values.shape
    if n_samples < options.n_clusters:
        raise InputError(
            f"The number of rows of {source} must be at least the number of clusters, "
            f"{options.n_clusters}. Got {n_samples} instead."
        )
    model = getattr(sklearn_kmtrf, ESTIMATORS[options.estimator])(
        n_clusters=options.n_clusters, random_state=options.seed
    )
    if options.n_init is not None:
        model.set_params(n_init=options.n_init)
    X, scaler, notes = _fit_model(model, table.values, options.scale)
    writers = {}
    if options.out is not None:
        writers[options.out] = lambda file: write_labels(file, model.labels_)
    if options.plot is not None:
        writers[options.plot] = lambda file: _write_picture(
            file, options, model, X, scaler, table.names
        )
    write_all(writers)
    for note in notes:
        print(f"{PROGRAM} fit: warning: {note}", file=sys.stderr)
    header = "with" if table.names else "without"
    print(f"Data        {source}, {n_samples:,} x {n_features:,}, {header} header")
    _print_summary(options, model)


def _check_outputs(options):
    """Refuse outputs that could not be written, before any work is done."""
    targets = []
    for name in ("out", "plot"):
        path = getattr(options, name)
        if path is None:
            continue
        target = os.path.realpath(path)
        folder = os.path.dirname(target)
        if not os.path.isdir(folder):
            raise InputError(f"The folder of --{name} {path} does not exist.")
        if not os.access(folder, os.W_OK):
            raise InputError(f"The folder of --{name} {path} cannot be written to.")
        if os.path.exists(target) and not os.path.isfile(target):
            raise InputError(f"--{name} {path} is not a file.")
        if options.file != "-" and target == os.path.realpath(options.file):
            raise InputError(f"--{name} {path} would overwrite the file to read.")
        targets.append(target)
    if len(set(targets)) < len(targets):
        raise InputError("--out and --plot must be different files.")
    if options.plot is not None:
        check_picture(options.plot)


def _fit_model(model, X, scale):
    """Fit; returns X as it was fitted, its scaler or None, what was warned of."""
    from sklearn.preprocessing import StandardScaler

    scaler = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if scale:
                scaler = StandardScaler(copy=False)
                X = scaler.fit_transform(X)
            model.fit(X)
        except ValueError as error:
            raise InputError(error) from None
    return X, scaler, [" ".join(str(warning.message).split()) for warning in caught]


def _write_picture(file, options, model, X, scaler, names):
    """Draw the clusters and save the picture."""
    centers = model.cluster_centers_
    if scaler is not None and X.shape[1] <= 2:
        # What is drawn without projection is drawn in the units of the file.
        X, centers = (
            scaler.inverse_transform(rows, copy=True) for rows in (X, centers)
        )
    title = f"{type(model).__name__}: {len(X):,} samples, k = {len(centers):,}"
    if scaler is not None:
        title += ", columns scaled"
    figure = draw_clusters(X, model.labels_, centers, title=title, names=names)
    save_picture(figure, file, options.plot)


def _print_summary(options, model):
    """Print what a fit found and where it was written."""
    starts = f", starts {options.n_init}" if options.n_init else ""
    if options.scale:
        print("Scaling     every column to mean 0 and standard deviation 1")
    print(f"Estimator   {type(model).__name__}, seed {options.seed}{starts}")
    print(f"Inertia     {model.inertia_:.10g}")
    converged = "" if getattr(model, "converged_", True) else " (not converged)"
    print(f"Iterations  {model.n_iter_}{converged}")
    print("\nCluster      Samples    Share")
    # Some estimators leave samples out: label -1.
    none, *sizes = np.bincount(model.labels_ + 1, minlength=options.n_clusters + 1)
    for name, size in [*enumerate(sizes), *([("none", none)] if none else [])]:
        print(f"{name:>7} {size:>12,} {size / len(model.labels_):>8.1%}")
    print()
    print(f"Labels      {options.out or 'not written (--out LABELS writes them)'}")
    if options.plot is not None:
        print(f"Picture     {options.plot}")


def _demo(options):
    """Compare TransformerKMeans with KMeans on bundled data sets."""
    results = [_compare(*data, options) for data in DEMO_DATA]
    row = "{:<15} {:<17} {:>12} {:>10} {:>6} {:>6} {:>8}"
    title = ("data", "estimator", "inertia", "iterations", "ARI", "equal", "ms")
    print(row.format(*title))
    print("-" * 80)
    for result in results:
        # Rounded down: 100.0% is said of equal labels only.
        share = f"{int(1000 * result.agreement) / 10:.1f}%"
        for i, (name, equal) in enumerate([(result.name, ""), (result.size, share)]):
            numbers = (
                f"{result.inertias[i]:.2f}",
                result.iterations[i],
                f"{result.rand_indices[i]:.3f}",
                equal,
                f"{1000 * result.times[i]:.1f}",
            )
            print(row.format(name, ("KMeans", "TransformerKMeans")[i], *numbers))
    scaled = " and ".join(name for name, _, _, scale in DEMO_DATA if scale)
    legend = (
        "k: clusters; ARI: adjusted Rand index against the classes; equal: samples "
        f"with the same label from both; ms: median time of {options.repeat} fits. The "
        f"features of {scaled} have different units and were standardized."
    )
    for text in (legend, _reading(results)):
        print("", *textwrap.wrap(text, 80), sep="\n")


def _compare(name, loader, n_clusters, scale, options):
    """Fit both estimators in turns; pairs in the result hold KMeans first."""
    from sklearn import datasets
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score
    from sklearn.preprocessing import scale as standardize

    X, classes = getattr(datasets, loader)(return_X_y=True)
    X = standardize(X) if scale else X
    pair = [
        estimator(n_clusters=n_clusters, random_state=options.seed)
        for estimator in (KMeans, sklearn_kmtrf.TransformerKMeans)
    ]
    times = ([], [])
    for _ in range(1 + options.repeat):
        for model, seconds in zip(pair, times, strict=True):
            begin = time.perf_counter()
            model.fit(X)
            seconds.append(time.perf_counter() - begin)
    return SimpleNamespace(
        name=name,
        size=f"{X.shape[0]} x {X.shape[1]}, k {n_clusters}",
        inertias=[model.inertia_ for model in pair],
        iterations=[model.n_iter_ for model in pair],
        rand_indices=[adjusted_rand_score(classes, model.labels_) for model in pair],
        agreement=(pair[0].labels_ == pair[1].labels_).mean(),
        # The first fit of each warms up.
        times=[median(seconds[1:]) for seconds in times],
    )


def _reading(results):
    """Say what the table of the demo shows."""
    labels = sum(result.agreement == 1 for result in results)
    iterations = sum(len(set(result.iterations)) == 1 for result in results)
    inertia = max(
        abs(ours / theirs - 1) for theirs, ours in (r.inertias for r in results)
    )
    ratios = [result.times[1] / result.times[0] for result in results]
    return (
        f"TransformerKMeans gave every sample the label of KMeans on {labels} of "
        f"{len(results)} data sets, with as many iterations on {iterations} of "
        f"{len(results)}; the largest relative difference of inertia is {inertia:.1e}; "
        f"its time was {min(ratios):.2f} to {max(ratios):.2f} of that of KMeans."
    )


if __name__ == "__main__":
    sys.exit(main())
