"""Estimators that run a circuit which the user built."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

from sklearn_kmtrf import TransformerKMeans, _validation
from sklearn_kmtrf.circuits import iterate, lloyd_circuit, soft_circuit
from sklearn_kmtrf.kernels import _blocks


def samples(n=307, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) + 3.0


@pytest.mark.parametrize("scratch", ["one-hot", "binary"])
@pytest.mark.parametrize("attention", ["euclidean", "dot_product"])
@pytest.mark.parametrize("sample_attention", ["diagonal", "full"])
@pytest.mark.parametrize("rows", [31, 1000])
def test_the_constructed_circuit_gives_the_answer_of_the_kernel(
    scratch, attention, sample_attention, rows, monkeypatch
):
    monkeypatch.setattr(_blocks, "BLOCK_ELEMENTS", rows)
    monkeypatch.setattr(_blocks, "_FEWEST_ROWS", rows)
    X = samples()
    circuit = lloyd_circuit(
        5, 7, scratch=scratch, attention=attention, sample_attention=sample_attention
    )
    kernel = TransformerKMeans(7, random_state=0, n_init=2).fit(X)
    model = TransformerKMeans(7, random_state=0, n_init=2, weights=circuit).fit(X)
    np.testing.assert_array_equal(model.labels_, kernel.labels_)
    assert model.n_iter_ == kernel.n_iter_
    np.testing.assert_allclose(model.cluster_centers_, kernel.cluster_centers_)
    np.testing.assert_allclose(model.objective_history_, kernel.objective_history_)
    assert model.circuit_ is circuit
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_the_very_circuit_is_run():
    # At gamma = 2 the circuit is far from Lloyd, and the estimator goes where it goes.
    X, start = samples(), samples()[:4]
    circuit = lloyd_circuit(5, 4, gamma=2.0)
    trajectory = iterate(circuit, torch.from_numpy(X), torch.from_numpy(start), 3)
    params = dict(init=start, tol=0, max_iter=3)
    model = TransformerKMeans(4, weights=circuit, **params).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, trajectory[-1].centers)
    lloyd = TransformerKMeans(4, **params).fit(X)
    assert np.abs(model.cluster_centers_ - lloyd.cluster_centers_).max() > 0.01
    # Its history is the inertia of its centers with its labels.
    for output, value in zip(trajectory, model.objective_history_, strict=True):
        own = output.centers.numpy()[output.labels.numpy()]
        assert value == pytest.approx(((X - own) ** 2).sum())


def test_empty_clusters_are_relocated_between_iterations():
    X = samples()
    start = X[:4].copy()
    start[2:] += 1e3
    kernel = TransformerKMeans(4, init=start).fit(X)
    model = TransformerKMeans(4, init=start, weights=lloyd_circuit(5, 4)).fit(X)
    np.testing.assert_array_equal(model.labels_, kernel.labels_)
    assert model.n_iter_ == kernel.n_iter_


def test_a_circuit_in_single_precision():
    X = samples().astype(np.float32)
    circuit = lloyd_circuit(5, 7, dtype=torch.float32)
    model = TransformerKMeans(7, random_state=0, weights=circuit).fit(X)
    kernel = TransformerKMeans(7, random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_, kernel.labels_)


def test_clone_pickle_and_the_circuit_itself_stay_as_they_are():
    X, circuit = samples(), lloyd_circuit(5, 7)
    before = {k: v.clone() for k, v in circuit.state_dict().items()}
    model = TransformerKMeans(7, random_state=0, weights=circuit).fit(X)
    for copy in (pickle.loads(pickle.dumps(model)), clone(model).fit(X)):
        np.testing.assert_array_equal(copy.predict(X), model.labels_)
    assert all(torch.equal(before[k], v) for k, v in circuit.state_dict().items())


@pytest.mark.parametrize(
    ("circuit", "X", "message"),
    [
        (lloyd_circuit(4, 7), samples(), r"n_features of the data = 5. Got .* for 4"),
        (lloyd_circuit(5, 6), samples(), r"n_clusters = 7. Got .* for 6"),
        (soft_circuit(5, 7, gamma=1.0), samples(), r"\['lloyd'\]. Got 'soft"),
        (lloyd_circuit(5, 7), sp.csr_array(samples()), "dense"),
        (lloyd_circuit(5, 7), samples() * 1e200, "floating-point range"),
        (
            lloyd_circuit(5, 7, sample_attention="full"),
            samples(4099),
            "at most 4096 samples. Got 4099",
        ),
    ],
)
def test_a_circuit_that_does_not_fit(circuit, X, message):
    with pytest.raises(ValueError, match=message):
        TransformerKMeans(7, weights=circuit).fit(X)


def test_a_circuit_of_more_attention_weights_than_memory(monkeypatch):
    monkeypatch.setattr(_validation, "MOST_UPDATE_WEIGHTS", 2000)
    model = TransformerKMeans(7, weights=lloyd_circuit(5, 7))
    with pytest.raises(ValueError, match=r"at most 2000 pairs.*Got 307 x 7"):
        model.fit(samples())


def test_a_circuit_takes_no_sample_weights():
    model = TransformerKMeans(7, weights=lloyd_circuit(5, 7))
    with pytest.raises(ValueError, match="sample_weight must be None"):
        model.fit(samples(), sample_weight=np.ones(307))
