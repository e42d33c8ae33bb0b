"""The iteration loop: stopping, empty clusters, merging of partial sums, seeding."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.cluster import kmeans_plusplus

from sklearn_kmtrf.kernels import _assignment, _blocks, _small
from sklearn_kmtrf.kernels._accumulators import CenterSums, sums_by_label
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._frame import Frame
from sklearn_kmtrf.kernels._lloyd import lloyd
from sklearn_kmtrf.kernels._nearest import two_nearest
from sklearn_kmtrf.kernels._samples import samples_of
from sklearn_kmtrf.kernels._seeding import greedy_kmeans_plusplus
from sklearn_kmtrf.kernels._small import SmallAssignment

CPU = torch.device("cpu")


def unframed(X):
    return samples_of(X, CPU, Frame(np.zeros(X.shape[1])))


def run(X, init, weights=None, **params):
    params = {"max_iterations": 100, "tolerance": 0.0, **params}
    weights = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    start = torch.tensor(init, dtype=torch.float64)
    assignment = Assignment(unframed(np.asarray(X, dtype=float)), weights)
    return lloyd(assignment, start, **params)


def test_empty_cluster_takes_the_farthest_sample():
    # Center 1 is empty at first; the sample farthest from center 0 is the one at 9.
    # It becomes center 1, and {0, 1, 2} has mean 1.
    result = run([[0.0], [1.0], [2.0], [9.0]], [[0.0], [50.0]], max_iterations=1)
    np.testing.assert_array_equal(result.centers, [[1.0], [9.0]])
    # 1 + 0 + 1 for the three, nothing for the sample that moved.
    assert result.history == [pytest.approx(2.0)]
    assert result.objective == 2.0


def test_several_empty_clusters_take_the_farthest_in_order():
    X = [[0.0], [1.0], [5.0], [9.0], [20.0]]
    result = run(X, [[0.0], [99.0], [98.0]], max_iterations=1)
    np.testing.assert_allclose(result.centers, [[2.0], [20.0], [9.0]])


def test_weightless_sample_is_no_target():
    X, weights = [[0.0], [1.0], [5.0], [9.0]], [1.0, 1.0, 1.0, 0.0]
    result = run(X, [[0.0], [99.0]], weights, max_iterations=1)
    np.testing.assert_array_equal(result.centers, [[0.5], [5.0]])


def test_cluster_that_loses_its_last_sample_goes_to_the_heaviest():
    # 0.1 + 0.2 - 0.3 is not 0 in floating point: a rest must not pass for a mass.
    X = [[0.0], [0.2], [0.4], [7.0]]
    weights = [1.0, 1.0, 1.0, 0.1 + 0.2]
    result = run(X, [[0.0], [9.0], [99.0]], weights, max_iterations=1)
    # Center 2 takes the sample at 7 from center 1, which goes to the mean of the rest.
    np.testing.assert_allclose(result.centers, [[0.2], [0.2], [7.0]])


def test_nothing_to_relocate_when_every_sample_is_on_a_center():
    result = run([[1.0], [1.0], [4.0]], [[1.0], [4.0], [99.0]])
    np.testing.assert_array_equal(result.centers, [[1.0], [4.0], [1.0]])
    assert result.objective == 0.0 and result.converged


def test_callback_ends_the_run():
    calls = []

    def stop_at_two(objective, centers, movement):
        calls.append((objective, movement))
        return len(calls) == 2

    X = np.random.default_rng(0).normal(size=(301, 2))
    result = run(X, X[:5], on_iteration=stop_at_two)
    assert result.n_iterations == len(calls) == 2
    assert not result.converged
    assert calls[0][0] > calls[1][0]


@pytest.mark.parametrize("sparse", [False, True])
def test_objective_of_tight_far_apart_clusters_keeps_its_digits(sparse):
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 1e6], [1e6, 0.0]], 50, axis=0) + rng.normal(size=(100, 2))
    means = np.stack([X[:50].mean(0), X[50:].mean(0)])
    wanted = ((X - np.repeat(means, 50, axis=0)) ** 2).sum()
    assignment = Assignment(unframed(sp.csr_array(X) if sparse else X), None)
    assignment.move_to(torch.from_numpy(means))
    # A CSR row is not centered: 12 digits are gone before the first step.
    rel = 1e-3 if sparse else 1e-9
    assert assignment.objective() == pytest.approx(wanted, rel=rel)
    assert assignment.inertia() == pytest.approx(wanted, rel=rel)


def wandering(rng, k, d, steps):
    """Centers that move by steps of many sizes, some of them not at all."""
    centers = rng.normal(size=(k, d))
    for size in np.geomspace(1.0, 1e-9, steps):
        yield torch.from_numpy(centers.copy())
        centers = centers + rng.normal(size=(k, d)) * size * (rng.random((k, 1)) < 0.7)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("integers", [False, True])
def test_bounds_never_change_an_answer(sparse, weighted, integers, monkeypatch):
    monkeypatch.setattr(_blocks, "BLOCK_ELEMENTS", 2**9)
    monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 7)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(503, 3))
    X = np.round(2 * X) if integers else X
    weights = torch.from_numpy(rng.exponential(size=503)) if weighted else None
    samples = unframed(sp.csr_array(X) if sparse else X)
    samples.whole = None if sparse else torch.from_numpy(X)
    assignment, before = Assignment(samples, weights), None
    for number, centers in enumerate(wandering(rng, 11, 3, 40)):
        n_changed = assignment.move_to(centers)
        small = number % 2 and not sparse
        fresh = (SmallAssignment if small else Assignment)(samples, weights)
        fresh.move_to(centers)
        np.testing.assert_array_equal(assignment.labels, fresh.labels)
        for name in ("sums", "mass", "counts"):
            np.testing.assert_allclose(
                getattr(assignment.sums, name), getattr(fresh.sums, name), atol=1e-11
            )
        assert assignment.objective() == pytest.approx(fresh.inertia(), rel=1e-10)
        if before is not None:
            assert n_changed == int((before != assignment.labels).sum())
        before = assignment.labels.clone()


def test_bounds_spare_most_rows_when_centers_hardly_move(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5003, 3))
    assignment = Assignment(unframed(X), None)
    centers = torch.from_numpy(X[:7].copy())
    assignment.move_to(centers)
    seen = []

    def counted(block, centers):
        seen.append(len(block.tokens))
        return two_nearest(block, centers)

    monkeypatch.setattr(_assignment, "two_nearest", counted)
    assignment.move_to(centers + 1e-3)
    assert 0 < sum(seen) < 0.02 * len(X)


def test_partial_sums_merge_in_any_grouping():
    rng = np.random.default_rng(1)
    X, centers = rng.normal(size=(211, 3)), torch.from_numpy(rng.normal(size=(5, 3)))
    weights = torch.from_numpy(rng.exponential(size=211))
    labels = torch.from_numpy(rng.integers(0, 5, size=211))

    def part(start, stop):
        rows = slice(start, stop)
        return sums_by_label(unframed(X[rows]), weights[rows], labels[rows], centers)

    whole, merged = part(0, 211), CenterSums.zeros(centers)
    for start, stop in [(150, 211), (0, 13), (13, 150)]:
        merged.merge_(part(start, stop))
    for name in ("sums", "mass", "counts"):
        np.testing.assert_allclose(getattr(merged, name), getattr(whole, name))
    np.testing.assert_allclose(merged.means(centers), whole.means(centers))


def test_what_is_taken_away_leaves_nothing():
    rng = np.random.default_rng(1)
    X, weights = rng.normal(size=(31, 3)), torch.from_numpy(rng.random(31))
    samples, centers = unframed(X), torch.zeros(2, 3, dtype=torch.float64)
    sums = CenterSums.zeros(centers)
    block = samples.block(slice(0, 31))
    labels = torch.ones(31, dtype=torch.int64)
    sums.add_(block, labels, weights)
    for i in np.random.default_rng(2).permutation(31):
        one = torch.tensor([i])
        sums.add_(samples.block(one), labels[one], weights[one], sign=-1)
    assert (sums.sums == 0).all() and (sums.mass == 0).all()


# Seeding


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_seeding_draws_what_scikit_learn_draws(sparse, weighted, streamed, monkeypatch):
    if streamed:
        monkeypatch.setattr(_small, "MOST_WORK", 0)
    rng = np.random.default_rng(3)
    X = rng.normal(size=(503, 7))
    X = sp.csr_array(np.where(X > 0.5, X, 0)) if sparse else X
    weights = rng.exponential(size=503) * (rng.random(503) > 0.3) if weighted else None
    for seed in range(5):
        theirs = kmeans_plusplus(
            X, 23, sample_weight=weights, random_state=np.random.RandomState(seed)
        )[1]
        ours = greedy_kmeans_plusplus(
            unframed(X), weights, 23, np.random.RandomState(seed)
        )
        np.testing.assert_array_equal(ours, theirs)


def test_seeding_leaves_the_generator_where_scikit_learn_leaves_it():
    X = np.random.default_rng(4).normal(size=(101, 3))
    ours, theirs = np.random.RandomState(0), np.random.RandomState(0)
    greedy_kmeans_plusplus(unframed(X), None, 9, ours)
    kmeans_plusplus(X, 9, random_state=theirs)
    assert ours.random_sample() == theirs.random_sample()


@pytest.mark.parametrize("streamed", [False, True])
def test_seeding_takes_every_distinct_row_before_a_duplicate(streamed, monkeypatch):
    if streamed:
        monkeypatch.setattr(_small, "MOST_WORK", 0)
    X = np.repeat(np.random.default_rng(5).normal(size=(17, 3)), 30, axis=0)
    for seed in range(5):
        chosen = greedy_kmeans_plusplus(
            unframed(X), None, 17, np.random.RandomState(seed)
        )
        assert len(np.unique(X[chosen], axis=0)) == 17


def test_seeding_never_takes_a_weightless_row():
    X = np.zeros((29, 2))
    weights = np.r_[np.zeros(13), np.ones(3), np.zeros(13)]
    for seed in range(5):
        chosen = greedy_kmeans_plusplus(
            unframed(X), weights, 5, np.random.RandomState(seed)
        )
        assert (weights[chosen] > 0).all()
