"""TransformerKMeans keeps its promises: one section for each kind of fault."""

import os
import pickle
import re
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_kmtrf import TransformerKMeans
from sklearn_kmtrf.kernels import _small


def blobs(n=89, d=3, k=3, seed=0, spread=10.0):
    """Well separated normal clusters; row i belongs to cluster i % k."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, d)) * spread
    return centers[np.arange(n) % k] + rng.normal(size=(n, d))


def partition(labels):
    """Labels renamed in order of appearance, to compare partitions."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def inertia_by_hand(X, centers, labels, weights=None):
    X = X.toarray() if sp.issparse(X) else X
    squares = ((np.asarray(X, float) - np.asarray(centers, float)[labels]) ** 2).sum(1)
    return float(squares.sum() if weights is None else squares @ weights)


def agrees_with_itself(model, X, weights=None):
    """labels_ is predict, inertia_ is minus score, and transform has its minimum there.

    Returns the exact inertia of the published centers and labels.
    """
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    assert model.inertia_ == -model.score(X, sample_weight=weights)
    np.testing.assert_array_equal(model.transform(X).argmin(1), model.labels_)
    return inertia_by_hand(X, model.cluster_centers_, model.labels_, weights)


# Answers worked out by hand


def test_four_points_by_hand():
    # Means of {0, 1} and {4, 6}; squared distances 2 * 0.25 + 2 * 1. From the first
    # two points: {0}, {1, 4, 6} with means 0, 11/3; then 1 changes sides; then nothing.
    X = np.array([[0.0], [1.0], [4.0], [6.0]])
    model = TransformerKMeans(2, init=[[0.0], [1.0]], tol=0).fit(X)
    np.testing.assert_array_equal(model.labels_, [0, 0, 1, 1])
    np.testing.assert_allclose(model.cluster_centers_, [[0.5], [5.0]], rtol=1e-15)
    assert model.inertia_ == pytest.approx(2.5)
    assert model.n_iter_ == 3
    assert model.converged_
    # After iteration 1: 0 + (8/3)^2 + (1/3)^2 + (7/3)^2 = 114/9.
    np.testing.assert_allclose(model.objective_history_, [114 / 9, 2.5, 2.5])
    np.testing.assert_array_equal(model.initial_centers_, [[0.0], [1.0]])


def test_weights_by_hand():
    # Mean of 0 and 3 with weights 2 and 1 is 1; inertia 2 * 1 + 1 * 4.
    X = np.array([[0.0], [3.0]])
    model = TransformerKMeans(1).fit(X, sample_weight=[2.0, 1.0])
    assert model.cluster_centers_[0, 0] == 1.0
    assert model.inertia_ == 6.0
    assert model.score(X, sample_weight=[2.0, 1.0]) == -6.0
    assert model.score(X) == -5.0


def test_exact_ties_go_to_the_lower_index():
    # With 7 rows the mean is no short binary number; the tie must survive centering.
    X = np.array([[0.0], [1.0], [2.0], [2.0], [7.0], [9.0], [1.0]])
    model = TransformerKMeans(2, init=[[0.0], [2.0]], max_iter=1, tol=0)
    model.fit(X)
    # The rows at 1 went to center 0: means of {0, 1, 1} and {2, 2, 7, 9}.
    np.testing.assert_allclose(model.cluster_centers_, [[2 / 3], [5.0]])


# Bad input is refused in scikit-learn's words, and leaves no trace


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (dict(n_clusters=0), "n_clusters"),
        (dict(n_clusters=-1), "n_clusters"),
        (dict(n_clusters=3.0), "n_clusters"),
        (dict(n_clusters="3"), "n_clusters"),
        (dict(n_clusters=None), "n_clusters"),
        (dict(n_clusters=90), "n_samples=89 should be >= n_clusters=90"),
        (dict(init="kmeans++"), "init"),
        (dict(init=[[0.0] * 3] * 2), re.escape("(2, 3)") + ".*clusters 3"),
        (dict(init=[[0.0] * 2] * 3), re.escape("(3, 2)") + ".*features of the data 3"),
        (dict(init=[0.0, 1.0, 2.0]), "2D"),
        (dict(init=[[np.nan] * 3] * 3), "NaN"),
        (dict(init=lambda X, k, random_state: X[:2]), "does not match"),
        (dict(n_init=0), "n_init"),
        (dict(max_iter=0), "max_iter"),
        (dict(tol=-1.0), "tol"),
        (dict(tol=np.nan), "tol"),
        (dict(random_state=np.random.default_rng()), "random_state"),
        (dict(algorithm="full"), "algorithm"),
        (dict(weights="pretrained"), "weights.*'pretrained'"),
        (dict(weights=None), "weights"),
        (dict(device="gpu"), "device.*cpu"),
        (dict(device="cuda:99"), "device.*cpu"),
        (dict(device=3), "device"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_bad_parameters(params, message):
    model = TransformerKMeans(**{"n_clusters": 3, **params})
    before = model.get_params()
    with pytest.raises(ValueError, match=message):
        model.fit(blobs())
    assert all(model.get_params()[name] is value for name, value in before.items())
    with pytest.raises(NotFittedError):
        model.predict(blobs())


BAD_DATA = {
    "NaN": (np.where(np.eye(8, 3) > 0, np.nan, 1.0), "NaN"),
    "infinite": (np.where(np.eye(8, 3) > 0, -np.inf, 1.0), "infinity"),
    "1-D": (np.arange(6.0), "2D"),
    "3-D": (np.zeros((4, 2, 2)), "dim 3"),
    "no feature": (np.zeros((4, 0)), "0 feature"),
    "no sample": (np.zeros((0, 3)), "0 sample"),
    "complex": (np.ones((4, 2)) * 1j, "[Cc]omplex"),
    "text": (pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), "could not convert"),
    "missing": (pd.DataFrame({"a": pd.array([1, 2, None], dtype="Int64")}), "NA|NaN"),
}


