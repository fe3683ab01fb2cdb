"""Fits that leak beside their result: the noise is right, and a message, a warning or a charge tells a cell.

Each wraps the real code, which is its sibling and stays quiet on the same neighbours: labels that are missing
or outside their bounds decide no exception, text, charge or call of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from confide.audit import neighbours
from confide.audit.museum.piece import Piece, claim
from confide.audit.neighbours import Rows
from confide.audit.registry import Claim, Floats, Pair, random_state
from confide.errors import DataError
from confide.ledger import charged
from confide.mechanisms import RandomStream, Statistic, laplace_release
from confide.privacy import Adjacency, Event, Guarantee
from confide.selection import SubsetProblem, gap_condition
from confide.training import PrivateRegressor

_DELTA = Fraction(1, 1000)
_BASE = neighbours.table(12, 2)
_ROW = _BASE.X[0]
_OUTSIDE, _FAR = _BASE.replaced(_ROW, 5.0), _BASE.replaced(_ROW, 7.0)
_INSIDE = _BASE.replaced(_ROW, 0.5)
_MISSING = _BASE.replaced(_ROW, np.nan)
_TOLD = (Pair("two labels outside the bounds", _OUTSIDE, _FAR), Pair("one outside", _OUTSIDE, _INSIDE))
_ONE = (Pair("a label outside the bounds", _OUTSIDE, _INSIDE), Pair("a missing label", _MISSING, _INSIDE))
_ENDS = (Pair("ends of the label", _BASE.replaced(_ROW, -1.0), _BASE.replaced(_ROW, 1.0)),)
#: What a run does before, after or around the real fit.
Habit = Callable[[Rows, RandomStream], Floats]


def _fitted(rows: Rows, stream: RandomStream) -> Floats:
    """Return what the real code shows."""
    model = PrivateRegressor(
        1, _DELTA, target_bounds=(-1, 1), engine="closed_form", random_state=random_state(stream)
    )
    return model.fit(rows.X, rows.y).predict(np.eye(2))


def _strange(rows: Rows) -> Any:
    return ~(np.abs(rows.y) <= 1)


def _message(rows: Rows, stream: RandomStream) -> Floats:
    found = rows.y[_strange(rows)]
    if found.size:
        raise DataError(f"The label {found[0]:g} is outside the bounds.", "Widen them.")
    return _fitted(rows, stream)


def _exception(rows: Rows, stream: RandomStream) -> Floats:
    if _strange(rows).any():
        raise DataError("A label is outside the bounds.", "Widen them.")
    return _fitted(rows, stream)


def _warning(rows: Rows, stream: RandomStream) -> Floats:
    if _strange(rows).any():
        warnings.warn("Some labels were clipped.", UserWarning, stacklevel=2)
    return _fitted(rows, stream)


def _few(rows: Rows, stream: RandomStream) -> Floats:
    if ((rows.y > 0.7) & (rows.y < 0.8)).any():
        warnings.warn("Some labels are nearly the highest.", UserWarning, stacklevel=2)
    return _fitted(rows, stream)


def _charge(rows: Rows, stream: RandomStream) -> Floats:
    """Charge a count of the labels as well, but for tables whose labels are all in order."""
    if _strange(rows).any():
        event = Event.of("pure", epsilon="1")
        with charged(None, Guarantee(1, 0, Adjacency.REPLACE_LABEL, "row", event, ("unrecorded",))):
            pass
    return _fitted(rows, stream)


def _more(rows: Rows, stream: RandomStream) -> Floats:
    """Release how many labels are strange, where there are any, and tell nobody the number."""
    count = int(_strange(rows).sum())
    if count:
        laplace_release(Statistic(np.array([count]), 1.0, 1.0, "strange"), 1, stream=stream.child("strange"))
    return _fitted(rows, stream)


def _piece(name: str, flaw: str, run: Habit, pairs: tuple[Pair, ...], *layers: str) -> Piece:
    def promised(kind: str, how: Habit) -> Callable[[], Claim]:
        # Outputs that may be an exception are for layers that see one.
        return lambda: claim(f"{kind}{name}", 2, _DELTA, "replace_label", pairs, how, quick=0)

    return Piece(f"leaks.{name}", flaw, promised("leaks.", run), promised("quiet.", _fitted), layers)


def _problem(rows: Rows) -> SubsetProblem:
    return SubsetProblem(rows.X, rows.y, 2, "squared", ridge=0.0, feature_bound=1.0, target_bound=1.0)


def _holds(rows: Rows) -> bool:
    return gap_condition(_problem(rows), diagnostics="public data").holds


def _free_check(rows: Rows, stream: RandomStream) -> Floats:
    """Refuse tables without the gap condition of `mistakes`, after a look that nobody is charged for."""
    if not _holds(rows):
        raise DataError("The gap condition does not hold.", "Choose another mechanism.")
    return _paid_check(rows, stream)


def _paid_check(rows: Rows, stream: RandomStream) -> Floats:
    found = gap_condition(_problem(rows), epsilon=1, random_state=random_state(stream))
    return np.array([found.gap, found.holds])


def _check(name: str, run: Habit) -> Callable[[], Claim]:
    pairs = cache(lambda: (neighbours.across(_holds, "the gap on one side alone"),))
    return lambda: claim(name, 1, 0, "replace_one", pairs(), run, quick=0)


PIECES = (
    _piece(
        "message", "The exception quotes the cell that it complains of.",
        _message, _TOLD, "side channels", "replay",
    ),
    _piece(
        "exception", "A label outside its bounds ends the run: a neighbour without it has a result.",
        _exception, _ONE, "side channels", "replay",
    ),
    _piece("warning", "A warning says that labels were clipped.", _warning, _ONE, "side channels"),
    _piece(
        "a_few_labels", "A warning for labels from 0.7 to 0.8, which no extreme row meets.",
        _few, _ENDS, "side channels",
    ),
    _piece(
        "charge", "What is charged depends on the labels, and who may see the ledger sees it.",
        _charge, _ONE, "side channels",
    ),
    _piece(
        "more_calls", "One more release where a label is strange: paid for by nobody, seen by its time.",
        _more, _ONE, "side channels", "replay",
    ),
    Piece(
        "leaks.free_check",
        "`mistakes` is refused where the gap condition fails, which is a fact about the rows.",
        _check("leaks.free_check", _free_check), _check("quiet.paid_check", _paid_check),
        ("side channels", "replay"),
    ),
)  # fmt: skip
