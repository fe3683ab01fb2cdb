"""The plan and its resumption."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from confide.audit import Finding, Verdict, audit, blackbox, claims
from confide.audit import run as running
from confide.audit.finding import judge
from confide.audit.guarantees import layers
from confide.audit.legend import passes
from confide.audit.run import plan
from confide.audit.standing import Tried
from confide.cli.app import app
from confide.errors import ParameterError

COMMAND = CliRunner()


@pytest.fixture(autouse=True)
def _unedited(monkeypatch):
    """Let nobody edit the sources while a test runs."""
    monkeypatch.setattr("confide.audit.state.sources", lambda: "ab" * 32)


def test_the_quick_audit_breaks_no_claim():
    found = audit(seed=0)
    assert found.broken == (), [(f.claim, f.layer, f.note) for f in found.broken]
    told = [attack.to_dict() for attack in found.findings]
    assert all(len(layers(claim, told)) >= 2 for claim in claims())
    assert {row[0].name for row in found.summary()} == {claim.name for claim in claims()}


def test_a_full_audit_tries_more_pairs():
    quick, full = (plan(claims("labels"), full=full) for full in (False, True))
    assert set(quick) < set(full)


def test_an_audit_goes_on_where_it_stopped(tmp_path, monkeypatch):
    state = tmp_path / "state.jsonl"
    whole = audit("labels.rounding", seed=1, state=state)
    lines = state.read_text().splitlines()
    state.write_text("\n".join(lines[:2]) + "\n" + lines[2][:10])  # cut off in the middle of a line
    asked = []
    attack = running._attack
    monkeypatch.setattr(running, "_attack", lambda cell, **how: asked.append(cell) or attack(cell, **how))
    again = audit("labels.rounding", seed=1, state=state)
    assert len(asked) == len(lines) - 2
    assert [f.claim for f in again.findings] == [f.claim for f in whole.findings]
    assert [f.measured for f in again.findings] == pytest.approx(
        [f.measured for f in whole.findings], nan_ok=True
    )
    assert audit("labels.rounding", seed=1, state=state).findings == again.findings
    with pytest.raises(ParameterError, match="full audit"):
        audit("labels.rounding", full=True, state=state)


def test_a_resumed_audit_tells_all_its_days_and_machines(tmp_path, monkeypatch):
    state, day = tmp_path / "state.jsonl", iter(range(10, 99))
    monkeypatch.setattr(running, "LAYERS", dict.fromkeys("abcde", lambda claim, effort: None))
    monkeypatch.setattr("confide.audit.origin.now", lambda: "2026-01-01 00:00 UTC")
    monkeypatch.setattr(running, "now", lambda: f"2026-01-{next(day)} 00:00 UTC")

    def told(where, kept):
        monkeypatch.setattr("confide.audit.origin.machine", lambda: where)
        monkeypatch.setattr(running, "machine", lambda: where)
        if kept is not None:
            state.write_text("".join(state.read_text().splitlines(keepends=True)[: 1 + kept]))
        made = audit("labels.rounding", seed=1, state=state).origin
        assert made is not None
        return made

    assert told("A", None).told == "2026-01-01 00:00 UTC to 2026-01-14 00:00 UTC, on A"
    monkeypatch.setattr("confide.audit.origin.now", lambda: "2026-02-01 00:00 UTC")
    monkeypatch.setattr(running, "now", lambda: "2026-02-02 00:00 UTC")
    resumed = "2026-01-01 00:00 UTC to 2026-02-02 00:00 UTC, on A (resumed on B)"
    assert told("B", 3).told == resumed
    assert told("C", None).told == resumed, "nothing was attacked there"
    assert told("C", 4).told == resumed.replace("B)", "B; C)")
    assert json.loads(json.dumps(told("C", None).to_dict()))["resumed"] == ["B", "C"]


def test_a_bound_without_chance_above_its_claim_is_broken(monkeypatch):
    above = Finding("labels.rounding", "exact", Verdict.HOLDS, 1.0001)
    monkeypatch.setitem(running.LAYERS, "exact", lambda claim, effort: above)
    found = audit("labels.rounding", seed=0)
    assert [attack.layer for attack in found.broken] == ["exact"]
    monkeypatch.setitem(running.LAYERS, "exact", lambda claim, effort: replace(above, measured=1.0))
    assert audit("labels.rounding", seed=0).broken == ()


def test_a_statistical_bound_above_its_claim_is_broken_by_its_p_value():
    """At the error of the bound its p-value is below the first share of Holm."""
    (claim,) = claims("labels.rounding")
    error, runs = running.LEVEL / len(plan([claim], full=False)), 400
    for right in range(200, runs + 1):
        told = blackbox.Tried((blackbox.Guesses(right, runs - right, runs),))
        found = Finding(claim.name, "black box", Verdict.HOLDS, told.epsilon(0.0, error),
                        p_value=told.p_value(1.0, 0.0))  # fmt: skip
        others = [replace(found, p_value=1.0)] * (len(running.LAYERS) - 1)
        above = passes(found.measured, claim.epsilon)
        assert (judge([found, *others], running.LEVEL)[0].verdict is Verdict.BROKEN) == above


def test_a_ledger_that_draws_nothing_is_told_so(monkeypatch):
    monkeypatch.setattr(running, "LAYERS", {name: running.LAYERS[name] for name in ("exact", "entropy")})
    (one,) = audit("ledger.balances", seed=1).standings
    assert one.tried("entropy") is Tried.NOTHING
    assert one.tried("exact") is Tried.HELD
    assert "entropy" not in str(one)


def test_what_cannot_be_attacked_is_not_shown_to_hold(monkeypatch):
    def fails(claim, effort):
        raise ZeroDivisionError("here")

    monkeypatch.setitem(running.LAYERS, "exact", fails)
    found = audit("labels.rounding", seed=0)
    assert [attack.layer for attack in found.broken] == ["exact"]
    assert "ZeroDivisionError" in found.broken[0].note


def test_findings_survive_json():
    for found in (
        Finding("a", "exact", Verdict.HOLDS, 1.0, "pair", 3),
        Finding("a", "replay", Verdict.BROKEN, note="n"),
    ):
        again = Finding.from_dict(json.loads(json.dumps(found.to_dict())))
        assert again.to_dict() == found.to_dict()
        assert math.isnan(again.p_value)


def test_a_lost_result_is_no_audit(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "_results", lambda cells, *more: iter([(cells[0], None)]))
    with pytest.raises(running.UnfinishedError, match=f"{len(running.LAYERS) - 1} attacks gave no result"):
        audit("labels.rounding", seed=1)
    done = COMMAND.invoke(app, ["audit", "-m", "labels.rounding", "--out", str(tmp_path / "a.html")])
    assert done.exit_code == 2
    assert "The audit did not end: " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_processes_that_grow_or_die(monkeypatch):
    import warnings
    from concurrent.futures.process import BrokenProcessPool

    def run(self, tasks):
        warnings.warn(
            "A worker stopped while some jobs were given to the executor.", UserWarning, stacklevel=1
        )
        yield from (call(*args) for call, args, _ in tasks)
        raise BrokenProcessPool

    monkeypatch.setattr("joblib.Parallel.__call__", run)
    monkeypatch.setattr(running, "_quietly", lambda cell, *more: (cell, None))
    cells = plan(claims("labels.rounding"), full=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = running._results(cells, False, 0.1, None, 2)
        assert [next(results)[0] for _ in cells] == cells
        with pytest.raises(running.UnfinishedError, match="killed"):
            next(results)


def test_progress_is_told_from_where_it_stopped(tmp_path):
    state, told = tmp_path / "state.jsonl", []
    audit("labels.rounding", seed=1, state=state)
    whole = len(running.LAYERS)
    state.write_text("\n".join(state.read_text().splitlines()[:6]) + "\n")
    audit("labels.rounding", seed=1, state=state, progress=lambda *more: told.append(more))
    assert told[0][2] == "starting 1 process"
    assert [(done, total) for done, total, _ in told] == [(n, whole) for n in range(5, whole + 1)]
