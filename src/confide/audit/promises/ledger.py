"""Claims of `confide.ledger`: what is admitted, refused and left tells nothing of the rows, and is right.

``ledger.requests`` makes one request after the other on one ledger in a folder of its own, and shows what
came back beside the results: type and message of each refusal, and what is left after it. On neighbours with
the mechanisms' answers frozen all of it must be equal (`replay`), whatever the rows are: across the gap
condition of a selection, beyond the bounds, without cells, without a class.

``ledger.balances`` reads no rows. It makes charges whose outcome is known, written out here or computed by
the audit's own code, and shows what was refused and what is left: one outcome has probability 1, so that a
single draw of another breaks the claim (`law of draws`). Equal balances on neighbours say nothing of a ledger
that forgets, or admits too much, on both of them. Charges that are chosen by what was admitted before are
made too, of ledgers, filters and accountants (`confide.audit.adaptive`), and charges that a ledger must tell
apart, or refuse for another reason than their amount (`confide.audit.charges`).

The answers of a service are attacked in tests/audit/test_service_claim.py: this room lies below that one.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from confide.audit import adaptive, charges, losses, neighbours
from confide.audit.charges import opened
from confide.audit.exact import certain
from confide.audit.losses import Cost
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Kind, Law, Pair, promise
from confide.errors import BudgetError, ConfideError
from confide.ledger import Ledger, Request
from confide.ledger.store import Store
from confide.mechanisms import RandomStream
from confide.prediction import CertifiedClassifier
from confide.privacy import (
    Event,
    Guarantee,
    PLDAccountant,
    RDPFilter,
    ZCDPFilter,
    combine,
    compose,
    zcdp_epsilon,
)
from confide.selection import SubsetProblem, SubsetSelector, gap_condition
from confide.training import PrivateClassifier, PrivateRegressor

_TOTAL, _DELTA = 3, Fraction(1, 100)
_BOUNDS: dict[str, Any] = {"feature_bounds": (-1, 1)}
_NUMBERS = {**_BOUNDS, "target_bounds": (-1, 1)}
_CLASSES = {**_BOUNDS, "classes": [-1.0, 1.0]}
_SECRET = {"public": None, "adjacency": "replace_one"}
_QUERY = np.array([[-1.0, -0.2, 0.3]])


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


#: Total of the ledgers whose balances are known, and less than any amount that is left.
_ALL, _PART = (Fraction(1), Fraction(1, 10**6)), Fraction(1, 10**40)
#: What came of a request, as a number: -1 for another error.
_CAME = (
    "",
    "BudgetError",
    "AssumptionError",
    "AdjacencyError",
    "RefusedError",
    "UnsupportedError",
    "LedgerError",
)
#: A request, its refusal (nothing where it is admitted), and what is left then of all accounts in order.
Step = tuple[Callable[[Ledger], Any], str, tuple[Any, ...]]


def _cost(
    epsilon: Any,
    delta: Any = 0,
    adjacency: str = "replace_one",
    unit: str = "row",
    *,
    assumes: str = "",
    event: Event | None = None,
) -> Guarantee:
    event = event or Event.of("approximate", epsilon=str(epsilon), delta=str(delta))
    return Guarantee(epsilon, delta, adjacency, unit, event, (assumes,) if assumes else ())


def _twice(ledger: Ledger) -> None:
    """Charge two requests in one commit, of which one alone fits."""
    for told in ledger.charge_many([Request(_cost("1/30")), Request(_cost("1/30", _PART))]):
        if isinstance(told, Exception):
            raise told


_HALF = Fraction(1, 2 * 10**6)
_STEPS: tuple[Step, ...] = (
    (lambda to: to.charge(_cost("1/3")), "", ("2/3", _ALL[1])),
    (lambda to: to.charge(_cost("1/3", _HALF), key="a"), "", ("1/3", _HALF)),
    (lambda to: to.charge(_cost("1/3", _HALF), key="a"), "", ("1/3", _HALF)),  # the first one again
    (lambda to: to.charge(_cost(Fraction(1, 3) + _PART)), "BudgetError", ("1/3", _HALF)),
    (lambda to: to.reserve(_cost(0, _HALF + _PART)), "BudgetError", ("1/3", _HALF)),
    # A key that is used again for more: refused, and not forgotten.
    (lambda to: to.charge(_cost("1/2", _HALF), key="a"), "RefusedError", ("1/3", _HALF)),
    (lambda to: to.charge(_cost("1/3"), key="a"), "RefusedError", ("1/3", _HALF)),
    (lambda to: to.charge(_cost("1/100", 0, "replace_label")), "AdjacencyError", ("1/3", _HALF)),
    (lambda to: to.charge(_cost("1/100", 0, "replace_private_part")), "AdjacencyError", ("1/3", _HALF)),
    (lambda to: to.charge(_cost("1/100", unit="person")), "RefusedError", ("1/3", _HALF)),
    # A replaced row goes, and another one comes.
    (lambda to: to.charge(_cost("1/10", 0, "add_remove_one")), "", ("2/15", _HALF)),
    (lambda to: to.charge(_cost("1/15", _HALF / 2, "add_remove_one")), "BudgetError", ("2/15", _HALF)),
    (lambda to: to.charge(_cost("1/30", _HALF / 5, "add_remove_one")), "",
     ("1/15", _HALF - _HALF / 5 * Fraction(1 + math.exp(1 / 30)))),
    *(
        (lambda to, name=name: to.charge(_cost("1/100", assumes=name)), "AssumptionError", ("1/15", None))
        for name in ("gap condition", "the chain has mixed", "seeded", "unrecorded", "nonprivate")
    ),
    (lambda to: to.charge(_cost("1/100", assumes="seeded"), accept=("seeded",)), "AssumptionError",
     ("1/15", None)),
    (lambda to: to.charge(_cost("1/30", assumes="gap condition"), accept=("gap condition",)), "",
     ("1/30", None)),
    (lambda to: to.charge(_cost("1/100", assumes="gap condition")), "AssumptionError", ("1/30", None)),
    (lambda to: to.charge(_cost(math.inf, assumes="nonprivate")), "AssumptionError", ("1/30", None)),
    (_twice, "BudgetError", (0, None)),
    (lambda to: to.charge(_cost(_PART)), "BudgetError", (0, None)),
    (lambda to: to.charge(_cost(0)), "", (0, None)),
)  # fmt: skip

#: The same of a total and of two analysts: more is granted to them than there is.
_GRANTS: tuple[Step, ...] = (
    (lambda to: to.grant("ann", "1/2", _HALF) and to.grant("bob", 1), "", (1, "1/2", 1)),
    (lambda to: to.charge(_cost("1/3", _HALF), analyst="ann", key="a"), "", ("2/3", "1/6", 1)),
    (lambda to: to.charge(_cost("1/3"), analyst="ann"), "BudgetError", ("2/3", "1/6", 1)),
    (lambda to: to.charge(_cost("1/100", _PART), analyst="ann"), "BudgetError", ("2/3", "1/6", 1)),
    (lambda to: to.charge(_cost("1/100", _PART), analyst="bob"), "BudgetError", ("2/3", "1/6", 1)),
    (lambda to: to.grant("ann", "1/2", _HALF), "", ("2/3", "1/6", 1)),  # what is spent stays spent
    (lambda to: to.charge(_cost(Fraction(1, 6) + _PART), analyst="ann"), "BudgetError", ("2/3", "1/6", 1)),
    (lambda to: to.charge(_cost("1/10"), analyst="eve"), "RefusedError", ("2/3", "1/6", 1)),
    (lambda to: to.charge(_cost("1/3", _HALF), analyst="bob", key="a"), "BudgetError", ("2/3", "1/6", 1)),
    (lambda to: to.charge(_cost("1/2"), analyst="bob", key="a"), "", ("1/6", "1/6", "1/2")),
    (lambda to: to.charge(_cost("1/4"), analyst="bob"), "BudgetError", ("1/6", "1/6", "1/2")),
    (lambda to: to.grant("ann", "1/4"), "", ("1/6", 0, "1/2")),  # below what is spent
    (lambda to: to.charge(_cost(_PART), analyst="ann"), "BudgetError", ("1/6", 0, "1/2")),
    (lambda to: to.charge(_cost("1/6"), analyst="bob"), "", (0, 0, "1/3")),
    (lambda to: to.charge(_cost(_PART)), "BudgetError", (0, 0, "1/3")),
)


#: Of a Gaussian, which costs 1/800: so many fit, and leave half of one.
_NOISE = 20
_RHO = adaptive.rho_of(1.0, 1e-6)
_FIT = math.floor(2 * _NOISE**2 * _RHO)


def _noise(count: int = 1, adjacency: str = "replace_one") -> Guarantee:
    event = Event.of("gaussian", noise_multiplier=_NOISE, count=count)
    return _cost(1, _HALF, adjacency, event=event)


def _zcdp() -> tuple[Step, ...]:
    each, pure = 1 / (2 * _NOISE**2), Event.of("pure", epsilon="1/20")  # 1/800 as well
    left = [_RHO - spent * each for spent in (1, 5, 6, _FIT)]
    unknown = _cost("1/100", _PART)
    return (
        (lambda to: to.charge(_noise()), "", (left[0],)),
        (lambda to: to.charge(_noise(1, "add_remove_one")), "", (left[1],)),
        (lambda to: to.charge(_cost("1/20", event=pure)), "", (left[2],)),
        (lambda to: to.charge(unknown), "UnsupportedError", (left[2],)),
        (lambda to: to.charge(_noise(_FIT - 5)), "BudgetError", (left[2],)),
        (lambda to: to.charge(_noise(_FIT - 6)), "", (left[3],)),
        (lambda to: to.charge(_noise()), "BudgetError", (left[3],)),
    )


def _amounts(ledger: Ledger) -> tuple[Any, ...]:
    left = ledger.remaining()
    return left.epsilon, left.delta


def _accounts(ledger: Ledger) -> tuple[Any, ...]:
    return tuple(ledger.remaining(name).epsilon for name in (None, "ann", "bob"))


#: Steps, how a ledger is opened for them, and what is read after each.
_SCRIPTS: tuple[tuple[tuple[Step, ...], dict[str, Any], Callable[[Ledger], tuple[Any, ...]]], ...] = (
    (_STEPS, {}, _amounts),
    (_GRANTS, {}, _accounts),
    (_zcdp(), {"accountant": "zcdp"}, lambda ledger: (ledger.remaining().rho,)),
)


def _number(amount: Any) -> float:
    """Return an amount to 6 digits: limits of zCDP are computed, and deltas of two steps rounded up."""
    return float(f"{float(Fraction(amount)):.6g}")


def _came(ask: Callable[[], Any]) -> float:
    try:
        ask()
    except ConfideError as error:
        name = type(error).__name__
        return float(_CAME.index(name) if name in _CAME else -1)
    return 0.0


def _restored() -> float:
    """Return what comes of a charge on a store that was rolled back to before another charge."""
    with opened(*_ALL) as (ledger, folder):
        place = Path(folder) / "ledger.db"
        ledger.charge(_cost("1/2"))
        Store.at(f"sqlite:///{place}").close()
        shutil.copy(place, place.with_name("kept"))
        ledger.charge(_cost("1/2"))
        Store.at(f"sqlite:///{place}").close()
        for end in ("-wal", "-shm"):
            place.with_name(place.name + end).unlink(missing_ok=True)
        place.with_name("kept").replace(place)
        return _came(lambda: ledger.charge(_cost("1/2")))


#: What `_short`, `_in_turn` and `charges.faults` yield.
_CHECKS = (2 + 6 + 6 + 8 + 3) + (6 + 4) + 4 + charges.COUNT
#: A loss on the grid of `losses`, so that it is exact there.
_SIZE = Fraction(1, 64)
#: Events that are composed: what one is, what it costs from below, how many, and the total delta.
_COMPOSED: tuple[tuple[Event, Cost, int, float], ...] = (
    (Event.of("pure", epsilon="1/10"), losses.pure(0.1), 64, 1e-6),
    (Event.of("gaussian", noise_multiplier=10), losses.gaussian(10), 120, 1e-6),
    (Event.of("poisson_gaussian", noise_multiplier=1, sampling_probability="1/10",
              adjacency="add_remove_one"),
     losses.sampled(1, 0.1, added=True), 16, 1e-6),
    # The multiplier is of one row's longest: a row that is replaced moves a sum by twice that.
    (Event.of("poisson_gaussian", noise_multiplier=2, sampling_probability="1/10", adjacency="replace_one"),
     losses.sampled(1, 0.1, added=False), 4, 1e-6),
    # So small a delta is told by Renyi divergences.
    (Event.of("pure", epsilon="1/20"), losses.pure(0.05), 200, 1e-11),
    (Event.of("pure", epsilon=2), losses.pure(2), 3, 1e-3),
)  # fmt: skip


#: Totals whose rho is known.
_TOTALS = (0.1, 1e-5), (1.0, 1e-9), (4.0, 1e-12), (8.0, 1e-3)


def _short() -> Iterator[bool]:
    """Yield whether what composes tells less than the audit's own code from below, or far more."""
    for count in (64, 256):
        told, cost = compose(_SIZE, count, "1/1000000"), [losses.pure(_SIZE)] * count
        yield losses.exceeds(cost, told, 1e-6) or not losses.exceeds(cost, 0.999 * told, 1e-6)
    for event, each, count, delta in _COMPOSED:
        told = float(PLDAccountant().compose(event, count).epsilon(delta))
        yield losses.exceeds([each] * count, told, delta)
    for filtered in (ZCDPFilter(*_ALL), RDPFilter(*_ALL)):
        event = _noise().event
        yield not filtered.admits(event, _FIT)
        yield filtered.admits(event, _FIT + 1) or filtered.spend(event, _FIT).admits(event)
        yield losses.delta([losses.gaussian(_NOISE)] * _FIT, 1.0) > 1e-6
    for total in _TOTALS:
        told, known = float(ZCDPFilter(*total).limit), adaptive.rho_of(*total)
        yield not 0.999 * known < told < known * (1 + 1e-6)
        yield not total[0] * (1 - 1e-6) < zcdp_epsilon(known, total[1]) < 1.001 * total[0]
    both = combine([_cost("1/3", _HALF, assumes="gap condition"), _cost("1/7", _HALF)])
    yield (both.epsilon, both.delta, both.assumptions) != (Fraction(10, 21), 2 * _HALF, ("gap condition",))
    for other in (_cost(1, 0, "add_remove_one"), _cost(1, unit="person")):
        yield _came(lambda other=other: combine([_cost(1), other])) == 0


