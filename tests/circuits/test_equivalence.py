"""Circuit = textbook algorithm, after every one of ten iterations."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from sklearn_kmtrf.circuits import (
    iterate,
    lloyd_circuit,
    medoids_circuit,
    robust_circuit,
    soft_circuit,
    spherical_circuit,
    trimmed_circuit,
)
from tests import _reference as reference
from tests._cases import is_decided, is_stable, problems

N_ITERATIONS = 10
every_scratch = pytest.mark.parametrize("scratch", ["one-hot", "binary"])
every_attention = pytest.mark.parametrize("attention", ["euclidean", "dot_product"])


def trajectories(found, step):
    """Problems with the oracle's centers after each iteration; at least fifty."""
    assert len(found) >= 50
    pairs = []
    for problem in found:
        centers, expected = problem.C, []
        for _ in range(N_ITERATIONS):
            centers = step(problem.X, centers)[0]
            expected.append(centers)
        pairs.append((problem, expected))
    return pairs


def assert_same_trajectory(circuit, problem, expected, *, reembed=True):
    """Centers equal the oracle's after each iteration; returns the last record."""
    samples, centers = torch.from_numpy(problem.X), torch.from_numpy(problem.C)
    trajectory = iterate(circuit, samples, centers, N_ITERATIONS, reembed=reembed)
    for number, output in enumerate(trajectory):
        np.testing.assert_allclose(
            output.centers.numpy(),
            expected[number],
            rtol=0,
            atol=1e-10,
            err_msg=f"{problem.name}, iteration {number}",
        )
    return output


def size(problem):
    return {"n_features": problem.X.shape[1], "n_clusters": len(problem.C)}


@cache
def lloyd_trajectories():
    return trajectories(
        problems(lambda X, C: is_stable(X, C, reference.lloyd, N_ITERATIONS)),
        reference.lloyd,
    )


@every_scratch
@every_attention
@pytest.mark.parametrize(
    ("sample_attention", "reembed"), [("diagonal", True), ("full", False)]
)
def test_lloyd(scratch, attention, sample_attention, reembed):
    for problem, expected in lloyd_trajectories():
        circuit = lloyd_circuit(
            **size(problem),
            scratch=scratch,
            attention=attention,
            sample_attention=sample_attention,
        )
        last = assert_same_trajectory(circuit, problem, expected, reembed=reembed)
        # The residual stream ends with the codes, nothing of the old ones.
        codes = circuit.layout.codes(dtype=torch.float64, device="cpu")
        assert torch.equal(last.codes, codes[last.labels]), problem.name


@every_scratch
@pytest.mark.parametrize("attention", ["euclidean", "dot_product"])
def test_lloyd__one_cluster_needs_no_code(scratch, attention):
    samples = torch.arange(10.0, 16.0, dtype=torch.float64)[:, None]
    for name in (scratch, "none"):
        circuit = lloyd_circuit(1, 1, scratch=name, attention=attention)
        torch.testing.assert_close(
            circuit(samples, samples[:1]).centers, samples.new_tensor([[12.5]])
        )


def test_lloyd__labels():
    for problem, _ in lloyd_trajectories():
        circuit = lloyd_circuit(**size(problem), scratch="binary")
        output = circuit(torch.from_numpy(problem.X), torch.from_numpy(problem.C))
        expected = reference.lloyd(problem.X, problem.C)[1]
        np.testing.assert_array_equal(output.labels.numpy(), expected, problem.name)


def soft_gamma(X, C):
    nearest = reference.squared_distances(X, C).min(axis=1)
    return 2 / (1 + float(np.median(nearest)))


def has_soft_digits(X, C):
    """Whether no centers coincide and no center's mass underflows."""
    if len(np.unique(C, axis=0)) < len(C):
        return False
    gamma = soft_gamma(X, C)
    for _ in range(N_ITERATIONS):
        C, P = reference.soft(X, C, gamma)
        mass = P.sum(axis=0)
        if ((mass > 0) & (mass < 1e-290)).any():
            return False
    return True


def soft_trajectories():
    pairs = []
    for problem in problems(has_soft_digits):
        gamma = soft_gamma(problem.X, problem.C)
        centers, expected = problem.C, []
        for _ in range(N_ITERATIONS):
            centers = reference.soft(problem.X, centers, gamma)[0]
            expected.append(centers)
        pairs.append((problem, expected))
    assert len(pairs) >= 50
    return pairs


@every_attention
def test_soft(attention):
    for problem, expected in soft_trajectories():
        gamma = soft_gamma(problem.X, problem.C)
        circuit = soft_circuit(**size(problem), gamma=gamma, attention=attention)
        assert_same_trajectory(circuit, problem, expected, reembed=False)


