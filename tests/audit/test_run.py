"""The plan, its resumption, the command and the page."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from confide.audit import Finding, Verdict, audit, blackbox, claims, registry
from confide.audit import run as running
from confide.audit.finding import judge
from confide.audit.guarantees import layers
from confide.audit.legend import passes
from confide.audit.run import Audit, plan
from confide.cli.app import app
from confide.errors import ParameterError

COMMAND = CliRunner()


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


def test_a_state_that_tells_no_day_is_refused(tmp_path, monkeypatch):
    state = tmp_path / "state.jsonl"
    header = running._header(claims("labels.rounding"), full=False, seed=1)
    monkeypatch.setattr(running, "_attack", None)
    for more in ({}, {"date": "d", "machine": 3}):
        state.write_text(json.dumps(header | more) + "\n")
        with pytest.raises(ParameterError, match="its first line"):
            audit("labels.rounding", seed=1, state=state)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"mode": "full"}, "mode"),
        ({"version": "0"}, "version"),
        ({"sources": "0"}, "sources"),
        ({"seed": 2}, "seed"),
        ({"claims": ["labels.laplace"]}, "claims"),
        ({"format": 2, "seed": None}, "format, seed"),
    ],
)
def test_a_state_of_another_audit_is_refused(tmp_path, monkeypatch, other, told):
    state = tmp_path / "state.jsonl"
    header = running._header(claims("labels.rounding"), full=False, seed=1)
    state.write_text(json.dumps(header | other) + "\n")
    monkeypatch.setattr(running, "_attack", None)
    with pytest.raises(ParameterError, match=f"differs: {told}\\.") as caught:
        audit("labels.rounding", seed=1, state=state)
    assert "remove it to attack anew" in caught.value.remedy
    assert state.read_text() == json.dumps(header | other) + "\n"


@pytest.mark.parametrize("first", ["", "[]", "no json"])
def test_a_file_that_is_no_state_is_refused(tmp_path, first):
    state = tmp_path / "notes.txt"
    state.write_text(first)
    with pytest.raises(ParameterError, match="its first line"):
        audit("labels.rounding", seed=1, state=state)
    assert state.read_text() == first


@pytest.mark.parametrize(
    ("place", "told"), [("none/state.jsonl", "No such file"), ("", "Is a directory"), ("bytes", "first line")]
)
def test_a_place_that_keeps_no_state_is_refused(tmp_path, monkeypatch, place, told):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\n")
    monkeypatch.setattr(running, "_attack", None)
    asked = ["audit", "-m", "labels.rounding", "--state", str(tmp_path / place)]
    done = COMMAND.invoke(app, asked)
    assert done.exit_code == 2
    assert told in done.stderr
    assert (tmp_path / "bytes").read_bytes() == b"\xff\xfe\n"


_CELL = '{"claim": "labels.rounding", "layer": "exact", "pair": 0}'
_FOUND = Finding("labels.rounding", "exact", Verdict.HOLDS, 1.0).to_dict()
_PLACE = {"date": "2020-01-02 03:04 UTC", "machine": "Odd cpu"}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[1]",
        "7",
        _CELL[:20],
        '{"cell": 1, "finding": null}',
        f'{{"cell": {_CELL}}}',
        '{"cell": {"claim": [], "layer": "exact"}, "finding": null}',
        f'{{"cell": {_CELL}, "finding": {{}}}}',
        f'{{"cell": {_CELL}, "finding": {json.dumps(_FOUND | {"verdict": "well"})}}}',
        f'{{"cell": {_CELL}, "finding": {json.dumps(_FOUND | {"measured": "much"})}}}',
        f'{{"cell": {_CELL}, "finding": {json.dumps(_FOUND | {"more": 1})}}}',
        f'{{"cell": {_CELL}, "finding": {json.dumps(_FOUND | {"moved": "far"})}}}',
        f'{{"cell": {_CELL}, "finding": {json.dumps(_FOUND | {"guesses": "many"})}}}',
        f'{{"cell": {_CELL}, "finding": {json.dumps(_FOUND | {"measured": 1.1})}}}',
        f'{{"cell": {_CELL}, "finding": {json.dumps(_FOUND | {"measured": math.inf})}}}',
        f'{{"cell": {_CELL}, "finding": null}}',
        f'{{"cell": {_CELL}, "finding": null, "date": 7, "machine": "m"}}',
        f'{{"cell": {_CELL.replace("rounding", "none")}, "finding": {json.dumps(_FOUND)}}}',
    ],
)
def test_a_damaged_line_is_named_before_anything_is_attacked(tmp_path, monkeypatch, line):
    state = tmp_path / "state.jsonl"
    good = json.dumps({"cell": json.loads(_CELL), "finding": _FOUND, **_PLACE})
    header = json.dumps(running._header(claims("labels.rounding"), full=False, seed=1) | _PLACE)
    if line.endswith("}}"):
        line = f"{line[:-1]}, {json.dumps(_PLACE)[1:]}"
    text = "\n".join([header, good, line, good, "cut o"])
    state.write_text(text)
    monkeypatch.setattr(running, "_attack", None)
    with pytest.raises(ParameterError, match=r"Line 3 of the state .* is damaged"):
        audit("labels.rounding", seed=1, state=state)
    assert state.read_text() == text


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


def test_sources_tell_content_names_and_places(tmp_path):
    def told(files):
        for path in tmp_path.rglob("*.py"):
            path.unlink()
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content)
        return running._sources(tmp_path)

    first = told({"a.py": "x = 1\n", "b/c.py": ""})
    others = ({"a.py": "x = 2\n", "b/c.py": ""}, {"a.py": "", "b/c.py": "x = 1\n"}, {"a.py": "x = 1\n"})
    assert len({first, *map(told, others)}) == 4
    assert told({"b/c.py": "", "a.py": "x = 1\n"}) == first


def test_a_finished_state_is_told(tmp_path):
    state = tmp_path / "state.jsonl"
    asked = ["audit", "-m", "labels.rounding", "--seed", "3", "--state", str(state)]
    first, again = COMMAND.invoke(app, asked), COMMAND.invoke(app, asked)
    assert "results are from" not in first.stderr
    assert f"All {len(running.LAYERS)} results are from {state}; remove it to attack anew." in again.stderr
    other = COMMAND.invoke(app, [*asked, "--seed", "4"])
    assert other.exit_code == 2
    assert "seed" in other.stderr


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


def test_the_command(tmp_path):
    out = tmp_path / "audit.html"
    done = COMMAND.invoke(app, ["audit", "--mechanism", "labels.rounding", "--seed", "3", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "labels.rounding" in done.output
    assert "No claim was broken" in done.output
    assert "labels.rounding" in out.read_text()
    told = COMMAND.invoke(app, ["audit", "-m", "labels.rounding", "--seed", "3", "--json"])
    body = json.loads(told.output)
    assert body["ok"]
    assert body["broken"] == []
    assert body["claims"][0]["measured"] == pytest.approx(1.0)
    assert body["origin"]["seed"] == 3
    assert body["claims"][0]["told"] == "holds: measured 99% of the claim"
    assert "1 holds and a part of the claim was measured; 0 hold with nothing measured." in done.output
    assert f"1 claim, {len(body['findings']) - 1} attacks, 1 run time, quick, " in done.output
    assert "claims cover" not in done.output, "no public name"
    assert COMMAND.invoke(app, ["audit", "--quick", "--full"]).exit_code not in (0, 1)


def test_an_earlier_report_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "_attack", None)
    out = tmp_path / "audit.html"
    out.write_text("earlier")
    asked = ["audit", "-m", "labels.rounding", "--out"]
    done = COMMAND.invoke(app, [*asked, str(out)])
    assert done.exit_code == 2
    assert "may hold an earlier audit report" in done.stderr
    assert "paid" not in done.stderr
    assert out.read_text() == "earlier"
    nowhere = COMMAND.invoke(app, [*asked, str(tmp_path / "none" / "audit.html")])
    assert nowhere.exit_code == 2
    assert "charge" not in nowhere.stderr


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("nosuch", None),
        ("lables.roundin", "labels.rounding"),
        ("trainning", "training"),
        ("sparseregressor", "SparseRegressor"),
        ("selection.exponentail", "selection.exponential"),
        ("adasp", "adassp"),
    ],
)
def test_an_unknown_name_is_told_its_neighbours(name, near):
    done = COMMAND.invoke(app, ["audit", "-m", name])
    assert done.exit_code == 2
    told = done.stderr
    assert "Rooms are mechanisms, selection, labels," in told
    assert "confide audit --list" in told
    assert len(told) < 500
    assert ("Did you mean" in told) == (near is not None)
    if near is not None:
        meant = told.partition("Did you mean ")[2].partition("?")[0].split(", ")
        assert meant[0] == near
        assert all(claims(each) for each in meant)


@pytest.mark.parametrize("name", ["train", "tune", "select", "certify", "SubsetSelector", "SparseClassifier",
                                  "PrivateRegressor", "CertifiedClassifier"])  # fmt: skip
def test_public_names_are_taken_as_the_readme_writes_them(name):
    assert claims(f"confide.{name}") == claims(name)


def test_rooms_and_claims_are_taken_with_the_name_of_the_package():
    for name in ("selection", "labels.rounding", "training.closed_form"):
        assert claims(f"confide.{name}") == claims(name)
    assert claims("confide.training.train") == claims("train")
    with pytest.raises(ParameterError):
        claims("confide.nosuch")


def test_a_public_name_tells_what_else_its_room_promises(monkeypatch):
    monkeypatch.setattr(running, "LAYERS", {"exact": lambda claim, effort: None})
    for name in ("PrivateRegressor", "confide.PrivateRegressor"):
        found, room = claims(name), claims("training")
        told = f"{len(found)} claims cover {name}; the room training has {len(room)}: --mechanism training"
        assert registry.beside(name) == told
        assert told in COMMAND.invoke(app, ["audit", "-m", name]).output
    for name in ("training", "confide.training", "labels.rounding", "selection.exponential"):
        assert registry.beside(name) == ""
    assert registry.beside("certify").startswith("1 claim covers certify; the room prediction has ")


def test_one_name_at_a_time(monkeypatch):
    monkeypatch.setattr(running, "_attack", None)
    done = COMMAND.invoke(app, ["audit", "-m", "labels.rounding", "-m", "labels.laplace"])
    assert done.exit_code == 2
    assert "--mechanism was given 2 times: labels.rounding, labels.laplace." in done.stderr
    assert COMMAND.invoke(app, ["audit", "--list", "-m", "labels", "-m", "training"]).exit_code == 2


@pytest.mark.parametrize("mode", [[], ["--museum"], ["--full"], ["-m", "labels.rounding"]])
def test_a_seed_below_0_is_refused_before_anything_starts(tmp_path, monkeypatch, mode):
    monkeypatch.setattr(running, "_attack", None)
    monkeypatch.chdir(tmp_path)
    done = COMMAND.invoke(app, ["audit", *mode, "--seed", "-1"])
    assert done.exit_code == 2
    assert "The option --seed is -1." in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_table_in_a_file_breaks_no_name_and_tells_delta_and_neighbours(monkeypatch):
    names = ("labels.gaussian", "training.closed_form.spectral")
    found = tuple(
        Finding(name, "exact", Verdict.HOLDS, 0.5, "a pair whose name is long enough to fill a line")
        for name in names
    )
    monkeypatch.setattr("confide.audit.run.audit", lambda *a, **k: Audit((*found, *found), False, 1.0))
    told = COMMAND.invoke(app, ["audit"]).stdout
    assert told.splitlines()[0].split() == [
        "claim", "claimed", "neighbours", "measured", "by", "on", "outcome",
    ]  # fmt: skip
    assert told.splitlines()[1].split()[:5] == ["labels.gaussian", "1,", "0.001", "replace", "label"]
    assert len(told.splitlines()) == 1 + len(names) + 2
    assert "2 claims, 4 attacks, quick, 1 s." in told


@pytest.mark.parametrize(("width", "shown"), [(100, True), (99, False)])
def test_neighbours_are_shown_where_they_fit(monkeypatch, width, shown):
    from rich.console import Console

    from confide.cli import audit as command

    monkeypatch.setattr(command, "_console", lambda: Console(width=width, markup=False))
    found = (Finding("labels.gaussian", "exact", Verdict.HOLDS, 0.5),)
    monkeypatch.setattr("confide.audit.run.audit", lambda *a, **k: Audit(found, False, 1.0))
    assert ("neighbours" in COMMAND.invoke(app, ["audit"]).output) == shown


def test_the_command_lists_claims(monkeypatch):
    monkeypatch.setattr(running, "_attack", None)
    done = COMMAND.invoke(app, ["audit", "--list"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].split() == ["claim", "room", "kind", "epsilon", "delta", "neighbours"]
    assert [line.split()[0] for line in lines[1:-1]] == [claim.name for claim in claims()]
    assert "labels.gaussian labels mechanism 1 0.001 replace_label" in " ".join(done.output.split())
    body = json.loads(COMMAND.invoke(app, ["audit", "--list", "-m", "labels.gaussian", "--json"]).output)
    assert body["claims"] == [
        {"claim": "labels.gaussian", "room": "labels", "kind": "mechanism", "epsilon": 1.0, "delta": 0.001,
         "adjacency": "replace_label"}
    ]  # fmt: skip
    assert COMMAND.invoke(app, ["audit", "--list", "--full"]).exit_code == 2
    assert COMMAND.invoke(app, ["audit", "--museum", "--list"]).exit_code == 2


def test_the_bar_shows_no_unknown_number(monkeypatch):
    from rich import progress

    from confide.cli.audit import _progress

    bars = []

    class Kept(progress.Progress):
        def start(self):
            bars.append(self)

    monkeypatch.setattr(progress, "Progress", Kept)
    with _progress(quiet=False) as told:
        (task,) = bars[0].tasks
        assert not task.visible
        told(5, 9, "where it stopped")
        assert (task.visible, task.completed, task.total) == (True, 5, 9)


def test_progress_is_told_from_where_it_stopped(tmp_path):
    state, told = tmp_path / "state.jsonl", []
    audit("labels.rounding", seed=1, state=state)
    whole = len(running.LAYERS)
    state.write_text("\n".join(state.read_text().splitlines()[:6]) + "\n")
    audit("labels.rounding", seed=1, state=state, progress=lambda *more: told.append(more))
    assert told[0][2] == "starting 1 process"
    assert [(done, total) for done, total, _ in told] == [(n, whole) for n in range(5, whole + 1)]


def test_an_interrupted_audit_goes_on(tmp_path, monkeypatch):
    attack, state = running._attack, tmp_path / "state.jsonl"

    def stops(cell, **how):
        if cell.layer == "black box":
            raise KeyboardInterrupt
        return attack(cell, **how)

    asked = ["audit", "-m", "labels.rounding", "--seed", "3"]
    with monkeypatch.context() as patch:
        patch.setattr(running, "_attack", stops)
        first = COMMAND.invoke(app, [*asked, "--state", str(state)])
        without = COMMAND.invoke(app, asked)
    assert first.exit_code == without.exit_code == 130
    assert f"what ended is in {state}: run again to go on." in first.stderr
    assert "nothing was kept" in without.stderr
    assert len(state.read_text().splitlines()) == 2
    again = COMMAND.invoke(app, [*asked, "--state", str(state)])
    assert again.exit_code == 0
    assert "results are from" not in again.stderr


def test_the_command_shows_the_museum(monkeypatch):
    from confide.audit import museum

    few = tuple(piece for piece in museum.pieces() if piece.name in ("leaks.charge", "textbook_laplace"))
    monkeypatch.setattr(museum, "pieces", lambda: few)
    done = COMMAND.invoke(app, ["audit", "--museum", "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert "2 pieces, 1 caught by two layers or more. All were caught" in done.output
    body = json.loads(COMMAND.invoke(app, ["audit", "--museum", "--seed", "3", "--json"]).output)
    assert body["wrong"] == []
    assert {row["piece"]: row["caught_by"] for row in body["pieces"]} == {
        "textbook_laplace": ["replay", "support"], "leaks.charge": ["side channels"],
    }  # fmt: skip
    blind = replace(few[0], broken=few[0].sibling)
    monkeypatch.setattr(museum, "pieces", lambda: (blind,))
    missed = COMMAND.invoke(app, ["audit", "--museum", "--seed", "3"])
    assert missed.exit_code == 1
    assert "Wrong: textbook_laplace" in missed.output
    assert COMMAND.invoke(app, ["audit", "--museum", "--full"]).exit_code not in (0, 1)


def test_a_broken_claim_leaves_with_status_1(monkeypatch):
    broken = Finding("labels.rounding", "exact", Verdict.BROKEN, 2.0, "ends")
    monkeypatch.setitem(running.LAYERS, "exact", lambda claim, effort: broken)
    done = COMMAND.invoke(app, ["audit", "-m", "labels.rounding", "--seed", "3"])
    assert done.exit_code == 1
    assert "Broken: labels.rounding" in done.output
    assert "broken by exact, on 'ends': its bound is above the claim" in " ".join(done.output.split())


def test_a_claim_that_is_broken_below_its_bound_says_by_what(monkeypatch):
    broken = Finding("labels.rounding", "replay", Verdict.BROKEN, pair="ends", note="moved by 2 [red]")
    monkeypatch.setitem(running.LAYERS, "replay", lambda claim, effort: broken)
    done = COMMAND.invoke(app, ["audit", "-m", "labels.rounding", "--seed", "3"])
    assert done.exit_code == 1
    row = done.output.partition("labels.rounding")[2].partition("1 claim,")[0]
    told = " ".join(row.split())
    for word in ("broken by replay, on 'ends':", "moved by 2 [red]", "not by its bound"):
        assert word in told, told


def test_a_public_name_without_a_claim_leaves_with_status_1(tmp_path, monkeypatch):
    few = claims("labels.rounding")
    monkeypatch.setattr(running, "claims", lambda name=None: few)
    assert COMMAND.invoke(app, ["audit", "--seed", "3"]).exit_code == 0
    monkeypatch.setattr(running.exempt, "missing", lambda: ["confide.tune.novel"])
    out = tmp_path / "audit.html"
    done = COMMAND.invoke(app, ["audit", "--seed", "3", "--out", str(out)])
    assert done.exit_code == 1
    assert "No claim was broken." in done.output
    assert "nothing attacks them: confide.tune.novel." in done.output
    assert "confide.<wbr>tune.<wbr>novel" in out.read_text()
    body = json.loads(COMMAND.invoke(app, ["audit", "--seed", "3", "--json"]).output)
    assert body["broken"] == ["confide.tune.novel"]
    assert body["findings"][-1]["layer"] == "registry"
    assert COMMAND.invoke(app, ["audit", "-m", "labels.rounding", "--seed", "3"]).exit_code == 0
