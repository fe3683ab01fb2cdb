"""Budgets spent twice: every release is right by itself, and together they cost more than is said.

Each runs two releases of one value, whose noise the claim's epsilon must be divided among.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from confide.audit.museum.piece import Piece, claim, vectorised
from confide.audit.registry import Claim, Floats, Pair
from confide.ledger import charged
from confide.mechanisms import RandomStream, Statistic, gaussian_release, laplace_release
from confide.privacy import Adjacency, Event, Guarantee, gaussian_sigma

_DELTA = Fraction(1, 1000)
_HALF = Fraction(1, 2)
_STEPS = 9
_SIGMA = gaussian_sigma(1, _DELTA)
Draw = Callable[[int, int, RandomStream], Floats]
_PAIRS = (Pair("0 against 1", 0, 1),)


def _value(value: int, size: int) -> Statistic:
    """Return so many copies side by side, whose noise is independent."""
    return Statistic(np.full(size, value), 1.0, 1.0, "value")


def _steps(multiplier: float) -> Draw:
    def draw(value: int, size: int, stream: RandomStream) -> Floats:
        return np.column_stack(
            [
                gaussian_release(_value(value, size), multiplier, stream=stream.child(str(step)))
                for step in range(_STEPS)
            ]
        )

    return draw


def _parts(first: Fraction, rest: Fraction) -> Draw:
    """Release a value for a first epsilon, as a prior is, and once more for the rest."""

    def draw(value: int, size: int, stream: RandomStream) -> Floats:
        return np.column_stack(
            [
                laplace_release(_value(value, size), amount, l1_sensitivity=1.0, stream=stream.child(name))
                for name, amount in (("first", first), ("rest", rest))
            ]
        )

    return draw


def _charged(said: Fraction) -> Draw:
    """Release a value twice for 1/2 under a charge of 1, whose event says another epsilon of each."""
    event = Event.of("laplace", epsilon=str(said), count=2)
    parts = _parts(_HALF, _HALF)

    def draw(value: int, size: int, stream: RandomStream) -> Floats:
        with charged(None, Guarantee(1, 0, Adjacency.REPLACE_ONE, "row", event, ("unrecorded",))):
            return parts(value, size, stream)

    return draw


def _claim(name: str, draw: Draw, delta: Fraction = Fraction(0)) -> Callable[[], Claim]:
    return lambda: claim(name, 1, delta, "replace_one", _PAIRS, **vectorised(draw))


PIECES = (
    Piece(
        "prices.steps",
        "Each of several Gaussian steps has the noise of one: the root of their number is forgotten.",
        _claim("steps", _steps(_SIGMA), _DELTA),
        _claim("composed", _steps(_SIGMA * math.sqrt(_STEPS)), _DELTA),
        ("price", "black box"),
    ),
    Piece(
        "prices.whole_twice",
        "A first release, as of a prior, and the rest have the whole epsilon each.",
        _claim("whole_twice", _parts(Fraction(1), Fraction(1))),
        _claim("halves", _parts(_HALF, _HALF)),
        ("price", "black box"),
    ),
    Piece(
        "prices.cheap_event",
        "The charge is right, and the event that a ledger composes with others says half of it.",
        _claim("cheap_event", _charged(_HALF / 2)),
        _claim("true_event", _charged(_HALF)),
        ("price",),
    ),
)
