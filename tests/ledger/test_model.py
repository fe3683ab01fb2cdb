"""Long random histories against a model of thirty lines, on both stores."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from confide.errors import LedgerError, RefusedError
from confide.ledger import Ledger, Request

AMOUNTS = ["0", "1/3", "0.1", "0.25", "1e-9", "2"]
ANALYSTS = ["ann", "bob", None, None]


class Model:
    """What a ledger must do, without a store."""

    def __init__(self, limit):
        self.limit, self.spent = limit, Fraction(0)
        self.accounts, self.used, self.keys, self.state = {}, {}, {}, {}

    def charge(self, amount, analyst, key):
        """Return whether it must be accepted; None if it is a replay."""
        if key is not None and (analyst, key) in self.keys:
            return None if self.keys[analyst, key] == amount else False
        used = self.used.get(analyst, Fraction(0))
        if self.spent + amount > self.limit:
            return False
        if analyst is not None and (analyst not in self.accounts or used + amount > self.accounts[analyst]):
            return False
        self.spent += amount
        self.used[analyst] = used + amount
        if key is not None:
            self.keys[analyst, key] = amount
        return True


@pytest.mark.parametrize("seed", range(4))
def test_a_random_history(url, open_ledger, guarantee, seed):
    draw = random.Random(seed)
    ledger, model = open_ledger(url, epsilon=20), Model(Fraction(20))
    charges = {text: guarantee(text) for text in AMOUNTS}
    live = []

    def drawn():
        key = draw.choice([None, None, *(f"key {i}" for i in range(6))])
        return draw.choice(AMOUNTS), draw.choice(ANALYSTS), key

    def hold(answer, expected):
        assert isinstance(answer, RefusedError) == (expected is False)
        if expected is not False:
            assert answer.replayed == (expected is None)
            live.append(answer)

    for _ in range(120):
        action = draw.choice(["reserve", "reserve", "many", "settle", "grant", "reopen"])
        if action == "reserve":
            amount, analyst, key = drawn()
            expected = model.charge(Fraction(amount), analyst, key)
            try:
                answer = ledger.reserve(charges[amount], analyst=analyst, key=key)
            except RefusedError as error:
                answer = error
            hold(answer, expected)
        elif action == "many":
            asked = [drawn() for _ in range(draw.randrange(6))]
            answers = ledger.charge_many([Request(charges[a], who, "", key) for a, who, key in asked])
            for (amount, analyst, key), answer in zip(asked, answers, strict=True):
                hold(answer, model.charge(Fraction(amount), analyst, key))
        elif action == "settle" and live:
            reservation = draw.choice(live)
            secret = draw.choice([b"", b"one", b"two"])
            settled = {c["id"]: c["status"] for c in ledger.show()["charges"]}[reservation.id] == "settled"
            kept = ledger.secret(reservation)
            try:
                ledger.settle(reservation, secret)
            except LedgerError:
                assert settled
                assert kept != secret
            else:
                assert not settled or kept == secret
                assert ledger.secret(reservation) == secret
        elif action == "grant":
            name, limit = draw.choice(["ann", "bob"]), draw.choice(["1", "3", "9.5"])
            ledger.grant(name, limit)
            model.accounts[name] = Fraction(limit)
        elif action == "reopen":
            ledger = Ledger.from_handle(ledger.handle)
        assert ledger.total().epsilon == model.spent
        assert ledger.remaining().epsilon == model.limit - model.spent
    for name in model.accounts:
        assert ledger.account(name).spent.epsilon == model.used.get(name, 0)
    assert ledger.verify().entries > 30


def test_any_printable_text_may_be_a_label(ledger, guarantee):
    labels = [
        "",
        "\u00e9 \U0001f600",
        "'; DROP TABLE confide_entry; --",
        '"}',
        "%s ? :a",
        "\\",
    ]
    for label in labels:
        ledger.reserve(guarantee("0.01"), label=label)
    assert [charge["label"] for charge in ledger.show()["charges"]] == labels
    ledger.export("csv")
    assert ledger.verify().entries == 1 + len(labels)


@pytest.mark.parametrize("name", ["d'x", "Äpfel", "a b", "x%s?", "50%"])
def test_odd_names(url, open_ledger, guarantee, name):
    ledger = open_ledger(url, dataset=name)
    ledger.grant(name, 1)
    ledger.reserve(guarantee(), analyst=name, key=name)
    assert Ledger.from_handle(ledger.handle).account(name).spent.epsilon == Fraction(1, 10)
    assert ledger.verify().entries == 3
