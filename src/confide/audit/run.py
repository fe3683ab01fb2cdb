"""The plan of an audit, its progress and its resumption: one cell for each claim, layer and pair."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from confide.audit import (
    amounts,
    answers,
    blackbox,
    entropy,
    exact,
    exempt,
    noise,
    options,
    poison,
    price,
    sides,
    sweep,
)
from confide.audit.finding import Finding, Verdict, judge
from confide.audit.fuzz import fuzzed
from confide.audit.legend import many
from confide.audit.origin import Origin, machine, now
from confide.audit.registry import Claim, Pair, claims
from confide.audit.result import Audit
from confide.audit.standing import LEVEL, contradicts, left_out
from confide.audit.state import Cell, heading, holding
from confide.errors import ParameterError
from confide.mechanisms import RandomStream, os_stream, seeded_stream

#: Pairs of the black box in a full audit, and trainings with canaries.
_PAIRS, _TRAININGS, _QUICK_TRAININGS = 4, 2000, 20
#: Pairs of replay and side channels in a quick audit.
_QUICK_PAIRS = 3
#: Claims of which one is tried with a variant by the side channels of a quick audit.
_ASIDE = 5
#: Tables that a certified model is retrained on.
_POISONED, _QUICK_POISONED = 1000, 24
#: Fuzzed pairs of a full one, and of a quick one.
_FUZZED, _QUICK_FUZZED = 30, 2
#: Runs that are timed on each table, and CPU seconds after which the least number will do.
_RUNS, _QUICK_RUNS, _PACE = 101, 9, 5.0


@dataclass(frozen=True)
class Effort:
    """How hard to try.

    Parameters
    ----------
    full : bool
    error : float
        Of each reported bound: the level, shared among all of them.
    stream : RandomStream
        Of the cell.
    pair : int
        Which neighbours, for a layer that takes one pair a cell.
    """

    full: bool
    error: float
    stream: RandomStream
    pair: int


Layer = Callable[[Claim, Effort], Finding | None]


def _exact(claim: Claim, effort: Effort) -> Finding | None:
    found = answers.exactly(claim, exact.check(claim, claim.pairs(), search=True))
    return amounts.exactly(claim, found)


def _black_box(claim: Claim, effort: Effort) -> Finding | None:
    pairs = exact.worst_first(claim) if effort.full else list(claim.pairs())
    count = claim.draws if effort.full else claim.quick
    return blackbox.check(
        claim, pairs[effort.pair], count, effort.stream, full=effort.full, error=effort.error
    )


def _draws(claim: Claim, effort: Effort) -> Finding | None:
    pair = next(iter(claim.pairs()))
    count = claim.draws if effort.full else claim.quick
    found = answers.drawn(claim, blackbox.fit(claim, pair, count, effort.stream), count, effort.stream)
    return amounts.drawn(claim, found, count, effort.stream)


def _noise(claim: Claim, effort: Effort) -> Finding | None:
    found = noise.check(claim, next(iter(claim.pairs())), effort.stream, full=effort.full)
    return amounts.noised(claim, found, effort.stream, full=effort.full)


def _one_run(claim: Claim, effort: Effort) -> Finding | None:
    trainings = _TRAININGS if effort.full else _QUICK_TRAININGS
    return blackbox.one_run(claim, effort.stream, repeats=trainings, error=effort.error)


def _pairs(claim: Claim, effort: Effort) -> list[Pair]:
    """Return the pairs of the layers that prove by one counter-example: the claim's own, and fuzzed ones.

    Those of a quick audit are other ones each time, but for a seed.
    """
    own = list(claim.pairs())
    seed = int(effort.stream.child("fuzz").bits(1)[0] >> np.uint64(33))
    if effort.full:
        return [*own, *fuzzed(claim, _FUZZED, seed)]
    return [*own[:_QUICK_PAIRS], *fuzzed(claim, _QUICK_FUZZED, seed)]


def _replay(claim: Claim, effort: Effort) -> Finding | None:
    pairs = _pairs(claim, effort)
    return options.check(claim, pairs, pairs if effort.full else pairs[:1])


def _price(claim: Claim, effort: Effort) -> Finding | None:
    own = list(claim.pairs())
    return price.check(claim, own if effort.full else own[:1], options.variants(claim))


def _sides(claim: Claim, effort: Effort) -> Finding | None:
    found = sides.check(claim, [*_pairs(claim, effort), *claim.beside()])
    seed = int(effort.stream.child("sweep").bits(1)[0] >> np.uint64(33))
    reach, tried = (sweep.FULL, options.variants(claim)) if effort.full else (sweep.QUICK, ())
    # In a quick audit replay compares all variants with answers frozen; on their own, one of a few claims.
    if effort.full or seed % _ASIDE == 0:
        found = sweep.joined(found, options.aside(claim, None if effort.full else 1, seed=seed))
    return sweep.joined(found, sweep.check(claim, reach, tried, seed=seed))


def _support(claim: Claim, effort: Effort) -> Finding | None:
    if not effort.full and left_out(claim, "support"):
        return None
    pair = next(iter(claim.pairs()))
    count = claim.draws if effort.full else claim.quick
    return sides.support(claim, pair, count, effort.stream, error=effort.error)


def _poisoning(claim: Claim, effort: Effort) -> Finding | None:
    return poison.attack(claim, budget=_POISONED if effort.full else _QUICK_POISONED)


def _run_time(claim: Claim, effort: Effort) -> Finding | None:
    pair = next(iter(claim.pairs()))
    return sides.pace(claim, pair, _RUNS if effort.full else _QUICK_RUNS, limit=_PACE)


def _entropy(claim: Claim, effort: Effort) -> Finding | None:
    tried = options.variants(claim)
    if tried and not effort.full:  # one of them, another one each time, but for a seed
        place = int(effort.stream.child("option").bits(1)[0] >> np.uint64(33)) % len(tried)
        tried = tried[place : place + 1]
    return entropy.check(claim, tried)


#: Layer -> what it does; None where it has nothing to say of a claim.
LAYERS: dict[str, Layer] = {
    "exact": _exact,
    "black box": _black_box,
    "law of draws": _draws,
    "noise": _noise,
    "entropy": _entropy,
    "one run": _one_run,
    "replay": _replay,
    "price": _price,
    "side channels": _sides,
    "support": _support,
    "poisoning": _poisoning,
    "run time": _run_time,
}

#: Layer of public names that no claim covers; nothing is attacked there.
REGISTRY = "registry"


class UnfinishedError(RuntimeError):
    """An audit of which a result was lost: what was not tried is not shown to hold."""


def plan(chosen: Sequence[Claim], *, full: bool) -> list[Cell]:
    """Return the cells of an audit, in order."""
    cells = []
    for claim in chosen:
        for layer in LAYERS:
            many = min(_PAIRS, len(list(claim.pairs()))) if full and layer == "black box" else 1
            cells += [Cell(claim.name, layer, pair) for pair in range(many)]
    return cells


def _attack(cell: Cell, *, full: bool, error: float, seed: int | None) -> Finding | None:
    (claim,) = (claim for claim in claims() if claim.name == cell.claim)
    name = f"{cell.claim}/{cell.layer}/{cell.pair}"
    stream = os_stream() if seed is None else seeded_stream(seed).child(name)
    start = time.process_time()
    try:
        found = LAYERS[cell.layer](claim, Effort(full, error, stream, cell.pair))
    except Exception as raised:  # what cannot be attacked is not shown to hold, and must not end the audit
        found = Finding(
            claim.name, cell.layer, Verdict.BROKEN, note=f"{type(raised).__name__}: {raised}"[:300]
        )
    return None if found is None else replace(found, seconds=round(time.process_time() - start, 3))


def audit(
    name: str | None = None,
    *,
    full: bool = False,
    seed: int | None = None,
    state: Path | None = None,
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> Audit:
    """Try to break claims.

    Parameters
    ----------
    name : str, optional
        One claim, a room, or a covered name (`registry.claims`); all by default. Only then are public names
        that no claim covers looked for, and told as broken.
    full : bool
    seed : int, optional
        None draws from the operating system, as a release does.
    state : path, optional
        Where cells are kept as they end, and read from before: an audit goes on where it stopped, if it
        has the same mode, seed and claims, and Confide the same version and sources. It is held meanwhile.
    jobs : int
        Processes.
    progress : function (done, all, what), optional
        Told at the start, and after each cell, also where its layer has nothing to try.

    Returns
    -------
    Audit

    Raises
    ------
    ParameterError
        For an unknown name, a seed below 0, a state of another audit, that is damaged or that another audit
        holds, and a file that cannot be written; before anything is attacked.
    UnfinishedError
        If a process was killed, or a result was lost.
    """
    start = time.perf_counter()
    check_seed(seed)
    chosen = claims(name)
    cells = plan(chosen, full=full)
    header = heading(chosen, full=full, seed=seed)
    origin = Origin.here(header)
    with holding(state, header, chosen, (origin.date, origin.machine)) as book:
        kept = book.done.keys() & set(cells)
        left = [cell for cell in cells if cell not in kept]
        if progress is not None:
            progress(len(kept), len(cells), f"starting {many(jobs, 'process', 'processes')}")
        for cell, found in _results(left, full, LEVEL / len(cells), seed, jobs):
            book.add(cell, found, (now(), machine()))
            if progress is not None:
                progress(len(book.done.keys() & set(cells)), len(cells), f"{cell.claim}: {cell.layer}")
    _complete(cells, book.done)
    told = [(cell, found) for cell in cells if (found := book.done[cell]) is not None]
    promised = {claim.name: claim for claim in chosen}
    findings = [
        replace(found, verdict=Verdict.BROKEN) if contradicts(found, promised[cell.claim]) else found
        for cell, found in told
    ]
    if name is None:
        findings += _unregistered()
    return Audit(
        tuple(judge(findings, LEVEL)),
        full,
        time.perf_counter() - start,
        kept=tuple(place for place, (cell, _) in enumerate(told) if cell in kept),
        stale=len(kept) == len(cells),
        origin=origin.over(book.begun, book.places),
        asked=name and name.strip(),
        cells=len(cells),
    )


def _complete(cells: Iterable[Cell], done: Iterable[Cell]) -> None:
    """Refuse to tell of an audit of which a result was lost."""
    known = set(done)
    if lost := [f"{cell.claim}: {cell.layer}" for cell in cells if cell not in known]:
        raise UnfinishedError(f"{many(len(lost), 'attack')} gave no result, the first one {lost[0]}")


def check_seed(seed: int | None) -> None:
    """Refuse a seed below 0, before anything starts."""
    if seed is not None and seed < 0:
        raise ParameterError(f"The 'seed' parameter is {seed}.", "Pass 0 or more, or none.")


def _unregistered() -> list[Finding]:
    """Return a finding for each public name that no claim covers: a guarantee that nothing attacks."""
    note = "a public name that no claim covers, and that has no reason to need none"
    return [Finding(name, REGISTRY, Verdict.BROKEN, note=note) for name in exempt.missing()]


def _results(
    cells: Iterable[Cell], full: bool, error: float, seed: int | None, jobs: int
) -> Iterator[tuple[Cell, Finding | None]]:
    import warnings

    from joblib import Parallel, delayed
    from threadpoolctl import threadpool_limits

    if jobs == 1:
        with threadpool_limits(1):  # tables are tiny: threads of a matrix product only wait for each other
            for cell in cells:
                yield _quietly(cell, full, error, seed)
        return

    tasks = (delayed(_quietly)(cell, full, error, seed) for cell in cells)
    with warnings.catch_warnings():
        # A process that has grown ends after its task, and another one takes its place; `_complete` counts.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        results: Any = Parallel(n_jobs=jobs, return_as="generator_unordered")(tasks)
        try:
            yield from results
        except BrokenExecutor as stopped:
            raise UnfinishedError("a process was killed, maybe for want of memory") from stopped


def _quietly(cell: Cell, full: bool, error: float, seed: int | None) -> tuple[Cell, Finding | None]:
    import warnings

    with warnings.catch_warnings():  # what they tell of neighbours is the side channels' business
        warnings.simplefilter("ignore")
        return cell, _attack(cell, full=full, error=error, seed=seed)
