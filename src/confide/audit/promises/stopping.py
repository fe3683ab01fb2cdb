"""Claims of random stopping: the number of runs, and the best of them on neighbours where the proof is tight.

The laws are computed here from their definition, apart from `confide.privacy.random_stopping`: with F(x) =
E[x^K], the probability that the best run falls into a class of outcomes is F(q) - F(q'), q and q' the
probabilities of a run that it is no better than the class, or worse than it. For eta = 1 and -1/2 everything
is rational, but for a root that is enclosed.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit.exact import nearly
from confide.audit.registry import Floats, Kind, Law, Pair, promise
from confide.mechanisms import RandomStream
from confide.privacy.random_stopping import Stopping, stopping
from confide.tune.runs import draw_runs

#: Epsilon of a run, and a rational below e to it.
_RUN, _GROWTH = Fraction(1, 2), Fraction(16487, 10000)
#: What a run fails with, where it is not pure.
_LOST = Fraction(1, 1000)
#: Mass of the outcome that costs most, below an upper set.
_RARE = Fraction(1, 1000)
_EXPECTED = 3
_SHAPES = {"": Fraction(0), ".geometric": Fraction(1), ".heavy": Fraction(-1, 2)}
Bounds = tuple[Fraction, Fraction]
_BITS = 200
#: Numbers of runs that are told one by one.
_COUNTED = 12


def _power(base: Fraction, eta: Fraction) -> Bounds:
    """Enclose base^-eta for eta = 1 or -1/2, 0 < base <= 1."""
    if eta == 1:
        return 1 / base, 1 / base
    scaled = base.numerator * (1 << 2 * _BITS) // base.denominator
    low = math.isqrt(scaled)
    return Fraction(low, 1 << _BITS), Fraction(low + 2, 1 << _BITS)


def _expected(law: Stopping) -> float:
    """Return E[K] = F'(1)."""
    g, eta = float(law.gamma), float(law.eta)
    if g == 1:
        return 1.0
    slope = -math.log(g) if eta == 0 else -math.expm1(eta * math.log(g)) / eta
    return (1 - g) / (g * slope)


def checked(*shapes: Fraction) -> None:
    """Raise where a law does not have the mean that is asked for: its runs might never end."""
    for eta in shapes or _SHAPES.values():
        law = stopping(_EXPECTED, eta)
        found, said = _expected(law), law.mean
        if not (math.isclose(found, _EXPECTED, rel_tol=1e-6) and found * (1 - 1e-12) <= said):
            raise ValueError(f"of {_EXPECTED} expected runs {found:.6g} are made, {said:.6g} are told")


def _tables(eta: Fraction, name: str) -> list[Pair]:
    checked(eta)
    return [Pair(name, 0, 1)]


def _generating(law: Stopping, x: Fraction) -> Bounds:
    """Enclose F(x) = E[x^K] = ((1 - (1 - gamma) x)^-eta - 1) / (gamma^-eta - 1)."""
    if x in (0, 1):
        return x, x
    if law.eta == 0:
        g = float(law.gamma)
        value = Fraction(math.log1p((g - 1) * float(x)) / math.log(g))
        return value * (1 - Fraction(1, 10**12)), value * (1 + Fraction(1, 10**12))
    top, below = _power(1 - (1 - law.gamma) * x, law.eta), _power(law.gamma, law.eta)
    if law.eta == 1:
        value = (top[0] - 1) / (below[0] - 1)
        return value, value
    return (1 - top[1]) / (1 - below[0]), (1 - top[0]) / (1 - below[1])


def _run_law(side: int, lost: Fraction) -> list[Fraction]:
    """Return a run on one of two neighbours, an outcome a score; the third scores high, a fourth highest.

    The outcomes differ by e^epsilon at most, but for the fourth, which one table alone has. The second is
    rare, below an upper set that is likelier on the other table: the worst case of the proof.
    """
    growth, rest = _GROWTH, 1 / (1 + _GROWTH)
    pure = [rest - _RARE, _RARE, growth * rest] if side else [growth * (rest - _RARE), growth * _RARE, rest]
    return [*((1 - lost) * p for p in pure), lost if side else Fraction(0), Fraction(0) if side else lost]


