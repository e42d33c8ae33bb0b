"""The circuit: four attention heads that do one iteration of a clustering.

Shape letters of the whole subpackage: B runs, N samples, K clusters, D
features, S scratch channels, M token width. A leading B is carried along
everywhere when runs are batched.

One forward is one iteration. The residual stream is two sets of tokens, and
each of the four heads reads tokens and adds to them::

    samples (N, M) += sample reset(samples -> samples) + assignment(samples -> centers)
    centers (K, M) += center reset(centers -> centers) + update(centers -> NEW samples)
"""

import dataclasses
from dataclasses import dataclass

import torch
from torch import nn

from sklearn_kmtrf.circuits._embedding import TokenLayout, unit_rows
from sklearn_kmtrf.circuits._heads import AttentionHead, FeedForward, HeadConfig

HEADS = ("assignment", "sample_reset", "update", "center_reset")


@dataclass(frozen=True)
class CircuitConfig:
    """Everything that makes a circuit, but for its tensors.

    Parameters
    ----------
    algorithm : str
        Name of what the circuit does.

    layout : TokenLayout
        The named parts of its tokens.

    assignment, sample_reset, update, center_reset : HeadConfig
        The four heads.

    feed_forward : int, default=0
        Width of the hidden layer on the center tokens; 0 for none.

    unit_length : bool, default=False
        Whether features are normalised to length one, when they are embedded
        and after the update.

    dropout : float, default=0.0
        Share of attention weights dropped in training mode.
    """

    algorithm: str
    layout: TokenLayout
    assignment: HeadConfig
    sample_reset: HeadConfig
    update: HeadConfig
    center_reset: HeadConfig
    feed_forward: int = 0
    unit_length: bool = False
    dropout: float = 0.0

    def __post_init__(self):
        if not 0 <= self.dropout < 1:
            raise ValueError(
                f"dropout must be in [0, 1). Got {self.dropout!r} instead."
            )

    def to_dict(self):
        """Plain nested dict of numbers, strings and bools (JSON can hold it)."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values):
        """Rebuild a configuration from `to_dict`.

        Parameters
        ----------
        values : dict
            What `to_dict` returned.

        Returns
        -------
        config : CircuitConfig
        """
        heads = {name: HeadConfig(**values[name]) for name in HEADS}
        return cls(**{**values, **heads, "layout": TokenLayout(**values["layout"])})


@dataclass(frozen=True)
class CircuitOutput:
    """One iteration, with everything that one may want to look at.

    A leading B stands before every shape when runs are batched.

    Parameters
    ----------
    centers : tensor of shape (K, D)
        Centers after the iteration.

    codes : tensor of shape (N, S)
        Scratch of the samples: the code of each sample's cluster.

    sample_tokens : tensor of shape (N, M)
        Samples in the residual stream after the iteration.

    center_tokens : tensor of shape (K, M)
        Centers in the residual stream after the iteration.

    attention_weights : dict of str to tensor
        Weights of the heads "assignment" (N, K), "sample_reset" (N,) if each
        sample attends to itself and (N, N) otherwise, "update" (K, N) and
        "center_reset" (K, K). What a row of "update" lacks to one is the weight
        that the center gives to itself.
    """

    centers: torch.Tensor
    codes: torch.Tensor
    sample_tokens: torch.Tensor
    center_tokens: torch.Tensor
    attention_weights: dict

    @property
    def labels(self):
        """Index of the center with the largest assignment weight, (N,)."""
        return self.attention_weights["assignment"].argmax(-1)


class ClusteringCircuit(nn.Module):
    """A transformer layer whose forward is one iteration of a clustering.

    Parameters
    ----------
    config : CircuitConfig
        Everything about it but its tensors.

    dtype : torch.dtype, default=torch.float64
        Floating-point type of the parameters and of the data.

    device : torch.device or str, default="cpu"
        Where the parameters are.

    Attributes
    ----------
    assignment, sample_reset, update, center_reset : AttentionHead
        The four heads.

    feed_forward : FeedForward or None
        The network on the center tokens.

    layout : TokenLayout
        The named parts of the tokens.

    n_features, n_clusters, n_parameters : int
        Width of the data, number of centers, number of learnable numbers.

    See Also
    --------
    lloyd_circuit : The circuit of Lloyd's algorithm.
    iterate : Several iterations.

    Notes
    -----
    The parameters are zero: a builder, training or `load_state_dict` writes
    them. The configuration and the state dict make the circuit again. Squared
    distances must be finite: scale data of a size near 1e150 first.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import lloyd_circuit
    >>> samples = torch.tensor([[0.0], [2.0], [8.0]], dtype=torch.float64)
    >>> output = lloyd_circuit(1, 2)(samples, samples[1:])
    >>> output.centers
    tensor([[1.],
            [8.]], dtype=torch.float64)
    >>> output.attention_weights["update"]
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 1.0000]], dtype=torch.float64)
    """

    def __init__(self, config, *, dtype=torch.float64, device="cpu"):
        super().__init__()
        self.config = config
        where = {"dtype": dtype, "device": device}
        for name in HEADS:
            head = AttentionHead(
                getattr(config, name), config.layout, dropout=config.dropout, **where
            )
            self.add_module(name, head)
        self.feed_forward = None
        if config.feed_forward:
            width = config.layout.width
            self.feed_forward = FeedForward(width, config.feed_forward, **where)

    @property
    def layout(self):
        """The named parts of the tokens."""
        return self.config.layout

    @property
    def n_features(self):
        """Width D of the data."""
        return self.layout.n_features

    @property
    def n_clusters(self):
        """Number K of centers."""
        return self.layout.n_clusters

    @property
    def n_parameters(self):
        """Number of learnable numbers, zeros included."""
        return sum(parameter.numel() for parameter in self.parameters())

    def embed(self, samples, centers):
        """Tokens of samples, with empty scratch, and of centers, with codes.

        Parameters
        ----------
        samples : tensor of shape (N, D) or (B, N, D)
            Samples.

        centers : tensor of shape (K, D) or (B, K, D)
            Centers.

        Returns
        -------
        sample_tokens : tensor of shape (N, M) or (B, N, M)
            Tokens of the samples.

        center_tokens : tensor of shape (K, M) or (B, K, M)
            Tokens of the centers.

        Raises
        ------
        TypeError
            If they are no tensors of the circuit's floating-point type.
        ValueError
            If the shapes fit neither each other nor the circuit.
        """
        self._check(samples, centers)
        if self.config.unit_length:
            samples, centers = unit_rows(samples), unit_rows(centers)
        codes = self.layout.codes(dtype=centers.dtype, device=centers.device)
        return self.layout.embed(samples), self.layout.embed(centers, codes)

    def _check(self, samples, centers):
        dtype = self.assignment.query_weight.dtype
        for name, value in (("samples", samples), ("centers", centers)):
            if not isinstance(value, torch.Tensor) or value.dtype != dtype:
                got = getattr(value, "dtype", type(value).__name__)
                raise TypeError(
                    f"{name} must be a tensor of {dtype}, as the circuit. "
                    f"Got {got} instead."
                )
            if value.dim() not in (2, 3) or value.shape[-1] != self.n_features:
                raise ValueError(
                    f"{name} must have shape (rows, {self.n_features}) or "
                    f"(runs, rows, {self.n_features}). "
                    f"Got {tuple(value.shape)} instead."
                )
        if samples.shape[:-2] != centers.shape[:-2]:
            raise ValueError(
                "samples and centers must have the same leading shape. "
                f"Got {tuple(samples.shape)} and {tuple(centers.shape)} instead."
            )
        if centers.shape[-2] != self.n_clusters:
            raise ValueError(
                f"centers must have {self.n_clusters} rows, as many as the circuit "
                f"has codes. Got {centers.shape[-2]} instead."
            )
        if samples.shape[-2] < 1:
            raise ValueError("samples must have at least 1 row. Got 0 instead.")

    def forward(self, samples, centers, *, generator=None, noise=None):
        """Embed samples and centers and do one iteration.

        Parameters
        ----------
        samples : tensor of shape (N, D) or (B, N, D)
            Samples.

        centers : tensor of shape (K, D) or (B, K, D)
            Centers.

        generator : torch.Generator, default=None
            Source of randomness, needed by circuits that draw.

        noise : tensor of shape (N,) or (B, N), default=None
            Gumbel noise of the samples, instead of drawing it.

        Returns
        -------
        output : CircuitOutput
        """
        tokens = self.embed(samples, centers)
        return self.step(*tokens, generator=generator, noise=noise)

    def step(self, sample_tokens, center_tokens, *, generator=None, noise=None):
        """Do one iteration on tokens.

        Parameters
        ----------
        sample_tokens : tensor of shape (N, M) or (B, N, M)
            Samples in the residual stream.

        center_tokens : tensor of shape (K, M) or (B, K, M)
            Centers in the residual stream.

        generator : torch.Generator, default=None
            Source of randomness, needed by circuits that draw.

        noise : tensor of shape (N,) or (B, N), default=None
            Gumbel noise of the samples, instead of drawing it.

        Returns
        -------
        output : CircuitOutput
        """
        x, sample_weights = self.assign(
            sample_tokens, center_tokens, generator=generator
        )
        moved, center_weights = self.move(
            center_tokens, x, generator=generator, noise=noise
        )
        return CircuitOutput(
            centers=self.layout.part(moved, "features"),
            codes=self.layout.part(x, "scratch"),
            sample_tokens=x,
            center_tokens=moved,
            attention_weights={**sample_weights, **center_weights},
        )

    def assign(self, sample_tokens, center_tokens, *, generator=None):
        """Do the first half of an iteration: write codes into the samples.

        With a diagonal sample reset the rows do not see each other, so samples may
        come in blocks.

        Parameters
        ----------
        sample_tokens : tensor of shape (N, M) or (B, N, M)
            Samples in the residual stream.

        center_tokens : tensor of shape (K, M) or (B, K, M)
            Centers in the residual stream.

        generator : torch.Generator, default=None
            Source of randomness, needed by circuits that draw.

        Returns
        -------
        sample_tokens : tensor of shape (N, M) or (B, N, M)
            Samples with the code of their center.

        attention_weights : dict of str to tensor
            Weights of the heads "assignment" and "sample_reset".
        """
        x, c = sample_tokens, center_tokens
        assigned, assignment = self.assignment(x, c, generator=generator)
        emptied, sample_reset = self.sample_reset(x, x, generator=generator)
        weights = {"assignment": assignment, "sample_reset": sample_reset}
        # The reset comes first: y - y is exactly zero, so that what the other
        # head writes arrives unrounded.
        return (x + emptied) + assigned, weights  # (N, M)

    def move(self, center_tokens, sample_tokens, *, generator=None, noise=None):
        """Do the second half of an iteration: move the centers.

        Parameters
        ----------
        center_tokens : tensor of shape (K, M) or (B, K, M)
            Centers in the residual stream.

        sample_tokens : tensor of shape (N, M) or (B, N, M)
            All samples, with codes.

        generator : torch.Generator, default=None
            Source of randomness, needed by circuits that draw.

        noise : tensor of shape (N,) or (B, N), default=None
            Gumbel noise of the samples, instead of drawing it.

        Returns
        -------
        center_tokens : tensor of shape (K, M) or (B, K, M)
            Centers where they are now.

        attention_weights : dict of str to tensor
            Weights of the heads "update" and "center_reset".
        """
        c, draw = center_tokens, {"generator": generator}
        updated, update = self.update(c, sample_tokens, noise=noise, **draw)
        emptied, center_reset = self.center_reset(c, c, **draw)
        moved = (c + emptied) + updated  # (K, M)
        if self.feed_forward is not None:
            moved = moved + self.feed_forward(moved)
        if self.config.unit_length:
            moved = self._unit_length(moved, c)
        return moved, {"update": update, "center_reset": center_reset}

    def _unit_length(self, moved, before):
        """Normalise the centers; one whose samples cancel stays where it was."""
        mean = self.layout.part(moved, "features")
        # A mean of unit rows this short is rounding, and has no direction.
        cancelled = mean.norm(dim=-1, keepdim=True) <= 1e-12
        old = self.layout.part(before, "features")
        features = torch.where(cancelled, old, unit_rows(mean))
        return self.layout.replace(moved, "features", features)

    def describe(self):
        """Describe the circuit by a table: its heads and what they do.

        Returns
        -------
        table : str

        Examples
        --------
        >>> from sklearn_kmtrf.circuits import lloyd_circuit
        >>> print(lloyd_circuit(2, 5).describe().splitlines()[0])
        lloyd: 2 features, 5 clusters, tokens of 7 (features 2, scratch 5),
        672 parameters
        """
        parts = [f"{part} {n}" for part, n in self.layout.widths.items() if n]
        rows = [("head", "from", "to", "score", "normalizer", "gamma", "does")]
        ends = ("samples centers", "samples samples", "centers samples")
        for name, end in zip(HEADS, (*ends, "centers centers"), strict=True):
            head = getattr(self.config, name)
            source, target = end.split()
            target = "itself" if head.pattern == "diagonal" else target
            rule = "" if head.gamma_rule == "constant" else f" ({head.gamma_rule})"
            gamma = f"{head.gamma:g}{rule}".replace("_", " ")
            row = (name, source, target, head.score, head.normalizer, gamma, head.does)
            rows.append(row)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{self.config.algorithm}: {self.n_features} features, "
            f"{self.n_clusters} clusters, tokens of {self.layout.width} "
            f"({', '.join(parts)}), {self.n_parameters} parameters"
        ]
        for row in rows:
            cells = (cell.ljust(n) for cell, n in zip(row, widths, strict=True))
            lines.append("  ".join(cells).rstrip())
        if self.feed_forward is not None:
            lines.append("feed-forward on centers: rectified quadratic, |c|^2 anew")
        if self.config.unit_length:
            lines.append("centers normalised to length one after the update")
        return "\n".join(lines)
