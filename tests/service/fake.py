"""A service in memory, for tests of the HTTP face alone: it answers from the row, and charges a counter."""

from __future__ import annotations

import datetime
from fractions import Fraction
from types import SimpleNamespace

from confide.errors import BudgetError, RefusedError
from confide.ledger import Spending
from confide.privacy import Adjacency, Event, Guarantee
from confide.schema import Column, Schema
from confide.service.app import create_app
from confide.service.config import ServiceConfig
from confide.service.records import (
    METRICS,
    OWNER,
    AccountLine,
    Analyst,
    Answers,
    BudgetView,
    Overview,
    Promise,
    RequestReused,
    TooManyRequests,
    TotalExhausted,
)

SCHEMA = Schema(
    (
        Column("age", "private", 18, 90, unit="years", note="At admission."),
        Column("dose", "public", 0, 1000, unit="mg", missing="reject"),
        Column("ward", "private", categories=["north", "south <b>", "é"]),
        Column("smoker", "private", kind="boolean"),
        Column("grade", "public", categories=["1", "2", "3"], missing="reject"),
        Column("ill", "label", categories=["no", "yes"]),
    ),
    name="visits",
    declared_by="the hospital",
)
GOOD = {"age": 40, "dose": 5.5, "ward": "north", "smoker": None, "grade": "2"}
KEYS = {"alice-key": "alice", "bob-key": "bob", "owner-key": OWNER, "monitor-key": METRICS}


class FakeService:
    def __init__(self, **settings):
        self.config = ServiceConfig.of(**{"epsilon": "1/10", "schedule_ms": 0, **settings})
        self.model = SimpleNamespace(schema=SCHEMA, classes=["no", "yes"])
        self.spent = dict.fromkeys(KEYS.values(), Fraction(0))
        self.done = {}
        self.raised = None
        self.unstable = False
        self.overruns = 0
        self.admitted, self.full = [], False

    def analyst_of(self, key):
        name = KEYS.get(key)
        return None if name is None else Analyst(name, name, name == OWNER, name == METRICS)

    def admit(self, analyst):
        self.admitted.append(analyst.name)
        if self.full:
            raise TooManyRequests(0.2)

    def answer(self, analyst, rows, request_id):
        if self.raised is not None:
            raise self.raised
        place = (analyst.name, request_id)
        content = repr(rows)
        if place in self.done:
            before, told = self.done[place]
            if before != content:
                raise RequestReused("reused", "no")
            return Answers(told.values, told.states, told.cost, self.left(analyst.name), True)
        cost = self.config.epsilon * len(rows)
        if self.spent[analyst.name] + cost > 10:
            raise BudgetError("SECRET-TOTAL 7/13 spent", "SECRET", spent=1, asked=2, limit=3)
        self.spent[analyst.name] += cost
        values = tuple("no" if (row["age"] or 0) < 50 else "yes" for row in rows)
        states = ("answered",) * len(rows)
        if self.unstable:
            values, states = (None,) * len(rows), ("unstable",) * len(rows)
        told = Answers(values, states, Spending(cost, Fraction(0)), self.left(analyst.name))
        self.done[place] = content, told
        return told

    def left(self, name):
        return Spending(10 - self.spent[name], Fraction(0))

    def budget(self, analyst):
        spent = Spending(self.spent[analyst.name], Fraction(0))
        return BudgetView(
            analyst.name, Spending(Fraction(10), Fraction(0)), spent, self.left(analyst.name), 3
        )

    def guarantee(self):
        one = Guarantee("1/10", 0, Adjacency.REPLACE_ONE, "row", Event("response", {}))
        total = Guarantee(30, 0, Adjacency.REPLACE_ONE, "row", Event("response", {}))
        return Promise(one, total, f"All answers together: {total}", ())

    def check(self):
        if self.raised is not None:
            raise self.raised

    def amounts(self):
        return {"total_epsilon_spent": 1.5, "total_epsilon_left": 28.5}

    def overran(self):
        self.overruns += 1

    def overview(self):
        def words(epsilon, delta="0"):
            return Spending(Fraction(epsilon), Fraction(delta))

        spent = {"<script>alert(1)</script>": Fraction(19, 2), **self.spent}
        del spent[METRICS]
        lines = tuple(
            AccountLine(
                name,
                words(10),
                words(value),
                3,
                1234,
                7,
                5,
                2,
                "revoked" if name == "bob" else "active",
                words(10 - value),
            )
            for name, value in spent.items()
        )
        total = AccountLine(
            "visits",
            words(30, "1/1000000"),
            words(sum(self.spent.values())),
            12,
            4936,
            28,
            20,
            8,
            "",
            words(30 - sum(self.spent.values()), "1/1000000"),
        )
        start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        history = tuple((start + datetime.timedelta(hours=i), i / 40) for i in range(400))
        return Overview(total, lines, history)


def made(**settings):
    """Return a fake service and the application on it."""
    service = FakeService(**settings)
    return service, create_app(service)


RAISED = {
    "total": (TotalExhausted("SECRET total 3/7", "SECRET"), 403, "total"),
    "rate": (TooManyRequests(0.2), 429, "rate"),
    "refused": (RefusedError("SECRET", "SECRET"), 403, "refused"),
    "fault": (RuntimeError("SECRET"), 500, "fault"),
}
