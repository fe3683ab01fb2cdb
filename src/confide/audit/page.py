"""The page of an audit: how each claim stands, layer by layer, for a privacy officer; one file of its own."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

from confide.audit.finding import Finding, Verdict
from confide.audit.legend import LEGEND, ROUNDED, TERMS, UNSEEN, WORDS, down, held, judged, many, up
from confide.audit.names import glossary
from confide.audit.registry import beside
from confide.audit.run import LAYERS, LEVEL, REGISTRY, Audit
from confide.audit.standing import How, Standing, Tried, counted
from confide.report.html import Safe, code, escape, join, table, tag
from confide.report.style import css

_RULES = """
header,nav,main,footer{max-width:78rem}
.bars{display:grid;gap:.15rem;min-width:8rem;padding-right:.5rem}
.bars svg{display:block;width:100%;height:1.5rem;overflow:visible}
.claimed{fill:none;stroke:var(--muted);stroke-width:1.5}.measured{fill:var(--accent)}.over{fill:var(--alarm)}
tbody th{overflow-wrap:break-word}
.proof{display:block;font-weight:400;color:var(--muted);overflow-wrap:anywhere}
.key{display:flex;gap:.4rem 1.2rem;flex-wrap:wrap;list-style:none;padding:0}
.key svg{width:1rem;height:.8rem;margin-right:.4rem}
.broken{font-weight:600;color:var(--alarm)}
.quiet{color:var(--muted)}
.banner ul{margin:.4rem 0 0;padding-left:1.2rem}
.matrix td{padding-right:.6rem}
.legend td:nth-child(2){min-width:14rem}
.standing td:nth-child(5),.attacks td:last-child{min-width:15rem;overflow-wrap:anywhere}
details{margin:.9rem 0}
summary{cursor:pointer;padding:.4rem 0}
@media screen and (min-width:48.01rem){@supports selector(::details-content){
.narrow>summary{display:none}
.narrow::details-content{content-visibility:visible;display:block;height:auto}
}}
summary:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
@media (forced-colors:active){.claimed{stroke:GrayText}.measured{fill:Highlight}.over{fill:Mark}}
@media screen and (max-width:48rem){
.stack table,.stack tbody,.stack tr,.stack th,.stack td,.stack caption{display:block;text-align:left}
.stack thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.stack tr{padding:.5rem 0;border-bottom:1px solid var(--grid)}
.stack th,.stack td{border:0;padding:.05rem 0;white-space:normal}
.stack td:has(.apart)::before{content:none!important}
.stack td:empty{padding:0}.stack td:empty::before{content:none!important}
.stack td::before{color:var(--muted);font-weight:400;font-size:.85rem}
.matrix td,.legend td.n{display:inline-block;padding-right:.9rem}
.bars{max-width:20rem}
}
"""

#: Layers with a table of their own.
_APART = ("poisoning", "run time")
#: After which a name may break.
_JOINT = re.compile(r"[._](?=\w)")
#: Length at most of a bar that passes its claim, in claims.
_OVER = 1.3
_SECTIONS = (
    ("claims", "Claims"),
    ("words", "Words"),
    ("layers", "What is tried"),
    ("matrix", "Claim by layer"),
    ("poisoning", "Poisoning"),
    ("time", "Run time"),
    ("attacks", "Attacks"),
    ("unseen", "What this audit cannot see"),
    ("origin", "Where this comes from"),
)
_BARS = (
    ("claimed", "claimed epsilon"),
    ("measured", "measured lower bound"),
    ("over", "of a broken claim"),
)


def page(audit: Audit) -> str:
    """Return the HTML page of an audit."""
    stood = audit.standings
    title = _title(audit, len(stood))
    found = {
        "claims": _claims(stood),
        "words": _terms(),
        "layers": _layers(stood),
        "matrix": _matrix(stood),
        "poisoning": _poisoned(audit),
        "time": _paced(audit),
        "attacks": _findings(audit.findings),
        "unseen": _unseen(),
        "origin": _origin(audit),
    }
    shown = [(name, head, content) for name, head in _SECTIONS if (content := found[name]) is not None]
    labels = "".join(_labels(name, heads) for name, heads in _heads().items())
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        tag("title", title),
        tag("style", Safe(f"{css()}{_RULES}@media screen and (max-width:48rem){{\n{labels}}}\n")),
    )
    body = join(
        tag("header", tag("h1", "Confide"), tag("p", title, class_="claim"), _outcome(audit, stood)),
        tag("nav", tag("ul", *(tag("li", _link(name, head)) for name, head, _ in shown)), aria_label="Parts"),
        tag("main", *(tag("section", tag("h2", head), content, id=name) for name, head, content in shown)),
        tag("footer", tag("p", "Made by ", code("confide audit"), ".")),
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _title(audit: Audit, count: int) -> str:
    kind, whole = "full" if audit.full else "quick", audit.registered
    asked = "" if audit.asked is None else f"{audit.asked}: "
    return f"Audit of {asked}{count if count == whole else f'{count} of {whole}'} claims, {kind}"


def _partial(audit: Audit, count: int) -> Safe | None:
    """Say of an audit of a few claims that it is one; None where all were attacked."""
    if count == audit.registered:
        return None
    left = many(audit.registered - count, "other claim")
    more = beside(audit.asked) if audit.asked is not None else ""
    return tag(
        "p", tag("strong", "A part of an audit: "), f"it says nothing of {left}. {more}{'.' if more else ''}"
    )


def _link(name: str, head: str) -> Safe:
    return tag("a", head, href=f"#{name}")


#: Table -> its columns; those of the matrix are the layers.
_HEADS: dict[str, tuple[str, ...]] = {
    "standing": ("claim", "bars", "claimed", "measured", "outcome", "measured by", "neighbours", "delta"),
    "legend": (
        "layer", "what it tries, and what it can show", "held", "could not break", "broken", "does not apply",
    ),
    "poisoned": ("claim", "tables", "certified for", "closest call", "verdict"),
    "paced": ("claim", "median of ratios, and its interval", "runs on each", "neighbours"),
    "attacks": (
        "claim", "layer", "worst neighbours", "tried", "measured", "p-value", "verdict", "note",
    ),
}  # fmt: skip
#: Columns that need no name where they stand below each other.
_PLAIN = ("bars", "outcome", "what it tries, and what it can show", "note")


def _heads() -> dict[str, tuple[str, ...]]:
    return {**_HEADS, "matrix": ("claim", *LAYERS)}


def _stack(name: str, caption: str, rows: list[tuple[object, ...]], numbers: tuple[int, ...] = ()) -> Safe:
    """Return a table whose cells stand below each other, with their column's name, on a narrow screen."""
    return tag("div", table(caption, _heads()[name], rows, numbers=numbers), class_=f"stack {name}")


