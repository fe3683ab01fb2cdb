"""Every front door that takes a declared number of rows, at a table of as many rows and of one more.

Under add/remove the number of rows is secret, so the declared one is compared with nothing: same outcome, same
charge, same messages and warnings, whatever was declared.
"""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import confide
from confide.cli.train import train as command
from confide.errors import BudgetError
from confide.ledger import Ledger
from confide.schema import Schema, Table

ASK = {"epsilon": 2, "delta": 1e-6}
BASE = {"adjacency": "add_remove_one", "engine": "dpsgd", "feature_bounds": (-1, 1), "steps": 2}
SCHEMA = {
    "table": {"name": "staff", "declared_by": "me"},
    "columns": {
        "a": {"role": "private", "lower": -1, "upper": 1},
        "b": {"role": "private", "lower": -1, "upper": 1},
        "y": {"role": "label", "lower": -1, "upper": 1},
    },
}
DECLARED = [1, 30, 31, 32, 10**6]


def frame(n):
    cells = np.random.default_rng(0).uniform(-1, 1, size=(40, 3))[:n]
    return pd.DataFrame(cells, columns=["a", "b", "y"])


def open_ledger(path, epsilon=3):
    return Ledger.open(
        f"sqlite:///{path}", dataset="staff", epsilon=epsilon, delta=1e-5, adjacency="add_remove_one"
    )


def told(fit, path, epsilon=3):
    """What a caller sees: the outcome's type and text, the warnings, and what is left of the budget."""
    book = open_ledger(path, epsilon)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            outcome = str(fit(book))
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
    return outcome, [str(warning.message) for warning in seen], book.remaining()


def regressor(n, declared):
    rows = frame(n)
    model = confide.PrivateRegressor(**ASK, **BASE, target_bounds=(-1, 1), max_rows=declared)
    return lambda book: model.set_params(ledger=book).fit(rows[["a", "b"]], rows["y"]).guarantee_


def classifier(n, declared):
    rows = frame(n)
    model = confide.PrivateClassifier(**ASK, **BASE, classes=[0, 1], max_rows=declared)
    labels = (rows["y"] > 0).astype(int)
    return lambda book: model.set_params(ledger=book).fit(rows[["a", "b"]], labels).guarantee_


def table(n, declared):
    held = Table.from_frame(frame(n), SCHEMA)
    options = {**ASK, "adjacency": "add_remove_one", "engine": "dpsgd", "steps": 2, "max_rows": declared}
    return lambda book: confide.train(held, ledger=book, **options).guarantee


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("door", [regressor, classifier, table])
def test_a_table_of_one_row_more_is_met_alike(door, declared, tmp_path):
    a, b = (told(door(n, declared), tmp_path / f"{n}.db") for n in (31, 32))
    assert a == b
    assert a[0].startswith("Guarantee") or "epsilon" in a[0]
    assert a[2].epsilon == 1


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("door", [regressor, classifier, table])
def test_a_refusal_of_the_budget_tells_no_number_of_rows(door, declared, tmp_path):
    """The order of checks is no oracle either: the refusal is that of the ledger, for every declared number."""
    a, b = (told(door(n, declared), tmp_path / f"{n}.db", epsilon=1) for n in (31, 32))
    assert a == b
    assert a[0].startswith(BudgetError.__name__)
    assert a[2].epsilon == 1


@pytest.mark.parametrize("declared", ["30", "31"])
def test_the_command_line_meets_both_alike(declared, tmp_path):
    app, outputs = typer.Typer(), []
    app.command()(command)
    (tmp_path / "staff.toml").write_text(Schema.from_dict(SCHEMA).to_toml())
    for n in (31, 32):
        folder = tmp_path / str(n)
        folder.mkdir()
        book = open_ledger(folder / "ledger.db")
        frame(n).to_csv(folder / "staff.csv", index=False)
        done = CliRunner().invoke(
            app,
            [str(folder / "staff.csv"), "--schema", str(tmp_path / "staff.toml"), "--epsilon", "2", "--delta",
             "1e-6", "--ledger", f"sqlite:///{folder}/ledger.db#staff", "--engine", "dpsgd", "--adjacency",
             "add_remove_one", "--max-rows", declared, "--json"],
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        outputs.append((json.loads(done.output)["guarantee"], book.remaining()))
    assert outputs[0] == outputs[1]
