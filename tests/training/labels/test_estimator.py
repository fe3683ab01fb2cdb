from __future__ import annotations

import copy
import math
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from confide.errors import (
    BudgetError,
    DataError,
    ParameterError,
    RefusedError,
    UncertifiedWarning,
    UnsupportedError,
)
from confide.ledger import Ledger
from confide.privacy import pure_cost
from confide.training import (
    LabelPrivatizer,
    PrivateLabelClassifier,
    PrivateLabelRegressor,
    WeightedLLPRegressor,
)

BOUNDS = (-4.0, 4.0)
NUMERIC = ("rr_on_bins", "rounding", "laplace", "gaussian")


def data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.clip(X @ [1.0, -0.5, 0.0] + 0.2 * rng.normal(size=n), *BOUNDS)


def delta_of(method):
    return 1e-6 if method == "gaussian" else 0


def privatizer(method="rr_on_bins", **changes):
    bounds = {"classes": (0, 1, 2)} if method == "randomized_response" else {"target_bounds": BOUNDS}
    return LabelPrivatizer(method, 1, delta_of(method), **{**bounds, **changes})


def ledger(tmp_path, epsilon=3, **changes):
    options = {"dataset": "a", "epsilon": epsilon, "delta": 1e-5, "adjacency": "replace_label"}
    return Ledger.open(f"sqlite:///{tmp_path}/l.db", **{**options, **changes})


def reasons(_estimator):
    return {
        "check_supervised_y_no_nan": "labels are secret: whether one is missing or infinite must not show in an "
        "exception, so that they are imputed and clipped (pitfalls F43, K15)",
    }


@parametrize_with_checks(
    [
        PrivateLabelRegressor(epsilon=1e6, target_bounds=(-1e3, 1e3), random_state=0),
        PrivateLabelRegressor(method="rounding", epsilon=1e6, target_bounds=(-1e3, 1e3), random_state=0),
        WeightedLLPRegressor(1e6, 0.1, target_bounds=(-1e3, 1e3), random_state=0),
    ],
    expected_failed_checks=reasons,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", [*NUMERIC, "randomized_response"])
def test_private_labels(method):
    _, y = data()
    y = y if method != "randomized_response" else np.arange(400) % 3
    model = privatizer(method)
    out = model.fit_transform(y)
    assert out.shape == (400,)
    assert model.guarantee_.epsilon == 1
    assert model.guarantee_.delta == Fraction(str(delta_of(method)) if delta_of(method) else 0)
    assert model.guarantee_.assumptions == ("unrecorded",)
    if method != "gaussian":
        assert pure_cost(model.guarantee_.event) == 1
    assert not np.array_equal(out, privatizer(method).fit_transform(y))
    same = [privatizer(method, random_state=1).fit_transform(y) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    seeded = privatizer(method, random_state=1)
    seeded.fit_transform(y)
    assert seeded.guarantee_.assumptions == ("seeded", "unrecorded")


class Unreadable:
    """Whoever touches this has read data."""

    def __getattr__(self, name):
        raise AssertionError(f"data were read: {name}")

    def __array__(self, *args, **kwargs):
        raise AssertionError("data were read")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"method": "magic"}, "method"),
        ({"target_bounds": None}, "target_bounds"),
        ({"target_bounds": (1, 1)}, "bounds"),
        ({"target_bounds": (0, np.inf)}, "bounds"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": np.nan}, "epsilon"),
        ({"epsilon": np.inf}, "nonprivate"),
        ({"nonprivate": True}, "nonprivate"),
        ({"epsilon": 1e-20}, "epsilon"),
        ({"delta": 1e-6}, "delta"),
        ({"method": "gaussian"}, "delta"),
        ({"method": "gaussian", "delta": 1}, "delta"),
        ({"method": "rounding", "cells": 3}, "cells"),
        ({"method": "rounding", "prior": "uniform"}, "prior"),
        ({"method": "laplace", "epsilon": 1e-20}, "epsilon"),
        ({"method": "laplace", "epsilon": 1e20}, "epsilon"),
        ({"classes": (0, 1)}, "classes"),
        ({"cells": 0}, "cells"),
        ({"cells": 10**6}, "cells"),
        ({"cells": [1.0, 1.0]}, "cells"),
        ({"cells": [1.0, np.nan]}, "cells"),
        ({"cells": "many"}, "cells"),
        ({"debias": 1}, "debias"),
        ({"prior": [1.0]}, "prior"),
        ({"prior": "flat"}, "prior"),
        ({"prior": "uniform", "prior_share": 0.1}, "prior_share"),
        ({"prior_share": 0}, "prior_share"),
        ({"prior_share": 1}, "prior_share"),
        ({"adjacency": "add_remove_one"}, "add_remove_one"),
        ({"adjacency": "replace_one"}, "replace_one"),
        ({"random_state": np.random.default_rng()}, "random_state"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": True}, "random_state"),
    ],
)
def test_parameters_are_checked_before_any_data_are_read(changes, word):
    options = {"target_bounds": BOUNDS, "epsilon": 1, **changes}
    calls = [lambda: LabelPrivatizer(**options).fit_transform(Unreadable())]
    if "classes" not in changes:
        calls.append(lambda: PrivateLabelRegressor(**options).fit(Unreadable(), Unreadable()))
    for call in calls:
        with pytest.raises((ParameterError, UnsupportedError)) as info:
            call()
        assert word in str(info.value)
        assert info.value.remedy


