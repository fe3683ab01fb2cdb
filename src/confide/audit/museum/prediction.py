"""Certified prediction gone wrong: distances that jump, and a law of two classes for many."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit.exact import certain, nearly
from confide.audit.museum.piece import Piece, claim, vectorised
from confide.audit.registry import Claim, Floats, Law, Pair
from confide.mechanisms import RandomStream, weighted_choice
from confide.prediction import ensemble_distance, response_law

_EPSILON = Fraction(1, 10)
_RESPONSE = response_law(_EPSILON, 2)
#: Distances that the published search tries.
_GRID = np.array([*range(10), *range(10, 50, 5), *range(50, 201, 10)])
Answered = tuple[int, int]


def _told(told: Answered, size: int, stream: RandomStream) -> Floats:
    label, k = told
    return _RESPONSE.draw(np.full(size, label), np.full(size, k), stream=stream).astype(np.float64)


def _law(told: Answered) -> Law:
    label, k = told
    wrong = _RESPONSE.wrong(k)
    return certain({float(label): 1 - wrong, float(1 - label): wrong})


def _answers(name: str, pairs: tuple[Pair, ...], distance: Callable[[Any], Answered]) -> Claim:
    return claim(
        name, _EPSILON, 0, "replace_one", pairs, law=lambda table: _law(distance(table)),
        **vectorised(lambda table, size, stream: _told(distance(table), size, stream)),
    )  # fmt: skip


_STEPS = tuple(Pair(f"distance {k} against {k + 1}", (0, k), (0, k + 1)) for k in (14, 9, 49, 69))


def _coarse(table: Answered) -> Answered:
    """Return the largest tried distance that holds."""
    label, k = table
    return label, int(_GRID[k >= _GRID].max())


#: Members' votes and distances; the third one turns, at a distance of 0 on both tables.
_MEMBERS = (
    Pair("the rival's member turns", ([0, 0, 1], [50, 50, 0]), ([0, 0, 0], [50, 50, 0])),
    Pair("a distance falls", ([0, 0, 1], [50, 50, 3]), ([0, 0, 1], [50, 50, 2])),
)


def _published(table: tuple[list[int], list[int]]) -> Answered:
    """Return the winner, and the sum of the n smallest distances of all members, n as many as must turn."""
    votes, k = map(np.array, table)
    counts = np.bincount(votes, minlength=2)
    winner = int(counts.argmax())
    turns = math.ceil((counts[winner] - counts[1 - winner]) / 2)
    return winner, int(np.sort(k)[:turns].sum())


def _repaired(table: tuple[list[int], list[int]]) -> Answered:
    votes, k = (np.array([side]) for side in table)
    label, distance = ensemble_distance(votes, k, 2)
    return int(label[0]), int(distance[0])


_CLASSES = 50
_BOTH = (Pair("distance 0 against 1", (0, 0), (0, 1)), Pair("classes differ", (0, 0), (1, 0)))


def _naive(told: Answered) -> list[float]:
    """Return the weights of all classes: q e^(-epsilon k) of answering wrongly, shared among the others."""
    label, k = told
    wrong = math.exp(-k) / (math.e + _CLASSES - 1)
    weights = [wrong] * _CLASSES
    weights[label] = 1 - (_CLASSES - 1) * wrong
    return weights


def _many_classes(*, right: bool) -> Claim:
    law = response_law(1, _CLASSES)

    def draw(told: Answered, size: int, stream: RandomStream) -> Floats:
        if right:
            drawn = law.draw(np.full(size, told[0]), np.full(size, told[1]), stream=stream)
        else:
            drawn = weighted_choice(_naive(told), size=size, stream=stream)
        return np.asarray(drawn, dtype=np.float64)

    def probabilities(told: Answered) -> Law:
        if not right:
            return nearly({float(c): p for c, p in enumerate(_naive(told))}, 1e-12)
        wrong = law.wrong(told[1])
        table = {float(c): wrong for c in range(_CLASSES)}
        return certain(table | {float(told[0]): 1 - (_CLASSES - 1) * wrong})

    return claim("many_classes", 1, 0, "replace_one", _BOTH, law=probabilities, **vectorised(draw))


PIECES = (
    Piece(
        "coarse_grid",
        "Distances are searched on a coarse grid, so neighbours with 14 and 15 report 10 and 15.",
        lambda: _answers("coarse_grid", _STEPS, _coarse),
        lambda: _answers("fine_grid", _STEPS, lambda table: table),
        ("exact", "black box", "replay"),
    ),
    Piece(
        "unrepaired_ensemble",
        "The n smallest distances of all members are summed, also of those that vote for the rival already.",
        lambda: _answers("unrepaired_ensemble", _MEMBERS, _published),
        lambda: _answers("ensemble", _MEMBERS, _repaired),
        ("exact", "black box", "replay"),
    ),
    Piece(
        "naive_many_classes",
        "q e^(-epsilon k) for 50 classes: r_1 > e^epsilon r_0 once C > 1 + e^(2 epsilon).",
        lambda: _many_classes(right=False), lambda: _many_classes(right=True),
        ("exact", "black box", "replay"),
    ),
)  # fmt: skip
