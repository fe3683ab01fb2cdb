"""What every command shares: how a failure ends it, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer

from confide.errors import ConfideError

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def emit(body: dict[str, Any]) -> None:
    """Print the JSON of a command that went well."""
    typer.echo(json.dumps({"ok": True, **body}, ensure_ascii=False))


def fail(error: ConfideError, as_json: bool) -> NoReturn:
    """Print prose, fact and remedy of a failure, and leave with its exit status."""
    failure = error.failure
    if as_json:
        body: dict[str, Any] = {"code": failure.code, "fact": error.fact, "remedy": error.remedy}
        problems = getattr(error, "problems", ())
        if problems:
            names = ("line", "column", "fact", "remedy")
            body["problems"] = [{name: getattr(item, name) for name in names} for item in problems]
        typer.echo(json.dumps({"ok": False, "error": body}, ensure_ascii=False))
    else:
        typer.echo(f"{failure.prose}\n{error}", err=True)
    raise typer.Exit(failure.exit_status)


@contextmanager
def reporting(as_json: bool) -> Iterator[None]:
    """Turn an error of Confide inside the block into `fail`."""
    try:
        yield
    except ConfideError as error:
        fail(error, as_json)
