"""``confide predict``: answers of a model in a file: private ones of `certify`, free ones of `train`."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide.cli.certify import waiting
from confide.cli.shared import (
    Json,
    OfOneAnswer,
    ReleaseName,
    check_targets,
    emit,
    reporting,
    warn_unrecorded,
    write_text,
)
from confide.errors import ParameterError

if TYPE_CHECKING:
    from confide.schema import Schema, Table

#: Options that belong to a certified model, with what they are where nobody gives them. A ledger may come
#: from the environment: it is left alone.
_CHARGED = {
    "epsilon": None,
    "total_epsilon": None,
    "total_delta": None,
    "delta": "0",
    "release": "response",
    "slack": "0",
    "epochs": 1,
    "analyst": None,
}
#: What is tried as `--slack` where none was given, and the least saving that is told.
_SLACK, _WORTH = "1e-6", 0.9


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            help="A model of `confide certify` (npz) or of `confide train --out` (JSON).", metavar="MODEL"
        ),
    ],
    rows: Annotated[
        Path,
        typer.Argument(help="CSV, Parquet or Arrow file with the model's columns, no label.", metavar="ROWS"),
    ],
    epsilon: Annotated[
        str | None, typer.Option(help="Of one answer, of one epoch of sparse_vector; kept exactly.")
    ] = None,
    total_epsilon: Annotated[
        str | None,
        typer.Option(help="In place of --epsilon: of all answers together, from which each takes its part."),
    ] = None,
    total_delta: Annotated[
        str | None, typer.Option(help="Beside --total-epsilon, in place of --slack: delta of all together.")
    ] = None,
    delta: OfOneAnswer = "0",
    release: ReleaseName = "response",
    slack: Annotated[
        str, typer.Option(help="Delta of the composition: with 1e-6, many answers add less epsilon.")
    ] = "0",
    epochs: Annotated[int, typer.Option(help="Of sparse_vector: how many are reserved.")] = 1,
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            "-l",
            envvar="CONFIDE_LEDGER",
            help="Charged before anything is computed: sqlite:///ledger.db#visits.",
        ),
    ] = None,
    analyst: Annotated[str | None, typer.Option(help="Whose account of the ledger is charged.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be charged; answer nothing.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the answers as CSV, one a row of ROWS.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of a CSV file.", metavar="CHAR")] = None,
    as_json: Json = False,
) -> None:
    """Answer the rows of ROWS from MODEL; rows are public.

    A certified model charges each answer, and the sum of all before the first is computed.
    A model that was trained privately predicts for nothing: --epsilon is then refused.
    """
    with reporting(as_json):
        from confide.prediction.saved import holds_certified

        check_targets(out, force=force)
        asked = {
            "epsilon": epsilon,
            "total_epsilon": total_epsilon,
            "total_delta": total_delta,
            "delta": delta,
            "release": release,
            "slack": slack,
            "epochs": epochs,
            "analyst": analyst,
        }
        if holds_certified(model):
            body, values = _certified(
                model, rows, asked, ledger, dry_run, delimiter, not as_json and sys.stderr.isatty()
            )
        else:
            body, values = _trained(model, rows, asked, dry_run, delimiter)
        # What a value is called: an answer is private, a prediction is of a released model.
        name = "prediction" if body["status"] == "free" else "answer"
        if out is not None and values is not None:
            write_text(out, _as_csv(name, values))
    if as_json:
        emit(body if values is None else {**body, f"{name}s": values})
        return
    if values is not None and out is None:
        typer.echo(_as_csv(name, values), nl=False)
    # What is not an answer goes elsewhere than the answers, so that these can be piped.
    typer.echo(body["sentence"], err=values is not None and out is None)
    if body["status"] in ("answered", "preview"):
        warn_unrecorded(ledger, rehearsed=values is None)
    if out is not None and values is not None:
        typer.echo(f"Wrote {out}.")


def _certified(
    path: Path,
    rows: Path,
    asked: dict[str, Any],
    ledger: str | None,
    dry_run: bool,
    delimiter: str | None,
    shown: bool,
) -> tuple[dict[str, Any], list[Any] | None]:
    """Return what is told of a certified model, and its answers; None for a rehearsal."""
    from confide.ledger import rehearse, resolve
    from confide.prediction import CertifiedModel
    from confide.prediction.model import feature_schema

    terms = _terms(path, asked)
    book = resolve(ledger)
    held: Any = CertifiedModel.load(path)
    if held.schema is None:
        raise ParameterError(
            f"The model {path} was fitted on arrays and has no schema that reads a file.",
            "Answer in Python (confide.load), or certify a table.",
        )
    held.preview(1, ledger=book, **terms)  # refuses wrong terms before the rows are read
    queries = _table(rows, feature_schema(held.schema), delimiter)
    count = len(held.queries(queries))
    if count == 0:
        return {"status": "empty", "count": 0, "sentence": "No rows: nothing is charged."}, []
    guarantee = held.preview(count, ledger=book, **terms)
    body = {"count": count, "guarantee": guarantee.to_dict()}
    saving = _saving(held, count, terms, book, guarantee)
    if dry_run:
        rehearse(book, guarantee, table=held, analyst=asked["analyst"])
        sentence = f"Would be charged for {count} answers together: {guarantee}{saving}"
        return {"status": "preview", **body, "sentence": sentence}, None
    with waiting("Answering", shown=shown):
        told = held.answer(
            queries, ledger=book, analyst=asked["analyst"], label=f"predict {rows.name}", **terms
        )
    values = told.tolist()
    left = values.count(None)
    sentence = f"{count} answers together: {guarantee}{saving}"
    if left:
        sentence += f"\n{left} rows have no answer: unstable, or after the last epoch (more: --epochs)."
    return {"status": "answered", **body, "sentence": sentence}, values


def _terms(path: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `CertifiedModel.answer` that price it."""
    terms = {name: asked[name] for name in ("epsilon", "delta", "release", "slack", "epochs")}
    total = asked["total_epsilon"]
    if total is None and asked["total_delta"] is not None:
        raise ParameterError("--total-delta is given without --total-epsilon.", "Pass both, or --slack.")
    if total is None and terms["epsilon"] is None:
        raise ParameterError(
            f"The model {path} is certified: each answer is charged, and --epsilon is missing.",
            "Pass --epsilon, of one answer, or --total-epsilon, of all together.",
        )
    return terms if total is None else {**terms, "total": (total, asked["total_delta"] or "0")}


