"""Conditions that a store meets: disk full, stopped processes, read-only files, a clock set back, an owner who
grants while analysts charge."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction

import pytest

from confide.errors import BudgetError, LedgerError
from confide.ledger import Ledger, chain
from confide.ledger.store import Store

CHARGE = (
    "from confide.ledger import Ledger; from confide.errors import *\n"
    "from confide.privacy import Event, Guarantee\n"
    "import os, resource, signal, sys\n"
    "charge = Guarantee('1/1000', 0, 'replace_one', 'row', Event.of('pure', epsilon=0.001))\n"
    "ledger = Ledger.from_handle(sys.argv[1])\n"
)


@pytest.fixture
def ledger(sqlite_url, open_ledger):
    return open_ledger(sqlite_url)


def test_a_full_disk_charges_nobody_and_loses_nothing(ledger, tmp_path):
    """The log may not grow by more than 48 KiB (RLIMIT_FSIZE): some charges succeed, then writes fail."""
    ledger._store.close()
    script = CHARGE + (
        "done = 0\n"
        "limit = os.stat(ledger._store.url.database).st_size + 48 * 1024\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n"
        "for _ in range(500):\n"
        "    try: ledger.reserve(charge, label='x' * 500); done += 1\n"
        "    except LedgerError as error: message = str(error); break\n"
        "else: sys.exit('the disk was never full')\n"
        "again = 0\n"
        "for _ in range(3):\n"
        "    try: ledger.reserve(charge, label='x' * 2000); again += 1\n"
        "    except LedgerError: pass\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, [resource.getrlimit(resource.RLIMIT_FSIZE)[1]] * 2)\n"
        "ledger.reserve(charge)\n"  # the process heals as soon as there is room
        "print(done + again + 1, message)\n"
    )
    command = [sys.executable, "-c", script, ledger.handle]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    count, _, error = answer.partition(" ")
    assert int(count) > 5
    assert "failed" in error
    assert "free space" in error
    assert ledger.total().epsilon == Fraction(int(count), 1000)
    assert ledger.verify().entries == 1 + int(count)


def test_a_stopped_process_keeps_others_waiting_and_its_charge_counts_once(ledger, guarantee):
    """SIGSTOP inside a transaction: nobody overtakes it; SIGCONT goes on, with both charges in the total."""
    script = CHARGE + (
        "from confide.ledger.session import Session\n"
        "flush = Session.flush\n"
        "def stop(self):\n"
        "    flush(self); print('stopping', flush=True); os.kill(os.getpid(), signal.SIGSTOP)\n"
        "Session.flush = stop\n"
        "ledger.reserve(charge)\n"
    )
    ledger.reserve(guarantee("0.001"))
    child = subprocess.Popen([sys.executable, "-c", script, ledger.handle], stdout=subprocess.PIPE)
    try:
        assert select.select([child.stdout], [], [], 60)[0]
        assert os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT).si_status == signal.SIGSTOP
        done = threading.Event()
        waiting = threading.Thread(target=lambda: (ledger.reserve(guarantee("0.001")), done.set()))
        waiting.start()
        assert not done.wait(0.3)
        child.send_signal(signal.SIGCONT)
        assert done.wait(60)
        assert child.wait(60) == 0
        waiting.join()
    finally:
        child.kill()
        child.wait()
    assert ledger.total().epsilon == Fraction(3, 1000)
    assert ledger.verify().entries == 4


def test_a_stopped_process_that_is_killed_charges_nothing(ledger, guarantee):
    pid = os.fork()
    if pid == 0:
        try:
            from confide.ledger.session import Session

            Session.flush = lambda self: os.kill(os.getpid(), signal.SIGSTOP)
            ledger.reserve(guarantee("0.5"))
        finally:
            os._exit(1)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    ledger.reserve(guarantee("0.6"))
    assert ledger.total().epsilon == Fraction(6, 10)


def test_a_read_only_store_refuses_and_can_be_read(ledger, guarantee, tmp_path):
    ledger.reserve(guarantee(0.1))
    ledger._store.close()  # the log is in the file now
    files = list(tmp_path.glob("ledger.db*"))
    if os.geteuid() == 0:  # root writes what it likes: ask SQLite to refuse instead
        store = ledger._store
        with store.reading():
            pass
        store._driver.execute("PRAGMA query_only = ON")
    else:
        for file in files:
            file.chmod(0o400)
    with pytest.raises(LedgerError, match=r"readonly|read-only|permission"):
        ledger.reserve(guarantee(0.1))
    ledger._store.close()
    assert ledger.total().epsilon == Fraction(1, 10)
    assert ledger.show()["entries"] == 2
    for file in files:
        if file.exists():
            file.chmod(0o600)
    ledger._store.close()
    ledger.reserve(guarantee(0.1))
    assert ledger.verify().entries == 3


def test_a_clock_set_back_changes_no_order_and_no_budget(ledger, guarantee, monkeypatch):
    ledger.reserve(guarantee(0.4))
    with monkeypatch.context() as back:
        back.setattr(chain.time, "time", lambda: 86400.0)  # 1970
        second = ledger.reserve(guarantee(0.4), key="k")
        ledger.settle(second)
        assert ledger.reserve(guarantee(0.4), key="k").replayed
        with pytest.raises(BudgetError):
            ledger.reserve(guarantee(0.4))
    ledger.reserve(guarantee(0.2))
    entries = [json.loads(entry["body"]) for entry in json.loads(ledger.export())["entries"]]
    assert [entry["sequence"] for entry in entries] == list(range(1, 6))
    assert entries[2]["time"].startswith("1970-01-02")
    assert not entries[4]["time"].startswith("1970")
    assert ledger.total().epsilon == 1
    assert ledger.verify().entries == 5
    store = Store.at(ledger._url)
    store.marks.clear()
    assert ledger.verify().assumptions == ()  # the counter counts entries, not hours


def test_an_owner_who_grants_while_an_analyst_charges(url, open_ledger, guarantee):
    """Limits go up and down meanwhile: never is more spent than the highest, and nothing is lost."""
    ledger = open_ledger(url)
    ledger.grant("ann", "0.2")
    accepted, errors = [], []
    barrier = threading.Barrier(4)

    def charge():
        mine = Ledger.from_handle(ledger.handle)
        barrier.wait()
        for _ in range(15):
            try:
                mine.reserve(guarantee("0.02"), analyst="ann")
                accepted.append(1)
            except BudgetError:
                time.sleep(0.001)
            except BaseException as error:
                errors.append(error)
                return

    def grant():
        barrier.wait()
        for limit in ("0.1", "0.4", "0.3", "0.05", "0.5", "0.1"):
            try:
                ledger.grant("ann", limit)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=charge) for _ in range(3)] + [threading.Thread(target=grant)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    spent = Fraction(len(accepted), 50)
    assert ledger.total().epsilon == ledger.account("ann").spent.epsilon == spent <= Fraction(1, 2)
    assert ledger.account("ann").limit.epsilon == Fraction(1, 10)
    ledger.verify()  # every charge fitted the limit of its moment
    ledger.grant("ann", 1)
    ledger.reserve(guarantee("0.02"), analyst="ann")
    assert ledger.account("ann").spent.epsilon == spent + Fraction(1, 50)
