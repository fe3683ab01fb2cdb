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
header,main,footer{max-width:78rem}
.bars{display:grid;gap:.15rem;min-width:9rem;padding-right:.5rem}
.bars svg{display:block;width:100%;height:1.5rem;overflow:visible}
.claimed{fill:none;stroke:var(--muted);stroke-width:1.5}.measured{fill:var(--accent)}.over{fill:var(--alarm)}
tbody th{overflow-wrap:break-word}
.key{display:flex;gap:1.2rem;flex-wrap:wrap;list-style:none;padding:0}
.key svg{width:1rem;height:.8rem;margin-right:.4rem}
.broken{font-weight:600;color:var(--alarm)}

details{margin:.9rem 0}
summary{cursor:pointer;padding:.4rem 0}
summary:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
@media (forced-colors:active){.claimed{stroke:GrayText}.measured{fill:Highlight}.over{fill:Mark}}
"""


#: Layers with a table of their own.
_APART = ("poisoning", "run time")


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
        tag("main", _explained(), _bars(audit), _poisoned(audit), _paced(audit), _findings(audit.findings)),
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
        "It is a lower bound: the true epsilon of a run lies between it and the claim, if the claim holds. "
        "A bound far below its claim may mean a loose claim, or a weak attack: it proves no more privacy."
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
            _bar(claim, worst, verdict),
            show(claim.epsilon),
            _number(worst.measured),
            _verdict(verdict),
            claim.adjacency.value.replace("_", " "),
            show(claim.delta),
            worst.layer,
        )
        for claim, worst, verdict in audit.summary()
    ]
    heads = ("claim", "bars", "epsilon", "measured", "verdict", "neighbours", "delta", "measured by")
    return join(
        tag("h2", "Claims"),
        table("Each claim and the largest bound measured", heads, rows, numbers=(2, 3, 6)),
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


def _poisoned(audit: Audit) -> Safe | None:
    """Return what poisoning came to; None where no model was poisoned."""
    rows: list[tuple[object, ...]] = [
        (_name(found.claim), f"{found.tried:,}", escape(found.note), _verdict(found.verdict))
        for found in audit.findings
        if found.layer == "poisoning"
    ]
    if not rows:
        return None
    words = (
        "Each certified model was trained anew on changed tables, in search of one within the certified "
        "number of changes that turns an answer. The closest call is the least number of changes that did: "
        "one more than certified is the least that it may be."
    )
    heads = ("claim", "tables", "closest call", "verdict")
    return join(
        tag("h2", "Poisoning"),
        tag("p", words),
        table("Certified distances under poisoning", heads, rows, numbers=(1,)),
    )


def _paced(audit: Audit) -> Safe | None:
    """Return how run times differ between neighbours; None where none was measured."""
    rows: list[tuple[object, ...]] = [
        (_name(found.claim), escape(found.note.partition(";")[0]), found.tried, escape(found.pair))
        for found in audit.findings
        if found.layer == "run time"
    ]
    if not rows:
        return None
    words = (
        "No guarantee covers run times, but for the public schedule of the service; they are reported, "
        "not judged. An interval (in brackets, at 0.996) without 1 shows that the time of a run tells "
        "these two tables apart."
    )
    heads = ("claim", "median of ratios, and its interval", "runs on each", "neighbours")
    times = table("Run time of each claim", heads, rows, numbers=(2,))
    folded = tag("details", tag("summary", "Show the run time of each claim"), times)
    return join(tag("h2", "Run time"), tag("p", words), folded)


def _verdict(verdict: Verdict) -> object:
    """Return the word, which a reader of colours alone does not need and others do."""
    return tag("span", verdict.value, class_="broken") if verdict is Verdict.BROKEN else verdict.value


def _findings(findings: tuple[Finding, ...]) -> Safe:
    rows: list[tuple[object, ...]] = [
        (
            _name(found.claim),
            found.layer,
            found.pair,
            f"{found.tried:,}",
            _number(found.measured),
            _number(found.p_value),
            _verdict(found.verdict),
            escape(found.note),
        )
        for found in findings
        if found.layer not in _APART
    ]
    heads = ("claim", "layer", "worst neighbours", "tried", "measured", "p-value", "verdict", "note")
    return join(tag("h2", "Attacks"), table("Every attack", heads, rows, numbers=(3, 4, 5)))


def _name(name: str) -> Safe:
    """Return a claim's name, which may break at its dots and underscores."""
    return Safe(escape(name).replace(".", ".<wbr>").replace("_", "_<wbr>"))


def _number(value: float) -> str:
    return "" if math.isnan(value) else "infinite" if math.isinf(value) else f"{value:.4g}"
