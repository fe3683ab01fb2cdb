"""Claims of `confide.prediction`: laws of answers at neighbouring distances, and answers of whole models."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.exact import certain, nearly
from confide.audit.memory import remembered
from confide.audit.neighbours import Rows
from confide.audit.promises.mechanisms import sparse_law
from confide.audit.registry import Floats, Kind, Law, Pair, Target, promise, random_state
from confide.errors import RefusedError
from confide.ledger import Ledger
from confide.mechanisms import RandomStream, split_epoch, stable_threshold
from confide.prediction import (
    CertifiedClassifier,
    HybridTraining,
    StableAnswers,
    TeacherVotes,
    laws,
    per_answer,
    release_of,
)
from confide.prediction.vector import UNSTABLE

_DELTA = Fraction(1, 100)
Answered = tuple[int, int]
_RESPONSE = ("confide.prediction.response_law", "confide.prediction.response_probabilities")


def _distances(levels: int) -> list[Pair]:
    """Return all neighbours of (certified class, distance): a step in the distance, or another class at 0."""
    steps = [Pair(f"distance {k} against {k + 1}", (0, k), (0, k + 1)) for k in range(levels)]
    return [Pair("classes differ", (0, 0), (1, 0)), *steps]


def release(name: str, classes: int, delta: Any, proof: str, event: str) -> None:
    """Register a release of one answer."""
    how = release_of(name, 1, classes, delta)

    def outputs(told: Answered, count: int, stream: RandomStream) -> Floats:
        return how.draw(np.full(count, told[0]), np.full(count, told[1]), stream=stream).astype(np.float64)

    def law(told: Answered) -> Law:
        if not isinstance(how, laws.Law):  # computed to double precision
            found = how.probabilities(told[1])
            table = {float(c): float(found.wrong[-1]) for c in range(classes)} | {
                float(told[0]): float(found[-1])
            }
            return nearly(table, 1e-11)
        wrong = how.wrong(told[1])
        rest = {float(told[0]): 1 - (classes - 1) * wrong}
        return certain({float(c): wrong for c in range(classes)} | rest)

    promise(
        f"prediction.{name}.{classes}",
        Kind.RELEASE,
        how.epsilon,
        how.delta,
        "replace_one",
        proof,
        lambda: _distances(24),
        run=lambda told, stream: outputs(told, 1, stream),
        outputs=outputs,
        law=law,
        covers=(
            f"prediction.release:{name}",
            f"event:{event}",
            "confide.prediction.release_of",
            *(_RESPONSE if name == "response" else ()),
        ),
        draws=100_000,
        quick=5_000,
    )


release("response", 2, 0, "confide.prediction.response, optimal at every distance", "response")
release("response", 10, 0, "confide.prediction.response, many classes", "response")
release("response", 3, _DELTA, "confide.prediction.response, with delta", "response")
release("global", 5, 0, "Warner 1965, k classes; confide.prediction.response", "randomized_response")
release("cauchy", 2, 0, "Nissim, Raskhodnikova & Smith 2007; confide.prediction.smooth", "smooth_cauchy")
release(
    "laplace", 2, _DELTA, "Nissim, Raskhodnikova & Smith 2007; confide.prediction.smooth", "smooth_laplace"
)
release("ptr", 3, _DELTA, "Dwork & Lei 2009, discrete; confide.prediction.ptr", "propose_test_release")


def _epoch(distances: Any, stream: RandomStream) -> Floats:
    answers = StableAnswers(1, _DELTA, 2, charge=lambda event: None, stream=stream)
    labels, k = np.array(distances).T
    told = answers.until_unstable(labels, k)
    return np.append(told, np.full(len(k) - told.size, -2)).astype(np.float64)


def _epochs(distances: Any, count: int, stream: RandomStream) -> Floats:
    """Return so many epochs, each drawn anew: of one object, until an epoch of it stays open."""
    labels, k = np.array(distances).T
    rows, made, answers = np.full((count, k.size), -2.0), 0, None
    for row in rows:
        if answers is None:
            own = stream.child(f"object {made}")
            answers, made = StableAnswers(1, _DELTA, 2, charge=lambda event: None, stream=own), made + 1
        told = answers.until_unstable(labels, k)
        row[: told.size] = told
        if UNSTABLE not in told:
            answers = None
    return rows


_THRESHOLD = stable_threshold(_DELTA, *split_epoch(1))


def _epoch_law(distances: Any) -> Law:
    """Return the law of an epoch's answers: how many are stable decides all of them."""
    labels, k = zip(*distances, strict=True)
    counts: Any = sparse_law(_THRESHOLD, *split_epoch(1))(list(k))
    told: dict[Any, tuple[Fraction, Fraction]] = {"beyond": counts["beyond"]}
    for i in range(len(k) + 1):
        answers = (*labels[:i], *([-1.0] if i < len(k) else []), *[-2.0] * (len(k) - i - 1))
        told[tuple(map(float, answers))] = counts[float(i)]
    return told


