"""The circuit as an object: records, batches, rebuilding, mistakes."""

import json
import math

import pytest
import torch

from sklearn_kmtrf.circuits import (
    CircuitConfig,
    ClusteringCircuit,
    HeadConfig,
    TokenLayout,
    iterate,
    lloyd_circuit,
    medoids_circuit,
    robust_circuit,
    soft_circuit,
    spherical_circuit,
    trimmed_circuit,
)

BUILDERS = {
    "lloyd": lloyd_circuit,
    "lloyd binary": lambda d, k: lloyd_circuit(d, k, scratch="binary"),
    "lloyd products": lambda d, k: lloyd_circuit(
        d, k, scratch="binary", attention="dot_product", gamma=7.0
    ),
    "soft": lambda d, k: soft_circuit(d, k, gamma=0.7),
    "spherical": spherical_circuit,
    "trimmed": lambda d, k: trimmed_circuit(d, k, trim_fraction=0.2),
    "robust": lambda d, k: robust_circuit(d, k, radius=1.3),
    "medoids": medoids_circuit,
}
every_builder = pytest.mark.parametrize("name", BUILDERS)


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def noise_of(name, *shape):
    return random(*shape, seed=9) if name == "medoids" else None


def test_lloyd__by_hand():
    samples = torch.tensor([[0.0, 0], [2, 0], [0, 4], [9, 9]]).double()
    centers = torch.tensor([[1.0, 0], [1, 0], [8, 8], [-50, 0]]).double()
    output = lloyd_circuit(2, 4, scratch="binary")(samples, centers)
    # Centers 0 and 1 tie and the lower index wins; 1 and 3 are empty and stay.
    expected = [[2 / 3, 4 / 3], [1, 0], [9, 9], [-50, 0]]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(output.centers, expected)
    assert output.codes.tolist() == [[0, 0], [0, 0], [0, 0], [0, 1]]
    assert output.labels.tolist() == [0, 0, 0, 2]
    weights = output.attention_weights
    assert weights["assignment"].tolist() == [[1, 0, 0, 0]] * 3 + [[0, 0, 1, 0]]
    third = torch.tensor(
        [[1 / 3] * 3 + [0], [0] * 4, [0, 0, 0, 1], [0] * 4], dtype=torch.float64
    )
    torch.testing.assert_close(weights["update"], third)
    assert weights["center_reset"].tolist() == torch.eye(4).tolist()
    assert weights["sample_reset"].tolist() == [1, 1, 1, 1]


def test_output__full_sample_attention__square():
    samples = random(5, 2)
    circuit = lloyd_circuit(2, 3, sample_attention="full")
    weights = circuit(samples, samples[:3]).attention_weights["sample_reset"]
    assert weights.tolist() == torch.eye(5).tolist()


@every_builder
def test_batch__equals_single_runs(name):
    samples, noise = random(3, 29, 5), noise_of(name, 3, 29)
    centers = samples[:, :7] + 0.01 * random(3, 7, 5, seed=1)
    circuit = BUILDERS[name](5, 7)
    batch = circuit(samples, centers, noise=noise)
    assert batch.attention_weights["update"].shape == (3, 7, 29)
    for run in range(3):
        alone = circuit(
            samples[run], centers[run], noise=None if noise is None else noise[run]
        )
        for field in ("centers", "codes", "sample_tokens", "center_tokens", "labels"):
            torch.testing.assert_close(
                getattr(batch, field)[run], getattr(alone, field), rtol=0, atol=1e-13
            )
        for head, weights in alone.attention_weights.items():
            torch.testing.assert_close(
                batch.attention_weights[head][run], weights, rtol=0, atol=1e-12
            )


@every_builder
def test_config_and_state__rebuild_the_circuit(name):
    circuit = BUILDERS[name](5, 3)
    # Infinity is not strict JSON, but Python writes and reads it.
    text = json.dumps(circuit.config.to_dict())
    config = CircuitConfig.from_dict(json.loads(text))
    assert config == circuit.config
    again = ClusteringCircuit(config, dtype=torch.float64)
    again.load_state_dict(circuit.state_dict())
    samples, noise = random(11, 5), noise_of(name, 11)
    one = circuit(samples, samples[:3], noise=noise)
    two = again.requires_grad_(False).eval()(samples, samples[:3], noise=noise)
    assert torch.equal(one.center_tokens, two.center_tokens)
    assert again.describe() == circuit.describe()


@every_builder
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype__kept__nothing_modified(name, dtype):
    samples = random(11, 5).to(dtype)
    centers, noise = samples[:3].clone(), noise_of(name, 11)
    before = samples.clone(), centers.clone()
    circuit = BUILDERS[name](5, 3).to(dtype)
    noise = None if noise is None else noise.to(dtype)
    output = circuit(samples, centers, noise=noise)
    assert output.centers.dtype == output.codes.dtype == dtype
    assert not output.centers.requires_grad
    assert torch.equal(samples, before[0])
    assert torch.equal(centers, before[1])


def test_dtype__of_the_builder():
    samples = random(11, 5).float()
    circuit = lloyd_circuit(5, 3, dtype=torch.float32)
    assert circuit(samples, samples[:3]).centers.dtype == torch.float32


def test_scratch__old_codes_are_removed():
    """A sample that moves to another center carries the new code only."""
    samples = torch.tensor([[0.0], [5.0], [6.0], [20.0]]).double()
    circuit = lloyd_circuit(1, 2)
    trajectory = iterate(circuit, samples, samples[[0, 1]], 3, reembed=False)
    codes = [output.codes.argmax(-1).tolist() for output in trajectory]
    assert codes == [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]
    assert all((output.codes.sum(-1) == 1).all() for output in trajectory)


