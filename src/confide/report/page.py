"""The page: facts in, HTML out. Everything that came with the data is escaped by `confide.report.html`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from confide.report import figures, ledger_page
from confide.report.html import Safe, code, join, name, table, tag
from confide.report.noise import survivors
from confide.report.regression import Facts, Measured
from confide.report.style import css
from confide.report.words import listing, number, percent, signed

if TYPE_CHECKING:
    from confide.report.model import ModelFacts

#: Rows of a table on the page; the JSON form has all.
MOST_COLUMNS = 200
MOST_EFFECTS = 60


def render(facts: Facts, title: str, *, made: str = "", handle: str = "", figure: bool = True) -> str:
    """Return the whole page.

    Parameters
    ----------
    facts : Facts
    title : str
    made : str
        A date or version to print in the footer; empty prints none, so that equal facts make equal pages.
    handle : str
        How commands name the ledger.
    figure : bool
        False leaves the pictures out (and matplotlib unloaded).
    """
    sections = [
        part
        for part in (
            columns_section(facts),
            _price(facts, figure),
            _measured(facts, figure),
            _effects(facts, figure),
            _design(facts, figure),
            ledger_page.section(facts.ledger),
            limits_section(facts),
            ledger_page.checks(facts, handle),
        )
        if part is not None
    ]
    header = (*banner(facts.void, facts.marks), _claim(facts), _drowned(facts), _tiles(facts))
    return document(title, header, sections, made)


def document(
    title: str, header: Sequence[object], sections: Sequence[tuple[str, str, Safe]], made: str
) -> str:
    """Return a page of its parts; a section is an anchor, a heading and a body."""
    links = [tag("li", tag("a", heading, href=f"#{anchor}")) for anchor, heading, _ in sections]
    bodies = [
        tag("section", tag("h2", heading, id=anchor), body, aria_labelledby=anchor)
        for anchor, heading, body in sections
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Safe(css())),
    )
    footer = "Written by Confide. This page is one file: it loads nothing, runs nothing and sends nothing."
    body = tag(
        "body",
        tag("header", tag("h1", title), *header),
        Safe("\n"),
        tag("nav", tag("ul", *links), aria_label="Contents"),
        Safe("\n"),
        tag("main", *(join(part, Safe("\n")) for part in bodies)),
        tag("footer", tag("p", f"{footer} {made}".strip())),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, Safe(chr(10)), body, lang='en')}\n"


def banner(void: Sequence[str], marks: Sequence[str]) -> list[Safe]:
    """Return what stands above all else: that nothing is protected, or the marks of the guarantee."""
    if void:
        return [tag("div", tag("strong", "NOT PRIVATE"), " ".join(marks), class_="banner", role="note")]
    return [tag("p", mark, class_="note") for mark in marks]


def _claim(facts: Facts) -> Safe:
    guarantee = facts.guarantee
    conditions = "none" if not guarantee["assumptions"] else listing(guarantee["assumptions"])
    line = join(
        tag("strong", "In technical terms: "),
        facts.sentence,
        " Neighbouring relation ",
        code(guarantee["adjacency"]),
        f", unit one {guarantee['unit']}, mechanism ",
        code(guarantee["event"]["mechanism"]),
        f" with noise multiplier {number(facts.noise_multiplier, 6)}; assumptions: {conditions}.",
    )
    odds = tag("p", facts.odds) if facts.odds else None
    return join(tag("p", facts.headline, class_="claim"), odds, tag("p", line, class_="line"))


def _drowned(facts: Facts) -> Safe | None:
    if not facts.drowned:
        return None
    first, mark, rest = facts.drowned.partition(". ")
    return tag("p", tag("strong", f"{first}{mark}"), rest, class_="note", role="note")


def _tiles(facts: Facts) -> Safe:
    unit = f" ({facts.label_unit})" if facts.label_unit else ""
    tiles: list[tuple[str, str, str]] = []
    if not facts.void:
        delta = facts.guarantee["delta"]
        tiles.append(("epsilon, delta", facts.epsilon, f"and delta {ratio(delta)}"))
    chosen = next((p for p in facts.prices if p.chosen), None)
    if chosen is not None:
        spread = facts.spread
        small = (
            f"before shrinkage; labels lie {spread.words(unit)} from the fit"
            if spread.known
            else f"before shrinkage{unit and f', in {facts.label_unit}'}; the spread about the fit is not "
            "determined, as noise dominates it"
        )
        tiles.append(("typical error from privacy noise", number(chosen.noise), small))
    measured = facts.measured
    if measured is not None:
        if measured.kept is not None:
            small = "over predicting the private mean; measured on public test rows"
            tiles.append(("gain kept of a fit without privacy", str(measured.kept), small))
        else:
            small = f"root-mean-square, on {measured.rows:,} public test rows"
            tiles.append(("test error", number(math.sqrt(measured.error)), small))
    if facts.ledger is not None:
        total = facts.ledger.accounts[0]
        first = facts.ledger.parts[0]
        small = f"of {total.limit.get(first, '?')}; {total.spent[first]} spent"
        tiles.append((f"{first} left in the ledger", total.remaining[first], small))
    limit = f"{facts.row_limit}; " if facts.row_limit else ""
    tiles.append(("rows (public)", f"{facts.rows:,}", f"{limit}{len(facts.spectrum)} public directions"))
    items = (tag("div", tag("dt", a), tag("dd", b, tag("small", c))) for a, b, c in tiles)
    return tag("dl", *items, class_="tiles")


def ratio(text: str) -> str:
    """Return an exact amount such as 1/1000000 with separators."""
    top, _, bottom = text.partition("/")
    return f"{int(top):,}/{int(bottom):,}" if bottom and len(bottom) < 16 else text


def columns_section(facts: Facts | ModelFacts) -> tuple[str, str, Safe]:
    """Return anchor, heading and body of the section on what was declared, and by whom."""
    heading = "What is public, and who says so"
    if not facts.columns:
        text = (
            "This model was fitted on arrays, without a schema: whoever called Confide said which columns "
            "are public, and declared the bounds or classes of the label."
        )
        return "public", heading, tag("p", text)
    shown = facts.columns[:MOST_COLUMNS]
    declarers = list(dict.fromkeys(column.declared_by for column in shown))
    public = [column.name for column in facts.columns if column.role == "public"]
    intro = join(
        tag(
            "p",
            "Public columns are used without noise. That they are public is a claim of ",
            tag("strong", listing(declarers)),
            ", not something that Confide can check. Public: ",
            name(listing(public, 20) or "none"),
            ".",
        ),
        tag("p", facts.table_note, class_="note") if facts.table_note else None,
    )
    rows: list[tuple[object, ...]] = []
    for column in shown:
        domain = f"{column.domain} {column.unit}".strip()
        who = [] if len(declarers) == 1 else [column.declared_by]
        rows.append((name(column.name), _role(column.role), domain, *who))
    head = (
        "column",
        "role",
        "declared bounds or categories",
        *([] if len(declarers) == 1 else ["declared by"]),
    )
    whose = f" Declared by {declarers[0]}." if len(declarers) == 1 else ""
    more = (
        f" The first {len(shown)} of {len(facts.columns)} columns." if len(shown) < len(facts.columns) else ""
    )
    caption = (
        f"Roles, bounds and categories as declared in the schema; none is read from the data.{whose}{more}"
    )
    notes = [column for column in shown if column.note]
    reasons = tag(
        "dl",
        *(tag("div", tag("dt", name(column.name)), tag("dd", column.note)) for column in notes),
        class_="plain",
    )
    hashes = tag(
        "p",
        "Hash of who declared what public, as it stands in the guarantee: ",
        code(facts.declaration or "none"),
        ". Hash of the whole schema: ",
        code(facts.schema_digest or "none"),
        ".",
        class_="line",
    )
    why = join(tag("h3", "Reasons given"), reasons) if notes else None
    return "public", heading, join(intro, table(caption, head, rows), why, hashes)


def _role(role: str) -> object:
    words = {"label": "label, secret", "private": "private, secret", "id": "id: whose row it is"}
    return tag("strong", words[role]) if role in ("label", "private") else words.get(role, role)


def _figure(svg: Safe, caption: object) -> Safe:
    return tag("figure", svg, tag("figcaption", caption))


def _price(facts: Facts, figure: bool) -> tuple[str, str, Safe] | None:
    if not facts.prices:
        return None
    unit = f", in {facts.label_unit}" if facts.label_unit else ""
    intro = tag(
        "p",
        "Less privacy buys less noise. The error below is what privacy noise alone adds to a typical "
        f"prediction (root-mean-square over the rows{unit}), before shrinkage. It follows from the public "
        "columns and the declared bounds, so it was known before the secret column was read, and asking "
        "for it costs nothing.",
    )
    spread = facts.spread
    rows: list[tuple[object, ...]] = []
    for price in facts.prices:
        mark = " (this model)" if price.chosen else ""
        ratio = price.noise / spread.value if spread.known else math.inf
        share = (percent(ratio, 2 if ratio < 0.1 else 0),) if spread.known else ()
        rows.append((f"{price.epsilon}{mark}", number(price.noise), *share))
    numbers = table(
        "Predicted error from privacy noise",
        ("epsilon", "error", *(("of the spread about the fit",) if spread.known else ())),
        rows,
        numbers=(1, 2) if spread.known else (1,),
    )
    caption = "Solid: error from privacy noise. "
    if spread.known:
        caption += (
            f"Dashed: how far single labels lie from the fit anyway, {spread.words()} (estimated in the same "
            "release). Where the solid line is far below the dashed one, privacy is cheap. "
        )
    else:
        caption += (
            "How far single labels lie from the fit anyway is not determined: in this release noise "
            "dominates it. "
        )
    caption += "Computed for the design chosen at this model's epsilon."
    if facts.void:
        caption += " This result itself is not private: the curve says what secret noise would cost."
    picture = _figure(figures.price_figure(facts), caption) if figure else None
    return "price", "What epsilon buys", join(intro, tag("div", picture, numbers, class_="pair"))


def _measured(facts: Facts, figure: bool) -> tuple[str, str, Safe] | None:
    measured = facts.measured
    if measured is None:
        return None
    intro = tag(
        "p",
        f"The labels of {measured.rows:,} held-out test rows were declared public by ",
        tag("strong", name(measured.declared_by)),
        f". {measured.reason} ".rstrip() + " They were not used in the fit. ",
        "Each point is one run, noise included: what a user gets.",
    )
    reference = None
    if measured.reference is not None:
        words = "Not private, for comparison only: the fit without noise needs the true labels. "
        words += measured.reference_reason
        reference = tag("p", words, class_="note")
    parts = [intro, reference]
    pieces: list[object] = []
    if figure and measured.points:
        caption = (
            "Root-mean-square test error of one run at each epsilon (dots). Line: what is left without "
            "noise, plus the noise predicted from public quantities."
        )
        pieces.append(_figure(figures.measured_figure(measured), caption))
    pieces.append(_error_table(facts, measured))
    parts.append(tag("div", *pieces, class_="pair"))
    return "test", "Error on public test labels", join(*parts)


def _error_table(facts: Facts, measured: Measured) -> Safe:
    rows: list[tuple[object, ...]] = []
    if measured.baseline is not None:
        rows.append(("private mean", number(measured.baseline, 4), "", ""))
    for p in measured.points:
        mark = " (this model)" if p.chosen else ""
        rows.append(
            (
                f"epsilon\u00a0{p.epsilon}{mark}",
                number(p.error, 4),
                number(p.noise**2, 2),
                "" if p.kept is None else p.kept.cell,
            )
        )
    if measured.reference is not None:
        rows.append(("without privacy", number(measured.reference, 4), "0", "100"))
    caption = (
        "Mean squared test error (standard error over rows of this model's: "
        f"{number(measured.deviation, 2)}), the part of it that noise is predicted to add, and the share "
        "kept of the non-private gain over the mean"
    )
    return table(caption, ("model", "error", "noise adds", "gain kept, %"), rows, numbers=(1, 2, 3))


def _effects(facts: Facts, figure: bool) -> tuple[str, str, Safe] | None:
    if not facts.effects and facts.intercept is None:
        return None
    intro = tag(
        "p",
        "Columns are encoded before the fit: numbers are centred at the middle of their bounds and "
        "divided by half the width, categories are 0 or 1. Coefficients are sorted by size, so large ones "
        "matter most over the whole declared range; an effect is what one unit of the column moves the "
        "prediction by, for a category against the average of its column's levels. Standard errors are of "
        "privacy noise alone, and of privacy and sampling noise together.",
    )
    meanings = any(effect.meaning for effect in facts.effects)
    shown = facts.effects[:MOST_EFFECTS]
    listed = ([facts.intercept] if facts.intercept else []) + list(shown)
    rows: list[tuple[object, ...]] = []
    for e in listed:
        words = (e.meaning,) if meanings else ()
        rows.append((name(e.words), signed(e.value), *words, number(e.noise, 2), number(e.standard, 2)))
    caption = "Coefficients, effects and standard errors" if meanings else "Coefficients and standard errors"
    if len(shown) < len(facts.effects):
        caption += f"; the {len(shown)} largest of {len(facts.effects)}"
    meaning = ("effect",) if meanings else ()
    head = ("column", "coefficient", *meaning, "± privacy", "± both")
    pieces: list[object] = []
    if figure and facts.effects:
        words = (
            "Dot: coefficient in the model. Thick bar: two standard errors of privacy noise, known "
            "exactly. Thin bar: with sampling noise, assuming residuals of equal variance. Bars are "
            "centred at the unshrunk estimates."
        )
        if len(facts.effects) > figures.MOST_EFFECTS:
            words += f" The {figures.MOST_EFFECTS} largest of {len(facts.effects)}."
        pieces.append(_figure(figures.effects_figure(facts.effects), words))
    pieces.append(table(caption, head, rows, numbers=(1, *range(2 + len(meaning), len(head)))))
    absent = None
    if facts.absent:
        absent = tag(
            "p", "The public rows say nothing about: ", name(listing(facts.absent)), ".", class_="line"
        )
    return "model", "The model", join(intro, *pieces, absent)


def _design(facts: Facts, figure: bool) -> tuple[str, str, Safe] | None:
    if not facts.spectrum:
        return None
    largest, smallest = facts.spectrum[0], facts.spectrum[-1]
    ratio = f"{number(largest / smallest)} to 1" if smallest > 0 else "without limit"
    intro = tag(
        "p",
        "How far the public columns spread in each direction decides how well noise averages out. "
        f"Directions with little spread are learnt least. Largest to smallest: {ratio}. The noise has left "
        f"{survivors(facts.effective)} of {len(facts.spectrum)} directions to the model.",
    )
    caption = (
        "Standard deviation of the encoded public columns along their principal directions (singular "
        "values / √n)."
    )
    if figure:
        return "design", "The public design", join(intro, _figure(figures.spectrum_figure(facts), caption))
    return "design", "The public design", intro


def limits_section(facts: Facts | ModelFacts) -> tuple[str, str, Safe]:
    """Return anchor, heading and body of the section on assumptions and what they leave out."""
    items = (tag("div", tag("dt", what), tag("dd", why)) for what, why in facts.not_covered)
    if facts.assumptions:
        listed = tag("ul", *(tag("li", text) for text in facts.assumptions))
        assumptions = join(tag("p", "The guarantee rests on these assumptions:"), listed)
    elif facts.void:
        assumptions = tag("p", "There is no guarantee: see the top of the page.")
    else:
        words = (
            "The guarantee rests on no assumption about the data, besides the declarations above: it "
            "holds for every table, whatever anyone knows or does later."
        )
        assumptions = tag("p", words)
    return (
        "limits",
        "Assumptions, and what is not covered",
        join(assumptions, tag("dl", *items, class_="plain")),
    )
