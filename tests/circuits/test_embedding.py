"""Tokens: named parts, codes and unit rows."""

import pytest
import torch

from sklearn_kmtrf.circuits import TokenLayout, unit_rows


def codes(k, scratch):
    layout = TokenLayout(2, k, scratch)
    return layout.codes(dtype=torch.float64, device="cpu")


def test_layout__parts_by_name():
    layout = TokenLayout(7, 5, "binary", norm=True, one=True)
    assert layout.widths == {"features": 7, "scratch": 3, "norm": 1, "one": 1}
    assert layout.width == 12
    names = ("features", "scratch", "norm", "one")
    bounds = [(layout.slice(n).start, layout.slice(n).stop) for n in names]
    assert bounds == [(0, 7), (7, 10), (10, 11), (11, 12)]


@pytest.mark.parametrize(
    ("k", "n_bits"),
    [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1000, 10), (1024, 10)],
)
def test_binary__ceil_log2_bits__all_distinct(k, n_bits):
    table = codes(k, "binary")
    assert table.shape == (k, n_bits)
    assert len({tuple(row) for row in table.tolist()}) == k


def test_codes__literal():
    assert codes(3, "one-hot").tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    expected = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert codes(5, "binary").tolist() == expected
    assert codes(3, "none").shape == (3, 0)


def test_embed__and_back():
    layout = TokenLayout(2, 3, norm=True, one=True)
    features = torch.tensor([[3.0, 4.0], [0.0, 2.0], [1.0, 1.0]]).double()
    tokens = layout.embed(features, codes(3, "one-hot"))
    expected = [[3, 4, 1, 0, 0, 25, 1], [0, 2, 0, 1, 0, 4, 1], [1, 1, 0, 0, 1, 2, 1]]
    assert tokens.tolist() == expected
    back, scratch = layout.unembed(tokens)
    assert torch.equal(back, features)
    assert torch.equal(scratch, codes(3, "one-hot"))
    assert layout.embed(features)[:, 2:5].abs().sum() == 0


def test_replace__one_part_only():
    layout = TokenLayout(2, 3)
    tokens = torch.arange(10, dtype=torch.float64).reshape(2, 5)
    new = layout.replace(tokens, "features", torch.full((2, 2), -1.0).double())
    assert new.tolist() == [[-1, -1, 2, 3, 4], [-1, -1, 7, 8, 9]]


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1.0, 1e160, 1e200])
def test_unit_rows__any_scale(scale):
    values = [[3.0, 4.0], [0.0, -2.0], [0.0, 0.0]]
    rows = torch.tensor(values, dtype=torch.float64) * scale
    values = [[0.6, 0.8], [0.0, -1.0], [0.0, 0.0]]
    expected = torch.tensor(values, dtype=torch.float64)
    torch.testing.assert_close(unit_rows(rows), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((2, 3, "unary"), ValueError, "scratch must be one of .* Got 'unary' instead"),
        ((0, 3), ValueError, "n_features must be at least 1. Got 0 instead"),
        ((2, 3.0), TypeError, "n_clusters must be an integer. Got 3.0 instead"),
        ((2, True), TypeError, "n_clusters must be an integer. Got True instead"),
    ],
)
def test_layout__mistakes(arguments, error, match):
    with pytest.raises(error, match=match):
        TokenLayout(*arguments)


def test_slice__unknown_part():
    with pytest.raises(ValueError, match=r"part must be one of .* Got 'code' instead"):
        TokenLayout(2, 3).slice("code")