@pytest.mark.parametrize("kind", BAD_DATA)
def test_bad_data(kind):
    X, message = BAD_DATA[kind]
    model = TransformerKMeans(2)
    with pytest.raises(ValueError, match=message):
        model.fit(X)
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.parametrize("method", ["predict", "transform", "score"])
def test_bad_data_after_fit(method):
    model = TransformerKMeans(3, random_state=0).fit(blobs())
    call = getattr(model, method)
    for X, message in [
        (BAD_DATA["NaN"][0], "NaN"),
        (np.zeros((0, 3)), "0 sample"),
        (np.zeros((4, 2)), "2 features, but TransformerKMeans is expecting 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            call(X)


def test_mixed_column_names():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], 0: [1.0, 2.0, 4.0]})
    with pytest.raises(TypeError, match="string"):
        TransformerKMeans(2).fit(frame)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(89), "at least one non-zero"),
        (0.0, "at least one non-zero"),
        (np.r_[np.ones(88), -1.0], "not negative. Got -1.0"),
        (-2.0, "not negative"),
        (np.r_[np.ones(88), np.nan], "NaN"),
        (float("nan"), "finite"),
        (np.ones((89, 1)), "1D"),
        (np.ones((89, 2)), "1D"),
        (np.ones(88), "shape"),
    ],
    ids=str,
)
def test_bad_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        TransformerKMeans(3).fit(blobs(), sample_weight=weights)
    model = TransformerKMeans(3, random_state=0).fit(blobs())
    with pytest.raises(ValueError, match=message):
        model.score(blobs(), sample_weight=weights)


def test_random_starts_need_samples_of_positive_weight():
    weights = np.r_[np.ones(2), np.zeros(87)]
    with pytest.raises(ValueError, match=r"n_clusters=3 samples.*Got 2"):
        TransformerKMeans(3, init="random").fit(blobs(), sample_weight=weights)


def test_failed_refit_keeps_the_earlier_fit():
    model = TransformerKMeans(3, random_state=0).fit(blobs())
    before = model.predict(blobs())
    with pytest.raises(ValueError, match="n_samples=2"):
        model.fit(np.zeros((2, 5)))
    assert model.n_features_in_ == 3
    np.testing.assert_array_equal(model.predict(blobs()), before)


def test_refit_that_fails_at_its_last_step_keeps_the_earlier_fit():
    X = blobs()
    model = TransformerKMeans(3, random_state=0).fit(X)
    before = pickle.dumps(vars(model))
    model.n_clusters = 5
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises(ConvergenceWarning):
            model.fit(np.repeat(np.eye(3), 10, axis=0) * 1e200)
    model.n_clusters = 3
    assert pickle.dumps(vars(model)) == before
    agrees_with_itself(model, X)


def test_interrupted_fit_leaves_the_estimator_unfitted():
    def init(X, n_clusters, random_state):
        raise KeyboardInterrupt

    model = TransformerKMeans(3, init=init)
    with pytest.raises(KeyboardInterrupt):
        model.fit(blobs())
    assert not [name for name in vars(model) if name.endswith("_")]


# Any way to hold the data gives the same answer


def stored(X, tmp_path):
    """X in every layout that NumPy offers."""
    wide = np.zeros((len(X), 2 * X.shape[1]))
    wide[:, ::2] = X
    read_only = X.copy()
    read_only.setflags(write=False)
    np.save(tmp_path / "X.npy", X)
    return {
        "Fortran": np.asfortranarray(X),
        "strided": wide[:, ::2],
        "reversed rows": X[::-1].copy()[::-1],
        "reversed columns": np.ascontiguousarray(X[:, ::-1])[:, ::-1],
        "read-only": read_only,
        "memory map": np.load(tmp_path / "X.npy", mmap_mode="r"),
        "list": X.tolist(),
        "frame": pd.DataFrame(X),
        "tensor": torch.from_numpy(X.copy()),
        "object": X.astype(object),
    }


def test_layout_never_matters(tmp_path):
    X = blobs(d=5)
    wanted = TransformerKMeans(4, random_state=0).fit(X)
    for name, data in stored(X, tmp_path).items():
        model = TransformerKMeans(4, random_state=0).fit(data)
        np.testing.assert_array_equal(model.labels_, wanted.labels_, name)
        np.testing.assert_allclose(
            model.cluster_centers_, wanted.cluster_centers_, rtol=1e-12, err_msg=name
        )
        np.testing.assert_array_equal(wanted.predict(data), wanted.labels_, name)
        np.testing.assert_allclose(wanted.transform(data), wanted.transform(X))


