"""Normalizers against literal vectors, other algorithms and their limits."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from sklearn_kmtrf.circuits import (
    NORMALIZERS,
    gumbel_noise,
    gumbel_softmax,
    hardmax,
    linear,
    normmax,
    softmax,
    sparsemax,
)

INF = math.inf
SIMPLEX = {
    "softmax": softmax,
    "hardmax": hardmax,
    "share": lambda s, **kw: hardmax(s, ties="share", **kw),
    "sparsemax": sparsemax,
    "normmax": normmax,
    "normmax2": lambda s, **kw: normmax(s, alpha=2.0, **kw),
    "normmax5": lambda s, **kw: normmax(s, alpha=5.0, **kw),
    "gumbel": lambda s, **kw: gumbel_softmax(s, noise=torch.zeros_like(s), **kw),
}
every_map = pytest.mark.parametrize("name", SIMPLEX)


def tensor(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def random_scores(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def assert_equal(actual, expected, atol=1e-15):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def threshold_by_bisection(z, power):
    """tau with sum (z - tau)_+ ** power = 1, for one row of Python floats."""
    low, high = max(z) - 1, max(z)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(max(each - middle, 0) ** power for each in z) >= 1:
            low = middle
        else:
            high = middle
    return low


def test_softmax__two_scores__logistic():
    e = math.e
    assert_equal(softmax(tensor([0.0, 1.0])), tensor([1 / (1 + e), e / (1 + e)]))
    assert_equal(
        softmax(tensor([0.0, 1.0]), gamma=2.0),
        tensor([1 / (1 + e**2), e**2 / (1 + e**2)]),
    )


def test_hardmax__ties__first_or_share():
    scores = tensor([[2.0, 5.0, 5.0], [7.0, 7.0, 7.0]])
    assert_equal(hardmax(scores), tensor([[0.0, 1, 0], [1, 0, 0]]))
    shared = tensor([[0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]])
    assert_equal(hardmax(scores, ties="share"), shared)


def test_linear__rows_over_their_sum__zero_row_is_zero():
    scores = tensor([[1.0, 4.0, 0.0], [0.0, 0.0, 0.0], [3.0, -INF, 1.0]])
    expected = tensor([[0.2, 0.8, 0], [0, 0, 0], [0.75, 0, 0.25]])
    assert_equal(linear(scores), expected)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1.0, 0.5, -1.0], [0.75, 0.25, 0.0]),
        ([0.1, 0.1, 0.1], [1 / 3, 1 / 3, 1 / 3]),
        ([3.0, 1.0, 1.0], [1.0, 0.0, 0.0]),
        ([3e16, 3e16, -3e16], [0.5, 0.5, 0.0]),
        ([-1e20, -2e20, -5e20], [1.0, 0.0, 0.0]),
        ([0.1, -INF, 0.2], [0.45, 0.0, 0.55]),
        ([-INF, -INF, -INF], [0.0, 0.0, 0.0]),
    ],
)
def test_sparsemax__literal_vectors(scores, expected):
    assert_equal(sparsemax(tensor(scores)), tensor(expected), atol=1e-15)


@pytest.mark.parametrize(
    ("scores", "gamma", "expected"),
    [
        ([1.0, 0.5, -1.0], 1.0, [0.5, 0.5, 0.0]),
        # D = 0, 1, 2, 4: m nearest while gamma sum (D_m - D_i) < 1, which is
        # 1, 3 and 9 for m = 2, 3 and 4.
        ([0.0, -1.0, -2.0, -4.0], 0.34, [0.5, 0.5, 0.0, 0.0]),
        ([0.0, -1.0, -2.0, -4.0], 0.32, [1 / 3, 1 / 3, 1 / 3, 0.0]),
        ([0.0, -1.0, -2.0, -4.0], 0.12, [1 / 3, 1 / 3, 1 / 3, 0.0]),
        ([0.0, -1.0, -2.0, -4.0], 0.11, [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_normmax__infinite_alpha__flat_on_a_support(scores, gamma, expected):
    assert_equal(normmax(tensor(scores), gamma=gamma), tensor(expected))


def test_normmax__alpha_two__closed_form():
    # The maximiser of p.s - |p|_2 is proportional to (s - tau)_+ with
    # sum (s - tau)_+^2 = 1; for s = (0, -0.2): tau^2 + (tau + 0.2)^2 = 1.
    tau = (-0.4 - math.sqrt(0.16 - 8 * (0.04 - 1))) / 4
    expected = tensor([-tau, -0.2 - tau])
    actual = normmax(tensor([0.0, -0.2]), alpha=2.0)
    assert_equal(actual, expected / expected.sum(), atol=1e-14)


@pytest.mark.parametrize("scale", [1e-5, 0.5, 1e4])
def test_sparsemax__sort_equals_bisection(scale):
    scores = random_scores(13, 17, seed=3, scale=scale)
    for row, weights in zip(scores.tolist(), sparsemax(scores), strict=True):
        tau = threshold_by_bisection(row, 1)
        expected = [max(each - tau, 0) for each in row]
        assert_equal(weights, tensor(expected), atol=1e-11)


@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.0, 5.0, 100.0, INF])
def test_normmax__maximises_its_objective(alpha):
    """No random point of the simplex has a larger p.s - |p|_alpha."""
    scores = random_scores(7, 5, seed=4)
    weights = normmax(scores, alpha=alpha)
    generator = torch.Generator().manual_seed(5)
    others = torch.rand(2003, 1, 5, generator=generator, dtype=torch.float64)
    others = others**4  # near corners and edges too
    others = others / others.sum(-1, keepdim=True)
    near = 0.99 * weights + 0.01 * others

    def objective(p):
        return (p * scores).sum(-1) - torch.linalg.vector_norm(p, alpha, dim=-1)

    assert (objective(weights) >= objective(others) - 1e-12).all()
    assert (objective(weights) >= objective(near) - 1e-12).all()


@pytest.mark.parametrize("alpha", [1.5, 2.0, 7.0])
def test_normmax__bisection_in_python(alpha):
    scores = random_scores(11, 7, seed=6)
    for row, weights in zip(scores.tolist(), normmax(scores, alpha=alpha), strict=True):
        tau = threshold_by_bisection(row, alpha / (alpha - 1))
        q = tensor([max(each - tau, 0) ** (1 / (alpha - 1)) for each in row])
        assert_equal(weights, q / q.sum(), atol=1e-12)


def test_normmax__support_is_that_of_sparsemax():
    scores = random_scores(101, 11, seed=7)
    assert torch.equal(normmax(scores) > 0, sparsemax(scores) > 0)


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "normmax", "normmax2"])
def test_gamma__limits(name):
    normalizer = SIMPLEX[name]
    scores = tensor([[0.3, 0.7, 0.1], [0.4, -1.0, 0.4]])
    hard = tensor([[0.0, 1, 0], [0.5, 0, 0.5]])
    assert_equal(normalizer(scores, gamma=INF), hard)
    assert_equal(normalizer(scores, gamma=1e6), hard, atol=1e-12)
    assert_equal(
        normalizer(scores, gamma=1e-9), torch.full_like(scores, 1 / 3), atol=1e-8
    )


@every_map
def test_gamma__multiplies_scores(name):
    scores = random_scores(5, 7, seed=8)
    gammas = tensor([[0.5], [1.0], [2.0], [3.0], [7.0]])
    expected = SIMPLEX[name](gammas * scores)
    assert_equal(SIMPLEX[name](scores, gamma=gammas), expected, atol=1e-14)
    assert_equal(SIMPLEX[name](scores, gamma=3.0)[3], expected[3], atol=1e-14)


@every_map
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_simplex__masks_extremes_shifts(name, dtype):
    normalizer = SIMPLEX[name]
    scores = tensor(
        [[1e30, -1e30, 1e30], [-INF, 0.0, -1e30], [-INF] * 3, [0.25, -INF, 0.5]], dtype
    )
    weights = normalizer(scores)
    assert weights.dtype == dtype
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all()
    assert (weights[scores == -INF] == 0).all()
    sums = tensor([1.0, 1.0, 0.0, 1.0], dtype)
    assert_equal(weights.sum(-1), sums, atol=4 * torch.finfo(dtype).eps)
    # A mask is as if the score were not there.
    assert_equal(weights[3, ::2], normalizer(scores[3, ::2]), atol=1e-7)
    # Powers of two: shifting is exact.
    assert_equal(normalizer(scores[3:] + 8), weights[3:], atol=0)


@every_map
def test_simplex__any_axis(name):
    scores = random_scores(3, 5, 7, seed=9)
    for dim in (0, 1, -2):
        expected = SIMPLEX[name](scores.movedim(dim, -1)).movedim(-1, dim)
        assert_equal(SIMPLEX[name](scores, dim=dim), expected)


@pytest.mark.parametrize(
    "name", ["softmax", "sparsemax", "normmax2", "normmax5", "gumbel"]
)
def test_gradients(name):
    scores = random_scores(3, 5, seed=10)
    scores[1, 2] = -INF
    free = scores > -INF

    def of_free(values):
        full = torch.full_like(scores, -INF).masked_scatter(free, values)
        return SIMPLEX[name](full, gamma=1.3)

    assert gradcheck(of_free, scores[free].requires_grad_())


def test_linear__gradients():
    scores = random_scores(3, 5, seed=11).abs() + 0.1
    assert gradcheck(linear, scores.requires_grad_())
    empty = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    linear(empty).sum().backward()
    assert (empty.grad == 0).all()


def test_gradients__row_of_masks__zero():
    for name in ("softmax", "sparsemax", "normmax2"):
        scores = torch.full((2, 3), -INF, dtype=torch.float64, requires_grad=True)
        SIMPLEX[name](scores).sum().backward()
        assert (scores.grad == 0).all(), name


def test_gumbel__frequencies_are_those_of_softmax():
    scores = tensor([0.0, 1.0, -INF, 2.0])
    generator = torch.Generator().manual_seed(12)
    n = 20011
    draws = gumbel_softmax(scores.expand(n, 4), hard=True, generator=generator)
    p = softmax(scores)
    error = (p * (1 - p) / n).sqrt()
    assert ((draws.mean(0) - p).abs() <= 4 * error).all()
    assert set(draws.unique().tolist()) == {0.0, 1.0}


def test_gumbel__soft__formula_and_sharpness():
    noise = tensor([0.3, -0.2, 1.1])
    scores = tensor([0.5, 1.0, 0.0])
    soft = gumbel_softmax(scores, gamma=2.0, sharpness=3.0, noise=noise)
    z = [math.exp(3 * (2 * s + g)) for s, g in [(0.5, 0.3), (1.0, -0.2), (0.0, 1.1)]]
    assert_equal(soft, tensor(z) / sum(z), atol=1e-15)


def test_gumbel__hard__straight_through():
    noise, scores = tensor([0.3, -0.2, 1.1]), tensor([0.5, 1.0, 0.0])
    weight = tensor([1.0, 2.0, 5.0])
    gradients = []
    for hard in (False, True):
        leaf = scores.clone().requires_grad_()
        out = gumbel_softmax(leaf, noise=noise, hard=hard)
        (out * weight).sum().backward()
        gradients.append(leaf.grad)
    assert_equal(out.detach(), tensor([0.0, 0.0, 1.0]), atol=0)
    assert_equal(gradients[0], gradients[1])
    assert gradients[0].abs().max() > 0.1


def test_gumbel__infinite_gamma__chooses_among_the_largest():
    scores = tensor([1.0, 3.0, 3.0])
    noise = tensor([9.0, 0.0, 1.0])
    out = gumbel_softmax(scores, gamma=INF, noise=noise, hard=True)
    assert_equal(out, tensor([0.0, 0.0, 1.0]))


def test_gumbel_noise__mean_and_variance():
    generator = torch.Generator().manual_seed(13)
    noise = gumbel_noise((100003,), generator=generator, dtype=torch.float64)
    assert abs(noise.mean().item() - 0.5772156649) < 0.02
    assert abs(noise.var().item() - math.pi**2 / 6) < 0.04


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan])
def test_gamma__wrong_values__one_sentence(name, gamma):
    with pytest.raises(ValueError, match=r"gamma must be greater than 0.* Got"):
        NORMALIZERS[name](tensor([1.0, 2.0]), gamma=gamma)


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "normmax"])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_scores__not_numbers__one_sentence(name, bad):
    with pytest.raises(ValueError, match="below infinity"):
        NORMALIZERS[name](torch.tensor([0.0, bad, 1.0]))


def test_mistakes__one_sentence_each():
    scores = tensor([1.0, 2.0])
    with pytest.raises(TypeError, match="gamma must be a number"):
        softmax(scores, gamma="1")
    with pytest.raises(ValueError, match="ties must be 'first' or 'share'"):
        hardmax(scores, ties="last")
    with pytest.raises(ValueError, match="alpha must be at least 1"):
        normmax(scores, alpha=0.5)
    with pytest.raises(ValueError, match="sharpness must be greater than 0"):
        gumbel_softmax(scores, sharpness=0.0, noise=scores)
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator"):
        gumbel_softmax(scores)
    with pytest.raises(TypeError, match="scores must be floating-point"):
        sparsemax(torch.tensor([1, 2]))
