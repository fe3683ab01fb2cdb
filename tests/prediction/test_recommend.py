"""The chooser: what it recommends, what the budget gives, and that it does not depend on what it must not."""

from __future__ import annotations

import datetime
from statistics import NormalDist

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import confide
from confide.errors import DataError, ParameterError, SchemaError, UnsupportedError
from confide.prediction import StableAnswers, recommend, recommend_from_margins, release_of
from confide.prediction.recommend_front import _persons
from confide.prediction.recommend_price import Price, _tail, expected, prices, short
from confide.privacy import exact

ASK = {"epsilon": 10, "delta": 1e-5, "queries": 100}


def rows(n=400, p=4, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    score = X[:, 0] + 0.2 * rng.normal(size=n)
    return X, np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))


def advise(**changed):
    X, y = rows()
    options = {
        **ASK,
        "classes": [0, 1],
        "feature_bounds": (-2, 2),
        "certificates": ["erm"],
        "models": ["logistic"],
        "constants": [None],
        **changed,
    }
    return recommend(X, y, **options)


@pytest.fixture(scope="module")
def advice():
    X, y = rows()
    return recommend(X, y, **ASK, classes=[0, 1], feature_bounds=(-2, 2), rows=1000)


@pytest.mark.parametrize("release", ["response", "sparse_vector", "ptr", "cauchy", "laplace", "global"])
@pytest.mark.parametrize(
    ("epsilon", "delta", "queries"), [(10, 1e-5, 100), (1, "1e-6", 1), (0.5, 1e-5, 3000)]
)
def test_what_answers_spend_fits_the_total(advice, release, epsilon, delta, queries):
    model = advice.certifier().fit(*rows())
    held, reasons = prices([release], epsilon, delta, queries, 2)
    assert not reasons
    for price in held:
        guarantee = model.preview(queries, **price.answer_arguments())
        assert guarantee.epsilon <= exact(epsilon)
        assert guarantee.delta <= exact(delta)
        # Only rounding and slack are lost.
        assert guarantee.epsilon >= exact(epsilon) * exact("0.99")


def test_without_delta_only_pure_releases_are_there():
    advice = advise(delta=0)
    assert {option.release for option in advice.table} == {"response", "cauchy", "global"}
    assert len(advice.left_out) == 3
    assert "left out: ptr" in str(advice)
    with pytest.raises(ParameterError, match="No release"):
        advise(delta=0, releases=["ptr"]).best  # noqa: B018


def test_expected_accuracy_is_that_of_drawn_answers():
    rng = np.random.default_rng(1)
    k, correct = rng.integers(0, 20, 4000), rng.random(4000) < 0.9
    for release in ("response", "cauchy", "global"):
        told = expected(Price(release, 0.3, 0, 0), correct, k, queries=10, classes=2)
        drawn = release_of(release, 0.3, 2).draw(np.zeros(4000, dtype=int), k, stream=3)
        right = (drawn == 0) == correct
        assert abs(told.accuracy - right.mean()) < 4 * 0.5 / np.sqrt(4000)
        assert told.answered == 1


def test_the_estimate_of_the_sparse_vector_is_that_of_epochs():
    rng = np.random.default_rng(2)
    k, correct = rng.choice([2, 30, 60, 90], 2000, p=[0.05, 0.2, 0.35, 0.4]), rng.random(2000) < 0.9
    price = Price("sparse_vector", 1.0, 1e-6, 0.0, 4)
    told = expected(price, correct, k, queries=40, classes=2)
    shares, hits = [], []
    for run in range(300):
        asked = rng.integers(0, 2000, 40)
        opened = iter(range(4))

        def charge(event, opened=opened):
            if next(opened, None) is None:
                raise confide.errors.RefusedError("The epochs are used up.", "Stop.")

        vector = StableAnswers(1, 1e-6, 2, charge=charge, stream=run)
        answers = vector.answer(np.zeros(40, dtype=int), k[asked])
        stable = np.flatnonzero(answers == 0)
        shares.append(len(stable) / 40)
        hits.append((correct[asked][stable].sum() + (40 - len(stable)) / 2) / 40)
    assert abs(told.answered - np.mean(shares)) < 4 * np.std(shares) / np.sqrt(300) + 0.005
    assert abs(told.accuracy - np.mean(hits)) < 4 * np.std(hits) / np.sqrt(300) + 0.005


