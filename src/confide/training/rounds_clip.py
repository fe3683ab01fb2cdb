"""How wide a round of `rounds` looks at the labels, and what share of them it sees, from released values.

A round looks at label t_i (in [-1, 1]) through a window about its prediction g_i:

    lo_i = max(-1, g_i - c),  hi_i = min(1, g_i + c),  v_i = (clip(t_i, lo_i, hi_i) - centre_i) / h,

centre_i the middle of the window and h = min(c, 1) a common half-width. v_i is in [-1, 1] whatever the label,
so a round has the sensitivity, and the free second moment, of `confide.training.problem`. With c >= 2 nothing
is clipped, h = 1, and the round is the engine `closed_form`.

The second moment E v^2 tells the residual's deviation s through a normal family cut to the label bounds, and
with it the share p of rows whose label lies inside the window: if rows and residuals are jointly normal, then
E u clip(r) = p E u r exactly (Bussgang 1952), whatever the distance of the predictions, so that division by p
makes a clipped round unbiased. The family need not be true for that: within the window a density is nearly
flat, so that E v^2 is nearly 1 - 2p/3 for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Deviations of the residual that are compared, in half-ranges of the label.
SCALES = np.geomspace(0.002, 1.5, 80)
#: Before anything is known a label has a deviation of a quarter of its half-range, give or take a factor 2.5.
_TYPICAL, _SPREAD = 0.25, 0.9
#: The share inside is held here: dividing by less would raise noise for the sake of a guess.
SHARES = (0.3, 1.0)
#: Clips are this many deviations of the residual, or more: 0.84 holds 60 % of a normal law.
_CLIPS = np.geomspace(0.84, 10.0, 30)
#: How far clipping may move the mean: SKEW times the mean excess of an exponential tail.
SKEW = 0.35


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


@dataclass(frozen=True)
class Spread:
    """What a round's second moment tells.

    Attributes
    ----------
    scale : float
        s: deviation of the label about the predictions, in half-ranges.
    inside : float
        p: share of rows whose label the window does not clip, held in `SHARES`.
    """

    scale: float
    inside: float


def read_spread(
    window: Window,
    predictions: Floats,
    weights: Floats,
    second: float,
    first: float,
    deviations: tuple[float, float],
    prior: tuple[float, float] | None = None,
) -> Spread:
    """Return the scale and the share inside from a released second moment.

    Moments of v about the window's middle become moments about the prediction: exactly where all windows sit
    alike, and to first order where those at the bounds of the label do not.

    Parameters
    ----------
    window : Window
    predictions, weights : ndarray of shape (m,)
        Of a sample of public rows.
    second, first : float
        Released weighted means of v^2 and of v.
    deviations : (float, float)
        Their known noise.
    prior : (float, float), optional
        Typical scale and deviation of its logarithm.
    """
    typical, spread = prior or (_TYPICAL, _SPREAD)
    weights = weights / weights.sum()
    offset = window.offset(predictions) / window.half
    shift = float(weights @ offset)
    second = second + 2 * shift * first + float(weights @ offset**2)
    deviation = math.hypot(deviations[0], 2 * shift * deviations[1])
    moments, shares = _family(window, predictions, weights)
    # Tails differ from family to family: a second moment is not trusted beyond two per cent.
    width = math.hypot(deviation, 0.02 * float(moments.max()))
    logs = -0.5 * ((second - moments) / width) ** 2
    logs -= 0.5 * (np.log(SCALES / typical) / spread) ** 2
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    return Spread(float(np.exp(mass @ np.log(SCALES))), float(np.clip(mass @ shares, *SHARES)))


def _family(window: Window, predictions: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return E ((clip(t) - g) / h)^2 and the share inside for t ~ N(g, s^2), at each s of `SCALES`.

    What lies beyond the bounds of the label is clipped to them, and no window clips it further.
    """
    from scipy.special import ndtr

    low, high = (edge[:, None] - predictions[:, None] for edge in window.bounds(predictions))
    a, b = low / SCALES, high / SCALES
    below, above = ndtr(a), ndtr(-b)
    density = (b * np.exp(-(b**2) / 2) - a * np.exp(-(a**2) / 2)) / math.sqrt(2 * math.pi)
    squares = SCALES**2 * (1 - below - above - density) + low**2 * below + high**2 * above
    cut_below = np.where(predictions[:, None] - window.clip > -1.0, below, 0.0)
    cut_above = np.where(predictions[:, None] + window.clip < 1.0, above, 0.0)
    return weights @ squares / window.half**2, weights @ (1 - cut_below - cut_above)


def allowance(clip: float, scale: float) -> float:
    """Return the deviation that a clip may put between a clipped mean and the mean, in half-ranges.

    A symmetric residual has none, an exponential tail scale * exp(-clip / scale): a third of that is allowed
    for. Without clipping (c >= 2) it is 0.
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
