"""``confide select``: which encoded columns of a file explain its label, drawn privately."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide.cli.shared import Json, check_targets, emit, reporting, warn_unrecorded, write_text
from confide.errors import ParameterError

if TYPE_CHECKING:
    from confide.pipeline import SparseResult
    from confide.privacy import Guarantee
    from confide.schema import Schema
    from confide.selection import SelectionResult


def select(
    file: Annotated[Path, typer.Argument(help="A CSV, Parquet or Arrow file.", metavar="FILE")],
    schema: Annotated[Path, typer.Option("--schema", "-s", help="Its schema.toml.")],
    size: Annotated[int, typer.Option(help="How many encoded columns to select.")],
    epsilon: Annotated[str, typer.Option(help="Total epsilon of this draw, kept exactly (0.1 is 1/10).")],
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            "-l",
            envvar="CONFIDE_LEDGER",
            help="Charged before any cell is used: sqlite:///ledger.db#visits.",
        ),
    ] = None,
    mechanism: Annotated[
        str,
        typer.Option(
            help="exponential, permute_and_flip, top_r, or mistakes, which is private under a condition."
        ),
    ] = "exponential",
    top: Annotated[
        int | None,
        typer.Option(help="R of top_r: supports that keep their scores. [default: 2 + (p - size) size]"),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="squared, huber, quantile, huber:WIDTH or quantile:LEVEL for a number; logistic or hinge "
            "for one of two categories. [default: squared]"
        ),
    ] = None,
    radius: Annotated[float | None, typer.Option(help="Norm ball of the coefficients, public.")] = None,
    ridge: Annotated[float | None, typer.Option(help="Ridge of the coefficients, public.")] = None,
    adjacency: Annotated[
        str, typer.Option(help="replace_one, add_remove_one, replace_private_part or replace_label.")
    ] = "replace_one",
    analyst: Annotated[str | None, typer.Option(help="Whose account of the ledger is charged.")] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            help="Assumption of the guarantee that the ledger is to accept, by its name: 'gap condition'.",
            metavar="NAME",
        ),
    ] = None,
    fit: Annotated[
        bool, typer.Option("--fit", help="Fit the coefficients of the selected columns too, in one charge.")
    ] = False,
    delta: Annotated[str, typer.Option(help="Total delta, of the coefficients; with --fit.")] = "0",
    split: Annotated[
        str | None,
        typer.Option(help="Part of epsilon that selects; the rest fits. With --fit. [default: 0.5]"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be charged; read only the schema.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the result as JSON.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of a CSV file.", metavar="CHAR")] = None,
    as_json: Json = False,
) -> None:
    """Draw the columns of FILE that explain its label, under pure differential privacy.

    Everything is validated before the ledger is charged, and the ledger is charged before any cell is used.
    """
    options = {
        "size": size,
        "epsilon": epsilon,
        "mechanism": mechanism,
        "top": top,
        "radius": radius,
        "ridge": ridge,
        "adjacency": adjacency,
        "analyst": analyst,
        "label": f"select {file.name}",
    }
    with reporting(as_json):
        if fit:
            options |= {"delta": delta, "split": split, "label": f"select and fit {file.name}"}
        elif delta != "0" or split is not None:
            raise ParameterError(
                "The options --delta and --split belong to --fit.", "Pass --fit, or leave them out."
            )
        result, guarantee, declared = _run(
            file, schema, ledger, accept or (), loss, dry_run, out, force, delimiter, options, fit
        )
    if as_json:
        body = {"status": "preview", "guarantee": guarantee.to_dict(), "sentence": str(guarantee)}
        emit(body if result is None else result.to_dict())
    elif result is None:
        typer.echo(f"Would be charged: {guarantee}")
        warn_unrecorded(ledger)
    else:
        (_show_fit if fit else _show)(result, declared)
        warn_unrecorded(ledger)
        if out is not None:
            typer.echo(f"Wrote {out}.")


def _run(
    file: Path,
    schema: Path,
    ledger: str | None,
    accept: Sequence[str],
    loss: str | None,
    dry_run: bool,
    out: Path | None,
    force: bool,
    delimiter: str | None,
    options: dict[str, Any],
    fit: bool,
) -> tuple[SelectionResult | SparseResult | None, Guarantee, Schema]:
    from confide.ledger import Ledger
    from confide.schema import Schema, Table

    draw = _front(fit)
    check_targets(out, force=force)
    declared = Schema.load(schema)
    book = None if ledger is None else Ledger.from_handle(ledger, accept=accept)
    options = {**options, "ledger": book, "loss": _loss(loss)}
    # A scan reads nothing until it is asked for rows, so that a refusal costs no reading.
    guarantee = draw(Table.scan(file, declared, delimiter=delimiter), dry_run=True, **options)
    if dry_run:
        return None, guarantee, declared
    result = draw(Table.read(file, declared, delimiter=delimiter), **options)
    if out is not None:
        write_text(out, result.to_json(indent=1) + "\n")
    return result, result.guarantee, declared


def _front(fit: bool) -> Any:
    if fit:
        from confide.pipeline import select_and_fit

        return select_and_fit
    from confide.selection import select

    return select


def _loss(text: str | None) -> Any:
    """Return a loss from its name, or from a name with its shape: ``huber:0.5``."""
    from confide.selection import huber, quantile

    if text is None or ":" not in text:
        return text
    kind, _, shape = text.partition(":")
    makers = {"huber": huber, "quantile": quantile}
    try:
        return makers[kind](float(shape))
    except (KeyError, ValueError):
        raise ParameterError(
            f"The loss is {text!r:.80}.", "Pass a name, or huber:WIDTH or quantile:LEVEL with a number."
        ) from None


def _show_fit(result: Any, schema: Schema) -> None:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    model, fitted, selection = result.model, result.coefficients, result.selection
    owners = {name: column for column in schema.columns for name in column.feature_names}
    target = f"score of {model.classes[1]!r}" if model.classes else "prediction"
    part = "no choice to make" if selection is None else f"{selection.mechanism}, {selection.loss} loss"
    title = (
        f"{target}: {len(model.names)} columns ({part}), coefficients by {fitted.method}, {fitted.loss} loss"
    )
    grid = Grid(title=title, title_justify="left")
    for heading in ("selected", "coefficient", "of column", "role", "declared domain"):
        grid.add_column(heading, overflow="fold")
    grid.add_row("(intercept)", f"{model.intercept:.6g}", "", "", "")
    for name, value in zip(model.names, model.coefficients.tolist(), strict=True):
        column = owners[name]
        grid.add_row(
            *(Text(cell) for cell in (name, f"{value:.6g}", column.name, column.role, column.domain))
        )
    console = Console()
    console.print(grid)
    console.print(Text("Coefficients are of encoded columns, within [-1, 1] of their declared domains."))
    console.print(Text(str(result.guarantee)))


def _show(result: Any, schema: Schema) -> None:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    owners = {name: column for column in schema.columns for name in column.feature_names}
    console = Console()
    title = f"{result.size} of {result.candidates} encoded columns, by {result.mechanism}, {result.loss} loss"
    grid = Grid(title=title, title_justify="left")
    for heading in ("selected", "of column", "role", "declared domain"):
        grid.add_column(heading, overflow="fold")
    for name in result.support:
        column = owners[name]
        grid.add_row(*(Text(cell) for cell in (name, column.name, column.role, column.domain)))
    console.print(grid)
    console.print(Text(str(result.guarantee)))
