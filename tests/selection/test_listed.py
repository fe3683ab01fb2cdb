"""`top_r` and `mistakes`: golden probabilities, draws against the law, and what one record can change."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from instances import LOSSES, epsilon_of, problem, random_problem, table
from scipy.stats import chisquare
from test_draws import agreement
from test_law import neighbours
from test_scores import GOLDEN, load

from confide.errors import AssumptionError, ParameterError
from confide.ledger import Ledger
from confide.mechanisms import choice_cost, seeded_stream
from confide.selection import SubsetProblem, SubsetSelector, best_supports, draw, gap_condition, law
from confide.selection import listed as module
from confide.selection.enumeration import all_supports, log_law, top_scores
from confide.selection.envelope import EnvelopeError
from confide.selection.exponent import exponent, slack
from confide.selection.listed import top_of, unlisted


def epsilon_for(made, eta):
    """Return the epsilon at which `exponent` is eta, what tau and rounding cost included."""
    range_ = Fraction(made.record_range) + 2 * Fraction(made.tau)
    fixed = choice_cost(slack(made, Fraction(0)))
    share = choice_cost(slack(made, Fraction(1)) - slack(made, Fraction(0)))
    return (2 * range_ * Fraction(eta) / (1 - Fraction(1, 2**50)) + fixed) / (1 - share)


def golden_probabilities(data, made, epsilon):
    """Return the listed supports' probabilities (largest first), the tail's, and that of each level."""
    count, best = int(data["R"]), set(map(int, data["opt_support"]))
    probabilities = np.sort(list(law(made, "top_r", epsilon, "replace_one", top=count).values()))[::-1]
    levels = np.zeros(made.size + 1)
    for support, chance in law(made, "mistakes", epsilon, "replace_one").items():
        levels[len(set(support) - best)] += chance
    return np.append(probabilities[:count], math.fsum(probabilities[count:])), levels


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_probabilities(golden, name):
    data, made = load(golden, name)
    assert top_of("top_r", None, made.p, made.size) == int(data["R"])
    for i, eps in enumerate(map(float, data["eps"])):
        eta = eps / (2 * made.n * float(data["Delta"]))
        exact = epsilon_for(made, eta)
        assert exponent(made, "top_r", exact, "replace_one") == pytest.approx(eta, rel=1e-14)
        for got, want in zip(
            golden_probabilities(data, made, exact),
            (data["topR_prob"][i], data["mistakes_prob"][i]),
            strict=True,
        ):
            np.testing.assert_allclose(got, want, atol=1e-9, rtol=1e-8)
        # At the nominal epsilon tau (2^-24 M, 2^-20 M) and rounding are paid for, and show.
        nominal = golden_probabilities(data, made, eps * made.record_range / (made.n * float(data["Delta"])))
        np.testing.assert_allclose(nominal[0], data["topR_prob"][i], atol=2e-6)
        np.testing.assert_allclose(nominal[1], data["mistakes_prob"][i], atol=2e-6)


def golden_pair(golden):
    data = np.load(golden / "selection" / "mistakes_privacy_pair.npz")
    options = {"feature_bound": float(data["b_x"]), "target_bound": float(data["b_y"])}
    made = [
        SubsetProblem(data[f"X{k}"], data[f"y{k}"], int(data["s"]), "squared", float(data["r"]),
                      float(data["Lambda_ridge"]), **options)
        for k in ("", "2")
    ]  # fmt: skip
    return data, made


def test_the_golden_pair_tells_mistakes_from_private_mechanisms(golden):
    data, (one, two) = golden_pair(golden)
    eps = epsilon_for(one, float(data["eps"]) / (2 * one.n * float(data["Delta"])))
    logs = {
        name: np.log([list(law(made, name, eps, "replace_one").values()) for made in (one, two)])
        for name in ("mistakes", "top_r", "exponential")
    }
    # Scores are rounded up to a grid, so two of them may be a step nearer or further apart.
    grid = 4 * exponent(one, "top_r", eps, "replace_one") * one.step
    assert grid < 2.0**-22 * float(data["eps"])
    worst = {name: float(np.abs(a - b).max()) for name, (a, b) in logs.items()}
    assert worst["mistakes"] == pytest.approx(float(data["max_log_ratio_mistakes_uniform"]), abs=grid)
    assert worst["top_r"] == pytest.approx(float(data["max_log_ratio_topR"]), abs=grid)
    assert worst["exponential"] == pytest.approx(float(data["max_log_ratio_EM"]), abs=grid)
    np.testing.assert_allclose(logs["mistakes"][0], data["logp_mistakes_uniform"], atol=grid)
    np.testing.assert_allclose(logs["mistakes"][1], data["logp2_mistakes_uniform"], atol=grid)


def test_mistakes_is_refused_on_the_golden_pair_unless_accepted_by_name(golden, tmp_path):
    data, _ = golden_pair(golden)
    opened = {"dataset": "t", "epsilon": 9, "adjacency": "replace_one"}
    url = f"sqlite:///{tmp_path}/l.db"
    ask = {
        "feature_bounds": (-0.5, 0.5),
        "target_bounds": (-0.5, 0.5),
        "radius": 1.1,
        "ridge": 120.0,
    }
    for X, y in ((data["X"], data["y"]), (data["X2"], data["y2"])):
        ledger = Ledger.open(url, **opened)
        before = ledger.total().epsilon
        with pytest.raises(AssumptionError, match="gap condition"):
            SubsetSelector(3, 1, mechanism="mistakes", ledger=ledger, **ask).fit(X, y)
        assert ledger.total().epsilon == before
        for name in ("top_r", "exponential"):
            fitted = SubsetSelector(3, 1, mechanism=name, ledger=ledger, **ask).fit(X, y)
            assert fitted.guarantee_.unconditional
        knowing = Ledger.open(url, **opened, accept=("gap condition",))
        fitted = SubsetSelector(3, 1, mechanism="mistakes", ledger=knowing, **ask).fit(X, y)
        assert fitted.guarantee_.assumptions == ("gap condition",)
    assert ledger.total().epsilon == 6


@pytest.mark.parametrize("seed", range(12))
def test_draws_have_the_law(seed):
    made, eps = random_problem(seed, most=10), epsilon_of(seed)
    adjacency = ("add_remove_one", "replace_one")[seed % 2]
    count = math.comb(made.p, made.size)
    asked = [("mistakes", None), *(("top_r", top) for top in {None, 1, max(1, count - 1), count})]
    for mechanism, top in asked:
        drawn = draw(made, mechanism, eps, adjacency, top=top, random_state=seed, size=20_000)
        assert agreement(law(made, mechanism, eps, adjacency, top=top), drawn) > 1e-5


def test_the_test_notices_a_wrong_law():
    made = random_problem(3, most=10)
    for mechanism, other in (("top_r", {"top": 3}), ("mistakes", {})):
        drawn = draw(made, mechanism, 9.0, "replace_one", random_state=1, size=20_000)
        wrong = "top_r" if mechanism == "top_r" else "exponential"
        assert agreement(law(made, wrong, 9.0, "replace_one", **other), drawn) < 1e-5


def test_listing_everything_is_the_exponential_mechanism_and_listing_one_is_uniform():
    made = random_problem(8)
    count = math.comb(made.p, made.size)
    plain = law(made, "exponential", 2, "replace_one")
    assert law(made, "top_r", 2, "replace_one", top=count) == pytest.approx(plain, rel=1e-12)
    assert law(made, "top_r", 2, "replace_one", top=10**6) == pytest.approx(plain, rel=1e-12)
    flat = law(made, "top_r", 2, "replace_one", top=1)
    assert list(flat.values()) == pytest.approx([1 / count] * count, rel=1e-12)


# What one record can change.


def worst_ratio(seed, adjacency):
    rng = np.random.default_rng([seed, 7, adjacency == "replace_one"])
    one, two = neighbours(rng, adjacency)
    eps = float(rng.choice([0.1, 1.0, 5.0]))
    eta = exponent(one, "top_r", eps, adjacency)
    scores = [made.centred_scores(all_supports(made)) for made in (one, two)]
    count = scores[0].size
    return max(
        float(np.abs(np.subtract(*(log_law(top_scores(s, top), eta, "top_r") for s in scores))).max()) / eps
        for top in {1, 2, int(rng.integers(1, count + 1)), count} if top <= count
    )  # fmt: skip


@pytest.mark.parametrize("adjacency", ["add_remove_one", "replace_one"])
def test_log_ratio_of_neighbours(adjacency):
    ratios = [worst_ratio(seed, adjacency) for seed in range(100)]
    assert max(ratios) <= 1 + 1e-9
    assert max(ratios) > 0.15


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove_one", "replace_one"])
def test_log_ratio_of_many_neighbours(adjacency):
    ratios = [worst_ratio(seed, adjacency) for seed in range(5000)]
    assert max(ratios) <= 1 + 1e-9


def recorded_law(made, eps, adjacency, top, monkeypatch):
    """Return the law that a draw used: the weights it was seen to choose by, over all supports."""
    seen = {}

    def choose(*, log_weights, size, stream):
        seen["logs"] = np.asarray(log_weights)
        return np.zeros(size, dtype=np.int64)

    def keep(problem, count):
        seen["list"] = proven(problem, count)
        return seen["list"]

    proven = module.proven
    with monkeypatch.context() as patch:
        patch.setattr(module, "weighted_choice", choose)
        patch.setattr(module, "proven", keep)
        draw(made, "top_r", eps, adjacency, top=top, random_state=0)
    logs, rows = seen["logs"], [tuple(row) for row in seen["list"][0].tolist()]
    every = [tuple(row) for row in all_supports(made).tolist()]
    logs = logs - np.logaddexp.reduce(logs)
    rest = len(every) - len(rows)
    known = dict(zip(rows, logs.tolist(), strict=False))
    return np.array([known[s] if s in known else logs[-1] - math.log(rest) for s in every])


@pytest.mark.parametrize("adjacency", ["add_remove_one", "replace_one"])
@pytest.mark.parametrize("cell", [1e6, 1e308, math.inf, math.nan, 5e-324])
@pytest.mark.parametrize("loss", ["squared", "hinge"])
def test_recorded_weights_of_neighbours(cell, loss, adjacency, monkeypatch):
    rng = np.random.default_rng(3)
    X, y = table(rng, 30, 6, 0.5)
    row = np.array([cell, -cell, cell, 0.5, -0.5, 0.0])
    if adjacency == "replace_one":
        X2, y2 = X.copy(), y.copy()
        X2[4], y2[4] = row, cell
    else:
        X2, y2 = np.vstack([X, row]), np.append(y, cell)
    one, two = problem(X, y, 2, loss), problem(X2, y2, 2, loss)
    for top in (1, 4, 10, 15):
        logs = [recorded_law(made, 1.0, adjacency, top, monkeypatch) for made in (one, two)]
        assert np.abs(logs[0] - logs[1]).max() <= 1
        wanted = np.log(list(law(two, "top_r", 1.0, adjacency, top=top).values()))
        np.testing.assert_allclose(logs[1], wanted, atol=1e-9)


def test_returning_the_best_of_a_level_is_not_private():
    """The public code's variant: for any epsilon a drawn support rules a table out, gap condition or not."""
    rng = np.random.default_rng(0)
    X = 0.5 * np.sign(rng.standard_normal((400, 6)))
    X[:, 3] = X[:, 2]
    y = 0.5 * (X[:, 0] + X[:, 1])
    X[0, 2:4] = 0.5, -0.5
    X2 = X.copy()
    X2[0, 2:4] = -0.5, 0.5
    reachable = []
    for made in (problem(X, y, 2), problem(X2, y, 2)):
        assert gap_condition(made, diagnostics="public data").holds
        supports = all_supports(made)
        scores = made.centred_scores(supports)
        best = supports[np.argmin(scores)]
        mistakes = 2 - np.isin(supports, best).sum(axis=1)
        reachable.append(
            {tuple(supports[mistakes == t][np.argmin(scores[mistakes == t])].tolist()) for t in range(3)}
        )
        assert min(law(made, "mistakes", 1, "replace_one").values()) > 0
    assert reachable[0] != reachable[1]  # probability positive on one table and zero on its neighbour


