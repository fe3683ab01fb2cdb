"""Text in a public numeric column is told where the relation leaves it public; else nothing is."""

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import confide
from confide.cli.app import app
from confide.errors import DataError
from confide.privacy import Adjacency
from confide.schema import Table
from confide.schema.odd import telling

TEXT = ["1", "2.5", "unknown", None]
CELLS = [
    (TEXT, True),
    (["1", "NA", "", " nan ", "null"], False),
    ([1.0, np.nan, np.inf], False),
    ([1, None, pd.NA], False),
    ([1, "seven"], True),
    ([datetime.date(2020, 1, 1), None], True),
    ([Decimal("1.5"), 2], False),
    ([[1, 2], 3.0], True),
    ([True, "false"], False),
    ([b"x", b"1"], True),
]


def table(cells, role="public", **changes):
    label = {"role": "label", "lower": 0, "upper": 1}
    column = {"role": role, "lower": 0, "upper": 9, "missing": "impute", **changes}
    frame = {"age": cells, "y": np.zeros(len(cells))}
    return Table.from_frame(frame, {"table": {"declared_by": "me"}, "columns": {"age": column, "y": label}})


def spoken(cells, role="public", **changes):
    """What a release under label privacy says of a table; that cleaning it says nothing is asserted."""
    made = []
    assert told(lambda: made.append(table(cells, role, **changes))) == []
    return told(lambda: telling(made[0], Adjacency.REPLACE_LABEL))


def told(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("cells", "odd"), CELLS, ids=str)
def test_public_text_is_told(cells, odd):
    held = np.empty(len(cells), dtype=object)
    held[:] = cells
    said = spoken(held)
    assert len(said) == odd
    if odd:
        assert "'age'" in said[0]
        assert "reject" in said[0]
        assert "unknown" not in said[0]


@pytest.mark.parametrize(("cells", "_odd"), CELLS, ids=str)
def test_of_a_private_column_nothing_is_said(cells, _odd):
    held = np.empty(len(cells), dtype=object)
    held[:] = cells
    assert spoken(held, "private") == []
    assert told(lambda: table(held, "private").private) == []


@pytest.mark.parametrize("form", [pd.Series, pa.array, pl.Series, lambda c: pa.array(c).dictionary_encode()])
def test_in_every_form(form):
    assert len(spoken(form(TEXT))) == 1
    assert spoken(form(["1", "2", None])) == []
    assert len(spoken(pa.array([datetime.datetime(2020, 1, 1), None]))) == 1


@pytest.mark.parametrize("adjacency", Adjacency)
def test_files_and_chunks(tmp_path, adjacency):
    count = int(adjacency in (Adjacency.REPLACE_LABEL, Adjacency.REPLACE_PRIVATE_PART))
    pd.DataFrame({"age": TEXT * 50, "y": 0.5}).to_csv(tmp_path / "a.csv", index=False)
    spec = table(["1"]).schema
    whole = Table.read(tmp_path / "a.csv", spec)
    assert len(told(lambda: telling(whole, adjacency))) == count
    assert len(told(lambda: telling(whole.take(np.arange(3)), adjacency))) == count
    chunked = Table.scan(tmp_path / "a.csv", spec, chunk_rows=40)
    assert told(lambda: [list(chunked.public_chunks()), list(chunked.chunks()), chunked.gram()]) == []
    heard = telling(chunked, adjacency)
    said = told(lambda: [list(heard.public_chunks()), list(heard.chunks())])
    assert len(said) == count
    assert all("no numbers" in text for text in said)


def test_categories_and_refusals_as_before():
    assert spoken(TEXT, lower=None, upper=None, categories=["1", "2"]) == []
    with pytest.raises(DataError, match="age"):
        table(TEXT, missing="reject")


# Front doors -------------------------------------------------------------------------------------------

SPEC = """
[table]
declared_by = "me"
[columns.x]
role = "public"
lower = 0
upper = 1
[columns.z]
role = "public"
lower = 0
upper = 1
[columns.y]
role = "label"
"""
KINDS = {"numbers": "lower = 0\nupper = 1\n", "classes": 'categories = ["no", "yes"]\n'}


