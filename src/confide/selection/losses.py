"""Losses of subset selection: value, derivative, conjugate, curvature and the range one record can move.

Every loss here is a maximum over a multiplier alpha of one record,

    loss(y, z) = max over lo(y) <= alpha <= hi(y) of  -z alpha - conjugate(y, alpha),

so that alpha = -derivative(y, z) attains it, and any alpha inside the box is a certificate from below. A loss
knows nothing of mechanisms; a mechanism needs its `record_range` alone, a solver the rest.

=========  ====================================  ===============  ==============================
name       loss(y, z)                            box of alpha     conjugate(y, alpha)
=========  ====================================  ===============  ==============================
squared    (y - z)^2 / 2                         all              alpha^2 / 2 - alpha y
huber      (y - z)^2 / 2 within width, then      +-width          alpha^2 / 2 - alpha y
           linear
quantile   max(q (y - z), (q - 1)(y - z))        [q - 1, q]       -alpha y
hinge      max(0, 1 - y z)                       0 to y           -alpha y
logistic   log(1 + exp(-y z))                    0 to y           t log t + (1 - t) log(1 - t),
                                                                  t = alpha y
=========  ====================================  ===============  ==============================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError

Floats = npt.NDArray[np.float64]

#: Codes that the numba kernels dispatch on.
SQUARED, HUBER, QUANTILE, HINGE, LOGISTIC = range(5)
#: Code and labels of each name.
_KINDS = {
    "squared": (SQUARED, False),
    "huber": (HUBER, False),
    "quantile": (QUANTILE, False),
    "hinge": (HINGE, True),
    "logistic": (LOGISTIC, True),
}


@dataclass(frozen=True)
class Loss:
    """A convex loss of one record.

    Attributes
    ----------
    name : str
    code : int
        What the kernels dispatch on.
    labels : bool
        Whether y is a class, -1 or +1, rather than a number in declared bounds.
    shape : float
        Width of Huber's parabola (0: half the target bound), level of the quantile; 0 otherwise.

    Raises
    ------
    ParameterError
        For a name that is none of the five, a code or labels of another loss, a level outside (0, 1), a width
        that is not finite and >= 0: each decides M.
    """

    name: str
    code: int
    labels: bool = False
    shape: float = 0.0

    def __post_init__(self) -> None:
        kind = _KINDS.get(self.name) if isinstance(self.name, str) else None
        if kind is None or (self.code, self.labels) != kind or isinstance(self.code, bool):
            raise ParameterError(
                f"A loss is {self.name!r:.80} with code {self.code!r:.80} and labels {self.labels!r:.80}.",
                "Make it by squared(), hinge(), logistic(), huber(width) or quantile(level).",
            )
        number = isinstance(self.shape, int | float | np.number) and not isinstance(self.shape, bool)
        shape = float(self.shape) if number else math.nan
        fine = {"quantile": 0 < shape < 1, "huber": 0 <= shape < math.inf}
        if not fine.get(self.name, shape == 0):
            raise ParameterError(
                f"The shape of the loss {self.name!r} is {self.shape!r:.80}.",
                "Pass a level between 0 and 1 to quantile(), a positive width to huber(), none to others.",
            )

    def value(self, y: Floats, z: Floats) -> Floats:
        """Return loss(y, z), elementwise."""
        return _VALUES[self.name](y, z, self.shape)

    def derivative(self, y: Floats, z: Floats) -> Floats:
        """Return a derivative (a subgradient at kinks) with respect to z."""
        return _DERIVATIVES[self.name](y, z, self.shape)

    def conjugate(self, y: Floats, alpha: Floats) -> Floats:
        """Return the supremum over z of -alpha z - loss(y, z), infinite outside the box."""
        low, high = self.box(y)
        inside = (alpha >= low) & (alpha <= high)
        return np.where(inside, _CONJUGATES[self.name](y, np.clip(alpha, low, high)), math.inf)

    def box(self, y: Floats) -> tuple[Floats, Floats]:
        """Return the bounds lo(y), hi(y) of the multiplier alpha."""
        if self.name == "squared":
            return np.full_like(y, -math.inf), np.full_like(y, math.inf)
        if self.name == "huber":
            return np.full_like(y, -self.shape), np.full_like(y, self.shape)
        if self.name == "quantile":
            return np.full_like(y, self.shape - 1.0), np.full_like(y, self.shape)
        return np.minimum(y, 0.0), np.maximum(y, 0.0)

    def curvature(self, reach: float) -> float:
        """Return a lower bound on the second derivative in z wherever |z| <= `reach`."""
        if self.name == "squared":
            return 1.0
        if self.name == "logistic":
            # 1 / (4 cosh^2(reach / 2)), one part in 10^12 lower than computed; 0 where cosh overflows.
            return 0.25 / math.cosh(reach / 2) ** 2 * (1 - 1e-12) if reach < 600 else 0.0
        return 0.0

    def record_range(self, target_bound: float, reach: float) -> float:
        """Return M: the maximum over |y| <= target_bound of (max - min over |z| <= reach of loss(y, z)).

        Adding a record raises every F_S, less the constant min over z of that record, by between 0 and M
        (selection.md). The maximum over y is attained at y = target_bound for every loss here: for a convex
        function of the residual that is monotone on each side of 0, moving y outwards raises the far end
        of the interval of residuals and does not lower the range.
        """
        b, a = target_bound, reach
        if self.name == "squared":
            # A product, because a power would raise where it overflows.
            return 2 * b * a if a <= b else (b + a) * (b + a) / 2
        if self.name == "huber":
            # H(b + a) - H(max(b - a, 0)) by its linear and its square part, without cancellation.
            w, low, moved = self.shape, max(b - a, 0.0), a + min(a, b)
            if low >= w:
                return w * moved
            if b + a <= w:
                return moved * (b + a + low) / 2
            return (w - low) * (w + low) / 2 + w * (b + a - w)
        if self.name == "quantile":
            return max(self.shape, 1 - self.shape) * (a + min(a, b))
        return min(1 + a, 2 * a) if self.name == "hinge" else a

    def fitted_to(self, target_bound: float) -> Loss:
        """Return the loss with its public default shape: Huber's width is half the target bound."""
        if self.name == "huber" and not self.shape:
            return replace(self, shape=target_bound / 2)
        return self


