"""The command line, through `main` and, where the process counts, as one."""

import errno
import io
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

import sklearn_kmtrf
from sklearn_kmtrf import TransformerKMeans, __main__, _plot, _table
from sklearn_kmtrf.__main__ import main
from sklearn_kmtrf._table import InputError, read_table

# Two pairs of points: inertia 4 * 0.5 ** 2 = 1.
FOUR_POINTS = "x,y\n0,0\n10,0\n0,1\n10,1\n"

HEADER = "sepal length;sepal width;petal length;petal width"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current directory with points.csv in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "points.csv").write_text(FOUR_POINTS)
    return tmp_path


@pytest.fixture
def iris(folder):
    X = load_iris().data
    np.savetxt("iris.csv", X, fmt="%.1f", delimiter=";", header=HEADER, comments="")
    return X


def read_labels(path):
    header, *lines = path.read_text().splitlines()
    assert header == "label"
    return [int(line) for line in lines]


def assert_refused(capsys, argv, *fragments):
    """Status 2, one sentence on standard error, nothing on standard output."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("python -m sklearn_kmtrf")
    assert err.endswith(".\n") or err.endswith("--help.\n")
    for fragment in fragments:
        assert fragment in err


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "content, delimiter",
    [
        ("1,2.5\n-3e2,4\n", None),
        ("a,b\n1,2.5\n-3e2,4", None),
        ("\ufeffa,b\r\n1,2.5\r\n-3e2,4\r\n\r\n\r\n", None),
        ("\ufeff1,2.5\n-3e2,4\n", None),
        ("a;b\n1;2.5\n-3e2;4\n", None),
        ("a,b;c\n1;2.5\n-3e2;4\n", None),
        ("a\tb\n1\t2.5\n-3e2\t4\n", None),
        ("1|2.5\n-3e2|4\n", "|"),
        ("1 2.5\n-3e2   4\n", " "),
        ('"a","b"\n"1","2.5"\n"-3e2","4"\n', None),
        ('a,"two\nlines"\n1,2.5\n-3e2,4\n', None),
        ('a, "b"\n 1, "2.5"\n-3e2 ,\xa04\n', None),
        ('"one, two",b\n1,2.5\n-3e2,4\n', None),
        ("1,2.5\r-3e2,4\r", None),
    ],
)
def test_read_table__formats(folder, content, delimiter):
    (folder / "t.csv").write_bytes(content.encode())
    table = read_table("t.csv", delimiter)
    assert table.values.tolist() == [[1.0, 2.5], [-300.0, 4.0]]
    assert table.values.dtype == np.float64


@pytest.mark.parametrize(
    "content, names, values",
    [
        # A first line of numbers is data, even if they count.
        ("0,1\n1,2\n", None, [[0, 1], [1, 2]]),
        ("0,n\n1,2\n", ["0", "n"], [[1, 2]]),
        (",n\n1,2\n", ["", "n"], [[1, 2]]),
        ("5\n7\n", None, [[5], [7]]),
        ("v\n7\n", ["v"], [[7]]),
        ("7", None, [[7]]),
    ],
)
def test_read_table__header(folder, content, names, values):
    (folder / "t.csv").write_text(content)
    table = read_table("t.csv")
    assert table.names == names
    assert table.values.tolist() == values


def test_read_table__every_bit_in_blocks_of_any_size(folder, monkeypatch):
    values = np.random.RandomState(0).standard_normal((211, 3))
    values *= 10.0 ** np.arange(-150, 150, 100)
    lines = [",".join(map(repr, row)) for row in values.tolist()]
    (folder / "t.csv").write_text("\n".join(["a,b,c", *lines, "", "", ""]))
    for size in [2**22, 200, 1]:
        monkeypatch.setattr(_table, "HEAD_SIZE", size)
        monkeypatch.setattr(_table, "BLOCK_SIZE", size)
        table = read_table("t.csv")
        assert np.array_equal(table.values, values)
        assert table.names == ["a", "b", "c"]


def test_read_table__fault_in_a_late_block(folder, monkeypatch):
    monkeypatch.setattr(_table, "HEAD_SIZE", 20)
    monkeypatch.setattr(_table, "BLOCK_SIZE", 20)
    for fault, message in [
        ("8,x\n", r"t\.csv, line 103, column 2 \('b'\): 'x' is not a number\."),
        ("8\n", r"t\.csv, line 103 has 1 cell where line 1 has 2\."),
        ("8,8,8\n", r"t\.csv, line 103 has 3 cells where line 1 has 2\."),
        ("\n", r"t\.csv, line 103 is empty\."),
        ("\n" * 50, r"t\.csv, line 103 is empty\."),
    ]:
        (folder / "t.csv").write_text("a,b\n" + "1,2\n" * 101 + fault + "1,2\n" * 99)
        with pytest.raises(InputError, match=message):
            read_table("t.csv")


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "t.csv is empty."),
        ("\n \n", "t.csv is empty."),
        ("\ufeff", "t.csv is empty."),
        ("x,y\n", "t.csv has a header but no rows below it."),
        ("\n1,2\n", "t.csv, line 1 is empty."),
        ("x,y\n1,2\n\n3,4\n", "t.csv, line 3 is empty."),
        ("1,2\n3,a b\n", "t.csv, line 2, column 2: 'a b' is not a number."),
        ("1,2\n3,1_000\n", "t.csv, line 2, column 2: '1_000' is not a number."),
        ("1,2\n3,\u0663\n", "line 2, column 2: '\u0663' is not a number."),
        ("1,2\n3,0x1\n", "t.csv, line 2, column 2: '0x1' is not a number."),
        ("x,y\n1,\n", "t.csv, line 2, column 2 ('y'): the cell is empty."),
        ("x, \n1,z\n", "t.csv, line 2, column 2: 'z' is not a number."),
        ("x,y\nNA,1\n", "line 2, column 1 ('x'): 'NA' stands for a missing number."),
        # What is missing in the first line makes no header of it.
        ("1,,3\n4,5,6\n", "t.csv, line 1, column 2: the cell is empty."),
        ("1,NA\n4,5\n", "t.csv, line 1, column 2: 'NA' stands for a missing number."),
        ("x,y\n1,nan\n", "line 2, column 2 ('y'): 'nan' is not a finite number."),
        ("1,nan\n1,2\n", "t.csv, line 1, column 2: 'nan' is not a finite number."),
        ("1,-inf\n", "t.csv, line 1, column 2: '-inf' is not a finite number."),
        ("1,1e999\n", "t.csv, line 1, column 2: '1e999' is not a finite number."),
        ("x\ty\n1\t2\n\t\n", "t.csv, line 3, column 1 ('x'): the cell is empty."),
        ("x,y\n1,2\n3\n", "t.csv, line 3 has 1 cell where line 1 has 2."),
        ("1,2\n3,4,5\n", "t.csv, line 2 has 3 cells where line 1 has 2."),
        # A constant number of cells that is not that of the header.
        ("x,y\n1,2,3\n4,5,6\n", "t.csv, line 2 has 3 cells where line 1 has 2."),
        ("x;y\n1,5;2\n", "line 2, column 1 ('x'): '1,5' has a decimal comma"),
        ("1,5;2,5\n3,5;4,5\n", "t.csv, line 1, column 1: '1,5' has a decimal comma"),
        ("1,5\t2\n3,5\t4\n", "t.csv, line 1, column 1: '1,5' has a decimal comma"),
        ("x;y\n1.000,5;2\n", "'1.000,5' has a decimal comma"),
        ("x,y\n1,foo; bar\n", "t.csv, line 2, column 2 ('y'): 'foo; bar' is not"),
        ("1 2\n3 4\n", "'3 4' is not a number (cells are separated by ','; see --del"),
        ('x,y\n"1,2\n3,4\n', "t.csv, line 2: the quotes do not match"),
        ('"x,y\n1,2\n3,4\n', "t.csv, line 1: the quotes do not match"),
        ('x\n"' + "a" * 99 + '"\n', "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...' is"),
    ],
)
def test_fit__bad_file(folder, capsys, content, message):
    (folder / "t.csv").write_bytes(content.encode())
    before = sorted(os.listdir())
    argv = ["fit", "t.csv", "-k", "1", "--out", "l.csv", "--plot", "p.png"]
    assert_refused(capsys, argv, message)
    assert sorted(os.listdir()) == before


def test_fit__not_utf8(folder, capsys):
    for content in ["1,é\n".encode("latin-1"), "1,2\n".encode("utf-16")]:
        (folder / "t.csv").write_bytes(content)
        assert_refused(
            capsys, ["fit", "t.csv", "-k", "1"], "t.csv is not text in UTF-8"
        )


def test_fit__unreadable(folder, capsys):
    assert_refused(
        capsys,
        ["fit", "none.csv", "-k", "1"],
        "fit: error: Cannot read none.csv: No such file or directory.",
    )
    assert_refused(capsys, ["fit", ".", "-k", "1"], "Cannot read .: Is a directory.")


def test_fit__too_few_rows(folder, capsys):
    assert_refused(
        capsys,
        ["fit", "points.csv", "-k", "5", "--out", "l.csv"],
        "The number of rows of points.csv must be at least the number of clusters, 5. "
        "Got 4 instead.",
    )
    assert os.listdir() == ["points.csv"]


# ---------------------------------------------------------------------- fitting


def test_fit__summary_only(folder, capsys):
    assert main(["fit", "points.csv", "-k", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "points.csv, 4 x 2, with header" in out
    assert "TransformerKMeans, seed 0" in out
    assert re.search(r"^Inertia +1$", out, re.M)
    assert re.search(r"^Iterations +\d+$", out, re.M)
    assert re.findall(r"^ +(\d) +(\d+) +([\d.]+)%$", out, re.M) == [
        ("0", "2", "50.0"),
        ("1", "2", "50.0"),
    ]
    assert "not written" in out
    assert os.listdir() == ["points.csv"]


def test_fit__labels_of_the_estimator(iris, folder, capsys):
    out = folder / "labels.csv"
    argv = ["fit", "iris.csv", "-k", "4", "--out", "labels.csv"]
    X = StandardScaler().fit_transform(iris)
    for options, data, params in [
        ([], iris, {"random_state": 0}),
        (["--seed", "3", "--n-init", "2"], iris, {"random_state": 3, "n_init": 2}),
        (["--scale", "--estimator", "kmeans"], X, {"random_state": 0}),
    ]:
        assert main(argv + options) == 0
        model = TransformerKMeans(n_clusters=4, **params).fit(data)
        assert read_labels(out) == model.labels_.tolist()
        text = capsys.readouterr().out
        assert f"Inertia     {model.inertia_:.10g}\n" in text
        assert f"Iterations  {model.n_iter_}\n" in text
        assert "Labels      labels.csv\n" in text
        assert ("Scaling" in text) == ("--scale" in options)
    assert sorted(os.listdir()) == ["iris.csv", "labels.csv", "points.csv"]


def test_fit__standard_input(folder, capsys, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(FOUR_POINTS.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["fit", "-", "-k", "2", "--out", "labels.csv"]) == 0
    labels = read_labels(folder / "labels.csv")
    assert labels[0] == labels[2] != labels[1] == labels[3]
    assert "standard input, 4 x 2" in capsys.readouterr().out
    assert not stdin.closed
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1,x\n2,y\n")))
    assert_refused(
        capsys,
        ["fit", "-", "-k", "1"],
        "standard input, line 2, column 2 ('x'): 'y' is not a number.",
    )


def test_fit__warning_in_one_line(folder, capsys):
    (folder / "t.csv").write_text("1,1\n" * 5)
    assert main(["fit", "t.csv", "-k", "2", "--out", "labels.csv"]) == 0
    out, err = capsys.readouterr()
    assert "fit: warning: Number of distinct clusters (1)" in err
    assert err.count("\n") == 1
    assert re.search(r"^ +1 +0 +0\.0%$", out, re.M)
    assert read_labels(folder / "labels.csv") == [0] * 5


def test_fit__estimator_refuses(folder, capsys, monkeypatch):
    def fit(self, X):
        raise ValueError("no\n  way.")

    monkeypatch.setattr(TransformerKMeans, "fit", fit)
    assert_refused(capsys, ["fit", "points.csv", "-k", "2"], "error: no way.")


def test_estimators__what_the_package_exports():
    # A new estimator must be offered, and only those that exist.
    exported = {
        name
        for name in sklearn_kmtrf.__all__
        if hasattr(getattr(sklearn_kmtrf, name), "fit_predict")
    }
    assert set(__main__.ESTIMATORS.values()) == exported


# ---------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    "options, message",
    [
        (["--out", "no/l.csv"], "The folder of --out no/l.csv does not exist."),
        (["--plot", "no/p.png"], "The folder of --plot no/p.png does not exist."),
        (["--out", "points.csv/l.csv"], "points.csv/l.csv does not exist."),
        (["--out", "."], "--out . is not a file."),
        (["--out", os.devnull], "is not a file."),
        (["--out", "./points.csv"], "would overwrite the file to read."),
        (["--plot", "p.png", "--out", "./p.png"], "must be different files."),
        (
            ["--plot", "p.jpg"],
            "must end in one of .pdf, .png, .svg. Got 'p.jpg' instead",
        ),
        (["--plot", "p"], "Got 'p' instead"),
    ],
)
def test_fit__bad_outputs_before_the_work(
    folder, capsys, monkeypatch, options, message
):
    monkeypatch.setattr(__main__, "read_table", None)
    assert_refused(capsys, ["fit", "points.csv", "-k", "2", *options], message)
    assert os.listdir() == ["points.csv"]
    assert (folder / "points.csv").read_text() == FOUR_POINTS


def test_fit__without_matplotlib(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    argv = ["fit", "points.csv", "-k", "2", "--out", "l.csv"]
    assert_refused(capsys, [*argv, "--plot", "p.png"], "pip install matplotlib.")
    assert os.listdir() == ["points.csv"]
    assert main(argv) == 0


def test_fit__all_outputs_or_none(folder, capsys, monkeypatch):
    argv = ["fit", "points.csv", "-k", "2", "--out", "l.csv", "--plot", "p.png"]
    (folder / "l.csv").write_text("old")

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "draw_clusters", full)
    assert_refused(capsys, argv, "Cannot write the output: No space left on device.")
    monkeypatch.setattr(__main__, "draw_clusters", interrupted)
    assert main(argv) == 130
    assert sorted(os.listdir()) == ["l.csv", "points.csv"]
    assert (folder / "l.csv").read_text() == "old"
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert main(argv) == 0
    assert sorted(os.listdir()) == ["l.csv", "p.png", "points.csv"]
    assert len(read_labels(folder / "l.csv")) == 4


def test_write_all__renaming_fails(folder, monkeypatch):
    (folder / "b").mkdir()
    writers = {name: lambda file: file.write(b"x") for name in ("a", "b")}
    with pytest.raises(InputError, match=r"^Cannot write .*: Is a directory\.$"):
        _table.write_all(writers)
    assert sorted(os.listdir()) == ["b", "points.csv"]


# --------------------------------------------------------------------- pictures


@pytest.mark.parametrize(
    "name, start",
    [("p.png", b"\x89PNG\r\n"), ("p.SVG", b"<?xml"), ("p.pdf", b"%PDF-")],
)
def test_fit__picture(iris, folder, capsys, name, start):
    from matplotlib._pylab_helpers import Gcf

    assert main(["fit", "iris.csv", "-k", "3", "--plot", name]) == 0
    assert (folder / name).read_bytes().startswith(start)
    assert f"Picture     {name}\n" in capsys.readouterr().out
    assert not Gcf.figs


def test_fit__picture_in_the_units_of_the_file(folder, monkeypatch):
    drawn = []

    def draw(X, labels, centers, **kwargs):
        drawn.append((X, centers, kwargs))
        return _plot.draw_clusters(X, labels, centers, **kwargs)

    monkeypatch.setattr(__main__, "draw_clusters", draw)
    points = [[0, 0], [0, 2], [10, 100], [10, 102]]
    np.savetxt("t.csv", points, delimiter=",", header="x,y", comments="")
    argv = ["fit", "t.csv", "-k", "2", "--scale", "--plot", "p.png"]
    assert main(argv) == 0
    ((X, centers, kwargs),) = drawn
    np.testing.assert_allclose(X, points, atol=1e-12)
    np.testing.assert_allclose(
        sorted(centers.tolist()), [[0, 1], [10, 101]], atol=1e-12
    )
    assert kwargs["names"] == ["x", "y"]


def test_draw_clusters__axes_legend_and_centers():
    labels = np.array([0, 1, 1, -1])
    X = np.array([[0.0, 0], [4, 1], [4, 3], [9, 9]])
    centers = np.array([[0.0, 0], [4, 2], [7, 7]])
    figure = _plot.draw_clusters(
        X, labels, centers, title="$ title $$", names=["a $", ""]
    )
    (axes,) = figure.axes
    assert axes.get_title() == "$ title $$"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("a $", "column 2")
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["0: 1", "1: 2", "2: 0", "none: 1", "center"]
    offsets = [np.asarray(part.get_offsets()).tolist() for part in axes.collections]
    samples = [X[[3]].tolist(), X[[0]].tolist(), X[[1, 2]].tolist()]
    assert offsets == samples + [[center] for center in centers.tolist()]
    figure.canvas.draw()


def test_draw_clusters__many_clusters_and_samples():
    styles = {_plot._style(label) for label in range(-1, 28)}
    assert len(styles) == 29
    random_state = np.random.RandomState(0)
    X = random_state.standard_normal((50_021, 2))
    labels = random_state.randint(61, size=len(X))
    figure = _plot.draw_clusters(X, labels % 60, X[:60], title="t")
    (axes,) = figure.axes
    assert "50,000 samples drawn at random" in axes.get_title()
    assert len(axes.get_legend().get_texts()) == 61
    shown = sum(len(part.get_offsets()) for part in axes.collections)
    assert shown == 50_000 + 60
    figure = _plot.draw_clusters(X[:500], labels[:500], X[:61], title="t")
    assert figure.axes[0].get_legend() is None


def test_project__principal_components_by_hand():
    # Variances 18/3 and 2/3: shares 0.9 and 0.1.
    X = np.array([[3.0, 0, 0], [-3, 0, 0], [0, 1, 0], [0, -1, 0]])
    for unit in [1.0, 2.0**1000, 2.0**-1000]:
        points, centers, names = _plot.project(X * unit, X[:2] * unit)
        np.testing.assert_allclose(np.abs(points / unit), np.abs(X[:, :2]), atol=1e-12)
        np.testing.assert_allclose(centers, points[:2])
        assert names == (
            "first principal component (90% of the variance)",
            "second principal component (10% of the variance)",
        )


def test_project__degenerate():
    points, centers, names = _plot.project(np.array([[5.0], [7]]), np.array([[6.0]]))
    assert points.tolist() == [[5, 1], [7, 2]]
    assert centers.tolist() == [[6, 1.5]]
    assert names == ("column 1", "row")
    for X in [np.ones((1, 3)), np.ones((4, 3)), np.zeros((4, 3))]:
        points, centers, names = _plot.project(X, X[:1])
        assert points.tolist() == [[0, 0]] * len(X)
        assert centers.tolist() == [[0, 0]]
        assert "(0% of the variance)" in names[0]


# ------------------------------------------------------------------------- demo


def test_demo(capsys):
    assert main(["demo", "--repeat", "1", "--seed", "5"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = lines[2:10]
    assert len({len(row) for row in rows}) == 1
    sizes = ["1797 x 64, k 10", "150 x 4, k 3", "178 x 13, k 3", "569 x 30, k 2"]
    assert [row[:15].rstrip() for row in rows[1::2]] == sizes
    assert [row.split()[-1].replace(".", "").isdigit() for row in rows] == [True] * 8
    model = KMeans(3, random_state=5).fit(load_iris().data)
    expected = [f"{model.inertia_:.2f}", str(model.n_iter_)]
    assert rows[2].split()[2:4] == rows[3].split()[6:8] == expected
    assert "wine and breast cancer have different units" in out.replace("\n", " ")
    assert "the label of KMeans on 4 of 4 data sets" in out.replace("\n", " ")


def test_reading__says_what_the_numbers_say():
    results = [
        SimpleNamespace(
            agreement=1.0, iterations=[3, 3], inertias=[8.0, 8.0], times=[2.0, 1.0]
        ),
        SimpleNamespace(
            agreement=0.9, iterations=[3, 4], inertias=[8.0, 7.0], times=[2.0, 3.0]
        ),
    ]
    assert __main__._reading(results) == (
        "TransformerKMeans gave every sample the label of KMeans on 1 of 2 data sets, "
        "with as many iterations on 1 of 2; the largest relative difference of inertia "
        "is 1.2e-01; its time was 0.50 to 1.50 of that of KMeans."
    )


# ------------------------------------------------------------------ the process


@pytest.mark.parametrize(
    "argv, example",
    [
        (["--help"], "example: python -m sklearn_kmtrf fit points.csv -k 3"),
        (["demo", "--help"], "example: python -m sklearn_kmtrf demo --repeat 11"),
        (["fit", "-h"], "example: python -m sklearn_kmtrf fit points.csv -k 3"),
    ],
)
def test_help(capsys, argv, example):
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: python -m sklearn_kmtrf")
    assert example in out
    assert err == ""


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sklearn_kmtrf {sklearn_kmtrf.__version__}\n"


def test_no_command(capsys):
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv, message",
    [
        (["cluster"], "invalid choice: 'cluster'"),
        (["fit", "points.csv"], "required: -k"),
        (["fit", "-k", "2"], "required: FILE"),
        (["fit", "points.csv", "-k", "0"], "must be an integer from 1 to"),
        (["fit", "points.csv", "-k", "two"], "Got 'two' instead"),
        (["fit", "points.csv", "-k", "2.5"], "Got '2.5' instead"),
        (["fit", "points.csv", "-k", "2", "--n-init", "-1"], "Got '-1' instead"),
        (["fit", "points.csv", "-k", "2", "--seed", "-1"], "must be an integer from 0"),
        (["fit", "points.csv", "-k", "2", "--seed", str(2**32)], "4294967295"),
        (["fit", "points.csv", "-k", "2", "--estimator", "x"], "invalid choice: 'x'"),
        (
            ["fit", "points.csv", "-k", "2", "--delimiter", "ab"],
            "must be one character",
        ),
        (["fit", "points.csv", "-k", "2", "--delimiter", "."], "Got '.' instead"),
        (["fit", "points.csv", "-k", "2", "--sca"], "--sca"),
        (["demo", "--repeat", "0"], "Got '0' instead"),
        (["demo", "extra"], "extra"),
    ],
)
def test_bad_arguments(folder, capsys, argv, message):
    assert_refused(capsys, argv, message)


@pytest.mark.parametrize(
    "error, status, message",
    [
        (KeyboardInterrupt(), 130, "Interrupted.\n"),
        (MemoryError(), 2, "fit: error: The data do not fit in memory.\n"),
    ],
)
def test_fit__stopped(folder, capsys, monkeypatch, error, status, message):
    def stopped(*args):
        raise error

    monkeypatch.setattr(__main__, "read_table", stopped)
    assert main(["fit", "points.csv", "-k", "2", "--out", "l.csv"]) == status
    assert capsys.readouterr().err.endswith(message)
    assert os.listdir() == ["points.csv"]


def test_fit__reader_of_the_output_goes_away(folder, capsys, monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        argv = ["fit", "points.csv", "-k", "2", "--out", "l.csv"]
        assert main(argv) == 141
    # Closing stdout has not failed; what was asked for is there.
    assert len(read_labels(folder / "l.csv")) == 4
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
def test_fit__output_cannot_be_written(folder, capsys, monkeypatch):
    with open("/dev/full", "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["fit", "points.csv", "-k", "2"]) == 2
    assert "Cannot write the output: " in capsys.readouterr().err


def test_process__help_without_matplotlib():
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "sklearn_kmtrf", "--help"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert process.returncode == 0
    assert process.stdout.startswith("usage: python -m sklearn_kmtrf")
    lines = process.stderr.splitlines()
    assert all(line.startswith("import time:") for line in lines)
    # pandas is no affair of ours: scikit-learn 1.9 imports it where it is installed.
    imported = {line.split("|")[-1].strip() for line in lines}
    assert "sklearn_kmtrf._table" in imported
    assert "matplotlib" not in imported
