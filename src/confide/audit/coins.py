"""Coins of rows, told alike on tables of which one has a row more: what `replay` compares there.

A sequence of coins that is cut into batches of n falls differently on n + 1 rows, and a draw for each row
gives one answer more. Yet each row has a coin of its own: on neighbours, the rows that both tables have may
have drawn alike, and the row that comes may have drawn anything. A proof must hold for each of these
outcomes, so one of them that fails is a counter-example.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt


def batches(rows: int, scale: float, number: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield batches in which a row's coins depend on its place alone, at the rate of `poisson_batches`.

    Parameters
    ----------
    rows : int
    scale : float
    number : int
        Which sequence of batches of a run.
    """
    rate = -math.expm1(-1 / scale)
    for step in count():
        yield np.flatnonzero(np.random.default_rng((number, step)).random(rows) < rate)


def extended(output: Any, size: Any, values: int) -> Any:
    """Return recorded answers, one for each row, on a table that has a row more or less.

    Parameters
    ----------
    output : int array [n] or int
    size : int, tuple or None
        As it was asked for; the answer to another kind of size is returned as it is.
    values : int
        Number of things to choose among. A row that comes draws its place modulo it.
    """
    if not isinstance(size, int | np.integer) or np.ndim(output) != 1:
        return output
    return np.append(output[:size], np.arange(len(output), size) % values)
