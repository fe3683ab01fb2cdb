import json

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from confide.cli.select import select
from confide.ledger import Ledger
from confide.schema import Schema

from .tables import SCHEMA, frame


@pytest.fixture
def run(tmp_path):
    app = typer.Typer()
    app.command()(select)
    frame(1500).to_csv(tmp_path / "clinic.csv", index=False)
    (tmp_path / "clinic.toml").write_text(Schema.from_dict(SCHEMA).to_toml())
    url = f"sqlite:///{tmp_path}/ledger.db"
    ledger = Ledger.open(url, dataset="clinic", epsilon=4, delta=0, adjacency="replace_one")

    def call(*options, epsilon="3", size="2"):
        base = [str(tmp_path / "clinic.csv"), "--schema", str(tmp_path / "clinic.toml"), "--epsilon", epsilon]
        return CliRunner().invoke(app, [*base, "--size", size, "--ledger", f"{url}#clinic", *options])

    call.ledger, call.folder = ledger, tmp_path
    return call


def test_dry_run_charges_nothing(run):
    done = run("--dry-run")
    assert done.exit_code == 0, done.output
    assert "Would be charged" in done.output
    assert "epsilon = 3" in done.output
    preview = json.loads(run("--dry-run", "--json").output)
    assert preview["guarantee"]["adjacency"] == "replace_one"
    assert preview["guarantee"]["assumptions"] == []
    assert run.ledger.total().epsilon == 0


def test_file_to_result(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = run.folder / "support.json"
    done = run("--out", str(out))
    assert done.exit_code == 0, done.output
    assert "2 of 8 encoded columns" in done.output
    assert "replacing one row by any other" in done.output.replace("\n", " ")
    assert str(run.ledger.total().epsilon) == "3"
    saved = json.loads(out.read_text())
    for name in saved["support"]:
        assert name in done.output
    assert len(saved["indices"]) == 2
    assert saved["guarantee"]["event"] == {
        "mechanism": "exponential",
        "count": 1,
        "parameters": {"epsilon": "3"},
    }
    assert "diagnostics" not in saved
    assert not {"seconds", "acceptance", "buckets"} & set(saved)
    again = json.loads(
        run("--json", "--loss", "huber:2", "--mechanism", "permute_and_flip", epsilon="1").output
    )
    assert again["ok"] is True
    assert again["loss"] == "huber(2)"
    assert str(run.ledger.total().epsilon) == "4"


def test_mechanisms_with_a_list_or_an_assumption(run):
    listed = json.loads(run("--json", "--mechanism", "top_r", "--top", "5", epsilon="1").output)
    assert listed["top"] == listed["guarantee"]["event"]["parameters"]["top"] == 5
    refused = run("--mechanism", "mistakes", epsilon="1")
    assert refused.exit_code == 3
    assert "gap condition" in refused.output
    assert str(run.ledger.total().epsilon) == "1"
    told = " ".join(refused.output.split())
    assert '--accept "gap condition"' in told
    assert "no single unit of the table can change" in told
    assert "docs/how-to/selection-mechanisms.md" in told
    for name in ("gap", "anything else"):
        wrong = run("--mechanism", "mistakes", "--accept", name, epsilon="1")
        assert wrong.exit_code == 2
        assert "'gap condition'" in wrong.output
    done = run("--mechanism", "mistakes", "--accept", "gap condition", epsilon="1")
    assert done.exit_code == 0, done.output
    assert "gap condition" in " ".join(done.output.split())
    assert str(run.ledger.total().epsilon) == "2"
    assert run("--top", "5").exit_code == 2
    assert run("--mechanism", "top_r", "--top", "0").exit_code == 2


def test_refusals_have_exit_codes_and_remedies(run):
    refused = run(epsilon="5")
    assert refused.exit_code == 3
    assert json.loads(run("--json", epsilon="0").output)["error"]["code"] == "parameter"
    assert run(size="9").exit_code == 2
    assert "at most 8" in run(size="9").output
    assert run(size="0").exit_code == 2
    assert run("--loss", "huber:wide").exit_code == 2
    assert run("--loss", "cubic:1").exit_code == 2
    assert run("--loss", "hinge").exit_code == 2
    assert run("--mechanism", "argmax").exit_code == 2
    assert run("--adjacency", "nearby").exit_code == 2
    assert run("--adjacency", "replace_label").exit_code == 4
    assert run("--radius", "0").exit_code == 2
    assert run("--out", str(run.folder / "no" / "x.json")).exit_code == 2
    assert run("--adjacency", "replace_private_part").exit_code == 3
    assert run.ledger.total().epsilon == 0
    (run.folder / "clinic.toml").write_text("[columns.x]\nrole = 'public'\n")
    assert run().exit_code == 4
    assert run.ledger.total().epsilon == 0


def test_a_cell_never_shows_in_a_message(run):
    data = pd.read_csv(run.folder / "clinic.csv").astype({"x1": object})
    data.loc[3, "x1"] = "secret-17"
    data.to_csv(run.folder / "clinic.csv", index=False)
    done = run()
    assert done.exit_code == 0
    assert "secret-17" not in done.output


def test_an_earlier_release_is_not_written_over(run, tmp_path):
    (tmp_path / "old.json").write_text("paid for")
    assert run("--out", str(tmp_path / "old.json")).exit_code == 2
    assert run("--out", str(tmp_path)).exit_code == 2
    assert (tmp_path / "old.json").read_text() == "paid for"


def test_a_report_for_people(run, tmp_path):
    page = tmp_path / "report.html"
    done = run("--report", str(page))
    assert done.exit_code == 0, done.output
    assert "report.html" in done.output.replace("\n", "")
    text = page.read_text()
    assert "Entry of this release" in text
    assert "spent before" in text
    assert "the clinic" in text
    assert run("--report", str(page)).exit_code == 2  # it may be all that is left of a release
    assert run("--report", str(tmp_path)).exit_code == 2
    assert str(run.ledger.total().epsilon) == "3"


def test_without_a_ledger_nothing_is_said_to_be_charged(run, tmp_path):
    app = typer.Typer()
    app.command()(select)
    base = [str(run.folder / "clinic.csv"), "--schema", str(run.folder / "clinic.toml"), "--size", "2"]
    done = CliRunner().invoke(app, [*base, "--epsilon", "1", "--dry-run"])
    assert "Would be released" in done.output
    assert "Would not be recorded" in done.output
    assert "charged:" not in done.output
    warned = CliRunner().invoke(app, [*base, "--epsilon", "1", "--mechanism", "mistakes"])
    assert warned.exit_code == 0
    assert warned.stderr.count("Warning: The mechanism 'mistakes' is private") == 1
