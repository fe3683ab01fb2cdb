"""Gray box: a run is recorded on one table and its mechanisms' answers are replayed on the neighbour.

With the answers frozen, all that a run may still take from a table is the input of its next mechanism. So on
neighbours the same mechanisms must be called in the same order with equal public parameters, each input may
move by what its sensitivity declares (`confide.audit.recorded`), and the result must be the same number for
number: a difference reached it past a mechanism. Both tables are replayed, with one seed: what is drawn
outside a mechanism (an order, a batch) is drawn alike.

Where a row comes or goes, the coins of the others are told alike, and its own at will
(`confide.audit.coins`).

The proof of a claim starts from these facts; here they are tried on extreme rows. Nothing statistical: one
pair that fails is a counter-example.
"""

from __future__ import annotations

import copy
import inspect
import io
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from typing import Any

import numpy as np

from confide.audit import coins
from confide.audit.finding import Finding, Verdict
from confide.audit.legend import many
from confide.audit.memory import forget
from confide.audit.recorded import MECHANISMS, Arguments, Mechanism
from confide.audit.registry import Claim, Pair
from confide.mechanisms import seeded_stream
from confide.privacy import Adjacency, Guarantee

#: Functions that a recorder is told of, and its method: what is charged, promised and sampled.
_TOLD = {
    "confide.ledger.charging:charged": "charged",
    "confide.training.sgd.checkpoint:charged_once": "charged_once",
    "confide.privacy.guarantee:Guarantee.__init__": "promised",
    "confide.training.sgd.batches:poisson_batches": "sampled",
    "confide.tune.runs:draw_runs": "stopped",
    # What comes out of them is released, or (`held`) as secret as its table.
    **dict.fromkeys(
        (
            "confide.training.estimator:PrivateRegressor.fit",
            "confide.training.classifier:PrivateClassifier.fit",
            "confide.training.labels.llp:WeightedLLPRegressor.fit",
            "confide.training.labels.estimator:LabelPrivatizer.fit_transform",
            "confide.training.labels.estimator:PrivateLabelRegressor.fit",
            "confide.training.labels.estimator:PrivateLabelClassifier.fit",
            "confide.training.front:train",
            "confide.training.least_squares:adassp",
            "confide.training.least_squares:noisy_statistics",
            "confide.training.boosting:boosted_adassp",
            "confide.training.semi_sensitive:fit_semi_sensitive",
            "confide.training.hybrid:fit_hybrid",
            "confide.selection.estimator:SubsetSelector.fit",
            "confide.selection.front:select",
            "confide.selection.gap:gap_condition",
            "confide.pipeline.shell:SparseEstimator.fit",
            "confide.pipeline.front:select_and_fit",
            "confide.tune.front:tune",
        ),
        "released",
    ),
    "confide.prediction.estimator:CertifiedClassifier.fit": "held",
    "confide.prediction.front:certify": "held",
}