def test_few_public_queries_promise_no_endless_epoch():
    price = Price("sparse_vector", 1.0, 1e-6, 0.0, 1)
    j = np.arange(1, 1001)
    for public, most in ((30, 0.12), (1000, 0.7), (10_000, 0.96)):
        k = np.full(public, 10_000)
        told = expected(price, np.full(public, True), k, queries=1000, classes=2)
        # Rule of succession: none of the next j is unstable, after n that were not.
        assert told.answered == pytest.approx(np.mean((public + 1) / (public + 1 + j)), rel=0.05)
        assert told.answered < most
        # One epoch that each query ends with probability u, the 95 % bound, cut at 1,000 queries.
        u = 1 - 0.05 ** (1 / public)
        answered = (1 - u) / u * (1 - (1 - u) ** 1000) / 1000
        assert told.low == pytest.approx((1 + answered) / 2, rel=0.02)
        assert told.high == 1
        assert told.low < told.accuracy < told.high


def test_tail_of_the_noise_by_summation():
    rate, n = 0.3, np.arange(-400, 401)
    mass = np.exp(-rate * np.abs(n))
    for t in (-7, -1, 0, 1, 12):
        assert _tail(np.array([t]), rate)[0] == pytest.approx(mass[n > t].sum() / mass.sum(), rel=1e-12)


def test_amounts_are_rounded_down_to_four_digits():
    for value in ("0.2040895", "1.00002", "5e-8", "0.99999"):
        assert exact(value) * exact("0.999") <= exact(short(exact(value))) <= exact(value)


def test_table_is_ranked_and_the_best_is_what_is_recommended(advice):
    accuracies = [round(option.accuracy, 3) for option in advice.table]
    assert accuracies == sorted(accuracies, reverse=True)
    assert advice.best is advice.table[0]
    assert advice.best.release == "response"
    assert advice.best_of("ptr").release == "ptr"
    assert advice.best.accuracy > 0.8
    assert {option.certificate for option in advice.table} == {"erm", "votes"}
    with pytest.raises(ParameterError, match="not in the table"):
        advice.best_of("nothing")


def test_certifier_is_ready_to_fit_and_answer(advice):
    X, y = rows(1000, seed=5)
    model = advice.certifier(random_state=0).fit(X[:900], y[:900])
    told = model.answer(X[900:], **advice.answer_arguments)
    assert abs((told == y[900:]).mean() - advice.best.accuracy) < 4 * 0.5 / np.sqrt(100)
    assert model.guarantee_.epsilon <= 10
    other = advice.certifier(advice.best_of("global"))
    assert other.get_params()["certificate"] == advice.best_of("global").certificate


def test_another_budget_is_priced_as_if_asked_at_once():
    first = advise(alphas=[0.1, 1])
    again = advise(alphas=[0.1, 1], epsilon=2, delta=1e-6, queries=7)
    assert first.at(2, 1e-6, 7).to_dict() == again.to_dict()
    assert first.at(queries=10_000).best.accuracy < first.best.accuracy
    assert first.at(queries=10_000).best.price.epsilon < first.best.price.epsilon


def test_more_rows_are_more_stable_and_large_tables_are_scaled(monkeypatch):
    small, large = advise(rows=500, alphas=[0.1]), advise(rows=5000, alphas=[0.1])
    assert 8 < large.best_of("response").median_k / small.best_of("response").median_k < 13
    monkeypatch.setattr("confide.prediction.recommend_front.MOST_ROWS", 1000)
    scaled = advise(rows=5000, alphas=[0.1])
    assert scaled.trials[0].k == pytest.approx(large.trials[0].k, rel=0.15, abs=10)
    assert np.median(scaled.trials[0].k) == pytest.approx(np.median(large.trials[0].k), rel=0.05)
    votes = {"certificates": ["votes"], "neighbours": [100], "rows": 5000}
    coarse = advise(**votes).trials[0]
    monkeypatch.undo()
    fine = advise(**votes).trials[0]
    assert np.abs(coarse.k - fine.k).mean() < 5
    assert coarse.settings == fine.settings == {"certificate": "votes", "neighbours": 100}


