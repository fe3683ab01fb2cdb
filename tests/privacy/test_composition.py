"""Exact composition of pure mechanisms against rational enumeration, and its round trips (F17)."""

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.errors import AdjacencyError, ParameterError
from confide.privacy import Event, Guarantee, combine, compose, exact, group, split

mpmath.mp.dps = 50


def true_delta(epsilon, count, total):
    e = mpmath.mpf(epsilon)
    scale = (1 + mpmath.exp(e)) ** count
    terms = [
        mpmath.binomial(count, j) * (mpmath.exp(j * e) - mpmath.exp(total + (count - j) * e))
        for j in range(count + 1)
        if (2 * j - count) * e > total
    ]
    return mpmath.fsum(terms) / scale


@pytest.mark.parametrize("count", [1, 2, 3, 10, 57, 300])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1, 3])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.05])
def test_total_is_safe_and_tight(epsilon, count, delta):
    total = compose(epsilon, count, delta)
    assert total <= float(exact(epsilon) * count)
    assert true_delta(epsilon, count, mpmath.mpf(total)) <= mpmath.mpf(delta) * (1 + mpmath.mpf("1e-30"))
    if total > 1e-6:
        assert true_delta(epsilon, count, mpmath.mpf(total) - mpmath.mpf("1e-8")) > mpmath.mpf(delta)


def test_figures_of_the_prediction_page():
    assert split(10, 1e-5, 100) == pytest.approx(0.204, abs=5e-4)
    assert split(10, 1e-5, 10_000) == pytest.approx(0.0200, abs=5e-5)
    assert split(10, 1e-5, 10) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("count", [1, 10, 100, 1_000, 10_000, 100_000])
@pytest.mark.parametrize(("epsilon", "delta"), [(10, 1e-5), (1, 1e-5), (0.1, 1e-9), (1, 0)])
def test_round_trip(epsilon, delta, count):
    each = split(epsilon, delta, count)
    assert exact(compose(each, count, delta)) <= exact(epsilon)
    assert exact(each) >= exact(epsilon) / count * (1 - Fraction(1, 10**12))


def test_without_delta_it_is_the_exact_sum():
    assert compose(0.1, 3) == 0.3
    assert compose(0.1, 0) == 0.0
    assert exact(compose(Fraction(1, 3), 3)) >= 1


@settings(max_examples=60, deadline=None)
@given(st.floats(0.001, 2), st.integers(1, 400), st.floats(1e-9, 0.2))
def test_monotone_in_everything(epsilon, count, delta):
    total = compose(epsilon, count, delta)
    assert total <= compose(epsilon * 1.01, count, delta) + 1e-9
    assert total <= compose(epsilon, count + 1, delta) + 1e-9
    assert total + 1e-9 >= compose(epsilon, count, min(0.9, delta * 1.5))


@pytest.mark.parametrize(
    ("call", "name"),
    [(lambda: compose(-1, 2), "epsilon"), (lambda: compose(1, -1), "count"), (lambda: compose(1, True), "count"),
     (lambda: compose(1, 2, 1), "delta"), (lambda: split(0, 0, 2), "epsilon"), (lambda: split(1, 0, 0), "count"),
     (lambda: compose(1, 10**9), "count"), (lambda: compose(math.nan, 1), "epsilon")],
)  # fmt: skip
def test_bad_parameters_are_named(call, name):
    with pytest.raises(ParameterError, match=f"'{name}'"):
        call()


def guarantee(epsilon, delta=0, adjacency="replace_one", unit="row"):
    return Guarantee(epsilon, delta, adjacency, unit, Event.of("pure", epsilon=epsilon))


def test_combine_adds_exactly_and_refuses_mixtures():
    total = combine([guarantee(0.1, 1e-6)] * 3)
    assert (total.epsilon, total.delta) == (Fraction(3, 10), Fraction(3, 10**6))
    with pytest.raises(AdjacencyError, match="cannot be added"):
        combine([guarantee(1), guarantee(1, adjacency="replace_label")])
    with pytest.raises(AdjacencyError, match="person"):
        combine([guarantee(1), guarantee(1, unit="person")])
    with pytest.raises(ParameterError):
        combine([])


def test_group_privacy():
    three = group(guarantee(1, 1e-6), 3, unit="household")
    assert three.epsilon == 3
    assert float(three.delta) == pytest.approx(1e-6 * (1 + math.e + math.e**2), rel=1e-9)
    assert float(three.delta) >= 1e-6 * (1 + math.e + math.e**2) * (1 - 1e-15)
    assert group(guarantee(1, 1e-6), 1).delta == Fraction(1, 10**6)
    assert group(guarantee(1, 1e-6), 2000).delta == 1
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ParameterError, match="'size'"):
            group(guarantee(1), bad)
