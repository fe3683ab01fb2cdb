"""Steps on released gradients: post-processing, so nothing here costs privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from confide.errors import ParameterError
from confide.training.sgd.arrays import Floats


class Optimizer(Protocol):
    """Turns a noisy mean gradient into a step, in place."""

    state: dict[str, Floats]

    def step(self, parameters: Floats, gradient: Floats, rate: float) -> None:
        """Move `parameters` (in place)."""
        ...

    def switched(self, block: Any) -> None:
        """Forget or map what refers to coordinates that `switch` changes (`confide.training.sgd.switch`)."""
        ...


@dataclass
class Momentum:
    """Gradient descent with heavy-ball momentum: u = m u + g, theta -= rate u."""

    momentum: float = 0.0
    state: dict[str, Floats] = field(default_factory=dict)

    def step(self, parameters: Floats, gradient: Floats, rate: float) -> None:
        """Move `parameters`."""
        if self.momentum:
            held = self.state.get("velocity")
            if held is None:
                held = self.state["velocity"] = np.zeros_like(parameters)
            held *= self.momentum
            held += gradient
            gradient = held
        parameters -= rate * gradient

    def switched(self, block: Any) -> None:
        """Map the velocity: it moves parameters, so it changes coordinates as they do."""
        if "velocity" in self.state:
            block(self.state["velocity"])


@dataclass
class Adam:
    """Adam (Kingma & Ba 2015) on noisy gradients; `epsilon` is added to the root of the second moment."""

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    state: dict[str, Floats] = field(default_factory=dict)

    def step(self, parameters: Floats, gradient: Floats, rate: float) -> None:
        """Move `parameters`."""
        if not self.state:
            self.state.update(
                first=np.zeros_like(parameters), second=np.zeros_like(parameters), count=np.zeros(1)
            )
        first, second, count = self.state["first"], self.state["second"], self.state["count"]
        count += 1.0
        t = float(count[0])
        fast, slow = self.betas
        first *= fast
        first += (1 - fast) * gradient
        second *= slow
        second += (1 - slow) * (gradient * gradient)
        root = np.sqrt(second / (1 - slow**t))
        root += self.epsilon
        parameters -= (rate / (1 - fast**t)) * (first / root)

    def switched(self, block: Any) -> None:
        """Start again: second moments are of coordinates that are gone, and the bias correction with them."""
        self.state.clear()


def make_optimizer(
    name: str, *, momentum: float = 0.9, betas: tuple[float, float] = (0.9, 0.999)
) -> Optimizer:
    """Return a fresh optimizer.

    Parameters
    ----------
    name : {"adam", "sgd"}
    momentum : float
        In [0, 1), of ``sgd``.
    betas : pair of float
        In [0, 1), of ``adam``.
    """
    if name == "adam" and len(betas) == 2 and all(0 <= b < 1 for b in betas):
        return Adam(tuple(map(float, betas)))  # type: ignore[arg-type]
    if name == "sgd" and 0 <= momentum < 1:
        return Momentum(float(momentum))
    raise ParameterError(
        f"The 'optimizer' parameter is {name!r:.80} with momentum {momentum!r:.20} and betas {betas!r:.40}.",
        "Pass 'adam' with two betas in [0, 1), or 'sgd' with a momentum in [0, 1).",
    )


@dataclass
class Average:
    """Running mean of the iterates after the first `burn` steps; cheaper noise than the last one's.

    The average of released iterates is post-processing.
    """

    burn: int
    count: int = 0
    mean: Floats | None = None

    def add(self, step: int, parameters: Floats) -> None:
        """Take in the iterate after `step` (1, 2, ...)."""
        if step <= self.burn:
            return
        self.count += 1
        if self.mean is None:
            self.mean = parameters.copy()
        else:
            self.mean += (parameters - self.mean) / self.count

    def value(self, parameters: Floats) -> Floats:
        """Return the mean, or the last iterate before there is one."""
        return parameters.copy() if self.mean is None else self.mean.copy()


def learning_rates(rate: float, steps: int, schedule: str) -> Floats:
    """Return the rate of each step: constant, or falling to 0 along half a cosine.

    Raises
    ------
    ParameterError
    """
    if not (isinstance(rate, int | float) and 0 < rate < math.inf) or isinstance(rate, bool):
        raise ParameterError(f"The 'learning_rate' parameter is {rate!r:.80}.", "Pass a finite number > 0.")
    if schedule == "constant":
        return np.full(steps, float(rate))
    if schedule == "cosine":
        return rate * 0.5 * (1.0 + np.cos(np.pi * np.arange(steps) / steps))
    raise ParameterError(f"The 'schedule' parameter is {schedule!r:.80}.", "Pass 'constant' or 'cosine'.")