def _labels(name: str, heads: tuple[str, ...]) -> str:
    named = ((i, head) for i, head in enumerate(heads[1:], start=2) if head not in _PLAIN)
    return "".join(f'.{name} td:nth-child({i})::before{{content:"{head}: "}}\n' for i, head in named)


def _outcome(audit: Audit, stood: list[Standing]) -> Safe:
    counts = Counter(one.how for one in stood)
    unknown = [found.claim for found in audit.broken if found.layer == REGISTRY]
    made, layers = counted(audit.findings), {found.layer for found in audit.findings}
    more = "".join(f"; {many(made[what], what)}" for what in _APART if made[what])
    tiles = (
        ("broken", counts[How.BROKEN], "an attack succeeded"),
        ("hold, measured", counts[How.MEASURED], "an attack measured a part of the claim"),
        (
            "hold, nothing measured",
            counts[How.UNMEASURED],
            "rest on proof, and on layers that look for one counter-example",
        ),
        ("attacks", made["attack"], f"by {many(len(layers - {*_APART, REGISTRY}), 'layer')}{more}"),
    )
    shown = (
        tag("div", tag("dt", name), tag("dd", f"{count:,}", tag("small", note)))
        for name, count, note in tiles
    )
    told = _banner([one for one in stood if one.how is How.BROKEN], unknown) or tag(
        "p",
        f"No attack broke a claim: {held(counts[How.MEASURED], counts[How.UNMEASURED])}",
    )
    quick = None if audit.full else tag("p", "Quick: few runs. For a sign-off run ", code("--full"), ".")
    return join(told, _partial(audit, len(stood)), quick, tag("dl", *shown, class_="tiles"))


