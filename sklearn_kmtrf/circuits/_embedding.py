"""Tokens: the named parts of a token and how samples and centers become tokens.

A token is a row of the residual stream. Its channels are addressed by the name
of the part to which they belong, never by number:

=========  ==========  ===================================================
part       width       holds
=========  ==========  ===================================================
features   D           the sample or the center
scratch    S           a cluster's code; zero on a sample not yet assigned
norm       0 or 1      the squared norm of the features (Theorem 2.2)
one        0 or 1      the constant one (Theorem 2.2)
=========  ==========  ===================================================
"""

from dataclasses import dataclass

import torch

SCRATCHES = ("one-hot", "binary", "none")


def check_count(name, value):
    """Require a whole number of at least one and return it as an int."""
    try:
        whole = value.__index__()
    except AttributeError:
        whole = None
    if whole is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer. Got {value!r} instead.")
    if whole < 1:
        raise ValueError(f"{name} must be at least 1. Got {whole} instead.")
    return whole


@dataclass(frozen=True)
class TokenLayout:
    """The named parts of a token.

    Parameters
    ----------
    n_features : int
        Width D of the features.

    n_clusters : int
        Number K of centers that the scratch tells apart.

    scratch : {"one-hot", "binary", "none"}, default="one-hot"
        How the scratch codes a cluster. One-hot: S = K channels, the code of
        center j is the unit vector j. Binary: S = ceil(log2 K) channels, the
        binary digits of j, lowest first. None: S = 0.

    norm : bool, default=False
        Whether tokens carry the squared norm of their features.

    one : bool, default=False
        Whether tokens carry a constant one.

    Attributes
    ----------
    widths : dict of str to int
        Width of each part, in the order of the channels.

    width : int
        Width M of a token.

    Examples
    --------
    >>> from sklearn_kmtrf.circuits import TokenLayout
    >>> layout = TokenLayout(n_features=2, n_clusters=5, scratch="binary")
    >>> layout.widths
    {'features': 2, 'scratch': 3, 'norm': 0, 'one': 0}
    >>> layout.slice("scratch")
    slice(2, 5, None)
    """

    n_features: int
    n_clusters: int
    scratch: str = "one-hot"
    norm: bool = False
    one: bool = False

    def __post_init__(self):
        for name in ("n_features", "n_clusters"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        if self.scratch not in SCRATCHES:
            raise ValueError(
                f"scratch must be one of {SCRATCHES}. Got {self.scratch!r} instead."
            )

    @property
    def widths(self):
        """Width of each part, in the order of the channels."""
        k = self.n_clusters
        # (k - 1).bit_length() is ceil(log2(k)) without rounding.
        scratch = {"one-hot": k, "binary": (k - 1).bit_length(), "none": 0}
        return {
            "features": self.n_features,
            "scratch": scratch[self.scratch],
            "norm": int(self.norm),
            "one": int(self.one),
        }

    @property
    def width(self):
        """Width M of a token."""
        return sum(self.widths.values())

    def slice(self, part):
        """Give the channels of a part.

        Parameters
        ----------
        part : {"features", "scratch", "norm", "one"}
            Name of the part.

        Returns
        -------
        channels : slice

        Raises
        ------
        ValueError
            If there is no part of that name.
        """
        widths = self.widths
        if part not in widths:
            raise ValueError(
                f"part must be one of {list(widths)}. Got {part!r} instead."
            )
        names = list(widths)
        start = sum(widths[name] for name in names[: names.index(part)])
        return slice(start, start + widths[part])

    def part(self, tokens, part):
        """Cut a part out of tokens (..., M)."""
        return tokens[..., self.slice(part)]

    def replace(self, tokens, part, values):
        """Copy of tokens (..., M) in which a part holds other values."""
        channels = self.slice(part)
        before, after = tokens[..., : channels.start], tokens[..., channels.stop :]
        return torch.cat([before, values, after], dim=-1)

    def codes(self, *, dtype, device):
        """Codes of the centers.

        Parameters
        ----------
        dtype : torch.dtype
            Floating-point type of the codes.

        device : torch.device or str
            Where the codes are made.

        Returns
        -------
        codes : tensor of shape (K, S)
            Row j is the code of center j.
        """
        k, width = self.n_clusters, self.widths["scratch"]
        if self.scratch == "one-hot":
            return torch.eye(k, dtype=dtype, device=device)
        number = torch.arange(k, device=device).unsqueeze(1)  # (K, 1)
        digit = torch.arange(width, device=device)  # (S,)
        return ((number >> digit) & 1).to(dtype)  # (K, S)

    def embed(self, features, codes=None):
        """Make tokens from features and codes.

        Parameters
        ----------
        features : tensor of shape (..., R, D)
            Samples or centers.

        codes : tensor of shape (R, S), default=None
            Codes of the rows; None leaves the scratch empty.

        Returns
        -------
        tokens : tensor of shape (..., R, M)
        """
        rows, widths = features.shape[:-1], self.widths
        if codes is None:
            scratch = features.new_zeros((*rows, widths["scratch"]))
        else:
            scratch = codes.expand(*rows, widths["scratch"])
        parts = [features, scratch]
        if self.norm:
            parts.append(features.square().sum(-1, keepdim=True))
        if self.one:
            parts.append(features.new_ones((*rows, 1)))
        return torch.cat(parts, dim=-1)

    def unembed(self, tokens):
        """Features (..., R, D) and codes (..., R, S) of tokens (..., R, M)."""
        return self.part(tokens, "features"), self.part(tokens, "scratch")


def unit_rows(rows):
    """Scale rows to Euclidean length one; zero rows stay zero.

    This is RMSNorm with the gain 1 / sqrt(D). Each row is divided by its
    largest entry first, so that no square overflows or underflows.

    Parameters
    ----------
    rows : tensor of shape (..., D)
        Rows of any finite length.

    Returns
    -------
    rows : tensor of shape (..., D)

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import unit_rows
    >>> unit_rows(torch.tensor([[3e200, 4e200], [0.0, 0.0]], dtype=torch.float64))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]], dtype=torch.float64)
    """
    largest = rows.abs().amax(-1, keepdim=True)
    empty = largest == 0
    rows = rows / largest.masked_fill(empty, 1)
    length = rows.square().sum(-1, keepdim=True).masked_fill(empty, 1).sqrt()
    return rows / length
