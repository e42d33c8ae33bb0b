"""Running a circuit for several iterations."""

from sklearn_kmtrf.circuits._embedding import check_count


def iterate(
    circuit,
    samples,
    centers,
    n_iterations,
    *,
    reembed=True,
    generator=None,
):
    """Run a circuit several times and keep every iteration.

    Parameters
    ----------
    circuit : ClusteringCircuit
        The circuit.

    samples : tensor of shape (N, D) or (B, N, D)
        Samples.

    centers : tensor of shape (K, D) or (B, K, D)
        Centers to start from.

    n_iterations : int
        Number of iterations, at least 1.

    reembed : bool, default=True
        Whether each iteration starts from new tokens of the current centers,
        with empty scratch. Otherwise the residual stream runs on: the same for
        a constructed circuit, whose resets clear it; a learned one diverges.

    generator : torch.Generator, default=None
        Source of randomness, needed by circuits that draw.

    Returns
    -------
    trajectory : list of CircuitOutput
        One record for each iteration.

    Raises
    ------
    TypeError
        If `n_iterations` is no integer, or the data are no tensors of the
        circuit's floating-point type.
    ValueError
        If `n_iterations` is less than 1, or shapes do not fit.

    Examples
    --------
    >>> import torch
    >>> from sklearn_kmtrf.circuits import iterate, lloyd_circuit
    >>> samples = torch.tensor([[0.0], [1.0], [8.0], [9.0]], dtype=torch.float64)
    >>> trajectory = iterate(lloyd_circuit(1, 2), samples, samples[:2], 3)
    >>> [output.centers.flatten().tolist() for output in trajectory]
    [[0.0, 6.0], [0.5, 8.5], [0.5, 8.5]]
    """
    n_iterations = check_count("n_iterations", n_iterations)
    trajectory = [circuit(samples, centers, generator=generator)]
    for _ in range(n_iterations - 1):
        last = trajectory[-1]
        if reembed:
            output = circuit(samples, last.centers, generator=generator)
        else:
            output = circuit.step(
                last.sample_tokens, last.center_tokens, generator=generator
            )
        trajectory.append(output)
    return trajectory
