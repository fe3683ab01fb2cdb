"""Commands certify and predict: charges, refusals with exit codes, what is written and to whom."""

import csv
import io
import json
import os
import stat
import threading
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

import confide
from confide.cli.app import app
from confide.ledger import Ledger
from confide.prediction import CertifiedClassifier, CertifiedModel
from confide.schema import Schema

from .test_certify import COLUMNS, frame, schema  # isort: skip

pd = pytest.importorskip("pandas")


@pytest.fixture
def run(tmp_path):
    pd.DataFrame(frame(500)).to_csv(tmp_path / "visits.csv", index=False)
    rows = pd.DataFrame(frame(20, seed=8))
    rows.drop(columns="sick").to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "visits.toml").write_text(Schema.from_dict(schema()).to_toml())
    url = f"sqlite:///{tmp_path}/l.db"
    ledger = Ledger.open(url, dataset="visits", epsilon=8, delta=1e-5, adjacency="replace_one")

    def call(*words):
        words = [str(tmp_path / word[1:]) if word.startswith("@") else word for word in words]
        words = [url + "#visits" if word == "LEDGER" else word for word in words]
        return CliRunner().invoke(app, words)

    call.ledger, call.folder, call.truth = ledger, tmp_path, rows["sick"].to_numpy()
    return call


CERTIFY = ("certify", "@visits.csv", "--schema", "@visits.toml", "--out", "@m.npz")
PREDICT = ("predict", "@m.npz", "@new.csv")


def test_file_to_answers(run):
    made = run(*CERTIFY, "--alpha", "0.01")
    assert made.exit_code == 0, made.output
    assert "as secret as the table" in made.output
    assert "Labels outside the declared classes count as 'no'" in made.output
    assert "one row (replace_one)" in made.output
    assert stat.S_IMODE((run.folder / "m.npz").stat().st_mode) == 0o600
    assert run.ledger.total().epsilon == 0
    done = run(*PREDICT, "--epsilon", "0.4", "--ledger", "LEDGER", "--out", "@a.csv")
    assert done.exit_code == 0, done.output
    assert "20 answers together" in done.output
    assert "epsilon = 8" in done.output
    assert "no ledger" not in done.output
    assert run.ledger.total().epsilon == 8
    told = pd.read_csv(run.folder / "a.csv")["answer"].to_numpy()
    assert np.mean(told == run.truth) > 0.6
    assert run.ledger.show()["charges"][0]["label"] == "predict new.csv"


@pytest.mark.parametrize(
    ("adjacency", "ids", "counted"),
    [
        ("replace_one", None, "--adjacency replace_one"),
        ("add_remove_one", None, "--adjacency add_remove_one"),
        ("replace_label", None, "--adjacency replace_label"),
        ("replace_one", 2, "--adjacency replace_one --unit person"),
    ],
)
def test_the_ledger_that_is_hinted_at_takes_the_charge(run, monkeypatch, adjacency, ids, counted):
    monkeypatch.setenv("CONFIDE_LEDGER_COUNTER", str(run.folder / "counter"))
    cells = pd.DataFrame(frame(500))
    public = {name: {**COLUMNS[name], "role": "public"} for name in ("age", "income")}
    declared = schema(ids=ids, **(public if adjacency == "replace_label" else {}))
    if ids is not None:
        cells["who"] = np.arange(500) // 2
    cells.to_csv(run.folder / "visits.csv", index=False)
    (run.folder / "visits.toml").write_text(Schema.from_dict(declared).to_toml())
    more = ("--max-rows", "600") if adjacency == "add_remove_one" else ()
    made = run(*CERTIFY, "--adjacency", adjacency, "--certificate", "votes", "--neighbours", "5", *more)
    assert made.exit_code == 0, made.output
    *_, answers, ledger = made.output.splitlines()
    assert ledger == f"Their ledger: confide ledger create --ledger URL --epsilon TOTAL {counted}"
    given = {"URL": f"sqlite:///{run.folder}/o.db#visits", "TOTAL": "8", "ROWS": "@new.csv"}
    for line in (ledger, answers):
        done = run(*(given.get(word, word) for word in line.partition(": confide ")[2].split()))
        assert done.exit_code == 0, done.output


