"""The sparse vector over a store: paid when it opens, secret, and continued by nobody but its own place."""

from __future__ import annotations

import os
import shutil
from fractions import Fraction

import pytest

from confide.errors import BudgetError, LedgerError
from confide.ledger.counter import Counter
from confide.ledger.session import Session
from confide.ledger.store import Store
from confide.mechanisms.above_threshold import SparseVector
from confide.service import RequestReused


def epochs_paid(bench, name=None):
    return bench.spent(name) / 20


@pytest.fixture
def served(bench):
    service = bench.open(epsilon=1000).epochs()
    return bench, service, bench.analyst(service, epsilon=1000)


def test_stable_queries_are_free_within_a_paid_epoch(served):
    bench, service, ann = served
    first = service.answer(ann, bench.stable, "1")
    assert first.states == ("answered",) * 5
    assert first.values == (1, 0, 1, 0, 1)
    assert (first.cost.epsilon, first.cost.delta) == (20, Fraction(1, 10**6))
    more = service.answer(ann, [[0.95, 0.1], [-0.95, 0.1]], "2")
    assert (more.values, more.cost.epsilon) == ((1, 0), 0)
    assert epochs_paid(bench) == epochs_paid(bench, "ann") == 1
    bench.ledger.verify()


def test_an_unstable_query_ends_the_epoch_and_the_next_pays(served):
    bench, service, ann = served
    told = service.answer(ann, [*bench.stable, bench.unstable[0], [0.95, 0.0]], "1")
    assert told.states == ("answered",) * 5 + ("unstable", "unanswered")
    assert told.values[5:] == (None, None)
    assert epochs_paid(bench) == 1
    again = service.answer(ann, [bench.unstable[0]], "2")  # known: told for nothing
    assert (again.states, again.cost.epsilon) == (("unstable",), 0)
    told = service.answer(ann, [[0.95, 0.0]], "3")
    assert (told.states, told.cost.epsilon) == (("answered",), 20)
    assert epochs_paid(bench) == 2


def test_a_request_may_open_several_epochs(bench):
    service = bench.open(epsilon=1000).epochs(epochs=3)
    ann = bench.analyst(service, epsilon=60)
    told = service.answer(ann, [*bench.unstable, [0.95, 0.0]], "1")
    assert told.states == ("unstable", "unstable", "unstable", "unanswered")
    assert told.cost.epsilon == 60
    with pytest.raises(BudgetError):
        service.answer(ann, [[0.95, 0.0]], "2")
    bench.ledger.grant("ann", 80, "1e-3")
    assert service.answer(ann, [[0.95, 0.0], [0.0, 0.2], [0.9, 0.2]], "3").states == (
        "answered",
        "unstable",
        "unanswered",
    )
    bench.ledger.verify()


def test_a_replay_and_a_reused_id(served):
    bench, service, ann = served
    first = service.answer(ann, [*bench.stable, *bench.unstable], "1")
    again = service.answer(ann, [*bench.stable, *bench.unstable], "1")
    assert (again.values, again.states, again.cost, again.replayed) == (
        first.values,
        first.states,
        first.cost,
        True,
    )
    with pytest.raises(RequestReused):
        service.answer(ann, bench.stable, "1")
    assert epochs_paid(bench) == 1


def test_each_analyst_has_epochs_of_its_own(served):
    bench, service, ann = served
    bob = bench.analyst(service, "bob", epsilon=1000)
    service.answer(ann, bench.stable, "1")
    assert service.answer(bob, bench.stable, "1").cost.epsilon == 20
    service.answer(ann, bench.unstable[:1], "2")  # ends ann's, not bob's
    assert service.answer(bob, [[0.95, 0.0]], "2").cost.epsilon == 0
    assert epochs_paid(bench) == 2


