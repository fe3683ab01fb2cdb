"""Losses of the strongly convex certificate: slope at most 1 in the logit, curvature bounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from confide.errors import UnsupportedError

Floats = NDArray[np.float64]


class BinaryLoss(Protocol):
    """A loss of the logit z and a label in {-1, +1}: convex, slope within [-1, 1].

    Attributes
    ----------
    name : str
    at_zero : float
        Value at z = 0.
    curvature : float
        Largest second derivative.
    relabelled : float
        Largest change of the slope when the label turns.
    label_free : bool
        Whether the second derivative is the same for both labels.
    """

    @property
    def name(self) -> str:
        """Name."""
        ...

    @property
    def at_zero(self) -> float:
        """Value at z = 0."""
        ...

    @property
    def curvature(self) -> float:
        """Largest second derivative."""
        ...

    @property
    def relabelled(self) -> float:
        """Largest change of the slope when the label turns."""
        ...

    @property
    def label_free(self) -> bool:
        """Whether the second derivative is the same for both labels."""
        ...

    def steepest(self, u: float) -> float:
        """Return the largest |slope| where |z| <= u, growing in u."""
        ...

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return the loss of each row."""
        ...

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return the derivative in z."""
        ...

    def bend(self, z: Floats, y: Floats) -> Floats:
        """Return the second derivative (of one side, where it jumps)."""
        ...

    def least_bend(self, z: Floats, y: Floats, u: Floats) -> Floats:
        """Return the least second derivative over [z - u, z + u]; broadcasts."""
        ...

    def most_least_bend(self, u: Floats) -> Floats:
        """Return c(u): the largest over z of `least_bend`, falling in u."""
        ...


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(-y z)): curvature s(1 - s) <= 1/4, largest at 0 and falling in |z|."""

    name: str = "logistic"
    at_zero: float = 0.6931471805599454
    curvature: float = 0.25
    relabelled: float = 1.0
    label_free: bool = True

    def steepest(self, u: float) -> float:
        """See `BinaryLoss`."""
        return 1.0 / (1.0 + math.exp(-min(u, 700.0)))

    def value(self, z: Floats, y: Floats) -> Floats:
        """See `BinaryLoss`."""
        return np.logaddexp(0.0, -y * z)

    def slope(self, z: Floats, y: Floats) -> Floats:
        """See `BinaryLoss`."""
        e = np.exp(-np.abs(z))
        return -y * np.where(y * z > 0, e, 1.0) / (1.0 + e)

    def bend(self, z: Floats, y: Floats) -> Floats:
        """See `BinaryLoss`."""
        return self.most_least_bend(np.abs(z))

    def least_bend(self, z: Floats, y: Floats, u: Floats) -> Floats:
        """See `BinaryLoss`: at the end farther from 0."""
        return self.most_least_bend(np.abs(z) + u)

    def most_least_bend(self, u: Floats) -> Floats:
        """See `BinaryLoss`: the interval around 0."""
        e = np.exp(-u)
        return e / ((1.0 + e) * (1.0 + e))


@dataclass(frozen=True)
class HuberHinge:
    """The hinge with its corner rounded within `width` of margin 1: curvature 1 / (2 width) there, else 0."""

    width: float = 0.5
    name: str = "huber_hinge"
    relabelled: float = 2.0
    label_free: bool = False

    def steepest(self, u: float) -> float:
        """See `BinaryLoss`."""
        return min(1.0, (1.0 + u + self.width) / (2.0 * self.width))

    @property
    def at_zero(self) -> float:
        """Value at z = 0."""
        return 1.0

    @property
    def curvature(self) -> float:
        """Largest second derivative."""
        return 0.5 / self.width

    def value(self, z: Floats, y: Floats) -> Floats:
        """See `BinaryLoss`."""
        short = 1.0 - y * z
        rounded = (short + self.width) ** 2 / (4.0 * self.width)
        return np.where(short >= self.width, short, np.where(short <= -self.width, 0.0, rounded))

    def slope(self, z: Floats, y: Floats) -> Floats:
        """See `BinaryLoss`."""
        return -y * np.clip((1.0 - y * z + self.width) / (2.0 * self.width), 0.0, 1.0)

    def bend(self, z: Floats, y: Floats) -> Floats:
        """See `BinaryLoss`."""
        return self.least_bend(z, y, np.zeros(1))

    def least_bend(self, z: Floats, y: Floats, u: Floats) -> Floats:
        """See `BinaryLoss`: full where the whole interval lies inside the rounded corner."""
        return np.where(np.abs(1.0 - y * z) + u < self.width, self.curvature, 0.0)

    def most_least_bend(self, u: Floats) -> Floats:
        """See `BinaryLoss`."""
        return np.where(u < self.width, self.curvature, 0.0)


def softmax_steepest(u: float, classes: int) -> float:
    """Return the largest norm of the softmax loss's gradient in the logits where weights have norm <= u.

    Two logits of a row of norm 1 differ by at most sqrt 2 u, so p_y >= 1 / (1 + (C-1) e^(sqrt 2 u)), and no
    probability is above 1 / (1 + (C-1) e^(-sqrt 2 u)). ||p - e_y||^2 = (1 - p_y)^2 + sum_{c != y} p_c^2 is at
    most (1 - p_y) (1 - p_y + max_c p_c). Between sqrt(1 - 1/C) and sqrt 2, growing.
    """
    e = math.exp(-min(math.sqrt(2.0) * u, 700.0))
    others = classes - 1.0
    missing = others / (others + e)
    largest = 1.0 / (1.0 + others * e)
    return math.sqrt(missing * (missing + largest))


def binary_loss(name: str) -> BinaryLoss:
    """Return a loss by its name."""
    losses: dict[str, BinaryLoss] = {"logistic": Logistic(), "huber_hinge": HuberHinge()}
    if name not in losses:
        raise UnsupportedError(
            f"The 'loss' parameter is {name!r}.", f"Pass one of {', '.join(map(repr, losses))}."
        )
    return losses[name]
