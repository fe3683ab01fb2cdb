"""Exactly once: one charge and one answer a request, whatever crashes, repeats or races."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

from confide.errors import BudgetError, DataError, LedgerError, ParameterError, RefusedError
from confide.ledger import session as sessions
from confide.ledger.counter import Counter
from confide.ledger.operations import Charge
from confide.ledger.session import Session
from confide.ledger.store import Store
from confide.service import (
    KeyRevoked,
    RequestOfAnotherModel,
    RequestReused,
    RowError,
    TooManyRequests,
    TotalExhausted,
)
from confide.service.answering import LevelDrawing
from confide.service.cache import Shelf


class Crash(BaseException):
    """The process ends here."""


def before(monkeypatch, owner, name):
    def crash(*arguments, **named):
        raise Crash

    monkeypatch.setattr(owner, name, crash)


def after(monkeypatch, owner, name):
    real = getattr(owner, name)

    def crash(*arguments, **named):
        real(*arguments, **named)
        raise Crash

    monkeypatch.setattr(owner, name, crash)


#: In order: read, drawn, charged, written, flushed | committed.
UNCOMMITTED = [
    (before, Shelf, "load"),
    (after, Shelf, "load"),
    (before, LevelDrawing, "draw"),
    (after, LevelDrawing, "draw"),
    (after, Charge, "apply"),
    (before, Shelf, "_write"),
    (after, Shelf, "_write"),
    (after, Session, "flush"),
]
COMMITTED = [(before, Session, "remember"), (before, Counter, "advance"), (after, Counter, "advance")]


@pytest.mark.parametrize("place", range(len(UNCOMMITTED)))
def test_a_crash_before_the_commit_leaves_nothing(bench, rows, monkeypatch, place):
    service = bench.open().serve()
    ann = bench.analyst(service)
    service.answer(ann, rows.one, "earlier")
    kept = bench.state()
    with monkeypatch.context() as patch:
        how, owner, name = UNCOMMITTED[place]
        how(patch, owner, name)
        with pytest.raises(Crash):
            service.answer(ann, rows.ten, "r")
    bench.restart()
    assert bench.state() == kept
    told = bench.serve().answer(ann, rows.ten, "r")
    assert not told.replayed
    assert told.cost.epsilon == Fraction(9, 10)
    assert bench.spent() == bench.spent("ann") == 1
    bench.ledger.verify()


@pytest.mark.parametrize("place", range(len(COMMITTED)))
def test_a_crash_after_the_commit_is_answered_again_at_no_cost(bench, rows, monkeypatch, place):
    service = bench.open().serve()
    ann = bench.analyst(service)
    with monkeypatch.context() as patch:
        how, owner, name = COMMITTED[place]
        how(patch, owner, name)
        with pytest.raises(Crash):
            service.answer(ann, rows.ten, "r")
    bench.restart()
    assert bench.spent() == bench.spent("ann") == 1
    again = bench.serve()
    told = again.answer(ann, rows.ten, "r")
    assert told.replayed
    assert told.values == again.answer(ann, rows.ten, "other").values
    assert bench.spent() == bench.spent("ann") == 1
    bench.ledger.verify()


def test_a_crash_in_the_commit_itself_is_either_of_the_two(local, rows, monkeypatch):
    service = local.open().serve()
    ann = local.analyst(service)
    store = Store.at(local.ledger._url)

    class Driver:
        def __init__(self, real):
            self.real = real

        def commit(self):
            raise Crash

        def __getattr__(self, name):
            return getattr(self.real, name)

    service.answer(ann, rows.one, "earlier")
    real, store._driver = store._driver, Driver(store._driver)
    with pytest.raises(Crash):
        service.answer(ann, rows.ten, "r")
    store._driver = real
    local.restart()
    assert local.spent() == Fraction(1, 10)
    assert local.serve().answer(ann, rows.ten, "r").cost.epsilon == Fraction(9, 10)


def test_others_of_a_failed_group_are_told_that_it_failed(local, rows, monkeypatch):
    """A crash in one request of a group fails the transaction of all; none of them is charged."""
    service = local.open().serve()
    ann = local.analyst(service)
    store = Store.at(local.ledger._url)
    real, calls = Charge.apply, []

    def second_fails(self, session):
        calls.append(1)
        if len(calls) == 2:
            raise Crash
        return real(self, session)

    outcomes = []

    def ask(number):
        try:
            service.answer(ann, [rows.all[number]], f"r{number}")
        except BaseException as error:
            outcomes.append(error)

    monkeypatch.setattr(Charge, "apply", second_fails)
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    with store.lock:  # until all wait
        for thread in threads:
            thread.start()
        queue = store.queues.setdefault(local.ledger.parts().dataset.id, sessions.deque())
        while len(queue) < 4:
            pass
    for thread in threads:
        thread.join()
    assert len(outcomes) == 4
    assert {type(error) for error in outcomes} == {Crash, LedgerError}
    assert local.spent() == 0
    monkeypatch.undo()
    assert service.answer(ann, [rows.all[0]], "r0").cost.epsilon == Fraction(1, 10)


def test_the_same_request_is_the_same_answer(bench, rows):
    service = bench.open().serve()
    ann = bench.analyst(service)
    first = service.answer(ann, rows.ten, "r")
    for _ in range(3):
        told = service.answer(ann, rows.ten, "r")
        assert (told.values, told.cost, told.replayed) == (first.values, first.cost, True)
    assert bench.spent() == 1
    assert service.budget(ann).spent.epsilon == 1


def test_a_request_id_with_other_rows_is_refused_without_what_was_stored(bench, rows):
    service = bench.open().serve()
    ann, bob = bench.analyst(service), bench.analyst(service, "bob")
    service.answer(ann, rows.ten, "secret-id")
    kept = bench.state()
    for other in (rows.ten[:9], rows.ten[::-1], rows.all[10:20]):
        with pytest.raises(RequestReused) as caught:
            service.answer(ann, other, "secret-id")
        assert type(caught.value) is RequestReused
        assert str(caught.value) == (
            "This request id was used for other rows. Nothing was charged. Use a new request id."
        )
    assert bench.state() == kept
    assert not service.answer(bob, rows.all[10:20], "secret-id").replayed  # an id is its analyst's own


def test_a_request_id_of_another_model_or_settings_is_refused_as_such(bench, rows):
    service = bench.open().serve()
    ann = bench.analyst(service)
    service.answer(ann, rows.ten, "r")
    other, kept = bench.serve(epsilon="1/5"), bench.state()
    for asked in (rows.ten, rows.ten[:9]):
        with pytest.raises(RequestOfAnotherModel, match="another model, or under other settings"):
            other.answer(ann, asked, "r")
    assert bench.state() == kept
    assert not other.answer(ann, rows.ten, "r2").replayed
    assert service.answer(ann, rows.ten, "r").replayed


def test_a_query_is_drawn_once_and_each_analyst_pays_once(bench, rows):
    service = bench.open().serve()
    ann, bob = bench.analyst(service), bench.analyst(service, "bob")
    first = service.answer(ann, rows.ten, "a1")
    assert service.answer(ann, rows.ten, "a2").cost.epsilon == 0
    told = service.answer(bob, rows.ten, "b1")
    assert told.values == first.values
    assert told.cost.epsilon == 1
    assert (bench.spent(), bench.spent("ann"), bench.spent("bob")) == (1, 1, 1)
    bench.restart()
    again = bench.serve()
    assert again.answer(bob, rows.ten[::-1], "b2").values == first.values[::-1]
    mixed = again.answer(bob, rows.all[5:15], "b3")
    assert mixed.cost.epsilon == Fraction(1, 2)
    assert mixed.values[:5] == first.values[5:]
    assert (bench.spent(), bench.spent("bob")) == (Fraction(3, 2), Fraction(3, 2))
    bench.ledger.verify()


def test_a_query_twice_in_one_request_costs_once(bench, rows):
    service = bench.open().serve()
    ann = bench.analyst(service)
    told = service.answer(ann, rows.one * 7 + [[-0.0, 2.0], [0.0, 2.0]], "r")
    assert len(set(told.values[:7])) == 1
    assert told.values[7] == told.values[8]
    assert told.cost.epsilon == Fraction(2, 10)


@pytest.mark.parametrize("changes", [{"epsilon": "1/5"}, {"release": "global"}, {"delta": "1e-6"}])
def test_other_terms_are_other_queries(local, rows, changes):
    service = local.open().serve()
    ann = local.analyst(service)
    service.answer(ann, rows.one, "r1")
    other = local.serve(**changes)
    before_ = local.spent()
    told = other.answer(ann, rows.one, "r2")
    assert not told.replayed
    assert told.cost.epsilon > 0
    assert local.spent() > before_


def test_64_threads_race_for_the_last_units(bench, rows):
    service = bench.open(epsilon="1/2").serve()
    ann, bob = bench.analyst(service), bench.analyst(service, "bob")

    def ask(number):
        try:
            service.answer((ann, bob)[number % 2], [rows.all[number]], f"r{number}")
        except TotalExhausted:
            return 0
        return 1

    with ThreadPoolExecutor(64) as pool:
        assert sum(pool.map(ask, range(64))) == 5
    assert bench.spent() == Fraction(1, 2)
    assert service.overview().refused == 59
    bench.ledger.verify()


def test_two_services_race_for_the_last_unit_of_an_account(bench, rows):
    one = bench.open().serve()
    ann = bench.analyst(one, epsilon="1/10")
    services = [one, bench.serve()]

    def ask(number):
        try:
            services[number % 2].answer(ann, [rows.all[number]], f"r{number}")
        except BudgetError:
            return 0
        return 1

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(ask, range(32))) == 1


def test_one_query_at_once_is_drawn_once(bench, rows):
    service = bench.open().serve()
    people = [bench.analyst(service, f"p{number}") for number in range(4)]

    def ask(number):
        return service.answer(people[number % 4], rows.ten, f"r{number}")

    with ThreadPoolExecutor(32) as pool:
        told = list(pool.map(ask, range(32)))
    assert len({answers.values for answers in told}) == 1
    assert bench.spent() == 1
    assert all(bench.spent(person.name) == 1 for person in people)


def test_a_refused_request_draws_and_costs_nothing(bench, rows, monkeypatch):
    service = bench.open(epsilon=1).serve()
    ann, bob = bench.analyst(service, epsilon="1/2"), bench.analyst(service, "bob", epsilon=5)
    service.answer(bob, rows.all[:6], "r")
    kept = bench.state()
    before(monkeypatch, LevelDrawing, "draw")
    with pytest.raises(BudgetError) as caught:
        service.answer(ann, rows.all[6:12], "r")
    assert not isinstance(caught.value, TotalExhausted)
    assert (caught.value.limit.epsilon, caught.value.spent.epsilon) == (Fraction(1, 2), 0)
    with pytest.raises(TotalExhausted) as caught:
        service.answer(ann, rows.all[6:11], "r")
    # Of the total, spent by bob, nothing is told: not in the message, not in the fields.
    assert caught.value.limit.epsilon == Fraction(1, 2)
    assert "epsilon = 0.5" in str(caught.value)
    assert "0.6" not in str(caught.value)
    assert "0.4" not in str(caught.value)
    assert bench.state() == kept


def test_free_answers_stay_free_when_nothing_is_left(bench, rows):
    service = bench.open(epsilon=1).serve()
    ann = bench.analyst(service, epsilon=1)
    first = service.answer(ann, rows.ten, "r")
    bench.ledger.grant("ann", "1/10")  # below what was spent
    assert service.answer(ann, rows.ten, "s").values == first.values
    with pytest.raises(BudgetError):
        service.answer(ann, rows.all[10:11], "t")


def test_an_exhausted_total_does_not_show_what_others_asked(bench, rows):
    service = bench.open(epsilon=1).serve()
    ann, bob = bench.analyst(service), bench.analyst(service, "bob")
    service.answer(ann, rows.ten, "r")
    told = []
    for asked in (rows.one, rows.all[20:21]):  # known to ann, and to nobody
        with pytest.raises(TotalExhausted) as caught:
            service.answer(bob, asked, "r")
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert service.answer(ann, rows.one, "s").cost.epsilon == 0


@pytest.mark.parametrize("block", [1, 4])
def test_an_account_says_that_the_total_is_exhausted_when_it_refuses_and_not_before(bench, rows, block):
    service = bench.open(epsilon=1).serve(block=block)
    ann, bob = bench.analyst(service), bench.analyst(service, "bob")
    for at in range(12):
        before, mine = service.budget(bob), service.budget(ann)
        try:
            service.answer(ann, rows.all[at : at + 1], f"r{at}")
            refused = False
        except TotalExhausted:
            refused = True
        assert before.total_exhausted is mine.total_exhausted is refused
        # While it covers anything, bob sees his own account (50), and what the public total could pay for at
        # most, whatever ann has asked.
        assert before.answers == (0 if refused else {1: 10, 4: 8}[block])
    assert refused


def test_the_noise_is_drawn_alike_for_new_and_known_rows(local, rows):
    """The bits that are taken depend on the number of rows alone."""
    service = local.open().serve()
    ann, bob = local.analyst(service), local.analyst(service, "bob")

    class Counting:
        certified = True
        taken = 0

        def bits(self, count):
            self.taken += count
            return real.bits(count)

        def child(self, name):
            return self

    real = service._stream
    taken = []
    for who, asked, name in (
        (ann, rows.ten, "1"),
        (ann, rows.ten, "2"),
        (bob, rows.ten, "3"),
        (ann, local.stable * 2, "4"),
    ):
        service._stream = Counting()
        service.answer(who, asked, name)
        taken.append(service._stream.taken)
    assert taken[0] > 0
    assert len(set(taken)) == 1


def test_a_broken_source_of_bits_charges_nothing(local, rows):
    from confide.mechanisms.stream import broken_stream

    class Broken:
        certified = True

        def bits(self, count):
            raise broken_stream()

        def child(self, name):
            return self

    service = local.open().serve()
    ann = local.analyst(service)
    kept = local.state()
    service._stream = Broken()
    with pytest.raises(LedgerError, match="random bits"):
        service.answer(ann, rows.ten, "r")
    assert local.state() == kept


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ([], "rows"), ("text", "rows"), ([[0.123456, "0.98765"]], "column 1"), ([[0.123456]], "row"),
        ([{"a": 0.123456}], "row"), ([[0.123456, float("nan")]], "column 1"), ([[0.123456, 10**400]], "column 1"),
        ([[0.123456, True]], "column 1"), ([[0.0, 0.0]] * 1001, "rows"),
    ],
)  # fmt: skip
def test_malformed_rows_are_refused_without_their_values(local, bad, field):
    service = local.open().serve()
    ann = local.analyst(service)
    kept = local.state()
    with pytest.raises(RowError, match=field) as caught:
        service.answer(ann, bad, "r")
    assert "123456" not in str(caught.value)
    assert "98765" not in str(caught.value)
    assert isinstance(caught.value, DataError)
    assert local.state() == kept


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", None, 7])
def test_malformed_request_ids(local, rows, name):
    service = local.open().serve()
    with pytest.raises(ParameterError, match="request id is not valid"):
        service.answer(local.analyst(service), rows.one, name)


def test_the_rate_is_limited_by_when_one_asks_alone(local, rows):
    service = local.open().serve(rate=0.001, burst=3)
    ann, bob = local.analyst(service), local.analyst(service, "bob")
    for number in range(3):
        service.admit(ann)
        service.answer(ann, rows.one, f"r{number}")
    with pytest.raises(TooManyRequests) as caught:
        service.admit(ann)
    assert 0 < caught.value.retry_after <= 1000
    service.admit(bob)


def test_an_account_without_grant_is_refused(local, rows):
    service = local.open().serve()
    owner = service.analyst_of(service.owner_key())
    with pytest.raises(RefusedError, match="no account"):
        service.answer(owner, rows.one, "r")
    owner = service.analyst_of(service.grant("owner", 1))
    assert owner.owner
    assert service.answer(owner, rows.one, "r").cost.epsilon == Fraction(1, 10)


def test_a_key_that_ends_meanwhile_buys_nothing(bench, rows):
    service = bench.open().serve()
    ann = bench.analyst(service)
    service.rotate("ann")
    with pytest.raises(KeyRevoked):
        service.answer(ann, rows.one, "r")
    assert bench.spent() == 0


def test_what_the_owner_sees(bench, rows):
    service = bench.open().serve()
    ann, bob = bench.analyst(service), bench.analyst(service, "bob")
    service.answer(ann, rows.ten, "1")
    service.answer(ann, rows.ten, "2")
    service.answer(bob, rows.all[:12], "1")
    with pytest.raises(BudgetError):
        service.answer(bob, rows.all[:200], "2")
    service.revoke("bob")
    seen = service.overview()
    assert seen.total.spent.epsilon == Fraction(12, 10)
    assert (seen.answered, seen.refused, seen.total.drawn) == (32, 1, 12)
    lines = {line.name: line for line in seen.accounts}
    assert (lines["ann"].requests, lines["ann"].paid, lines["ann"].drawn, lines["ann"].state) == (
        2,
        10,
        10,
        "active",
    )
    assert (lines["bob"].paid, lines["bob"].drawn, lines["bob"].refused, lines["bob"].state) == (
        12,
        2,
        1,
        "revoked",
    )
    assert seen.history[-1][1] == pytest.approx(1.2)
