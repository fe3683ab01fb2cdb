"""Neighbouring tables take the same path: same result or exception, same message, same charge."""

from fractions import Fraction

import numpy as np
import pytest

from confide.errors import ConfideError
from confide.ledger import Ledger
from confide.schema import Table
from confide.selection import SubsetSelector, select

from .tables import ILL, SCHEMA, frame, with_columns

CLASSES = with_columns(cost=None, **ILL)
ADJACENCIES = ["replace_one", "add_remove_one"]

#: What one row may become.
ROWS = {
    "extreme": {"x0": 1e308, "x1": -1e308, "x2": np.inf, "x3": -np.inf, "ward": "nowhere", "cost": 1e300},
    "missing": {
        "x0": np.nan,
        "x1": np.nan,
        "x2": np.nan,
        "x3": np.nan,
        "ward": None,
        "cost": np.nan,
        "ill": None,
    },
    "corner": {"x0": 0, "x1": -1, "x2": -5, "x3": 0, "ward": "north", "cost": 2, "ill": "no"},
    "tiny": {"x0": 5e-324, "x1": 5e-324, "x2": -5e-324, "x3": 5e-324, "cost": 7, "ill": "yes"},
}


def replaced(data, row):
    data = data.copy()
    for name, value in row.items():
        data.loc[data.index[3], name] = value
    return data


def outcome(data, schema, tmp_path, name, **ask):
    """Return everything that a caller and the ledger's owner see, but for the support itself."""
    adjacency = ask["adjacency"]
    book = Ledger.open(
        f"sqlite:///{tmp_path}/{name}.db", dataset="clinic", epsilon=2, delta=0, adjacency=adjacency
    )
    try:
        result = select(Table.from_frame(data, schema), ledger=book, **ask)
        seen = result.to_dict()
        for secret in ("support", "indices", "columns", "entry"):
            seen.pop(secret)
        return "result", seen, str(book.total())
    except ConfideError as error:
        return type(error).__name__, str(error), str(book.total())


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(("loss", "schema"), [("squared", SCHEMA), ("quantile", SCHEMA), ("hinge", CLASSES)])
def test_a_changed_row_shows_nowhere_but_in_the_draw(row, loss, schema, adjacency, tmp_path):
    ask = {"size": 2, "epsilon": 1, "loss": loss, "adjacency": adjacency}
    pair = [
        outcome(data, schema, tmp_path, str(i), **ask)
        for i, data in enumerate((frame(60), replaced(frame(60), ROWS[row])))
    ]
    assert pair[0] == pair[1]
    assert pair[0][0] == "result"


@pytest.mark.parametrize(("loss", "schema"), [("squared", SCHEMA), ("logistic", CLASSES)])
@pytest.mark.parametrize(("n", "m"), [(0, 1), (1, 2), (59, 60)])
def test_the_number_of_rows_shows_nowhere(n, m, loss, schema, tmp_path):
    ask = {"size": 2, "epsilon": 1, "loss": loss, "adjacency": "add_remove_one"}
    pair = [outcome(frame(60).iloc[:k], schema, tmp_path, str(k), **ask) for k in (n, m)]
    assert pair[0] == pair[1]
    assert pair[0][0] == "result"


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(("loss", "schema"), [("squared", SCHEMA), ("hinge", CLASSES)])
def test_a_changed_row_does_not_show_beside_a_list_either(row, loss, schema, adjacency, tmp_path):
    ask = {"size": 2, "epsilon": 1, "loss": loss, "adjacency": adjacency}
    for options in ({"mechanism": "top_r", "top": 6}, {"mechanism": "mistakes"}):
        pair = [
            outcome(data, schema, tmp_path, f"{options['mechanism']}{i}", **ask, **options)
            for i, data in enumerate((frame(60), replaced(frame(60), ROWS[row])))
        ]
        assert pair[0] == pair[1]
        # No ledger takes the conditional guarantee, whatever the rows are.
        assert pair[0][0] == ("result" if options["mechanism"] == "top_r" else "AssumptionError")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_refusals_are_the_same_and_free(adjacency, tmp_path):
    bad = [{"size": 9, "epsilon": 1}, {"size": 2, "epsilon": 3}, {"size": 2, "epsilon": 1, "radius": -1}]
    for k, ask in enumerate(bad):
        pair = [
            outcome(data, SCHEMA, tmp_path, f"{k}-{i}", adjacency=adjacency, **ask)
            for i, data in enumerate((frame(60), replaced(frame(60), ROWS["extreme"])))
        ]
        assert pair[0] == pair[1]
        assert pair[0][0] != "result"
        assert (
            Fraction(0)
            == Ledger.open(
                f"sqlite:///{tmp_path}/{k}-0.db", dataset="clinic", epsilon=2, delta=0, adjacency=adjacency
            )
            .total()
            .epsilon
        )


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_duplicated_row_counts_as_one(adjacency, tmp_path):
    """Pitfall F27: replicated rows are rows; only an id column bounds a person's share."""
    data = frame(60)
    ask = {"size": 2, "epsilon": 1, "adjacency": adjacency}
    again = replaced(data, dict(data.iloc[4].drop("ill")))
    pair = [outcome(d, SCHEMA, tmp_path, str(i), **ask) for i, d in enumerate((data, again))]
    assert pair[0] == pair[1]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("loss", ["squared", "huber", "hinge"])