@pytest.mark.parametrize("classes", [None, (1,), "ab", (1, 1), ([1], [2]), 3])
def test_classes_are_public_and_distinct(classes):
    with pytest.raises(ParameterError, match="classes"):
        LabelPrivatizer("randomized_response", 1, classes=classes).fit_transform([1, 2])
    with pytest.raises(ParameterError, match="prior"):
        LabelPrivatizer("randomized_response", 1, classes=(1, 2), prior=(1, 1, 1)).fit_transform([1, 2])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"bag_size": 0}, "bag_size"),
        ({"bag_seed": -1}, "bag_seed"),
        ({"weights": "unit"}, "weights"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": None}, "epsilon"),
        ({"delta": None}, "delta"),
        ({"delta": 0}, "delta"),
        ({"epsilon": np.inf}, "nonprivate"),
        ({"target_bounds": None}, "target_bounds"),
        ({"adjacency": "replace_one"}, "replace_one"),
    ],
)
def test_bags_are_checked_before_any_data_are_read(changes, word):
    with pytest.raises((ParameterError, UnsupportedError), match=word):
        WeightedLLPRegressor(**{"target_bounds": BOUNDS, "epsilon": 1, "delta": 1e-6, **changes}).fit(
            Unreadable(), Unreadable()
        )


LABELS = {
    "text": [0.5] * 59 + ["divorced"],
    "text objects": np.array(["1"] * 59 + ["divorced"], dtype=object),
    "huge integer": [0.5] * 59 + [10**400],
    "complex": [0.5] * 59 + [1j],
    "nested": [0.5] * 59 + [[1, 2]],
    "dictionary": [0.5] * 59 + [{"a": 1}],
    "none": [0.5] * 59 + [None],
    "missing": pd.Series([1] * 59 + [pd.NA], dtype="Int64"),
    "nan": np.array([0.5] * 59 + [np.nan]),
    "inf": np.array([0.5] * 59 + [np.inf]),
    "1e308": np.array([0.5] * 59 + [-1e308]),
}


