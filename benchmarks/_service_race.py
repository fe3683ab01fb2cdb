"""Race: 64 clients ask at once where the budget has room for one answer only, or for a few.

Several workers, each with threads of its own, serve one store. Once all clients are connected they are let go
together. Exactly as many answers as the budget covers are given; the rest are refused (403), and cost nothing.
"""

from __future__ import annotations

import json
import threading
from fractions import Fraction
from typing import Any

from _service_client import Client
from _service_part import Part
from _service_server import Nursery, free_port, wait
from _service_world import World, grant, rows, world

CLIENTS, WORKERS = 64, 4
EPSILON = Fraction(1, 10)


def race(ports: list[int], keys: list[str], seed: int) -> dict[int, int]:
    """Let one client a key ask about a row of its own; return counts by status."""
    clients = [Client(ports[number % len(ports)]) for number in range(len(keys))]
    asked = [json.dumps({"row": row}).encode() for row in rows(len(keys), seed)]
    statuses: list[int] = []
    start = threading.Barrier(len(keys))

    def ask(number: int) -> None:
        clients[number].get("/health")
        start.wait(60)
        statuses.append(clients[number].ask(asked[number], keys[number])[0])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(keys))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for client in clients:
        client.close()
    return {status: statuses.count(status) for status in set(statuses)}


class Workers:
    """Several servers of one ledger."""

    def __init__(self, here: World, nursery: Nursery, ledger: Any) -> None:
        self.nursery = nursery
        settings = here.settings(ledger, epsilon=str(EPSILON), workers=WORKERS, schedule_ms=0)
        self.ports = [free_port() for _ in range(WORKERS)]
        self.pids = [nursery.start(settings, port) for port in self.ports]
        for port in self.ports:
            wait(port, nursery.alive)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.pids:
            self.nursery.kill(pid)


def for_the_total(here: World, nursery: Nursery, units: int, clients: int, seed: int) -> list[str]:
    """Race with an account each for a total of so many answers; return what went wrong."""
    ledger = here.ledger(epsilon=EPSILON * units, delta=0)
    names = [f"analyst{number}" for number in range(clients)]
    keys = [grant(ledger, name, 1, 0) for name in names]
    with Workers(here, nursery, ledger) as workers:
        counts = race(workers.ports, keys, seed)
    accounts = sum((ledger.account(name).spent.epsilon for name in names), Fraction(0))
    return _compare(counts, units, clients, ledger.total().epsilon, accounts)


def for_an_account(workers: Workers, ledger: Any, units: int, clients: int, seed: int) -> list[str]:
    """Race with one key for an account of so many answers; return what went wrong."""
    name, before = f"analyst{seed}", ledger.total().epsilon
    key = grant(ledger, name, EPSILON * units, 0)
    counts = race(workers.ports, [key] * clients, seed)
    spent = ledger.account(name).spent.epsilon
    return _compare(counts, units, clients, ledger.total().epsilon - before, spent)


def _compare(counts: dict[int, int], units: int, clients: int, total: Fraction, own: Fraction) -> list[str]:
    found = []
    if counts != {200: units, 403: clients - units}:
        found.append(f"{clients} clients for {units} answers: {counts}")
    if not total == own == EPSILON * units:
        found.append(f"{units} answers were charged {total} in all, {own} to accounts")
    return found


def run(kind: str, full: bool, place: str | None) -> Part:
    """Race many times for both."""
    rounds, part = (50 if full else 2), Part()
    wrong: dict[str, list[str]] = {"the total": [], "an account": []}
    with world(kind, place, people=2_000) as here, Nursery(here) as nursery:
        for number in range(rounds):
            units = 1 if number % 5 else 3
            wrong["the total"] += for_the_total(here, nursery, units, CLIENTS, number)
        ledger = here.ledger()
        with Workers(here, nursery, ledger) as workers:
            for number in range(rounds):
                units = 1 if number % 5 else 3
                wrong["an account"] += for_an_account(workers, ledger, units, CLIENTS, number)
        ledger.verify()
    part.say("| for | races | over, or under | target |", "|---|---|---|---|")
    for what, found in wrong.items():
        part.say(
            f"| {what} | {rounds} of {CLIENTS} clients, {WORKERS} workers | {len(found)} | "
            f"{part.hold(f'race for {what}: none over', not found)} |"
        )
    part.say(*(f"- {line}" for found in wrong.values() for line in found[:10]))
    return part
