"""Claim of the Poisson batches of `dpsgd`: which rows are in them, over two steps of a small table."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice, product

import numpy as np

from confide.audit.registry import Floats, Kind, Law, Pair, promise
from confide.mechanisms import RandomStream
from confide.mechanisms.enclosure import exp_minus
from confide.training.sgd import batches

#: Steps that are looked at together: a batch that is used again shows.
_STEPS = 2
_SCALE, _ = batches.rate_of(1, 3)
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


def _outputs(rows: int, count: int, stream: RandomStream) -> Floats:
    """Return codes of two batches each, of one sequence of batches as a training draws them."""
    drawn = islice(batches.poisson_batches(rows, _SCALE, stream), _STEPS * count)
    codes = np.array([int((1 << places).sum()) for places in drawn]).reshape(count, _STEPS)
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
    replayed=False,
)
