"""Scores, and the gradient of the squared distances."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from sklearn_kmtrf.circuits import (
    AttentionHead,
    HeadConfig,
    TokenLayout,
    dot_product_scores,
    euclidean_scores,
)


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_scores__by_hand():
    queries = torch.tensor([[0.0, 0.0], [1.0, 2.0]]).double()
    keys = torch.tensor([[3.0, 4.0], [1.0, 2.0], [0.0, 1.0]]).double()
    expected = torch.tensor([[-25, -5, -1], [-8, 0, -2]]).double()
    torch.testing.assert_close(euclidean_scores(queries, keys), expected)
    assert dot_product_scores(queries, keys).tolist() == [[0, 0, 0], [11, 5, 2]]


def test_euclidean__far_from_the_origin__accurate():
    queries, keys = random(5, 3) + 1e8, random(30, 3, seed=1) + 1e8
    expected = [
        [-sum((a - b) ** 2 for a, b in zip(q, k, strict=True)) for k in keys.tolist()]
        for q in queries.tolist()
    ]
    expected = torch.tensor(expected, dtype=torch.float64)
    actual = euclidean_scores(queries, keys)
    torch.testing.assert_close(actual, expected, rtol=1e-14, atol=0)


def test_euclidean__equal_keys__equal_scores():
    keys = random(1, 7).expand(101, 7)
    scores = euclidean_scores(random(53, 7, seed=1), keys)
    assert (scores == scores[:, :1]).all()


def test_euclidean__gradients__also_twice__also_at_zero():
    queries, keys = random(2, 5, 3), random(7, 3, seed=1)
    keys[2] = queries[0, 1]
    inputs = (queries.requires_grad_(), keys.requires_grad_())
    assert gradcheck(euclidean_scores, inputs)
    assert gradgradcheck(euclidean_scores, inputs)


def head_with_weights(**config):
    """A head on tokens of two features, with weights given by hand."""
    head = AttentionHead(HeadConfig(**config), TokenLayout(2, 1, "none"))
    with torch.no_grad():
        head.query_weight.copy_(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
        head.query_bias.copy_(torch.tensor([1.0, 2.0]))
        head.key_weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
        head.key_bias.copy_(torch.tensor([0.0, 2.0]))
        head.value_weight.copy_(torch.tensor([[0.0, 0.0], [3.0, 0.0]]))
        head.value_bias.copy_(torch.tensor([5.0, 0.0]))
    return head


def test_head__projections_biases_scaling():
    """q = (t_2 + 1, 2), k = (u_1, 2), v = (5, 3 u_1)."""
    tokens = torch.tensor([[0.0, 1.0]]).double()
    others = torch.tensor([[2.0, 9.0], [3.0, 9.0]]).double()
    # q = (2, 2): squared distances 0 and 1, over sqrt(2).
    p = 1 / (1 + math.exp(-3 / math.sqrt(2)))
    head = head_with_weights(gamma=3.0, scaled=True)
    added, weights = head(tokens, others)
    torch.testing.assert_close(weights, torch.tensor([[p, 1 - p]], dtype=torch.float64))
    expected = torch.tensor([[5.0, 3 * (2 * p + 3 * (1 - p))]], dtype=torch.float64)
    torch.testing.assert_close(added, expected)


def test_head__own_margin():
    """The token itself is a third key, at distance 1, lowered by the margin."""
    tokens = torch.tensor([[1.0, 1.0]]).double()
    others = torch.tensor([[2.0, 9.0], [3.0, 9.0]]).double()
    head = head_with_weights(gamma=1.0, own_margin=0.5)
    added, weights = head(tokens, others)
    z = [1.0, math.exp(-1), math.exp(-1.5)]
    p = [each / sum(z) for each in z]
    torch.testing.assert_close(weights, torch.tensor([p[:2]], dtype=torch.float64))
    expected = torch.tensor(
        [[5.0, 3 * (2 * p[0] + 3 * p[1] + p[2])]], dtype=torch.float64
    )
    torch.testing.assert_close(added, expected)


def test_head__diagonal__weights_of_one():
    tokens = random(5, 2)
    added, weights = head_with_weights(pattern="diagonal")(tokens, tokens)
    assert weights.tolist() == [1.0] * 5
    expected = torch.stack([torch.full((5,), 5.0).double(), 3 * tokens[:, 0]], -1)
    torch.testing.assert_close(added, expected)


def test_head__dropout__needs_a_generator_and_keeps_the_mean():
    head = AttentionHead(HeadConfig(), TokenLayout(2, 1, "none"), dropout=0.25)
    tokens = random(11, 2)
    assert (head.eval()(tokens, tokens)[1] == 1 / 11).all()
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator"):
        head.train()(tokens, tokens)
    generator = torch.Generator().manual_seed(1)
    batch = tokens.expand(503, 11, 2)
    weights = head(batch, batch, generator=generator)[1]
    assert {round(w * 11 * 0.75, 9) for w in weights.unique().tolist()} == {0.0, 1.0}
    assert abs(weights.mean().item() * 11 - 1) < 0.01


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"score": "cosine"}, "score must be one of .* Got 'cosine' instead"),
        ({"normalizer": "argmax"}, "normalizer must be one of .* Got 'argmax'"),
        ({"gamma_rule": "auto"}, "gamma_rule must be one of .* Got 'auto'"),
        ({"pattern": "causal"}, "pattern must be one of .* Got 'causal'"),
        ({"gamma": 0.0}, "gamma must be greater than 0.* Got 0.0"),
    ],
)
def test_config__mistakes(config, match):
    with pytest.raises(ValueError, match=match):
        HeadConfig(**config)