def test_secret_number_of_rows_gives_a_ridge_instead_of_alpha():
    advice = advise(adjacency="add_remove_one", alphas=[0.1], rows=2000)
    assert advice.best.settings["ridge"] == pytest.approx(200)
    assert "alpha" not in advice.best.settings
    advice.certifier().fit(*rows())
    replaced = advise(alphas=[0.1], rows=2000)
    assert advice.best_of("response").median_k > 1.5 * replaced.best_of("response").median_k


def test_several_classes_objects_and_boxes():
    X, y = rows(600, classes=3)
    thing = confide.prediction.VoteGap(21, 3, (-2, 2))
    advice = recommend(
        X, y, **ASK, classes=[0, 1, 2], feature_bounds=(-2, 2), certificates=["erm", "interval", "ball", thing],
        alphas=[0.1], rows=2000,
    )  # fmt: skip
    assert {option.certificate for option in advice.table} == {"erm", "interval", "ball", "VoteGap"}
    assert {option.release for option in advice.table} == {"response", "sparse_vector", "ptr", "global"}
    assert sum("cauchy" in why or "laplace" in why for why in advice.left_out) == 2
    assert advice.to_dict()["table"]
    for option in advice.table:
        advice.certifier(option).fit(X, y)


def test_table_of_public_rows_gives_arguments_of_certify():
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 80, 600)
    frame = {"age": age, "sick": np.where(age + rng.normal(0, 5, 600) > 50, "yes", "no")}
    columns = {
        "age": {"role": "private", "lower": 20, "upper": 80},
        "sick": {"role": "label", "categories": ["no", "yes"]},
    }
    table = confide.Table.from_frame(frame, {"columns": columns})
    with pytest.raises(ParameterError, match="public=True"):
        recommend(table, **ASK)
    with pytest.raises(ParameterError, match="itself"):
        recommend(table, frame["sick"], **ASK, public=True)
    advice = recommend(table, **ASK, public=True, certificates=["erm"], alphas=[0.01, 0.1])
    model = confide.certify(table, **advice.certify_arguments, random_state=0)
    told = model.answer({"age": [25.0, 78.0]}, **advice.answer_arguments)
    assert told.tolist() == ["no", "yes"]
    # Distances at the same size are those of the certified model itself, up to the rows of a fold.
    k = confide.certify(table, **advice.certify_arguments).stability({"age": age})[1]
    assert np.median(k) == pytest.approx(advice.best.median_k, rel=0.1)
    with_id = {**columns, "person": {"role": "id"}}
    held = confide.Table.from_frame(
        {**frame, "person": np.arange(600) // 3}, {"table": {"max_rows_per_id": 3}, "columns": with_id}
    )
    with pytest.raises(ParameterError, match="itself"):
        recommend(held, **ASK, public=True, max_rows_per_id=3)
    persons = recommend(held, **ASK, public=True, certificates=["erm"], alphas=[0.1])
    made = confide.certify(held, **persons.certify_arguments)
    assert made.unit == "person"
    k = made.stability({"age": age})[1]
    assert np.median(k) == pytest.approx(persons.best.median_k, rel=0.15)
    columns["sick"] = {"role": "private", "categories": ["no", "yes"]}
    with pytest.raises(SchemaError, match="label"):
        recommend(confide.Table.from_frame(frame, {"columns": columns}), **ASK, public=True)


def test_the_same_seed_and_any_number_of_jobs_give_the_same(advice):
    assert advise(alphas=[0.1]).to_dict() == advise(alphas=[0.1], n_jobs=2).to_dict()
    assert advise(alphas=[0.1]).to_dict() != advise(alphas=[0.1], seed=1).to_dict()


def test_text_names_budget_release_and_warning(advice):
    text = str(advice)
    assert "100 answers" in text
    assert "public or synthetic" in text
    assert text.count("\n") < 20
    assert "response" in repr(advice)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"epsilon": 0}, ParameterError),
        ({"delta": 1}, ParameterError),
        ({"queries": 0}, ParameterError),
        ({"rows": 0}, ParameterError),
        ({"releases": ["nothing"]}, ParameterError),
        ({"releases": []}, ParameterError),
        ({"releases": "response"}, ParameterError),
        ({"certificates": "erm"}, ParameterError),
        ({"certificates": ["nothing"]}, ParameterError),
        ({"certificates": []}, ParameterError),
        ({"alphas": [0]}, ParameterError),
        ({"models": ["nothing"]}, UnsupportedError),
        ({"feature_bounds": None}, ParameterError),
        ({"classes": [0, 2]}, DataError),
        ({"folds": 1}, ParameterError),
        ({"folds": 300}, DataError),
    ],
)
def test_what_is_refused(change, error):
    with pytest.raises(error):
        advise(**change)


