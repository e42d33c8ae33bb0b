"""Circuit, kernel and plain NumPy: one algorithm, the same after every iteration."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_kmtrf import (
    RobustTransformerKMeans,
    SoftTransformerKMeans,
    TransformerKMeans,
    TrimmedTransformerKMeans,
)
from sklearn_kmtrf.circuits import iterate, lloyd_circuit
from sklearn_kmtrf.kernels import _blocks
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._frame import Frame
from sklearn_kmtrf.kernels._robust import RobustAssignment
from sklearn_kmtrf.kernels._samples import samples_of
from sklearn_kmtrf.kernels._soft import SoftAssignment
from sklearn_kmtrf.kernels._trimmed import TrimmedAssignment, kept_mass
from sklearn_kmtrf.kernels._weighing import Labels, SmallLabels
from tests import _reference
from tests._cases import is_stable, problems
from tests.circuits.test_equivalence import (
    robust_radius,
    robust_trajectories,
    soft_gamma,
    soft_trajectories,
    trimmed_trajectories,
)

N_ITERATIONS = 10


def lloyd_is_stable(X, C):
    """Whether no row is so close to call that two right programs may differ."""
    return is_stable(X, C, _reference.lloyd, N_ITERATIONS)


def kernel_iterations(X, C):
    """Centers and labels of the kernel after every iteration, nothing relocated."""
    samples = samples_of(X, torch.device("cpu"), Frame(np.zeros(X.shape[1])))
    assignment, centers = Assignment(samples, None), torch.from_numpy(C)
    for _ in range(N_ITERATIONS):
        assignment.move_to(centers)
        centers = assignment.means(assignment.sums)
        yield centers.numpy(), assignment.labels.numpy()


@pytest.mark.parametrize("sparse", [False, True])
def test_circuit_kernel_and_numpy_agree(sparse, monkeypatch):
    monkeypatch.setattr(_blocks, "BLOCK_ELEMENTS", 2**11)
    monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 29)
    n_problems = 0
    for problem in problems(lloyd_is_stable):
        X, C = problem.X, problem.C
        circuit = lloyd_circuit(X.shape[1], len(C))
        records = iterate(
            circuit, torch.from_numpy(X), torch.from_numpy(C), N_ITERATIONS
        )
        oracle = C
        data = sp.csr_array(X) if sparse else X
        for record, (centers, labels) in zip(
            records, kernel_iterations(data, C), strict=True
        ):
            before = oracle
            oracle, wanted = _reference.lloyd(X, oracle)
            np.testing.assert_allclose(
                centers, oracle, atol=1e-10, err_msg=problem.name
            )
            np.testing.assert_allclose(
                record.centers, oracle, atol=1e-10, err_msg=problem.name
            )
            # Centers that duplicates brought together are one place with two labels.
            for given in (labels, record.codes.argmax(1).numpy()):
                np.testing.assert_allclose(before[given], before[wanted], atol=1e-10)
        n_problems += 1
    assert n_problems >= 50


def test_estimator_performs_the_iterations_of_its_circuit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(307, 5))
    start = X[:7].copy()
    centers = torch.from_numpy(start)
    model = TransformerKMeans(7, init=start, tol=0).fit(X)
    for n in range(1, model.n_iter_ + 1):
        centers = model.circuit_(torch.from_numpy(X), centers).centers
        stopped = TransformerKMeans(7, init=start, tol=0, max_iter=n).fit(X)
        np.testing.assert_allclose(stopped.cluster_centers_, centers, atol=1e-10)


# The variants


def weighed_iterations(assignment, C):
    """Centers of a kernel after every iteration, nothing relocated."""
    centers = torch.from_numpy(C)
    for _ in range(N_ITERATIONS):
        assignment.move_to(centers)
        centers = assignment.means(assignment.sums)
        yield centers.numpy()


def assert_kernel_agrees(make, trajectories, kind, monkeypatch):
    """The kernel that `make` makes is as the oracle after every iteration."""
    monkeypatch.setattr(_blocks, "BLOCK_ELEMENTS", 2**11)
    monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 29)
    n_problems = 0
    for problem, expected in trajectories:
        X = sp.csr_array(problem.X) if kind == "sparse" else problem.X
        frame = Frame(np.zeros(problem.X.shape[1]))
        samples = samples_of(X, torch.device("cpu"), frame)
        if kind == "small" and samples.whole is None:
            continue
        nearest = (SmallLabels if kind == "small" else Labels)(samples, None)
        found = weighed_iterations(make(nearest, problem), problem.C)
        for centers, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(
                centers, wanted, rtol=0, atol=1e-10, err_msg=problem.name
            )
        n_problems += 1
    assert n_problems >= 35


@pytest.mark.parametrize("kind", ["dense", "sparse", "small"])
def test_trimmed_kernel_and_numpy_agree(kind, monkeypatch):
    def make(nearest, problem):
        mass = kept_mass(0.13, len(problem.X), None)
        return TrimmedAssignment(nearest, None, mass)

    assert_kernel_agrees(make, trimmed_trajectories(0.13), kind, monkeypatch)


@pytest.mark.parametrize("kind", ["dense", "sparse", "small"])
def test_robust_kernel_and_numpy_agree(kind, monkeypatch):
    def make(nearest, problem):
        radius = robust_radius(problem.X, problem.C)
        return RobustAssignment(nearest, None, radius**2)

    assert_kernel_agrees(make, robust_trajectories(), kind, monkeypatch)


@pytest.mark.parametrize("sparse", [False, True])
def test_soft_kernel_and_numpy_agree(sparse, monkeypatch):
    monkeypatch.setattr(_blocks, "BLOCK_ELEMENTS", 2**11)
    monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 29)
    for problem, expected in soft_trajectories():
        X = sp.csr_array(problem.X) if sparse else problem.X
        samples = samples_of(X, torch.device("cpu"), Frame(np.zeros(X.shape[1])))
        gamma, centers = soft_gamma(problem.X, problem.C), torch.from_numpy(problem.C)
        assignment = SoftAssignment(samples, None, gamma)
        for wanted in expected:
            assignment.move_to(centers)
            centers = assignment.next_centers()
            np.testing.assert_allclose(
                centers, wanted, rtol=0, atol=1e-10, err_msg=problem.name
            )


@pytest.mark.parametrize(
    ("cls", "params"),
    [
        (TrimmedTransformerKMeans, {"trim_fraction": 0.13}),
        (RobustTransformerKMeans, {}),
        (RobustTransformerKMeans, {"gamma": 0.2}),
        (SoftTransformerKMeans, {"gamma": 3.0}),
    ],
)
def test_estimator_performs_the_iterations_of_its_own_circuit(cls, params):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(307, 5)), rng.uniform(-99, 99, size=(23, 5))])
    start = X[:7].copy()
    params = {**params, "init": start, "tol": 0}
    model = cls(7, **params).fit(X)
    np.testing.assert_allclose(model.initial_centers_, start, atol=1e-14)
    centers = torch.from_numpy(start)
    for n in range(1, min(model.n_iter_, 40) + 1):
        centers = model.circuit_(torch.from_numpy(X), centers).centers
        stopped = cls(7, **{**params, "max_iter": n}).fit(X)
        np.testing.assert_allclose(stopped.cluster_centers_, centers, atol=1e-10)
    assert n > 5