def _around(rise: int, count: int) -> Pair:
    """Return queries about the threshold: all distances but the last rise by one, which falls."""
    k = _THRESHOLD + rise
    moved = [(0, k + 1)] * count + [(0, k - 1)]
    return Pair(
        f"{count} distances at the threshold {rise:+d} rise, the last falls", [(0, k)] * (count + 1), moved
    )


promise(
    "prediction.sparse_vector",
    Kind.RELEASE,
    1,
    _DELTA,
    "replace_one",
    "an epoch, whatever it answers; confide.prediction.vector",
    lambda: [
        _around(0, 5),
        _around(0, 3),
        _around(2, 8),
        Pair("distances fall, classes differ", [(0, 9), (1, 10), (0, 0)], [(0, 8), (1, 9), (1, 0)]),
        Pair("classes differ at once", [(0, 0), (0, 0)], [(1, 0), (1, 0)]),
    ],
    run=_epoch,
    outputs=_epochs,
    law=_epoch_law,
    covers=("confide.prediction.StableAnswers", "prediction.release:sparse_vector"),
    draws=40_000,
    quick=1_500,
)


_BASE = neighbours.table(9, 2, classes=True)
#: What is poisoned: so many rows that distances are worth an attack.
_LARGER = neighbours.table(40, 2, classes=True)
#: Queries inside of each class, beside those near the border.
_INSIDE = np.array([[0.9, -0.4], [-0.8, 0.6], [0.3, -0.2]])
_QUERIES = np.array([[0.05, 0.0], [0.0, 0.1], [-0.2, -0.3], [0.6, 0.2], [1.0, -1.0]])
#: A table, and the place of a query in `_QUERIES`.
Asked = tuple[Rows, int]


def _asked(adjacency: str, queries: int) -> list[Pair]:
    """Return every neighbour with every query: a certificate must hold for all."""
    return [
        Pair(f"{pair.name}, query {j}", (pair.here, j), (pair.there, j))
        for pair in neighbours.pairs(_BASE, adjacency, labels=(-1.0, 1.0))
        for j in range(queries)
    ]


def model(
    name: str,
    make: Callable[[], CertifiedClassifier],
    proof: str,
    *,
    adjacency: str = "replace_one",
    covers: tuple[str, ...] = (),
    queries: Floats = _QUERIES,
    poisoned: Callable[[], CertifiedClassifier] | None = None,
) -> None:
    """Register a certified classifier by its answers to one query near its boundary.

    `poisoned` makes the model whose distances are attacked, where another one has larger distances.
    """

    @remembered(256)
    def trained(cells: bytes, shape: tuple[int, int], labels: bytes) -> CertifiedClassifier:
        return make().fit(np.frombuffer(cells).reshape(shape), np.frombuffer(labels))

    def fitted(rows: Rows) -> CertifiedClassifier:
        return trained(rows.X.tobytes(), rows.X.shape, rows.y.tobytes())

    def outputs(asked: Asked, count: int, stream: RandomStream) -> Floats:
        rows, query = asked
        many = np.repeat(queries[query : query + 1], count, axis=0)
        return fitted(rows).answer(many, 1, random_state=random_state(stream)).astype(np.float64)

    def law(asked: Asked) -> Law:
        rows, query = asked
        label, k = fitted(rows).stability(queries[query : query + 1])
        wrong = float(release_of("response", 1, 2).probabilities(int(k[0])).wrong[-1])
        own = float(label[0])
        return nearly({own: 1.0 - wrong, -own: wrong}, 1e-11)

    def climb(value: Callable[[Pair], float]) -> Pair:
        def asked(pair: Pair) -> Pair:
            return Pair(pair.name, (pair.here, 0), (pair.there, 0))

        return asked(
            neighbours.climb(_BASE, adjacency, lambda pair: value(asked(pair)), steps=2, labels=False)
        )

    promise(
        f"prediction.{name}",
        Kind.ESTIMATOR,
        1,
        0,
        adjacency,
        proof,
        lambda: _asked(adjacency, len(queries)),
        run=lambda asked, stream: outputs(asked, 1, stream),
        outputs=outputs,
        law=law,
        search=None if adjacency == "replace_label" else climb,
        target=Target(
            _LARGER, np.vstack([queries, _INSIDE]), lambda rows: (poisoned or make)().fit(rows.X, rows.y)
        ),
        covers=("confide.prediction.CertifiedClassifier", *covers),
        draws=20_000,
        quick=1_000,
    )


