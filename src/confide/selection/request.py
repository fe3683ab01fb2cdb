"""What a user asks of a selection, validated before any data is read and any budget is written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from confide.errors import ParameterError, UnsupportedError
from confide.privacy import GAP_CONDITION, SEEDED, UNRECORDED, Adjacency, Event, Guarantee, exact

#: The only value of `diagnostics`, and the mark of a result that carries them.
PUBLIC_DATA = "public data"
#: a / b_y of the default radius a b_y / (b_x sqrt(size)), for losses where 1 is not the best. Hinge loss with
#: a <= 1 is linear, hence marginal screening, and logistic loss nearly so: wrong under correlation
#: (benchmarks/selection_defaults.py).
REACH = {"hinge": 4.0, "logistic": 4.0}
#: Columns of a support that the rounding proof covers.
_LARGEST_SIZE = 64


@dataclass(frozen=True)
class Request:
    """A validated request. Every field is public.

    Attributes
    ----------
    guarantee : Guarantee
        What will be charged.
    row_epsilon : Fraction
        Epsilon of one row: the guarantee's, divided by the rows that one unit may have. Changing m rows
        moves every score by m times what one row can, so that m row_epsilon is what a unit can lose
        (group privacy; the range of the log-ratio grows by the same factor, so the zCDP cost
        epsilon^2/8 of the exponential mechanism holds for the unit too).
    mechanism, loss : str or Loss
    top : int or None
        R of ``"top_r"``; None for every other mechanism, and while the candidates are not known.
    size : int
    radius, ridge, feature_bound, target_bound : float
        As used: defaults filled in.
    seed : int or None
    diagnostics : bool
        Whether the user declared the data public, so that facts about them may be returned.
    """

    guarantee: Guarantee
    row_epsilon: Fraction
    mechanism: str
    top: int | None
    loss: Any
    size: int
    radius: float
    ridge: float
    feature_bound: float
    target_bound: float
    seed: int | None
    diagnostics: bool


def make_request(
    *,
    size: Any,
    epsilon: Any,
    candidates: int | None = None,
    mechanism: Any = "exponential",
    top: Any = None,
    loss: Any = "squared",
    radius: Any = None,
    ridge: Any = None,
    feature_bound: float = 1.0,
    target_bound: float | None = None,
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE,
    unit: str = "row",
    declaration: str = "",
    rows_per_unit: Any = 1,
    assumptions: tuple[str, ...] = (),
    random_state: Any = None,
    recorded: bool = False,
    diagnostics: Any = None,
) -> Request:
    """Check every parameter, on a problem with `candidates` columns and no row.

    Parameters
    ----------
    size : int
        Columns to select.
    epsilon : amount
        Total of the call.
    candidates : int, optional
        Number of columns to choose from; None when it is not known yet.
    mechanism, top, loss, radius, ridge, feature_bound, target_bound
        See `confide.selection.SubsetProblem` and `confide.selection.draw`; the default radius of hinge and
        logistic loss is 4 times theirs.
    adjacency : Adjacency or str
    unit, declaration : str
        Of the guarantee.
    rows_per_unit : int
        Most rows that one unit may have.
    assumptions : tuple of str
        What the guarantee rests on besides.
    random_state : int, optional
        None draws from the operating system; an int is for tests and marks the guarantee ``"seeded"``.
    recorded : bool
        Whether a ledger records the release; else the guarantee is marked ``"unrecorded"``.
    diagnostics : {None, "public data"}
        Marks the guarantee ``"public data"``.

    Raises
    ------
    ParameterError, UnsupportedError
        Messages hold public values alone.
    """
    import numpy as np

    from confide.selection.exponent import exponent
    from confide.selection.listed import top_of
    from confide.selection.losses import loss_of
    from confide.selection.problem import SubsetProblem

    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ParameterError(f"The 'size' parameter is {size!r:.80}.", "Pass an integer >= 1.")
    if candidates is not None and size > candidates:
        raise ParameterError(
            f"The 'size' parameter is {size!r:.80}, of {candidates} encoded columns.",
            f"Pass at most {candidates}.",
        )
    if size > _LARGEST_SIZE:
        raise UnsupportedError(
            f"The 'size' parameter is {size!r:.80}; the rounding proof covers {_LARGEST_SIZE} columns.",
            "Select fewer columns.",
        )
    if not _is_count(rows_per_unit):
        raise ParameterError(
            f"The largest number of rows of one unit is {rows_per_unit!r:.80}.", "Pass an integer >= 1."
        )
    if diagnostics is not None and diagnostics != PUBLIC_DATA:
        raise ParameterError(
            f"The 'diagnostics' parameter is {diagnostics!r:.80}.",
            f"Pass None, or {PUBLIC_DATA!r} to declare that nothing in this table is secret.",
        )
    for name, value in (("radius", radius), ("ridge", ridge)):
        if value is not None and not _is_real(value):
            raise ParameterError(f"The {name!r} parameter is {value!r:.80}.", "Pass a number, or None.")
    seed = seed_of(random_state)
    relation = Adjacency.parse(adjacency)
    amount = exact(epsilon, "epsilon")
    row_epsilon = amount / int(rows_per_unit)
    chosen = loss_of(loss)
    if radius is None and chosen.name in REACH and feature_bound > 0:
        radius = REACH[chosen.name] / (feature_bound * math.sqrt(int(size)))
    # A problem without rows has every public property of the real one.
    empty = SubsetProblem(
        np.zeros((0, candidates or int(size))), np.zeros(0), int(size), chosen, radius, ridge,
        feature_bound=feature_bound, target_bound=target_bound,
    )  # fmt: skip
    exponent(empty, mechanism, row_epsilon, relation)
    listed = top_of(mechanism, top, candidates, empty.size)
    if mechanism == "mistakes":
        assumptions += (GAP_CONDITION,)
    assumptions += () if recorded else (UNRECORDED,)
    if seed is not None:
        assumptions += (SEEDED,)
    if diagnostics is not None:
        assumptions += (PUBLIC_DATA,)
    event = Event.of(mechanism, epsilon=str(amount), **({} if listed is None else {"top": listed}))
    return Request(
        Guarantee(amount, 0, relation, unit, event, assumptions, declaration),
        row_epsilon,
        mechanism,
        listed,
        empty.loss,
        empty.size,
        empty.radius,
        empty.ridge,
        empty.feature_bound,
        empty.target_bound,
        seed,
        diagnostics is not None,
    )


def seed_of(random_state: Any) -> int | None:
    """Return the noise seed.

    Raises
    ------
    ParameterError
        Unless it is None or an int >= 0.
    """
    if random_state is None:
        return None
    if _is_count(random_state, least=0):
        return int(random_state)
    raise ParameterError(
        f"The 'random_state' parameter is a {type(random_state).__name__}.",
        "Pass None (operating system entropy, the only certified state) or an int >= 0 for tests.",
    )


def _is_count(value: Any, least: int = 1) -> bool:
    import numpy as np

    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def _is_real(value: Any) -> bool:
    import numpy as np

    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
