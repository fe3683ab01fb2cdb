"""Keys that nobody has: looked up within a public bound, and at no cost for those who have one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from confide.errors import LedgerError
from confide.service import keys
from confide.service.keys import Keyring
from confide.service.records import UnknownKeys
from confide.service.tables import prepare


class Watched:
    """A ring whose looks at the store are noted, on a clock that stands still."""

    def __init__(self, bench, monkeypatch):
        self.now, self.rows, self.lists = 1000.0, 0, 0
        self.fails = False
        monkeypatch.setattr(keys.time, "monotonic", lambda: self.now)
        row, digests = Keyring._row, Keyring._digests

        def counted_row(ring, prefix):
            self.rows += 1
            return row(ring, prefix)

        def counted_digests(ring):
            self.lists += 1
            if self.fails:
                raise LedgerError("The store is away.", "Wait.")
            return digests(ring)

        monkeypatch.setattr(Keyring, "_row", counted_row)
        monkeypatch.setattr(Keyring, "_digests", counted_digests)
        self.ring = Keyring(bench.ledger.parts())
        self._guess = 0

    def guess(self, count=1):
        """Ask for keys that nobody has; return how many were looked up and not refused."""
        looked, told = 0, []
        for _ in range(count):
            self._guess += 1
            try:
                assert self.ring.analyst_of(f"confide_{self._guess:016x}_{'A' * 43}") is None
                looked += 1
            except UnknownKeys as error:
                told.append(error.retry_after)
        assert all(0 < seconds <= keys.LISTED for seconds in told)
        return looked

    def name(self, key):
        found = self.ring.analyst_of(key)
        return None if found is None else found.name


@pytest.fixture
def watched(bench, monkeypatch):
    bench.open()
    prepare(bench.ledger.parts().store)
    return Watched(bench, monkeypatch)


def test_guesses_load_the_store_within_a_public_bound(watched):
    assert watched.guess(1000) == keys.AT_ONCE
    for _ in range(20):
        watched.now += 0.5
        assert watched.guess(100) == 0.5 * keys.GUESSES
    assert watched.rows == keys.AT_ONCE + 10 * keys.GUESSES
    assert watched.lists <= 11


def test_malformed_keys_cost_the_store_nothing_and_take_no_token(watched):
    for _ in range(500):
        assert watched.ring.analyst_of("confide_x") is None
    assert (watched.rows, watched.lists) == (0, 0)
    assert watched.guess(1) == 1


def test_guesses_lock_nobody_out(bench, watched):
    """Found before, granted before, owner's, of a new worker, of a restarted one: all go on at once."""
    ann, bob, owner = (keys.grant(bench.ledger, name, 1) for name in ("ann", "bob", "owner"))
    assert watched.name(ann) == "ann"
    watched.guess(1000)
    for _ in range(20):
        assert [watched.name(key) for key in (ann, bob, owner)] == ["ann", "bob", "owner"]
        watched.guess(100)
        watched.now += 0.3


def test_a_key_that_is_new_while_others_guess_is_found_within_a_second(bench, watched):
    watched.guess(1000)
    cleo = keys.grant(bench.ledger, "cleo", 1)
    with pytest.raises(UnknownKeys) as caught:
        watched.name(cleo)
    watched.now += caught.value.retry_after
    watched.guess(1000)  # who come first
    assert watched.name(cleo) == "cleo"
    watched.now += 5
    watched.guess(1000)
    assert watched.name(cleo) == "cleo"


def test_keys_that_somebody_has_take_no_token(bench, watched):
    held = [keys.grant(bench.ledger, f"p{number}", "0.01") for number in range(120)]
    for key in held:
        assert watched.name(key)
    assert watched.guess(1000) == keys.AT_ONCE


def test_a_key_that_ended_is_one_that_nobody_has(bench, watched):
    ann = keys.grant(bench.ledger, "ann", 1)
    assert watched.name(ann) == "ann"
    keys.revoke(bench.ledger, "ann")
    watched.guess(1000)
    watched.now += 1.0
    watched.guess(1000)
    rows = watched.rows
    refused = 0
    for _ in range(50):
        try:
            assert watched.name(ann) is None
        except UnknownKeys:
            refused += 1
    assert refused >= 49
    assert watched.rows <= rows + 1


def test_the_prefix_of_a_valid_key_helps_no_guess(bench, watched):
    prefix = keys.grant(bench.ledger, "ann", 1)[:25]
    watched.guess(1000)
    for letter in "ABC":
        with pytest.raises(UnknownKeys):
            watched.name(prefix + letter * 43)


def test_a_store_that_fails_as_keys_are_listed_is_asked_once_a_second(bench, watched):
    ann = keys.grant(bench.ledger, "ann", 1)
    watched.guess(100)
    watched.fails = True
    with pytest.raises(LedgerError, match="away"):
        watched.name(ann)
    for _ in range(10):
        with pytest.raises(UnknownKeys):
            watched.name(ann)
    assert watched.lists == 1
    watched.fails = False
    watched.now += 1.0
    watched.guess(1000)
    assert watched.name(ann) == "ann"


def test_guesses_of_many_threads_stay_within_the_bound(bench, watched):
    ann = keys.grant(bench.ledger, "ann", 1)

    def ask(number):
        if number % 10 == 0:
            return watched.name(ann)
        try:
            return watched.ring.analyst_of(f"confide_{number:016x}_{'B' * 43}")
        except UnknownKeys:
            return None

    with ThreadPoolExecutor(16) as pool:
        told = list(pool.map(ask, range(1000)))
    assert told[::10] == ["ann"] * 100
    assert watched.rows <= keys.AT_ONCE + 16 + 1
    assert watched.lists <= 1
