"""``confide audit``: try to break every guarantee, and say what was measured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide.cli.shared import Json, check_targets, emit, reporting
from confide.errors import ParameterError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from confide.audit.registry import Claim
    from confide.audit.run import Audit


#: Columns of a file, which has none; and of a terminal from which neighbours are shown.
_ENDLESS, _WIDE = 10_000, 100
#: Seconds after which a line says how far an audit is.
_MINUTE = 60.0


def audit(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Some 90 seconds on two idle cores, more on busy ones; the default."),
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="About an hour on two idle cores (under two), more on busy ones; goes on where it stopped.",
        ),
    ] = False,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism",
            "-m",
            metavar="NAME",
            help="One claim, room or public name alone: training, confide.train. Case does not count.",
        ),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the claims, all or those of --mechanism, and attack nothing.")
    ] = False,
    museum: Annotated[
        bool,
        typer.Option("--museum", help="Attack variants known to be broken instead: each must be caught."),
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write an HTML report.")] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            help="Where an audit keeps its progress, and goes on. Default: confide-audit.jsonl with --full; "
            "a quick audit keeps none unless this is given.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes. Default: 2; 1 for --quick --mechanism.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Repeat an audit. Default: the operating system's randomness."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing report.")] = False,
    as_json: Json = False,
) -> None:
    """Attack each claim of Confide: exact laws on searched neighbours, and outputs told apart.

    Leaves with a status:
    0 if every claim holds;
    1 if one is broken or, without --mechanism, a public name has no claim;
    2 if it cannot run as asked, or a result was lost;
    130 if it was interrupted.
    With --museum, 1 means that a variant known to be broken was not caught.
    """
    kept = state if state is not None or not full else Path("confide-audit.jsonl")
    with _stopped(kept), reporting(as_json):
        name = _single(mechanism)
        if museum:
            _refuse("--museum", "--seed and --json", quick=quick, full=full, mechanism=name, out=out,
                    state=state, jobs=jobs, list=listed)  # fmt: skip
            from confide.audit.run import check_seed

            check_seed(seed)
            raise typer.Exit(_museum(seed, as_json=as_json))
        if listed:
            _refuse("--list", "--mechanism and --json", quick=quick, full=full, out=out, state=state,
                    jobs=jobs, seed=seed)  # fmt: skip
            _list(name, as_json=as_json)
            return
        from confide.audit.run import audit as attack

        if quick and full:
            raise ParameterError("Both --quick and --full were given.", "Pass one of them.")
        if jobs is not None and jobs < 1:
            raise ParameterError(f"The 'jobs' parameter is {jobs}.", "Pass at least 1.")
        check_targets(out, force=force, holds="an earlier audit report", why="an audit takes long")
        with _whole(kept), _progress(quiet=as_json) as told:
            cores = jobs or (1 if name and not full else 2)
            found = attack(name, full=full, seed=seed, state=kept, jobs=cores, progress=told)
        _resumed(found, kept)
        if out is not None:
            from confide.audit.page import page

            out.write_text(page(found), encoding="utf-8")
    if as_json:
        emit(found.to_dict())
    else:
        _show(found)
        if out is not None:
            typer.echo(f"Report: {out}")
    raise typer.Exit(1 if found.broken else 0)


def _resumed(found: Audit, state: Path | None) -> None:
    """Say how many results are of an earlier run."""
    from confide.audit.legend import many

    if found.stale:
        told = f"All {many(len(found.kept), 'result')} are from {state}; remove it to attack anew."
        typer.echo(told, err=True)
    elif found.kept:
        whole = many(len(found.findings), "result")
        told = f"{len(found.kept):,} of {whole} came from {state}: an earlier run of the same code."
        typer.echo(told, err=True)


def _single(names: list[str] | None) -> str | None:
    if names and len(names) > 1:
        raise ParameterError(
            f"--mechanism was given {len(names)} times: {', '.join(names):.80}.",
            "Pass one claim, room or public name; a room has all its claims.",
        )
    return names[0] if names else None


def _refuse(mode: str, takes: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None and value is not False:
            raise ParameterError(f"Both {mode} and --{name} were given.", f"{mode} takes {takes} alone.")


def _list(name: str | None, *, as_json: bool) -> None:
    """Show what is claimed."""
    from confide.audit.legend import many, up
    from confide.audit.registry import beside, claims
    from confide.audit.state import sources

    chosen, code = claims(name), sources()
    if as_json:
        emit({"claims": [_facts(claim) for claim in chosen], "sources": code})
        return
    table = _table("claim", "room", "kind", "epsilon", "delta", "neighbours")
    for claim in chosen:
        facts = _facts(claim) | {"epsilon": up(claim.epsilon), "delta": up(claim.delta)}
        table.add_row(*facts.values())
    console = _console()
    _print(console, table)
    told = many(len(chosen), "claim") if name is None else f"{len(chosen)} of {len(claims())} claims"
    console.print(f"{told}. Attack one, or a room: confide audit --mechanism NAME.")
    console.print(f"SHA-256 of the sources: {code}")
    if name is not None and (more := beside(name)):
        console.print(f"{more}.")


def _facts(claim: Claim) -> dict[str, Any]:
    return {
        "claim": claim.name,
        "room": claim.name.partition(".")[0],
        "kind": claim.kind.value,
        "epsilon": float(claim.epsilon),
        "delta": float(claim.delta),
        "adjacency": claim.adjacency.value,
    }


def _table(*heads: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")  # a name that was cut short cannot be passed on
    return table


def _console() -> Console:
    """Return a console whose lines are never broken in a file; names are no markup and no emoji."""
    from rich.console import Console

    width = None if Console().is_terminal else _ENDLESS
    return Console(width=width, markup=False, emoji=False, highlight=False)


def _print(console: Console, table: Table) -> None:
    """Print a table; in a file no line ends in blanks."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as kept:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in kept.get().splitlines()))