def test_margins_give_the_distances_of_the_plain_bound():
    from confide.prediction import StronglyConvexERM

    X = rows(1000)[0]
    for loss, classes in (("logistic", 2), ("huber_hinge", 2), ("softmax", 3)):
        labels = np.digitize(X[:, 0], [0] if classes == 2 else [-0.4, 0.4])
        model = StronglyConvexERM(100.0, classes, (-2, 2), loss, curvature_levels=0).fit(X, labels)
        queries = model.rows(X)
        logits = queries @ model.weights.T
        if classes == 2:
            margin, told = np.abs(logits[:, 0]), (logits[:, 0] > 0).astype(int)
        else:
            ordered = np.sort(logits, axis=1)
            margin, told = ordered[:, -1] - ordered[:, -2], logits.argmax(axis=1)
        signed = np.where(told == labels, 1, -1) * margin / np.linalg.norm(queries, axis=1)
        advice = recommend_from_margins({0.1: signed}, **ASK, rows=1000, classes=classes, model=loss)
        exact_k = model.stability(X)[1]
        assert np.array_equal(advice.trials[0].correct, told == labels)
        # Radii of the certificate are at most the plain ones, by the slopes that the weights allow.
        assert np.all(advice.trials[0].k <= exact_k + 1)
        assert np.median(advice.trials[0].k) >= 0.6 * np.median(exact_k)


def test_margins_trade_regularisation_against_the_budget():
    margins = {0.01: NormalDist(1.0, 0.5).quantiles(500), 1.0: NormalDist(0.02, 0.02).quantiles(500)}
    ample = recommend_from_margins(margins, epsilon=10, queries=10, rows=5000)
    scarce = recommend_from_margins(margins, epsilon=0.1, queries=10, rows=5000)
    assert ample.best.settings["alpha"] == 0.01
    assert scarce.best.settings["alpha"] == 1.0
    assert scarce.certifier(feature_bounds=(-2, 2)).fit(*rows()).alpha == 1.0
    halved = recommend_from_margins({1.0: margins[1.0]}, **ASK, rows=5000, adjacency="add_remove_one")
    assert halved.best.median_k >= 2 * scarce.best.median_k


@pytest.mark.parametrize(
    "profile", [{}, {0.1: []}, {0.1: [[1.0]]}, {0.1: ["x"]}, {0.1: [np.nan]}, {0: [1.0]}]
)
def test_margins_that_are_refused(profile):
    with pytest.raises(ParameterError):
        recommend_from_margins(profile, **ASK, rows=100)


def test_persons_divide_distances_and_stay_in_one_fold():
    X, y = rows()
    ids = np.arange(400) // 2
    plain, held = advise(alphas=[0.1]), advise(alphas=[0.1], ids=ids, max_rows_per_id=2)
    assert held.best_of("response").median_k == pytest.approx(plain.best_of("response").median_k / 2, rel=0.2)
    model = held.certifier().fit(X, y, ids=ids)
    assert model.model_.unit == "person"
    from confide.prediction.recommend_front import _Tries

    tries = _Tries(X, y, held.asked, (-2, 2), 3, 0, ids.astype(np.int64))
    for train, asked, _ in tries.parts():
        assert not set(ids[train]) & set(ids[asked])
    for change in ({"ids": ids}, {"ids": ids[1:], "max_rows_per_id": 2}):
        with pytest.raises((ParameterError, DataError), match="ids"):
            advise(**change)


@pytest.mark.parametrize(
    ("ids", "fact"),
    [
        ([*range(398), "a", "b"], r"mixed types: numbers, text"),
        (np.array([*range(399), b"a"], dtype=object), r"mixed types: bytes, numbers"),
        (pd.Series([("a", 1), "b", *range(398)]), r"mixed types: numbers, text, tuples"),
        ([None, float("nan"), *range(398)], r"2 of the ids name nobody"),
        ([{"a": 1}, *map(str, range(399))], r"1 of the ids name nobody"),
        (np.arange(400.0), r"of type float64"),
        (range(399), r"399 ids for 400 rows"),
        (np.zeros((400, 1), dtype=int), r"shape \(400, 1\)"),
        ("a" * 400, r"The ids are a str"),
    ],
    ids=str,
)
def test_ids_that_are_refused(ids, fact):
    with pytest.raises(DataError, match=fact):
        advise(alphas=[0.1], ids=ids, max_rows_per_id=2)


