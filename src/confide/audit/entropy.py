"""Where noise comes from: every unseeded run draws from the operating system, and from nothing else.

A release is private by noise that nobody can know. So a claim's run is tried as a release runs, with
`os_stream`, and all that its streams read and hand out is seen: `confide.mechanisms.stream` asks the
operating system in one place, which is tapped here.

==========================  ===========================================================================
what must hold              false alarm
==========================  ===========================================================================
the source is the           none: the function is the interpreter's own
operating system's
a certified stream hands    none: byte by byte, at each call
out the words it read
no seeded stream is asked   none: counted
numpy's and Python's own    none: compared before and after; each run begins at another state
generators stay untouched
no function makes a         none: who may is listed (`generators.PUBLIC`)
generator of its own
a draw reads the words      2^-80 a draw: see *reads*
that its law needs
on the same words the run   none, for a run that is a function of its table and its words
repeats itself
no draw repeats another,    2^-80 a run and a draw: see *repeats*
nor itself
on other words its draws    2^-80 a place: see *changes*
change
a run that reads no word    none: it has no noise, so a difference is a counter-example
answers alike on neighbours
==========================  ===========================================================================

Only draws are judged whose law says how likely their likeliest answer is (`_CHANCES`): at most 2^-h, given
all that came before. Let S = 80.

*reads*. A draw that reads no word is a function of what came before, so its likeliest answer has probability
1: with h > 0 its law is broken, exactly. One that reads at most w words has one of fewer than 2^(64 w + 1)
answers, each of probability at most 2^-h: where h > 64 w + 1 + S that has probability below 2^-S.

*repeats*. Coordinates of a draw are independent and of one law, so n of them have h / n bits each. That all
from the d-th on repeat those d places before has probability at most 2^-(h (n - d) / n): the first d decide
them. There are n - 1 such d, and D draws of a run make fewer than D^2 pairs, each equal with probability at
most 2^-h: log2 n, and 2 log2 D, bits more are asked for.

*changes*. The draws of one kind are numbered in each run. Those of one number in the first run and in R
others, on words of their own, are all equal with probability at most the product of their 2^-h, since each of
the R draws hits a given answer with 2^-h whatever came before (the product of indicator and 2^h is a
supermartingale, so R may depend on what was seen). They are judged where the sum of the h is at least S.

*outputs*. So are many runs of a claim whose exact law is known: those of two samples on different words are
all equal with probability at most 2^-(h count).

A hundred claims with fewer than 10^4 such draws keep all false alarms of an audit below 10^4 2^-80 < 10^-19.

==================================  ==================================================================
edge case                           what happens
==================================  ==================================================================
the first table ends in an error    the next one is taken; without any, nothing is said (None)
no run reads a word                 nothing is said (None), but for a difference: no noise is drawn
a draw whose law is a point         not judged: it needs no word
a draw by no known sampler          its words are compared, not its answers
a rehearsal (`tune`)                drawn from a seed on purpose, on public cells: left out
an audit with a seed                the runs here are unseeded all the same: that is what is tried
==================================  ==================================================================
"""

from __future__ import annotations

import copy
import inspect
import math
import os
import pickle
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib import import_module
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from confide.audit import generators
from confide.audit.finding import Finding, Verdict
from confide.audit.recorded import Arguments, Mechanism
from confide.audit.registry import Claim
from confide.audit.replay import Outcome, Recorder, observe, ready, same
from confide.mechanisms import os_stream
from confide.mechanisms import stream as streams

#: A false alarm has probability below 2^-SAFE.
SAFE = 80
#: Calls of each stream alone, and the words they ask for in turn.
_TURNS, _SIZES = 48, (1, 2, 5, 8, 0, 33, 1000)
#: Words of one long call.
_MOST = 1 << 17
#: Runs of a sample that is drawn one by one.
_ALONE = 40
#: Longest draw whose coordinates are held against each other.
_LONG = 512
#: What doubles may lose of a number of bits.
_EXACT = 1 - 1e-9
_STRAY = "a certified stream hands out other words than the operating system gave"
_NOTE = "all noise is the operating system's: same random bits, same noise; other bits, other noise"
Made = set[tuple[str, str]]