def test_products__norm_channel_follows_the_centers():
    samples = random(29, 3)
    circuit = lloyd_circuit(3, 5, attention="dot_product")
    output = iterate(circuit, samples, samples[:5], 4, reembed=False)[-1]
    norms = circuit.layout.part(output.center_tokens, "norm").squeeze(-1)
    torch.testing.assert_close(norms, output.centers.square().sum(-1))
    assert (circuit.layout.part(output.center_tokens, "one") == 1).all()


@pytest.mark.parametrize(
    ("kwargs", "width", "network"),
    [
        ({}, 12, 0),
        ({"scratch": "binary"}, 10, 0),
        # In: 14 x 12 and 14; out: 12 x 14 and 12.
        ({"scratch": "binary", "attention": "dot_product"}, 12, 362),
    ],
)
def test_n_parameters(kwargs, width, network):
    circuit = lloyd_circuit(7, 5, **kwargs)
    assert circuit.layout.width == width
    assert circuit.n_parameters == 4 * 3 * (width * width + width) + network


def test_describe__names_what_matters():
    lines = lloyd_circuit(7, 5, attention="dot_product").describe().splitlines()
    assert lines[0].startswith("lloyd: 7 features, 5 clusters, tokens of 14 (")
    heads = [line.split()[0] for line in lines[2:6]]
    assert heads == ["assignment", "sample_reset", "update", "center_reset"]
    assert "hardmax" in lines[2]
    assert "itself" in lines[3]
    assert "linear" in lines[4]
    assert "feed-forward" in lines[6]
    text = trimmed_circuit(7, 5, trim_fraction=0.25).describe()
    assert "normmax" in text
    assert "0.25 (trimming)" in text
    assert "length one" in spherical_circuit(7, 5).describe()


def test_global_state__untouched():
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(1)
    samples = random(7, 2)
    medoids_circuit(2, 3)(samples, samples[:3], generator=generator)
    assert torch.equal(torch.get_rng_state(), before)


@every_builder
def test_default_device_and_dtype__not_used(name):
    """Nothing is made where, or of the type, that torch's defaults say."""
    samples, noise = random(7, 2), noise_of(name, 7)
    expected = BUILDERS[name](2, 3)(samples, samples[:3], noise=noise)
    with torch.device("meta"):
        circuit = BUILDERS[name](2, 3)
        output = circuit(samples, samples[:3], noise=noise)
    assert torch.equal(output.centers, expected.centers)
    assert torch.get_default_dtype() == torch.float32 != output.centers.dtype


@pytest.mark.parametrize("scratch", ["one-hot", "binary", "none"])
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
def test_learnable__config_is_general_enough(scratch, normalizer):
    """Full matrices, scaled scores, dropout, no scratch: one gradient step."""
    head = HeadConfig("euclidean", normalizer, scaled=True)
    config = CircuitConfig("learned", TokenLayout(5, 3, scratch), *[head] * 4, 0)
    circuit = ClusteringCircuit(config).train()
    generator = torch.Generator().manual_seed(2)
    for parameter in circuit.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    samples = random(2, 13, 5)

    def loss():
        centers = circuit(samples, samples[:, :3], generator=generator).centers
        return torch.cdist(samples, centers).square().amin(-1).sum()

    before = loss()
    before.backward()
    missing = [n for n, p in circuit.named_parameters() if p.grad is None]
    assert missing == []
    with torch.no_grad():
        for parameter in circuit.parameters():
            parameter -= 1e-4 * parameter.grad
    assert loss() < before


@pytest.mark.parametrize(
    ("samples", "centers", "error", "match"),
    [
        (random(7, 3), random(3, 2), ValueError, r"samples must have shape \(rows, 2"),
        (random(7, 2), random(3, 3), ValueError, "centers must have shape .*Got .3, 3"),
        (random(7, 2), random(4, 2), ValueError, "centers must have 3 rows.* Got 4"),
        (random(2, 7, 2), random(3, 2), ValueError, "the same leading shape"),
        (random(0, 2), random(3, 2), ValueError, "samples must have at least 1 row"),
        (random(7, 2).float(), random(3, 2), TypeError, "samples must be a tensor of"),
        ([[1.0, 2.0]], random(3, 2), TypeError, "Got list instead"),
    ],
)
def test_forward__mistakes(samples, centers, error, match):
    with pytest.raises(error, match=match):
        lloyd_circuit(2, 3)(samples, centers)


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"scratch": "none"}, ValueError, "scratch must be .* Got 'none' with n_clu"),
        ({"scratch": "unary"}, ValueError, "scratch must be one of"),
        ({"attention": "cosine"}, ValueError, "attention must be one of"),
        ({"gamma": 0.0}, ValueError, "gamma must be greater than 0"),
        ({"gamma": math.nan}, ValueError, "gamma must be greater than 0.* Got nan"),
        ({"gamma": "auto"}, TypeError, "gamma must be a number"),
        ({"sample_attention": "none"}, ValueError, "sample_attention must be"),
    ],
)
def test_builder__mistakes(kwargs, error, match):
    with pytest.raises(error, match=match):
        lloyd_circuit(2, 3, **kwargs)


def test_iterate__mistakes():
    samples = random(7, 2)
    with pytest.raises(ValueError, match="n_iterations must be at least 1"):
        iterate(lloyd_circuit(2, 3), samples, samples[:3], 0)