@pytest.mark.parametrize(
    "make",
    [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix],
    ids=lambda make: make.__name__,
)
def test_sparse_formats(make):
    D = np.maximum(blobs(d=7), 0)
    dense = TransformerKMeans(4, random_state=0).fit(D)
    model = TransformerKMeans(4, random_state=0).fit(make(D))
    np.testing.assert_array_equal(partition(model.labels_), partition(dense.labels_))
    assert model.inertia_ == pytest.approx(dense.inertia_)
    np.testing.assert_array_equal(dense.predict(make(D)), dense.labels_)
    np.testing.assert_array_equal(model.predict(D), model.labels_)
    distances = model.transform(make(D))
    assert isinstance(distances, np.ndarray)
    np.testing.assert_allclose(distances, model.transform(D), atol=1e-12)
    assert model.inertia_ == -model.score(make(D))
    with sklearn.config_context(array_api_dispatch=False):
        np.testing.assert_array_equal(model.predict(make(D)), model.labels_)


def test_sparse_with_wide_indices_and_duplicate_entries():
    D = np.maximum(blobs(d=7), 0)
    plain = sp.csr_array(D)
    wide = plain.copy()
    wide.indices, wide.indptr = (
        a.astype(np.int64) for a in (plain.indices, plain.indptr)
    )
    twice = sp.csr_array(
        (
            np.repeat(plain.data / 2, 2),
            np.repeat(plain.indices, 2),
            plain.indptr * 2,
        ),
        shape=plain.shape,
    )
    wanted = TransformerKMeans(4, random_state=0).fit(plain)
    for X in (wide, twice):
        before = X.copy()
        model = TransformerKMeans(4, random_state=0).fit(X)
        np.testing.assert_array_equal(model.labels_, wanted.labels_)
        assert model.inertia_ == pytest.approx(wanted.inertia_)
        np.testing.assert_array_equal(X.data, before.data)
        np.testing.assert_array_equal(model.predict(X), wanted.labels_)


def test_dtypes_kept_and_promoted():
    X = blobs()
    for dtype, wanted in [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.float16, np.float64),
        (np.int32, np.float64),
        (np.uint8, np.float64),
        (bool, np.float64),
    ]:
        data = (X > 1) if dtype is bool else np.abs(X).astype(dtype)
        model = TransformerKMeans(2, random_state=0).fit(data)
        assert model.cluster_centers_.dtype == wanted, dtype
        assert model.initial_centers_.dtype == wanted, dtype
        assert model.transform(np.abs(X).astype(wanted)).dtype == wanted, dtype
        assert model.labels_.dtype == np.int32
        assert isinstance(model.inertia_, float)


def test_float32_tensors_stay_float32():
    X = torch.from_numpy(blobs()).float().requires_grad_()
    model = TransformerKMeans(3, random_state=0).fit(X)
    assert model.cluster_centers_.dtype == np.float32


def test_fit_and_predict_in_different_precision():
    X = blobs()
    for first, second in [(np.float32, np.float64), (np.float64, np.float32)]:
        model = TransformerKMeans(3, random_state=0).fit(X.astype(first))
        np.testing.assert_array_equal(model.predict(X.astype(second)), model.labels_)
        assert model.transform(X.astype(second)).dtype == second


def test_nothing_of_the_user_is_written():
    X, weights, init = blobs(), np.full(89, 2.0), blobs()[:3]
    kept = [a.copy() for a in (X, weights, init)]
    model = TransformerKMeans(3, init=init, copy_x=False)
    model.fit(X, sample_weight=weights)
    model.predict(X), model.transform(X), model.score(X, sample_weight=weights)
    for now, before in zip((X, weights, init), kept, strict=True):
        np.testing.assert_array_equal(now, before)
    assert not np.shares_memory(model.cluster_centers_, init)
    assert not np.shares_memory(model.initial_centers_, init)
    assert model.init is init


def test_read_only_weights_and_models(tmp_path):
    X, weights = blobs(), np.ones(89)
    weights.setflags(write=False)
    model = TransformerKMeans(3, random_state=0).fit(X, sample_weight=weights)
    model.score(X, sample_weight=weights)
    joblib.dump(model, tmp_path / "model.joblib")
    mapped = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    for data in (X, sp.csr_array(X)):
        np.testing.assert_array_equal(mapped.predict(data), model.labels_)
        mapped.transform(data)


def test_tensors_of_a_type_that_numpy_lacks():
    X = torch.from_numpy(blobs()).to(torch.bfloat16)
    model = TransformerKMeans(3, random_state=0).fit(X)
    wanted = TransformerKMeans(3, random_state=0).fit(X.double().numpy())
    np.testing.assert_array_equal(model.cluster_centers_, wanted.cluster_centers_)


# Far from the origin, huge, tiny


def test_float32_far_from_the_origin():
    X = (blobs(d=2, seed=3, spread=6.0) + 1e6).astype(np.float32)
    model = TransformerKMeans(3, n_init=3, random_state=0).fit(X)
    exact = agrees_with_itself(model, X)
    assert model.inertia_ == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("offset", [1e6, -1e9, 1e12])
def test_shift_does_not_matter(offset):
    # Multiples of 1/64 survive the shift exactly.
    X = np.round(blobs() * 64) / 64
    wanted = TransformerKMeans(3, random_state=0).fit(X)
    model = TransformerKMeans(3, random_state=0).fit(X + offset)
    np.testing.assert_array_equal(model.labels_, wanted.labels_)
    agrees_with_itself(model, X + offset)
    assert model.n_iter_ == wanted.n_iter_


