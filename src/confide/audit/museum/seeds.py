"""Noise of the right law from the wrong place: a seed, the clock, words that were used before."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit.museum.piece import Piece, claim
from confide.audit.registry import Claim, Floats, Pair
from confide.mechanisms import RandomStream, Statistic, laplace_release, seeded_stream

_PAIRS = (Pair("0 against 1", 0, 1),)
_STEP = 2.0**-20
_CELLS = 8


class _Again:
    """A stream that reads words of another and hands out those that it read first."""

    def __init__(self, source: RandomStream) -> None:
        self._source = source
        self._first: dict[int, Any] = {}

    @property
    def certified(self) -> bool:
        """As its source."""
        return self._source.certified

    def bits(self, count: int) -> Any:
        """Return as many words, the same each time."""
        return self._first.setdefault(count, self._source.bits(count))

    def child(self, name: str) -> _Again:
        """Return this stream."""
        return self


def _released(value: int, stream: RandomStream, name: str = "value") -> Floats:
    statistic = Statistic(np.full(_CELLS, round(value / _STEP)), _STEP, 1.0, name)
    return laplace_release(statistic, Fraction(1, 2), l1_sensitivity=float(_CELLS), stream=stream)


def _fixed(value: int, stream: RandomStream) -> Floats:
    return _released(value, seeded_stream(1))


def _clock(value: int, stream: RandomStream) -> Floats:
    return _released(value, seeded_stream(time.time_ns()))


def _twice(value: int, stream: RandomStream) -> Floats:
    """Return two releases, of the value and of 0, on the same words."""
    source = _Again(stream)
    return np.concatenate([_released(value, source), _released(0, source, "nothing")])


def _apart(value: int, stream: RandomStream) -> Floats:
    return np.concatenate(
        [_released(value, stream.child("value")), _released(0, stream.child("nothing"), "nothing")]
    )


def _promise(name: str, run: Callable[[Any, RandomStream], Floats], quick: int) -> Callable[[], Claim]:
    return lambda: claim(name, 1, 0, "replace_one", _PAIRS, run, quick=quick)


PIECES = (
    Piece(
        "seeds.fixed",
        "All noise is from one seed, which is in the code: whoever has it subtracts the noise.",
        _promise("seeds.fixed", _fixed, 600), _promise("fresh.fixed", _released, 600),
        ("entropy", "black box"),
    ),
    Piece(
        "seeds.clock",
        "The clock is the seed: its law is right, and whoever knows the hour tries all seeds.",
        _promise("seeds.clock", _clock, 0), _promise("fresh.clock", _released, 0),
        ("entropy",),
    ),
    Piece(
        "seeds.twice",
        "A second release uses the random words of the first: the difference has no noise.",
        _promise("seeds.twice", _twice, 600), _promise("fresh.twice", _apart, 600),
        ("entropy", "black box"),
    ),
)  # fmt: skip
