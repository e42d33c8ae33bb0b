"""Lloyd's loop with the iterations of a circuit that the user gave.

The circuit itself is run: its own matrices, scores and normalizers. Samples come to the
assignment head in blocks, unless they attend to each other; the update head sees all of
them at once, so its weights are a dense (k, n) array.
"""

from dataclasses import dataclass

import torch

from sklearn_kmtrf.kernels._accumulators import CenterSums
from sklearn_kmtrf.kernels._blocks import DenseBlock


@dataclass
class CircuitSums(CenterSums):
    """Sums of the samples by the circuit's labels, beside the centers that it found.

    Attributes
    ----------
    attended : tensor (n_clusters, n_features), float64
        Centers that the update head found.

    found_mass : tensor (n_clusters,), float64
        The mass of each cluster in the circuit.
    """

    attended: torch.Tensor
    found_mass: torch.Tensor

    def means(self, centers):
        """The centers of the circuit, but for clusters that a relocation changed."""
        same = self.mass == self.found_mass
        return torch.where(same[:, None], self.attended, super().means(centers))


def circuit_iteration(circuit):
    """An iteration for `lloyd` that runs a circuit.

    Parameters
    ----------
    circuit : ClusteringCircuit
        On the device of the samples; in its own dtype.

    Returns
    -------
    iteration : callable
        Of the signature of `lloyd_iteration`; takes no weights.
    """
    layout = circuit.layout
    parameter = next(circuit.parameters())
    like = {"dtype": parameter.dtype, "device": parameter.device}

    def iteration(samples, weights, centers, labels):
        tokens = torch.empty(samples.n_samples, layout.width, **like)  # (n, M)
        codes = layout.codes(**like)
        center_tokens = layout.embed(centers.to(**like), codes)  # (k, M)
        sums = CenterSums.zeros(centers)
        blocks = samples.blocks(len(centers))
        if circuit.config.sample_reset.pattern == "full":
            blocks = [DenseBlock(0, samples.rows(range(samples.n_samples)))]
        for block in blocks:
            rows = slice(block.start, block.stop)
            tokens[rows], attention = circuit.assign(
                layout.embed(block.values.to(**like)), center_tokens
            )
            labels[rows] = attention["assignment"].argmax(-1)
            distances = block.distances_to(centers, labels[rows])
            sums.add_(block, labels[rows], distances, None)
        moved, _ = circuit.move(center_tokens, tokens)
        attended = layout.part(moved, "features").to(centers.dtype)
        return CircuitSums(
            **vars(sums), attended=attended, found_mass=sums.mass.clone()
        )

    return iteration
