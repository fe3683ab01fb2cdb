"""Proven lists: equal to enumeration on random instances, golden orders, edge cases, limits."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest
from instances import problem, random_problem, table
from test_scores import load

from confide.errors import ParameterError
from confide.selection import SubsetProblem, best_by_mistakes, best_supports, products, search_squared
from confide.selection.enumeration import all_supports
from confide.selection.search import Watch, engine_of
from confide.selection.search_dual import DualSearch


def check_list(made, supports, scores, count):
    found = best_supports(made, count)
    m = min(count, len(scores))
    assert found.certified
    assert found.gap == 0
    assert np.array_equal(found.scores, np.sort(scores)[:m] + made.origin)
    assert np.array_equal(made.centred_scores(found.columns) + made.origin, found.scores)
    assert len(np.unique(found.columns, axis=0)) == m
    assert np.all(np.diff(found.columns, axis=1) > 0)
    assert np.array_equal(np.lexsort((*found.columns.T[::-1], found.scores)), np.arange(m))
    return found


def check_levels(made, supports, scores):
    found = best_by_mistakes(made)
    assert found.certified
    assert found.scores[0] == scores.min() + made.origin
    mistakes = made.size - np.isin(supports, found.columns[0]).sum(axis=1)
    for t in range(min(made.size, made.p - made.size) + 1):
        assert found.scores[t] == scores[mistakes == t].min() + made.origin
        assert (~np.isin(found.columns[t], found.columns[0])).sum() == t
    assert found.scores.size == min(made.size, made.p - made.size) + 1


def check(made, counts):
    supports = all_supports(made)
    scores = made.centred_scores(supports)
    for count in counts:
        check_list(made, supports, scores, count)
    check_levels(made, supports, scores)


def default_count(made):
    return 2 + (made.p - made.size) * made.size


@pytest.mark.parametrize("seed", range(60))
def test_lists_equal_enumeration(seed):
    made = random_problem(seed, most=9)
    check(made, (1, 3, default_count(made)))


@pytest.mark.parametrize("seed", range(80))
def test_lists_of_the_squared_loss_equal_enumeration(seed):
    made = random_problem(seed, "squared", most=13)
    check(made, (1, 3, default_count(made), 400))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(360))
def test_more_lists_equal_enumeration(seed):
    # With the 140 above, 500: p <= 20 for the squared loss, p <= 12 where a score is a solve.
    squared = seed % 3 > 0
    made = random_problem(1000 + seed, "squared" if squared else None, most=20 if squared else 12)
    check(made, (1, default_count(made)))


@pytest.mark.parametrize("seed", range(12))
def test_rows_on_demand_and_a_full_heap_give_the_same(seed, monkeypatch):
    for room in (1, 3):
        monkeypatch.setattr(products, "_SMALL", 0)
        monkeypatch.setattr(products, "_WIDTH", 4)
        monkeypatch.setattr(products, "_DOUBLE", 0 if seed % 2 else 1 << 34)
        monkeypatch.setattr(search_squared, "_MOST_NODES", room)
        made = random_problem(seed, "squared", most=12)
        check(made, (1, default_count(made)))


def test_rows_are_the_numbers_of_scores(monkeypatch):
    monkeypatch.setattr(products, "_SMALL", 0)
    monkeypatch.setattr(products, "_WIDTH", 5)
    X, y = table(np.random.default_rng(0), 333, 12)
    made = problem(X, y, 3)
    rows = products.Products(made)
    rows.ensure(np.array([7, 2]))
    rows.ensure(np.array([3, 2]))
    whole = products.Products(problem(X, y, 3))
    whole.ensure(np.arange(12))
    for j in (2, 3, 7):
        assert np.array_equal(rows.rows[rows.slot[j]], whole.rows[whole.slot[j]])
    assert np.array_equal(rows.diagonal, whole.diagonal)
    assert np.array_equal(rows.c, whole.c)


def test_largest_entries_are_never_below_the_true_ones(monkeypatch):
    X, y = table(np.random.default_rng(1), 200, 30, rho=0.5)
    made = problem(X, y, 4)
    G = X.T @ X
    scaled = np.abs(G) / np.sqrt(np.outer(np.diag(G) + 1, np.diag(G) + 1))
    np.fill_diagonal(scaled, 0)
    want = -np.sort(-scaled, axis=1)[:, :3]
    for limit in (0, 1 << 34):
        monkeypatch.setattr(products, "_DOUBLE", limit)
        monkeypatch.setattr(products, "_WIDTH", 7)
        got = products.Products(made).largest_entries(1.0, 3, lambda: True)
        assert np.all(got >= want)
        assert np.all(got <= want + 1e-3)


@pytest.mark.parametrize("name", ["ls_p20_s3_n500", "ls_p30_s3_ball", "ls_p30_s3_n1000", "hinge_p12_s2_n400"])
def test_golden_orders(golden, name):
    data, made = load(golden, name)
    tolerance = 2e-9 * made.n if name.startswith("hinge") else made.step + 1e-9
    want = np.sort(made.n * data["all_obj"])
    found = best_supports(made, min(default_count(made), len(want)))
    assert found.certified
    np.testing.assert_allclose(found.scores, want[: found.scores.size], atol=tolerance, rtol=0)
    if not name.startswith("hinge"):
        np.testing.assert_array_equal(found.columns[:20], np.sort(data["top20_supports"], axis=1))
    assert found.supports[0].columns == tuple(sorted(data["opt_support"].tolist()))
    levels = best_by_mistakes(made, optimum=data["opt_support"])
    assert levels.certified
    np.testing.assert_allclose(levels.scores, made.n * data["best_by_mistakes_obj"], atol=tolerance, rtol=0)


@pytest.mark.parametrize("engine", ["squared", "dual"])
def test_the_engines_agree(engine):
    # The dual engine on the squared loss is an independent check of the kernels past enumeration.
    X, y = table(np.random.default_rng(5), 300, 40, rho=0.3)
    made = problem(X, y, 4, ridge=50.0)
    search = DualSearch(made) if engine == "dual" else engine_of(made)
    found = search.find(30, None, Watch(None, False), "")
    rows = {tuple(row) for row in found.columns.tolist()}
    assert found.bound >= found.scores.max()
    assert rows == {support.columns for support in best_supports(made, 30).supports}


@pytest.mark.parametrize("loss", ["squared", "hinge"])
def test_edge_cases(loss):
    rng = np.random.default_rng(2)
    X, y = table(rng, 40, 6)
    whole = best_supports(problem(X, y, 6, loss), 5)
    assert whole.columns.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert whole.certified
    assert best_by_mistakes(problem(X, y, 6, loss)).columns.tolist() == [[0, 1, 2, 3, 4, 5]]
    alone = problem(X[:, :1], y, 1, loss)
    assert best_supports(alone, 7).columns.tolist() == [[0]]
    assert best_by_mistakes(alone).scores.size == 1
    # p - size < size: fewer levels.
    assert best_by_mistakes(problem(X, y, 4, loss)).scores.size == 3
    empty = problem(X[:0], y[:0], 2, loss)
    for count in (1, 9, 15, 99):
        found = best_supports(empty, count)
        assert found.certified
        assert found.scores.tolist() == [0.0] * min(count, 15)
    assert best_by_mistakes(empty).certified


def test_nothing_to_explain_is_quick():
    # All C(60, 5) supports tie at the same score, and none has to be looked at.
    rng = np.random.default_rng(3)
    X, _ = table(rng, 200, 60)
    for ridge in (0.0, 1.0):
        found = best_supports(problem(X, np.zeros(200), 5, ridge=ridge), 300, time_limit=20)
        assert found.certified
        assert found.scores.tolist() == [0.0] * 300


def test_equal_columns_tie_in_the_order_of_columns():
    X, y = table(np.random.default_rng(4), 100, 5)
    X = np.hstack([X, X[:, :2]])
    found = check_list(made := problem(X, y, 2), S := all_supports(made), made.centred_scores(S), 21)
    assert found.scores.size == 21


def test_a_long_list():
    X, y = table(np.random.default_rng(6), 150, 35)
    made = problem(X, y, 4)
    supports = all_supports(made)
    scores = made.centred_scores(supports)
    found = best_supports(made, 50_000)
    assert found.certified
    np.testing.assert_array_equal(found.scores, np.sort(scores)[:50_000] + made.origin)
    # More than there are.
    assert best_supports(made, 10**6).scores.size == math.comb(35, 4)


@pytest.mark.slow
def test_a_hundred_thousand():
    X, y = table(np.random.default_rng(7), 400, 60)
    found = best_supports(made := problem(X, y, 5), 100_000)
    assert found.certified
    assert len(np.unique(found.columns, axis=0)) == 100_000
    pick = np.random.default_rng(0).integers(0, 60, (20_000, 5))
    pick = np.sort(pick[[len(set(row)) == 5 for row in pick.tolist()]], axis=1)
    listed = set(map(tuple, found.columns.tolist()))
    outside = made.centred_scores(np.array([row for row in pick.tolist() if tuple(row) not in listed]))
    assert outside.min() + made.origin >= found.scores[-1]


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_limit_gives_what_is_proven(loss):
    X, y = table(np.random.default_rng(8), 200, 25, rho=0.9)
    made = problem(X, y, 4, loss)
    found = best_supports(made, 40, time_limit=0)
    assert not found.certified
    assert 1 <= found.scores.size <= 40
    assert found.gap > 0
    best = made.centred_scores(all_supports(made)[:500]).min() + made.origin
    assert found.bounds[0] <= best
    levels = best_by_mistakes(made, optimum=(0, 1, 2, 3), time_limit=0)
    assert levels.scores.size == 5
    assert levels.levels_certified[0]
    assert not levels.certified
    assert np.all(levels.bounds <= levels.scores)


def test_levels_against_any_support():
    X, y = table(np.random.default_rng(9), 120, 9)
    made = problem(X, y, 3)
    supports = all_supports(made)
    scores = made.centred_scores(supports)
    found = best_by_mistakes(made, optimum=[8, 1, 4])
    mistakes = 3 - np.isin(supports, [1, 4, 8]).sum(axis=1)
    want = [scores[mistakes == t].min() + made.origin for t in range(4)]
    assert found.scores.tolist() == want


def test_an_interrupt_leaves_the_next_search_whole(monkeypatch):
    from confide.selection import search_tree

    X, y = table(np.random.default_rng(10), 100, 12)
    made = problem(X, y, 3)
    want = best_supports(made, 20)
    with monkeypatch.context() as patch:
        patch.setattr(search_tree, "advance", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            best_supports(made, 20, progress=True)
    again = best_supports(made, 20)
    assert np.array_equal(again.columns, want.columns)
    assert again.certified


def _interrupt(*_):
    raise KeyboardInterrupt


def test_the_bar_comes_after_two_seconds_and_goes(capsys):
    watch = Watch(None, True)
    watch.show("best supports", 1.0, 10)
    assert watch._bar is None
    watch.start -= 3
    watch.show("best supports", 1.0, 10)
    watch.show("best supports", 0.5, 20)
    assert "gap 0.5" in str(watch._bar.tasks[0].description)
    watch.close()
    assert watch._bar is None


def test_products_go_with_their_problem():
    X, y = table(np.random.default_rng(11), 50, 6)
    made = problem(X, y, 2)
    best_supports(made, 3)
    kept = weakref.ref(made)
    del made
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize(
    "options", [{"count": 0}, {"count": True}, {"count": 2.5}, {"count": 10**6 + 1}, {"solver": "guess"},
                {"time_limit": -1}, {"time_limit": math.nan}, {"time_limit": "1"}],
)  # fmt: skip
def test_parameters_are_checked(options):
    X, y = table(np.random.default_rng(12), 20, 4)
    made = problem(X, y, 2)
    with pytest.raises(ParameterError):
        best_supports(made, **{"count": 3, **options})
    if "count" not in options:
        with pytest.raises(ParameterError):
            best_by_mistakes(made, **options)
    with pytest.raises(ParameterError):
        best_by_mistakes(made, optimum=(1, 1))


def test_the_figures_case_is_proven():
    # The paper's generator at p = 100, where its solver takes half a minute.
    rng = np.random.default_rng(0)
    X = np.clip(rng.standard_normal((3000, 100)), -0.5, 0.5)
    y = np.clip(X[:, 1:10:2].sum(axis=1) * 0.45 + 0.45 * rng.standard_normal(3000), -0.5, 0.5)
    made = SubsetProblem(X, y, 5, radius=1.1, ridge=120, feature_bound=0.5, target_bound=0.5)
    found = best_supports(made, 477, time_limit=60)
    assert found.certified
    assert found.supports[0].columns == (1, 3, 5, 7, 9)
    levels = best_by_mistakes(made, time_limit=60)
    assert levels.certified
    # One column out of place is the second of the list; five are worse than all with four.
    assert levels.scores[1] == found.scores[1]
    assert np.all(np.diff(levels.scores) > 0)
