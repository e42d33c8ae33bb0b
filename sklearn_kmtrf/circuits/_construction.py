"""Closed-form weights of Lloyd's algorithm and of soft k-means.

The parts built here (which part of a token a head compares, which one it
copies) are shared by the other algorithms in `_variants`.
"""

import dataclasses
import math

import torch

from sklearn_kmtrf.circuits._circuit import CircuitConfig, ClusteringCircuit
from sklearn_kmtrf.circuits._embedding import TokenLayout
from sklearn_kmtrf.circuits._heads import HeadConfig
from sklearn_kmtrf.circuits._normalizers import check_gamma

ATTENTIONS = ("euclidean", "dot_product")


def connect(layout, weight, source, target, factor=1.0):
    """Write into a matrix: part `target` of the output reads part `source`.

    Parts of equal width are joined channel by channel; a target of a single
    channel receives the sum of the source.
    """
    block = weight.data[layout.slice(target), layout.slice(source)]
    if block.shape[0] == block.shape[1]:
        block.copy_(
            factor * torch.eye(len(block), dtype=block.dtype, device=block.device)
        )
    else:
        block.fill_(factor)


def compare_features(circuit, head, *, key_norm_only=True):
    r"""Write queries and keys of a head that compares features.

    Euclidean: :math:`q = t_{features}, k = u_{features}`, so that the score is
    :math:`-\|t - u\|^2`.

    Dot product (Theorem 2.2): :math:`q = [2t, -1], k = [u, |u|^2]`, so that

    .. math:: q \cdot k = 2 t \cdot u - |u|^2 = -\|t - u\|^2 + |t|^2,

    which a normalizer cannot tell from the Euclidean score: :math:`|t|^2` is
    the same for all keys. With ``key_norm_only=False`` the pair
    :math:`-|t|^2 \cdot 1` is added and the score is the Euclidean one itself,
    as rules for gamma need it.
    """
    layout, score = circuit.layout, head.config.score
    if score != "dot_product":
        connect(layout, head.query_weight, "features", "features")
        connect(layout, head.key_weight, "features", "features")
        return
    connect(layout, head.query_weight, "features", "features", 2.0)
    connect(layout, head.key_weight, "features", "features")
    connect(layout, head.query_weight, "one", "norm", -1.0)
    connect(layout, head.key_weight, "norm", "norm")
    if not key_norm_only:
        connect(layout, head.query_weight, "norm", "one", -1.0)
        connect(layout, head.key_weight, "one", "one")


def compare_codes(circuit, head):
    r"""Write queries and keys of a head that compares codes.

    One-hot, with the normalizer "linear": :math:`q = e_j, k = y_i`; the dot
    product is :math:`y_{ij}`, one if sample i carries code j and zero if not.

    Binary, Euclidean: minus the number of bits in which two codes differ.

    Binary, dot product: :math:`q = [2b, -1], k = [y, \sum_s y_s]`. A bit is its
    own square, so that again
    :math:`q \cdot k = 2 b \cdot y - |y|^2 = -\|b - y\|^2 + |b|^2`.
    """
    layout = circuit.layout
    binary_product = layout.scratch == "binary" and head.config.score == "dot_product"
    factor = 2.0 if binary_product else 1.0
    connect(layout, head.query_weight, "scratch", "scratch", factor)
    connect(layout, head.key_weight, "scratch", "scratch")
    if binary_product:
        connect(layout, head.query_weight, "one", "norm", -1.0)
        connect(layout, head.key_weight, "scratch", "norm")


def write_lloyd_values(circuit):
    """Write the values of the four heads: what each copies, or removes."""
    layout = circuit.layout
    connect(layout, circuit.assignment.value_weight, "scratch", "scratch")
    connect(layout, circuit.sample_reset.value_weight, "scratch", "scratch", -1.0)
    connect(layout, circuit.update.value_weight, "features", "features")
    connect(layout, circuit.center_reset.value_weight, "features", "features", -1.0)
    if layout.norm:
        # |c|^2 belongs to the old c and leaves with it; the feed-forward
        # network writes that of the new one.
        connect(layout, circuit.center_reset.value_weight, "norm", "norm", -1.0)


def write_squared_norm(circuit):
    r"""Let the feed-forward network write :math:`|c|^2` into the norm channel.

    Its hidden layer holds :math:`\mathrm{relu}(c_a)^2` and
    :math:`\mathrm{relu}(-c_a)^2` for each feature a. One of the two is
    :math:`c_a^2` and the other zero, so that their sum over all a is
    :math:`|c|^2`, exactly (Theorem 2.2).
    """
    layout, network, d = circuit.layout, circuit.feed_forward, circuit.n_features
    weight = network.weight_in.data[:, layout.slice("features")]  # (2 D, D)
    identity = torch.eye(d, dtype=weight.dtype, device=weight.device)
    weight[:d].copy_(identity)
    weight[d:].copy_(-identity)
    network.weight_out.data[layout.slice("norm")] = 1.0