class Tap:
    """Stands between certified streams and the operating system.

    Parameters
    ----------
    recorded : bytes, optional
        What is given instead of fresh bytes; where it ends, fresh ones follow.

    Attributes
    ----------
    read : bytearray
        What was given.
    words : int
        Words that certified streams handed out.
    seeded : int
        Words that seeded streams handed out.
    stray : bool
        Whether a certified stream handed out other words than it read.
    """

    def __init__(self, recorded: bytes = b"") -> None:
        self.read = bytearray()
        self.words, self.seeded, self.stray = 0, 0, False
        self._recorded = recorded

    def urandom(self, size: int) -> bytes:
        """Return so many bytes."""
        old = self._recorded[len(self.read) : len(self.read) + size]
        given = old + os.urandom(size - len(old))
        self.read += given
        return given

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


@contextmanager
def tapped(tap: Tap) -> Iterator[Tap]:
    """Let certified streams read from a tap, and count what all streams hand out, inside the block."""
    certified, seeded = streams.OsStream.bits, streams.SeededStream.bits

    def watched(source: Any, count: int) -> Any:
        begun = len(tap.read)
        words = certified(source, count)
        tap.words += count
        tap.stray |= len(words) != count or words.tobytes() != bytes(tap.read[begun:])
        return words

    def counted(source: Any, count: int) -> Any:
        tap.seeded += 0 if _rehearsed() else count
        return seeded(source, count)

    plain: Any = streams
    system = plain.os
    plain.OsStream.bits, plain.SeededStream.bits, plain.os = watched, counted, tap
    try:
        yield tap
    finally:
        plain.OsStream.bits, plain.SeededStream.bits, plain.os = certified, seeded, system


def _rehearsed() -> bool:
    """Return whether a rehearsal asks: it fits public cells, from a seed, and shows nothing of the table."""
    code, frame = import_module("confide.tune.runs").rehearse.__code__, inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def of_the_system() -> bool:
    """Return whether certified streams read the interpreter's own `os.urandom`."""
    system = getattr(import_module(os.name), "urandom", None)  # posix or nt
    asked: Any = streams
    return isinstance(system, BuiltinFunctionType) and asked.os is os and os.urandom is system


def _itself() -> bool:
    """Return whether a certified stream, its copies and its children hand out what they read, each time."""
    first, asked = os_stream(), 0
    kin = [first, copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))]
    with tapped(Tap()) as tap:
        for turn in range(_TURNS):
            for source in (*kin, first.child("one"), first.child("one").child(str(turn))):
                asked += len(source.bits(_SIZES[turn % len(_SIZES)]))
        asked += len(first.bits(_MOST))
    return not tap.stray and tap.words == asked and len(tap.read) == 8 * asked


def _normal(deviation: Any) -> float:
    """Return bits of a Gaussian on integers: none is likelier than 1 / (deviation sqrt(2 pi)).

    Rounded: the density is at most that. Discrete: by Poisson's sum, the weights add up to at least its
    inverse.
    """
    return max(0.0, math.log2(float(deviation) * math.sqrt(2 * math.pi)))


def _laplace(scale: Any) -> float:
    """Return bits of a discrete Laplace: 0 has probability tanh(1 / (2 scale))."""
    return -math.log2(math.tanh(1 / (2 * float(scale))))


def _coin(gamma: Any) -> float:
    chance = math.exp(-float(gamma))
    return -math.log2(max(chance, 1 - chance))


def _choice(a: Arguments) -> float:
    if (given := a["log_weights"]) is None:
        weights = [Fraction(weight) for weight in a["weights"]]
        return math.log2(sum(weights) / max(weights))
    top = max(given)
    return math.log2(sum(math.exp(max(-800.0, float(w - top))) for w in given if w > -math.inf))


def _many(size: Any) -> int:
    return math.prod(np.atleast_1d(size).tolist())


#: Sampler -> minus the binary logarithm of the probability of its likeliest answer.
_CHANCES: dict[str, Callable[[Arguments], float]] = {
    "rounded_gaussian": lambda a: _many(a["size"]) * _normal(float(a["sigma"]) / float(a["step"])),
    "discrete_gaussian": lambda a: _many(a["size"]) * _normal(a["sigma"]),
    "discrete_laplace": lambda a: _many(a["size"]) * _laplace(a["scale"]),
    "bernoulli_exp": lambda a: _many(a["size"]) * _coin(a["gamma"]),
    "uniform_integers": lambda a: _many(a["count"]) * math.log2(a["total"]),
    "weighted_choice": lambda a: _many(1 if a["size"] is None else a["size"]) * _choice(a),
}


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of a sampler: the bits its law needs, the words it read, and its answer."""

    name: str
    bits: float
    words: int
    answer: Any = field(repr=False)

    @property
    def periodic(self) -> bool:
        """Whether its coordinates repeat each other where that is next to impossible."""
        cells = self.answer.ravel()
        n = cells.size
        if not 1 < n <= _LONG:
            return False
        last = math.floor(n - (SAFE + math.log2(n)) * n / self.bits) if self.bits > 0 else 0
        return any(np.array_equal(cells[d:], cells[:-d]) for d in range(1, last + 1))


class _Samplers(Recorder):
    """Keeps the draws of samplers, however deep inside of other mechanisms."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self.tap, self.draws = tap, list[Draw]()

    def call(
        self, mechanism: Mechanism, run: Callable[..., Any], args: Any, named: Any, extra: Any = None
    ) -> Any:
        """Answer one call by its own mechanism."""
        begun = self.tap.words
        answer = run(*args, **named)
        chance, words = _CHANCES.get(mechanism.name), self.tap.words - begun
        if chance is not None and (words or not _rehearsed()):
            given = inspect.signature(run).bind(*args, **named)
            given.apply_defaults()
            bits = chance(given.arguments) * _EXACT
            self.draws.append(Draw(mechanism.name, bits, words, np.array(answer)))
        return answer