# The list, and the tail.


@pytest.mark.parametrize("seed", range(25))
def test_what_is_drawn_from_are_the_least_computed_scores_to_the_last_bit(seed):
    made = random_problem(400 + seed, most=11)
    supports = all_supports(made)
    scores = np.array([made.centred_scores(row[None])[0] for row in supports])  # each by itself
    for top in {min(scores.size, top) for top in (1, 2, 30, 10**6)}:
        rows, listed = module.proven(made, top)
        assert np.array_equal(np.sort(listed), np.sort(scores)[:top])
        assert len(set(map(tuple, rows.tolist()))) == top
    best, levels = module.levels(made)
    mistakes = made.size - np.isin(supports, best).sum(axis=1)
    assert levels.tolist() == [scores[mistakes == t].min() for t in range(levels.size)]


def test_a_list_without_a_proof_is_never_drawn_from(monkeypatch):
    from dataclasses import replace

    import confide.selection.ranking as ranking

    asked = []

    def unproven(problem, count, **options):
        asked.append(options)
        return replace(best_supports(problem, count), certified=False)

    monkeypatch.setattr(ranking, "best_supports", unproven)
    for mechanism in ("top_r", "mistakes"):
        with pytest.raises(EnvelopeError, match="proof"):
            draw(random_problem(0), mechanism, 1, "replace_one", random_state=0)
    assert asked == [{}, {}]  # no limit, no fallback, no resampling (pitfall F49)


