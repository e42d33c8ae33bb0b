"""Dense normalizers: soft-max, hard-max, linear and Gumbel soft-max."""

import math
from numbers import Real

import torch


def check_gamma(gamma):
    """Refuse a number that is no inverse temperature (tensors pass unread)."""
    if isinstance(gamma, torch.Tensor):
        return
    if isinstance(gamma, bool) or not isinstance(gamma, Real):
        raise TypeError(f"gamma must be a number or a tensor. Got {gamma!r} instead.")
    if not gamma > 0:
        raise ValueError(
            "gamma must be greater than 0 (infinity is the hard limit). "
            f"Got {gamma!r} instead."
        )


def is_infinite(gamma):
    return not isinstance(gamma, torch.Tensor) and math.isinf(gamma)


def check_scores(scores):
    """Turn scores into a tensor and require real floating-point numbers."""
    if not isinstance(scores, torch.Tensor):
        scores = torch.as_tensor(scores, device="cpu")
    if not scores.is_floating_point():
        raise TypeError(
            f"scores must be floating-point numbers. Got {scores.dtype} instead."
        )
    return scores


def shift(scores, dim):
    """Subtract each row's maximum; rows of only masks become zero.

    Returns the shifted scores, which are at most zero, and `alive`, which is
    False for the rows of only masks.
    """
    top = scores.detach().amax(dim, keepdim=True)
    alive = top > -math.inf
    if not (top < math.inf).all():
        raise ValueError(
            "scores must be numbers below infinity, or minus infinity to mask. "
            "Got NaN or infinity instead."
        )
    # -inf minus -inf would be NaN: dead rows subtract nothing and are emptied.
    shifted = scores - torch.where(alive, top, torch.zeros_like(top))
    return torch.where(alive, shifted, torch.zeros_like(shifted)), alive


def softmax(scores, *, gamma=1.0, dim=-1):
    r"""Soft-max: weights proportional to the exponential of the scores.

    .. math:: w_i = e^{\gamma s_i} / \sum_l e^{\gamma s_l}

    Parameters
    ----------
    scores : tensor of shape (..., R)
        Scores; minus infinity masks.

    gamma : float or tensor, default=1.0
        Inverse temperature. Infinity is the limit: the weight is shared among
        the largest scores.

    dim : int, default=-1
        The axis along which the weights sum to one.

    Returns
    -------
    weights : tensor of shape (..., R)

    Raises
    ------
    ValueError
        If gamma is not greater than 0.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import softmax
    >>> softmax(torch.tensor([0.0, float("-inf"), 0.0], dtype=torch.float64))
    tensor([0.5000, 0.0000, 0.5000], dtype=torch.float64)
    """
    check_gamma(gamma)
    if is_infinite(gamma):
        return hardmax(scores, dim=dim, ties="share")
    shifted, alive = shift(check_scores(scores), dim)
    return torch.softmax(gamma * shifted, dim) * alive


def hardmax(scores, *, gamma=1.0, dim=-1, ties="first"):
    """Hard-max: all weight on the largest score, the soft-max of infinite gamma.

    Parameters
    ----------
    scores : tensor of shape (..., R)
        Scores; minus infinity masks.

    gamma : float or tensor, default=1.0
        Has no effect on a hard-max; accepted so that normalizers can be
        exchanged.

    dim : int, default=-1
        The axis along which the weights sum to one.

    ties : {"first", "share"}, default="first"
        Equal largest scores: all weight to the lowest index, or equal weights.

    Returns
    -------
    weights : tensor of shape (..., R)
        Constant almost everywhere: no gradient flows to the scores.

    Raises
    ------
    ValueError
        If gamma is not greater than 0, or `ties` is unknown.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import hardmax
    >>> hardmax(torch.tensor([1.0, 3.0, 3.0]))
    tensor([0., 1., 0.])
    >>> hardmax(torch.tensor([1.0, 3.0, 3.0]), ties="share")
    tensor([0.0000, 0.5000, 0.5000])
    """
    check_gamma(gamma)
    if ties not in ("first", "share"):
        raise ValueError(f"ties must be 'first' or 'share'. Got {ties!r} instead.")
    scores = check_scores(scores).detach()
    top = scores.amax(dim, keepdim=True)
    alive = top > -math.inf
    if ties == "share":
        winners = ((scores == top) & alive).to(scores.dtype)
        return winners / winners.sum(dim, keepdim=True).clamp(min=1)
    # torch.argmax documents that it returns the first of equal maxima.
    first = scores.argmax(dim, keepdim=True)
    return torch.zeros_like(scores).scatter(dim, first, alive.to(scores.dtype))


