"""Baselines draw from the laws that they state, and cost what they say; what is approximate says so."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pytest
from instances import problem, table
from scipy.sparse import csr_matrix
from scipy.stats import chisquare

from confide.errors import ParameterError, UnsupportedError
from confide.privacy.accountants import pure_cost
from confide.selection import SubsetProblem, bounded, law
from confide.selection.baselines import (
    BestSubset,
    Enumeration,
    LassoVotes,
    MarkovChain,
    Screening,
    baseline,
    baseline_law,
)
from confide.selection.baselines.chain import scorer, scores_law
from confide.selection.baselines.peeling import log_probabilities, peel
from confide.selection.baselines.votes import lasso_support

PURE = [LassoVotes(blocks=7), Screening(), Enumeration()]
SHORT = MarkovChain(steps=3)


def made(seed=0, n=60, p=7, size=2, rho=0.3, **options) -> SubsetProblem:
    return problem(*table(np.random.default_rng(seed), n, p, rho), size, **options)


def p_value(probabilities, drawn):
    """Return the chi-square p-value of draws, cells of expectation below 5 pooled."""
    index = {support: i for i, support in enumerate(probabilities)}
    expected = np.array(list(probabilities.values())) * len(drawn)
    counts = np.bincount([index[support] for support in drawn], minlength=len(index))
    large = expected >= 5
    observed = np.append(counts[large], counts[~large].sum())
    wanted = np.append(expected[large], expected[~large].sum())
    keep = wanted > 0
    return float(chisquare(observed[keep], wanted[keep] * observed.sum() / wanted[keep].sum()).pvalue)


def log_ratio(one, other):
    return max(abs(math.log(one[support] / other[support])) for support in one)


# The law: enumeration of orders, and chi-square of draws.


@pytest.mark.parametrize("seed", range(6))
def test_the_law_of_peeling_is_the_sum_over_orders(seed):
    rng = np.random.default_rng(seed)
    logs = rng.normal(scale=3, size=6)
    w = [Fraction(v) for v in np.exp(logs)]
    supports = np.array([[0, 1, 2], [1, 3, 5], [2, 4, 5]])
    for support, log in zip(supports, log_probabilities(logs, supports)):
        total = Fraction(0)
        for order in permutations(support.tolist()):
            left, chance = sum(w), Fraction(1)
            for j in order:
                chance *= w[j] / left
                left -= w[j]
            total += chance
        assert math.exp(log) == pytest.approx(float(total), rel=1e-12)


def test_the_law_of_peeling_keeps_relative_accuracy_far_from_the_top():
    logs = np.array([0.0, -900.0, -901.0, -1800.0])
    pair = log_probabilities(logs, np.array([[0, 1], [0, 2], [1, 2], [0, 3]]))
    share = -math.log1p(math.exp(-1))
    assert pair[0] == pytest.approx(share, rel=1e-12)
    assert pair[1] == pytest.approx(share - 1, rel=1e-12)
    # Without column 0: it must lose twice.
    assert pair[2] == pytest.approx(-1801 + math.log(2), rel=1e-12)
    assert pair[3] == pytest.approx(-900 + share, rel=1e-12)


@pytest.mark.parametrize("method", [*PURE, SHORT, MarkovChain(steps=40, exponent="published")], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_draws_have_the_law(method, seed):
    ask = made(seed)
    epsilon = (1, 4, 8)[seed]
    stated = baseline_law(ask, method, epsilon, "replace_one")
    assert sum(stated.values()) == pytest.approx(1, abs=1e-12)
    count = 1000 if isinstance(method, MarkovChain) else 4000
    drawn = baseline(ask, method, epsilon, "replace_one", random_state=seed, size=count).supports
    assert p_value(stated, drawn) > 1e-4


def test_the_test_notices_a_wrong_law():
    ask = made(2)
    drawn = baseline(ask, "screening", 2, "replace_one", random_state=0, size=4000).supports
    assert p_value(baseline_law(ask, "screening", 4, "replace_one"), drawn) < 1e-4


def test_batches_do_not_change_the_chain(monkeypatch):
    from confide.selection.baselines import chain

    ask = made(1)
    stated = baseline_law(ask, MarkovChain(steps=25), 10, "replace_one")
    for batch in ((1, 1), (64, 64)):
        monkeypatch.setattr(chain, "_BATCH", batch)
        drawn = baseline(ask, MarkovChain(steps=25), 10, "replace_one", random_state=3, size=800).supports
        assert p_value(stated, drawn) > 1e-4


def test_both_ways_to_score_a_chain_agree(monkeypatch):
    ask = made(3, n=300, p=9, size=3)
    supports = np.array(list(combinations(range(9), 3)))
    assert scorer(ask)(supports) == pytest.approx(ask._values(supports), rel=1e-12, abs=1e-12)
    method = MarkovChain(steps=300)
    drawn = baseline(ask, method, 5, "replace_one", random_state=0, size=20).supports
    monkeypatch.setattr("confide.selection.gram._WHOLE", 0)
    assert scorer(ask) == ask.centred_scores
    assert baseline(ask, method, 5, "replace_one", random_state=0, size=20).supports == drawn


def test_a_long_chain_has_the_exponential_law():
    ask = made(4)
    ends = baseline_law(ask, MarkovChain(steps=5000), 5, "replace_one")
    exact = law(ask, "exponential", 5, "replace_one")
    assert max(abs(ends[s] - exact[s]) for s in exact) < 1e-9
    doubled = baseline_law(ask, MarkovChain(steps=5000, exponent="published"), 5, "replace_one")
    exact = law(ask, "exponential", 10, "replace_one")
    assert max(abs(doubled[s] - exact[s]) for s in exact) < 1e-6


def test_enumeration_is_the_exponential_mechanism():
    ask = made(5)
    assert baseline_law(ask, "enumeration", 2, "add_remove_one") == law(
        ask, "exponential", 2, "add_remove_one"
    )


# Privacy, by exact laws on neighbouring tables.

ROWS = [(np.full(6, v), w) for v in (0.5, -0.5, 1e6, 1e308, np.nan, 0.0) for w in (0.5, -0.5, np.inf)]


def neighbours(seed, row):
    rng = np.random.default_rng(seed)
    X, y = table(rng, 24, 6, 0.2)
    other, labels = X.copy(), y.copy()
    cells, label = ROWS[row]
    signs = rng.choice([-1, 1], size=6)
    i = int(rng.integers(24))
    other[i], labels[i] = cells * signs, label
    X[i], y[i] = -0.5 * signs, -0.5 * np.sign(labels[i])
    return (X, y), (other, labels), i


@pytest.mark.parametrize("method", [LassoVotes(blocks=3), LassoVotes(), Screening(), Enumeration()], ids=repr)
@pytest.mark.parametrize("epsilon", [0.5, 3])
def test_a_replaced_row_costs_at_most_epsilon(method, epsilon):
    worst = 0.0
    for row in range(len(ROWS)):
        one, other, _ = neighbours(row, row)
        laws = [baseline_law(problem(*t, 2), method, epsilon, "replace_one") for t in (one, other)]
        worst = max(worst, log_ratio(*laws))
    assert epsilon / 50 < worst <= epsilon


@pytest.mark.parametrize("method", [Screening(), Enumeration()], ids=repr)
def test_an_added_row_costs_at_most_epsilon(method):
    worst = 0.0
    for row in range(len(ROWS)):
        _, (X, y), i = neighbours(row, row)
        less = np.delete(X, i, axis=0), np.delete(y, i)
        laws = [baseline_law(problem(*t, 2), method, 1, "add_remove_one") for t in ((X, y), less)]
        worst = max(worst, log_ratio(*laws))
    assert 1 / 50 < worst <= 1


def test_the_worst_case_of_screening_is_nearly_epsilon():
    # s = 1: the row moves two columns against each other, and the loser is unlikely on both tables.
    X, y = np.zeros((40, 2)), np.full(40, 0.5)
    X[1:3, 0], X[3:, 1] = 0.5, 0.5
    X[0] = [0.5, -0.5]
    other = X.copy()
    other[0] = [-0.5, 0.5]
    laws = [baseline_law(problem(x, y, 1), "screening", 2, "replace_one") for x in (X, other)]
    assert 1.9 < log_ratio(*laws) <= 2


@pytest.mark.parametrize("seed", range(5))
def test_one_row_moves_one_blocks_votes(seed):
    method = LassoVotes(blocks=4)
    one, other, _ = neighbours(seed, seed)
    votes = [method.scores(problem(*t, 2)) for t in (one, other)]
    change = votes[0] - votes[1]
    assert np.abs(change).max() <= 1
    assert np.abs(change).sum() <= 4
    assert all(v.sum() <= 8 for v in votes)


def test_a_finite_chain_loses_more_than_its_stationary_law():
    """Why the label is approximate: scores of sensitivity M = 1 on two tables, eta = epsilon / 2."""
    supports = np.array(list(combinations(range(5), 2)))
    one = np.array([0.0, 12, 12, 0, 35, 15, 58, 10, 13, 18])
    other = one + np.where(np.arange(10) == 7, 1, -1)
    losses = {}
    for steps in (30, 10**6):
        laws = [scores_law(scores, supports, 5, 0.5, steps) for scores in (one, other)]
        losses[steps] = np.abs(np.log(laws[0] / laws[1])).max()
    assert losses[30] > 1.75
    assert losses[10**6] <= 1 + 1e-6
    assert baseline(made(), SHORT, 1, "replace_one").label == "approximate"


# Labels and guarantees.


@pytest.mark.parametrize(("method", "label"), [("markov_chain", "approximate"), ("lasso_votes", "pure"),
                                               ("screening", "pure"), ("enumeration", "pure")])  # fmt: skip
def test_labels(method, label):
    result = baseline(made(), method, 0.3, "replace_one")
    assert (result.method, result.label, len(result.supports)) == (method, label, 1)
    assert result.guarantee.epsilon == Fraction(3, 10)
    assert pure_cost(result.guarantee.event) == Fraction(3, 10)
    assert ("the chain has mixed" in result.guarantee.assumptions) == (label == "approximate")
    assert "unrecorded" in result.guarantee.assumptions
    seeded = baseline(made(), method, 0.3, "replace_one", random_state=0)
    assert "seeded" in seeded.guarantee.assumptions


def test_the_published_exponent_costs_twice_under_replacement():
    method = MarkovChain(steps=1, exponent="published")
    assert baseline(made(), method, 1, "replace_one").guarantee.epsilon == 2
    assert baseline(made(), method, 1, "add_remove_one").guarantee.epsilon == 1
    ask = made()
    assert method.eta(ask, Fraction(1), _relation("replace_one")) == 2 * SHORT.eta(ask, Fraction(1), _relation("replace_one"))  # fmt: skip


def _relation(name):
    from confide.privacy import Adjacency

    return Adjacency.parse(name)


def test_best_subset_is_the_best_and_not_private():
    ask = made(3)
    result = baseline(ask, "best_subset", math.inf, "replace_one", size=2)
    scores = law(ask, "exponential", 50, "replace_one")
    assert result.supports == (max(scores, key=lambda s: scores[s]),) * 2
    assert result.label == "non-private"
    assert result.guarantee.epsilon == math.inf
    stated = baseline_law(ask, BestSubset(), math.inf, "replace_one")
    assert stated[result.supports[0]] == 1
    assert sum(stated.values()) == 1


# Utility: what each is for.


def test_all_find_a_strong_signal():
    rng = np.random.default_rng(0)
    X = np.clip(rng.standard_normal((3000, 20)), -0.5, 0.5)
    y = np.clip(X[:, 3] + X[:, 11], -0.5, 0.5)
    ask = problem(X, y, 2)
    for method in ("markov_chain", "lasso_votes", "screening", "enumeration"):
        assert baseline(ask, method, 20, "replace_one", random_state=0).supports == ((3, 11),), method


def test_a_chain_over_a_thousand_columns_arrives():
    rng = np.random.default_rng(0)
    X = np.clip(rng.standard_normal((2000, 1000)), -0.5, 0.5)
    y = np.clip(X[:, 7] + X[:, 100] + X[:, 999], -0.5, 0.5)
    assert baseline(problem(X, y, 3), "markov_chain", 20, "replace_one", random_state=0).supports == (
        (7, 100, 999),
    )


def test_lasso_support_meets_the_optimality_conditions():
    from sklearn.linear_model import Lasso

    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (40, 15))
    y = X[:, [1, 4, 9]] @ [1.0, -0.8, 0.6] + 0.1 * rng.normal(size=40)
    found = lasso_support(X, y, 3)
    assert sorted(found.tolist()) == [1, 4, 9]
    # Some penalty has exactly these columns.
    sizes = [np.flatnonzero(Lasso(a, fit_intercept=False, tol=1e-10).fit(X, y).coef_).tolist()
             for a in np.geomspace(0.02, 0.3, 25)]  # fmt: skip
    assert [1, 4, 9] in sizes


# Edge cases: the tables of the docstrings.

METHODS = [MarkovChain(steps=20), LassoVotes(), LassoVotes(blocks=9), Screening(), Enumeration()]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_all_columns_and_one_column(method):
    X, y = table(np.random.default_rng(0), 30, 3)
    assert baseline(problem(X, y, 3), method, 1, "replace_one", size=2).supports == ((0, 1, 2),) * 2
    assert baseline(problem(X[:, :1], y, 1), method, 1, "replace_one").supports == ((0,),)
    assert baseline_law(problem(X, y, 3), method, 1, "replace_one") == {(0, 1, 2): pytest.approx(1)}


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_no_rows_and_no_signal_are_uniform(method):
    zero = np.zeros((20, 5))
    for X, y in ((np.zeros((0, 5)), np.zeros(0)), (zero, np.ones(20)), (zero + 0.5, np.zeros(20))):
        stated = baseline_law(problem(X, y, 2), method, 3, "replace_one")
        assert list(stated.values()) == pytest.approx([0.1] * 10)


@pytest.mark.parametrize("method", [Screening(), Enumeration(), SHORT], ids=repr)
def test_equal_columns_have_equal_probability(method):
    X, y = table(np.random.default_rng(3), 200, 4)
    X[:, 1] = X[:, 0]
    stated = baseline_law(problem(X, y, 1), method, 5, "replace_one")
    assert stated[(0,)] == pytest.approx(stated[(1,)], rel=1e-6)


def test_a_block_takes_one_of_equal_columns():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (30, 1))
    X = np.hstack([x, x, rng.uniform(-1, 1, (30, 2))])
    votes = LassoVotes(blocks=3).scores(problem(X * 0.5, x[:, 0] * 0.5, 1))
    assert votes[2:].sum() == 0
    assert votes[:2].sum() == 3


def test_blocks_beyond_the_rows_cast_no_vote():
    votes = LassoVotes(blocks=100).scores(made(n=10))
    assert 0 < votes.sum() <= 20


@pytest.mark.parametrize("error", [ValueError, ArithmeticError, np.linalg.LinAlgError])
def test_a_solver_that_fails_casts_no_vote_and_says_nothing(error, monkeypatch):
    def broken(*args, **options):
        warnings.warn("secret", stacklevel=1)
        raise error("secret")

    monkeypatch.setattr("sklearn.linear_model.lars_path", broken)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LassoVotes(blocks=3).scores(made()).sum() == 0


@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic", "quantile"])
@pytest.mark.parametrize("method", [SHORT, LassoVotes(blocks=3), Screening(), Enumeration()], ids=repr)
def test_every_loss(method, loss):
    ask = made(n=20, p=5, loss=loss)
    drawn = baseline(ask, method, 1, "replace_one", random_state=0, size=3).supports
    assert all(s == tuple(sorted(s)) and len(set(s)) == 2 for s in drawn)


@pytest.mark.parametrize("method", [SHORT, LassoVotes(blocks=3), Screening(), Enumeration()], ids=repr)
def test_ways_to_hold_a_table_agree(method):
    X, y = table(np.random.default_rng(1), 40, 6)
    X[np.abs(X) < 0.1] = 0
    wild = X.copy()
    wild[3] = [1e308, -1e308, np.nan, np.inf, 0.5, 2]
    clipped = wild.copy()
    clipped[3] = [0.5, -0.5, 0, 0.5, 0.5, 0.5]
    forms = (clipped, wild, np.asfortranarray(clipped), csr_matrix(clipped))
    laws = [baseline_law(problem(form, y, 2), method, 4, "replace_one") for form in forms]
    for other in laws[1:]:
        assert log_ratio(laws[0], other) < 1e-9


def test_votes_refuse_what_they_cannot_bound():
    with pytest.raises(UnsupportedError, match="position"):
        baseline(made(), "lasso_votes", 1, "add_remove_one")
    source, bound = bounded(np.zeros((4, 2)), (np.zeros(2), np.ones(2)))
    ask = SubsetProblem(source, np.zeros(4), 1, feature_bound=bound, target_bound=1.0)
    with pytest.raises(UnsupportedError, match="symmetric"):
        baseline(ask, "lasso_votes", 1, "replace_one")


def test_enumeration_refuses_large_problems_before_it_scores(monkeypatch):
    ask = problem(np.zeros((3, 60)), np.zeros(3), 5)
    monkeypatch.setattr(ask, "centred_scores", None)
    for call in (baseline, baseline_law):
        with pytest.raises(UnsupportedError, match="200000"):
            call(ask, "enumeration", 1, "replace_one")
    with pytest.raises(UnsupportedError, match="2000"):
        baseline_law(ask, "markov_chain", 1, "replace_one")


@pytest.mark.parametrize("bad", [
    {"method": "lasso"}, {"method": None}, {"epsilon": 0}, {"epsilon": -1}, {"epsilon": math.nan}, {"epsilon": math.inf},
    {"size": -1}, {"size": True}, {"size": 1.5}, {"adjacency": "none"}, {"random_state": -1},
    {"method": "best_subset", "epsilon": 1},
])  # fmt: skip
def test_parameters_are_refused(bad):
    ask = {"method": "screening", "epsilon": 1, "adjacency": "replace_one", **bad}
    with pytest.raises(ParameterError):
        baseline(made(), ask.pop("method"), ask.pop("epsilon"), ask.pop("adjacency"), **ask)


@pytest.mark.parametrize("bad", [
    lambda: MarkovChain(steps=0), lambda: MarkovChain(steps=True), lambda: MarkovChain(steps=1.5),
    lambda: MarkovChain(exponent="doubled"), lambda: LassoVotes(blocks=0), lambda: LassoVotes(blocks=1.5),
])  # fmt: skip
def test_settings_are_refused(bad):
    with pytest.raises(ParameterError):
        bad()


def test_random_state():
    ask = made()
    for method in METHODS:
        runs = [baseline(ask, method, 1, "replace_one", random_state=s, size=8).supports for s in (1, 1, 2)]
        assert runs[0] == runs[1] != runs[2]
        assert baseline(ask, method, 1, "replace_one", size=0).supports == ()


def test_peeling_draws_distinct_columns():
    drawn = peel(np.array([0.0, -800.0, -1600.0]), 2, 50, _stream())
    assert set(drawn) == {(0, 1)}


def _stream():
    from confide.mechanisms import seeded_stream

    return seeded_stream(0)
