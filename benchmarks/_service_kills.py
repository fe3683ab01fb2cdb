"""Kills: two workers on one store are killed (SIGKILL) at random moments while clients ask.

A client keeps asking under the same request id, of either worker, until it is answered. Held against the
ledger, at each kill and at the end:

- no answer without its charge: what the ledger says was spent covers every answer that a client has seen;
- no double charge: at the end it is, for each account and in all, exactly the sum of what answers said that
  they cost, one a request id; for single releases this is also epsilon times the distinct rows;
- the same request id, asked again at any time of any worker, gives the same answers and cost;
- the hash chain verifies.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from _service_client import Client, Gone
from _service_part import Part
from _service_server import Nursery, free_port, wait
from _service_world import World, grant, rows, world

CLIENTS, WORKERS, ANALYSTS = 8, 2, 3
RESPONSE = {"epsilon": "1/10"}
STABLE = {"epsilon": "2", "delta": "1/1000000", "release": "sparse_vector", "epochs": 3}


@dataclass
class Seen:
    """What all clients saw together."""

    costs: dict[str, Fraction] = field(default_factory=dict)  #: request id -> cost
    sums: dict[str, Fraction] = field(default_factory=dict)  #: analyst -> sum of costs
    asked: int = 0
    retries: int = 0
    recovered: int = 0  #: retried requests that had been charged before their answer was lost
    repeats: int = 0
    busy: int = 0
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answered(self, name: str, analyst: str, cost: Fraction, asked: int) -> None:
        """Note a request at its first answer."""
        with self.lock:
            self.costs[name] = cost
            self.sums[analyst] = self.sums.get(analyst, Fraction(0)) + cost
            self.asked += asked

    def spent(self, analyst: str | None = None) -> Fraction:
        """Return the sum of costs of answered requests."""
        with self.lock:
            return (
                sum(self.sums.values(), Fraction(0))
                if analyst is None
                else self.sums.get(analyst, Fraction(0))
            )


class Asker(threading.Thread):
    """One client: new rows, now and then an earlier request or an earlier row again."""

    def __init__(self, number: int, key: tuple[str, str], ports: list[int], seen: Seen, stop: Any) -> None:
        super().__init__(daemon=True)
        self.number, self.seen, self.stop = number, seen, stop
        self.analyst, self.key = key
        self.clients = [Client(port, 30.0) for port in ports]
        self.draw = random.Random(number)
        self.pool = (row for part in itertools.count() for row in rows(1_000, seed=[1_000, number, part]))
        self.known: list[tuple[str, bytes, Any]] = []

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.step()
        except BaseException as error:
            self.seen.wrong.append(f"client {self.number}: {error!r}")

    def step(self) -> None:
        number = len(self.known)
        if self.known and self.draw.random() < 0.25:  # again, whenever it was
            name, body, before = self.draw.choice(self.known)
            told = self.until_answered(body, name)
            self.seen.repeats += 1
            if not told["replayed"] or any(
                told[part] != before[part] for part in ("answers", "cost", "states")
            ):
                self.seen.wrong.append(f"request {name} was answered differently when asked again")
            return
        asked = [next(self.pool) for _ in range(self.draw.choice((1, 1, 3, 20)))]
        name = f"client{self.number}-{number}"
        body = json.dumps({"rows": asked}).encode()
        told = self.until_answered(body, name)
        self.known.append((name, body, told))
        self.seen.answered(name, self.analyst, Fraction(told["cost"]["epsilon"]), len(asked))

    def until_answered(self, body: bytes, name: str) -> Any:
        """Return the answer, from whichever worker gives it."""
        lost = 0
        while True:
            client = self.draw.choice(self.clients)
            try:
                status, answer = client.ask(body, self.key, name)
            except Gone:
                lost += 1
                time.sleep(0.01)
                continue
            if status == 503:
                self.seen.busy += 1
                time.sleep(0.05)
                continue
            if status != 200:
                raise RuntimeError(f"status {status}: {answer.decode()[:300]}")
            told = json.loads(answer)
            if lost:
                self.seen.retries += 1
                self.seen.recovered += told["replayed"] and name not in self.seen.costs
            return told


def survive(here: World, kills: int, seed: int = 0, **service: Any) -> dict[str, Any]:
    """Kill and check; return what was seen, under "wrong" what must not be."""
    ledger, draw, stop = here.ledger(), random.Random(seed), threading.Event()
    names = [f"analyst{number}" for number in range(ANALYSTS)]
    keys = [(name, grant(ledger, name)) for name in names]
    settings = here.settings(ledger, workers=WORKERS, schedule_ms=0, **service)
    ports = [free_port() for _ in range(WORKERS)]
    seen = Seen()
    with Nursery(here) as nursery:
        pids = [nursery.start(settings, port) for port in ports]
        for port in ports:
            wait(port, nursery.alive)
        clients = [Asker(number, keys[number % ANALYSTS], ports, seen, stop) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for number in range(kills):
            place = draw.randrange(WORKERS)
            if draw.random() < 0.8:  # the others die while they start
                wait(ports[place], nursery.alive)
            time.sleep(draw.uniform(0.0, 0.3))
            nursery.kill(pids[place])
            answered = seen.spent()
            if ledger.total().epsilon < answered:
                seen.wrong.append(f"kill {number}: an answer was seen without its charge")
            pids[place] = nursery.start(settings, ports[place])
            if number % 20 == 19:
                ledger.verify()
            if seen.wrong:
                break
        stop.set()
        for client in clients:
            client.join(120)
            if client.is_alive():
                seen.wrong.append("a client was never answered")
    entries = ledger.verify().entries
    for name in names:
        if ledger.account(name).spent.epsilon != seen.spent(name):
            seen.wrong.append(f"{name} was charged {ledger.account(name).spent}, not {seen.spent(name)}")
    total = ledger.total().epsilon
    if total != seen.spent():
        seen.wrong.append(f"the total is {total}, not {seen.spent()}")
    if service == RESPONSE and total != Fraction(service["epsilon"]) * seen.asked:
        seen.wrong.append(f"the total is {total} for {seen.asked} rows")
    return {
        "kills": kills,
        "requests": len(seen.costs),
        "rows": seen.asked,
        "retries": seen.retries,
        "recovered": seen.recovered,
        "repeats": seen.repeats,
        "busy": seen.busy,
        "entries": entries,
        "wrong": seen.wrong,
    }


def run(kind: str, full: bool, place: str | None) -> Part:
    """Kill often, under single releases and under the sparse vector."""
    part = Part()
    part.say(
        "| release | SIGKILLs | requests answered (rows) | retried after a kill | of these charged before the "
        "kill, answer lost | asked again on purpose | told to come back (503) | entries verified | target |",
        "|---|---|---|---|---|---|---|---|---|",
    )
    with world(kind, place, people=2_000) as here:
        for name, service in (("response", RESPONSE), ("sparse_vector", STABLE)):
            found = survive(here, 200 if full else 8, **service)
            for what in found["wrong"][:10]:
                part.say(f"- {what}")
            verdict = part.hold(
                f"{name}: no uncharged answer, no double charge, chain whole", not found["wrong"]
            )
            part.say(
                f"| {name} | {found['kills']} | {found['requests']:,} ({found['rows']:,}) | {found['retries']:,} | "
                f"{found['recovered']:,} | {found['repeats']:,} | {found['busy']:,} | {found['entries']:,} | "
                f"{verdict} |"
            )
    part.say(
        "",
        f"{WORKERS} workers on one store, {CLIENTS} clients of {ANALYSTS} analysts that ask either; at each kill "
        "and at the end the ledger is compared with all that clients saw.",
    )
    return part
