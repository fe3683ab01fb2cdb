"""Claims of `confide.prediction`: laws of answers at neighbouring distances, and answers of whole models."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.exact import certain, nearly
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Kind, Law, Pair, promise, random_state
from confide.mechanisms import RandomStream
from confide.prediction import (
    CertifiedClassifier,
    HybridTraining,
    StableAnswers,
    TeacherVotes,
    laws,
    release_of,
)

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


promise(
    "prediction.sparse_vector",
    Kind.RELEASE,
    1,
    _DELTA,
    "replace_one",
    "an epoch, whatever it answers; confide.prediction.vector",
    lambda: [
        Pair("distances fall, classes differ", [(0, 9), (1, 10), (0, 0)], [(0, 8), (1, 9), (1, 0)]),
        Pair("classes differ at once", [(0, 0), (0, 0)], [(1, 0), (1, 0)]),
    ],
    run=_epoch,
    covers=("confide.prediction.StableAnswers", "prediction.release:sparse_vector"),
    draws=10_000,
    quick=300,
)


_BASE = neighbours.table(9, 2, classes=True)
_QUERIES = np.array([[0.05, 0.0], [0.0, 0.1], [-0.2, -0.3], [0.6, 0.2], [1.0, -1.0]])
#: A table, and the place of a query in `_QUERIES`.
Asked = tuple[Rows, int]


def _asked(adjacency: str) -> list[Pair]:
    """Return every neighbour with every query: a certificate must hold for all."""
    return [
        Pair(f"{pair.name}, query {j}", (pair.here, j), (pair.there, j))
        for pair in neighbours.pairs(_BASE, adjacency, labels=(-1.0, 1.0))
        for j in range(len(_QUERIES))
    ]


def model(
    name: str,
    make: Callable[[], CertifiedClassifier],
    proof: str,
    *,
    adjacency: str = "replace_one",
    covers: tuple[str, ...] = (),
) -> None:
    """Register a certified classifier by its answers to one query near its boundary."""

    @lru_cache(maxsize=256)
    def trained(cells: bytes, shape: tuple[int, int], labels: bytes) -> CertifiedClassifier:
        return make().fit(np.frombuffer(cells).reshape(shape), np.frombuffer(labels))

    def fitted(rows: Rows) -> CertifiedClassifier:
        return trained(rows.X.tobytes(), rows.X.shape, rows.y.tobytes())

    def outputs(asked: Asked, count: int, stream: RandomStream) -> Floats:
        rows, query = asked
        many = np.repeat(_QUERIES[query : query + 1], count, axis=0)
        return fitted(rows).answer(many, 1, random_state=random_state(stream)).astype(np.float64)

    def law(asked: Asked) -> Law:
        rows, query = asked
        label, k = fitted(rows).stability(_QUERIES[query : query + 1])
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
        lambda: _asked(adjacency),
        run=lambda asked, stream: outputs(asked, 1, stream),
        outputs=outputs,
        law=law,
        search=None if adjacency == "replace_label" else climb,
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
)
model(
    "erm.replace_label",
    lambda: CertifiedClassifier(**_KNOWN, alpha=0.1, adjacency="replace_label"),
    "stability of strongly convex ERM; confide.prediction.erm",
    adjacency="replace_label",
)


def _repeated(rows: Rows, count: int, stream: RandomStream) -> Floats:
    """Return sums of ten answers to one query, a tenth of the epsilon each: a statistic of all."""
    fitted = CertifiedClassifier(**_KNOWN, certificate="votes", neighbours=3).fit(rows.X, rows.y)
    asked = np.repeat(_QUERIES[:1], 10 * count, axis=0)
    told = fitted.answer(asked, Fraction(1, 10), random_state=random_state(stream))
    return told.astype(np.float64).reshape(count, 10).sum(axis=1)


promise(
    "prediction.repeated",
    Kind.ESTIMATOR,
    1,
    0,
    "replace_one",
    "basic composition; confide.prediction.budgets",
    lambda: [
        Pair(f"poisoned: {pair.name}", pair.here, pair.there)
        for pair in neighbours.pairs(_BASE, "replace_one")
    ],
    run=lambda rows, stream: _repeated(rows, 1, stream),
    outputs=_repeated,
    covers=("confide.prediction.answers", "confide.prediction.per_answer"),
    draws=20_000,
    quick=1_000,
)


class _Persons(CertifiedClassifier):
    """Each row is a person of its own, by its place."""

    def fit(self, X: Any, y: Any, *, ids: Any = None) -> Any:
        return super().fit(X, y, ids=np.arange(len(y)) if ids is None else ids)


def _teachers() -> CertifiedClassifier:
    from sklearn.tree import DecisionTreeClassifier

    votes = TeacherVotes(DecisionTreeClassifier(random_state=0), 3, 2, (-1, 1))
    return CertifiedClassifier([-1.0, 1.0], certificate=votes)


model(
    "teachers",
    _teachers,
    "a row changes one teacher; confide.prediction.votes",
    covers=("confide.prediction.TeacherVotes",),
)
model(
    "persons",
    lambda: _Persons(**_KNOWN, certificate="votes", neighbours=3, max_rows_per_id=1),
    "bounded rows a person; confide.prediction.persons",
    covers=("confide.prediction.Persons",),
)


def _hybrid() -> CertifiedClassifier:
    settings = {"learning_rate": 0.5, "clip": 0.1, "clip_by": "norm"}
    certificate = HybridTraining((2, 3, 1), settings, 4, init=np.linspace(-1, 1, 13))
    return CertifiedClassifier([-1.0, 1.0], certificate=certificate)


model(
    "hybrid",
    _hybrid,
    "boxes and balls; confide.prediction.intervals.hybrid",
    covers=("confide.prediction.HybridTraining",),
)