@pytest.mark.parametrize("then", [{}, {"then": "response", "then_epsilon": "1/2"}], ids=["", "then"])
def test_what_another_was_told_is_asked_anew_and_account_and_total_pay(bench, then):
    service = bench.open(epsilon=1000).epochs(**then)
    names = ("ann", "bob", "poor")
    ann, bob, poor = (bench.analyst(service, name, 1 if name == "poor" else 100) for name in names)
    last = Fraction(1, 2) if then else 0
    queries = (*bench.stable[:2], bench.unstable[0])
    for who in (ann, bob):
        before, name = bench.spent(), who.name
        told = [service.answer(who, [query], f"{number}") for number, query in enumerate(queries)]
        assert [one.cost.epsilon for one in told] == [20, 0, last]
        assert bench.spent() - before == bench.spent(name) == 20 + last
        assert [one.states for one in told[:2]] == [("answered",)] * 2
    answers = [service.answer(who, queries, "again").values for who in (ann, bob)]
    assert bench.spent() == 2 * (20 + last)  # what one was told is free to it
    assert answers[0][:2] == answers[1][:2] == (1, 0)
    kept = bench.state()
    for number, query in enumerate(queries):
        with pytest.raises(BudgetError):  # told to two, and to nobody whose account does not pay
            service.answer(poor, [query], f"{number}")
    assert bench.state() == kept
    assert bench.spent("poor") == 0


def test_the_second_draw_of_a_row_is_its_own(bench, monkeypatch):
    service = bench.open(epsilon=1000).epochs()
    analysts = [bench.analyst(service, name, epsilon=100) for name in ("ann", "bob")]
    asked = []
    true = SparseVector.above_many

    def above(self, values):
        asked.append(list(values))
        return true(self, values)

    monkeypatch.setattr(SparseVector, "above_many", above)
    for who in analysts:
        service.answer(who, bench.stable[:1], "1")
    assert len(asked) == 2
    assert asked[0] == asked[1]


def test_a_restart_goes_on(served):
    bench, service, ann = served
    service.answer(ann, bench.stable, "1")
    bench.restart()
    assert bench.epochs().answer(ann, [[0.95, 0.0]], "2").cost.epsilon == 0
    bench.restart()
    assert bench.epochs().answer(ann, [[0.95, 0.1]], "3").cost.epsilon == 0
    assert epochs_paid(bench) == 1
    bench.ledger.verify()


def test_a_second_worker_pays_its_own(served):
    bench, service, ann = served
    service.answer(ann, bench.stable, "1")
    second = bench.epochs()
    assert second.answer(ann, [[0.95, 0.0]], "2").cost.epsilon == 20
    assert second.answer(ann, [[0.95, 0.1]], "3").cost.epsilon == 0
    assert service.answer(ann, [[0.95, 0.2]], "4").cost.epsilon == 0
    assert epochs_paid(bench) == 2
    assert service.answer(ann, [[0.95, 0.1]], "5").cost.epsilon == 0  # what one was told, all know


@pytest.mark.parametrize("lost", ["witness", "place", "both"])
def test_a_restart_that_cannot_show_its_history_pays(served, counter_folder, lost):
    bench, service, ann = served
    service.answer(ann, bench.stable, "1")
    bench.restart()
    for path in counter_folder.glob("*.worker*"):
        if lost == "both" or path.suffix == {"witness": ".counter", "place": ".place"}[lost]:
            path.unlink()
    again = bench.epochs()
    assert again.answer(ann, [[0.95, 0.0]], "2").cost.epsilon == 20
    assert again.answer(ann, [[0.95, 0.1]], "3").cost.epsilon == 0


def test_no_counters_no_continuation(bench, monkeypatch):
    monkeypatch.setenv("CONFIDE_LEDGER_COUNTER", "off")
    service = bench.open(epsilon=1000).epochs()
    ann = bench.analyst(service, epsilon=1000)
    service.answer(ann, bench.stable, "1")
    assert service.answer(ann, [[0.95, 0.0]], "2").cost.epsilon == 0
    bench.restart()
    assert bench.epochs().answer(ann, [[0.95, 0.1]], "3").cost.epsilon == 20


@pytest.mark.parametrize(
    "damage", ["UPDATE confide_secret SET secret = ?", "DELETE FROM confide_secret WHERE secret <> ?"]
)
def test_a_state_that_is_not_the_last_one_kept_is_not_continued(bench, damage):
    service = bench.open(epsilon=1000).epochs()
    ann = bench.analyst(service, epsilon=1000)
    service.answer(ann, bench.stable, "1")
    store = Store.at(bench.ledger._url)
    with store.reading() as connection:
        (old,) = store.row(connection, "SELECT secret FROM confide_secret")
    service.answer(ann, [[0.95, 0.0]], "2")
    with store.writing() as connection:
        store.execute(connection, damage, (bytes(old),))
    assert service.answer(ann, [[0.95, 0.1]], "3").cost.epsilon == 20


