from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.errors import ParameterError
from confide.mechanisms.choice import (
    _share,
    choice_cost,
    choice_error,
    choice_probabilities,
    uniform_integers,
    weighted_choice,
)
from confide.mechanisms.enclosure import exp_minus
from confide.mechanisms.stream import EntropyError, seeded_stream

ONES = (1 << 64) - 1


@pytest.mark.parametrize(
    "logs",
    [
        [0.0],
        [0.0, 0.0, 0.0],
        [0.0, -1.0, -2.5, 3.0, 0.25],
        [-1e12, -1e12 - 1.0, -1e12 - 2.0, -math.inf],
        [float(-i) / 7 for i in range(100)],
        [700.0, 0.0, 699.0],
        [-math.inf, 5e-324, -0.0, 0.0],
    ],
)
def test_law_over_logarithms(logs: list[float], p_value) -> None:
    draws = weighted_choice(log_weights=np.array(logs), size=200_000, stream=seeded_stream(len(logs)))
    law = [float(low) for low, _ in choice_probabilities(np.array(logs))]
    top = max(logs)
    weights = [math.exp(v - top) for v in logs]
    assert law == pytest.approx([w / math.fsum(weights) for w in weights], rel=1e-12)
    assert p_value(draws, dict(enumerate(law))) > 1e-6
    assert not np.isin(draws, [i for i, v in enumerate(logs) if v == -math.inf]).any()


@pytest.mark.parametrize(
    "weights",
    [[1], [1, 2, 3, 0], [0, 5], [2**200, 2**201, 2**200], [0.1, 0.2, Fraction(1, 3)], [2**63 - 1, 2**62]],
)
def test_law_over_exact_weights(weights, p_value) -> None:
    draws = weighted_choice(weights, size=30_000, stream=seeded_stream(3))
    total = sum(Fraction(w) for w in weights)
    assert p_value(draws, {i: float(Fraction(w) / total) for i, w in enumerate(weights)}) > 1e-6


def test_scores_that_underflow_elsewhere() -> None:
    """F47: 0, -800, -1600 at unit scale, 1492 zero answers, scores around -1e12."""
    assert weighted_choice(log_weights=[0.0, -800.0, -1600.0]) == 0
    assert weighted_choice(log_weights=[-1600.0, -1600.0 - 800, -1600.0 - 1600]) == 0
    assert weighted_choice(log_weights=[0.0, -1e300, -1.7e308]) == 0
    assert weighted_choice(log_weights=[1.7e308, -1.7e308]) == 0
    draws = weighted_choice(log_weights=np.full(7, -1e12), size=7000, stream=seeded_stream(1))
    assert set(draws.tolist()) == set(range(7))


def test_exact_logarithms_need_not_be_floats(p_value) -> None:
    logs = [Fraction(-(10**40)), Fraction(-(10**40)) - Fraction(1, 3), Fraction(-(10**41))]
    draws = weighted_choice(log_weights=logs, size=100_000, stream=seeded_stream(1))
    p = 1 / (1 + math.exp(-1 / 3))
    assert p_value(draws, {0: p, 1: 1 - p}) > 1e-6


@pytest.mark.parametrize("gap", [30.0, 41.0, 100.0, 800.0])
def test_tiny_probabilities_are_exact(gap: float, fake) -> None:
    """Bits a hair above and below 1 / (1 + e^-gap) choose differently, however small e^-gap is."""
    low, high = _share([Fraction(0)], [Fraction(-gap)])(1472)
    for threshold, expected in ((low - 2, 0), (high + 2, 1)):
        words = [threshold >> shift & ONES for shift in range(1408, -1, -64)]
        assert weighted_choice(log_weights=[0.0, -gap], stream=fake(words)) == expected


def test_an_outcome_of_probability_exp_minus_800_is_reached(fake) -> None:
    assert weighted_choice(log_weights=[0.0, -800.0], stream=fake([ONES] * 19, then=0)) == 1
    assert weighted_choice(log_weights=[0.0, -800.0], stream=fake([ONES] * 17, then=0)) == 0
    # Both far: the ratio between them still counts.
    far = [0.0, -math.inf, -800.0, -800.0 - math.log(3)]
    assert weighted_choice(log_weights=far, stream=fake([ONES, 1 << 63, *[ONES] * 18])) == 2
    assert weighted_choice(log_weights=far, stream=fake([ONES, 7 << 61, *[ONES] * 18])) == 3


