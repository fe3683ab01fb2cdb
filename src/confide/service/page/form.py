"""The form for one question: a field for each declared column, with what it takes said beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from confide.report.html import Safe, join, name, tag
from confide.service.page.elements import void
from confide.service.page.views import Outcome, Standing

if TYPE_CHECKING:
    from confide.schema.column import Column

#: Of the names of the form's fields that hold cells; the others are the form's own.
CELL = "row."
CSRF, REQUEST = "csrf", "request_id"


def form(
    columns: Sequence[Column], standing: Standing, outcome: Outcome | None, token: str, request_id: str
) -> Safe:
    """Return the section with the form.

    Parameters
    ----------
    columns : sequence of Column
        Of the model, in their order.
    standing : Standing
    outcome : Outcome, optional
        Of the question before.
    token : str
        Against forms of other sites.
    request_id : str
        New for each page: sending the form twice is one question, charged once.
    """
    cells = outcome.cells if outcome else {}
    wrong = {error.field: error.detail for error in outcome.errors} if outcome else {}
    fields = [
        _field(f"field-{place}", column, cells.get(column.name), wrong.get(column.name))
        for place, column in enumerate(columns)
    ]
    body = tag(
        "form",
        void("input", type="hidden", name=CSRF, value=token),
        void("input", type="hidden", name=REQUEST, value=request_id),
        tag("div", *fields, class_="fields"),
        tag("p", standing.price, id="price"),
        tag("button", "Ask and charge", type="submit", aria_describedby="price"),
        method="post",
        action="./#outcome",
        autocomplete="off",
        novalidate=True,
    )
    return tag("section", tag("h2", "Ask one question", id="ask"), body, aria_labelledby="ask")


def _field(anchor: str, column: Column, cell: str | None, wrong: str | None) -> Safe:
    unit = f" ({column.unit})" if column.unit else ""
    said = _hint(column)
    hint = tag("span", said, id=f"{anchor}-hint", class_="hint") if said else None
    error = tag("span", f"Error: {wrong}", id=f"{anchor}-error", class_="error") if wrong else None
    described = " ".join([f"{anchor}-hint"] * bool(said) + [f"{anchor}-error"] * bool(wrong)) or None
    needed = column.missing == "reject"
    common = {
        "id": anchor,
        "name": f"{CELL}{column.name}",
        "aria_describedby": described,
        "aria_invalid": "true" if wrong else None,
        "required": needed,
    }
    if column.numeric:
        control = void("input", type="text", inputmode="decimal", value=cell, **common)
    else:
        options = [tag("option", level, value=level, selected=level == cell) for level in column.levels]
        empty = tag("option", "not known" if not needed else "choose one", value="", selected=not cell)
        control = tag("select", empty, *options, **common)
    label = tag("label", name(column.name), unit, for_=anchor)
    return tag("div", label, control, hint, error, class_="field wrong" if wrong else "field")


def _hint(column: Column) -> str:
    needed = column.missing == "reject"
    if not column.numeric:
        return "Needed." if needed else ""
    empty = "needed" if needed else "empty: not known"
    return f"{column.lower:g} to {column.upper:g}; beyond, it is clipped; {empty}."


def outcome_section(outcome: Outcome | None, columns: Sequence[Column]) -> Safe | None:
    """Return what became of the question before: it takes the focus, so that it is heard first."""
    if outcome is None:
        return None
    if outcome.problem:
        places = {column.name: place for place, column in enumerate(columns)}
        items = [tag("li", _linked(error.field, places), ": ", error.detail) for error in outcome.errors]
        inner = join(
            tag("h2", "No answer", id="outcome-title"),
            tag("p", outcome.problem),
            tag("p", outcome.remedy) if outcome.remedy else None,
            tag("ul", *items) if items else None,
        )
    else:
        notes = [tag("li", note) for note in outcome.notes]
        told = (
            tag("p", "No class: the question is unstable, and said so privately.", class_="answer")
            if outcome.unstable
            else tag("p", name(outcome.answer), class_="answer")
        )
        inner = join(
            tag("h2", "Answer", id="outcome-title"),
            told,
            tag("p", f"Cost: {outcome.cost}. Left in this account: {outcome.left}."),
            tag("ul", *notes) if notes else None,
        )
    return tag(
        "section",
        inner,
        id="outcome",
        class_="outcome problem" if outcome.problem else "outcome",
        aria_labelledby="outcome-title",
        # The form's target is here: the browser moves the focus to what can take it.
        tabindex="-1",
    )


def _linked(field: str, places: Mapping[str, int]) -> Safe:
    if field in places:
        return tag("a", name(field), href=f"#field-{places[field]}")
    return name(field)
