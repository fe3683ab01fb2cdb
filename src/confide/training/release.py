"""Drives a solver and alone calls mechanisms/: every private draw of this room is made here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from confide.mechanisms import RandomStream, Statistic, gaussian_release

T = TypeVar("T")
Floats = npt.NDArray[np.float64]
#: Turns a statistic into its private answer; a test passes its own to record and replay.
Answer = Callable[[Statistic], Floats]


def drive(solver: Generator[Statistic, Floats, T], answer: Answer) -> T:
    """Run a solver to its end, answering each statistic it yields, and return what it returns."""
    try:
        statistic = next(solver)
        while True:
            statistic = solver.send(answer(statistic))
    except StopIteration as stop:
        return stop.value


def gaussian_answer(noise_multiplier: float, stream: RandomStream) -> Answer:
    """Answer with exactly rounded Gaussian noise of deviation noise_multiplier * statistic.sensitivity.

    Each statistic draws from a stream of its own name and number (pitfall F32: no noise is used twice).
    """
    count = 0

    def answer(statistic: Statistic) -> Floats:
        nonlocal count
        count += 1
        child = stream.child(f"{statistic.name}/{count}")
        return gaussian_release(statistic, noise_multiplier, stream=child)

    return answer


def shared_answer(multipliers: Sequence[float], stream: RandomStream) -> Answer:
    """Answer the i-th statistic with the i-th noise multiplier, and none after the last.

    Streams are named as in `gaussian_answer`.
    """
    left = [gaussian_answer(multiplier, stream.child(str(i))) for i, multiplier in enumerate(multipliers)]

    def answer(statistic: Statistic) -> Floats:
        if not left:
            raise AssertionError("A solver asked for more releases than were charged.")
        return left.pop(0)(statistic)

    return answer


def exact_answer(statistic: Statistic) -> Floats:
    """Answer without noise; only a release marked ``"nonprivate"`` may use it."""
    return statistic.value.astype(np.float64) * statistic.step
