"""Additive noise gone wrong: textbook doubles, and a sensitivity from the wrong end of the bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit.museum.piece import Piece, claim, vectorised
from confide.audit.registry import Claim, Floats, Pair
from confide.mechanisms import RandomStream, Statistic, gaussian_release, laplace_release
from confide.privacy import gaussian_epsilon, round_up

_PAIRS = (Pair("0 against 1", 0.0, 1.0), Pair("1/3 against 4/3", 1 / 3, 4 / 3))
_DELTA = Fraction(1, 1000)
_STEP = 2.0**-20
_SIGMA = 2.0


def _uniform(size: int, stream: RandomStream) -> Floats:
    """Return numbers k 2^-53 in (0, 1), as textbooks have them."""
    words = stream.bits(size) >> np.uint64(11)
    return (words.astype(np.float64) + 0.5) * 2.0**-53


def _textbook_laplace(value: float, size: int, stream: RandomStream) -> Floats:
    u = _uniform(size, stream) - 0.5
    return value - np.sign(u) * np.log1p(-2 * np.abs(u))


def _float_gaussian(value: float, size: int, stream: RandomStream) -> Floats:
    radius = np.sqrt(-2 * np.log(_uniform(size, stream)))
    return value + _SIGMA * radius * np.cos(2 * math.pi * _uniform(size, stream))


def _units(value: float, size: int) -> Statistic:
    return Statistic(np.full(size, math.floor(value / _STEP), dtype=np.int64), _STEP, 1.0 + _STEP, "value")


def _laplace(value: float, size: int, stream: RandomStream) -> Floats:
    return laplace_release(_units(value, size), 1, l1_sensitivity=1.0 + _STEP, stream=stream)


def _gaussian(value: float, size: int, stream: RandomStream) -> Floats:
    return gaussian_release(_units(value, size), _SIGMA, stream=stream)


def _added(name: str, draw: Callable[..., Any], epsilon: Any, delta: Any) -> Callable[[], Claim]:
    return lambda: claim(name, epsilon, delta, "replace_one", _PAIRS, quick=5_000, **vectorised(draw))


_CORNERS = (
    Pair("one corner against the other", (1.0, 1.0), (0.0, 0.0)),
    Pair("one end in one column", (1.0, 1.0), (1.0, 0.0)),
)


def _moments(lower: float, upper: float, *, right: bool) -> Callable[[Any, int, RandomStream], Floats]:
    """Return a release of all products of two columns within [lower, upper], over 3 rows and the one told.

    Wrong: the width of a diagonal term is taken from the lower end twice, lower * lower.
    """
    others = np.array([[0.25, 0.5], [0.75, 0.5], [0.5, 0.5]])
    span = max(abs(lower), abs(upper)) ** 2

    def draw(row: tuple[float, float], size: int, stream: RandomStream) -> Floats:
        cells = np.vstack([others, np.clip(row, lower, upper)])
        told = []
        for i in range(2):
            for j in range(2):
                width = span if right or i != j else lower * lower
                total = float(cells[:, i] @ cells[:, j])
                if width == 0:
                    told.append(np.full(size, total))
                    continue
                statistic = Statistic(np.full(size, round(total / _STEP)), _STEP, width, f"moment {i}{j}")
                child = stream.child(f"{i}{j}")
                told.append(laplace_release(statistic, Fraction(1, 4), l1_sensitivity=width, stream=child))
        return np.column_stack(told)

    return draw


def _second_moments(*, right: bool) -> Claim:
    return claim(
        "unit_bounds",
        1,
        0,
        "replace_one",
        _CORNERS,
        quick=4_000,
        **vectorised(_moments(0.0, 1.0, right=right)),
    )


_EPSILON = round_up(gaussian_epsilon(_SIGMA, _DELTA))
PIECES = (
    Piece(
        "textbook_laplace",
        "Inverse-CDF noise in doubles: which doubles can come out depends on the value (Mironov 2012).",
        _added("textbook_laplace", _textbook_laplace, 1, 0), _added("laplace", _laplace, 1, 0),
        ("support", "replay"),
    ),
    Piece(
        "float_gaussian",
        "Box-Muller noise in doubles: the same holes (Jin, McMurtry, Rubinstein & Ohrimenko 2022).",
        _added("float_gaussian", _float_gaussian, _EPSILON, _DELTA),
        _added("gaussian", _gaussian, _EPSILON, _DELTA),
        ("support", "replay"),
    ),
    Piece(
        "unit_bounds",
        "Bounds [0, 1]: the width of a square is taken from the lower end twice, 0, and gets no noise.",
        lambda: _second_moments(right=False), lambda: _second_moments(right=True),
        ("black box", "replay"),
    ),
)  # fmt: skip
