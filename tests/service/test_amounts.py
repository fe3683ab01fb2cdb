"""Amounts as the service writes them, and on the owner's page where rho adds up."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide.service.amounts import decimal, float_above, float_below


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (Fraction(0), "0", "0"),
        (math.inf, "inf", "inf"),
        (Fraction(1, 10), "0.1", "0.1"),
        (Fraction(29, 10), "2.9", "2.9"),
        (Fraction(1, 3), "0.333334", "0.333333"),
        (Fraction(2, 3), "0.666667", "0.666666"),
        (Fraction(10), "10", "10"),
        (Fraction(999_999_999), "1000000000", "999999000"),
        (Fraction(1, 3 * 10**9), "3.33334E-10", "3.33333E-10"),
    ],
)
def test_edge_cases(value, up, down):
    assert decimal(value, up=True) == up
    assert decimal(value, up=False) == down


@given(st.fractions(min_value=Fraction(1, 10**40), max_value=10**30))
def test_a_decimal_never_flatters_and_is_close(value):
    above, below = (Fraction(Decimal(decimal(value, up=up))) for up in (True, False))
    assert below <= value <= above
    assert above - below <= value / 10**5
    assert len(Decimal(decimal(value, up=True)).normalize().as_tuple().digits) <= 6


def test_the_page_says_the_figures_of_a_ledger_that_adds_up_rho(local, rows):
    from confide.ledger import Ledger
    from confide.service import shown
    from confide.service.page.render import live

    local.ledger = Ledger.open(
        local.url, dataset="visits", epsilon=3, delta="1e-5", adjacency="replace_one", accountant="zcdp"
    )
    service = local.serve(epsilon="1/5")
    service.answer(local.analyst(service, epsilon=2, delta="1e-5"), rows.one, "r")
    overview = shown.overview(service.overview())
    state = local.ledger.show()
    for line, told in (
        (overview.total, {"limit": state["budget"], "spent": state["spent"], "left": state["remaining"]}),
        (
            overview.accounts[0],
            {
                name: state["analysts"][0][other]
                for name, other in (("limit", "limit"), ("spent", "spent"), ("left", "remaining"))
            },
        ),
    ):
        for name, amounts in told.items():
            assert getattr(line, name).to_dict()["rho"] == amounts["rho"]
            if name != "limit":
                assert getattr(line, name).to_dict() == {key: amounts[key] for key in amounts}
    page = re.sub("<[^>]+>", " ", live(overview))
    assert "rho left" in page
    assert "epsilons do not add up" in page
    assert local.ledger.remaining().epsilon != 3 - local.ledger.total().epsilon
    left = local.ledger.remaining()
    assert decimal(left.epsilon, up=False) in page
    assert decimal(left.rho, up=False) in page


@given(st.fractions(min_value=0, max_value=10**6))
@pytest.mark.filterwarnings("error")
def test_a_double_of_what_is_spent_is_not_below_and_of_what_is_left_not_above(value):
    above, below = float_above(value), float_below(value)
    assert Fraction(below) <= value <= Fraction(above)
    assert above in (below, math.nextafter(below, math.inf))
    assert (above == below) == (Fraction(float(value)) == value)


def test_an_endless_double_stays_endless():
    assert float_above(math.inf) == float_below(math.inf) == math.inf
    assert Fraction(float_below(Fraction(1, 10))) < Fraction(1, 10) <= Fraction(float_above(Fraction(1, 10)))
