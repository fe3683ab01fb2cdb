"""``docs/guarantees.md`` from the registry, and from what an audit measured (``docs/audit.json``).

``python -m confide.audit.guarantees docs`` writes it; the measured file is what ``confide audit --full
--json`` prints.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import Any

from confide.audit.finding import Finding
from confide.audit.fuzz import fuzzed
from confide.audit.legend import LEGEND, ROUNDED, judged, many, up
from confide.audit.registry import Claim, claims
from confide.audit.run import LAYERS
from confide.audit.standing import How, Standing, Tried, standings

_HEAD = """# Guarantees

Written by `python -m confide.audit.guarantees docs` from the audit's registry; a test keeps it current. A row
is a claim: what one run promises, between which neighbours, and where that is proved; which attacks were
tried; and how the claim stands, with the largest lower bound on epsilon that any of them measured. Its name
is an address: `guarantees.md#training.rounds`. Which neighbours a relation means is in
[the guarantee](guarantee.md); how to read a bound, and what no audit sees, is in
[Audit the guarantees](how-to/audit.md).
"""
_RESTS = (
    "Where nothing was measured, a claim rests on its proof, and on the layers that look for one "
    "counter-example and found none. In brackets is what share of the claim was measured, rounded down. "
    'Where no delta stands, it is 0. "+ fuzzed" means that a layer was also tried on random tables with '
    "extreme rows, other ones in each audit."
)
_SOURCES = (
    "The results are of these sources and of no others; `confide audit --list` tells the hash of those that "
    "are installed."
)
_LAYERS = """## What each layer tries

The numbers are claims: those that a layer tried and did not break, and those on which it has nothing to try.
"""
_TIMES = """## Run time