#: Charges of two analysts, large ones first, and what each of them is granted.
_GRANTED = {"ann": (Fraction(1, 2), _ALL[1] / 2), "bob": (Fraction(3, 4), _ALL[1])}
_ASKED = tuple(
    (name, _cost(epsilon, share * _ALL[1]))
    for name, epsilon, share in (
        ("bob", "1/3", Fraction(1, 3)), ("ann", "1/4", Fraction(0)), ("bob", "1/7", Fraction(1, 9)),
        ("ann", "1/9", Fraction(1, 4)), ("bob", "1/30", Fraction(1, 50)), ("ann", "1/60", Fraction(0)),
    )
)  # fmt: skip


def _room(held: list[tuple[str, Guarantee]]) -> Fraction:
    """Return what is left of the least of all totals, in shares of it."""
    left = []
    for name, limits in {"": _ALL, **_GRANTED}.items():
        own = [told for who, told in held if name in ("", who)]
        spent = (sum((g.epsilon for g in own), Fraction(0)), sum((g.delta for g in own), Fraction(0)))
        left += [1 - Fraction(used) / limit for used, limit in zip(spent, limits, strict=True)]
    return min(left)


def _asking(ledger: Ledger) -> Callable[[str | None, Guarantee], bool]:
    """Return what asks for a charge: every other one is a reservation that stays open."""
    ways = cycle((ledger.charge, ledger.reserve))

    def ask(name: str | None, told: Guarantee) -> bool:
        try:
            next(ways)(told, analyst=name)
        except BudgetError:
            return False
        return True

    return ask


