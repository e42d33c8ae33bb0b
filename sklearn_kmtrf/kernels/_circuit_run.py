"""Lloyd's loop with the iterations of a circuit that the user gave.

The circuit itself is run: its own matrices, scores and normalizers. Samples come to the
assignment head in blocks, unless they attend to each other; the update head sees all of
them at once, so its weights are a dense (k, n) array.
"""

import torch

from sklearn_kmtrf.kernels._accumulators import sums_by_label
from sklearn_kmtrf.kernels._assignment import Assignment


class CircuitAssignment(Assignment):
    """Labels and centers that a circuit finds.

    Parameters
    ----------
    samples : Samples
        Dense.

    circuit : ClusteringCircuit
        On the device of the samples; in its own dtype, and in the units of the data.

    Attributes
    ----------
    labels, centers, sums
        As of `Assignment`.

    found : tensor (n_clusters, n_features), float64
        Where the circuit moves the centers.
    """

    def __init__(self, samples, circuit):
        super().__init__(samples, None)
        self.circuit = circuit

    def move_to(self, centers):
        """Run both halves of the circuit; returns how many labels changed."""
        circuit, layout = self.circuit, self.circuit.layout
        parameter = next(circuit.parameters())
        like = {"dtype": parameter.dtype, "device": parameter.device}
        unit = 1 / self.samples.frame.scale
        codes = layout.codes(**like)
        center_tokens = layout.embed((centers * unit).to(**like), codes)  # (k, M)
        if circuit.config.sample_reset.pattern == "full":
            every = slice(0, self.samples.n_samples)
            parts = [(every, self.samples.block(every))]
        else:
            parts = self.samples.blocks(len(centers))
        tokens, labels = [], []
        for _, block in parts:
            embedded = layout.embed((block.values * unit).to(**like))
            assigned, attention = circuit.assign(embedded, center_tokens)
            tokens.append(assigned)
            labels.append(attention["assignment"].argmax(-1))
        moved, _ = circuit.move(center_tokens, torch.cat(tokens))
        self.found = layout.part(moved, "features").to(centers.dtype) / unit
        before, self.labels = self.labels, torch.cat(labels)
        self.centers = centers
        self.sums = sums_by_label(self.samples, self.weights, self.labels, centers)
        if before is None:
            return self.samples.n_samples
        return int((before != self.labels).sum())

    def means(self, sums):
        """The centers of the circuit, but for clusters that a relocation changed."""
        same = sums.counts == self.sums.counts
        return torch.where(same[:, None], self.found, super().means(sums))
