"""SoftTransformerKMeans: shares, free energy, and the inverse temperature."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from sklearn_kmtrf import SoftTransformerKMeans
from sklearn_kmtrf.circuits import soft_circuit
from sklearn_kmtrf.kernels import _blocks
from tests import _reference


@pytest.fixture(params=["whole", "streamed"])
def path(request, monkeypatch):
    """Run small data in one block and in many."""
    if request.param == "streamed":
        monkeypatch.setattr(_blocks, "BLOCK_ELEMENTS", 2**9)
        monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 31)


def mixture(n=240, d=3, k=3, sd=0.5, seed=0):
    """Samples of k normal clusters 4 apart or more, and their classes."""
    rng = np.random.default_rng(seed)
    centers = 4 * np.arange(k)[:, None] * np.ones(d) + rng.uniform(0, 1, size=(k, d))
    classes = np.arange(n) % k
    return centers[classes] + sd * rng.normal(size=(n, d)), classes


def free_energy(X, C, gamma, weights=None):
    """F by its definition."""
    rows = -logsumexp(-gamma * _reference.squared_distances(X, C), axis=1) / gamma
    return rows.sum() if weights is None else rows @ weights


def agrees_with_itself(model, X, weights=None):
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.inertia_ == -model.score(X, sample_weight=weights)
    np.testing.assert_array_equal(model.transform(X).argmin(1), model.labels_)
    shares = model.predict_proba(X)
    np.testing.assert_array_equal(shares.argmax(1), model.labels_)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-6)
    assert ((shares >= 0) & (shares <= 1)).all()


# Against an independent program


@pytest.mark.parametrize("gamma", [0.05, 0.7, 30.0])
def test_iterations_are_those_of_plain_em(gamma, path):
    for seed in range(4):
        X, _ = mixture(seed=seed, sd=1.0)
        C = X[[0, 1, 5, 9]]
        for n in (1, 2, 7, 40):
            wanted = C
            for _ in range(n):
                wanted, _ = _reference.soft(X, wanted, gamma)
            model = SoftTransformerKMeans(4, gamma=gamma, init=C, max_iter=n, tol=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(X)
            np.testing.assert_allclose(model.cluster_centers_, wanted, rtol=1e-8)
            F = free_energy(X, wanted, gamma)
            assert model.inertia_ == pytest.approx(F, rel=1e-8, abs=1e-8)
            assert model.objective_history_[-1] == pytest.approx(F, rel=1e-8, abs=1e-8)
            agrees_with_itself(model, X)


def test_shares_are_the_softmax_of_distances(path):
    X, _ = mixture()
    model = SoftTransformerKMeans(3, gamma=0.4, random_state=0).fit(X)
    new = np.random.default_rng(1).normal(size=(57, 3)) * 5
    logits = -0.4 * _reference.squared_distances(new, model.cluster_centers_)
    wanted = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    np.testing.assert_allclose(model.predict_proba(new), wanted, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(
        model.predict_proba(new.astype(np.float32)), wanted, rtol=1e-4, atol=1e-6
    )


def test_free_energy_never_rises(path):
    for seed in range(2):
        X = np.random.default_rng(seed).standard_t(2, size=(211, 2))
        for gamma in ("auto", 1e-3, 0.5, 1e4):
            model = SoftTransformerKMeans(
                5, gamma=gamma, tol=0, n_init=3, random_state=seed
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(X)
            for history in model.objective_histories_:
                size = np.abs(history).max() + len(X) / model.gamma_
                assert (np.diff(history) <= 1e-12 * size).all()
            assert model.objective_history_[-1] == pytest.approx(model.inertia_)
            agrees_with_itself(model, X)


def test_best_of_several_starts_is_kept():
    X, _ = mixture(k=6, n=300)
    model = SoftTransformerKMeans(
        6, gamma=2.0, init="random", n_init=8, random_state=0
    ).fit(X)
    last = [history[-1] for history in model.objective_histories_]
    assert len(last) == 8
    assert model.objective_history_[-1] == min(last)
    assert max(last) > 1.5 * min(last)


# The inverse temperature


@pytest.mark.parametrize(("sd", "d"), [(0.2, 1), (0.5, 3), (0.8, 8)])
def test_automatic_gamma_is_that_of_the_mixture(sd, d):
    X, _ = mixture(n=3000, d=d, sd=sd)
    model = SoftTransformerKMeans(3, random_state=0, n_init=5).fit(X)
    assert model.gamma_ == pytest.approx(1 / (2 * sd**2), rel=0.05)
    # By maximum likelihood: half the dimension over the mean scatter.
    D = _reference.squared_distances(X, model.cluster_centers_)
    scatter = (model.predict_proba(X) * D).sum(1).mean()
    assert model.gamma_ == pytest.approx(d / 2 / scatter, rel=1e-3)


def test_automatic_gamma_beside_an_independent_estimation():
    X, _ = mixture(n=90, sd=1.5)
    C = X[:3]
    gamma = 3 / (2 * _reference.squared_distances(X, C).min(1).mean())
    for _ in range(20):
        C, P = _reference.soft(X, C, gamma)
        gamma = len(X) * 3 / (2 * (P * _reference.squared_distances(X, C)).sum())
    model = SoftTransformerKMeans(3, init=X[:3], max_iter=1).fit(X)
    assert model.gamma_ == pytest.approx(gamma, rel=1e-9)
    np.testing.assert_allclose(model.initial_centers_, C, rtol=1e-9)
    wanted, _ = _reference.soft(X, C, gamma)
    np.testing.assert_allclose(model.cluster_centers_, wanted, rtol=1e-9)


def test_large_gamma_is_k_means():
    X, classes = mixture()
    for gamma in (1e3, 1e30, 1e300):
        model = SoftTransformerKMeans(3, gamma=gamma, init=X[:3]).fit(X)
        wanted = KMeans(3, init=X[:3], n_init=1).fit(X)
        np.testing.assert_array_equal(model.labels_, classes)
        np.testing.assert_allclose(model.cluster_centers_, wanted.cluster_centers_)
        assert model.inertia_ == pytest.approx(wanted.inertia_)
        np.testing.assert_array_equal(model.predict_proba(X), np.eye(3)[classes])


def test_ties_share_equally_at_any_gamma():
    X = np.array([[0.1, 0.0], [0.3, 0.0], [0.2, 0.7], [0.2, -0.1]])
    for gamma in (1e-300, 1.0, 1e8, 1e300):
        model = SoftTransformerKMeans(2, gamma=gamma, init=X[:2], max_iter=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X)
        shares = model.predict_proba(X[2:])
        np.testing.assert_allclose(shares, 0.5, rtol=1e-6)
        agrees_with_itself(model, X)


def test_small_gamma_finds_the_mean_of_all_and_warns():
    X, _ = mixture()
    model = SoftTransformerKMeans(3, gamma=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"distinct centers \(1\)"):
        model.fit(X)
    np.testing.assert_allclose(model.cluster_centers_, [X.mean(0)] * 3, rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), 1 / 3, rtol=1e-6)


def test_only_coincident_centers_are_warned_of():
    # Two centers in a normal cluster of variance s part at gamma = 1 / (2 s).
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2)) * [2, 1]
    s = X[:, 0].var()
    params = dict(init=[[-2.0, 0], [2, 0]], tol=0, max_iter=3000)
    with pytest.warns(ConvergenceWarning, match=r"distinct centers \(1\)"):
        SoftTransformerKMeans(2, gamma=0.9 / (2 * s), **params).fit(X)
    model = SoftTransformerKMeans(2, gamma=1.15 / (2 * s), **params).fit(X)
    assert np.ptp(model.cluster_centers_[:, 0]) > 0.5


@pytest.mark.parametrize("gamma", [0, -1.0, "b", np.nan, np.inf, None])
def test_gamma_that_is_none(gamma):
    model = SoftTransformerKMeans(2, gamma=gamma)
    with pytest.raises(ValueError, match="'gamma' parameter of SoftTransformerKMeans"):
        model.fit(np.eye(5))
    assert not hasattr(model, "cluster_centers_")


def test_samples_on_their_centers():
    X = np.array([[0.0, 0], [0, 0], [4, 0], [4, 0]])
    for gamma in ("auto", 10.0):
        model = SoftTransformerKMeans(2, gamma=gamma, init=X[[0, 2]]).fit(X)
        wanted = [[1, 0], [1, 0], [0, 1], [0, 1]]
        np.testing.assert_allclose(model.predict_proba(X), wanted, atol=1e-6)
        assert np.isfinite([model.gamma_, model.inertia_]).all()
        agrees_with_itself(model, X)
    constant = np.full((7, 2), 3.25)
    with pytest.warns(ConvergenceWarning, match="distinct centers"):
        model = SoftTransformerKMeans(2, random_state=0).fit(constant)
    np.testing.assert_array_equal(model.cluster_centers_, constant[:2])


# Data of all kinds


def test_units_and_origin_do_not_matter(path):
    X, _ = mixture()
    wanted = SoftTransformerKMeans(3, random_state=0).fit(X)
    for scale in (1e-150, 1e-3, 1e5, 1e150):
        model = SoftTransformerKMeans(3, random_state=0).fit(X * scale)
        np.testing.assert_array_equal(model.labels_, wanted.labels_)
        np.testing.assert_allclose(
            model.cluster_centers_ / scale, wanted.cluster_centers_
        )
        np.testing.assert_allclose(
            model.predict_proba(X * scale), wanted.predict_proba(X), atol=1e-9
        )
        agrees_with_itself(model, X * scale)
    far = SoftTransformerKMeans(3, random_state=0).fit(X + 1e6)
    assert far.gamma_ == pytest.approx(wanted.gamma_, rel=1e-6)
    np.testing.assert_array_equal(far.labels_, wanted.labels_)


def test_float32_far_from_the_origin():
    X, classes = mixture(d=2, sd=0.1)
    X = (X + 1e4).astype(np.float32)
    for gamma in ("auto", 1.0):
        model = SoftTransformerKMeans(3, gamma=gamma, init=X[:3]).fit(X)
        np.testing.assert_array_equal(model.labels_, classes)
        assert model.predict_proba(X).dtype == np.float32
        assert model.gamma_ > 0
        agrees_with_itself(model, X)


def test_rows_beyond_the_range_of_squares():
    X, _ = mixture()
    model = SoftTransformerKMeans(3, init=X[:3]).fit(X)
    far = np.array([[1e200] * 3, [-1e200] * 3, [0.5] * 3])
    shares = model.predict_proba(far)
    np.testing.assert_array_equal(shares[:2], np.eye(3)[model.predict(far[:2])])
    assert shares[2].sum() == pytest.approx(1)
    assert model.score(far) == -np.inf
    assert np.isfinite(model.score(far, sample_weight=[0, 0, 1]))


def test_sparse_is_dense(path):
    X, _ = mixture(d=6)
    X = np.where(np.abs(X) > 1, X, 0)
    for gamma in ("auto", 0.3):
        dense = SoftTransformerKMeans(3, gamma=gamma, init=X[:3]).fit(X)
        for container in (sp.csr_array, sp.csr_matrix, sp.coo_array):
            model = SoftTransformerKMeans(3, gamma=gamma, init=X[:3]).fit(container(X))
            np.testing.assert_array_equal(model.labels_, dense.labels_)
            np.testing.assert_allclose(
                model.cluster_centers_, dense.cluster_centers_, atol=1e-9
            )
            assert model.inertia_ == pytest.approx(dense.inertia_)
            agrees_with_itself(model, sp.csr_array(X))


def test_weights_are_repetition(path):
    rng = np.random.default_rng(2)
    X, counts = rng.normal(size=(97, 2)), rng.integers(0, 4, size=97)
    counts[50:54] = 0
    X[50:54] = [1e3, -50]
    for gamma in ("auto", 0.9):
        params = dict(gamma=gamma, init=X[[5, 11, 60]], tol=0)
        weighed = SoftTransformerKMeans(3, **params).fit(X, sample_weight=counts)
        repeated = SoftTransformerKMeans(3, **params).fit(np.repeat(X, counts, 0))
        np.testing.assert_allclose(
            weighed.cluster_centers_, repeated.cluster_centers_, rtol=1e-7
        )
        assert weighed.gamma_ == pytest.approx(repeated.gamma_, rel=1e-9)
        assert weighed.inertia_ == pytest.approx(repeated.inertia_)
        agrees_with_itself(weighed, X, counts)


def test_center_without_any_share_keeps_its_place():
    X, _ = mixture(k=2)
    C = np.vstack([X[:2], [[900.0] * 3]])
    model = SoftTransformerKMeans(3, gamma=1.0, init=C).fit(X)
    np.testing.assert_array_equal(model.cluster_centers_[2], C[2])
    assert np.isfinite(model.inertia_)


# The circuit


def test_given_circuit_is_run():
    X, _ = mixture()
    C = X[:3] + 0.1
    circuit = soft_circuit(3, 3, gamma=0.8)
    wanted = SoftTransformerKMeans(3, gamma=0.8, init=C).fit(X)
    model = SoftTransformerKMeans(3, weights=circuit, init=C).fit(X)
    assert model.circuit_ is circuit
    assert model.gamma_ == pytest.approx(0.8)
    np.testing.assert_allclose(model.cluster_centers_, wanted.cluster_centers_)
    np.testing.assert_allclose(model.objective_history_, wanted.objective_history_)
    agrees_with_itself(model, X)
    with pytest.raises(ValueError, match="must be 'auto' when the 'weights'"):
        model.set_params(gamma=1.0).fit(X)