@pytest.mark.parametrize("scale", [1e199, 1e-200, 1e300, 1e-300, 1e307, 1e-310])
def test_scale_does_not_matter(scale):
    X = blobs() / 64
    wanted = TransformerKMeans(3, random_state=0).fit(X)
    model = TransformerKMeans(3, random_state=0).fit(X * scale)
    np.testing.assert_array_equal(model.labels_, wanted.labels_)
    assert model.n_iter_ == wanted.n_iter_
    # Denormal numbers keep a few digits only.
    digits = 1e-12 if scale > 1e-305 else 1e-3
    np.testing.assert_allclose(
        model.cluster_centers_ / scale, wanted.cluster_centers_, rtol=digits
    )
    np.testing.assert_allclose(
        model.transform(X * scale) / scale, wanted.transform(X), rtol=digits
    )
    np.testing.assert_array_equal(model.predict(X * scale), model.labels_)


def test_labels_exist_however_far_the_rows_or_the_start():
    X = blobs()
    model = TransformerKMeans(3, random_state=0).fit(X * 1e-200)
    assert model.predict([[1e200, -1e200, 0.0]])[0] in (0, 1, 2)
    model = TransformerKMeans(3, init=X[:3] * 1e160).fit(X)
    agrees_with_itself(model, X)


def test_the_ends_of_the_floating_point_range():
    model = TransformerKMeans(2, random_state=0).fit([[1e308], [-1e308], [1e308]])
    np.testing.assert_array_equal(partition(model.labels_), [0, 1, 0])
    np.testing.assert_allclose(np.sort(model.cluster_centers_[:, 0]), [-1e308, 1e308])


def test_scale_of_sparse_data_does_not_matter():
    X = sp.csr_array(np.maximum(blobs(d=5), 0))
    wanted = TransformerKMeans(3, random_state=0).fit(X)
    for scale in (1e199, 1e-200):
        model = TransformerKMeans(3, random_state=0).fit(X * scale)
        np.testing.assert_array_equal(model.labels_, wanted.labels_)
        np.testing.assert_array_equal(model.predict(X * scale), model.labels_)


def test_float32_values_whose_squares_overflow_in_float32():
    X = (blobs() * 1e30).astype(np.float32)
    model = TransformerKMeans(3, random_state=0).fit(X)
    wanted = TransformerKMeans(3, random_state=0).fit(blobs())
    np.testing.assert_array_equal(partition(model.labels_), partition(wanted.labels_))
    assert np.isfinite(model.inertia_)


def test_rows_far_beyond_the_training_data():
    model = TransformerKMeans(2, init=[[0.0, 0.0], [1.0, 1.0]]).fit(
        [[0.0, 0.0], [0.0, 0.1], [1.0, 1.0], [1.0, 0.9]]
    )
    far = np.array([[-1e200, -3e200], [2e250, 1e250], [1e308, 1e308]])
    np.testing.assert_array_equal(model.predict(far), [0, 1, 1])
    distances = model.transform(far[:2])
    np.testing.assert_allclose(distances, np.hypot(*far[:2].T)[:, None] * [1, 1])


def test_edited_centers_must_be_numbers():
    X = blobs()
    model = TransformerKMeans(3, random_state=0).fit(X)
    model.cluster_centers_ = model.cluster_centers_ * 1e300
    assert set(model.predict(X)) <= {0, 1, 2}
    model.cluster_centers_[0] = np.nan
    for call in (model.predict, model.transform, model.score):
        with pytest.raises(ValueError, match=r"cluster_centers_.*must be finite"):
            call(X)


def test_constant_feature_stays_constant():
    X = np.c_[blobs(d=1), np.full(89, 7.3)]
    model = TransformerKMeans(3, random_state=0).fit(X)
    assert (model.cluster_centers_[:, 1] == 7.3).all()


# labels_ and inertia_ are those of predict and score, however the fit ended


@pytest.mark.parametrize(
    "params", [dict(max_iter=1), dict(max_iter=2), dict(tol=1.0), dict(tol=0)], ids=str
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_labels_are_predictions_at_every_stop(params, dtype, weighted):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(401, 2)).astype(dtype)
    weights = rng.exponential(size=401) if weighted else None
    for seed in range(3):
        model = TransformerKMeans(7, random_state=seed, **params)
        model.fit(X, sample_weight=weights)
        exact = agrees_with_itself(model, X, weights)
        assert model.inertia_ == pytest.approx(exact, rel=1e-12)


def test_labels_are_predictions_after_relocation():
    X = np.array([[2.0], [8.0], [10.0], [2.0]])
    init = np.array([[-4.0], [10.0], [15.0]])
    model = TransformerKMeans(3, tol=0, init=init).fit(X)
    assert agrees_with_itself(model, X) == 0.0
    # scikit-learn puts the row at 10 with the row at 8 here, at a cost of 4.
    assert model.inertia_ == 0.0


@pytest.mark.parametrize(
    ("offset", "dtype"), [(0, "f8"), (1e8, "f8"), (1e15, "f8"), (0, "f4"), (1e6, "f4")]
)
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_transform_has_its_minimum_where_predict_says(offset, dtype, store):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = store((np.round(rng.normal(size=(61, 5)) * 3, 2) + offset).astype(dtype))
        model = TransformerKMeans(4, random_state=seed).fit(X)
        np.testing.assert_array_equal(model.transform(X).argmin(1), model.predict(X))


