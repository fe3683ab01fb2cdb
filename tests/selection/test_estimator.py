import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from confide.errors import BudgetError, DataError, ParameterError, RefusedError, UnsupportedError
from confide.ledger import Ledger
from confide.selection import SubsetSelector


def data(n=800, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 6))
    return X, X @ [0, 1.0, 0, 0, -1.0, 0] + 0.1 * rng.normal(size=n)


def selector(**changes):
    options = {"size": 2, "epsilon": 20, "feature_bounds": (-1, 1), "target_bounds": (-2, 2)}
    return SubsetSelector(**{**options, **changes})


def reasons(_estimator):
    secret = "values are secret: whether one is missing, infinite or no number must not show in an exception"
    return {
        "check_dtype_object": f"{secret}: an object that is no number counts as missing (pitfall F43)",
        "check_estimators_empty_data_messages": "the number of rows is secret under add_remove_one: no rows "
        "is a table like any other (selection.md, edge cases)",
    }


@parametrize_with_checks(
    [SubsetSelector(1, 1e6, feature_bounds=(-1e3, 1e3), target_bounds=(-1e3, 1e3), random_state=0)],
    expected_failed_checks=reasons,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_selects_transforms_and_names():
    X, y = data()
    model = selector().fit(X, y)
    np.testing.assert_array_equal(model.support_, [1, 4])
    np.testing.assert_array_equal(model.get_support(), [False, True, False, False, True, False])
    np.testing.assert_array_equal(model.get_support(indices=True), [1, 4])
    np.testing.assert_array_equal(model.transform(X), X[:, [1, 4]])
    assert list(model.get_feature_names_out()) == ["x1", "x4"]
    assert model.inverse_transform(model.transform(X)).shape == X.shape
    assert model.n_features_in_ == 6
    assert str(model.guarantee_.epsilon) == "20"
    assert model.guarantee_.delta == 0
    assert model.guarantee_.adjacency.value == "replace_one"
    assert model.guarantee_.assumptions == ("unrecorded",)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    named = selector().fit(frame, y)
    assert list(named.get_feature_names_out()) == ["b", "e"]
    assert named.result_.support == ("b", "e")
    assert list(named.set_output(transform="pandas").transform(frame).columns) == ["b", "e"]


def test_in_a_pipeline():
    X, y = data()
    pipeline = make_pipeline(selector(), LinearRegression()).fit(X, y)
    assert pipeline.score(X, y) > 0.9


def test_seeds_repeat_and_entropy_does_not():
    X, y = data(20)
    ask = {"epsilon": 0.1, "size": 3}
    same = [tuple(selector(random_state=5, **ask).fit(X, y).support_) for _ in range(3)]
    assert len(set(same)) == 1
    fresh = {tuple(selector(**ask).fit(X, y).support_) for _ in range(40)}
    assert len(fresh) > 1  # 20 supports of about equal probability
    assert selector(random_state=1).fit(X, y).guarantee_.assumptions == ("seeded", "unrecorded")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"size": 0}, "size"),
        ({"size": 1.0}, "size"),
        ({"size": 65}, "size"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": np.nan}, "epsilon"),
        ({"epsilon": np.inf}, "epsilon"),
        ({"mechanism": "mcmc"}, "mechanism"),
        ({"top": 5}, "top_r"),
        ({"mechanism": "top_r", "top": 0}, "top"),
        ({"mechanism": "top_r", "top": 2.0}, "top"),
        ({"loss": "poisson"}, "loss"),
        ({"feature_bounds": None}, "feature_bounds"),
        ({"feature_bounds": (1, 1)}, "feature_bounds"),
        ({"feature_bounds": (1, -1)}, "feature_bounds"),
        ({"feature_bounds": (0, np.inf)}, "feature_bounds"),
        ({"feature_bounds": (np.nan, 1)}, "feature_bounds"),
        ({"feature_bounds": 3}, "feature_bounds"),
        ({"feature_bounds": "ab"}, "feature_bounds"),
        ({"feature_bounds": ([0, 0], [1, 1, 1])}, "feature_bounds"),
        ({"feature_bounds": ([0, 2], [1, 1])}, "feature_bounds"),
        ({"target_bounds": None}, "target_bounds"),
        ({"target_bounds": (0, 0)}, "target_bounds"),
        ({"target_bounds": ([0.0], [1.0])}, "target_bounds"),
        ({"loss": "hinge"}, "target_bounds"),
        ({"loss": "hinge", "target_bounds": None, "classes": ("a", "a")}, "classes"),
        ({"loss": "hinge", "target_bounds": None, "classes": "ab"}, "classes"),
        ({"classes": (0, 1)}, "classes"),
        ({"radius": 0}, "radius"),
        ({"radius": -1}, "radius"),
        ({"ridge": -1}, "ridge"),
        ({"ridge": np.inf}, "ridge"),
        ({"adjacency": "nearby"}, "adjacency"),
        ({"max_rows_per_person": 0}, "rows of one unit"),
        ({"random_state": "0"}, "random_state"),
        ({"random_state": True}, "random_state"),
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
        selector(**changes).fit(Unreadable(), Unreadable())
    assert word in str(info.value)
    assert info.value.remedy


def test_what_is_public_of_X_is_checked_before_the_charge(tmp_path):
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="x", epsilon=100, delta=0, adjacency="replace_one"
    )
    X, y = data(30)
    for changes, A, b, kind in (
        ({"size": 7}, X, y, ParameterError),
        ({"feature_bounds": (np.zeros(5), np.ones(5))}, X, y, ParameterError),
        ({}, X, y[:-1], ValueError),
        ({}, X, np.column_stack([y, y]), ValueError),
        ({}, X, y.astype(str), DataError),
        ({}, X, y + 1j, ValueError),
        ({}, X.astype(str), y, ValueError),
        ({}, X + 1j, y, ValueError),
        ({}, X[:, :0], y, ValueError),
        ({}, X[0], y, ValueError),
        ({}, X, None, ValueError),
    ):
        refused = selector(ledger=ledger, **changes)
        with pytest.raises(kind):
            refused.fit(A, b)
        assert not [name for name in vars(refused) if name.endswith("_")]
    assert ledger.total().epsilon == 0


