"""Engines at the front door on tables: every one fits, is charged, predicts from raw rows and is saved."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from confide.cli.train import train as command
from confide.errors import (
    DataError,
    ParameterError,
    RefusedError,
    SchemaError,
    UncertifiedWarning,
    UnsupportedError,
)
from confide.ledger import Ledger
from confide.schema import Schema, Table
from confide.training import LinearModel, PrivateRegressor, TableModel, train

ASK = {"epsilon": 1, "delta": 1e-6}


def frame(n=1200, seed=0):
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({
        "age": rng.uniform(20, 60, n),
        "region": rng.choice(["north", "south"], n),
        "illness": rng.uniform(0, 1, n),
    })  # fmt: skip
    score = (data.age - 40) / 20 + 0.5 * (data.region == "south") - data.illness
    data["wage"] = np.clip(5 + 3 * score + 0.3 * rng.normal(size=n), 0, 10)
    data["member"] = np.where(score + 0.3 * rng.normal(size=n) > 0, "yes", "no")
    data["grade"] = np.array(["low", "middle", "high"])[np.digitize(score, [-0.5, 0.3])]
    return data


def schema(label="wage", roles=("public", "public", "private"), **more):
    labels = {
        "wage": {"lower": 0, "upper": 10},
        "member": {"categories": ["no", "yes"]},
        "grade": {"categories": ["low", "middle", "high"]},
    }
    columns = {
        "age": {"role": roles[0], "lower": 20, "upper": 60, "missing": "impute"},
        "region": {"role": roles[1], "categories": ["north", "south"], "missing": "impute"},
        "illness": {"role": roles[2], "lower": 0, "upper": 1},
        label: {"role": "label", **labels[label]},
    }
    columns = {name: spec for name, spec in columns.items() if spec["role"] is not None}
    return {"table": {"name": "staff", "declared_by": "me", **more}, "columns": columns}


PUBLIC, PART, WHOLE = ("public", "public", None), ("public", "public", "private"), ("private",) * 3
CASES = [
    ("wage", PUBLIC, {"engine": "dpsgd", "steps": 15}),
    ("wage", PUBLIC, {"engine": "dpsgd", "model": "mlp", "hidden": (6,), "steps": 15, "switch": 5}),
    ("wage", PUBLIC, {"model": "fm", "steps": 15, "batch_size": 200}),
    ("wage", PART, {"engine": "dpsgd", "steps": 15, "adjacency": "replace_private_part"}),
    (
        "wage",
        PART,
        {"model": "mlp", "hidden": (4,), "embedding": 3, "steps": 9, "adjacency": "replace_private_part"},
    ),
    ("wage", PART, {"engine": "semi_sensitive", "adjacency": "replace_private_part"}),
    ("wage", WHOLE, {"adjacency": "replace_private_part"}),
    ("wage", WHOLE, {"adjacency": "replace_one"}),
    ("wage", WHOLE, {"adjacency": "add_remove_one", "engine": "adassp"}),
    ("wage", WHOLE, {"adjacency": "add_remove_one", "engine": "dpsgd", "steps": 9, "max_rows": 2000}),
    ("member", PUBLIC, {}),
    ("member", PUBLIC, {"engine": "randomized_response"}),
    ("member", PUBLIC, {"engine": "dpsgd", "steps": 9}),
    ("member", WHOLE, {"adjacency": "replace_one", "engine": "objective"}),
    ("grade", PUBLIC, {}),
    ("grade", PUBLIC, {"model": "mlp", "hidden": (5,), "steps": 9}),
    ("grade", PART, {"engine": "dpsgd", "steps": 9, "adjacency": "replace_private_part"}),
    ("grade", WHOLE, {"adjacency": "replace_one", "steps": 9}),
]


@pytest.mark.parametrize(("label", "roles", "way"), CASES, ids=str)
def test_from_table_to_saved_model(label, roles, way, tmp_path):
    data = frame()
    table = Table.from_frame(data, schema(label, roles))
    relation = way.get("adjacency", "replace_label")
    book = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="a", epsilon=3, delta=1e-5, adjacency=relation)
    told = train(table, **ASK, **way, ledger=book, dry_run=True)
    assert book.total().epsilon == 0
    result = train(table, **ASK, **way, ledger=book)
    assert book.total().epsilon == 1
    assert result.guarantee == told  # event included
    assert result.guarantee.adjacency.value == relation
    assert result.entry
    new = frame(40, seed=1)
    want = result.predict(Table.from_frame(new, schema(label, roles)))
    assert want.shape == (40,)
    if label == "wage":
        assert ((want >= 0) & (want <= 10)).all()
        with pytest.raises(UnsupportedError, match="number"):
            result.predict_proba(new)
    else:
        assert set(want) <= set(frame()[label])
        np.testing.assert_allclose(result.predict_proba(new).sum(axis=1), 1)
    bare = new[[name for name, role in zip(("age", "region", "illness"), roles, strict=True) if role]]
    bare.to_parquet(tmp_path / "new.parquet")
    result.model.save(tmp_path / "model.json")
    for model in (result.model, TableModel.load(tmp_path / "model.json")):
        for source in (bare, pl.from_pandas(bare), tmp_path / "new.parquet", bare.to_dict("list")):
            np.testing.assert_array_equal(model.predict(source), want)
    (tmp_path / "result.json").write_text(result.to_json())
    np.testing.assert_array_equal(TableModel.load(tmp_path / "result.json").predict(bare), want)
    with pytest.raises(DataError, match="TableModel"):
        LinearModel.load(tmp_path / "model.json")
    chunked = train(Table.scan(_file(data, tmp_path), schema(label, roles), chunk_rows=300), **ASK, **way)
    assert chunked.engine == result.engine


def _file(data, folder):
    data.to_parquet(folder / "all.parquet")
    return folder / "all.parquet"


@pytest.mark.parametrize(("label", "roles", "way"), CASES, ids=str)
def test_a_refusal_reads_no_secret(label, roles, way, tmp_path, monkeypatch):
    table = Table.from_frame(frame(100), schema(label, roles))
    relation = way.get("adjacency", "replace_label")
    book = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="a", epsilon=0.5, delta=1e-5, adjacency=relation)

    def read(self):
        raise AssertionError("a secret was read")

    monkeypatch.setattr(Table, "label", property(read))
    monkeypatch.setattr(Table, "private", property(read))
    with pytest.raises(RefusedError):
        train(table, **ASK, **way, ledger=book)
    assert book.total().epsilon == 0


@pytest.mark.parametrize(
    ("label", "roles", "way", "word"),
    [
        ("wage", PUBLIC, {"engine": "objective"}, "engine"),
        ("wage", PUBLIC, {"engine": "randomized_response"}, "engine"),
        ("member", PUBLIC, {"engine": "rounds"}, "engine"),
        ("wage", PUBLIC, {"engine": "boosted_adassp"}, "public"),
        ("wage", PUBLIC, {"engine": "closed_form", "model": "mlp"}, "dpsgd"),
        ("wage", PUBLIC, {"steps": 5}, "steps"),
        ("wage", PUBLIC, {"learning": 5}, "learning"),
        ("wage", PUBLIC, {"engine": "dpsgd", "degree": 2}, "degree"),
        ("wage", PUBLIC, {"engine": "dpsgd", "hidden": 3, "model": "mlp"}, "hidden"),
        ("grade", PUBLIC, {"model": "fm"}, "one output"),
        ("grade", WHOLE, {"engine": "objective", "adjacency": "replace_one"}, "two classes"),
        ("member", PART, {"engine": "semi_sensitive", "adjacency": "replace_private_part"}, "classes"),
        ("wage", PART, {"adjacency": "replace_one"}, "public"),
        ("wage", WHOLE, {"adjacency": "add_remove_one", "engine": "dpsgd"}, "rows"),
    ],
    ids=str,
)
def test_requests_that_make_no_sense_are_refused_by_the_schema_alone(label, roles, way, word):
    class Blind:
        schema = Schema.from_dict(schema(label, roles))
        label_bounds = (0.0, 10.0)

    with pytest.raises((ParameterError, UnsupportedError, SchemaError)) as info:
        train(Blind(), **ASK, **way)
    assert word in str(info.value)


def test_engines_of_public_columns_say_what_they_leave_out():
    table = Table.from_frame(frame(300), schema("member", PART))
    with pytest.warns(UncertifiedWarning, match="illness"):
        result = train(table, **ASK, adjacency="replace_private_part")
    assert result.model.private == ()


def test_rows_of_one_person_cost_more_noise():
    data = frame(300).assign(person=np.arange(300) // 3)
    spec = schema("member", PUBLIC)
    one = train(Table.from_frame(data, spec), **ASK, engine="closed_form")
    grouped = schema("member", PUBLIC, max_rows_per_id=3, unit="person")
    grouped["columns"]["person"] = {"role": "id"}
    many = train(Table.from_frame(data, grouped), **ASK, engine="closed_form")
    assert many.guarantee.unit == "person"
    assert many.facts["sensitivity"] > 1.5 * one.facts["sensitivity"]


def call(folder, spec, *options):
    frame().to_csv(folder / "staff.csv", index=False)
    (folder / "staff.toml").write_text(Schema.from_dict(spec).to_toml())
    app = typer.Typer()
    app.command()(command)
    base = [str(folder / "staff.csv"), "--schema", str(folder / "staff.toml"), "--epsilon", "1"]
    return CliRunner().invoke(app, [*base, "--delta", "1e-6", *options])


def test_the_command_line_fits_an_mlp_and_saves_it(tmp_path):
    out = tmp_path / "model.json"
    done = call(
        tmp_path, schema("wage", PUBLIC), "--engine", "dpsgd", "--model", "mlp", "--hidden", "6,4", "--steps", "9",
        "--activation", "tanh", "--out", str(out),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "neural network" in done.output
    assert TableModel.load(out).predict(frame(5)).shape == (5,)
    shown = json.loads(call(tmp_path, schema("member", PUBLIC), "--json").output)
    assert shown["engine"] == "closed_form"


def test_the_command_line_writes_a_report_of_classes(tmp_path):
    url = f"sqlite:///{tmp_path}/l.db"
    book = Ledger.open(url, dataset="a", epsilon=3, delta=1e-5, adjacency="replace_label")
    page = tmp_path / "r.html"
    done = call(tmp_path, schema("member", PUBLIC), "--report", str(page), "--ledger", f"{url}#a")
    assert done.exit_code == 0, done.output
    assert "this release" in page.read_text()
    assert book.total().epsilon == 1
    assert call(tmp_path, schema("wage", PUBLIC), "--model", "mlp", "--hidden", "a").exit_code != 0


def test_classes_at_delta_0_are_fitted_by_what_needs_none():
    table = Table.from_frame(frame(), schema("member", PUBLIC))
    result = train(table, epsilon=1, delta=0)
    assert result.engine == "randomized_response"
    assert result.guarantee.delta == 0
    assert result.guarantee == train(table, epsilon=1, delta=0, dry_run=True)
    free = train(table, epsilon=np.inf, delta=0, nonprivate=True)
    assert free.engine == "closed_form"
    for way, remedy in (
        ({"engine": "closed_form"}, "engine='randomized_response'"),
        ({"model": "mlp"}, "PrivateLabelClassifier"),
    ):
        with pytest.raises(ParameterError, match=remedy):
            train(table, epsilon=1, delta=0, **way)


def test_the_command_line_takes_rank_and_average(tmp_path):
    done = call(tmp_path, schema("wage", PUBLIC), "--model", "fm", "--rank", "2", "--average", "0.2",
                "--steps", "3")  # fmt: skip
    assert done.exit_code == 0, done.output
    refused = call(tmp_path, schema("wage", PUBLIC), "--engine", "dpsgd", "--rank", "2")
    assert "does not use 'rank'" in " ".join(refused.output.split())


@pytest.mark.parametrize("engine", ["rounds", "semi_sensitive", "dpsgd"])
def test_a_model_of_a_frame_keeps_its_names_in_a_file(engine, tmp_path):
    data = frame(400)[["age", "illness"]].assign(more=lambda held: held.age**2)
    secret = {"public": ["more", "age"], "adjacency": "replace_private_part", "feature_bounds": (0, 1)}
    options = {} if engine == "rounds" else secret
    if engine == "dpsgd":
        options = {**options, "steps": 3}
    model = PrivateRegressor(**ASK, target_bounds=(0, 10), engine=engine, **options)
    want = model.fit(data, frame(400).wage).predict(data)
    model.result_.model.save(tmp_path / "m.json")
    held = (LinearModel if engine == "rounds" else TableModel).load(tmp_path / "m.json")
    shuffled = data[["more", "illness", "age"]].assign(further="text")
    for rows in (shuffled, pl.DataFrame(shuffled), shuffled.to_dict("records"), dict(shuffled)):
        np.testing.assert_allclose(held.predict(rows), want, rtol=1e-12)
    with pytest.raises(DataError, match="no column 'age'"):
        held.predict(shuffled.drop(columns="age"))
    with pytest.raises(DataError, match="'more': 400 of 400"):
        held.predict(shuffled.assign(more="text"))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_bounds_by_name():
    data, y = frame(400)[["age", "illness"]].assign(more=0.5), frame(400).wage
    options = {**ASK, "target_bounds": (0, 10), "engine": "semi_sensitive", "random_state": 0}
    options |= {"public": ["age"], "adjacency": "replace_private_part"}

    def predicted(bounds, **more):
        model = PrivateRegressor(**{**options, **more}, feature_bounds=bounds)
        return model.fit(data, y).predict(data)

    want = predicted(([0, 0, -2], [9, 1, 2]))
    for bounds in ({"more": (-2, 2), "illness": (0, 1)}, {"illness": [0, 1], "more": [-2, 2], "age": (5, 1)}):
        np.testing.assert_array_equal(predicted(bounds), want)
    for bounds, fact in (
        ({"illness": (0, 1)}, "lacks column 'more'"),
        ({"illness": (0, 1), "more": (0, 1), "odd": (0, 1)}, "no column 'odd'"),
        ({"illness": "01", "more": (0, 1)}, "no pair"),
        ({"illness": (1, 0), "more": (0, 1)}, "lo < hi"),
    ):
        with pytest.raises(ParameterError, match=fact):
            predicted(bounds)
    whole = {"age": (20, 60), "illness": (0, 1), "more": (0, 1)}
    assert predicted(whole, engine=None, adjacency="replace_one", public="all").shape == (400,)


@pytest.mark.parametrize(("label", "engine"), [("wage", "semi_sensitive"), ("member", "dpsgd")])
def test_the_warning_names_the_engine_that_uses_private_columns(label, engine):
    columns = schema(label)
    table = Table.from_frame(frame(300)[["age", "region", "illness", label]], columns)
    with pytest.warns(
        UncertifiedWarning, match=f"leaves the private columns out: illness.*'{engine}' uses them"
    ):
        train(table, **ASK, adjacency="replace_private_part")