@pytest.mark.parametrize(("p", "size"), [(6, 3), (7, 1), (5, 5), (9, 7)])
def test_places_and_subsets_are_inverse(p, size):
    supports = np.array(list(combinations(range(p), size)))
    ranks = module._ranks(supports, p)
    assert sorted(ranks.tolist()) == list(range(len(supports)))
    for rank, support in zip(ranks.tolist(), supports.tolist(), strict=True):
        assert module._subset(rank, p, size) == tuple(support)


@pytest.mark.parametrize(("p", "size"), [(1000, 10), (90, 60), (40_000, 64), (70, 69)])
def test_places_beyond_int64_are_exact(p, size):
    rng = np.random.default_rng(0)
    rows = np.sort([rng.choice(p, size, replace=False) for _ in range(5)], axis=1)
    rows = np.vstack([rows, np.arange(size), np.arange(p - size, p)])
    for row, rank in zip(rows, module._ranks(rows, p), strict=True):
        assert int(rank) == sum(math.comb(int(c), i + 1) for i, c in enumerate(row))
        assert module._subset(int(rank), p, size) == tuple(row.tolist())


@pytest.mark.parametrize("count", [1, 7, 18, 19])
def test_every_unlisted_support_has_one_place(count, monkeypatch):
    every = list(combinations(range(6), 3))
    rng = np.random.default_rng(count)
    listed = np.array([every[i] for i in rng.choice(20, count, replace=False)])
    monkeypatch.setattr(module, "uniform_integers", lambda total, size, stream: list(range(total)))
    got = unlisted(listed, 6, 1, seeded_stream(0))
    assert Counter(got) == Counter(set(every) - set(map(tuple, listed.tolist())))


