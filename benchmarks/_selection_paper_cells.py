"""Cells of selection_paper.py: what is measured, on which tables, with which mechanism."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache

import numpy as np

from _resume import OutOfTimeError, deadline
from confide.mechanisms import os_stream
from confide.selection import SubsetProblem, best_by_mistakes, best_supports
from confide.selection.baselines import LassoVotes, MarkovChain, Screening
from confide.selection.baselines.peeling import log_probabilities, peel
from confide.selection.draws import make_envelope, sample
from confide.selection.exponent import exponent
from confide.selection.flips import flip
from confide.selection.listed import top_of
from selection_recovery import paper_table

ADJACENCY = "replace_one"
EPSILONS = (1, 5, 10)
DRAWS = 400
TEST_ROWS = 5_000

#: Radius and ridge by setting: Confide's defaults, and those of the paper's experiments.
SETTINGS = {"confide": (None, None), "paper": (1.1, 120.0)}
#: Hinge: the front door's radius 4 / (b_x sqrt(s)) for Confide; lambda = 100 for the paper.
HINGE = {"confide": (4 / (0.5 * math.sqrt(3)), None), "paper": (1.1, 100.0)}


@dataclass(frozen=True)
class Cell:
    """One number of a figure; the fields are the key of its row."""

    study: str
    loss: str
    p: int
    n: int
    size: int
    rho: float
    bound: float
    setting: str
    ridge: str
    mechanism: str
    top: str
    epsilon: float
    seed: int

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(str(value) for value in asdict(self).values())

    @property
    def family(self) -> tuple[str, ...]:
        """The cell without its seed and epsilon."""
        return tuple(str(v) for k, v in asdict(self).items() if k not in ("seed", "epsilon"))


KEYS = [field.name for field in fields(Cell)]
VALUES = ["recovery", "f1", "error", "private_error", "how", "seconds", "status"]


@dataclass(frozen=True)
class Task:
    """Cells that differ in epsilon (or in R) alone and share one computation."""

    cells: tuple[Cell, ...]
    limit: float

    @property
    def first(self) -> Cell:
        return self.cells[0]

    @property
    def table(self) -> tuple:
        c = self.first
        return (c.loss, c.p, c.n, c.size, c.rho, c.bound, c.seed)


@lru_cache(maxsize=1)
def table(loss, p, n, size, rho, bound, seed):
    """Return X, y, truth, and a test table from the same law (columns of the support and y)."""
    X, y, truth = paper_table(n, p, size, rho, seed, bound=bound)
    return X, (np.sign(y) if loss == "hinge" else y), truth


@lru_cache(maxsize=2)
def test_table(p, size, rho, bound):
    return paper_table(TEST_ROWS, p, size, rho, 10**6, bound=bound)[:2]


def problem_of(cell: Cell) -> tuple[SubsetProblem, tuple[int, ...]]:
    X, y, truth = table(cell.loss, cell.p, cell.n, cell.size, cell.rho, cell.bound, cell.seed)
    radius, ridge = (HINGE if cell.loss == "hinge" else SETTINGS)[cell.setting]
    if cell.ridge:
        ridge = float(cell.ridge)
    target = None if cell.loss == "hinge" else cell.bound
    asked = SubsetProblem(
        X, y, cell.size, cell.loss, radius, ridge, feature_bound=cell.bound, target_bound=target
    )
    return asked, truth


# Outcomes of one mechanism: {position of the cell: (recovery, F1, how, drawn supports or None)}.


def by_draws(problem, truth, cells, limit):
    """Draw many times from one envelope for each epsilon."""
    drawer = flip if cells[0].mechanism == "permute_and_flip" else sample
    for cell in cells:
        eta = exponent(problem, cell.mechanism, cell.epsilon, ADJACENCY)
        yield shares(drawer(make_envelope(problem, eta), DRAWS, os_stream()), truth)


def by_chains(problem, truth, cells, limit):
    exponent_of = "published" if cells[0].mechanism.endswith("published") else "corrected"
    # Over 10,000 columns the default, 10 s p steps, takes 25 s a chain.
    method = MarkovChain(steps=200_000 if problem.p > 1000 else None, exponent=exponent_of)
    chains = 10 if problem.p <= 100 else 5 if problem.p <= 1000 else 1
    for cell in cells:
        epsilon, relation = amounts(cell)
        yield shares(method.draw(problem, epsilon, relation, chains, os_stream()), truth)


def by_columns(problem, truth, cells, limit):
    """Scores of columns are computed once; the probability of the truth is exact."""
    method = Screening() if cells[0].mechanism == "screening" else LassoVotes()
    scores = method.scores(problem)
    for cell in cells:
        logs = method.exponent(problem, *amounts(cell)) * scores
        chance = math.exp(log_probabilities(logs, np.array([truth]))[0])
        drawn = peel(logs, problem.size, DRAWS // 2, os_stream())
        yield chance, shares(drawn, truth)[1], "exact law", drawn


def by_list(problem, truth, cells, limit):
    """The law of top_r from the proven list; a list of R holds those of every smaller R."""
    tops = [top_of("top_r", int(c.top) if c.top else None, problem.p, problem.size) for c in cells]
    ranking = best_supports(problem, max(tops), time_limit=limit)
    for cell, top in zip(cells, tops, strict=True):
        # What is proven of all supports outside the list proves its beginnings too.
        if not (ranking.certified or ranking.scores[top - 1] <= ranking.bounds[0]):
            yield unproven(ranking, limit)
            continue
        eta = exponent(problem, "top_r", cell.epsilon, ADJACENCY)
        yield *list_law(ranking.columns[:top], ranking.scores[:top], eta, problem.p, truth), "exact law", None


def list_law(columns, scores, eta, p, truth):
    """Return P(truth) and the expected F1 of top_r."""
    size, rest = columns.shape[1], math.comb(p, columns.shape[1]) - len(columns)
    weights = np.exp(-eta * (scores - scores[0]))
    total = weights.sum() + rest * weights[-1]
    hits = np.isin(columns, truth).sum(axis=1)
    others = math.comb(p, size) * size * size / p - hits.sum()
    here = np.flatnonzero(hits == size)
    chance = weights[here[0]] if here.size else weights[-1]
    return chance / total, (weights @ hits + weights[-1] * others) / total / size


def by_levels(problem, truth, cells, limit):
    """The law of mistakes from the best support of each level."""
    ranking = best_by_mistakes(problem, time_limit=limit)
    for cell in cells:
        if not ranking.certified:
            yield unproven(ranking, limit)
            continue
        eta = exponent(problem, "mistakes", cell.epsilon, ADJACENCY)
        yield *level_law(ranking, eta, problem.p, truth), "exact law", None


def level_law(ranking, eta, p, truth):
    """Return P(truth) and the expected F1: uniform among the supports with as many mistakes."""
    size = ranking.columns.shape[1]
    counts = np.array(
        [math.comb(size, t) * math.comb(p - size, t) for t in range(len(ranking.scores))], float
    )
    weights = counts * np.exp(-eta * (ranking.scores - ranking.scores[0]))
    weights /= weights.sum()
    hits = len(set(truth) & set(ranking.columns[0].tolist()))
    t = np.arange(len(weights))
    left = hits * (1 - t / size) + ((size - hits) * t / (p - size) if p > size else 0)
    return weights[size - hits] / counts[size - hits], weights @ left / size


def unproven(ranking, limit):
    return None, None, f"gap {ranking.gap:.3g}", None


def by_optimum(problem, truth, cells, limit):
    ranking = best_supports(problem, 1, time_limit=limit)
    for _ in cells:
        if not ranking.certified:
            yield unproven(ranking, limit)
        else:
            yield shares([ranking.supports[0].columns], truth)


def shares(drawn, truth):
    """Return the share of draws that are the truth, their mean F1, how, and the draws."""
    hits = np.isin(np.array(drawn), truth).sum(axis=1)
    return float((hits == len(truth)).mean()), float(hits.mean() / len(truth)), f"{len(drawn)} draws", drawn


def amounts(cell):
    from fractions import Fraction

    from confide.privacy import Adjacency

    return Fraction(cell.epsilon), Adjacency.parse(ADJACENCY)


HOW = {
    "exponential": by_draws,
    "permute_and_flip": by_draws,
    "top_r": by_list,
    "mistakes": by_levels,
    "markov_chain": by_chains,
    "markov_chain_published": by_chains,
    "lasso_votes": by_columns,
    "screening": by_columns,
    "best_subset": by_optimum,
}


def errors(cell: Cell, drawn) -> float:
    """Return the mean squared error on fresh rows, mean over draws: least squares without noise, clipped."""
    X, y, _ = table(cell.loss, cell.p, cell.n, cell.size, cell.rho, cell.bound, cell.seed)
    fresh, labels = test_table(cell.p, cell.size, cell.rho, cell.bound)
    found = {}
    for support in drawn:
        if support not in found:
            columns = list(support)
            beta, *_ = np.linalg.lstsq(X[:, columns], y, rcond=None)
            guess = np.clip(fresh[:, columns] @ beta, -cell.bound, cell.bound)
            found[support] = float(np.mean((labels - guess) ** 2))
    return float(np.mean([found[support] for support in drawn]))


def pipeline_error(cell: Cell, repeats: int = 5) -> float:
    """Return the error of the private pipeline: support and coefficients for one epsilon; NaN without it."""
    try:
        from confide.pipeline import SparseRegressor
    except ImportError:
        return math.nan
    X, y, _ = table(cell.loss, cell.p, cell.n, cell.size, cell.rho, cell.bound, cell.seed)
    fresh, labels = test_table(cell.p, cell.size, cell.rho, cell.bound)
    pair = (-cell.bound, cell.bound)
    delta = 1e-6 if cell.mechanism == "pipeline_delta" else 0
    values = []
    for _ in range(repeats):
        model = SparseRegressor(cell.size, cell.epsilon, delta, feature_bounds=pair, target_bounds=pair,
                                adjacency=ADJACENCY).fit(X, y)  # fmt: skip
        values.append(float(np.mean((labels - model.predict(fresh)) ** 2)))
    return float(np.mean(values))


def law_draws(problem, cell: Cell):
    """Draw from a mechanism whose law came from a list, for the errors of its supports."""
    from confide.selection import draw

    return draw(problem, cell.mechanism, cell.epsilon, ADJACENCY, size=100)


def run(task: Task) -> list[dict[str, object]]:
    """Return one row a cell; a task that takes too long says so in `status`."""
    start = time.process_time()
    rows: list[dict[str, object]] = []
    empty = dict.fromkeys(VALUES, "")
    lost = f"not finished after {task.limit:g} s"
    try:
        with deadline(task.limit * 1.25 + 5):
            for row in _measure(task, empty):
                rows.append(row)  # what is done stays when the time is over
    except OutOfTimeError:
        pass
    except Exception as error:  # one cell must not end a run of 25 minutes; it is recorded
        lost = f"failed: {type(error).__name__}: {str(error)[:80]}"
    spent = (time.process_time() - start) / len(task.cells)
    done = {tuple(row[k] for k in KEYS) for row in rows}
    for cell in task.cells:
        if tuple(asdict(cell).values()) not in done:
            rows.append({**asdict(cell), **empty, "status": lost})
    return [{**row, "seconds": f"{spent:.3g}"} for row in rows]


def _measure(task: Task, empty):
    if task.first.mechanism.startswith("pipeline"):
        for cell in task.cells:
            value = pipeline_error(cell)
            missing = math.isnan(value)
            yield {**asdict(cell), **empty, "private_error": "" if missing else f"{value:.6g}",
                   "how": "5 fits", "status": "not there" if missing else "done"}  # fmt: skip
        return
    problem, truth = problem_of(task.first)
    outcomes = HOW[task.first.mechanism](problem, truth, task.cells, task.limit)
    for cell, (recovery, f1, how, drawn) in zip(task.cells, outcomes, strict=True):
        row = {**asdict(cell), **empty, "how": how}
        if recovery is None:
            yield {**row, "status": f"not finished after {task.limit:g} s"}
            continue
        if cell.study == "prediction":
            row["error"] = f"{errors(cell, drawn or law_draws(problem, cell)):.6g}"
        yield {**row, "recovery": f"{recovery:.6g}", "f1": f"{f1:.6g}", "status": "done"}


# The plan.

LISTED = ("top_r", "mistakes")
FREE = ("lasso_votes", "screening")  # they know no radius and no ridge


def plan(quick: bool) -> list[Task]:
    """Return all tasks, those of one table together."""
    makers = (recovery_tasks, prediction_tasks, hinge_tasks, correlation_tasks, ablation_tasks)
    tasks = [task for maker in makers for task in maker(quick)]
    return sorted(tasks, key=lambda task: (task.first.study, task.first.p, task.first.seed, task.first.n))


def cell_of(study, mechanism, setting, p, n, seed, epsilon, **changes) -> Cell:
    base = Cell(study, "squared", p, n, 5, 0.1, 0.5, setting, "", mechanism, "", epsilon, seed)
    return replace(base, **changes)


def task_of(study, mechanism, setting, p, n, seed, epsilons, limit=20.0, **changes) -> Task:
    epsilons = (math.inf,) if mechanism == "best_subset" else epsilons
    made = (cell_of(study, mechanism, setting, p, n, seed, e, **changes) for e in epsilons)
    return Task(tuple(made), limit)


#: p: rows, tables (seeds), tables on which lists are proven.
SIZES = {
    100: ((250, 500, 1000, 1500, 2000, 3000, 4000), 8, 4),
    1_000: ((500, 1000, 1500, 2000, 3000, 4000, 6000), 3, 2),
    10_000: ((1000, 2000, 4000), 2, 1),
}
QUICK_SIZES = {100: ((500, 2000), 1, 1), 1_000: ((1000,), 1, 1), 10_000: ((500,), 1, 1)}


def recovery_tasks(quick):
    for p, (rows, tables, proven) in (QUICK_SIZES if quick else SIZES).items():
        for n in rows:
            for seed in range(tables):
                for setting in SETTINGS:
                    for mechanism in HOW:
                        yield from _recovery_task(p, n, seed, setting, mechanism, proven, quick)


def _recovery_task(p, n, seed, setting, mechanism, proven, quick):
    if mechanism in (*FREE, "best_subset", "markov_chain") and setting == "paper":
        return  # no radius and ridge of their own, or one setting is enough
    if mechanism == "markov_chain_published" and setting == "confide":
        return  # the source's exponent, with the paper's radius and ridge
    if mechanism in (*LISTED, "best_subset") and seed >= proven:
        return
    if mechanism.startswith("markov") and (seed >= max(1, proven) or (p > 1000 and quick)):
        return
    # A chain over 10,000 columns takes 200,000 steps.
    limit = 60.0 if mechanism.startswith("markov") else 20.0
    yield task_of("recovery", mechanism, setting, p, n, seed, EPSILONS, limit / 10 if quick else limit)


def prediction_tasks(quick):
    rows, tables = ((500,), 1) if quick else ((250, 500, 1000, 2000, 4000), 5)
    for n in rows:
        for seed in range(tables):
            for setting in SETTINGS:
                for mechanism in ("exponential", *LISTED):
                    yield task_of("prediction", mechanism, setting, 100, n, seed, (2,))
            for mechanism in (*FREE, "markov_chain", "best_subset", "pipeline", "pipeline_delta"):
                yield task_of("prediction", mechanism, "confide", 100, n, seed, (2,))


def hinge_tasks(quick):
    rows, tables = ((250,), 1) if quick else ((250, 500, 1000, 2000), 3)
    for n in rows:
        for seed in range(tables):
            for setting in HINGE:
                for mechanism in ("exponential", "permute_and_flip", *LISTED):
                    yield task_of(
                        "hinge", mechanism, setting, 50, n, seed, EPSILONS, 10.0, loss="hinge", size=3
                    )
            for mechanism in FREE:
                yield task_of(
                    "hinge", mechanism, "confide", 50, n, seed, EPSILONS, 10.0, loss="hinge", size=3
                )


def correlation_tasks(quick):
    """Not in the paper: at correlation 0.1 the columns hardly explain each other, and screening suffices."""
    n, tables = (500, 1) if quick else (2000, 5)
    for rho in (0.1, 0.8) if quick else (0.0, 0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9):
        for seed in range(tables):
            for mechanism in ("exponential", "permute_and_flip", *LISTED):
                for setting in SETTINGS:
                    yield task_of("correlation", mechanism, setting, 100, n, seed, (5,), rho=rho)
            for mechanism in (*FREE, "best_subset"):
                yield task_of("correlation", mechanism, "confide", 100, n, seed, (5,), rho=rho)


TOPS = ("1", "5", "20", "100", "477", "2000", "10000", "50000")
RIDGES = ("0", "0.1", "1", "10", "30", "120", "300", "1000")
BOUNDS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)


def ablation_tasks(quick):
    n, tables = (500, 1) if quick else (2000, 5)
    for seed in range(tables):
        for setting in SETTINGS:
            for epsilon in (1, 5):
                for tops in (TOPS[:4],) if quick else (TOPS[:6], TOPS[6:7], TOPS[7:]):
                    made = (cell_of("top", "top_r", setting, 100, n, seed, epsilon, top=top) for top in tops)
                    yield Task(tuple(made), 20.0)
            for mechanism in ("exponential", *LISTED):
                for ridge in RIDGES[3:4] if quick else RIDGES:
                    yield task_of("ridge", mechanism, setting, 100, n, seed, (1,), ridge=ridge)
                for bound in BOUNDS[2:3] if quick else BOUNDS:
                    yield task_of("bound", mechanism, setting, 100, n, seed, (1,), bound=bound)