def _museum(seed: int | None, *, as_json: bool) -> int:
    """Show every piece; return 0 where the audit caught them all and accused no sibling."""
    from confide.audit.museum import pieces, tour

    shown, count = [], len(pieces())
    with _progress(quiet=as_json, each=True, unit="pieces") as told:
        if told is not None:
            told(0, count, "starting")
        for number, one in enumerate(tour(seed), start=1):
            shown.append(one)
            if told is not None:
                told(number, count, one.piece.name)
    wrong = [one.piece.name for one in shown if not one.right]
    if as_json:
        emit({"pieces": [one.to_dict() for one in shown], "wrong": wrong})
        return int(bool(wrong))
    from confide.audit.legend import down

    table = _table("known to be broken", "caught by", "measured", "sibling")
    for one in shown:
        sibling = f"called broken by {', '.join(one.accused)}" if one.accused else "quiet"
        table.add_row(one.piece.name, ", ".join(one.caught) or "nothing", down(one.measured) or "-", sibling)
    console = _console()
    _print(console, table)
    twice = sum(len(one.caught) > 1 for one in shown)
    told = f"Wrong: {', '.join(wrong)}." if wrong else "All were caught, and no sibling was called broken."
    console.print(f"{count} pieces, {twice} caught by two layers or more. {told}")
    return int(bool(wrong))


@contextmanager
def _stopped(state: Path | None) -> Iterator[None]:
    """Say of an interrupted audit what is kept, and leave as an interrupted program does.

    Not with status 1, which means that a claim is broken.
    """
    try:
        yield
    except KeyboardInterrupt:
        kept = state is not None and state.exists()
        told = f"what ended is in {state}: run again to go on" if kept else "nothing was kept"
        typer.echo(f"Stopped; {told}.", err=True)
        raise typer.Exit(130) from None


@contextmanager
def _whole(state: Path | None) -> Iterator[None]:
    """Say of an audit that lost a result that it did not end."""
    from confide.audit.run import UnfinishedError

    try:
        yield
    except UnfinishedError as error:
        told = "" if state is None else f"; what ended is in {state}"
        typer.echo(f"The audit did not end: {error}{told}. Run it again.", err=True)
        raise typer.Exit(2) from None


@contextmanager
def _progress(
    *, quiet: bool, each: bool = False, unit: str = "cells"
) -> Iterator[Callable[[int, int, str], None] | None]:
    """Give a function that shows how far it is: a bar on a terminal, else lines on standard error.

    An audit counts cells, a claim by a layer on a pair: which of them have nothing to try, a layer alone
    knows.
    """
    from rich.console import Console

    if quiet:
        yield None
    elif Console(stderr=True).is_terminal:
        with _bar(unit) as told:
            yield told
    else:
        yield _lines(unit, each=each)


def _lines(unit: str, *, each: bool) -> Callable[[int, int, str], None]:
    """Return what prints a line for each step, or for each tenth of them and after each minute."""
    last = time.monotonic() - _MINUTE, -1

    def told(done: int, total: int, what: str) -> None:
        nonlocal last
        now, tenth = time.monotonic(), 10 * done // max(1, total)
        if each or tenth > last[1] or now - last[0] >= _MINUTE:
            last = now, tenth
            typer.echo(f"{done:,} of {total:,} {unit}: {what}", err=True)

    return told


@contextmanager
def _bar(unit: str) -> Iterator[Callable[[int, int, str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = TextColumn(unit), TimeRemainingColumn(), TextColumn("{task.description}")
    columns = BarColumn(), MofNCompleteColumn(), *shown
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, visible=False)  # until it is known how many there are
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=what, visible=True
        )


def _show(found: Audit) -> None:
    from confide.audit.legend import held, many, up
    from confide.audit.registry import beside
    from confide.audit.run import REGISTRY
    from confide.audit.standing import How, counted

    stood, console = found.standings, _console()
    wide = console.width >= _WIDE
    heads = ("claim", "claimed", *(("neighbours",) if wide else ()), "measured", "by", "on", "outcome")
    table = _table(*heads)
    for one in stood:
        claimed, measured = one.numbers
        delta = f", {up(one.claim.delta)}" if one.claim.delta else ""
        relation = (one.claim.adjacency.value.replace("_", " "),) if wide else ()
        bound = (measured, one.worst.layer, one.worst.pair) if one.worst.measured > 0 else ("-", "", "")
        table.add_row(one.claim.name, f"{claimed}{delta}", *relation, *bound, str(one))
    _print(console, table)
    broken = [one.claim.name for one in stood if one.how is How.BROKEN]
    unknown = [attack.claim for attack in found.broken if attack.layer == REGISTRY]
    attacks = ", ".join(many(count, what) for what, count in counted(found.findings).items() if count)
    kind = "full" if found.full else "quick"
    counts = Counter(one.how for one in stood)
    told = f"Broken: {', '.join(broken)}." if broken else "No claim was broken."
    count, all_ = len(stood), found.registered
    whole = many(count, "claim") if count == all_ else f"{count} of {all_} claims"
    console.print(f"{whole}, {attacks}, {kind}, {found.seconds:.0f} s. {told}")
    if found.cells:
        console.print(
            f"Of {many(found.cells, 'cell')} (a claim by a layer) {found.nothing:,} had nothing to try."
        )
    console.print(held(counts[How.MEASURED], counts[How.UNMEASURED]))
    if found.asked is not None and (more := beside(found.asked)):
        console.print(f"{more}.")
    if unknown:
        console.print(
            f"Public names that no claim covers, so that nothing attacks them: {', '.join(unknown)}."
        )