def backup(bench, path):
    bench.restart()
    shutil.copy(path, path.with_name("backup"))


def restore(bench, path):
    bench.restart()
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    os.replace(path.with_name("backup"), path)


def test_a_restored_backup_pays_another_epoch(local, tmp_path, counter_folder):
    path = tmp_path / "ledger.db"
    service = local.open(epsilon=1000).epochs()
    ann, bob = local.analyst(service, epsilon=1000), local.analyst(service, "bob", epsilon=1000)
    service.answer(ann, local.stable, "1")
    service.answer(bob, local.stable, "1")
    backup(local, path)
    service = local.epochs()
    service.answer(ann, local.unstable, "2")  # ends the epoch that the backup still holds open
    restore(local, path)
    service = local.epochs()
    with pytest.raises(LedgerError, match="rolled back"):
        service.answer(ann, [[0.95, 0.0]], "3")
    local.restart()
    ledger_id = local.ledger.parts().dataset.ledger_id
    (counter_folder / f"{ledger_id}.counter").unlink()  # the owner goes on with the old store
    service = local.epochs()
    assert service.answer(ann, [[0.95, 0.0]], "3").cost.epsilon == 20
    # Another's epoch is of the lost history too, also after the chain has passed its length again.
    for number in range(5):
        service.answer(ann, [[0.9, 0.1 * number]], f"more{number}")
    assert service.answer(bob, [[0.95, 0.0]], "2").cost.epsilon == 20
    local.restart()
    assert local.epochs().answer(bob, [[0.95, 0.2]], "3").cost.epsilon == 0
    local.ledger.verify()


def test_a_backup_is_noticed_by_what_another_worker_told_of_a_crashed_one(
    local, tmp_path, counter_folder, monkeypatch
):
    path = tmp_path / "ledger.db"
    service, other = local.open(epsilon=1000).epochs(), local.epochs()
    ann = local.analyst(service, epsilon=1000)
    service.answer(ann, local.stable, "1")
    for held in (service, other):
        held.close()
    backup(local, path)
    service, other = local.epochs(), local.epochs()
    with monkeypatch.context() as patch:
        patch.setattr(service._place, "witness", lambda mark: None)  # killed before it
        service.answer(ann, local.unstable, "2")  # ends the epoch that the backup holds open
    assert other.answer(ann, local.unstable, "2").replayed
    restore(local, path)
    (counter_folder / f"{local.ledger.parts().dataset.ledger_id}.counter").unlink()
    service = local.epochs()
    assert service.answer(ann, [[0.95, 0.0]], "3").cost.epsilon == 20
    local.restart()  # and from then on as ever
    assert local.epochs().answer(ann, [[0.95, 0.2]], "4").cost.epsilon == 0
    local.ledger.verify()


def test_a_witness_that_cannot_be_written_leaves_none_in_the_folder(local, counter_folder, monkeypatch):
    service, other = local.open(epsilon=1000).epochs(), local.epochs()
    ann = local.analyst(service, epsilon=1000)
    service.answer(ann, local.stable, "1")
    assert len(list(counter_folder.glob("*.worker*.counter"))) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Counter, "advance", lambda self, mark: False)
        other.answer(ann, local.stable, "1")
    assert not list(counter_folder.glob("*.worker*.counter"))
    local.restart()
    assert local.epochs().answer(ann, [[0.95, 0.0]], "2").cost.epsilon == 20


def test_the_secret_of_a_dropped_epoch_is_overwritten(bench, counter_folder):
    service = bench.open(epsilon=1000).epochs()
    ann = bench.analyst(service, epsilon=1000)
    service.answer(ann, bench.stable, "1")
    bench.restart()
    for path in counter_folder.glob("*.worker*.counter"):
        path.unlink()
    bench.epochs().answer(ann, [[0.95, 0.0]], "2")
    with Store.at(bench.ledger._url).reading() as connection:
        held = Store.at(bench.ledger._url).rows(
            connection, "SELECT secret FROM confide_secret ORDER BY sequence"
        )
    assert bytes(held[0][0]) == b""
    assert b"rho" in bytes(held[1][0])
    bench.ledger.verify()


