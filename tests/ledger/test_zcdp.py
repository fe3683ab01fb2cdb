"""The zCDP accountant as a filter: F16, F17."""

from __future__ import annotations

from fractions import Fraction

import pytest

from confide.errors import BudgetError, ParameterError, UnsupportedError
from confide.privacy import zcdp_budget, zcdp_epsilon
from confide.privacy.event import Event


@pytest.fixture
def ledger(url, open_ledger):
    return open_ledger(url, accountant="zcdp")


def gaussian(guarantee, sigma, **more):
    return guarantee(0.9, "1e-7", event=Event.of("gaussian", noise_multiplier=sigma), **more)


def test_rho_is_added_up_to_what_the_budget_allows(ledger, guarantee):
    limit = zcdp_budget(1, "1e-6")
    assert ledger.budget.rho == limit
    each = Fraction(1, 2 * 20**2)  # sigma = 20
    accepted = 0
    while ledger.preview(gaussian(guarantee, 20.0)):
        ledger.reserve(gaussian(guarantee, 20.0))
        accepted += 1
    with pytest.raises(BudgetError, match="spent rho"):
        ledger.reserve(gaussian(guarantee, 20.0))
    assert accepted == limit // each
    spent = ledger.total()
    assert spent.rho == accepted * each
    assert spent.epsilon == zcdp_epsilon(spent.rho, "1e-6")
    assert spent.epsilon <= 1
    assert ledger.remaining().rho == limit - spent.rho
    assert ledger.verify().entries == 1 + accepted
    # The declared epsilons would have added up to far more than the budget.
    assert accepted * Fraction(9, 10) > 1


def test_the_whole_budget_in_one_charge(ledger, guarantee):
    sigma = float(1 / (2 * zcdp_budget(1, "1e-6"))) ** 0.5 * (1 + 1e-9)
    ledger.reserve(gaussian(guarantee, sigma))
    assert 0.999999 < ledger.total().epsilon <= 1


@pytest.mark.parametrize(
    ("event", "rho"),
    [
        (Event.of("exponential", epsilon=1.0), Fraction(1, 8)),
        (Event.of("permute_and_flip", epsilon=1.0), Fraction(1, 2)),
        (Event.of("pure", epsilon=1.0), Fraction(1, 2)),
        (Event.sequence([Event.of("gaussian", noise_multiplier=2.0)] * 2, count=3), Fraction(6, 8)),
    ],
)
def test_costs_of_events(url, open_ledger, guarantee, event, rho):
    ledger = open_ledger(url, accountant="zcdp", epsilon=100)
    ledger.reserve(guarantee(1, event=event))
    assert ledger.total().rho == rho


def test_add_remove_counts_four_times_on_a_replacement_ledger(ledger, guarantee):
    ledger.reserve(gaussian(guarantee, 100.0, adjacency="add_remove_one"))
    assert ledger.total().rho == 4 * Fraction(1, 20000)


def test_an_event_without_a_zcdp_cost_is_refused(ledger, guarantee):
    before = ledger.export()
    with pytest.raises(UnsupportedError, match="approximate"):
        ledger.reserve(guarantee(0.1, 1e-7, event=Event.of("approximate", epsilon=0.1, delta=1e-7)))
    assert ledger.export() == before


def test_an_event_that_claims_to_cost_nothing_is_refused(ledger, guarantee):
    with pytest.raises(ParameterError, match="costs nothing"):
        ledger.reserve(guarantee(0.5, event=Event.sequence([])))
    ledger.reserve(guarantee(0, event=Event.sequence([])))
    assert ledger.total().rho == 0


def test_accounts_are_converted_too(ledger, guarantee):
    account = ledger.grant("ann", 0.5, "1e-6")
    assert account.limit.rho == zcdp_budget("0.5", "1e-6")
    ledger.reserve(gaussian(guarantee, 20.0), analyst="ann")
    assert ledger.account("ann").spent.rho == Fraction(1, 800)
    with pytest.raises(ParameterError, match="delta"):
        ledger.grant("bob", 0.5)


def test_an_unlimited_zcdp_ledger(url, open_ledger, guarantee):
    free = open_ledger(url, epsilon=float("inf"), accountant="zcdp", nonprivate=True)
    free.reserve(gaussian(guarantee, 2.0))
    assert free.total().rho == Fraction(1, 8)
    assert free.show()["spent"]["rho"] == "1/8"
