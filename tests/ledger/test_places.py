"""One file, one budget: second names of a store, second spellings of a dataset, and listing what a store holds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from confide.errors import LedgerError
from confide.ledger import Ledger
from confide.ledger.store import Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


def elsewhere(url, *options, reserve=3):
    """Let another process open `url` and charge 0.1 as often as it may; return how often it was allowed to."""
    script = (
        "import sys; from confide.ledger import Ledger; from confide.errors import LedgerError\n"
        "from confide.privacy import Event, Guarantee\n"
        "charge = Guarantee('1/10', 0, 'replace_one', 'row', Event.of('pure', epsilon=0.1))\n"
        "options = {'counter': False} if 'off' in sys.argv else {}\n"
        "if 'create' in sys.argv: options |= dict(epsilon=1, delta='1e-6', adjacency='replace_one')\n"
        "else: options |= dict(create=False)\n"
        "done = 0\n"
        "try:\n"
        "    ledger = Ledger.open(sys.argv[1], dataset='visits', **options)\n"
        f"    for done in range(1, {reserve} + 1): ledger.reserve(charge)\n"
        "    print(done, 'no error')\n"
        "except LedgerError as error: print(done if done == 0 else done - 1, error)\n"
    )
    command = [sys.executable, "-c", script, url, *options]
    answer = subprocess.run(command, timeout=60, check=True, capture_output=True, text=True).stdout
    count, _, error = answer.partition(" ")
    return int(count), error


@pytest.mark.parametrize("counter", ["on", "off"])
def test_a_hard_link_is_no_second_budget(sqlite_url, open_ledger, guarantee, path, tmp_path, counter):
    ledger = open_ledger(sqlite_url)
    ledger.reserve(guarantee(0.1))
    os.link(path, tmp_path / "second.db")
    for options in (("open",), ("create",)):
        count, error = elsewhere(f"sqlite:///{tmp_path / 'second.db'}", *options, counter)
        assert count == 0
        assert "hard link" in error
    # The process that has it open is refused as well, before it writes; so is a reader.
    for act in (lambda: ledger.reserve(guarantee(0.1)), ledger.total, ledger.show, ledger.verify):
        with pytest.raises(LedgerError, match="hard link"):
            act()
    os.unlink(tmp_path / "second.db")  # the remedy that the message names
    ledger.reserve(guarantee(0.1))
    assert ledger.verify().entries == 3


@pytest.mark.parametrize("options", [("open",), ("create",)])
def test_a_file_renamed_without_its_log_is_no_empty_store(
    sqlite_url, open_ledger, guarantee, path, tmp_path, options
):
    """All that was written still lies in the log of the running process, under the old name."""
    ledger = open_ledger(sqlite_url)
    ledger.reserve(guarantee(0.9))
    os.link(path, tmp_path / "second.db")
    os.unlink(path)
    count, error = elsewhere(f"sqlite:///{tmp_path / 'second.db'}", *options)
    assert count == 0
    assert "rolled back" in error
    with pytest.raises(LedgerError, match="missing"):
        ledger.reserve(guarantee(0.1))


def test_a_symbolic_link_is_the_same_store(sqlite_url, open_ledger, guarantee, path, tmp_path):
    ledger = open_ledger(sqlite_url)
    (tmp_path / "link.db").symlink_to(path)
    (tmp_path / "folder").symlink_to(tmp_path)
    for name in ("link.db", "folder/ledger.db", f"../{tmp_path.name}/./ledger.db", "folder/link.db"):
        other = open_ledger(f"sqlite:///{tmp_path / name}")
        assert other == ledger
        assert Store.at(other._url) is Store.at(ledger._url)
        other.reserve(guarantee(0.1))
    assert elsewhere(f"sqlite:///{tmp_path / 'link.db'}", reserve=1)[0] == 1
    assert ledger.total().epsilon * 10 == 5


def test_a_copy_of_the_store_shares_its_counter(sqlite_url, open_ledger, guarantee, path, tmp_path):
    """Two files of one ledger id: whichever goes on second is refused."""
    import shutil

    ledger = open_ledger(sqlite_url)
    ledger.reserve(guarantee(0.1))
    Store.at(sqlite_url).close()
    shutil.copy(path, tmp_path / "copy.db")
    assert elsewhere(f"sqlite:///{tmp_path / 'copy.db'}", reserve=2)[0] == 2
    with pytest.raises(LedgerError, match="rolled back"):
        ledger.reserve(guarantee(0.1))
    assert Ledger.from_handle(ledger.handle, counter=False).total().epsilon * 10 == 1


# -- names


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("visits", " visits  "),
        ("visits ", "visits"),
        ("caf\u00e9", "cafe\u0301"),
        (" cafe\u0301", "caf\u00e9 "),
    ],
)
def test_one_name_in_two_spellings_is_one_budget(url, open_ledger, guarantee, first, second):
    ledger = open_ledger(url, dataset=first)
    ledger.reserve(guarantee(0.5))
    other = open_ledger(url, dataset=second)
    assert other == ledger
    assert other.dataset == ledger.dataset
    assert other.total().epsilon * 2 == 1
    assert Ledger.from_handle(f"{url}#{second}") == ledger
    assert Ledger.open(f"{url}#{first}", dataset=second, create=False) == ledger
    assert len(Ledger.datasets(url)) == 1


def test_case_and_lookalikes_stay_different_and_are_listed(url, open_ledger):
    names = ("visits", "Visits", "v\u0456sits")
    assert len({open_ledger(url, dataset=name) for name in names}) == 3
    assert Ledger.datasets(url) == tuple(sorted(names))
    assert Ledger.datasets(url + "#visits") == tuple(sorted(names))


def test_listing_names_is_pure(sqlite_url, open_ledger, path, tmp_path):
    with pytest.raises(LedgerError, match="no ledgers"):
        Ledger.datasets(sqlite_url)
    assert not list(tmp_path.glob("ledger.db*"))
    ledger = open_ledger(sqlite_url)
    before = ledger.export()
    assert Ledger.datasets(sqlite_url) == ("visits",)
    assert ledger.export() == before
    path.with_name("empty.db").touch()
    with pytest.raises(LedgerError, match="no ledgers"):
        Ledger.datasets(f"sqlite:///{tmp_path / 'empty.db'}")
