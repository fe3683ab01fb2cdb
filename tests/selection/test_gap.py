"""The gap condition: what it proves, where the paper's condition proves nothing, and who may ask."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from instances import problem, table
from test_scores import load

from confide.errors import BudgetError, ParameterError
from confide.ledger import Ledger
from confide.privacy import Adjacency
from confide.selection import gap_condition, law
from confide.selection.gap import best_gap, width

PUBLIC = {"diagnostics": "public data"}
ADJACENCIES = ["replace_one", "add_remove_one"]


def logs(made, adjacency, mechanism="mistakes", epsilon=1.0):
    return np.log(list(law(made, mechanism, epsilon, adjacency).values()))


def flipping_pair(n):
    """Return neighbours with the paper's condition on which the best support flips from {0, 1} to {0, 2}.

    Columns 1 and 2 are equal but for the record that differs; the others are zero.
    """
    rng = np.random.default_rng(n)
    X = np.zeros((n, 6))
    X[:, 0], X[:, 1] = 0.5 * rng.choice([-1, 1], (2, n))
    X[:, 2] = X[:, 1]
    y = 0.9 * (0.7 * X[:, 0] + 0.3 * X[:, 1])
    y[0] = 0.5
    X[0, :3] = 0.5, 0.5, -0.5
    other = X.copy()
    other[0, 1:3] = -0.5, 0.5
    return problem(X, y, 2, ridge=0.0), problem(other, y, 2, ridge=0.0)


@pytest.mark.parametrize("n", [100, 400, 1600])
def test_the_condition_of_the_paper_is_not_enough(n):
    one, two = flipping_pair(n)
    checks = [gap_condition(made, **PUBLIC) for made in (one, two)]
    assert all(check.paper and not check.holds for check in checks)
    ratio = float(np.abs(logs(one, "replace_one") - logs(two, "replace_one")).max())
    assert ratio > 0.04 * n  # at epsilon = 1, and linear in n
    for private in ("top_r", "exponential"):
        assert np.abs(logs(one, "replace_one", private) - logs(two, "replace_one", private)).max() <= 1


def strong_table(n, seed):
    """Return data that columns 0 and 1 explain best, with two equal columns among the others."""
    rng = np.random.default_rng(seed)
    X = 0.5 * rng.choice([-1, 1], (n, 5))
    X[:, 4] = X[:, 3]
    return X, 0.3 * (X[:, 0] + X[:, 1]) + 0.1 * X[:, 2]


def just_wide_enough(seed, adjacency):
    """Return the first of growing tables that has the gap."""
    for n in range(2, 1000):
        X, y = strong_table(n, seed)
        made = problem(X, y, 2, ridge=0.0)
        if best_gap(made) > width(made, Adjacency.parse(adjacency)):
            return X, y, made
    raise AssertionError("no table has the gap")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("seed", range(6))
def test_with_the_gap_every_neighbour_is_within_epsilon(seed, adjacency):
    X, y, made = just_wide_enough(seed, adjacency)
    assert gap_condition(made, adjacency, **PUBLIC).holds
    here, worst = logs(made, adjacency), 0.0
    corners = [(np.array(row), label) for row in product([-0.5, 0.5], repeat=5) for label in (-0.5, 0.5)]
    changed = corners[:: 1 if adjacency == "add_remove_one" else 3]
    neighbours = []
    for row, label in changed:
        if adjacency == "add_remove_one":
            neighbours.append((np.vstack([X, row]), np.append(y, label)))
        else:
            X2, y2 = X.copy(), y.copy()
            X2[seed % len(X)], y2[seed % len(X)] = row, label
            neighbours.append((X2, y2))
    if adjacency == "add_remove_one":
        neighbours += [(np.delete(X, i, axis=0), np.delete(y, i)) for i in range(min(len(X), 20))]
    for cells, labels in neighbours:
        there = logs(problem(cells, labels, 2, ridge=0.0), adjacency)
        worst = max(worst, float(np.abs(here - there).max()))
    assert 0.05 < worst <= 1


@pytest.mark.parametrize("name", ["ls_p20_s3_n500", "ls_p30_s3_ball", "ls_p30_s3_n1000"])
def test_the_golden_flag_is_the_condition_of_the_paper(golden, name):
    data, made = load(golden, name)
    check = gap_condition(made, **PUBLIC)
    assert check.paper is bool(data["cond_best2_ge_max1"])
    assert check.gap == pytest.approx(made.n * float(np.diff(data["topR_obj"][:2])[0]), abs=made.tau)
    assert check.needed == pytest.approx(2 * made.record_range, rel=1e-6)
    assert check.holds is (check.gap > check.needed)
    assert check.guarantee is None


def test_the_golden_pair_has_neither(golden):
    from test_listed import golden_pair

    for made in golden_pair(golden)[1]:
        check = gap_condition(made, **PUBLIC)
        assert (check.holds, check.paper) == (False, False)
        assert check.gap == pytest.approx(0.0565, abs=1e-3)


def test_edge_cases():
    X, y = table(np.random.default_rng(0), 30, 4)
    whole = problem(X, y, 4)
    for options in (PUBLIC, {"epsilon": 1}):
        check = gap_condition(whole, **options)
        assert (check.holds, check.gap, check.guarantee) == (True, math.inf, None)
    for nothing in (problem(np.zeros((0, 4)), np.zeros(0), 2), problem(np.repeat(X[:, :1], 4, axis=1), y, 2)):
        check = gap_condition(nothing, **PUBLIC)
        assert (check.holds, check.gap) == (False, 0.0)
    single = problem(X, y, 1)  # no two mistakes are possible
    assert gap_condition(single, **PUBLIC).paper is True


def test_what_is_needed_follows_the_relation_and_the_unit():
    made = problem(*table(np.random.default_rng(0), 30, 4), 2)
    replace = gap_condition(made, "replace_one", **PUBLIC).needed
    assert replace == pytest.approx(2 * (made.record_range + 2 * made.tau))
    assert gap_condition(made, "add_remove_one", **PUBLIC).needed == pytest.approx(replace / 2)
    assert gap_condition(made, "replace_label", **PUBLIC).needed == replace
    assert gap_condition(made, "replace_one", rows_per_unit=3, **PUBLIC).needed == pytest.approx(3 * replace)


def test_a_gap_of_exactly_what_is_needed_is_not_enough(monkeypatch):
    import confide.selection.gap as module

    made = problem(*table(np.random.default_rng(0), 30, 4), 2)
    needed = width(made, Adjacency.REPLACE_ONE)
    monkeypatch.setattr(module, "best_gap", lambda problem: needed)
    assert not gap_condition(made, **PUBLIC).holds
    monkeypatch.setattr(module, "best_gap", lambda problem: needed + Fraction(1, 10**30))
    assert gap_condition(made, **PUBLIC).holds


# The charged check.


def test_secret_data_are_charged(tmp_path):
    ledger = Ledger.open(f"sqlite:///{tmp_path}/l.db", dataset="t", epsilon=2, adjacency="replace_one")
    made = problem(*strong_table(4000, 0), 2, ridge=0.0)
    check = gap_condition(made, epsilon=1, ledger=ledger)
    assert check.holds
    assert check.paper is None
    assert ledger.total().epsilon == 1
    assert check.guarantee.unconditional
    assert check.guarantee.epsilon == 1
    with pytest.raises(BudgetError):
        gap_condition(made, epsilon=2, ledger=ledger)
    assert ledger.total().epsilon == 1
    alone = gap_condition(made, epsilon=1, random_state=0)
    assert alone.guarantee.assumptions == ("seeded", "unrecorded")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_what_is_released_moves_by_the_sensitivity_at_most(adjacency, monkeypatch):
    import confide.mechanisms as mechanisms

    seen = []

    def record(statistic, epsilon, stream):
        seen.append(statistic)
        return np.float64(0.0)

    monkeypatch.setattr(mechanisms, "laplace_release", record, raising=False)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = table(rng, int(rng.integers(1, 20)), 4)
        row, label = rng.choice([-1e308, 1e6, 0.5, -0.5, math.nan], 4), rng.choice([-0.5, 0.5, 1e308])
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = row, label
        if adjacency == "add_remove_one":
            X2, y2 = np.vstack([X, row]), np.append(y, label)
        seen.clear()
        for made in (problem(X, y, 2), problem(X2, y2, 2)):
            gap_condition(made, adjacency, epsilon=1, random_state=0)
        one, two = seen
        assert (one.step, one.sensitivity) == (two.step, two.sensitivity)
        assert abs(int(one.value) - int(two.value)) * one.step <= one.sensitivity


def test_a_charged_check_rarely_holds_without_the_gap(monkeypatch):
    import confide.selection.gap as module

    made = problem(*table(np.random.default_rng(0), 30, 4), 2)
    monkeypatch.setattr(module, "best_gap", lambda problem: width(problem, Adjacency.REPLACE_ONE))
    held = sum(gap_condition(made, epsilon=0.5, failure=0.1, random_state=seed).holds for seed in range(3000))
    assert abs(held - 300) < 5 * math.sqrt(270)


@pytest.mark.parametrize(
    "options",
    [{}, {"epsilon": 1, "diagnostics": "public data"}, {"diagnostics": "mine"}, {"epsilon": 0}, {"epsilon": -1},
     {"epsilon": 1, "failure": 0.5}, {"epsilon": 1, "failure": 0}, {"epsilon": 1, "failure": math.nan},
     {"epsilon": 1, "rows_per_unit": 0}, {"epsilon": 1, "rows_per_unit": True}, {"epsilon": 1, "random_state": -1},
     {"epsilon": 1, "adjacency": "row"}],
)  # fmt: skip
def test_bad_requests_compute_nothing(options, monkeypatch):
    import confide.selection.gap as module

    monkeypatch.setattr(module, "best_gap", lambda problem: pytest.fail("computed"))
    with pytest.raises(ParameterError):
        gap_condition(problem(*table(np.random.default_rng(0), 5, 3), 1), **options)
