"""What a fit of these engines hands back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from confide.privacy import Guarantee
from confide.training.result import Status


@dataclass(frozen=True)
class ModelResult:
    """A private fit whose model is more than a line through public columns.

    Attributes
    ----------
    model : TableModel
        From `confide.train`; `LinearParts` or `SGDModel` on arrays.
    guarantee : Guarantee
    status : Status
    engine : str
    facts : dict
        Public facts and functions of the release, numbers and words.
    entry : str
        Id of the ledger's entry; empty without a ledger.
    """

    model: Any
    guarantee: Guarantee
    status: Status
    engine: str
    facts: dict[str, Any] = field(default_factory=dict)
    entry: str = ""

    def __str__(self) -> str:
        return f"Private fit by {self.engine!r}: {self.model}. {self.guarantee}"

    def predict(self, X: Any) -> Any:
        """Return the model's predictions; post-processing, hence free."""
        return self.model.predict(X)

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class; post-processing, hence free."""
        return self.model.predict_proba(X)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {
            "status": self.status.code,
            "engine": self.engine,
            "guarantee": self.guarantee.to_dict(),
            "sentence": str(self.guarantee),
            "entry": self.entry,
            "model": self.model.to_dict(),
            "facts": self.facts,
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)
