"""Conditioning that changes during training, without a jump in the function (Switch-Cond-DP).

v = Theta C x for every stage's C; entering a stage, Theta_new = Theta C_old C_new^+, so Theta_new C_new x =
Theta C_old x for all public rows x whenever what C_old sees of them C_new sees too, which is checked on the
public rows. From any C to the identity that is Theta C, for a singular C as well. Averages and velocities
are in the units of parameters and are mapped alike; first and second moments of gradients are of coordinates
that are gone, and start again.

=======================  ============================================================================
``switch``               stages
=======================  ============================================================================
None                     one
epoch (integral, >= 1)   the given conditioning, then the identity after so many epochs; 2.0 is 2
share (float in (0, 1))  the same, after that share of all steps
``"anneal"``             from power(p) to the identity in `STAGES` equal stages of falling p; the given
                         conditioning is ``spectral`` (p = 1) or ``power``
=======================  ============================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.training.conditioning import conditioning_matrix
from confide.training.sgd.arrays import Floats
from confide.training.sgd.models import Block

#: Stages of an anneal, the last one being the identity.
STAGES = 5
#: Relative movement of the conditioned rows at a switch that counts as rounding.
_JUMP = 1e-6


@dataclass(frozen=True)
class Kind:
    """A conditioning by name, from step `start` (0, 1, ...) on."""

    start: int
    kind: str = "identity"
    power: float = 0.5
    rho: float = 0.1


@dataclass(frozen=True)
class Stage:
    """From step `start` on, rows are C x.

    Attributes
    ----------
    start : int
    matrix : ndarray of shape (p, p) or None
        C; None is the identity.
    change : ndarray of shape (p, p) or None
        R with Theta_new = Theta R on entering; None where nothing changes, as for the first stage.
    """

    start: int = 0
    matrix: Floats | None = None
    change: Floats | None = None


def kinds(kind: str, power: float, rho: float, switch: Any, steps: int, epoch: int) -> tuple[Kind, ...]:
    """Return the conditionings of a run.

    Parameters
    ----------
    kind, power, rho
        The conditioning to begin with.
    switch : None, number or "anneal"
    steps, epoch : int
        Steps in all, and in an epoch.

    Raises
    ------
    ParameterError
    """
    first = Kind(0, kind, power, rho)
    if switch is None:
        return (first,)
    if isinstance(switch, str) and switch == "anneal" and kind in ("spectral", "power"):
        top = 1.0 if kind == "spectral" else power
        starts = [round(steps * k / STAGES) for k in range(STAGES)]
        made = [Kind(s, "power", top * (1 - k / (STAGES - 1))) for k, s in enumerate(starts[:-1])]
        return (*made, Kind(starts[-1], "identity"))
    if isinstance(switch, int | float | np.integer | np.floating) and not isinstance(switch, bool):
        value = float(switch)
        if 0 < value < 1:
            return first, Kind(max(1, round(value * steps)), "identity")
        if value >= 1 and value.is_integer():
            return first, Kind(int(value) * epoch, "identity")
    raise ParameterError(
        f"The 'switch' parameter is {switch!r:.80} with conditioning {kind!r}.",
        "Pass None, an epoch >= 1, a share of the steps in (0, 1), or 'anneal' (spectral or power).",
    )


def stages(X: Floats, wanted: tuple[Kind, ...]) -> tuple[Stage, ...]:
    """Return the stages of a run over public rows X [n, p].

    Raises
    ------
    UnsupportedError
        If a conditioning does not see a direction of the public rows that the one before it sees.
    """
    made: list[Stage] = []
    for item in wanted:
        C = None
        if item.kind != "identity" and X.shape[1]:
            C = conditioning_matrix(X, item.kind, p=item.power, rho=item.rho)
        made.append(Stage(item.start, C, _change(X, made[-1].matrix, C) if made else None))
    return tuple(made)


def _change(X: Floats, old: Floats | None, new: Floats | None) -> Floats | None:
    """Return R with Theta_new = Theta R, or None where nothing changes."""
    if old is None and new is None:
        return None
    p = X.shape[1]
    before = np.eye(p) if old is None else old
    if new is None:
        return before
    R = before @ np.linalg.pinv(new, rcond=1e-13)
    image = X @ before.T
    jump = float(np.abs(image - X @ (R @ new).T).max(initial=0.0))
    if not jump <= _JUMP * float(np.abs(image).max(initial=0.0)):
        raise UnsupportedError(
            "The conditioning switched to is blind to a direction of the public rows.",
            "Switch to 'identity', or to a conditioning with the same cut-off.",
        )
    return R


def mapping(blocks: tuple[Block, ...], public: int, R: Floats) -> Callable[[Floats], None]:
    """Return the function that changes a parameter vector's coordinates in place."""

    def apply(vector: Floats) -> None:
        for block in blocks:
            view = block.view(vector, public)
            view[...] = view @ R

    return apply


def check_blocks(blocks: tuple[Block, ...] | None) -> tuple[Block, ...]:
    """Return the blocks, or refuse a model that public columns enter otherwise than linearly."""
    if blocks is None:
        raise UnsupportedError(
            "A factorisation machine squares single columns, which no other conditioning re-expresses.",
            "Pass switch=None, or model='linear' or 'mlp'.",
        )
    return blocks