_KNOWN: dict[str, Any] = {"classes": [-1.0, 1.0], "feature_bounds": (-1, 1)}
model(
    "erm",
    lambda: CertifiedClassifier(**_KNOWN, alpha=0.1),
    "stability of strongly convex ERM; confide.prediction.erm",
    covers=(
        "confide.prediction.StronglyConvexERM",
        "confide.prediction.CertifiedModel",
        "confide.prediction.certify",
    ),
)
model(
    "erm.add_remove_one",
    lambda: CertifiedClassifier(**_KNOWN, ridge=1.0, adjacency="add_remove_one"),
    "stability of strongly convex ERM; confide.prediction.erm",
    adjacency="add_remove_one",
)
model(
    "votes",
    lambda: CertifiedClassifier(**_KNOWN, certificate="votes", neighbours=3),
    "a row changes one vote; confide.prediction.votes",
    covers=("confide.prediction.VoteGap", "confide.prediction.vote_gap"),
    poisoned=lambda: CertifiedClassifier(**_KNOWN, certificate="votes", neighbours=11),
)
model(
    "interval",
    lambda: CertifiedClassifier(
        **_KNOWN, certificate="interval", hyperparameters={"learning_rate": 0.5, "clip": 0.1}
    ),
    "boxes of parameters through training; confide.prediction.intervals",
    covers=("confide.prediction.IntervalTraining", "confide.prediction.train_intervals"),
)
model(
    "ball",
    lambda: CertifiedClassifier(**_KNOWN, certificate="ball"),
    "a ball around every training; confide.prediction.intervals.ball",
    covers=("confide.prediction.BallTraining",),
)
model(
    "ensemble",
    lambda: CertifiedClassifier(**_KNOWN, members=3, ridge=1.0),
    "distances of members add up; confide.prediction.ensemble",
    covers=("confide.prediction.Ensemble", "confide.prediction.ensemble_distance"),
    poisoned=lambda: CertifiedClassifier(**_KNOWN, certificate="votes", neighbours=9, members=3),
)
model(
    "erm.replace_label",
    lambda: CertifiedClassifier(**_KNOWN, alpha=0.1, adjacency="replace_label"),
    "stability of strongly convex ERM; confide.prediction.erm",
    adjacency="replace_label",
)


#: A query whose nearest three rows are divided: the row that differs decides its class.
_DIVIDED = np.array([[-1.0, -0.2]])


def _votes(rows: Rows) -> CertifiedClassifier:
    return CertifiedClassifier(**_KNOWN, certificate="votes", neighbours=3).fit(rows.X, rows.y)


def _repeated(rows: Rows, count: int, stream: RandomStream) -> Floats:
    """Return sums of four answers to one query, a quarter of the epsilon each: a statistic of all."""
    asked = np.repeat(_DIVIDED, 4 * count, axis=0)
    told = _votes(rows).answer(asked, Fraction(1, 4), random_state=random_state(stream))
    return told.astype(np.float64).reshape(count, 4).sum(axis=1)


def _poisoned() -> list[Pair]:
    pairs = [
        Pair(f"poisoned: {pair.name}", pair.here, pair.there)
        for pair in neighbours.pairs(_BASE, "replace_one")
    ]

    def classes(pair: Pair) -> bool:
        told = [_votes(rows).stability(_DIVIDED)[0][0] for rows in (pair.here, pair.there)]
        return told[0] == told[1]

    return sorted(pairs, key=classes)  # those whose class turns first


promise(
    "prediction.repeated",
    Kind.ESTIMATOR,
    1,
    0,
    "replace_one",
    "basic composition; confide.prediction.budgets",
    _poisoned,
    run=lambda rows, stream: _repeated(rows, 1, stream),
    outputs=_repeated,
    covers=("confide.prediction.answers", "confide.prediction.per_answer"),
    draws=20_000,
    quick=1_000,
)

#: Queries of one total, which exact composition divides (`per_answer`).
_MANY = 50


