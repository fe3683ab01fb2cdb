"""``confide train``: a private model of the label of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide.cli.shared import Json, check_targets, emit, reporting, warn_unrecorded, write_text
from confide.errors import ParameterError

if TYPE_CHECKING:
    from confide.privacy import Guarantee
    from confide.schema import Schema


def train(
    file: Annotated[Path, typer.Argument(help="A CSV, Parquet or Arrow file.", metavar="FILE")],
    schema: Annotated[Path, typer.Option("--schema", "-s", help="Its schema.toml.")],
    epsilon: Annotated[str, typer.Option(help="Total epsilon of this fit, kept exactly (0.1 is 1/10).")],
    delta: Annotated[str, typer.Option(help="Total delta, e.g. 1e-6.")],
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            "-l",
            envvar="CONFIDE_LEDGER",
            help="Charged before the label is used: sqlite:///ledger.db#visits.",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="rounds, closed_form, semi_sensitive, adassp, boosted_adassp or dpsgd; of classes: "
            "closed_form, randomized_response, objective or dpsgd. Else the best default.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="linear, fm or mlp; the last two by dpsgd.")] = "linear",
    hidden: Annotated[
        str | None, typer.Option(help="Widths of the MLP, such as 64,32.", metavar="N,N")
    ] = None,
    activation: Annotated[str | None, typer.Option(help="Of the MLP: relu, tanh or gelu.")] = None,
    embedding: Annotated[int | None, typer.Option(help="Width of the MLP's public embedding.")] = None,
    rank: Annotated[int | None, typer.Option(help="Factors of the factorisation machine.")] = None,
    steps: Annotated[int | None, typer.Option(help="Of dpsgd; 100 by default.")] = None,
    batch_size: Annotated[
        float | None, typer.Option(help="Expected size of Poisson batches of dpsgd; else full batches.")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="Of dpsgd: adam or sgd.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of dpsgd.")] = None,
    clip: Annotated[float | None, typer.Option(help="Clip norm of dpsgd; else by public rows.")] = None,
    average: Annotated[
        float | None, typer.Option(help="Share of the last steps of dpsgd that are averaged; 0.5 by default.")
    ] = None,
    switch: Annotated[
        str | None, typer.Option(help="When dpsgd leaves its conditioning: an epoch, or anneal.")
    ] = None,
    max_rows: Annotated[
        int | None, typer.Option(help="Public stand-in for the rows under add_remove_one, for dpsgd.")
    ] = None,
    conditioning: Annotated[
        str | None,
        typer.Option(
            help="optimal, spectral, identity, power:P (0 <= P <= 1) or ridge:RHO; else the engine's own."
        ),
    ] = None,
    degree: Annotated[int, typer.Option(help="Polynomial degree in each numeric public column.")] = 1,
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="replace_label; replace_private_part where the schema has private columns; replace_one or "
            "add_remove_one where it has no public one."
        ),
    ] = None,
    analyst: Annotated[str | None, typer.Option(help="Whose account of the ledger is charged.")] = None,
    chunk_rows: Annotated[
        int | None, typer.Option(help="Read the file in pieces of this many rows, never whole.", min=1)
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print exactly what would be charged; no label or private cell is read."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the result, with its model, as JSON.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a report for people, one self-contained HTML file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over existing files.")] = False,
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of a CSV file.", metavar="CHAR")] = None,
    as_json: Json = False,
) -> None:
    """Fit a private model of the label of FILE: of a number, or of classes where the label has categories.

    Everything is validated before the ledger is charged, and the ledger is charged before the label is used.
    """
    with reporting(as_json):
        result, guarantee, declared = _run(
            file,
            schema,
            epsilon,
            delta,
            ledger,
            {
                "engine": engine,
                "model": model,
                "conditioning": _conditioning(conditioning),
                "degree": degree,
                "adjacency": adjacency,
                "analyst": analyst,
                "max_rows": max_rows,
                **_given(
                    hidden=_widths(hidden),
                    activation=activation,
                    embedding=embedding,
                    rank=rank,
                    steps=steps,
                    batch_size=batch_size,
                    optimizer=optimizer,
                    learning_rate=learning_rate,
                    clip=clip,
                    average=average,
                    switch=_switch(switch),
                ),
            },
            chunk_rows,
            dry_run,
            out,
            report,
            force,
            delimiter,
        )
    if as_json:
        body = {"guarantee": guarantee.to_dict(), "sentence": str(guarantee)}
        emit({"status": "preview", **body} if result is None else result.to_dict())
    elif result is None:
        typer.echo(f"Would be charged: {guarantee}")
        warn_unrecorded(ledger, rehearsed=True)
    else:
        _show(result, declared)
        warn_unrecorded(ledger)
        for path in (out, report):
            if path is not None:
                typer.echo(f"Wrote {path}.")


def _run(
    file: Path,
    schema: Path,
    epsilon: str,
    delta: str,
    ledger: str | None,
    asked: dict[str, Any],
    chunk_rows: int | None,
    dry_run: bool,
    out: Path | None,
    report: Path | None,
    force: bool,
    delimiter: str | None,
) -> tuple[Any, Guarantee, Schema]:
    from confide.ledger import resolve
    from confide.schema import Schema, Table
    from confide.training import train as fit
    from confide.training.front import prepared

    check_targets(out, report, force=force)
    declared, book = Schema.load(schema), resolve(ledger)
    # A chunked table reads nothing until it is asked for rows, so that a refusal costs no reading.
    table = Table.scan(file, declared, chunk_rows=chunk_rows or 100_000, delimiter=delimiter)
    options = {
        "epsilon": epsilon,
        "delta": delta,
        "ledger": book,
        "label": f"train {file.name}",
        **asked,
    }
    if dry_run:
        return None, fit(table, dry_run=True, **options), declared
    prepared(table, **options)
    if chunk_rows is None:
        # The label stays unparsed until it is asked for, after the charge. That of an Arrow file is parsed
        # here, which is harmless: no cell of it can raise, warn, or change what is charged.
        table = Table.read(file, declared, delimiter=delimiter)
    before = None if book is None else book.show()
    result: Any = fit(table, **options)
    if out is not None:
        write_text(out, result.to_json(indent=1) + "\n")
    if report is not None:
        from confide.report import write_report

        write_report(result, report, table=table, ledger=book, before=before)
    return result, result.guarantee, declared


def _conditioning(text: str | None) -> str | tuple[str, float] | None:
    if text is None:
        return None
    kind, colon, option = text.partition(":")
    if not colon:
        return text
    try:
        return kind, float(option)
    except ValueError:
        raise ParameterError(
            f"The conditioning is {text!r}.", "Pass a kind, or power:P or ridge:RHO with a number."
        ) from None


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _widths(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ParameterError(f"The widths are {text!r:.80}.", "Pass integers such as 64,32.") from None


def _switch(text: str | None) -> Any:
    try:
        return text if text in (None, "anneal") else float(text)
    except ValueError:
        raise ParameterError(f"The switch is {text!r:.80}.", "Pass an epoch, or anneal.") from None


def _show(result: Any, schema: Schema) -> None:
    from rich.console import Console

    from confide.report import summary

    Console().print(summary(result, table=schema))
