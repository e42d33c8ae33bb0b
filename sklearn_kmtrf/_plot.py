"""Pictures of clusterings."""

import os
import warnings
from importlib.util import find_spec

import numpy as np

from sklearn_kmtrf._table import InputError

FORMATS = (".pdf", ".png", ".svg")

# Okabe and Ito's colors, which color-blind people can tell apart, without yellow, which
# is faint on white. Each goes with each marker, so that 28 clusters differ.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
MARKERS = ("o", "^", "s", "D")
OUTSIDE_COLOR = "#999999"

# More would take long to draw and hide each other.
MOST_SAMPLES = 50_000

# More would not fit beside the axes.
MOST_IN_LEGEND = 60
LEGEND_ROWS = 22


def check_picture(path):
    """Refuse a picture that could not be drawn, before any work is done.

    Parameters
    ----------
    path : str
        Where it will be saved.

    Raises
    ------
    InputError
        If the format is unknown, or matplotlib is not installed.
    """
    if os.path.splitext(path)[1].lower() not in FORMATS:
        raise InputError(
            f"The name of a picture must end in one of {', '.join(FORMATS)}. "
            f"Got {path!r} instead."
        )
    if find_spec("matplotlib") is None:
        raise InputError(
            "A picture needs matplotlib, which is not installed: "
            "pip install matplotlib."
        )


def draw_clusters(X, labels, centers, *, title, names=None):
    """Draw samples by cluster, with the centers.

    Two features are drawn as they are; a single one against the row number; more are
    projected to their first two principal components.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)

    labels : ndarray of shape (n_samples,), int
        -1 is a sample outside all clusters.

    centers : ndarray of shape (n_clusters, n_features)

    title : str

    names : list of str, default=None
        Names of the features.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Not known to pyplot.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points, center_points, axis_names = project(X, centers, names)
    shown = np.arange(len(points))
    if len(points) > MOST_SAMPLES:
        random_state = np.random.RandomState(0)
        shown = np.sort(random_state.choice(len(points), MOST_SAMPLES, replace=False))
        title += f"\n({MOST_SAMPLES:,} samples drawn at random are shown)"

    figure = Figure(figsize=(8.5, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw_samples(axes, points[shown], labels[shown], len(centers))
    _draw_centers(axes, center_points)
    _draw_legend(axes, labels, len(centers))
    axes.set_title(title, parse_math=False)
    axes.set_xlabel(axis_names[0], parse_math=False)
    axes.set_ylabel(axis_names[1], parse_math=False)
    return figure


def save_picture(figure, file, path):
    """Save a picture in the format that its name asks for.

    Parameters
    ----------
    figure : matplotlib.figure.Figure

    file : binary file

    path : str
        Its name.
    """
    with warnings.catch_warnings():
        # For example of a header in a script that the font does not have.
        warnings.simplefilter("ignore")
        suffix = os.path.splitext(path)[1][1:].lower()
        figure.savefig(file, format=suffix, dpi=150)


def project(X, centers, names=None):
    """Map samples and centers to the plane of the picture.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)

    centers : ndarray of shape (n_clusters, n_features)

    names : list of str, default=None

    Returns
    -------
    points : ndarray of shape (n_samples, 2)

    center_points : ndarray of shape (n_clusters, 2)

    axis_names : tuple of 2 str
    """
    n_samples, n_features = X.shape
    if n_features <= 2:
        axis_names = [
            _shortened((names[i] if names else "") or f"column {i + 1}")
            for i in range(n_features)
        ]
        if n_features == 2:
            return X, centers, tuple(axis_names)
        rows = np.arange(1, n_samples + 1)
        middle = np.full(len(centers), (n_samples + 1) / 2)
        return (
            np.column_stack([X[:, 0], rows]),
            np.column_stack([centers[:, 0], middle]),
            (axis_names[0], "row"),
        )
    from sklearn.decomposition import PCA

    if n_samples == 1:
        points, center_points = np.zeros((1, 2)), np.zeros((len(centers), 2))
        shares = np.zeros(2)
    else:
        pca = PCA(n_components=2, random_state=0)
        # In units in which no square overflows.
        unit = np.ldexp(1.0, np.frexp(np.abs(X).max())[1] - 1)
        # Samples that all coincide have no variance to divide by.
        with np.errstate(invalid="ignore"):
            points = pca.fit_transform(X / unit) * unit
            shares = np.nan_to_num(pca.explained_variance_ratio_)
        center_points = pca.transform(centers / unit) * unit
    axis_names = tuple(
        f"{which} principal component ({share:.0%} of the variance)"
        for which, share in zip(("first", "second"), shares, strict=True)
    )
    return points, center_points, axis_names


def _style(label):
    """Color and marker of a cluster; no two of 28 are the same."""
    if label < 0:
        return OUTSIDE_COLOR, "x"
    n_colors, n_markers = len(COLORS), len(MARKERS)
    return COLORS[label % n_colors], MARKERS[label // n_colors % n_markers]


def _draw_samples(axes, points, labels, n_clusters):
    """Draw each cluster in its color and marker, a little transparent."""
    area = float(np.clip(20_000 / max(len(points), 1), 3, 30))
    for label in range(-1, n_clusters):
        members = points[labels == label]
        if len(members):
            color, marker = _style(label)
            axes.scatter(
                *members.T,
                s=area,
                c=color,
                marker=marker,
                alpha=0.75,
                linewidths=0.8 if marker == "x" else 0,
                rasterized=len(points) > 5_000,
            )


def _draw_centers(axes, center_points):
    """Draw the number of each cluster in a circle on its center."""
    if len(center_points) > MOST_IN_LEGEND:
        axes.scatter(*center_points.T, s=25, c="white", edgecolors="black", zorder=3)
        return
    # All circles first would hide no number; each with its number hides a neighbor's.
    for label, point in enumerate(center_points):
        axes.scatter(
            *point, s=190, c="white", edgecolors="black", linewidths=1.3, zorder=3
        )
        axes.annotate(
            str(label),
            point,
            ha="center",
            va="center_baseline",
            fontsize=8,
            fontweight="bold",
            zorder=4,
        )


def _draw_legend(axes, labels, n_clusters):
    """Cluster, number of samples; outside the axes, where it covers nothing."""
    from matplotlib.lines import Line2D

    if n_clusters > MOST_IN_LEGEND:
        return
    sizes = np.bincount(labels + 1, minlength=n_clusters + 1)
    handles = []
    for label in range(n_clusters):
        color, marker = _style(label)
        text = f"{label}: {sizes[label + 1]:,}"
        handles.append(Line2D([], [], ls="", marker=marker, color=color, label=text))
    if sizes[0]:
        text = f"none: {sizes[0]:,}"
        handles.append(
            Line2D([], [], ls="", marker="x", color=OUTSIDE_COLOR, label=text)
        )
    handles.append(
        Line2D([], [], ls="", marker="o", ms=9, mfc="w", mec="k", label="center")
    )
    axes.legend(
        handles=handles,
        title="cluster: samples",
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0.0,
        ncols=-(-len(handles) // LEGEND_ROWS),
        frameon=False,
    )


def _shortened(text):
    """Make the name of a column fit beside an axis."""
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."
