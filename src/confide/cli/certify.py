"""``confide certify``: a model of the label of a file, trained without noise, for private answers."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.cli.shared import Json, check_targets, emit, reporting
from confide.errors import ParameterError

#: Seconds of work after which it is shown.
QUIET = 2.0


def certify(
    file: Annotated[Path, typer.Argument(help="A CSV, Parquet or Arrow file.", metavar="FILE")],
    schema: Annotated[Path, typer.Option("--schema", "-s", help="Its schema.toml.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where the model goes. As secret as FILE: mode 0600.")
    ],
    certificate: Annotated[
        str,
        typer.Option(
            help="erm (strongly convex), votes (nearest neighbours), interval (descent with boxes) or ball "
            "(many steps of it)."
        ),
    ] = "erm",
    model: Annotated[
        str,
        typer.Option(
            help="Of erm: logistic, huber_hinge or softmax; of interval: logistic or mlp; of ball: logistic."
        ),
    ] = "logistic",
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Ridge of erm's mean objective: more of it, stabler answers and a coarser model. "
            "\\[default: from the rows and --answer-epsilon]"
        ),
    ] = None,
    answer_epsilon: Annotated[
        float,
        typer.Option(
            help="About the epsilon that an answer will have: chooses erm's ridge, promises nothing."
        ),
    ] = 0.2,
    ridge: Annotated[
        float | None,
        typer.Option(help="Lambda of erm's sum of losses, under add_remove_one and for --members."),
    ] = None,
    feature_norm: Annotated[
        float | None, typer.Option(help="Norm that erm and ball shorten encoded rows to.")
    ] = None,
    constant: Annotated[float | None, typer.Option(help="Constant column of erm's intercept.")] = None,
    neighbours: Annotated[int, typer.Option(help="Of votes.")] = 51,
    hidden: Annotated[
        str | None, typer.Option(help="Widths of the mlp, such as 32,16. [default: 16]", metavar="N,N")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Of interval and ball.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of interval and ball.")] = None,
    clip: Annotated[
        float | None,
        typer.Option(help="Of interval: each cell of a row's gradient; of ball: the gradient's norm."),
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Of interval and ball.")] = None,
    k_max: Annotated[int, typer.Option(help="Of interval: largest distance that is searched.")] = 128,
    members: Annotated[int, typer.Option(help="More than 1: an ensemble on disjoint parts.")] = 1,
    adjacency: Annotated[
        str, typer.Option(help="replace_one, add_remove_one, replace_private_part or replace_label.")
    ] = "replace_one",
    max_rows: Annotated[
        int | None, typer.Option(help="Public stand-in for the rows under add_remove_one.")
    ] = None,
    partition_key: Annotated[
        str, typer.Option(help="Public key of parts and ties; in every guarantee.")
    ] = "confide",
    training_seed: Annotated[
        int, typer.Option(help="Public seed of the mlp's start; in every guarantee.")
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check what is asked; read only the schema, write nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of a CSV file.", metavar="CHAR")] = None,
    as_json: Json = False,
) -> None:
    """Train a classifier of FILE's label without noise. Nothing is released, and nothing is charged.

    Answers to rows are released, and charged, by [bold]confide predict[/bold].
    """
    with reporting(as_json):
        options = {
            "certificate": certificate,
            "model": model,
            "alpha": alpha,
            "answer_epsilon": answer_epsilon,
            "ridge": ridge,
            "feature_norm": feature_norm,
            "constant": constant,
            "neighbours": neighbours,
            "hyperparameters": None,
            "k_max": k_max,
            "members": members,
            "adjacency": adjacency,
            "max_rows": max_rows,
            "partition_key": partition_key,
            "training_seed": training_seed,
            "progress": not as_json and sys.stderr.isatty(),
        }
        steps = {"epochs": epochs, "learning_rate": learning_rate, "clip": clip, "weight_decay": weight_decay}
        given = {name: value for name, value in steps.items() if value is not None}
        if given:
            options["hyperparameters"] = _hyperparameters(certificate, model, given)
        if hidden is not None:
            options["hidden"] = _widths(hidden)
        facts = _run(file, schema, out, options, dry_run, force, delimiter)
    if as_json:
        emit({"status": "preview" if dry_run else "certified", "provenance": facts, "path": str(out)})
    elif dry_run:
        typer.echo(f"Would certify {_sentence(facts)}.")
    else:
        typer.echo(f"Certified {_sentence(facts)}.")
        typer.echo(f"Wrote {out}: as secret as the table, for its owner alone. Nothing was charged.")
        typer.echo(
            f"Labels outside the declared classes count as {facts['classes'][0]!r}: nothing tells of them."
        )
        typer.echo(
            f"Answers: confide predict {shlex.quote(str(out))} ROWS --epsilon {answer_epsilon:g} --ledger URL"
        )
        typer.echo(f"Their ledger: confide ledger create --ledger URL --epsilon TOTAL {_counted(facts)}")


def _run(
    file: Path,
    schema: Path,
    out: Path,
    options: dict[str, Any],
    dry_run: bool,
    force: bool,
    delimiter: str | None,
) -> dict[str, Any]:
    from confide.prediction import certify as fit
    from confide.schema import Schema, Table

    check_targets(out, force=force)
    declared = Schema.load(schema)
    # A scan reads nothing until it is asked for rows, so that a refusal costs no reading.
    facts = fit(Table.scan(file, declared, delimiter=delimiter), dry_run=True, **options)
    if dry_run:
        return facts
    # "interval" has a bar of its own.
    with waiting("Certifying", shown=options["progress"] and options["certificate"] != "interval"):
        made = fit(Table.read(file, declared, delimiter=delimiter), **options)
        made.save(out)
    return made.provenance


@contextmanager
def waiting(what: str, *, shown: bool) -> Iterator[None]:
    """Show on standard error that something is being done, once it has taken two seconds."""
    if not shown:
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(f"{what} ...")
    timer = threading.Timer(QUIET, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def _sentence(facts: dict[str, Any]) -> str:
    return (
        f"{facts['certificate']}, {len(facts['classes'])} classes, {facts['columns']} encoded columns; "
        f"distances count changes of one {facts['unit']} ({facts['adjacency']})"
    )


def _counted(facts: dict[str, Any]) -> str:
    """Return what a ledger must count for it to take the answers' charge."""
    unit = "" if facts["unit"] == "row" else f" --unit {facts['unit']}"
    return f"--adjacency {facts['adjacency']}{unit}"


def _hyperparameters(certificate: str, model: str, given: dict[str, float]) -> dict[str, Any]:
    """Return the public defaults with what is given."""
    from confide.prediction.named import BALL, BALL_CLIPS, TRAINING

    if certificate == "ball":
        return {**BALL, "clip": BALL_CLIPS[0], **given}
    if certificate != "interval":
        raise ParameterError(
            f"The option --{next(iter(given)).replace('_', '-')} belongs to --certificate interval or ball.",
            "Leave it out, or pass one of these.",
        )
    return {**TRAINING["mlp" if model == "mlp" else "linear"], **given}


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ParameterError(f"The widths are {text!r:.80}.", "Pass integers such as 32,16.") from None
