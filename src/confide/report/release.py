"""What every report says about a release: its guarantee in words, and what its table declares."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from confide.privacy import Guarantee, show
from confide.report import words


@dataclass(frozen=True)
class ReleaseFacts:
    """The part of a report that is the same for models and selections."""

    headline: str
    odds: str
    sentence: str
    guarantee: dict[str, Any]
    epsilon: str
    void: tuple[str, ...]
    marks: tuple[str, ...]
    label: str
    table: str
    table_note: str
    declaration: str
    schema_digest: str


def release_facts(
    guarantee: Guarantee, schema: Any, schema_digest: str, *, what: str = "model"
) -> dict[str, Any]:
    """Return the fields of `ReleaseFacts`; `what` was released, in words."""
    label = label_of(schema)
    void = words.void_marks(guarantee)
    return {
        "headline": words.headline(guarantee, label).replace("This model", f"This {what}", 1),
        "odds": "" if void else words.odds(guarantee, label).replace("this model", f"this {what}", 1),
        "sentence": str(guarantee),
        "guarantee": guarantee.to_dict(),
        "epsilon": show(guarantee.epsilon),
        "void": void,
        "marks": tuple(words.MARKS[mark] for mark in guarantee.assumptions if mark in words.MARKS),
        "label": label,
        "table": "" if schema is None else schema.name,
        "table_note": "" if schema is None else schema.note,
        "declaration": guarantee.declaration,
        "schema_digest": schema_digest,
    }


def label_of(schema: Any) -> str:
    """Return the label's name."""
    return "label" if schema is None or schema.label is None else schema.label.name


def other_assumptions(guarantee: Guarantee) -> tuple[str, ...]:
    """Return what the guarantee assumes besides the marks that have words of their own."""
    return tuple(name for name in guarantee.assumptions if name not in words.MARKS)


def digest(values: Any) -> str:
    """Return the SHA-256 of values as canonical JSON."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
