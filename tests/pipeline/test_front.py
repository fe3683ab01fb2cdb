"""select_and_fit on tables, and ``confide select --fit``."""

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import typer
from scipy import sparse
from typer.testing import CliRunner

from confide.cli.select import select as command
from confide.errors import BudgetError, ConfideError, DataError, ParameterError, RefusedError
from confide.ledger import Ledger
from confide.pipeline import SparseModel, select_and_fit
from confide.schema import Encoded, Schema, Table
from confide.selection import select
from confide.training import LinearModel

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
    names = ("age", "dose", "ward=north", "ward=south", "ward=other")
    told = result.model.predict(Encoded(X, names))
    np.testing.assert_allclose(told, [7, 11, 12], atol=0.5)
    np.testing.assert_array_equal(result.model.predict(Encoded(X[:, :2], names[:2])), told)
    # An array holds raw cells: the middles of the bounds, then the ends, then beyond them.
    np.testing.assert_allclose(result.model.predict([[5, 1], [10, 3], [99, 9]]), [7, 11, 11], atol=0.5)
    for wrong in (X[:, :1], X):
        with pytest.raises(DataError):
            result.model.predict(wrong)


def test_a_label_of_two_categories():
    result = select_and_fit(table(classes()), size=2, epsilon=6)
    assert result.model.classes == ("no", "yes")
    assert result.model.bounds is None
    assert result.coefficients.loss == "logistic"
    rows = np.array([[5, 3.0], [5, -1.0]])
    scores = result.model.decision_function(rows)
    assert scores[0] > 0 > scores[1]
    assert result.predict(rows).tolist() == ["yes", "no"]
    np.testing.assert_allclose(result.predict_proba(rows)[:, 1], 1 / (1 + np.exp(-scores)))


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


def raw(n=50, seed=1):
    return frame(n, seed).drop(columns=["cost", "ill"])


@pytest.mark.parametrize("label", ["cost", "ill"])
def test_a_saved_model_predicts_from_raw_rows(tmp_path, label):
    rows = table(SCHEMA if label == "cost" else classes())
    result = select_and_fit(rows, size=2, epsilon=6)
    new = raw()
    told = result.predict(new)
    assert told.shape == (50,)
    signal = (1.5 * (new.dose - 1) + 0.2 * (new.age - 5)).to_numpy()
    if label == "cost":
        assert np.corrcoef(told, signal)[0, 1] > 0.95
        assert ((told >= 2) & (told <= 12)).all()
    else:
        assert np.mean((told == "yes") == (signal > 0)) > 0.8
    result.model.save(tmp_path / "model.json")
    (tmp_path / "result.json").write_text(result.to_json())
    new.to_csv(tmp_path / "new.csv", index=False)
    polars = pytest.importorskip("polars")
    for name in ("model.json", "result.json"):
        model = SparseModel.load(tmp_path / name)
        assert model.to_dict() == result.model.to_dict()
        for X in (new, new[["dose", "age"]], polars.DataFrame(new), tmp_path / "new.csv", dict(new)):
            np.testing.assert_array_equal(model.predict(X), told)
    data = frame(50, 1)[["age", "dose", "ward", label]]
    for X in (Table.from_frame(data, rows.schema),):
        np.testing.assert_array_equal(model.predict(X), told)
        from confide.selection.front import encoded, feature_columns

        columns = feature_columns(X.schema)
        names = tuple(name for column in columns for name in column.feature_names)
        matrix = encoded(X, columns)
        np.testing.assert_array_equal(model.predict(Encoded(matrix, names)), told)
        np.testing.assert_array_equal(model.predict(Encoded(sparse.csr_matrix(matrix), names)), told)
        part = Encoded(matrix[:, list(model.indices)], model.names)
        np.testing.assert_array_equal(model.predict(part), told)
        with pytest.raises(DataError, match="raw columns"):
            model.predict(matrix)
    data.to_parquet(tmp_path / "all.parquet")
    chunked = Table.scan(tmp_path / "all.parquet", rows.schema, chunk_rows=7)
    np.testing.assert_array_equal(model.predict(chunked), told)


def test_a_category_is_read_by_its_level():
    data = frame(2000, 3)
    data["cost"] = np.where(data.ward == "south", 9.0, 5.0)
    result = select_and_fit(
        Table.from_frame(data.drop(columns="ill"), Schema.from_dict(SCHEMA)), size=1, epsilon=20
    )
    assert result.model.names[0].startswith("ward=")
    with pytest.warns(UserWarning, match="'ward': 1 of 3 cells"):
        south, north, other = result.predict({"ward": ["south", "north", "moon"]})
    assert south > north
    assert np.isfinite(other)


