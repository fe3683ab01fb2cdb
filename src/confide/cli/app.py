"""The ``confide`` command: one typer application, whose parts import their rooms when they run."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from confide.cli import audit as audit_command
from confide.cli import certify as certify_command
from confide.cli import demo as demo_command
from confide.cli import ledger, schema
from confide.cli import predict as predict_command
from confide.cli import select as select_command
from confide.cli import serve as serve_command
from confide.cli import train as train_command
from confide.errors import ConfideError

app = typer.Typer(
    name="confide",
    help="Private supervised learning on tables that hold people's secrets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(schema.app, name="schema")
app.add_typer(ledger.app, name="ledger")
app.command("train")(train_command.train)
app.command("select")(select_command.select)
app.command("certify")(certify_command.certify)
app.command("predict")(predict_command.predict)
app.command("serve")(serve_command.serve)
app.command("demo")(demo_command.demo)
app.command("audit")(audit_command.audit)


#: Set to anything but an empty text or 0: as --debug.
DEBUG = "CONFIDE_DEBUG"


def _version(asked: bool) -> None:
    if asked:
        import confide

        typer.echo(f"confide {confide.__version__}")
        raise typer.Exit


@app.callback()
def face(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Show the traceback of an unexpected error; it may quote private cells."
        ),
    ] = False,
) -> None:
    """Private supervised learning on tables that hold people's secrets.

    Start with [bold]confide demo[/bold]; then [bold]confide schema init FILE[/bold],
    [bold]confide ledger create[/bold] and [bold]confide train FILE[/bold].
    """
    if debug:
        os.environ[DEBUG] = "1"


def run() -> None:
    """Run the application; an error of Confide ends it with the failure's exit status and no traceback.

    Any other error ends it with status 1 and is told by its type alone: its message or traceback may quote a
    private cell (pitfall K15). ``--debug`` or ``CONFIDE_DEBUG=1`` shows all of it to who may see the data.
    """
    try:
        app()
    except ConfideError as error:
        print(f"confide: {error}", file=sys.stderr)
        raise SystemExit(error.failure.exit_status) from None
    except Exception as error:
        if os.environ.get(DEBUG, "0") not in ("", "0"):
            raise
        print(
            f"confide: unexpected {type(error).__name__}. Its message may quote private data and is not "
            "shown; run with --debug where it may be seen.",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
