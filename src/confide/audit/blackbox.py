"""Outputs of neighbours told apart: a lower bound on epsilon, with confidence.

A rule is learned on one half of the outputs: a score (likelihood ratio on cells, single coordinates, linear
and quadratic likelihood ratios, a random forest) and a threshold. On the other half its hits on one table
and alarms on the other are counted. With Clopper-Pearson bounds p on the rate of hits from below and q on
that of alarms from above, (epsilon, delta)-DP fails unless p <= e^epsilon q + delta.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit.finding import Finding, Verdict
from confide.audit.registry import Claim, Floats, Law, Pair
from confide.mechanisms import RandomStream

Score = Callable[[Floats], Floats]
#: Distinct outputs up to which each is a cell of its own.
_CELLS = 256
_COORDINATES = 32
#: Error at which thresholds are compared while learning; decides nothing.
_LEARNING = 1e-4


def clopper_pearson(hits: Any, runs: int, error: float) -> tuple[Any, Any]:
    """Return bounds of a rate, each wrong with probability at most `error`; arrays of hits too."""
    from scipy.special import betaincinv

    hits = np.asarray(hits, dtype=np.float64)
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1, error), 0.0)
    high = np.where(hits < runs, betaincinv(hits + 1, np.maximum(runs - hits, 1), 1 - error), 1.0)
    return low, high


@dataclass(frozen=True)
class Counts:
    """What a rule did on fresh outputs: hits on one table, alarms on the other, of so many runs each."""

    hits: int
    alarms: int
    runs: int

    def epsilon(self, delta: float, error: float) -> float:
        """Return a lower bound on epsilon at `delta`, wrong with probability at most `error`."""
        low, _ = clopper_pearson(self.hits, self.runs, error / 2)
        _, high = clopper_pearson(self.alarms, self.runs, error / 2)
        return max(0.0, math.log((float(low) - delta) / float(high))) if low > delta else 0.0

    def p_value(self, epsilon: float, delta: float) -> float:
        """Return the least error at which the bound exceeds the claim; 1 where none does.

        Valid: bounds of smaller error contain those of larger error, so the claim is rejected at an error a
        exactly where the p-value is below a.
        """
        if self.epsilon(delta, 1.0) <= epsilon:
            return 1.0
        low, high = -300.0, 0.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.epsilon(delta, 10.0**middle) > epsilon else (middle, high)
        return 10.0**high


def scores(here: Floats, there: Floats, *, forest: bool) -> Iterator[Score]:
    """Yield scores that tell training outputs of two tables apart, larger on `there`."""
    cells = [Counter(map(tuple, side.tolist())) for side in (here, there)]
    if len(cells[0] | cells[1]) <= _CELLS:
        ratio = {x: math.log((cells[1][x] + 0.5) / (cells[0][x] + 0.5)) for x in cells[0] | cells[1]}
        yield lambda rows: np.array([ratio.get(tuple(row), 0.0) for row in rows.tolist()])
        return
    for j in range(min(here.shape[1], _COORDINATES)):
        yield lambda rows, j=j: rows[:, j]
    centre = np.median(np.concatenate([here, there]), axis=0)
    spread = np.median(np.abs(np.concatenate([here, there]) - centre), axis=0) + 1e-300

    def scaled(rows: Floats) -> Floats:  # one wild output must not blind the rule
        return np.clip((rows - centre) / spread, -1e3, 1e3)

    a, b = scaled(here), scaled(there)
    means, variances = [x.mean(axis=0) for x in (a, b)], [x.var(axis=0) + 1e-9 for x in (a, b)]
    if here.shape[1] > 1:
        pooled = np.cov(np.concatenate([a - means[0], b - means[1]]).T) + 1e-6 * np.eye(a.shape[1])
        direction = np.linalg.solve(pooled, means[1] - means[0])
        yield lambda rows: scaled(rows) @ direction
    yield lambda rows: (
        (scaled(rows) - means[0]) ** 2 / variances[0] - (scaled(rows) - means[1]) ** 2 / variances[1]
    ).sum(axis=1)
    yield lambda rows: np.abs(scaled(rows)).sum(axis=1)
    if forest:
        from sklearn.ensemble import RandomForestClassifier

        trained = RandomForestClassifier(
            60, min_samples_leaf=20, max_samples=min(1.0, 20_000 / len(a)), random_state=0
        )
        trained.fit(np.concatenate([a, b]), np.repeat([0, 1], [len(a), len(b)]))
        yield lambda rows: np.asarray(trained.predict_proba(scaled(rows)))[:, 1]


def attack(here: Floats, there: Floats, delta: float, *, forest: bool = False) -> Counts:
    """Learn a rule on one half of the outputs [count, d] of each table, and count on the other half."""
    half = len(here) // 2
    runs = len(here) - half
    best, rule = -math.inf, None
    for score in scores(here[:half], there[:half], forest=forest):
        sides = [np.sort(score(side[:half])) for side in (here, there)]
        cuts = np.unique(np.quantile(np.concatenate(sides), np.linspace(0.001, 0.999, 400)))
        for upper in (True, False):
            count = [_beyond(side, cuts, upper=upper) for side in sides]
            for role in (0, 1):
                low, _ = clopper_pearson(count[role], half, _LEARNING)
                _, high = clopper_pearson(count[1 - role], half, _LEARNING)
                gain = np.log(np.maximum(low - delta, 1e-300) / high)
                if gain.max() > best:
                    best, rule = float(gain.max()), (score, cuts[int(gain.argmax())], upper, role)
    assert rule is not None
    score, cut, upper, role = rule
    fresh = [score(side[half:]) for side in (here, there)]
    count = [int(((side >= cut) if upper else (side <= cut)).sum()) for side in fresh]
    return Counts(count[role], count[1 - role], runs)


def _beyond(ordered: Floats, cuts: Floats, *, upper: bool) -> Any:
    if upper:
        return ordered.size - np.searchsorted(ordered, cuts, side="left")
    return np.searchsorted(ordered, cuts, side="right")


def check(claim: Claim, pair: Pair, count: int, stream: RandomStream, *, full: bool, error: float) -> Finding:
    """Attack a claim by `count` runs on each table of a pair; `error` is that of the reported bound."""
    here, there = (
        claim.sample(table, count, stream.child(side))
        for side, table in (("here", pair.here), ("there", pair.there))
    )
    delta = float(claim.delta)
    counts = attack(here, there, delta, forest=full and here.shape[1] > 1)
    return Finding(
        claim.name, "black box", Verdict.HOLDS, counts.epsilon(delta, error), pair.name, count,
        counts.p_value(float(claim.epsilon), delta),
    )  # fmt: skip


def fit(claim: Claim, pair: Pair, count: int, stream: RandomStream) -> Finding | None:
    """Hold `count` draws on one table against the exact law; None where they cannot be.

    The p-value is that of the worst outcome's exact binomial test, times the number of outcomes.
    """
    if claim.law is None or not claim.fits:
        return None
    law = claim.law(pair.here)
    rows = claim.sample(pair.here, count, stream.child("fit"))
    found = Counter(row[0] if len(row) == 1 else tuple(row) for row in rows.tolist())
    return Finding(
        claim.name,
        "law of draws",
        Verdict.HOLDS,
        pair=pair.name,
        tried=count,
        p_value=law_p_value(law, found, count),
    )


def law_p_value(law: Law, found: Counter[Any], count: int) -> float:
    """Return the p-value of `count` draws under a law; draws that it does not list fall into its lumps."""
    from scipy.stats import binom

    listed = {x: pair for x, pair in law.items() if not isinstance(x, str)}
    table = [(found[x], float(low), float(high)) for x, (low, high) in listed.items()]
    lumps = float(sum((high for x, (_, high) in law.items() if isinstance(x, str)), Fraction(0)))
    table.append((count - sum(found[x] for x in listed), 0.0, lumps))
    worst = min(
        min(binom.sf(n - 1, count, min(1.0, high)), binom.cdf(n, count, low)) for n, low, high in table
    )
    return min(1.0, 2 * len(table) * float(worst))


def one_run_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return a bound on the probability of so many right guesses under (epsilon, delta)-DP.

    Steinke, Nasr & Jagielski, "Privacy Auditing with One (1) Training Run" (NeurIPS 2023), theorem 5.2: with
    f(v) = P(Binomial(r, e^epsilon / (1 + e^epsilon)) >= v),
    P(W >= v) <= f(v) + 2 m delta max over i in 1..m of (f(v - i) - f(v)) / i.
    """
    from scipy.special import expit
    from scipy.stats import binom

    chance = float(expit(epsilon))
    base = float(binom.sf(correct - 1, guesses, chance))
    steps = np.arange(1, canaries + 1)
    more = (binom.sf(correct - steps - 1, guesses, chance) - base) / steps
    return min(1.0, base + 2 * canaries * delta * float(more.max()))


def one_run(claim: Claim, stream: RandomStream, *, repeats: int, error: float) -> Finding | None:
    """Attack a training by canaries set by coins, some independent trainings taken together."""
    if claim.one_run is None:
        return None
    told = [claim.one_run(stream.child(f"run {i}")) for i in range(repeats)]
    bits, guesses = (np.concatenate([np.asarray(side[k]) for side in told]) for k in (0, 1))
    made, delta = int((guesses != 0).sum()), float(claim.delta)
    right = int(((guesses == bits) & (guesses != 0)).sum())

    def p(epsilon: float) -> float:
        return one_run_p_value(right, made, bits.size, epsilon, delta)

    low, high = 0.0, 40.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if p(middle) <= error else (low, middle)
    return Finding(
        claim.name, "one run", Verdict.HOLDS, low, f"{bits.size} canaries", repeats, p(float(claim.epsilon))
    )
