"""What a ledger must tell apart besides amounts: each break of it is seen."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from confide import privacy
from confide.audit import charges
from confide.ledger import chain, opening, operations, pricing, reading, session
from confide.ledger.budget import Budget
from confide.privacy import accountants, gaussian, losses


def test_what_is_in_order_is_seen_as_such_as_often_as_it_is_asked():
    for _ in range(20):
        told = list(charges.faults())
        assert not any(told)
        assert len(told) == charges.COUNT


def price_cache(patch):
    """Keep prices by everything but the amounts."""
    true = pricing._leaves
    patch.setattr(pricing, "_leaves", lambda guarantee: true(guarantee)[4:])


def leaves_forgotten(patch):
    """Keep prices by addresses of what may be gone."""

    class Forgetful(dict):
        def __setitem__(self, key, kept):
            super().__setitem__(key, ([], *kept[1:]))

    true = pricing.Pricer.__init__

    def make(self, *args):
        true(self, *args)
        self._known = Forgetful()

    patch.setattr(pricing.Pricer, "__init__", make)


def other_secrets(patch):
    patch.setattr(operations, "same_schema", lambda dataset, bound, asked: None)


def another_outcome(patch):
    patch.setattr(operations.Settle, "apply", lambda self, session: self.sequence)


def not_replayed(patch):
    true = operations.reservation_of

    def record(*args):
        return replace(true(*args), replayed=False)

    patch.setattr(operations, "reservation_of", record)


def flipped_as_exponential(patch):
    patch.setitem(losses._HANDLERS, "permute_and_flip", losses._exponential)


def group_as_one(patch):
    patch.setitem(losses._HANDLERS, "group", lambda event: losses.loss(event.parts[0]))


def counter_unread(patch):
    patch.setattr(session, "seen_before", lambda store, dataset, counter: [
        mark for mark in (store.marks.get(dataset.ledger_id),) if mark is not None])  # fmt: skip


def edited(patch):
    """Take the balances of the store for what was spent."""
    sql = "SELECT spent FROM confide_head WHERE dataset_id = ?"
    patch.setattr(session, "stated_total", lambda store, connection, dataset, head: store.row(
        connection, sql, (dataset.id,))[0])  # fmt: skip


def removed(patch):
    patch.setattr(opening.counters, "expected_at", lambda *args: None)


def one_key(patch):
    true = chain.secret_mac
    patch.setattr(chain, "secret_mac", lambda key, *rest: true(b"key", *rest))


def secret_exported(patch):
    true = reading.export
    patch.setattr(reading, "export", lambda *args: true(*args).replace('"hash"', '"told": "kept", "hash"'))


def analysts_of_rho(patch):
    patch.setattr(Budget, "sub_limit", lambda self, epsilon, delta: self.limit)


def cut_sums(patch):
    from confide.ledger import budget

    true = budget.add

    def add(total, amount):
        after = true(total, amount)
        return total if isinstance(after, Fraction) and after.denominator == budget._GRID else after

    patch.setattr(budget, "add", add)


def cheapest_part(patch):
    patch.setattr(losses, "max", min, raising=False)


def deltas_forgotten(patch):
    patch.setattr(accountants.BasicAccountant, "_epsilon", lambda self, delta: self.spent[0])


def pairs_never_fail(patch):
    true = losses._pair
    patch.setattr(losses, "_pair", lambda epsilon, delta: true(epsilon, Fraction(0)))


def _half_of(patch, name):
    true = losses._HANDLERS[name]

    def half(event):
        parameters = ((key, "1/2" if key == "epsilon" else value) for key, value in event.parameters)
        return replace(
            true(event), distribution=true(replace(event, parameters=tuple(parameters))).distribution
        )

    patch.setitem(losses._HANDLERS, name, half)


def laplace_of_half(patch):
    _half_of(patch, "laplace")


def response_of_half(patch):
    _half_of(patch, "randomized_response")


def noise_of_a_third(patch):
    """Take all smaller noise for a third of the sensitivity."""
    true = gaussian.gaussian_delta
    patch.setattr(gaussian, "gaussian_delta", lambda epsilon, noise: true(epsilon, max(noise, 1 / 3)))


def assumptions_of_the_first(patch):
    true = charges.combine

    def combined(guarantees):
        return replace(true(guarantees), assumptions=guarantees[0].assumptions)

    patch.setattr(charges, "combine", combined)


def events_of_nothing(patch):
    """Charge nothing where a guarantee's event is nothing."""
    true = pricing._zcdp

    def cost(guarantee, budget):
        nothing = privacy.zcdp_cost(guarantee.event) == 0
        return Fraction(0) if nothing else true(guarantee, budget)

    patch.setattr(pricing, "_zcdp", cost)


@pytest.mark.parametrize(
    "spoil",
    [
        price_cache, leaves_forgotten, other_secrets, another_outcome, not_replayed, flipped_as_exponential,
        group_as_one, counter_unread, edited, removed, one_key, secret_exported, analysts_of_rho, cut_sums,
        cheapest_part, deltas_forgotten, pairs_never_fail, laplace_of_half, response_of_half,
        noise_of_a_third, assumptions_of_the_first, events_of_nothing,
    ],
    ids=lambda spoil: spoil.__name__,
)  # fmt: skip
def test_a_break_of_what_is_told_apart_is_seen(spoil, monkeypatch):
    spoil(monkeypatch)
    assert any(charges.faults())
