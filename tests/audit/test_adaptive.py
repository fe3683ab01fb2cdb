"""Charges that are chosen one after the other: filters, accountants and ledgers that lose some are seen."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from confide.audit import adaptive
from confide.audit.promises import ledger as promises
from confide.ledger import budget, operations
from confide.privacy import RDPAccountant, RDPFilter, ZCDPAccountant, ZCDPFilter, accountants


def test_what_is_in_order_is_seen_as_such():
    assert not any(adaptive.filters())
    assert not any(adaptive.accountants())
    assert not any(promises._in_turn())


def test_strategies_fill_the_total_each_in_its_own_way():
    for make, menu, room in (
        (ZCDPFilter, adaptive.SMOOTH, adaptive.left_of_rho),
        (RDPFilter, adaptive.ALL, adaptive.left_of_orders),
    ):
        walks = []
        for strategy in adaptive.STRATEGIES:
            ask = adaptive._Asked(make(adaptive.EPSILON, Fraction(adaptive.DELTA)))
            wrong, held = adaptive.walked(menu, strategy, ask, room)
            assert not wrong
            assert 0 <= room(held) < 0.01
            walks.append([menu.index(charge) for charge in held])
        assert len({tuple(walk) for walk in walks}) == 3
        assert len(set(walks[2])) == len(menu)


@pytest.mark.parametrize("charge", adaptive.ALL, ids=lambda charge: charge.event.mechanism)
def test_divergences_are_those_of_the_accountant(charge):
    told = RDPAccountant().compose(charge.event).divergences()
    assert np.array_equal(told[0][: adaptive.ORDERS.size], adaptive.ORDERS)
    assert told[1][: adaptive.ORDERS.size] == pytest.approx(charge.renyi, rel=1e-9)


def forgetting(kind, nth):
    """Return a spend that keeps the event's charge to itself, once so many were admitted."""
    true = kind.spend

    def spend(held, event, count=1):
        after = true(held, event, count)
        number = sum(count for _, count in held.accountant.events)
        return held if number == nth else after

    return kind, "spend", spend


def latest(kind, accountant):
    """Return a spend after which the last charge alone is held."""
    true = kind.spend

    def spend(held, event, count=1):
        true(held, event, count)
        return type(held)(held.epsilon, held.delta, accountant().compose(event, count))

    return kind, "spend", spend


def past_the_cap(kind, room):
    """Return a filter that asks whether anything is left, not whether the event fits."""
    return kind, "admits", lambda held, event, count=1: room(held)


def largest_rho(held):
    return max((accountants.loss(event).rho or Fraction(0) for event, _ in held.events), default=Fraction(0))


def largest_divergence(held):
    each = [count * accountants.loss(e).renyi(accountants._ORDERS.astype(float)) for e, count in held.events]
    return accountants._ORDERS.astype(float), np.max(each, axis=0)


def after_a_refusal(kind):
    """Return what admits a charge again that was refused once."""
    true, refused = kind.admits, set()

    def admits(held, event, count=1):
        told = true(held, event, count) or event in refused
        refused.add(event)
        return told

    return kind, "admits", admits


def spending(held, event, count=1):
    """Spend without a look at the total."""
    return type(held)(held.epsilon, held.delta, held.accountant.compose(event, count))


FILTERS = {
    "zcdp forgets the third": [forgetting(ZCDPFilter, 2)],
    "zcdp forgets the tenth": [forgetting(ZCDPFilter, 9)],
    "rdp forgets the fifth": [forgetting(RDPFilter, 4)],
    "rdp forgets the tenth": [forgetting(RDPFilter, 9)],
    "zcdp holds the last alone": [latest(ZCDPFilter, ZCDPAccountant)],
    "rdp holds the last alone": [latest(RDPFilter, RDPAccountant)],
    "zcdp by the largest": [(ZCDPAccountant, "rho", property(largest_rho))],
    "rdp by the largest": [(RDPAccountant, "divergences", largest_divergence)],
    "zcdp lets one past the cap": [
        past_the_cap(ZCDPFilter, lambda held: held.accountant.rho <= held.limit),
        (ZCDPFilter, "spend", spending),
    ],
    "rdp lets one past the cap": [(RDPFilter, "_room", lambda held, after: RDPFilter._left(held))],
    "zcdp says yes the second time": [after_a_refusal(ZCDPFilter)],
    "rdp at an order of its own for each charge": [
        (RDPFilter, "_room", lambda held, after: 1.0 if _at_own_orders(held, after) <= 2 else -1.0)
    ],
}


def _at_own_orders(held, after):
    """Return the sum of what charges cost each at its best order, without the conversion of but one."""
    orders = accountants._ORDERS.astype(float)
    each = [count * accountants.loss(e).renyi(orders).min() for e, count in after.events]
    return sum(each)


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_that_loses_charges_is_caught(monkeypatch, name):
    true = RDPFilter._room
    monkeypatch.setattr(RDPFilter, "_left", lambda held: true(held, held.accountant), raising=False)
    for owner, attribute, value in FILTERS[name]:
        monkeypatch.setattr(owner, attribute, value)
    assert any(adaptive.filters())


def composing(kind, change):
    """Return a compose after which `change` of what was held is lost."""

    def compose(held, event, count=1):
        told = accountants.Accountant.compose(held, event, count)
        return kind(change(held, told))

    return kind, "compose", compose


def _without_the_first(held, told):
    return told.events[1:] if len(told.events) > 2 else told.events


@pytest.mark.parametrize("kind", [ZCDPAccountant, RDPAccountant, accountants.PLDAccountant])
def test_an_accountant_that_loses_a_charge_is_caught(monkeypatch, kind):
    owner, attribute, value = composing(kind, _without_the_first)
    monkeypatch.setattr(owner, attribute, value, raising=False)
    assert any(adaptive.accountants())


def largest_of(spent, asked, limit):
    told = budget.fits(budget.left(spent, spent), asked, limit)
    return None if told is None else tuple(max(have, more) for have, more in zip(spent, asked))


def one_past(spent, asked, limit):
    fits = all(have < most for have, most in zip(spent, limit))
    return tuple(map(budget.add, spent, asked)) if fits else None


def small_ones_are_free(spent, asked, limit):
    told = budget.fits(spent, asked, limit)
    small = all(more * 20 <= most for more, most in zip(asked, limit))
    return spent if small and told is not None else told


@pytest.mark.parametrize("fits", [largest_of, one_past, small_ones_are_free])
def test_a_ledger_that_loses_charges_is_caught(monkeypatch, fits):
    monkeypatch.setattr(operations, "fits", fits)
    monkeypatch.setattr(adaptive, "filters", lambda: iter(()))
    monkeypatch.setattr(adaptive, "accountants", lambda: iter(()))
    assert any(promises._in_turn())