def finish(circuit):
    """Freeze constructed weights, so that results carry no gradient unasked."""
    return circuit.requires_grad_(False).eval()


def make_layout(n_features, n_clusters, scratch, attention):
    """Make the layout of a constructed circuit, or say what is wrong."""
    if attention not in ATTENTIONS:
        raise ValueError(
            f"attention must be one of {ATTENTIONS}. Got {attention!r} instead."
        )
    channels = attention == "dot_product"
    layout = TokenLayout(n_features, n_clusters, scratch, norm=channels, one=channels)
    if scratch == "none" and layout.n_clusters > 1:
        raise ValueError(
            "scratch must be 'one-hot' or 'binary' to code more than 1 cluster. "
            f"Got 'none' with n_clusters={n_clusters} instead."
        )
    return layout


def hard_or_soft(gamma, ties):
    """Choose the soft-max, or its limit of infinite gamma, as keyword arguments."""
    check_gamma(gamma)
    if math.isinf(gamma):
        return {"normalizer": "hardmax", "options": {"ties": ties}, "gamma": gamma}
    return {"normalizer": "softmax", "gamma": float(gamma)}


def sample_heads(attention, gamma, sample_attention="diagonal"):
    """Configure A1 (assignment) and A2 (sample reset)."""
    if sample_attention not in ("diagonal", "full"):
        raise ValueError(
            "sample_attention must be 'diagonal' or 'full'. "
            f"Got {sample_attention!r} instead."
        )
    nearest = hard_or_soft(gamma, "first")
    return {
        "assignment": HeadConfig(
            score=attention, **nearest, does="writes the code of the nearest center"
        ),
        "sample_reset": HeadConfig(
            score=attention,
            **nearest,
            pattern=sample_attention,
            does="removes the old code",
        ),
    }


def mean_heads(scratch, attention, gamma):
    """Configure A3 (mean of the samples of a code) and A4 (center reset)."""
    mean, reset = (
        "moves to the mean of the samples of its code",
        "removes the old center",
    )
    if scratch != "one-hot":
        # "none" is the binary code of a single cluster, of no bits at all.
        # A code costs at least 1 in score when one bit differs: half of that
        # puts a center's own token after the samples that carry its code and
        # before all others, so that it wins if and only if there are none.
        return {
            "update": HeadConfig(
                attention, **hard_or_soft(gamma, "share"), own_margin=0.5, does=mean
            ),
            "center_reset": HeadConfig(
                attention, **hard_or_soft(gamma, "first"), does=reset
            ),
        }
    return {
        "update": HeadConfig("dot_product", "linear", own_margin=math.inf, does=mean),
        "center_reset": HeadConfig("dot_product", "linear", does=reset),
    }