No guarantee covers run times, memory or the order of work: they may depend on the data. "Time" in a row is
the CPU time of a run on one table over that on its neighbour: the median of many, with an interval that holds
the median with probability 0.996. An interval without 1 shows that time tells the two tables apart; one with
1 shows nothing of other neighbours. Do not offer timings to an adversary. The exception is `confide serve`:
its answers leave on a public schedule, and one that was not ready by then is counted and named in every later
guarantee ([Times](how-to/serve.md#times)).
"""
_POISONED = """## Certified distances under poisoning

Each model was trained anew on tables within the certified number of changes of its own: labels, rows, or rows
that come or go. None turned an answer that was certified for so many, or moved a distance by more than the
number of changes. The closest call is the least number of changes that did turn one; one more than certified
is the least that it may be.
"""
#: Room, the first part of a claim's name -> what its claims are about, for somebody who reads no code.
ABOUT = {
    "mechanisms": "Noise is added to a number, or a choice is made by lot: all else is built on this.",
    "labels": "Labels are changed at random, or summed with noise, before any model sees them; all other "
    "columns are public.",
    "training": "A regression or a classifier is fitted with noise, and its coefficients are released.",
    "selection": "A few columns are chosen out of many, and it is released which ones.",
    "prediction": "A model stays secret, and its answers for new rows are released. Certified means: proved "
    "how many rows may change before an answer turns.",
    "pipeline": "Columns are chosen and a model is fitted on them, in one call; both are released.",
    "tune": "Several settings are tried on the secret rows, and the best one is released with its model.",
    "ledger": "What a table has spent is written down, and a request that would pass its total is refused.",
}
#: A dot or an underscore within a dotted name.
_JOINT = re.compile(r"(?<=[a-z])[._](?=[A-Za-z0-9])")
#: Layers that take fuzzed tables.
_FUZZED = ("replay", "side channels")


def text(measured: dict[str, Any]) -> str:
    """Return the page; `measured` is the JSON of an audit, of this version or an earlier one, or empty."""
    findings: list[dict[str, Any]] = measured.get("findings", [])
    stood = {one.claim.name: one for one in standings(Finding.from_dict(found) for found in findings)}
    parts = [_HEAD]
    if measured:
        parts.append(_measured(measured, list(stood.values())))
    parts.append(_wrapped(f"{ROUNDED} {_RESTS}"))
    notes = list(dict.fromkeys(claim.note for claim in claims() if claim.note))
    for room in rooms():
        rows = [
            _row(claim, stood.get(claim.name), findings, notes) for claim in claims() if _room(claim) == room
        ]
        heads = ("claim and proof", "promise", "attacks tried", "outcome")
        parts.append(f"## {room.capitalize()}\n\n{ABOUT[room]}\n\n{_styled('cards claims', heads, rows)}")
    parts.append(f"{_LAYERS}\n{_legend(list(stood.values()))}")
    poisoned = [found for found in findings if found["layer"] == "poisoning"]
    if poisoned:
        lines = [f"- `{found['claim']}`: {found['note']}" for found in poisoned]
        parts.append("\n".join([_POISONED, *lines, ""]))
    parts.append(_TIMES)
    told = (f'- <a id="note-{place}"></a>Note {place}: {note}' for place, note in enumerate(notes, 1))
    parts.append("\n".join(["## Notes\n", *told, ""]))
    return "\n".join(parts)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = (heads, ["---"] * len(heads), *rows)
    return "\n".join([*(f"| {' | '.join(row)} |" for row in cells), ""])


def _styled(names: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table with classes of ``docs/stylesheets/guarantees.css``."""
    return f'<div class="{names}" markdown>\n\n{_table(heads, rows)}\n</div>\n'


def _measured(measured: dict[str, Any], stood: list[Standing]) -> str:
    """Return what was measured by whom, and the counts: of all claims, as each was attacked last."""
    made = measured.get("origin")  # audits of 0.1.0 told none
    whole, newer = len(measured["claims"]), len(measured.get("later", {}).get("claims", ()))
    by = f"a {measured['mode']} audit of {many(whole - newer, 'claim')}"
    where = ""
    if made is not None:
        drawn = "the operating system's randomness" if made["seed"] is None else f"seed {made['seed']}"
        where = (
            f", {made['date']}, Confide {made['version']} (SHA-256 of the sources `{made['sources']}`), "
            f"{made['python']}, NumPy {made['numpy']}, {made['machine']}, {drawn}"
        )
    counts = Counter(one.how for one in stood)
    told = (
        f"Broken: {counts[How.BROKEN]}; hold, a part of the claim measured: {counts[How.MEASURED]}; "
        f"hold, nothing measured: {counts[How.UNMEASURED]}."
    )
    if newer:
        told = f"{_later(measured['later'])} Of all {many(whole, 'claim')}, as attacked last: {told.lower()}"
    return _wrapped(f"Measured by {by}{where}. {told}{'' if made is None else f' {_SOURCES}'}")


def _later(later: dict[str, Any]) -> str:
    """Say of claims whose results are of later audits, each of that claim alone, which these are and why."""
    names, made = later["claims"], later["origin"]
    whose = "by an audit of it alone" if len(names) == 1 else "each by an audit of it alone"
    named = ", ".join(f"`{name}`" for name in names)
    return f"Measured later, {whose}: {named} ({made['date']}, sources `{made['sources']}`). {later['why']}."


def _wrapped(paragraph: str) -> str:
    return f"{fill(paragraph, 110, break_long_words=False, break_on_hyphens=False)}\n"


def rooms() -> tuple[str, ...]:
    """Return the rooms that claim something, in the order of the registry."""
    return tuple(dict.fromkeys(_room(claim) for claim in claims()))


def _room(claim: Claim) -> str:
    return claim.name.partition(".")[0]


def _row(
    claim: Claim, one: Standing | None, findings: list[dict[str, Any]], notes: list[str]
) -> tuple[str, ...]:
    epsilon = up(claim.epsilon) if one is None else one.numbers[0]
    delta = f", delta {up(claim.delta)}" if claim.delta else ""
    outcome = "not attacked yet"
    if one is not None:
        outcome = f"{_outcome(one)}; time {_pace(claim, findings)}"
    return (
        f"{_anchor(claim.name)}<br>{claim.kind.value}: {_breakable(claim.proof)}{_marked(claim, notes)}",
        f"epsilon {epsilon}{delta}, {claim.adjacency.value.replace('_', ' ')}",
        _attacks(claim, findings),
        outcome,
    )


def _anchor(name: str) -> str:
    """Return a claim's name, which leads to itself: its address."""
    return f'<a id="{name}" href="#{name}"><code>{_breakable(name)}</code></a>'


def _breakable(words: str) -> str:
    """Let lines of narrow columns end within dotted names, after a dot or an underscore alone."""
    return _JOINT.sub(r"\g<0><wbr>", words)


def _marked(claim: Claim, notes: list[str]) -> str:
    if not claim.note:
        return ""
    place = notes.index(claim.note) + 1
    return f" ([note {place}](#note-{place}))"


def _outcome(one: Standing) -> str:
    if one.how is How.MEASURED:
        return f"{one.how.value} {one.numbers[1]} ({one.share}) by {one.worst.layer}"
    return str(one).replace("|", "\\|")


def _attacks(claim: Claim, findings: list[dict[str, Any]]) -> str:
    return ", ".join(_called(claim, layer) for layer in layers(claim, findings)) or "none yet"


def layers(claim: Claim, findings: list[dict[str, Any]]) -> list[str]:
    """Return the layers that attacked a claim, each once."""
    own = (found["layer"] for found in findings if found["claim"] == claim.name)
    return [layer for layer in dict.fromkeys(own) if judged(layer)]


def _called(claim: Claim, layer: str) -> str:
    if layer == "poisoning":
        return "[poisoning](#certified-distances-under-poisoning)"
    return f"{layer} + fuzzed" if layer in _FUZZED and fuzzed(claim, 1) else layer


def _legend(stood: list[Standing]) -> str:
    rows = []
    for layer in LAYERS:
        counts = Counter(one.tried(layer) for one in stood)
        tried = len(stood) - counts[Tried.NOTHING]
        held = f"{tried - counts[Tried.BROKEN]}" if judged(layer) else f"{counts[Tried.REPORTED]}, not judged"
        sentence = LEGEND[layer].sentence if layer in LEGEND else ""
        cells = (held, f"{counts[Tried.NOTHING]}") if tried else ("not tried yet", "")
        rows.append((layer, sentence, *cells))
    return _styled(
        "cards layers", ("layer", "what it tries, and what it can show", "held", "nothing to try"), rows
    )


def _pace(claim: Claim, findings: list[dict[str, Any]]) -> str:
    """Return ``1.02 (0.95 to 1.10)`` from the note of `sides.pace`."""
    notes = (
        found["note"] for found in findings if (found["claim"], found["layer"]) == (claim.name, "run time")
    )
    numbers = re.findall(r"\d+\.\d+", next(notes, ""))
    if len(numbers) != 3:
        return "not measured"
    return f"{numbers[0]} ({numbers[1]} to {numbers[2]})"


def read(docs: Path) -> dict[str, Any]:
    """Return what was measured last; empty where nothing was."""
    path = docs / "audit.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "guarantees.md").write_text(text(read(folder)), encoding="utf-8")
