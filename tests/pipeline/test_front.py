"""select_and_fit on tables, and ``confide select --fit``."""

import json

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from confide.cli.select import select
from confide.errors import BudgetError, ConfideError, DataError, RefusedError
from confide.ledger import Ledger
from confide.pipeline import select_and_fit
from confide.schema import Schema, Table

SCHEMA = {
    "table": {"name": "clinic", "declared_by": "the clinic"},
    "columns": {
        "age": {"role": "public", "lower": 0, "upper": 10},
        "dose": {"role": "private", "lower": -1, "upper": 3},
        "ward": {"role": "public", "categories": ["north", "south"]},
        "cost": {"role": "label", "lower": 2, "upper": 12},
    },
}
ILL = {"ill": {"role": "label", "categories": ["no", "yes"]}}


def frame(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "age": rng.uniform(0, 10, n),
            "dose": rng.uniform(-1, 3, n),
            "ward": rng.choice(["north", "south"], n),
        }
    )
    signal = 1.5 * (data.dose - 1) + 0.2 * (data.age - 5)
    data["cost"] = (7 + signal + 0.3 * rng.normal(size=n)).clip(2, 12)
    return data.assign(ill=np.where(signal + 0.5 * rng.normal(size=n) > 0, "yes", "no"))


def table(schema=SCHEMA, **options):
    data = frame(**options)
    label = "ill" if "ill" in schema["columns"] else "cost"
    return Table.from_frame(data[["age", "dose", "ward", label]], Schema.from_dict(schema))


def classes():
    columns = {name: spec for name, spec in SCHEMA["columns"].items() if name != "cost"}
    return {**SCHEMA, "columns": {**columns, **ILL}}


def test_selects_and_fits_a_table():
    rows = table()
    result = select_and_fit(rows, size=2, epsilon=6)
    assert result.model.names == ("age", "dose")
    np.testing.assert_allclose(result.model.coefficients, [1.0, 3.0], atol=0.3)
    assert result.model.intercept == pytest.approx(7, abs=0.2)
    assert str(result.guarantee.epsilon) == "6"
    assert result.selection.guarantee.epsilon + result.coefficients.epsilon == 6
    assert json.loads(result.to_json())["model"]["names"] == ["age", "dose"]
    X = np.array([[0.0, 0.0, 0, 0, 0], [1.0, 1.0, 0, 0, 0], [9.0, 9.0, 0, 0, 0]])
    told = result.model.predict(X)
    np.testing.assert_allclose(told, [7, 11, 12], atol=0.5)
    np.testing.assert_array_equal(result.model.predict(X[:, :2]), told)
    with pytest.raises(DataError):
        result.model.predict(X[:, :1])


def test_a_label_of_two_categories():
    result = select_and_fit(table(classes()), size=2, epsilon=6)
    assert result.model.classes == ("no", "yes")
    assert result.model.bounds is None
    assert result.coefficients.loss == "logistic"
    scores = result.model.predict(np.array([[0, 1.0], [0, -1.0]]))
    assert scores[0] > 0 > scores[1]


def test_all_columns_are_fitted_without_a_selection():
    rows = table()
    p = len(select_and_fit(rows, size=5, epsilon=6).model.names)
    result = select_and_fit(rows, size=p, epsilon=6)
    assert result.selection is None
    assert result.coefficients.epsilon == 6


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
def test_dry_run_and_charge(tmp_path, adjacency):
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="clinic", epsilon=3, delta=1e-5, adjacency=adjacency
    )
    ask = {"size": 2, "epsilon": 2, "delta": 1e-6, "ledger": ledger, "adjacency": adjacency}
    told = select_and_fit(table(), dry_run=True, **ask)
    assert ledger.total().epsilon == 0
    result = select_and_fit(table(), **ask)
    assert result.guarantee == told
    assert result.entry
    assert str(ledger.total().epsilon) == "2"
    with pytest.raises(BudgetError):
        select_and_fit(table(), **ask)
    with pytest.raises(RefusedError):
        select_and_fit(table(), dry_run=True, **ask)


@pytest.mark.parametrize(
    "options",
    [
        {"size": 9},
        {"epsilon": 0},
        {"split": 2},
        {"coefficients": "closed_form"},
        {"loss": "hinge"},
        {"adjacency": "replace_label"},
        {"coefficient_loss": "logistic"},
    ],
    ids=str,
)
def test_refusals(options):
    with pytest.raises(ConfideError):
        select_and_fit(table(), **{"size": 2, "epsilon": 1, **options})


def test_arrays_are_referred_to_the_estimator():
    with pytest.raises(ConfideError, match="SparseRegressor"):
        select_and_fit(np.zeros((3, 2)), size=1, epsilon=1)


@pytest.fixture
def run(tmp_path):
    app = typer.Typer()
    app.command()(select)
    frame().drop(columns="ill").to_csv(tmp_path / "clinic.csv", index=False)
    (tmp_path / "clinic.toml").write_text(Schema.from_dict(SCHEMA).to_toml())
    url = f"sqlite:///{tmp_path}/ledger.db"
    ledger = Ledger.open(url, dataset="clinic", epsilon=4, delta=1e-5, adjacency="replace_one")

    def call(*options, epsilon="3"):
        base = [str(tmp_path / "clinic.csv"), "--schema", str(tmp_path / "clinic.toml"), "--epsilon", epsilon]
        return CliRunner().invoke(app, [*base, "--size", "2", "--ledger", f"{url}#clinic", *options])

    call.ledger, call.folder = ledger, tmp_path
    return call


def test_command_line(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    preview = json.loads(run("--fit", "--dry-run", "--json").output)
    assert preview["guarantee"]["epsilon"] == "3"
    assert run.ledger.total().epsilon == 0
    out = run.folder / "model.json"
    done = run("--fit", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "(intercept)" in done.output
    assert "objective, huber loss" in done.output
    saved = json.loads(out.read_text())
    for name in saved["support"]:
        assert name in done.output
    assert str(run.ledger.total().epsilon) == "3"
    told = json.loads(run("--fit", "--json", "--delta", "1e-6", "--split", "0.25", epsilon="1").output)
    assert told["ok"] is True
    assert told["selection"]["guarantee"]["epsilon"] == "1/4"
    assert told["coefficients"]["epsilon"] == "3/4"
    assert str(run.ledger.total().epsilon) == "4"


def test_command_line_refusals(run):
    assert run("--fit", epsilon="5").exit_code == 3
    assert run("--fit", "--split", "1").exit_code == 2
    assert run("--split", "0.5").exit_code == 2
    assert run("--delta", "1e-6").exit_code == 2
    assert "--fit" in run("--delta", "1e-6").output
    assert run.ledger.total().epsilon == 0
