"""Pages of models that are more than a line through public columns, classifiers first."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from confide import PrivateClassifier, PrivateRegressor
from confide.errors import ParameterError
from confide.ledger import Ledger
from confide.report import PublicTest, summary, write_report
from confide.report.model import ENGINES, model_facts, released_model
from confide.schema import Schema, Table
from confide.training import train
from confide.training.engines import names as engine_names

from .conftest import HOSTILE, Page


def spec(label="member", roles=("public", "public", "private")):
    labels = {
        "member": {"categories": ["<i>no</i>", "yes"]},
        "grade": {"categories": ["low", "middle", "high"]},
        "wage": {"lower": 0, "upper": 10},
    }
    columns = {
        HOSTILE: {"role": roles[0], "lower": -1, "upper": 1, "missing": "impute"},
        "city": {"role": roles[1], "categories": ["<b>n</b>", "s"], "missing": "impute"},
        "illness": {"role": roles[2], "lower": 0, "upper": 1},
        label: {"role": "label", **labels[label]},
    }
    columns = {name: column for name, column in columns.items() if column["role"] is not None}
    return {"table": {"name": "s&p <500>", "declared_by": "Data <Office>"}, "columns": columns}


def frame(n=800):
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            HOSTILE: rng.uniform(-1, 1, n),
            "city": rng.choice(["<b>n</b>", "s"], n),
            "illness": rng.uniform(0, 1, n),
        }
    )
    score = data[HOSTILE] + 0.5 * (data.city == "s") - data.illness
    data["member"] = np.where(score > -0.2, "yes", "<i>no</i>")
    data["grade"] = np.array(["low", "middle", "high"])[np.digitize(score, [-0.5, 0.3])]
    data["wage"] = np.clip(5 + 3 * score, 0, 10)
    return data


PUBLIC, PART, WHOLE = ("public", "public", None), ("public", "public", "private"), ("private",) * 3
CASES = [
    ("member", PUBLIC, {}),
    ("member", PUBLIC, {"delta": 0}),
    ("member", WHOLE, {"adjacency": "replace_one", "engine": "objective"}),
    ("member", PUBLIC, {"model": "fm", "steps": 5}),
    ("grade", PUBLIC, {}),
    ("grade", PART, {"engine": "dpsgd", "steps": 5, "adjacency": "replace_private_part"}),
    ("grade", PUBLIC, {"model": "mlp", "hidden": (4,), "steps": 5}),
    ("wage", PART, {"engine": "semi_sensitive", "adjacency": "replace_private_part"}),
    ("wage", WHOLE, {"adjacency": "add_remove_one", "engine": "adassp"}),
    ("wage", WHOLE, {"adjacency": "replace_one"}),
]


@pytest.mark.parametrize(("label", "roles", "way"), CASES, ids=str)
def test_a_page_tells_guarantee_spend_model_and_release(label, roles, way, tmp_path):
    table = Table.from_frame(frame(), spec(label, roles))
    ask = {"epsilon": 1, "delta": 1e-6, **way}
    relation = way.get("adjacency", "replace_label")
    book = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="a", epsilon=3, delta=1e-5, adjacency=relation)
    before = book.show()
    result = train(table, **ask, ledger=book)
    path = write_report(result, tmp_path / "r.html", table=table, ledger=book, before=before)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    for words in (
        "This model protects",
        "2.72",
        "Data <Office>",
        "this release",
        "epsilon left in the ledger",
    ):
        assert words in page.text
    assert "assumptions: none" in page.text
    assert ENGINES[result.engine] in page.text
    assert result.engine in page.text
    assert HOSTILE not in text
    assert "<b>n" not in text
    assert "<i>no" not in text
    assert HOSTILE in page.text
    assert not page.all("script")
    assert len(page.all("section")) == len(page.all("a")) == 6
    assert (
        path.read_bytes()
        == write_report(result, tmp_path / "2.html", table=table, ledger=book, before=before).read_bytes()
    )
    told = model_facts(released_model(result), table=table, ledger=book)
    json.dumps(told.to_dict(), allow_nan=False)
    if result.engine != "dpsgd" or way.get("model", "linear") == "linear":
        assert len(told.terms) == len(result.model.public) + len(result.model.private)
        assert {"(intercept)"} <= set(page.words)
    else:
        assert told.terms == ()
        assert "no meaning one by one" in page.text
    if relation == "add_remove_one":
        assert told.rows is None
        assert "rows (public)" not in page.text
    shown = " ".join(str(summary(result, table=table)).split())
    assert "This model protects" in shown
    assert told.description[:20] in shown


def test_coefficients_are_those_of_the_estimator(tmp_path):
    data = frame()
    X = data[[HOSTILE, "illness"]]
    model = PrivateClassifier(
        2, 1e-6, classes=["<i>no</i>", "yes"], adjacency="replace_private_part", public=[HOSTILE],
        feature_bounds=(0, 1), engine="dpsgd", steps=9,
    ).fit(X, data["member"])  # fmt: skip
    told = model_facts(released_model(model))
    assert {term.name: term.values for term in told.terms} == {
        name: (value,) for name, value in zip(X.columns, model.coef_[0].tolist(), strict=True)
    }
    assert told.intercept == tuple(model.intercept_.tolist())
    assert "protects" in write_report(model, tmp_path / "m.html").read_text()
    left_out = PrivateClassifier(
        2, 1e-6, classes=["<i>no</i>", "yes"], adjacency="replace_private_part", public=[HOSTILE]
    ).fit(X, data["member"])
    assert [term.name for term in model_facts(released_model(left_out)).terms] == [HOSTILE]
    bare = model_facts(released_model(left_out.result_))
    assert [term.name for term in bare.terms] == ["x0"]
    number = PrivateRegressor(2, 1e-6, target_bounds=(0, 10), model="mlp", hidden=(3,), steps=4)
    assert "MLP" in str(summary(number.fit(X, data["wage"])))


def test_what_is_not_private_says_so_first(tmp_path):
    table = Table.from_frame(frame(), spec("member", PUBLIC))
    for ask in ({"epsilon": 1, "random_state": 0}, {"epsilon": np.inf, "nonprivate": True}):
        result = train(table, delta=1e-6, **ask)
        page = Page(write_report(result, tmp_path / "r.html", table=table).read_text(encoding="utf-8"))
        assert "NOT PRIVATE" in page.text[:300]
        assert "NOT PRIVATE" in str(summary(result))


def test_another_schema_and_a_test_are_refused(tmp_path):
    table = Table.from_frame(frame(), spec("member", PUBLIC))
    result = train(table, epsilon=1, delta=1e-6)
    other = Schema.from_dict(spec("member", PART))
    with pytest.raises(ParameterError, match="another schema"):
        write_report(result, tmp_path / "r.html", table=other)
    number = Table.from_frame(frame(), spec("wage", PUBLIC))
    with pytest.raises(ParameterError, match="'test'"):
        write_report(result, tmp_path / "r.html", test=PublicTest(number, "me"))
    assert not (tmp_path / "r.html").exists()


def test_the_page_is_the_same_whatever_the_secrets_were(tmp_path, monkeypatch):
    """Given the result, no cell of the table is read."""
    table = Table.from_frame(frame(), spec("member", PART))
    result = train(table, epsilon=1, delta=1e-6, adjacency="replace_private_part", engine="dpsgd", steps=3)

    def read(self, *_):
        raise AssertionError("a cell was read")

    for name in ("label", "private", "public"):
        monkeypatch.setattr(Table, name, property(read))
    monkeypatch.setattr(Table, "values", read)
    assert write_report(result, tmp_path / "r.html", table=table).exists()


def test_every_engine_has_its_words():
    known = {*engine_names(classes=True), *engine_names(classes=False)}
    assert known <= set(ENGINES)


def test_facts_is_a_function_in_whatever_order_names_are_loaded():
    code = "from confide.report import write_report; from confide.report import facts; assert callable(facts)"
    subprocess.run([sys.executable, "-c", code], check=True)
