import json
import os
import subprocess
import sys

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from confide.cli.train import train
from confide.ledger import Ledger
from confide.schema import Schema
from confide.training import LinearModel

from .test_front import SCHEMA, frame


@pytest.fixture
def run(tmp_path):
    app = typer.Typer()
    app.command()(train)
    frame(1500).to_csv(tmp_path / "wages.csv", index=False)
    (tmp_path / "wages.toml").write_text(Schema.from_dict(SCHEMA).to_toml())
    url = f"sqlite:///{tmp_path}/ledger.db"
    ledger = Ledger.open(url, dataset="wages", epsilon=2, delta=1e-5, adjacency="replace_label")

    def call(*options, epsilon="1"):
        base = [str(tmp_path / "wages.csv"), "--schema", str(tmp_path / "wages.toml"), "--epsilon", epsilon]
        return CliRunner().invoke(app, [*base, "--delta", "1e-6", "--ledger", f"{url}#wages", *options])

    call.ledger, call.folder = ledger, tmp_path
    return call


def test_dry_run_charges_nothing(run):
    done = run("--dry-run")
    assert done.exit_code == 0, done.output
    assert "Would be charged" in done.output
    assert "epsilon = 1" in done.output
    assert run.ledger.total().epsilon == 0
    assert json.loads(run("--dry-run", "--json").output)["guarantee"]["adjacency"] == "replace_label"


def test_file_to_result(run):
    out = run.folder / "model.json"
    done = run("--out", str(out), "--degree", "2", "--conditioning", "power:0.5")
    assert done.exit_code == 0, done.output
    assert "age^2" in done.output
    assert "changing the label of one row" in done.output.replace("\n", " ")
    assert str(run.ledger.total().epsilon) == "1"
    saved = json.loads(out.read_text())
    model = LinearModel.from_dict(saved["model"])
    assert model.terms == tuple(saved["coefficients"])[1:]
    chunked = run("--json", "--chunk-rows", "200")
    assert json.loads(chunked.output)["status"] == "released"


def test_refusals_have_exit_codes_and_remedies(run):
    refused = run(epsilon="3")
    assert refused.exit_code == 3
    assert "3" in refused.output
    assert json.loads(run("--json", epsilon="0").output)["error"]["code"] == "parameter"
    assert run("--conditioning", "power:x").exit_code == 2
    assert run("--engine", "magic").exit_code == 2
    assert run("--adjacency", "replace_one").exit_code == 2
    assert run("--out", str(run.folder / "no" / "x.json")).exit_code == 2
    (run.folder / "wages.toml").write_text("[columns.x]\nrole = 'public'\n")
    assert run().exit_code == 4
    assert run.ledger.total().epsilon == 0


def test_a_cell_never_shows_in_a_message(run):
    data = pd.read_csv(run.folder / "wages.csv").astype({"wage": object})
    data.loc[3, "wage"] = "secret-17"
    data.to_csv(run.folder / "wages.csv", index=False)
    done = run()
    assert "secret-17" not in done.output


