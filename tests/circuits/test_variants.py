"""Variants on problems that can be worked out by hand."""

import math

import pytest
import torch

from sklearn_kmtrf.circuits import (
    gumbel_noise,
    medoids_circuit,
    robust_circuit,
    soft_circuit,
    spherical_circuit,
    trimmed_circuit,
)

SCRATCHES = ["one-hot", "binary"]
every_scratch = pytest.mark.parametrize("scratch", SCRATCHES)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def assert_equal(actual, expected, atol=1e-15):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def test_soft__two_centers__logistic():
    # Sample 1 is 1 from the center at 0 and 4 from the one at 3 (squared).
    output = soft_circuit(1, 2, gamma=0.5)(rows([1.0]), rows([0.0], [3.0]))
    p = 1 / (1 + math.exp(-1.5))
    assert_equal(output.codes, rows([p, 1 - p]))
    assert_equal(output.centers, rows([1.0], [1.0]))


@every_scratch
def test_spherical__ties_zero_rows_and_scales(scratch):
    samples = rows(
        [3e200, 4e200], [0.0, 0.0], [5e-200, 0.0], [1.0, 1.0], [0.0, -7.0], [-2.0, 0.0]
    )
    centers = rows([2.0, 0.0], [0.0, 3.0], [0.0, -1.0])
    output = spherical_circuit(2, 3, scratch=scratch)(samples, centers)
    # (1, 1) is as near to both axes, the zero row to all, (-2, 0) to the last
    # two: each goes to the lowest index.
    assert output.labels.tolist() == [1, 0, 0, 0, 2, 1]
    first = rows([1 + math.sqrt(0.5), math.sqrt(0.5)])  # the zero row has no say
    second = rows([0.6 - 1.0, 0.8])
    expected = torch.cat([first / first.norm(), second / second.norm(), centers[2:]])
    assert_equal(output.centers, expected)


@every_scratch
def test_spherical__antipodal_or_empty__keeps_the_old_center(scratch):
    samples = rows([1.0, 0.0], [-1.0, 0.0])
    output = spherical_circuit(2, 1, scratch=scratch)(samples, rows([0.6, 0.8]))
    assert_equal(output.centers, rows([0.6, 0.8]))
    centers = rows([1.0, 0.0], [0.0, 5.0], [-1.0, 0.0])
    output = spherical_circuit(2, 3, scratch=scratch)(samples, centers)
    assert_equal(output.centers, rows([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]))


@every_scratch
@pytest.mark.parametrize(
    ("trim_fraction", "kept"),
    [
        (0.0, [0, 1, 2, 3, 4, 5, 6]),
        (1 / 7, [0, 1, 2, 3, 4, 5]),
        # Squared distances 0, 1, 1, 4, 4, 4, 81: of equal ones the lower index.
        (0.2, [0, 1, 2, 3, 4]),
        (3 / 7, [0, 1, 2, 3]),
        (0.7, [0, 1]),
        (6 / 7, [0]),
    ],
)
def test_trimmed__exact_number_and_ties(scratch, trim_fraction, kept):
    samples = rows([0.0], [1.0], [-1.0], [2.0], [-2.0], [2.0], [9.0])
    circuit = trimmed_circuit(1, 1, trim_fraction=trim_fraction, scratch=scratch)
    weights = circuit(samples, rows([0.0])).attention_weights["update"]
    expected = torch.zeros(1, 7, dtype=torch.float64)
    expected[0, kept] = 1 / len(kept)
    assert_equal(weights, expected)


@pytest.mark.parametrize(
    ("n", "trim_fraction", "n_trimmed"), [(100, 0.07, 7), (150, 0.14, 21), (11, 0.1, 2)]
)
def test_trimmed__float_error_of_the_product(n, trim_fraction, n_trimmed):
    samples = torch.arange(n, dtype=torch.float64).unsqueeze(1)
    circuit = trimmed_circuit(1, 1, trim_fraction=trim_fraction)
    weights = circuit(samples, samples[:1]).attention_weights["update"]
    assert (weights == 0).sum().item() == n_trimmed


@every_scratch
def test_trimmed__whole_cluster_trimmed__center_stays(scratch):
    samples = rows([0.0], [1.0], [90.0], [93.0])
    circuit = trimmed_circuit(1, 2, trim_fraction=0.5, scratch=scratch)
    output = circuit(samples, rows([0.0], [80.0]))
    assert_equal(output.centers, rows([0.5], [80.0]))
    assert output.labels.tolist() == [0, 0, 1, 1]