def outcome(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            seen = str(action())
        except Exception as error:
            seen = repr(error)
    return seen, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("method", [*NUMERIC, "randomized_response", "llp"])
def test_no_content_of_the_label_shows(method, name):
    X, _ = data(60)

    def run(y):
        if method == "llp":
            return WeightedLLPRegressor(1, 1e-6, target_bounds=BOUNDS).fit(X, y).guarantee_
        model = privatizer(method)
        model.fit_transform(y)
        return model.guarantee_

    assert outcome(lambda: run(LABELS[name])) == outcome(lambda: run(np.zeros(60)))


@pytest.mark.parametrize("method", NUMERIC)
def test_a_type_that_can_hold_no_label_is_refused_before_the_charge(method, tmp_path):
    book = ledger(tmp_path)
    with pytest.raises(DataError, match="text"):
        privatizer(method, ledger=book).fit_transform(np.array(["1", "2"]))
    X, y = data(60)
    for classes, labels in ((["no", "yes"], y), ([0, 1], np.array(["0"] * 60))):
        learner = PrivateLabelClassifier(epsilon=1, classes=classes, ledger=book)
        with pytest.raises(DataError, match="can be either class"):
            learner.fit(X, labels)
        PrivateLabelClassifier(epsilon=1, classes=classes).fit(X, labels.astype(object))
    assert book.total().epsilon == 0


def test_labels_are_read_after_the_charge(tmp_path, monkeypatch):
    from confide.schema import arrays

    book, spent, real = ledger(tmp_path, 1), [], arrays.numbers
    monkeypatch.setattr(
        arrays, "numbers", lambda cells: spent.append(str(book.total().epsilon)) or real(cells)
    )
    _, y = data(60)
    model = privatizer(ledger=book)
    model.fit_transform(y)
    assert set(spent) == {"1"}
    assert model.entry_ is not None
    assert model.guarantee_.assumptions == ()
    spent.clear()
    with pytest.raises(BudgetError):
        privatizer(ledger=book).fit_transform(y)
    with pytest.raises(BudgetError):
        model.fit_transform(y)
    assert not spent
    assert not hasattr(model, "guarantee_")  # nothing of the older call stays under a refused one
    with pytest.raises(RefusedError):
        privatizer(ledger=book, random_state=0).fit_transform(y)


def test_each_fit_of_a_search_is_charged_and_the_last_straw_refused(tmp_path):
    X, y = data(90)
    book = ledger(tmp_path, 3)
    with pytest.warns(UncertifiedWarning):
        cross_val_score(PrivateLabelRegressor(epsilon=1, target_bounds=BOUNDS, ledger=book), X, y, cv=3)
    assert book.total().epsilon == 3
    with pytest.raises(BudgetError):
        PrivateLabelRegressor(epsilon=1, target_bounds=BOUNDS, ledger=book).fit(X, y)
    assert book.total().epsilon == 3


def test_a_search_inside_costs_nothing_more(tmp_path):
    X, y = data(90)
    book = ledger(tmp_path, 1)
    search = GridSearchCV(LinearRegression(), {"fit_intercept": [True, False]}, cv=3)
    model = PrivateLabelRegressor(search, epsilon=1, target_bounds=BOUNDS, ledger=book).fit(X, y)
    assert book.total().epsilon == 1
    assert model.predict(X).shape == (90,)
    assert np.abs(model.predict(X * 1e6)).max() <= 4


def test_no_silent_second_draw():
    X, y = data(50)
    with pytest.raises((UnsupportedError, TypeError)):
        TransformedTargetRegressor(LinearRegression(), transformer=privatizer()).fit(X, y)
    assert not hasattr(LabelPrivatizer, "transform")
    with pytest.raises(UnsupportedError, match="fit_transform"):
        privatizer().fit(y)


def test_clone_copy_pickle():
    X, y = data(60)
    model = PrivateLabelRegressor(LinearRegression(), epsilon=1, target_bounds=BOUNDS, random_state=0).fit(
        X, y
    )
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    with pytest.raises(NotFittedError):
        clone(model).predict(X)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = PrivateLabelRegressor(epsilon=1, target_bounds=BOUNDS).fit(frame, y)
    assert list(named.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        named.predict(frame[["b", "a", "c"]])


def test_weights_and_non_learners_are_refused():
    X, y = data(20)
    with pytest.raises(TypeError, match="sample_weight"):
        PrivateLabelRegressor(epsilon=1, target_bounds=BOUNDS).fit(X, y, sample_weight=np.ones(20))
    with pytest.raises(ParameterError, match="learner"):
        PrivateLabelRegressor(3, epsilon=1, target_bounds=BOUNDS).fit(X, y)
    with pytest.raises(ValueError):
        PrivateLabelRegressor(epsilon=1, target_bounds=BOUNDS).fit(X, y[:-1])


@pytest.mark.parametrize("method", [*NUMERIC, "randomized_response"])
def test_without_privacy(method):
    _, y = data(60)
    y = y if method != "randomized_response" else np.arange(60) % 3
    model = privatizer(method)
    model.set_params(epsilon=math.inf, nonprivate=True)
    np.testing.assert_array_equal(model.fit_transform(y), y)
    assert "nonprivate" in model.guarantee_.assumptions


def test_replace_private_part_and_a_large_delta():
    _, y = data(60)
    model = privatizer(adjacency="replace_private_part")
    model.fit_transform(y)
    assert model.guarantee_.adjacency.value == "replace_private_part"
    with pytest.warns(UserWarning, match="delta"):
        LabelPrivatizer("gaussian", 1, 0.01, target_bounds=BOUNDS).fit_transform(y)


@pytest.mark.parametrize("values", [[], [2.0], [np.nan, np.nan]])
@pytest.mark.parametrize("method", NUMERIC)
def test_few_labels(method, values):
    assert privatizer(method).fit_transform(np.array(values)).shape == (len(values),)


def test_integer_labels_as_cells():
    y = np.random.default_rng(0).integers(0, 5, 2000)
    model = LabelPrivatizer(epsilon=30, target_bounds=(0, 4), cells=range(5))
    np.testing.assert_allclose(model.fit_transform(y), y, atol=1e-6)
    assert [b[:2] for b in model.response_.bins] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


@pytest.mark.parametrize("method", NUMERIC)
def test_private_labels_are_unbiased(method):
    y = np.repeat([-3.0, 1.0, 3.5], 20_000)
    out = privatizer(
        method, random_state=0, **({"cells": [-3.0, 1.0, 3.5]} if method == "rr_on_bins" else {})
    )
    labels = out.set_params(epsilon=2).fit_transform(y)
    spread = labels.std() / math.sqrt(20_000)
    if method == "rr_on_bins":  # the mean of each bin
        codes = out.response_.codes()[np.repeat([0, 1, 2], 20_000)]
        for code in range(len(out.response_.bins)):
            assert labels[codes == code].mean() == pytest.approx(
                y[codes == code].mean(), abs=6 * spread + 0.05
            )
    else:
        for value in (-3.0, 1.0, 3.5):
            assert labels[y == value].mean() == pytest.approx(value, abs=6 * spread)


def test_classifier():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    y = np.where(X[:, 0] > 0.5, "high", np.where(X[:, 0] < -0.5, "low", "mid"))
    classes = ["mid", "low", "high"]
    model = PrivateLabelClassifier(epsilon=2, classes=classes, random_state=0).fit(X, y)
    assert set(model.predict(X)) <= set(classes)
    assert (model.predict(X) == y).mean() > 0.85
    shares = model.predict_proba(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert list(model.classes_) == classes
    # The channel's inverse undoes its flattening: nearer the truth than the learner's own probabilities.
    truth = (y[:, None] == np.array(classes)).astype(float)
    raw = model.learner_.predict_proba(X)[:, [list(model.learner_.classes_).index(c) for c in classes]]
    assert ((shares - truth) ** 2).mean() < ((raw - truth) ** 2).mean()
    with pytest.warns(UncertifiedWarning):
        assert model.score(X, y) == pytest.approx((model.predict(X) == y).mean())


@pytest.mark.parametrize("y", [["a"] * 40, ["?"] * 40, ["b"] * 39 + [None]])
def test_one_class_only(y):
    X, _ = data(40)
    model = PrivateLabelClassifier(LogisticRegression(), epsilon=20, classes=("a", "b")).fit(X, y)
    assert model.predict_proba(X).shape == (40, 2)
    assert set(model.predict(X)) <= {"a", "b"}


def test_debiasing_lowers_the_error():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 3))
    y = np.clip(X @ [1.0, -0.5, 0.3] + 0.2 * rng.normal(size=6000), *BOUNDS)
    errors = {}
    for debias in (True, False):
        model = PrivateLabelRegressor(epsilon=1, target_bounds=BOUNDS, debias=debias, random_state=0).fit(
            X, y
        )
        errors[debias] = ((model.predict(X) - y) ** 2).mean()
    assert errors[True] < errors[False] / 1.5


def test_any_regressor():
    X, y = data(2000)
    model = PrivateLabelRegressor(
        HistGradientBoostingRegressor(max_iter=20), "rounding", 4, target_bounds=BOUNDS, random_state=0
    ).fit(X, y)
    assert ((model.predict(X) - y) ** 2).mean() < 0.8 * y.var()


@pytest.mark.parametrize("weights", ["gaussian", "sign"])
def test_bag_regression(weights):
    X, y = data(40_000)
    model = WeightedLLPRegressor(8, 1e-6, target_bounds=BOUNDS, weights=weights, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, [1, -0.5, 0], atol=0.3)
    exactly = WeightedLLPRegressor(
        math.inf, target_bounds=BOUNDS, weights=weights, nonprivate=True, bag_size=4
    ).fit(X, y)
    np.testing.assert_allclose(exactly.coef_, [1, -0.5, 0], atol=0.03)
    assert "nonprivate" in exactly.guarantee_.assumptions
    with pytest.warns(UncertifiedWarning):
        assert exactly.score(X, y) > 0.9


def test_bag_regression_is_charged(tmp_path):
    X, y = data(60)
    book = ledger(tmp_path, 1)
    model = WeightedLLPRegressor(1, 1e-6, target_bounds=BOUNDS, ledger=book).fit(X, y)
    assert (book.total().epsilon, model.guarantee_.assumptions) == (1, ())
    with pytest.raises(BudgetError):
        model.fit(X, y)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("kind", ["U", "S"])
def test_text_of_one_width_is_no_number_anywhere(kind, tmp_path):
    """Every reader of numeric labels refuses the type before its charge, and takes objects of the same cells."""
    from confide.training import PrivateRegressor, fit_hybrid, fit_semi_sensitive
    from confide.training.sgd import SGDRequest, fit

    X, _ = data(60)
    Z = np.zeros((60, 1))
    y = np.array(["1", "2"] * 30).astype(kind)
    book = ledger(tmp_path)
    ask = {"epsilon": 1, "delta": 1e-6, "target_bounds": BOUNDS}
    request = SGDRequest(**ask, steps=3, recorded=True)
    calls = [
        lambda y: PrivateRegressor(**ask, ledger=book).fit(X, y),
        lambda y: PrivateRegressor(**ask, engine="dpsgd", steps=3, ledger=book).fit(X, y),
        lambda y: PrivateLabelRegressor(epsilon=1, target_bounds=BOUNDS, ledger=book).fit(X, y),
        lambda y: WeightedLLPRegressor(**ask, ledger=book).fit(X, y),
        lambda y: fit(X, None, y, request, ledger=book),
        lambda y: fit_hybrid(X, None, y, request, ledger=book),
        lambda y: fit_semi_sensitive(X, Z, y, **ask),
    ]
    for call in calls:
        with pytest.raises(DataError, match="text"):
            call(y)
    assert book.total().epsilon == 0
    for call in calls[:3]:
        call(y.astype(object))
    fit_semi_sensitive(X, Z, y.astype(object), **ask)
