"""Outer approximation: cuts hold, lists equal enumeration and branch and bound, the proof needs no solver."""

from __future__ import annotations

import math
import sys
import threading
import time
import types
from dataclasses import replace

import numpy as np
import pytest
from instances import LOSSES, problem, random_problem, table

from confide.errors import ParameterError, UnsupportedError
from confide.selection import SubsetProblem, outer
from confide.selection.cutproof import Walk
from confide.selection.cuts import Cut, Cutter, Pool
from confide.selection.enumeration import all_supports
from confide.selection.masters import TOLERANCE, Found, HighsMaster, gurobi_maker, maker_of
from confide.selection.ranking import best_by_mistakes, best_supports


def enumerated(made: SubsetProblem):
    supports = all_supports(made)
    return supports, made.centred_scores(supports)


# --- cuts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_cuts_hold_everywhere_and_touch_where_they_are_made(seed):
    made = random_problem(seed, most=9)
    supports, scores = enumerated(made)
    cutter, rng = Cutter(made), np.random.default_rng(seed)
    pool = Pool(made.p, made.size)
    pool.add(cutter.trivial())
    chosen = rng.integers(len(supports), size=4)
    for i in chosen:
        z = np.zeros(made.p)
        z[supports[i]] = 1.0
        pool.add(cutter.cut(z))
    for _ in range(4):
        z = rng.random(made.p)
        z = np.minimum(z * made.size / z.sum(), 1.0)
        pool.add(cutter.cut(z))
    pool.add(pool.combine(rng.random(len(pool))))
    values = pool.values(supports)
    assert np.all(values <= scores)
    if made.ridge >= 0.1:
        # With the least ridge, no curvature and no ball the multiplier is raised: there cuts may miss.
        assert np.all(scores[chosen] - values[chosen] <= 2 * made.tau + 1e-6 * made.origin)
    everything = [(np.zeros(0, dtype=np.int64), 0), (np.arange(made.p), made.size)]
    assert pool.floor(everything) <= values.min() + 1e-12 * made.origin  # sums in another order


@pytest.mark.parametrize("loss", LOSSES)
def test_any_multipliers_make_a_valid_cut(loss):
    rng = np.random.default_rng(3)
    X, y = table(rng, 80, 7, 0.6)
    made = problem(X, y, 3, loss, 0.7, 0.5)
    supports, scores = enumerated(made)
    cutter = Cutter(made)
    d = cutter._curvature(3)
    for scale in (0.1, 1.0, 30.0):
        members = np.array([0, 2, 5])
        b = scale * rng.standard_normal(3)
        alpha = scale * rng.standard_normal(made.n)
        z = np.zeros(made.p)
        z[members] = 1.0
        cut = cutter._cut_at(made.columns.take(members), members, b, alpha, d, z)
        assert np.all(cut.constant - cut.weights[supports].sum(axis=1) <= scores)


def test_curvature_lies_below_every_block():
    rng = np.random.default_rng(5)
    X, y = table(rng, 400, 90, 0.3)
    made = problem(X, y, 4)
    cutter = Cutter(made)
    G = made.columns.gram()
    for members in (4, 20, 86):
        d = cutter._curvature(members)
        assert d.min() > 0
        for _ in range(5):
            block = rng.permutation(90)[: min(members + 4, 90)]
            assert np.linalg.eigvalsh(G[np.ix_(block, block)] - np.diag(d[block]))[0] >= 0


def test_a_cut_that_is_not_finite_is_left_out():
    pool = Pool(3, 1)
    pool.add(Cut(math.nan, np.zeros(3)))
    pool.add(Cut(0.0, np.array([0.0, math.inf, 0.0])))
    assert len(pool) == 0


# --- the walk -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_walk_hands_back_exactly_what_the_cuts_leave_below(seed):
    rng = np.random.default_rng(seed)
    p, size, K = int(rng.integers(3, 10)), 0, int(rng.integers(1, 6))
    size = int(rng.integers(1, p))
    pool = Pool(p, size)
    for _ in range(K):
        pool.add(Cut(float(rng.normal()), rng.exponential(size=p) * (rng.random(p) < 0.8)))
    a = int(rng.integers(0, size + 1))
    first = rng.permutation(p)[: int(rng.integers(a, p - (size - a) + 1))]
    groups = [(np.sort(first), a), (np.setdiff1d(np.arange(p), first), size - a)]
    supports = all_supports(problem(np.zeros((2, p)), np.zeros(2), size))
    inside = np.isin(supports, first).sum(axis=1) == a
    values = pool.values(supports)
    threshold = float(np.quantile(values[inside], 0.6))
    wanted = {tuple(row) for row in supports[inside & (values < threshold)].tolist()}
    walk, found = Walk(groups, rng.random(p)), []
    walk.load(*pool.arrays)
    while not walk.ended:  # pauses change nothing
        found += map(tuple, walk.go(threshold, 7).tolist())
    assert len(found) == len(set(found))
    assert set(found) == wanted