def test_fast_walk_agrees_with_exact_arithmetic() -> None:
    from confide.mechanisms.choice import _exact_walk
    from confide.mechanisms.enclosure import LazyUniform

    rng = np.random.default_rng(1)
    for n in (2, 3, 17):
        logs = rng.normal(0, 5, n)
        depth = (n - 1).bit_length()
        draws = weighted_choice(log_weights=logs, size=300, stream=seeded_stream(n))
        words = seeded_stream(n).bits(300 * depth).reshape(300, depth)
        for draw, row in zip(draws.tolist(), words.tolist(), strict=True):
            uniforms = [LazyUniform(word, 64, seeded_stream(0)) for word in row]
            assert draw == _exact_walk(logs, depth, uniforms)


def test_neighbours_differ_by_e_epsilon_at_most_in_rationals() -> None:
    """K05: p = 4, s = 2, scores that move by at most the sensitivity; ratios in rational arithmetic."""
    epsilon, sensitivity = Fraction(1), 3
    scores = [12, 7, 7, 0, 3, 1]
    eta = epsilon / (2 * sensitivity)
    bound_low = (1 << 200) / Fraction(exp_minus(epsilon, 200)[1])
    for moves in ([3, -3, 3, -3, 3, -3], [-3, 3, 3, 3, 3, 3], [3, 0, 0, 0, 0, 0], [1, 2, 3, -1, -2, -3]):
        here = choice_probabilities([-eta * s for s in scores], bits=200)
        there = choice_probabilities([-eta * (s + m) for s, m in zip(scores, moves, strict=True)], bits=200)
        for (low, high), (other_low, other_high) in zip(here, there, strict=True):
            assert high / other_low <= bound_low * (1 + Fraction(1, 2**150))
            assert other_high / low <= bound_low * (1 + Fraction(1, 2**150))
            assert high - low < Fraction(1, 2**150)


def test_error_and_cost() -> None:
    assert choice_error(10) == 0
    kappa = Fraction(1, 1000)
    assert choice_cost(kappa) == Fraction(1, 250)
    # 4 kappa is attained in the limit: small outcome up, the rest down; and the reverse on the neighbour.
    p = lambda w, k, rest: w * math.exp(k) / (w * math.exp(k) + rest * math.exp(-k))  # noqa: E731
    ratio = p(1e-9, 0.001, 1) / p(1e-9, -0.001, 1)
    assert 0.0039 < math.log(ratio) <= 0.004
    with pytest.raises(ParameterError):
        choice_error(0)


@pytest.mark.parametrize(
    "bad", [[], [math.nan], [0.0, math.nan], [-math.inf], [-math.inf, -math.inf], [0.0, math.inf], [[0.0]]]
)
def test_bad_logarithms_are_refused(bad) -> None:
    with pytest.raises(ParameterError, match="log_weights"):
        weighted_choice(log_weights=bad)


@pytest.mark.parametrize("bad", [[], [0], [0, 0], [-1, 2], [math.nan], [math.inf], ["a"], [True]])
def test_bad_weights_are_refused(bad) -> None:
    with pytest.raises(ParameterError, match="weights"):
        weighted_choice(bad)


def test_messages_do_not_quote_weights() -> None:
    for position in range(3):
        weights = [1.0, 1.0, 1.0]
        weights[position] = -17.25
        with pytest.raises(ParameterError) as caught:
            weighted_choice(weights)
        assert "17" not in str(caught.value)


def test_exactly_one_kind_of_weights() -> None:
    for kwargs in ({}, {"weights": [1], "log_weights": [0.0]}):
        with pytest.raises(ParameterError, match="Exactly one"):
            weighted_choice(**kwargs)


def test_extreme_bits(fake, pattern: int) -> None:
    for kwargs in ({"weights": [3, 1, 2]}, {"log_weights": [0.0, -1.0, -900.0]}, {"weights": [2**99, 7]}):
        try:
            draws = weighted_choice(**kwargs, size=20, stream=fake(then=pattern))
        except EntropyError:
            continue
        assert np.all((draws >= 0) & (draws < 3))
        draws = weighted_choice(**kwargs, size=20, stream=fake([pattern] * 5, then=seeded_stream(1)))
        assert np.all((draws >= 0) & (draws < 3))


def test_sizes() -> None:
    assert isinstance(weighted_choice([1, 1]), int)
    assert weighted_choice([1, 1], size=0).shape == (0,)
    assert weighted_choice(log_weights=[0.0, 0.0], size=(2, 3)).shape == (2, 3)
    assert weighted_choice(log_weights=np.zeros(1), size=3).tolist() == [0, 0, 0]


@settings(max_examples=40, deadline=None)
@given(st.one_of(st.integers(1, 50), st.integers(2**62, 2**66)))
def test_uniform_integers_are_in_range(total: int) -> None:
    draws = uniform_integers(total, 50, seeded_stream(total))
    assert all(0 <= int(draw) < total for draw in draws)
