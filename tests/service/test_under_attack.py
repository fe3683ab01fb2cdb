"""Small runs of benchmarks/service.py on both stores: real servers, kills, races, malformed rows, repetition."""

from __future__ import annotations

import importlib
import itertools
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="no uvicorn: pip install 'confide[serve]'")
psutil = pytest.importorskip("psutil", reason="no psutil: pip install psutil")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PARTS = ("world", "client", "server", "load", "kills", "race", "fuzz", "timing", "repetition", "part")


@pytest.fixture(scope="module")
def parts():
    """The benchmark's modules, as one run imports them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        before = set(sys.modules)
        modules = {name: importlib.import_module(f"_service_{name}") for name in PARTS}
        yield SimpleNamespace(**modules, main=importlib.import_module("service"))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
                del sys.modules[name]


@pytest.fixture(scope="module")
def saved(parts, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.npz"
    parts.world.certified(parts.world.table(1_000)).save(path)
    return path


@pytest.fixture
def here(parts, saved, url, tmp_path, monkeypatch):
    for name, value in parts.world.environment().items():
        monkeypatch.setenv(name, value)
    return parts.world.World(tmp_path, saved, url, url.partition(":")[0].partition("+")[0])


@pytest.fixture
def local(parts, saved, sqlite_url, tmp_path, monkeypatch):
    for name, value in parts.world.environment().items():
        monkeypatch.setenv(name, value)
    return parts.world.World(tmp_path, saved, sqlite_url, "sqlite")


@pytest.mark.parametrize("release", ["RESPONSE", pytest.param("STABLE", marks=pytest.mark.slow)])
def test_kills_lose_no_charge_and_charge_nothing_twice(parts, here, release):
    found = parts.kills.survive(here, 3, seed=1, **getattr(parts.kills, release))
    assert found["wrong"] == []
    assert found["requests"] > 10
    assert found["retries"] > 0
    assert found["entries"] >= 1 + parts.kills.ANALYSTS


def test_what_clients_saw_is_summed(parts):
    seen = parts.kills.Seen()
    seen.answered("r", "ann", Fraction(1), 3)
    seen.answered("s", "bob", Fraction(2), 1)
    assert (seen.spent(), seen.spent("ann"), seen.spent("eve"), seen.asked) == (3, 1, 0, 4)


def test_a_server_that_forgets_a_charge_is_noticed(parts, local, monkeypatch):
    """The ledger is compared with what clients saw: one that says less is wrong at the first kill."""
    from confide.ledger import Ledger, Spending

    monkeypatch.setattr(Ledger, "total", lambda self: Spending(Fraction(0), Fraction(0)))
    found = parts.kills.survive(local, 2, seed=1, **parts.kills.RESPONSE)
    assert any("without its charge" in line for line in found["wrong"])
    assert any("the total is 0" in line for line in found["wrong"])


@pytest.mark.parametrize("units", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_race_for_the_last_of_the_total_gives_as_many_answers(parts, here, units):
    with parts.server.Nursery(here) as nursery:
        assert parts.race.for_the_total(here, nursery, units, 24, seed=units) == []


@pytest.mark.slow
def test_a_race_for_the_last_of_an_account_gives_as_many_answers(parts, here):
    ledger = here.ledger()
    with (
        parts.server.Nursery(here) as nursery,
        parts.race.Workers(here, nursery, ledger) as workers,
    ):
        for units in (1, 5):
            assert parts.race.for_an_account(workers, ledger, units, 24, seed=units) == []
    ledger.verify()


def test_malformed_rows_are_refused_by_a_real_server_and_leave_no_trace(parts, local):
    assert parts.fuzz.check(local, 60, seed=3) == {
        "accepted, or 5xx": [], "field not named": [], "value said back": []
    }  # fmt: skip


def test_repetition_and_collusion_learn_no_more_than_one_answer(parts, here):
    found = parts.repetition.attack(here, Fraction(1), queries=150, repeats=20, analysts=6, people=600)
    assert found["same"]
    assert found["measured"] <= found["declared"]
    assert found["fresh"] > found["declared"]  # the attack has teeth


def test_measured_epsilon_is_below_that_of_the_law(parts):
    rng = np.random.default_rng(0)
    p = np.e / (1 + np.e)
    draws = [(rng.random(4_000) < q).astype(float) for q in (1 - p, p)]
    assert 0.8 < parts.repetition.measured(*draws) < 1
    assert parts.repetition.measured(draws[0], draws[0]) < 0.01


def test_queries_of_latency_are_of_two_kinds(parts, local):
    from confide.prediction import CertifiedModel

    near, far = parts.timing.near_and_far(CertifiedModel.load(local.model), 40, seed=1)
    model = CertifiedModel.load(local.model)
    for rows, low, high in ((near, 0, 0), (far, 2, 10**9)):
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        k = model.certified.stability(model.queries(columns))[1]
        assert low <= k.min() <= k.max() <= high


def test_an_area_and_its_error_are_those_of_all_pairs(parts):
    rng = np.random.default_rng(1)
    scores, kinds = np.round(rng.normal(size=60), 1), np.repeat([0, 1], [25, 35])
    wins = [(b > a) + (b == a) / 2 for a, b in itertools.product(scores[kinds == 0], scores[kinds == 1])]
    value, error = parts.timing.area(scores, kinds)
    assert value == pytest.approx(np.mean(wins))
    assert 0.05 < error < 0.1


def test_a_difference_of_latency_is_told_apart(parts):
    rng = np.random.default_rng(2)
    alike = 0.01 + 0.001 * rng.random((400, 2))
    told = parts.timing.told_apart(alike)
    assert all(value < 0.56 for value, _ in told.values())
    wider = alike.copy()
    wider[:, 1] = 0.0105 + 3 * (wider[:, 1] - 0.0105)  # the same median
    told = parts.timing.told_apart(wider)
    assert told["boosted trees"][0] > 0.6
    shifted = alike + np.array([0, 0.0003])
    assert all(value > 0.6 for value, _ in parts.timing.told_apart(shifted).values())


@pytest.mark.slow
def test_the_load_is_answered_and_charged(parts, local):
    found = parts.load.one(local, (10, 2, 0, None), seconds=0.5)
    assert found["count"] > 1
    assert len(found["latency"]) == 3
    assert found["disk"] > 0