def spoiled_parquet(folder):
    """A file whose label and id hold bytes that are no text."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    ends = pa.py_buffer(np.array([0, 1, 8, 9], dtype=np.int32).tobytes())
    text = pa.Array.from_buffers(pa.string(), 3, [None, ends, pa.py_buffer(b"1s\xffcret31")])
    pq.write_table(pa.table({"x": [0.5] * 3, "who": ["1", "--5", "2"], "y": text}), folder / "u.parquet")
    (folder / "u.toml").write_text(
        "[table]\nmax_rows_per_id = 2\n[columns.x]\nrole='public'\nlower=0\nupper=1\n"
        "[columns.who]\nrole='id'\n[columns.y]\nrole='label'\nlower=0\nupper=1\n"
    )
    return [str(folder / "u.parquet"), "-s", str(folder / "u.toml"), "--epsilon", "1", "--delta", "1e-6"]


def test_bytes_that_are_no_text_and_odd_ids_are_trained_on(tmp_path):
    app = typer.Typer()
    app.command()(train)
    for more in ([], ["--chunk-rows", "2"]):
        done = CliRunner().invoke(app, [*spoiled_parquet(tmp_path), *more])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "environment"), [([], {}), (["--debug"], {}), ([], {"CONFIDE_DEBUG": "1"})]
)
def test_an_unexpected_error_is_told_by_its_type_alone(tmp_path, arguments, environment):
    script = (
        "import sys, confide.training as t\n"
        "def train(*a, **k): raise RuntimeError('cell s3cret')\n"
        "t.train = train\n"
        "from confide.cli.app import run\nrun()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments, "train", *spoiled_parquet(tmp_path)],
        capture_output=True,
        text=True,
        env={**{k: v for k, v in os.environ.items() if k != "CONFIDE_DEBUG"}, **environment},
        check=False,
    )
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    shown = bool(arguments or environment)
    assert ("s3cret" in done.stderr) == shown
    assert ("Traceback" in done.stderr) == shown


def test_files_are_settled_before_the_charge(run, tmp_path):
    (tmp_path / "old.json").write_text("paid for")
    for target in (tmp_path, tmp_path / "none" / "x.json", tmp_path / "old.json"):
        for option in ("--out", "--report"):
            assert run(option, str(target)).exit_code == 2
    assert (tmp_path / "old.json").read_text() == "paid for"
    assert run.ledger.total().epsilon == 0
    assert run("--out", str(tmp_path / "old.json"), "--force").exit_code == 0
    assert json.loads((tmp_path / "old.json").read_text())["status"] == "released"


def test_a_report_names_its_own_charge(run, tmp_path):
    assert run("--report", str(tmp_path / "r.html"), epsilon="0.5").exit_code == 0
    page = (tmp_path / "r.html").read_text()
    entry = run.ledger.show()["charges"][0]["id"]
    assert entry in page
    assert "this release" in page


def test_a_dry_run_says_when_the_ledger_would_refuse(run):
    refused = run("--dry-run", epsilon="3")
    assert refused.exit_code == 3
    assert "limit" in refused.output


def test_a_release_without_a_ledger_says_so(run, tmp_path, monkeypatch):
    monkeypatch.delenv("CONFIDE_LEDGER", raising=False)
    app = typer.Typer()
    app.command()(train)
    options = ["--schema", str(tmp_path / "wages.toml"), "--epsilon", "1", "--delta", "1e-6"]
    done = CliRunner().invoke(app, [str(tmp_path / "wages.csv"), *options])
    assert done.exit_code == 0
    assert "charged nowhere" in done.output


def test_warnings_are_one_line_and_hints_name_options(tmp_path):
    from confide.cli.app import app

    columns = {**SCHEMA["columns"]}
    private = next(name for name, column in columns.items() if column["role"] == "public")
    columns[private] = {**columns[private], "role": "private"}
    frame(300).to_csv(tmp_path / "w.csv", index=False)
    (tmp_path / "w.toml").write_text(Schema.from_dict({**SCHEMA, "columns": columns}).to_toml())
    base = ["train", str(tmp_path / "w.csv"), "-s", str(tmp_path / "w.toml"), "--epsilon", "1"]
    base += ["--delta", "1e-6"]
    refused = CliRunner().invoke(app, base)
    assert "--adjacency replace_private_part" in refused.output
    assert "adjacency=" not in refused.output
    done = CliRunner().invoke(app, [*base, "--adjacency", "replace_private_part"])
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stderr.splitlines() if "leaves the private columns out" in line]
    assert len(lines) == 1
    assert lines[0].startswith("Warning: The engine")
    assert ".py" not in done.stderr


def test_a_switch_is_an_epoch(run):
    done = run("--engine", "dpsgd", "--steps", "4", "--switch", "2", "--dry-run")
    assert done.exit_code == 0, done.output
    assert run("--engine", "dpsgd", "--switch", "1.5", "--dry-run").exit_code == 2