def test_ids_of_every_type_are_told_apart():
    codes = np.arange(400) // 2
    held = [
        codes, codes.tolist(), [f"p{i}" for i in codes], [("p", int(i)) for i in codes], pl.Series(codes), pa.array(codes),
        ["p" + "\0" * int(i) for i in codes], [datetime.date.fromordinal(int(i) + 1) for i in codes],
    ]  # fmt: skip
    for ids in held:
        np.testing.assert_array_equal(_persons(ids, 2, 400), codes)


def test_a_frame_with_a_schema_is_no_table():
    X, y = rows()
    ask = {**ASK, "classes": [0, 1], "feature_bounds": (-2, 2), "alphas": [0.1], "certificates": ["erm"]}
    plain = recommend(X, y, **ask)
    for frame in (
        pl.DataFrame(X),
        pa.table(pl.DataFrame(X)),
        pd.DataFrame(X, columns=["schema", "chunks", "c", "d"]),
    ):
        assert str(recommend(frame, y, **ask)) == str(plain)


def test_the_constant_answer_is_a_baseline():
    X, y = rows()
    y = (X[:, 0] > 1.3).astype(int)
    advice = recommend(X, y, epsilon=0.01, queries=100, classes=[0, 1], feature_bounds=(-2, 2), alphas=[0.1])
    (constant,) = advice.baselines
    assert constant.name == "always 0"
    assert constant.accuracy == pytest.approx(np.mean(y == 0))
    assert advice.unbeaten is constant
    assert "Nothing here beats the baseline: always 0" in str(advice)
    rich = advice.at(epsilon=1000)
    assert rich.unbeaten is None
    assert "Nothing" not in str(rich)
    assert rich.to_dict()["baselines"][0]["name"] == "always 0"
    assert recommend_from_margins({0.1: [0.2]}, epsilon=1, queries=1, rows=9).baselines == ()


def test_a_private_model_is_a_baseline_and_charges_nothing(tmp_path):
    ledger = confide.Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="d", epsilon=1, delta=0, adjacency="replace_one"
    )
    held = confide.PrivateClassifier(engine="objective", ledger=ledger)
    advice = advise(private=held, rows=2000, alphas=[0.1])
    names = [one.name for one in advice.baselines]
    assert names == ["PrivateClassifier at this total, any number of answers", "always 0"]
    assert advice.baselines[0].accuracy > 0.85
    assert ledger.total().epsilon == 0
    assert held.epsilon is None
    assert advice.at(queries=100_000).unbeaten is not None
    # At another total it is fitted again.
    assert advice.at(epsilon=0.001).baselines[0].accuracy < advice.baselines[0].accuracy
    with pytest.raises(ParameterError, match="'private'"):
        advise(private=object())
    broken = advise(private=confide.PrivateClassifier(engine="dpsgd"), delta=0, alphas=[0.1])
    assert any("PrivateClassifier" in why for why in broken.left_out)


def test_neighbours_go_up_to_a_quarter_of_the_rows():
    for count, most in ((100, 15), (2004, 501), (7000, 1501), (60_004, 15_001)):
        advice = advise(certificates=["votes"], rows=count)
        assert max(trial.settings["neighbours"] for trial in advice.trials) == most


def test_unequal_classes_get_a_larger_constant():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    y = (X[:, 0] + 0.5 * rng.normal(size=1500) > 1.4).astype(int)
    ask = {
        "epsilon": 0.1,
        "queries": 1,
        "classes": [0, 1],
        "feature_bounds": (-2, 2),
        "certificates": ["erm"],
    }
    both = recommend(X, y, **ask, alphas=[0.01, 0.1])
    assert both.best.settings["constant"] == pytest.approx(0.25)  # half of sqrt(4) / 4
    few = recommend(X, y, **ask, alphas=[0.01, 0.1], constants=[None])
    assert both.best.accuracy > few.best.accuracy + 0.03
    both.certifier().fit(X, y)
    with pytest.raises(ParameterError, match="constant"):
        recommend(X, y, **ask, constants=[-1])
