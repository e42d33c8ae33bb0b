"""The parts of a circuit that hold weights: attention heads, feed-forward network."""

import math
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.functional import linear as project

from sklearn_kmtrf.circuits._attention import GAMMA_RULES, SCORES, attend
from sklearn_kmtrf.circuits._normalizers import NORMALIZERS, check_gamma, gumbel_noise


def _check_choice(name, value, choices):
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {list(choices)}. Got {value!r} instead."
        )


@dataclass(frozen=True)
class HeadConfig:
    """What an attention head is, but for its matrices.

    Parameters
    ----------
    score : {"euclidean", "dot_product", "distance"}, default="euclidean"
        Score of a query and a key.

    normalizer : str, default="softmax"
        Name of the map from scores to weights, a key of `NORMALIZERS`.

    options : dict, default={}
        Further arguments of the normalizer, such as ``{"ties": "share"}``.

    gamma : float, default=1.0
        Inverse temperature, or the number from which `gamma_rule` starts.

    gamma_rule : str, default="constant"
        How each query's gamma follows from its scores: "constant" (it is
        `gamma`), "inverse_mean" (`gamma` over the mean distance),
        "common_radius" (`gamma` is the radius), "trimming" (`gamma` is the
        share of samples to leave out).

    pattern : {"full", "diagonal"}, default="full"
        Whether a token attends to all tokens or to itself only.

    same_code : bool, default=False
        Whether keys whose scratch is not the query's are masked.

    own_margin : float, default=None
        If given, each query token is one more key, with its own score lowered
        by this margin; infinity means that it is seen only by a query that
        sees nothing else. None: no such key.

    scaled : bool, default=False
        Whether scores are divided by the square root of the width of the keys.

    does : str, default=""
        What the head does, for `ClusteringCircuit.describe`.
    """

    score: str = "euclidean"
    normalizer: str = "softmax"
    options: dict = field(default_factory=dict)
    gamma: float = 1.0
    gamma_rule: str = "constant"
    pattern: str = "full"
    same_code: bool = False
    own_margin: float | None = None
    scaled: bool = False
    does: str = ""

    def __post_init__(self):
        _check_choice("score", self.score, SCORES)
        _check_choice("normalizer", self.normalizer, NORMALIZERS)
        _check_choice("gamma_rule", self.gamma_rule, GAMMA_RULES)
        _check_choice("pattern", self.pattern, ("full", "diagonal"))
        # A share to trim may be zero; an inverse temperature may not.
        if self.gamma_rule != "trimming":
            check_gamma(self.gamma)


def _parameter(*shape, dtype, device):
    return nn.Parameter(torch.zeros(shape, dtype=dtype, device=device))