def test_weights_are_refused_and_named():
    X, y = data(20)
    with pytest.raises(TypeError, match="sample_weight"):
        selector().fit(X, y, sample_weight=np.ones(len(y)))


def test_bounds_scale_and_clip():
    """Pitfalls F36, F37: asymmetric bounds, and a cell far outside counts as the bound."""
    X, y = data()
    low, high = np.array([0, -1, -5, 0, 2, -3.0]), np.array([1, 3, 0, 10, 4, 3.0])
    raw = (X + 1) / 2 * (high - low) + low
    models = [
        selector(epsilon=2, random_state=seed, **options).fit(A, y).result_
        for seed in range(5)
        for A, options in (
            (X, {"feature_bounds": (np.full(6, -1), np.full(6, 1))}),
            (raw, {"feature_bounds": (low, high)}),
            (sparse.csr_matrix(raw), {"feature_bounds": (low, high)}),
            (np.asfortranarray(raw), {"feature_bounds": (low, high)}),
        )
    ]
    for k in range(0, 20, 4):
        assert len({model.indices for model in models[k : k + 4]}) == 1
    far = X.copy()
    far[0] = [1e6, -1e6, np.inf, -np.inf, np.nan, 1e308]
    near = X.copy()
    near[0] = [1, -1, 1, -1, 0, 1]
    for bounds in ((-1, 1), (np.full(6, -1.0), np.full(6, 1.0))):
        pair = [
            [
                tuple(selector(epsilon=0.5, random_state=s, feature_bounds=bounds).fit(A, y).support_)
                for s in range(5)
            ]
            for A in (far, near)
        ]
        assert pair[0] == pair[1]


def test_targets_are_clipped_centred_and_scaled():
    X, y = data(100)
    for seed in range(5):
        first = selector(epsilon=1, random_state=seed, target_bounds=(-1, 1)).fit(X, y).support_
        moved = selector(epsilon=1, random_state=seed, target_bounds=(4, 8)).fit(X, 2 * y + 6).support_
        clipped = selector(epsilon=1, random_state=seed, target_bounds=(-1, 1)).fit(X, np.clip(y, -1, 1))
        np.testing.assert_array_equal(first, moved)
        np.testing.assert_array_equal(first, clipped.support_)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_classes(loss):
    X, y = data()
    signs = np.where(y > 0, 1, -1)
    words = np.where(y > 0, "well", "ill")
    ask = {"loss": loss, "target_bounds": None, "epsilon": 1}
    for seed in range(5):
        supports = [
            selector(random_state=seed, **ask).fit(X, signs).support_,
            selector(random_state=seed, **ask).fit(X, y > 0).support_,
            selector(random_state=seed, classes=("ill", "well"), **ask).fit(X, words).support_,
            selector(random_state=seed, classes=["ill", "well"], **ask).fit(X, words.astype(object)).support_,
        ]
        for support in supports[1:]:
            np.testing.assert_array_equal(supports[0], support)
    assert set(selector(**{**ask, "epsilon": 50}).fit(X, signs).support_) == {1, 4}


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((30, 3)),
        np.ones((30, 3)),
        np.full((30, 3), np.nan),
        np.tile(np.linspace(-1, 1, 30)[:, None], 4),
        np.full((30, 2), 1e308),
        np.ones((1, 3)),
        np.ones((0, 3)),
        np.ones((5, 2), dtype=bool),
        np.arange(12, dtype=np.int8).reshape(4, 3),
        np.array([["a", 1.0], [None, 2.0], [3, object()]], dtype=object),
    ],
    ids=["zero", "constant", "nan", "duplicate", "huge", "one row", "no row", "bool", "int8", "objects"],
)
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("ridge", [None, 0.0])
def test_odd_designs(X, adjacency, ridge):
    y = np.linspace(-1, 1, len(X))
    for loss in ("squared", "quantile"):
        model = selector(adjacency=adjacency, epsilon=1, ridge=ridge, loss=loss, size=2).fit(X, y)
        assert model.support_.shape == (2,)
    constant = selector(adjacency=adjacency, epsilon=1).fit(X, np.zeros(len(X)))
    assert str(constant.guarantee_) == str(model.guarantee_)


