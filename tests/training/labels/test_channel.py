"""The exact law: every pair of labels, every output, against e^epsilon in integers."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from confide.errors import ParameterError
from confide.mechanisms import os_stream, seeded_stream
from confide.mechanisms.enclosure import exp_minus
from confide.training.labels.binned import BinnedLabels
from confide.training.labels.channel import Channel, split_share
from confide.training.labels.labels import LabelRange
from confide.training.labels.randomized_response import RandomizedResponse, best_count
from confide.training.labels.rounding import RoundedLabels

EPSILONS = [
    Fraction(1, 1000),
    Fraction(1, 4),
    Fraction(1),
    Fraction(3),
    Fraction(20),
    Fraction(45),
    Fraction(100),
]


def at_most_e_to(ratio: Fraction, epsilon: Fraction) -> bool:
    """Decide ratio <= e^epsilon exactly: 1/ratio >= e^-epsilon, enclosed to 400 bits."""
    low, high = exp_minus(epsilon, 400)
    assert high - low <= 4
    return ratio <= 1 or 1 / ratio * 2**400 >= high or (ratio == 1 and epsilon == 0)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 1000])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_every_ratio_is_within_e_to_the_epsilon(size, epsilon):
    channel = Channel.of(size, epsilon)
    codes = range(-1, min(size, 4))
    for output in range(min(size, 5)):
        law = [channel.probability(code, output) for code in codes]
        assert at_most_e_to(max(law) / min(law), epsilon)
    for code in codes:
        assert sum(channel.probability(code, output) for output in range(size)) == 1


@pytest.mark.parametrize("epsilon", [Fraction(1, 4), Fraction(1), Fraction(8)])
def test_nothing_is_given_away(epsilon):
    channel = Channel.of(3, epsilon)
    assert float(Fraction(channel.own, channel.other)) == pytest.approx(np.exp(float(epsilon)), rel=1e-11)
    tighter = Fraction(channel.own, max(1, channel.other - 1))
    assert not at_most_e_to(tighter, epsilon)


def test_edge_cases():
    assert Channel.of(4, 0).own == Channel.of(4, 0).other
    assert Channel.of(4, 40).other >= 1
    assert Channel.of(1, 1).draw(np.zeros(5, int), os_stream()).tolist() == [0] * 5
    for bad in (0, -1, 2.0, True):
        with pytest.raises(ParameterError):
            Channel.of(bad, 1)


@pytest.mark.parametrize("epsilon", [0, 0.5, 2])
@pytest.mark.parametrize("size", [2, 5])
def test_draws_follow_the_law(size, epsilon):
    channel = Channel.of(size, epsilon)
    for code in (-1, 0, size - 1):
        drawn = channel.draw(np.full(40_000, code), seeded_stream(code + 7))
        expected = [float(channel.probability(code, j)) * 40_000 for j in range(size)]
        assert chisquare(np.bincount(drawn, minlength=size), expected).pvalue > 1e-4


def test_the_inverse_channel_is_unbiased():
    rng = np.random.default_rng(0)
    for size, epsilon in itertools.product((1, 2, 6), (0.1, 1, 5, 50)):
        channel, targets = Channel.of(size, epsilon), rng.normal(size=size)
        z = channel.unbiased(targets)
        law = np.array([[float(channel.probability(i, j)) for j in range(size)] for i in range(size)])
        np.testing.assert_allclose(law @ z, targets, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(Channel.of(3, 0).unbiased([1.0, 2.0, 6.0]), 3.0)


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction("0.3"), Fraction(1, 3), Fraction(1, 10**30)])
def test_shares_add_up_exactly(epsilon):
    first, rest = split_share(epsilon, Fraction(1, 10))
    assert first + rest == epsilon
    assert 0 < first <= epsilon / 10


@pytest.mark.parametrize("epsilon", EPSILONS[:4])
def test_rounding_is_private_for_every_pair_of_labels(epsilon):
    method = RoundedLabels(LabelRange(-1.0, 3.0), epsilon)
    units = method.units([-np.inf, -1, -0.3, np.nan, 1, 2.999, 3, 1e308])
    assert units.min() == 0
    assert units.max() == 2**52
    up = [method.probability(int(u)) for u in units]
    for law in (up, [1 - p for p in up]):
        assert at_most_e_to(max(law) / min(law), epsilon)


@pytest.mark.parametrize("value", [-1.0, 0.7, 3.0])
def test_rounding_is_unbiased_and_follows_its_law(value):
    method = RoundedLabels(LabelRange(-1.0, 3.0), Fraction(1))
    p = float(method.probability(int(method.units([value])[0])))
    low, high = method.outputs
    assert p * high + (1 - p) * low == pytest.approx(value, abs=1e-12)
    drawn = method.release(np.full(60_000, value), seeded_stream(1)).values
    ups = int((drawn == high).sum())
    assert set(np.unique(drawn)) <= {low, high}
    assert chisquare([ups, 60_000 - ups], [60_000 * p, 60_000 * (1 - p)]).pvalue > 1e-4


# --- Randomised response with prior (F55) ---


@pytest.mark.parametrize(
    ("prior", "epsilon", "k"),
    [
        ((0.7, 0.3), 1, 2),
        ((0.4, 0.3, 0.2, 0.1), 2, 4),
        ((0.7, 0.3), 0, 1),
        ((0.25, 0.25, 0.25, 0.25), 0, 1),
        ((0.97, 0.01, 0.01, 0.01), 0.5, 1),
        ((0, 0, 0), 3, 3),
        ((0.5, 0.5, 0.0), 10, 2),
        ((1,), 1, 1),
    ],
)
def test_the_number_of_labels_told_apart(prior, epsilon, k):
    assert best_count(prior, epsilon) == k
    assert best_count(prior[::-1], epsilon) == k


@pytest.mark.parametrize("seed", range(20))
def test_the_number_is_the_best(seed):
    rng = np.random.default_rng(seed)
    prior = np.sort(rng.dirichlet(np.full(8, 0.5)))[::-1]
    epsilon = float(rng.uniform(0.1, 4))
    right = [prior[: k + 1].sum() * np.exp(epsilon) / (np.exp(epsilon) + k) for k in range(8)]
    assert right[best_count(prior, epsilon) - 1] == pytest.approx(max(right), rel=1e-9)


def test_epsilon_zero_tells_nothing():
    method = RandomizedResponse(("a", "b", "c"), Fraction(0), Fraction(0), (0.2, 0.5, 0.3))
    outputs = [method.release([label] * 50, seeded_stream(0)).values for label in ("a", "b", "c", "?")]
    assert all((out == "b").all() for out in outputs)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
@pytest.mark.parametrize("prior", [(0.9, 0.06, 0.04), (0.5, 0.3, 0.2), (1.0, 1.0, 1.0)])
def test_response_is_private_for_every_pair_of_classes(epsilon, prior):
    method = RandomizedResponse((0, 1, 2), epsilon, Fraction(0), prior)
    top, channel = method.response(prior)
    place = {int(c): j for j, c in enumerate(top)}
    for output in range(channel.size):
        law = [channel.probability(place.get(label, -1), output) for label in range(3)]
        assert at_most_e_to(max(law) / min(law), epsilon)
    for label in range(3):
        drawn = method.release([label] * 30_000, seeded_stream(label)).values
        expected = [float(channel.probability(place.get(label, -1), j)) * 30_000 for j in range(channel.size)]
        counts = [int((drawn == c).sum()) for c in top]
        assert sum(counts) == 30_000
        if channel.size > 1:
            assert chisquare(counts, expected).pvalue > 1e-4


def test_released_and_given_prior():
    y = ["x"] * 300 + ["y"] * 100
    method = RandomizedResponse(("x", "y", "z"), Fraction(4), Fraction(1, 4), None)
    released = method.release(y, seeded_stream(3))
    assert released.counts.sum() == pytest.approx(400)
    np.testing.assert_allclose(released.counts, [300, 100, 0], atol=30)
    assert [part.mechanism for part in method.event.parts] == ["discrete_laplace", "pure"]
    assert sum(Fraction(part["epsilon"]) for part in method.event.parts) == 4


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(3)])
def test_binned_labels_are_private_for_every_pair_of_values(epsilon, debias):
    cells = (0.0, 1.0, 2.0, 5.0, 6.0)
    method = BinnedLabels(
        LabelRange(0.0, 6.0), epsilon, cells, Fraction(0), (5.0, 1.0, 1.0, 2.0, 2.0), debias
    )
    bins, channel, outputs = method.response(method.prior)
    own = bins.codes()[method.codes([-9, 0.2, np.nan, 4.9, 7])]
    for output in range(channel.size):
        law = [channel.probability(int(code), output) for code in own]
        assert at_most_e_to(max(law) / min(law), epsilon)
    value = 4.9
    code = int(bins.codes()[method.codes([value])[0]])
    drawn = method.release(np.full(40_000, value), seeded_stream(2)).values
    expected = [float(channel.probability(code, j)) * 40_000 for j in range(channel.size)]
    if channel.size > 1:
        assert chisquare([(drawn == z).sum() for z in outputs], expected).pvalue > 1e-4
    mean = sum(float(channel.probability(code, j)) * outputs[j] for j in range(channel.size))
    target = bins.means(method.prior, cells)[code]
    assert bool(mean == pytest.approx(target, rel=1e-9)) is debias
