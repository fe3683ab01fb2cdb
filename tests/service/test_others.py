"""What a request leaves in the store where nothing was new, and what an analyst sees of others near the end."""

from __future__ import annotations

import itertools

import pytest

from confide.errors import BudgetError
from confide.ledger import Ledger
from confide.service import RequestReused, TotalExhausted


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