def lloyd_circuit(
    n_features,
    n_clusters,
    *,
    scratch="one-hot",
    attention="euclidean",
    gamma=math.inf,
    sample_attention="diagonal",
    dtype=torch.float64,
):
    r"""Build the circuit whose forward is one iteration of Lloyd's algorithm.

    With infinite gamma it is exact, for every input (Theorem 2.1; for
    dot-product attention Theorem 2.2).

    Parameters
    ----------
    n_features : int
        Width D of the data.

    n_clusters : int
        Number K of centers.

    scratch : {"one-hot", "binary", "none"}, default="one-hot"
        Codes of K or of ceil(log2 K) channels; "none" for a single cluster.

    attention : {"euclidean", "dot_product"}, default="euclidean"
        Scores of the assignment head. With dot products tokens also carry
        their squared norm and a one.

    gamma : float, default=inf
        Inverse temperature of the soft-max heads.

    sample_attention : {"diagonal", "full"}, default="diagonal"
        Whether each sample resets its scratch by attending to itself only, or
        to all samples (N, N), where it finds itself.

    dtype : torch.dtype, default=torch.float64
        Floating-point type of the parameters and of the data.

    Returns
    -------
    circuit : ClusteringCircuit

    Raises
    ------
    TypeError
        If a number is no number.
    ValueError
        If gamma is not greater than 0, a count is less than 1, or a name is
        unknown.

    Notes
    -----
    Ties go to the center of the lowest index. A center whose code no sample
    carries keeps its place.

    At finite gamma let Delta_i be the difference of the squared distances of
    sample i to its second nearest and to its nearest center. The soft-max
    leaves at most eps_i = (K - 1) exp(-gamma Delta_i) to all other centers.
    With one-hot scratch a center c that Lloyd's iteration moves to c', the mean
    of m samples, ends within

    .. math:: \sum_i \epsilon_i \|x_i - c'\| \,/\, (m - \sum_{i \in c} \epsilon_i)

    of c'. For binary scratch see the page on circuits in the documentation.

    References
    ----------
    K. L. Clarkson, L. Horesh, T. Ito, C. Park, P. Ram, "Transformer circuits
    can realize clustering algorithms", ICML 2026 (arXiv 2506.19125); the binary
    scratch is from "Leaner transformers can easily learn to cluster", NeurIPS
    2026 (arXiv 2610.09760).

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import lloyd_circuit
    >>> samples = torch.tensor([[0.0], [1.0], [8.0], [9.0]], dtype=torch.float64)
    >>> output = lloyd_circuit(n_features=1, n_clusters=2)(samples, samples[:2])
    >>> output.centers
    tensor([[0.],
            [6.]], dtype=torch.float64)
    >>> output.codes[1]
    tensor([0., 1.], dtype=torch.float64)
    """
    layout = make_layout(n_features, n_clusters, scratch, attention)
    config = CircuitConfig(
        algorithm="lloyd",
        layout=layout,
        **sample_heads(attention, gamma, sample_attention),
        **mean_heads(scratch, attention, gamma),
        feed_forward=2 * layout.n_features if layout.norm else 0,
    )
    circuit = ClusteringCircuit(config, dtype=dtype)

    # A1, samples -> centers. The score is -|x_i - c_j|^2 (up to |x_i|^2, which
    # does not depend on j), so the hard-max puts weight 1 on the nearest center
    # a(i); the value is its code. Sample i receives the code of a(i).
    compare_features(circuit, circuit.assignment)

    # A2, samples -> samples. Each sample attends to itself; the value is minus
    # its scratch. y_i becomes y_i - y_i + code = code, whatever y_i was.
    # ("full": -|x_i - x_l|^2 is largest for l = i or for equal samples. Those
    # were assigned alike, so they carry the same scratch.)
    compare_features(circuit, circuit.sample_reset)

    # A3, centers -> NEW samples. One-hot: the score e_j . y_i is 1 for samples
    # with a(i) = j and 0 for others; divided by the row's sum it is 1 / m.
    # Binary: the score is largest, and equal, for the samples with code j; the
    # hard-max shares its weight among them: 1 / m. The value is x_i, so center j
    # receives the mean of its samples. Without any it attends to itself and
    # receives c_j.
    compare_codes(circuit, circuit.update)

    # A4, centers -> centers. Codes are distinct, so each center attends to
    # itself; the value is minus c_j. c_j becomes c_j - c_j + mean = mean.
    compare_codes(circuit, circuit.center_reset)

    write_lloyd_values(circuit)
    # Dot-product attention needs |c|^2 of the new center in the next iteration.
    if layout.norm:
        write_squared_norm(circuit)
    # Nothing else is written: features of samples, codes of centers and the one
    # are as before. Hence an iteration ends where the next one starts.      QED
    return finish(circuit)


def soft_circuit(
    n_features,
    n_clusters,
    *,
    gamma,
    scratch="one-hot",
    attention="euclidean",
    dtype=torch.float64,
):
    r"""Build the circuit whose forward is one iteration of soft k-means.

    .. math:: P_{ij} \propto e^{-\gamma \|x_i - c_j\|^2}, \qquad
              c_j = \sum_i P_{ij} x_i / \sum_i P_{ij}

    Parameters
    ----------
    n_features : int
        Width D of the data.

    n_clusters : int
        Number K of centers.

    gamma : float
        Inverse temperature, finite.

    scratch : {"one-hot"}, default="one-hot"
        The scratch of a sample holds P_i. Binary digits of a mixture of codes
        do not tell which codes were mixed, so binary scratch is refused.

    attention : {"euclidean", "dot_product"}, default="euclidean"
        Scores of the assignment head.

    dtype : torch.dtype, default=torch.float64
        Floating-point type of the parameters and of the data.

    Returns
    -------
    circuit : ClusteringCircuit

    Raises
    ------
    TypeError
        If a number is no number.
    ValueError
        If gamma is not finite and greater than 0, a count is less than 1, or
        the scratch is not one-hot.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import soft_circuit
    >>> samples = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    >>> centers = torch.tensor([[1.0], [1.0]], dtype=torch.float64)
    >>> soft_circuit(1, 2, gamma=1.0)(samples, centers).codes
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    check_gamma(gamma)
    if math.isinf(gamma):
        raise ValueError(f"gamma must be finite. Got {gamma!r} instead.")
    if scratch != "one-hot":
        raise ValueError(
            "scratch must be 'one-hot' to hold a soft assignment. "
            f"Got {scratch!r} instead."
        )
    # A1's soft-max writes P_i = sum_j P_ij e_j into the scratch; A3's score
    # e_j . y_i is P_ij, and its row divided by the sum is the weight of the
    # formula. A2, A4 and the norm are Lloyd's.                              QED
    lloyd = lloyd_circuit(
        n_features, n_clusters, attention=attention, gamma=gamma, dtype=dtype
    )
    lloyd.config = dataclasses.replace(lloyd.config, algorithm="soft k-means")
    return lloyd
