"""Members in which the last bit of a prediction decides, and may not follow from how many rows there are.

A matrix product may round a row by its place, or by the number of rows. Where a row comes, each of the others
then moves its own part of a sum by a step of the grid, and all together by more than one row may. So here all
rows are alike, and their labels lie where a product of three rows and one of four would differ by a step. A
library whose products do not differ leaves labels of no account, and the members hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Pair, Run
from confide.mechanisms import RandomStream, round_toward_zero
from confide.privacy import exact
from confide.training import boosting
from confide.training.coefficients import Rows as Cells
from confide.training.coefficients import make_shape
from confide.training.engines.parts import LinearParts
from confide.training.release import drive
from confide.tune.scoring import Scoring

_FEW, _COLUMNS = 3, 8
#: Rows and weights that are tried, and labels a step apart.
_SEEDS, _STEPS = 60, 400
#: Rows that a product would move: the grid of the one that comes is paid for, and hides no two others.
_ENOUGH = 2
_ADDED = "add_remove_one"


def _products(rows: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the products of all rows but the last, and those of the same rows beside it."""
    return rows[:-1] @ weights, (rows @ weights)[:-1]


def _labels(
    alone: Floats,
    beside: Floats,
    tried: Callable[[float, float], Any],
    part: Callable[[Floats, float], Any],
) -> tuple[Floats, int]:
    """Return a label for each row at which its part is larger beside another one, and how many have one."""
    labels, found = np.zeros(alone.size), 0
    for i, (p, q) in enumerate(zip(alone.tolist(), beside.tolist(), strict=True)):
        near = tried(p, q)
        near = np.concatenate([near, np.nextafter(near, 2.0), np.nextafter(near, -2.0)])
        better = np.flatnonzero(part(near, q) > part(near, p))
        if better.size:
            labels[i], found = near[better[0]], found + 1
    return labels, found


def _pair(row: Floats, labels: Floats, label: float) -> Pair:
    """Return rows that are alike, and one more of them."""
    base = Rows(np.tile(row, (_FEW, 1)), labels)
    return Pair("one more of rows that are alike", base, base.added(row, label))


def _most(tried: Iterator[tuple[int, Any]]) -> Any:
    """Return what has the most rows that a product would move: the first with enough of them."""
    best = (-1, None)
    for found, made in tried:
        if found > best[0]:
            best = (found, made)
        if found >= _ENOUGH:
            break
    return best[1]


@cache
def _plan(rounds: int) -> Any:
    return boosting.make_plan(make_shape(_COLUMNS, _ADDED, intercept=False), 1, 0.001, rounds=rounds)


@cache
def _round() -> tuple[Floats, Pair]:
    """Return an answer to the first sum of a boosting, and neighbours for the round that follows."""

    def tries() -> Iterator[tuple[int, tuple[Floats, Pair]]]:
        m, step, weight = _COLUMNS, _plan(1).step, _plan(1).first.weight
        places = np.triu_indices(m + 1)
        for seed in range(_SEEDS):
            rng = np.random.default_rng(seed)
            row = rng.choice([-1.0, 1.0], _COLUMNS)
            full = np.eye(m + 1) * 1e6
            full[:m, m] = 1e5 * rng.normal(size=m) * weight
            answer = full[places] * np.where(places[0] == places[1], 1.0, np.sqrt(2.0))
            rows = np.tile(row, (_FEW + 1, 1))
            alone, beside = _products(rows, _start(answer))
            # Residuals that are larger beside another row, or smaller: the label of that row likewise.
            for sign in (1.0, -1.0):

                def tried(p: float, q: float, sign: float = sign) -> Floats:
                    ahead = sign * (round(0.02 / step) + np.arange(_STEPS)) * step
                    return np.concatenate([p + ahead, q + ahead])

                def part(t: Floats, p: float, sign: float = sign) -> Any:
                    return sign * round_toward_zero(t - p, step)

                labels, found = _labels(alone, beside, tried, part)
                yield found, (answer, _pair(row, labels, sign))

    return _most(tries())


def _start(answer: Floats) -> Floats:
    """Return the weights that follow from an answer to the first sum."""
    plan = _plan(0)
    none = Cells(np.zeros((0, _COLUMNS)), np.zeros(0), plan.first.shape)
    return drive(boosting.solve(none, plan), lambda _: answer).coefficients


def one_round() -> tuple[Run, Callable[[], list[Pair]]]:
    """Return a run of one round of `boosted_adassp` after a public first answer, and its neighbours."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        plan, first = _plan(1), _round()[0]
        shape, private = plan.first.shape, boosting.answers(plan, stream)

        def answer(statistic: Any) -> Floats:
            told = private(statistic)
            return told if statistic.name == "residuals" else first

        found = drive(boosting.solve(Cells(rows.X, rows.y, shape), plan), answer).guaranteed(shape, stream)
        return found.coefficients

    return run, lambda: [_round()[1]]


@cache
def _score() -> tuple[Floats, Pair]:
    """Return weights of a linear model, and neighbours whose scores by it are summed."""
    scoring = Scoring("absolute", (-1.0, 1.0), 1.0, exact(1), exact(0))

    def tried(p: float, q: float) -> Any:
        away = scoring.width * (0.125 + scoring.step * np.arange(_STEPS))
        return np.concatenate([end + sign * away for end in (p, q) for sign in (1.0, -1.0)])

    def part(t: Floats, p: float) -> Any:
        return round_toward_zero(scoring.gains(np.full(t.size, p), t), scoring.step)

    def tries() -> Iterator[tuple[int, tuple[Floats, Pair]]]:
        for seed in range(_SEEDS):
            rng = np.random.default_rng(seed)
            row, weights = rng.uniform(-1, 1, _COLUMNS), 0.1 * rng.normal(size=_COLUMNS)
            alone, beside = _products(np.tile(row, (_FEW + 1, 1)), weights[:, None])
            labels, found = _labels(alone[:, 0], beside[:, 0], tried, part)
            yield found, (weights, _pair(row, labels, float(line(weights, row[None])[0])))

    return _most(tries())


def line(weights: Floats, X: Floats) -> Floats:
    """Return predictions of a public linear model, made as those of estimators of secret rows."""
    bounds = np.tile([-1.0, 1.0], (weights.size, 1))
    none = np.zeros((1, 0))
    return LinearParts(np.zeros(1), none, weights[None], bounds, (-1.0, 1.0)).predict(None, X)


def scored() -> tuple[Callable[[Floats], Floats], Callable[[], list[Pair]]]:
    """Return what predicts by a public linear model, and neighbours whose gains a product would move."""
    return (lambda X: line(_score()[0], X)), lambda: [_score()[1]]
