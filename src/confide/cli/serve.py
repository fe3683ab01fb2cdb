"""``confide serve``: private answers of a certified model over HTTP."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from confide.cli.shared import Json, OfOneAnswer, ReleaseName, emit, reporting, warn_uncounted


def serve(
    model: Annotated[Path, typer.Argument(help="A model of `confide certify` (npz).", metavar="MODEL")],
    ledger: Annotated[
        str,
        typer.Option(
            "--ledger",
            "-l",
            envvar="CONFIDE_LEDGER",
            help="Whose total bounds all answers: sqlite:///ledger.db#visits or postgresql://...#visits.",
        ),
    ],
    epsilon: Annotated[str, typer.Option(help="Of one answer, of one epoch of sparse_vector; kept exactly.")],
    delta: OfOneAnswer = "0",
    release: ReleaseName = "response",
    slack: Annotated[
        str, typer.Option(help="Delta that each block may spend so that its answers add less epsilon.")
    ] = "0",
    block: Annotated[
        int, typer.Option(help="Answers that the total pays for together, when the first is drawn.")
    ] = 1,
    analyst_block: Annotated[int, typer.Option(help="The same of each analyst's account.")] = 1,
    epochs: Annotated[int, typer.Option(help="Of sparse_vector: how many one request may open.")] = 1,
    then: Annotated[
        str, typer.Option(help="Of sparse_vector: 'response' answers unstable rows too, paid besides.")
    ] = "",
    then_epsilon: Annotated[str, typer.Option(help="Of one such answer.")] = "0",
    rows: Annotated[int, typer.Option(help="Most rows of a request.")] = 1000,
    rate: Annotated[float, typer.Option(help="Requests a second of each analyst, in the long run.")] = 100.0,
    burst: Annotated[int, typer.Option(help="Requests of each analyst at once.")] = 200,
    schedule_ms: Annotated[
        float, typer.Option(help="An answer leaves so long after its request, or a multiple; 0: no schedule.")
    ] = 100.0,
    row_ms: Annotated[float, typer.Option(help="Time that the schedule grants to each row.")] = 0.25,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            help="Accept answers that rest on an assumption, by its name; may be repeated.",
            metavar="ASSUMPTION",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; put TLS in front of any other.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen at.", min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(help="Processes on the one store.", min=1, max=1024)] = 1,
    counter: Annotated[
        Path | None, typer.Option(help="Folder of the counter that detects a rolled-back store.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Print the guarantee, and whatever is wrong; serve nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Answer questions about MODEL over HTTP, privately, each charged to the asker's account.

    Keys come from `confide ledger grant NAME --epsilon ...`; the page at / is for the key of NAME "owner".
    """
    with reporting(as_json):
        from confide.service.worker import Settings, listening, run

        settings = Settings(
            str(model),
            ledger,
            {
                "epsilon": epsilon,
                "delta": delta,
                "release": release,
                "slack": slack,
                "block": block,
                "analyst_block": analyst_block,
                "epochs": epochs,
                "then": then,
                "then_epsilon": then_epsilon,
                "rows": rows,
                "rate": rate,
                "burst": burst,
                "schedule_ms": schedule_ms,
                "row_ms": row_ms,
                "workers": workers,
            },
            None if counter is None else str(counter),
            tuple(accept or ()),
        )
        _warn_of_readers(model)
        with tempfile.TemporaryDirectory(prefix="confide-service-") as counts:
            told = _opened(settings)
            if check:
                if as_json:
                    emit({"status": "checked", **told})
                else:
                    typer.echo(told["sentence"])
                return
            taken = listening(host, port)
            place = f"http://{f'[{host}]' if ':' in host else host}:{taken.getsockname()[1]}"
            typer.echo(told["sentence"], err=True)
            if not _loopback(host):
                typer.echo(
                    f"Warning: keys and rows cross the network in the clear to {host}: put TLS in front.",
                    err=True,
                )
            typer.echo(
                f"Questions: POST {place}/v1/predict. The owner's page: {place}/ "
                "(any name; the password is the key of `confide ledger grant owner`).",
                err=True,
            )
            status = run(replace(settings, counts=counts, started=time.time()), taken, workers)
            if status:
                typer.echo("The service did not start; the lines above say why.", err=True)
                raise typer.Exit(status)


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _warn_of_readers(model: Path) -> None:
    """Say on standard error where others than owner and group may read the model, as secret as the table."""
    try:
        mode = model.stat().st_mode
    except OSError:  # opening it says more
        return
    if mode & 0o007:
        typer.echo(
            f"Warning: every user of this machine may read or write {model} (mode {mode & 0o777:04o}), "
            "which is as secret as the table: chmod o= it.",
            err=True,
        )


def _opened(settings: object) -> dict:
    """Open the service once, so that what is wrong is said here and not by every worker."""
    from confide.service.app import create_app
    from confide.service.routes import promised

    service = settings.opened()  # type: ignore[attr-defined]
    warn_uncounted(service.ledger)
    try:
        told = service.overbooked()
        if told:
            typer.echo(f"Warning: {told}", err=True)
        return promised(create_app(service).state.front)
    finally:
        service.close()
