"""Linear models of secret rows: `adassp`, `boosted_adassp` (numbers) and `objective` (two classes).

Nothing of a row is public here, so that each is private under every relation; under ``replace_one`` and
``add_remove_one`` they are what linear models have besides `dpsgd`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Event, Guarantee
from confide.training import boosting, least_squares, objective
from confide.training.coefficients import Coefficients, Rows, Shape, check_rows, make_shape
from confide.training.engines.ask import Ask, Charge, Job, warn_of_delta
from confide.training.engines.parts import LinearParts
from confide.training.engines.result import ModelResult
from confide.training.engines.semi import private_columns
from confide.training.labels.request import check_seed
from confide.training.result import Status

#: Engine -> (module of plan and release, whether it fits classes).
_MODULES: dict[str, tuple[Any, bool]] = {
    "adassp": (least_squares, False),
    "boosted_adassp": (boosting, False),
    "objective": (objective, True),
}


@dataclass(frozen=True)
class Secret:
    """A validated request; noise and sensitivity await the number of columns."""

    ask: Ask
    guarantee: Guarantee

    def quote(self, job: Job) -> Guarantee:
        """Return what `fit` charges: the number of columns decides its parts."""
        return self._planned(job)[2]

    def _planned(self, job: Job) -> tuple[Shape, Any, Guarantee]:
        ask = self.ask
        shape = make_shape(
            len(job.private_bounds),
            ask.adjacency,
            rows_per_unit=ask.rows_per_unit,
            intercept=bool(ask.fit_intercept),
        )
        plan = _plan(ask, shape, job.n)
        if shape.rows_are_public:
            check_rows(shape, job.n)
        return shape, plan, replace(self.guarantee, event=plan_event(plan))

    def fit(self, job: Job, charge: Charge) -> ModelResult:
        """Charge and fit. Every column is a private one."""
        ask = self.ask
        columns = private_columns(job)
        shape, plan, guarantee = self._planned(job)
        if shape.rows_are_public:
            warn_of_delta(ask.delta, job.n)
        with charge.open(guarantee) as reservation:
            cells = columns.normalised(job.private.to_numpy())
            rows = Rows(cells, _targets(job, ask), shape)
            module, _ = _MODULES[ask.engine]
            found: Coefficients = module.release(
                rows, plan, stream=random_stream(check_seed(ask.random_state))
            )
        model = _model(found, ask, np.array(job.private_bounds))
        result = ModelResult(model, guarantee, Status.RELEASED, ask.engine, dict(found.facts))
        return result if reservation is None else replace(result, entry=reservation.id)


def make(ask: Ask) -> Secret:
    """Check a request."""
    ask.only_linear()
    _, classes = _MODULES[ask.engine]
    if classes and (ask.classes is None or len(ask.classes) != 2):
        raise UnsupportedError(
            "The engine 'objective' fits two classes.",
            "Pass engine='dpsgd' for more classes, 'boosted_adassp' for a number.",
        )
    if not classes and ask.target_bounds is None:
        raise UnsupportedError(
            f"The engine {ask.engine!r} fits numbers, and the label has classes.",
            "Pass engine='dpsgd' or 'objective'.",
        )
    if ask.conditioning is not None or ask.leverage is not None or ask.shrinkage is not True:
        raise ParameterError(
            f"The engine {ask.engine!r} has no public row: no 'conditioning', 'leverage' or 'shrinkage'.",
            "Leave them out.",
        )
    epsilon, delta = ask.amounts()
    if math.isinf(epsilon):
        raise UnsupportedError(
            f"The engine {ask.engine!r} has no fit without privacy.", "Pass a finite epsilon."
        )
    if delta == 0 and not classes:
        raise ask.no_delta()
    # A plan for one column refuses what no number of columns allows, and has the amounts.
    _plan(ask, make_shape(1, ask.adjacency, rows_per_unit=ask.rows_per_unit), None)
    return Secret(ask, ask.guarantee(_announced(epsilon, delta), epsilon, delta))


def _announced(epsilon: Any, delta: Fraction) -> Event:
    """Return an event of the whole amounts, for a rehearsal: parts are known once the columns are counted."""
    if delta == 0:
        return Event.of("pure", epsilon=str(epsilon))
    return Event.of("approximate", epsilon=str(epsilon), delta=str(delta))


def _plan(ask: Ask, shape: Shape, rows: int | None) -> Any:
    if ask.engine == "objective":
        known = rows if shape.rows_are_public else None
        return objective.make_plan(shape, ask.epsilon, ask.delta, "logistic", rows=known)
    return _MODULES[ask.engine][0].make_plan(shape, ask.epsilon, ask.delta)


def plan_event(plan: Any) -> Event:
    """Return what a plan releases."""
    return plan.event


def _targets(job: Job, ask: Ask) -> Any:
    values = np.asarray(job.labels, dtype=np.float64)
    if ask.classes is not None:
        return np.where(values == 1.0, 1.0, -1.0)  # whatever is neither class counts as the first
    assert ask.target_bounds is not None
    low, high = ask.target_bounds
    with np.errstate(all="ignore"):
        t = (np.clip(values, low, high) / 2 - (low / 4 + high / 4)) / (high / 4 - low / 4)
        return np.clip(np.nan_to_num(t, nan=0.0), -1.0, 1.0)


def _model(found: Coefficients, ask: Ask, bounds: Any) -> LinearParts:
    empty = np.zeros((1, 0))
    if ask.classes is not None:
        return LinearParts(
            np.array([found.intercept]), empty, found.coefficients[None, :], bounds, None, ask.classes
        )
    assert ask.target_bounds is not None
    low, high = ask.target_bounds
    half, middle = high / 2 - low / 2, low / 2 + high / 2
    intercept = np.array([middle + half * found.intercept])
    return LinearParts(intercept, empty, half * found.coefficients[None, :], bounds, ask.target_bounds)
