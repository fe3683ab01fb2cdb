"""What a user asks of a fit, validated before any data is read and any budget is written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from confide.errors import ParameterError, UnsupportedError
from confide.privacy import NONPRIVATE, SEEDED, UNRECORDED, Adjacency, Event, Guarantee, exact, gaussian_sigma
from confide.training.conditioning import KINDS

#: Engines of this room, and what each needs. A new engine is a solver file and a line here.
ENGINES = ("rounds", "closed_form")
#: Engine of a request that names none.
DEFAULT = "rounds"


@dataclass(frozen=True)
class Request:
    """A validated request.

    Attributes
    ----------
    guarantee : Guarantee
        What will be charged.
    noise_multiplier : float
        Noise deviation over L2 sensitivity; 0 for a non-private fit.
    engine : str
    conditioning : str or None
        None: the engine's own choice.
    power, rho : float
        Options of the conditioning.
    leverage : float or None
    shrinkage : bool
    seed : int or None
    """

    guarantee: Guarantee
    noise_multiplier: float
    engine: str
    conditioning: str | None
    power: float
    rho: float
    leverage: float | None
    shrinkage: bool
    seed: int | None

    @property
    def nonprivate(self) -> bool:
        """Whether nothing is protected."""
        return self.noise_multiplier == 0

    def shared(self, multipliers: Sequence[float]) -> Request:
        """Return the request with its event as the Gaussian releases that share its budget.

        Their composition is the one Gaussian release that was announced, so that epsilon and delta stay:
        sum 1 / m^2 <= 1 / noise_multiplier^2 is checked in exact rationals.
        """
        total = sum((1 / Fraction(value) ** 2 for value in multipliers), Fraction(0))
        if total > 1 / Fraction(self.noise_multiplier) ** 2:
            raise AssertionError("The rounds spend more than their budget.")
        event = Event.sequence(Event.of("gaussian", noise_multiplier=value) for value in multipliers)
        return replace(self, guarantee=replace(self.guarantee, event=event))


def make_request(
    *,
    epsilon: Any,
    delta: Any,
    adjacency: Adjacency,
    unit: str = "row",
    declaration: str = "",
    engine: str = DEFAULT,
    conditioning: Any = None,
    leverage: float | None = None,
    shrinkage: bool = True,
    random_state: Any = None,
    assumptions: tuple[str, ...] = (),
    recorded: bool = False,
    nonprivate: bool = False,
) -> Request:
    """Check every parameter and calibrate the noise.

    Parameters
    ----------
    epsilon, delta : amount
        Total of the call. ``epsilon=inf`` only with ``nonprivate=True``; epsilon = 0 and delta = 0 cannot be
        met by Gaussian noise.
    adjacency : Adjacency
    unit, declaration : str
        Of the guarantee.
    engine : str
    conditioning : str or tuple, optional
        A kind, or ``("power", p)``, ``("ridge", rho)``; None leaves it to the engine.
    leverage : float, optional
        Leverage quantile in (0, 1] from which rows are shortened; None chooses, 1 shortens none.
    shrinkage : bool
    random_state : int, optional
        None draws from the operating system; an int is for tests and marks the guarantee ``"seeded"``.
    assumptions : tuple of str
        What the guarantee rests on besides.
    recorded : bool
        Whether a ledger records the release; else the guarantee is marked ``"unrecorded"``.
    nonprivate : bool

    Raises
    ------
    ParameterError, UnsupportedError
    """
    if engine not in ENGINES:
        raise UnsupportedError(
            f"The 'engine' parameter is {engine!r}.", f"Pass one of {', '.join(map(repr, ENGINES))}."
        )
    kind, power, rho = _conditioning(conditioning)
    if leverage is not None and not (_real(leverage) and 0 < leverage <= 1):
        raise ParameterError(
            f"The 'leverage' parameter is {leverage!r}.", "Pass a quantile in (0, 1], or None to choose."
        )
    if not isinstance(shrinkage, bool):
        raise ParameterError(f"The 'shrinkage' parameter is {shrinkage!r}.", "Pass True or False.")
    seed = _seed(random_state)
    infinite = isinstance(epsilon, float) and epsilon == math.inf
    if infinite != bool(nonprivate):
        raise ParameterError(
            f"The 'epsilon' parameter is {epsilon!r} with nonprivate={nonprivate!r}.",
            "Pass a finite epsilon, or epsilon=inf together with nonprivate=True for a fit without privacy.",
        )
    assumptions += () if recorded else (UNRECORDED,)
    if seed is not None:
        assumptions += (SEEDED,)
    if infinite:
        event, amount, multiplier = Event.of("gaussian", noise_multiplier=0.0), math.inf, 0.0
        assumptions += (NONPRIVATE,)
    else:
        amount = exact(epsilon, "epsilon")
        if amount == 0:
            raise ParameterError("The 'epsilon' parameter is 0.", "Pass a positive epsilon.")
        if not 0 < exact(delta, "delta") < 1:
            raise ParameterError(
                f"The 'delta' parameter is {delta!r}; Gaussian noise needs a positive one.",
                "Pass 0 < delta < 1, well below one over the number of rows, or make the labels private with "
                "confide.training.PrivateLabelRegressor, which needs none.",
            )
        multiplier = gaussian_sigma(epsilon, delta, 1.0)
        event = Event.of("gaussian", noise_multiplier=multiplier)
    guarantee = Guarantee(amount, delta, adjacency, unit, event, assumptions, declaration)
    return Request(guarantee, multiplier, engine, kind, power, rho, leverage, shrinkage, seed)


def _conditioning(value: Any) -> tuple[str | None, float, float]:
    power, rho = 0.5, 0.1
    if value is None:
        return None, power, rho
    kind = value
    if isinstance(value, tuple) and len(value) == 2 and value[0] in ("power", "ridge") and _real(value[1]):
        kind = value[0]
        if kind == "power":
            power = float(value[1])
        else:
            rho = float(value[1])
    if not isinstance(kind, str) or kind not in KINDS or not 0 <= power <= 1 or not 0 <= rho < math.inf:
        raise ParameterError(
            f"The 'conditioning' parameter is {value!r:.80}.",
            f"Pass one of {', '.join(map(repr, KINDS))}, ('power', p) with 0 <= p <= 1, or ('ridge', rho).",
        )
    return kind, power, rho


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seed(random_state: Any) -> int | None:
    import numpy as np

    if random_state is None:
        return None
    number = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if number and random_state >= 0:
        return int(random_state)
    raise ParameterError(
        f"The 'random_state' parameter is a {type(random_state).__name__}.",
        "Pass None (operating system entropy, the only certified state) or an int >= 0 for tests.",
    )