def test_one_column_and_all_columns():
    X, y = data(50)
    np.testing.assert_array_equal(selector(size=1).fit(X[:, :1], y).support_, [0])
    everything = selector(size=6, epsilon=0.5).fit(X, y)
    np.testing.assert_array_equal(everything.support_, np.arange(6))
    assert str(everything.guarantee_.epsilon) == "1/2"


def test_duplicate_columns_are_candidates_like_others():
    X, y = data(400)
    X[:, 2] = X[:, 1]
    with pytest.raises(DataError, match=r"stands twice in X.*Rename"):
        selector().fit(pd.DataFrame(X, columns=["a", "b", "b", "c", "d", "e"]), y)
    seen = [tuple(selector(epsilon=40).fit(X, y).support_) for _ in range(60)]
    assert {(1, 4), (2, 4)} <= set(seen)
    # Equal probabilities: 60 fair coins fall 15 to 45 but once in 10^4.
    assert 15 < sum(support == (1, 4) for support in seen) < 45


def test_frames_arrays_and_sparse_agree():
    X, y = data(200)
    ask = {"epsilon": 1, "random_state": 3}
    expected = selector(**ask).fit(X, y).support_
    polars = pytest.importorskip("polars")
    for A, b in (
        (pd.DataFrame(X, columns=list("abcdef")), pd.Series(y)),
        (polars.DataFrame(X, schema=list("abcdef")), polars.Series(y)),
        (sparse.csr_matrix(X), y),
        (sparse.csc_matrix(X), y),
        (X.tolist(), y.tolist()),
        (X.astype(object), y.astype(object)),
    ):
        np.testing.assert_array_equal(selector(**ask).fit(A, b).support_, expected)


def test_ledger_identity_and_refusal(tmp_path):
    X, y = data(100)
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="x", epsilon=2, delta=0, adjacency="replace_one"
    )
    model = selector(epsilon=1, ledger=ledger)
    for twin in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.get_params()["ledger"] == ledger
    fitted = clone(model).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    assert str(ledger.total().epsilon) == "1"
    pickle.loads(pickle.dumps(model)).fit(X, y)
    refused = clone(model)
    with pytest.raises(BudgetError):
        refused.fit(X, y)
    with pytest.raises(NotFittedError):
        refused.transform(X)
    assert not [name for name in vars(refused) if name.endswith("_")]
    assert str(ledger.total().epsilon) == "2"


def test_persons():
    X, y = data(90)
    model = selector(epsilon=3, max_rows_per_person=3, random_state=0).fit(X, y)
    assert model.guarantee_.unit == "person"
    assert str(model.guarantee_.epsilon) == "3"
    for seed in range(10):
        ours = selector(epsilon=0.3, max_rows_per_person=3, random_state=seed).fit(X, y).support_
        np.testing.assert_array_equal(ours, selector(epsilon="0.1", random_state=seed).fit(X, y).support_)


def test_repr_holds_no_data():
    X, y = data(20)
    y[0] = 3.14159
    assert "3.14159" not in repr(selector().fit(X, y))


def test_declared_rows_of_a_person_are_an_assumption():
    X, y = np.random.default_rng(0).uniform(-1, 1, (60, 4)), np.zeros(60)
    one = SubsetSelector(1, 1, feature_bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, y).guarantee_
    many = SubsetSelector(1, 1, feature_bounds=(-1, 1), target_bounds=(-1, 1), max_rows_per_person=3)
    assert "at most 3 rows a person" in many.fit(X, y).guarantee_.assumptions
    assert one.assumptions == ("unrecorded",)