def _in_turn() -> Iterator[bool]:
    """Yield whether charges that are chosen one after the other get what does not fit, or less."""
    yield from adaptive.filters()
    yield from adaptive.accountants()
    for strategy in adaptive.STRATEGIES[1:]:
        with opened(*_ALL) as (ledger, _):
            for name, limits in _GRANTED.items():
                ledger.grant(name, *limits)
            ask = _asking(ledger)
            yield adaptive.walked(_ASKED, strategy, lambda told, ask=ask: ask(*told), _room)[0]
        with opened(Fraction(adaptive.EPSILON), Fraction(1, 10**6), accountant="zcdp") as (ledger, _):
            ask = _asking(ledger)
            yield adaptive.walked(
                adaptive.SMOOTH, strategy,
                lambda told, ask=ask: ask(None, _cost(1, _HALF, event=told.event)), adaptive.left_of_rho,
            )[0]  # fmt: skip


@cache
def _balances() -> tuple[float, ...]:
    """Make every charge and composition, once a process: nothing of it is drawn."""
    told: list[float] = []
    for steps, terms, read in _SCRIPTS:
        with opened(*_ALL, **terms) as (ledger, _):
            for ask, _, left in steps:
                told.append(_came(lambda ask=ask, ledger=ledger: ask(ledger)))
                told += [
                    _number(now) for now, then in zip(read(ledger), left, strict=False) if then is not None
                ]
    checks = (*_short(), *_in_turn(), *charges.faults())
    return (*told, _restored(), *map(float, checks))


def _known(table: Any) -> Law:
    """Return the law of `_balances`: one outcome."""
    told: list[float] = []
    for steps, _, _ in _SCRIPTS:
        for _, came, left in steps:
            told += [float(_CAME.index(came)), *(_number(then) for then in left if then is not None)]
    rest = [float(_CAME.index("LedgerError")), *[0.0] * _CHECKS]
    return certain({(*told, *rest): Fraction(1)})


promise(
    "ledger.balances", Kind.ESTIMATOR, *_ALL, "replace_one",
    "sums of exact amounts within limits; confide.ledger.budget", lambda: [Pair("no rows", 0, 0)],
    run=lambda table, stream: np.array(_balances()), law=_known, replayed=False, fuzzed=False,
    note="No rows are read: what is charged, and what is left, are known beforehand.",
    draws=4, quick=2,
)  # fmt: skip
