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
from confide.audit.legend import LEGEND, ROUNDED, judged, up
from confide.audit.registry import Claim, Kind, claims
from confide.audit.run import LAYERS
from confide.audit.standing import How, Standing, Tried, standings

_HEAD = """# Guarantees

Written by `python -m confide.audit.guarantees docs` from the audit's registry; a test keeps it current. Each
line is a promise of one run, the largest lower bound on epsilon that any attack measured, and how the claim
stands. Below are their proofs with the attacks that were tried, and how run times differ between neighbours.
Which neighbours a relation means is in [the guarantee](guarantee.md); how to read a bound, and what no audit
sees, is in [Audit the guarantees](how-to/audit.md).
"""
_RESTS = (
    "Where nothing was measured, a claim rests on its proof, and on the layers that look for one "
    "counter-example and found none. In brackets is what share of the claim was measured, rounded down. "
    "Where no delta stands, it is 0."
)
_PROOFS = """## Proofs and attacks

"+ fuzzed" means that a layer was also tried on random tables with extreme rows, other ones in each audit.
"""
_LAYERS = """## What each layer tries

The numbers are claims: those that a layer tried and did not break, and those on which it has nothing to try.
"""
_TIMES = """## Run time

No guarantee covers run times, memory or the order of work: they may depend on the data. The last column is
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
_TITLES = {
    Kind.MECHANISM: "Mechanisms",
    Kind.RELEASE: "Releases",
    Kind.ENGINE: "Engines",
    Kind.ESTIMATOR: "Estimators",
}
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
    for kind, title in _TITLES.items():
        rows = [_row(claim, stood.get(claim.name)) for claim in claims() if claim.kind is kind]
        heads = ("claim", "epsilon, delta", "neighbours", "outcome")
        parts.append(f"## {title}\n\n{_table(heads, rows)}")
    rows = [(f"`{claim.name}`", claim.proof, _attacks(claim, findings)) for claim in claims()]
    parts.append(f"{_PROOFS}\n{_table(('claim', 'proof', 'attacks'), rows)}")
    parts.append(f"{_LAYERS}\n{_legend(list(stood.values()))}")
    poisoned = [found for found in findings if found["layer"] == "poisoning"]
    if poisoned:
        lines = [f"- `{found['claim']}`: {found['note']}" for found in poisoned]
        parts.append("\n".join([_POISONED, *lines, ""]))
    rows = [(f"`{claim.name}`", _pace(claim, findings)) for claim in claims()]
    parts.append(f"{_TIMES}\n{_table(('claim', 'run time'), rows)}")
    notes = dict.fromkeys(claim.note for claim in claims() if claim.note)
    if notes:
        parts.append("\n".join(["## Notes\n", *(f"- {_noted(note)}: {note}" for note in notes), ""]))
    return "\n".join(parts)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = (heads, ["---"] * len(heads), *rows)
    return "\n".join([*(f"| {' | '.join(row)} |" for row in cells), ""])


def _measured(measured: dict[str, Any], stood: list[Standing]) -> str:
    """Return what was measured by whom, and the counts."""
    made = measured.get("origin")  # audits of 0.1.0 told none
    by = f"a {measured['mode']} audit of {len(measured['claims'])} claims"
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
    return _wrapped(f"Measured by {by}{where}. {told}")


def _wrapped(paragraph: str) -> str:
    return f"{fill(paragraph, 110, break_long_words=False, break_on_hyphens=False)}\n"


def _row(claim: Claim, one: Standing | None) -> tuple[str, ...]:
    relation = claim.adjacency.value.replace("_", " ")
    amounts = up(claim.epsilon) if one is None else one.numbers[0]
    if claim.delta:
        amounts += f", {up(claim.delta)}"
    return f"`{claim.name}`", amounts, relation, "not attacked yet" if one is None else _outcome(one)


def _outcome(one: Standing) -> str:
    if one.how is How.MEASURED:
        return f"{one.how.value} {one.numbers[1]} ({one.share})"
    return str(one).replace("|", "\\|")


def _attacks(claim: Claim, findings: list[dict[str, Any]]) -> str:
    return ", ".join(_called(claim, layer) for layer in layers(claim, findings)) or "none yet"


def layers(claim: Claim, findings: list[dict[str, Any]]) -> list[str]:
    """Return the layers that attacked a claim, each once."""
    own = (found["layer"] for found in findings if found["claim"] == claim.name)
    return [layer for layer in dict.fromkeys(own) if judged(layer)]


def _called(claim: Claim, layer: str) -> str:
    return f"{layer} + fuzzed" if layer in _FUZZED and fuzzed(claim, 1) else layer


def _legend(stood: list[Standing]) -> str:
    rows = []
    for layer in LAYERS:
        counts = Counter(one.tried(layer) for one in stood)
        tried = len(stood) - counts[Tried.NOTHING]
        held = f"{counts[Tried.HELD]}" if judged(layer) else f"{counts[Tried.REPORTED]}, not judged"
        sentence = LEGEND[layer].sentence if layer in LEGEND else ""
        cells = (held, f"{counts[Tried.NOTHING]}") if tried else ("not tried yet", "")
        rows.append((layer, sentence, *cells))
    return _table(("layer", "what it tries, and what it can show", "held", "nothing to try"), rows)


def _pace(claim: Claim, findings: list[dict[str, Any]]) -> str:
    """Return ``1.02 (0.95 to 1.10)`` from the note of `sides.pace`."""
    notes = (
        found["note"] for found in findings if (found["claim"], found["layer"]) == (claim.name, "run time")
    )
    numbers = re.findall(r"\d+\.\d+", next(notes, ""))
    return f"{numbers[0]} ({numbers[1]} to {numbers[2]})" if len(numbers) == 3 else "not measured"


def _noted(note: str) -> str:
    return ", ".join(f"`{claim.name}`" for claim in claims() if claim.note == note)


def read(docs: Path) -> dict[str, Any]:
    """Return what was measured last; empty where nothing was."""
    path = docs / "audit.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "guarantees.md").write_text(text(read(folder)), encoding="utf-8")