def cosine_distances(X, C):
    return 1 - reference.unit(X) @ reference.unit(C).T


def has_directions(X, C):
    """Whether all rows have a direction and one nearest center throughout."""
    # Equal directions tie only up to rounding; exact ties: test_variants.
    if not (C.any(axis=1).all() and X.any(axis=1).all()):
        return False
    return is_decided(cosine_distances(X, C)) and is_stable(
        X, C, reference.spherical, N_ITERATIONS, cosine_distances
    )


@cache
def spherical_trajectories():
    return trajectories(problems(has_directions), reference.spherical)


@pytest.mark.parametrize(("scratch", "reembed"), [("one-hot", True), ("binary", False)])
def test_spherical(scratch, reembed):
    for problem, expected in spherical_trajectories():
        circuit = spherical_circuit(**size(problem), scratch=scratch)
        assert_same_trajectory(circuit, problem, expected, reembed=reembed)


def is_cut_clearly(X, C, trim_fraction):
    """Whether the trimmed samples are clear in every iteration but the first."""
    n_trimmed = math.ceil(trim_fraction * len(X) - 1e-9)
    if n_trimmed == 0:
        return True
    for iteration in range(N_ITERATIONS):
        nearest = np.sort(reference.squared_distances(X, C).min(axis=1))
        last, first_out = nearest[-n_trimmed - 1], nearest[-n_trimmed]
        if iteration > 0 and 0 < first_out - last <= 1e-9 * (1 + last):
            return False
        C = reference.trimmed(X, C, trim_fraction)[0]
    return True


@cache
def trimmed_trajectories(trim_fraction):
    def step(X, C):
        return reference.trimmed(X, C, trim_fraction)

    def accept(X, C):
        return is_cut_clearly(X, C, trim_fraction) and is_stable(
            X, C, step, N_ITERATIONS
        )

    return trajectories(problems(accept), step)


@pytest.mark.parametrize(
    ("scratch", "attention", "trim_fraction"),
    [
        ("one-hot", "euclidean", 0.13),
        ("one-hot", "dot_product", 0.13),
        ("binary", "euclidean", 0.13),
        ("binary", "dot_product", 0.13),
        ("one-hot", "dot_product", 0.0),
        ("binary", "euclidean", 0.0),
    ],
)
def test_trimmed(scratch, attention, trim_fraction):
    for problem, expected in trimmed_trajectories(trim_fraction):
        circuit = trimmed_circuit(
            **size(problem),
            trim_fraction=trim_fraction,
            scratch=scratch,
            attention=attention,
        )
        assert_same_trajectory(circuit, problem, expected)


def robust_radius(X, C):
    nearest = reference.squared_distances(X, C).min(axis=1)
    return math.sqrt(0.5 + 2 * float(np.median(nearest)))


@cache
def robust_trajectories():
    def accept(X, C):
        radius = robust_radius(X, C)
        return is_stable(
            X, C, lambda X, C: reference.robust(X, C, radius), N_ITERATIONS
        )

    pairs = []
    for problem in problems(accept):
        radius = robust_radius(problem.X, problem.C)
        centers, expected = problem.C, []
        for _ in range(N_ITERATIONS):
            centers = reference.robust(problem.X, centers, radius)[0]
            expected.append(centers)
        pairs.append((problem, expected))
    assert len(pairs) >= 50
    return pairs


@every_scratch
@every_attention
def test_robust(scratch, attention):
    n_outside = 0
    for problem, expected in robust_trajectories():
        circuit = robust_circuit(
            **size(problem),
            radius=robust_radius(problem.X, problem.C),
            scratch=scratch,
            attention=attention,
        )
        last = assert_same_trajectory(circuit, problem, expected)
        n_outside += (last.attention_weights["update"].sum(-2) == 0).sum().item()
    assert n_outside > 100  # the radius leaves samples out


@every_scratch
def test_medoids(scratch):
    found = problems(lambda X, C: True)
    assert len(found) >= 50
    for number, problem in enumerate(found):
        rng = np.random.default_rng(number)
        circuit = medoids_circuit(**size(problem), scratch=scratch)
        samples, centers = torch.from_numpy(problem.X), torch.from_numpy(problem.C)
        expected = problem.C
        for _ in range(N_ITERATIONS):
            noise = rng.gumbel(size=len(problem.X))
            centers = circuit(samples, centers, noise=torch.from_numpy(noise)).centers
            expected, _ = reference.medoid_proposal(problem.X, expected, noise)
            np.testing.assert_array_equal(centers.numpy(), expected, problem.name)
