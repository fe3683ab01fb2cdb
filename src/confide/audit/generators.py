"""Generators of their own: which functions of this library may make one in an unseeded run, and who does.

A secret batch or a direction may be drawn from words by no sampler that is recorded, and many things it could
be are alike for the answers of one run. So nothing but the streams may make a generator of numpy, other than
the functions of `PUBLIC`, which read what is public alone. They are watched where they are made, by the name
in ``numpy.random``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

#: (module, function) -> what it makes a generator for.
PUBLIC: dict[tuple[str, str], str] = {
    ("confide.mechanisms.stream", "__init__"): "a seeded stream, whose words are counted",
    ("confide.training.labels.llp", "of"): "bags of rows by a public seed, which are no noise",
    ("confide.training.optimal", "distinct_rows"): "a key of public rows, to find equal ones",
    ("confide.training.sgd.fitting", "_clip"): "a rehearsal of gradients on public columns",
    ("confide.training.sgd.models", "uniform"): "the parameters that training begins at, by a public seed",
    ("confide.tune.scoring", "split"): "a public order of rows",
}
_MAKERS = ("default_rng", "RandomState", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_OWN, _NOT = "confide.", "confide.audit."


class _Watched(type):
    """Makes what the plain class makes, and says so: a class, since others ask whether something is one."""

    plain: Any
    made: set[tuple[str, str]]

    def __call__(cls, *args: Any, **named: Any) -> Any:
        frame = sys._getframe(1)
        cls.made.add((str(frame.f_globals.get("__name__")), frame.f_code.co_name))
        return cls.plain(*args, **named)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(cls.plain, type) and isinstance(instance, cls.plain)


@contextmanager
def watching() -> Iterator[set[tuple[str, str]]]:
    """Collect (module, function) of who makes a generator inside the block.

    What this library needs must be imported before: a module that takes a maker by name would keep it.
    """
    made: set[tuple[str, str]] = set()
    plain = {name: getattr(np.random, name) for name in _MAKERS}
    for name, maker in plain.items():
        setattr(np.random, name, _Watched(name, (), {"plain": maker, "made": made}))
    try:
        yield made
    finally:
        for name, maker in plain.items():
            setattr(np.random, name, maker)


def strangers(made: set[tuple[str, str]]) -> list[str]:
    """Return functions of this library that made a generator and are not on the list."""
    found = (who for who in made if who[0].startswith(_OWN) and not who[0].startswith(_NOT))
    return sorted(f"{module}.{function}" for module, function in found if (module, function) not in PUBLIC)
