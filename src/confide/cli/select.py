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
    epsilon: Annotated[
        str, typer.Option(help="Total epsilon of this call, --fit included, kept exactly (0.1 is 1/10).")
    ],
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
            help="Accept that the guarantee assumes this; 'gap condition' is that of --mechanism mistakes: "
            "no single unit can change which support is best.",
            metavar="NAME",
        ),
    ] = None,
    fit: Annotated[
        bool, typer.Option("--fit", help="Fit the coefficients of the selected columns too, in one charge.")
    ] = False,
    delta: Annotated[
        str,
        typer.Option(help="Total delta, spent on the coefficients; with --fit. 0 keeps all of it pure."),
    ] = "0",
    split: Annotated[
        str | None,
        typer.Option(help="Part of epsilon that selects; the rest fits. With --fit. [default: 0.5]"),
    ] = None,
    coefficients: Annotated[
        str | None,
        typer.Option(
            help="auto, objective (objective perturbation) or sufficient_statistics (least squares, with "
            "known errors). With --fit. [default: auto]"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be charged; read only the schema.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the result as JSON.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a report for people, one self-contained HTML file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over existing files.")] = False,
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of a CSV file.", metavar="CHAR")] = None,
    as_json: Json = False,
) -> None:
    """Draw the columns of FILE that explain its label, under differential privacy.

    Pure (delta is 0), unless --fit is given a --delta.
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
            options |= {"coefficients": coefficients or "auto"}
        elif delta != "0" or split is not None or coefficients is not None:
            raise ParameterError(
                "The options --delta, --split and --coefficients belong to --fit.",
                "Pass --fit, or leave them out.",
            )
        _check_accepted(accept or ())
        result, guarantee, declared = _run(
            file, schema, ledger, accept or (), loss, dry_run, out, report, force, delimiter, options, fit
        )
    if as_json:
        body = {"status": "preview", "guarantee": guarantee.to_dict(), "sentence": str(guarantee)}
        emit(body if result is None else result.to_dict())
    elif result is None:
        typer.echo(f"Would be {'released' if ledger is None else 'charged'}: {guarantee}")
        warn_unrecorded(ledger, rehearsed=True)
    else:
        (_show_fit if fit else _show)(result, declared)
        warn_unrecorded(ledger)
        for path in (out, report):
            if path is not None:
                typer.echo(f"Wrote {path}.")


def _run(
    file: Path,
    schema: Path,
    ledger: str | None,
    accept: Sequence[str],
    loss: str | None,
    dry_run: bool,
    out: Path | None,
    report: Path | None,
    force: bool,
    delimiter: str | None,
    options: dict[str, Any],
    fit: bool,
) -> tuple[SelectionResult | SparseResult | None, Guarantee, Schema]:
    from confide.ledger import Ledger
    from confide.schema import Schema, Table

    draw = _front(fit)
    check_targets(out, report, force=force)
    declared = Schema.load(schema)
    book = None if ledger is None else Ledger.from_handle(ledger, accept=accept)
    options = {**options, "ledger": book, "loss": _loss(loss)}
    # A scan reads nothing until it is asked for rows, so that a refusal costs no reading.
    guarantee = draw(Table.scan(file, declared, delimiter=delimiter), dry_run=True, **options)
    if dry_run:
        return None, guarantee, declared
    before = None if book is None or report is None else book.show()
    result = draw(Table.read(file, declared, delimiter=delimiter), **options)
    if out is not None:
        write_text(out, result.to_json(indent=1) + "\n")
    if report is not None:
        from confide.report import write_report

        write_report(result, report, table=declared, ledger=book, before=before)
    return result, result.guarantee, declared


def _check_accepted(names: Sequence[str]) -> None:
    """Refuse names that no guarantee of this command can carry: they would accept nothing."""
    from confide.ledger.names import is_known, known_assumptions

    for name in names:
        if not is_known(name):
            raise ParameterError(
                f"The option --accept is {name!r:.80}, which no guarantee assumes.",
                f"Known are {', '.join(map(repr, known_assumptions()))}.",
            )


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

    from confide.pipeline.result import errors_in_words

    model, fitted, selection = result.model, result.coefficients, result.selection
    owners = {name: column for column in schema.columns for name in column.feature_names}
    target = f"score of {model.classes[1]!r}" if model.classes else "prediction"
    part = "no choice to make" if selection is None else f"{selection.mechanism}, {selection.loss} loss"
    title = (
        f"{target}: {len(model.names)} columns ({part}), coefficients by {fitted.method}, {fitted.loss} loss"
    )
    grid = Grid(title=title, title_justify="left")
    errors = result.noise_errors
    known = () if errors is None else ("± privacy",)
    for heading in ("selected", "coefficient", *known, "of column", "role", "declared domain"):
        grid.add_column(heading, overflow="fold")
    first = ("(intercept)", model.intercept, ("", "", ""))
    rows = [first]
    for name, value in zip(model.names, model.coefficients.tolist(), strict=True):
        column = owners[name]
        rows.append((name, value, (column.name, column.role, column.domain)))
    for name, value, of in rows:
        error = () if errors is None else (f"{errors[name]:.2g}",)
        grid.add_row(*(Text(cell) for cell in (name, f"{value:.6g}", *error, *of)))
    console = Console()
    console.print(grid)
    console.print(Text(errors_in_words(fitted)))
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
