"""Keys: shown once, stored hashed, rotated and revoked, compared in constant time."""

from __future__ import annotations

import hmac
import re

import pytest

from confide.errors import LedgerError, ParameterError, RefusedError
from confide.ledger.store import Store
from confide.service import keys
from confide.service.keys import Keyring, Limiter
from confide.service.records import KeyRevoked


@pytest.fixture
def ring(bench):
    bench.open()
    return lambda: Keyring(bench.ledger.parts())  # anew: without what another remembers


def test_a_key_names_its_analyst(bench, ring):
    key = keys.grant(bench.ledger, "ann", 1)
    assert re.fullmatch(r"confide_[0-9a-f]{16}_[A-Za-z0-9_-]{43}", key)
    found = ring().analyst_of(key)
    assert (found.name, found.owner) == ("ann", False)
    assert bench.ledger.account("ann").limit.epsilon == 1


def test_the_store_holds_no_key(bench, ring):
    key = keys.grant(bench.ledger, "ann", 1)
    secret = key.rpartition("_")[2] if "_" not in key[-43:] else key[-43:]
    store = Store.at(bench.ledger._url)
    with store.reading() as connection:
        held = store.rows(connection, "SELECT * FROM confide_service_key")
    assert secret not in repr(list(map(tuple, held)))
    assert secret not in bench.ledger.export()
    assert len(bytes(held[0][4])) == 32


@pytest.mark.parametrize(
    "bad", ["", None, 7, "confide_", "x" * 1000, b"confide", "confide_0123456789abcdef_" + "A" * 43, "é" * 68]
)
def test_other_texts_name_nobody(bench, ring, bad):
    keys.grant(bench.ledger, "ann", 1)
    assert ring().analyst_of(bad) is None


def test_a_changed_letter_names_nobody(bench, ring):
    key = keys.grant(bench.ledger, "ann", 1)
    for place in (8, 10, 26, 40, 60):
        other = "0" if key[place] != "0" else "1"
        assert ring().analyst_of(key[:place] + other + key[place + 1 :]) is None
    assert ring().analyst_of(key + "\n") is None


def test_every_look_up_compares_once(bench, ring, monkeypatch):
    key = keys.grant(bench.ledger, "ann", 1)
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(
        keys.hmac, "compare_digest", lambda a, b: compared.append((len(a), len(b))) or real(a, b)
    )
    for text in (
        key,
        key[:-1] + ("A" if key[-1] != "A" else "B"),
        "confide_0123456789abcdef_" + "A" * 43,
        "nothing",
    ):
        ring().analyst_of(text)
    assert compared == [(32, 32)] * 4


def test_rotation_ends_the_old_key(bench, ring):
    old = keys.grant(bench.ledger, "ann", 1)
    new = keys.rotate(bench.ledger, "ann")
    assert ring().analyst_of(old) is None
    assert ring().analyst_of(new).name == "ann"
    assert bench.ledger.account("ann").limit.epsilon == 1


def test_revocation_and_a_new_grant(bench, ring):
    key = keys.grant(bench.ledger, "ann", 1)
    keys.revoke(bench.ledger, "ann")
    assert ring().analyst_of(key) is None
    for act in (keys.rotate, keys.revoke):
        with pytest.raises(RefusedError, match="no key of 'ann'"):
            act(bench.ledger, "ann")
    again = keys.grant(bench.ledger, "ann", 2)
    assert ring().analyst_of(again).name == "ann"
    assert ring().analyst_of(key) is None


def test_the_owner_is_apart(bench, ring):
    key = keys.owner_key(bench.ledger)
    assert ring().analyst_of(key).owner
    assert not ring().analyst_of(keys.grant(bench.ledger, "ann", 1)).owner
    new = keys.owner_key(bench.ledger)
    assert ring().analyst_of(key) is None
    assert ring().analyst_of(new).owner


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, None])
def test_malformed_names(local, name):
    local.open()
    with pytest.raises(ParameterError):
        keys.grant(local.ledger, name, 1)


def test_a_grant_that_is_refused_gives_no_key(local):
    local.open()
    keys.grant(local.ledger, "ann", 1)
    for epsilon in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ParameterError):
            keys.grant(local.ledger, "bob", epsilon)
    store = Store.at(local.ledger._url)
    with store.reading() as connection:
        assert len(store.rows(connection, "SELECT 1 FROM confide_service_key")) == 1


def test_a_ring_forgets_a_key_within_a_second(bench, ring, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(keys.time, "monotonic", lambda: clock[0])
    held = ring()
    key = keys.grant(bench.ledger, "ann", 1)
    assert held.analyst_of(key)
    keys.revoke(bench.ledger, "ann")
    clock[0] += 1.1
    assert held.analyst_of(key) is None


@pytest.mark.parametrize("end", ["revoke", "rotate"])
def test_an_ended_key_reads_nothing_though_a_ring_remembers_it(bench, end):
    service = bench.open().serve()
    ann = bench.analyst(service)
    assert service.budget(ann).name == "ann"
    getattr(service, end)("ann")
    with pytest.raises(KeyRevoked):
        service.budget(ann)


def test_the_owner_s_key_ends_at_once(bench, ring):
    held, key = ring(), keys.owner_key(bench.ledger)
    assert held.analyst_of(key).owner
    keys.revoke(bench.ledger, "owner")
    assert held.analyst_of(key) is None


def test_a_guess_with_the_prefix_of_a_key_in_use_takes_the_way_of_any_other(bench, ring, monkeypatch):
    key, looked_up = keys.grant(bench.ledger, "ann", 1), []
    held, real = ring(), Keyring._row
    monkeypatch.setattr(Keyring, "_row", lambda self, prefix: looked_up.append(prefix) or real(self, prefix))
    prefix = key.split("_")[1]
    assert held.analyst_of(key) == held.analyst_of(key)
    assert looked_up == [prefix]  # the second time from memory
    guess = f"confide_{prefix}_{'A' * 43}"
    for _ in range(3):
        assert held.analyst_of(guess) is None
    assert looked_up == [prefix] * 4
    assert held.analyst_of(key).name == "ann"


def test_one_name_in_several_spellings_is_one_analyst(bench, ring):
    composed, apart = "Jos\u00e9", "Jose\u0301"
    bench.open()
    old = keys.grant(bench.ledger, composed, 1)
    new = keys.grant(bench.ledger, f" {apart} ", 2)
    held = ring()
    assert held.analyst_of(old) is None
    assert held.analyst_of(new).name == composed
    assert [line["analyst"] for line in bench.ledger.show()["analysts"]] == [composed]
    assert bench.ledger.account(apart).limit.epsilon == 2
    keys.revoke(bench.ledger, apart)
    assert not keys.holds(bench.ledger, f"{composed} ")


def _taken(limiter):
    try:
        limiter.take("ann")
    except keys.TooManyRequests as error:
        return not 0 < error.retry_after <= 0.5  # never: it would not end
    return True


def test_the_bucket_fills_at_its_rate(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(keys.time, "monotonic", lambda: clock[0])
    limiter = Limiter(rate=2, burst=3)

    def taken():
        count = 0
        while _taken(limiter):
            count += 1
        return count

    assert taken() == 3
    clock[0] += 1
    assert taken() == 2
    clock[0] += 100
    assert taken() == 3
    limiter.take("bob")


def test_a_store_that_is_gone(local, ring, tmp_path):
    local.open()
    key = keys.grant(local.ledger, "ann", 1)
    held = Keyring(local.ledger.parts())
    (tmp_path / "ledger.db").unlink()
    with pytest.raises(LedgerError):
        held.analyst_of(key)
