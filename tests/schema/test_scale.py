"""Columns declared by a published mean and deviation, and advice about bounds."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from confide.cli.schema import app
from confide.errors import ParameterError, SchemaError
from confide.schema import Column, Schema, Table
from confide.schema.scale import advice, parse_scale

runner = CliRunner()


def schema(**columns):
    held = {name: {"role": "public", **values} for name, values in columns.items()}
    return Schema.from_dict({"columns": held})


def test_mean_and_deviation_resolve_to_bounds_in_decimals():
    column = Column("r", "public", mean=14.127, deviation=3.524, source="paper")
    assert (column.lower, column.upper, column.clip) == (7.079, 21.175, 2.0)
    assert column.numeric
    assert column.middle == pytest.approx(14.127)
    assert column.half_width == pytest.approx(7.048)
    assert Column("r", "public", mean=0.1, deviation=0.2, clip=3).bounds == (-0.5, 0.7)
    assert "mean 14.127, deviation 3.524" in column.domain


def test_cells_are_cleaned_as_with_the_bounds_that_it_means():
    cells = np.array([1e308, -np.inf, np.nan, 10.0])
    by_mean = Column("r", "public", mean=10, deviation=2)
    by_bounds = Column("r", "public", lower=6, upper=14)
    assert np.array_equal(by_mean.clean(cells), by_bounds.clean(cells))


def test_round_trips_keep_the_declaration():
    one = schema(r={"mean": 14.127, "deviation": 3.524, "source": "the paper, table 2", "impute": 14})
    assert 'source = "the paper, table 2"' in one.to_toml()
    assert "lower" not in one.to_toml()
    again = Schema.from_toml(one.to_toml())
    assert again == one
    assert again.digest == one.digest
    assert replace(one["r"], unit="mm").bounds == one["r"].bounds
    # The digest of a schema without a mean is what it was.
    assert "mean" not in schema(r={"lower": 0, "upper": 1})["r"].to_dict()


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"mean": 1}, "'deviation' is missing"),
        ({"deviation": 1}, "'mean' is missing"),
        ({"mean": 1, "deviation": 0}, "'deviation' is 0"),
        ({"mean": 1, "deviation": -1}, "'deviation' is -1"),
        ({"mean": 1, "deviation": 1, "clip": 0}, "'clip' is 0"),
        ({"mean": "a", "deviation": 1}, "'mean' is 'a'"),
        ({"mean": float("nan"), "deviation": 1}, "'mean' is nan"),
        ({"mean": 1, "deviation": float("inf")}, "'deviation' is inf"),
        ({"mean": 1, "deviation": 1, "lower": 0}, "are both declared"),
        ({"mean": 1, "deviation": 1, "upper": 4}, "are both declared"),
        ({"mean": 1, "deviation": 1, "transform": "log"}, "takes no mean"),
        ({"mean": 1e308, "deviation": 1e308}, "'upper' is inf"),
        ({"mean": 1, "deviation": 1e-320}, "'lower' is"),
        ({"mean": 1, "deviation": 1, "source": 3}, "'source' is 3"),
        ({"lower": 0, "upper": 1, "source": "x"}, "'mean' is missing"),
        ({"categories": ["a"], "mean": 1, "deviation": 1}, "takes no 'mean'"),
        ({"role": "id", "mean": 1, "deviation": 1}, "takes no 'mean'"),
    ],
)
def test_broken_scales_are_named(declared, words):
    with pytest.raises(SchemaError) as caught:
        schema(r=declared)
    assert words in str(caught.value)


def test_broken_scale_of_a_file_has_its_line():
    text = '[columns.r]\nrole = "public"\nmean = 1\ndeviation = -2\n'
    with pytest.raises(SchemaError, match=r"line 4, column 'r': 'deviation' is -2"):
        Schema.from_toml(text)


@pytest.mark.parametrize(
    ("declared", "count"),
    [
        ({"lower": 1, "upper": 10_000}, 1),
        ({"lower": -10_000, "upper": -1}, 1),
        ({"lower": 1, "upper": 10_000, "transform": "log"}, 0),
        ({"lower": 1, "upper": 100}, 0),
        ({"lower": 0, "upper": 110}, 0),
        ({"lower": 0, "upper": 1_000_000}, 1),
        ({"lower": -1, "upper": 1_000_000}, 0),
        ({"lower": 1, "upper": 10_000, "role": "label"}, 0),
        ({"mean": 5, "deviation": 1, "source": "a paper"}, 0),
        ({"mean": 5, "deviation": 1}, 1),
        ({"mean": 5, "deviation": 1, "clip": 10, "source": "a paper"}, 1),
        ({"categories": ["a"]}, 0),
    ],
)
def test_advice_reads_declarations_alone(declared, count):
    assert len(advice(schema(r=declared))) == count


def test_a_range_from_0_beside_a_mean_is_told():
    both = schema(r={"lower": 0, "upper": 30}, s={"mean": 5, "deviation": 1, "source": "x"})
    (told,) = advice(both)
    assert "'r' start at 0" in told
    assert "log1p" in told


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=3.5,1", {"mean": "3.5", "deviation": "1", "source": ""}),
        ("a= -3 , 1e2 , Census 1990, table 3 = A", {"mean": "-3", "deviation": "1e2", "source": "Census 1990, table 3 = A"}),
    ],
)  # fmt: skip
def test_scales_of_the_command_line(text, values):
    assert parse_scale(text, ["a", "b"]) == ("a", values)
    assert parse_scale(f"a={text[2:]}".replace("a=", "a=b=", 1), ["a", "a=b"])[0] == "a=b"


@pytest.mark.parametrize("text", ["a", "c=1,2", "a=1", "a=x,1", "a=1,0", "a=1,-1", "a=nan,1", "a=1,inf", ""])
def test_scales_that_are_refused(text):
    with pytest.raises(ParameterError):
        parse_scale(text, ["a", "b"])


def test_init_writes_a_scale_that_check_accepts(tmp_path: Path):
    file = tmp_path / "t.csv"
    file.write_text("age,sick\n7301,1\n")
    target = tmp_path / "t.toml"
    scale = ["--scale", 'age=38.6,13.7,Census, "table 3"']
    done = runner.invoke(app, ["init", str(file), "--non-interactive", *scale])
    assert done.exit_code == 0, done.output
    text = target.read_text()
    assert "7301" not in text
    held = tomllib.loads(text)["columns"]["age"]
    assert (held["mean"], held["deviation"], held["clip"]) == (38.6, 13.7, 2)
    assert held["source"] == 'Census, "table 3"'
    text = text.replace('role = ""', 'role = "public"', 1).replace('role = ""', 'role = "label"', 1)
    target.write_text(text.replace('# categories = ["", ""]', 'categories = ["0", "1"]'))
    checked = runner.invoke(app, ["check", str(target), str(file), "--json"])
    assert checked.exit_code == 0, checked.output
    told = json.loads(checked.stdout)
    assert told["columns"][0]["lower"] == 11.2
    assert told["columns"][0]["source"] == 'Census, "table 3"'
    assert len(told["warnings"]) == 1  # nobody is named
    target.write_text(target.read_text().replace('source = "Census', '# source = "Census'))
    shown = runner.invoke(app, ["check", str(target)])
    assert "without a source" in " ".join(shown.stderr.split())
    assert Table.read(file, target).n_rows == 1


def test_init_refuses_a_scale_of_no_column_or_of_text(tmp_path: Path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"age": [1], "name": ["x"]}), file)
    for scale in ("nothing=1,2", "name=1,2", "age=1"):
        done = runner.invoke(app, ["init", str(file), "--non-interactive", "--scale", scale])
        assert done.exit_code == 2, done.output
        assert not file.with_suffix(".toml").exists()
