"""Labels and scores: one odd cell changes one gain, and raises nothing after the charge."""

import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import confide
from confide.errors import DataError, ParameterError
from confide.mechanisms import round_toward_zero, seeded_stream
from confide.pipeline import SparseRegressor
from confide.training import PrivateClassifier, PrivateRegressor
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


SECRET = {
    "adjacency": "add_remove_one",
    "feature_bounds": (-1, 1),
    "random_state": 0,
    "epsilon": 50,
    "delta": 1e-6,
}
NUMBERS = {**SECRET, "target_bounds": (-1, 1)}
STEPS = {"engine": "dpsgd", "steps": 2, "max_rows": 200}
#: What tune takes whose rows may come and go.
ESTIMATORS = {
    "adassp": lambda: PrivateRegressor(**NUMBERS, engine="adassp"),
    "boosted_adassp": lambda: PrivateRegressor(**NUMBERS, engine="boosted_adassp"),
    "objective": lambda: PrivateClassifier(**SECRET, classes=[0, 1], engine="objective"),
    "dpsgd": lambda: PrivateRegressor(**NUMBERS, **STEPS),
    "dpsgd, classes": lambda: PrivateClassifier(**SECRET, classes=[0, 1, 2], **STEPS),
    "factorisation machine": lambda: PrivateRegressor(**NUMBERS, **STEPS, model="fm"),
    **{
        f"network, {name}": lambda name=name: PrivateRegressor(**NUMBERS, **STEPS, model="mlp", activation=name)
        for name in ("relu", "tanh", "gelu")
    },
    "network, classes": lambda: PrivateClassifier(**SECRET, classes=[0, 1, 2], **STEPS, model="mlp", hidden=(5,)),
    "support": lambda: SparseRegressor(
        size=4, epsilon=50, delta=1e-6, adjacency="add_remove_one", feature_bounds=(-1, 1), target_bounds=(-1, 1),
        random_state=0,
    ),
}  # fmt: skip


def fitted(name, d=7, n=200):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (n, d))
    y = np.clip(0.3 * X @ rng.normal(size=d), -1, 1)
    model = ESTIMATORS[name]()
    if isinstance(model, PrivateClassifier):
        y = np.arange(n) % len(model.classes)
    return model.fit(X, y)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_prediction_is_of_its_row_alone(name):
    model = fitted(name)
    told = model.decision_function if isinstance(model, PrivateClassifier) else model.predict
    X = np.random.default_rng(2).uniform(-1, 1, (600, 7))
    for layout in (np.ascontiguousarray, np.asfortranarray):
        whole = told(layout(X))
        for part in (slice(0, 1), slice(1, 600), slice(3, 7), slice(599, 600), slice(300, 583)):
            np.testing.assert_array_equal(told(layout(X[part])), whole[part])


@pytest.mark.parametrize("name", ["adassp", "dpsgd", "network, relu"])
def test_a_row_that_comes_moves_no_gain_of_another(name):
    """Labels at which a last bit of the prediction decides a gain's step; once it moved 1.000000011."""
    scoring = Scoring("absolute", (-1.0, 1.0), 0.5, Fraction(1), Fraction(1, 10**6))
    model, rng = fitted(name), np.random.default_rng(3)

    def total(X, y):
        return int(round_toward_zero(scoring.gains(model.predict(X), y), scoring.step).sum())

    for n in (1, 3, 3, 3, 5, 5):
        row = rng.uniform(-1, 1, 7)
        few, more = np.tile(row, (n, 1)), np.tile(row, (n + 1, 1))
        for distance in scoring.width * (0.125 + scoring.step * np.arange(12)):
            edge = model.predict(few) - distance
            for y in (edge, np.nextafter(edge, 2), np.nextafter(edge, -2)):
                own = total(more[:1], model.predict(more)[:1])
                moved = total(more, np.append(model.predict(more)[0], y)) - total(few, y)
                assert moved == own == round(1 / scoring.step)