def test_files_beside_the_store_are_the_owner_s_alone(local, counter_folder):
    mask = os.umask(0o022)
    try:
        service = local.open(epsilon=1000).epochs()
        service.answer(local.analyst(service, epsilon=1000), local.stable, "1")
    finally:
        os.umask(mask)
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in counter_folder.iterdir()}
    assert modes == {".counter": 0o600, ".place": 0o600}
    assert all(path.stat().st_mode & 0o077 == 0 for path in counter_folder.iterdir())


def test_a_crash_between_commit_and_answer(bench, monkeypatch):
    """The stored answer is given; the epoch goes on, and its entry is witnessed before that answer leaves."""

    class Crash(BaseException):
        pass

    def crash(*arguments):
        raise Crash

    service = bench.open(epsilon=1000).epochs()
    ann = bench.analyst(service, epsilon=1000)
    service.answer(ann, bench.stable, "1")
    with monkeypatch.context() as patch:
        patch.setattr(Session, "remember", crash)
        with pytest.raises(Crash):
            service.answer(ann, bench.unstable, "2")
    place = service._place._witness.path
    bench.restart()
    service = bench.epochs()
    told = service.answer(ann, bench.unstable, "2")
    assert (told.states[0], told.replayed) == ("unstable", True)
    seen = Counter(place.parent, place.name.removesuffix(".counter")).read()
    assert seen.sequence == bench.ledger.verify().entries
    assert service.answer(ann, [[0.95, 0.0]], "3").cost.epsilon == 20


def test_a_crash_before_the_commit_leaves_the_epoch_where_it_was(bench, monkeypatch):
    class Crash(BaseException):
        pass

    service = bench.open(epsilon=1000).epochs()
    ann = bench.analyst(service, epsilon=1000)
    real = Session.flush

    def crash(self):
        real(self)
        raise Crash

    for name in ("open", "go on"):
        kept = bench.state()
        with monkeypatch.context() as patch:
            patch.setattr(Session, "flush", crash)
            with pytest.raises(Crash):
                service.answer(ann, bench.unstable, name)
        assert bench.state() == kept
        service.answer(ann, bench.stable, f"{name}, again")
    assert epochs_paid(bench) == 1


def test_a_forked_worker_is_another_place(local):
    service = local.open(epsilon=1000).epochs()
    ann = local.analyst(service, epsilon=1000)
    service.answer(ann, local.stable, "1")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if service.answer(ann, [[0.95, 0.0]], "2").cost.epsilon == 20 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert service.answer(ann, [[0.95, 0.3]], "3").cost.epsilon == 0


def test_the_state_is_in_no_export_and_no_listing(served):
    bench, service, ann = served
    service.answer(ann, bench.stable, "1")
    service.answer(ann, [[0.95, 0.0]], "2")
    store = Store.at(bench.ledger._url)
    with store.reading() as connection:
        (state,) = store.row(connection, "SELECT secret FROM confide_secret")
    assert b'"rho"' in bytes(state)
    shown = "".join(
        (
            bench.ledger.export(),
            bench.ledger.export("csv"),
            repr(bench.ledger.show()),
            repr(service.overview()),
        )
    )
    # "rho" is a column of the table, and empty there; the state holds it by a name in quotes.
    assert '"rho"' not in shown
    assert bytes(state).decode()[1:-1] not in shown
    assert bytes(state).hex() not in shown


def test_refused_before_anything_is_drawn(served):
    bench, service, _ = served
    poor = bench.analyst(service, "poor", epsilon=19)
    kept = bench.state()

    class Silent:
        certified = True

        def bits(self, count):
            raise AssertionError("drawn")

        def child(self, name):
            return self

    service._stream = Silent()
    with pytest.raises(BudgetError):
        service.answer(poor, bench.stable, "1")
    assert bench.state() == kept