def test_labels_of_sparse_rows_far_from_the_origin():
    # On a lattice of 1/8 around 2 ** 50 every difference is exact.
    rng = np.random.default_rng(0)
    X = rng.integers(-16, 17, size=(97, 5)) / 8
    init = X[:4]
    wanted = ((X[:, None] - init) ** 2).sum(2).argmin(1)
    for data in (X + 2.0**49, sp.csr_array(X + 2.0**49)):
        model = TransformerKMeans(4, init=init + 2.0**49, max_iter=1).fit(data)
        model.cluster_centers_ = init + 2.0**49
        np.testing.assert_array_equal(model.predict(data), wanted)


def test_transform_is_the_distance():
    X = blobs()
    model = TransformerKMeans(3, random_state=0).fit(X)
    by_hand = np.linalg.norm(X[:, None] - model.cluster_centers_, axis=2)
    np.testing.assert_allclose(model.transform(X), by_hand, rtol=1e-10)
    np.testing.assert_array_equal(
        TransformerKMeans(3, random_state=0).fit_transform(X), model.transform(X)
    )
    np.testing.assert_array_equal(model.transform(model.cluster_centers_).min(1), 0)


def test_a_row_does_not_see_the_other_rows():
    rng = np.random.default_rng(0)
    # Integers: many rows are equally near to several centers.
    for X in (rng.normal(size=(401, 8)), rng.integers(0, 3, size=(401, 8)) * 1.0):
        model = TransformerKMeans(5, random_state=0).fit(X)
        alone = np.concatenate([model.predict(row[None]) for row in X])
        np.testing.assert_array_equal(alone, model.predict(X))
        order = rng.permutation(401)
        np.testing.assert_array_equal(model.predict(X[order]), model.labels_[order])


# Stopping


def test_stop_is_strict_without_tolerance():
    X = np.random.default_rng(0).normal(size=(503, 3))
    model = TransformerKMeans(5, random_state=0, tol=0, max_iter=1000).fit(X)
    assert model.converged_ and model.n_iter_ < 1000
    again = TransformerKMeans(5, init=model.cluster_centers_, tol=0).fit(X)
    assert again.n_iter_ <= 2
    np.testing.assert_array_equal(again.labels_, model.labels_)


def test_tolerance_is_relative():
    X = np.random.default_rng(0).normal(size=(601, 2))
    small, large = (
        TransformerKMeans(6, init=X[:6] * scale, tol=1e-2).fit(X * scale)
        for scale in (1.0, 1024.0)
    )
    assert small.n_iter_ == large.n_iter_
    np.testing.assert_array_equal(small.labels_, large.labels_)


def test_converged_is_false_at_max_iter():
    X = np.random.default_rng(0).normal(size=(503, 3))
    assert not TransformerKMeans(5, max_iter=2, random_state=0).fit(X).converged_


def test_objective_never_rises():
    rng = np.random.default_rng(1)
    for seed in range(10):
        X = rng.normal(size=(307, 2))
        model = TransformerKMeans(
            11, init="random", n_init=3, tol=0, random_state=seed
        ).fit(X)
        assert len(model.objective_histories_) == 3
        assert len(model.objective_history_) == model.n_iter_
        for history in model.objective_histories_:
            assert np.all(np.diff(history) <= 1e-12 * history[0])
        assert model.objective_history_[-1] == pytest.approx(model.inertia_)
        last = [history[-1] for history in model.objective_histories_]
        assert model.inertia_ == pytest.approx(min(last), rel=1e-10)


