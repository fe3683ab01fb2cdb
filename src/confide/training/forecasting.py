"""What each epsilon would buy, from public quantities alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.errors import UnsupportedError
from confide.privacy import Adjacency
from confide.training.closed_form import prepare
from confide.training.expansion import powers_of
from confide.training.front import numeric_columns, table_problem
from confide.training.linear import plan_step
from confide.training.problem import check_bounds
from confide.training.request import make_request


@dataclass(frozen=True)
class Forecast:
    """What one epsilon would buy, from public quantities.

    Attributes
    ----------
    epsilon, delta : float
    noise_error : float
        Root-mean-square error that privacy noise would add to a fitted label, before shrinkage, in the
        label's encoded unit, if the whole budget went into one release without clipping (`engine`).
    rows : int
    engine : str
        Whose noise this is: ``"closed_form"``. `train` runs ``"rounds"`` unless it is told otherwise.
    """

    epsilon: float
    delta: float
    noise_error: float
    rows: int
    engine: str = "closed_form"

    def __str__(self) -> str:
        return (
            f"epsilon {self.epsilon:g}: noise of engine {self.engine!r} would add {self.noise_error:.4g} to "
            f"a fitted label (root mean square over {self.rows:,} rows)"
        )


def forecast(
    table: Any,
    epsilons: Sequence[Any],
    *,
    delta: Any,
    conditioning: Any = None,
    leverage: float | None = None,
    fit_intercept: bool = True,
    degree: int = 1,
) -> tuple[Forecast, ...]:
    """Say what each epsilon would buy of engine ``closed_form``, before a label is read or anything charged.

    Reads the public columns alone. The parameters are those of `train`, for adjacency ``replace_label`` and
    ``engine="closed_form"``. The noise of ``rounds``, which `train` runs by default, is proportional to
    residuals, which no public quantity tells; where they are far narrower than the declared bounds it is far
    smaller. Each `Forecast` names its engine.

    Raises
    ------
    UnsupportedError
        For a label of classes, and for a table without public columns: ``closed_form`` fits neither.
    ParameterError
    """
    schema = table.schema
    if schema.label is not None and not schema.label.numeric:
        raise UnsupportedError(
            "A forecast is for a label that is a number, and this one has categories.",
            "Fit at the epsilon that you have; result.facts tells the noise of the release.",
        )
    if schema.private and not schema.public:
        raise UnsupportedError(
            "A forecast reads public columns, and all columns are private.",
            "Fit at the epsilon that you have; result.facts tells the noise of the release.",
        )
    check_bounds(table.label_bounds)
    problem = table_problem(table, intercept=fit_intercept, powers=powers_of(numeric_columns(schema), degree))
    rows = []
    for epsilon in epsilons:
        request = make_request(
            epsilon=epsilon,
            delta=delta,
            adjacency=Adjacency.REPLACE_LABEL,
            unit=str(schema.unit or "row"),
            declaration=schema.declaration,
            engine="closed_form",
            conditioning=conditioning,
            leverage=leverage,
            recorded=False,
        )
        step = plan_step(problem, request)
        noise = prepare(step, request.noise_multiplier).noise
        error = (problem.upper - problem.lower) / 2 * math.sqrt(float(np.trace(noise)) / step.basis.n)
        amounts = request.guarantee
        rows.append(Forecast(float(amounts.epsilon), float(amounts.delta), error, step.basis.n))
    return tuple(rows)