def test_answers_within_a_total(run):
    run(*CERTIFY)
    total = ("--total-epsilon", "2", "--total-delta", "1e-6")
    done = run(*PREDICT, *total, "--ledger", "LEDGER", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)["guarantee"]
    assert Fraction(2) * (1 - Fraction(1, 10**6)) < Fraction(told["epsilon"]) <= 2
    assert Fraction(told["delta"]) == Fraction(1, 10**6)
    assert run.ledger.total().epsilon == Fraction(told["epsilon"])
    assert "--slack" not in run(*PREDICT, *total, "--dry-run").output
    for wrong, message in (
        ((*total, "--epsilon", "1"), "Both 'epsilon' and 'total'"),
        ((*total, "--slack", "1e-6"), "Both 'slack' and 'total'"),
        (("--total-delta", "1e-6"), "without --total-epsilon"),
        ((), "--total-epsilon, of all together"),
    ):
        refused = run(*PREDICT, *wrong)
        assert refused.exit_code == 2
        assert message in refused.output


def test_what_a_slack_would_save_is_said(run):
    run(*CERTIFY)
    done = run(*PREDICT, "--epsilon", "0.4", "--ledger", "LEDGER", "--dry-run")
    assert "With --slack" not in done.output  # 20 answers: nothing to gain
    pd.DataFrame(frame(200)).drop(columns="sick").to_csv(run.folder / "new.csv", index=False)
    few = CertifiedModel.load(run.folder / "m.npz").preview(200, "0.04", slack="1e-6").epsilon
    for options in (("--dry-run",), ("--dry-run", "--ledger", "LEDGER"), ("--ledger", "LEDGER")):
        done = run(*PREDICT, "--epsilon", "0.04", *options)
        assert f"such answers together have epsilon = {float(few):.6g} instead of 8." in done.output
    assert few < 8 * 0.9
    pure = f"sqlite:///{run.folder}/p.db"
    Ledger.open(pure, dataset="visits", epsilon=8, delta=0, adjacency="replace_one")
    zcdp = f"sqlite:///{run.folder}/z.db"
    Ledger.open(zcdp, dataset="visits", epsilon=8, delta=1e-5, adjacency="replace_one", accountant="zcdp")
    for url in (pure, zcdp):
        told = run(*PREDICT, "--epsilon", "0.04", "--ledger", url + "#visits", "--dry-run")
        assert told.exit_code == 0, told.output
        assert "With --slack" not in told.output


def test_a_dry_run_charges_and_writes_nothing(run):
    done = run(*CERTIFY, "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["status"] == "preview"
    assert json.loads(done.output)["provenance"]["certificate"] == "erm"
    assert not (run.folder / "m.npz").exists()
    assert run(*CERTIFY).exit_code == 0
    told = run(*PREDICT, "--epsilon", "0.3", "--ledger", "LEDGER", "--dry-run", "--out", "@a.csv")
    assert told.exit_code == 0, told.output
    assert "Would be charged for 20 answers together" in told.output
    assert run(*PREDICT, "--epsilon", "0.5", "--ledger", "LEDGER", "--dry-run").exit_code == 3
    assert not (run.folder / "a.csv").exists()
    assert run.ledger.total().epsilon == 0


def test_answers_go_to_standard_output_alone(run):
    run(*CERTIFY)
    done = run(*PREDICT, "--epsilon", "1")
    assert done.stdout.splitlines()[0] == "answer"
    assert len(done.stdout.splitlines()) == 21
    assert "charged nowhere" in done.stderr
    body = json.loads(run(*PREDICT, "--epsilon", "1", "--json").stdout)
    assert body["ok"]
    assert len(body["answers"]) == body["count"] == 20
    assert body["guarantee"]["epsilon"] == "20"
    assert body["guarantee"]["assumptions"] == ["unrecorded"]


def test_rows_without_an_answer_are_empty(run):
    run(*CERTIFY)
    terms = ("--epsilon", "1", "--delta", "1e-6", "--release", "sparse_vector")
    done = run(*PREDICT, *terms)
    cells = [line[0] for line in csv.reader(io.StringIO(done.stdout))][1:]
    assert len(cells) == 20
    assert cells.count("") >= 1
    assert f"{cells.count('')} rows have no answer" in done.stderr
    assert None in json.loads(run(*PREDICT, *terms, "--json").stdout)["answers"]


@pytest.mark.parametrize(
    "options",
    [("--certificate", "votes", "--neighbours", "21"), ("--certificate", "interval", "--epochs", "2"),
     ("--certificate", "interval", "--model", "mlp", "--hidden", "4,3", "--k-max", "5", "--clip", "0.1"),
     ("--certificate", "ball", "--epochs", "4", "--weight-decay", "0.1"), ("--answer-epsilon", "1"),
     ("--members", "3", "--ridge", "4"), ("--adjacency", "add_remove_one", "--ridge", "4", "--max-rows", "1000")],
    ids=str,
)  # fmt: skip
def test_options_reach_the_certificate(run, options):
    done = run(*CERTIFY, "--json", *options)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.output)["provenance"]
    assert facts["parameters"]["type"] in ("VoteGap", "IntervalTraining", "Ensemble", "StronglyConvexERM",
                                           "BallTraining")  # fmt: skip
    if "ball" in options:
        assert facts["parameters"]["hyperparameters"] == {
            "learning_rate": 0.3, "clip_by": "norm", "epochs": 4, "weight_decay": 0.1, "clip": 0.5,
        }  # fmt: skip
    if "--answer-epsilon" in options:
        assert facts["parameters"]["ridge"] == pytest.approx(500 * 150 / 500**1.5)
    if "mlp" in options:
        assert facts["parameters"]["layers"] == [6, 4, 3, 1]
        assert facts["parameters"]["hyperparameters"] == {"learning_rate": 2.0, "clip": 0.1, "epochs": 2}
    assert run(*PREDICT, "--epsilon", "0.1").exit_code == 0