def _cumulative(side: int, lost: Fraction) -> list[Fraction]:
    return [sum(_run_law(side, lost)[:k], Fraction(0)) for k in range(6)]


def _best(law: Stopping, lost: Fraction) -> Any:
    def outputs(side: int, count: int, stream: RandomStream) -> Floats:
        sizes = [draw_runs(law, stream.child(str(i))) for i in range(count)]
        cuts = np.array([float(c) for c in _cumulative(side, lost)[1:-1]])
        draws = np.searchsorted(cuts, stream.child("runs").bits(sum(sizes)) / 2.0**64, side="right")
        ends = np.cumsum(sizes)
        best = [draws[end - size : end].max() for end, size in zip(ends, sizes, strict=True)]
        return np.array(best, dtype=np.float64)

    return outputs


def _winner(law: Stopping, lost: Fraction) -> Any:
    def winner(side: int) -> Law:
        powers = [_generating(law, x) for x in _cumulative(side, lost)]
        found = {}
        for i in range(5):
            low, high = powers[i + 1][0] - powers[i][1], powers[i + 1][1] - powers[i][0]
            if high > 0 and _run_law(side, lost)[i] > 0:
                found[float(i)] = max(Fraction(0), low), high
        return found

    return winner


def _counts(law: Stopping) -> Any:
    """Return the law of the number of runs: P(k) / P(k - 1) = (1 - gamma) (k - 1 + eta) / k."""

    def counts(_: Any) -> Law:
        gamma, eta = float(law.gamma), float(law.eta)
        # P(1) = F'(0).
        first = (1 - gamma) / -math.log(gamma) if eta == 0 else eta * (1 - gamma) / (gamma**-eta - 1)
        chances = [first]
        for k in range(2, _COUNTED):
            chances.append(chances[-1] * (1 - gamma) * (k - 1 + eta) / k)
        told: dict[Any, Bounds] = nearly({float(k): p for k, p in enumerate(chances, start=1)}, 1e-9)
        rest = 1 - sum(chances)
        return {**told, "more": (Fraction(rest * (1 - 1e-6)), Fraction(rest * (1 + 1e-6)))}

    return counts


def _number(law: Stopping) -> Any:
    def outputs(_: Any, count: int, stream: RandomStream) -> Floats:
        return np.array([draw_runs(law, stream.child(str(i))) for i in range(count)], dtype=np.float64)

    return outputs


def _one(outputs: Any) -> Any:
    return lambda table, stream: outputs(table, 1, stream)


_PROOF = "Papernot & Steinke 2022, tightened; confide.privacy.random_stopping"


def claim(name: str, eta: Fraction) -> None:
    """Register the best of pure runs, that of runs that may fail, and the number of runs, of one shape."""
    law = stopping(_EXPECTED, eta)
    slow = 5 if eta < 0 else 1  # few proposals are accepted
    for suffix, lost in (("", Fraction(0)), (".approximate", _LOST)):
        total = law.approximate(_RUN, lost)
        outputs = _best(law, lost)
        promise(
            f"tune.random_stopping{name}{suffix}",
            Kind.MECHANISM,
            *total,
            "replace_one",
            _PROOF,
            lambda: _tables(eta, "worst of the proof"),
            run=_one(outputs),
            outputs=outputs,
            law=_winner(law, lost),
            covers=("event:random_stopping",),
            draws=(2_000 if lost else 20_000) // slow,  # the same draws, but for a fourth outcome
            quick=(40 if lost else 300) // slow,
            replayed=False,
        )
    promise(
        f"tune.number_of_runs{name}",
        Kind.MECHANISM,
        0,
        0,
        "replace_one",
        "drawn without a look at data; confide.tune.runs",
        lambda: _tables(eta, "nothing differs"),
        run=_one(_number(law)),
        outputs=_number(law),
        law=_counts(law),
        draws=20_000 // slow,
        quick=300 // slow,
        replayed=False,
    )


for _name, _eta in _SHAPES.items():
    claim(_name, _eta)
