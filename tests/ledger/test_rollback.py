"""A store that was rolled back, replaced or removed is refused; a healthy one never is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading

import pytest

from confide.errors import LedgerError, OutOfReachError
from confide.ledger import Ledger
from confide.ledger.chain import Mark
from confide.ledger.counter import Counter, default_directory, usable
from confide.ledger.store import Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(sqlite_url, open_ledger):
    return open_ledger(sqlite_url)


def backup(ledger, path, name="backup"):
    Store.at(ledger._url).close()  # checkpoints the log into the file
    target = path.with_name(name)
    shutil.copy(path, target)
    return target


def restore(ledger, path, copy):
    Store.at(ledger._url).close()
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    shutil.copy(copy, path.with_name("restored"))
    os.replace(path.with_name("restored"), path)


def forget(ledger):
    """Be a new process: no memory of the chain but the counter's."""
    Store.at(ledger._url).marks.clear()


@pytest.mark.parametrize("fresh", [False, True])
def test_a_restored_backup_is_refused(ledger, path, guarantee, fresh):
    first = ledger.charge(guarantee(0.2), secret=b"threshold noise")
    old = backup(ledger, path)
    ledger.reserve(guarantee(0.3))
    restore(ledger, path, old)
    if fresh:
        forget(ledger)
    for act in (
        lambda: ledger.reserve(guarantee(0.1)),
        lambda: ledger.charge_many([]) or ledger.grant("ann", 1),
        lambda: ledger.secret(first),
        ledger.verify,
    ):
        with pytest.raises(LedgerError, match="rolled back or replaced"):
            act()
    assert "rolled back" in ledger.show()["refused"]
    preview = ledger.preview(guarantee(0.1))
    assert not preview
    assert "rolled back" in preview.reason
    assert float(ledger.total().epsilon) == 0.2  # reading is still possible


def test_a_backup_restored_under_the_feet_of_a_running_process(ledger, path, guarantee):
    ledger.reserve(guarantee(0.2))
    old = backup(ledger, path)
    ledger.reserve(guarantee(0.3))
    shutil.copy(old, path.with_name("restored"))
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    os.replace(path.with_name("restored"), path)  # the connection is open all the while
    with pytest.raises(LedgerError, match="rolled back"):
        ledger.reserve(guarantee(0.1))


def test_a_store_removed_under_a_running_process(ledger, path, guarantee):
    ledger.reserve(guarantee(0.2))
    path.unlink()
    with pytest.raises(OutOfReachError, match="missing"):  # it was there: it may come back
        ledger.reserve(guarantee(0.1))
    assert not path.exists()


def test_a_chain_that_diverged_is_refused(ledger, path, guarantee):
    ledger.reserve(guarantee(0.1))
    old = backup(ledger, path)
    ledger.reserve(guarantee(0.1), label="here")
    restore(ledger, path, old)
    # Elsewhere, without our counter, the backup goes on, and further than ours.
    other = Ledger.from_handle(ledger.handle, counter=False)
    forget(ledger)
    for _ in range(3):
        other.reserve(guarantee(0.1), label="there")
    forget(ledger)
    with pytest.raises(LedgerError, match="does not hold entry 3"):
        ledger.reserve(guarantee(0.1))


def test_a_store_ahead_of_its_counter_is_in_order(ledger, guarantee, counter_folder):
    """As after a crash between commit and counter, or writes from another machine."""
    ledger.reserve(guarantee(0.1))
    other = Ledger.from_handle(ledger.handle, counter=False)
    for _ in range(5):
        other.reserve(guarantee(0.1))
    forget(ledger)
    ledger.reserve(guarantee(0.1))
    assert ledger.verify().entries == 8
    (file,) = counter_folder.glob("*.counter")
    assert Counter(counter_folder, file.stem).read().sequence == 8


