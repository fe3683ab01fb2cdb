"""Exactness of budgets and charges: pitfalls F05, F06, F14, F07."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.errors import AssumptionError, BudgetError, ParameterError, RefusedError
from confide.ledger import Budget
from confide.ledger.budget import add, fits, left
from confide.privacy.event import Event
from confide.privacy.guarantee import Guarantee


def test_three_tenths_fit_and_a_fourth_does_not(url, open_ledger, guarantee):
    ledger = open_ledger(url, epsilon=0.3)
    for _ in range(3):
        ledger.reserve(guarantee(0.1))
    assert ledger.total().epsilon == Fraction(3, 10)
    with pytest.raises(BudgetError):
        ledger.reserve(guarantee(0.1))
    with pytest.raises(BudgetError):
        ledger.reserve(guarantee("1e-60"))
    assert ledger.total().epsilon == Fraction(3, 10)
    assert ledger.remaining().epsilon == 0


def test_ten_tenths_are_one(ledger, guarantee):
    for _ in range(10):
        ledger.reserve(guarantee(0.1))
    assert ledger.total().epsilon == 1


def test_thirds_are_exact(ledger, guarantee):
    for _ in range(3):
        ledger.reserve(guarantee(Fraction(1, 3)))
    assert ledger.remaining().epsilon == 0


def test_a_subnormal_charge_counts_and_is_refused_at_the_limit(ledger, guarantee):
    ledger.reserve(guarantee(5e-324))
    assert 0 < ledger.total().epsilon <= Fraction(1, 10**60)
    with pytest.raises(BudgetError):
        ledger.reserve(guarantee(1))
    ledger.reserve(guarantee(1 - ledger.total().epsilon))
    with pytest.raises(BudgetError):
        ledger.reserve(guarantee(5e-324))


@pytest.mark.parametrize("bad", [math.nan, -0.1, -math.inf, True, "nan", "inf", Decimal("NaN"), None])
def test_no_charge_of_a_bad_amount_even_without_limit(sqlite_url, open_ledger, guarantee, bad):
    ledger = open_ledger(sqlite_url, epsilon=math.inf, nonprivate=True)
    before = ledger.export()
    with pytest.raises(ParameterError):
        ledger.reserve(guarantee(bad))
    with pytest.raises(ParameterError):
        ledger.reserve(guarantee(0.1, bad))
    # A guarantee whose fields were changed behind its constructor's back is checked again.
    forged = guarantee(0.1)
    object.__setattr__(forged, "epsilon", bad)
    with pytest.raises(ParameterError):
        ledger.reserve(forged)
    assert ledger.export() == before


def test_a_charge_beyond_any_budget_is_refused_without_limit_too(sqlite_url, open_ledger, ledger, guarantee):
    free = open_ledger(sqlite_url, dataset="free", epsilon=math.inf, nonprivate=True)
    for each in (free, ledger):
        with pytest.raises(ParameterError, match="larger than"):
            each.reserve(guarantee("1e300"))


def test_an_infinite_charge_needs_a_nonprivate_ledger(sqlite_url, open_ledger, ledger):
    infinite = Guarantee(
        math.inf, 0, "replace_one", "row", Event.of("pure", epsilon=math.inf), ("nonprivate",)
    )
    with pytest.raises(AssumptionError, match="nonprivate"):
        ledger.reserve(infinite)
    with pytest.raises(AssumptionError, match="nonprivate"):
        ledger.reserve(infinite, accept=("nonprivate",))
    assert ledger.total().epsilon == 0
    free = open_ledger(sqlite_url, dataset="free", epsilon=math.inf, nonprivate=True)
    free.reserve(infinite)
    assert free.total().epsilon == math.inf
    assert free.remaining().epsilon == math.inf
    assert free.verify().entries == 2
    with pytest.raises(AssumptionError, match="seeded"):
        free.reserve(infinite.assuming("seeded"))


def test_finite_charges_are_added_up_without_limit(sqlite_url, open_ledger, guarantee):
    free = open_ledger(sqlite_url, epsilon=math.inf, nonprivate=True)
    for _ in range(3):
        free.reserve(guarantee(1000, 0.9))
    assert (free.total().epsilon, free.total().delta) == (3000, Fraction(27, 10))


@pytest.mark.parametrize(
    ("epsilon", "delta", "more"),
    [
        (0, 0, {}),
        (1, 1, {}),
        (1, 1.5, {}),
        (math.nan, 0, {}),
        (-1, 0, {}),
        (True, 0, {}),
        (1, math.nan, {}),
        (math.inf, 0, {}),
        (1, 0, {"nonprivate": True}),
        (1, 0, {"nonprivate": 1}),
        (math.inf, 0, {"nonprivate": "yes"}),
        ("1e200", 0, {}),
        (1, 0, {"accountant": "pld"}),
        (1, 0, {"accountant": "zcdp"}),
        (1, 0, {"unit": "a; b"}),
        (1, 0, {"unit": ""}),
        (1, 0, {"adjacency": "neighbours"}),
        (1, 0, {"adjacency": None}),
    ],
)
def test_a_bad_budget_is_refused_before_a_store_is_made(tmp_path, open_ledger, epsilon, delta, more):
    with pytest.raises(ParameterError):
        open_ledger(f"sqlite:///{tmp_path / 'none.db'}", epsilon=epsilon, delta=delta, **more)
    assert not (tmp_path / "none.db").exists()


def test_a_charge_of_zero_is_recorded_and_harmless(ledger, guarantee):
    ledger.reserve(guarantee(0), label="empty")
    assert ledger.total().epsilon == 0
    assert [charge["label"] for charge in ledger.show()["charges"]] == ["empty"]
    ledger.reserve(guarantee(1))
    ledger.reserve(guarantee(0))  # also when nothing is left


def test_delta_is_a_limit_of_its_own(ledger, guarantee):
    ledger.reserve(guarantee(0.1, 6e-7))
    with pytest.raises(BudgetError) as refused:
        ledger.reserve(guarantee(0.1, 5e-7))
    assert refused.value.spent.delta == Fraction(6, 10**7)
    assert refused.value.asked.delta == Fraction(5, 10**7)
    assert refused.value.limit.delta == Fraction(1, 10**6)
    ledger.reserve(guarantee(0.1, 4e-7))


def test_a_refusal_names_spent_asked_and_limit(ledger, guarantee):
    ledger.reserve(guarantee(0.9))
    with pytest.raises(BudgetError) as refused:
        ledger.reserve(guarantee(0.2))
    text = str(refused.value)
    assert "spent epsilon = 0.9" in text
    assert "asked epsilon = 0.2" in text
    assert "limit epsilon = 1" in text
    assert "'visits'" in text
    assert "left: epsilon = 0.1" in text
    assert (refused.value.spent.epsilon, refused.value.limit.epsilon) == (Fraction(9, 10), 1)


@pytest.mark.parametrize("value", [np.float64(0.1), np.float32(0.5), Decimal("0.1"), "1/3", 1])
def test_amounts_of_all_kinds(ledger, guarantee, value):
    ledger.reserve(guarantee(value))
    assert ledger.total().epsilon > 0


def test_what_is_charged_is_no_mere_number(ledger):
    for wrong in (0.1, None, {"epsilon": 0.1}):
        with pytest.raises(ParameterError, match="Guarantee"):
            ledger.reserve(wrong)


amounts = st.fractions(min_value=0, max_value=1, max_denominator=10**60)


@settings(max_examples=200, deadline=None)
@given(st.lists(amounts, max_size=20))
def test_balances_stay_short_and_never_too_small(charges):
    total, truth = Fraction(0), Fraction(0)
    for charge in charges:
        total, truth = add(total, charge), truth + charge
    assert truth <= total <= truth + Fraction(len(charges), 10**60)
    assert total.denominator <= 10**120


@settings(max_examples=100, deadline=None)
@given(st.lists(amounts, max_size=10), amounts)
def test_a_filter_admits_exactly_what_fits(charges, limit):
    spent = (Fraction(0),)
    for charge in charges:
        after = fits(spent, (charge,), (limit,))
        assert (after is None) == (add(spent[0], charge) > limit)
        spent = after or spent
        assert left(spent, (limit,))[0] == limit - spent[0] >= 0


def test_a_budget_survives_its_text():
    for budget in (
        Budget.of(0.1, 1e-9, "replace_label", unit="person"),
        Budget.of(1, 1e-6, "add_remove_one", accountant="zcdp"),
        Budget.of(math.inf, 0, "replace_one", nonprivate=True),
    ):
        assert Budget.from_dict(budget.to_dict()) == budget


def test_refusals_are_refused_errors(ledger, guarantee):
    with pytest.raises(RefusedError):
        ledger.reserve(guarantee(2))
