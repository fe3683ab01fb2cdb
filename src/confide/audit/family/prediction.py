"""Members of the families of the room: prediction. Each is replayed, and poisoned as the claims' own models.

Three classes, losses, momentum, batches by hashes, ensembles whose members a replaced row may leave, votes
that may tie, rows that change their ids, relations that a loss tells apart, and persons of more rows than
count, also more of them than there are batches, take branches that the models of the claims do not. A
person's rows are not side by side, and where persons come and go their ids are lasting: those of the others
stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Pair, Target, random_state
from confide.mechanisms import RandomStream
from confide.prediction import (
    CertifiedClassifier,
    Ensemble,
    HybridTraining,
    IntervalTraining,
    Persons,
    StronglyConvexERM,
    TeacherVotes,
    VoteGap,
    certify,
)
from confide.prediction.certificate import steady
from confide.prediction.intervals.batches import HashedBatches
from confide.prediction.intervals.network import Network
from confide.privacy import Adjacency

_TWO, _THREE = (-1.0, 1.0), (0.0, 1.0, 2.0)
_QUERIES = np.array(
    [[0.05, 0.0], [0.0, 0.1], [-0.2, -0.3], [0.6, 0.2], [1.0, -1.0], [-0.8, 0.6], [0.3, -0.9]]
)
#: Rows of a person, of which so many count.
_OWNED, _CAP = 10, 3
#: So few steps and so much decay that few rows certify.
_SLOW = {"learning_rate": 0.1, "clip_by": "norm", "epochs": 6, "weight_decay": 0.3}
#: Momentum in the boxes of parameters, and in the ball around them.
_HEAVY = {"learning_rate": 0.3, "clip": 0.1, "momentum": 0.5, "epochs": 2}


#: So small steps that a deep network keeps some boxes, and what puts its border between the queries.
_GENTLE = {"learning_rate": 0.3, "clip": 0.02, "epochs": 6}
_MIDDLE = -8.76


def _table(n: int, classes: tuple[float, ...]) -> Rows:
    base = neighbours.table(n, 2, classes=True)
    if classes == _TWO:
        return base
    return Rows(base.X, np.digitize(base.X[:, 0] - 0.6 * base.X[:, 1], [-0.4, 0.4]).astype(np.float64))


#: Members that count rows which come or go: where one is replaced, that is two changes of them.
_ERM = StronglyConvexERM(1.0, adjacency=Adjacency.ADD_REMOVE_ONE, curvature_levels=8)
_VOTES = VoteGap(9, 2, (-1, 1), Adjacency.ADD_REMOVE_ONE)


def _members(member: Any, relation: str) -> Callable[[], CertifiedClassifier]:
    ensemble = Ensemble(member, 3, Adjacency.parse(relation))
    return lambda: CertifiedClassifier([*_TWO], certificate=ensemble)


def _strong(relation: str, loss: str | None = None) -> Callable[[], CertifiedClassifier]:
    """Return models with so much ridge that distances are nearly exact."""
    certificate = StronglyConvexERM(40.0, loss=loss, adjacency=Adjacency.parse(relation), curvature_levels=8)
    return lambda: CertifiedClassifier([*_TWO], certificate=certificate)


def _boxes(persons: int = 1, k_max: int = 8, **how: Any) -> CertifiedClassifier:
    hyperparameters = {"learning_rate": 1.0, "clip": 0.1, "epochs": 2, **how.pop("hyperparameters", {})}
    certificate = IntervalTraining((2, 1), hyperparameters, k_max, init=np.zeros(3), **how)
    counted = certificate if persons == 1 else Persons(certificate, persons)
    return CertifiedClassifier([*_TWO], certificate=counted)


#: A public start whose border runs through the square, and queries near where training leaves it.
_START = np.append(np.random.default_rng(2).normal(size=13)[:-1], 0.0)
_BORDER = np.array([[-0.55, 0.65], [0.3, 0.15], [-0.75, 0.95], [0.7, 0.0], [0.05, 0.0]])


#: Rows of a person and batches, of which one has two of them.
_MORE, _FEWER = 7, 4


def _hybrid() -> CertifiedClassifier:
    settings = {"learning_rate": 0.2, "clip": 0.1, "clip_by": "norm"}
    certificate = HybridTraining((2, 3, 1), settings, 56, init=_START, batches=_FEWER)
    return CertifiedClassifier([*_TWO], certificate=Persons(certificate, _MORE))


def _teachers(parts: int, **how: Any) -> CertifiedClassifier:
    from sklearn.tree import DecisionTreeClassifier

    votes = TeacherVotes(DecisionTreeClassifier(random_state=0), parts, 2, (-1, 1), **how)
    return CertifiedClassifier([*_TWO], certificate=votes)


def _deep() -> CertifiedClassifier:
    """Return a network of five layers, whose levels are searched by `steady` one after the other."""
    layers = (2, 3, 3, 3, 3, 1)
    start = 1.2 * np.random.default_rng(6).normal(size=Network(layers).size)
    start[-1] += _MIDDLE
    certificate = IntervalTraining(layers, _GENTLE, 32, init=start, levels="bisect")
    return CertifiedClassifier([*_TWO], certificate=certificate)


class _OfTables:
    """A classifier of tables that have a column of ids, asked as one of arrays is."""

    def __init__(self, adjacency: str, **how: Any) -> None:
        self.how = {"adjacency": adjacency, **how}

    def fit(self, X: Floats, y: Floats, *, ids: Any) -> _OfTables:
        """Certify the table of these rows, of which `_CAP` of each id count."""
        import pandas as pd

        from confide.schema import Table

        role, end = ("public", 3) if self.how["adjacency"] == "replace_label" else ("private", 1)
        frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "who": ids, "y": y.astype(str)})
        columns: dict[str, Any] = {name: {"role": role, "lower": -end, "upper": end} for name in "ab"}
        columns |= {"who": {"role": "id"}, "y": {"role": "label", "categories": [str(c) for c in _TWO]}}
        held = Table.from_frame(frame, {"columns": columns, "table": {"max_rows_per_id": _CAP}})
        self.model = certify(held, **self.how)
        return self

    def answer(self, X: Floats, epsilon: float, *, random_state: int | None) -> Floats:
        """Return private answers."""
        return self.model.answer(X, epsilon, random_state=random_state).astype(np.float64)

    def stability(self, X: Floats) -> tuple[Any, Any]:
        """Return classes and distances."""
        labels, k = self.model.stability(X)
        return labels.astype(np.float64), k

    def steady(self, X: Floats) -> tuple[Any, Any]:
        """Return them as a service asks for them."""
        labels, k = steady(self.model.certified, self.model.queries(X))
        return np.array(_TWO)[labels], k


def _names(rows: Rows) -> list[str]:
    """Return a lasting id of each row: of its cells, and how many rows before it have the same ones."""
    seen: Counter[bytes] = Counter()
    found = []
    for row, label in zip(rows.X, rows.y, strict=True):
        cells = np.append(row, label).tobytes()
        found.append(f"{cells.hex()} {seen[cells]}")
        seen[cells] += 1
    return found


@dataclass(frozen=True)
class Member:
    """A certified classifier of a family.

    Parameters
    ----------
    name : str
    make : function () -> CertifiedClassifier, or what fits and answers as one does
    classes : tuple of float
    persons : bool
        Whether each row stands for `_OWNED` rows of one person.
    adjacency : str
        That of the claim, or one under which the same is changed.
    rows : int, optional
        Of what is poisoned; 20 a class by default.
    renamed : bool
        Whether a row that changes has another id then: its cells and label.
    queries : float array [q, 2]
    """

    name: str
    make: Callable[[], Any] = field(repr=False)
    classes: tuple[float, ...] = _TWO
    persons: bool = False
    adjacency: str = "replace_one"
    rows: int | None = None
    renamed: bool = False
    queries: Floats = field(default_factory=lambda: _QUERIES, repr=False)

    def fit(self, rows: Rows) -> Any:
        """Return the fitted model."""
        if self.renamed:
            ids = _names(rows)
            order = np.argsort(ids)  # equal rows may change their ids with each other, not their places
            return self.make().fit(rows.X[order], rows.y[order], ids=np.array(ids)[order].tolist())
        if not self.persons:
            return self.make().fit(rows.X, rows.y)
        moved = np.linspace(1.0, 0.5, _OWNED)  # the same row, ever nearer to the middle
        with np.errstate(all="ignore"):
            X = (rows.X * moved[:, None, None]).reshape(-1, rows.X.shape[1])
        lasting = self.adjacency == "add_remove_one"
        ids = np.tile(_names(rows) if lasting else np.arange(rows.y.size), _OWNED)
        return self.make().fit(X, np.tile(rows.y, _OWNED), ids=ids)

    def variant(self) -> Variant:
        """Return what is replayed and priced."""

        def run(rows: Rows, stream: RandomStream) -> Floats:
            told = self.fit(rows).answer(self.queries, 1, random_state=random_state(stream))
            return np.asarray(told, dtype=np.float64)

        def pairs() -> list[Pair]:
            ends = self.classes[0], self.classes[-1]
            return neighbours.pairs(_table(9, self.classes), self.adjacency, labels=ends)

        return Variant(self.name, run, pairs, self.adjacency)

    def target(self) -> Target:
        """Return what is poisoned."""
        table = _table(self.rows or 20 * len(self.classes), self.classes)
        return Target(table, self.queries, self.fit, self.classes)


def _named(classes: tuple[float, ...] = _TWO, **how: Any) -> Callable[[], CertifiedClassifier]:
    return lambda: CertifiedClassifier([*classes], feature_bounds=(-1, 1), **how)


def _tables(adjacency: str, **how: Any) -> Member:
    """Return a member of tables whose ids have more rows than count."""
    how = {"certificate": "votes", "neighbours": 31, **how}
    return Member(
        "tables of persons of ten rows",
        lambda: _OfTables(adjacency, **how),
        persons=True,
        adjacency=adjacency,
    )


MEMBERS: dict[str, tuple[Member, ...]] = {
    "prediction.erm": (
        Member("three classes", _named(_THREE, alpha=1.0), _THREE),
        Member("huber hinge", _named(model="huber_hinge", alpha=0.1)),
        Member("softmax of two", _named(model="softmax", alpha=0.1)),
        Member("persons of ten rows", _named(alpha=0.3, max_rows_per_id=_CAP), persons=True),
        # No column is public: all of a row is its private part.
        Member(
            "private parts",
            _strong("replace_private_part"),
            adjacency="replace_private_part",
        ),
        Member(
            "private parts, huber hinge",
            _strong("replace_private_part", "huber_hinge"),
            adjacency="replace_private_part",
        ),
    ),
    "prediction.erm.replace_label": (
        Member(
            "huber hinge",
            _strong("replace_label", "huber_hinge"),
            adjacency="replace_label",
        ),
        Member(
            "persons of ten rows",
            _named(alpha=0.3, max_rows_per_id=_CAP, adjacency="replace_label"),
            persons=True,
            adjacency="replace_label",
        ),
        Member(
            "votes of persons of ten rows",
            _named(certificate="votes", neighbours=31, max_rows_per_id=_CAP, adjacency="replace_label"),
            persons=True,
            adjacency="replace_label",
        ),
        _tables("replace_label"),
    ),
    "prediction.persons": (_tables("replace_one"),),
    "prediction.teachers": (
        Member("an even number", lambda: _teachers(8)),
        Member("rows that change their ids", lambda: _teachers(15, ids_change=True), renamed=True),
    ),
    "prediction.votes": (
        Member("three classes", _named(_THREE, certificate="votes", neighbours=11), _THREE),
        Member("an even number", _named(certificate="votes", neighbours=10)),
        Member(
            "persons of ten rows",
            _named(certificate="votes", neighbours=31, max_rows_per_id=_CAP),
            persons=True,
        ),
    ),
    "prediction.interval": (
        Member(
            "three classes",
            _named(_THREE, certificate="interval", k_max=8,
                   hyperparameters={"learning_rate": 1.0, "clip": 0.1}), _THREE,
        ),
        Member("momentum", lambda: _boxes(hyperparameters={"momentum": 0.5})),
        Member("Nesterov", lambda: _boxes(hyperparameters={"momentum": 0.5, "nesterov": True})),
        Member("batches, a budget an epoch", lambda: _boxes(batches=4, budget="epoch")),
        Member("batches", lambda: _boxes(batches=4)),
        Member("five layers, levels in turn", _deep),
        Member(
            "six steps, levels in turn",
            lambda: _boxes(k_max=64, levels="bisect", hyperparameters={"epochs": 6}),
            rows=120,
        ),
        Member("persons in batches", lambda: _boxes(_CAP, batches=4), persons=True),
        Member("more rows of a person than batches", lambda: _boxes(_CAP, batches=2), persons=True),
    ),
    "prediction.hybrid": (
        Member(
            "more rows of a person than batches",
            _hybrid, persons=True, queries=np.vstack([_BORDER, _QUERIES]),
        ),
    ),
    "prediction.ball": (
        Member(
            "three classes",
            _named(_THREE, certificate="ball", hyperparameters={**_SLOW, "clip": 4.5}), _THREE,
        ),
        Member(
            "momentum",
            _named(certificate="ball", hyperparameters={**_HEAVY, "clip_by": "norm", "weight_decay": 0.03}),
        ),
    ),
    "prediction.erm.add_remove_one": (
        Member(
            "batches by hashes",
            lambda: _boxes(batches=HashedBatches(4, 10.0), adjacency="add_remove_one"),
            adjacency="add_remove_one",
        ),
        Member("members", _members(_ERM, "add_remove_one"), adjacency="add_remove_one"),
        Member(
            "persons that come and go",
            _named(certificate="votes", neighbours=31, max_rows_per_id=_CAP, adjacency="add_remove_one"),
            persons=True,
            adjacency="add_remove_one",
        ),
        _tables("add_remove_one"),
    ),
    "prediction.ensemble": (
        Member("members that a row may leave", _members(_ERM, "replace_one")),
        Member("votes that a row may leave", _members(_VOTES, "replace_one")),
        Member(
            "persons of ten rows",
            _named(certificate="votes", neighbours=11, members=3, max_rows_per_id=_CAP),
            persons=True,
        ),
        _tables("replace_one", neighbours=11, members=3),
    ),
}  # fmt: skip

#: Answers of one total, more than those of the claim.
_MANY = 120


def _asked(rows: Rows) -> CertifiedClassifier:
    return CertifiedClassifier([*_TWO], (-1, 1), certificate="votes", neighbours=3).fit(rows.X, rows.y)


def _total(rows: Rows, stream: RandomStream) -> Floats:
    """Return the sum of many answers to one query, under one total."""
    asked = np.repeat(_QUERIES[:1], _MANY, axis=0)
    told = _asked(rows).answer(asked, total=(1, "1/100"), random_state=random_state(stream))
    return np.array([told.sum()], dtype=np.float64)


def _less_delta(rows: Rows, stream: RandomStream) -> Floats:
    """Return answers of one model by each release: some, others with less delta, others with less epsilon."""
    model, told = _asked(rows), []
    for release in ("response", "laplace", "ptr"):
        for epsilon, delta in ((1, "1/50"), (1, "1/1000000"), ("1/10", "1/50")):
            seed = random_state(stream.child(f"{release} {epsilon} {delta}"))
            told.append(model.answer(_QUERIES, epsilon, delta, release, random_state=seed))
    return np.concatenate(told)


#: Epochs that are reserved, fewer than there are unstable queries; no replay meets what their delta allows.
_RESERVED, _RARE = 3, 1e-9


def _epochs(rows: Rows, stream: RandomStream) -> Floats:
    """Return answers by epochs, -9 for what is unstable and all after the last one."""
    asked = np.repeat(_QUERIES, 2, axis=0)
    told: Any = _asked(rows).answer(
        asked, 1, _RARE, "sparse_vector", epochs=_RESERVED, random_state=random_state(stream)
    )
    return np.ma.filled(told.astype(np.float64), -9.0)


FAMILIES: Families = {
    claim: tuple(member.variant() for member in members) for claim, members in MEMBERS.items()
} | {
    "prediction.total": (
        Variant(f"{_MANY} answers", _total),
        Variant("less delta after more", _less_delta),
        Variant(f"{_RESERVED} epochs", _epochs),
    )
}


def targets(claim: str) -> tuple[tuple[str, Target], ...]:
    """Return the name of each member of a claim's family, and what is poisoned."""
    return tuple((member.name, member.target()) for member in MEMBERS.get(claim, ()))
