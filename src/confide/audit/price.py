"""Prices: what a run's mechanisms cost together against what it claims, charges and describes.

`replay` shows that each input moves by no more than the mechanism was told. What is then spent follows from
the noise alone. It is read from the calls as they happen, composed from below by code of the audit's own
(`confide.audit.losses`), and held against

- the claim;
- each charge: its epsilon and delta, against the calls inside of it;
- the event of each charge, which the ledger composes with others: it may say less than the calls at no
  epsilon;
- where nothing is charged, the guarantee that was made last, which the result carries.

Charges together may not pass the claim either. Nothing here is statistical: a run that costs more than it
says is a counter-example.

=====================================  ===============================================================
edge case                              what happens
=====================================  ===============================================================
mechanisms that read no data           cost nothing here: what is added by hand shows in `replay`
one row in a channel over all rows     one draw: neighbours differ in one row
a channel of one output                as one of two: how many there are may follow from an answer
a baseline of several columns          a draw a column, a share of epsilon each: what it may be at the least
an epoch of the sparse vector          once, however often it is asked
a choice by weights                    nothing: `replay` holds its log-ratios against the claim
a random number of runs                the best of them is held against the charge, each run against its own
                                       charge, each score against the parts of the event; no more fits or
                                       scores than runs were drawn, by the law that the event names
a run that is charged once             one charge, however often it goes on
calls outside of every charge          too early, or too late, where anything is charged: a charge that is
                                       refused must find nothing drawn
charges of one call of a front door    together no more than was asked of it; others one by one
answers of a certified classifier      are asked for by the query, so that their charges are not held so
a charge that is refused               is none
no charge                              the guarantee is held against what was asked, as a charge is
no charge and no guarantee             the calls against the claim alone
=====================================  ===============================================================
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from confide.audit import best, losses
from confide.audit.finding import Finding, Verdict
from confide.audit.legend import many
from confide.audit.losses import Cost
from confide.audit.recorded import Arguments, Mechanism
from confide.audit.registry import Claim, Pair
from confide.audit.replay import Outcome, Recorder, observe
from confide.mechanisms import seeded_stream
from confide.privacy import Guarantee
from confide.privacy.adjacency import Adjacency
from confide.privacy.event import RANDOM_STOPPING

#: Relative error of amounts in double precision.
_ROUNDING = 1e-9
#: Relation -> those whose neighbours are all neighbours under it too, so that what holds for these holds for
#: them: a changed label is a changed private part, that is a replaced row; one that comes or goes is neither,
#: and a replacement is two of those. Apart from `Adjacency.implies`, which is under attack as well.
_HOLDS = {
    Adjacency.ADD_REMOVE_ONE: (Adjacency.ADD_REMOVE_ONE,),
    Adjacency.REPLACE_ONE: (
        Adjacency.REPLACE_ONE, Adjacency.REPLACE_PRIVATE_PART, Adjacency.REPLACE_LABEL,
    ),
    Adjacency.REPLACE_PRIVATE_PART: (Adjacency.REPLACE_PRIVATE_PART, Adjacency.REPLACE_LABEL),
    Adjacency.REPLACE_LABEL: (Adjacency.REPLACE_LABEL,),
}  # fmt: skip
#: Shares of epsilon at which an event is held against the calls.
_SHARES = (0.25, 0.5, 1.0)


@dataclass(eq=False)
class Spent:
    """What was spent inside of one charge.

    Parameters
    ----------
    guarantee : Guarantee or None
        None for a whole run.
    costs : list of Cost
    inner : list of Spent
        Charges inside of it.
    own : list of Cost
        Those that lie in none of these.
    law : Stopping or None
        Of the number of runs that was drawn inside of it.
    runs : int
        That number.
    """

    guarantee: Guarantee | None = None
    costs: list[Cost] = field(default_factory=list)
    inner: list[Spent] = field(default_factory=list)
    own: list[Cost] = field(default_factory=list)
    law: Any = None
    runs: int = 0


class Till(Recorder):
    """Prices the outermost calls of mechanisms, and keeps them by the charges that they fall under."""

    def __init__(self, adjacency: Adjacency) -> None:
        super().__init__()
        self.whole = Spent()
        self.paid: list[Spent] = []
        self.outermost: list[Guarantee] = []
        self.last: Guarantee | None = None
        #: Outermost charges of each call of a front door, and each other one but those of answers.
        self.asked: list[list[Guarantee]] = []
        self.refused = False
        self.random = False
        self._adjacency = adjacency
        self._open: list[Spent] = [self.whole]
        self._epochs: list[Any] = []
        self._rate = 1.0
        self._once: dict[Any, Spent] = {}
        #: Steps on the present batch, since it was drawn.
        self._used = 0
        self.reused = False
        self._front, self._answering = 0, False

    def released(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Let a model be fitted; what it is charged is charged for one question."""
        if not self._front:
            self.asked.append([])
        self._front += 1
        try:
            return run(*args, **named)
        finally:
            self._front -= 1

    def charged(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Keep a charge that is admitted, with what is spent inside of it."""
        return self._charge(run, args, named, None)

    def charged_once(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Keep the charge of a run that may go on: what is spent then is spent under the same charge."""
        return self._charge(run, args, named, args[2] if len(args) > 2 else named["run"])

    def stopped(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Keep the number of runs, and its law."""
        spent = self._open[-1]
        spent.law, spent.runs = args[0] if args else named["law"], run(*args, **named)
        return spent.runs

    def _charge(self, run: Callable[..., Any], args: Any, named: Any, key: Any) -> Any:
        guarantee = args[1]
        self.charges.append(guarantee)

        @contextmanager
        def inside() -> Iterator[Any]:
            self.refused, refused = True, self.refused
            with run(*args, **named) as reservation:
                self.refused = refused
                known = self._once.get(key)
                spent = Spent(guarantee) if known is None else known
                if known is None:
                    self.paid.append(spent)
                    self._open[-1].inner.append(spent)
                    if len(self._open) == 1:
                        self.outermost.append(guarantee)
                        self._told(guarantee)
                        self.random |= guarantee.event.mechanism == RANDOM_STOPPING
                    if key is not None:
                        self._once[key] = spent
                self._open.append(spent)
                self._rate = 1.0  # of batches of this fit alone
                try:
                    yield reservation
                finally:
                    self._open.remove(spent)

        return inside()

    def _told(self, guarantee: Guarantee) -> None:
        if self._front:
            self.asked[-1].append(guarantee)
        elif not self._answering:
            self.asked.append([guarantee])

    def held(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Let a model be fitted that is asked by the query."""
        self._answering = True
        return run(*args, **named)

    def promised(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Keep the guarantee that was made last."""
        run(*args, **named)
        self.last = args[0]

    def sampled(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Keep the rate of the batches that follow."""
        scale = named["scale"] if "scale" in named else args[1]
        self._rate = -math.expm1(-1 / scale)

        def fresh() -> Iterator[Any]:
            for batch in run(*args, **named):
                self._used = 0
                yield batch

        return fresh()

    def met(self, mechanism: Mechanism, given: Arguments) -> None:
        """Add what one call costs to all that it falls under."""
        costs = list(self._costs(mechanism.name, given))
        self._open[-1].own += costs
        for spent in self._open:
            if mechanism.name == "step_answer" and self._used > 1 and self._rate < 1:
                # On a batch that was used before: all steps on it cost what one of less noise does.
                before = self._step(given["noise_multiplier"], self._used - 1)
                spent.costs = [cost for i, cost in enumerate(spent.costs) if i != _last(spent.costs, before)]
            spent.costs += costs

    def _costs(self, name: str, given: Arguments) -> Iterable[Cost]:
        if name == "step_answer":
            self._used += 1
            self.reused |= self._rate < 1 and self._used > 1
            return [self._step(given["noise_multiplier"], self._used if self._rate < 1 else 1)]
        if name == "SparseVector.above_many":
            if any(given["self"] is epoch for epoch in self._epochs):
                return []
            self._epochs.append(given["self"])
        return _COSTS[name](given) if name in _COSTS else []

    def _step(self, multiplier: Any, times: int) -> Cost:
        """Return the cost of so many steps on one batch: a row is in all of them, or in none."""
        added = self._adjacency is Adjacency.ADD_REMOVE_ONE
        return losses.sampled(multiplier / math.sqrt(times), self._rate, added=added)


def _last(costs: list[Cost], cost: Cost) -> int:
    """Return the last place of a cost; -1 where it is none."""
    return max((i for i, one in enumerate(costs) if one == cost), default=-1)


def _channel(given: Arguments) -> list[Cost]:
    channel = given["self"]
    return [losses.pure(math.log(channel.own / channel.other))]


def _answers(given: Arguments) -> list[Cost]:
    law = given["self"]
    count = getattr(given["labels"], "size", 1)
    return [losses.approximate(law.epsilon, law.delta)] * count


def _drawn(given: Arguments) -> list[Cost]:
    return [losses.pure(given["epsilon"])] * int(given["size"] or 1)


def _by_columns(given: Arguments) -> list[Cost]:
    columns = given["problem"].size
    return [losses.pure(Fraction(given["epsilon"]) / columns)] * columns * int(given["size"] or 1)


#: Mechanism (`recorded`) -> what a call costs.
_COSTS: dict[str, Callable[[Arguments], Iterable[Cost]]] = {
    "gaussian_release": lambda given: [losses.gaussian(given["noise_multiplier"])],
    "laplace_release": lambda given: [losses.pure(given["epsilon"])],
    "Channel.draw": _channel,
    "Law.draw": _answers,
    "ProposeTestRelease.draw": _answers,
    "SparseVector.above_many": lambda given: [losses.pure(given["self"].epsilon)],
    "draw": _drawn,
    "baseline": _by_columns,
    "release": lambda given: losses.of_event(given["plan"].event) or (),
}


def price(claim: Claim, table: Any, seed: int = 0) -> tuple[Till, Outcome]:
    """Run a claim once and return what was spent, and what the run showed."""
    till = Till(claim.adjacency)
    return till, observe(lambda: claim.run(table, seeded_stream(seed)), till)


def faults(claim: Claim, till: Till) -> Iterator[str]:
    """Yield where a run costs more than the claim, and more than it says itself."""
    if not till.random:
        if _passes(till.whole.costs, claim.epsilon, claim.delta):
            yield f"the calls cost {_text(till.whole.costs, claim.delta)}, the claim is {_pair(claim)}"
        epsilon, delta = (sum(getattr(g, name) for g in till.outermost) for name in ("epsilon", "delta"))
        if epsilon > claim.epsilon or delta > claim.delta:
            yield f"charges add up to {float(epsilon):.6g}, {float(delta):.3g}; the claim is {_pair(claim)}"
    yield from dishonest(claim, till)


def dishonest(claim: Claim, till: Till) -> Iterator[str]:
    """Yield where a run costs more than it says itself, whatever the claim's amounts are.

    One that says nothing is held against these.
    """
    if till.reused:  # at large epsilon its delta is above that of as many batches, whatever is charged
        yield "a secret batch is used for more than one step"
    if (till.paid or till.refused) and till.whole.own:
        yield f"{many(len(till.whole.own), 'call')} outside of every charge: a refusal comes too late"
    said = till.paid
    if not said and till.last is not None:
        said = [Spent(till.last, till.whole.costs)]
    if not said and not till.random and _passes(till.whole.costs, claim.epsilon, claim.delta):
        costs = _text(till.whole.costs, claim.delta)
        yield f"the calls cost {costs}, nothing is charged and {_pair(claim)} was asked for"
    for spent in said:
        yield from _dishonest(claim.adjacency, spent)


def beyond(claim: Claim, till: Till) -> Iterator[str]:
    """Yield where one question is charged more than the amounts of a claim, which were asked of it."""
    if till.random:
        return
    last = [] if till.last is None or till.paid else [[till.last]]
    for told in (*till.asked, *last):
        epsilon, delta = (sum(getattr(one, name) for one in told) for name in ("epsilon", "delta"))
        if epsilon > claim.epsilon or delta > claim.delta:
            yield f"charged is {float(epsilon):.6g}, {float(delta):.3g}; asked was {_pair(claim)}"


def _dishonest(adjacency: Adjacency, spent: Spent) -> Iterator[str]:
    told = spent.guarantee
    assert told is not None
    if adjacency not in _HOLDS[told.adjacency]:
        yield f"what is charged holds under {told.adjacency.value}, the claim under {adjacency.value}"
    if told.event.mechanism == RANDOM_STOPPING:
        yield from _stopped(spent)
        return
    if _passes(spent.costs, told.epsilon, told.delta):
        yield f"the calls cost {_text(spent.costs, told.delta)}, charged is {_pair(told)}"
    described = losses.of_event(told.event)
    if described is None:
        return
    if _passes(described, told.epsilon, told.delta):
        yield f"the event costs {_text(described, told.delta)}, charged is {_pair(told)}"
    shares = [share * float(told.epsilon) for share in _SHARES]
    if (epsilon := _exceeded(described, spent.costs, shares)) is not None:
        yield f"the event says less than the calls cost at epsilon {epsilon:.4g}"


def _exceeded(said: Sequence[Cost], costs: Sequence[Cost], tried: Iterable[float]) -> float | None:
    """Return the first epsilon at which costs have a larger delta than what is said of them."""
    if losses.alike(costs, said):
        return None
    above = losses.error(said)
    return next((e for e in tried if losses.delta(costs, e) > losses.delta(said, e) + above), None)


def _stopped(spent: Spent) -> Iterator[str]:
    """Yield where the best of a random number of runs costs more than is charged for it."""
    told = spent.guarantee
    assert told is not None
    event = told.event
    eta, gamma = (float(Fraction(str(event[name]))) for name in ("eta", "gamma"))
    if spent.law is None or (float(spent.law.eta), float(spent.law.gamma)) != (eta, gamma):
        yield "the number of runs is not drawn by the law that the event names"
    elif max(len(spent.inner), len(spent.own)) > spent.runs:
        yield f"{len(spent.inner)} fits and {len(spent.own)} scores of {spent.runs} runs"
    parts = [costs for part in event.parts if (costs := losses.of_event(part)) is not None]
    made = [tuple(run.costs) for run in spent.inner]
    shares = [share * float(told.epsilon) for share in (0.0, *_SHARES)]
    for cost in dict.fromkeys(spent.own if len(parts) == len(event.parts) else ()):
        if all(_exceeded(part, (cost,), shares) is not None for part in parts):
            yield f"a score costs {_text((cost,), told.delta)}: more than any part of the event"
    epsilon, delta = float(told.epsilon) * (1 + _ROUNDING), float(told.delta) * (1 + _ROUNDING)
    for costs in dict.fromkeys((*parts, *made)):
        # One pair alone: of others, what they cost together is no score.
        if len(costs) == 1 and best.delta(costs[0], eta, gamma, epsilon) > delta + best.ERROR:
            yield f"the best of runs that cost {_text(costs, delta)} costs more than {_pair(told)}"


def _passes(costs: Iterable[Cost], epsilon: Any, delta: Any) -> bool:
    spent, slack = tuple(costs), float(delta)
    room = float(epsilon) * (1 + _ROUNDING)
    if slack == 0:
        return losses.epsilon(spent, 0.0) > room
    return losses.exceeds(spent, room, slack)


def _text(costs: Iterable[Cost], delta: Any) -> str:
    return f"epsilon {losses.epsilon(tuple(costs), float(delta)):.6g} at delta {float(delta):.3g}"


def _pair(told: Claim | Guarantee) -> str:
    return f"{float(told.epsilon):.6g}, {float(told.delta):.3g}"


def check(
    claim: Claim, pairs: Iterable[Pair], options: Iterable[Claim] = (), *, seed: int = 0
) -> Finding | None:
    """Attack a claim by the price of one run on each table of the pairs.

    Parameters
    ----------
    claim : Claim
    pairs : iterable of Pair
    options : iterable of Claim
        The claim with other options (`confide.audit.options.variants`), whose amounts may be others: each is
        run on its first table, and held against its own charges, and these against what it asks.
    seed : int

    Returns
    -------
    Finding or None
        None for a claim whose runs are no sequences of recorded mechanisms (`Claim.replayed`).
    """
    if not claim.replayed:
        return None
    begun, found, tried, note, raised = time.process_time(), list[tuple[str, str]](), 0, "", 0
    tables = [(pair.name, table) for pair in pairs for table in (pair.here, pair.there)]
    for name, table in tables:
        tried += 1
        till, shown = price(claim, table, seed + tried)
        raised += shown.error != ""
        found += [(name, what) for what in faults(claim, till)]
        note = note or _spent(claim, till)
    for option in options:
        tried += 1
        pair = next(iter(option.pairs()))
        till, shown = price(option, pair.here, seed + tried)
        raised += shown.error != ""
        told = (*dishonest(option, till), *beyond(option, till))
        found += [(pair.name, f"{option.name}: {what}") for what in told]
    note += f"; {many(raised, 'run')} ended in an error, after what they had spent" if raised else ""
    return Finding(
        claim.name, "price", Verdict.BROKEN if found else Verdict.HOLDS, pair=found[0][0] if found else "",
        tried=tried, seconds=time.process_time() - begun, note=found[0][1] if found else note,
    )  # fmt: skip


def _spent(claim: Claim, till: Till) -> str:
    charges = f"; {many(len(till.paid), 'charge')}, each held against its own calls" if till.paid else ""
    if till.random:
        return f"a random number of runs{charges}"
    return f"the calls cost at least {_text(till.whole.costs, claim.delta)}{charges}"