def _banner(broken: list[Standing], unknown: list[str]) -> Safe | None:
    """Return what failed; None where nothing did."""
    parts: list[Safe] = []
    if broken:
        named = (tag("li", _name(one.claim.name), f": {one}.") for one in broken)
        parts += [tag("strong", "Broken"), escape("These claims do not hold:"), tag("ul", *named)]
    if unknown:
        told = f"Public names that no claim covers, so that nothing attacks them: {', '.join(unknown)}."
        parts.append(tag("p", _name(told)))
    return tag("div", *parts, class_="banner") if parts else None


def _claims(stood: list[Standing]) -> Safe:
    words = (
        "Measured is the largest lower bound on epsilon that any attack proved, from exact laws or with "
        "confidence. The true epsilon of a run lies between it and the claim, if the claim holds. "
        "A bound far below its claim may mean a loose claim, or a weak attack: it proves no more privacy. "
        "Where nothing was measured, the claim rests on its proof, and on the layers that look for one "
        "counter-example and found none. "
        "Each bar is relative to its own claim. "
        f"The probability that any claim that holds is called broken is at most {LEVEL:g} over the whole "
        "audit (Holm)."
    )
    items = (
        tag("li", tag("svg", tag("rect", width=16, height=13, class_=name), aria_hidden="true"), text)
        for name, text in _BARS
    )
    rows: list[tuple[object, ...]] = [
        (
            join(_name(one.claim.name), tag("small", _name(one.claim.proof), class_="proof")),
            _bar(one),
            *one.numbers,
            _told(one),
            one.worst.layer if one.worst.measured > 0 else "",
            one.claim.adjacency.value.replace("_", " "),
            up(one.claim.delta),
        )
        for one in stood
    ]
    return join(
        tag("p", words),
        tag("p", ROUNDED),
        tag("ul", *items, class_="key"),
        _stack("standing", "Each claim, and how it stands", rows, numbers=(2, 3, 7)),
    )


def _told(one: Standing) -> Safe:
    return tag("span", str(one), class_="broken" if one.how is How.BROKEN else None)


def _bar(one: Standing) -> Safe:
    measured, epsilon = one.worst.measured, one.claim.epsilon
    share = min(_OVER, measured / float(epsilon) if epsilon else math.inf) if measured > 0 else 0.0
    claimed, bound = one.numbers
    told = f"{one.claim.name}: measured {bound or 'nothing'} of {claimed} claimed"
    own = "over" if one.how is How.BROKEN else "measured"
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


#: In place of how many claims a layer held that no guarantee is about; without its column's name.
_REPORTED = tag("span", "reported, not judged", class_="apart")


def _layers(stood: list[Standing]) -> Safe:
    rows: list[tuple[object, ...]] = []
    for layer in LAYERS:
        counts = Counter(one.tried(layer) for one in stood)
        held = _REPORTED if counts[Tried.REPORTED] else f"{counts[Tried.HELD]}"
        none = f"{counts[Tried.NOTHING]}"
        none += f", and {counts[Tried.LEFT]} not in a quick audit" if counts[Tried.LEFT] else ""
        weak = counts[Tried.WEAK] + counts[Tried.STILL]
        sentence = LEGEND[layer].sentence if layer in LEGEND else ""
        rows.append((layer, sentence, held, weak, counts[Tried.BROKEN], none))
    words = (
        "Each layer is an attack of another kind. The numbers are claims; those that a layer could not break "
        "had too few runs for it, or no input that moved."
    )
    return join(tag("p", words), _stack("legend", "Layers of the audit", rows, numbers=(2, 3, 4, 5)))


_CELLS = {
    Tried.BROKEN: "broken",
    Tried.HELD: None,
    Tried.WEAK: "quiet",
    Tried.STILL: "quiet",
    Tried.REPORTED: "quiet",
    Tried.LEFT: "quiet",
    Tried.NOTHING: "quiet",
}


