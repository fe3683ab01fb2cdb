"""Selection gone wrong: mistakes counted without a gap, and the best of a level in place of a draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.exact import nearly
from confide.audit.museum.piece import Piece, claim, vectorised
from confide.audit.neighbours import Rows
from confide.audit.registry import Claim, Floats, Law, Pair
from confide.errors import DataError
from confide.mechanisms import RandomStream, weighted_choice
from confide.selection import SubsetProblem, best_by_mistakes, draw, gap_condition, law
from confide.selection.exponent import exponent

_SIZE = 2
_ERROR = 1e-9
_RELATION = "replace_one"


def _problem(rows: Rows) -> SubsetProblem:
    return SubsetProblem(rows.X, rows.y, _SIZE, "squared", feature_bound=1.0, target_bound=1.0)


def _flipping(n: int = 400) -> Pair:
    """Return neighbours whose best support flips from {0, 1} to {0, 2}.

    Columns 1 and 2 are equal but for the row that differs, the others are zero: {1, 3} has one mistake on one
    table and two on the other, and the scores of the two levels are apart by an amount that grows with n.
    """
    rng = np.random.default_rng(n)
    X = np.zeros((n, 5))
    X[:, 0], X[:, 1] = rng.choice([-1, 1], (2, n))
    X[:, 2] = X[:, 1]
    y = 0.5 * X[:, 0] + 0.5 * X[:, 1]
    y[0] = 1.0
    X[0, :3] = 1.0, 1.0, -1.0
    other = X.copy()
    other[0, 1:3] = -1.0, 1.0
    return Pair("the best support flips", Rows(X, y), Rows(other, y))


def _table(probabilities: dict[tuple[int, ...], float]) -> Law:
    return nearly({tuple(map(float, support)): p for support, p in probabilities.items()}, _ERROR)


def _supports(drawn: Any) -> Floats:
    return np.array(drawn, dtype=np.float64)


def _selected(name: str, mechanism: str, pairs: tuple[Pair, ...]) -> Claim:
    def outputs(rows: Rows, size: int, stream: RandomStream) -> Floats:
        return _supports(draw(_problem(rows), mechanism, 1, _RELATION, random_state=stream, size=size))

    return claim(
        name, 1, 0, _RELATION, pairs, law=lambda rows: _table(law(_problem(rows), mechanism, 1, _RELATION)),
        **vectorised(outputs),
    )  # fmt: skip


def _levels(rows: Rows) -> tuple[Any, list[float]]:
    """Return the best support of each level, and the logarithm of the weight of the level."""
    problem = _problem(rows)
    ranking = best_by_mistakes(problem)
    scores = problem.known_scores(ranking.columns)
    eta = exponent(problem, "mistakes", 1, _RELATION)
    rest = problem.p - _SIZE
    logs = [
        math.log(math.comb(rest, t) * math.comb(_SIZE, t)) - eta * float(score - scores[0])
        for t, score in enumerate(scores)
    ]
    return ranking.columns, logs


def _best_of_level(rows: Rows, size: int, stream: RandomStream) -> Floats:
    columns, logs = _levels(rows)
    return _supports(columns[weighted_choice(log_weights=np.array(logs), size=size, stream=stream)])


def _best_law(rows: Rows) -> Law:
    columns, logs = _levels(rows)
    weights = np.exp(np.array(logs) - max(logs))
    told = zip(map(tuple, columns.tolist()), (weights / weights.sum()).tolist(), strict=True)
    return _table(dict(told))


#: Wide gaps: the condition of `mistakes` holds on it and on all its neighbours. Columns 3 and 4 tie.
_CLEAR = Rows(np.repeat(np.eye(5), 40, axis=0), np.repeat([1.0, 0.6, 0.0, 0.0, 0.0], 40))


def _ties() -> tuple[Pair, ...]:
    row, other = np.zeros(5), np.zeros(5)
    row[2], other[3] = 1.0, 1.0
    pair = Pair("the tie of two columns turns", _CLEAR.replaced(row, 1.0), _CLEAR.replaced(other, 1.0))
    return (pair, *neighbours.pairs(_CLEAR, _RELATION)[:4])


def _buckets(name: str, outputs: Callable[..., Any], probabilities: Callable[[Rows], Law]) -> Claim:
    return claim(name, 1, 0, _RELATION, _ties(), law=probabilities, **vectorised(outputs))


def _checked(rows: Rows, size: int, stream: RandomStream) -> Floats:
    """Draw by `mistakes` where the condition of the paper holds, which it does on every table tried here."""
    if not gap_condition(_problem(rows), diagnostics="public data").paper:
        raise DataError("The condition of the paper does not hold.", "Choose another mechanism.")
    return _supports(draw(_problem(rows), "mistakes", 1, _RELATION, random_state=stream, size=size))


def _paper() -> Claim:
    return claim(
        "paper_condition", 1, 0, _RELATION, (_flipping(100), _flipping()),
        law=lambda rows: _table(law(_problem(rows), "mistakes", 1, _RELATION)), **vectorised(_checked),
    )  # fmt: skip


PIECES = (
    Piece(
        "mistakes_without_gap",
        "Supports are scored by their distance from the best one, which flips with one row.",
        lambda: _selected("mistakes_without_gap", "mistakes", (_flipping(),)),
        lambda: _selected("exponential", "exponential", (_flipping(),)),
        ("exact", "black box", "replay"),
    ),
    Piece(
        "paper_condition",
        "The condition of the paper, which both tables meet, is taken for proof that `mistakes` is private.",
        _paper, lambda: _selected("mistakes", "mistakes", _ties()),
        ("exact", "black box", "replay"),
    ),
    Piece(
        "best_of_bucket",
        "The best support of the drawn level is told: which ones are possible is a fact about the table.",
        lambda: _buckets("best_of_bucket", _best_of_level, _best_law),
        lambda: _selected("mistakes", "mistakes", _ties()),
        ("exact", "black box", "replay"),
    ),
)  # fmt: skip