def test_what_a_model_refuses_to_read(tmp_path):
    result = select_and_fit(table(), size=2, epsilon=6)
    model = result.model
    other = Schema.from_dict(
        {**SCHEMA, "columns": {**SCHEMA["columns"], "dose": {"role": "private", "lower": -9, "upper": 3}}}
    )
    with pytest.raises(DataError, match="'dose' as the fit did"):
        model.predict(Table.from_frame(frame(5)[["age", "dose", "ward", "cost"]], other))
    with pytest.raises(DataError, match="dose"):
        model.predict(raw().drop(columns="dose"))
    with pytest.raises(DataError, match="2 raw columns: age, dose"):
        model.predict(np.zeros((3, 4)))
    of_arrays = dataclasses.replace(model, features=None)
    with pytest.raises(DataError, match="arrays"):
        of_arrays.predict(tmp_path / "rows.csv")
    with pytest.raises(DataError, match="all 5 encoded"):
        of_arrays.predict(np.zeros((3, 4)))
    with pytest.raises(ConfideError, match="no probabilities"):
        model.predict_proba(raw())
    for change in ({"intercept": float("nan")}, {"names": ["age"]}, {"bounds": None}, {"format": "pickle"}):
        with pytest.raises(DataError):
            SparseModel.from_dict({**model.to_dict(), **change})
    model.save(tmp_path / "m.json")
    with pytest.raises(DataError, match=r"sparse model.*confide\.pipeline\.SparseModel\.load"):
        LinearModel.load(tmp_path / "m.json")
    LinearModel(0.0, np.ones(1), ("x",), (0, 1)).save(tmp_path / "l.json")
    with pytest.raises(DataError, match=r"LinearModel\.load"):
        SparseModel.load(tmp_path / "l.json")
    support = select(table(), size=2, epsilon=1)
    (tmp_path / "s.json").write_text(support.to_json())
    for reader in (LinearModel, SparseModel):
        with pytest.raises(DataError, match="--fit"):
            reader.load(tmp_path / "s.json")
    (tmp_path / "x.json").write_text("no json")
    with pytest.raises(DataError, match="JSON"):
        SparseModel.load(tmp_path / "x.json")


def test_the_selection_inside_says_what_a_plain_one_says():
    rows = table()
    inside = select_and_fit(rows, size=2, epsilon=20).selection
    alone = select(rows, size=2, epsilon=10)
    assert inside.columns == alone.columns == ("age", "dose")
    assert inside.schema_digest == alone.schema_digest == rows.schema.digest


def test_errors_of_coefficients_where_they_are_known():
    known = select_and_fit(table(), size=2, epsilon=8, coefficients="sufficient_statistics")
    assert list(known.noise_errors) == ["(intercept)", "age", "dose"]
    root = np.sqrt(np.diag(known.coefficients.covariance))
    np.testing.assert_allclose(list(known.noise_errors.values()), root)
    assert json.loads(known.to_json())["noise_errors"] == known.noise_errors
    unknown = select_and_fit(table(), size=2, epsilon=8)
    assert unknown.noise_errors is None
    assert "SparseResult(age, dose;" in repr(unknown)
    assert len(repr(unknown)) < 400


def test_a_delta_that_buys_nothing_is_not_charged(recwarn):
    told = select_and_fit(table(), size=2, epsilon=2, delta=1e-6, dry_run=True)
    assert told.delta == 0
    assert select_and_fit(table(), size=2, epsilon=2, delta=1e-6).guarantee == told
    ask = {"size": 3, "epsilon": 2, "delta": 1e-6, "coefficients": "sufficient_statistics"}
    assert select_and_fit(table(), dry_run=True, **ask).delta == Fraction("1e-6")
    assert not recwarn.list
    with pytest.raises(ParameterError, match="1e-6"):
        select_and_fit(table(), size=2, epsilon=2, delta=None)


@pytest.fixture
def run(tmp_path):
    app = typer.Typer()
    app.command()(command)
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
    assert "errors are not known" in done.output
    assert "ridge" in done.output
    saved = json.loads(out.read_text())
    assert saved["selection"]["columns"] == saved["support"]
    assert saved["selection"]["schema_digest"] == saved["schema_digest"]
    told = SparseModel.load(out).predict(raw())
    assert told.shape == (50,)
    for name in saved["support"]:
        assert name in done.output
    assert str(run.ledger.total().epsilon) == "3"
    done = run("--fit", "--json", "--delta", "1e-6", "--split", "0.25", epsilon="1")
    assert "buys nothing" not in done.stderr  # and it is not charged
    told = json.loads(done.stdout)
    assert told["ok"] is True
    assert told["selection"]["guarantee"]["epsilon"] == "1/4"
    assert told["coefficients"]["epsilon"] == "3/4"
    assert str(run.ledger.total().epsilon) == "4"


def test_command_line_names_the_method_of_coefficients(run, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    page = tmp_path / "page.html"
    done = run("--fit", "--coefficients", "sufficient_statistics", "--report", str(page), epsilon="2")
    assert done.exit_code == 0, done.output
    assert "± privacy" in done.output
    assert "sufficient_statistics, squared loss" in done.output
    assert "charged in all" in page.read_text()
    assert run("--coefficients", "objective").exit_code == 2
    assert run("--fit", "--coefficients", "closed_form").exit_code == 2


def test_command_line_refusals(run):
    assert run("--fit", epsilon="5").exit_code == 3
    assert run("--fit", "--split", "1").exit_code == 2
    assert run("--split", "0.5").exit_code == 2
    assert run("--delta", "1e-6").exit_code == 2
    assert "--fit" in run("--delta", "1e-6").output
    assert run.ledger.total().epsilon == 0
