"""What a user asks of select-then-fit, validated before any data is read and any budget is written.

The budget. epsilon = split epsilon for the support (pure) + the rest for the coefficients, which take all of
delta; both parts are exact rationals and add up to the constructor's. No delta is charged where the noise of
pure epsilon is the lesser, which public numbers decide. Nothing is charged for a support that is public: one
that the caller names, or all columns (size = p).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.errors import ParameterError
from confide.privacy import SEEDED, UNRECORDED, Adjacency, Event, Guarantee, exact
from confide.selection.request import Request, make_request, seed_of
from confide.training import least_squares, objective
from confide.training.coefficients import check_budget, check_method, make_shape, number

#: Part of epsilon that selects. Measured: docs/how-to/budget-split.md.
SPLIT = Fraction(1, 2)
METHODS = ("auto", objective.METHOD, least_squares.METHOD)
_FINEST = 10**40


@dataclass(frozen=True)
class Budget:
    """The two parts of epsilon, and delta.

    Attributes
    ----------
    selection, coefficients : Fraction
        Parts of epsilon; the first is 0 where the support is public.
    delta : Fraction
    split : Fraction, optional
        What the caller asked for; None where it was left to the default.
    """

    selection: Fraction
    coefficients: Fraction
    delta: Fraction
    split: Fraction | None = None

    @property
    def epsilon(self) -> Fraction:
        """Total."""
        return self.selection + self.coefficients

    def without_selection(self) -> Budget:
        """Return the same total, all of it for coefficients."""
        return Budget(Fraction(0), self.epsilon, self.delta)


def make_budget(epsilon: Any, delta: Any, split: Any) -> Budget:
    """Split a total.

    Parameters
    ----------
    epsilon, delta : amount
    split : amount or None
        Part of epsilon for the support, between 0 and 1; None takes `SPLIT`.

    Raises
    ------
    ParameterError
    """
    if delta is None:
        raise ParameterError(
            "The 'delta' parameter is None.",
            "Pass 0 for pure epsilon, or a small number such as 1e-6.",
        )
    total, share = check_budget(epsilon, delta)
    part = SPLIT if split is None else exact(split, "split")
    if not 0 < part < 1:
        raise ParameterError(
            f"The 'split' parameter is {split!r:.80}.", "Pass a number between 0 and 1, or None."
        )
    first = total * part
    if first.denominator > _FINEST:  # amounts have a finest grid: what is cut here goes to the coefficients
        first = Fraction(first.numerator * _FINEST // first.denominator, _FINEST)
    if first == 0:
        raise ParameterError(f"The 'epsilon' parameter is {epsilon!r:.80}.", "Pass a larger epsilon.")
    return Budget(first, total - first, share, None if split is None else part)


@dataclass(frozen=True)
class Fit:
    """How coefficients are made.

    Attributes
    ----------
    method : {"auto", "objective", "sufficient_statistics"}
    loss : str
        Of the coefficients.
    loss_shape : float or None
        Huber's width in units of the target bound, or the level of the quantile.
    ridge : float or None
    row_norm : float or None
        In units of the feature bound.
    intercept : bool
    """

    method: str = "auto"
    loss: str = "huber"
    loss_shape: float | None = None
    ridge: float | None = None
    row_norm: float | None = None
    intercept: bool = True


def make_fit(
    method: Any, loss: Any, *, classes: bool, ridge: Any = None, row_norm: Any = None, intercept: bool = True
) -> Fit:
    """Return a validated fit.

    Raises
    ------
    ParameterError, UnsupportedError
        Also for ``closed_form`` and ``rounds``, which are not private on secret columns.
    """
    name = check_method(method, METHODS)
    known = ("logistic", "hinge", "squared") if classes else ("huber", "quantile", "squared")
    shape = None
    chosen = loss
    if isinstance(loss, tuple) and len(loss) == 2 and loss[0] in ("huber", "quantile"):
        chosen, shape = loss[0], number(loss[1], "coefficient_loss", 1e-9, 1e6)
    if chosen is None:
        chosen = "squared" if name == least_squares.METHOD else known[0]
    if chosen not in known or (name == least_squares.METHOD and chosen != "squared"):
        raise ParameterError(
            f"The 'coefficient_loss' parameter is {loss!r:.80} with coefficients={name!r}.",
            f"Pass None or one of {', '.join(map(repr, known))}; sufficient statistics know 'squared' alone.",
        )
    if name == "auto":
        name = least_squares.METHOD if chosen == "squared" else objective.METHOD
    if not isinstance(intercept, bool | np.bool_):
        raise ParameterError(f"The 'fit_intercept' parameter is {intercept!r:.80}.", "Pass True or False.")
    penalty = None if ridge is None else number(ridge, "coefficient_ridge", 0.0, 1e12)
    return Fit(name, chosen, shape, penalty, row_norm, bool(intercept))


@dataclass(frozen=True)
class SparseRequest:
    """A validated request. Every field is public.

    Attributes
    ----------
    guarantee : Guarantee
        What will be charged: both parts.
    selection : Request or None
        None where the support is public.
    support : tuple of int, or None
        The public support.
    plan : least_squares.Plan or objective.Plan
        Of the coefficients.
    seed : int or None
    """

    guarantee: Guarantee
    selection: Request | None
    support: tuple[int, ...] | None
    plan: Any
    seed: int | None


def make_sparse_request(
    *,
    size: Any,
    budget: Budget,
    fit: Fit,
    support: Sequence[int] | None = None,
    candidates: int | None = None,
    rows: int | None = None,
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE,
    rows_per_unit: Any = 1,
    unit: str = "row",
    declaration: str = "",
    assumptions: tuple[str, ...] = (),
    random_state: Any = None,
    recorded: bool = False,
    **selection: Any,
) -> SparseRequest:
    """Check every parameter.

    Parameters
    ----------
    size : int
    budget : Budget
    fit : Fit
    support : sequence of int, optional
        A public support.
    candidates, rows : int, optional
        p and n, once they are known.
    adjacency, rows_per_unit, unit, declaration, assumptions, random_state, recorded
        See `confide.selection.request.make_request`, which takes the further options too.

    Raises
    ------
    ParameterError, UnsupportedError
        Messages hold public values alone.
    """
    relation = Adjacency.parse(adjacency)
    seed = seed_of(random_state)
    if support is not None:
        _nothing_to_select(budget, selection)
    chosen = None if support is None else _public_support(support, size, candidates)
    # Validated where it is not used too: neither a public support nor size = p excuses a wrong parameter.
    request = make_request(
        size=size,
        epsilon=budget.selection,
        candidates=candidates,
        adjacency=relation,
        rows_per_unit=rows_per_unit,
        unit=unit,
        declaration=declaration,
        assumptions=assumptions,
        random_state=random_state,
        recorded=recorded,
        **selection,
    )
    if chosen is None and candidates == request.size:
        chosen = tuple(range(request.size))
    if chosen is not None:
        budget = budget.without_selection()
    shape = make_shape(
        request.size, relation, rows_per_unit=rows_per_unit, intercept=fit.intercept, row_norm=fit.row_norm
    )
    known = rows if relation is not Adjacency.ADD_REMOVE_ONE else None
    plan = make_plan(shape, budget, fit, known)
    if chosen is None:
        parts: tuple[Event, ...] = (request.guarantee.event, plan.event)
        conditions = request.guarantee.assumptions
    else:
        parts = (plan.event,)
        conditions = assumptions + (() if recorded else (UNRECORDED,)) + (() if seed is None else (SEEDED,))
    event = parts[0] if len(parts) == 1 else Event.sequence(parts)
    # Noise of pure epsilon, chosen by public numbers, spends no delta: none is charged.
    guarantee = Guarantee(budget.epsilon, plan.delta, relation, unit, event, conditions, declaration)
    return SparseRequest(guarantee, request if chosen is None else None, chosen, plan, seed)


def make_plan(shape: Any, budget: Budget, fit: Fit, rows: int | None) -> Any:
    """Return the plan of the coefficients with the least noise.

    With delta > 0 both noises are private: that of pure epsilon is less in few dimensions, Gaussian noise in
    many. The choice is by public numbers, so that the delta of the plan is what is charged.
    """
    deltas = (budget.delta,) if budget.delta == 0 else (budget.delta, Fraction(0))
    plans = [_plan(shape, budget.coefficients, delta, fit, rows) for delta in deltas]
    return min(plans, key=lambda plan: plan.spread)


def _plan(shape: Any, epsilon: Fraction, delta: Fraction, fit: Fit, rows: int | None) -> Any:
    if fit.method == least_squares.METHOD:
        if fit.ridge is not None:
            raise ParameterError(
                f"The 'coefficient_ridge' parameter is {fit.ridge!r:.80}.",
                "Leave it out: sufficient statistics choose it from what they release.",
            )
        return least_squares.make_plan(shape, epsilon, delta)
    return objective.make_plan(
        shape, epsilon, delta, fit.loss, loss_shape=fit.loss_shape, ridge=fit.ridge, rows=rows
    )


def _nothing_to_select(budget: Budget, selection: dict[str, Any]) -> None:
    """Refuse options that say how to select, where the support is public and nothing is selected.

    Raises
    ------
    ParameterError
    """
    default = {"mechanism": "exponential", "top": None, "loss": "squared", "radius": None, "ridge": None}
    given = ["split"] if budget.split is not None else []
    given += [name for name, value in default.items() if not _same(selection.get(name, value), value)]
    if given:
        raise ParameterError(
            f"The {given[0]!r} parameter is given with a public 'support': nothing is selected.",
            f"Leave {given[0]!r} out, or leave 'support' out.",
        )


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, str) and value == default)


def _public_support(support: Any, size: Any, candidates: int | None) -> tuple[int, ...]:
    values = np.asarray(support)
    whole = values.ndim == 1 and values.dtype.kind in "iu"
    columns: tuple[int, ...] = tuple(sorted(map(int, values))) if whole else ()
    fine = len(columns) == len(set(columns)) == size and min(columns, default=-1) >= 0
    if not fine or (candidates is not None and max(columns) >= candidates):
        raise ParameterError(
            f"The 'support' parameter is {support!r:.80} for size = {size!r:.80}.",
            "Pass that many distinct column numbers, chosen without looking at the data, or None.",
        )
    return columns
