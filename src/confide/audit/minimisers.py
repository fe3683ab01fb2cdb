"""The exact law of objective perturbation in one dimension, whatever the plan says that it costs.

With one column and no intercept the perturbed objective is J0(theta) + b theta on [-radius, radius], and its
minimiser lies below t exactly where b is above -J0'(t), since J0' increases. So the probability of a cell of
theta is that of an interval of b, and no density, determinant or bound of a proof is needed: what the ridge
and the noise of a plan leave of epsilon is computed here from below. The plan gives the ridge, the radius and
the deviation of b, the code of the engine the slopes of the losses; `noise` holds what is drawn against
that deviation.

What is released lies within `Plan.distance` of the minimiser and has noise of its own on it, some 10^-8 of a
cell: it pays for the distance, and a law of it is the minimiser's within `ERROR`.

A row that is replaced by its opposite meets all that the proof pays for, at one place: where one table has
the largest slope just before its kink, hence the largest curvature too, the other has the largest slope to
the other side. The ends of the cells lie there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from confide.audit.exact import nearly
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Law, Pair
from confide.audit.replay import Recorder, recording
from confide.mechanisms import RandomStream
from confide.privacy import Adjacency
from confide.training import objective
from confide.training.coefficients import Rows as Secret
from confide.training.coefficients import make_shape

#: Cells of theta: with these every kink of a default loss is an end of one.
_CELLS = 192
#: Relative, of a law of what is released: a density that jumps at an end loses 10^-7 of a cell there.
ERROR = 4e-7
LOSSES = ("quantile", "huber", "hinge", "logistic", "squared")


@dataclass(frozen=True)
class Column:
    """A release of one coefficient.

    Parameters
    ----------
    delta : float
    adjacency : str
    """

    delta: float
    adjacency: str
    _plans: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def plan(self, table: Any) -> Any:
        """Return the public plan of a table (rows, loss, rows a person)."""
        rows, loss, count = table
        known = rows.y.size if self.adjacency == "replace_one" else None
        asked = (loss, count, known)
        if asked not in self._plans:
            shape = make_shape(1, self.adjacency, rows_per_unit=count, intercept=False)
            self._plans[asked] = objective.make_plan(shape, 1, self.delta, loss, rows=known)
        return self._plans[asked]

    def run(self, table: Any, stream: RandomStream) -> Floats:
        """Release the coefficient."""
        plan = self.plan(table)
        return objective.release(_secret(table, plan), plan, stream=stream).coefficients

    def cell(self, table: Any, stream: RandomStream) -> int:
        """Return the cell of a coefficient."""
        return int(np.searchsorted(ends(self.plan(table)), self.run(table, stream)[0], side="right"))

    def cells(self, table: Any, count: int, stream: RandomStream) -> Floats:
        """Return the cells of so many runs, [count]."""
        return np.array([self.cell(table, stream.child(str(i))) for i in range(count)], dtype=np.float64)

    def law(self, table: Any) -> Law:
        """Return the law of the cell."""
        plan = self.plan(table)
        t = ends(plan)
        cells, y = objective.gathered(_secret(table, plan), plan)
        slopes = plan.loss.derivatives(y[:, None], cells * t)[1]
        noise = np.append(-((slopes * cells).sum(axis=0) + plan.ridge * t), -np.inf)
        mass = between(noise, np.concatenate([[np.inf], noise[:-1]]), plan)
        return nearly({float(i): float(p) for i, p in enumerate(mass)}, ERROR)

    def pairs(self) -> list[Pair]:
        """Return a row alone that turns, or goes, for each loss, and the same for a person of three rows."""
        added = Adjacency.parse(self.adjacency) is Adjacency.ADD_REMOVE_ONE
        found = []
        for loss, count in [*((loss, 1) for loss in LOSSES), ("huber", 3)]:
            low = 0.0 if objective.make_loss(loss).labels else -1.0
            one, other = (Rows(np.ones((count, 1)), np.full(count, y)) for y in (low, 1.0))
            if added:
                other = Rows(one.X[:0], one.y[:0])
            found.append(Pair(f"{loss}, {count} a person", (one, loss, count), (other, loss, count)))
        return found


def repeated(run: Callable[[Any, RandomStream], Any]) -> Callable[[Any, int, RandomStream], Floats]:
    """Return the outputs of a claim whose run asks for one perturbed minimiser: that release alone, repeated.

    Its input is a function of the table, since nothing is drawn before it, and the result of the run one of
    its answer: coefficients with the intercept, [count, 1 + d].
    """

    def outputs(table: Any, count: int, stream: RandomStream) -> Floats:
        with recording(Recorder()) as told:
            run(table, stream.child("plan"))
        (call,) = told.calls
        answers = (
            objective.release(call.private, call.public, stream=stream.child(str(i))) for i in range(count)
        )
        return np.array([[a.intercept, *a.coefficients] for a in answers], dtype=np.float64)

    return outputs


def _secret(table: Any, plan: Any) -> Secret:
    rows = table[0]
    return Secret(rows.X, rows.y, plan.shape)


def ends(plan: Any) -> Floats:
    """Return the ends between cells of theta, ascending."""
    return plan.radius * np.arange(1 - _CELLS // 2, _CELLS // 2) / (_CELLS // 2)


def between(low: Floats, high: Floats, plan: Any) -> Floats:
    """Return P(low < b <= high) for the noise of a plan of one coefficient, by its smaller tail."""
    from scipy.special import ndtr

    def above(b: Floats) -> Floats:  # b >= 0
        return np.exp(-b / plan.scale) / 2 if plan.pure else ndtr(-b / plan.scale)

    right, left = np.abs(low), np.abs(high)
    across = 1.0 - above(right) - above(left)
    return np.where(
        low >= 0, above(right) - above(left), np.where(high <= 0, above(left) - above(right), across)
    )