def test_a_removed_store_is_not_created_anew(
    ledger, path, sqlite_url, open_ledger, guarantee, counter_folder
):
    ledger.reserve(guarantee(0.9))
    Store.at(sqlite_url).close()
    path.unlink()
    with pytest.raises(LedgerError, match="no longer holds the ledger of dataset 'visits'"):
        open_ledger(sqlite_url)
    assert not path.exists()
    (place,) = counter_folder.glob("*.place")
    place.unlink()  # the remedy that the message names
    assert open_ledger(sqlite_url).total().epsilon == 0


def test_a_store_that_was_never_charged_may_be_created_anew(ledger, path, sqlite_url, open_ledger):
    Store.at(sqlite_url).close()
    path.unlink()
    assert open_ledger(sqlite_url).total().epsilon == 0


def test_a_moved_store_keeps_its_counter(ledger, path, guarantee):
    ledger.reserve(guarantee(0.1))
    old = backup(ledger, path)
    ledger.reserve(guarantee(0.1))
    moved = backup(ledger, path, "moved.db")
    Ledger.from_handle(f"sqlite:///{moved}#visits").reserve(guarantee(0.1))
    with pytest.raises(LedgerError, match="rolled back"):
        Ledger.from_handle(f"sqlite:///{old}#visits").reserve(guarantee(0.1))


def test_without_a_counter_it_is_an_assumption(sqlite_url, open_ledger, guarantee, monkeypatch, path):
    ledger = open_ledger(sqlite_url, counter=False)
    ledger.reserve(guarantee(0.1))
    assert ledger.assumptions == ("rollback undetected",)
    assert ledger.show()["assumptions"] == ["rollback undetected"]
    assert ledger.verify().assumptions == ("rollback undetected",)
    monkeypatch.setenv("CONFIDE_LEDGER_COUNTER", "off")
    assert open_ledger(sqlite_url).assumptions == ("rollback undetected",)
    # The running process still remembers.
    old = backup(ledger, path)
    ledger.reserve(guarantee(0.1))
    restore(ledger, path, old)
    with pytest.raises(LedgerError, match="rolled back"):
        ledger.reserve(guarantee(0.1))


def test_a_counter_place(sqlite_url, open_ledger, guarantee, tmp_path, monkeypatch):
    ledger = open_ledger(sqlite_url, counter=tmp_path / "mine")
    ledger.reserve(guarantee())
    assert ledger.assumptions == ()
    assert len(list((tmp_path / "mine").glob("*.counter"))) == 1
    monkeypatch.delenv("CONFIDE_LEDGER_COUNTER")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert default_directory() == tmp_path / "state" / "confide" / "ledger"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_directory() == tmp_path / "home" / ".local" / "state" / "confide" / "ledger"
    assert not usable(None)
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert not usable(blocked / "below")


def test_reading_makes_no_counter(ledger, sqlite_url, counter_folder):
    shutil.rmtree(counter_folder)
    Store.at(sqlite_url).close()
    other = Ledger.from_handle(ledger.handle)
    other.show()
    other.verify()
    other.total()
    assert other.assumptions == ("rollback undetected",)
    assert not counter_folder.exists()


def test_a_counter_never_goes_back_and_survives_a_torn_write(tmp_path):
    counter = Counter(tmp_path, "x")
    assert counter.read() is None
    assert counter.advance(Mark(5, "a" * 64))
    assert counter.advance(Mark(7, "b" * 64))
    assert counter.advance(Mark(6, "c" * 64))
    assert counter.read() == Mark(7, "b" * 64)
    for torn in range(2):
        raw = bytearray((tmp_path / "x.counter").read_bytes())
        raw[torn * 128 + 3 : torn * 128 + 9] = b"######"
        (tmp_path / "torn.counter").write_bytes(bytes(raw))
        assert Counter(tmp_path, "torn").read() in (Mark(5, "a" * 64), Mark(7, "b" * 64))
    # The next write goes over the slot that is lost, never over the good one.
    (tmp_path / "torn.counter").write_bytes(bytes(raw))
    survivor = Counter(tmp_path, "torn")
    held = survivor.read()
    survivor.advance(Mark(8, "d" * 64))
    assert survivor.read() == Mark(8, "d" * 64)
    assert held.hash.encode() in (tmp_path / "torn.counter").read_bytes()