@dataclass(frozen=True, eq=False)
class Unseeded:
    """A run as a release runs."""

    outcome: Outcome
    draws: tuple[Draw, ...]
    tap: Tap
    touched: bool
    strangers: tuple[str, ...]


def unseeded(
    claim: Claim, table: Any, *, recorded: bytes = b"", watch: AbstractContextManager[Made] | None = None
) -> Unseeded:
    """Run a claim once on the operating system's stream, or on recorded words of it."""
    watched = generators.watching() if watch is None else watch
    tap = Tap(recorded)
    seen = _Samplers(tap)
    with tapped(tap), watched as made, _generators() as touched:
        outcome = observe(lambda: claim.run(table, os_stream()), seen)
        used = touched()
    return Unseeded(outcome, tuple(seen.draws), tap, used, tuple(generators.strangers(made)))


@contextmanager
def _generators() -> Iterator[Callable[[], bool]]:
    """Put numpy's and Python's own generators in a state of their own, and tell whether they were used."""
    kept = np.random.get_state(), random.getstate()  # noqa: NPY002 - it is numpy's own that is watched
    np.random.seed(int.from_bytes(os.urandom(4), "little"))  # noqa: NPY002
    random.seed(os.urandom(16))
    begun = _state()
    try:
        yield lambda: _state() != begun
    finally:
        np.random.set_state(kept[0])  # noqa: NPY002
        random.setstate(kept[1])


def _state() -> tuple[Any, ...]:
    _, key, *rest = np.random.get_state()  # noqa: NPY002
    return np.asarray(key).tobytes(), *rest, random.getstate()


def of_one(told: Unseeded) -> Iterator[str]:
    """Yield what one run shows against its noise."""
    if told.tap.stray:
        yield _STRAY
    if told.tap.seeded:
        yield "an unseeded run draws from a seed"
    if told.touched:
        yield "numpy's or Python's own generator is used"
    yield from (f"{who} makes a generator of its own" for who in told.strangers)
    for draw in told.draws:
        if draw.bits > 0 and (not draw.words or draw.bits > 64 * draw.words + 1 + SAFE):
            yield f"a draw of {draw.name} reads {draw.words} random words, fewer than its law needs"
            break
    if any(draw.periodic for draw in told.draws):
        yield "coordinates of one draw repeat each other"
    rich = [draw for draw in told.draws if draw.bits >= SAFE + 2 * math.log2(len(told.draws))]
    if len({(draw.name, draw.answer.tobytes()) for draw in rich}) < len(rich):
        yield "two draws of one run answer alike"


def of_repeat(told: Unseeded, again: Unseeded) -> Iterator[str]:
    """Yield what a second run on the words of the first shows."""
    one, other = told.outcome, again.outcome
    alike = one.error == other.error and same(one.output, other.output) and told.tap.read == again.tap.read
    if not alike or len(told.draws) != len(again.draws) or not all(map(_alike, told.draws, again.draws)):
        yield "the run does not repeat itself on the same random words: something else is random"


def _alike(one: Draw, other: Draw) -> bool:
    return one.name == other.name and np.array_equal(one.answer, other.answer)


def of_others(told: Unseeded, others: list[Unseeded]) -> Iterator[str]:
    """Yield what runs on words of their own show beside the first."""
    rest = [_numbered(other) for other in others]
    for place, draw in _numbered(told).items():
        found = [other.get(place) for other in rest]
        kept = [other for other in found if other is not None and _alike(draw, other)]
        if len(kept) == len(rest) and sum(other.bits for other in kept) >= SAFE:
            yield f"a draw of {draw.name} answers alike on other random words"
            return


