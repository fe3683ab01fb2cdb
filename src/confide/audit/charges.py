"""What a ledger must tell apart besides amounts: known beforehand, and no row is read.

Each of these yields whether something is wrong.

===============  ========================================================================================
`alike`          guarantees that differ in one field, of which every other is the same object; guarantees
                 that are gone when the next one comes, maybe to the same place in memory
`of_events`      what events cost on a zCDP ledger, against the table of `confide.privacy.losses`
`accounted`      what accountants tell of groups, of pairs that fail, and of the best of several runs
`stated`         what a Gaussian's amounts, and guarantees of several releases, say
`summed`         sums whose denominators are cut, and accounts of analysts of a zCDP ledger
`bound`          tables with other secrets, which must not spend on the dataset
`outcomes`       one charge, one outcome: settled or asked for again, on this ledger or another one, alone
                 or in one commit
`stores`         stores that were rolled back, edited or removed: by what this process knows of them, and by
                 what any other one does
===============  ========================================================================================
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

from confide.audit import best, losses
from confide.audit.adaptive import rho_of
from confide.audit.losses import Cost
from confide.errors import (
    BudgetError,
    ConfideError,
    LedgerError,
    ParameterError,
    RefusedError,
    UnsupportedError,
)
from confide.ledger import Ledger, Request
from confide.ledger.store import Store
from confide.privacy import (
    BasicAccountant,
    Event,
    Guarantee,
    PLDAccountant,
    RDPAccountant,
    combine,
    gaussian_epsilon,
    gaussian_sigma,
)
from confide.privacy.event import RANDOM_STOPPING

TOTAL = Fraction(1), Fraction(1, 10**6)
_HALF = Fraction(1, 2 * 10**6)
#: Guarantees that are gone when the next one comes.
_GONE = 12


@contextmanager
def opened(epsilon: Any, delta: Any = 0, **terms: Any) -> Iterator[tuple[Ledger, str]]:
    """Yield a new ledger in a folder of its own, and the folder."""
    with tempfile.TemporaryDirectory() as folder:
        yield Ledger.open(_url(folder), **_terms(folder, epsilon, delta, **terms)), folder


def _url(folder: str) -> str:
    return f"sqlite:///{folder}/ledger.db"


def _terms(folder: str, epsilon: Any, delta: Any, **terms: Any) -> dict[str, Any]:
    given = {"dataset": "rows", "adjacency": "replace_one", "counter": Path(folder)}
    return {**given, "epsilon": epsilon, "delta": delta, **terms}


def _cost(epsilon: Any, delta: Any = 0, **fields: Any) -> Guarantee:
    given = {"adjacency": "replace_one", "unit": "row", "event": Event.of("pure", epsilon="1/100")}
    return Guarantee(epsilon, delta, **{**given, **fields})


def _passes(ask: Callable[[], Any], refusal: type[ConfideError] = LedgerError) -> bool:
    """Return whether what must be refused is not, or not for this."""
    try:
        ask()
    except refusal as error:
        return refusal is LedgerError and isinstance(error, RefusedError)
    except ConfideError:
        return True
    return True


def alike() -> Iterator[bool]:
    """Yield whether a guarantee is priced as another one that it resembles."""
    event, odd = Event.of("pure", epsilon="1/100"), Fraction(10**18 + 9, 10**19)
    known: tuple[tuple[Guarantee, tuple[str, ...], Any], ...] = (
        (_cost("1/7", event=event), (), (Fraction(1, 7), 0)),
        (_cost("2/7", event=event), (), (Fraction(2, 7), 0)),
        (_cost("2/9", event=event), (), (Fraction(2, 9), 0)),
        (_cost("2/9", _HALF, event=event), (), (Fraction(2, 9), _HALF)),
        (_cost("2/9", 3 * _HALF / 2, event=event), (), (Fraction(2, 9), 3 * _HALF / 2)),
        (_cost("1/7", adjacency="add_remove_one", event=event), (), (Fraction(2, 7), 0)),
        (_cost("1/7", adjacency="replace_label", event=event), (), None),
        (_cost("1/7", unit="person", event=event), (), None),
        (_cost("1/7", assumptions=("gap condition",), event=event), ("gap condition",), (Fraction(1, 7), 0)),
        (_cost("1/7", assumptions=("gap condition",), event=event), (), None),
        (_cost("1/7", assumptions=("seeded",), event=event), ("gap condition",), None),
    )
    with opened(*TOTAL) as (ledger, _):
        for guarantee, accept, told in (*known, *known[::-1]):
            cost = ledger.preview(guarantee, accept=accept).cost
            yield (None if cost is None else (cost.epsilon, cost.delta)) != told
        for i in range(_GONE):
            gone = _cost((odd + i) / 100, adjacency="add_remove_one")
            cost = ledger.preview(gone).cost
            yield cost is None or cost.epsilon != (odd + i) / 50
            del gone


_E = Fraction(1, 20)
_NAMES = (
    ("pure", "laplace", "discrete_laplace", "permute_and_flip", "randomized_response", "smooth_cauchy"),
    ("approximate", "response", "sparse_vector", "smooth_laplace", "propose_test_release"),
    ("exponential", "top_r", "mistakes"),
)


def _events() -> Iterator[tuple[Event, Any]]:
    """Yield events and their rho; None for those without."""
    for names, share, more in zip(_NAMES, (2, 2, 8), ({}, {"delta": 0}, {}), strict=True):
        for name in names:
            yield Event.of(name, epsilon=str(_E), **more), _E**2 / share
    for name in _NAMES[1]:
        yield Event.of(name, epsilon=str(_E), delta="1/1000000"), None
    pure, rho = Event.of("pure", epsilon=str(_E)), _E**2 / 2
    for name in ("gaussian", "discrete_gaussian"):
        for noise in (16, 20.0, "24"):
            yield Event.of(name, noise_multiplier=noise), 1 / (2 * Fraction(noise) ** 2)
        noisy = Event.of(name, noise_multiplier=20, count=3)
        yield noisy, Fraction(3, 800)
        yield noisy.times(2), Fraction(6, 800)
        yield noisy.times(2).times(2), Fraction(12, 800)
        yield Event.sequence([noisy, pure, pure]), Fraction(3, 800) + 2 * rho
    yield pure.group(3), 9 * rho
    yield Event.of("gaussian", noise_multiplier=20).times(2).group(2).times(3), 24 * Fraction(1, 800)
    yield Event.sequence([pure, Event.of("approximate", epsilon="1/100", delta="1/1000000")]), None
    for adjacency, shift in (("add_remove_one", 1), ("replace_one", 2)):
        batch = {"noise_multiplier": 40, "adjacency": adjacency}
        yield Event.of("poisson_gaussian", sampling_probability=1, **batch), shift**2 * Fraction(1, 3200)


def _rho(ledger: Ledger, event: Event) -> Any:
    """Return what an event costs, of a guarantee that says the same of all."""
    try:
        cost = ledger.preview(_cost("1/100", _HALF, event=event)).cost
    except UnsupportedError:
        return None
    return None if cost is None else cost.rho


def of_events() -> Iterator[bool]:
    """Yield whether an event costs less than it must."""
    with opened(*TOTAL, accountant="zcdp") as (ledger, _):
        for event, rho in _events():
            cost = _rho(ledger, event)
            yield (cost is None) != (rho is None) or (cost is not None and cost < rho)
        for i in range(_GONE):
            noise = 16 + 1 / (3 + i)
            yield _rho(ledger, Event.of("gaussian", noise_multiplier=noise)) != 1 / (2 * Fraction(noise) ** 2)


#: A delta at which one answer is told in closed form.
_LOST = 0.05


def _single() -> Iterator[tuple[Event, float]]:
    """Yield events and their epsilon at that delta.

    Randomised response says the truth with probability e^epsilon / (e^epsilon + classes - 1), and Laplace
    noise has delta(e) = 1 - e^((e - epsilon) / 2).
    """
    yield Event.of("pure", epsilon=1), math.log(math.e - _LOST * (math.e + 1))
    for classes in (2, 5):
        event = Event.of("randomized_response", epsilon=1, classes=classes)
        yield event, math.log(math.e - _LOST * (math.e + classes - 1))
    yield Event.of("laplace", epsilon=1), 1 + 2 * math.log1p(-_LOST)
    yield Event.of("gaussian", noise_multiplier=2), losses.epsilon([losses.gaussian(2)], _LOST)


#: Shapes of a random number of runs, and the delta at which the best of them is told.
_SHAPES, _TOLD = ("0", "1", "-1/2"), 1e-4


def accounted() -> Iterator[bool]:
    """Yield whether an accountant tells less than an event costs."""
    pair = Event.of("approximate", epsilon="1/10", delta="1/1000000")
    held = BasicAccountant().compose(pair, 3)
    yield held.epsilon(0) != math.inf
    yield held.epsilon("2/1000000") != math.inf
    yield held.epsilon("3/1000000") < Fraction(3, 10)
    least = 1e-6 * sum(math.exp(k / 10) for k in range(3))
    epsilon, delta = BasicAccountant().compose(pair.group(3)).spent
    yield epsilon < Fraction(3, 10) or delta < least * (1 - 1e-9)
    for name in ("gaussian", "discrete_gaussian"):
        noisy = RDPAccountant().compose(Event.of(name, noise_multiplier=20).group(3), 2)
        orders, told = noisy.divergences()
        yield bool((told < orders * (2 * 9 / 800) * (1 - 1e-12)).any())
    for event, least in _single():
        yield PLDAccountant().compose(event).epsilon(_LOST) < least * (1 - 1e-9)
    several = [losses.approximate(0.5, 1e-3)] * 3
    failing = PLDAccountant().compose(Event.of("approximate", epsilon="1/2", delta="1/1000"), 3)
    yield failing.epsilon("29/10000") != math.inf
    yield losses.exceeds(several, float(failing.epsilon("1/200")), 0.005)
    for eta in _SHAPES:
        law = {"eta": eta, "gamma": "1/8"}
        parts = [Event.of("pure", epsilon=epsilon) for epsilon in ("1/4", "1/2")]
        whole = PLDAccountant().compose(Event(RANDOM_STOPPING, tuple(law.items()), 1, tuple(parts)))
        yield _best(losses.pure(0.5), eta, whole.epsilon(0)) > best.ERROR
        parts = [Event.of("approximate", epsilon="1/4", delta=delta) for delta in ("1/100000", "1/1000")]
        epsilon, delta = (
            BasicAccountant().compose(Event(RANDOM_STOPPING, tuple(law.items()), 1, tuple(parts))).spent
        )
        yield _best(losses.approximate(0.25, 1e-3), eta, epsilon) > float(delta) + best.ERROR
        parts = [Event.of("gaussian", noise_multiplier=noise) for noise in (20, 1)]
        renyi = RDPAccountant().compose(Event(RANDOM_STOPPING, tuple(law.items()), 1, tuple(parts)))
        yield _best(losses.gaussian(1), eta, renyi.epsilon(_TOLD)) > _TOLD + best.ERROR


def _best(cost: Cost, eta: str, epsilon: Any) -> float:
    return best.delta(cost, float(Fraction(eta)), 1 / 8, float(epsilon))


#: Noise of a Gaussian, and deltas.
_NOISES, _DELTAS = (0.02, 0.1, 0.3, 1.0, 30.0), (0.1, 1e-3, 1e-6, 1e-12)


def stated() -> Iterator[bool]:
    """Yield whether a guarantee says less than what it is of."""
    for noise, delta in product(_NOISES, _DELTAS):
        epsilon = gaussian_epsilon(noise, delta)
        yield losses.exceeds([losses.gaussian(noise)], epsilon, delta)
        if 1e-3 < epsilon < 500:
            made = gaussian_sigma(0.999 * epsilon, delta)
            yield losses.exceeds([losses.gaussian(made)], 0.999 * epsilon, delta)
    gap, endless = _cost("1/7", assumptions=("gap condition",)), _cost(math.inf, assumptions=("nonprivate",))
    for first, second in ((gap, _cost("1/7")), (_cost("1/7"), gap)):
        yield combine([first, second]).assumptions != ("gap condition",)
    for first, second in ((endless, gap), (gap, endless)):
        yield combine([first, second]).epsilon != math.inf
    with opened(*TOTAL, accountant="zcdp") as (ledger, _):
        for event in (Event.of("gaussian", noise_multiplier=20, count=0), Event.sequence([])):
            yield _passes(lambda event=event: ledger.charge(_cost("1/100", event=event)), ParameterError)


def summed() -> Iterator[bool]:
    """Yield whether sums lose a part, or an analyst of a zCDP ledger spends more than what was granted."""
    parts = [Fraction(1, 9) + Fraction(1, 10**59 + k) for k in (1, 3, 7, 9, 13)]
    with opened(*TOTAL) as (ledger, _):
        for i, part in enumerate(parts):
            ledger.charge(_cost(part))
            spent = ledger.total().epsilon
            yield not 0 <= spent - sum(parts[: i + 1]) < Fraction(1, 10**50)
    with opened(*TOTAL, accountant="zcdp") as (ledger, _):
        ledger.grant("ann", "1/2", _HALF)
        told = ledger.account("ann").limit.rho
        yield not math.isclose(float(told or 0), rho_of(0.5, float(_HALF)), rel_tol=1e-6)
        noise = math.ceil(1 / math.sqrt(rho_of(0.5, float(_HALF))))  # one takes nearly half of it
        noisy = _cost("1/100", _HALF, event=Event.of("gaussian", noise_multiplier=noise, count=2))
        ledger.charge(noisy, analyst="ann")
        yield _passes(lambda: ledger.charge(noisy, analyst="ann"), BudgetError)
        yield not ledger.preview(noisy).fits


def bound() -> Iterator[bool]:
    """Yield whether a table with other secrets gets in, or a table is taken for another one."""
    with opened(*TOTAL) as (ledger, folder):
        again = Ledger.from_handle(ledger.handle, counter=Path(folder))
        yield [ledger.bind("rows", tag) for tag in ("a", "b", "a")] != [1, 2, 1]
        for book in (ledger, again):
            for tag in ("a", "b", "c"):
                yield _passes(lambda book=book, tag=tag: book.bind("labels", tag))
            yield _passes(lambda book=book: book.check_schema("labels"))
            yield _passes(lambda book=book: Ledger.open(
                _url(folder), **_terms(folder, *TOTAL), schema_digest="labels", content_tag="a"
            ))  # fmt: skip
        ledger.charge(_cost("1/3"))
        yield again.bind("rows", "c") != 3
        again.charge(_cost("1/3"))
        yield _passes(lambda: ledger.charge(_cost("2/5")), BudgetError)
        yield [charge["version"] for charge in ledger.show()["charges"]] != [1, 3]


def outcomes() -> Iterator[bool]:
    """Yield whether a charge pays for more than one outcome, or tells it."""
    third, half = _cost("1/3"), _cost("1/2")
    with opened(*TOTAL) as (ledger, _), opened(*TOTAL) as (other, _):
        first, others = ledger.reserve(third, label="one"), other.reserve(half, label="one")
        ledger.settle(first, b"told")
        ledger.settle(first, b"told")
        other.settle(others, b"told")
        yield _passes(lambda: ledger.settle(first, b"another"))
        yield _passes(lambda: ledger.settle(first))
        yield _passes(lambda: ledger.settle(others, b"told"))
        yield ledger.secret(first) != b"told"
        yield _macs(ledger) & _macs(other) != set()
        made = ledger.charge(third, key="a", label="two", secret=b"kept")
        asked = [ledger.charge(third, key="a", label="two", secret=b"new") for _ in range(2)]
        yield made.replayed or not all(each.replayed and each.sequence == made.sequence for each in asked)
        yield ledger.secret(made) != b"kept"
        yield _passes(lambda: ledger.charge(third, key="a", label="three"), RefusedError)
        yield _passes(lambda: ledger.charge(_cost("1/3", _HALF), key="a", label="two"), RefusedError)
        yield _spent(ledger) != Fraction(2, 3) or "told" in ledger.export() or "kept" in ledger.export()
    with opened(*TOTAL) as (ledger, _):
        ledger.grant("ann", "1/2")
        told = ledger.charge_many(
            [Request(half, "ann", key="a"), Request(half, "ann", key="a"), Request(third, "ann"),
             Request(_cost("2/3")), Request(third), Request(third)]
        )  # fmt: skip
        refused = [isinstance(each, BudgetError) for each in told]
        yield refused != [False, False, True, True, False, True]
        yield [getattr(each, "replayed", None) for each in told[:2]] != [False, True]
        yield _spent(ledger) != Fraction(5, 6) or ledger.account("ann").remaining.epsilon != 0


def _entries(ledger: Ledger) -> list[dict[str, Any]]:
    """Return the entries of an export whose hashes hold; nothing of another one."""
    listed, before, bodies = json.loads(ledger.export())["entries"], "0" * 64, []
    for entry in listed:
        body = json.loads(entry["body"])
        if (body["previous"], hashlib.sha256(entry["body"].encode()).hexdigest()) != (before, entry["hash"]):
            return []
        before = entry["hash"]
        bodies.append(body)
    return bodies


def _spent(ledger: Ledger) -> Fraction:
    """Return what the exported entries say was spent; infinite where the ledger says something else."""
    charges = (body["charge"]["epsilon"] for body in _entries(ledger) if "charge" in body)
    total = sum(map(Fraction, charges), Fraction(0))
    return total if total == ledger.total().epsilon else Fraction(10**9)


def _macs(ledger: Ledger) -> set[str]:
    return {body["secret"] for body in _entries(ledger) if body.get("secret") is not None}


def _forgotten(store: Store) -> None:
    """Forget what this process knows of a store, as a new one would."""
    store.marks.clear()
    store.known.clear()


def _rolled_back(folder: str, ledger: Ledger) -> None:
    place = Path(folder) / "ledger.db"
    ledger.charge(_cost("1/4"))
    Store.at(_url(folder)).close()
    shutil.copy(place, place.with_name("kept"))
    ledger.charge(_cost("1/2"))
    Store.at(_url(folder)).close()
    for end in ("-wal", "-shm"):
        place.with_name(place.name + end).unlink(missing_ok=True)
    place.with_name("kept").replace(place)


def _edited(folder: str, ledger: Ledger, table: str) -> None:
    """Write a balance of nothing spent past the ledger."""
    ledger.grant("ann", 1)
    ledger.charge(_cost("1/4"), analyst="ann")
    Store.at(_url(folder)).close()
    with closing(sqlite3.connect(f"{folder}/ledger.db")) as connection:
        connection.execute(f"UPDATE {table} SET spent = '0 0'")
        connection.commit()


def stores() -> Iterator[bool]:
    """Yield whether a charge is admitted on a store that was changed past the ledger."""
    for counter, new in ((None, True), (False, False)):
        with opened(*TOTAL, **({} if counter is None else {"counter": counter})) as (ledger, folder):
            _rolled_back(folder, ledger)
            if new:
                _forgotten(Store.at(_url(folder)))
            yield ledger.preview(_cost("1/4")).fits
            yield _passes(lambda ledger=ledger: ledger.charge(_cost("1/4")))
    for table in ("confide_head", "confide_account"):
        for new in (False, True):
            with opened(*TOTAL) as (ledger, folder):
                _edited(folder, ledger, table)
                if new:
                    _forgotten(Store.at(_url(folder)))
                yield _passes(lambda ledger=ledger: ledger.charge(_cost("1/4"), analyst="ann"))
                yield _passes(ledger.verify)
    with opened(*TOTAL) as (ledger, folder):
        ledger.charge(_cost("1/4"))
        Store.at(_url(folder)).close()
        for end in ("", "-wal", "-shm"):
            Path(f"{folder}/ledger.db{end}").unlink(missing_ok=True)
        yield _passes(lambda: Ledger.open(_url(folder), **_terms(folder, *TOTAL)))


#: How many checks all of them yield.
COUNT = sum(
    (
        22 + _GONE,
        len(list(_events())) + _GONE,
        6 + 5 + 2 + 3 * len(_SHAPES),
        20 + 15 + 6,
        5 + 3,
        1 + 10 + 3,
        10 + 3,
        4 + 8 + 1,
    )
)


def faults() -> Iterator[bool]:
    """Yield all checks."""
    for check in (alike, of_events, accounted, stated, summed, bound, outcomes, stores):
        yield from check()
