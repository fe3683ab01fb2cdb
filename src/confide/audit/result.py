"""What a whole audit found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confide.audit.finding import Finding, Verdict
from confide.audit.legend import LEGEND
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
    kept : tuple of int
        Places in `findings` of those that were read from the state: of an earlier run of the same code.
    stale : bool
        Whether all of them were: nothing was attacked.
    origin : Origin, optional
        What was attacked, with what and when.
    asked : str, optional
        The name whose claims were attacked alone (`registry.claims`); None for all claims.
    cells : int
        How many attacks were planned, those with nothing to try among them; 0 where that is not told.
    """

    findings: tuple[Finding, ...]
    full: bool
    seconds: float
    kept: tuple[int, ...] = ()
    stale: bool = False
    origin: Origin | None = None
    asked: str | None = None
    cells: int = 0

    @property
    def registered(self) -> int:
        """How many claims there are, attacked or not."""
        return len(claims())

    @property
    def standings(self) -> list[Standing]:
        """How each claim that was attacked stands."""
        return standings(self.findings, full=self.full)

    @property
    def nothing(self) -> int:
        """In how many cells a layer had nothing to try."""
        return max(0, self.cells - sum(found.layer in LEGEND for found in self.findings))

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
            "cells": self.cells,
            "nothing_to_try": self.nothing,
            "earlier": {"results": len(self.kept), "all": self.stale, "findings": list(self.kept)},
            "origin": None if self.origin is None else self.origin.to_dict(),
            "broken": sorted({found.claim for found in self.broken}),
            "claims": [one.to_dict() for one in self.standings],
            "findings": [found.to_dict() for found in self.findings],
        }