def _numbered(told: Unseeded) -> dict[tuple[str, int], Draw]:
    counts, found = dict[str, int](), dict[tuple[str, int], Draw]()
    for draw in told.draws:
        counts[draw.name] = counts.get(draw.name, 0) + 1
        found[draw.name, counts[draw.name]] = draw
    return found


def _outputs(claim: Claim, table: Any) -> Iterator[str]:
    """Yield what two samples on different words show, where an exact law says how many runs that takes."""
    if claim.law is None or not claim.fits:
        return
    top = float(max(high for _, high in claim.law(table).values()))
    count = math.ceil(SAFE / -math.log2(top) / _EXACT) if top < 1 else math.inf
    if count > (claim.quick if claim.outputs is not None else min(_ALONE, claim.quick)):
        return
    tap = Tap()
    with tapped(tap):
        one, other = (claim.sample(table, int(count), os_stream()) for _ in range(2))
    if tap.stray or tap.seeded:
        yield "many runs at once draw from other words than the operating system gave"
    if np.array_equal(one, other, equal_nan=True):
        yield f"{count} runs answer alike on other random words"


def _silent(claim: Claim, told: Unseeded, there: Any) -> Iterator[str]:
    """Yield what a run without any noise shows."""
    if told.tap.words == 0 and not same(told.outcome.output, unseeded(claim, there).outcome.output):
        yield "the run reads no random word, and answers otherwise on a neighbour"


@dataclass(frozen=True)
class Watched:
    """What the runs of a claim show against it, how many there were, and whether any of them drew."""

    found: list[str]
    runs: int
    drew: bool
    pair: str = ""


def faults(claim: Claim, most: int) -> Watched | None:
    """Return what a claim's runs show against it; None where each ends in an error."""
    for pair in claim.pairs():
        for table, other in ((pair.here, pair.there), (pair.there, pair.here)):
            told = unseeded(claim, table, watch=nullcontext(set()))  # it imports what the others need
            if not told.outcome.error:
                return replace(_on(claim, table, other, told, most), pair=pair.name)
    return None


def _on(claim: Claim, table: Any, other: Any, told: Unseeded, most: int) -> Watched:
    """Return what runs on one table show."""
    others = [unseeded(claim, table)]
    while len(others) < most and not all(_judged(told, others)):
        others.append(unseeded(claim, table))
    found = [what for one in (told, *others) for what in of_one(one)]
    found += of_repeat(told, unseeded(claim, table, recorded=bytes(told.tap.read)))
    found += of_others(told, others)
    found += _silent(claim, told, other)
    found += _outputs(claim, table)
    return Watched(found, len(others) + 2, any(one.tap.words or one.draws for one in (told, *others)))


def _judged(told: Unseeded, others: list[Unseeded]) -> Iterator[bool]:
    """Yield, for each draw of the first run that needs bits, whether the other runs suffice to judge it."""
    rest = [_numbered(other) for other in others]
    for place, draw in _numbered(told).items():
        found = [other[place] for other in rest if place in other]
        alike = all(_alike(draw, other) for other in found)
        yield not draw.bits or not alike or sum(other.bits for other in found) >= SAFE


def check(claim: Claim, variants: Iterable[Claim] = (), *, most: int = 8) -> Finding | None:
    """Attack a claim by what its noise is made of.

    Parameters
    ----------
    claim : Claim
    variants : iterable of Claim
        Tried as well: options of its family (`options.variants`).
    most : int
        Runs on other words, of each; fewer where all draws are judged.

    Returns
    -------
    Finding or None
        None where every run on the claim's own tables ends in an error, or none draws: there is no noise.
    """
    begun, tried, drew, broken = time.process_time(), 0, False, list[tuple[str, str]]()
    ready()
    if not of_the_system():
        broken.append(("certified streams do not read the operating system's generator", ""))
    if not _itself():
        broken.append((_STRAY, ""))
    for one in (claim, *variants):
        if (told := faults(one, most)) is not None:
            whose = "" if one is claim else f"{one.name}: "
            broken += [(f"{whose}{what}", told.pair) for what in told.found]
            tried, drew = tried + told.runs, drew or told.drew
    if not tried or not (drew or broken):
        return None
    note, pair = broken[0] if broken else (_NOTE, "")
    return Finding(
        claim.name, "entropy", Verdict.BROKEN if broken else Verdict.HOLDS, pair=pair, tried=tried,
        seconds=time.process_time() - begun, note=note,
    )  # fmt: skip