@pytest.fixture
def neighbours(tmp_path):
    """Two files that differ in one cell of a public column, text in one of them, and schemas for both."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.random((60, 2)).round(3).astype(str), columns=["x", "z"])
    for kind, word in KINDS.items():
        (tmp_path / f"{kind}.toml").write_text(SPEC + word)
        frame["y"] = rng.random(60).round(3) if kind == "numbers" else np.tile(["no", "yes"], 30)
        for name, cell in (("number", "0.5"), ("text", "abc")):
            frame.loc[7, "x"] = cell
            frame.to_csv(tmp_path / f"{kind}_{name}.csv", index=False)
    return tmp_path


def command(folder, kind, name, *words):
    file, spec = folder / f"{kind}_{name}.csv", folder / f"{kind}.toml"
    done = CliRunner().invoke(app, [words[0], str(file), "--schema", str(spec), *words[1:]])
    assert done.exit_code == 0, done.output
    return done.stderr


SELECT = ("select", "--size", "1", "--epsilon", "1")
WHOLE = ["replace_one", "add_remove_one"]


@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--fit",)], ids=str)
@pytest.mark.parametrize("adjacency", WHOLE)
def test_select_says_the_same_of_neighbours(neighbours, words, adjacency):
    asked = (*SELECT, "--adjacency", adjacency, *words)
    said = {command(neighbours, "numbers", name, *asked) for name in ("number", "text")}
    assert len(said) == 1
    assert "'x'" not in said.pop()


@pytest.mark.parametrize("adjacency", WHOLE)
def test_certify_says_the_same_of_neighbours(neighbours, adjacency):
    asked = (
        "certify",
        "--adjacency",
        adjacency,
        "--ridge",
        "5",
        "--out",
        str(neighbours / "m.npz"),
        "--force",
    )
    said = {command(neighbours, "classes", name, *asked) for name in ("number", "text")}
    assert len(said) == 1
    assert "'x'" not in said.pop()


@pytest.mark.parametrize("way", [Table.read, Table.scan])
@pytest.mark.parametrize("adjacency", WHOLE)
def test_tables_of_secret_rows_say_nothing(neighbours, way, adjacency):
    for name in ("number", "text"):
        for door in (confide.select, confide.pipeline.select_and_fit):

            def run(door=door, name=name):
                rows = way(neighbours / f"numbers_{name}.csv", neighbours / "numbers.toml")
                door(rows, size=1, epsilon=1, adjacency=adjacency)

            assert told(run) == []


@pytest.mark.parametrize("words", [(), ("--chunk-rows", "9"), ("--dry-run",)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_train_under_label_privacy_tells(neighbours, words, kind):
    asked = ("train", "--epsilon", "1", "--delta", "1e-6", *words)
    assert "'x'" not in command(neighbours, kind, "number", *asked)
    assert command(neighbours, kind, "text", *asked).count("'x'") == 1


@pytest.mark.parametrize("way", [Table.read, Table.scan])
def test_doors_under_label_privacy_tell_once(neighbours, way):
    spec = neighbours / "numbers.toml"
    for door in (
        lambda rows: confide.train(rows, epsilon=1, delta=1e-6),
        lambda rows: confide.select(rows, size=1, epsilon=1, adjacency="replace_label"),
        lambda rows: confide.pipeline.select_and_fit(rows, size=1, epsilon=1, adjacency="replace_label"),
    ):
        said = [
            told(lambda door=door, name=name: door(way(neighbours / f"numbers_{name}.csv", spec)))
            for name in ("number", "text")
        ]
        assert [sum("'x'" in text for text in texts) for texts in said] == [0, 1]


def test_certify_under_label_privacy_tells_once(neighbours):
    rows = Table.scan(neighbours / "classes_text.csv", neighbours / "classes.toml", chunk_rows=9)
    said = told(lambda: confide.certify(rows, alpha=0.01, adjacency="replace_label"))
    assert sum("'x'" in text for text in said) == 1