def test_refusals_have_exit_codes_and_spend_nothing(run):
    run(*CERTIFY)
    charged = ("--ledger", "LEDGER")
    assert run(*CERTIFY).exit_code == 2  # the file is there
    assert run(*CERTIFY, "--force").exit_code == 0
    assert run(*CERTIFY, "--force", "--clip", "0.1").exit_code == 2
    assert run(*CERTIFY, "--force", "--certificate", "boxes").exit_code == 2
    assert run(*CERTIFY, "--force", "--hidden", "a").exit_code == 2
    assert run(*CERTIFY[:-1], "@none/m.npz").exit_code == 2
    assert run(*PREDICT, *charged).exit_code == 2
    assert run(*PREDICT, *charged, "--epsilon", "0").exit_code == 2
    assert run(*PREDICT, *charged, "--epsilon", "1", "--release", "noise").exit_code == 2
    assert run(*PREDICT, *charged, "--epsilon", "1").exit_code == 3
    assert json.loads(run(*PREDICT, *charged, "--epsilon", "1", "--json").output)["error"]["code"] == "budget"
    assert run("predict", "@none.npz", "@new.csv", "--epsilon", "1").exit_code == 4
    assert run("predict", "@visits.csv", "@new.csv", "--epsilon", "1").exit_code == 4
    assert run("predict", "@m.npz", "@visits.toml", "--epsilon", "1").exit_code == 4
    (run.folder / "m.npz").write_bytes((run.folder / "m.npz").read_bytes()[:900])
    damaged = run(*PREDICT, *charged, "--epsilon", "0.1")
    assert damaged.exit_code == 4
    assert "damaged" in damaged.output
    assert run.ledger.total().epsilon == 0


def test_files_are_settled_before_the_charge(run):
    run(*CERTIFY)
    (run.folder / "old.csv").write_text("paid for")
    for target in ("@", "@none/a.csv", "@old.csv"):
        assert run(*PREDICT, "--epsilon", "0.1", "--ledger", "LEDGER", "--out", target).exit_code == 2
    assert (run.folder / "old.csv").read_text() == "paid for"
    assert run.ledger.total().epsilon == 0


def test_no_rows_no_charge(run):
    run(*CERTIFY)
    pd.DataFrame(frame(20)).iloc[:0].to_csv(run.folder / "new.csv", index=False)
    done = run(*PREDICT, "--epsilon", "1", "--ledger", "LEDGER")
    assert done.exit_code == 0, done.output
    assert done.stdout == "answer\n"
    assert run.ledger.total().epsilon == 0


def test_columns_are_checked_against_the_model(run):
    run(*CERTIFY)
    rows = pd.DataFrame(frame(20)).drop(columns="income")
    rows.to_csv(run.folder / "new.csv", index=False)
    done = run(*PREDICT, "--epsilon", "0.1", "--ledger", "LEDGER")
    assert done.exit_code == 4
    assert "income" in done.output
    assert run.ledger.total().epsilon == 0


