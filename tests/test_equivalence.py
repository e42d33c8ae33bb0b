"""Circuit, kernel and plain NumPy: one algorithm, the same after every iteration."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_kmtrf import TransformerKMeans
from sklearn_kmtrf.circuits import iterate, lloyd_circuit
from sklearn_kmtrf.kernels import _blocks
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._frame import Frame
from sklearn_kmtrf.kernels._samples import samples_of
from tests import _reference
from tests._cases import is_stable, problems

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
