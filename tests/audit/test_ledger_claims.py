"""The claim of the ledger: what refuses or charges by the rows is caught."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from confide.audit import blackbox, claims, replay, sides
from confide.audit.finding import Verdict
from confide.audit.promises import ledger as promises
from confide.errors import DataError
from confide.ledger import budget, operations, pricing
from confide.mechanisms import os_stream
from confide.privacy import Adjacency, adjacency, compose, filters, guarantee, zcdp_budget

(REQUESTS,) = claims("ledger.requests")


@pytest.mark.filterwarnings("ignore")
def test_requests_are_admitted_and_refused_alike():
    pairs = REQUESTS.pairs()
    assert {pair.name for pair in pairs[:4]} == {
        "the gap on one side alone", "a class goes", "missing and beyond", "no class at all",
    }  # fmt: skip
    assert promises._held(pairs[0].here) != promises._held(pairs[0].there)
    told = REQUESTS.run(pairs[0].here, os_stream()).reshape(-1, 3)
    refused = (told[:, 0] != 0).tolist()
    assert refused == [True, True, False, True, False, False, False, True, False, True]
    assert told[-1, 1] == 0
    assert replay.check(REQUESTS, pairs).verdict is Verdict.HOLDS


def refusing_gaps(rows, to):
    """Refuse, before the charge, a table without the gap."""
    if not promises._held(promises.Rows(np.nan_to_num(rows.X), np.nan_to_num(rows.y))):
        raise DataError("The gap condition does not hold.", "Use another mechanism.")


def charging_by_missing_cells(rows, to):
    """Charge more where a cell is missing."""
    promises._certified(rows, to, "1/2" if np.isnan(rows.X).any() else "1/4")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("broken", [refusing_gaps, charging_by_missing_cells])
def test_a_request_that_looks_at_the_rows_is_caught(monkeypatch, broken):
    monkeypatch.setattr(promises, "_REQUESTS", (*promises._REQUESTS[:3], broken))
    found = replay.check(REQUESTS, REQUESTS.pairs()[:3])
    assert found.verdict is Verdict.BROKEN
    if broken is charging_by_missing_cells:
        assert sides.check(REQUESTS, REQUESTS.pairs()[:3]).verdict is Verdict.BROKEN


def _more(limit):
    """Return a limit and a last unit more."""
    return limit + Fraction(1, 10**40)


(BALANCES,) = claims("ledger.balances")


def balanced():
    """Return whether one run of the claim has its only outcome."""
    promises._balances.cache_clear()
    try:
        return tuple(BALANCES.run(0, os_stream()).tolist()) in BALANCES.law(0)
    finally:
        promises._balances.cache_clear()


def test_balances_are_those_that_are_known():
    assert balanced()
    assert blackbox.fit(BALANCES, BALANCES.pairs()[0], 2, os_stream()).p_value == 1


def test_another_balance_than_the_known_one_breaks_the_claim(monkeypatch):
    monkeypatch.setattr(promises, "_restored", lambda: 0.0)
    promises._balances.cache_clear()
    found = blackbox.fit(BALANCES, BALANCES.pairs()[0], 2, os_stream())
    promises._balances.cache_clear()
    assert found.p_value == 0


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (adjacency, "_IMPLIED", {key: set(Adjacency) for key in Adjacency}),
        (pricing, "NEVER_ACCEPTED", ()),
        (pricing, "_accepted", lambda told, budget, accept: ()),
        (guarantee, "group_amounts", lambda epsilon, delta, size: (epsilon * size, delta)),
        (guarantee, "group_amounts", lambda epsilon, delta, size: (epsilon, delta * size)),
        (promises, "compose", lambda epsilon, count, delta: 0.95 * compose(epsilon, count, delta)),
        (operations, "fits", lambda spent, asked, limit: budget.fits(spent, asked, tuple(map(_more, limit)))),
        (filters.ZCDPFilter, "limit", property(lambda self: zcdp_budget(self.epsilon, self.delta) * 11 / 10)),
        (budget, "_rho", lambda accountant, epsilon, delta: Fraction(1, 40) if accountant == "zcdp" else None),
    ],
)  # fmt: skip
def test_a_ledger_that_admits_too_much_is_caught(monkeypatch, owner, name, value):
    monkeypatch.setattr(owner, name, value)
    assert not balanced()
