"""Reports of selections and sparse models: what stands there, and what never does."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from confide import SparseClassifier, SparseRegressor, SubsetSelector, write_report
from confide.errors import ParameterError, UnsupportedError
from confide.ledger import Ledger
from confide.pipeline import select_and_fit
from confide.report import summary
from confide.report.selected import released, selected_facts
from confide.report.words import number
from confide.schema import Schema, Table
from confide.selection import select

from .conftest import HOSTILE, Page

COLUMNS = {
    HOSTILE: {"role": "public", "lower": 0, "upper": 10, "unit": "years"},
    "dose": {"role": "private", "lower": -1, "upper": 3},
    "ward": {"role": "public", "categories": ["<i>north</i>", "south"]},
    "cost": {"role": "label", "lower": 2, "upper": 12, "unit": "euros"},
}
SCHEMA = {"table": {"name": "clinic <500>", "declared_by": "Dr <x>"}, "columns": COLUMNS}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    data = {HOSTILE: rng.uniform(0, 10, 2000), "dose": rng.uniform(-1, 3, 2000)}
    data["ward"] = rng.choice(["<i>north</i>", "south"], 2000)
    data["cost"] = 7 + 1.5 * (data["dose"] - 1) + 0.2 * (data[HOSTILE] - 5)
    return Table.from_frame(pd.DataFrame(data), Schema.from_dict(SCHEMA))


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="clinic", epsilon=40, adjacency="replace_one", counter=False
    )


def page_of(result, tmp_path, **options):
    path = write_report(result, tmp_path / "r.html", **options)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert "<script" not in text
    assert HOSTILE not in text
    assert len(page.all("section")) == len(page.all("a")) == 5
    ids = {attributes["id"] for _, attributes, _ in page.elements if "id" in attributes}
    assert all(link["href"][1:] in ids for link in page.all("a"))
    assert page.children("table", "caption")[0] == page.children("table", "caption")[1]
    return page


def test_a_selection(rows, ledger, tmp_path):
    before = ledger.show()
    result = select(rows, size=2, epsilon=15, ledger=ledger)
    page = page_of(result, tmp_path, table=rows, ledger=ledger, before=before)
    assert page.text.count(HOSTILE) >= 1
    assert "This selection hardly protects everything about any one row" in page.text
    for words in (
        "exponential", "2 of 5 encoded ones", "dose", "-1 to 3", "declared by Dr <x>", "Privacy report",
        f"Entry of this release: {result.entry}", str(result.guarantee), "rests on no assumption",
        "confide ledger show --verify",
    ):  # fmt: skip
        assert words in page.text, words
    assert "coefficient" not in page.text
    same = write_report(result, tmp_path / "again.html", table=rows, ledger=ledger, before=before)
    assert same.read_bytes() == (tmp_path / "r.html").read_bytes()


@pytest.mark.parametrize("method", ["objective", "sufficient_statistics"])
def test_a_sparse_result(rows, ledger, tmp_path, method):
    result = select_and_fit(rows, size=2, epsilon=20, ledger=ledger, coefficients=method)
    page = page_of(result, tmp_path, table=rows, ledger=ledger)
    for row in (["support", "10", "0"], ["coefficients", "10", "0"], ["charged in all", "20", "0"]):
        places = [i for i, word in enumerate(page.words) if word == row[0]]
        assert row in [page.words[i : i + 3] for i in places], row
    assert "(intercept)" in page.words
    assert "ridge of" in page.text
    assert ("errors are not known" in page.text) == (method == "objective")
    assert ("± privacy" in page.text) == (method == "sufficient_statistics")
    assert "clipped to its declared bounds, 2 to 12" in page.text
    for value in result.model.coefficients:
        assert f"{abs(value):.3g}"[:3] in page.text


def test_an_assumption_is_explained_at_the_top(rows, tmp_path):
    with pytest.warns(UserWarning, match="no single unit"):
        result = select(rows, size=1, epsilon=5, mechanism="mistakes")
    page = page_of(result, tmp_path)
    assert "Assuming: gap condition. The guarantee holds where this is true" in page.text
    assert "docs/how-to/selection-mechanisms.md" in page.text
    assert "No ledger recorded this release" in page.text
    assert "no single unit" in str(summary(result))


def test_no_function_of_secret_rows_stands_there(rows, tmp_path):
    told = select(rows, size=2, epsilon=5, diagnostics="public data")
    assert {"seconds", "acceptance"} <= dict(told.diagnostics).keys()
    other = replace(told, diagnostics=(("seconds", 17.25), ("score", 4711.5)))
    assert selected_facts(released(told)) == selected_facts(released(other))
    page = page_of(other, tmp_path)
    assert "17.25" not in page.text
    assert "4711" not in page.text
    assert "4711" not in str(summary(other))


def test_fitted_estimators(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-1, 1, (1500, 4)), columns=[HOSTILE, "b", "c", "d"])
    y = X["b"] - X[HOSTILE]
    bounds = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2)}
    options = {"coefficients": "sufficient_statistics"}
    model = SparseRegressor(2, 20, **bounds, **options).fit(X, y)
    page = page_of(model, tmp_path)
    assert "2 of 4 encoded ones" in page.text
    assert list(model.noise_errors_) == ["(intercept)", HOSTILE, "b"]
    assert number(model.noise_errors_["b"], 2) in page.words
    assert page_of(SubsetSelector(2, 20, **bounds).fit(X, y), tmp_path)
    known = SparseRegressor(2, 20, support=[0, 1], **bounds).fit(X, y)
    assert "nothing charged for it" in page_of(known, tmp_path).text
    words = np.where(y > 0, "ill", "well")
    ill = SparseClassifier(2, 20, classes=("well", "ill"), feature_bounds=(-1, 1), random_state=0).fit(
        X, words
    )
    page = page_of(ill, tmp_path)
    assert "NOT PRIVATE" in page.text
    assert "The score is positive for 'ill', and else stands for 'well'." in page.text
    assert "NOT PRIVATE" in str(summary(ill))


def test_errors_of_an_estimator_are_in_the_units_of_the_data():
    """Released many times, the coefficients scatter as they say, about one fit of the same rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (400, 2))
    y = 50 + 3 * X[:, 0] - 2 * X[:, 1]
    fits = [
        SparseRegressor(
            2, 60, feature_bounds=(0, 10), target_bounds=(0, 100), coefficients="sufficient_statistics",
            random_state=seed,
        ).fit(X, y)
        for seed in range(60)
    ]  # fmt: skip
    values = np.array([[fit.intercept_, *fit.coef_] for fit in fits])
    said = np.median([list(fit.noise_errors_.values()) for fit in fits], axis=0)
    np.testing.assert_allclose(values.std(axis=0), said, rtol=0.35)


def test_terminal_form(rows):
    result = select_and_fit(rows, size=2, epsilon=20)
    shown = str(summary(result, table=rows))
    for words in ("This model hardly protects", "(intercept)", "dose", "errors are not known"):
        assert words in " ".join(shown.split())
    assert "coefficient" not in str(summary(select(rows, size=2, epsilon=1)))


@pytest.mark.parametrize("thing", [object(), {"support": 1}, SparseRegressor(2, 1), None, "text"])
def test_what_has_no_report(thing, tmp_path):
    for call in (lambda: write_report(thing, tmp_path / "r.html"), lambda: summary(thing)):
        with pytest.raises(UnsupportedError) as info:
            call()
        assert info.value.remedy
    assert not (tmp_path / "r.html").exists()


def test_wrong_arguments(rows, tmp_path):
    result = select(rows, size=2, epsilon=1)
    other = Schema.from_dict(
        {**SCHEMA, "columns": {**COLUMNS, "dose": {"role": "private", "lower": 0, "upper": 3}}}
    )
    with pytest.raises(ParameterError, match="another schema"):
        write_report(result, tmp_path / "r.html", table=other)
    with pytest.raises(ParameterError, match="test"):
        write_report(result, tmp_path / "r.html", test=object())