def test_objective_history_beside_far_outliers():
    """What a far sample leaves by rounding is not in the history."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(6007, 3))
    X[:3] = [[1e14, 0, 0], [-1e14, 0, 0], [0, 1e14, 0]]
    init = np.vstack([X[:3] / 10, np.eye(3) / 10])
    centers, history = init, []
    for _ in range(7):
        labels = ((X[:, None] - centers) ** 2).sum(2).argmin(1)
        centers = np.array([X[labels == j].mean(0) for j in range(6)])
        history.append(inertia_by_hand(X, centers, labels))
    model = TransformerKMeans(6, init=init, tol=0, max_iter=7).fit(X)
    np.testing.assert_allclose(model.objective_history_, history, rtol=1e-10)


# Degenerate data


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_seeding_goes_on_when_no_candidate_is_nearer(store, monkeypatch):
    # All rows lie on the first centers, and every further one saves nothing.
    monkeypatch.setattr(_small, "MOST_WORK", 0)
    X = store(np.arange(125.0)[:, None] % 3)
    with pytest.warns(ConvergenceWarning, match="Number of distinct clusters"):
        model = TransformerKMeans(20, random_state=0).fit(X)
    assert model.inertia_ == 0
    agrees_with_itself(model, X)


def test_fewer_distinct_rows_than_clusters():
    X = np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 4, axis=0)
    model = TransformerKMeans(5, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"clusters \(3\).*n_clusters \(5\)"):
        model.fit(X)
    assert model.inertia_ == 0.0
    assert np.isfinite(model.cluster_centers_).all()
    assert model.cluster_centers_.shape == (5, 2)
    agrees_with_itself(model, X)


def test_all_rows_identical():
    X = np.full((11, 2), 3.7)
    with pytest.warns(ConvergenceWarning, match="distinct"):
        model = TransformerKMeans(3, n_init=2, random_state=0).fit(X)
    assert set(model.labels_) == {0}
    assert model.inertia_ == 0.0
    assert (model.cluster_centers_ == 3.7).all()


def test_as_many_clusters_as_rows():
    X = np.arange(10.0).reshape(5, 2) ** 1.5
    model = TransformerKMeans(5, random_state=0).fit(X)
    assert sorted(model.labels_) == [0, 1, 2, 3, 4]
    assert model.inertia_ == 0.0


def test_one_cluster_is_the_mean():
    X = blobs()
    model = TransformerKMeans(1).fit(X)
    np.testing.assert_allclose(model.cluster_centers_[0], X.mean(0))
    assert model.inertia_ == pytest.approx(((X - X.mean(0)) ** 2).sum())
    assert model.transform(X).shape == (89, 1)


def test_one_feature_and_many_clusters():
    model = TransformerKMeans(2, random_state=0).fit([[1.0], [1.1], [9.0], [9.2]])
    np.testing.assert_array_equal(partition(model.labels_), [0, 0, 1, 1])
    many = TransformerKMeans(np.int64(150), random_state=0).fit(blobs(n=401))
    assert len(set(many.labels_)) == 150


def test_no_row_is_left_out():
    X = np.r_[np.zeros((4001, 1)), np.full((7, 1), 100.0)]
    model = TransformerKMeans(2, random_state=0).fit(X)
    np.testing.assert_array_equal(np.sort(model.cluster_centers_, axis=0), [[0], [100]])
    assert len(model.labels_) == 4008


# Weights


def test_weightless_rows_have_no_say():
    X = np.vstack([blobs(), [[1e3] * 3]])
    weights = np.r_[np.ones(89), 0.0]
    far = np.array([[500.0] * 3, [-500.0] * 3, [0.0] * 3])
    for init in ("k-means++", "random", far):
        for seed in range(8):
            model = TransformerKMeans(3, init=init, n_init=1, random_state=seed)
            model.fit(X, sample_weight=weights)
            assert np.abs(model.cluster_centers_).max() < 500, (init, seed)
            assert model.labels_[-1] == model.predict(X[-1:])


def test_weights_are_repetition():
    X, rng = blobs(), np.random.default_rng(0)
    weights = rng.integers(0, 4, len(X))
    params = dict(n_clusters=3, init=X[:3], tol=0)
    repeated = TransformerKMeans(**params).fit(np.repeat(X, weights, axis=0))
    weighted = TransformerKMeans(**params).fit(X, sample_weight=weights)
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_)
    assert weighted.inertia_ == pytest.approx(repeated.inertia_)
    assert weighted.n_iter_ == repeated.n_iter_


@pytest.mark.parametrize("unit", [1e-3, 1e-310, 1e300])
def test_the_unit_of_the_weights_does_not_matter(unit):
    X = blobs() / 100
    weights = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    params = dict(n_clusters=3, init=X[:3])
    plain = TransformerKMeans(**params).fit(X, sample_weight=weights)
    scaled = TransformerKMeans(**params).fit(X, sample_weight=weights * unit)
    np.testing.assert_array_equal(scaled.labels_, plain.labels_)
    digits = 1e-12 if unit > 1e-305 else 1e-3
    np.testing.assert_allclose(
        scaled.cluster_centers_, plain.cluster_centers_, rtol=digits
    )
    assert scaled.inertia_ / unit == pytest.approx(plain.inertia_, rel=digits)


def test_unit_weights_are_no_weights():
    X = blobs(seed=4, spread=1.0)
    plain = TransformerKMeans(4, random_state=0).fit(X)
    for ones in (np.ones(len(X)), 1.0, [1] * len(X)):
        model = TransformerKMeans(4, random_state=0).fit(X, sample_weight=ones)
        np.testing.assert_array_equal(model.labels_, plain.labels_)
        assert model.inertia_ == pytest.approx(plain.inertia_, rel=1e-13)


# Starts


def test_no_warning_where_kmeans_gives_none():
    X = blobs()
    TransformerKMeans(3, init=X[:3]).fit(X)
    TransformerKMeans(3).fit(X)


def test_elkan_with_one_cluster_warns_as_kmeans_does():
    with pytest.warns(RuntimeWarning, match="doesn't make sense for a single cluster"):
        TransformerKMeans(1, algorithm="elkan").fit(blobs())


def test_given_centers_run_once():
    X = blobs()
    with pytest.warns(RuntimeWarning, match="performing only one init") as caught:
        TransformerKMeans(3, init=X[:3], n_init=5).fit(X)
    assert caught[0].filename == __file__


def test_callable_start_is_copied_and_called_once_a_run():
    calls = []

    def init(X, n_clusters, random_state):
        calls.append((X.shape, n_clusters, random_state.randint(10)))
        return X[:n_clusters]

    X = blobs()
    kept = X.copy()
    model = TransformerKMeans(3, init=init, n_init=2, random_state=0).fit(X)
    wanted = TransformerKMeans(3, init=kept[:3]).fit(kept)
    np.testing.assert_array_equal(model.labels_, wanted.labels_)
    assert model.inertia_ == pytest.approx(wanted.inertia_)
    np.testing.assert_array_equal(X, kept)
    assert [call[:2] for call in calls] == [((89, 3), 3)] * 2
    assert calls[0][2] != calls[1][2]
    as_list = TransformerKMeans(
        3, init=lambda X, k, random_state: X[:k].tolist(), n_init=1
    ).fit(X)
    np.testing.assert_array_equal(as_list.labels_, wanted.labels_)


def test_auto_number_of_runs():
    X = blobs()
    for init, wanted in [
        ("k-means++", 1),
        (X[:3], 1),
        ("random", 10),
        (lambda X, k, random_state: X[:k], 10),
    ]:
        model = TransformerKMeans(3, init=init, random_state=0).fit(X)
        assert len(model.objective_histories_) == wanted


def test_more_starts_are_not_worse():
    X = np.random.default_rng(2).normal(size=(211, 2))
    inertias = [
        TransformerKMeans(6, n_init=n, init="random", random_state=0).fit(X).inertia_
        for n in (1, 5, 20)
    ]
    assert inertias[0] >= inertias[1] >= inertias[2]


# Determinism


def test_same_seed_same_bits():
    X = np.random.default_rng(0).normal(size=(503, 4))
    first, second = (TransformerKMeans(6, random_state=3).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.labels_, second.labels_)
    np.testing.assert_array_equal(first.cluster_centers_, second.cluster_centers_)
    assert first.inertia_ == second.inertia_


def test_global_random_states_are_left_alone():
    np.random.seed(11)  # noqa: NPY002
    torch.manual_seed(5)
    wanted = np.random.rand(3), torch.rand(3)  # noqa: NPY002
    np.random.seed(11)  # noqa: NPY002
    torch.manual_seed(5)
    TransformerKMeans(3, random_state=0).fit(blobs())
    np.testing.assert_array_equal(np.random.rand(3), wanted[0])  # noqa: NPY002
    assert torch.equal(torch.rand(3), wanted[1])


@pytest.mark.parametrize("sparse", [False, True])
def test_threads_do_not_matter(sparse):
    rng = np.random.default_rng(0)
    X = np.round(np.maximum(rng.normal(size=(20011, 7)), 0), 1)
    X = sp.csr_array(X) if sparse else X
    before, labels, iterations = torch.get_num_threads(), [], []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            model = TransformerKMeans(13, random_state=0).fit(X)
            labels.append(model.labels_)
            iterations.append(model.n_iter_)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*labels)
    assert iterations[0] == iterations[1]


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads /proc")
def test_memory_is_a_few_numbers_per_sample():
    code = """