def linear(scores, *, gamma=1.0, dim=-1):
    r"""Linear attention: non-negative scores divided by their sum.

    .. math:: w_i = s_i / \sum_l s_l

    Parameters
    ----------
    scores : tensor of shape (..., R)
        Scores, at least zero; minus infinity masks.

    gamma : float or tensor, default=1.0
        Cancels; accepted so that normalizers can be exchanged.

    dim : int, default=-1
        The axis along which the weights sum to one.

    Returns
    -------
    weights : tensor of shape (..., R)
        Zero for a row whose sum is zero.

    Raises
    ------
    ValueError
        If gamma is not greater than 0.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import linear
    >>> linear(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    tensor([[0.2500, 0.7500],
            [0.0000, 0.0000]])
    """
    check_gamma(gamma)
    scores = check_scores(scores)
    scores = scores.masked_fill(scores == -math.inf, 0)
    total = scores.sum(dim, keepdim=True)
    empty = total == 0
    # Divided by one, an empty row is zero, and so is its gradient.
    return (scores / total.masked_fill(empty, 1)).masked_fill(empty, 0)


def gumbel_noise(shape, *, generator, dtype, device="cpu"):
    """Draw standard Gumbel noise.

    Parameters
    ----------
    shape : tuple of int
        Shape of the noise.

    generator : torch.Generator
        Source of randomness, on `device`.

    dtype : torch.dtype
        Floating-point type of the noise.

    device : torch.device or str, default="cpu"
        Where the noise is made.

    Returns
    -------
    noise : tensor of shape `shape`

    Raises
    ------
    TypeError
        If `generator` is no generator.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import gumbel_noise
    >>> generator = torch.Generator().manual_seed(0)
    >>> gumbel_noise((2, 3), generator=generator, dtype=torch.float64).shape
    torch.Size([2, 3])
    """
    if not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator. Got {generator!r} instead."
        )
    # Minus the logarithm of an exponential variable is a Gumbel variable; the
    # floor keeps a draw that was rounded to zero finite.
    draw = torch.empty(shape, dtype=dtype, device=device)
    draw = draw.exponential_(generator=generator)
    return -draw.clamp(min=torch.finfo(dtype).tiny).log()


def gumbel_softmax(
    scores,
    *,
    gamma=1.0,
    dim=-1,
    sharpness=1.0,
    hard=False,
    generator=None,
    noise=None,
):
    r"""Gumbel soft-max: a random choice with the probabilities of the soft-max.

    .. math:: w = \mathrm{softmax}(\beta\,(\gamma s + g)),
              \qquad g_i = -\log(-\log u_i)

    with beta the sharpness. The largest entry of w is i with probability
    softmax(gamma s)_i, whatever beta.

    Parameters
    ----------
    scores : tensor of shape (..., R)
        Scores; minus infinity masks.

    gamma : float or tensor, default=1.0
        Inverse temperature of the choice; infinity chooses among the largest
        scores.

    dim : int, default=-1
        The axis along which the weights sum to one.

    sharpness : float, default=1.0
        Inverse temperature of the relaxation, greater than 0.

    hard : bool, default=False
        Whether the weights are the chosen index's one and zeros; the gradient
        is then that of the relaxed weights (straight-through).

    generator : torch.Generator, default=None
        Source of the noise; needed unless `noise` is given.

    noise : tensor that broadcasts to `scores`, default=None
        The noise g itself.

    Returns
    -------
    weights : tensor of shape (..., R)

    Raises
    ------
    ValueError
        If gamma or sharpness is not greater than 0.
    TypeError
        If there is neither noise nor a generator.

    References
    ----------
    E. Jang, S. Gu, B. Poole, "Categorical reparameterization with
    Gumbel-softmax", ICLR 2017.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import gumbel_softmax
    >>> noise = torch.tensor([0.0, 1.0, 5.0])
    >>> gumbel_softmax(torch.tensor([3.0, 0.0, 0.0]), hard=True, noise=noise)
    tensor([0., 0., 1.])
    """
    check_gamma(gamma)
    if not sharpness > 0:
        raise ValueError(
            f"sharpness must be greater than 0. Got {sharpness!r} instead."
        )
    scores = check_scores(scores)
    if noise is None:
        noise = gumbel_noise(
            scores.shape, generator=generator, dtype=scores.dtype, device=scores.device
        )
    shifted, alive = shift(scores, dim)
    if is_infinite(gamma):
        perturbed = noise.expand_as(scores).masked_fill(shifted < 0, -math.inf)
    else:
        perturbed = gamma * shifted + noise
    perturbed = perturbed.masked_fill(~alive, -math.inf)
    soft = softmax(perturbed, gamma=sharpness, dim=dim)
    if not hard:
        return soft
    # The difference is exactly zero and carries the gradient.
    return hardmax(perturbed, dim=dim) + (soft - soft.detach())
