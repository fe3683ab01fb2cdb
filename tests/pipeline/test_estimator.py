"""SparseRegressor and SparseClassifier: one charge, two releases, the scikit-learn contract."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import confide
from confide.errors import BudgetError, DataError, ParameterError, UncertifiedWarning, UnsupportedError
from confide.ledger import Ledger
from confide.pipeline import SparseClassifier, SparseRegressor
from confide.privacy import Event


def data(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 6))
    return X, X @ [0, 1.0, 0, 0, -1.0, 0] + 0.3 + 0.1 * rng.normal(size=n)


def regressor(**changes):
    options = {"size": 2, "epsilon": 8, "feature_bounds": (-1, 1), "target_bounds": (-3, 3)}
    return SparseRegressor(**{**options, **changes})


def classifier(**changes):
    options = {"size": 2, "epsilon": 8, "feature_bounds": (-1, 1), "classes": ("ill", "well")}
    return SparseClassifier(**{**options, **changes})


def words(y):
    return np.where(y > 0.3, "well", "ill")


def reasons(estimator):
    secret = "values are secret: whether one is missing, infinite or no number must not show in an exception"
    found = {
        "check_dtype_object": f"{secret}: an object that is no number counts as missing (pitfall F43)",
        "check_estimators_empty_data_messages": "the number of rows is secret under add_remove_one: no rows "
        "is a table like any other",
        "check_supervised_y_no_nan": f"{secret}, those of labels too (pitfall F43)",
    }
    if isinstance(estimator, SparseClassifier):
        public = "classes are a public argument, never read from y: y with other values counts as the first"
        found["check_classifiers_classes"] = f"{public}; the check fits other classes than the declared"
        found["check_classifiers_regression_target"] = f"{public} (pitfall F42)"
        found["check_classifier_not_supporting_multiclass"] = f"{public} (pitfall F42)"
    return found


@parametrize_with_checks(
    [
        SparseRegressor(1, 1e6, feature_bounds=(-10, 10), target_bounds=(-10, 10), random_state=0),
        SparseClassifier(1, 1e6, classes=(0, 1), feature_bounds=(-10, 10), random_state=0),
    ],
    expected_failed_checks=reasons,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_selects_and_fits():
    X, y = data()
    model = regressor().fit(X, y)
    np.testing.assert_array_equal(model.support_, [1, 4])
    np.testing.assert_allclose(model.coef_, [0, 1, 0, 0, -1, 0], atol=0.06)
    assert model.intercept_ == pytest.approx(0.3, abs=0.03)
    np.testing.assert_allclose(model.predict(X), np.clip(X @ model.coef_ + model.intercept_, -3, 3))
    assert model.selection_.indices == (1, 4)
    assert model.coefficients_.method == "objective"
    assert model.coefficients_.loss == "huber"


@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize("split", [None, 0.2, "1/3"])
def test_the_guarantee_is_the_sum_of_both_parts(delta, split):
    X, y = data(300)
    model = regressor(epsilon=0.7, delta=delta, split=split).fit(X, y)
    told = model.guarantee_
    assert told.epsilon == Fraction(7, 10)
    assert told.delta == 0  # the noise of two columns is that of pure epsilon
    assert told.assumptions == ("unrecorded",)
    first, second = told.event.parts
    part = Fraction(7, 10) * Fraction(split if isinstance(split, str) else str(split or "0.5"))
    assert first == Event.of("exponential", epsilon=str(part))
    assert model.selection_.guarantee.epsilon == part
    assert model.coefficients_.epsilon == Fraction(7, 10) - part
    assert second == model.coefficients_.event


def test_awkward_amounts_add_up():
    X, y = data(50)
    model = regressor(epsilon="1/3", split="0.123456789012345678901234567890123456789012345").fit(X, y)
    assert model.selection_.guarantee.epsilon + model.coefficients_.epsilon == Fraction(1, 3)


@pytest.mark.parametrize("given", [{"size": 6}, {"support": [4, 1]}])
def test_a_public_support_costs_nothing(given):
    """size = p, and a named support: all of epsilon goes to the coefficients."""
    X, y = data(300)
    model = regressor(epsilon=1, **given).fit(X, y)
    assert model.selection_ is None
    assert model.coefficients_.epsilon == 1
    assert model.guarantee_.epsilon == 1
    assert model.guarantee_.event == model.coefficients_.event
    assert model.guarantee_.assumptions == ("unrecorded",)
    np.testing.assert_array_equal(model.support_, sorted(given.get("support", range(6))))


def test_noise_is_the_lesser_of_the_two_by_public_numbers():
    X, y = data(100)
    kinds = [regressor(delta=delta).fit(X, y).coefficients_.event.parts[0].mechanism for delta in (0, 1e-6)]
    assert kinds == ["pure", "pure"]
    ask = {"epsilon": 1, "delta": 1e-4, "size": 60, "support": list(range(60))}
    wide = regressor(**ask).fit(np.zeros((50, 64)), np.zeros(50))
    assert wide.coefficients_.event.parts[0].mechanism == "approximate"


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one", "replace_label"])
@pytest.mark.parametrize("coefficients", ["objective", "sufficient_statistics"])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_every_combination_is_near_the_truth(adjacency, coefficients, delta):
    X, y = data(20_000)
    ask = {"adjacency": adjacency, "coefficients": coefficients, "delta": delta, "fit_intercept": True}
    model = regressor(**ask).fit(X, y)
    np.testing.assert_allclose(model.coef_, [0, 1, 0, 0, -1, 0], atol=0.05)
    assert model.coefficients_.method == coefficients
    assert model.guarantee_.adjacency.value == adjacency
    plain = regressor(**{**ask, "fit_intercept": False}).fit(X, y)
    assert plain.intercept_ == 0


@pytest.mark.parametrize("loss", ["quantile", ("quantile", 0.9), ("huber", 0.1), "squared"])
def test_losses_of_the_coefficients(loss):
    X, y = data(20_000)
    model = regressor(coefficient_loss=loss).fit(X, y)
    np.testing.assert_allclose(model.coef_, [0, 1, 0, 0, -1, 0], atol=0.1)


def test_bounds_are_undone():
    """Asymmetric bounds by column and of the target: coefficients are in units of the data."""
    X, y = data(20_000)
    low, high = np.array([0, -1, -5, 0, 2, -3.0]), np.array([1, 3, 0, 10, 4, 3.0])
    raw = (X + 1) / 2 * (high - low) + low
    for delta, coefficients in ((0, "objective"), (1e-6, "sufficient_statistics")):
        ask = {"delta": delta, "coefficients": coefficients, "feature_bounds": (low, high)}
        model = regressor(**ask, target_bounds=(4, 20)).fit(raw, 2 * y + 12)
        expected = 2 * np.array([0, 1.0, 0, 0, -1.0, 0]) * 2 / (high - low)
        np.testing.assert_allclose(model.coef_, expected, atol=0.15)
        inside = np.abs(model.predict(raw) - 12) < 7.9
        np.testing.assert_allclose(
            model.predict(raw)[inside], (raw @ model.coef_ + model.intercept_)[inside], rtol=1e-9
        )


def test_predictions_are_clipped_and_never_nan():
    X, y = data(500)
    model = regressor(target_bounds=(-1, 1)).fit(X, y)
    odd = np.array([[1e308] * 6, [np.nan] * 6, [-np.inf] * 6, [0, 1, 0, 0, -1, 0]])
    predictions = model.predict(odd)
    assert np.isfinite(predictions).all()
    assert np.abs(predictions).max() <= 1
    assert predictions[3] == 1


@pytest.mark.parametrize("loss", [None, "logistic", "hinge", "squared"])
def test_classes(loss):
    X, y = data()
    model = classifier(coefficient_loss=loss).fit(X, words(y))
    np.testing.assert_array_equal(model.support_, [1, 4])
    assert list(model.classes_) == ["ill", "well"]
    predicted = model.predict(X)
    assert (predicted == words(y)).mean() > 0.95
    np.testing.assert_array_equal(predicted == "well", model.decision_function(X) > 0)
    np.testing.assert_allclose(model.decision_function(X), X @ model.coef_ + model.intercept_, atol=1e-12)
    if loss == "hinge":
        assert not hasattr(model, "predict_proba")
    else:
        shares = model.predict_proba(X)
        np.testing.assert_allclose(shares.sum(axis=1), 1)
        np.testing.assert_array_equal(shares[:, 1] > 0.5, predicted == "well")


def test_classes_are_public_and_the_second_is_positive():
    X, y = data(400)
    ask = {"random_state": 4, "epsilon": 1}
    coefs = [
        classifier(**ask).fit(X, words(y)).coef_,
        classifier(**ask).fit(X, words(y).astype(object)).coef_,
        classifier(**ask).fit(X, words(y).tolist()).coef_,
        classifier(classes=(0, 1), **ask).fit(X, (y > 0.3).astype(int)).coef_,
    ]
    for other in coefs[1:]:
        np.testing.assert_array_equal(coefs[0], other)
    # One class only: the same path (pitfall F42).
    assert classifier().fit(X, np.full(400, "ill")).predict(X).shape == (400,)
    zero = classifier(support=[0, 2], fit_intercept=False).fit(X, words(y))
    assert zero.predict(np.zeros((1, 6)))[0] == "ill"  # a score of exactly 0 is the first class


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"size": 0}, "size"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": np.inf}, "epsilon"),
        ({"delta": 1}, "delta"),
        ({"delta": -1}, "delta"),
        ({"split": 0}, "split"),
        ({"split": 1}, "split"),
        ({"split": "x"}, "split"),
        ({"support": [0]}, "support"),
        ({"support": [0, 0]}, "support"),
        ({"support": [-1, 0]}, "support"),
        ({"support": [0.5, 1]}, "support"),
        ({"mechanism": "lasso"}, "mechanism"),
        ({"coefficients": "closed_form"}, "closed_form"),
        ({"coefficients": "rounds"}, "rounds"),
        ({"coefficients": "ols"}, "coefficients"),
        ({"coefficient_loss": "logistic"}, "coefficient_loss"),
        ({"coefficient_loss": ("huber", -1.0)}, "loss"),
        ({"coefficients": "sufficient_statistics", "coefficient_loss": "huber"}, "coefficient_loss"),
        ({"coefficients": "sufficient_statistics", "coefficient_ridge": 1.0}, "coefficient_ridge"),
        ({"coefficient_ridge": 1e-9}, "ridge"),
        ({"row_norm": 0}, "row_norm"),
        ({"row_norm": "1"}, "row_norm"),
        ({"feature_bounds": None}, "feature_bounds"),
        ({"target_bounds": None}, "target_bounds"),
        ({"target_bounds": ([0.0], [1.0])}, "target_bounds"),
        ({"loss": "hinge"}, "loss"),
        ({"adjacency": "nearby"}, "adjacency"),
        ({"max_rows_per_person": 0}, "rows of one unit"),
        ({"random_state": "0"}, "random_state"),
    ],
    ids=str,
)
def test_parameters_are_checked_before_any_data_are_read(changes, word):
    class Unreadable:
        """Whoever touches this has read data."""

        def __getattr__(self, name):
            raise AssertionError(f"data were read: {name}")

        def __array__(self, *args, **kwargs):
            raise AssertionError("data were read")

    with pytest.raises((ParameterError, UnsupportedError)) as info:
        regressor(**changes).fit(Unreadable(), Unreadable())
    assert word in str(info.value)
    assert info.value.remedy
    if word in ("closed_form", "rounds"):
        assert "not private here" in str(info.value)


@pytest.mark.parametrize("classes", [None, "ab", ("a",), ("a", "a"), (0, 1, 2)])
def test_classes_are_required(classes):
    with pytest.raises(ParameterError, match="classes"):
        classifier(classes=classes).fit(*data(10))


def test_one_charge_for_both_and_a_refusal_leaves_nothing(tmp_path):
    X, y = data(100)
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="x", epsilon=2, delta=1e-5, adjacency="replace_one"
    )
    model = regressor(epsilon=1, delta=1e-6, ledger=ledger)
    for twin in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.get_params()["ledger"] == ledger
    fitted = clone(model).fit(X, y)
    assert fitted.guarantee_.assumptions == ()
    assert fitted.entry_ == fitted.selection_.entry != ""
    assert str(ledger.total().epsilon) == "1"
    assert ledger.total().delta == 0  # the noise of few columns is that of pure epsilon
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    regressor(epsilon=1, ledger=ledger).fit(X, y)
    with pytest.raises(BudgetError):
        fitted.fit(X, y)
    with pytest.raises(NotFittedError):
        fitted.predict(X)
    assert not [name for name in vars(fitted) if name.endswith("_") and not name.startswith("_")]
    assert str(ledger.total().epsilon) == "2"


def test_what_is_public_is_checked_before_the_charge(tmp_path):
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="x", epsilon=100, delta=0, adjacency="replace_one"
    )
    X, y = data(30)
    for changes, A, b, kind in (
        ({"size": 7}, X, y, ParameterError),
        ({"support": [0, 6]}, X, y, ParameterError),
        ({"feature_bounds": (np.zeros(5), np.ones(5))}, X, y, ParameterError),
        ({}, X, y[:-1], ValueError),
        ({}, X, np.column_stack([y, y]), ValueError),
        ({}, X, y + 1j, ValueError),
        ({}, X.astype(str), y, ValueError),
        ({}, X[0], y, ValueError),
        ({}, X, None, ValueError),
        ({}, pd.DataFrame(X, columns=list("abbcde")), y, DataError),
    ):
        with pytest.raises(kind):
            regressor(ledger=ledger, **changes).fit(A, b)
    with pytest.raises(ValueError, match="label"):
        classifier(ledger=ledger).fit(X, y[:-1])
    with pytest.raises(TypeError, match="sample_weight"):
        regressor(ledger=ledger).fit(X, y, sample_weight=np.ones(30))
    assert ledger.total().epsilon == 0


@pytest.mark.parametrize("make", [regressor, classifier])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
def test_neighbours_take_the_same_path(make, adjacency, tmp_path):
    """Same guarantee, same charge, no exception, no warning, whatever a row holds."""
    X, y = data(60)
    told = set()
    for number, row in enumerate(([1e308] * 6, [np.nan] * 6, [np.inf] * 6, [-1e6] * 6, [0] * 6)):
        V, u = X.copy(), y.astype(object)
        V[7] = row
        u[7] = (1e308, "text", None, np.nan, -np.inf)[number]
        ledger = Ledger.open(
            f"sqlite:///{tmp_path}/{number}.db", dataset="x", epsilon=9, delta=0, adjacency=adjacency
        )
        with np.errstate(all="raise"):
            model = make(epsilon=1, adjacency=adjacency, ledger=ledger).fit(V, u)
        assert np.isfinite(model.coef_).all()
        told.add((str(model.guarantee_), model.guarantee_.event.to_json(), str(ledger.total().epsilon)))
    assert len(told) == 1


def test_seeds_repeat_and_entropy_does_not():
    X, y = data(100)
    same = [regressor(random_state=5).fit(X, y).coef_ for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.array_equal(regressor().fit(X, y).coef_, regressor().fit(X, y).coef_)
    assert regressor(random_state=1).fit(X, y).guarantee_.assumptions == ("seeded", "unrecorded")


def test_frames_arrays_sparse_and_parquet_agree(tmp_path):
    X, y = data(200)
    ask = {"epsilon": 1, "random_state": 3}
    expected = regressor(**ask).fit(X, y)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame.to_parquet(tmp_path / "x.parquet")
    lazy = confide.selection.ParquetMatrix(tmp_path / "x.parquet")
    for A, b in (
        (frame, pd.Series(y)),
        (sparse.csr_matrix(X), y),
        (sparse.csc_matrix(X), y),
        (X.tolist(), y.tolist()),
        (X.astype(object), y.astype(object)),
        (np.asfortranarray(X), y[:, None].ravel()),
        (lazy, y),
    ):
        model = regressor(**ask).fit(A, b)
        np.testing.assert_array_equal(model.coef_, expected.coef_)
        np.testing.assert_allclose(model.predict(A), expected.predict(X), rtol=1e-12)
    assert list(regressor(**ask).fit(frame, y).feature_names_in_) == list("abcdef")


def test_persons():
    X, y = data(90)
    model = regressor(epsilon=3, max_rows_per_person=3).fit(X, y)
    assert model.guarantee_.unit == "person"
    assert "at most 3 rows a person" in model.guarantee_.assumptions
    one = regressor(epsilon=1).fit(X, y)
    facts, single = dict(model.coefficients_.facts), dict(one.coefficients_.facts)
    assert facts["noise_objective"] == single["noise_objective"]


def test_conditions_of_a_mechanism_stay_in_the_guarantee():
    X, y = data(300)
    model = regressor(mechanism="mistakes").fit(X, y)
    assert "gap condition" in model.guarantee_.assumptions


@pytest.mark.parametrize("make", [regressor, classifier])
def test_score_warns(make):
    X, y = data(500)
    target = y if make is regressor else words(y)
    model = make().fit(X, target)
    with pytest.warns(UncertifiedWarning, match="public labels only"):
        assert model.score(X, target) > 0.8


def test_repr_holds_no_data():
    X, y = data(20)
    y[0] = 3.14159
    assert "3.14159" not in repr(regressor().fit(X, y))


def test_top_level_names():
    assert confide.SparseRegressor is SparseRegressor
    assert confide.SparseClassifier is SparseClassifier


def test_bounds_by_name():
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"b": rng.uniform(0, 10, 2000), "a": rng.uniform(-1, 1, 2000)})
    y = X.a + 0.1 * X.b
    bounds = {"a": (-1, 1), "b": (0, 10)}
    options = {"size": 1, "target_bounds": (-1, 2), "random_state": 3}
    by_name = regressor(feature_bounds=bounds, **options).fit(X, y)
    by_place = regressor(feature_bounds=([0, -1], [10, 1]), **options).fit(X, y)
    np.testing.assert_array_equal(by_name.coef_, by_place.coef_)
    series = (pd.Series({"a": -1, "b": 0}), pd.Series({"a": 1, "b": 10}))
    np.testing.assert_array_equal(regressor(feature_bounds=series, **options).fit(X, y).coef_, by_place.coef_)
    np.testing.assert_array_equal(by_name.predict(X), by_place.predict(X))
    assert clone(by_name).feature_bounds == bounds


def test_a_public_support_takes_no_options_of_a_selection():
    X, y = data(50)
    for name, value in (("split", 0.5), ("mechanism", "top_r"), ("radius", 2.0), ("loss", "huber")):
        with pytest.raises(ParameterError, match=f"'{name}'.*public 'support'"):
            regressor(support=[1, 4], **{name: value}).fit(X, y)
    regressor(support=[1, 4]).fit(X, y)


@pytest.mark.parametrize("many", [17, 99])
def test_a_size_beyond_the_columns_names_the_columns(many):
    X = np.zeros((50, 16))
    with pytest.raises(ParameterError, match=r"of 16 encoded columns.*at most 16"):
        regressor(size=many).fit(X, np.zeros(50))


def test_types_that_can_hold_no_class_are_refused_before_the_charge(tmp_path):
    X, y = data(60)
    ledger = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="a", epsilon=20, adjacency="replace_one")
    with pytest.raises(DataError, match=r"numbers \(type float64\)"):
        classifier(ledger=ledger).fit(X, y)
    with pytest.raises(DataError, match="text"):
        classifier(classes=(0, 1), ledger=ledger).fit(X, words(y))
    assert ledger.total().epsilon == 0
    # What a cell may bring about decides nothing: objects, and lists, pass whatever they hold.
    for labels in (words(y).astype(object), words(y).tolist()):
        classifier(classes=(0, 1)).fit(X, labels)


def test_dates_are_refused_by_their_type():
    X, y = data(60)
    frame = pd.DataFrame(X[:, :3], columns=list("abc")).assign(d=pd.Timestamp("2020-01-01"))
    polars = pytest.importorskip("polars")
    for given in (frame, frame.assign(d=frame.d.dt.tz_localize("UTC")), polars.DataFrame(frame)):
        with pytest.raises(DataError, match="'d' holds dates"):
            regressor().fit(given, y)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
def test_a_delta_that_buys_nothing_is_not_charged(adjacency, recwarn, tmp_path):
    """Public numbers choose the noise: where it is that of pure epsilon, no delta is spent."""
    X, y = data(60)
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="x", epsilon=99, delta=1e-6, adjacency=adjacency
    )
    model = regressor(delta=1e-6, ledger=ledger, adjacency=adjacency).fit(X, y)
    assert model.guarantee_.delta == 0 == ledger.total().delta
    assert model.coefficients_.event.parts[0].mechanism == "pure"
    given = {"coefficients": "sufficient_statistics", "size": 4, "delta": 1e-6, "adjacency": adjacency}
    model = regressor(ledger=ledger, **given).fit(X, y)
    assert model.guarantee_.delta == Fraction("1e-6") == ledger.total().delta
    assert not recwarn.list
