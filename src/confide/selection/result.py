"""What a private selection hands back: the support, its guarantee, and public facts alone.

Running time, acceptance, the number of buckets, the probability of the best support and whether an optimum
was proven are functions of private data (selection.md, 7): no field of a result holds them, unless the user
declared the data public.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from confide.privacy import Guarantee


class Status(Enum):
    """What became of a selection; the same for all data."""

    RELEASED = ("released", "The support was drawn under the guarantee.")
    PREVIEW = ("preview", "Nothing was read or charged: this is the guarantee that would be.")

    def __init__(self, code: str, prose: str) -> None:
        self.code = code
        self.prose = prose


@dataclass(frozen=True)
class SelectionResult:
    """A support that was drawn privately.

    Attributes
    ----------
    support : tuple of str, length `size`
        Names of the encoded columns, in the order of `indices`.
    indices : tuple of int, length `size`
        Their places among the `candidates` encoded columns, increasing.
    guarantee : Guarantee
    status : Status
    mechanism : str
    loss : str
        Name of the loss, with its shape where it has one: ``"huber(0.5)"``.
    size, candidates : int
        s of p.
    radius, ridge : float
        As used.
    feature_bound, target_bound : float
        b_x and b_y of the encoded columns and the centred label.
    columns : tuple of str
        The declared columns that the support lies in; the same as `support` where there is no schema.
    schema_digest : str
        Digest of the schema that encodes tables for this support; empty for arrays.
    diagnostics : tuple of (str, number)
        Empty, unless the data were declared public.
    entry : str
        Id of the ledger's entry that paid for this release; empty without a ledger.
    top : int or None
        R of mechanism ``"top_r"``.
    """

    support: tuple[str, ...]
    indices: tuple[int, ...]
    guarantee: Guarantee
    status: Status
    mechanism: str
    loss: str
    size: int
    candidates: int
    radius: float
    ridge: float
    feature_bound: float
    target_bound: float
    columns: tuple[str, ...]
    schema_digest: str = ""
    diagnostics: tuple[tuple[str, float], ...] = ()
    entry: str = ""
    top: int | None = None

    def __repr__(self) -> str:
        shown = ", ".join(self.support[:6])
        more = f" and {self.size - 6} more" if self.size > 6 else ""
        return f"SelectionResult({shown}{more}; of {self.candidates}, by {self.mechanism}. {self.guarantee})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        result = {
            "status": self.status.code,
            "support": list(self.support),
            "indices": list(self.indices),
            "columns": list(self.columns),
            "guarantee": self.guarantee.to_dict(),
            "sentence": str(self.guarantee),
            "entry": self.entry,
            "mechanism": self.mechanism,
            **({} if self.top is None else {"top": self.top}),
            "loss": self.loss,
            "size": self.size,
            "candidates": self.candidates,
            "radius": self.radius,
            "ridge": self.ridge,
            "feature_bound": self.feature_bound,
            "target_bound": self.target_bound,
            "schema_digest": self.schema_digest,
        }
        return {**result, "diagnostics": dict(self.diagnostics)} if self.diagnostics else result

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)
