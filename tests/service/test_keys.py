"""Keys: shown once, stored hashed, rotated and revoked, compared in constant time."""

from __future__ import annotations

import csv
import hmac
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from confide.errors import LedgerError, ParameterError, RefusedError
from confide.ledger.operations import KeyAct
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


def entries(ledger):
    """Return act, holder, key and ended keys of each entry of the chain that is of keys."""
    bodies = (json.loads(entry["body"]) for entry in json.loads(ledger.export())["entries"])
    return [
        (body["act"], body["holder"], body["key"], body["ended"]) for body in bodies if body["kind"] == "key"
    ]


def public(key):
    return key[: len("confide_") + 16]


def test_acts_of_keys_stand_in_the_chain(bench):
    bench.open()
    ledger, held = bench.ledger, []
    held.append(keys.grant(ledger, "ann", 1))
    held.append(keys.rotate(ledger, "ann"))
    held.append(keys.grant(ledger, "ann", 2))
    held.append(keys.owner_key(ledger))
    keys.revoke(ledger, "ann")
    a, b, c, owner = map(public, held)
    assert entries(ledger) == [
        ("granted", "ann", a, []), ("rotated", "ann", b, [a]), ("granted", "ann", c, [b]),
        ("granted", "owner", owner, []), ("revoked", "ann", None, [c]),
    ]  # fmt: skip
    shown = ledger.show()["keys"]
    assert [(line["analyst"], line["key"], line["ended_by"]) for line in shown] == [
        ("ann", a, "rotated"), ("ann", b, "granted"), ("ann", c, "revoked"), ("owner", owner, None),
    ]  # fmt: skip
    assert all(line["since"] for line in shown)
    assert [line["until"] is None for line in shown] == [False] * 3 + [True]
    # One key after another: who held one at a moment is found by its times.
    assert shown[0]["until"] == shown[1]["since"] <= shown[1]["until"] == shown[2]["since"]
    assert ledger.verify().entries == 1 + 2 + 5


def test_no_form_of_the_trace_opens_anything(bench, ring):
    bench.open()
    held = [keys.grant(bench.ledger, "ann", 1), keys.rotate(bench.ledger, "ann")]
    told = bench.ledger.export() + bench.ledger.export("csv") + json.dumps(bench.ledger.show())
    for key in held:
        assert public(key) in told
        for secret in (key[25:], keys._digest(key).hex()):
            assert secret not in told
    assert ring().analyst_of(public(held[1])) is None


def test_the_trace_for_spreadsheets_and_for_people(local):
    local.open()
    first = public(keys.grant(local.ledger, "=ann", 1))
    second = public(keys.rotate(local.ledger, "=ann"))
    lines = [line for line in csv.DictReader(io.StringIO(local.ledger.export("csv"))) if line["act"]]
    told = [(line["kind"], line["analyst"], line["act"], line["key"], line["ended_keys"]) for line in lines]
    assert told == [("key", "'=ann", "granted", first, ""), ("key", "'=ann", "rotated", second, first)]
    from confide.cli.ledger import app

    shown = CliRunner().invoke(
        app, ["show", "--ledger", local.ledger.handle, "--verify"], env={"COLUMNS": "120"}
    )
    assert shown.exit_code == 0, shown.output
    rows = [line for line in shown.output.splitlines() if "confide_" in line]
    assert [first in rows[0], "(rotated)" in rows[0], second in rows[1], "(rotated)" in rows[1]] == [
        True
    ] * 3 + [False]


@pytest.mark.parametrize("act", ["rotate", "revoke"])
def test_an_act_that_is_refused_leaves_no_trace(bench, act):
    bench.open()
    keys.grant(bench.ledger, "ann", 1)
    before = bench.state()
    with pytest.raises(RefusedError):
        getattr(keys, act)(bench.ledger, "bob")
    assert bench.state() == before


def test_a_crash_leaves_key_and_entry_or_neither(bench, monkeypatch):
    from confide.ledger.session import Session

    bench.open()
    keys.grant(bench.ledger, "ann", 1)
    before, real = bench.state(), Session.flush

    def crash(self):
        real(self)
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(Session, "flush", crash)
        for act in (keys.rotate, keys.revoke):
            with pytest.raises(RuntimeError):
                act(bench.ledger, "ann")
            assert bench.state() == before
    keys.rotate(bench.ledger, "ann")
    bench.ledger.verify()


