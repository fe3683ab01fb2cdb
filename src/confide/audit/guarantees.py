"""``docs/guarantees.md`` from the registry, and from what an audit measured (``docs/audit.json``).

``python -m confide.audit.guarantees docs`` writes it; the measured file is what ``confide audit --full
--json`` prints.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from confide.audit.registry import Claim, Kind, claims
from confide.privacy import show

_HEAD = """# Guarantees

Written by `python -m confide.audit.guarantees docs` from the audit's registry; a test keeps it current. Each
line is a promise of one run, where its proof is, the attacks that were tried and the largest lower bound on
epsilon that any of them measured. Which neighbours a relation means is in [the guarantee](guarantee.md).

Run times, memory and the order of work may depend on the data where a note says so; no guarantee covers them.
"""
_TITLES = {
    Kind.MECHANISM: "Mechanisms",
    Kind.RELEASE: "Releases",
    Kind.ENGINE: "Engines",
    Kind.ESTIMATOR: "Estimators",
}
_COLUMNS = ("claim", "epsilon", "delta", "neighbours", "proof", "attacks", "largest bound")


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
    notes = dict.fromkeys(claim.note for claim in claims() if claim.note)
    if notes:
        parts.append("\n".join(["## Notes\n", *(f"- {_noted(note)}: {note}" for note in notes), ""]))
    return "\n".join(parts)


def _row(claim: Claim, findings: list[dict[str, Any]]) -> tuple[str, ...]:
    own = [found for found in findings if found["claim"] == claim.name]
    bounds = [found["measured"] for found in own if found["measured"] is not None]
    layers = ", ".join(dict.fromkeys(found["layer"] for found in own)) or "none yet"
    largest = f"{max(bounds):.4f}" if bounds else "none"
    return (
        f"`{claim.name}`",
        show(claim.epsilon),
        show(claim.delta),
        claim.adjacency.value.replace("_", " "),
        claim.proof,
        layers,
        largest,
    )


def _noted(note: str) -> str:
    return ", ".join(f"`{claim.name}`" for claim in claims() if claim.note == note)


def read(docs: Path) -> dict[str, Any]:
    """Return what was measured last; empty where nothing was."""
    path = docs / "audit.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "guarantees.md").write_text(text(read(folder)), encoding="utf-8")
