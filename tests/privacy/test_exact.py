"""Exact amounts: pitfalls F05 and F06."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide.errors import ParameterError
from confide.privacy import exact, round_down, round_up, show


def test_floats_mean_their_shortest_decimal():
    assert exact(0.1) == Fraction(1, 10)
    assert exact(0.1) * 3 == exact(0.3) == exact("0.3") == exact(Decimal("0.3")) == exact(np.float64(0.3))
    assert exact(1e-6) == Fraction(1, 10**6)


@pytest.mark.parametrize(
    "bad",
    [math.nan, math.inf, -math.inf, -0.1, "nan", "-1", "inf", "x", "", True, None, [1], Decimal("NaN"), "1e9999",
     Decimal("1e9999"), "1e999", np.True_, 10**400, "1" * 500, "1/0", float("-1e-300"), np.float64("nan")],
)  # fmt: skip
def test_what_is_not_an_amount_is_refused_by_name(bad):
    with pytest.raises(ParameterError, match="'epsilon'"):
        exact(bad, "epsilon")


def test_subnormal_amounts_round_up_and_never_vanish():
    smallest = exact(5e-324)
    assert smallest >= Fraction(5e-324)
    assert smallest > 0
    assert exact(Fraction(1, 10**100)) == Fraction(1, 10**60)


@given(st.floats(min_value=1e-300, max_value=1e300), st.integers(2, 17))
def test_rounding_is_on_the_safe_side_and_close(value, digits):
    up, down = round_up(value, digits), round_down(value, digits)
    assert down <= Fraction(value) <= up
    assert up - down <= Fraction(value) * 2 * Fraction(10) ** (1 - digits)


def test_show_is_short_and_exact_where_it_can_be():
    assert show(Fraction(1, 10)) == "0.1"
    assert show(Fraction(1, 3)) == "0.333333"
    assert show(math.inf) == "infinity"
