"""Noise for many releases of one shape: drawn ahead in blocks, each number used once.

The noise of a release is an integer of the grid that depends on public numbers alone (deviation over step),
so drawing it ahead changes nothing but time; time that then tells nothing about a step either (pitfall K02).
Unused noise is thrown away when the deviation or the grid changes, and is never written into a checkpoint.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from confide.mechanisms import RandomStream, Statistic, noise_deviation, rounded_gaussian
from confide.training.release import Answer, exact_answer

Floats = npt.NDArray[np.float64]
#: Numbers drawn at once, at most.
_AHEAD = 1 << 16


def step_answer(noise_multiplier: float, stream: RandomStream, *, steps: int) -> Answer:
    """Answer as `confide.mechanisms.gaussian_release` does, with noise drawn ahead.

    Parameters
    ----------
    noise_multiplier : float
        Deviation over the statistic's sensitivity; 0 answers exactly, for fits without privacy.
    stream : RandomStream
    steps : int
        How many releases to expect.
    """
    if noise_multiplier == 0:
        return exact_answer
    noise = np.empty((0, 0), dtype=np.int64)
    held: tuple[float, float, int] | None = None
    used, drawn, ahead = 0, 0, 1

    def answer(statistic: Statistic) -> Floats:
        nonlocal noise, held, used, drawn, ahead
        size = statistic.value.size
        asked = (statistic.sensitivity, statistic.step, size)
        if asked != held:  # another scale: what was drawn for the old one is lost
            held, noise, used, ahead = asked, noise[:0], 0, 1
        if used == noise.shape[0]:
            sigma = noise_deviation(statistic.sensitivity, noise_multiplier)
            count = max(1, min(ahead, _AHEAD // max(size, 1), steps - drawn))
            source = stream.child(f"{statistic.name}/{drawn}")
            noise = rounded_gaussian(sigma, statistic.step, (count, size), stream=source)
            used, drawn, ahead = 0, drawn + count, 4 * ahead
        used += 1
        value = statistic.value.reshape(-1) + noise[used - 1]
        return (value.astype(np.float64) * statistic.step).reshape(statistic.value.shape)

    return answer
