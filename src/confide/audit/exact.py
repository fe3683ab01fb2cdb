"""Privacy profiles of laws that can be enumerated, in rationals and intervals.

delta(epsilon) = sup over sets S of P(S) - e^epsilon Q(S) = sum over outcomes of max(0, P - e^epsilon Q). Each
probability is an interval, e^epsilon is enclosed in rationals: a claim is broken only where the lower end of
delta(epsilon) lies above its delta, and proved on the pair where the upper end does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit.finding import Finding, Verdict
from confide.audit.registry import Claim, Law, Pair
from confide.mechanisms.enclosure import exp_minus

#: Of `measured`, which floats compute: above their errors.
_ROUNDING = 1e-12
#: Share of a claim from which a bound is called tight.
_TIGHT = 0.9


def growth(epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Enclose e^epsilon within a relative 2^-250."""
    bits = 256 + math.ceil(float(epsilon) * 1.4427)
    low, high = exp_minus(epsilon, bits)
    return Fraction(1 << bits, high), Fraction(1 << bits, low)


def certain(law: Mapping[Any, Fraction]) -> Law:
    """Return a law of exact probabilities."""
    return {outcome: (p, p) for outcome, p in law.items()}


def nearly(law: Mapping[Any, float], error: float) -> dict[Any, tuple[Fraction, Fraction]]:
    """Return a law of probabilities that are right within a relative `error`."""
    slack = Fraction(error)
    return {outcome: (Fraction(p) * (1 - slack), Fraction(p) * (1 + slack)) for outcome, p in law.items()}


def excess(here: Law, there: Law, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Enclose delta(epsilon) of P = `here` against Q = `there`.

    Returns
    -------
    low, high : Fraction
    """
    e_low, e_high = growth(epsilon)
    nothing = (Fraction(0), Fraction(0))
    low = high = Fraction(0)
    for outcome, (p_low, p_high) in here.items():
        q_low, q_high = there.get(outcome, nothing)
        low += max(Fraction(0), p_low - e_high * q_high)
        high += max(Fraction(0), p_high - e_low * q_low)
    return low, high


def measured(here: Law, there: Law, delta: Fraction) -> float:
    """Return the least epsilon at which both directions have the given delta, from below, in floats."""
    return max(_measured(here, there, float(delta)), _measured(there, here, float(delta))) * (1.0 - _ROUNDING)


def _measured(here: Law, there: Law, delta: float) -> float:
    shared = list(here)
    p = np.array([float(here[x][0]) for x in shared])
    q = np.array([float(there[x][1]) if x in there else 0.0 for x in shared])
    if np.maximum(p * (q == 0), 0).sum() > delta:
        return math.inf
    p, q = p[q > 0], q[q > 0]
    if delta == 0:
        return max(0.0, float(np.log(p[p > 0] / q[p > 0]).max(initial=0.0)))
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(p - math.exp(middle) * q, 0).sum() > delta else (low, middle)
    return low


def worst_first(claim: Claim) -> list[Pair]:
    """Return a claim's pairs, those first whose laws are furthest apart; as they are without a law."""
    law, pairs = claim.law, list(claim.pairs())
    if law is None:
        return pairs
    return sorted(pairs, key=lambda pair: -measured(law(pair.here), law(pair.there), claim.delta))


def check(claim: Claim, pairs: Iterable[Pair], *, search: bool) -> Finding | None:
    """Attack a claim by its laws.

    Parameters
    ----------
    claim : Claim
    pairs : iterable of Pair
    search : bool
        Whether to climb to further pairs as well.

    Returns
    -------
    Finding or None
        None for a claim without a law.
    """
    law = claim.law
    if law is None:
        return None

    def value(pair: Pair) -> float:
        return measured(law(pair.here), law(pair.there), claim.delta)

    tried = list(pairs)
    if search and claim.search is not None:
        tried.append(claim.search(value))
    worst, where, broken, tight, undecided = 0.0, "", False, 0, 0
    for pair in tried:
        here, there = law(pair.here), law(pair.there)
        for one, other in ((here, there), (there, here)):
            low, high = excess(one, other, claim.epsilon)
            broken |= low > claim.delta
            if low <= claim.delta < high:
                near = _measured(one, other, float(claim.delta)) >= _TIGHT * float(claim.epsilon)
                tight, undecided = tight + near, undecided + (not near)
        found = measured(here, there, claim.delta)
        if found >= worst:
            worst, where = found, pair.name
    return Finding(
        claim.name, "exact", Verdict.BROKEN if broken else Verdict.HOLDS, worst, where, len(tried),
        note=_note(tight, undecided),
    )  # fmt: skip


def _note(tight: int, undecided: int) -> str:
    """Return how many directions the error of the law leaves open, those near the claim apart.

    Probabilities that are 0 to within that error leave a direction open also where its bound is small.
    """
    counts = ((tight, "tight to"), (undecided, "undecided"))
    return "; ".join(
        f"{count} directions {word} within the error of the law" for count, word in counts if count
    )