@pytest.mark.parametrize(("options", "top"), [({}, 2 + 6 * 2), ({"top": 3}, 3), ({"top": 1000}, 28)])
def test_top_r_lists_a_public_number_of_supports(options, top):
    X = np.random.default_rng(0).uniform(-1, 1, (400, 8))
    bounds = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2)}
    selector = SubsetSelector(2, 60, mechanism="top_r", **bounds, **options)
    assert clone(selector).get_params()["top"] == options.get("top")
    fitted = selector.fit(X, X[:, 2] - X[:, 5])
    assert fitted.support_.tolist() == [2, 5]
    assert fitted.guarantee_.event["top"] == fitted.result_.top == top
    assert fitted.guarantee_.assumptions == ("unrecorded",)


def test_mistakes_names_its_assumption(tmp_path):
    X = np.random.default_rng(0).uniform(-1, 1, (400, 8))
    selector = SubsetSelector(2, 60, mechanism="mistakes", feature_bounds=(-1, 1), target_bounds=(-2, 2))
    assert selector.fit(X, X[:, 2] - X[:, 5]).guarantee_.assumptions == ("gap condition", "unrecorded")
    ledger = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="t", epsilon=99, adjacency="replace_one")
    with pytest.raises(RefusedError, match="gap condition"):
        selector.set_params(ledger=ledger).fit(X, X[:, 2] - X[:, 5])
    assert ledger.total().epsilon == 0
    assert not hasattr(selector, "support_")


def frame_of(n=800, seed=0):
    X, y = data(n, seed)
    return pd.DataFrame(X, columns=list("abcdef")), y


def test_bounds_by_name():
    X, y = frame_of()
    X["f"] *= 50
    bounds = dict.fromkeys("abcde", (-1, 1)) | {"f": (-50, 50)}
    reverse = dict(reversed(bounds.items()))
    low, high = (pd.Series({name: pair[side] for name, pair in reverse.items()}) for side in (0, 1))
    expected = selector(feature_bounds=([-1] * 5 + [-50], [1] * 5 + [50]), random_state=1).fit(X, y)
    for given in (bounds, reverse, (low, high), [low, high], (low, [1] * 5 + [50])):
        model = selector(feature_bounds=given, random_state=1).fit(X, y)
        assert model.result_.to_dict() == expected.result_.to_dict()


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"a": (-1, 1)}, "lacks column 'b'"),
        ({**dict.fromkeys("abcdef", (-1, 1)), "z": (0, 1)}, "names 'z', which is no column"),
        ({**dict.fromkeys("abcde", (-1, 1)), "f": 1}, "gives 1 for column 'f'"),
        ({**dict.fromkeys("abcde", (-1, 1)), "f": "01"}, "gives '01' for column 'f'"),
        ({**dict.fromkeys("abcde", (-1, 1)), "f": (1, 0)}, "without lower < upper"),
        ({}, "is empty"),
        ((pd.Series([-1.0] * 6), pd.Series([1.0] * 6)), "lacks column 'a'"),
        ((pd.Series([-1.0] * 7, index=list("abcdeff")), [1.0] * 7), "names a column twice"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bounds_that_do_not_match_the_names(bounds, words):
    with pytest.raises(ParameterError, match=words):
        selector(feature_bounds=bounds).fit(*frame_of(50))


def test_bounds_of_an_array_have_no_names():
    X, y = data()
    with pytest.raises(ParameterError, match="X has no names"):
        selector(feature_bounds=dict.fromkeys("abcdef", (-1, 1))).fit(X, y)
    by_place = (pd.Series([-1.0] * 6), pd.Series([1.0] * 6))
    assert selector(feature_bounds=by_place).fit(X, y).support_.tolist() == [1, 4]


def test_types_that_can_never_be_right_are_refused_before_the_charge():
    X, y = frame_of(50)
    classes = {"loss": "logistic", "target_bounds": None}
    with pytest.raises(DataError, match="numbers"):
        selector(classes=("no", "yes"), **classes).fit(X, y)
    with pytest.raises(DataError, match="text"):
        selector(classes=(0, 1), **classes).fit(X, np.full(50, "yes"))
    selector(classes=(0, 1), **classes).fit(
        X, np.full(50, "yes", dtype=object)
    )  # one cell may bring it about
    with pytest.raises(DataError, match="'g' holds dates"):
        selector().fit(X.assign(g=pd.Timestamp("2020-01-01")), y)
    with pytest.raises(ParameterError, match="of 6 encoded columns"):
        selector(size=99).fit(X, y)