def test_trimmed__nothing_left__one_sentence():
    circuit = trimmed_circuit(1, 1, trim_fraction=0.9)
    with pytest.raises(ValueError, match="trim_fraction must leave at least one"):
        circuit(rows([0.0], [1.0]), rows([0.0]))


@every_scratch
def test_robust__weights(scratch):
    # At the center, at half the radius, at the radius, beyond; one alone beyond.
    samples = rows([0.0], [1.0], [-2.0], [3.0], [90.0])
    circuit = robust_circuit(1, 2, radius=2.0, scratch=scratch)
    output = circuit(samples, rows([0.0], [80.0]))
    update = output.attention_weights["update"]
    expected = rows([4 / 7, 3 / 7, 0, 0, 0], [0.0, 0, 0, 0, 0])
    assert_equal(update, expected)
    assert_equal(output.centers, rows([3 / 7], [80.0]))


def test_robust__wide_radius__kmeans():
    samples = rows([0.0, 1.0], [2.0, 5.0], [4.0, -3.0])
    output = robust_circuit(2, 1, radius=1e7)(samples, rows([0.0, 0.0]))
    assert_equal(output.centers, rows([2.0, 1.0]), atol=1e-12)


@every_scratch
def test_medoids__empty_and_coinciding(scratch):
    samples = rows([1.0], [1.0], [1.0])
    circuit = medoids_circuit(1, 2, scratch=scratch)
    noise = torch.tensor([0.0, 2.0, 1.0], dtype=torch.float64)
    output = circuit(samples, rows([1.0], [7.0]), noise=noise)
    assert_equal(output.attention_weights["update"], rows([0.0, 1, 0], [0.0, 0, 0]))
    assert_equal(output.centers, rows([1.0], [7.0]))


def test_medoids__frequencies():
    """The choice has the stated probabilities."""
    samples = rows([0.0], [1.0], [2.0], [5.0])
    n = 4001
    batch = samples.expand(n, 4, 1)
    centers = torch.zeros(n, 1, 1, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    output = medoids_circuit(1, 1)(batch, centers, generator=generator)
    drawn = output.attention_weights["update"].mean((0, 1))
    z = rows(*[math.exp(-3 * d / 2) for d in (0, 1, 2, 5)])
    p = z / z.sum()
    assert ((drawn - p).abs() <= 4 * (p * (1 - p) / n).sqrt()).all()


def test_medoids__generator_draws_gumbel_noise():
    samples = rows([0.0], [1.0], [2.0], [5.0], [7.0])
    circuit = medoids_circuit(1, 1)
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        noise = gumbel_noise((5,), generator=generator, dtype=torch.float64)
        generator.manual_seed(seed)
        drawn = circuit(samples, samples[:1], generator=generator).centers
        assert torch.equal(drawn, circuit(samples, samples[:1], noise=noise).centers)
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator"):
        circuit(samples, samples[:1])


@pytest.mark.parametrize(
    ("build", "error", "match"),
    [
        (lambda: soft_circuit(2, 3, gamma=math.inf), ValueError, "gamma must be fin"),
        (lambda: soft_circuit(2, 3, gamma=0.0), ValueError, "gamma must be greater"),
        (
            lambda: soft_circuit(2, 3, gamma=1.0, scratch="binary"),
            ValueError,
            "scratch must be 'one-hot' to hold a soft assignment.* Got 'binary'",
        ),
        (lambda: robust_circuit(2, 3, radius=0.0), ValueError, "radius must be fin"),
        (lambda: robust_circuit(2, 3, radius="1"), TypeError, "radius must be a num"),
        (lambda: trimmed_circuit(2, 3, trim_fraction=1.0), ValueError, r"\[0, 1\)"),
        (lambda: trimmed_circuit(2, 3, trim_fraction="a"), TypeError, "must be a num"),
        (lambda: trimmed_circuit(2, 3, trim_fraction=math.nan), ValueError, "Got nan"),
        (lambda: medoids_circuit(2, 3, gamma=math.inf), ValueError, "gamma must be fi"),
        (lambda: spherical_circuit(2, 3, gamma=-1), ValueError, "gamma must be greate"),
        (lambda: spherical_circuit(2, 3, scratch="none"), ValueError, "scratch must"),
    ],
)
def test_mistakes__one_sentence_each(build, error, match):
    with pytest.raises(error, match=match):
        build()
