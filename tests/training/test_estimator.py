import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from confide.errors import (
    AssumptionError,
    BudgetError,
    DataError,
    ParameterError,
    UncertifiedWarning,
    UnsupportedError,
)
from confide.ledger import Ledger
from confide.training import PrivateRegressor


def data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.clip(X @ [1.0, -0.5, 0.0] + 0.2 * rng.normal(size=n), -4, 4)


def regressor(**changes):
    options = {"epsilon": 1, "delta": 1e-6, "target_bounds": (-4, 4)}
    return PrivateRegressor(**{**options, **changes})


def reasons(_estimator):
    return {
        "check_supervised_y_no_nan": "labels are secret: whether one is missing or infinite must not show in an "
        "exception, so that they are imputed and clipped (pitfalls F43, K15)",
    }


@parametrize_with_checks(
    [PrivateRegressor(epsilon=1e6, delta=0.1, target_bounds=(-1e3, 1e3), random_state=0)],
    expected_failed_checks=reasons,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_attributes():
    X, y = data()
    model = regressor().fit(X, y)
    assert model.coef_.shape == (3,)
    assert isinstance(model.intercept_, float)
    assert model.coef_std_error_.shape == (3,)
    assert (model.coef_std_error_ > 0).all()
    assert model.n_features_in_ == 3
    assert str(model.guarantee_.epsilon) == "1"
    assert model.guarantee_.assumptions == ("unrecorded",)
    np.testing.assert_allclose(
        model.predict(X), np.clip(X @ model.coef_ + model.intercept_, -4, 4), rtol=1e-9, atol=1e-9
    )
    assert regressor(random_state=1).fit(X, y).guarantee_.assumptions == ("seeded", "unrecorded")


def test_seeds_repeat_and_entropy_does_not():
    X, y = data()
    same = [regressor(random_state=5).fit(X, y).coef_ for _ in range(2)]
    np.testing.assert_array_equal(*same)
    fresh = [regressor().fit(X, y).coef_ for _ in range(2)]
    assert not np.array_equal(*fresh)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"target_bounds": None}, "target_bounds"),
        ({"target_bounds": (1, 1)}, "bounds"),
        ({"target_bounds": (0, np.inf)}, "bounds"),
        ({"target_bounds": (np.nan, 1)}, "bounds"),
        ({"target_bounds": 3}, "bounds"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": None}, "epsilon"),
        ({"delta": None}, "delta"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": np.nan}, "epsilon"),
        ({"epsilon": np.inf}, "nonprivate"),
        ({"nonprivate": True}, "nonprivate"),
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"engine": "magic"}, "engine"),
        ({"model": "forest"}, "model"),
        ({"conditioning": "svd"}, "conditioning"),
        ({"conditioning": ("power", 2.0)}, "conditioning"),
        ({"leverage": 0.0}, "leverage"),
        ({"shrinkage": 1}, "shrinkage"),
        ({"adjacency": "add_remove_one"}, "add_remove_one"),
        ({"adjacency": "replace_one"}, "replace_one"),
        ({"adjacency": "nearby"}, "adjacency"),
        ({"max_rows_per_person": 0}, "max_rows_per_person"),
        ({"random_state": np.random.default_rng()}, "random_state"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": True}, "random_state"),
    ],
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


def test_weights_are_refused_and_named():
    X, y = data()
    with pytest.raises(TypeError, match="sample_weight"):
        regressor().fit(X, y, sample_weight=np.ones(len(y)))


