"""Claim of the Poisson batches of `dpsgd`: which rows are in them, over two steps of a small table.

The batches are read off the sums of the engine's own steps, which have no noise here: each row has a column
to itself, and steps are so short that no gradient vanishes.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from confide.audit.recorded import Arguments, Mechanism
from confide.audit.registry import Floats, Kind, Law, Pair, promise, random_state
from confide.audit.replay import Recorder, recording
from confide.mechanisms import RandomStream
from confide.mechanisms.enclosure import exp_minus
from confide.training.sgd import SGDRequest, batches, fit

#: Steps that are looked at together: a batch that is used again shows.
_STEPS = 2
#: Public number of rows, with a column each.
_ROWS = 3
_SCALE, _ = batches.rate_of(1, _ROWS)
_BITS = 256


def _outside() -> tuple[Fraction, Fraction]:
    """Enclose the probability that a row is not in a batch, exp(-1 / scale)."""
    low, high = exp_minus(1 / Fraction(_SCALE), _BITS)
    return Fraction(low, 1 << _BITS), Fraction(high, 1 << _BITS)


def _law(rows: int) -> Law:
    """Return the law of a code with a bit for each step and row: all of them are independent."""
    low, high = _outside()
    found = {}
    for bits in product((0, 1), repeat=_STEPS * rows):
        inside = sum(bits)
        least = (1 - high) ** inside * low ** (len(bits) - inside)
        most = (1 - low) ** inside * high ** (len(bits) - inside)
        places = [8 * (i // rows) + i % rows for i in range(len(bits))]
        found[float(sum(bit << place for bit, place in zip(bits, places, strict=True)))] = (least, most)
    return found


class _Sums(Recorder):
    """Keeps which entries of each step's sum are not 0."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def met(self, mechanism: Mechanism, given: Arguments) -> None:
        """See `Recorder`."""
        if mechanism.name == "step_answer":
            self.seen.append(np.ravel(given["statistic"].value) != 0)


def _outputs(rows: int, count: int, stream: RandomStream) -> Floats:
    """Return codes of two batches each, of one training."""
    asked = SGDRequest(
        math.inf, 0, "add_remove_one", (-1, 1), nonprivate=True,
        private_bounds=[(-1, 1)] * _ROWS, rows=_ROWS, batch_size=1,
        steps=_STEPS * count, optimizer="sgd", learning_rate=1e-12, clip=1.0, fit_intercept=False,
        random_state=random_state(stream),
    )  # fmt: skip
    with recording(_Sums()) as told:
        fit(None, np.eye(_ROWS)[:rows], np.ones(rows), asked)
    assert isinstance(told, _Sums)
    codes = (np.array(told.seen) << np.arange(_ROWS)).sum(axis=1).reshape(count, _STEPS)
    return (codes << (8 * np.arange(_STEPS))).sum(axis=1).astype(np.float64)


promise(
    "training.poisson_batches",
    Kind.MECHANISM,
    0,
    1 - _outside()[0] ** _STEPS,
    "add_remove_one",
    "a row is in a batch with its own coin; confide.training.sgd.batches",
    lambda: (Pair("a row comes", 2, 3),),
    run=lambda rows, stream: _outputs(rows, 1, stream),
    outputs=_outputs,
    law=_law,
    draws=100_000,
    quick=1_000,
    replayed=False,
)
