"""What an audit keeps: from which files it goes on, and which it refuses."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from confide.audit import Finding, Verdict, audit, claims
from confide.audit import run as running
from confide.audit.state import Cell, heading, holding, sources
from confide.cli.app import app
from confide.errors import ParameterError

COMMAND = CliRunner()


@pytest.fixture(autouse=True)
def _unedited(monkeypatch):
    """Let nobody edit the sources while a test runs."""
    monkeypatch.setattr("confide.audit.state.sources", lambda: "ab" * 32)


def test_a_state_that_tells_no_day_is_refused(tmp_path, monkeypatch):
    state = tmp_path / "state.jsonl"
    header = heading(claims("labels.rounding"), full=False, seed=1)
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
    header = heading(claims("labels.rounding"), full=False, seed=1)
    state.write_text(json.dumps(header | other) + "\n")
    monkeypatch.setattr(running, "_attack", None)
    with pytest.raises(ParameterError, match=f"differs: {told}\\.") as caught:
        audit("labels.rounding", seed=1, state=state)
    assert "remove it to attack anew" in caught.value.remedy
    assert state.read_text() == json.dumps(header | other) + "\n"


@pytest.mark.parametrize("first", ["\n", "[]", "no json"])
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
    header = json.dumps(heading(claims("labels.rounding"), full=False, seed=1) | _PLACE)
    if line.endswith("}}"):
        line = f"{line[:-1]}, {json.dumps(_PLACE)[1:]}"
    text = "\n".join([header, good, line, good, "cut o"])
    state.write_text(text)
    monkeypatch.setattr(running, "_attack", None)
    with pytest.raises(ParameterError, match=r"Line 3 of the state .* is damaged"):
        audit("labels.rounding", seed=1, state=state)
    assert state.read_text() == text


def header_of(name="labels.rounding", **more):
    return json.dumps(heading(claims(name), full=False, seed=1) | _PLACE | more)


def line(layer, **changes):
    found = Finding("labels.rounding", layer, Verdict.HOLDS, 1.0).to_dict() | changes
    return json.dumps({"cell": vars(Cell("labels.rounding", layer)), "finding": found, **_PLACE})


@pytest.mark.parametrize("again", [{}, {"measured": 0.5}])
def test_a_cell_on_two_lines_is_refused_and_named(tmp_path, monkeypatch, again):
    state = tmp_path / "state.jsonl"
    lines = [header_of(), line("exact"), line("replay"), line("exact", **again), "cut o"]
    state.write_text("\n".join(lines))
    monkeypatch.setattr(running, "_attack", None)
    with pytest.raises(
        ParameterError, match=r"Line 4 .* again that is on line 2: labels.rounding: exact"
    ) as no:
        audit("labels.rounding", seed=1, state=state)
    assert "two audits" in no.value.remedy
    assert state.read_text() == "\n".join(lines)


def test_two_audits_do_not_share_a_state(tmp_path, monkeypatch):
    """The second one is refused before it reads or attacks, and the first one is not disturbed."""
    state, told = tmp_path / "state.jsonl", []
    asked = ["audit", "-m", "labels.rounding", "--seed", "1", "--state", str(state)]

    def meanwhile(claim, effort):
        before = state.read_text()
        second = COMMAND.invoke(app, asked)
        told.append((second.exit_code, second.stderr, state.read_text() == before))

    monkeypatch.setattr(running, "LAYERS", {"exact": meanwhile, "replay": lambda claim, effort: None})
    audit("labels.rounding", seed=1, state=state)
    ((status, words, same),) = told
    assert (status, same) == (2, True)
    assert f"The state {state} is in use: another audit writes to it. Wait until that one has ended" in words
    rows = [json.loads(row)["cell"]["layer"] for row in state.read_text().splitlines()[1:]]
    assert rows == ["exact", "replay"]
    monkeypatch.setattr(running, "_attack", None)
    assert audit("labels.rounding", seed=1, state=state).stale, "it is let go at the end"


def test_a_state_is_let_go_where_an_audit_ends_in_an_error(tmp_path, monkeypatch):
    state = tmp_path / "state.jsonl"
    monkeypatch.setattr(running, "_results", lambda cells, *more: iter([(cells[0], None)]))
    for _ in range(2):
        with pytest.raises(running.UnfinishedError):
            audit("labels.rounding", seed=1, state=state)


_HOLDER = """
import sys, time
from pathlib import Path
from confide.audit.state import holding
with holding(Path(sys.argv[1]), {"mode": "quick"}, (), ("day", "machine")):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_leaves_no_lock(tmp_path):
    state = tmp_path / "state.jsonl"
    asked = [sys.executable, "-c", _HOLDER, str(state)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ParameterError, match="in use"), holding(state, {"mode": "quick"}, (), ("", "")):
            pass
        other.send_signal(signal.SIGKILL)
    with holding(state, {"mode": "quick"}, (), ("", "")) as book:
        assert (book.begun, book.done) == (("day", "machine"), {})
    assert list(tmp_path.iterdir()) == [state]


