"""The page of an audit: bars for claim and measured bound of each mechanism, in one file of its own."""

from __future__ import annotations

import math

from confide.audit.finding import Finding, Verdict
from confide.audit.registry import Claim
from confide.audit.run import LEVEL, Audit
from confide.privacy import show
from confide.report.html import Safe, escape, join, table, tag
from confide.report.style import css

_RULES = """
.bars{display:grid;gap:.15rem;min-width:12rem}
.bars svg{display:block;width:100%;height:1.5rem}
.claimed{fill:var(--grid)}.measured{fill:var(--accent)}.over{fill:var(--alarm)}
tbody th{overflow-wrap:break-word}
.key{display:flex;gap:1.2rem;flex-wrap:wrap;list-style:none;padding:0}
.key svg{width:1rem;height:.8rem;margin-right:.4rem}
@media (forced-colors:active){.claimed{fill:GrayText}.measured{fill:Highlight}.over{fill:Mark}}
"""


def page(audit: Audit, *, made: str = "") -> str:
    """Return the HTML page of an audit.

    Parameters
    ----------
    audit : Audit
    made : str
        When and where, shown at its foot.
    """
    broken = sorted({found.claim for found in audit.broken})
    title = f"Audit of {len(audit.summary())} claims, {'full' if audit.full else 'quick'}"
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        tag("title", title),
        tag("style", Safe(css() + _RULES)),
    )
    body = join(
        tag("header", tag("h1", "Confide"), tag("p", title, class_="claim"), _outcome(broken)),
        tag("main", _explained(), _bars(audit), _findings(audit.findings)),
        tag("footer", tag("p", f"{made} {audit.seconds:.0f} s.")),
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _outcome(broken: list[str]) -> Safe:
    if broken:
        return tag(
            "div", tag("strong", "Broken"), f"These claims do not hold: {', '.join(broken)}.", class_="banner"
        )
    return tag("p", "No attack broke a claim.")


def _explained() -> Safe:
    words = (
        "Measured is the largest lower bound on epsilon that any attack proved, from exact laws or with "
        "confidence. "
        f"The probability that any claim that holds is called broken is at most {LEVEL:g} over the whole "
        "audit (Holm). "
        "A bound far below its claim may mean a loose claim, or a weak attack."
    )
    keys = (
        ("claimed", "claimed epsilon"),
        ("measured", "measured lower bound"),
        ("over", "bound above the claim"),
    )
    items = (
        tag("li", tag("svg", tag("rect", width=16, height=13, class_=name), aria_hidden="true"), text)
        for name, text in keys
    )
    return join(tag("p", words), tag("ul", *items, class_="key"))


def _bars(audit: Audit) -> Safe:
    rows: list[tuple[object, ...]] = [
        (
            _name(claim.name),
            claim.adjacency.value,
            show(claim.epsilon),
            show(claim.delta),
            _number(worst.measured),
            _bar(claim, worst, verdict),
            worst.layer,
            verdict.value,
        )
        for claim, worst, verdict in audit.summary()
    ]
    heads = ("claim", "neighbours", "epsilon", "delta", "measured", "bars", "by", "verdict")
    return join(
        tag("h2", "Claims"),
        table("Each claim and the largest bound measured", heads, rows, numbers=(2, 3, 4)),
    )


def _bar(claim: Claim, worst: Finding, verdict: Verdict) -> Safe:
    share = 0.0 if math.isnan(worst.measured) else min(1.3, worst.measured / float(claim.epsilon))
    told = f"{claim.name}: measured {_number(worst.measured)} of {show(claim.epsilon)} claimed"
    own = "over" if verdict is Verdict.BROKEN else "measured"
    return tag(
        "div",
        tag(
            "svg",
            tag("rect", width="76.9%", height="45%", class_="claimed"),
            tag("rect", y="50%", width=f"{76.9 * share:.2f}%", height="45%", class_=own),
            role="img",
            aria_label=told,
        ),
        class_="bars",
    )


def _findings(findings: tuple[Finding, ...]) -> Safe:
    rows: list[tuple[object, ...]] = [
        (
            _name(found.claim),
            found.layer,
            found.pair,
            f"{found.tried:,}",
            _number(found.measured),
            _number(found.p_value),
            found.verdict.value,
            escape(found.note),
        )
        for found in findings
    ]
    heads = ("claim", "layer", "worst neighbours", "tried", "measured", "p-value", "verdict", "note")
    return join(tag("h2", "Attacks"), table("Every attack", heads, rows, numbers=(3, 4, 5)))


def _name(name: str) -> Safe:
    """Return a claim's name, which may break at its dots and underscores."""
    return Safe(escape(name).replace(".", ".<wbr>").replace("_", "_<wbr>"))


def _number(value: float) -> str:
    return "" if math.isnan(value) else "infinite" if math.isinf(value) else f"{value:.4g}"
