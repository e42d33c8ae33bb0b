"""TrimmedTransformerKMeans: who is trimmed, and what outliers cannot do."""

import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.metrics import adjusted_rand_score

from sklearn_kmtrf import (
    TransformerKMeans,
    TrimmedTransformerKMeans,
    trimming_curves,
)
from sklearn_kmtrf.circuits import lloyd_circuit, trimmed_circuit
from sklearn_kmtrf.kernels import _blocks, _small
from sklearn_kmtrf.kernels._trimmed import kept_mass
from tests._contaminated import contaminated, matched


@pytest.fixture(params=["small", "streamed"])
def path(request, monkeypatch):
    """Run small data by both ways of the kernels."""
    if request.param == "streamed":
        monkeypatch.setattr(_small, "MOST_WORK", 0)
        monkeypatch.setattr(_blocks, "BLOCK_ELEMENTS", 2**9)
        monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 31)


def agrees_with_itself(model, X, weights=None):
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.inertia_ == -model.score(X, sample_weight=weights)
    decision = model.decision_function(X)
    np.testing.assert_array_equal(decision < 0, model.labels_ == -1)
    np.testing.assert_array_equal(decision, model.score_samples(X) - model.offset_)
    kept = model.labels_ >= 0
    np.testing.assert_array_equal(
        model.transform(X).argmin(1)[kept], model.labels_[kept]
    )


def best_of_all_subsets(X, n_clusters, n_kept):
    """The least trimmed objective over all subsets and all their partitions."""
    best = np.inf
    for subset in itertools.combinations(range(len(X)), n_kept):
        rows = X[list(subset)]
        for rest in itertools.product(range(n_clusters), repeat=n_kept - 1):
            labels = np.array((0, *rest))
            cost = sum(
                ((part - part.mean(0)) ** 2).sum()
                for part in (rows[labels == j] for j in range(n_clusters))
                if len(part)
            )
            best = min(best, cost)
    return best


def test_by_hand():
    # Without 100 the means of {0, 2} and {10, 12} cost 1 each row.
    X = np.array([[0.0], [2.0], [10.0], [12.0], [100.0]])
    model = TrimmedTransformerKMeans(2, trim_fraction=0.2, random_state=0).fit(X)
    np.testing.assert_array_equal(np.sort(model.cluster_centers_[:, 0]), [1, 11])
    assert (model.labels_ == -1).tolist() == [False] * 4 + [True]
    assert model.inertia_ == 4
    assert model.radius_ == 1 == -model.offset_
    np.testing.assert_array_equal(model.score_samples([[3.0], [-9.0]]), [-2, -10])
    np.testing.assert_array_equal(model.predict([[3.0], [2.0]]) == -1, [True, False])
    # score trims afresh: of two rows at 3 and 50 the latter, ceil(0.2 * 2) = 1.
    assert model.score([[3.0], [50.0]]) == -4


@pytest.mark.parametrize(
    ("fraction", "n", "trimmed"),
    [(0.07, 100, 7), (0.14, 150, 21), (0.1, 10, 1), (0.101, 10, 2), (0.29, 100, 29)],
)
def test_exactly_the_fraction_is_trimmed(fraction, n, trimmed):
    assert kept_mass(fraction, n, None) == n - trimmed
    X = np.random.default_rng(0).normal(size=(n, 3))
    model = TrimmedTransformerKMeans(2, trim_fraction=fraction, random_state=0).fit(X)
    assert (model.labels_ == -1).sum() == trimmed


def test_rows_that_tie_at_the_radius_count_as_kept():
    X = np.array([[0.0], [0.0], [0.0], [0.0], [3.0], [-3.0], [3.0], [-3.0]])
    model = TrimmedTransformerKMeans(1, trim_fraction=0.25, init=[[0.0]]).fit(X)
    agrees_with_itself(model, X)
    assert (model.labels_ == 0).all() or (model.labels_ == -1).sum() <= 2


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_nothing_trimmed_is_k_means(store):
    rng = np.random.default_rng(1)
    for n in (157, 6007):
        X = rng.normal(size=(n, 4))
        X[:, 0] += 5 * (np.arange(n) % 3)
        X = store(np.where(np.abs(X) > 0.5, X, 0))
        wanted = TransformerKMeans(3, random_state=0).fit(X)
        model = TrimmedTransformerKMeans(3, trim_fraction=0, random_state=0).fit(X)
        np.testing.assert_array_equal(model.labels_, wanted.labels_)
        np.testing.assert_array_equal(model.cluster_centers_, wanted.cluster_centers_)
        assert model.n_iter_ == wanted.n_iter_
        assert model.inertia_ == wanted.inertia_
        assert model.radius_ == np.inf
        agrees_with_itself(model, X)


def test_global_optimum_of_small_problems():
    reached = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(7, 9)), 1 + seed % 2
        X = rng.normal(size=(n, 2)) * rng.choice([1, 4], size=(n, 1))
        fraction = [0.1, 0.15, 0.25][seed % 3]
        n_kept = int(kept_mass(fraction, n, None))
        model = TrimmedTransformerKMeans(k, trim_fraction=fraction, random_state=seed)
        best = best_of_all_subsets(X, k, n_kept)
        found = model.fit(X).inertia_
        assert found >= best * (1 - 1e-9)
        reached += found <= best * (1 + 1e-9)
    assert reached >= 95