def outcome(model, X, y):
    """Return what an onlooker sees of a fit: exception, warnings, guarantee."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            seen = str(model.fit(X, y).guarantee_)
        except Exception as error:
            seen = repr(error)
    return seen, [str(warning.message) for warning in caught]


def with_bits(dtype, bits):
    values = np.full(60, 0.5, dtype=dtype)
    values.view(f"u{values.itemsize}")[3] = bits
    return values


def with_cell(dtype, cell):
    values = np.full(60, 0.5, dtype=dtype)
    values[3] = cell
    return values


PLAIN = [0.5] * 59
LABELS = {
    "text": [*PLAIN, "divorced"],
    "text objects": np.array(["1"] * 59 + ["divorced"], dtype=object),
    "huge integer": [*PLAIN, 10**400],
    "complex cell": [*PLAIN, 1j],
    "nested cell": [*PLAIN, [1, 2]],
    "dictionary": [*PLAIN, {"a": 1}],
    "missing": pd.Series([1] * 59 + [pd.NA], dtype="Int64"),
    "no value": [*PLAIN, None],
    "long double": with_cell(np.longdouble, np.longdouble("1e4000")),
    "signalling float32": with_bits(np.float32, 0x7F800001),
    "signalling float16": with_bits(np.float16, 0x7C01),
    "signalling float64": with_bits(np.float64, 0x7FF0000000000001),
    "tuple": (*PLAIN, b"\xff"),
    "rows as lists": [[value] for value in (*PLAIN, 3.0)],
}


@pytest.mark.parametrize("name", LABELS)
def test_no_content_of_the_label_shows(name):
    X, _ = data(60)
    assert outcome(regressor(), X, LABELS[name]) == outcome(regressor(), X, np.zeros(60))


def test_labels_are_read_as_cells():
    X, y = data()
    whole = np.round(y)
    want = regressor(random_state=0).fit(X, whole).coef_
    texts = whole.astype(int).astype(str)
    for form in (list(texts), texts.astype(object), pd.Series(whole).astype("Int64"), pa.array(whole),
                 [[value] for value in whole], [np.array([value]) for value in whole]):  # fmt: skip
        np.testing.assert_array_equal(regressor(random_state=0).fit(X, form).coef_, want)
    polars = pytest.importorskip("polars")
    for column in (whole[:, None], pd.DataFrame({"y": whole}), polars.DataFrame({"y": whole})):
        with pytest.warns(DataConversionWarning):
            np.testing.assert_array_equal(regressor(random_state=0).fit(X, column).coef_, want)
    for bad in (whole[:-1], np.tile(whole, (2, 1)), list(whole[:-1]), np.float64(1), "text", 3, iter(whole)):
        with pytest.raises(ValueError):
            regressor().fit(X, bad)
    for text in (texts, texts.astype("S")):  # the type of an array is public
        with pytest.raises(DataError, match="text"):
            regressor().fit(X, text)
    with pytest.raises(DataError, match="sparse"):
        regressor().fit(X, sparse.csr_matrix(whole[:, None]))


def test_labels_are_read_after_the_charge(tmp_path, monkeypatch):
    from confide.schema import arrays

    X, y = data(60)
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="a", epsilon=1, delta=1e-5, adjacency="replace_label"
    )
    spent = []
    real = arrays.numbers
    monkeypatch.setattr(
        arrays, "numbers", lambda cells: spent.append(str(ledger.total().epsilon)) or real(cells)
    )
    regressor(ledger=ledger).fit(X, y)
    assert set(spent) == {"1"}
    spent.clear()
    with pytest.raises(BudgetError):
        regressor(ledger=ledger).fit(X, y)
    assert not spent


def private_tables():
    rng = np.random.default_rng(0)
    base = pd.DataFrame({"age": rng.uniform(18, 90, 60), "illness": [0.0] * 60, "place": ["x"] * 60})
    for cell in (0.0, np.nan, np.inf, "positive since 2019", 10**400, 1j, [1, 2], None, pd.NA):
        changed = base.astype({"illness": object})
        changed.at[7, "illness"] = cell
        yield changed
    yield base


@pytest.mark.parametrize("form", ["pandas", "objects", "sparse", "polars"])
def test_private_columns_of_X_are_never_read(form):
    from confide.schema.cells import number

    part = {"public": np.array([True, False, False]), "adjacency": "replace_private_part", "random_state": 0}
    y = np.zeros(60)
    fits, predictions = [], []
    for frame in private_tables():
        if form == "pandas":
            X = frame
        elif form == "objects":
            X = frame.to_numpy(dtype=object)
        elif form == "sparse":
            numbers = frame.assign(illness=[number(cell) for cell in frame.illness], place=np.inf)
            X = sparse.coo_matrix(numbers.to_numpy(float))
        else:
            polars = pytest.importorskip("polars")
            X = polars.DataFrame(
                {
                    "age": frame.age.to_numpy(),
                    "illness": [repr(cell) for cell in frame.illness],
                    "place": ["x"] * 60,
                }
            )
        model = regressor(**part)
        fits.append(outcome(model, X, y))
        predictions.append(model.predict(X).tobytes())
    assert len(set(map(str, fits))) == 1
    assert "epsilon = 1" in fits[0][0]
    assert len(set(predictions)) == 1


def test_private_columns_need_a_shape():
    part = {"public": [True, False], "adjacency": "replace_private_part"}
    for X in ([[1.0, "secret"], [2.0, "secret"]], np.array([1.0, 2.0])):
        with pytest.raises(DataError) as info:
            regressor(**part).fit(X, [0, 1])
        assert "secret" not in str(info.value)
    # The public columns are still validated.
    with pytest.raises(ValueError, match="NaN"):
        regressor(**part).fit(np.array([[np.nan, 1.0], [2.0, 3.0]]), [0, 1])


def test_a_declared_number_of_rows_is_an_assumption(tmp_path):
    X, y = data()
    name = "at most 3 rows a person"
    guarantee = regressor(max_rows_per_person=3).fit(X, y).guarantee_
    assert guarantee.assumptions == (name, "unrecorded")
    assert guarantee.unit == "person"
    options = {"epsilon": 2, "delta": 1e-5, "adjacency": "replace_label", "unit": "person"}
    ledger = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="a", **options)
    with pytest.raises(AssumptionError, match=name):
        regressor(max_rows_per_person=3, ledger=ledger).fit(X, y)
    assert ledger.total().epsilon == 0
    accepting = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="a", **options, accept=(name,))
    assert regressor(max_rows_per_person=3, ledger=accepting).fit(X, y).guarantee_.assumptions == (name,)
    assert accepting.total().epsilon == 1


def test_score_says_that_it_protects_nobody():
    X, y = data()
    model = regressor(random_state=0).fit(X, y)
    with pytest.warns(UncertifiedWarning, match="public labels only"):
        assert model.score(X, y) == pytest.approx(r2_score(y, model.predict(X)))
    with pytest.warns(UncertifiedWarning, match="public labels only"):
        cross_val_score(regressor(), X, y, cv=2)


@pytest.mark.parametrize("label", [np.nan, np.inf, -np.inf, 1e6, -1e308, 0.0])
def test_neighbours_take_the_same_path(label):
    X, y = data(60)
    y[3] = label
    model = regressor(random_state=0).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert str(model.guarantee_) == str(regressor(random_state=0).fit(*data(60)).guarantee_)


@pytest.mark.parametrize("y", [np.zeros(50), np.full(50, 4.0), np.full(50, np.nan), np.full(50, 1e9)])
def test_constant_labels(y):
    X, _ = data(50)
    model = regressor(epsilon=100, random_state=0).fit(X, y)
    expected = np.clip(np.nan_to_num(y[0]), -4, 4)
    assert np.abs(model.predict(X) - expected).max() < 1.0


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((20, 3)),
        np.ones((20, 2)),
        np.tile(np.arange(20.0)[:, None], 4),
        np.random.default_rng(0).normal(size=(6, 40)),
        np.array([[1.0]]),
        np.vstack([np.full((1, 2), 1e308), np.random.default_rng(0).normal(size=(20, 2))]),
        np.vstack([np.full((1, 2), -1e308), np.full((1, 2), 1e308), np.ones((20, 2))]),
        np.column_stack([1.7e9 + np.arange(30.0), np.arange(30.0) % 7]),
    ],
    ids=["zero", "constant", "duplicate", "wide", "one row", "huge row", "huge rows", "timestamps"],
)
@pytest.mark.parametrize("intercept", [True, False])
def test_odd_designs_give_finite_models(X, intercept):
    y = np.linspace(-1, 1, len(X))
    for epsilon in (0.01, 1, 1e5):
        model = regressor(epsilon=epsilon, fit_intercept=intercept, random_state=0).fit(X, y)
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.coef_std_error_).all()
        assert np.isfinite(model.predict(X)).all()


def test_timestamps_keep_their_digits():
    t = 1.7e9 + np.arange(3000.0)
    y = np.sin(t) + (t - t.mean()) / 1500
    model = regressor(epsilon=1000, random_state=0).fit(t[:, None], y)
    assert model.coef_[0] == pytest.approx(1 / 1500, rel=0.05)
    assert np.mean((model.predict(t[:, None]) - y) ** 2) < 0.6


def test_public_columns():
    X, y = data()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    mask = np.array([True, False, True])
    with pytest.raises(UnsupportedError, match=r"b.*private.*replace_private_part"):
        regressor(public=["a", "c"]).fit(frame, y)
    part = {"adjacency": "replace_private_part", "random_state": 0}
    model = regressor(public=["a", "c"], **part).fit(frame, y)
    assert model.coef_[1] == 0.0
    assert model.guarantee_.adjacency.value == "replace_private_part"
    assert set(model.result_.model.names) == {"a", "c"}
    np.testing.assert_array_equal(model.coef_, regressor(public=mask, **part).fit(frame, y).coef_)
    # What is left out has no influence at all.
    other = frame.assign(b=frame.b * 1e6)
    np.testing.assert_array_equal(model.coef_, regressor(public=mask, **part).fit(other, y).coef_)
    np.testing.assert_array_equal(model.predict(frame), model.predict(other))
    for bad in (["a", "z"], [0, 1], "some", mask[:2]):
        with pytest.raises(ParameterError, match="public"):
            regressor(public=bad, **part).fit(frame, y)


def test_frames_arrays_and_sparse_agree():
    X, y = data()
    a = regressor(random_state=0).fit(X, y)
    b = regressor(random_state=0).fit(pd.DataFrame(X, columns=["a", "b", "c"]), pd.Series(y))
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-9)  # memory order may change a last digit
    polars = pytest.importorskip("polars")
    c = regressor(random_state=0).fit(polars.DataFrame(X, schema=["a", "b", "c"]), polars.Series(y))
    np.testing.assert_allclose(a.coef_, c.coef_, rtol=1e-9)
    assert list(b.feature_names_in_) == list(c.feature_names_in_) == ["a", "b", "c"]
    d = regressor(random_state=0, epsilon=1000).fit(sparse.csr_matrix(X), y)
    e = regressor(random_state=0, epsilon=1000).fit(X, y)
    np.testing.assert_allclose(d.predict(X), e.predict(X), atol=0.05)


def test_ledger_identity_and_refusal(tmp_path):
    X, y = data()
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="visits", epsilon=2, delta=1e-5, adjacency="replace_label"
    )
    model = regressor(ledger=ledger)
    for twin in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.get_params()["ledger"] == ledger
    clone(model).fit(X, y)
    assert str(ledger.total().epsilon) == "1"
    pickle.loads(pickle.dumps(model)).fit(X, y)
    refused = clone(model)
    with pytest.raises(BudgetError):
        refused.fit(X, y)
    with pytest.raises(NotFittedError):
        refused.predict(X)
    assert not [name for name in vars(refused) if name.endswith("_")]
    assert str(ledger.total().epsilon) == "2"
    by_name = regressor(ledger=f"sqlite:///{tmp_path}/ledger.db#visits", epsilon=0.5)
    with pytest.raises(BudgetError):
        by_name.fit(X, y)


def test_in_a_pipeline():
    X, y = data()
    pipeline = make_pipeline(StandardScaler(), regressor(epsilon=20, random_state=0)).fit(X, y)
    with pytest.warns(UncertifiedWarning):
        assert pipeline.score(X, y) > 0.5


def test_infinite_epsilon_is_marked():
    X, y = data()
    model = regressor(epsilon=np.inf, nonprivate=True).fit(X, y)
    assert "nonprivate" in model.guarantee_.assumptions
    assert str(model.guarantee_).startswith("No privacy")
    from sklearn.linear_model import LinearRegression

    np.testing.assert_allclose(model.coef_, LinearRegression().fit(X, y).coef_, rtol=1e-6)


def test_repr_holds_no_data():
    X, y = data()
    y[0] = 3.14159
    assert "3.14159" not in repr(regressor().fit(X, y))
