"""Finite gamma: the gap to Lloyd's algorithm stays under the stated bound."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from sklearn_kmtrf.circuits import iterate, lloyd_circuit
from tests import _reference as reference

GAMMAS = [3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4]


def problem(n=101, d=2, k=5, seed=0):
    """Samples in the unit square around k centers."""
    rng = np.random.default_rng(seed)
    X = rng.random((k, d))[rng.integers(0, k, n)] + 0.1 * rng.normal(size=(n, d))
    X = (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
    return X, X[:k].copy()


def one_hot_bound(X, C, gamma, attention):
    """Bound of lloyd_circuit's docstring for each center that has samples."""
    D = np.sort(reference.squared_distances(X, C), axis=1)
    eps = (len(C) - 1) * np.exp(-gamma * (D[:, 1] - D[:, 0]))
    new, labels = reference.lloyd(X, C)
    reach = np.linalg.norm(X[:, None] - new[None], axis=2)
    member = labels[:, None] == np.arange(len(C))
    mass = (member * (1 - eps[:, None])).sum(axis=0)
    return np.where(mass > 0, eps @ reach / np.where(mass > 0, mass, 1), np.inf)


def binary_bound(X, C, gamma, attention):
    """Bound of doc/circuits.rst for binary scratch, centers with samples."""
    k, n_bits = len(C), (len(C) - 1).bit_length()
    D = np.sort(reference.squared_distances(X, C), axis=1)
    eps = (k - 1) * np.exp(-gamma * (D[:, 1] - D[:, 0]))
    eta = math.sqrt(n_bits) * eps
    cost = eta**2 + (n_bits * eps if attention == "dot_product" else 0)
    new, labels = reference.lloyd(X, C)
    bound = np.full(k, np.inf)
    for j in range(k):
        own = labels == j
        if own.any():
            reach = np.linalg.norm(X - new[j], axis=1)
            blur = 1 - np.exp(-gamma * cost[own])
            spill = np.exp(-gamma * np.maximum(1 - eta[~own], 0) ** 2) @ reach[~own]
            stay = np.exp(-gamma / 2) * np.linalg.norm(C[j] - new[j])
            mass = max(np.exp(-gamma * cost[own]).sum(), 1e-300)
            reset = np.exp(-gamma) * np.linalg.norm(C - C[j], axis=1).sum()
            bound[j] = (blur @ reach[own] + spill + stay) / mass + reset
    return bound


@pytest.mark.parametrize("attention", ["euclidean", "dot_product"])
@pytest.mark.parametrize(
    ("scratch", "bound_of"), [("one-hot", one_hot_bound), ("binary", binary_bound)]
)
def test_gap__under_the_bound__and_falling(attention, scratch, bound_of):
    total, n_bounded = np.zeros(len(GAMMAS)), 0
    for seed in range(20):
        X, C = problem(seed=seed)
        new = reference.lloyd(X, C)[0]
        for number, gamma in enumerate(GAMMAS):
            circuit = lloyd_circuit(
                2, 5, scratch=scratch, attention=attention, gamma=gamma
            )
            centers = circuit(torch.from_numpy(X), torch.from_numpy(C)).centers
            gap = np.linalg.norm(centers.numpy() - new, axis=1)
            bound = bound_of(X, C, gamma, attention)
            assert (gap <= bound + 1e-12).all(), (seed, gamma)
            total[number] += gap.max()
            # A bound that says something: less than the unit square.
            n_bounded += (bound < 1).all()
    assert n_bounded >= 20
    # Below gamma = 30 the heads that compare binary codes blur too, and two
    # errors can cancel.
    first = 0 if scratch == "one-hot" else 2
    assert (np.diff(total[first:]) < 0).all(), total
    assert total[-1] / 20 < (2e-3 if scratch == "one-hot" else 2e-2)


def test_gap__well_separated__vanishes():
    X = np.array([[0.0], [1.0], [10.0], [11.0], [13.0]])
    samples, centers = torch.from_numpy(X), torch.tensor([[2.0], [9.0]]).double()
    for scratch in ("one-hot", "binary"):
        output = lloyd_circuit(1, 2, scratch=scratch, gamma=60.0)(samples, centers)
        expected = np.array([[0.5], [34 / 3]])
        np.testing.assert_allclose(output.centers.numpy(), expected, atol=1e-11)


def test_empty_center__finite_gamma_and_binary__stays():
    """The bound for a center without samples: its own token wins by gamma / 2."""
    X = np.array([[0.0], [1.0], [2.0]])
    samples, centers = torch.from_numpy(X), torch.tensor([[1.0], [50.0]]).double()
    for gamma in (20.0, 80.0):
        output = lloyd_circuit(1, 2, scratch="binary", gamma=gamma)(samples, centers)
        gap = abs(output.centers[1, 0].item() - 50)
        bound = math.exp(-gamma / 2) * 147 + math.exp(-gamma) * 49
        assert 0 <= gap <= bound * (1 + 1e-9) + 1e-12
    assert abs(output.centers[0, 0].item() - 1) < 1e-12


@pytest.mark.parametrize(
    ("scratch", "attention", "tolerance"),
    [
        ("one-hot", "euclidean", 5e-4),
        ("one-hot", "dot_product", 5e-4),
        ("binary", "euclidean", 5e-3),
    ],
)
def test_validation_problem__follows_lloyd(scratch, attention, tolerance):
    """gamma = 10^4, k = 5, d = 2, n = 10,000 in the unit square, 10 iterations."""
    X, C = problem(n=10_000, seed=1)
    circuit = lloyd_circuit(2, 5, scratch=scratch, attention=attention, gamma=1e4)
    trajectory = iterate(circuit, torch.from_numpy(X), torch.from_numpy(C), 10)
    for output in trajectory:
        C, labels = reference.lloyd(X, C)
        assert np.abs(output.centers.numpy() - C).max() < tolerance
        assert (output.labels.numpy() == labels).mean() > 0.995
    discrete = (output.codes - output.codes.round()).abs().amax(-1) < 1e-7
    assert discrete.sum().item() > 9700


@pytest.mark.parametrize("attention", ["euclidean", "dot_product"])
@pytest.mark.parametrize("scratch", ["one-hot", "binary"])
def test_gradients(scratch, attention):
    generator = torch.Generator().manual_seed(2)
    samples = torch.rand(7, 2, generator=generator, dtype=torch.float64)
    centers = samples[:3].clone()  # distances of exactly zero too
    circuit = lloyd_circuit(2, 3, scratch=scratch, attention=attention, gamma=2.0)

    def move(samples, centers):
        return circuit(samples, centers).centers

    assert gradcheck(move, (samples.requires_grad_(), centers.requires_grad_()))


def test_gradients__of_the_weights():
    generator = torch.Generator().manual_seed(3)
    samples = torch.rand(7, 2, generator=generator, dtype=torch.float64)
    circuit = lloyd_circuit(2, 3, scratch="binary", gamma=2.0)
    names, values = zip(*circuit.named_parameters(), strict=True)

    def move(*values):
        parameters = dict(zip(names, values, strict=True))
        inputs = (samples, samples[:3])
        return torch.func.functional_call(circuit, parameters, inputs).centers

    values = [value.detach().clone().requires_grad_() for value in values]
    assert gradcheck(move, values)