class Diverged(Exception):
    """The run asked for another mechanism than the recorded one."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a mechanism.

    Parameters
    ----------
    mechanism : Mechanism
    public, private : object
        See `Mechanism`.
    output : object
        Its answer, frozen.
    """

    mechanism: Mechanism
    public: Any
    private: Any = field(repr=False)
    output: Any = field(repr=False)


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that one run shows.

    Parameters
    ----------
    output : array or None
        None where it raised.
    kind : str
        Type, dtype and shape of the output.
    error : str
        Type and message of the exception; empty for none.
    said : tuple of str
        Warnings, log records and printed text, in order of kind.
    charges : tuple of Guarantee
    calls : tuple of Call
    seconds : float
        CPU time.
    portraits : tuple of str
        Of what was fitted, where the recorder draws them.
    batches : tuple of (int, float)
        Rows and scale (`poisson_batches`) of each sequence of secret batches.
    """

    output: Any
    kind: str
    error: str
    said: tuple[str, ...]
    charges: tuple[Guarantee, ...]
    calls: tuple[Call, ...]
    seconds: float
    portraits: tuple[str, ...] = ()
    batches: tuple[tuple[int, float], ...] = ()


class Recorder:
    """Records the outermost calls of mechanisms, and answers them from a recording where it has one."""

    def __init__(self, answers: tuple[Call, ...] | None = None) -> None:
        self.calls: list[Call] = []
        self.charges: list[Guarantee] = []
        self.portraits: list[str] = []
        self.batches: list[tuple[int, float]] = []
        #: Whether a row comes or goes: the coins of the others are then told alike (`coins`).
        self.added = False
        self._answers = answers
        self._inside = False

    def charged(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Keep what is charged."""
        self.charges.append(args[1])
        return run(*args, **named)

    def charged_once(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Keep what a run is charged, anew each time that it goes on."""
        return self.charged(run, args, named)

    def promised(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Let a guarantee be made."""
        return run(*args, **named)

    def released(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Let a model be fitted that is handed on."""
        return run(*args, **named)

    def held(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Let a model be fitted that is as secret as its table."""
        return run(*args, **named)

    def met(self, mechanism: Mechanism, given: Arguments) -> None:
        """See the arguments of an outermost call before it is answered."""

    def stopped(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Let a number of runs be drawn."""
        return run(*args, **named)

    def sampled(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Let secret batches be drawn, and keep of how many rows and at which rate."""
        given = inspect.signature(run).bind(*args, **named).arguments
        self.batches.append((given["rows"], given["scale"]))
        if self.added:
            return coins.batches(*self.batches[-1], len(self.batches))
        return run(*args, **named)

    def call(
        self, mechanism: Mechanism, run: Callable[..., Any], args: Any, named: Any, extra: Any = None
    ) -> Any:
        """Answer one call, by its own mechanism or from the recording."""
        if self._inside:
            return run(*args, **named)
        bound = inspect.signature(run).bind(*args, **named)
        bound.apply_defaults()
        given = {**bound.arguments, **(extra or {})}
        self.met(mechanism, given)
        public, private = mechanism.public(given), mechanism.private(given)
        if self._answers is None:
            self._inside = True
            try:
                output = run(*args, **named)
            finally:
                self._inside = False
        else:
            place = len(self.calls)
            if place >= len(self._answers) or self._answers[place].mechanism is not mechanism:
                self.calls.append(Call(mechanism, public, private, None))
                raise Diverged
            output = mechanism.extended(given, copy.deepcopy(self._answers[place].output))
            mechanism.settle(given, output)
        self.calls.append(Call(mechanism, public, private, copy.deepcopy(output)))
        return output


_active: list[Recorder] = []


def _wrapper(mechanism: Mechanism, run: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(*args: Any, **named: Any) -> Any:
        return _active[-1].call(mechanism, run, args, named) if _active else run(*args, **named)

    def answering(*args: Any, **named: Any) -> Any:
        made = run(*args, **named)
        public = inspect.signature(run).bind(*args, **named).arguments

        def answer(statistic: Any) -> Any:
            def asked(statistic: Any) -> Any:
                return made(statistic)

            return (
                _active[-1].call(mechanism, asked, (statistic,), {}, public) if _active else made(statistic)
            )

        return answer

    return answering if mechanism.answers else recorded


def _observer(method: str, run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def observed(*args: Any, **named: Any) -> Any:
        return getattr(_active[-1], method)(run, args, named) if _active else run(*args, **named)

    return observed


#: Function -> what it is and its wrapper, one for good: a module imported during a recording keeps the
#: wrapper, which does no harm.
_wrapped: dict[str, tuple[Any, Any]] = {}


def _owner(where: str) -> tuple[Any, str]:
    module, _, path = where.partition(":")
    owner = import_module(module)
    for part in path.split(".")[:-1]:
        owner = getattr(owner, part)
    return owner, path.rpartition(".")[2]


def _wrappers() -> dict[str, tuple[Any, Any]]:
    if not _wrapped:
        makers: dict[str, Callable[..., Any]] = {
            m.where: lambda run, m=m: _wrapper(m, run) for m in MECHANISMS
        }
        makers |= {where: lambda run, how=how: _observer(how, run) for where, how in _TOLD.items()}
        for where, make in makers.items():
            plain = getattr(*_owner(where))
            _wrapped[where] = plain, make(plain)
    return _wrapped


def ready() -> None:
    """Import all that a recording wraps: what an import draws is no run's doing."""
    _wrappers()


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Let a recorder see the calls of mechanisms, and the charges, inside the block.

    Every module of this library that holds one of the functions gets its wrapper. A function that other code
    imported by name before is not seen: what it draws then reaches the result past the recorder, which
    `faults` reports.
    """
    wrappers = {id(plain): wrapper for plain, wrapper in _wrappers().values()}
    owners = [_owner(where)[0] for where in _wrapped if "." in where.partition(":")[2]]
    owners += [m for name, m in list(sys.modules.items()) if name.startswith("confide") and m is not None]
    places = [
        (owner, key, value)
        for owner in owners
        for key, value in list(vars(owner).items())
        if id(value) in wrappers
    ]
    for owner, key, value in places:
        setattr(owner, key, wrappers[id(value)])
    _active.append(recorder)
    try:
        yield recorder
    finally:
        _active.pop()
        for owner, key, plain in places:
            setattr(owner, key, plain)


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname}: {record.getMessage()}")


def observe(run: Callable[[], Any], recorder: Recorder) -> Outcome:
    """Run once and keep all that shows, under a recorder; what claims remember of other runs is forgotten."""
    forget()
    log, text, output, error = _Log(), io.StringIO(), None, ""
    root = logging.getLogger()
    root.addHandler(log)
    begun = time.process_time()
    try:
        with (
            recording(recorder), warnings.catch_warnings(record=True) as warned,
            redirect_stdout(text), redirect_stderr(text),
        ):  # fmt: skip
            warnings.simplefilter("always")
            try:
                output = run()
            except Diverged:
                error = "another mechanism was asked"
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
    finally:
        root.removeHandler(log)
    seconds = time.process_time() - begun
    cells = None if output is None else np.asarray(output)
    kind = "" if cells is None else f"{type(output).__name__} {cells.dtype} {cells.shape}"
    said = (*(f"{w.category.__name__}: {w.message}" for w in warned), *log.lines, text.getvalue())
    charges, calls, portraits = tuple(recorder.charges), tuple(recorder.calls), tuple(recorder.portraits)
    return Outcome(cells, kind, error, said, charges, calls, seconds, portraits, tuple(recorder.batches))


@dataclass(frozen=True, eq=False)
class Replayed:
    """A recording on `pair.here`, and its replays on both tables."""

    pair: Pair
    recorded: Outcome
    here: Outcome
    there: Outcome


def replay(claim: Claim, pair: Pair, seed: int = 0, *, kind: type[Recorder] = Recorder) -> Replayed:
    """Record a claim's run on one table of a pair and replay it on both, with one seed.

    Parameters
    ----------
    claim : Claim
    pair : Pair
    seed : int
        Of the run's own draws.
    kind : type
        Of the recorders.
    """

    def on(table: Any, answers: tuple[Call, ...] | None) -> Outcome:
        recorder = kind(answers)
        recorder.added = claim.adjacency is Adjacency.ADD_REMOVE_ONE
        return observe(lambda: claim.run(table, seeded_stream(seed)), recorder)

    told = on(pair.here, None)
    return Replayed(pair, told, on(pair.here, told.calls), on(pair.there, told.calls))


@dataclass(frozen=True)
class Fault:
    """A difference between neighbours that no mechanism pays for."""

    what: str
    pair: str


def faults(claim: Claim, told: Replayed) -> Iterator[Fault]:
    """Yield what a replay shows against a claim."""
    name, here, there = told.pair.name, told.here, told.there
    if told.recorded.calls and (here.error or here.calls == ()) and not told.recorded.error:
        yield Fault("the run does not repeat itself on its own table", name)
    if [c.mechanism.name for c in here.calls] != [c.mechanism.name for c in there.calls]:
        yield Fault("the sequence of mechanisms differs", name)
        return
    if not _batched_alike(claim, here, there):
        yield Fault("secret batches are of other rows, or at another rate", name)
    for place, (one, other) in enumerate(zip(here.calls, there.calls, strict=True)):
        what = f"call {place} ({one.mechanism.name})"
        if one.public != other.public:
            yield Fault(f"{what}: its public parameters differ", name)
            continue
        moved, allowed = one.mechanism.distance(one.private, other.private, one.public, claim)
        if not moved <= allowed:
            yield Fault(f"{what}: the input moves by {moved:.6g}, {allowed:.6g} are declared", name)
    if here.error != there.error:
        yield Fault("one run raises, or raises otherwise", name)
    elif not same(here.output, there.output):
        yield Fault("the result differs though every mechanism answered alike", name)


def _batched_alike(claim: Claim, here: Outcome, there: Outcome) -> bool:
    """Return whether batches are drawn at one rate, of as many rows but for one that comes or goes."""
    if len(here.batches) != len(there.batches):
        return False
    more = int(claim.adjacency is Adjacency.ADD_REMOVE_ONE)
    return all(
        scale == other and abs(n - m) <= more
        for (n, scale), (m, other) in zip(here.batches, there.batches, strict=True)
    )


def same(one: Any, other: Any) -> bool:
    """Return whether two outputs are equal, NaN in the same places included."""
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))


def shares(claim: Claim, told: Replayed) -> float:
    """Return the largest share of its declared sensitivity that an input moved by."""
    found = 0.0
    for one, other in zip(told.here.calls, told.there.calls, strict=False):
        if one.mechanism is other.mechanism and one.public == other.public:
            moved, allowed = one.mechanism.distance(one.private, other.private, one.public, claim)
            found = max(found, moved / allowed if allowed else 0.0)
    return found


def check(
    claim: Claim,
    pairs: Iterable[Pair],
    *,
    seed: int = 0,
    kind: type[Recorder] = Recorder,
    beside: Callable[[Replayed], Iterable[str]] = lambda told: (),
) -> Finding | None:
    """Attack a claim by replay.

    Parameters
    ----------
    claim : Claim
    pairs : iterable of Pair
        `confide.audit.fuzz.fuzzed` makes more than the claim names itself.
    seed : int
    kind : type
        Of the recorders.
    beside : function (Replayed) -> iterable of str
        Yields what else a replay shows against the claim.

    Returns
    -------
    Finding or None
        None for a claim whose runs are no sequences of recorded mechanisms (`Claim.replayed`).
    """
    if not claim.replayed:
        return None
    begun, found, share, calls, raised, tried = time.process_time(), list[Fault](), 0.0, 0, 0, 0
    for pair in pairs:
        tried += 1
        told = replay(claim, pair, seed + tried, kind=kind)
        found += faults(claim, told)
        found += [Fault(what, pair.name) for what in beside(told)]
        share, calls = max(share, shares(claim, told)), max(calls, len(told.recorded.calls))
        raised += told.recorded.error != ""
    note = f"up to {many(calls, 'call')}; inputs moved by up to {share:.3g} times what is declared"
    note += f"; {many(raised, 'run')} ended in an error, on both tables" if raised else ""
    return Finding(
        claim.name, "replay", Verdict.BROKEN if found else Verdict.HOLDS,
        pair=found[0].pair if found else "", tried=tried,
        seconds=time.process_time() - begun, note=found[0].what if found else note, moved=share,
    )  # fmt: skip
