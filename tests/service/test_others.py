"""What a request leaves in the store where nothing was new, and what an analyst sees of others near the end."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from confide.errors import BudgetError
from confide.ledger import Ledger
from confide.service import RequestReused, TotalExhausted
from confide.service.records import BudgetView


def test_a_request_in_which_nothing_is_new_stores_a_row_of_fixed_size(bench, rows):
    service = bench.open(epsilon=1000).serve()
    ann, bob = bench.analyst(service, epsilon=100), bench.analyst(service, "bob", epsilon=100)
    first = service.answer(ann, rows.all, "a")
    asked = bench.state()
    again = service.answer(ann, rows.all, "b")
    assert (again.values, again.cost.epsilon, again.replayed) == (first.values, 0, False)
    now = bench.state()
    new = set(now["confide_service_request"]) - set(asked["confide_service_request"])
    assert len(new) == 1
    assert len(new.pop()) < 700  # of 500 answers none
    del asked["confide_service_request"], now["confide_service_request"]
    assert now == asked
    told = service.answer(ann, rows.all, "b")
    assert (told.values, told.replayed, told.cost.epsilon) == (first.values, True, 0)
    with pytest.raises(RequestReused):
        service.answer(ann, rows.ten, "b")
    paid = service.answer(bob, rows.ten, "b")  # new to bob
    assert service.answer(bob, rows.ten, "b").values == paid.values == first.values[:10]
    bench.restart()
    assert bench.serve().answer(ann, rows.all, "b").values == first.values


def test_limits_that_add_up_to_the_total_show_nothing_of_others(local, rows):
    outcomes = set()
    for asked, block in itertools.product(([0], [0, 1], [2], [2, 3, 4]), (1, 3)):
        # Limits of ann and bob: half of the total each, and whole blocks of it.
        local.ledger = Ledger.open(
            local.url, dataset=f"d{asked}{block}", epsilon="9/5", adjacency="replace_one"
        )
        service = local.serve(block=block, analyst_block=block)
        ann, bob = (local.analyst(service, name, "9/10", 0) for name in ("ann", "bob"))
        for number in asked:
            service.answer(bob, [rows.all[number]], f"b{number}")
        told = []
        for number in range(12):
            try:
                service.answer(ann, [rows.all[number]], f"a{number}")
            except BudgetError as error:
                told.append(type(error).__name__)
            else:
                told.append("answered")
        outcomes.add(tuple(told))
    assert outcomes == {("answered",) * 9 + ("BudgetError",) * 3}


#: What the budget is opened with, each of two limits, and how it is served.
_SPLIT = {
    "response": ("2/5", "1/5", {}),
    "block": ("6/5", "3/5", {"block": 3, "analyst_block": 3}),
    "sparse_vector": (80, 40, {"epsilon": 20, "delta": "1e-6", "release": "sparse_vector"}),
    "then": (
        80, 40,
        {"epsilon": 10, "delta": "1e-6", "release": "sparse_vector", "then": "response", "then_epsilon": 5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(_SPLIT))
def test_the_whole_view_of_an_account_shows_nothing_of_others_where_limits_add_up_to_the_total(local, kind):
    """States, costs, refusals and /v1/budget after each question, whatever the other one asks, and its answers."""
    total, limit, settings = _SPLIT[kind]
    mine = [*local.stable[:2], local.unstable[0], local.stable[2], *local.unstable[1:], *local.stable[3:]] * 2
    views = set()
    for at, asked in enumerate(([], local.stable, local.unstable)):
        local.ledger = Ledger.open(
            local.url, dataset=f"d{at}", epsilon=total, delta="2e-3", adjacency="replace_one"
        )
        service = local.serve(**settings)
        ann, bob = (local.analyst(service, name, limit) for name in ("ann", "bob"))
        told = []
        for number in range(max(len(mine), len(asked))):
            for row in asked[number : number + 1]:
                with suppress(BudgetError):
                    service.answer(bob, [row], f"b{number}")
            for row in mine[number : number + 1]:
                try:
                    answers = service.answer(ann, [row], f"a{number}")
                except BudgetError as error:
                    told.append(type(error))
                else:
                    told.append((answers.states, answers.cost, answers.left))
            told.append(service.budget(ann))
        assert BudgetError in told  # her account came to its end
        assert not any(seen.total_exhausted for seen in told if isinstance(seen, BudgetView))
        views.add(tuple(told))
    assert len(views) == 1


@pytest.mark.parametrize("last", [False, True])
def test_an_open_epoch_goes_on_when_the_total_is_exhausted(bench, last):
    settings = {"then": "response", "then_epsilon": 1} if last else {}
    service = bench.open(epsilon=43).epochs(**settings)
    ann, bob = bench.analyst(service, epsilon=100), bench.analyst(service, "bob", epsilon=100)
    service.answer(ann, bench.stable[:1], "a1")
    service.answer(bob, bench.stable[:1], "b1")
    assert not service.budget(ann).total_exhausted
    assert service.answer(ann, bench.stable[1:2], "a2").cost.epsilon == 0
    other = bench.epochs(**settings)  # a second worker, at which no epoch is open
    assert other.budget(ann).total_exhausted
    with pytest.raises(TotalExhausted):
        other.answer(ann, bench.stable[2:3], "a3")
    bench.restart()
    service = bench.epochs(**settings)  # takes the first one's place
    assert not service.budget(ann).total_exhausted
    service.answer(ann, bench.unstable[:1], "a4")  # ends it
    assert service.budget(ann).total_exhausted
    assert service.budget(ann).answers == 0
    with pytest.raises(TotalExhausted):
        service.answer(ann, bench.stable[3:4], "a5")
    assert not service.budget(bob).total_exhausted
    assert service.answer(bob, bench.stable[1:2], "b2").cost.epsilon == 0


def test_an_epoch_of_another_history_is_not_told_as_open(bench):
    service = bench.open(epsilon=30).epochs()
    ann = bench.analyst(service, epsilon=100)
    service.answer(ann, bench.stable[:1], "a1")
    service._place._remove_witnesses()
    bench.restart()
    service = bench.epochs()
    assert service.budget(ann).total_exhausted
    with pytest.raises(TotalExhausted):
        service.answer(ann, bench.stable[1:2], "a2")


def test_where_limits_exceed_the_total_its_end_shows_what_others_asked(local, rows):
    """As documented: the total shows by refusals how much others paid for. It is no fact of the table."""
    told = set()
    for asked in (40, 41):
        local.ledger = Ledger.open(local.url, dataset=f"d{asked}", epsilon="1/5", adjacency="replace_one")
        service = local.serve()
        ann, bob = (local.analyst(service, name, 1, 0) for name in ("ann", "bob"))
        service.answer(bob, [rows.all[asked]], "b")
        service.answer(ann, [rows.all[40]], "a")
        try:
            told.add(service.answer(ann, [rows.all[7]], "c").replayed)
        except TotalExhausted:
            told.add("refused")
    assert told == {False, "refused"}
