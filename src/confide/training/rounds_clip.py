"""How wide a round of `rounds` looks at the labels, and what share of them it sees, from released values.

A round looks at label t_i (in [-1, 1]) through a window about its prediction g_i:

    lo_i = max(-1, g_i - c),  hi_i = min(1, g_i + c),  v_i = (clip(t_i, lo_i, hi_i) - centre_i) / h,

centre_i the middle of the window and h = min(c, 1) a common half-width. v_i is in [-1, 1] whatever the label,
so a round has the sensitivity, and the free second moment, of `confide.training.problem`. With c >= 2 nothing
is clipped, h = 1, and the round is the engine `closed_form`.

What second moments tell of the residual, and of the share of rows inside, is in `rounds_spread`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: The share inside is held here: dividing by less would raise noise for the sake of a guess.
SHARES = (0.3, 1.0)
#: Clips are this many deviations of the residual, or more: 0.84 holds 60 % of a normal law.
_CLIPS = np.geomspace(0.84, 10.0, 30)
#: How far clipping may move the mean: SKEW times the mean excess of an exponential tail.
SKEW = 0.4


@dataclass(frozen=True)
class Window:
    """A public way to look at labels: predictions come in, bounds of each row's window go out.

    Attributes
    ----------
    clip : float
        c, in half-ranges of the label, > 0.
    """

    clip: float

    @property
    def half(self) -> float:
        """h: half the widest window."""
        return min(self.clip, 1.0)

    def bounds(self, predictions: Floats) -> tuple[Floats, Floats]:
        """Return lo_i and hi_i; predictions lie in [-1, 1]."""
        return np.maximum(predictions - self.clip, -1.0), np.minimum(predictions + self.clip, 1.0)

    def view(self, labels: Floats, predictions: Floats) -> Floats:
        """Return v_i in [-1, 1]; a function of each row's own label and of released values."""
        low, high = self.bounds(predictions)
        return np.clip((np.clip(labels, low, high) - (low + high) / 2) / self.half, -1.0, 1.0)

    def offset(self, predictions: Floats) -> Floats:
        """Return centre_i - g_i: clip(t_i) - g_i = h v_i + offset_i."""
        low, high = self.bounds(predictions)
        return (low + high) / 2 - predictions


def allowance(clip: float, scale: float) -> float:
    """Return the deviation that a clip may put between a clipped mean and the mean, in half-ranges.

    A symmetric residual has none, an exponential tail scale * exp(-clip / scale); `SKEW` of that is
    allowed for. Without clipping (c >= 2) it is 0.
    """
    return SKEW * scale * math.exp(-clip / scale) if clip < 2.0 else 0.0


def choose_clip(scale: float, rows: int, noise: float, size: float) -> Window:
    """Choose the clip of least noise and expected bias: near 60 % where noise rules, none where it does not.

    Parameters
    ----------
    scale : float
        Deviation of the residual, in half-ranges.
    rows : int
    noise : float
        Deviation of the round's noise per unit of its sensitivity.
    size : float
        Directions in which the noise counts, times those that are released.
    """
    from scipy.special import ndtr

    shares = 2.0 * ndtr(_CLIPS) - 1.0
    widths = np.minimum(_CLIPS * scale, 1.0)
    spent = size / rows * (2.0 * widths * noise / shares) ** 2
    biases = np.array([allowance(float(multiple * scale), scale) for multiple in _CLIPS])
    best = int(np.argmin(spent + rows * biases**2))
    return Window(min(float(_CLIPS[best]) * scale, 2.0))


def share_of(window: Window, scale: float) -> float:
    """Return the share that a normal residual of a known scale has inside a window, held in `SHARES`."""
    from scipy.special import ndtr

    inside = 1.0 if window.clip >= 2.0 else 2.0 * float(ndtr(window.clip / scale)) - 1.0
    return min(max(inside, SHARES[0]), SHARES[1])