def test_an_unwritable_counter_does_not_stop_a_charge(ledger, guarantee, counter_folder, sqlite_url):
    """The charge is durable by then; the store is simply ahead of its counter."""
    Store.at(sqlite_url).close()
    (file,) = counter_folder.glob("*.counter")
    file.unlink()
    file.mkdir()
    ledger.reserve(guarantee(0.1))
    assert ledger.total().epsilon == pytest.approx(0.1)
    assert ledger.assumptions == ("rollback undetected",)
    file.rmdir()
    assert ledger.assumptions == ("rollback undetected",)
    ledger.reserve(guarantee(0.1))  # begins a new one
    assert ledger.assumptions == ()
    assert Counter(counter_folder, file.stem).read().sequence == 3


@pytest.mark.parametrize("lost", ["removed", "replaced"])
def test_a_counter_lost_under_a_running_process_is_made_anew(
    ledger, path, guarantee, counter_folder, sqlite_url, open_ledger, lost
):
    ledger.reserve(guarantee(0.1))
    old = backup(ledger, path)
    ledger.reserve(guarantee(0.1))
    (file,) = counter_folder.glob("*.counter")
    if lost == "removed":
        shutil.rmtree(counter_folder)
        assert ledger.assumptions == ("rollback undetected",)
        assert ledger.verify().assumptions == ("rollback undetected",)
    else:  # an empty file: no mark in it
        file.rename(file.with_suffix(".old"))
        file.touch()
    ledger.reserve(guarantee(0.1))
    assert ledger.assumptions == ()
    assert Counter(counter_folder, file.stem).read().sequence == 4
    # A process that remembers nothing is held to it: for a store rolled back and for one removed.
    restore(ledger, path, old)
    forget(ledger)
    with pytest.raises(LedgerError, match="rolled back"):
        Ledger.from_handle(ledger.handle).reserve(guarantee(0.1))
    Store.at(sqlite_url).close()
    path.unlink()
    with pytest.raises(LedgerError, match="no longer holds"):
        open_ledger(sqlite_url)


def test_a_failed_advance_is_named(ledger, guarantee, monkeypatch):
    ledger.reserve(guarantee(0.1))
    assert ledger.assumptions == ()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("confide.ledger.counter.os.pwrite", full)
    ledger.reserve(guarantee(0.1))  # durable in the store, and not counted
    assert ledger.assumptions == ("rollback undetected",)
    assert ledger.show()["assumptions"] == ["rollback undetected"]
    assert ledger.verify().assumptions == ("rollback undetected",)
    monkeypatch.undo()
    ledger.reserve(guarantee(0.1))
    assert ledger.assumptions == ()


def test_threads_that_meet_a_lost_counter_agree(ledger, guarantee, counter_folder):
    """Readers without the store's lock, and writers, while the file comes and goes."""
    stop, errors = threading.Event(), []

    def look():
        try:
            while not stop.is_set():
                assert ledger.assumptions in ((), ("rollback undetected",))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        ledger.reserve(guarantee("0.001"))
        shutil.rmtree(counter_folder, ignore_errors=True)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    ledger.reserve(guarantee("0.001"))
    assert ledger.assumptions == ()
    assert ledger.verify().entries == 32


def test_another_process_is_held_to_the_same_counter(ledger, path, guarantee):
    ledger.reserve(guarantee(0.1))
    old = backup(ledger, path)
    ledger.reserve(guarantee(0.1))
    restore(ledger, path, old)
    script = (
        "import sys; from confide.ledger import Ledger; from confide.errors import LedgerError\n"
        "try: Ledger.from_handle(sys.argv[1]).verify()\n"
        "except LedgerError as error: sys.exit(7 if 'rolled back' in str(error) else 8)"
    )
    done = subprocess.run([sys.executable, "-c", script, ledger.handle], timeout=60, check=False)
    assert done.returncode == 7
