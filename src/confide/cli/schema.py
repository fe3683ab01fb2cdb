"""``confide schema init`` and ``confide schema check``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide.cli.shared import Json, emit, fail
from confide.errors import ConfideError, ParameterError

if TYPE_CHECKING:
    from confide.schema.model import Schema

app = typer.Typer(help="Declare what is public about a table, and check it.", no_args_is_help=True)

_File = Annotated[Path, typer.Argument(help="A CSV, Parquet or Arrow file.", metavar="FILE")]
_Delimiter = Annotated[str | None, typer.Option(help="Delimiter of a CSV file.", metavar="CHAR")]


@app.command()
def init(
    file: _File,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write; default: FILE with .toml."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    non_interactive: Annotated[
        bool, typer.Option("--non-interactive", help="Ask nothing; leave blanks to fill in.")
    ] = False,
    delimiter: _Delimiter = None,
    header_ok: Annotated[
        bool,
        typer.Option(
            "--header-ok", help="The first line of the CSV file holds names, even if some look like data."
        ),
    ] = False,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            help="A column's published mean and deviation, never those of FILE, and where they are "
            "published; repeatable.",
            metavar="NAME=MEAN,DEVIATION,SOURCE",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a schema.toml for FILE with its columns' names and kinds; never a value of its data.

    On a terminal it asks for roles, bounds and categories; an empty answer leaves a blank.
    """
    from confide.schema.template import drafts, interview, set_scales, template

    try:
        target = output if output is not None else file.with_suffix(".toml")
        if target.exists() and not force:
            raise ParameterError(f"The file {target} exists.", "Pass --force to overwrite it, or --output.")
        columns = drafts(file, delimiter=delimiter, header_ok=header_ok)
        set_scales(columns, scale or [])
        declared_by = ""
        if not non_interactive and not as_json and _interactive():
            columns, declared_by = interview(columns, _ask)
        text = template(columns, table=file.name.split(".")[0], file=target.name, declared_by=declared_by)
        _write(target, text)
    except ConfideError as error:
        fail(error, as_json)
    if as_json:
        emit({"schema": str(target), "columns": [draft.name for draft in columns]})
    else:
        count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        typer.echo(f"Wrote {target} with {count}.")
        command = ["confide", "schema", "check", str(target), str(file)]
        command += [] if delimiter is None else ["--delimiter", delimiter]
        typer.echo(f"Fill in the blanks from public knowledge, then run: {shlex.join(command)}")
    others = [mark for mark in ";\t|" if len(columns) == 1 and mark in columns[0].name]
    if delimiter is None and others:
        typer.echo(
            f"Warning: the only column's name holds {others[0]!r}. If that separates columns, run again with "
            f"--delimiter {shlex.quote(others[0])} --force.",
            err=True,
        )


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="A schema.toml.", metavar="SCHEMA")],
    file: Annotated[
        Path | None, typer.Argument(help="A data file whose header or metadata must fit.", metavar="[FILE]")
    ] = None,
    delimiter: _Delimiter = None,
    as_json: Json = False,
) -> None:
    """Validate SCHEMA, and that FILE has its columns; no row of FILE is read."""
    from confide.schema.model import Schema
    from confide.schema.scale import advice
    from confide.schema.template import misfits

    try:
        declared = Schema.load(schema)
        warnings = [] if file is None else misfits(declared, file, delimiter=delimiter)
    except ConfideError as error:
        fail(error, as_json)
    warnings += advice(declared)
    unnamed = [column.name for column in declared.columns if not declared.declarer(column)]
    if unnamed:
        warnings.append(f"Nobody is named as declaring: {', '.join(unnamed)}. Fill in 'declared_by'.")
    if as_json:
        emit({**_facts(declared), "warnings": warnings})
        return
    _show(declared)
    for warning in warnings:
        typer.echo(f"Warning: {warning}", err=True)


def _facts(schema: Schema) -> dict[str, Any]:
    columns = [
        {
            "name": column.name,
            "role": column.role,
            "kind": column.kind,
            "lower": column.lower,
            "upper": column.upper,
            "mean": column.mean,
            "deviation": column.deviation,
            "clip": column.clip,
            "source": column.source,
            "categories": None if column.categories is None else list(column.categories),
            "transform": column.transform,
            "missing": column.missing,
            "impute": column.impute,
            "unit": column.unit,
            "declared_by": schema.declarer(column),
            "note": column.note,
        }
        for column in schema.columns
    ]
    return {
        "name": schema.name,
        "unit": schema.unit,
        "max_rows_per_id": schema.max_rows_per_id,
        "digest": schema.digest,
        "declaration": schema.declaration,
        "columns": columns,
    }


def _show(schema: Schema) -> None:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    who = {column.name: schema.declarer(column) or "nobody named" for column in schema.columns}
    several = len(set(who.values())) > 1
    grid = Grid(title=Text(schema.name), title_justify="left")
    for heading in ("column", "role", "bounds or categories", "unit", "missing", "declared by")[
        : 5 + several
    ]:
        grid.add_column(heading, overflow="fold")
    for column in schema.columns:
        missing = column.missing or ""
        if column.impute is not None:
            missing = f"impute {column.impute}"
        cells = (column.name, column.role, column.domain, column.unit, missing, who[column.name])
        grid.add_row(*map(Text, cells[: 5 + several]))
    console = Console()
    console.print(grid)
    limit = (
        "" if schema.max_rows_per_id is None else f"; at most {schema.max_rows_per_id} rows of each id count"
    )
    console.print(Text(f"privacy unit: {schema.unit}{limit}"))
    if not several:
        console.print(Text(f"declared by: {next(iter(who.values()))}"))
    for name, value in (("digest", schema.digest), ("declaration", schema.declaration)):
        console.print(Text(f"{name}: {value}"), soft_wrap=True)


def _interactive() -> bool:
    return sys.stdin.isatty()


def _ask(question: str, default: str) -> str:
    return typer.prompt(question, default=default, show_default=bool(default)).strip()


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ParameterError(
            f"The file {target} cannot be written ({error.strerror}).", "Choose another."
        ) from None
