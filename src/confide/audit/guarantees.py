"""``docs/guarantees.md`` from the registry, and from what an audit measured (``docs/audit.json``).

``python -m confide.audit.guarantees docs`` writes it; the measured file is what ``confide audit --full
--json`` prints.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from confide.audit.fuzz import fuzzed
from confide.audit.registry import Claim, Kind, claims
from confide.privacy import show

_HEAD = """# Guarantees

Written by `python -m confide.audit.guarantees docs` from the audit's registry; a test keeps it current. Each
line is a promise of one run, where its proof is, the attacks that were tried, the largest lower bound on
epsilon that any of them measured, and how its run time differs between neighbours. Which neighbours a
relation means is in [the guarantee](guarantee.md); how to read a bound is in
[Audit the guarantees](how-to/audit.md). "+ fuzzed" means that replay and side channels were also tried on
random tables with extreme rows, other ones in each audit.
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
_COLUMNS = (
    "claim", "epsilon", "delta", "neighbours", "proof", "attacks", "largest bound", "run time",
)  # fmt: skip
#: Layers that measure what no claim is about.
REPORTS = ("run time",)
#: Layers that take fuzzed tables.
_FUZZED = ("replay", "side channels")


def text(measured: dict[str, Any]) -> str:
    """Return the page; `measured` is the JSON of an audit, or empty."""
    parts = [_HEAD]
    if measured:
        parts.append(f"Measured by a {measured['mode']} audit of {len(measured['claims'])} claims.\n")
    for kind, title in _TITLES.items():
        rows = [_row(claim, measured.get("findings", [])) for claim in claims() if claim.kind is kind]
        rule = ["---"] * len(_COLUMNS)
        lines = (f"| {' | '.join(cells)} |" for cells in (_COLUMNS, rule, *rows))
        parts.append("\n".join([f"## {title}\n", *lines, ""]))
    poisoned = [found for found in measured.get("findings", []) if found["layer"] == "poisoning"]
    if poisoned:
        lines = [f"- `{found['claim']}`: {found['note']}" for found in poisoned]
        parts.append("\n".join([_POISONED, *lines, ""]))
    parts.append(_TIMES)
    notes = dict.fromkeys(claim.note for claim in claims() if claim.note)
    if notes:
        parts.append("\n".join(["## Notes\n", *(f"- {_noted(note)}: {note}" for note in notes), ""]))
    return "\n".join(parts)


def _row(claim: Claim, findings: list[dict[str, Any]]) -> tuple[str, ...]:
    own = [found for found in findings if found["claim"] == claim.name]
    bounds = [found["measured"] for found in own if found["measured"] is not None]
    attacks = ", ".join(_called(claim, layer) for layer in layers(claim, findings)) or "none yet"
    pace = next((found["note"] for found in own if found["layer"] in REPORTS), "")
    largest = f"{max(bounds):.4f}" if bounds else "none"
    return (
        f"`{claim.name}`",
        show(claim.epsilon),
        show(claim.delta),
        claim.adjacency.value.replace("_", " "),
        claim.proof,
        attacks,
        largest,
        _ratio(pace),
    )


def layers(claim: Claim, findings: list[dict[str, Any]]) -> list[str]:
    """Return the layers that attacked a claim, each once."""
    own = (found["layer"] for found in findings if found["claim"] == claim.name)
    return [layer for layer in dict.fromkeys(own) if layer not in REPORTS]


def _called(claim: Claim, layer: str) -> str:
    return f"{layer} + fuzzed" if layer in _FUZZED and fuzzed(claim, 1) else layer


def _ratio(note: str) -> str:
    """Return ``1.02 (0.95 to 1.10)`` from the note of `sides.pace`."""
    numbers = re.findall(r"\d+\.\d+", note)
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
