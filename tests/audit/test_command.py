"""The command: what it takes, how it tells of what it does, and its status."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from confide.audit import Finding, Verdict, claims, registry
from confide.audit import run as running
from confide.audit.run import Audit
from confide.cli.app import app
from confide.errors import ParameterError

COMMAND = CliRunner()


@pytest.fixture(autouse=True)
def _unedited(monkeypatch):
    """Let nobody edit the sources while a test runs."""
    monkeypatch.setattr("confide.audit.state.sources", lambda: "ab" * 32)


def test_a_finished_state_is_told(tmp_path):
    state = tmp_path / "state.jsonl"
    asked = ["audit", "-m", "labels.rounding", "--seed", "3", "--state", str(state)]
    first, again = COMMAND.invoke(app, asked), COMMAND.invoke(app, asked)
    assert "results" not in first.stderr
    rows = (json.loads(line) for line in state.read_text().splitlines()[1:])
    count = sum(row["finding"] is not None for row in rows)
    assert count < len(running.LAYERS), "findings alone are counted"
    assert f"All {count} results are from {state}; remove it to attack anew." in again.stderr
    assert f"{count - 1} attacks, 1 run time" in again.stdout
    nothing = len(running.LAYERS) - count
    told = f"Of {len(running.LAYERS)} cells (a claim by a layer) {nothing} had nothing to try."
    assert told in again.stdout, "all that the bar counted"
    other = COMMAND.invoke(app, [*asked, "--seed", "4"])
    assert other.exit_code == 2
    assert "seed" in other.stderr


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
    whole = len(claims())
    assert f"1 of {whole} claims, {len(body['findings']) - 1} attacks, 1 run time, quick, " in done.output
    assert (body["asked"], body["registered"]) == ("labels.rounding", whole)
    assert f"Audit of labels.rounding: 1 of {whole} claims" in out.read_text()
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
        ("sparseregresor", "SparseRegressor"),
        ("methd:laplace", "smooth_laplace"),
        ("selection.exponentail", "selection.exponential"),
        ("adasp", "adassp"),
        ("confide.trian", "confide.train"),
        ("Confide.PrivateRegresor", "confide.PrivateRegressor"),
        ("confide.selection.exponentail", "confide.selection.exponential"),
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
    assert ":laplace" not in told.partition("Did you mean")[2]
    if near is not None:
        meant = told.partition("Did you mean ")[2].partition("?")[0].split(", ")
        assert meant[0] == near
        assert all(claims(each) for each in meant)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("confide.service.Service", "near are prediction.serving, ledger.requests."),
        ("confide.service", "near are prediction.serving, ledger.requests."),
        ("confide.write_report", "No claim covers it: it draws no noise."),
        ("confide.training.Status", "No claim covers it: a value or a type"),
        ("confide.forecast", "No claim covers it: computed from public columns"),
    ],
)
def test_a_public_name_without_a_claim_says_why_or_what_is_near(name, told):
    with pytest.raises(ParameterError) as caught:
        claims(name)
    assert told in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "meant"),
    [("  training ", "training"), ("confide.TRAIN", "train"), ("privateregressor", "PrivateRegressor"),
     ("Labels.Rounding", "labels.rounding"), ("confide.Ledger", "ledger"), ("AdaSSP", "adassp")],
)  # fmt: skip
def test_blanks_and_case_of_a_name_do_not_count(name, meant):
    assert claims(name) == claims(meant)


def test_a_name_that_case_alone_tells_apart_is_not_guessed(monkeypatch):
    (claim,) = claims("labels.rounding")
    for name in ("labels.Twin", "labels.tWin"):
        monkeypatch.setitem(registry._CLAIMS, name, replace(claim, name=name, covers=()))
    assert [claim.name for claim in claims("labels.tWin")] == ["labels.tWin"]
    with pytest.raises(ParameterError, match=r"No claim is called 'labels\.twin'"):
        claims("labels.twin")


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
        told = (
            f"{len(found)} claims cover {name}: default options, or those that their names say; "
            f"others of the room: --mechanism training ({len(room)} claims)"
        )
        assert registry.beside(name) == told
        for more in ([], ["--list"]):
            assert f"{told}." in COMMAND.invoke(app, ["audit", "-m", name, *more]).output
    for name in ("training", "confide.training", "labels.rounding", "selection.exponential"):
        assert registry.beside(name) == ""
    assert registry.beside("certify").startswith(
        "1 claim covers certify: default options, or those that its name says; others of the room: "
    )


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
    assert all(line == line.rstrip() for line in told.splitlines())
    assert told.splitlines()[1].split()[:5] == ["labels.gaussian", "1,", "0.001", "replace", "label"]
    assert len(told.splitlines()) == 1 + len(names) + 2
    assert f"2 of {len(claims())} claims, 4 attacks, quick, 1 s." in told


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
    assert [line.split()[0] for line in lines[1:-2]] == [claim.name for claim in claims()]
    assert lines[-1] == f"SHA-256 of the sources: {'ab' * 32}"
    assert "labels.gaussian labels mechanism 1 0.001 replace_label" in " ".join(done.output.split())
    body = json.loads(COMMAND.invoke(app, ["audit", "--list", "-m", "labels.gaussian", "--json"]).output)
    assert body["claims"] == [
        {"claim": "labels.gaussian", "room": "labels", "kind": "mechanism", "epsilon": 1.0, "delta": 0.001,
         "adjacency": "replace_label"}
    ]  # fmt: skip
    assert body["sources"] == "ab" * 32
    assert COMMAND.invoke(app, ["audit", "--list", "--full"]).exit_code == 2
    assert COMMAND.invoke(app, ["audit", "--museum", "--list"]).exit_code == 2


def test_the_bar_shows_no_unknown_number(monkeypatch):
    from rich import progress

    from confide.cli.audit import _bar

    bars = []

    class Kept(progress.Progress):
        def start(self):
            bars.append(self)

    monkeypatch.setattr(progress, "Progress", Kept)
    with _bar("cells") as told:
        (task,) = bars[0].tasks
        assert not task.visible
        told(5, 9, "where it stopped")
        assert (task.visible, task.completed, task.total) == (True, 5, 9)


def test_progress_off_a_terminal_is_lines(monkeypatch, capsys):
    from confide.cli import audit as command

    clock = iter([0.0, 1.0, *(2.0 + n / 100 for n in range(1, 100)), 80.0, 81.0, 141.0])
    monkeypatch.setattr(command.time, "monotonic", lambda: next(clock))
    with command._progress(quiet=False) as told:
        for n in range(100):
            told(n, 1000, "a cell")
        told(100, 1000, "a tenth")
        told(101, 1000, "soon after")
        told(102, 1000, "after a minute")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "0 of 1,000 cells: a cell", "100 of 1,000 cells: a tenth", "102 of 1,000 cells: after a minute",
    ]  # fmt: skip


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
    assert without.stderr.splitlines()[-1] == "Stopped; nothing was kept."
    assert len(state.read_text().splitlines()) == 2
    again = COMMAND.invoke(app, [*asked, "--state", str(state)])
    assert again.exit_code == 0
    whole = COMMAND.invoke(app, [*asked, "--state", str(state), "--json"])
    count = len(json.loads(whole.stdout)["findings"])
    assert f"1 of {count} results came from {state}: an earlier run of the same code." in again.stderr


def test_an_audit_that_stops_before_it_begins_says_so(tmp_path, monkeypatch):
    """While its code is still imported, too: that is most of the first seconds."""
    import builtins

    plain = builtins.__import__

    def stops(name, *more):
        if name == "confide.audit.run":
            raise KeyboardInterrupt
        return plain(name, *more)

    monkeypatch.chdir(tmp_path)
    for more in ([], ["--full"], ["--museum"]):
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "__import__", stops)
            done = COMMAND.invoke(app, ["audit", *more])
        assert done.exit_code == 130
        assert done.stderr == "Stopped; nothing was kept.\n"


def test_json_tells_which_results_are_of_an_earlier_run(tmp_path):
    state = tmp_path / "state.jsonl"
    asked = ["audit", "-m", "labels.rounding", "--seed", "3", "--state", str(state), "--json"]
    whole = json.loads(COMMAND.invoke(app, asked).stdout)
    assert whole["earlier"] == {"results": 0, "all": False, "findings": []}
    assert whole["cells"] == len(whole["findings"]) + whole["nothing_to_try"] == len(running.LAYERS)
    lines = state.read_text().splitlines(keepends=True)
    old = [row for row in map(json.loads, lines[1:]) if row["cell"]["layer"] in ("black box", "replay")]
    assert len(old) == 2
    state.write_text(lines[0] + "".join(f"{json.dumps(row)}\n" for row in old))
    part = json.loads(COMMAND.invoke(app, asked).stdout)
    assert (part["earlier"]["results"], part["earlier"]["all"]) == (2, False)
    assert [part["findings"][n]["layer"] for n in part["earlier"]["findings"]] == ["black box", "replay"]
    again = json.loads(COMMAND.invoke(app, asked).stdout)
    places = list(range(len(whole["findings"])))
    assert again["earlier"] == {"results": len(places), "all": True, "findings": places}


def test_the_help_tells_every_status_and_breaks_no_line():
    from rich.text import Text

    told = COMMAND.invoke(app, ["audit", "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).stdout
    lines = [line.strip() for line in Text.from_ansi(told).plain.splitlines()]
    start = lines.index("Leaves with a status:")
    assert [line.partition(" ")[0] for line in lines[start + 1 : start + 5]] == ["0", "1", "2", "130"]
    assert all(line.endswith((";", ".")) for line in lines[start + 1 : start + 6])
    assert not lines[start + 6]


def test_the_command_shows_the_museum(monkeypatch):
    from confide.audit import museum

    few = tuple(piece for piece in museum.pieces() if piece.name in ("leaks.charge", "textbook_laplace"))
    monkeypatch.setattr(museum, "pieces", lambda: few)
    done = COMMAND.invoke(app, ["audit", "--museum", "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert "2 pieces, 1 caught by two layers or more. All were caught" in done.output
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == [
        f"{n} of 2 pieces" for n in range(3)
    ]
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
    monkeypatch.setattr(running.exempt, "missing", list)
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
