"""One charge, then the support, then its coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.mechanisms import RandomStream
from confide.mechanisms.stream import stream as random_stream
from confide.pipeline.request import SparseRequest
from confide.selection.front import draw_support
from confide.selection.result import SelectionResult
from confide.training import least_squares, objective
from confide.training.coefficients import Coefficients, Rows

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Secret:
    """Secret rows, once they are paid for.

    Attributes
    ----------
    source : matrix, CSR or source of `confide.selection.bounded`, [n, p]
        What a selection reads.
    take : callable
        Maps column numbers to their cells within +-feature_bound, float64 [n, k].
    y : ndarray of shape (n,)
        About the middle of its bounds, within +-target_bound.
    feature_bound, target_bound : float
    """

    source: Any
    take: Callable[[tuple[int, ...]], Floats]
    y: Floats
    feature_bound: float
    target_bound: float


def release(
    read: Callable[[], Secret],
    names: tuple[str, ...],
    request: SparseRequest,
    *,
    ledger: Any = None,
    table: Any = None,
    analyst: str | None = None,
    label: str,
) -> tuple[tuple[int, ...], SelectionResult | None, Coefficients, str]:
    """Charge the whole, then read, select and fit.

    Parameters
    ----------
    read : callable
        Called after the charge.
    names : tuple of str, length p
    request : SparseRequest

    Returns
    -------
    support, selection, coefficients, id of the ledger's entry
    """
    from confide.ledger import charged

    with charged(ledger, request.guarantee, table=table, analyst=analyst, label=label) as reservation:
        secret = read()
        selection = None
        support = request.support
        if request.selection is not None:
            selection = draw_support(lambda: (secret.source, secret.y), names, request.selection)
            support = selection.indices
        assert support is not None
        stream = random_stream(request.seed).child("coefficients")
        coefficients = fit(secret, support, request, stream)
    entry = "" if reservation is None else reservation.id
    if selection is not None:
        selection = replace(selection, entry=entry)
    return support, selection, coefficients, entry


def fit(
    secret: Secret, support: tuple[int, ...], request: SparseRequest, stream: RandomStream
) -> Coefficients:
    """Return the coefficients of the columns of `support`."""
    plan = request.plan
    rows = Rows(secret.take(support), secret.y, plan.shape, secret.feature_bound, secret.target_bound)
    if isinstance(plan, least_squares.Plan):
        return least_squares.release(rows, plan, stream=stream)
    return objective.release(rows, plan, stream=stream)
