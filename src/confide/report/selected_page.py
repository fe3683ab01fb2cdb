"""The page about a selection, and about a sparse model."""

from __future__ import annotations

from confide.report import ledger_page
from confide.report.html import Safe, code, join, name, table, tag
from confide.report.page import banner, document, ratio
from confide.report.selected import Chosen, SelectedFacts
from confide.report.words import listing, number, signed


def render_selected(facts: SelectedFacts, title: str, *, made: str = "", handle: str = "") -> str:
    """Return the whole page; parameters as in `confide.report.page.render`."""
    sections = [
        ("columns", "The columns", _columns(facts)),
        ("how", "How they were drawn", _mechanism(facts)),
        ledger_page.section(facts.ledger),
        ("limits", "Assumptions, and what is not covered", _limits(facts)),
        ("check", "Check it yourself", _checks(facts, handle)),
    ]
    header = (*banner(facts.void, facts.marks), _claim(facts), _tiles(facts))
    return document(title, header, sections, made)


def _claim(facts: SelectedFacts) -> Safe:
    guarantee = facts.guarantee
    line = join(
        tag("strong", "In technical terms: "),
        facts.sentence,
        " Neighbouring relation ",
        code(guarantee["adjacency"]),
        f", unit one {guarantee['unit']}; assumptions: {listing(guarantee['assumptions']) or 'none'}.",
    )
    notes = (
        tag("p", tag("strong", f"Assuming: {condition}. "), meaning, class_="note", role="note")
        for condition, meaning in facts.conditions
    )
    odds = tag("p", facts.odds) if facts.odds else None
    return join(tag("p", facts.headline, class_="claim"), odds, *notes, tag("p", line, class_="line"))


def _tiles(facts: SelectedFacts) -> Safe:
    tiles: list[tuple[str, str, str]] = []
    if not facts.void:
        tiles.append(("epsilon, delta", facts.epsilon, f"and delta {ratio(facts.guarantee['delta'])}"))
    of = "of columns named beforehand" if facts.candidates is None else f"of {facts.candidates} encoded ones"
    tiles.append(("columns selected" if facts.candidates else "columns", str(len(facts.chosen)), of))
    if facts.ledger is not None:
        total, first = facts.ledger.accounts[0], facts.ledger.parts[0]
        small = f"of {total.limit.get(first, '?')}; {total.spent[first]} spent"
        tiles.append((f"{first} left in the ledger", total.remaining[first], small))
    items = (tag("div", tag("dt", a), tag("dd", b, tag("small", c))) for a, b, c in tiles)
    return tag("dl", *items, class_="tiles")


def _columns(facts: SelectedFacts) -> Safe:
    fitted = facts.intercept is not None
    known = any(chosen.noise is not None for chosen in facts.chosen)
    owned = any(chosen.column is not None for chosen in facts.chosen)
    meant = any(chosen.meaning for chosen in facts.chosen)
    if fitted:
        intro = "These columns and their coefficients were released. "
    else:
        intro = (
            "These columns were drawn at random: supports that explain the label well are likely, and one "
            f"{facts.guarantee['unit']} changes how likely by the factor above at most. How sure the draw "
            "was is not said, since that is a fact about secret rows. "
        )
    if owned:
        intro += (
            "Columns are the encoded ones: numbers are centred at the middle of their bounds and divided by "
            "half the width, each level of a category is a column of its own."
        )
    head = [
        "column",
        *(("coefficient",) if fitted else ()),
        *(("± privacy",) if known else ()),
        *(("effect",) if meant else ()),
        *(("of column", "role", "declared bounds or categories") if owned else ()),
    ]
    rows: list[tuple[object, ...]] = []
    if fitted:
        first = Chosen("(intercept)", None, facts.intercept, facts.intercept_noise, "")
        rows.append(_row(first, fitted, known, meant, owned))
    rows += [_row(chosen, fitted, known, meant, owned) for chosen in facts.chosen]
    caption = "Selected columns and their coefficients" if fitted else "Selected columns"
    numbers = tuple(range(1, 1 + int(fitted) + int(known)))
    notes = [tag("p", text) for text in (facts.predicts, facts.errors) if text]
    who = None
    if facts.declared_by:
        who = tag("p", f"Roles, bounds and categories were declared by {facts.declared_by}.", class_="line")
    return join(tag("p", intro.strip()), table(caption, tuple(head), rows, numbers=numbers), *notes, who)


def _row(chosen: Chosen, fitted: bool, known: bool, meant: bool, owned: bool) -> tuple[object, ...]:
    column = chosen.column
    value = "" if chosen.coefficient is None else signed(chosen.coefficient)
    cells: list[object] = [name(chosen.name)]
    cells += [value] if fitted else []
    cells += ["" if chosen.noise is None else number(chosen.noise, 2)] if known else []
    cells += [chosen.meaning] if meant else []
    if owned:
        cells += ["", "", ""] if column is None else [name(column.name), column.role, column.domain]
    return tuple(cells)


def _mechanism(facts: SelectedFacts) -> Safe:
    intro = tag(
        "p",
        "All of this was fixed before any secret was read. Running time and how well candidates fitted are "
        "functions of secret rows, and stand nowhere here.",
    )
    public = table("Public parameters", ("what", "value"), [(a, b) for a, b in facts.public])
    parts = None
    if facts.parts:
        parts = table("What was charged", ("part", "epsilon", "delta"), list(facts.parts), numbers=(1, 2))
    return join(intro, public, parts)


def _limits(facts: SelectedFacts) -> Safe:
    if facts.conditions:
        listed = (tag("li", tag("strong", f"{a}. "), b) for a, b in facts.conditions)
        words = join(tag("p", "The guarantee rests on these assumptions:"), tag("ul", *listed))
    elif facts.void:
        words = tag("p", "There is no guarantee: see the top of the page.")
    else:
        words = tag("p", "The guarantee rests on no assumption about the data: it holds for every table.")
    items = (tag("div", tag("dt", what), tag("dd", why)) for what, why in facts.not_covered)
    return join(words, tag("dl", *items, class_="plain"))


def _checks(facts: SelectedFacts, handle: str) -> Safe:
    return join(
        *ledger_page.ledger_check(facts.ledger, handle),
        *ledger_page.identity(facts.guarantee, facts.digest, "released support or model (canonical JSON)"),
        tag("p", "Hash of the schema: ", code(facts.schema_digest or "none"), ".", class_="line"),
    )
