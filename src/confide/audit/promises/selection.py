"""Claims of `confide.selection`: laws over all supports of a small problem, and draws from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.exact import nearly
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Kind, Law, Pair, promise, random_state
from confide.mechanisms import RandomStream
from confide.selection import SubsetProblem, SubsetSelector, draw, gap_condition, law
from confide.selection.baselines import baseline, baseline_law

_SIZE = 2
#: Relative error of a float law beside what its exponent pays for (`confide.selection.exponent`).
_ERROR = 1e-9
_CLASSES = ("hinge", "logistic")
_BASE = neighbours.table(12, 5)
_SIGNS = neighbours.table(12, 5, classes=True)
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
    draws=10_000, quick=100, fuzzed=False,
)  # fmt: skip