import numpy as np, torch
from sklearn_kmtrf import TransformerKMeans
from sklearn_kmtrf.kernels import _small
torch.set_num_threads(1)
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(l for l in lines if l.startswith("VmHWM")).split()[1]) / 1024
X = np.random.default_rng(0).normal(size=(200_000, 4))
TransformerKMeans(3, random_state=0).fit(X[:5000])
before = peak()
TransformerKMeans(200, init=X[:200], max_iter=4).fit(X).predict(X)
TransformerKMeans(9, random_state=0, max_iter=4).fit(X)
print(peak() - before)
"""
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    # One array of shape (n_samples, n_clusters) in float32 has 153 MB, X has 6.
    assert float(out.stdout) < 48


# At home in scikit-learn


def test_pipeline_and_cross_validation():
    X, y = blobs(n=90), np.arange(90) % 3
    pipeline = make_pipeline(
        StandardScaler(),
        TransformerKMeans(6, random_state=0),
        LogisticRegression(),
    )
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.9
    scores = cross_val_score(TransformerKMeans(3, random_state=0), X, cv=3)
    assert np.isfinite(scores).all() and (scores < 0).all()


def test_grid_search_in_two_processes():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), TransformerKMeans(random_state=0)),
        {"transformerkmeans__n_clusters": [2, 3]},
        cv=2,
        n_jobs=2,
    ).fit(blobs())
    assert search.best_params_ == {"transformerkmeans__n_clusters": 3}


def test_clone_with_an_array_start():
    init = blobs()[:3]
    copy = clone(TransformerKMeans(3, init=init))
    np.testing.assert_array_equal(copy.init, init)
    assert copy.n_clusters == 3


def test_pickle_and_joblib(tmp_path):
    X = blobs()
    model = TransformerKMeans(3, random_state=0).fit(X)
    joblib.dump(model, tmp_path / "model.joblib")
    for copy in (
        pickle.loads(pickle.dumps(model)),
        joblib.load(tmp_path / "model.joblib"),
    ):
        np.testing.assert_array_equal(copy.predict(X), model.labels_)
        np.testing.assert_array_equal(copy.transform(X), model.transform(X))
    assert len(pickle.dumps(model)) < 10_000
    for name, value in vars(model).items():
        assert not isinstance(value, torch.Tensor), name


def test_state_of_a_missing_device_predicts_on_the_cpu():
    X = blobs()
    model = TransformerKMeans(3, random_state=0).fit(X)
    labels = model.labels_
    model.device_ = torch.device("cuda", 99)
    np.testing.assert_array_equal(model.predict(X), labels)


@pytest.mark.parametrize("device", [None, "cpu", "auto", torch.device("cpu")])
def test_device(device):
    model = TransformerKMeans(3, random_state=0, device=device).fit(blobs())
    assert isinstance(model.device_, torch.device)
    assert model.device is device


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_labels_of_the_cpu():
    X = np.random.default_rng(0).normal(size=(5003, 7))
    cpu = TransformerKMeans(11, random_state=0).fit(X)
    gpu = TransformerKMeans(11, random_state=0, device="cuda").fit(X)
    np.testing.assert_array_equal(gpu.labels_, cpu.labels_)
    assert gpu.n_iter_ == cpu.n_iter_


def test_frames_in_and_out():
    frame = pd.DataFrame(blobs(d=2), columns=["a", "b"], index=np.arange(89) + 7)
    model = TransformerKMeans(3, random_state=0).set_output(transform="pandas")
    out = model.fit(frame).transform(frame)
    names = [f"transformerkmeans{i}" for i in range(3)]
    assert list(out.columns) == list(model.get_feature_names_out()) == names
    assert (out.index == frame.index).all()
    assert list(model.feature_names_in_) == ["a", "b"]
    with pytest.warns(UserWarning, match="valid feature names"):
        model.predict(frame.to_numpy())


def test_metadata_routing():
    X, weights = blobs(n=90), np.r_[np.ones(60), np.zeros(30)]
    with sklearn.config_context(enable_metadata_routing=True):
        model = TransformerKMeans(3, random_state=0).set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"n_clusters": [2, 3]}, cv=2)
        search.fit(X, sample_weight=weights)
    wanted = TransformerKMeans(search.best_params_["n_clusters"], random_state=0).fit(
        X, sample_weight=weights
    )
    np.testing.assert_allclose(
        search.best_estimator_.cluster_centers_, wanted.cluster_centers_
    )


def test_array_api_dispatch_changes_nothing():
    pytest.importorskip("sklearn.externals.array_api_compat", reason="1.8 has it")
    # SciPy reads the variable when it is imported.
    code = """
