"""Durable charges a second against the raw SQLite commit rate of the same file system.

Rounds of raw commits and of each way to charge alternate, so that other load on the disk meets all alike; the
ratio is taken within each round and the median over rounds is reported. Raw: the sqlite3 module, write-ahead
log, ``synchronous=FULL``, one insert of a row as long as a ledger entry a commit.

Run: python benchmarks/ledger.py [--folder PATH] [--rounds N]
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from _common import header, write
from confide.ledger import Ledger, Request
from confide.privacy.event import Event
from confide.privacy.guarantee import Guarantee

GUARANTEE = Guarantee("1/1000", "1e-9", "replace_one", "row", Event.of("gaussian", noise_multiplier=100.0))
SINGLE, GROUP, GROUPED, THREADS = 1500, 1000, 10_000, 8


def raw(connection: sqlite3.Connection, row: tuple[str, str]) -> float:
    """Return commits a second of one insert each."""
    started = time.perf_counter()
    for _ in range(SINGLE):
        connection.execute("INSERT INTO entry (hash, body) VALUES (?, ?)", row)
    return SINGLE / (time.perf_counter() - started)


def one_by_one(ledger: Ledger) -> float:
    """Return reservations a second of a caller that waits for each."""
    started = time.perf_counter()
    for _ in range(SINGLE):
        ledger.reserve(GUARANTEE, label="benchmark")
    return SINGLE / (time.perf_counter() - started)


def with_account(ledger: Ledger) -> float:
    """Return charges a second with an analyst, a request key and a secret, one by one."""
    stamp = time.monotonic_ns()
    started = time.perf_counter()
    for number in range(SINGLE):
        ledger.charge(GUARANTEE, analyst="ann", key=f"{stamp}-{number}", secret=b"answer", label="benchmark")
    return SINGLE / (time.perf_counter() - started)


def grouped(ledger: Ledger) -> float:
    """Return charges a second in groups of 1,000 that share a commit."""
    requests = [Request(GUARANTEE, label="benchmark") for _ in range(GROUP)]
    started = time.perf_counter()
    for _ in range(GROUPED // GROUP):
        ledger.charge_many(requests)
    return GROUPED / (time.perf_counter() - started)


def grouped_with_account(ledger: Ledger) -> float:
    """Return charges a second in groups of 1,000 with analyst, request key and secret."""
    stamp = time.monotonic_ns()
    requests = [
        Request(GUARANTEE, "ann", "benchmark", f"{stamp}-{number}", b"answer") for number in range(GROUPED)
    ]
    started = time.perf_counter()
    for start in range(0, GROUPED, GROUP):
        ledger.charge_many(requests[start : start + GROUP])
    return GROUPED / (time.perf_counter() - started)


def threads(ledger: Ledger) -> float:
    """Return reservations a second of 8 threads that each wait for theirs (they share commits)."""
    each = SINGLE // THREADS

    def work() -> None:
        for _ in range(each):
            ledger.reserve(GUARANTEE, label="benchmark")

    pool = [threading.Thread(target=work) for _ in range(THREADS)]
    started = time.perf_counter()
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    return each * THREADS / (time.perf_counter() - started)


WAYS: list[tuple[str, Callable[[Ledger], float], float | None]] = [
    ("reserve, one by one", one_by_one, 0.3),
    ("charge with analyst, key and secret, one by one", with_account, None),
    (f"reserve from {THREADS} threads", threads, None),
    (f"charge_many in groups of {GROUP}", grouped, 5.0),
    (f"charge_many in groups of {GROUP}, with analyst, key and secret", grouped_with_account, None),
]


def main() -> int:
    """Run all rounds, print the table and return 1 if a target is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default=None, help="file system to measure; default: temporary files")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        ledger = Ledger.open(
            f"sqlite:///{folder / 'ledger.db'}",
            dataset="benchmark",
            epsilon=10**6,
            delta="0.9",
            adjacency="replace_one",
            counter=folder / "counter",
        )
        ledger.grant("ann", 10**6, "0.9")
        ledger.reserve(GUARANTEE, label="benchmark")
        connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, hash TEXT, body TEXT)")
        row = ("0" * 64, "x" * 600)
        raws: list[float] = []
        rates: dict[str, list[float]] = {way: [] for way, _, _ in WAYS}
        ratios: dict[str, list[float]] = {way: [] for way, _, _ in WAYS}
        for number in range(options.rounds + 1):
            for way, measure, _ in WAYS:
                before = raw(connection, row)
                rate = measure(ledger)
                base = (before + raw(connection, row)) / 2
                if number:  # the first round warms up
                    raws.append(base)
                    rates[way].append(rate)
                    ratios[way].append(rate / base)
        connection.close()
        started = time.perf_counter()
        entries = ledger.verify().entries
        verified = entries / (time.perf_counter() - started)
        ledger._store.close()

    lines = [
        "# Ledger: durable charges a second",
        "",
        header("SQLAlchemy") + f" SQLite {sqlite3.sqlite_version}.",
        "",
        "| what | a second (median) | of the raw commit rate (median) | target |",
        "|---|---|---|---|",
        f"| raw SQLite commits (WAL, synchronous=FULL) | {statistics.median(raws):,.0f} | 1.00 | |",
    ]
    missed = False
    for way, _, target in WAYS:
        ratio = statistics.median(ratios[way])
        verdict = "" if target is None else f">= {target}: {'met' if ratio >= target else 'MISSED'}"
        missed |= target is not None and ratio < target
        lines.append(f"| {way} | {statistics.median(rates[way]):,.0f} | {ratio:.2f} | {verdict} |")
    lines += [
        f"| verify | {verified:,.0f} entries | | |",
        "",
        f"{options.rounds} rounds after one that warms up; every rate is divided by the raw rate right "
        "before and after it. Each charge is durable, hash-chained and counted outside the store before its "
        "caller goes on.",
        "",
    ]
    write("ledger", "\n".join(lines))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
