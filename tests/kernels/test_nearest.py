"""The certified assignment against long double, on data made to mislead it."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_kmtrf.kernels import _blocks, _nearest
from sklearn_kmtrf.kernels._frame import Frame
from sklearn_kmtrf.kernels._nearest import (
    Centers,
    center_distances,
    nearest_centers,
    pair_distances,
    slack_of,
    two_nearest,
)
from sklearn_kmtrf.kernels._samples import samples_of

CPU = torch.device("cpu")


def unframed(X):
    """Samples in the units they come in."""
    return samples_of(X, CPU, Frame(np.zeros(X.shape[1])))


def labels_of(samples, centers):
    """Labels of all samples."""
    prepared = Centers(torch.from_numpy(centers))
    return np.concatenate(
        [nearest_centers(b, prepared) for _, b in samples.blocks(len(centers))]
    )


def bounds_of(samples, centers):
    """Scores of the nearest and the second, blur and slack of all samples."""
    prepared = Centers(torch.from_numpy(centers))
    parts = []
    for _, block in samples.blocks(len(centers)):
        nearest = two_nearest(block, prepared)
        slack = slack_of(nearest, block, prepared)
        parts.append((nearest.distances, nearest.seconds, block.blur, slack))
    return [torch.cat(part).double().numpy() for part in zip(*parts, strict=True)]


def long_double(X, centers):
    """All squared distances in long double."""
    X, centers = X.astype(np.longdouble), centers.astype(np.longdouble)
    return np.stack([((X - c) ** 2).sum(1) for c in centers], axis=1)


def duplicates(rng):
    X = np.repeat(rng.normal(size=(41, 7)), 50, axis=0)
    return X, X[rng.integers(len(X), size=13)]


def lattice(rng):
    X = np.stack(np.meshgrid(*[np.arange(40.0)] * 2), -1).reshape(-1, 2)
    return X, X[rng.choice(len(X), 17, replace=False)]


def binary(rng):
    X = rng.integers(0, 2, size=(2003, 31)).astype(float)
    return X, X[:19].copy()


def one_column_scaled(rng):
    X = rng.normal(size=(2003, 5)) * [1, 1, 1e6, 1, 1]
    return X, X[:11] + rng.normal(size=(11, 5))


def shifted(rng):
    X = rng.normal(size=(2003, 5)) + 1e6
    return X, X[:11] + rng.normal(size=(11, 5))


def one_outlier(rng):
    X = rng.normal(size=(2003, 5))
    X[7] = 1e6
    return X, np.vstack([X[:10], X[7:8]])


def last_bits(rng):
    # Pairs of centers that differ in the 40th bit, and samples between them.
    centers = np.repeat(rng.uniform(1, 2, size=(7, 3)), 2, axis=0)
    centers[1::2] += 2.0**-40
    X = centers[rng.integers(14, size=2003)]
    return X + rng.integers(-4, 5, size=X.shape) * 2.0**-42, centers


def identical_centers(rng):
    X = rng.normal(size=(503, 3))
    return X, np.repeat(X[:3], 3, axis=0)


HARD = [
    duplicates,
    lattice,
    binary,
    one_column_scaled,
    shifted,
    one_outlier,
    last_bits,
    identical_centers,
]


@pytest.mark.parametrize("make", HARD, ids=lambda make: make.__name__)
@pytest.mark.parametrize("sparse", [False, True])
def test_labels_are_those_of_long_double(make, sparse):
    X, centers = make(np.random.default_rng(0))
    samples = unframed(sp.csr_array(X) if sparse else X)
    labels = labels_of(samples, centers)
    exact = long_double(X, centers)
    rows = np.arange(len(X))
    chosen = exact[rows, labels]
    best = exact.min(1)
    # What is left undecided is the rounding of the differences themselves.
    assert np.all(chosen - best <= 8 * X.shape[1] * 2.0**-53 * best)
    # An exact tie goes to the lower index.
    first = exact.argmin(1)
    exactly = chosen == best
    np.testing.assert_array_equal(labels[exactly], first[exactly])


def test_ties_of_sparse_rows_are_compared_where_centers_differ(monkeypatch):
    """Ties among wide one-hot rows must not make them dense."""
    widths = []

    def pairs(rows, *others):
        widths.append(rows.shape[1])
        return pair_distances(rows, *others)

    monkeypatch.setattr(_nearest, "pair_distances", pairs)
    X = sp.identity(1009, format="csr")
    # Every other row is equally near to all three centers.
    labels = labels_of(unframed(X), X[[5, 2, 7]].toarray())
    np.testing.assert_array_equal(np.flatnonzero(labels), [2, 7])
    assert widths
    assert set(widths) == {3}


@pytest.mark.parametrize("make", HARD, ids=lambda make: make.__name__)
@pytest.mark.parametrize("sparse", [False, True])
def test_scores_bracket_the_distances_of_long_double(make, sparse):
    X, centers = make(np.random.default_rng(0))
    samples = unframed(sp.csr_array(X) if sparse else X)
    nearest, second, blur, slack = bounds_of(samples, centers)
    exact = np.sort(long_double(X, centers), axis=1)
    # Relative errors of the score: packing of a few bits, and 4 h.
    relative = 1e-14 if sparse else 5e-5
    for score, distance in zip((nearest, second), exact.T, strict=False):
        assert np.all(distance <= score * (1 + relative))
        assert np.all(score <= distance * (1 + relative) + blur)
    gap = np.sqrt(exact[:, 1]) - np.sqrt(exact[:, 0])
    assert np.all(slack <= gap)


def test_most_of_the_slack_is_known():
    X = np.random.default_rng(0).normal(size=(2003, 5))
    slack = bounds_of(unframed(X), X[:11])[3]
    exact = np.sqrt(np.sort(long_double(X, X[:11]), axis=1))
    gap = exact[:, 1] - exact[:, 0]
    assert np.mean(slack > 0.9 * gap) > 0.9


@pytest.mark.parametrize("make", HARD, ids=lambda make: make.__name__)
def test_distances_are_right_to_ten_digits(make):
    X, centers = make(np.random.default_rng(0))
    prepared = Centers(torch.from_numpy(centers))
    got = torch.cat(
        [center_distances(b, prepared) for _, b in unframed(X).blocks(len(centers))]
    ).numpy()
    exact = np.sqrt(long_double(X, centers)).astype(float)
    np.testing.assert_allclose(got, exact, rtol=1e-10)
    np.testing.assert_array_equal(got.argmin(1), labels_of(unframed(X), centers))


def test_one_center_has_no_second():
    X = np.random.default_rng(0).normal(size=(11, 3))
    assert (labels_of(unframed(X), X[:1]) == 0).all()
    _, second, _, slack = bounds_of(unframed(X), X[:1])
    assert np.isinf(second).all() and np.isinf(slack).all()


@pytest.mark.parametrize("elements", [2**8, 2**11, 2**14])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_block_size_does_not_matter(elements, sparse, monkeypatch):
    for make in (binary, last_bits, duplicates):
        X, centers = make(np.random.default_rng(1))
        X = sp.csr_array(X) if sparse else X
        whole = labels_of(unframed(X), centers)
        with monkeypatch.context() as patch:
            patch.setattr(_blocks, "BLOCK_ELEMENTS", elements)
            patch.setattr(_blocks, "_FEWEST_ROWS", 1)
            assert len(list(unframed(X).blocks(len(centers)))) > 1
            np.testing.assert_array_equal(labels_of(unframed(X), centers), whole)


def test_sparse_rows_in_a_shifted_frame_are_those_of_dense_ones():
    rng = np.random.default_rng(2)
    X = np.maximum(rng.normal(size=(503, 11)), 0)
    frame = Frame(np.full(11, 37.5), 2.0)
    centers = rng.normal(size=(7, 11)) - 74.0
    dense, sparse = (samples_of(data, CPU, frame) for data in (X, sp.csr_array(X)))
    np.testing.assert_array_equal(labels_of(dense, centers), labels_of(sparse, centers))
    framed = (X - 37.5) * 2.0
    np.testing.assert_array_equal(
        labels_of(sparse, centers), long_double(framed, centers).argmin(1)
    )


@pytest.mark.parametrize("n_features", [1, 5, 64, 1000, 40_009])
def test_the_sum_of_a_pair_does_not_see_the_other_pairs(n_features):
    rng = np.random.default_rng(3)
    rows = torch.from_numpy(rng.normal(size=(5, n_features)))
    centers = torch.from_numpy(rng.normal(size=(3, n_features)))
    row, column = torch.tensor([0, 1, 2, 3, 4, 4]), torch.tensor([0, 1, 2, 0, 1, 2])
    together = pair_distances(rows, centers, row, column)
    alone = [
        pair_distances(rows, centers, row[i : i + 1], column[i : i + 1])
        for i in range(len(row))
    ]
    assert torch.equal(together, torch.cat(alone))
