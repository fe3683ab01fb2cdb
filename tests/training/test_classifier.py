import copy
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from confide.errors import DataError, ParameterError, RefusedError, UncertifiedWarning, UnsupportedError
from confide.ledger import Ledger
from confide.report import write_report
from confide.training import PrivateClassifier, TableModel

BOUNDS = (-4, 4)


def data(n=600, seed=0, K=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X @ rng.normal(size=(3, K)) * 2 + rng.gumbel(size=(n, K))).argmax(axis=1)


def classifier(**changes):
    return PrivateClassifier(**{"epsilon": 1, "delta": 1e-6, "classes": [0, 1], **changes})


SECRET = "labels are secret: whether one is missing, infinite or no class must not show in an exception"
FOREIGN = "the check fits labels that `classes` does not declare; unknown labels count as the first class"


def reasons(estimator):
    found = {
        "check_supervised_y_no_nan": f"{SECRET} (pitfalls F43, K15)",
        "check_classifiers_regression_target": SECRET,
        "check_classifiers_classes": FOREIGN,
    }
    if len(estimator.classes) == 2:
        return {**found, "check_classifier_not_supporting_multiclass": SECRET}
    several = "the check has two classes in its data; K classes are declared, so that there are K logits"
    return {**found, "check_classifiers_train": several, "check_decision_proba_consistency": several}


@parametrize_with_checks(
    [
        PrivateClassifier(1e6, 0.1, classes=[0, 1], random_state=0),
        PrivateClassifier(1e6, 0.1, classes=[0, 1, 2, 3], random_state=0),
    ],
    expected_failed_checks=reasons,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


WAYS = [
    {},
    {"engine": "closed_form"},
    {"engine": "closed_form", "conditioning": ("power", 0.5), "leverage": 0.9, "shrinkage": False},
    {"engine": "randomized_response"},
    {"engine": "dpsgd", "steps": 20},
    {"engine": "dpsgd", "steps": 20, "conditioning": "identity", "fit_intercept": False},
    {"engine": "dpsgd", "steps": 20, "batch_size": 100},
    {"model": "fm", "steps": 20},
    {"model": "mlp", "steps": 20, "hidden": [5], "activation": "tanh"},
    {"adjacency": "replace_one", "feature_bounds": BOUNDS, "steps": 20},
    {"adjacency": "replace_one", "feature_bounds": BOUNDS, "engine": "objective"},
    {"adjacency": "add_remove_one", "feature_bounds": BOUNDS, "max_rows": 1000, "steps": 20},
    {"adjacency": "add_remove_one", "feature_bounds": BOUNDS, "delta": 0},
    {
        "adjacency": "replace_private_part", "public": [True, False, False], "engine": "dpsgd", "steps": 20,
        "feature_bounds": ([np.nan, -4, -4], [np.nan, 4, 4]),
    },
    {"adjacency": "replace_private_part", "public": [True, False, True]},
    {"epsilon": math.inf, "nonprivate": True},
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_way_fits_predicts_and_is_charged(way, tmp_path):
    X, y = data()
    relation = way.get("adjacency", "replace_label")
    book = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="a", epsilon=3, delta=1e-5, adjacency=relation)
    private = not way.get("nonprivate")
    model = classifier(**way, ledger=book if private else None).fit(X, y)
    f, p = model.decision_function(X), model.predict_proba(X)
    assert f.shape == (600,)
    np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-f)), atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), (f > 0).astype(int))
    if way.get("model", "linear") == "linear":
        np.testing.assert_allclose(
            X @ model.coef_[0] + model.intercept_, f, atol=1e-8 * (1 + np.abs(f).max())
        )
    if private:
        assert book.total().epsilon == 1
        assert book.total().delta <= exact_delta(way)
        assert model.guarantee_.adjacency.value == relation
        assert model.result_.entry
    else:
        assert (model.predict(X) == y).mean() > 0.8
        assert "nonprivate" in model.guarantee_.assumptions
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def exact_delta(way):
    return 0 if way.get("engine") == "randomized_response" else 1e-6 * 1.000001


