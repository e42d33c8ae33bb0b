"""RobustTransformerKMeans: one radius, and bounded influence."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.metrics import adjusted_rand_score

from sklearn_kmtrf import RobustTransformerKMeans, TransformerKMeans
from sklearn_kmtrf.circuits import robust_circuit
from sklearn_kmtrf.kernels import _blocks, _small
from tests._contaminated import contaminated, matched


@pytest.fixture(params=["small", "streamed"])
def path(request, monkeypatch):
    """Run small data by both ways of the kernels."""
    if request.param == "streamed":
        monkeypatch.setattr(_small, "MOST_WORK", 0)
        monkeypatch.setattr(_blocks, "BLOCK_ELEMENTS", 2**9)
        monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 31)


def objective(centers, X, radius, weights=None):
    """F by its definition."""
    D = ((X[:, None] - centers.reshape(-1, X.shape[1])) ** 2).sum(2).min(1)
    u = np.minimum(D / radius**2, 1)
    loss = (u - u**2 / 2) * radius**2
    return loss.sum() if weights is None else loss @ weights


def agrees_with_itself(model, X, weights=None):
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.inertia_ == -model.score(X, sample_weight=weights)
    np.testing.assert_array_equal(model.transform(X).argmin(1), model.labels_)


def test_by_hand():
    # From 0 with radius 2: weights 1 - 0, 1 - 1/4, 0; the mean of 0 and 1 is 0.75/1.75.
    X = np.array([[0.0], [1.0], [50.0]])
    model = RobustTransformerKMeans(1, gamma=0.25, init=[[0.0]], max_iter=1).fit(X)
    assert model.radius_ == 2
    assert model.gamma_ == 0.25
    np.testing.assert_allclose(model.cluster_centers_, [[3 / 7]])
    assert model.inertia_ == pytest.approx(objective(np.array([3 / 7]), X, 2.0))
    assert (model.labels_ == 0).all()


def test_found_optimum_is_one_for_a_generic_optimiser(path):
    for seed in range(5):
        X, _ = contaminated(n=60, n_far=6, seed=seed)
        model = RobustTransformerKMeans(3, random_state=seed, tol=0).fit(X)
        found = objective(model.cluster_centers_, X, model.radius_)
        assert model.inertia_ == pytest.approx(found, rel=1e-10)
        better = minimize(
            objective,
            model.cluster_centers_.ravel(),
            args=(X, model.radius_),
            method="Nelder-Mead",
            options={"maxiter": 4000, "fatol": 1e-12, "xatol": 1e-9},
        )
        assert better.fun >= found * (1 - 1e-6)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e12])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_far_samples_move_nothing(far, dtype, path):
    X, centers = contaminated(far=far)
    X = X.astype(dtype)
    model = RobustTransformerKMeans(3, random_state=0).fit(X)
    found = matched(model.cluster_centers_, centers)
    assert np.abs(found - centers).max() < 0.2
    assert adjusted_rand_score(np.arange(300) % 3, model.labels_[:300]) > 0.95
    assert model.radius_ < 5
    agrees_with_itself(model, X)


def test_one_sample_at_infinity_hardly_moves_a_center():
    X, _ = contaminated(n=260, n_far=0)
    clean = RobustTransformerKMeans(3, random_state=0).fit(X)
    for far in (3.0, 10.0, 1e3, 1e6):
        moved = X.copy()
        moved[0] += far
        model = RobustTransformerKMeans(3, random_state=0).fit(moved)
        shift = matched(model.cluster_centers_, clean.cluster_centers_)
        # Standard deviation within a cluster: 0.5.
        assert np.abs(shift - clean.cluster_centers_).max() < 0.1 * 0.5


def test_objective_never_rises(path):
    for seed in range(5):
        X = np.random.default_rng(seed).standard_t(2, size=(211, 2))
        model = RobustTransformerKMeans(5, tol=0, random_state=seed).fit(X)
        for history in model.objective_histories_:
            assert (np.diff(history) <= 1e-12 * history[0]).all()
        assert model.objective_history_[-1] == pytest.approx(model.inertia_)
        agrees_with_itself(model, X)


def test_small_gamma_is_k_means():
    X, _ = contaminated(n_far=0)
    wanted = TransformerKMeans(3, init=X[:3], tol=0).fit(X)
    model = RobustTransformerKMeans(3, gamma=1e-9, init=X[:3], tol=0).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, wanted.cluster_centers_, 1e-6)
    assert model.inertia_ == pytest.approx(wanted.inertia_, rel=1e-6)


def test_units_do_not_matter():
    X, _ = contaminated()
    wanted = RobustTransformerKMeans(3, random_state=0).fit(X)
    for scale in (1e-150, 1e-3, 1e5, 1e150):
        model = RobustTransformerKMeans(3, random_state=0).fit(X * scale)
        np.testing.assert_array_equal(model.labels_, wanted.labels_)
        np.testing.assert_allclose(model.radius_ / scale, wanted.radius_)


def test_weights_are_repetition(path):
    rng = np.random.default_rng(2)
    X, counts = rng.standard_t(3, size=(97, 2)), rng.integers(0, 4, size=97)
    for gamma in ("auto", 0.3):
        params = dict(gamma=gamma, init=X[[5, 11, 60]])
        weighed = RobustTransformerKMeans(3, **params).fit(X, sample_weight=counts)
        repeated = RobustTransformerKMeans(3, **params).fit(np.repeat(X, counts, 0))
        np.testing.assert_allclose(weighed.cluster_centers_, repeated.cluster_centers_)
        assert weighed.radius_ == pytest.approx(repeated.radius_)
        assert weighed.inertia_ == pytest.approx(repeated.inertia_)


def test_sparse_is_dense(path):
    X, _ = contaminated(d=5)
    X = np.where(np.abs(X) > 0.3, X, 0)
    dense = RobustTransformerKMeans(3, init=X[:3]).fit(X)
    model = RobustTransformerKMeans(3, init=X[:3]).fit(sp.csr_array(X))
    np.testing.assert_array_equal(model.labels_, dense.labels_)
    np.testing.assert_allclose(model.cluster_centers_, dense.cluster_centers_)
    agrees_with_itself(model, sp.csr_array(X))


def test_given_circuit_is_run():
    X, centers = contaminated()
    circuit = robust_circuit(3, 3, radius=2.5)
    wanted = RobustTransformerKMeans(3, gamma=1 / 2.5**2, init=centers + 0.1).fit(X)
    model = RobustTransformerKMeans(3, weights=circuit, init=centers + 0.1).fit(X)
    assert model.circuit_ is circuit
    assert model.radius_ == pytest.approx(2.5)
    np.testing.assert_allclose(model.cluster_centers_, wanted.cluster_centers_)
    with pytest.raises(ValueError, match="must be 'auto' when the 'weights'"):
        model.set_params(gamma=1.0).fit(X)


@pytest.mark.parametrize("gamma", [0, -1.0, "b", np.nan])
def test_gamma_that_is_none(gamma):
    with pytest.raises(ValueError, match="gamma"):
        RobustTransformerKMeans(2, gamma=gamma).fit(np.eye(5))
