"""What the k-means transformers are: dense, differentiable, inspectable circuits.

One forward of a `ClusteringCircuit` is one iteration of its algorithm; builders
such as `lloyd_circuit` write its weights in closed form.
"""

from sklearn_kmtrf.circuits._attention import dot_product_scores, euclidean_scores
from sklearn_kmtrf.circuits._circuit import (
    CircuitConfig,
    CircuitOutput,
    ClusteringCircuit,
)
from sklearn_kmtrf.circuits._construction import lloyd_circuit, soft_circuit
from sklearn_kmtrf.circuits._embedding import TokenLayout, unit_rows
from sklearn_kmtrf.circuits._heads import AttentionHead, FeedForward, HeadConfig
from sklearn_kmtrf.circuits._normalizers import (
    NORMALIZERS,
    gumbel_noise,
    gumbel_softmax,
    hardmax,
    linear,
    normmax,
    softmax,
    sparsemax,
)
from sklearn_kmtrf.circuits._run import iterate
from sklearn_kmtrf.circuits._variants import (
    medoids_circuit,
    robust_circuit,
    spherical_circuit,
    trimmed_circuit,
)

__all__ = [
    "NORMALIZERS",
    "AttentionHead",
    "CircuitConfig",
    "CircuitOutput",
    "ClusteringCircuit",
    "FeedForward",
    "HeadConfig",
    "TokenLayout",
    "dot_product_scores",
    "euclidean_scores",
    "gumbel_noise",
    "gumbel_softmax",
    "hardmax",
    "iterate",
    "linear",
    "lloyd_circuit",
    "medoids_circuit",
    "normmax",
    "robust_circuit",
    "soft_circuit",
    "softmax",
    "sparsemax",
    "spherical_circuit",
    "trimmed_circuit",
    "unit_rows",
]
