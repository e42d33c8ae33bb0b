"""Closed-form weights of spherical, trimmed and robust k-means and of k-medoids.

Each is Lloyd's circuit with another part: a score, a normalizer, or a
normalisation. What is the same is proved in `_construction`.
"""

import math
from numbers import Real

import torch

from sklearn_kmtrf.circuits._circuit import CircuitConfig, ClusteringCircuit
from sklearn_kmtrf.circuits._construction import (
    compare_codes,
    compare_features,
    connect,
    finish,
    make_layout,
    mean_heads,
    sample_heads,
    write_lloyd_values,
    write_squared_norm,
)
from sklearn_kmtrf.circuits._heads import HeadConfig


def spherical_circuit(
    n_features, n_clusters, *, scratch="one-hot", gamma=math.inf, dtype=torch.float64
):
    r"""Build the circuit whose forward is one iteration of spherical k-means.

    .. math:: a(i) = \arg\max_j x_i \cdot c_j, \qquad
              c_j = \frac{\sum_{a(i) = j} x_i}{\|\sum_{a(i) = j} x_i\|}

    Tokens have unit length (RMSNorm with gain 1 / sqrt(D)). Rows of zeros stay
    zero and have no say. A center whose samples cancel keeps its place.

    Parameters
    ----------
    n_features : int
        Width D of the data.

    n_clusters : int
        Number K of centers.

    scratch : {"one-hot", "binary"}, default="one-hot"
        Codes of K or of ceil(log2 K) channels.

    gamma : float, default=inf
        Inverse temperature of the soft-max heads.

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
        If gamma is not greater than 0, a count is less than 1, or the scratch
        cannot code the clusters.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import spherical_circuit
    >>> samples = torch.tensor([[2.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    >>> centers = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    >>> spherical_circuit(2, 1)(samples, centers).centers
    tensor([[0.7071, 0.7071]], dtype=torch.float64)
    """
    layout = make_layout(n_features, n_clusters, scratch, "euclidean")
    config = CircuitConfig(
        algorithm="spherical k-means",
        layout=layout,
        **sample_heads("dot_product", gamma),
        **mean_heads(scratch, "euclidean", gamma),
        unit_length=True,
    )
    circuit = ClusteringCircuit(config, dtype=dtype)
    # A1: the score is x_i . c_j, the cosine of two unit tokens.
    # A2: each sample attends to itself.
    for head in (circuit.assignment, circuit.sample_reset):
        connect(layout, head.query_weight, "features", "features")
        connect(layout, head.key_weight, "features", "features")
    # A3, A4: Lloyd's. The mean has the direction of the sum, and the
    # normalisation after the update gives it length one.                    QED
    compare_codes(circuit, circuit.update)
    compare_codes(circuit, circuit.center_reset)
    write_lloyd_values(circuit)
    return finish(circuit)


def _weighing_circuit(algorithm, layout, attention, update, dtype):
    """Lloyd's circuit with an update head that weighs samples by distance."""
    heads = mean_heads(layout.scratch, attention, math.inf)
    config = CircuitConfig(
        algorithm=algorithm,
        layout=layout,
        **sample_heads(attention, math.inf),
        update=update,
        center_reset=heads["center_reset"],
        feed_forward=2 * layout.n_features if layout.norm else 0,
    )
    circuit = ClusteringCircuit(config, dtype=dtype)
    # A1, A2, A4 and the norm are Lloyd's.
    compare_features(circuit, circuit.assignment)
    compare_features(circuit, circuit.sample_reset)
    # A3: the score is minus the (squared) distance of sample and old center,
    # and samples of another code are masked.
    compare_features(circuit, circuit.update, key_norm_only=False)
    compare_codes(circuit, circuit.center_reset)
    write_lloyd_values(circuit)
    if layout.norm:
        write_squared_norm(circuit)
    return finish(circuit)


def trimmed_circuit(
    n_features,
    n_clusters,
    *,
    trim_fraction,
    scratch="one-hot",
    attention="euclidean",
    dtype=torch.float64,
):
    r"""Build the circuit whose forward is one concentration step of trimmed k-means.

    Of N samples the ceil(trim_fraction N) farthest from their nearest center
    (of equal ones those of higher index) are left out; each center moves to the
    mean of the others that are assigned to it.

    Parameters
    ----------
    n_features : int
        Width D of the data.

    n_clusters : int
        Number K of centers.

    trim_fraction : float
        Share of the samples to leave out, in [0, 1).

    scratch : {"one-hot", "binary"}, default="one-hot"
        Codes of K or of ceil(log2 K) channels.

    attention : {"euclidean", "dot_product"}, default="euclidean"
        Scores of the heads that compare features.

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
        If `trim_fraction` is not in [0, 1) (or, in forward, leaves no sample),
        a count is less than 1, or a name is unknown.

    Notes
    -----
    With :math:`D_{(h)}` the largest squared distance that stays and
    :math:`r^2` midway to the next one, each center's norm-max (alpha infinite)
    uses :math:`\gamma_j = 1 / \sum_{i \in j} (r^2 - D_i)_+`.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import trimmed_circuit
    >>> samples = torch.tensor([[0.0], [2.0], [99.0]], dtype=torch.float64)
    >>> output = trimmed_circuit(1, 1, trim_fraction=0.3)(samples, samples[:1])
    >>> output.attention_weights["update"]
    tensor([[0.5000, 0.5000, 0.0000]], dtype=torch.float64)
    """
    if isinstance(trim_fraction, bool) or not isinstance(trim_fraction, Real):
        raise TypeError(
            f"trim_fraction must be a number. Got {trim_fraction!r} instead."
        )
    if not 0 <= trim_fraction < 1:
        raise ValueError(
            f"trim_fraction must be in [0, 1). Got {trim_fraction!r} instead."
        )
    layout = make_layout(n_features, n_clusters, scratch, attention)
    # A3: norm-max with alpha infinite has the threshold tau of sparsemax,
    # sum_{i in j} (-gamma_j D_i - tau)_+ = 1. With the gamma_j above,
    # tau = -gamma_j r^2 solves it: the support is {i in j: D_i < r^2}, the
    # samples that stay, and the weights on it are equal: their mean.       QED
    update = HeadConfig(
        attention,
        "normmax",
        options={"alpha": math.inf},
        gamma=float(trim_fraction),
        gamma_rule="trimming",
        same_code=True,
        own_margin=math.inf,
        does="moves to the mean of its samples that are not trimmed",
    )
    return _weighing_circuit("trimmed k-means", layout, attention, update, dtype)