def _total(rows: Rows, stream: RandomStream) -> Floats:
    """Return the sum of many answers to one query, under one total."""
    asked = np.repeat(_DIVIDED, _MANY, axis=0)
    told = _votes(rows).answer(asked, total=(1, _DELTA), random_state=random_state(stream))
    return np.array([told.sum()], dtype=np.float64)


def _totals(rows: Rows, count: int, stream: RandomStream) -> Floats:
    """Return what so many runs of `_total` do: answers to equal queries are drawn apart from each other."""
    each = per_answer(1, _DELTA, _MANY)
    asked = np.repeat(_DIVIDED, _MANY * count, axis=0)
    told = _votes(rows).answer(asked, each, random_state=random_state(stream))
    return told.astype(np.float64).reshape(count, _MANY).sum(axis=1)


promise(
    "prediction.total",
    Kind.ESTIMATOR,
    1,
    _DELTA,
    "replace_one",
    "exact composition of equal answers; confide.privacy.compose",
    _poisoned,
    run=_total,
    outputs=_totals,
    covers=("confide.prediction.answers", "confide.prediction.per_answer"),
    draws=20_000,
    quick=400,
)


#: What is asked of an account, one after the other: more than is left is refused, and what fits after it not.
_ASKED = tuple(Fraction(1, n) for n in (2, 1, 4, 2, 4, 100))


def _accounts(rows: Rows, count: int, stream: RandomStream) -> Floats:
    """Ask one query of so many accounts, kept as one: each answer of each account, 0 where it was refused.

    One ledger has the epsilon of all, and every request asks once for each account: that many answers, drawn
    apart from each other, so that what one account is told has the law of a single one. From the operating
    system whatever the stream is: no ledger takes a charge for seeded noise.
    """
    model, asked = _votes(rows), np.repeat(_DIVIDED, count, axis=0)
    told = np.zeros((len(_ASKED), count))
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(
            f"sqlite:///{folder}/ledger.db",
            dataset="rows",
            epsilon=count,
            adjacency="replace_one",
            counter=folder,
        )
        for answers, epsilon in zip(told, _ASKED, strict=True):
            with suppress(RefusedError):
                answers[:] = model.answer(asked, epsilon, ledger=ledger)
    return told.T


promise(
    "prediction.account",
    Kind.ESTIMATOR,
    1,
    0,
    "replace_one",
    "the ledger refuses what passes its total; confide.ledger",
    _poisoned,
    run=lambda rows, stream: _accounts(rows, 1, stream)[0],
    outputs=_accounts,
    draws=20_000,
    quick=4_000,
    note="Noise of the operating system, whatever the seed: no ledger takes a charge for seeded noise.",
)


class _Persons(CertifiedClassifier):
    """Each row is a person of its own, by its place."""

    def fit(self, X: Any, y: Any, *, ids: Any = None) -> Any:
        return super().fit(X, y, ids=np.arange(len(y)) if ids is None else ids)


def _teachers(parts: int = 3) -> CertifiedClassifier:
    from sklearn.tree import DecisionTreeClassifier

    votes = TeacherVotes(DecisionTreeClassifier(random_state=0), parts, 2, (-1, 1))
    return CertifiedClassifier([-1.0, 1.0], certificate=votes)


model(
    "teachers",
    _teachers,
    "a row changes one teacher; confide.prediction.votes",
    covers=("confide.prediction.TeacherVotes",),
    poisoned=lambda: _teachers(9),
)
model(
    "persons",
    lambda: _Persons(**_KNOWN, certificate="votes", neighbours=3, max_rows_per_id=1),
    "bounded rows a person; confide.prediction.persons",
    covers=("confide.prediction.Persons",),
    poisoned=lambda: _Persons(**_KNOWN, certificate="votes", neighbours=11, max_rows_per_id=1),
)


#: A public start whose border runs through the square, and queries near where training leaves it.
_START = np.append(np.random.default_rng(2).normal(size=13)[:-1], 0.0)
_BORDER = np.array([[-0.55, 0.65], [0.3, 0.15], [-0.75, 0.95], [0.7, 0.0], [0.05, 0.0]])


def _hybrid() -> CertifiedClassifier:
    settings = {"learning_rate": 0.5, "clip": 0.1, "clip_by": "norm"}
    certificate = HybridTraining((2, 3, 1), settings, 4, init=_START)
    return CertifiedClassifier([-1.0, 1.0], certificate=certificate)


model(
    "hybrid",
    _hybrid,
    "boxes and balls; confide.prediction.intervals.hybrid",
    covers=("confide.prediction.HybridTraining",),
    queries=_BORDER,
)