@pytest.mark.parametrize("engine", [None, "closed_form", "randomized_response", "dpsgd"])
def test_softmax_of_three_classes(engine):
    X, y = data(3000, K=3)
    names = np.array(["a", "b", "c"])
    model = classifier(classes=names, engine=engine, epsilon=2, random_state=0).fit(X, names[y])
    assert model.coef_.shape == (3, 3)
    assert model.intercept_.shape == (3,)
    assert list(model.classes_) == ["a", "b", "c"]
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(X), names[model.decision_function(X).argmax(axis=1)])
    assert (model.predict(X) == names[y]).mean() > 0.5


@pytest.mark.parametrize("engine", [None, "closed_form", "randomized_response"])
@pytest.mark.parametrize("K", [2, 3])
def test_without_an_intercept_the_middle_is_a_logit_of_zero(engine, K):
    """Power geometries had a direction too many there, and every fit ended in an exception of NumPy."""
    X, y = data(K=K)
    fitted = classifier(
        engine=engine, classes=list(range(K)), epsilon=3, fit_intercept=False, random_state=0
    ).fit(X, y)
    assert not np.any(fitted.intercept_)
    assert not np.any(fitted.decision_function(np.zeros((1, 3))))
    assert (fitted.predict(X) == y).mean() > 1.2 / K


def test_a_logit_of_zero_is_the_first_class():
    X, y = data()
    model = classifier(classes=["no", "yes"]).fit(
        X, y.astype(object)
    )  # no label is a class: all count as "no"
    model.result_ = copy.copy(model.result_)
    core = model.result_.model
    object.__setattr__(core, "intercept", np.zeros(1))
    object.__setattr__(core, "public", np.zeros((1, 3)))
    assert set(model.predict(X)) == {"no"}
    np.testing.assert_array_equal(model.predict_proba(X), 0.5)


