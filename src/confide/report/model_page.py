"""The page about a model of classes, of private columns, or of noisy gradient steps."""

from __future__ import annotations

import math

from confide.report import ledger_page
from confide.report.html import Safe, code, join, name, table, tag
from confide.report.model import ModelFacts
from confide.report.page import banner, columns_section, document, limits_section, ratio
from confide.report.words import listing, number, signed

#: Terms and outputs of a table on the page; the model's file has all.
MOST_TERMS = 60
MOST_OUTPUTS = 8


def render_model(facts: ModelFacts, title: str, *, made: str = "", handle: str = "") -> str:
    """Return the whole page; parameters as in `confide.report.page.render`."""
    sections = [
        columns_section(facts),
        ("model", "The model", _model(facts)),
        ("released", "What was released", _released(facts)),
        ledger_page.section(facts.ledger),
        limits_section(facts),
        ("check", "Check it yourself", _checks(facts, handle)),
    ]
    header = (*banner(facts.void, facts.marks), _claim(facts), _tiles(facts))
    return document(title, header, sections, made)


def _claim(facts: ModelFacts) -> Safe:
    guarantee = facts.guarantee
    line = join(
        tag("strong", "In technical terms: "),
        facts.sentence,
        " Neighbouring relation ",
        code(guarantee["adjacency"]),
        f", unit one {guarantee['unit']}, engine ",
        code(facts.engine),
        f"; assumptions: {listing(guarantee['assumptions']) or 'none'}.",
    )
    odds = tag("p", facts.odds) if facts.odds else None
    return join(tag("p", facts.headline, class_="claim"), odds, tag("p", line, class_="line"))


def _tiles(facts: ModelFacts) -> Safe:
    tiles: list[tuple[str, str, str]] = []
    if not facts.void:
        tiles.append(("epsilon, delta", facts.epsilon, f"and delta {ratio(facts.guarantee['delta'])}"))
    if facts.classes:
        tiles.append(("classes (declared)", str(len(facts.classes)), listing(facts.classes, 4)))
    if facts.rows is not None:
        tiles.append(("rows (public)", f"{facts.rows:,}", f"engine {facts.engine}"))
    if facts.ledger is not None:
        total, first = facts.ledger.accounts[0], facts.ledger.parts[0]
        small = f"of {total.limit.get(first, '?')}; {total.spent[first]} spent"
        tiles.append((f"{first} left in the ledger", total.remaining[first], small))
    items = (tag("div", tag("dt", a), tag("dd", b, tag("small", c))) for a, b, c in tiles)
    return tag("dl", *items, class_="tiles")


def _model(facts: ModelFacts) -> Safe:
    parts: list[object] = [tag("p", facts.description, " ", facts.predicts)]
    if facts.terms or facts.intercept:
        parts.append(_coefficients(facts))
    else:
        parts.append(
            tag(
                "p",
                "Its parameters have no meaning one by one, and stand in the file of the result. What it "
                "does is seen by predicting: predictions from a released model are free.",
            )
        )
    return join(*parts)


def _coefficients(facts: ModelFacts) -> Safe:
    intro = "Coefficients are sorted by size. "
    if facts.columns:
        intro += (
            "Columns are encoded before the fit: numbers are centred at the middle of their bounds and "
            "divided by half the width, categories are 0 or 1, so large ones matter most over the whole "
            "declared range. "
        )
    if len(facts.classes) == 2:
        intro += (
            f"One unit of {'an encoded' if facts.columns else 'a'} column multiplies the odds of "
            f"{facts.classes[1]!r} by the factor beside it. "
        )
    intro += "Standard errors are not known here: small coefficients may be noise."
    odds = len(facts.classes) == 2
    outputs = facts.outputs[:MOST_OUTPUTS]
    shown = facts.terms[:MOST_TERMS]
    listed = [("(intercept)", facts.intercept), *((term.words, term.values) for term in shown)]
    rows: list[tuple[object, ...]] = []
    for title, values in listed:
        cells = [signed(value) for value in values[: len(outputs)]]
        rows.append((name(title), *cells, *((_factor(values[0]),) if odds else ())))
    heads = ("coefficient",) if len(outputs) == 1 else tuple(name(output) for output in outputs)
    caption = "Coefficients" if len(outputs) == 1 else "Coefficients of the logit of each class"
    if len(shown) < len(facts.terms):
        caption += f"; the {len(shown)} largest of {len(facts.terms)}"
    if len(outputs) < len(facts.outputs):
        caption += f"; the first {len(outputs)} of {len(facts.outputs)} classes"
    head = ("column", *heads, *(("odds times",) if odds else ()))
    return join(tag("p", intro), table(caption, head, rows, numbers=tuple(range(1, len(head)))))


def _factor(value: float) -> str:
    return number(math.exp(value)) if abs(value) < 30 else "beyond e^30" if value > 0 else "below e^\u221230"


def _released(facts: ModelFacts) -> Safe:
    intro = tag(
        "p",
        facts.released,
        " The model is a function of it and of what is public, and so is everything on this page: no score "
        "is shown, since a score would be a function of secret labels.",
    )
    if not facts.details:
        return intro
    return join(
        intro, table("Facts of the release, public or released", ("what", "value"), list(facts.details))
    )


def _checks(facts: ModelFacts, handle: str) -> Safe:
    model = join("released model (canonical JSON of ", code("result.model"), ")")
    return join(
        *ledger_page.ledger_check(facts.ledger, handle),
        *ledger_page.noise_check(facts.guarantee, facts.noise_multiplier, void=bool(facts.void)),
        *ledger_page.identity(facts.guarantee, facts.model_digest, model),
    )
