"""What every command shares: how a failure ends it, for people and for machines."""

from __future__ import annotations

import json
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from confide.errors import ConfideError, ParameterError

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
LedgerUrl = Annotated[
    str,
    typer.Option(
        "--ledger",
        "-l",
        envvar="CONFIDE_LEDGER",
        help="Where it lies: sqlite:///ledger.db#visits or postgresql://user@host/database#visits.",
    ),
]
Counter = Annotated[
    Path | None,
    typer.Option(
        "--counter",
        help="Folder of the counter that detects a rolled-back store (default: CONFIDE_LEDGER_COUNTER, or "
        "the user's state folder).",
    ),
]
OfOneAnswer = Annotated[str, typer.Option(help="Of one answer, of one epoch; laplace, ptr, sparse_vector.")]
ReleaseName = Annotated[str, typer.Option(help="response, sparse_vector, cauchy, laplace, ptr or global.")]


def emit(body: dict[str, Any]) -> None:
    """Print the JSON of a command that went well."""
    typer.echo(json.dumps({"ok": True, **body}, ensure_ascii=False))


def fail(error: ConfideError, as_json: bool) -> NoReturn:
    """Print prose, fact and remedy of a failure, and leave with its exit status."""
    failure = error.failure
    fact, remedy = in_options(error.fact), in_options(error.remedy)
    if as_json:
        body: dict[str, Any] = {"code": failure.code, "fact": fact, "remedy": remedy}
        problems = getattr(error, "problems", ())
        if problems:
            names = ("line", "column", "fact", "remedy")
            body["problems"] = [{name: getattr(item, name) for name in names} for item in problems]
        typer.echo(json.dumps({"ok": False, "error": body}, ensure_ascii=False))
    else:
        typer.echo(f"{failure.prose}\n{in_options(str(error))}", err=True)
    raise typer.Exit(failure.exit_status)


def in_options(text: str) -> str:
    """Return a message with parameters of Python as options of the running command, where it has them.

    ``adjacency='replace_one'`` becomes ``--adjacency replace_one``; what the command does not take stays.
    """
    context = _context()
    if context is None:
        return text
    options = {item.name: item.opts[0] for item in context.command.params if item.opts[0].startswith("-")}

    def option(found: re.Match[str]) -> str:
        return f"{options[found[1]]} {found[3]}" if found[1] in options else found[0]

    text = re.sub(r"\b([a-z_]+)=(['\"]?)([\w.+-]*\w)\2", option, text)
    return re.sub(
        r"[Tt]he '([a-z_]+)' parameter",
        lambda found: f"{found[0][:3]} option {options[found[1]]}" if found[1] in options else found[0],
        text,
    )


def _context() -> Any:
    """Return the context of the running command: typer brings its own copy of click, older ones do not."""
    for name in ("typer._click.globals", "click.globals"):
        try:
            found = import_module(name).get_current_context(silent=True)
        except ImportError:
            continue
        if found is not None:
            return found
    return None


def check_targets(
    *paths: Path | None,
    force: bool,
    holds: str = "a release that was paid for",
    why: str = "a charge is never refunded",
) -> None:
    """Refuse, before anything is charged, files that cannot be written or would be written over.

    Parameters
    ----------
    *paths : path or None
    force : bool
        Whether to write over files.
    holds, why : str
        What an existing file may hold, and why a folder must be there first.

    Raises
    ------
    ParameterError
        For a folder in place of a file, a missing or read-only folder, and an existing file without `force`.
    """
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise ParameterError(f"{path} is a folder.", "Name a file in it.")
        if path.exists() and not force:
            raise ParameterError(
                f"The file {path} exists and may hold {holds}.",
                "Name another file, or pass --force to write over it.",
            )
        try:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError:
            raise ParameterError(
                f"The folder of {path} does not exist or cannot be written to.",
                f"Make it first: {why}.",
            ) from None


def write_text(path: Path, text: str) -> None:
    """Write a release to a file; if that fails, print it, since it was paid for."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        typer.echo(f"{path} could not be written ({type(error).__name__}); the release follows.", err=True)
        typer.echo(text)


def warn_unrecorded(ledger: object, *, rehearsed: bool = False) -> None:
    """Say on standard error that a release without a ledger is, or would be, recorded nowhere."""
    if ledger is not None:
        return
    fact = "no ledger was given, so this release "
    words = "Would not be recorded: " + fact + "would be" if rehearsed else "Not recorded: " + fact + "is"
    typer.echo(f"{words} charged nowhere. Pass --ledger.", err=True)


def warn_uncounted(ledger: Any) -> None:
    """Say on standard error that a ledger has no counter here, which its next entry would hide."""
    told = ledger.uncounted()
    if told:
        typer.echo(f"Warning: {told}", err=True)


@contextmanager
def reporting(as_json: bool) -> Iterator[None]:
    """Turn an error of Confide inside the block into `fail`, and warnings into lines on standard error."""
    told: set[str] = set()

    def tell(message: Warning | str, *rest: Any, **options: Any) -> None:
        if str(message) not in told:  # a rehearsal warns of the same as the release after it
            told.add(str(message))
            typer.echo(f"Warning: {in_options(str(message))}", err=True)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = tell
            yield
    except ConfideError as error:
        fail(error, as_json)