@pytest.mark.parametrize("far", [1e3, 1e6, 1e12])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_far_samples_move_nothing(far, dtype, path):
    X, centers = contaminated(far=far)
    model = TrimmedTransformerKMeans(3, trim_fraction=0.1, random_state=0)
    model.fit(X.astype(dtype))
    found = matched(model.cluster_centers_, centers)
    assert np.abs(found - centers).max() < 0.3
    assert adjusted_rand_score(np.arange(300) % 3, model.labels_[:300]) > 0.95
    assert (model.labels_[300:] == -1).mean() > 0.9
    agrees_with_itself(model, X.astype(dtype))
    # Means of the kept samples, to the digits of their own scale.
    for j, center in enumerate(model.cluster_centers_):
        members = X.astype(dtype).astype(float)[model.labels_ == j]
        assert np.abs(members.mean(0) - center).max() < (
            1e-9 if dtype == np.float64 else 1e-5
        )


def test_objective_never_rises(path):
    for seed in range(5):
        X = np.random.default_rng(seed).normal(size=(211, 2))
        model = TrimmedTransformerKMeans(7, trim_fraction=0.1, tol=0, random_state=seed)
        for history in model.fit(X).objective_histories_:
            assert (np.diff(history) <= 1e-12 * history[0]).all()
        assert model.objective_history_[-1] == pytest.approx(model.inertia_)
        agrees_with_itself(model, X)


def test_weights_are_repetition(path):
    rng = np.random.default_rng(2)
    X, counts = rng.normal(size=(97, 2)), rng.integers(0, 4, size=97)
    for seed in range(5):
        init = X[rng.choice(97, 3, replace=False)]
        params = dict(trim_fraction=0.13, init=init)
        weighed = TrimmedTransformerKMeans(3, **params).fit(X, sample_weight=counts)
        repeated = TrimmedTransformerKMeans(3, **params).fit(np.repeat(X, counts, 0))
        np.testing.assert_allclose(weighed.cluster_centers_, repeated.cluster_centers_)
        assert weighed.inertia_ == pytest.approx(repeated.inertia_)
        agrees_with_itself(weighed, X, counts), seed


def test_given_circuit_is_run():
    X, centers = contaminated()
    circuit = trimmed_circuit(3, 3, trim_fraction=0.1)
    params = dict(trim_fraction=0.1, init=centers + 0.2)
    wanted = TrimmedTransformerKMeans(3, **params).fit(X)
    model = TrimmedTransformerKMeans(3, weights=circuit, **params).fit(X)
    assert model.circuit_ is circuit
    np.testing.assert_allclose(model.cluster_centers_, wanted.cluster_centers_)
    np.testing.assert_array_equal(model.labels_, wanted.labels_)
    with pytest.raises(ValueError, match=r"must be built for trim_fraction = 0\.2"):
        model.set_params(trim_fraction=0.2).fit(X)
    with pytest.raises(ValueError, match="must perform one of"):
        model.set_params(weights=lloyd_circuit(3, 3)).fit(X)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, "a", None])
def test_fraction_that_is_none(fraction):
    with pytest.raises(ValueError, match="trim_fraction"):
        TrimmedTransformerKMeans(2, trim_fraction=fraction).fit(np.eye(5))


def test_too_little_left():
    with pytest.raises(ValueError, match="must leave at least n_clusters=3"):
        TrimmedTransformerKMeans(3, trim_fraction=0.5).fit(np.eye(4))


def test_same_for_any_number_of_threads():
    X, _ = contaminated(n=6000, n_far=300)
    before, labels = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            model = TrimmedTransformerKMeans(3, trim_fraction=0.05, random_state=0)
            labels.append(model.fit(X).labels_)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*labels)


def test_pickle_keeps_the_radius():
    X, _ = contaminated()
    model = TrimmedTransformerKMeans(3, trim_fraction=0.1, random_state=0).fit(X)
    agrees_with_itself(pickle.loads(pickle.dumps(model)), X)


def test_trimming_curves():
    X, _ = contaminated(n_far=30)
    table = trimming_curves(
        X, n_clusters=[2, 3], trim_fractions=[0.0, 0.05, 0.1], random_state=0
    )
    frame = pd.DataFrame(table)
    assert frame[["n_clusters", "trim_fraction"]].to_numpy().tolist() == [
        [k, f] for k in (2, 3) for f in (0.0, 0.05, 0.1)
    ]
    curves = table["objective"].reshape(2, 3)
    assert (np.diff(curves, axis=1) <= 0).all()
    model = TrimmedTransformerKMeans(3, trim_fraction=0.1, random_state=0).fit(X)
    assert curves[1, 2] <= model.inertia_ * (1 + 1e-9)
    # One sample in 11 is far: at a fraction of 0.1 only clean ones are left.
    assert curves[1, 2] < 1e-3 * curves[1, 1]