@pytest.mark.parametrize(
    ("mechanism", "p", "size", "top"),
    [("top_r", 200, 10, None), ("top_r", 1000, 10, 50), ("top_r", 90, 20, None), ("mistakes", 200, 10, None),
     ("mistakes", 90, 20, None)],
)  # fmt: skip
def test_more_supports_than_int64(mechanism, p, size, top):
    """Pitfall F48: the tail counts as an exact integer, and all of it is reachable."""
    assert math.comb(p, size) > 2**53
    rng = np.random.default_rng(0)
    made = problem(rng.uniform(-0.5, 0.5, (5, p)), np.zeros(5), size)
    drawn = draw(made, mechanism, 0.1, "replace_one", top=top, random_state=1, size=300)
    assert all(len(set(s)) == size and s == tuple(sorted(s)) for s in drawn)
    assert len(set(drawn)) == 300
    counts = np.bincount(np.array(drawn).ravel(), minlength=p).reshape(10, -1).sum(axis=1)
    assert chisquare(counts).pvalue > 1e-5


def test_the_tail_has_its_weight_however_small(monkeypatch):
    """Pitfall F48: no probability below 2^-53 is rounded to zero."""
    X, _ = table(np.random.default_rng(1), 1500, 8)
    made = problem(X, np.clip(X[:, 0] + X[:, 1], -0.5, 0.5), 2, ridge=0.0)
    seen = []
    monkeypatch.setattr(
        module,
        "weighted_choice",
        lambda log_weights, size, stream: seen.append(log_weights) or np.full(size, len(log_weights) - 1),
    )
    drawn = draw(made, "top_r", 10, "replace_one", top=3, random_state=0, size=400)
    listed = {row.columns for row in best_supports(made, 3).supports}
    assert len(set(drawn)) == 25
    assert not listed & set(drawn)
    assert -2000 < seen[0][-1] - math.log(25) < -53 * math.log(2)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mechanism", ["top_r", "mistakes"])