# --- lists ----------------------------------------------------------------------------------------------


def check(made: SubsetProblem, count: int):
    supports, scores = enumerated(made)
    m = min(count, len(scores))
    found = best_supports(made, count, solver="mip")
    assert found.certified
    assert found.gap == 0
    assert np.array_equal(found.scores, np.sort(scores)[:m] + made.origin)
    assert np.array_equal(made.centred_scores(found.columns) + made.origin, found.scores)
    assert len(np.unique(found.columns, axis=0)) == m
    levels = best_by_mistakes(made, solver="mip")
    assert levels.certified
    mistakes = made.size - np.isin(supports, levels.columns[0]).sum(axis=1)
    assert levels.scores.size == min(made.size, made.p - made.size) + 1
    for t, score in enumerate(levels.scores):
        assert score == scores[mistakes == t].min() + made.origin
        assert np.isin(levels.columns[t], levels.columns[0]).sum() == made.size - t


@pytest.mark.parametrize("seed", range(40))
def test_lists_equal_enumeration(seed):
    made = random_problem(seed, most=9)
    for count in (1, 2 + (made.p - made.size) * made.size):
        check(made, count)


@pytest.mark.parametrize("loss", LOSSES)
def test_lists_equal_enumeration_at_fifteen_columns(loss):
    X, y = table(np.random.default_rng(8), 200, 15, 0.7, odd=True)
    check(problem(X, y, 3, loss, 1.5, 1.0), 10)


@pytest.mark.parametrize(("n", "y"), [(0, 0.0), (5, 0.0), (5, 0.3)])
def test_all_scores_equal_is_proven_at_once(n, y):
    made = problem(np.zeros((n, 60)), np.full(n, y), 8)
    found = best_supports(made, 3, solver="mip", time_limit=20)
    assert found.certified
    assert np.array_equal(found.scores, np.full(3, made.origin))


def test_whole_set_and_one_column():
    X, y = table(np.random.default_rng(1), 30, 4)
    assert best_supports(problem(X, y, 4), 9, solver="mip").supports[0].columns == (0, 1, 2, 3)
    assert best_by_mistakes(problem(X, y, 4), solver="mip").scores.size == 1
    assert best_supports(problem(X[:, :1], y, 1), 1, solver="mip").certified


def test_mistakes_against_a_given_support():
    X, y = table(np.random.default_rng(2), 100, 9, 0.5)
    made = problem(X, y, 3)
    supports, scores = enumerated(made)
    against = (2, 4, 8)
    found = best_by_mistakes(made, optimum=against, solver="mip")
    mistakes = 3 - np.isin(supports, against).sum(axis=1)
    assert found.scores.tolist() == [scores[mistakes == t].min() + made.origin for t in range(4)]