class AttentionHead(nn.Module):
    r"""One attention head: tokens T attend to tokens U.

    .. math:: Q = T W_q^\top + b_q, \quad K = U W_k^\top + b_k, \quad
              V = U W_v^\top + b_v, \quad
              \mathrm{head}(T \to U) = \mathrm{normalizer}(s(Q, K))\, V

    Parameters
    ----------
    config : HeadConfig
        Score, normalizer and pattern.

    layout : TokenLayout
        The named parts of the tokens.

    dropout : float, default=0.0
        Share of attention weights dropped in training mode.

    dtype : torch.dtype, default=torch.float64
        Floating-point type of the parameters.

    device : torch.device or str, default="cpu"
        Where the parameters are.

    Attributes
    ----------
    query_weight, key_weight, value_weight : parameters of shape (M, M)
        The matrices, zero until they are written.

    query_bias, key_bias, value_bias : parameters of shape (M,)
        The biases.
    """

    def __init__(
        self, config, layout, *, dropout=0.0, dtype=torch.float64, device="cpu"
    ):
        super().__init__()
        self.config, self.layout, self.dropout = config, layout, dropout
        m = layout.width
        for name in ("query", "key", "value"):
            weight = _parameter(m, m, dtype=dtype, device=device)
            self.register_parameter(f"{name}_weight", weight)
            bias = _parameter(m, dtype=dtype, device=device)
            self.register_parameter(f"{name}_bias", bias)

    def forward(self, queries_from, keys_from, *, generator=None, noise=None):
        """Let tokens attend.

        Parameters
        ----------
        queries_from : tensor of shape (..., Q, M)
            Tokens that attend.

        keys_from : tensor of shape (..., R, M)
            Tokens that are attended to.

        generator : torch.Generator, default=None
            Source of the noise of a Gumbel soft-max and of dropout.

        noise : tensor of shape (..., R), default=None
            Gumbel noise, one number for each key, instead of drawing it.

        Returns
        -------
        added : tensor of shape (..., Q, M)
            What the head adds to the residual stream of the queries.

        weights : tensor of shape (..., Q, R), or (..., Q) if diagonal
            Attention weights.
        """
        queries = project(queries_from, self.query_weight, self.query_bias)
        keys = project(keys_from, self.key_weight, self.key_bias)
        values = project(keys_from, self.value_weight, self.value_bias)
        if self.config.pattern == "diagonal":
            scores = self._pair_scores(queries, keys)  # (..., Q, 1)
            weights = self._normalize(scores, generator=generator, noise=noise)
            return weights * values, weights.squeeze(-1)
        scores = self._score(queries, keys)  # (..., Q, R)
        if self.config.same_code:
            same = self._same_code(queries_from, keys_from)
            scores = scores.masked_fill(~same, -math.inf)
        if self.config.own_margin is None:
            weights = self._normalize(scores, generator=generator, noise=noise)
            return attend(weights, values), weights
        # Each query token is one more key: its last column is its own.
        own_keys = project(queries_from, self.key_weight, self.key_bias)
        own_values = project(queries_from, self.value_weight, self.value_bias)
        own = self._pair_scores(queries, own_keys) - self.config.own_margin
        weights = self._normalize(scores, own, generator=generator, noise=noise)
        weights, own = weights[..., :-1], weights[..., -1:]
        # Nothing visible, not even itself by its score: it stays what it is.
        nothing = (weights == 0).all(-1, keepdim=True)
        own = own.masked_fill(nothing, 1)
        return attend(weights, values) + own * own_values, weights

    def _score(self, queries, keys):
        scores = SCORES[self.config.score](queries, keys)
        return scores / math.sqrt(keys.shape[-1]) if self.config.scaled else scores

    def _pair_scores(self, queries, keys):
        """Score of each query and the key in the same row: (..., Q, 1)."""
        return self._score(queries.unsqueeze(-2), keys.unsqueeze(-2)).squeeze(-1)

    def _same_code(self, queries_from, keys_from):
        """Pairs whose scratch agrees: distinct codes are at least 1 apart."""
        tokens = (queries_from, keys_from)
        codes = [self.layout.part(each, "scratch") for each in tokens]
        return SCORES["euclidean"](*codes) > -0.5

    def _normalize(self, scores, own=None, *, generator, noise):
        """Weights of scores (..., Q, R), with a last column for `own` (..., Q, 1)."""
        config, options = self.config, dict(self.config.options)
        if config.normalizer == "gumbel_softmax":
            options["noise"] = self._gumbel(scores, own, generator, noise)
        scores, gamma = GAMMA_RULES[config.gamma_rule](scores, config.gamma)
        if own is not None:
            scores = torch.cat([scores, own], dim=-1)
        weights = NORMALIZERS[config.normalizer](scores, gamma=gamma, **options)
        if not self.training or self.dropout == 0:
            return weights
        if generator is None:
            raise TypeError(
                "generator must be a torch.Generator when attention weights are "
                "dropped in training. Got None instead."
            )
        kept = torch.empty_like(weights).bernoulli_(
            1 - self.dropout, generator=generator
        )
        return weights * kept / (1 - self.dropout)

    def _gumbel(self, scores, own, generator, noise):
        """Noise of the keys, the same for all queries, and none for `own`."""
        if noise is None:
            shape = (*scores.shape[:-2], scores.shape[-1])
            noise = gumbel_noise(
                shape, generator=generator, dtype=scores.dtype, device=scores.device
            )
        noise = noise.unsqueeze(-2).expand_as(scores)
        if own is None:
            return noise
        return torch.cat([noise, torch.zeros_like(own)], dim=-1)


class FeedForward(nn.Module):
    r"""Feed-forward network with the rectified quadratic activation.

    .. math:: F(t) = W_2\, \mathrm{relu}(W_1 t + b_1)^2 + b_2

    Parameters
    ----------
    width : int
        Width M of a token.

    hidden : int
        Width H of the hidden layer.

    dtype : torch.dtype, default=torch.float64
        Floating-point type of the parameters.

    device : torch.device or str, default="cpu"
        Where the parameters are.

    Attributes
    ----------
    weight_in, bias_in, weight_out, bias_out : parameters
        Of shapes (H, M), (H,), (M, H) and (M,), zero until they are written.
    """

    def __init__(self, width, hidden, *, dtype=torch.float64, device="cpu"):
        super().__init__()
        self.weight_in = _parameter(hidden, width, dtype=dtype, device=device)
        self.bias_in = _parameter(hidden, dtype=dtype, device=device)
        self.weight_out = _parameter(width, hidden, dtype=dtype, device=device)
        self.bias_out = _parameter(width, dtype=dtype, device=device)

    def forward(self, tokens):
        """Output for tokens (..., M), to be added to them."""
        hidden = project(tokens, self.weight_in, self.bias_in).relu().square()
        return project(hidden, self.weight_out, self.bias_out)