def test_corners(loss, mechanism):
    X, y = table(np.random.default_rng(0), 30, 3)
    assert draw(problem(X, y, 3, loss), mechanism, 1, "replace_one", size=2) == [(0, 1, 2)] * 2
    assert draw(problem(X[:, :1], y, 1, loss), mechanism, 1, "replace_one") == [(0,)]
    assert draw(problem(X, y, 2, loss), mechanism, 1, "replace_one", size=0) == []
    empty = problem(np.zeros((0, 6)), np.zeros(0), 2, loss)
    drawn = draw(empty, mechanism, 3.0, "add_remove_one", random_state=0, size=6000)
    assert agreement(dict.fromkeys(law(empty, mechanism, 3.0, "add_remove_one"), 1 / 15), drawn) > 1e-5


@pytest.mark.parametrize("top", [1, 5, 14, 20])
def test_equal_columns_share_equally_even_across_the_cut(top):
    x = np.linspace(-0.5, 0.5, 30)
    X = np.stack([x, x, x, -(x**2), x**3, np.zeros(30)], axis=1)
    made = problem(X, np.clip(x + x**2, -0.5, 0.5), 3)
    got = law(made, "top_r", 5, "replace_one", top=top)
    for rest in ((3, 4), (3, 5), (4, 5)):
        assert got[(0, *rest)] == got[(1, *rest)] == got[(2, *rest)]
    drawn = draw(made, "top_r", 5, "replace_one", top=top, random_state=0, size=20_000)
    assert agreement(got, drawn) > 1e-5


@pytest.mark.parametrize("top", [0, -1, 10**6 + 1, 1.5, "5", True, math.nan])
def test_bad_lengths_of_the_list(top):
    made = random_problem(0)
    for call in (law, draw):
        with pytest.raises(ParameterError, match="top"):
            call(made, "top_r", 1, "replace_one", top=top)


def test_the_length_of_the_list():
    for mechanism in ("exponential", "permute_and_flip", "mistakes"):
        assert top_of(mechanism, None, 9, 3) is None
        with pytest.raises(ParameterError, match="top_r"):
            draw(random_problem(0), mechanism, 1, "replace_one", top=5)
    assert top_of("top_r", None, 20, 3) == 2 + 17 * 3
    assert top_of("top_r", None, 4, 4) == 1
    assert top_of("top_r", None, 3, 2) == 3
    assert top_of("top_r", 10**6, 10, 2) == 45
    assert top_of("top_r", np.int64(7), 10, 2) == 7
    assert top_of("top_r", None, 10**6, 20) == 10**6
    assert top_of("top_r", 5, None, 3) is None
