"""The page of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from confide.privacy.guarantee import glossed
from confide.report.html import Safe, join, name, table, tag
from confide.service.page.chart import chart
from confide.service.page.elements import meter, words
from confide.service.page.form import form, outcome_section
from confide.service.page.views import Account, Outcome, Overview, Standing

if TYPE_CHECKING:
    from confide.ledger.budget import Quantity
    from confide.schema.column import Column

_RHO = (
    "This ledger adds up rho (zCDP). Each epsilon is what the rho beside it amounts to by itself at the "
    "ledger's delta: epsilons do not add up, and what is left is more than limit less spent."
)
_SIDEWAYS = "On a narrow screen the table scrolls sideways."


def page(
    standing: Standing,
    overview: Overview,
    columns: Sequence[Column],
    *,
    token: str,
    request_id: str,
    outcome: Outcome | None = None,
) -> str:
    """Return the owner's page.

    Parameters
    ----------
    standing, overview
        What stays and what moves.
    columns : sequence of Column
        Fields of the form.
    token, request_id : str
        See `confide.service.page.form.form`.
    outcome : Outcome, optional
        Of the question that was just asked.
    """
    title = f"{standing.model}: private answers"
    said = "" if outcome is None else "No answer - " if outcome.problem else "Answer - "
    main = join(
        outcome_section(outcome, columns),
        _section("guarantee", "Guarantee", *_guarantee(standing)),
        tag("div", live(overview), id="live"),
        form(columns, standing, outcome, token, request_id),
    )
    return _document(
        f"{said}{title}",
        join(
            tag("a", "Skip to the form", href="#ask", class_="skip"),
            tag("header", tag("h1", title), _nav()),
            tag("main", main, id="main"),
            tag("p", "", id="news", role="status", aria_live="polite", class_="news"),
            tag("footer", tag("p", "For the owner alone. The page loads nothing from elsewhere.")),
        ),
    )


def refused(title: str, detail: str) -> str:
    """Return a page that says why there is no page."""
    return _document(title, tag("main", tag("h1", title), tag("p", detail), id="main"))


def _document(title: str, body: Safe) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href="page.css"),
        tag("script", "", src="page.js", defer=True),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, Safe(chr(10)), tag('body', body), lang='en')}\n"


def _nav() -> Safe:
    places = (
        ("guarantee", "Guarantee"),
        ("budget", "Budget"),
        ("time", "Over time"),
        ("ask", "Ask one question"),
    )
    links = [tag("li", tag("a", words_, href=f"#{anchor}")) for anchor, words_ in places]
    return tag("nav", tag("ul", *links), aria_label="Contents")


def _section(anchor: str, heading: str, *body: Safe | None) -> Safe:
    return tag("section", tag("h2", heading, id=anchor), *body, aria_labelledby=anchor)


def _guarantee(standing: Standing) -> list[Safe]:
    parts = [tag("p", standing.short, class_="claim")] if standing.short else []
    parts += [tag("p", standing.sentence), tag("p", standing.answer)]
    if standing.assumptions:
        items = [tag("li", glossed(item)) for item in standing.assumptions]
        parts.append(tag("div", tag("p", "It assumes:"), tag("ul", *items), class_="note"))
    return parts


def live(overview: Overview) -> Safe:
    """Return the moving part: tiles, budget by analyst, and the picture over time."""
    total, rho = overview.total, _of_rho(overview)
    tiles = (
        ("rows answered", f"{total.answered:,}"),
        ("requests refused", f"{total.refused:,}"),
        *(
            (("rho spent", words(total.spent.rho)), ("rho left", words(total.left.rho, rest=True)))
            if rho
            else ()
        ),
        ("epsilon spent", words(total.spent.epsilon)),
        ("epsilon left", words(total.left.epsilon, rest=True)),
    )
    listed = [tag("div", tag("dt", term), tag("dd", told)) for term, told in tiles]
    picture = chart(overview.history, float(total.limit.epsilon))
    note = tag("p", _RHO, class_="hint") if rho else None
    return join(
        tag("dl", *listed, class_="tiles"),
        _section("budget", "Budget", tag("p", _SIDEWAYS, class_="hint sideways"), note, _accounts(overview)),
        _section("time", "Over time", picture),
    )


def _of_rho(overview: Overview) -> bool:
    return overview.total.limit.rho is not None


def _accounts(overview: Overview) -> Safe:
    rho = _of_rho(overview)
    rows = [_line(tag("strong", "all together"), overview.total, rho)]
    rows += [_line(name(account.name), account, rho) for account in overview.accounts]
    head = (
        "analyst",
        "rho" if rho else "epsilon",
        *(("rho spent", "rho limit", "rho left") if rho else ()),
        *(("epsilon spent", "epsilon limit", "epsilon left") if rho else ("spent", "limit", "left")),
        *(("delta",) if rho else ("delta spent", "delta limit")),
        "rows",
        "refused",
        "key",
    )
    return table("Budget by analyst", head, rows, numbers=tuple(range(2, len(head) - 1)))


def _line(title: Safe, account: Account, rho: bool) -> tuple[object, ...]:
    return (
        title,
        meter(account),
        *((_three(account.spent.rho, account.limit.rho, account.left.rho)) if rho else ()),
        *_three(account.spent.epsilon, account.limit.epsilon, account.left.epsilon),
        *(() if rho else (words(account.spent.delta),)),
        words(account.limit.delta, rest=True),
        f"{account.answered:,}",
        f"{account.refused:,}",
        account.state or "-",
    )


def _three(spent: Quantity | None, limit: Quantity | None, left: Quantity | None) -> tuple[str, str, str]:
    return words(spent), words(limit, rest=True), words(left, rest=True)