import numpy as np, scipy.sparse as sp, sklearn
from sklearn_kmtrf import TransformerKMeans
from sklearn_kmtrf.kernels import _small
X = np.random.default_rng(0).random((40, 3))
for data in (X, sp.csr_array(X)):
    with sklearn.config_context(array_api_dispatch=True):
        model = TransformerKMeans(3, random_state=0).fit(data)
        assert (model.predict(data) == model.labels_).all()
    assert (model.predict(data) == model.labels_).all()
"""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_tags():
    tags = TransformerKMeans().__sklearn_tags__()
    assert tags.input_tags.sparse
    assert tags.estimator_type == "clusterer"
    assert tags.transformer_tags.preserves_dtype == ["float64", "float32"]


def test_silent_by_default(capsys):
    TransformerKMeans(3, random_state=0).fit(blobs())
    assert capsys.readouterr().out == ""


def test_the_circuit_performs_the_last_iteration():
    X = blobs(spread=1.0)
    model = TransformerKMeans(3, random_state=0, tol=0).fit(X)
    output = model.circuit_(
        torch.from_numpy(X), torch.from_numpy(model.cluster_centers_)
    )
    np.testing.assert_allclose(output.centers.numpy(), model.cluster_centers_)
    np.testing.assert_array_equal(output.codes.argmax(1).numpy(), model.labels_)
    with pytest.raises(NotFittedError):
        TransformerKMeans().circuit_  # noqa: B018


# Progress

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn 1.9 has it")


class Recorder(callback.FitCallback):
    """Counts tasks; asks to stop after `stop_after` iterations."""

    def __init__(self, stop_after=None):
        self.stop_after, self.tasks, self.predictions = stop_after, [], []

    def setup(self, estimator, context):
        self.tasks.append("setup")

    def teardown(self, estimator, context):
        self.tasks.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.tasks.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
        self.tasks.append(f"end {context.task_name}")
        if context.task_name == "iteration":
            self.predictions.append(fitted_estimator.predict(X))
        return len(self.predictions) == self.stop_after


def test_callbacks_see_runs_and_iterations():
    X = blobs(spread=1.0)
    recorder = Recorder()
    model = TransformerKMeans(3, n_init=2, random_state=0).set_callbacks(recorder)
    model.fit(X)
    iterations = sum(len(h) for h in model.objective_histories_)
    assert recorder.tasks[:3] == ["setup", "begin fit", "begin run"]
    assert recorder.tasks[-3:] == ["end run", "end fit", "teardown"]
    assert recorder.tasks.count("end iteration") == iterations
    assert recorder.tasks.count("end run") == 2
    plain = TransformerKMeans(3, n_init=2, random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_, plain.labels_)


def test_a_callback_may_stop_the_fit():
    X = np.random.default_rng(0).normal(size=(503, 3))
    recorder = Recorder(stop_after=2)
    model = TransformerKMeans(5, n_init=3, random_state=0).set_callbacks(recorder)
    model.fit(X)
    assert len(model.objective_histories_) == 1
    assert model.n_iter_ == 2 and not model.converged_
    np.testing.assert_array_equal(recorder.predictions[-1], model.labels_)


def test_callbacks_are_torn_down_when_the_fit_fails():
    recorder = Recorder()
    model = TransformerKMeans(3, init=[[np.nan] * 3] * 3).set_callbacks(recorder)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(blobs())
    assert recorder.tasks[-1] == "teardown"


class Propagated(Recorder):
    """A recorder that meta-estimators hand down."""

    max_propagation_depth = None


def test_callbacks_through_a_pipeline():
    recorder = Propagated()
    model = TransformerKMeans(3, random_state=0)
    make_pipeline(StandardScaler(), model).set_callbacks(recorder).fit(blobs())
    assert recorder.tasks.count("end iteration") == model.n_iter_
    assert not hasattr(model, "_skl_callbacks")


def test_progress_bar_of_scikit_learn():
    pytest.importorskip("rich", reason="the bar is drawn by it")
    model = TransformerKMeans(3, n_init=2, random_state=0)
    model.set_callbacks(callback.ProgressBar()).fit(blobs())
    assert model.converged_