def _saving(held: Any, count: int, terms: dict[str, Any], book: Any, guarantee: Any) -> str:
    """Return a line on what a slack would save, where it is left out, would save much and can be charged."""
    from confide.privacy.exact import exact, show

    if "total" in terms or exact(terms["slack"]) != 0:
        return ""
    if book is not None and (book.budget.accountant != "basic" or book.budget.delta < exact(_SLACK)):
        return ""
    composed = held.preview(count, **{**terms, "slack": _SLACK})
    if composed.epsilon > _WORTH * guarantee.epsilon:
        return ""
    return (
        f"\nWith --slack {_SLACK}, so much more delta, such answers together have epsilon = "
        f"{show(composed.epsilon)} instead of {show(guarantee.epsilon)}."
    )


def _trained(
    path: Path, rows: Path, asked: dict[str, Any], dry_run: bool, delimiter: str | None
) -> tuple[dict[str, Any], list[Any] | None]:
    """Return what is told of a released model, and its predictions: post-processing, free of charge."""
    from confide.pipeline import load
    from confide.schema import Schema

    held = load(path)
    given = [name for name, value in _CHARGED.items() if asked[name] != value]
    if given:
        option = "--" + given[0].replace("_", "-")
        raise ParameterError(
            f"The model {path} was trained privately: its predictions cost nothing, and {option} has no "
            "meaning.",
            f"Leave {option} out.",
        )
    if held.features is None:
        raise ParameterError(
            f"The model {path} has no schema that reads a file.", "Predict in Python, or train on a table."
        )
    table = _table(rows, Schema.from_dict(held.features), delimiter)
    sentence = "Free of charge: a prediction of a released model is post-processing."
    body = {"status": "free", "count": table.n_rows, "sentence": sentence}
    return body, None if dry_run else held.predict(table).tolist()


def _table(rows: Path, schema: Schema, delimiter: str | None) -> Table:
    from confide.schema.rows import read_rows

    return read_rows(rows, schema, delimiter)


def _as_csv(name: str, values: list[Any]) -> str:
    """Return one column as CSV; an empty cell, in quotes, for a row without an answer."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name])
    writer.writerows([["" if value is None else value] for value in values])
    return text.getvalue()
