"""Private gradients gone wrong: half the sensitivity of a replaced label, and labels that meet every row."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit.museum.piece import Piece, claim, vectorised
from confide.audit.neighbours import Rows
from confide.audit.registry import Claim, Floats, Pair
from confide.mechanisms import (
    RandomStream,
    Statistic,
    gaussian_release,
    padded_sensitivity,
    round_toward_zero,
)
from confide.privacy import gaussian_epsilon, round_up

_DELTA = Fraction(1, 1000)
_MULTIPLIER = 2.0
_CLIP = 1.0
_STEP = 2.0**-20
Gradients = Callable[[Rows], Floats]


def _rows(*labels: float) -> Rows:
    y = np.array(labels)
    return Rows(np.column_stack([np.ones(y.size), np.zeros(y.size)]), y)


#: One of nine labels flips, and with it the sign of their sum.
_TABLES = (
    Pair("a label flips", _rows(1, 1, 1, 1, 1, -1, -1, -1, -1), _rows(-1, 1, 1, 1, 1, -1, -1, -1, -1)),
    Pair("a label beyond the bounds", _rows(1, *[0.0] * 8), _rows(-1e308, *[0.0] * 8)),
)


def _each(rows: Rows) -> Floats:
    """Return the residual of each row at the parameter 0, [n]."""
    return np.zeros(rows.y.size) - rows.y


def _broadcast(rows: Rows) -> Floats:
    """Return the same where labels are a column: [n] - [n, 1] is [n, n], whose sums meet every label."""
    with np.errstate(all="ignore"):
        return (np.zeros(rows.y.size) - rows.y[:, None]).sum(axis=0)


def _step(residuals: Gradients, sensitivity: float) -> Callable[[Rows, int, RandomStream], Floats]:
    """Return one noisy sum of clipped gradients."""

    def draw(rows: Rows, size: int, stream: RandomStream) -> Floats:
        gradients = np.clip(residuals(rows), -_CLIP, _CLIP)[:, None] * rows.X
        total = round_toward_zero(gradients, _STEP).sum(axis=0)
        padded = padded_sensitivity(sensitivity, _STEP, 2)
        one = Statistic(np.tile(total, (size, 1)), _STEP, padded, "gradient")
        return gaussian_release(one, _MULTIPLIER, stream=stream)

    return draw


def _trained(name: str, residuals: Gradients, sensitivity: float) -> Claim:
    epsilon = round_up(gaussian_epsilon(_MULTIPLIER, _DELTA))
    draw: Any = _step(residuals, sensitivity)
    return claim(name, epsilon, _DELTA, "replace_label", _TABLES, quick=100_000, **vectorised(draw))


PIECES = (
    Piece(
        "half_sensitivity",
        "A replaced label is accounted with c, the norm of one gradient, where the sum moves by 2 c.",
        lambda: _trained("half_sensitivity", _each, _CLIP), lambda: _trained("step", _each, 2 * _CLIP),
        ("replay", "black box"),
    ),
    Piece(
        "broadcast_loss",
        "Labels of shape [n, 1] against predictions [n]: every row's gradient holds every label.",
        lambda: _trained("broadcast_loss", _broadcast, 2 * _CLIP), lambda: _trained("step", _each, 2 * _CLIP),
        ("replay", "black box"),
    ),
)  # fmt: skip
