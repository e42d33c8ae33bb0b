"""SphericalTransformerKMeans: directions, and rows that have none."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_kmtrf import SphericalTransformerKMeans
from sklearn_kmtrf.circuits import lloyd_circuit, spherical_circuit
from sklearn_kmtrf.kernels import _blocks, _small
from tests import _reference


def directions(n=307, d=6, k=4, seed=0):
    """Rows around k random directions, of random lengths; row i belongs to i % k."""
    rng = np.random.default_rng(seed)
    centers = _reference.unit(rng.normal(size=(k, d)))
    X = centers[np.arange(n) % k] + rng.normal(size=(n, d)) * 0.2
    return X * rng.exponential(size=(n, 1))


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
    np.testing.assert_array_equal(model.transform(X).argmin(1), model.labels_)


def test_by_hand():
    # Directions 0 and 90 degrees; the mean of (1, 0) and (0.6, 0.8) is at half their
    # angle, whose cosine to each is sqrt((1 + 0.6) / 2) = sqrt(0.8).
    X = [[2.0, 0.0], [3.0, 4.0], [-7.0, 0.0]]
    model = SphericalTransformerKMeans(2, init=[[1.0, 0.0], [-1.0, 0.0]]).fit(X)
    np.testing.assert_array_equal(model.labels_, [0, 0, 1])
    half = np.array([2.0, 1.0]) / np.sqrt(5)
    np.testing.assert_allclose(model.cluster_centers_, [half, [-1, 0]])
    assert model.inertia_ == pytest.approx(2 - 2 * np.sqrt(0.8))
    np.testing.assert_allclose(model.transform([[0.0, 5.0]]), [[1 - half[1], 1.0]])


@pytest.mark.parametrize("store", [np.asarray, np.asfortranarray, sp.csr_array])
def test_iterations_are_those_of_numpy(store, path):
    for seed in range(5):
        X = directions(seed=seed)
        centers = start = X[:4] * 3
        for n in range(1, 6):
            before = _reference.unit(centers)
            centers, _ = _reference.spherical(X, centers)
            model = SphericalTransformerKMeans(4, init=start, max_iter=n, tol=0)
            model.fit(store(X))
            np.testing.assert_allclose(model.cluster_centers_, centers, atol=1e-10)
            if np.allclose(before, centers, atol=1e-14):
                break
        cosines = _reference.unit(X) @ model.cluster_centers_.T
        assert model.inertia_ == pytest.approx((1 - cosines.max(1)).sum(), rel=1e-10)
        agrees_with_itself(model, store(X))


def test_iterations_are_those_of_the_circuit():
    X = directions()
    model = SphericalTransformerKMeans(4, init=X[:4], tol=0).fit(X)
    centers = torch.from_numpy(X[:4].copy())
    for n in range(1, model.n_iter_ + 1):
        centers = model.circuit_(torch.from_numpy(X), centers).centers
        stopped = SphericalTransformerKMeans(4, init=X[:4], tol=0, max_iter=n).fit(X)
        np.testing.assert_allclose(stopped.cluster_centers_, centers, atol=1e-10)


def test_given_circuit_is_run():
    X = directions()
    circuit = spherical_circuit(6, 4, scratch="binary")
    wanted = SphericalTransformerKMeans(4, random_state=0).fit(X)
    model = SphericalTransformerKMeans(4, random_state=0, weights=circuit).fit(X)
    assert model.circuit_ is circuit
    np.testing.assert_array_equal(model.labels_, wanted.labels_)
    np.testing.assert_allclose(model.cluster_centers_, wanted.cluster_centers_)
    with pytest.raises(ValueError, match="must perform one of"):
        SphericalTransformerKMeans(4, weights=lloyd_circuit(6, 4)).fit(X)


def test_length_never_matters(path):
    X = directions()
    lengths = 10.0 ** np.random.default_rng(1).uniform(-200, 200, size=(len(X), 1))
    wanted = SphericalTransformerKMeans(4, random_state=0).fit(_reference.unit(X))
    for data in (X, X * lengths, sp.csr_array(X), sp.csr_array(X * lengths)):
        model = SphericalTransformerKMeans(4, random_state=0).fit(data)
        np.testing.assert_array_equal(model.labels_, wanted.labels_)
        np.testing.assert_allclose(model.cluster_centers_, wanted.cluster_centers_)
        assert model.inertia_ == pytest.approx(wanted.inertia_)
        agrees_with_itself(model, data)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_rows_of_zeros_cost_one_and_have_no_say(store, path):
    X = directions()
    X[::10] = 0
    weights = np.random.default_rng(2).integers(1, 4, size=len(X)).astype(float)
    zero = np.arange(len(X)) % 10 == 0
    for seed in range(5):
        model = SphericalTransformerKMeans(4, random_state=seed)
        model.fit(store(X), sample_weight=weights)
        alone = SphericalTransformerKMeans(4, init=model.initial_centers_, tol=1e-4)
        alone.fit(X[~zero], sample_weight=weights[~zero])
        assert (model.labels_[zero] == 0).all()
        assert model.initial_centers_.any(1).all()
        np.testing.assert_allclose(model.cluster_centers_, alone.cluster_centers_)
        cost = alone.inertia_ + weights[zero].sum()
        assert model.inertia_ == pytest.approx(cost)
        agrees_with_itself(model, store(X), weights)
        np.testing.assert_array_equal(model.transform(store(X))[zero], 1.0)


def test_nothing_but_zeros():
    with pytest.raises(ValueError, match="must have a row that is not zero"):
        SphericalTransformerKMeans(2).fit(np.zeros((5, 3)))
    with pytest.raises(ValueError, match=r"initial centers.*must have directions"):
        SphericalTransformerKMeans(2, init=[[0.0, 0.0], [1.0, 1.0]]).fit(np.eye(2))


def test_antipodal_rows_keep_the_center(path):
    X = np.array([[1.0, 0.0], [-1.0, 0.0]] * 3)
    model = SphericalTransformerKMeans(1, init=[[1.0, 0.0]]).fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, [[1.0, 0.0]])
    assert model.inertia_ == 6.0


def test_one_feature_has_two_directions():
    X = np.array([[3.0], [0.1], [-2.0], [-9.0]])
    model = SphericalTransformerKMeans(2, random_state=0).fit(X)
    assert model.inertia_ == 0
    assert model.labels_[0] == model.labels_[1] != model.labels_[2] == model.labels_[3]


def test_fewer_directions_than_clusters():
    X = np.array([[1.0, 2.0], [2.0, 4.0], [0.3, 0.6], [3.0, 1.0]])
    with pytest.warns(ConvergenceWarning, match="Number of distinct clusters"):
        model = SphericalTransformerKMeans(3, random_state=0).fit(X)
    assert len(set(model.labels_)) == 2
    agrees_with_itself(model, X)


def test_weights_are_repetition():
    X, counts = directions(n=83), np.random.default_rng(3).integers(0, 4, size=83)
    weighed = SphericalTransformerKMeans(4, init=X[:4]).fit(X, sample_weight=counts)
    repeated = SphericalTransformerKMeans(4, init=X[:4]).fit(np.repeat(X, counts, 0))
    np.testing.assert_allclose(weighed.cluster_centers_, repeated.cluster_centers_)
    assert weighed.inertia_ == pytest.approx(repeated.inertia_)


def test_objective_never_rises(path):
    rng = np.random.default_rng(4)
    for seed in range(5):
        X = rng.normal(size=(211, 3))
        model = SphericalTransformerKMeans(9, init="random", n_init=3, tol=0)
        model.set_params(random_state=seed).fit(X)
        assert len(model.objective_histories_) == 3
        for history in model.objective_histories_:
            assert (np.diff(history) <= 1e-12 * history[0]).all()
        assert model.objective_history_[-1] == pytest.approx(model.inertia_)


def test_finds_the_directions():
    X = directions(n=2003, d=20, k=5, seed=5)
    model = SphericalTransformerKMeans(5, n_init=5, random_state=0).fit(X)
    assert adjusted_rand_score(np.arange(2003) % 5, model.labels_) > 0.99


def test_a_callable_start_sees_rows_as_they_are():
    X, seen = directions(), []

    def init(given, n_clusters, random_state):
        seen.append(given)
        return given[:n_clusters] * 1e5

    model = SphericalTransformerKMeans(4, init=init, n_init=1).fit(X)
    np.testing.assert_array_equal(seen[0], X)
    np.testing.assert_allclose(model.initial_centers_, _reference.unit(X[:4]))


def test_sparse_rows_are_never_made_dense(monkeypatch):
    # One row of 20 million columns would be a block of its own.
    rng = np.random.default_rng(6)
    X = sp.random_array((97, 20_000), density=1e-3, format="csr", rng=rng)
    before = X.data.copy(), X.indices.copy()
    with monkeypatch.context() as patch:
        patch.setattr(type(X), "toarray", lambda *_: pytest.fail("made dense"))
        patch.setattr(type(X), "todense", lambda *_: pytest.fail("made dense"))
        model = SphericalTransformerKMeans(5, random_state=0).fit(X)
        agrees_with_itself(model, X)
    np.testing.assert_array_equal(X.data, before[0])
    np.testing.assert_array_equal(X.indices, before[1])
    cosines = _reference.unit(X.toarray()) @ model.cluster_centers_.T
    assert model.inertia_ == pytest.approx((1 - cosines.max(1)).sum())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_pickle_and_pipeline(dtype):
    X = directions().astype(dtype)
    model = SphericalTransformerKMeans(4, random_state=0).fit(X)
    assert model.cluster_centers_.dtype == model.transform(X).dtype == dtype
    np.testing.assert_allclose(
        np.linalg.norm(model.cluster_centers_, axis=1), 1, rtol=1e-6
    )
    agrees_with_itself(pickle.loads(pickle.dumps(model)), X)
    pipe = make_pipeline(
        FunctionTransformer(), SphericalTransformerKMeans(4, random_state=0)
    )
    np.testing.assert_array_equal(pipe.fit_predict(X), model.labels_)
