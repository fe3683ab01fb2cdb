"""Snapshots of a run, and whose turn it is to go on from one (pitfall F33).

A run is charged once, for all its steps. A snapshot holds released and public values alone: never noise, the
state of a random stream, or a batch. Whoever publishes something that lies beyond a snapshot (the next
snapshot, the result) must first take its turn: an entry of the ledger without cost, under a key that can be
used once. So one trajectory of T steps leaves the house for one charge:

==========================================  ======================================================
what happens                                 consequence
==========================================  ======================================================
crash, then `resume`                        goes on under the same entry; steps that nobody saw
                                            are done again with fresh noise
the same snapshot resumed twice             the second is refused, or pays anew with ``recharge``
resumed after the run went on               the same
a resumed run dies                          its snapshot was used: pay anew, or use a later one
a snapshot that no run wrote (edited, say)   refused, with ``recharge`` too
resumed with other private cells             refused; with ``recharge`` it is a new run
no ledger                                   turns and snapshots are known to this process alone: another
                                            one resumes nothing
==========================================  ======================================================
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from confide.errors import DataError, RefusedError
from confide.ledger.ledger import resolve
from confide.privacy import Event, Guarantee
from confide.training.sgd.arrays import Floats
from confide.training.sgd.engine import State
from confide.training.sgd.optimizers import Average, Optimizer

_TAKEN: set[str] = set()
_KEPT: dict[str, bytes] = {}
_KEY = secrets.token_bytes(32)


@dataclass(frozen=True)
class Snapshot:
    """A run after `step` steps.

    Attributes
    ----------
    run : str
        Random name of the run; its charge and its turns stand in the ledger under it.
    digest : str
        Of everything public that decides the rest of the run; another request cannot resume it.
    step : int
    arrays : dict of str to ndarray
        Parameters, average, optimizer state, clip.
    """

    run: str
    digest: str
    step: int
    arrays: dict[str, Floats]

    @classmethod
    def of(cls, run: str, digest: str, state: State) -> Snapshot:
        """Take a snapshot."""
        arrays = {f"optimizer_{name}": value.copy() for name, value in state.optimizer.state.items()}
        arrays["parameters"] = state.parameters.copy()
        arrays["scalars"] = np.array([state.clip, float(state.average.count)])
        if state.average.mean is not None:
            arrays["mean"] = state.average.mean.copy()
        return cls(run, digest, state.step, arrays)

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of all that it holds."""
        names = sorted(self.arrays)
        return digest_of(
            self.run, self.digest, self.step, names, *(self.arrays[name] for name in names)
        ).encode()

    def state(self, optimizer: Optimizer, burn: int) -> State:
        """Return the state to go on from."""
        prefix = "optimizer_"
        for name, value in self.arrays.items():
            if name.startswith(prefix):
                optimizer.state[name.removeprefix(prefix)] = value.copy()
        mean = self.arrays.get("mean")
        clip, count = self.arrays["scalars"].tolist()
        average = Average(burn, int(count), None if mean is None else mean.copy())
        return State(self.arrays["parameters"].copy(), optimizer, average, self.step, clip)

    def save(self, path: str | Path) -> None:
        """Write the snapshot, whole or not at all."""
        place = Path(path)
        part = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        head = json.dumps({"run": self.run, "digest": self.digest, "step": self.step})
        with part.open("wb") as file:
            np.savez(file, header=np.array(head), **self.arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        part.replace(place)

    @classmethod
    def load(cls, path: str | Path) -> Snapshot:
        """Read what `save` wrote.

        Raises
        ------
        DataError
            If the file is no snapshot.
        """
        try:
            with np.load(Path(path), allow_pickle=False) as held:
                head = json.loads(str(held["header"]))
                arrays = {name: held[name] for name in held.files if name != "header"}
            return cls(str(head["run"]), str(head["digest"]), int(head["step"]), arrays)
        except (OSError, KeyError, ValueError) as error:
            raise DataError(
                f"The file {Path(path).name!r} is no snapshot.", "Pass one that a fit wrote."
            ) from error


def digest_of(*parts: Any) -> str:
    """Return the SHA-256 of the representation of public parts; arrays by their bytes."""
    total = sha256()
    for part in parts:
        data = np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
        total.update(sha256(data).digest())
    return total.hexdigest()


def new_run() -> str:
    """Return a fresh name."""
    return secrets.token_hex(16)


def take_turn(ledger: Any, guarantee: Guarantee, run: str, step: int) -> None:
    """Take the one turn to publish what lies beyond a snapshot.

    Raises
    ------
    RefusedError
        If it was taken: nothing may be published.
    """
    key = f"dpsgd {run} {step}"
    book, first = resolve(ledger), key not in _TAKEN
    if first and book is not None:
        nothing = Guarantee(0, 0, guarantee.adjacency, guarantee.unit, Event.of("pure", epsilon=0))
        first = not book.charge(nothing, label="dpsgd goes on", key=key).replayed
    _TAKEN.add(key)
    if not first:
        raise RefusedError(
            f"The snapshot after step {step} was gone on from already: one charge pays for one continuation.",
            "Resume a later snapshot, or pass recharge=True to pay for another.",
        )


def keep(ledger: Any, guarantee: Guarantee, name: str, value: bytes) -> None:
    """Keep a value under a name that is used once: in the ledger, at no cost, or else in this process."""
    if _kept(ledger, guarantee, name, value) != value:
        raise RefusedError(f"The record {name!r:.80} exists already.", "Begin a new run.")


def check_kept(ledger: Any, guarantee: Guarantee, name: str, value: bytes, what: str) -> None:
    """Refuse a value other than the one that was kept.

    A name without a value is used up by the question, so that nobody can keep one afterwards.

    Raises
    ------
    RefusedError
    """
    found = _kept(ledger, guarantee, name, b"")
    if not hmac.compare_digest(found, value):
        raise RefusedError(
            f"The {what} not those of the run: it was charged for its own snapshots and data alone.",
            "Resume a snapshot as the run wrote it, with the same data and ledger (without a ledger, in the "
            "same process), or begin a new fit.",
        )


def _kept(ledger: Any, guarantee: Guarantee, name: str, value: bytes) -> bytes:
    book, key = resolve(ledger), f"dpsgd {name}"
    if book is None:
        return _KEPT.setdefault(key, value)
    nothing = Guarantee(0, 0, guarantee.adjacency, guarantee.unit, Event.of("pure", epsilon=0))
    made = book.charge(nothing, secret=value, label="dpsgd keeps", key=key)
    return (book.secret(made) or b"") if made.replayed else value


def tag_of(ledger: Any, *parts: Any) -> bytes:
    """Return a keyed hash of private arrays (None for none): it tells nothing to who lacks the key.

    The key lies beside the tags in the store, which machines share: whoever reads it and knows all labels but
    one can try its values, so the store is as secret as the table.
    """
    book = resolve(ledger)
    key = _KEY if book is None else book.tag_key
    held = [part if part is None else np.asarray(part) for part in parts]
    return hmac.digest(key, digest_of("dpsgd", *held).encode(), "sha256")


@contextmanager
def charged_once(ledger: Any, guarantee: Guarantee, run: str, **named: Any) -> Iterator[Any]:
    """Charge a run under its name, or find its charge; settle after the block, as `charged` does."""
    book = resolve(ledger)
    table, analyst, label = named.get("table"), named.get("analyst"), named.get("label", "dpsgd")
    if book is None:
        yield None
        return
    if table is not None:
        book.check_schema(table.schema.secrets)
    reservation = book.reserve(guarantee, analyst=analyst, label=label, key=f"dpsgd {run}")
    version = None
    if table is not None:
        version = book.bind(table.schema.secrets, table.content_tag(book.tag_key))
    yield reservation
    book.settle(reservation, version=version)
