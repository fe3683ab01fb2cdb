"""``confide audit``: try to break every guarantee, and say what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide.cli.shared import Json, check_targets, emit, reporting
from confide.errors import ParameterError

if TYPE_CHECKING:
    from confide.audit.run import Audit


def audit(
    quick: Annotated[bool, typer.Option("--quick", help="Under two minutes; the default.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Under two hours on two cores; goes on where it stopped.")
    ] = False,
    mechanism: Annotated[
        str | None, typer.Option("--mechanism", "-m", help="One claim, room or public name alone.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write an HTML report.")] = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Where a full audit keeps its progress. Default: confide-audit.jsonl."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes. Default: 2 for --full, else 1.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Repeat an audit. Default: the operating system's randomness."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing report.")] = False,
    as_json: Json = False,
) -> None:
    """Attack each claim of Confide: exact laws on searched neighbours, and outputs told apart.

    Leaves with status 0 where every claim holds and 1 where one is broken.
    """
    with reporting(as_json):
        from confide.audit.run import audit as attack

        if quick and full:
            raise ParameterError("Both --quick and --full were given.", "Pass one of them.")
        if jobs is not None and jobs < 1:
            raise ParameterError(f"The 'jobs' parameter is {jobs}.", "Pass at least 1.")
        check_targets(out, force=force)
        kept = state if state is not None or not full else Path("confide-audit.jsonl")
        with _progress(quiet=as_json) as told:
            found = attack(
                mechanism, full=full, seed=seed, state=kept, jobs=jobs or (2 if full else 1), progress=told
            )
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


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("attacks", total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)


def _show(found: Audit) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "claim", "epsilon", "measured", "layer", "worst neighbours", "verdict", box=None, pad_edge=False
    )
    for claim, worst, verdict in found.summary():
        table.add_row(
            claim.name,
            f"{float(claim.epsilon):.4g}",
            _number(worst.measured),
            worst.layer,
            worst.pair,
            verdict.value,
        )
    console = Console(width=None if Console().is_terminal else 130)
    console.print(table)
    broken = sorted({attack.claim for attack in found.broken})
    kind = "full" if found.full else "quick"
    told = f"Broken: {', '.join(broken)}." if broken else "No claim was broken."
    console.print(
        f"{len(found.summary())} claims, {len(found.findings)} attacks, {kind}, {found.seconds:.0f} s. {told}"
    )


def _number(value: Any) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"