def test_an_empty_file_is_begun(tmp_path):
    state = tmp_path / "state.jsonl"
    state.touch()
    with holding(state, {"mode": "quick"}, (), ("day", "machine")) as book:
        book.add(Cell("a", "exact"), None, ("later", "there"))
    with holding(state, {"mode": "quick"}, (), ("other day", "elsewhere")) as book:
        assert book.begun == ("day", "machine")
        assert book.done == {Cell("a", "exact"): None}
        assert book.places == [("later", "there")]


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("rest", ["", '{"cel'])
def test_what_is_added_begins_a_line(tmp_path, kept, rest):
    """Also where the last line, or the end of the first, was cut off."""
    state, cells = tmp_path / "state.jsonl", [Cell("a", "exact", n) for n in range(3)]
    with holding(state, {"mode": "quick"}, (), ("day", "machine")) as book:
        for cell in cells[:kept]:
            book.add(cell, None, ("later", "there"))
    whole = state.read_text()
    state.write_text(whole + rest if kept or rest else whole[:-1])
    with holding(state, {"mode": "quick"}, (), ("", "")) as book:
        assert list(book.done) == cells[:kept]
        book.add(cells[2], None, ("later", "there"))
    with holding(state, {"mode": "quick"}, (), ("", "")) as book:
        assert list(book.done) == [*cells[:kept], cells[2]]
    assert state.read_text().startswith(whole)


def test_without_a_file_results_are_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with holding(None, {}, (), ("day", "machine")) as book:
        book.add(Cell("a", "exact"), None, ("later", "there"))
    assert (list(book.done), list(tmp_path.iterdir())) == ([Cell("a", "exact")], [])


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_a_file_that_cannot_be_locked_is_refused(tmp_path, monkeypatch):
    def none(file, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("confide.audit.state.fcntl.flock", none)
    with pytest.raises(ParameterError, match=r"cannot be kept in .*: No locks available"):
        audit("labels.rounding", seed=1, state=tmp_path / "state.jsonl")


def test_sources_tell_content_names_and_places(tmp_path):
    def told(files):
        for path in tmp_path.rglob("*.py"):
            path.unlink()
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content)
        return sources(tmp_path)

    first = told({"a.py": "x = 1\n", "b/c.py": ""})
    others = ({"a.py": "x = 2\n", "b/c.py": ""}, {"a.py": "", "b/c.py": "x = 1\n"}, {"a.py": "x = 1\n"})
    assert len({first, *map(told, others)}) == 4
    assert told({"b/c.py": "", "a.py": "x = 1\n"}) == first


def test_results_are_of_the_sources_of_confide(monkeypatch, tmp_path):
    (tmp_path / "__init__.py").write_text("x = 1\n")
    monkeypatch.setattr("confide.audit.state.confide.__file__", str(tmp_path / "__init__.py"))
    assert sources() == sources(tmp_path)
    monkeypatch.setattr("confide.audit.state.sources", sources)
    assert heading((), full=False, seed=1)["sources"] == sources(tmp_path)
