"""How a model is trained: public numbers alone, checked before any data is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from confide.errors import ParameterError

#: Other names of the same things, as in the tables of cases.
_ALIASES = {
    "n_epochs": "epochs",
    "lr_decay": "learning_rate_decay",
    "lr_min": "learning_rate_min",
    "clip_gamma": "clip",
    "clip_method": "clip_by",
    "l2_reg": "weight_decay",
}
_CLIPS = {"value": "value", "clamp": "value", "norm": "norm"}
_LOSSES = ("cross_entropy", "binary_cross_entropy")


@dataclass(frozen=True)
class Hyperparameters:
    """Gradient descent with clipped rows.

    A batch's descent direction is d = (sum of clipped row gradients)/divisor and g = d + weight_decay theta;
    velocity v = momentum v + g (at the start 0); the step is -rate times v, or times g + momentum v with
    Nesterov. Step t = 0, 1, ... (over all epochs) has the rate max(learning_rate/(1 + learning_rate_decay t),
    learning_rate_min).

    Parameters
    ----------
    learning_rate : float
        > 0.
    clip : float
        > 0 and finite: without it one row may move the model anywhere, and nothing is certified.
    epochs : int
    clip_by : {"value", "norm"}
        Each coordinate of a row's gradient is cut to [-clip, clip], or the gradient is scaled to norm <= clip
        (and, at no cost, cut). The clip is rounded down within a relative 4e-12.
    momentum : float
        In [0, 1).
    nesterov : bool
    weight_decay : float
        >= 0; biases too.
    learning_rate_decay, learning_rate_min : float
        >= 0.

    Raises
    ------
    ParameterError
        For any other value.
    """

    learning_rate: float
    clip: float
    epochs: int = 1
    clip_by: str = "value"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    learning_rate_decay: float = 0.0
    learning_rate_min: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("learning_rate", 5e-324), ("clip", 1e-100), ("momentum", 0), ("weight_decay", 0),
                            ("learning_rate_decay", 0), ("learning_rate_min", 0)):  # fmt: skip
            value = _number(name, getattr(self, name))
            if not least <= value <= 1e100:
                raise ParameterError(
                    f"The '{name}' parameter is {value!r}.", "Pass a finite number >= 0 (rate and clip: > 0)."
                )
            object.__setattr__(self, name, value)
        if self.momentum >= 1:
            raise ParameterError(
                f"The 'momentum' parameter is {self.momentum!r}.", "Pass a number in [0, 1)."
            )
        if isinstance(self.epochs, bool) or int(self.epochs) != self.epochs or self.epochs < 0:
            raise ParameterError(f"The 'epochs' parameter is {self.epochs!r:.80}.", "Pass an integer >= 0.")
        object.__setattr__(self, "epochs", int(self.epochs))
        if self.clip_by not in _CLIPS:
            raise ParameterError(
                f"The 'clip_by' parameter is {self.clip_by!r:.80}.", "Pass 'value' or 'norm'."
            )
        object.__setattr__(self, "clip_by", _CLIPS[self.clip_by])

    @classmethod
    def of(cls, values: Hyperparameters | Mapping[str, Any], outputs: int) -> Hyperparameters:
        """Return the object for a mapping, with the names of this class or those of the case files.

        ``optimizer`` ("SGD", "SGDM"), ``optimizer_kwargs`` and ``loss`` are read too; the loss must be the
        one that the number of outputs stands for.
        """
        if isinstance(values, Hyperparameters):
            return values
        given = {_ALIASES.get(name, name): value for name, value in dict(values).items()}
        given.update(given.pop("optimizer_kwargs", {}))
        optimizer = given.pop("optimizer", "SGD")
        if optimizer not in ("SGD", "SGDM"):
            raise ParameterError(f"The 'optimizer' is {optimizer!r:.80}.", "Pass 'SGD' or 'SGDM'.")
        wanted = _LOSSES[outputs == 1]
        loss = given.pop("loss", wanted)
        if loss != wanted:
            raise ParameterError(
                f"The 'loss' is {loss!r:.80} for {outputs} outputs.",
                f"Pass {wanted!r}, or change the layers.",
            )
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise ParameterError(
                f"The 'hyperparameters' name {unknown[0]!r:.80}.", f"Known are {', '.join(sorted(known))}."
            )
        missing = {"learning_rate", "clip"} - set(given)
        if missing:
            raise ParameterError(f"The 'hyperparameters' lack {sorted(missing)}.", "Pass a public number.")
        return cls(**given)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        return max(self.learning_rate / (1 + self.learning_rate_decay * step), self.learning_rate_min)

    @property
    def grid(self) -> tuple[float, float]:
        """The clip as a multiple of a power of two, and that step: (2^37, 2^38] of them."""
        step = 2.0 ** (math.frexp(self.clip)[1] - 38)
        return math.floor(self.clip / step) * step, step


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"The '{name}' parameter is {value!r:.80}.", "Pass a number.") from None
