"""Labels and scores: one odd cell changes one gain, and raises nothing after the charge."""

import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import confide
from confide.errors import DataError, ParameterError
from confide.mechanisms import seeded_stream
from confide.tune.scoring import Scoring, rows_of


class Hostile:
    def __eq__(self, other):
        raise RuntimeError("secret")

    def __hash__(self):
        raise RuntimeError("secret")

    def __float__(self):
        raise RuntimeError("secret")

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("secret")


class Equal:
    """Equal to all, by its own word."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return np.array([True, True])


ODD = [
    "x",
    1j,
    [2],
    [1, 2],
    None,
    pd.NA,
    np.zeros(3),
    Hostile(),
    Equal(),
    Decimal("sNaN"),
    10**400,
    b"\xff",
    {},
]


def name_of(cell):
    return type(cell).__name__


@pytest.mark.parametrize("odd", ODD, ids=name_of)
@pytest.mark.parametrize("kind", ["squared", "accuracy"])
def test_an_odd_label_in_a_list_changes_one_gain(odd, kind):
    y = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    other = [*y[:3], odd, *y[4:]]
    scoring = Scoring(kind, (0.0, 1.0), 0.5, Fraction(1), Fraction(0), (0.0, 1.0))
    X, places = np.zeros((6, 1)), np.arange(6)
    predicted = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a, b = (scoring.gains(predicted, rows_of(None, X, values).labels(places)) for values in (y, other))
    assert set(np.flatnonzero(a != b)) <= {3}
    assert ((b >= 0) & (b <= 1)).all()
    assert a[4] == b[4] == 1


@pytest.mark.parametrize("odd", ODD, ids=name_of)
def test_an_odd_label_in_a_series_changes_one_gain(odd):
    y = pd.Series(["a", "b"] * 3, dtype=object)
    other = y.copy()
    other.iat[3] = odd
    scoring = Scoring("accuracy", (0.0, 1.0), 0.5, Fraction(1), Fraction(0), ("a", "b"))
    X, places = np.zeros((6, 1)), np.arange(6)
    a, b = (scoring.gains(np.array(["a", "b"] * 3), rows_of(None, X, v).labels(places)) for v in (y, other))
    assert a.tolist() == [1] * 6
    assert b.tolist() == [1, 1, 1, 0, 1, 1]  # unknown counts as the first class, as in the fit


def test_a_missing_integer_leaves_the_others_exact():
    # As floats 2^53 + 1 would be 2^53.
    big = 2**53 + 1
    y = pd.Series([big, 0, None], dtype="Int64")
    scoring = Scoring("accuracy", (0.0, 1.0), 0.5, Fraction(1), Fraction(0), (0, big))
    labels = rows_of(None, np.zeros((3, 1)), y).labels(np.arange(3))
    assert scoring.gains(np.array([big, 0, big]), labels).tolist() == [1, 1, 0]


@pytest.mark.parametrize("odd", ["x", 1j, [2], pd.NA, Hostile()], ids=name_of)
def test_a_whole_tuning_survives_an_odd_label(odd):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] > 0).astype(int).tolist()
    runs = []
    for labels in (y, [*y[:-1], odd]):
        result = confide.tune(
            lambda c: confide.PrivateClassifier(classes=[0, 1], engine="closed_form", leverage=c),
            [None, 1.0], X, labels, epsilon=50, delta=1e-6, expected_runs=2, score="accuracy", random_state=0,
        )  # fmt: skip
        runs.append(result.score)
    assert abs(runs[0] - runs[1]) <= 1.5 / 40  # one label of a list that would have become text: all of them


def test_the_noise_is_laplace_without_delta():
    # Recorded at one seed: the release without delta is that of a discrete Laplace, integers on a grid.
    scoring = Scoring("accuracy", (0.0, 1.0), 0.5, Fraction(1), Fraction(0), ("a", "b"))
    y = np.array(["a"] * 50)
    values = np.array([scoring.release(y, y, seeded_stream(i)) for i in range(400)]) - 50
    assert np.mean(np.abs(values)) == pytest.approx(1.0, abs=0.2)  # a Gaussian of this deviation: 1.13
    assert np.mean(values**4) / np.mean(values**2) ** 2 > 3.8  # 6 for Laplace, 3 for a Gaussian


def test_classes_ask_for_accuracy():
    X, y = np.zeros((20, 2)), ["a", "b"] * 10

    def make(c):
        return confide.PrivateClassifier(classes=["a", "b"] if c else ["b", "a"], engine="closed_form")

    options = {"epsilon": 1, "delta": 1e-6, "expected_runs": 1}
    with pytest.raises(ParameterError, match="score='accuracy'"):
        confide.tune(make, [1], X, y, **options)
    with pytest.raises(ParameterError, match="share their 'classes'"):
        confide.tune(make, [0, 1], X, y, score="accuracy", **options)
    with pytest.raises(ParameterError, match="declares no classes"):
        confide.tune(
            lambda c: confide.PrivateRegressor(target_bounds=(0, 1)),
            [1],
            X,
            np.zeros(20),
            score="accuracy",
            **options,
        )


@pytest.mark.parametrize("form", [np.asarray, pd.Series])
def test_labels_whose_type_is_no_class_are_refused_before_the_charge(form, tmp_path):
    book = confide.Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="d", epsilon=1, delta=1e-6, adjacency="replace_label"
    )
    options = {"epsilon": 1, "delta": 1e-6, "expected_runs": 1, "ledger": book}
    X = np.zeros((20, 2))
    with pytest.raises(DataError, match="no label can be either class"):
        confide.tune(
            lambda c: confide.PrivateClassifier(classes=["a", "b"], engine="closed_form"), [1], X,
            form(np.zeros(20)), score="accuracy", **options,
        )  # fmt: skip
    with pytest.raises(DataError, match="labels are text"):
        confide.tune(
            lambda c: confide.PrivateRegressor(target_bounds=(0, 1)), [1], X, np.array(["1"] * 20), **options
        )
    assert book.remaining().epsilon == 1


def test_a_table_of_classes_is_fitted_and_scored_by_category():
    x = np.random.default_rng(0).uniform(-3, 3, 400)
    columns = {
        "x": {"role": "public", "lower": -3, "upper": 3},
        "y": {"role": "label", "categories": ["b", "a"]},
    }
    schema = confide.Schema.from_dict({"table": {}, "columns": columns})
    table = confide.Table.from_frame(pd.DataFrame({"x": x, "y": np.where(x > 0, "b", "a")}), schema)

    def tuned(classes, score="accuracy"):
        return confide.tune(
            lambda c: confide.PrivateClassifier(classes=classes, engine="closed_form"), [1], table,
            epsilon=20, delta=1e-6, expected_runs=2, score=score, random_state=0,
        )  # fmt: skip

    for classes in (["a", "b"], ["b", "a"]):
        result = tuned(classes)
        assert result.score > 0.9
        assert np.mean(result.model.predict(table.public.matrix) == np.where(x > 0, "b", "a")) > 0.9
    with pytest.raises(ParameterError, match="label's categories"):
        tuned([0, 1])
    with pytest.raises(ParameterError, match="score='accuracy'"):
        confide.tune(
            lambda c: confide.PrivateRegressor(target_bounds=(0, 1)), [1], table, epsilon=1, delta=1e-6,
            expected_runs=1,
        )  # fmt: skip
