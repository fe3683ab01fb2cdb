"""Charged tuning: the law of the winner by enumeration, its price, the charge, and what is refused."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import confide
from confide.errors import ConfideError, DataError, ParameterError, RefusedError, UnsupportedError
from confide.mechanisms import seeded_stream
from confide.privacy import Adjacency, Event, Guarantee, RDPAccountant, gaussian_epsilon, gaussian_sigma
from confide.privacy.losses import loss
from confide.privacy.random_stopping import Stopping, gaussian_profile, pure_profile, stopping
from confide.tune import front
from confide.tune.runs import draw_runs, price_of_run
from confide.tune.scoring import Scoring

LAWS = [(1, 0), (1.5, 0), (3, 0), (10, 0), (10, 1), (4, Fraction(1, 2)), (6, Fraction(-1, 2)), (200, 1)]


def winner(run, scores, law):
    """Exact law of the winner among runs of law `run`; of tied runs the first wins."""
    order = sorted(set(scores))
    total = np.zeros(len(run))

    def generating(x):
        g, eta = float(law.gamma), float(law.eta)
        if g == 1:
            return x
        inside = 1 - (1 - g) * x
        return math.log(inside) / math.log(g) if eta == 0 else (inside**-eta - 1) / (g**-eta - 1)

    for level in order:
        tied = [i for i, score in enumerate(scores) if score == level]
        below = sum(run[i] for i, score in enumerate(scores) if score < level)
        mass = sum(run[i] for i in tied)
        if mass:
            share = (generating(below + mass) - generating(below)) / mass
            for i in tied:
                total[i] = run[i] * share
    return total


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(("runs", "eta"), LAWS)
def test_the_law_of_the_number_of_runs(runs, eta):
    law = stopping(runs, eta)
    assert law.mean <= runs
    assert law.mean == pytest.approx(runs, rel=1e-6)
    k = np.arange(1, 4000)
    pmf = np.array([law.probability(int(i)) for i in k[: 60 if runs < 100 else 400]])
    assert pmf.sum() <= 1 + 1e-9
    draws = np.array([draw_runs(law, seeded_stream(i)) for i in range(150)])
    assert draws.min() >= 1
    for value in (1, 2, 3):
        deviation = math.sqrt(pmf[value - 1] * (1 - pmf[value - 1]) / draws.size) if value <= pmf.size else 0
        assert abs(np.mean(draws == value) - law.probability(value)) <= 4.5 * deviation + 1e-9


def test_the_winner_by_enumeration_of_all_sequences_of_runs():
    # The generating function against brute force: all sequences of up to 7 runs of 3 outputs, two of them tied.
    law, run, scores = stopping(1.5, 0), np.array([0.5, 0.3, 0.2]), [0, 1, 1]
    brute, seen = np.zeros(3), 0.0
    for k in range(1, 8):
        for runs in itertools.product(range(3), repeat=k):
            chance = law.probability(k) * math.prod(run[i] for i in runs)
            best = max(runs, key=lambda i: scores[i])  # the first of tied runs
            brute[best] += chance
            seen += chance
    np.testing.assert_allclose(winner(run, scores, law), brute, atol=1 - seen + 1e-9)
    assert seen > 0.99


@pytest.mark.parametrize(("runs", "eta"), LAWS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_pure_runs_keep_the_charged_epsilon(runs, eta, epsilon):
    law = stopping(runs, eta)
    total = float(law.pure(Fraction(epsilon)))
    assert epsilon <= total <= (2 + float(eta)) * epsilon + 1e-9  # Papernot & Steinke's bound is above
    largest = 0.0
    rng = np.random.default_rng(0)
    # The worst case of the proof: an output that is rare, of ratio e^epsilon, below an upper set at the kink.
    E, rare = math.exp(epsilon), 1e-6
    worst = np.array([E / (1 + E) - rare * E, rare * E, 1 / (1 + E)])
    pairs = [(worst, np.array([1 / (1 + E) - rare, rare, E / (1 + E)]))]
    for _ in range(30):
        base = rng.dirichlet(np.full(4, 0.3))
        signs = rng.integers(0, 2, 4)
        p = base * np.where(signs, math.exp(epsilon / 2), math.exp(-epsilon / 2))
        p, q = p / p.sum(), base / base.sum()
        spread = np.abs(np.log(p / q)).max()
        if spread <= epsilon:
            pairs.append((p, q))
    for p, q in pairs:
        for order in itertools.permutations(range(len(p))):
            a, b = winner(p, order, law), winner(q, order, law)
            keep = (a > 1e-290) & (b > 1e-290)
            largest = max(largest, float(np.abs(np.log(a[keep] / b[keep])).max()))
    assert largest <= total + 1e-7
    assert largest >= 0.999 * total  # the bound is attained


@pytest.mark.parametrize(("runs", "eta"), LAWS)
@pytest.mark.parametrize("mu", [0.1, 0.5, 1.5])
def test_gaussian_runs_keep_the_charged_delta(runs, eta, mu):
    # A Gaussian score on a fine grid of outputs, ranked by value both ways, at every epsilon and both directions.
    from scipy.stats import norm

    law, edges = stopping(runs, eta), np.linspace(-9, 9 + mu, 1201)
    p, q = np.diff(norm.cdf(edges)), np.diff(norm.cdf(edges - mu))
    ranks = np.arange(p.size)
    tight = 0.0
    for scores in (ranks, -ranks, ranks // 100):
        a, b = winner(p, list(scores), law), winner(q, list(scores), law)
        for epsilon in (0.05, 0.3, 1.0, 2.0, 4.0):
            bound = law.delta(epsilon, gaussian_profile(mu))
            for one, other in ((a, b), (b, a)):
                exact = hockey_stick(one, other, epsilon)
                assert exact <= bound + 1e-12
                tight = max(tight, exact / bound if bound > 1e-9 else 0.0)
    assert tight > (0.99 if runs == 1 else 0.01)


def test_one_run_costs_one_run():
    law = stopping(1)
    assert law.gamma == 1
    assert law.pure(Fraction(1, 3)) == Fraction(1, 3)
    assert law.approximate(Fraction(1), Fraction(1, 10**6)) == (1, Fraction(1, 10**6))
    assert law.delta(1.0, gaussian_profile(0.3)) == pytest.approx(gaussian_profile(0.3)(1.0), rel=1e-9)
    for kind in ("gaussian", "pure", "approximate"):
        price = price_of_run(law, kind, Fraction(1), Fraction(0) if kind == "pure" else Fraction(1, 10**6))
        assert price.epsilon == 1


def test_prices_fill_the_budget_and_grow_slowly():
    delta = Fraction(1, 10**6)
    for runs, eta in LAWS[1:]:
        law = stopping(runs, eta)
        gaussian = price_of_run(law, "gaussian", Fraction(1), delta)
        mu = 1 / gaussian_sigma(gaussian.epsilon, gaussian.delta, 1.0)
        assert law.delta(1.0, gaussian_profile(mu)) == pytest.approx(1e-6, rel=1e-4)
        pure = price_of_run(law, "pure", Fraction(1), Fraction(0))
        assert float(law.pure(pure.epsilon)) == pytest.approx(1, rel=1e-6)
        rough = price_of_run(law, "approximate", Fraction(1), delta)
        total = law.approximate(rough.epsilon, rough.delta)
        assert total[0] <= 1
        assert total[1] <= delta
        assert rough.epsilon < gaussian.epsilon
    # Ten runs: 1.42 times the noise of one, where composition asks for sqrt 10 times.
    ten = price_of_run(stopping(10), "gaussian", Fraction(1), delta)
    factor = gaussian_sigma(ten.epsilon, ten.delta, 1.0) / gaussian_sigma(1, 1e-6, 1.0)
    assert factor == pytest.approx(1.417, abs=0.002)


def test_renyi_bound_is_valid_and_above_the_profile():
    law = stopping(10)
    run = Event.of("gaussian", noise_multiplier=6.0)
    event = law.event(run, run)
    assert event == Event.from_json(event.to_json())
    rdp = float(RDPAccountant().compose(event).epsilon(1e-6))
    assert law.delta(rdp, gaussian_profile(1 / 6)) < 1e-6
    # Exact Renyi divergence of order 4 of the winner, scores by value.
    from scipy.stats import norm

    edges = np.linspace(-10, 10, 4001)
    p, q = np.diff(norm.cdf(edges)), np.diff(norm.cdf(edges - 1 / 6))
    a, b = winner(p, range(p.size), law), winner(q, range(q.size), law)
    keep = b > 1e-60
    exact = math.log(float(np.sum(a[keep] ** 4 * b[keep] ** -3.0))) / 3
    bound = loss(event).renyi
    assert bound is not None
    assert exact <= float(bound(np.array([4.0, 8.0, 64.0]))[0])


def test_disjoint_parts_count_once_and_the_costlier_counts():
    law = stopping(5)
    cheap, dear = Event.of("pure", epsilon=0.1), Event.of("pure", epsilon=0.4)
    assert loss(law.event(cheap, dear)).pure == loss(law.event(dear)).pure == law.pure(Fraction(2, 5))
    both = loss(law.event(Event.sequence([cheap, dear]))).pure
    assert both == law.pure(Fraction(1, 2))
    assert loss(law.event(Event.of("gaussian", noise_multiplier=2.0))).rho is None
    with pytest.raises(ParameterError):
        loss(law.event())


@pytest.mark.parametrize(
    ("eta", "gamma"),
    [("-1", "1/2"), ("2", "1/2"), ("0", "0"), ("0", "2"), ("x", "1/2"), (None, "1/2"), (True, "1")],
)
def test_malformed_laws_are_refused(eta, gamma):
    parts = (Event.of("pure", epsilon=1),)
    with pytest.raises(ParameterError):
        loss(Event("random_stopping", (("eta", eta), ("gamma", gamma)), 1, parts))


def test_profiles_of_pairs():
    profile = pure_profile(Fraction(1), Fraction(1, 1000))
    assert profile(1.0) == pytest.approx(1e-3)
    assert profile(0.0) == pytest.approx(1e-3 + 0.999 * math.tanh(0.5), rel=1e-12)
    assert pure_profile(Fraction(1))(1.0) <= 1e-15


def data(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.clip(X[:, 0] + 0.3 * rng.normal(size=n), -3, 3)


def make(leverage, **options):
    return confide.PrivateRegressor(target_bounds=(-3, 3), engine="closed_form", leverage=leverage, **options)


def fit(candidates=(None, 1.0), **changes):
    X, y = data()
    options = {"epsilon": 1, "delta": 1e-6, "expected_runs": 2, "random_state": 3, **changes}
    return confide.tune(
        changes.pop("make", make), candidates, X, y, **{k: v for k, v in options.items() if k != "make"}
    )


def test_the_winner_carries_the_guarantee_of_the_whole():
    result = fit()
    assert result.guarantee.epsilon == 1
    assert result.guarantee.delta == Fraction(1, 10**6)
    assert result.guarantee.adjacency is Adjacency.REPLACE_LABEL
    assert result.guarantee.assumptions == ("seeded", "unrecorded")
    assert result.guarantee.event.mechanism == "random_stopping"
    assert result.model.guarantee_ == result.guarantee == result.model.result_.guarantee
    assert result.best in (None, 1.0)
    assert result.facts["run_epsilon"] < 1
    assert result.status.code == "released"
    # The run's own noise is what its price says: never that of the whole epsilon.
    assert result.model.result_.statistics.noise_multiplier == pytest.approx(
        gaussian_sigma(result.facts["run_epsilon"], 1e-6, 1.0), rel=1e-9
    )
    assert fit().score == result.score
    assert fit(random_state=4).score != result.score


def test_one_candidate_and_one_run_is_one_fit():
    result = fit([None], expected_runs=1)
    assert result.facts["run_epsilon"] == 1
    assert result.facts["expected_runs"] == 1


@pytest.mark.parametrize("asked", [5, 2.5, "3.3"])
def test_facts_tell_the_runs_that_were_asked_for(asked):
    assert fit([None], expected_runs=asked).facts["expected_runs"] == float(asked)


def test_more_runs_find_the_better_candidate():
    X, y = data(4000)
    wins = []
    for seed in range(6):
        result = confide.tune(
            lambda clip: confide.PrivateRegressor(
                target_bounds=(-3, 3), engine="dpsgd", steps=20, clip=clip, learning_rate=clip
            ),
            [0.001, 0.5], X, y, epsilon=2, delta=1e-6, expected_runs=8, eta=1, random_state=seed,
        )  # fmt: skip
        wins.append(result.best)
    assert np.mean(np.array(wins) == 0.5) >= 0.75


def test_one_charge_for_everything(tmp_path):
    book = confide.Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="d", epsilon=1, delta=1e-6, adjacency="replace_label"
    )
    result = fit(ledger=book, random_state=None, expected_runs=3)
    assert result.entry
    assert result.guarantee.assumptions == ()
    assert book.remaining().epsilon == 0
    with pytest.raises(RefusedError):
        fit(ledger=book, random_state=None)


def test_a_refused_charge_reads_nothing(tmp_path):
    class Trap(np.ndarray):
        def __getitem__(self, places):
            raise AssertionError("the label was read")

    X, y = data()
    book = confide.Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="d", epsilon=1, delta=1e-6, adjacency="replace_label"
    )
    with pytest.raises(RefusedError):
        confide.tune(make, [None], X, y.view(Trap), epsilon=2, delta=1e-6, expected_runs=2, ledger=book)
    assert book.remaining().epsilon == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"epsilon": 0}, ParameterError),
        ({"delta": 1}, ParameterError),
        ({"delta": 0}, ParameterError),  # Gaussian candidates
        ({"expected_runs": 0.5}, ParameterError),
        ({"expected_runs": 1e9}, ParameterError),
        ({"eta": -1}, ParameterError),
        ({"eta": "x"}, ParameterError),
        ({"score": "r2"}, ParameterError),
        ({"cap": 0}, ParameterError),
        ({"held_out": 1}, ParameterError),
        ({"candidates": []}, ParameterError),
        ({"candidates": [2.0]}, ParameterError),  # refused by the estimator, in the rehearsal
        ({"make": None}, ParameterError),
        ({"make": lambda c: object()}, UnsupportedError),
        ({"make": lambda c: make(c, ledger="sqlite:///x.db#d")}, ParameterError),
        ({"make": lambda c: make(c, max_rows_per_person=3)}, UnsupportedError),
        (
            {"make": lambda c: make(None, adjacency="replace_label" if c else "replace_private_part")},
            UnsupportedError,
        ),
        ({"make": lambda c: make(None).set_params(target_bounds=(-3, 3 + (c or 0)))}, ParameterError),
        ({"random_state": "x"}, ParameterError),
    ],
)
def test_refusals_come_before_any_charge(change, error, tmp_path):
    book = confide.Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="d", epsilon=9, delta=1e-3, adjacency="replace_label"
    )
    options = {"ledger": book, "random_state": None, **change}
    with pytest.raises(error):
        fit(**options)
    assert book.remaining().epsilon == 9


def test_best_of_k_and_weights_are_not_offered():  # F20, F45
    X, y = data(50)
    for name in ("runs", "n_iter", "sample_weight"):
        with pytest.raises(TypeError):
            confide.tune(make, [None], X, y, epsilon=1, delta=1e-6, expected_runs=2, **{name: 5})


def test_estimators_without_a_guarantee_are_refused():
    from sklearn.linear_model import Ridge

    with pytest.raises(UnsupportedError, match="epsilon"):
        fit(make=lambda c: Ridge())


def test_shapes():
    X, y = data(20)
    for bad in ((X, y[:-1]), (X[:, 0], y), (X, None), (X[:1], y[:1])):
        with pytest.raises(DataError):
            confide.tune(make, [None], *bad, epsilon=1, delta=1e-6, expected_runs=1)


def test_frames_and_arrays_agree():
    X, y = data()
    names = ["a", "b", "c", "d"]
    scores = [
        confide.tune(make, [None], rows, y, epsilon=1, delta=1e-6, expected_runs=2, random_state=0).score
        for rows in (X, pd.DataFrame(X, columns=names))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


@pytest.mark.parametrize("kind", ["squared", "absolute"])
@pytest.mark.parametrize("value", [1e308, -1e308, math.inf, math.nan, 3.0])
def test_one_row_moves_the_score_by_at_most_its_sensitivity(kind, value):
    scoring = Scoring(kind, (-3.0, 3.0), 0.5, Fraction(1), Fraction(1, 10**6))
    predicted = np.linspace(-3, 3, 30)
    y = np.zeros(30)
    other = y.copy()
    other[7] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a, b = scoring.gains(predicted, y), scoring.gains(predicted, other)
    assert (b >= 0).all()
    assert (b <= 1).all()
    changed = np.flatnonzero(a != b)
    assert set(changed) <= {7}
    assert abs(a - b).sum() <= 1 <= scoring.sensitivity


def test_accuracy_of_classes():
    scoring = Scoring("accuracy", (0.0, 1.0), 0.5, Fraction(1), Fraction(0), ("a", "b"))
    assert scoring.gains(np.array(["a", "b"]), np.array(["a", "a"])).tolist() == [1, 0]
    assert scoring.release(np.array(["a"] * 500), np.array(["a"] * 500), seeded_stream(0)) == pytest.approx(
        500, abs=20
    )


def test_add_remove_splits_by_coins():
    from confide.tune.scoring import split

    fitted, scored = split(5000, 0.2, Adjacency.ADD_REMOVE_ONE, seeded_stream(0))
    assert sorted([*fitted, *scored]) == list(range(5000))
    assert 850 < scored.size < 1150
    # A row less leaves the coins of the rows before it as they are: here the last row is removed.
    again = split(4999, 0.2, Adjacency.ADD_REMOVE_ONE, seeded_stream(0))[1]
    assert set(again) ^ set(scored[scored < 4999]) == set()
    public = split(5000, 0.2, Adjacency.REPLACE_LABEL, seeded_stream(0))[1]
    assert np.array_equal(public, split(5000, 0.2, Adjacency.REPLACE_LABEL, seeded_stream(1))[1])
    assert public.size == 1000


def test_the_name_is_callable_however_it_was_imported():
    import importlib

    package = importlib.import_module("confide.tune")
    assert callable(package)
    assert callable(confide.tune)
    assert package.tune is front.tune
    with pytest.raises(ConfideError):
        package(make, [], *data(10), epsilon=1, delta=1e-6, expected_runs=1)


def test_guarantee_and_gaussian_epsilon_are_consistent():
    law = Stopping(Fraction(0), Fraction(1, 2))
    event = law.event(Event.of("gaussian", noise_multiplier=5.0))
    guarantee = Guarantee(1, 1e-6, "replace_label", "row", event)
    assert Guarantee.from_json(guarantee.to_json()).event == event
    assert law.delta(gaussian_epsilon(5.0, 1e-6), gaussian_profile(0.2)) > 1e-6


def schema(persons=False):
    columns = {
        "x": {"role": "public", "lower": -3, "upper": 3},
        "y": {"role": "label", "lower": -3, "upper": 3},
    }
    if persons:
        columns["who"] = {"role": "id"}
    return confide.Schema.from_dict({"table": {"max_rows_per_id": 2} if persons else {}, "columns": columns})


def test_tables_are_charged_and_bound(tmp_path):
    X, y = data(300)
    frame = pd.DataFrame({"x": X[:, 0], "y": y, "who": np.arange(300) // 2})
    table = confide.Table.from_frame(frame[["x", "y"]], schema())
    book = confide.Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="d", epsilon=1, delta=1e-6, adjacency="replace_label"
    )
    result = confide.tune(make, [None, 1.0], table, epsilon=1, delta=1e-6, expected_runs=2, ledger=book)
    assert result.entry
    assert result.guarantee.declaration == table.schema.declaration
    assert book.remaining().epsilon == 0
    with pytest.raises(ParameterError, match="'y'"):
        confide.tune(make, [None], table, y, epsilon=1, delta=1e-6, expected_runs=2)
    with pytest.raises(UnsupportedError, match="id column"):
        confide.tune(make, [None], confide.Table.from_frame(frame, schema(persons=True)), epsilon=1, delta=1e-6,
                     expected_runs=2)  # fmt: skip


def test_polars_frames():
    polars = pytest.importorskip("polars")
    X, y = data()
    frame = polars.DataFrame({name: X[:, i] for i, name in enumerate("abcd")})
    whole = confide.tune(make, [None], X, y, epsilon=1, delta=1e-6, expected_runs=2, random_state=0)
    again = confide.tune(make, [None], frame, y, epsilon=1, delta=1e-6, expected_runs=2, random_state=0)
    assert again.score == pytest.approx(whole.score, abs=1e-6)
