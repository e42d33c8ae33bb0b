"""Attention as functions: scores, rules for gamma, and the weighted sum.

Q queries and R keys have A channels; a leading B is carried along everywhere.
"""

import math

import torch

# Differences, not |q|^2 - 2 q.k + |k|^2: equal distances come out equal, and far
# from the origin nothing cancels. torch.cdist makes no (Q, R, A) array.
_BY_DIFFERENCES = "donot_use_mm_for_euclid_dist"


class _SquaredDistances(torch.autograd.Function):
    """Squared distances by differences, with gradients by matrix products.

    The gradient of torch.cdist costs as much as the distances themselves and
    cannot be differentiated again; this one is two products and can.
    """

    @staticmethod
    def forward(ctx, queries, keys):
        """Squared distances (..., Q, R) of (..., Q, A) and (..., R, A)."""
        ctx.save_for_backward(queries, keys)
        return torch.cdist(queries, keys, compute_mode=_BY_DIFFERENCES).square_()

    @staticmethod
    def backward(ctx, slope):
        """Gradients of ``|q - k|^2``: 2 (q - k) and 2 (k - q), summed."""
        queries, keys = ctx.saved_tensors
        # Only differences count: near the origin less is lost in them.
        origin = keys.mean(-2, keepdim=True)
        q, k = queries - origin, keys - origin
        to_q = 2 * (slope.sum(-1).unsqueeze(-1) * q - slope @ k)
        to_k = 2 * (slope.sum(-2).unsqueeze(-1) * k - slope.transpose(-2, -1) @ q)
        return to_q.sum_to_size(queries.shape), to_k.sum_to_size(keys.shape)


def distance_scores(queries, keys):
    """Minus the Euclidean distance of every query to every key.

    Parameters
    ----------
    queries : tensor of shape (..., Q, A)
        Queries.

    keys : tensor of shape (..., R, A)
        Keys.

    Returns
    -------
    scores : tensor of shape (..., Q, R)
    """
    return -torch.cdist(queries, keys, compute_mode=_BY_DIFFERENCES)


def euclidean_scores(queries, keys):
    r"""Minus the squared Euclidean distance of every query to every key.

    .. math:: s_{ij} = -\|q_i - k_j\|^2

    Parameters
    ----------
    queries : tensor of shape (..., Q, A)
        Queries.

    keys : tensor of shape (..., R, A)
        Keys.

    Returns
    -------
    scores : tensor of shape (..., Q, R)

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import euclidean_scores
    >>> euclidean_scores(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[-25.]])
    """
    return -_SquaredDistances.apply(queries, keys)


def dot_product_scores(queries, keys):
    r"""Inner product of every query with every key.

    .. math:: s_{ij} = q_i \cdot k_j

    Parameters
    ----------
    queries : tensor of shape (..., Q, A)
        Queries.

    keys : tensor of shape (..., R, A)
        Keys.

    Returns
    -------
    scores : tensor of shape (..., Q, R)

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import dot_product_scores
    >>> dot_product_scores(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[11.]])
    """
    return queries @ keys.transpose(-2, -1)


#: Scores by name, as a circuit's configuration gives them.
SCORES = {
    "euclidean": euclidean_scores,
    "dot_product": dot_product_scores,
    "distance": distance_scores,
}


def attend(weights, values):
    """Weighted sums of values: (..., Q, R) and (..., R, M) give (..., Q, M)."""
    return weights @ values


# Rules for gamma. Each takes scores (..., Q, R), which are minus distances (or
# minus squared ones) and minus infinity for keys that the query cannot see, and
# a number; it returns scores and the gamma to use with them: one number, or one
# per query (..., Q, 1).


def constant_gamma(scores, value):
    """Give every query the same gamma: the number itself."""
    return scores, value


def inverse_mean_gamma(scores, value):
    """Divide the number by the mean distance of the keys that a query sees.

    It makes a choice among the keys independent of the unit of length.
    """
    visible = scores > -math.inf
    total = -scores.masked_fill(~visible, 0).sum(-1, keepdim=True)
    mean = total / visible.sum(-1, keepdim=True).clamp(min=1)
    # All keys on the query: any gamma gives equal weights.
    return scores, value / mean.masked_fill(mean == 0, 1)


def common_radius_gamma(scores, value):
    r"""One radius r for all queries, each with the gamma that realises it.

    .. math:: \gamma_j = 1 / \sum_{i \in j} (r^2 - D_{ij})_+

    puts the threshold of sparsemax and of norm-max, tau_j = -gamma_j r^2,
    exactly at squared distance r^2: the weights inside sum to one by the very
    choice of gamma_j. `value` is r. A query that sees no key within the radius
    sees none at all.
    """
    return _squared_radius_gamma(scores, value * value)


def _squared_radius_gamma(scores, squared_radius):
    """Guts of the common radius; a tensor (..., 1, 1) is one radius per run."""
    mass = (squared_radius + scores).clamp(min=0).sum(-1, keepdim=True)  # (..., Q, 1)
    outside = mass == 0
    gamma = 1 / mass.masked_fill(outside, 1)
    return scores.masked_fill(outside, -math.inf), gamma.masked_fill(outside, 1)


def trimming_gamma(scores, value):
    """Find the common radius that leaves out the given share of all keys.

    Of the R keys, each seen by one query, ceil(value R) are left out, those
    with the largest distances, of equal ones those with the higher index.
    The radius lies midway between the last one in and the first one out.
    """
    n_keys = scores.shape[-1]
    # 0.07 * 100 is a little more than 7: it must not trim 8.
    n_kept = n_keys - math.ceil(value * n_keys - 1e-9)
    if n_kept < 1:
        raise ValueError(
            f"trim_fraction must leave at least one sample of {n_keys}. "
            f"Got {value!r} instead."
        )
    # By dot products a squared distance can come out a little below zero.
    squared = -scores.amax(-2).clamp(max=0)  # (..., R)
    ordered, order = squared.sort(dim=-1, stable=True)
    last = ordered[..., n_kept - 1 : n_kept]  # (..., 1)
    # Keys that tie with the last one in but come after it: norm-max has no
    # unique maximiser there, so the index decides and they are masked.
    rank = order.argsort(dim=-1)
    tolerance = 4 * n_keys * torch.finfo(scores.dtype).eps * last
    tied = (rank >= n_kept) & (squared <= last + tolerance)
    scores = scores.masked_fill(tied.unsqueeze(-2), -math.inf)
    beyond = squared.masked_fill((rank < n_kept) | tied, math.inf)
    first_out = beyond.amin(-1, keepdim=True)
    # Nobody is left out by distance: any radius beyond the last one in will do.
    any_radius = torch.where(last > 0, 3 * last, torch.ones_like(last))
    first_out = torch.where(first_out < math.inf, first_out, any_radius)
    middle = (last + first_out) / 2
    return _squared_radius_gamma(scores, middle.unsqueeze(-1))  # (..., 1, 1)


#: Rules for gamma by name, as a circuit's configuration gives them.
GAMMA_RULES = {
    "constant": constant_gamma,
    "inverse_mean": inverse_mean_gamma,
    "common_radius": common_radius_gamma,
    "trimming": trimming_gamma,
}