def mixed(seed: int) -> SubsetProblem:
    """Instance of the comparison with branch and bound: p from 16 to 100."""
    rng = np.random.default_rng(500 + seed)
    loss = ("squared", "squared", "hinge", "logistic", "huber", "quantile")[seed % 6]
    p = int(rng.integers(50, 101)) if loss == "squared" else int(rng.integers(16, 51))
    n = 1500 if loss == "squared" else 300
    X, y = table(rng, n, p, float(rng.choice([0.0, 0.5, 0.8])))
    ridge = (120.0, 1.0)[seed // 6 % 2]
    return problem(X, y, int(rng.integers(2, 6 if loss == "squared" else 4)), loss, None, ridge)


def compare(seed: int) -> tuple[float, float]:
    times, first = [], []
    for solver in ("mip", "search"):
        fresh = mixed(seed)
        start = time.process_time()
        found = [best_supports(fresh, 1 + 9 * (seed % 3), solver=solver)]
        if seed % 4 == 0:
            found.append(best_by_mistakes(fresh, solver=solver))
        times.append(time.process_time() - start)
        assert all(ranking.certified for ranking in found)
        if solver == "mip":
            first = found
        else:
            for one, other in zip(first, found, strict=True):
                assert np.array_equal(one.scores, other.scores)
    return times[0], times[1]


@pytest.mark.parametrize("seed", range(1, 6))
def test_same_answers_as_branch_and_bound(seed):
    compare(seed)


@pytest.mark.slow
def test_same_answers_as_branch_and_bound_on_fifty_instances(capsys):
    times = np.array([compare(seed) for seed in range(50)])
    with capsys.disabled():
        for name, part in zip(("mip", "search"), times.T, strict=True):
            print(
                f"\n{name}: {part.sum():.1f} s of CPU, median {np.median(part):.2f}, worst {part.max():.2f}"
            )


@pytest.mark.parametrize(("p", "ridge", "radius"), [(50, 100.0, None), (50, 100.0, 3.0), (20, 0.0, 3.0)])
def test_hinge_where_plain_cuts_diverge_is_certified(p, ridge, radius):
    X, y = table(np.random.default_rng(4), 500, p, 0.5)
    made = problem(X, y, 3, "hinge", radius, ridge)
    found = best_supports(made, 1, solver="mip")
    assert found.certified
    assert found.scores[0] == best_supports(made, 1).scores[0]


# --- what a solver says is no proof ----------------------------------------------------------------------


class Liar(HighsMaster):
    """A master that claims at once that nothing is below the cutoff."""

    def solve(self, cutoff: float, seconds: float) -> Found:
        return Found([], cutoff, True)


class Wrong(HighsMaster):
    """A master whose relaxation is nonsense, and whose supports are the same few every time."""

    def relax(self):
        relaxed = super().relax()
        return replace(relaxed, z=np.full(self.p, math.nan), shares=np.full(relaxed.shares.size, math.nan))

    def solve(self, cutoff: float, seconds: float) -> Found:
        return Found([tuple(range(self.size))], -math.inf, False)


@pytest.mark.parametrize("master", [Liar, Wrong])
@pytest.mark.parametrize("seed", range(10))
def test_a_solver_that_errs_changes_no_answer(master, seed, monkeypatch):
    monkeypatch.setattr(outer, "maker_of", lambda solver: master)
    made = random_problem(seed, most=8)
    check(made, 3)


def test_a_time_limit_gives_a_valid_bound_and_no_certificate():
    X, y = table(np.random.default_rng(6), 300, 14, 0.8)
    for limit in (0.0, 1e-3):
        made = problem(X, y, 4, "huber", 2.0, 0.1)
        scores = enumerated(made)[1] + made.origin
        found = best_supports(made, 20, solver="mip", time_limit=limit)
        assert len(found.scores) >= 1
        assert found.certified or np.all(found.bounds <= scores.min())
        levels = best_by_mistakes(made, solver="mip", time_limit=limit)
        assert levels.scores.size == 5
        assert np.all(levels.bounds <= levels.scores)
        assert levels.certified == (levels.gap == 0)


def test_an_interrupt_ends_the_solver_and_travels_on(monkeypatch):
    X, y = table(np.random.default_rng(7), 100, 40, 0.9)
    made = problem(X, y, 4, "huber", 3.0, 0.01)
    join, calls = threading.Thread.join, []

    def interrupted(self, timeout=None):
        calls.append(self)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return join(self, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        best_supports(made, 5, solver="mip")
    monkeypatch.undo()
    assert calls
    assert not any(thread.is_alive() for thread in calls)


def test_nothing_is_printed(capfd):
    best_supports(random_problem(5, most=9), 2, solver="mip")
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


# --- masters --------------------------------------------------------------------------------------------


def test_highs_finds_the_lowest_and_respects_what_is_excluded():
    rng = np.random.default_rng(9)
    pool = Pool(8, 3)
    for _ in range(5):
        pool.add(Cut(float(rng.normal()), rng.random(8)))
    C, W = pool.arrays
    supports = all_supports(problem(np.zeros((2, 8)), np.zeros(2), 3))
    values = pool.values(supports)
    master = HighsMaster(8, 3, (np.array([0, 1, 2]), 2))
    master.add(C, W)
    level = np.isin(supports, [0, 1, 2]).sum(axis=1) == 2
    assert master.relax().value <= values[level].min() + 1e-8
    order = supports[level][np.argsort(values[level])]
    for row in order[:4].tolist():
        found = master.solve(10.0, 60.0)
        assert found.done
        assert tuple(row) in found.supports
        assert found.bound == pytest.approx(values[(supports == row).all(axis=1)][0], abs=10 * TOLERANCE)
        master.exclude([tuple(row)])
    assert master.solve(found.bound, 60.0).supports == []


def test_an_unknown_solver_is_a_parameter_error():
    with pytest.raises(ParameterError, match="'solver' parameter"):
        maker_of("cplex")
    with pytest.raises(ParameterError, match="'solver' parameter"):
        best_supports(random_problem(5), 1, solver="cplex")


class Variable:
    def __init__(self, lb=0.0, ub=math.inf, obj=0.0, vtype="C"):
        self.LB, self.UB, self.Obj, self.VType, self.X, self.Xn = lb, ub, obj, vtype, 0.0, 0.0


def fake_gurobi(started: list[str], licence: bool = True) -> types.ModuleType:
    """A module with the part of gurobipy that the adapter calls, on SciPy's solvers; calls are recorded."""
    from scipy.optimize import LinearConstraint, linprog, milp

    module = types.ModuleType("gurobipy")
    module.GurobiError = type("GurobiError", (Exception,), {})
    module.GRB = types.SimpleNamespace(
        CONTINUOUS="C", BINARY="B", EQUAL="=", LESS_EQUAL="<", GREATER_EQUAL=">", INFINITY=math.inf,
        OPTIMAL=2, INFEASIBLE=3, INF_OR_UNBD=4, INTERRUPTED=11,
    )  # fmt: skip
    module.LinExpr = lambda values, variables: (list(values), list(variables))

    class Env:
        def __init__(self, empty=False):
            started.append("env")

        def setParam(self, name, value):
            started.append(name)

        def start(self):
            if not licence:
                raise module.GurobiError("No Gurobi license found")
            started.append("start")

    class Model:
        def __init__(self, env):
            started.append("model")
            self.variables, self.rows = [], []

        def setParam(self, name, value):
            started.append(name)

        def addVar(self, **options):
            self.variables.append(Variable(**options))
            return self.variables[-1]

        def addLConstr(self, expression, sense, right):
            row = np.zeros(len(self.variables))
            for value, variable in zip(*expression, strict=True):
                row[self.variables.index(variable)] += value
            self.rows.append(types.SimpleNamespace(row=row, sense=sense, right=right, Pi=0.0))
            return self.rows[-1]

        def optimize(self):
            started.append("optimize")
            c = np.array([v.Obj for v in self.variables])
            box = [(v.LB, v.UB) for v in self.variables]
            A, right = np.array([r.row for r in self.rows]), np.array([r.right for r in self.rows])
            sense = np.array([r.sense for r in self.rows])
            sign = np.where(sense == ">", -1.0, 1.0)
            if any(v.VType == "B" for v in self.variables):
                low = np.where(sense == "<", -np.inf, right)
                high = np.where(sense == ">", np.inf, right)
                whole = np.array([v.VType == "B" for v in self.variables], dtype=int)
                bounds = tuple(np.array(box).T)
                made = milp(c, integrality=whole, bounds=bounds, constraints=LinearConstraint(A, low, high))
                self.Status = 2 if made.status == 0 else 3
                self.SolCount = int(self.Status == 2)
                self.ObjBound = made.fun
            else:
                e = sense == "="
                made = linprog(c, (sign[:, None] * A)[~e], (sign * right)[~e], A[e], right[e], box)
                self.ObjVal = made.fun
                for row, pi in zip(np.array(self.rows)[~e], sign[~e] * made.ineqlin.marginals, strict=True):
                    row.Pi = pi
            if made.x is not None:
                for v, x in zip(self.variables, made.x, strict=True):
                    v.X = v.Xn = x

    module.Env, module.Model = Env, Model
    return module


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 15])
def test_the_adapter_gives_the_same_lists(seed, monkeypatch):
    calls: list[str] = []
    monkeypatch.setitem(sys.modules, "gurobipy", fake_gurobi(calls))
    made = random_problem(seed, most=8)
    scores = enumerated(made)[1]
    found = best_supports(made, 3, solver="gurobi")
    assert found.certified
    assert found.scores.tolist() == (np.sort(scores)[:3] + made.origin).tolist()
    assert calls[:4] == ["env", "OutputFlag", "start", "model"]
    assert {"MIPGap", "IntFeasTol", "FeasibilityTol", "optimize"} <= set(calls)
    levels = best_by_mistakes(made, solver="gurobi")
    assert levels.scores.tolist() == best_by_mistakes(made, solver="mip").scores.tolist()


def test_without_the_package_or_a_licence_nothing_is_computed(monkeypatch):
    made = random_problem(3)
    monkeypatch.setattr(outer, "_Search", None)
    monkeypatch.setitem(sys.modules, "gurobipy", None)
    with pytest.raises(UnsupportedError, match="not installed") as caught:
        best_supports(made, 1, solver="gurobi")
    assert "solver='mip'" in caught.value.remedy
    monkeypatch.setitem(sys.modules, "gurobipy", fake_gurobi([], licence=False))
    with pytest.raises(UnsupportedError, match="No Gurobi license found") as caught:
        best_by_mistakes(made, solver="gurobi")
    assert "licence" in caught.value.remedy
    with pytest.raises(UnsupportedError):
        gurobi_maker()
