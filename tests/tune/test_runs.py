"""What a run may spend, and the rehearsal that finds out before the charge."""

import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import confide
from confide.errors import DataError, ParameterError
from confide.privacy import Adjacency, Event
from confide.privacy.random_stopping import stopping
from confide.tune.runs import _public_cells, price_of_run

OPTIONS = {"epsilon": 1, "delta": 1e-6, "expected_runs": 3}


def table(n=400, p=3, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, p))
    return X, np.where(X[:, 0] > 0, "b", "a")


def classifier(engine=None, **options):
    return confide.PrivateClassifier(classes=["a", "b"], engine=engine, **options)


def open_ledger(path, adjacency="replace_label"):
    return confide.Ledger.open(
        f"sqlite:///{path}/ledger.db", dataset="d", epsilon=9, delta=1e-3, adjacency=adjacency
    )


@pytest.mark.parametrize("runs", [1, 5])
def test_a_pure_price_has_no_delta(runs):
    law = stopping(runs)
    price = price_of_run(law, "pure", Fraction(1), Fraction(1, 10**6))
    assert price.delta == 0
    assert price == price_of_run(law, "pure", Fraction(1), Fraction(0))


def test_pure_candidates_are_charged_without_delta_and_scored_with_laplace(tmp_path):
    X, y = table()
    book = open_ledger(tmp_path)
    result = confide.tune(
        lambda c: classifier("randomized_response", shrinkage=c), [True, False], X, y, score="accuracy",
        ledger=book, **OPTIONS,
    )  # fmt: skip
    run = Event.of("pure", epsilon=str(Fraction(str(result.facts["run_epsilon"]))))
    assert result.facts["run_delta"] == 0
    assert result.guarantee.delta == 0
    assert result.guarantee.event == stopping(3).event(run, run)
    assert book.remaining().epsilon == 8
    assert book.remaining().delta == pytest.approx(1e-3)
    scored = 80
    assert result.facts["score_deviation"] == pytest.approx(
        np.sqrt(2) / result.facts["run_epsilon"] / scored, rel=1e-3
    )


@pytest.mark.parametrize("n", [40, 400, 4000])
@pytest.mark.parametrize("epsilon", [0.3, 1, 4, 12])
def test_an_engine_chosen_by_public_columns_never_fails_after_the_charge(n, epsilon, tmp_path):
    # On 64 rows of zeros the choice may be another than on the columns: each run keeps the charged kind.
    X, y = table(n)
    options = {**OPTIONS, "epsilon": epsilon}
    result = confide.tune(
        lambda c: classifier(shrinkage=c), [True, False], X, y, score="accuracy", random_state=0, **options
    )
    pure = result.model.engine_ == "randomized_response"
    if pure:
        assert result.guarantee.event.parts[0].mechanism == "approximate"
    else:
        assert result.guarantee.event.parts[0].mechanism in ("gaussian", "approximate")
    assert result.facts["run_delta"] > 0


def test_public_cells_that_cannot_be_fitted_cost_nothing(tmp_path):
    X, y = table()
    X[390, 1] = np.nan
    book = open_ledger(tmp_path)
    with pytest.raises(ValueError, match="NaN"):
        confide.tune(lambda c: classifier("closed_form"), [1], X, y, score="accuracy", ledger=book, **OPTIONS)
    assert book.remaining().epsilon == 9


@pytest.mark.parametrize("shape", ["array", "frame", "sparse", "polars"])
def test_the_rehearsal_leaves_private_columns_alone(shape):
    from scipy.sparse import csr_matrix

    X, y = table()
    X[:, 2] = 1e308
    X[5, 2] = np.nan
    public = np.array([True, True, False])
    forms = {"array": lambda: X, "frame": lambda: pd.DataFrame(X, columns=list("abc"))}
    forms["sparse"] = lambda: csr_matrix(X)
    if shape == "polars":
        polars = pytest.importorskip("polars")
        forms["polars"] = lambda: polars.DataFrame({name: X[:, i] for i, name in enumerate("abc")})
    result = confide.tune(
        lambda c: classifier("closed_form", public=public, adjacency="replace_private_part"), [1],
        forms[shape](), y, score="accuracy", random_state=0, **OPTIONS,
    )  # fmt: skip
    assert result.guarantee.adjacency is Adjacency.REPLACE_PRIVATE_PART


def test_candidates_share_one_declaration_of_what_is_public(tmp_path):
    X, y = table()
    book = open_ledger(tmp_path, "replace_private_part")

    def make(public):
        return confide.PrivateRegressor(
            engine="dpsgd", steps=2, public=public, adjacency="replace_private_part",
            feature_bounds=(-1, 1), target_bounds=(-3, 3),
        )  # fmt: skip

    numbers = np.where(y == "b", 1.0, -1.0)
    with pytest.raises(ParameterError, match="different columns public"):
        confide.tune(make, [[True, True, True], [True, False, False]], X, numbers, ledger=book, **OPTIONS)
    assert book.remaining().epsilon == 9
    confide.tune(
        make, [[True, False, False], np.array([True, False, False])], X, numbers, ledger=book, **OPTIONS
    )
    assert book.remaining().epsilon == 8


