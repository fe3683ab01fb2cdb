"""What a layer of the audit found about a claim."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Self


class Verdict(Enum):
    """Outcome of one attack."""

    HOLDS = "holds"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """One attack of one claim.

    Parameters
    ----------
    claim : str
    layer : str
        A key of `run.LAYERS`, or `run.REGISTRY`.
    verdict : Verdict
    measured : float
        Lower bound on epsilon (at the claim's delta); NaN where the layer measures none.
    pair : str
        The neighbours that gave it.
    tried : int
        How many pairs or runs.
    p_value : float
        Of the hypothesis that the claim holds, for statistical layers; NaN for the others. `judge` decides
        by all of them together.
    seconds : float
    note : str
    moved : float
        Largest share of what is declared that an input moved by (replay); NaN where none is told.
    guesses, canaries : int
        The most guesses that could have been right (black box, one run), and canaries of one training; 0
        where they are not told.
    """

    claim: str
    layer: str
    verdict: Verdict
    measured: float = math.nan
    pair: str = ""
    tried: int = 0
    p_value: float = math.nan
    seconds: float = 0.0
    note: str = ""
    moved: float = math.nan
    guesses: int = 0
    canaries: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; None for NaN."""
        values = asdict(self) | {"verdict": self.verdict.value}
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in values.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote, or an earlier version of it."""
        numbers = {k: math.nan for k in ("measured", "p_value") if data[k] is None}
        numbers |= {} if data.get("moved", 0) is not None else {"moved": math.nan}
        return cls(**{**data, **numbers, "verdict": Verdict(data["verdict"])})


def judge(findings: list[Finding], level: float) -> list[Finding]:
    """Return the findings with the statistical ones decided together (Holm 1979).

    Parameters
    ----------
    findings : list of Finding
    level : float
        Probability that any claim that holds is called broken, over all of them.

    Notes
    -----
    Holm: in order of p-value, the i-th of m (from 0) is rejected while p <= level / (m - i). Findings
    without a p-value are proofs and stay as they are.
    """
    places = sorted(
        (i for i, found in enumerate(findings) if not math.isnan(found.p_value)),
        key=lambda i: findings[i].p_value,
    )
    result, broken = list(findings), True
    for rank, place in enumerate(places):
        broken = broken and findings[place].p_value <= level / (len(places) - rank)
        result[place] = replace(findings[place], verdict=Verdict.BROKEN if broken else Verdict.HOLDS)
    return result