def robust_circuit(
    n_features,
    n_clusters,
    *,
    radius,
    scratch="one-hot",
    attention="euclidean",
    dtype=torch.float64,
):
    r"""Build the circuit whose forward is one iteration of robust k-means.

    .. math:: c_j = \sum_{a(i) = j} w_i x_i / \sum_{a(i) = j} w_i, \qquad
              w_i = (1 - D_i / r^2)_+

    A sample farther than the radius r from every center has no say; one at half
    the radius has 3/4.

    Parameters
    ----------
    n_features : int
        Width D of the data.

    n_clusters : int
        Number K of centers.

    radius : float
        The radius r, in the units of the data.

    scratch : {"one-hot", "binary"}, default="one-hot"
        Codes of K or of ceil(log2 K) channels.

    attention : {"euclidean", "dot_product"}, default="euclidean"
        Scores of the heads that compare features.

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
        If the radius is not finite and greater than 0, a count is less than 1,
        or a name is unknown.

    Notes
    -----
    Each center's sparsemax uses :math:`\gamma_j = 1 / \sum_{i \in j} (r^2 -
    D_i)_+`, which follows from the one radius.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import robust_circuit
    >>> samples = torch.tensor([[0.0], [1.0], [99.0]], dtype=torch.float64)
    >>> output = robust_circuit(1, 1, radius=2.0)(samples, samples[:1])
    >>> output.attention_weights["update"]
    tensor([[0.5714, 0.4286, 0.0000]], dtype=torch.float64)
    """
    if isinstance(radius, bool) or not isinstance(radius, Real):
        raise TypeError(f"radius must be a number. Got {radius!r} instead.")
    if not 0 < radius < math.inf:
        raise ValueError(
            f"radius must be finite and greater than 0. Got {radius!r} instead."
        )
    layout = make_layout(n_features, n_clusters, scratch, attention)
    # A3: sparsemax of -gamma_j D has the threshold tau = -gamma_j r^2 (as in
    # the trimmed circuit), and the weights
    # (-gamma_j D_i - tau)_+ = gamma_j (r^2 - D_i)_+ = w_i / sum of w over j. QED
    update = HeadConfig(
        attention,
        "sparsemax",
        gamma=float(radius),
        gamma_rule="common_radius",
        same_code=True,
        own_margin=math.inf,
        does="moves to the mean of its samples, weighted (1 - D / radius^2)+",
    )
    return _weighing_circuit("robust k-means", layout, attention, update, dtype)


def medoids_circuit(
    n_features, n_clusters, *, gamma=3.0, scratch="one-hot", dtype=torch.float64
):
    r"""Build the circuit whose forward proposes medoids, drawn by Gumbel attention.

    Center j moves to one of its own samples, drawn with probability

    .. math:: P_i \propto \exp(-\gamma \, d_i / \bar d_j),

    d being the distance (not squared) to the old center and its mean over the
    samples of j. Whether a proposal is kept is for the algorithm around it.

    Parameters
    ----------
    n_features : int
        Width D of the data.

    n_clusters : int
        Number K of centers.

    gamma : float, default=3.0
        Inverse temperature, in units of the mean distance of a cluster.

    scratch : {"one-hot", "binary"}, default="one-hot"
        Codes of K or of ceil(log2 K) channels.

    dtype : torch.dtype, default=torch.float64
        Floating-point type of the parameters and of the data.

    Returns
    -------
    circuit : ClusteringCircuit
        Its forward needs a generator or noise: one number for each sample,
        which serves all centers, since a sample is visible to one of them.

    Raises
    ------
    TypeError
        If a number is no number.
    ValueError
        If gamma is not finite and greater than 0, a count is less than 1, or
        the scratch cannot code the clusters.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import medoids_circuit
    >>> samples = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
    >>> noise = torch.tensor([0.0, 4.0, 0.0], dtype=torch.float64)
    >>> medoids_circuit(1, 1)(samples, samples[:1], noise=noise).centers
    tensor([[1.]], dtype=torch.float64)
    """
    # A3: the largest of gamma_j s_i + g_i, with g Gumbel noise, is at i with
    # the probability of the soft-max of gamma_j s_i; here s_i = -d_i and
    # gamma_j = gamma / mean of d over j. The hard weights are one and zeros,
    # so that the center is the sample, bit for bit.                         QED
    layout = make_layout(n_features, n_clusters, scratch, "euclidean")
    update = HeadConfig(
        "distance",
        "gumbel_softmax",
        options={"hard": True},
        gamma=gamma,
        gamma_rule="inverse_mean",
        same_code=True,
        own_margin=math.inf,
        does="moves to one of its samples, drawn by distance",
    )
    if math.isinf(gamma):
        raise ValueError(f"gamma must be finite. Got {gamma!r} instead.")
    return _weighing_circuit("k-medoids", layout, "euclidean", update, dtype)