@pytest.mark.parametrize("declared", [318, 319, 320, 321, 1])
def test_a_declared_number_of_rows_refuses_no_run(declared, tmp_path):
    """A run has about 320 of 400 rows, some more and some less; neither is told."""
    X, y = table()
    book = open_ledger(tmp_path, "add_remove_one")

    def make(rate):
        return confide.PrivateRegressor(
            target_bounds=(-1, 1), feature_bounds=(-1, 1), adjacency="add_remove_one", max_rows=declared,
            engine="dpsgd", steps=2, learning_rate=rate,
        )  # fmt: skip

    for _ in range(4):
        confide.tune(make, [0.1, 0.2], X, np.where(y == "b", 1.0, -1.0), ledger=book, **OPTIONS)
    assert book.remaining().epsilon == 5


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_secret_numbers_of_rows_refuse_nothing(n, tmp_path):
    X, y = np.zeros((n, 2)), np.zeros(n)
    book = open_ledger(tmp_path, "add_remove_one")

    def make(c):
        return confide.PrivateRegressor(
            target_bounds=(-1, 1), feature_bounds=(-1, 1), adjacency="add_remove_one", max_rows=100,
            engine="dpsgd", steps=3, hidden=c,
        )  # fmt: skip

    result = confide.tune(make, [(64, 32)], X, y, ledger=book, **OPTIONS)
    assert result.guarantee.adjacency is Adjacency.ADD_REMOVE_ONE
    assert book.remaining().epsilon == 8


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("labels", ["numbers", "classes"])
def test_sparse_models_of_few_secret_rows_refuse_nothing(n, labels, tmp_path):
    """A part that is fitted or scored is often empty here."""
    X, y = table()
    book = open_ledger(tmp_path, "add_remove_one")
    more = {"adjacency": "add_remove_one", "feature_bounds": (-1, 1)}

    def make(size):
        if labels == "classes":
            return confide.SparseClassifier(size, None, classes=["a", "b"], **more)
        return confide.SparseRegressor(size, None, target_bounds=(-1, 1), **more)

    targets = y if labels == "classes" else np.where(y == "b", 1.0, -1.0)
    score = "accuracy" if labels == "classes" else "squared"
    for _ in range(2):
        confide.tune(make, [1, 2], X[:n], targets[:n], score=score, ledger=book, **OPTIONS)
    assert book.remaining().epsilon == 7


def test_public_numbers_of_rows_must_leave_some_to_score():
    with pytest.raises(DataError, match="1 rows"):
        confide.tune(lambda c: classifier("closed_form"), [1], *table(1), score="accuracy", **OPTIONS)


@pytest.mark.parametrize(("name", "value"), [("epsilon", 5.0), ("delta", 1e-9), ("random_state", 0)])
def test_amounts_set_in_make_are_refused(name, value, tmp_path):
    book = open_ledger(tmp_path)
    with pytest.raises(ParameterError, match=f"sets '{name}'"):
        confide.tune(
            lambda c: classifier("closed_form", **{name: value}), [1], *table(), score="accuracy", ledger=book,
            **OPTIONS,
        )  # fmt: skip
    assert book.remaining().epsilon == 9


def test_messages_name_the_delta_that_was_passed():
    with pytest.raises(ParameterError, match=r"'delta' parameter is 0\b"):
        confide.tune(
            lambda c: classifier("closed_form"), [1], *table(), score="accuracy", **{**OPTIONS, "delta": 0}
        )
    with pytest.warns(UserWarning, match=r"'delta' parameter is 0\.01\b"):
        confide.tune(
            lambda c: classifier("closed_form"), [1], *table(), score="accuracy", **{**OPTIONS, "delta": 0.01}
        )


def test_no_warning_counts_the_runs():
    counts = set()
    for seed in range(4):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            confide.tune(
                lambda c: classifier("closed_form"), [1], *table(), score="accuracy", random_state=seed,
                **{**OPTIONS, "delta": 0.01},
            )  # fmt: skip
        counts.add(len(caught))
    assert counts == {1}


def test_a_column_that_is_called_as_a_method_of_matrices_is_a_column():
    frame = pd.DataFrame({"tocsr": [1.0, 2.0], "b": [3.0, 4.0]})
    found = _public_cells(frame, np.array([True, False]))
    pd.testing.assert_frame_equal(found, frame.assign(b=0.0))