def outcome(model, X, y):
    """What an onlooker sees of a fit: exception, warnings, guarantee."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            seen = str(model.fit(X, y).guarantee_)
        except Exception as error:
            seen = repr(error)
    return seen, [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    "way", [{}, {"engine": "randomized_response"}, {"engine": "dpsgd", "steps": 3}], ids=str
)
def test_labels_decide_no_path(way):
    X, y = data(200)
    labels = [
        y.tolist(),
        [0] * 200,
        [1] * 200,
        ["text"] * 200,
        [None] * 200,
        [[1, 2]] * 200,
        [math.nan] * 200,
    ]
    seen = {str(outcome(classifier(**way), X, np_object(part))) for part in labels}
    assert len(seen) == 1
    assert "epsilon = 1" in seen.pop()


def np_object(cells):
    values = np.empty(len(cells), dtype=object)
    values[:] = cells
    return values


@pytest.mark.parametrize(
    "make", [list, np.asarray, pd.Series, pl.Series, lambda y: pd.Series(y).astype("category")]
)
def test_labels_of_every_kind_are_read_alike(make):
    X, y = data()
    want = classifier(random_state=0).fit(X, y).coef_
    np.testing.assert_array_equal(classifier(random_state=0).fit(X, make(y.tolist())).coef_, want)


@pytest.mark.parametrize(
    ("classes", "kind"), [(["no", "yes"], int), (["no", "yes"], float), ([0, 1], "U1"), ([0, 1], "S1")]
)
def test_a_type_that_can_hold_no_class_is_refused_before_the_charge(classes, kind, tmp_path):
    X, y = data()
    book = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="a", epsilon=3, delta=1e-4,
                       adjacency="replace_label")  # fmt: skip
    with pytest.raises(DataError, match="no label can be either class"):
        classifier(classes=classes, ledger=book).fit(X, y.astype(kind))
    assert book.total().epsilon == 0
    # Objects declare nothing.
    classifier(classes=classes).fit(X, y.astype(kind).astype(object))


def test_a_column_of_labels_warns():
    X, y = data()
    with pytest.warns(DataConversionWarning):
        model = classifier(random_state=0).fit(X, y[:, None])
    np.testing.assert_array_equal(model.coef_, classifier(random_state=0).fit(X, y).coef_)
    for bad in (None, y[:-1], np.stack([y, y], axis=1)):
        with pytest.raises(ValueError, match=r"y|label"):
            classifier().fit(X, bad)


class Unreadable:
    """Whoever touches this has read data."""

    def __getattr__(self, name):
        raise AssertionError(f"data were read: {name}")

    def __array__(self, *args, **kwargs):
        raise AssertionError("data were read")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"classes": None}, "classes"),
        ({"classes": [1]}, "classes"),
        ({"classes": [1, 1]}, "classes"),
        ({"classes": "ab"}, "classes"),
        ({"classes": [[1], [2]]}, "classes"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": math.inf}, "nonprivate"),
        ({"epsilon": None}, "epsilon"),
        ({"delta": None}, "delta"),
        ({"delta": 0, "engine": "closed_form"}, "delta"),
        ({"delta": 2}, "delta"),
        ({"engine": "rounds"}, "engine"),
        ({"engine": "magic"}, "engine"),
        ({"model": "forest"}, "model"),
        ({"model": "mlp", "engine": "closed_form"}, "dpsgd"),
        ({"model": "fm", "classes": [0, 1, 2]}, "one output"),
        ({"delta": 0, "engine": "closed_form"}, "randomized_response"),
        ({"delta": 0, "engine": "dpsgd"}, "randomized_response"),
        ({"delta": None}, "0 < delta < 1"),
        ({"steps": 5}, "'closed_form' or 'randomized_response'"),
        ({"engine": "dpsgd", "rank": 3}, "does not use 'rank'"),
        ({"engine": "dpsgd", "hidden": (3,)}, "does not use 'hidden'"),
        ({"model": "mlp", "rank": 3}, "does not use 'rank'"),
        ({"model": "fm", "activation": "tanh", "embedding": 2}, "does not use 'activation', 'embedding'"),
        ({"engine": "dpsgd", "steps": 0}, "steps"),
        ({"engine": "dpsgd", "leverage": 0.5}, "leverage"),
        ({"engine": "dpsgd", "max_rows_per_person": 3}, "person"),
        ({"conditioning": "svd"}, "conditioning"),
        ({"shrinkage": 1}, "shrinkage"),
        ({"adjacency": "replace_one"}, "feature_bounds"),
        ({"adjacency": "replace_one", "engine": "closed_form", "feature_bounds": BOUNDS}, "replace_one"),
        ({"adjacency": "add_remove_one", "feature_bounds": BOUNDS}, "max_rows"),
        ({"engine": "objective"}, "public"),
        ({"max_rows_per_person": 0}, "max_rows_per_person"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_parameters_are_checked_before_any_data_are_read(changes, word, tmp_path):
    with pytest.raises((ParameterError, UnsupportedError)) as info:
        classifier(**changes).fit(Unreadable(), Unreadable())
    assert word in str(info.value)
    assert info.value.remedy


def test_secret_columns_decide_no_path():
    """Cells of private columns: text, NaN and 1e308 neither raise nor warn, and cost the same."""
    X, y = data(200)
    odd = X.astype(object)
    odd[0, 0], odd[1, 1], odd[2, 2] = "text", None, 1e308
    way = {"adjacency": "replace_one", "feature_bounds": BOUNDS, "steps": 3}
    seen = {str(outcome(classifier(**way), part, y)) for part in (X.astype(object), odd)}
    assert len(seen) == 1
    assert "epsilon = 1" in seen.pop()
    same = classifier(**way, random_state=0).fit(pd.DataFrame(X, columns=list("abc")), y).coef_
    np.testing.assert_array_equal(same, classifier(**way, random_state=0).fit(X, y).coef_)


@pytest.mark.parametrize("way", [{"max_rows": 10, "steps": 3}, {"delta": 0}], ids=str)
def test_no_row_and_one_row_look_alike_where_their_number_is_secret(way):
    way = {"adjacency": "add_remove_one", "feature_bounds": BOUNDS, **way}
    seen = {str(outcome(classifier(**way), np.zeros((n, 3)), np.zeros(n))) for n in (0, 1)}
    assert len(seen) == 1
    assert "epsilon = 1" in seen.pop()


def test_an_exhausted_ledger_refuses_before_the_labels_are_read(tmp_path):
    X, _ = data()
    book = Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="a", epsilon=0.5, delta=1e-5, adjacency="replace_label"
    )
    for engine in (None, "randomized_response", "dpsgd"):

        class Late:
            shape = (600,)

            def __len__(self):
                return 600

            def tolist(self):
                raise AssertionError("labels were read")

        with pytest.raises(RefusedError):
            classifier(ledger=book, engine=engine).fit(X, Late())
    assert book.total().epsilon == 0


def test_a_failed_fit_forgets_the_older_model():
    X, y = data()
    model = classifier().fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((4, 3), np.nan), [0, 1, 0, 1])
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_delta_0_takes_an_engine_that_needs_none():
    X, y = data()
    model = classifier(delta=0).fit(X, y)
    assert model.engine_ == "randomized_response"
    assert model.guarantee_.delta == 0
    assert classifier(epsilon=math.inf, delta=None, nonprivate=True).fit(X, y).engine_ == "closed_form"


def test_models_of_arrays_are_saved_and_have_a_report(tmp_path):
    X, y = data()
    for way in ({}, {"engine": "dpsgd", "steps": 3}):
        model = classifier(**way).fit(X, y)
        model.result_.model.save(tmp_path / "model.json")
        np.testing.assert_array_equal(TableModel.load(tmp_path / "model.json").predict(X), model.predict(X))
        assert model.result_.to_json()
        assert model.engine_ in write_report(model, tmp_path / "report.html").read_text()


def test_score_warns_and_weights_are_refused():
    X, y = data()
    model = classifier().fit(X, y)
    with pytest.warns(UncertifiedWarning, match="score"):
        assert 0 <= model.score(X, y) <= 1
    with pytest.raises(TypeError, match="sample_weight"):
        classifier().fit(X, y, sample_weight=np.ones(600))
    assert clone(model).get_params() == model.get_params()


def test_sparse_columns():
    X, y = data()
    X[np.abs(X) < 0.7] = 0
    dense = classifier(random_state=0, engine="dpsgd", steps=5).fit(X, y)
    thin = classifier(random_state=0, engine="dpsgd", steps=5).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(thin.predict_proba(sparse.csr_matrix(X)), dense.predict_proba(X), atol=1e-9)
    assert (classifier(epsilon=4).fit(sparse.csr_matrix(X), y).predict(X) == y).mean() > 0.6


def test_untuned_defaults_are_good():
    """Figures of benchmarks/training_classifier.py, with room for chance."""
    errors = {}
    for name, load, classes in (("breast", load_breast_cancer, 2), ("digits", load_digits, 10)):
        X, y = load(return_X_y=True)
        runs = []
        for seed in range(4):
            order = np.random.default_rng(seed).permutation(len(X))
            train, test = order[: int(0.7 * len(X))], order[int(0.7 * len(X)) :]
            model = classifier(classes=range(classes), random_state=seed).fit(X[train], y[train])
            runs.append(np.mean(model.predict(X[test]) != y[test]))
        errors[name] = np.mean(runs)
    assert errors["breast"] < 0.14
    assert errors["digits"] < 0.35
