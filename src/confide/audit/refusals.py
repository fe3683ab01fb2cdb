"""Calls of `confide.prediction` that must be refused, and rows of a person that must count: known beforehand.

What is refused is never run, so no replay and no poisoned table meets a refusal that is gone. Each call here
stands beside one that differs in what it is refused for alone, and that must be accepted: without it a call
that is refused for another reason would show nothing. Rows of persons are held against the audit's own
counting, and the rows that a certificate is given, of arrays and of tables, against those that it was given
before a person changed.

==================================  ====================================================================
what is refused                     what would follow
==================================  ====================================================================
batches by hash, replacement        a row that changes its batch changes two
batches by place, add/remove        a row less moves all later ones
a ball with momentum, add/remove    its radius is proved for fixed numbers of rows
a clip by value, a clip that binds  gradients of a ball that are longer, or of no convex loss
a mean over a secret number         one row changes the weight of all others
a certificate of another relation   k counts changes that are not those of the guarantee
repeated ids without a limit        a person is several units
persons without ids                 rows of a person are several units
levels that are left out            distances that move by more than 1
no delta, no epsilon, too small     a release without a law of its amounts
deltas of more than the total       a total that is passed
distances below 0, no class         a law at another distance
an epoch of other amounts           answers that were paid for at another price
a copy of an epoch                  one threshold for two epochs
==================================  ====================================================================
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.errors import ConfideError
from confide.mechanisms import os_stream
from confide.prediction import (
    BallTraining,
    CertifiedClassifier,
    Ensemble,
    HybridTraining,
    IntervalTraining,
    Persons,
    StableAnswers,
    StronglyConvexERM,
    TeacherVotes,
    VoteGap,
    certify,
    per_answer,
    release_of,
    train_intervals,
)
from confide.prediction.intervals.batches import HashedBatches
from confide.privacy import Adjacency

_ADDED = "add_remove_one"
_REPLACED = ("replace_one", "replace_label", "replace_private_part")
_ROWS = neighbours.table(9, 2, classes=True)
_CODES = (_ROWS.y > 0).astype(np.int64)
_HASHED, _PLACED = HashedBatches(4, 10.0), 2
_NORM: dict[str, Any] = {"learning_rate": 1.0, "clip": 0.1, "clip_by": "norm", "epochs": 1}
_VALUE = {**_NORM, "clip_by": "value"}
_HEAVY = {**_NORM, "momentum": 0.5}


def _boxes(adjacency: str, batches: Any, how: Any = _NORM) -> IntervalTraining:
    return IntervalTraining((2, 1), how, 2, adjacency, np.zeros(3), batches)


def _hybrid(adjacency: str, batches: Any, how: Any = _NORM, layers: tuple[int, ...] = (2, 3, 1)) -> Any:
    return HybridTraining(layers, how, 2, adjacency, batches=batches)


def _ball(adjacency: str, batches: Any, how: Any = _NORM, classes: int = 2) -> BallTraining:
    return BallTraining(2, how, 1.0, adjacency, batches, classes=classes)


def _votes(adjacency: str = "replace_one") -> VoteGap:
    return VoteGap(3, 2, (-1, 1), Adjacency.parse(adjacency))


def _fit(ids: Any = None, bounds: Any = (-1, 1), **how: Any) -> CertifiedClassifier:
    return CertifiedClassifier([-1.0, 1.0], bounds, **how).fit(_ROWS.X, _ROWS.y, ids=ids)


def _object(certificate: Any, ids: Any = None, bounds: Any = None, **how: Any) -> CertifiedClassifier:
    return _fit(ids, bounds, certificate=certificate, **how)


def _answered(*amounts: Any, **how: Any) -> Any:
    return _fit(certificate="votes", neighbours=3).answer(_ROWS.X, *amounts, **how)


def _levels(*ks: int) -> Any:
    return train_intervals(
        _ROWS.X, _CODES, (2, 1), np.zeros(3), _NORM, ks, "replace_one", _PLACED
    ).stability(_ROWS.X)  # fmt: skip


def _drawn(label: Any, k: Any) -> Any:
    return release_of("response", 1, 2).draw([label], [k], stream=os_stream())


def _epochs(epsilon: int = 1, **how: Any) -> StableAnswers:
    return StableAnswers(epsilon, "1/100", 2, charge=lambda event: None, stream=os_stream(), **how)


def _resumed(epsilon: int) -> None:
    answers = _epochs(epsilon)
    answers.until_unstable(np.zeros(1, dtype=np.int64), [1 << 40])
    _epochs().resume(answers.to_bytes())


def _tabled(certificate: Any) -> Any:
    import pandas as pd

    from confide.schema import Table

    frame = pd.DataFrame({"a": _ROWS.X[:, 0], "who": np.arange(9) // 2, "y": _CODES.astype(str)})
    columns = {
        "a": {"role": "private", "lower": -1, "upper": 1},
        "who": {"role": "id"},
        "y": {"role": "label", "categories": ["0", "1"]},
    }
    held = Table.from_frame(frame, {"columns": columns, "table": {"max_rows_per_id": 2}})
    return certify(held, certificate=certificate, adjacency=Adjacency.parse(certificate.adjacency).value)


def _teachers(adjacency: str) -> TeacherVotes:
    from sklearn.tree import DecisionTreeClassifier

    return TeacherVotes(DecisionTreeClassifier(random_state=0), 2, 2, (-1, 1), Adjacency.parse(adjacency))


Call = Callable[[], Any]
#: What is refused, the call, and one that is accepted.
CALLS: tuple[tuple[str, Call, Call], ...] = (
    *(
        (f"batches by hash, {relation}", lambda make=make, r=relation: make(r, _HASHED),
         lambda make=make: make(_ADDED, _HASHED))
        for make in (_boxes, _hybrid, _ball)
        for relation in _REPLACED
    ),
    *(
        ("batches by place", lambda make=make, batches=batches: make(_ADDED, batches),
         lambda make=make, batches=batches: make("replace_one", batches))
        for make in (_boxes, _hybrid, _ball)
        for batches in (None, _PLACED)
    ),
    ("momentum of a ball", lambda: _ball(_ADDED, _HASHED, _HEAVY), lambda: _ball("replace_one", 1, _HEAVY)),
    ("clip of a ball", lambda: _ball("replace_one", 1, _VALUE), lambda: _ball("replace_one", 1)),
    (
        "clip that binds", lambda: _ball("replace_one", 1, _NORM, 3),
        lambda: _ball("replace_one", 1, {**_NORM, "clip": 100.0}, 3),
    ),
    ("momentum of a hybrid", lambda: _hybrid("replace_one", 1, _HEAVY), lambda: _hybrid("replace_one", 1)),
    ("clip of a hybrid", lambda: _hybrid("replace_one", 1, _VALUE), lambda: _hybrid("replace_one", 1)),
    ("layers of a hybrid", lambda: _hybrid("replace_one", 1, _NORM, (2, 3, 3, 1)),
     lambda: _hybrid("replace_one", 1)),
    (
        "hinge of three classes", lambda: StronglyConvexERM(1.0, 3, loss="huber_hinge"),
        lambda: StronglyConvexERM(1.0, 2, loss="huber_hinge"),
    ),
    ("mean of a secret number", lambda: _fit(alpha=0.1, adjacency=_ADDED),
     lambda: _fit(ridge=1.0, adjacency=_ADDED)),
    ("mean of members", lambda: _fit(alpha=0.1, members=3), lambda: _fit(ridge=1.0, members=3)),
    ("another relation", lambda: _object(_votes(), adjacency=_ADDED),
     lambda: _object(_votes(_ADDED), adjacency=_ADDED)),
    ("members of another relation", lambda: Ensemble(_votes("replace_label"), 3, Adjacency.REPLACE_ONE),
     lambda: Ensemble(_votes(), 3, Adjacency.REPLACE_LABEL)),
    ("bounds beside an object", lambda: _object(_votes(), bounds=(-2, 2)), lambda: _object(_votes())),
    ("bounds of the data", lambda: _fit(bounds=None), lambda: _fit()),
    ("ids that repeat", lambda: _fit(np.arange(9) // 2), lambda: _fit(np.arange(9))),
    ("persons without ids", lambda: _object(Persons(_votes(), 2)),
     lambda: _object(Persons(_votes(), 2), np.arange(9) // 2)),
    (
        "members without ids", lambda: _object(Ensemble(Persons(_votes(), 2), 2)),
        lambda: _object(Ensemble(Persons(_votes(), 2), 2), np.arange(9) // 2),
    ),
    ("persons of persons", lambda: Persons(Persons(_votes(), 2), 2), lambda: Persons(_votes(), 2)),
    *(
        (f"numbers for ids, {i}", lambda make=make: _tabled(make(_ADDED)),
         lambda make=make: _tabled(make("replace_one")))
        for i, make in enumerate(
            (_teachers, lambda adjacency: Persons(VoteGap(3, 2, (-1, 1), Adjacency.parse(adjacency)), 2))
        )
    ),
    ("levels left out", lambda: _levels(0, 2), lambda: _levels(0, 1, 2)),
    *(
        (f"{name} without delta", lambda name=name: release_of(name, 1, 2, 0),
         lambda name=name: release_of(name, 1, 2, "1/100"))
        for name in ("laplace", "ptr")
    ),
    *(
        (f"{name} with delta", lambda name=name: release_of(name, 1, 2, "1/100"),
         lambda name=name: release_of(name, 1, 2, 0))
        for name in ("global", "cauchy")
    ),
    *(
        (f"{name} of three classes", lambda name=name, delta=delta: release_of(name, 1, 3, delta),
         lambda name=name, delta=delta: release_of(name, 1, 2, delta))
        for name, delta in (("cauchy", 0), ("laplace", "1/100"))
    ),
    *(
        (f"epsilon {epsilon}", lambda epsilon=epsilon: release_of("response", epsilon, 2),
         lambda: release_of("response", 1, 2))
        for epsilon in (0, -1, 2000, float("nan"), float("inf"))
    ),
    ("epsilon and total", lambda: _answered(1, total=(1, "1/100")), lambda: _answered(total=(1, "1/100"))),
    ("neither", lambda: _answered(), lambda: _answered(1)),
    ("deltas beyond the total", lambda: per_answer(1, "1/100", 100, each_delta="1/1000"),
     lambda: per_answer(1, "1/100", 100, each_delta="1/100000")),
    *(
        (f"drawn at {label}, {k}", lambda label=label, k=k: _drawn(label, k), lambda: _drawn(1, 0))
        for label, k in ((0, -1), (2, 0), (-1, 0), (0, 0.5), (0, float("nan")))
    ),
    ("low threshold", lambda: _epochs(threshold=3), lambda: _epochs(threshold=10**6)),
    ("epoch of other amounts", lambda: _resumed(2), lambda: _resumed(1)),
    ("copy of an epoch", lambda: copy.copy(_epochs()), lambda: _epochs().to_bytes()),
)  # fmt: skip


def refused(call: Call) -> bool:
    """Return whether a call raises an error of Confide, or of what must not be copied."""
    try:
        call()
    except (ConfideError, TypeError):
        return True
    return False


def calls() -> Iterator[bool]:
    """Yield whether each call is refused, and the one beside it accepted."""
    for _, wrong, right in CALLS:
        yield refused(wrong)
        yield not refused(right)


@dataclass(frozen=True)
class Noted:
    """A certificate that notes the tables it is given, and certifies one distance for all queries."""

    adjacency: Adjacency
    seen: list[tuple[Any, Any, Any]] = field(default_factory=list)
    classes: int = 2
    distance: int = 0

    def fit(self, X: Any, y: Any, *, ids: Any = None) -> Any:
        """Note a table."""
        self.seen.append((np.array(X), np.array(y), np.array(ids)))
        return self

    def stability(self, X: Any) -> Any:
        """Return class 0 and the distance."""
        return np.zeros(len(X), dtype=np.int64), np.full(len(X), self.distance)


#: Persons, rows of each, and how many of them count.
_OWNERS, _OWNED, _COUNT = 5, 10, 3


def kept() -> Iterator[bool]:
    """Yield whether of each person as many rows count, and others' do where one person changes.

    The rows that count are the same whatever their labels are, where labels alone change; in the same places,
    where rows are replaced; and those of others follow each other as before where one person goes.
    """
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (_OWNERS * _OWNED, 2))
    y, ids = rng.integers(0, 2, len(X)), np.arange(len(X)) % _OWNERS
    for relation in Adjacency:
        noted = Noted(relation)
        persons = Persons(noted, _COUNT)
        for who in range(_OWNERS):
            mine = ids == who
            labels, cells = np.where(mine, 1 - y, y), np.where(mine[:, None], X**3, X)
            for table in (
                (X, y, ids),
                (X, labels, ids),
                (cells, labels, ids),
                (X[~mine], y[~mine], ids[~mine]),
            ):
                persons.fit(*table[:2], ids=table[2])
            one, relabelled, moved, gone = noted.seen[-4:]
            name = _name(X, one, mine)
            yield all(count == _COUNT for count in np.unique(one[2], return_counts=True)[1])
            if relation is Adjacency.REPLACE_LABEL:
                yield bool((one[0] == relabelled[0]).all() and (one[2] == relabelled[2]).all())
            others = one[2] != name
            if relation is Adjacency.ADD_REMOVE_ONE:
                yield all(np.array_equal(a[others], b) for a, b in zip(one, gone, strict=True))
            else:
                yield all(np.array_equal(a[others], b[others]) for a, b in zip(one, moved, strict=True))


def _name(X: Any, noted: tuple[Any, Any, Any], mine: Any) -> Any:
    """Return what a person is called among the rows that count."""
    return noted[2][_among(noted, X[mine])][0]


def _among(noted: tuple[Any, Any, Any], rows: Any) -> Any:
    """Return which rows of a noted table are among others."""
    return (noted[0][:, None] == rows[None]).all(axis=2).any(axis=1)


#: A distance of rows, of which persons are `_COUNT`.
_ROWS_APART = 3 * _COUNT + 2


def tabled() -> Iterator[bool]:
    """Yield whether `certify` on tables with ids counts persons, and others stay where one person changes.

    Where persons come and go the ids of a table, numbers by first appearance, may not be handed on.
    """
    rng = np.random.default_rng(4)
    X = np.round(rng.uniform(-1, 1, (_OWNERS * _OWNED, 2)), 3)
    y, ids = rng.integers(0, 2, len(X)), np.arange(len(X)) % _OWNERS
    for relation in Adjacency:
        noted = Noted(relation, distance=_ROWS_APART)
        added, relabelled = relation is Adjacency.ADD_REMOVE_ONE, relation is Adjacency.REPLACE_LABEL
        model = _certified(noted, X, y, ids)
        rows = [_among(noted.seen[0], X[ids == who]).sum() for who in range(_OWNERS)]
        yield bool((model.stability(np.zeros((2, 2)))[1] <= _ROWS_APART // max(rows)).all())
        yield 0 < min(rows) <= max(rows) <= _COUNT
        for who in range(_OWNERS):
            mine = ids == who
            cells = X if relabelled else np.where(mine[:, None], X**3, X)
            _certified(noted, *((X[~mine], y[~mine], ids[~mine]) if added else (cells, y ^ mine, ids)))
            one, other = noted.seen[0], noted.seen[-1]
            others = ~_among(one, X[mine])
            yield all(
                np.array_equal(*_of_others(a, b, others, added)) for a, b in zip(one, other, strict=True)
            )


def _of_others(one: Any, other: Any, others: Any, added: bool) -> tuple[Any, Any]:
    """Return what two noted tables hold of all persons but one, who has left the other table or changed."""
    if one.ndim == 0:  # no ids
        return one, other
    return one[others], other if added else other[others]


def _certified(certificate: Noted, X: Any, y: Any, ids: Any) -> Any:
    import pandas as pd

    from confide.schema import Table

    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "who": ids.astype(str), "y": y.astype(str)})
    role = "public" if certificate.adjacency is Adjacency.REPLACE_LABEL else "private"
    columns: dict[str, Any] = {name: {"role": role, "lower": -1, "upper": 1} for name in "ab"}
    columns |= {"who": {"role": "id"}, "y": {"role": "label", "categories": ["0", "1"]}}
    held = Table.from_frame(frame, {"columns": columns, "table": {"max_rows_per_id": _COUNT}})
    return certify(held, certificate=certificate, adjacency=certificate.adjacency)


def counted() -> Iterator[bool]:
    """Yield whether a person counts as the rows that it may change together: in one batch, or in all."""
    for rows in range(1, 9):
        for batches in range(1, 6):
            places = (np.arange(start, start + rows) % batches for start in range(batches))
            most = max(int(np.bincount(place).max()) for place in places)
            for make in (_boxes, _hybrid):
                yield Persons(make("replace_one", batches), rows).divisor >= most
            whole = replace(_boxes("replace_one", batches), budget="epoch")
            yield Persons(whole, rows).divisor >= rows
        for make in (_boxes, _hybrid, _ball):
            yield Persons(make(_ADDED, _HASHED), rows).divisor >= rows
        for certificate in (_votes(), StronglyConvexERM(1.0), _ball("replace_one", 2)):
            yield Persons(certificate, rows).divisor >= rows
