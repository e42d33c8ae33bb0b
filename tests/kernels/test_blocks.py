"""Blocks of dense arrays, memory maps and CSR matrices say the same of their rows."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_kmtrf.kernels import _blocks
from sklearn_kmtrf.kernels._frame import Frame, frame_of_csr, frame_of_dense
from sklearn_kmtrf.kernels._nearest import Centers
from sklearn_kmtrf.kernels._samples import is_memory_map, samples_of

CPU = torch.device("cpu")
SHIFTED = Frame(np.arange(7.0), 0.5)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few rows, so that small data are many blocks."""
    monkeypatch.setattr(_blocks, "BLOCK_ELEMENTS", 64)
    monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 5)


def data(dtype=np.float64):
    X = np.random.default_rng(0).normal(size=(101, 7)) * 3
    return np.where(X > 1, X, 0).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "frame",
    [Frame(np.zeros(7)), Frame(np.full(7, 0.5)), SHIFTED],
    ids=["plain", "near", "shifted"],
)
@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, sp.csr_array])
def test_blocks_against_numpy(make, frame, dtype, small_blocks):
    X = data(dtype)
    framed = (X.astype(np.float64) - frame.shift) * frame.scale
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(3, 7))
    labels = rng.integers(0, 3, size=101)
    weights = rng.exponential(size=101)
    samples = samples_of(make(X), CPU, frame)
    sums, seen = torch.zeros(3, 7, dtype=torch.float64), 0
    for rows, block in samples.blocks(3):
        assert rows.start == seen
        seen = rows.stop
        own = torch.from_numpy(labels[rows])
        np.testing.assert_allclose(
            block.products(Centers(torch.from_numpy(centers))),
            framed[rows] @ centers.T,
            atol=1e-12,
        )
        np.testing.assert_allclose(block.squared_norms, (framed[rows] ** 2).sum(1))
        assert (block.squared_magnitudes >= block.squared_norms * (1 - 1e-12)).all()
        np.testing.assert_allclose(
            block.rows(torch.tensor([2, 0])), framed[rows][[2, 0]]
        )
        np.testing.assert_allclose(
            block.distances_to(torch.from_numpy(centers), own),
            ((framed[rows] - centers[labels[rows]]) ** 2).sum(1),
        )
        own_weights = torch.from_numpy(weights[rows])
        block.add_sums_(sums, own, own_weights)
        block.add_sums_(sums, own, own_weights)
        block.add_sums_(sums, own, own_weights, sign=-1)
    assert seen == 101
    wanted = np.stack([weights * (labels == j) for j in range(3)]) @ framed
    np.testing.assert_allclose(sums, wanted, atol=1e-12)
    np.testing.assert_allclose(samples.rows([100, 3, 3]), framed[[100, 3, 3]])
    index = torch.tensor([99, 3, 50, 7, 8, 9, 10, 11])
    for part, block in samples.parts(index, 3):
        np.testing.assert_allclose(
            block.products(Centers(torch.from_numpy(centers))),
            framed[part] @ centers.T,
            atol=1e-12,
        )
    np.testing.assert_allclose(samples.mean, framed.mean(0), atol=1e-12)
    np.testing.assert_allclose(samples.squared_norms, (framed**2).sum(1))
    assert samples.mean_variance() == pytest.approx(framed.var(0).mean())


@pytest.mark.parametrize("keep", [True, False])
def test_tokens_are_the_framed_rows_in_float32(keep, small_blocks):
    X = data()
    framed = (X - SHIFTED.shift) * SHIFTED.scale
    for rows, block in samples_of(X, CPU, SHIFTED, keep=keep).blocks(2):
        assert block.tokens.dtype == torch.float32
        np.testing.assert_allclose(block.tokens[:, :7], framed[rows], rtol=1e-6)
        lengths = (framed[rows] ** 2).sum(1)
        assert np.all(block.tokens[:, 7].double().numpy() >= lengths)
        np.testing.assert_allclose(block.tokens[:, 7], lengths, rtol=1e-5)
        assert (block.tokens[:, 8] == 1).all()


def test_a_memory_map_is_not_kept(tmp_path):
    np.save(tmp_path / "X.npy", data())
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for X in (mapped, mapped[3:, 1:], np.asarray(mapped)):
        assert is_memory_map(X)
        assert samples_of(X, CPU)._keep is False
    assert not is_memory_map(data()[3:])


def test_sparse_row_on_its_center_is_at_distance_zero(small_blocks):
    X = data()
    for rows, block in samples_of(sp.csr_array(X), CPU, SHIFTED).blocks(1):
        own = torch.arange(rows.stop - rows.start)
        centers = block.rows(own)
        assert (block.distances_to(centers, own) == 0).all()


def test_empty_rows_and_an_empty_matrix(small_blocks):
    X = sp.csr_array((101, 7))
    samples = samples_of(X, CPU)
    centers = torch.ones(2, 7, dtype=torch.float64)
    for rows, block in samples.blocks(2):
        assert (block.products(Centers(centers)) == 0).all()
        assert (block.squared_norms == 0).all()
        own = torch.zeros(rows.stop - rows.start, dtype=torch.int64)
        assert (block.distances_to(centers, own) == 7).all()


# The frame


def test_frame_of_integers_is_exact():
    X = np.random.default_rng(0).integers(0, 1000, size=(997, 3)).astype(float) + 1e9
    frame = frame_of_dense(X, 50)
    framed = frame.enter(X)
    np.testing.assert_array_equal(framed / frame.scale + frame.shift, X)
    assert np.abs(framed.mean(0)).max() < 10


def test_frame_lies_near_the_mean():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(997, 3)) * [1, 1e-8, 1e8] + [1e6, 5.0, -3.0]
    frame = frame_of_dense(X, 50)
    spread = X.max(0) - X.min(0)
    assert np.all(np.abs(frame.shift - X.mean(0)) <= spread / 500)


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1.0, 1e200, 1.7e308])
def test_frame_brings_every_scale_near_one(scale):
    X = np.random.default_rng(2).uniform(-1, 1, size=(97, 3)) * scale
    frame = frame_of_dense(X, 10)
    framed = frame.enter(X)
    assert np.isfinite(framed).all()
    # The scale itself stays between 2^-1000 and 2^1000.
    assert 2.0**-40 < np.abs(framed).max() < 2.0**30
    np.testing.assert_allclose(frame.leave(framed), X, rtol=1e-12, atol=1e-320)
    sparse = frame_of_csr(sp.csr_array(X))
    assert np.log2(sparse.scale) == np.round(np.log2(sparse.scale))
    assert 2.0**-40 < np.abs(X * sparse.scale).max() < 2.0**30


def test_frame_of_constant_columns_is_the_constant():
    X = np.full((7, 2), [7.3, -1e-3])
    frame = frame_of_dense(X, 3)
    np.testing.assert_array_equal(frame.shift, [7.3, -1e-3])
    assert frame.scale == 1.0


def test_entering_makes_a_new_array_in_c_order():
    X = np.asfortranarray(data())
    for frame in (SHIFTED, Frame(np.full(7, 0.3), 2.0**-5), Frame(np.zeros(7))):
        framed = frame.enter(X)
        assert not np.shares_memory(framed, X)
        assert framed.flags.c_contiguous
        np.testing.assert_allclose(framed, (X - frame.shift) * frame.scale, atol=1e-12)