def test_rotations_at_once_share_a_transaction_and_leave_one_key(bench, ring):
    bench.open()
    held = [keys.grant(bench.ledger, "ann", 1)]
    with ThreadPoolExecutor(8) as pool:
        held += pool.map(lambda _: keys.rotate(bench.ledger, "ann"), range(16))
    assert sum(ring().analyst_of(key) is not None for key in held) == 1
    bench.ledger.verify()
    acts = entries(bench.ledger)
    assert len(acts) == 17
    for before, after in pairwise(acts):
        assert after[3] == [before[2]]


def test_a_key_of_an_older_version_ends_with_a_trace(bench, ring, monkeypatch):
    bench.open()
    with monkeypatch.context() as patch:
        patch.setattr(KeyAct, "apply", lambda self, session: None)
        old = keys.grant(bench.ledger, "ann", 1)
    assert bench.ledger.verify().entries == 2
    assert bench.ledger.show()["keys"] == []
    assert ring().analyst_of(old).name == "ann"
    keys.rotate(bench.ledger, "ann")
    first = bench.ledger.show()["keys"][0]
    assert (first["key"], first["since"], first["ended_by"]) == (public(old), None, "rotated")
    assert bench.ledger.verify().entries == 3


@pytest.mark.parametrize(
    "second",
    [
        KeyAct("granted", "ann", "confide_a", ()), KeyAct("rotated", "bob", "confide_b", ("confide_a",)),
        KeyAct("rotated", "ann", "confide_b", ("confide_a", "confide_a")), KeyAct("lent", "ann", "confide_b", ()),
    ],
)  # fmt: skip
def test_verification_finds_acts_that_cannot_be(local, second):
    local.open()
    parts = local.ledger.parts()
    parts.run(KeyAct("granted", "ann", "confide_a", ()))
    local.ledger.verify()
    parts.run(second)
    with pytest.raises(LedgerError, match=r"Entry 3 .* key for the second time"):
        local.ledger.verify()


def _insert(parts, prefix, name, kind=0, created="2999-01-01T00:00:00.000Z"):
    """Write a key past the ledger, as somebody may who can write the store."""
    with parts.store.writing() as connection:
        row = (parts.dataset.id, prefix, name, kind, keys._digest(f"confide_{prefix}_x"), created)
        parts.store.execute(connection, keys._INSERT, row)


def _change(parts, sql, *parameters):
    with parts.store.writing() as connection:
        parts.store.execute(connection, f"UPDATE confide_service_key SET {sql}", parameters)


