"""What the sections of benchmarks/service.py share: a table, a model, stores, and rows to ask.

The table is made up: five numbers and two categories, as a small hospital register has. Its certificate is
strongly convex ERM, the default of `confide certify`.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import confide
from confide.ledger import Ledger

HERE = Path(__file__).resolve().parent
COLUMNS = {
    "age": {"role": "private", "lower": 18, "upper": 98},
    "bmi": {"role": "private", "lower": 14, "upper": 54},
    "pulse": {"role": "private", "lower": 40, "upper": 180},
    "glucose": {"role": "private", "lower": 2, "upper": 30},
    "hour": {"role": "public", "lower": 0, "upper": 24},
    "ward": {"role": "private", "categories": ["north", "south", "east", "west"]},
    "smoker": {"role": "private", "categories": ["no", "yes"]},
    "ill": {"role": "label", "categories": ["well", "ill"]},
}
NUMBERS = ("age", "bmi", "pulse", "glucose", "hour")
WARDS, SMOKER = COLUMNS["ward"]["categories"], COLUMNS["smoker"]["categories"]
#: No budget that a section does not set is met.
PLENTY = 10**9


def cells(count: int, seed: Any) -> dict[str, Any]:
    """Return a frame of features of made-up people."""
    rng = np.random.default_rng(seed)
    frame: dict[str, Any] = {
        name: rng.uniform(COLUMNS[name]["lower"], COLUMNS[name]["upper"], count) for name in NUMBERS
    }
    frame["ward"] = rng.choice(WARDS, count)
    frame["smoker"] = rng.choice(SMOKER, count, p=[0.7, 0.3])
    return frame


def table(count: int = 20_000, seed: int = 0) -> dict[str, Any]:
    """Return a table of them with the label."""
    frame, noise = cells(count, seed), np.random.default_rng([seed, 1]).logistic(size=count)
    risk = (frame["age"] - 58) / 12 + (frame["glucose"] - 16) / 5 + (frame["smoker"] == "yes") + noise
    return {**frame, "ill": np.where(risk > 0, "ill", "well")}


def certified(frame: dict[str, Any], alpha: float = 0.3) -> Any:
    """Return the certified model of a table."""
    return confide.certify(confide.Table.from_frame(frame, {"columns": COLUMNS}), alpha=alpha)


def records(frame: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a frame as a request has them."""
    columns = [frame[name].tolist() for name in (*NUMBERS, "ward", "smoker")]
    return [dict(zip((*NUMBERS, "ward", "smoker"), row)) for row in zip(*columns)]


def rows(count: int, seed: Any) -> list[dict[str, Any]]:
    """Return distinct rows to ask about."""
    return records(cells(count, seed))


def bodies(requests: int, each: int, seed: int) -> list[bytes]:
    """Return the JSON of requests of distinct rows."""
    pool = iter(rows(requests * each, seed))
    return [
        json.dumps({"rows": list(itertools.islice(pool, each))}, separators=(",", ":")).encode()
        for _ in range(requests)
    ]


@dataclass
class World:
    """A folder with a model's file, a store, and ledgers in it.

    Attributes
    ----------
    folder : Path
    model : Path
    url : str
        Of the store.
    kind : str
        "sqlite" or "postgresql".
    """

    folder: Path
    model: Path
    url: str
    kind: str
    _names: Iterator[int] = field(default_factory=itertools.count)

    def ledger(self, epsilon: Any = PLENTY, delta: Any = "0.9") -> Ledger:
        """Return a new ledger in the store."""
        return Ledger.open(
            self.url,
            dataset=f"visits{next(self._names)}",
            epsilon=epsilon,
            delta=delta,
            adjacency="replace_one",
            counter=self.folder / "counters",
        )

    def settings(self, ledger: Ledger, **service: Any) -> dict[str, Any]:
        """Return what a server needs (`confide.service.worker.Settings`)."""
        terms = {"epsilon": "1/10", "rate": 1e9, "burst": 10**9, **service}
        return {
            "model": str(self.model),
            "ledger": ledger.handle,
            "service": terms,
            "counter": str(self.folder / "counters"),
        }


def grant(ledger: Ledger, name: str, epsilon: Any = PLENTY, delta: Any = "0.9") -> str:
    """Return the key of an analyst."""
    from confide.service import keys

    return keys.grant(ledger, name, epsilon, delta)


def postgres() -> Any:
    """Return the module that starts private clusters."""
    path = HERE.parent / "tests" / "ledger" / "postgres.py"
    spec = importlib.util.spec_from_file_location("ledger_postgres", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def world(kind: str, place: str | None = None, *, people: int = 20_000) -> Iterator[World]:
    """Yield a world that lives as long as the block; PostgreSQL waits for its disk, as SQLite does."""
    from confide.ledger.store import close_all

    with tempfile.TemporaryDirectory(prefix="confide-bench-", dir=place) as name:
        folder = Path(name)
        model = folder / "model.npz"
        certified(table(people)).save(model)
        if kind == "sqlite":
            yield World(folder, model, f"sqlite:///{folder / 'ledger.db'}", kind)
            close_all()
            return
        with postgres().cluster(fsync=True) as url:
            yield World(folder, model, url, kind)
            close_all()


def stores(asked: str | None = None) -> list[str]:
    """Return the kinds of stores there are here; says why one is not."""
    kinds = [asked] if asked else ["sqlite", "postgresql"]
    if "postgresql" in kinds and (reason := postgres().missing()):
        print(f"postgresql: not measured: {reason}")
        kinds.remove("postgresql")
    return kinds


def environment() -> dict[str, str]:
    """Return the environment of children: one thread each, this checkout first."""
    paths = [str(HERE), str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