def squared() -> Loss:
    """Return the loss (y - z)^2 / 2."""
    return Loss("squared", SQUARED)


def hinge() -> Loss:
    """Return the loss max(0, 1 - y z), y in {-1, +1}."""
    return Loss("hinge", HINGE, labels=True)


def logistic() -> Loss:
    """Return the loss log(1 + exp(-y z)), y in {-1, +1}."""
    return Loss("logistic", LOGISTIC, labels=True)


def huber(width: float | None = None) -> Loss:
    """Return Huber's loss: a parabola where abs(y - z) <= width, linear beyond.

    Parameters
    ----------
    width : float, optional
        > 0 and public; half the target bound by default.
    """
    if width is not None and not 0 < width < math.inf:
        raise ParameterError(f"The 'width' parameter is {width!r}.", "Pass a positive number.")
    return Loss("huber", HUBER, shape=float(width or 0.0))


def quantile(level: float = 0.5) -> Loss:
    """Return the pinball loss, whose best constant is the `level` quantile of y, 0 < level < 1."""
    if not 0 < level < 1:
        raise ParameterError(f"The 'level' parameter is {level!r}.", "Pass a number between 0 and 1.")
    return Loss("quantile", QUANTILE, shape=float(level))


_MAKERS: dict[str, Callable[[], Loss]] = {
    "squared": squared,
    "hinge": hinge,
    "huber": huber,
    "logistic": logistic,
    "quantile": quantile,
}


def loss_of(value: Any) -> Loss:
    """Return the loss that a name, or a loss, means.

    Raises
    ------
    ParameterError
    """
    if isinstance(value, Loss):
        return value
    if isinstance(value, str) and value in _MAKERS:
        return _MAKERS[value]()
    names = ", ".join(map(repr, _MAKERS))
    raise ParameterError(
        f"The 'loss' parameter is {value!r:.80}.", f"Pass one of {names}, or huber(width), quantile(level)."
    )


def _huber_value(y: Floats, z: Floats, width: float) -> Floats:
    size = np.abs(y - z)
    return np.where(size <= width, size * size / 2, width * (size - width / 2))


def _entropy(y: Floats, alpha: Floats) -> Floats:
    t = np.clip(alpha * y, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(t > 0, t * np.log(t), 0.0)
        return first + np.where(t < 1, (1 - t) * np.log1p(-t), 0.0)


_VALUES: dict[str, Any] = {
    "squared": lambda y, z, _: (y - z) ** 2 / 2,
    "huber": _huber_value,
    "quantile": lambda y, z, q: np.maximum(q * (y - z), (q - 1) * (y - z)),
    "hinge": lambda y, z, _: np.maximum(0.0, 1 - y * z),
    "logistic": lambda y, z, _: np.logaddexp(0.0, -y * z),
}
_DERIVATIVES: dict[str, Any] = {
    "squared": lambda y, z, _: z - y,
    "huber": lambda y, z, width: np.clip(z - y, -width, width),
    "quantile": lambda y, z, q: np.where(y > z, -q, 1 - q),
    "hinge": lambda y, z, _: np.where(y * z < 1, -y, 0.0),
    "logistic": lambda y, z, _: -y / (1 + np.exp(np.clip(y * z, -700, 700))),
}
_CONJUGATES: dict[str, Any] = {
    "squared": lambda y, alpha: alpha * alpha / 2 - alpha * y,
    "huber": lambda y, alpha: alpha * alpha / 2 - alpha * y,
    "quantile": lambda y, alpha: -alpha * y,
    "hinge": lambda y, alpha: -alpha * y,
    "logistic": _entropy,
}
