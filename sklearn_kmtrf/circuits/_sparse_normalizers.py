"""Sparse normalizers: sparsemax and norm-max, which share threshold and support."""

import math

import torch

from sklearn_kmtrf.circuits._dense_normalizers import (
    check_gamma,
    check_scores,
    hardmax,
    is_infinite,
    shift,
)


def _sparse_support(scores, gamma, dim):
    """Support of the sparsemax of ``gamma * scores``.

    Returns ``z = max(gamma (scores - max), -1)``, the mask of the support and
    its size. With z sorted downwards the support is the longest prefix with
    ``sum_{i <= m} (z_i - z_m) < 1`` (Martins and Astudillo, 2016).
    """
    shifted, alive = shift(scores, dim)
    z = (gamma * shifted).clamp(min=-1)
    ordered = z.detach().sort(dim, descending=True).values
    shape = [1] * z.dim()
    shape[dim] = -1
    count = torch.arange(1, z.shape[dim] + 1, dtype=z.dtype, device=z.device)
    inside = 1 + count.view(shape) * ordered > ordered.cumsum(dim)
    size = inside.sum(dim, keepdim=True)
    support = (z.detach() >= ordered.gather(dim, size - 1)) & alive
    return z, support, size


def sparsemax(scores, *, gamma=1.0, dim=-1):
    r"""Sparsemax: the Euclidean projection of the scores onto the simplex.

    .. math:: w_i = (\gamma s_i - \tau)_+, \qquad
              \sum_i (\gamma s_i - \tau)_+ = 1

    Parameters
    ----------
    scores : tensor of shape (..., R)
        Scores; minus infinity masks.

    gamma : float or tensor, default=1.0
        Inverse temperature; infinity is the hard-max with shared ties.

    dim : int, default=-1
        The axis along which the weights sum to one.

    Returns
    -------
    weights : tensor of shape (..., R)
        Exactly zero outside the support.

    Raises
    ------
    ValueError
        If gamma is not greater than 0.

    References
    ----------
    A. Martins, R. Astudillo, "From softmax to sparsemax", ICML 2016.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import sparsemax
    >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    check_gamma(gamma)
    scores = check_scores(scores)
    if is_infinite(gamma):
        return hardmax(scores, dim=dim, ties="share")
    z, support, size = _sparse_support(scores, gamma, dim)
    z = z.masked_fill(~support, 0)
    tau = (z.sum(dim, keepdim=True) - 1) / size
    return (z - tau).clamp(min=0).masked_fill(~support, 0)


def normmax(scores, *, gamma=1.0, dim=-1, alpha=math.inf, n_iter=64):
    r"""Norm-max: a regularised arg-max whose weights are flat on a small support.

    .. math:: w = \arg\max_{p \in \Delta} \; \gamma\, p \cdot s - \|p\|_\alpha

    which is, with q = (gamma s - tau)_+ and beta = alpha / (alpha - 1),

    .. math:: w_i \propto q_i^{\beta - 1}, \qquad \sum_i q_i^{\beta} = 1 .

    As alpha grows to infinity beta becomes 1: the threshold and the support of
    sparsemax, with equal weights on it. As alpha falls to 1 the norm becomes
    constant on the simplex and the weights those of the hard-max.

    Parameters
    ----------
    scores : tensor of shape (..., R)
        Scores; minus infinity masks.

    gamma : float or tensor, default=1.0
        Inverse temperature; infinity is the hard-max with shared ties.

    dim : int, default=-1
        The axis along which the weights sum to one.

    alpha : float, default=inf
        Order of the norm, at least 1.

    n_iter : int, default=64
        Bisection steps for tau (finite alpha greater than 1 only).

    Returns
    -------
    weights : tensor of shape (..., R)

    Raises
    ------
    ValueError
        If gamma is not greater than 0 or alpha is less than 1.

    References
    ----------
    M. Blondel, A. Martins, V. Niculae, "Learning with Fenchel-Young losses",
    JMLR 21, 2020.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import normmax
    >>> normmax(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    check_gamma(gamma)
    if isinstance(alpha, bool) or not alpha >= 1:
        raise ValueError(f"alpha must be at least 1. Got {alpha!r} instead.")
    scores = check_scores(scores)
    if alpha == 1 or is_infinite(gamma):
        return hardmax(scores, dim=dim, ties="share")
    if math.isinf(alpha):
        _, support, size = _sparse_support(scores, gamma, dim)
        return support.to(scores.dtype) / size
    shifted, alive = shift(scores, dim)
    z = (gamma * shifted).clamp(min=-1)
    beta = alpha / (alpha - 1)
    tau = _normmax_threshold(z, beta, dim, n_iter)
    inside = z.detach() > tau.detach()
    # Powers below one have an infinite slope at zero: outside the support the
    # base is one, and the result is dropped. The largest base is one too, so
    # that large powers (alpha near 1) do not underflow.
    base = torch.where(inside, z - tau, torch.ones_like(z)) / -tau
    powers = torch.where(inside, base ** (beta - 1), torch.zeros_like(z))
    return powers / powers.sum(dim, keepdim=True) * alive


def _normmax_threshold(z, beta, dim, n_iter):
    """Solve ``sum (z - tau)_+ ** beta = 1`` for tau; z has maximum 0.

    The root lies in [-1, 0]: at -1 the largest score alone gives 1.
    """
    with torch.no_grad():
        low = torch.full_like(z.amax(dim, keepdim=True), -1)
        width = 1.0
        for _ in range(n_iter):
            width /= 2
            middle = low + width
            total = ((z - middle).clamp(min=0) ** beta).sum(dim, keepdim=True)
            low = torch.where(total >= 1, middle, low)
        slope = beta * ((z - low).clamp(min=0) ** (beta - 1)).sum(dim, keepdim=True)
    # One Newton step changes tau by rounding only, and carries the gradient of
    # the implicit function: d tau / d z_i = w_i.
    inside = z.detach() > low
    base = torch.where(inside, z - low, torch.ones_like(z))
    total = torch.where(inside, base**beta, torch.zeros_like(z)).sum(dim, keepdim=True)
    return low + (total - 1) / slope