def _matrix(stood: list[Standing]) -> Safe:
    rows: list[tuple[object, ...]] = []
    for one in stood:
        cells = (one.tried(layer) for layer in LAYERS)
        rows.append((_name(one.claim.name), *(tag("span", c.value, class_=_CELLS[c]) for c in cells)))
    matrix = _stack("matrix", "What each layer did to each claim", rows)
    return join(
        tag("p", WORDS), tag("details", tag("summary", "Show claim by layer"), matrix, class_="narrow")
    )


def _poisoned(audit: Audit) -> Safe | None:
    """Return what poisoning came to; None where no model was poisoned."""
    rows: list[tuple[object, ...]] = [
        (_name(found.claim), f"{found.tried:,}", *_distances(found), _verdict(found))
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
    return join(
        tag("p", words),
        _stack("poisoned", "Certified distances under poisoning", rows, numbers=(1,)),
    )


def _distances(found: Finding) -> tuple[str, str]:
    """Return how many changes answers are certified for, and the closest call, from the note of `poison`."""
    if found.verdict is Verdict.BROKEN:
        return "", found.note
    parts = found.note.split("; ")

    def after(words: str, otherwise: str) -> str:
        return next((part.removeprefix(words) for part in parts if part.startswith(words)), otherwise)

    return after("answers certified for ", ""), after("closest call: ", "none turned")


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
    times = _stack("paced", "Run time of each claim", rows, numbers=(2,))
    return join(tag("p", words), _fold("Show the run time of each claim", times))


def _verdict(found: Finding) -> object:
    """Return the word, which a reader of colours alone does not need and others do."""
    if found.verdict is Verdict.BROKEN:
        return tag("span", found.verdict.value, class_="broken")
    return found.verdict.value if judged(found.layer) else "reported"


def _findings(findings: tuple[Finding, ...]) -> Safe:
    rows: list[tuple[object, ...]] = [
        (
            _name(found.claim),
            found.layer,
            found.pair,
            f"{found.tried:,}",
            down(found.measured),
            "" if math.isnan(found.p_value) else f"{found.p_value:.2g}",
            _verdict(found),
            escape(found.note),
        )
        for found in findings
        if found.layer not in _APART
    ]
    attacks = _stack("attacks", "Every attack", rows, numbers=(3, 4, 5))
    return _fold(f"Show {many(counted(findings)['attack'], 'attack')}", attacks)


def _fold(summary: str, content: Safe) -> Safe:
    return tag("details", tag("summary", summary), content)


def _terms() -> Safe:
    more = join("How to read an audit, at length: ", code("docs/how-to/audit.md"), " of Confide.")
    names = join(tag("h3", "Names of neighbours"), _plain(glossary().items()))
    return _fold("Show what the words of this page mean", join(_plain(TERMS.items()), names, tag("p", more)))


def _unseen() -> Safe:
    words = "No verdict of this page speaks of these."
    return join(tag("p", words), _plain(UNSEEN.items()))


def _origin(audit: Audit) -> Safe:
    spent = sum(found.seconds for found in audit.findings)
    rows: list[tuple[str, object]] = [
        ("mode", "full" if audit.full else "quick"),
        ("level", f"{LEVEL:g} that any claim that holds is called broken, over the whole audit"),
        ("time", f"{audit.seconds:,.0f} s of this run; {spent:,.0f} s of CPU time in all attacks"),
    ]
    if audit.kept:
        whose = many(len(audit.kept), "result is", "results are")
        rows.append(("resumed", f"{whose} from an earlier run of the same code"))
    if audit.cells:
        told = (
            f"{many(audit.cells, 'cell')}, a claim by a layer on a pair; in {audit.nothing:,} nothing to try"
        )
        rows.append(("planned", told))
    made = audit.origin
    if made is not None:
        rows = [
            ("attacked", made.told),
            ("Confide", f"version {made.version}"),
            ("sources", join("SHA-256 ", code(made.sources))),
            ("Python", made.python),
            ("NumPy", made.numpy),
            ("randomness", "operating system" if made.seed is None else f"seed {made.seed}"),
            *rows,
        ]
    return _plain(rows)


def _plain(rows: Iterable[tuple[str, object]]) -> Safe:
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", told)) for name, told in rows), class_="plain")


def _name(name: str) -> Safe:
    """Return a claim's name, or its proof, which may break at its dots and underscores."""
    return Safe(_JOINT.sub(r"\g<0><wbr>", escape(name)))
