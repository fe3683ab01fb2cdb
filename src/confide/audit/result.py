"""What a whole audit found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confide.audit.finding import Finding, Verdict
from confide.audit.origin import Origin
from confide.audit.registry import Claim, claims
from confide.audit.standing import LEVEL, Standing, standings


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Parameters
    ----------
    findings : tuple of Finding
        Judged together.
    full : bool
    seconds : float
        Of this process; an audit that was resumed took more.
    kept : int
        Findings that were read from the state.
    stale : bool
        Whether all of them were: nothing was attacked.
    origin : Origin, optional
        What was attacked, with what and when.
    asked : str, optional
        The name whose claims were attacked alone (`registry.claims`); None for all claims.
    """

    findings: tuple[Finding, ...]
    full: bool
    seconds: float
    kept: int = 0
    stale: bool = False
    origin: Origin | None = None
    asked: str | None = None

    @property
    def registered(self) -> int:
        """How many claims there are, attacked or not."""
        return len(claims())

    @property
    def standings(self) -> list[Standing]:
        """How each claim that was attacked stands."""
        return standings(self.findings, full=self.full)

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Attacks that succeeded."""
        return tuple(found for found in self.findings if found.verdict is Verdict.BROKEN)

    def summary(self) -> list[tuple[Claim, Finding, Verdict]]:
        """Return a row a claim: the attack with the largest lower bound, and the verdict of all."""
        return [(one.claim, one.worst, one.verdict) for one in self.standings]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "mode": "full" if self.full else "quick",
            "asked": self.asked,
            "registered": self.registered,
            "level": LEVEL,
            "seconds": round(self.seconds, 1),
            "origin": None if self.origin is None else self.origin.to_dict(),
            "broken": sorted({found.claim for found in self.broken}),
            "claims": [one.to_dict() for one in self.standings],
            "findings": [found.to_dict() for found in self.findings],
        }