@pytest.mark.parametrize("bounds", [(-1, 1), (0, 2), (np.array([-1, 0, -3.0]), np.array([1, 2, 0.5]))])
def test_selector_meets_every_row_alike(bounds, loss, adjacency):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (40, 3)), rng.uniform(-1, 1, 40)
    options = {"adjacency": adjacency, "feature_bounds": bounds, "loss": loss, "random_state": 0}
    if loss != "hinge":
        options["target_bounds"] = (-1, 1)
    seen = set()
    for cells in (
        [0, 0, 0],
        [np.nan] * 3,
        [np.inf, -np.inf, np.nan],
        [1e308, -1e308, 0],
        [5e-324, -5e-324, 0],
    ):
        for label in (0.0, np.nan, np.inf, -np.inf, 1e308):
            A, b = X.copy(), y.copy()
            A[7], b[7] = cells, label
            model = SubsetSelector(2, 1, **options).fit(A, b)
            seen.add((str(model.guarantee_), model.result_.radius, model.result_.ridge, len(model.support_)))
    assert len(seen) == 1


def test_messages_never_quote_a_cell(tmp_path):
    data = frame(30).astype({"x1": object, "cost": object})
    data.loc[3, "x1"] = "secret-17"
    data.loc[4, "cost"] = "secret-18"
    for ask in ({"size": 2, "epsilon": 1}, {"size": 9, "epsilon": 1}, {"size": 2, "epsilon": 5}):
        kind, text, _ = outcome(data, SCHEMA, tmp_path, "x", adjacency="replace_one", **ask)
        assert "secret" not in str(text), kind
    X = np.zeros((3, 2), dtype=object)
    X[0, 0] = "secret-19"
    SubsetSelector(1, 1, feature_bounds=(-1, 1), target_bounds=(-1, 1)).fit(
        X, np.array(["secret", 1, None], dtype=object)
    )


def test_one_cell_moves_the_problem_within_its_bounds():
    """Pitfall F37: what the core sees of a cell of 1e6 in a column of [0, 1] is 1."""
    from confide.selection.front import centred_label, encoded, feature_columns

    tables = [Table.from_frame(data, SCHEMA) for data in (frame(60), replaced(frame(60), ROWS["extreme"]))]
    features = feature_columns(tables[0].schema)
    a, b = (encoded(table, features) for table in tables)
    changed = (a != b).any(axis=1)
    assert changed.sum() == 1
    assert changed[3]
    assert max(np.abs(a).max(), np.abs(b).max()) <= 1
    labels = [centred_label(table, table.schema.label) for table in tables]
    assert (labels[0] != labels[1]).sum() == 1
    assert max(np.abs(values).max() for values in labels) <= 5
