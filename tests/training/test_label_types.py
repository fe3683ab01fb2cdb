"""A label's declared type is public: where it holds no label, every door refuses before its charge."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from confide import (
    PrivateClassifier,
    PrivateRegressor,
    Schema,
    SparseClassifier,
    SparseRegressor,
    SubsetSelector,
    Table,
    tune,
)
from confide.errors import DataError, ParameterError
from confide.ledger import Ledger
from confide.training import (
    LabelPrivatizer,
    LinearModel,
    PrivateLabelClassifier,
    PrivateLabelRegressor,
    TableModel,
    WeightedLLPRegressor,
    fit_hybrid,
    fit_semi_sensitive,
    train,
)
from confide.training.sgd import SGDRequest, fit

N = 40
X = np.random.default_rng(0).uniform(-1, 1, (N, 2))
DAYS = pd.to_datetime(pd.Series(["2020-01-01", "2021-01-01"] * (N // 2)))
WORDS = pd.Series(["0", "1"] * (N // 2), dtype="str")

BOX = {"feature_bounds": (-1, 1)}
SGD = {"steps": 2, "recorded": True}
NUMBERS = {
    "PrivateRegressor": lambda y, book: PrivateRegressor(1, 1e-6, target_bounds=(0, 1), ledger=book).fit(X, y),
    "dpsgd": lambda y, book: PrivateRegressor(
        1, 1e-6, target_bounds=(0, 1), engine="dpsgd", steps=2, ledger=book
    ).fit(X, y),
    "PrivateLabelRegressor": lambda y, book: PrivateLabelRegressor(
        Ridge(), "rounding", 1, target_bounds=(0, 1), ledger=book
    ).fit(X, y),
    "LabelPrivatizer": lambda y, book: LabelPrivatizer(
        "rounding", 1, target_bounds=(0, 1), ledger=book
    ).fit_transform(y),
    "WeightedLLP": lambda y, book: WeightedLLPRegressor(1, 1e-6, target_bounds=(0, 1), ledger=book).fit(X, y),
    "sgd.fit": lambda y, book: fit(X, None, y, SGDRequest(1, 1e-6, target_bounds=(0, 1), **SGD), ledger=book),
    "hybrid": lambda y, book: fit_hybrid(
        X, None, y, SGDRequest(1, 1e-6, target_bounds=(0, 1), **SGD), ledger=book
    ),
    "semi-sensitive": lambda y, book: fit_semi_sensitive(X[:, :1], X[:, 1:], y, 1, 1e-6, target_bounds=(0, 1)),
    "tune": lambda y, book: tune(
        lambda c: PrivateRegressor(target_bounds=(0, 1)), [1], X=X, y=y, epsilon=2, delta=1e-6,
        expected_runs=1, ledger=book,
    ),
    "SubsetSelector": lambda y, book: SubsetSelector(1, 1, target_bounds=(0, 1), ledger=book, **BOX).fit(X, y),
    "SparseRegressor": lambda y, book: SparseRegressor(1, 1, target_bounds=(0, 1), ledger=book, **BOX).fit(X, y),
}  # fmt: skip
CLASSES = {
    "PrivateClassifier": lambda y, book: PrivateClassifier(1, 1e-6, classes=[0, 1], ledger=book).fit(X, y),
    "PrivateLabelClassifier": lambda y, book: PrivateLabelClassifier(
        LogisticRegression(), epsilon=1, classes=[0, 1], ledger=book
    ).fit(X, y),
    "sgd.fit of classes": lambda y, book: fit(
        X, None, y, SGDRequest(1, 1e-6, classes=[0, 1], **SGD), ledger=book
    ),
    "tune of classes": lambda y, book: tune(
        lambda c: PrivateClassifier(classes=[0, 1]), [1], X=X, y=y, epsilon=2, delta=1e-6, expected_runs=1,
        score="accuracy", ledger=book,
    ),
    "SparseClassifier": lambda y, book: SparseClassifier(1, 1, classes=[0, 1], ledger=book, **BOX).fit(X, y),
    "SubsetSelector of classes": lambda y, book: SubsetSelector(
        1, 1, loss="logistic", classes=[0, 1], ledger=book, **BOX
    ).fit(X, y),
}  # fmt: skip
DOORS = {**NUMBERS, **CLASSES}


@pytest.fixture
def book(tmp_path):
    return Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="a", epsilon=9, delta=1e-3, adjacency="replace_one"
    )


@pytest.fixture
def label_book(tmp_path):
    return Ledger.open(
        f"sqlite:///{tmp_path}/k.db", dataset="a", epsilon=9, delta=1e-3, adjacency="replace_label"
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("door", list(DOORS))
def test_a_type_that_holds_no_label_is_refused_before_the_charge(door, label_book, book):
    ledger = book if "S" in door and ("Sparse" in door or "Subset" in door) else label_book
    for y in (WORDS, WORDS.astype("string"), WORDS.to_numpy().astype("U1"), pl.Series(WORDS.to_list()),
              DAYS, DAYS.to_numpy(), pl.Series(DAYS.to_list()), np.full(N, 1j)):  # fmt: skip
        with pytest.raises(ValueError, match=r"labels are (text|times)|Complex data"):
            DOORS[door](y, ledger)
    assert ledger.total().epsilon == 0
    # Numbers of the same ledger are taken: it was the type.
    DOORS[door]((WORDS == "1").astype(float), ledger)
    assert (ledger.total().epsilon > 0) == (door != "semi-sensitive")


def test_a_table_refuses_dates_for_a_numeric_label(tmp_path):
    columns = {
        "x": {"role": "public", "lower": -1, "upper": 1},
        "y": {"role": "label", "lower": 0, "upper": 1},
    }
    frame = pd.DataFrame({"x": X[:, 0], "y": DAYS})
    schema = Schema.from_dict({"columns": columns})
    frame.to_parquet(tmp_path / "days.parquet")
    for read in (
        lambda: Table.from_frame(frame, schema),
        lambda: Table.from_frame(pl.DataFrame(frame), schema),
        lambda: Table.read(tmp_path / "days.parquet", schema),
        lambda: Table.scan(tmp_path / "days.parquet", schema),
    ):
        with pytest.raises(DataError, match="'y' is declared numeric, and its cells are times"):
            read()
    # What cells of text and of objects spell is read as in a CSV file, and decides nothing here.
    for y in (WORDS, WORDS.astype(object), [datetime.date(2020, 1, 1)] * N):
        table = Table.from_frame(pd.DataFrame({"x": X[:, 0], "y": pd.Series(y, dtype=object)}), schema)
        assert train(table, epsilon=1, delta=1e-6).guarantee.epsilon == 1


@pytest.mark.parametrize(
    "bounds", ["05", b"05", {0, 5}, {0: 1, 5: 1}, ("0", "5"), None, 5, (5, 0), (0, np.nan)]
)
def test_bounds_are_two_numbers_in_order(bounds):
    for make in (
        lambda: PrivateRegressor(1, 1e-6, target_bounds=bounds).fit(X, X[:, 0]),
        lambda: PrivateLabelRegressor(Ridge(), "rounding", 1, target_bounds=bounds).fit(X, X[:, 0]),
        lambda: SGDRequest(1, 1e-6, target_bounds=bounds),
    ):
        with pytest.raises(ParameterError):
            make()


@pytest.mark.parametrize("classes", [{0, 1}, [0.5, float("nan")], "01"])
def test_classes_have_an_order(classes):
    for make in (
        lambda: PrivateClassifier(1, 1e-6, classes=classes).fit(X, [0] * N),
        lambda: PrivateLabelClassifier(LogisticRegression(), epsilon=1, classes=classes).fit(X, [0] * N),
        lambda: SGDRequest(1, 1e-6, classes=classes),
        lambda: SubsetSelector(1, 1, loss="logistic", classes=classes, **BOX).fit(X, [0] * N),
        lambda: SparseClassifier(1, 1, classes=classes, **BOX).fit(X, [0] * N),
    ):
        with pytest.raises(ParameterError, match="'classes' parameter"):
            make()


def test_an_epsilon_in_a_candidate_is_refused_whatever_it_is():
    for epsilon in (1, 2):
        with pytest.raises(ParameterError, match="sets 'epsilon'"):
            tune(
                lambda c, e=epsilon: PrivateRegressor(e, target_bounds=(0, 1)), [1], X=X, y=X[:, 0],
                epsilon=2, delta=1e-6, expected_runs=1,
            )  # fmt: skip


def test_a_result_of_steps_is_shown_in_a_line():
    result = fit(X, None, X[:, 0], SGDRequest(1, 1e-6, target_bounds=(0, 1), steps=2))
    assert repr(result).startswith("SGDResult(Linear of 3 parameters, 2 steps, released; Differentially")
    assert repr(result.model) == "SGDModel(Linear of a number, 2 public and 0 private columns, 3 parameters)"


@pytest.mark.parametrize("X", [
    {"a": [1.0] * N}, [{"a": 1.0}] * N, pl.DataFrame({"a": [1.0] * N}).lazy(), pd.DataFrame(index=range(N)),
    pd.DataFrame(np.zeros((N, 2)), columns=["a", "a"]), pd.DataFrame({"a": ["x"] * N}),
], ids=["dict", "records", "lazy", "no column", "twice", "text"])  # fmt: skip
def test_features_are_refused_in_words_of_ours(X, label_book):
    y = np.zeros(N)
    for model in (
        PrivateRegressor(1, 1e-6, target_bounds=(0, 1), ledger=label_book),
        PrivateClassifier(1, 1e-6, classes=[0, 1], ledger=label_book),
        WeightedLLPRegressor(1, 1e-6, target_bounds=(0, 1), ledger=label_book),
    ):
        with pytest.raises(DataError):
            model.fit(X, y)
    assert label_book.total().epsilon == 0


def test_paths_that_are_none(tmp_path):
    schema = Schema.from_dict({"columns": {"a": {"role": "public", "lower": 0, "upper": 1}}})
    for read in (Table.read, Table.scan):
        with pytest.raises(DataError, match="from_frame"):
            read(pd.DataFrame({"a": [1]}), schema)
    for reader in (LinearModel, TableModel):
        with pytest.raises(DataError, match="cannot be read"):
            reader.load(tmp_path / "none.json")
