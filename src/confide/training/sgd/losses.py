"""Losses by what the engine asks of them: the slope in the prediction, and how far a label can move it.

``label_shift`` bounds ||l'(f, y) - l'(f, y')|| for any two labels, computed in floating point: R times the
supremum of |d2 l / df dy| (times sqrt 2 for one-hot labels), plus the rounding of the slope itself, which for
|f| far above R is more than R. With it one label moves a full-batch sum of unclipped gradients by at most
max_i label_shift(f_i) ||grad f_i||, a public number when only labels are secret.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from confide.errors import ParameterError
from confide.training.sgd.arrays import Array, Namespace

_ROUNDING = 2.0**-49


class Loss(Protocol):
    """A loss l(f, y) of predictions f [b, K] and labels y [b].

    Attributes
    ----------
    outputs : int
        K, the number of outputs of a model that it takes.
    name : str
    """

    @property
    def outputs(self) -> int:
        """Number K of outputs."""
        ...

    @property
    def name(self) -> str:
        """Registered name."""
        ...

    def slope(self, xp: Namespace, f: Array, y: Array) -> Array:
        """Return dl/df, shape [b] for one output and [b, K] for several."""
        ...

    def slope_bound(self, top: float) -> float:
        """Return a bound on the norm of the slope over all labels, where |f| <= top."""
        ...

    def label_shift(self, top: float) -> float:
        """Return a bound on the norm of the slope's change between any two labels, where |f| <= top."""
        ...


@dataclass(frozen=True)
class Squared:
    """(f - y)^2 for labels within half of `width` = R about `middle`: slope 2 (f - y), shift 2 R."""

    width: float
    middle: float = 0.0
    outputs: int = 1
    name: str = "squared"

    def slope(self, xp: Namespace, f: Array, y: Array) -> Array:
        """Return 2 (f - y), shape [b]."""
        return 2.0 * (f - y)

    def slope_bound(self, top: float) -> float:
        """Return 2 (top + |middle|) + R, rounded up."""
        return (2.0 * (top + abs(self.middle)) + self.width) * (1 + _ROUNDING)

    def label_shift(self, top: float) -> float:
        """Return 2 R + rounding."""
        return 2.0 * self.width * (1 + _ROUNDING) + _ROUNDING * (top + abs(self.middle))


@dataclass(frozen=True)
class Logistic:
    """log(1 + e^f) - y f for y in {0, 1}: slope 1/(1 + e^-f) - y, shift 1."""

    outputs: int = 1
    name: str = "logistic"

    def slope(self, xp: Namespace, f: Array, y: Array) -> Array:
        """Return sigmoid(f) - y, shape [b]."""
        return 0.5 * (1.0 + xp.tanh(0.5 * f)) - y

    def slope_bound(self, top: float) -> float:
        """Return 1 + rounding."""
        return 1.0 + _ROUNDING

    def label_shift(self, top: float) -> float:
        """Return 1 + rounding."""
        return 1.0 + _ROUNDING


@dataclass(frozen=True)
class Softmax:
    """log sum_k e^(f_k) - f_y for y in {0, ..., K - 1}: slope softmax(f) - e_y, shift sqrt 2."""

    outputs: int
    name: str = "softmax"

    def slope(self, xp: Namespace, f: Array, y: Array) -> Array:
        """Return softmax(f) - onehot(y), shape [b, K]."""
        top = xp.max(f, axis=1, keepdims=True)
        e = xp.exp(f - top)
        p = e / xp.sum(e, axis=1, keepdims=True)
        classes = xp.arange(self.outputs, dtype=f.dtype, **_device(f))
        return xp.where(xp.reshape(y, (-1, 1)) == classes, p - 1.0, p)

    def slope_bound(self, top: float) -> float:
        """Return sqrt 2 + rounding."""
        return self.label_shift(top)

    def label_shift(self, top: float) -> float:
        """Return sqrt 2 + rounding."""
        return math.sqrt(2.0) * (1 + _ROUNDING) + self.outputs * _ROUNDING


def _device(array: Array) -> dict[str, object]:
    """Return the device of an array as a keyword, nothing for NumPy (whose arange had none before 2.0)."""
    return {} if type(array).__module__ == "numpy" else {"device": array.device}


def make_loss(name: str, *, width: float = 2.0, middle: float = 0.0, classes: int = 2) -> Loss:
    """Return a loss by its name.

    Parameters
    ----------
    name : {"squared", "logistic", "softmax"}
    width : float
        R, the width of the label's interval (squared).
    middle : float
        Its middle (squared).
    classes : int
        K >= 2 (logistic takes 2).
    """
    if name == "squared":
        return Squared(width, middle)
    if name == "logistic" and classes == 2:
        return Logistic()
    if name == "softmax" and classes >= 2:
        return Softmax(classes)
    raise ParameterError(
        f"The 'loss' parameter is {name!r:.80} with {classes} classes.",
        "Pass 'squared', 'logistic' (two classes) or 'softmax'.",
    )
