"""Nothing is overspent by races and nothing is lost by kills: F03, F04."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import confide

WORKER = Path(__file__).with_name("worker.py")
SOURCE = Path(confide.__file__).resolve().parents[1] if confide.__file__ else Path(confide.__path__[0]).parent


def run(*arguments):
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(WORKER), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("limit", "amount", "accepted"), [("1", "1", 1), ("10", "0.1", 100), ("1", "0.3", 3)]
)
def test_eight_processes_of_eight_threads_never_overspend(url, open_ledger, limit, amount, accepted):
    ledger = open_ledger(url, epsilon=limit)
    result = run("race", ledger.handle, 8, 8, amount)
    assert result["errors"] == []
    assert result["codes"] == [0] * 8
    assert result["answers"] == 8
    assert result["accepted"] == accepted
    assert ledger.total().epsilon == accepted * Fraction(amount)
    assert len(ledger.show()["charges"]) == accepted
    assert ledger.verify().entries == 1 + accepted


def test_racing_requests_of_one_key_are_charged_once(ledger, guarantee):
    from concurrent.futures import ThreadPoolExecutor

    charge = guarantee(0.6)
    with ThreadPoolExecutor(16) as pool:
        places = set(pool.map(lambda _: ledger.reserve(charge, key="same").sequence, range(64)))
    assert len(places) == 1
    assert ledger.total().epsilon == Fraction(6, 10)


def survive(ledger, kills, seed):
    """Kill, then hold the store to everything that was acknowledged."""
    result = run("kill", ledger.handle, kills, seed)
    shown = ledger.show()
    state = {charge["id"]: charge["status"] for charge in shown["charges"]}
    acknowledged = result["acknowledged"]
    assert len(acknowledged) > kills  # the children did work, on a busy machine too
    assert len(set(acknowledged)) == len(acknowledged)
    assert not set(acknowledged) - set(state)
    assert {state[place] for place in result["settled"]} == {"settled"}
    assert ledger.total().epsilon == len(state) * Fraction(1, 1000)
    assert ledger.verify().entries == shown["entries"]
    assert shown["refused"] == ""
    for place in result["settled"][-5:]:
        assert ledger.secret(place) in (b"a", b"b")
    # At most what was under way is charged without having been acknowledged: three a thread and kill.
    assert len(state) - len(acknowledged) <= 6 * kills


def test_200_kills_lose_no_charge(url, open_ledger):
    survive(open_ledger(url, epsilon=1000), 200, seed=20)
