"""Privacy profiles in rationals, against cases whose profile is known, and laws that are too sharp."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from confide.audit import Pair, Verdict, claims, exact
from confide.audit.exact import certain, excess, growth, measured, nearly

F = Fraction


def test_growth_encloses_the_exponential():
    low, high = growth(F(3, 2))
    assert low <= high
    assert float(low) == pytest.approx(math.exp(1.5), rel=1e-15)
    assert high / low - 1 < F(1, 2**240)


def test_profile_of_randomised_response():
    here, there = certain({0: F(3, 4), 1: F(1, 4)}), certain({0: F(1, 4), 1: F(3, 4)})
    assert excess(here, there, F(0)) == (F(1, 2), F(1, 2))
    assert measured(here, there, F(0)) == pytest.approx(math.log(3), rel=1e-11)
    assert measured(here, there, F(1, 2)) == pytest.approx(0.0, abs=1e-12)
    # delta(epsilon) = 3/4 - e^epsilon / 4: epsilon = log(3 - 4 delta).
    assert measured(here, there, F(1, 4)) == pytest.approx(math.log(2), rel=1e-9)


def test_an_outcome_of_one_table_alone_costs_its_probability():
    here, there = certain({0: F(9, 10), 1: F(1, 10)}), certain({0: F(1)})
    assert measured(here, there, F(0)) == math.inf
    assert measured(here, there, F(1, 10)) == 0.0
    assert excess(here, there, F(5))[0] == F(1, 10)


def test_an_error_of_the_law_is_no_violation_and_hides_none():
    here, there = nearly({0: 0.75, 1: 0.25}, 1e-9), nearly({0: 0.25, 1: 0.75}, 1e-9)
    low, high = excess(here, there, F(math.log(3)))
    assert low == 0 < high < F(1, 10**8)
    assert excess(here, there, F("1.098"))[0] > 0


@pytest.mark.parametrize("claim", [c for c in claims() if c.law is not None], ids=lambda claim: claim.name)
def test_every_law_keeps_its_claim_and_fails_a_smaller_one(claim):
    found = exact.check(claim, claim.pairs(), search=True)
    assert found is not None
    assert found.verdict is Verdict.HOLDS, found
    assert found.measured <= float(claim.epsilon)
    assert "tight" not in found.note or found.measured >= 0.9 * float(claim.epsilon)
    if found.measured == 0:
        return
    less = replace(claim, epsilon=Fraction(found.measured * 0.99), search=None)
    pairs = [*claim.pairs(), *([claim.search(lambda p: _value(claim, p))] if claim.search else [])]
    assert exact.check(less, pairs, search=False).verdict is Verdict.BROKEN


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("mechanisms.discrete_laplace", "4 directions tight to within the error of the law"),
        ("mechanisms.weighted_choice", "2 directions undecided within the error of the law"),
        ("labels.rounding", ""),
    ],
)
def test_the_note_tells_tight_from_undecided(name, note):
    (claim,) = claims(name)
    assert exact.check(claim, claim.pairs(), search=True).note == note


def _value(claim, pair: Pair) -> float:
    return measured(claim.law(pair.here), claim.law(pair.there), claim.delta)