def trained(run, label):
    columns = {
        **COLUMNS,
        "age": {**COLUMNS["age"], "role": "public"},
        "income": {**COLUMNS["income"], "role": "public"},
    }
    held = Schema.from_dict({"table": {"name": "visits"}, "columns": {**columns, "sick": label}})
    (run.folder / "public.toml").write_text(held.to_toml())
    words = (
        "train",
        "@visits.csv",
        "-s",
        "@public.toml",
        "--epsilon",
        "3",
        "--delta",
        "1e-6",
        "-o",
        "@model.json",
    )
    assert run(*words).exit_code == 0


@pytest.mark.parametrize(
    "label",
    [{"role": "label", "lower": 0, "upper": 1}, {"role": "label", "categories": ["no", "yes"]}],
    ids=str,
)
def test_a_released_model_answers_for_nothing(run, label):
    trained(run, label)
    done = run("predict", "@model.json", "@new.csv", "--json")
    assert done.exit_code == 0, done.output
    body = json.loads(done.output)
    assert body["status"] == "free"
    assert len(body["predictions"]) == 20
    assert run("predict", "@model.json", "@new.csv", "--out", "@p.csv").exit_code == 0
    assert list(pd.read_csv(run.folder / "p.csv").columns) == ["prediction"]
    for option in (
        ("--epsilon", "1"),
        ("--delta", "1e-6"),
        ("--release", "ptr"),
        ("--epochs", "2"),
        ("--total-epsilon", "1"),
        ("--analyst", "a"),
    ):
        refused = run("predict", "@model.json", "@new.csv", *option)
        assert refused.exit_code == 2
        assert option[0] in refused.output
    pd.DataFrame(frame(20)).drop(columns="age").to_csv(run.folder / "new.csv", index=False)
    assert run("predict", "@model.json", "@new.csv").exit_code == 4
    assert run.ledger.total().epsilon == 0


def test_a_sparse_model_answers_for_nothing(run):
    words = ("select", "@visits.csv", "-s", "@visits.toml", "--size", "2", "--epsilon", "2", "--fit", "--out", "@s.json",
             "--loss", "logistic")  # fmt: skip
    made = run(*words)
    assert made.exit_code == 0, made.output
    done = run("predict", "@s.json", "@new.csv", "--json")
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.output)["predictions"]) <= {"no", "yes"}


def test_other_json_and_models_without_a_schema(run):
    (run.folder / "x.json").write_text('{"format": "other"}')
    assert run("predict", "@x.json", "@new.csv").exit_code == 4
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    CertifiedClassifier([0, 1], (-1, 1)).fit(X, X[:, 0] > 0).save(run.folder / "a.npz")
    done = run("predict", "@a.npz", "@new.csv", "--epsilon", "1")
    assert done.exit_code == 2
    assert "fitted on arrays" in done.output


def test_a_cell_never_shows_in_a_message(run):
    data = pd.read_csv(run.folder / "visits.csv").astype(object)
    data.loc[3, ["age", "region", "sick"]] = "s3cret"
    data.to_csv(run.folder / "visits.csv", index=False)
    for done in (run(*CERTIFY), run(*PREDICT, "--epsilon", "0.1")):
        assert done.exit_code == 0, done.output
        assert "s3cret" not in done.output


def test_the_command_and_python_write_the_same_model(run):
    run(*CERTIFY)
    table = confide.Table.read(run.folder / "visits.csv", run.folder / "visits.toml")
    read = CertifiedModel.load(run.folder / "m.npz")
    rows = frame(50, seed=1)
    assert np.array_equal(read.stability(rows)[1], confide.certify(table).stability(rows)[1])
    assert os.fspath(run.folder) not in json.dumps(read.provenance)


def test_long_work_is_shown_and_cleaned_up(monkeypatch):
    from rich.console import Console

    from confide.cli import certify

    told = []
    started = threading.Event()

    class Status:
        def start(self):
            told.append("start")
            started.set()

        def stop(self):
            told.append("stop")

    monkeypatch.setattr(Console, "status", lambda self, text: told.append(text) or Status())
    with certify.waiting("Certifying", shown=True):
        pass
    assert told == ["Certifying ...", "stop"]
    monkeypatch.setattr(certify, "QUIET", 0.0)

    def fails():
        with certify.waiting("Certifying", shown=True):
            assert started.wait(10)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert told[2:] == ["Certifying ...", "start", "stop"]
    with certify.waiting("Certifying", shown=False):
        assert len(told) == 5
