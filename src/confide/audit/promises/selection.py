"""Claims of `confide.selection`: laws over all supports of a small problem, and draws from them."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.exact import nearly
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Kind, Law, Pair, promise, random_state
from confide.audit.replay import Recorder, recording
from confide.errors import UncertifiedWarning
from confide.mechanisms import RandomStream, seeded_stream
from confide.selection import SubsetProblem, SubsetSelector, draw, gap_condition, law
from confide.selection.baselines import baseline, baseline_law
from confide.selection.exponent import MECHANISMS

_SIZE = 2
#: Relative error of a float law beside what its exponent pays for (`confide.selection.exponent`).
_ERROR = 1e-9
_CLASSES = ("hinge", "logistic")
_BASE = neighbours.table(12, 5)
_SIGNS = neighbours.table(12, 5, classes=True)
#: Rows that fit one column and the other, and rows of a person.
_FEW, _MANY, _PERSON = 60, 120, 3
_TIME = "The running time of a draw depends on the data and is outside the guarantee."
#: Wide gaps: the condition of `mistakes` holds on it and on all its neighbours.
_CLEAR = Rows(np.repeat(np.eye(5), 40, axis=0), np.repeat([1.0, 0.6, 0.0, 0.0, 0.0], 40))


def problem(rows: Rows, loss: str = "squared") -> SubsetProblem:
    """Return the problem of a table within +-1."""
    bound = {} if loss in _CLASSES else {"target_bound": 1.0}
    return SubsetProblem(rows.X, rows.y, _SIZE, loss, ridge=0.0, feature_bound=1.0, **bound)


def supports(drawn: Any) -> Floats:
    """Return supports as rows of column numbers."""
    return np.array(drawn, dtype=np.float64)


def _law(probabilities: dict[tuple[int, ...], float]) -> Law:
    return nearly({tuple(map(float, support)): p for support, p in probabilities.items()}, _ERROR)


def selection(
    name: str, adjacency: str, proof: str, *, mechanism: str, loss: str = "squared", base: Rows | None = None
) -> None:
    """Register a mechanism of the room with a loss and a relation."""
    signs = loss in _CLASSES
    start = base if base is not None else _SIGNS if signs else _BASE

    def outputs(rows: Rows, count: int, stream: RandomStream) -> Floats:
        return supports(draw(problem(rows, loss), mechanism, 1, adjacency, random_state=stream, size=count))

    def climb(value: Any) -> Pair:
        return neighbours.climb(start, adjacency, value, labels=not signs, steps=4)

    promise(
        f"selection.{name}", Kind.MECHANISM, 1, 0, adjacency, proof,
        lambda: neighbours.pairs(start, adjacency),
        run=lambda rows, stream: outputs(rows, 1, stream), outputs=outputs,
        law=lambda rows: _law(law(problem(rows, loss), mechanism, 1, adjacency)),
        search=None if mechanism == "mistakes" else climb,
        covers=("confide.selection.draw", "confide.selection.law", f"selection.mechanism:{mechanism}",
                f"selection.loss:{loss}", f"event:{mechanism}"),
        note=_TIME,
        draws=40_000, quick=2_000, fuzzed=mechanism != "mistakes",
    )  # fmt: skip


#: A table of three columns, a mechanism, a loss, and the rows of a person.
Asked = tuple[Rows, str, str, int]


def apart(loss: str, count: int, adjacency: str) -> tuple[Rows, Rows]:
    """Return neighbours whose scores move apart by all that M allows, of a person of `count` rows.

    The first column asks for a coefficient at one end of its ball, the second at the other end, and fits
    far more rows. The person's rows have both: on one table the first is wrong by as much as it can be and
    the second right, on the other the reverse, or the rows are not there. Then the probability of the first,
    which is small, moves by e^epsilon, nearly.
    """
    cell = 0.25 if loss == "hinge" else 1.0  # a margin of 1 takes the largest coefficient
    X = np.repeat([[cell, 0, 0], [0, cell, 0]], [_FEW, _MANY], axis=0)
    base = Rows(X, np.repeat([-1.0, 1.0], [_FEW, _MANY]))

    def joined(label: float) -> Rows:
        return Rows(np.vstack([np.tile([1.0, 1, 0], (count, 1)), X]), np.append([label] * count, base.y))

    return (base if adjacency == "add_remove_one" else joined(-1.0)), joined(1.0)


def leanings(adjacency: str) -> list[Pair]:
    """Return such neighbours for every mechanism and loss, and for persons, whose rows share epsilon."""
    found = []
    for mechanism, count in (*((name, 1) for name in MECHANISMS), ("exponential", _PERSON)):
        for loss in ("squared", "huber", "quantile", *_CLASSES):
            here, there = ((rows, mechanism, loss, count) for rows in apart(loss, count, adjacency))
            found.append(Pair(f"{mechanism}, {loss}, {count} a person", here, there))
    return found


def extremes(adjacency: str) -> None:
    """Register all mechanisms and losses, by the estimator, on tables where a record moves most."""

    def run(asked: Asked, stream: RandomStream) -> Floats:
        rows, mechanism, loss, count = asked
        kind: Any = {"classes": [-1.0, 1.0]} if loss in _CLASSES else {"target_bounds": (-1, 1)}
        fitted = SubsetSelector(
            1, 1, mechanism=mechanism, loss=loss, ridge=0.0, feature_bounds=(-1, 1), adjacency=adjacency,
            max_rows_per_person=count, random_state=random_state(stream), **kind,
        ).fit(rows.X, rows.y)  # fmt: skip
        return supports(fitted.get_support(indices=True))

    def call(asked: Asked, stream: RandomStream) -> Any:
        """Return what the estimator asks of its mechanism: the budget of a row is its own."""
        with recording(Recorder()) as told, warnings.catch_warnings():
            warnings.simplefilter("ignore", UncertifiedWarning)
            run(asked, stream)
        return told.calls[0]

    def outputs(asked: Asked, size: int, stream: RandomStream) -> Floats:
        one = call(asked, stream.child("plan"))
        mechanism, epsilon, relation = one.public[:3]
        return supports(draw(one.private, mechanism, epsilon, relation, random_state=stream, size=size))

    def exact_law(asked: Asked) -> Law:
        one = call(asked, seeded_stream(0))
        drawn = law(one.private, *one.public[:3])
        return nearly({float(column): p for (column,), p in drawn.items()}, _ERROR)

    promise(
        f"selection.extremes.{adjacency}", Kind.ESTIMATOR, 1, 0, adjacency,
        "the range M of one record's loss; confide.selection.losses",
        lambda: leanings(adjacency), run=run, outputs=outputs, law=exact_law,
        covers=("confide.selection.SubsetSelector",), note=_TIME, draws=20_000, quick=1_000, fuzzed=False,
    )  # fmt: skip


#: Mechanisms and losses that are drawn in turn; `mistakes` is private on tables with a gap alone.
_TURNS = tuple(
    (mechanism, loss)
    for mechanism in ("exponential", "permute_and_flip", "top_r")
    for loss in ("squared", "huber", "quantile", *_CLASSES)
)


def _turns(rows: Rows, count: int, stream: RandomStream) -> Floats:
    turn = (stream.child("turns").bits(count) >> np.uint64(11)).astype(np.int64) % len(_TURNS)
    found = np.empty((count, 1 + _SIZE))
    found[:, 0] = turn
    for i, (mechanism, loss) in enumerate(_TURNS):
        if many := int((turn == i).sum()):
            child = stream.child(f"{mechanism} {loss}")
            found[turn == i, 1:] = draw(
                problem(rows, loss), mechanism, 1, "replace_one", random_state=child, size=many
            )
    return found


def _mixed(rows: Rows) -> Law:
    laws = [law(problem(rows, loss), mechanism, 1, "replace_one") for mechanism, loss in _TURNS]
    return nearly(
        {
            (float(i), *map(float, support)): p / len(_TURNS)
            for i, each in enumerate(laws)
            for support, p in each.items()
        },
        _ERROR,
    )


promise(
    "selection.turns", Kind.MECHANISM, 1, 0, "replace_one",
    "the mechanisms' own, one of them by a public draw; confide.selection.exponent",
    lambda: neighbours.pairs(_SIGNS, "replace_one")[:3],
    run=lambda rows, stream: _turns(rows, 1, stream), outputs=_turns, law=_mixed,
    covers=("confide.selection.draw", "confide.selection.law"), note=_TIME, draws=100_000, quick=1_000,
    fuzzed=False,
)  # fmt: skip


_PROOFS = {
    "exponential": "McSherry & Talwar 2007, theorem 6; confide.selection.exponent",
    "permute_and_flip": "McKenna & Sheldon 2020, theorem 1; confide.selection.exponent",
    "top_r": "exponential mechanism on the capped score; confide.selection.listed",
}
for _mechanism, _proof in _PROOFS.items():
    for _adjacency in ("replace_one", "add_remove_one"):
        selection(f"{_mechanism}.{_adjacency}", _adjacency, _proof, mechanism=_mechanism)
for _loss in ("huber", "quantile", "hinge", "logistic"):
    selection(
        f"exponential.{_loss}", "replace_one", _PROOFS["exponential"], mechanism="exponential", loss=_loss
    )
selection(
    "mistakes",
    "replace_one",
    "under the gap condition alone; confide.selection.gap",
    mechanism="mistakes",
    base=_CLEAR,
)

for _adjacency in ("replace_one", "add_remove_one"):
    extremes(_adjacency)


def others(method: str, proof: str, **more: Any) -> None:
    """Register a method of `confide.selection.baselines`."""

    def outputs(rows: Rows, count: int, stream: RandomStream) -> Floats:
        return supports(
            baseline(problem(rows), method, 1, "replace_one", random_state=stream, size=count).supports
        )

    promise(
        f"selection.{method}", Kind.MECHANISM, 1, 0, "replace_one", proof,
        lambda: neighbours.pairs(_BASE, "replace_one"),
        run=lambda rows, stream: outputs(rows, 1, stream), outputs=outputs,
        law=lambda rows: _law(baseline_law(problem(rows), method, 1, "replace_one")),
        covers=("confide.selection.baseline", "confide.selection.baseline_law",
                f"selection.baseline:{method}"),
        draws=40_000, quick=2_000, **more,
    )  # fmt: skip


others("enumeration", "McSherry & Talwar 2007; confide.selection.baselines.reference")
others("screening", "peeling of the exponential mechanism; confide.selection.baselines.peeling")
others("lasso_votes", "Kifer, Smith & Thakurta 2012, section 4.1; confide.selection.baselines.votes")


def imputed(rows: Rows) -> Rows:
    """Return the table as the estimator reads it: missing cells are the middle of their bounds."""
    return Rows(*(np.where(np.isnan(part), 0.0, part) for part in (rows.X, rows.y)))


def _select(rows: Rows, stream: RandomStream) -> Floats:
    fitted = SubsetSelector(
        _SIZE, 1, ridge=0.0, feature_bounds=(-1, 1), target_bounds=(-1, 1), random_state=random_state(stream)
    ).fit(rows.X, rows.y)
    return supports(fitted.get_support(indices=True))


promise(
    "selection.SubsetSelector", Kind.ESTIMATOR, 1, 0, "replace_one", _PROOFS["exponential"],
    lambda: neighbours.pairs(_BASE, "replace_one"), run=_select,
    law=lambda rows: _law(law(problem(imputed(rows)), "exponential", 1, "replace_one")),
    covers=("confide.selection.SubsetSelector", "confide.selection.select"), draws=20_000, quick=200,
    note=_TIME,
)  # fmt: skip


def _held(rows: Rows) -> bool:
    return gap_condition(problem(rows), diagnostics="public data").holds


@cache  # a search
def _across() -> list[Pair]:
    """Return neighbours of which one has the gap, and neighbours without it whose best support flips."""
    return [
        neighbours.across(_held, "the gap on one side alone"),
        *neighbours.pairs(_BASE, "replace_one")[:2],
    ]


def _leading(n: int = 200, ahead: int = 3) -> Pair:
    """Return neighbours whose gaps are nearly W apart.

    Of two columns one leads, and the row that differs fits the one and contradicts the other, or the other
    way round.
    """
    X = np.vstack([np.ones((n, 2)), np.tile([1.0, -1.0], (ahead, 1))])
    base = Rows(np.vstack([np.zeros((1, 2)), X]), np.ones(1 + n + ahead))
    here, there = (base.replaced(np.array(row), 1.0) for row in ((1.0, -1.0), (-1.0, 1.0)))
    return Pair("the gap moves most", here, there)


def _checked(rows: Rows, stream: RandomStream) -> Floats:
    one = SubsetProblem(rows.X, rows.y, 1, ridge=0.0, feature_bound=1.0, target_bound=1.0)
    found = gap_condition(one, epsilon=1, random_state=random_state(stream))
    return np.array([found.gap, found.holds])


promise(
    "selection.gap_condition", Kind.MECHANISM, 1, 0, "replace_one",
    "discrete Laplace on the gap, unconditional; confide.selection.gap",
    lambda: [_leading(), _leading(ahead=1), *_across(), *neighbours.pairs(_BASE, "replace_one")[2:6]],
    run=_checked, covers=("confide.selection.gap_condition",), draws=2_000, quick=100,
)  # fmt: skip


def _by_mistakes(rows: Rows, stream: RandomStream) -> Floats:
    fitted = SubsetSelector(
        _SIZE, 1, mechanism="mistakes", ridge=0.0, feature_bounds=(-1, 1), target_bounds=(-1, 1),
        random_state=random_state(stream),
    ).fit(rows.X, rows.y)  # fmt: skip
    return supports(fitted.get_support(indices=True))


promise(
    "selection.SubsetSelector.mistakes", Kind.ESTIMATOR, 1, 0, "replace_one",
    "under the gap condition alone, which nothing checks unless it is charged; confide.selection.gap",
    lambda: neighbours.pairs(_CLEAR, "replace_one"), run=_by_mistakes,
    law=lambda rows: _law(law(problem(imputed(rows)), "mistakes", 1, "replace_one")),
    covers=("confide.selection.SubsetSelector", "confide.selection.select"), beside=_across,
    note="Assumes the gap condition. Exceptions, warnings, charges and calls are the same without it.",
    draws=2_000, quick=100, fuzzed=False,  # a fit is slow, and the exact law measures what draws cannot
)  # fmt: skip
