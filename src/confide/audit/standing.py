"""How each claim stands after an audit: broken and by what, or held, and whether anything was measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from confide.audit.blackbox import ceiling
from confide.audit.finding import Finding, Verdict
from confide.audit.legend import both, down, judged, passes
from confide.audit.registry import Claim, Kind, claims

#: Probability that any claim that holds is called broken, over a whole audit.
LEVEL = 1e-3
#: Layer -> kinds of claims that a quick audit does not try it on: what is fitted on releases is
#: post-processing, and slower to sample.
_FULL_ALONE = {"support": (Kind.ENGINE, Kind.ESTIMATOR)}


def left_out(claim: Claim, layer: str) -> bool:
    """Return whether a quick audit leaves out a layer that a full one tries on a claim."""
    return claim.kind in _FULL_ALONE.get(layer, ())


def contradicts(found: Finding, claim: Claim) -> bool:
    """Return whether a bound in which no chance is lies above a claim that is said to hold.

    Of a bound with a p-value `judge` decides: it has passed the claim at its share of the error, so that the
    p-value is below that share, and broken.
    """
    proved = found.verdict is Verdict.HOLDS and math.isnan(found.p_value)
    return proved and passes(found.measured, claim.epsilon)


class How(Enum):
    """What an audit says of a claim."""

    BROKEN = "broken"
    MEASURED = "holds: measured"
    UNMEASURED = "holds: nothing measured"


class Tried(Enum):
    """What a layer did to a claim."""

    BROKEN = "broken"
    HELD = "held"
    #: So few runs could not have broken it, if every guess had been right.
    WEAK = "too weak"
    #: Replay met no input that moves.
    STILL = "nothing moved"
    REPORTED = "reported"
    #: `left_out`.
    LEFT = "not in a quick audit"
    NOTHING = "does not apply"


#: Of a layer that tried several pairs.
_STRONGEST = (Tried.BROKEN, Tried.HELD, Tried.WEAK, Tried.STILL, Tried.REPORTED, Tried.NOTHING)


@dataclass(frozen=True)
class Standing:
    """A claim after an audit.

    Parameters
    ----------
    claim : Claim
    findings : tuple of Finding
        Of this claim; at least one.
    error : float
        p-value at which one more statistical finding of the whole audit would be broken (`least`).
    full : bool
        Whether the audit was: a quick one leaves out some layers.
    """

    claim: Claim
    findings: tuple[Finding, ...]
    error: float = LEVEL
    full: bool = True

    @property
    def worst(self) -> Finding:
        """The attack with the largest lower bound on epsilon."""
        return max(self.findings, key=lambda found: -1.0 if math.isnan(found.measured) else found.measured)

    @property
    def verdict(self) -> Verdict:
        """Of all attacks together."""
        return Verdict.HOLDS if self.decisive is None else Verdict.BROKEN

    @property
    def how(self) -> How:
        """Broken, or how it holds. A bound of 0 measures nothing."""
        if self.decisive is not None:
            return How.BROKEN
        return How.MEASURED if self.worst.measured > 0 else How.UNMEASURED

    @property
    def decisive(self) -> Finding | None:
        """The attack that broke it; None where it holds.

        Of several: the largest bound above the claim, else a counter-example, else the least p-value.
        """
        broken = [found for found in self.findings if found.verdict is Verdict.BROKEN]
        return min(broken, key=self._rank, default=None)

    def _rank(self, found: Finding) -> tuple[bool, float, bool, float]:
        above, chance = passes(found.measured, self.claim.epsilon), not math.isnan(found.p_value)
        return not above, -found.measured if above else 0.0, chance, found.p_value if chance else 0.0

    def tried(self, layer: str) -> Tried:
        """Return what a layer did to this claim."""
        words = {self._word(found) for found in self.findings if found.layer == layer}
        left = not self.full and left_out(self.claim, layer)
        return min(words, key=_STRONGEST.index, default=Tried.LEFT if left else Tried.NOTHING)

    def _word(self, found: Finding) -> Tried:
        if found.verdict is Verdict.BROKEN:
            return Tried.BROKEN
        if not judged(found.layer):
            return Tried.REPORTED
        if found.moved == 0:
            return Tried.STILL
        most = ceiling(found, float(self.claim.delta), self.error)
        return Tried.HELD if passes(most, self.claim.epsilon) else Tried.WEAK

    @property
    def numbers(self) -> tuple[str, str]:
        """Claimed and measured epsilon, as people read them."""
        return both(self.claim.epsilon, self.worst.measured)

    def __str__(self) -> str:
        """Return how the claim stands, in one sentence without a full stop."""
        if self.how is How.BROKEN:
            return self._broken()
        return f"{self.how.value} {self.share} of the claim" if self.how is How.MEASURED else self._rests()

    @property
    def share(self) -> str:
        """How much of the claim was measured, rounded down."""
        if not self.worst.measured > 0:
            return "0%"
        if not self.claim.epsilon or math.isinf(self.worst.measured):
            return "more than 100%"
        share = math.floor(100 * Fraction(self.worst.measured) / self.claim.epsilon)
        return f"{share}%" if share else "less than 1%"

    def _rests(self) -> str:
        """Name the layers that would show one counter-example: counts that saw nothing show no privacy."""
        proofs = (found for found in self.findings if math.isnan(found.p_value) and judged(found.layer))
        layers = list(dict.fromkeys(found.layer for found in proofs if found.moved != 0))
        rest = f" and on {', '.join(layers)}" if layers else " alone"
        return f"holds: nothing measured, rests on its proof{rest}"

    def _broken(self) -> str:
        by = self.decisive
        assert by is not None
        place = f", on {by.pair!r}" if by.pair else ""
        above, chance = passes(by.measured, self.claim.epsilon), not math.isnan(by.p_value)
        reasons = (
            "its bound is above the claim" if above else "",
            f"p-value {by.p_value:.2g}" if chance else "",
            by.note,
        )
        reason = "; ".join(filter(None, reasons)) or "a counter-example"
        return f"broken by {by.layer}{place}: {reason}{'' if above else self._beside()}"

    def _beside(self) -> str:
        """Say of a bound that stands beside the verdict that it is not what decided."""
        worst = self.worst
        if not worst.measured > 0:
            return ""
        bound = f"{down(worst.measured)} by {worst.layer}"
        return f" (not by its bound: the largest, {bound}, is not above the claim)"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "claim": self.claim.name,
            "epsilon": float(self.claim.epsilon),
            "delta": float(self.claim.delta),
            "adjacency": self.claim.adjacency.value,
            "measured": self.worst.to_dict()["measured"],
            "layer": self.worst.layer,
            "verdict": self.verdict.value,
            "broken_by": None if self.decisive is None else self.decisive.layer,
            "told": str(self),
        }


def standings(findings: Iterable[Finding], *, full: bool = True) -> list[Standing]:
    """Return how each claim that was attacked stands, in the order of the registry."""
    own, whole = dict[str, list[Finding]](), tuple(findings)
    for found in whole:
        own.setdefault(found.claim, []).append(found)
    error = least(whole)
    return [Standing(claim, tuple(own[claim.name]), error, full) for claim in claims() if claim.name in own]


def counted(findings: Iterable[Finding]) -> dict[str, int]:
    """Return how many attacks, poisonings and run times there are; public names without a claim are none."""
    apart = {"poisoning": "poisoning", "run time": "run time", "registry": ""}
    counts = Counter(apart.get(found.layer, "attack") for found in findings)
    return {name: counts[name] for name in ("attack", "poisoning", "run time")}


def least(findings: Iterable[Finding]) -> float:
    """Return the p-value at which one more finding of an audit would be broken (Holm, `finding.judge`).

    Of m findings with a p-value r are broken: another one is from level / (m - r) on, whatever its rank is,
    since those of smaller p-value are among the r.
    """
    chances = [found for found in findings if not math.isnan(found.p_value)]
    left = sum(found.verdict is Verdict.HOLDS for found in chances)
    return LEVEL / max(1, left)
