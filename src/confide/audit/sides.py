"""Side channels: what a run shows beside its result must be equal on neighbours.

==========================  ===========================================================================
what is compared            where
==========================  ===========================================================================
exceptions and messages     with the mechanisms' answers frozen (`replay`): what follows an answer may
warnings, logs, print       differ, since the answer may be told
calls of mechanisms         frozen
charges                     frozen, and on two runs of their own
type, dtype, shape          the same
what was fitted             frozen: all that it holds and shows (`portrait`)
grid of each release        the same step, and released values are its multiples, on both tables
last bits of the output     many runs of their own: `support`
CPU time                    reported, not judged, since no guarantee covers it: `pace`
==========================  ===========================================================================
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit import blackbox
from confide.audit.finding import Finding, Verdict
from confide.audit.legend import many
from confide.audit.portrait import portrait, surface
from confide.audit.registry import Claim, Floats, Pair
from confide.audit.replay import Fault, Outcome, Recorder, Replayed, observe, replay
from confide.errors import ConfideError
from confide.mechanisms import RandomStream, seeded_stream

#: Releases whose outputs lie on the grid of their statistic.
_ON_GRID = ("gaussian_release", "laplace_release", "step_answer")
#: Runs that an interval of a median needs at 0.996, and what each of its ends may miss.
_FEWEST, _OUTSIDE = 9, 0.002
#: Columns whose last bits are told apart, and the error at which sets of them are compared while learning.
_COLUMNS, _LEARNING = 32, 1e-4
#: The last bit of a zero.
_ZERO = 2000.0


class Sitting(Recorder):
    """Draws a portrait of each model that is fitted."""

    def released(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Draw all that a model holds and shows."""
        made = run(*args, **named)
        self.portraits.append(portrait(args[0] if hasattr(args[0], "get_params") else made))
        return made

    def held(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Draw what a secret model shows."""
        made = run(*args, **named)
        self.portraits.append(surface(made))
        return made


def beside(told: Replayed) -> Iterator[str]:
    """Yield what replays show beside their result.

    A model that is remembered says what it has to say in its first run. So both runs on the first table are
    compared with that on the other, under the same answers: neither may be like it.
    """
    again = set(differences(told.recorded, told.there, frozen=True))
    yield from (what for what in differences(told.here, told.there, frozen=True) if what in again)


def seen(claim: Claim, pair: Pair, seed: int = 0) -> tuple[Outcome, list[str]]:
    """Return a run on the first table, and what tells it from runs on the other.

    They are compared with the mechanisms' answers frozen, and on answers of their own.
    """
    if claim.replayed:
        told = replay(claim, pair, seed, kind=Sitting)
        here, found = told.recorded, [*beside(told)]
    else:
        here, found = observe(lambda: claim.run(pair.here, seeded_stream(seed)), Recorder()), []
    there = observe(lambda: claim.run(pair.there, seeded_stream(seed)), Recorder())
    return here, [*differences(here, there, frozen=False), *found]


def differences(here: Outcome, there: Outcome, *, frozen: bool) -> Iterator[str]:
    """Yield what tells two outcomes apart beside their numbers."""
    if frozen:
        if here.error != there.error:
            yield "an exception or its message differs"
        if here.said != there.said:
            yield "a warning, a log line or printed text differs"
        if here.portraits != there.portraits:
            yield "what a fitted model holds or shows differs"
    if len(here.calls) != len(there.calls) and (frozen or _straight(here, there)):
        yield "the number of mechanism calls differs"
    if here.charges != there.charges:
        yield "the charge differs"
    if here.kind != there.kind and (frozen or not (here.error or there.error)):
        yield "type, dtype or shape of the output differs"
    for side in (here, there):
        if not all(on_grid(call) for call in side.calls):
            yield "a released value lies off the public grid"
    for one, other in zip(_steps(here), _steps(there), strict=False):
        if one != other:
            yield "the grid differs"
            break


def _straight(here: Outcome, there: Outcome) -> bool:
    """Return whether the number of calls may not follow the answers: where all of them are releases."""
    return all(call.mechanism.name in _ON_GRID for side in (here, there) for call in side.calls)


def _steps(outcome: Outcome) -> list[float]:
    return [call.public[1] for call in outcome.calls if call.mechanism.name in _ON_GRID]


def on_grid(call: Any) -> bool:
    """Return whether a release of a recording is a multiple of its step, exactly."""
    if call.mechanism.name not in _ON_GRID or call.output is None:
        return True
    step = Fraction(call.public[1])
    return all((Fraction(float(x)) / step).denominator == 1 for x in np.ravel(call.output))


def check(claim: Claim, pairs: Iterable[Pair], *, seed: int = 0) -> Finding:
    """Attack a claim by what its runs show beside their results.

    Parameters
    ----------
    claim : Claim
    pairs : iterable of Pair
    seed : int
    """
    begun, found, tried, kept = time.process_time(), list[Fault](), 0, 0
    for pair in pairs:
        tried += 1
        here, told = seen(claim, pair, seed + tried)
        found += [Fault(what, pair.name) for what in told]
        kept = max(kept, len(here.charges))
    note = "all alike" + (f"; up to {many(kept, 'charge')} in a run" if kept else "")
    return Finding(
        claim.name, "side channels", Verdict.BROKEN if found else Verdict.HOLDS,
        pair=found[0].pair if found else "", tried=tried,
        seconds=time.process_time() - begun, note=found[0].what if found else note,
    )  # fmt: skip


def pace(claim: Claim, pair: Pair, times: int, *, limit: float = math.inf, seed: int = 0) -> Finding:
    """Measure how much longer a run takes on one table than on its neighbour; judges nothing.

    Parameters
    ----------
    claim : Claim
    pair : Pair
    times : int
        Runs on each table, at least 9, in turns and in both orders, after one that is not counted.
    limit : float
        CPU seconds after which no more than 9 are made.
    seed : int

    Returns
    -------
    Finding
        Its note has the median of the ratios of CPU time, ``there / here``, and an interval that holds it
        with probability 0.996 or more, whatever the law of times is (order statistics: each ratio lies above
        the median with probability 1/2).
    """
    begun, ratios = time.process_time(), list[float]()
    for number in range(times + 1):
        spent, stream = [0.0, 0.0], seeded_stream(seed + number)
        for side in (0, 1) if number % 2 else (1, 0):
            table = (pair.here, pair.there)[side]
            start = time.process_time()
            with warnings.catch_warnings(), suppress(ConfideError):
                warnings.simplefilter("ignore")
                claim.run(table, stream)
            spent[side] = time.process_time() - start
        if number:
            ratios.append(spent[1] / max(spent[0], 1e-9))
        if len(ratios) >= _FEWEST and time.process_time() - begun > limit:
            break
    low, middle, high = median(ratios)
    note = f"CPU time {middle:.2f} times as long on the neighbour ({low:.2f} to {high:.2f})"
    return Finding(
        claim.name, "run time", Verdict.HOLDS, pair=pair.name, tried=len(ratios),
        note=f"{note}; reported, not judged",
    )  # fmt: skip


def median(values: list[float]) -> tuple[float, float, float]:
    """Return the median of at least 9 values, between the ends of its interval at 0.996."""
    ordered, count = sorted(values), len(values)
    outside, tail = 0, 0.5**count
    while tail + math.comb(count, outside + 1) * 0.5**count <= _OUTSIDE:
        outside += 1
        tail += math.comb(count, outside) * 0.5**count
    return ordered[outside], float(np.median(ordered)), ordered[count - 1 - outside]


def last_bits(values: Any) -> Floats:
    """Return the exponent of the last bit that is set in each double; 2000 for zeros, 3000 for no numbers."""
    cells = np.asarray(values, dtype=np.float64)
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(cells)
        whole = np.where(np.isfinite(cells), np.ldexp(fraction, 53), 1.0).astype(np.int64)
    lowest = np.log2(np.where(whole == 0, 1, whole & -whole).astype(np.float64))
    bits = exponent - 53.0 + lowest
    return np.where(np.isfinite(cells), np.where(cells == 0, _ZERO, bits), 1.5 * _ZERO)


def _tell(here: Floats, there: Floats, delta: float) -> blackbox.Counts:
    """Choose a set of last bits on one half of the rows [count, d], of one column, and count on the other.

    A hole is a value that one table never has: rules that take a rate of 0 for luck would pass it by.
    """
    half, best, rule = len(here) // 2, -math.inf, (0, 0, np.zeros(0))
    for column in range(min(here.shape[1], _COLUMNS)):
        sides = [side[:half, column] for side in (here, there)]
        values, codes = np.unique(np.concatenate(sides), return_inverse=True)
        counts = [np.bincount(part, minlength=values.size) for part in (codes[:half], codes[half:])]
        for role in (0, 1):
            order = np.argsort(-np.log((counts[role] + 0.5) / (counts[1 - role] + 0.5)), kind="stable")
            hits, alarms = (np.cumsum(counts[side][order]) for side in (role, 1 - role))
            low, _ = blackbox.clopper_pearson(hits, half, _LEARNING)
            _, high = blackbox.clopper_pearson(alarms, half, _LEARNING)
            gain = np.log(np.maximum(low - delta, 1e-300) / high)
            if gain.max() > best:
                best, rule = float(gain.max()), (column, role, values[order[: int(gain.argmax()) + 1]])
    column, role, chosen = rule
    fired = [int(np.isin(side[half:, column], chosen).sum()) for side in (here, there)]
    return blackbox.Counts(fired[role], fired[1 - role], len(here) - half)


def support(claim: Claim, pair: Pair, count: int, stream: RandomStream, *, error: float) -> Finding:
    """Attack a claim by the last bits of `count` outputs on each table: floating-point noise has holes.

    Mironov (2012), "On significance of the least significant bits for differential privacy": which doubles a
    textbook sum of value and noise can be depends on the value. The last bits are a function of the output,
    so what tells them apart is evidence against the claim; decided like the black box.
    """
    here, there = (
        last_bits(claim.sample(table, count, stream.child(side)))
        for side, table in (("here", pair.here), ("there", pair.there))
    )
    delta = float(claim.delta)
    counts = _tell(here, there, delta)
    return Finding(
        claim.name, "support", Verdict.HOLDS, counts.epsilon(delta, error), pair.name, count,
        counts.p_value(float(claim.epsilon), delta),
    )  # fmt: skip


def rejects(found: Finding | None, level: float) -> bool:
    """Return whether a finding alone breaks its claim, at an error of `level` where it is statistical."""
    if found is None:
        return False
    return found.verdict is Verdict.BROKEN or (not math.isnan(found.p_value) and found.p_value <= level)
