"""Members of the families of prediction whose ids are odd: no cell of them may decide what a fit shows.

Where rows or persons come and go their ids are as secret as they are, and so where a row that is replaced may
have another id. One id here is a number with a fraction, no value at all, a truth value, a pair, or what
nothing can be made of, among ids that are text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from confide.audit.family.shared import POINTS
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows, table
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream
from confide.prediction import (
    CertifiedClassifier,
    Ensemble,
    IntervalTraining,
    Persons,
    StronglyConvexERM,
    TeacherVotes,
    VoteGap,
)
from confide.prediction.intervals.batches import HashedBatches
from confide.privacy import Adjacency

#: What may stand for an id. A row says by its cells, far beyond the bounds, which one it has.
_ODD: dict[str, Any] = {
    "a fraction": 1.5,
    "no value": None,
    "a truth value": True,
    "not a number": float("nan"),
    "a pair": ("ward", 3),
    "many digits": 10**5000,
    "an object": object(),
    "bytes that are no text": b"\xff\x00",
}
_FAR = 1e6
_N, _CAP = 12, 2
_ADD = "add_remove_one"


def _ids(rows: Rows, each: int) -> list[Any]:
    """Return lasting ids, `each` for so many rows, but for the rows that have an odd one."""
    cells, found = list(_ODD.values()), list[Any]()
    for cell in rows.X[:, 0]:
        odd = cell >= _FAR
        found.append(cells[int(cell / _FAR) - 1] if odd else f"p{len(found) // each}")
    return found


def _pairs(relation: str) -> list[Pair]:
    base = table(_N, 2, classes=True)
    found = []
    for place, name in enumerate(_ODD):
        row = np.full(2, _FAR * (place + 1))
        if relation == _ADD:
            found.append(Pair(f"{name} comes", base, base.added(row, 1.0)))
        else:
            other = base.replaced(base.X[0], -1.0)
            found.append(Pair(f"text, or {name}", other, base.replaced(row, 1.0)))
    return found


def _run(make: Callable[[], CertifiedClassifier], each: int, wrap: Callable[[list[Any]], Any]) -> Run:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        model = make().fit(rows.X, rows.y, ids=wrap(_ids(rows, each)))
        return np.asarray(model.answer(POINTS, 1, random_state=random_state(stream)), dtype=np.float64)

    return run


def _objects(ids: list[Any]) -> Any:
    held = np.empty(len(ids), dtype=object)
    for place, cell in enumerate(ids):
        held[place] = cell
    return held


def _member(
    name: str,
    certificate: Callable[[], Any],
    relation: str = _ADD,
    *,
    each: int = 1,
    wrap: Callable[[list[Any]], Any] = list,
) -> Variant:
    def make() -> CertifiedClassifier:
        return CertifiedClassifier([-1.0, 1.0], certificate=certificate())

    return Variant(f"odd ids, {name}", _run(make, each, wrap), partial(_pairs, relation), relation)


def _votes(relation: str = _ADD) -> VoteGap:
    return VoteGap(5, 2, (-1, 1), Adjacency.parse(relation))


def _erm() -> StronglyConvexERM:
    return StronglyConvexERM(1.0, adjacency=Adjacency.ADD_REMOVE_ONE, curvature_levels=0)


def _teachers(relation: str, **how: Any) -> TeacherVotes:
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=1, random_state=0)
    return TeacherVotes(tree, 3, 2, (-1, 1), Adjacency.parse(relation), **how)


def _batches() -> IntervalTraining:
    settings = {"learning_rate": 0.5, "clip": 0.1, "epochs": 1}
    return IntervalTraining((2, 1), settings, 4, _ADD, init=np.zeros(3), batches=HashedBatches(3, 5.0))


FAMILIES: Families = {
    "prediction.erm.add_remove_one": (
        _member("votes", _votes),
        _member("persons", lambda: Persons(_erm(), _CAP), each=_CAP),
        _member("persons of objects", lambda: Persons(_votes(), _CAP), each=_CAP, wrap=_objects),
        _member("members", lambda: Ensemble(_erm(), 3)),
        _member("members of persons", lambda: Ensemble(Persons(_votes(), _CAP), 3), each=_CAP),
        _member("batches by hashes", _batches),
        _member("teachers", lambda: _teachers(_ADD)),
    ),
    "prediction.votes": (_member("replaced", lambda: _votes("replace_one"), "replace_one"),),
    "prediction.teachers": (
        _member("replaced", lambda: _teachers("replace_one", ids_change=True), "replace_one", wrap=_objects),
    ),
}
