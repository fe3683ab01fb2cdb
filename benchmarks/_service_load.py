"""Load: private answers a second over HTTP, from another process on loopback, each durable before it leaves.

Every row is new: each answer is computed, drawn, charged and written. Two workers serve; the load comes from
one process. Before and after each run the same folder's disk is measured: 4 KiB appended and fdatasync'ed,
one by one. The peer does nothing: the same bodies to a FastAPI application that parses and returns them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

from _service_client import Client
from _service_part import Part, quantiles
from _service_server import command, free_port, running
from _service_world import HERE, World, bodies, environment, grant, world

#: (rows a request, connections, schedule in ms, target answers a second on SQLite)
CASES = ((100, 8, 0, 20_000), (100, 8, 100, None), (1, 64, 0, 500), (1, 32, 100, None))
ANALYSTS = 8


def disk(folder: Path, seconds: float) -> float:
    """Return durable appends a second of one writer."""
    path, block, count = folder / "probe", os.urandom(4096), 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            os.write(handle, block)
            os.fdatasync(handle)
            count += 1
        return count / (time.perf_counter() - begun)
    finally:
        os.close(handle)
        path.unlink()


def drive(port: int, seconds: float, connections: int, work: dict[str, Any]) -> dict[str, Any]:
    """Run the load in a process of its own; return what came of it."""
    line = [sys.executable, str(HERE / "_service_client.py"), str(port), str(seconds), str(connections)]
    done = subprocess.run(
        line, input=json.dumps(work), capture_output=True, text=True, env=environment(), check=True
    )
    return json.loads(done.stdout)


def texts(requests: int, each: int, seed: int) -> list[str]:
    """Return bodies as text."""
    return [body.decode() for body in bodies(requests, each, seed)]


def one(here: World, case: tuple[int, int, float, int | None], seconds: float) -> dict[str, Any]:
    """Return the figures of one case."""
    each, connections, schedule, _ = case
    ledger = here.ledger()
    keys = [grant(ledger, f"analyst{number}") for number in range(ANALYSTS)]
    owner = grant(ledger, "owner", 1)
    most = int(seconds * (40_000 if each > 1 else 6_000) / each)
    asked = texts(most, each, seed=each)
    before = disk(here.folder, min(1.0, seconds / 3))
    with command(here, here.settings(ledger, schedule_ms=schedule, slack="0"), workers=2) as server:
        warm = texts(4 * connections, each, seed=7)
        drive(server.port, seconds, connections, {"keys": keys, "bodies": warm, "path": "/v1/predict"})
        paid, cpu, late = ledger.total().epsilon, server.cpu(), overruns(server.port, owner)
        told = drive(
            server.port, seconds, connections, {"keys": keys, "bodies": asked, "path": "/v1/predict"}
        )
        cpu = server.cpu() - cpu
        late = overruns(server.port, owner) - late
    after = disk(here.folder, min(1.0, seconds / 3))
    requests = told["statuses"].get("200", 0)
    if told["statuses"].keys() != {"200"} or told["errors"]:
        raise RuntimeError(f"unexpected answers: {told['statuses']} {told['errors']}")
    if ledger.total().epsilon - paid != Fraction(requests * each, 10):
        raise RuntimeError("what was charged is not what was answered")
    return {
        "rate": requests * each / told["seconds"],
        "requests": requests / told["seconds"],
        "latency": quantiles(told["latencies"], 0.5, 0.95, 0.99),
        "cpu": cpu / requests,
        "client": told["cpu"] / requests,
        "disk": (before + after) / 2,
        "late": late,
        "count": requests,
        "exhausted": told["exhausted"],
    }


def overruns(port: int, owner: str) -> int:
    """Return what the service counted."""
    _, body = Client(port).get("/metrics", owner)
    lines = dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if line[:1] != "#")
    return int(lines["confide_schedule_overruns_total"])


def peer(here: World, case: tuple[int, int, float, int | None], seconds: float) -> dict[str, Any]:
    """Return the figures of the bare echo."""
    each, connections, _, _ = case
    port = free_port()
    line = [sys.executable, str(HERE / "_service_peer.py"), str(port), "2"]
    with running(line, port, here.folder) as server:
        work = {
            "keys": ["none"],
            "bodies": texts(int(seconds * 20_000 / each**0.5), each, 3),
            "path": "/echo",
        }
        cpu = server.cpu()
        told = drive(server.port, seconds, connections, work)
        requests = told["statuses"]["200"]
        return {
            "rate": requests * each / told["seconds"],
            "latency": quantiles(told["latencies"], 0.5, 0.95, 0.99),
            "cpu": (server.cpu() - cpu) / requests,
        }


def run(kind: str, full: bool, place: str | None) -> Part:
    """Measure all cases on one store."""
    seconds, part = (20.0 if full else 2.0), Part()
    part.say(
        "| what | answers a second | requests a second | p50, p95, p99 ms | CPU ms a request (server, load) | "
        "durable appends of the disk a second | requests for each of these | target |",
        "|---|---|---|---|---|---|---|---|",
    )
    with world(kind, place) as here:
        for case in CASES:
            each, connections, schedule, target = case
            found = one(here, case, seconds)
            verdict = ""
            if target is not None:
                target = target if kind == "sqlite" else target // 2
                verdict = part.hold(f">= {target:,} in requests of {each}", found["rate"] >= target)
            name = f"{each} rows a request, {connections} connections, " + (
                f"schedule of {schedule:g} ms ({found['late']} of {found['count']} overran)"
                if schedule
                else "no schedule"
            )
            note = " (the load ran out)" if found["exhausted"] else ""
            part.say(
                f"| {name} | {found['rate']:,.0f}{note} | {found['requests']:,.0f} | {_ms(found['latency'])} | "
                f"{1000 * found['cpu']:.2f}, {1000 * found['client']:.2f} | {found['disk']:,.0f} | "
                f"{found['requests'] / found['disk']:.2f} | {verdict} |"
            )
        for case in (CASES[0], CASES[2]):
            found = peer(here, case, seconds)
            part.say(
                f"| peer: FastAPI echo, {case[0]} rows a request, {case[1]} connections | {found['rate']:,.0f} | "
                f"{found['rate'] / case[0]:,.0f} | {_ms(found['latency'])} | {1000 * found['cpu']:.2f} | | | |"
            )
    part.say(
        "",
        f"{seconds:g} s a case, two workers, {ANALYSTS} analysts; all rows new; afterwards the ledger's total is "
        "exactly what was answered. "
        + ("WAL, synchronous=FULL." if kind == "sqlite" else "fsync=on, synchronous_commit=on."),
    )
    return part


def _ms(latency: list[float]) -> str:
    return ", ".join(f"{1000 * value:.1f}" for value in latency)