FORGED = {
    "a key of nobody's giving": (lambda parts, _: _insert(parts, "0" * 16, "ann"), "no entry that gave it"),
    "an owner's key": (lambda parts, _: _insert(parts, "0" * 16, "owner", 1), "no entry that gave it"),
    "a key that was revoked": (lambda parts, _: _change(parts, "revoked = NULL"), "was revoked at 20"),
    "another holder": (
        lambda parts, held: _change(parts, "name = 'eve' WHERE prefix = ?", held["bob"]),
        "was given to 'bob'",
    ),
    "an analyst as the owner": (
        lambda parts, held: _change(parts, "owner = 1 WHERE prefix = ?", held["bob"]),
        "none of that kind",
    ),
    "an owner dated back": (
        lambda parts, _: _insert(parts, "0" * 16, "bob", 1, "2000-01-01T00:00:00.000Z"),
        "none of that kind",
    ),
    "a monitor as an analyst": (
        lambda parts, held: _change(parts, "owner = 0 WHERE prefix = ?", held["metrics"]),
        "none of that kind",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_key_that_the_chain_did_not_give_is_found(bench, name):
    bench.open()
    ledger, parts = bench.ledger, bench.ledger.parts()
    held = {"ann": keys.grant(ledger, "ann", 1), "bob": keys.grant(ledger, "bob", 1)}
    held |= {"metrics": keys.metrics_key(ledger), "owner": keys.owner_key(ledger)}
    keys.revoke(ledger, "ann")
    assert ledger.verify().older_keys == ()
    ledger.check()
    forge, found = FORGED[name]
    forge(parts, {holder: key.split("_")[1] for holder, key in held.items()})
    for look in (ledger.verify, ledger.check):
        with pytest.raises(LedgerError, match=found) as caught:
            look()
        assert "changed past the ledger" in caught.value.fact
        assert "rotate" in caught.value.remedy


def test_keys_of_an_older_version_are_left_alone_and_named(bench):
    bench.open()
    ledger, parts = bench.ledger, bench.ledger.parts()
    keys.prepare(parts.store)
    _insert(parts, "0" * 16, "ann", created="2020-01-01T00:00:00.000Z")
    ledger.check()
    assert ledger.verify().older_keys == ("ann (confide_0000000000000000)",)
    keys.grant(ledger, "bob", 1)  # the first entry of keys
    ledger.check()
    assert ledger.verify().older_keys == ("ann (confide_0000000000000000)",)
    keys.rotate(ledger, "ann")
    ledger.check()
    assert ledger.verify().older_keys == ()


def test_a_look_at_the_keys_reads_each_entry_once_and_anew_in_another_chain(local, monkeypatch):
    from confide.ledger.keys import Keys

    local.open()
    read, real = [], Keys.note
    monkeypatch.setattr(
        Keys, "note", lambda self, fields: read.append(fields["holder"]) or real(self, fields)
    )
    keys.grant(local.ledger, "ann", 1)
    local.ledger.check()
    local.ledger.check()
    keys.rotate(local.ledger, "ann")
    local.ledger.check()
    assert read == ["ann", "ann"]
    parts = local.ledger.parts()
    held = parts.store.keys[parts.dataset.ledger_id]
    held._read = held._read._replace(hash="0" * 64)
    local.ledger.check()
    assert read == ["ann"] * 4


def test_names_that_are_no_analysts_are_the_ledgers():
    from confide.ledger.keys import MONITOR, OWNER
    from confide.service import records

    assert (OWNER, MONITOR) == (records.OWNER, records.METRICS)


def test_the_monitor_asks_nothing_of_the_service_itself(local):
    local.open()
    service = local.serve()
    # An analyst of an older version, named like the monitor: there is an account of that name.
    local.ledger.grant("metrics", 1)
    monitor = service.analyst_of(keys.metrics_key(local.ledger))
    assert monitor.monitor
    before = local.ledger.verify()
    for ask in (lambda: service.answer(monitor, [[1.0, 1.0]], "a"), lambda: service.budget(monitor)):
        with pytest.raises(KeyRevoked, match="for the counters alone"):
            ask()
    assert local.ledger.verify() == before


def test_an_old_analyst_named_like_the_monitor_is_not_made_one(bench):
    bench.open()
    ledger, parts = bench.ledger, bench.ledger.parts()
    keys.prepare(parts.store)
    ledger.grant("metrics", 1)
    _insert(parts, "0" * 16, "metrics", created="2020-01-01T00:00:00.000Z")
    before = ledger.verify()
    assert before.older_keys == ("metrics (confide_0000000000000000)",)
    with pytest.raises(RefusedError, match="of an analyst of an older version") as caught:
        keys.rotate(ledger, "metrics")
    assert "revoke metrics" in caught.value.remedy
    assert ledger.verify() == before
    keys.revoke(ledger, "metrics")
    assert Keyring(parts).analyst_of(keys.metrics_key(ledger)).monitor
    assert Keyring(parts).analyst_of(keys.rotate(ledger, "metrics")).monitor
    ledger.verify()


def test_the_command_names_keys_of_an_older_version(local):
    from confide.cli.app import app

    keys.prepare(local.open().ledger.parts().store)
    _insert(local.ledger.parts(), "0" * 16, "ann")
    told = CliRunner().invoke(app, ["ledger", "show", "--verify", "--ledger", local.ledger.handle])
    assert told.exit_code == 0
    assert "Key of ann (confide_0000000000000000): older" in told.stderr
