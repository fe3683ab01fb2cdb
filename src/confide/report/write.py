"""Writes the report: one HTML file that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confide.errors import ParameterError
from confide.report.measured import PublicTest
from confide.report.model import ModelFacts, model_facts, released_model
from confide.report.regression import LedgerFacts, facts
from confide.report.selected import SelectedFacts, released, selected_facts, training_result


def write_report(
    result: Any,
    path: str | os.PathLike[str],
    *,
    table: Any = None,
    ledger: Any = None,
    before: Mapping[str, Any] | None = None,
    test: PublicTest | None = None,
    title: str | None = None,
    made: str = "",
    figures: bool = True,
) -> Path:
    """Write one self-contained HTML file about a model, a selection or a sparse model.

    The file holds no script and refers to no other file or address; its pictures are inline SVG. It is
    meant for a phone, a desk and a printer, in light and dark.

    Parameters
    ----------
    result : TrainingResult, ModelResult, SelectionResult, SparseResult, or a fitted estimator that holds one
        What `confide.train` returned, whatever the engine and the label.
    path : path
        Written whole or not at all; an existing file is replaced.
    table : Table, ChunkedTable or Schema, optional
        Names the columns, their roles, bounds and who declared them. Only its schema is read.
    ledger : Ledger, str or mapping, optional
        The ledger, its handle ``URL#dataset``, or what `Ledger.show` returned; the state *after* the release.
    before : mapping, optional
        What `Ledger.show` returned before the release.
    test : PublicTest, optional
        Test rows whose labels somebody declares public. Without it no test error is shown. Of a
        regression by ``rounds`` or ``closed_form`` alone.
    title : str, optional
    made : str
        Text for the footer, such as a date. Empty by default, so that equal inputs give equal bytes.
    figures : bool
        False leaves the pictures out. Only regressions by ``rounds`` or ``closed_form`` have some.

    Returns
    -------
    Path

    Raises
    ------
    ParameterError
        If an argument is of another kind, the schema is not the one of the fit, or no file can be written
        at `path`.
    UnsupportedError
        For a result that has no report.

    Notes
    -----
    Free post-processing, in the sense of Dwork & Roth 2014, proposition 2.1: the file is a function of the
    released result and its guarantee, of the schema (public by declaration), of the ledger's entries (public
    by construction: amounts, labels, hashes), and, if `test` is given, of labels that it declares public by
    name. No other private cell is read here, so writing a report costs no privacy and may be repeated.
    A `PublicTest.reference` is the one exception: a function of secret labels, shown with its stated reason.
    """
    target = _target(path)
    chosen, model = released(result), released_model(result)
    if test is not None and (chosen is not None or model is not None):
        what = "a selection" if model is None else f"a model by engine {model.result.engine!r}"
        raise ParameterError(
            f"The 'test' parameter is given for {what}.",
            "Leave it out: it is for regressions by 'rounds' or 'closed_form'.",
        )
    if chosen is not None:
        drawn = selected_facts(chosen, table=table, ledger=ledger, before=before)
        text = _page_of(drawn, target, title, made)
    elif model is not None:
        told = model_facts(model, table=table, ledger=ledger, before=before)
        text = _page_of_model(told, target, title, made)
    else:
        content = facts(training_result(result), table=table, ledger=ledger, before=before, test=test)
        from confide.report.page import render

        title = f"Privacy report: {content.table or 'a private model'}" if title is None else title
        text = render(content, title, made=made, handle=_handle(content.ledger, target), figure=figures)
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, target)
    except OSError as error:
        raise ParameterError(
            f"The report {target} cannot be written: {error.strerror}.", "Name a file in a writable folder."
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return target


def _page_of(content: SelectedFacts, target: Path, title: str | None, made: str) -> str:
    from confide.report.selected_page import render_selected

    title = f"Privacy report: {content.table or 'a private selection'}" if title is None else title
    return render_selected(content, title, made=made, handle=_handle(content.ledger, target))


def _page_of_model(content: ModelFacts, target: Path, title: str | None, made: str) -> str:
    from confide.report.model_page import render_model

    title = f"Privacy report: {content.table or 'a private model'}" if title is None else title
    return render_model(content, title, made=made, handle=_handle(content.ledger, target))


def _handle(ledger: LedgerFacts | None, target: Path) -> str:
    return "" if ledger is None else near(ledger.handle, target)


def _target(path: str | os.PathLike[str]) -> Path:
    """Return where the report goes, its folder made; refuse what cannot be a file before any work is done."""
    try:
        target = Path(path)
    except TypeError:
        raise ParameterError(
            f"The 'path' parameter is a {type(path).__name__}.",
            "Pass a name such as report.html.",
        ) from None
    if target.is_dir():
        raise ParameterError(
            f"The report's path {target} is a folder.", f"Name a file: {target / 'report.html'}."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(
            f"The folder {target.parent} cannot be made: {error.strerror}.", "Name a file in another folder."
        ) from None
    return target


def near(handle: str, report: Path) -> str:
    """Return a ledger's handle as seen from the report's folder, where its file lies in or below that."""
    scheme = "sqlite:///"
    if not handle.startswith(scheme):
        return handle
    file, mark, dataset = handle[len(scheme) :].rpartition("#")
    folder = report.resolve().parent
    place = Path(file).resolve()
    if not place.is_relative_to(folder):
        return handle
    return f"{scheme}{place.relative_to(folder).as_posix()}{mark}{dataset}"
