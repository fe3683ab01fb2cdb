"""Claim of `confide.ledger`: what is admitted, refused and left tells nothing of the rows.

``ledger.requests`` makes one request after the other on one ledger in a folder of its own, and shows what
came back beside the results: type and message of each refusal, and what is left after it. On neighbours with
the mechanisms' answers frozen all of it must be equal (`replay`), whatever the rows are: across the gap
condition of a selection, beyond the bounds, without cells, without a class.

The answers of a service are attacked in tests/audit/test_service_claim.py: this room lies below that one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from confide.audit import neighbours
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Kind, Pair, promise
from confide.errors import ConfideError
from confide.ledger import Ledger
from confide.mechanisms import RandomStream
from confide.prediction import CertifiedClassifier
from confide.selection import SubsetProblem, SubsetSelector, gap_condition
from confide.training import PrivateClassifier, PrivateRegressor

_TOTAL, _DELTA = 3, Fraction(1, 100)
_BOUNDS: dict[str, Any] = {"feature_bounds": (-1, 1)}
_NUMBERS = {**_BOUNDS, "target_bounds": (-1, 1)}
_CLASSES = {**_BOUNDS, "classes": [-1.0, 1.0]}
_SECRET = {"public": None, "adjacency": "replace_one"}
_QUERY = np.array([[-1.0, -0.2, 0.3]])


@contextmanager
def opened(epsilon: Any, delta: Any = 0) -> Iterator[tuple[Ledger, str]]:
    """Yield a new ledger in a folder of its own, and the folder."""
    with tempfile.TemporaryDirectory() as folder:
        yield (
            Ledger.open(
                f"sqlite:///{folder}/ledger.db", dataset="rows", epsilon=epsilon, delta=delta,
                adjacency="replace_one", counter=Path(folder),
            ),
            folder,
        )  # fmt: skip


def _certified(rows: Rows, ledger: Ledger, epsilon: Any) -> None:
    model = CertifiedClassifier(**_CLASSES, certificate="votes", neighbours=3)
    model.fit(rows.X, rows.y).answer(_QUERY, epsilon, ledger=ledger)


def _public(rows: Rows) -> Floats:
    """Return columns for an engine that protects labels alone: as many rows, and nothing of theirs."""
    return np.linspace(-1, 1, 2 * rows.y.size).reshape(-1, 2)


#: What is asked, in order: some of it is refused, for its amount, its relation or what it assumes.
_REQUESTS: tuple[Callable[[Rows, Ledger], Any], ...] = (
    lambda rows, to: SubsetSelector(1, 100, **_NUMBERS, ledger=to).fit(rows.X, rows.y),
    lambda rows, to: SubsetSelector(1, 1, mechanism="mistakes", **_NUMBERS, ledger=to).fit(rows.X, rows.y),
    lambda rows, to: SubsetSelector(1, "1/4", **_NUMBERS, ledger=to).fit(rows.X, rows.y),
    lambda rows, to: PrivateRegressor("1/4", 0.001, target_bounds=(-1, 1), ledger=to).fit(
        _public(rows), rows.y
    ),
    lambda rows, to: PrivateRegressor(
        "1/4", 0.001, **_NUMBERS, **_SECRET, engine="dpsgd", steps=1, ledger=to
    ).fit(rows.X, rows.y),
    lambda rows, to: PrivateClassifier("1/4", 0, **_CLASSES, **_SECRET, engine="objective", ledger=to).fit(
        rows.X, rows.y
    ),
    lambda rows, to: _certified(rows, to, "1/4"),
    lambda rows, to: _certified(rows, to, "5/2"),
    lambda rows, to: _certified(rows, to, to.remaining().epsilon),
    lambda rows, to: SubsetSelector(1, "1/1000", **_NUMBERS, ledger=to).fit(rows.X, rows.y),
)


def _asked(rows: Rows, stream: RandomStream) -> Floats:
    """Make every request; return what came of each (0, or a number of its refusal) and what is left then.

    From the operating system whatever the stream is: no ledger takes a charge for seeded noise.
    """
    told = []
    with opened(_TOTAL, _DELTA) as (ledger, folder):
        for request in _REQUESTS:
            came = 0
            try:
                request(rows, ledger)
            except (ConfideError, ValueError) as error:
                came = crc32(f"{type(error).__name__}: {error}".replace(folder, "").encode())
            left = ledger.remaining()
            told.append([came, float(left.epsilon), float(left.delta)])
    return np.array(told, dtype=np.float64).ravel()


def _held(rows: Rows) -> bool:
    problem = SubsetProblem(rows.X, rows.y, 1, feature_bound=1.0, target_bound=1.0)
    return gap_condition(problem, diagnostics="public data").holds


def _pairs() -> list[Pair]:
    """Return neighbours across the gap condition, without a class, and with extreme rows."""
    base = neighbours.table(12, 3)
    alone = Rows(base.X, np.ones(12))
    return [
        neighbours.across(_held, "the gap on one side alone"),
        Pair("a class goes", alone.replaced(base.X[0], -1.0), alone),
        Pair(
            "missing and beyond",
            base.replaced(np.full(3, np.nan), np.nan),
            base.replaced(np.full(3, -1e308), 1e6),
        ),
        Pair("no class at all", alone.replaced(base.X[0], np.inf), alone.replaced(base.X[0], 0.5)),
        *neighbours.pairs(base, "replace_one"),
    ]


promise(
    "ledger.requests", Kind.ESTIMATOR, _TOTAL, _DELTA, "replace_one",
    "charges are functions of public parameters; confide.ledger.charging", _pairs, run=_asked,
    note="Noise of the operating system, whatever the seed: no ledger takes a charge for seeded noise.",
    draws=20, quick=4,
)  # fmt: skip
