"""Outputs of neighbours told apart: a lower bound on epsilon, with confidence.

Rules are learned on some outputs of each table: a score (likelihood ratio on cells, single coordinates and
their histograms, likelihood ratios of normal and Laplace fits, a random forest), a threshold, and the table
that it points to. Then fair coins say of which table each of N fresh runs is, and a rule guesses the table,
or abstains.

Theorem (`Guesses`). Let p and q be the rates at which the rule fires on the table that it points to and on
the other; (epsilon, delta)-DP says p <= e^epsilon q + delta. A run is a right guess with probability p / 2
and a wrong one with q / 2. Mark a right guess with probability min(1, delta / p): the marked ones, B, are at
most Binomial(N, delta / 2), and given the number g of the other guesses, the right ones among them are
Binomial(g, c) with c <= e^epsilon / (1 + e^epsilon). So for any b, the test that takes b from the right
guesses and rejects where P(Binomial(right - b + wrong, c) >= right - b) <= a' errs with probability at most
a' + P(B > b). Proof of the last step: that tail is the incomplete beta I_c(right - b, wrong + 1), which falls
in the first argument, so that on B <= b it is at least the p-value of the unmarked guesses.

One binomial in place of two separate bounds of p and q (`Counts`, kept for outputs that lie there already,
as many of each table) needs about half the runs.

One rule has the largest bound that its learning runs vouch for; it takes a rate of 0 for luck, and passes by
what happens in one run of a hundred and never on the other table. Others are those that would tell most
against the claim (`_evidence`). All guess on the same fresh runs, and share the error (Bonferroni, `Tried`).
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
#: Bins of a coordinate, and how often a value must be there to have one of its own.
_BINS, _REPEATS = 32, 3
#: Distinct outputs up to which each is a cell of its own.
_CELLS = 256
_COORDINATES = 32
#: Error at which thresholds are compared while learning; decides nothing.
_LEARNING = 1e-4
#: Errors at which rates are taken while the rules against the claim are learned, and the share of the
#: reported error that the first rule has; the rest is divided among these.
_BOLD, _FIRST = (0.01, 0.3), 0.8
#: Runs from which a third of them is enough to learn from.
_MANY = 1000
#: Stand for NaN and infinities: what a mechanism returns is never one of them but by chance.
_NOTHING, _ENDLESS = -1.2345e300, 1e300
#: Part of an error that is spent on what delta excuses.
_EXCUSED = 0.05


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
        """Return the least error at which the bound exceeds the claim; 1 where none does."""
        return _least_error(lambda error: self.epsilon(delta, error), epsilon)


@dataclass(frozen=True)
class Guesses:
    """What a rule said of runs whose tables fair coins chose: right and wrong guesses, of so many runs."""

    right: int
    wrong: int
    runs: int

    def epsilon(self, delta: float, error: float) -> float:
        """Return a lower bound on epsilon at `delta`, wrong with probability at most `error`."""
        from scipy.special import betaincinv
        from scipy.stats import binom

        excused, spent = 0, 0.0
        if delta > 0:
            spent = _EXCUSED * error
            excused = int(binom.isf(spent, self.runs, delta / 2))
        if self.right <= excused:
            return 0.0
        chance = float(betaincinv(self.right - excused, self.wrong + 1, error - spent))
        if chance == 1:
            return math.inf
        return max(0.0, math.log(chance) - math.log1p(-chance)) if chance > 0.5 else 0.0

    def p_value(self, epsilon: float, delta: float) -> float:
        """Return the least error at which the bound exceeds the claim; 1 where none does."""
        return _least_error(lambda error: self.epsilon(delta, error), epsilon)


@dataclass(frozen=True)
class Tried:
    """What several rules said of the same runs: each has its share of the error, the first one most of it.

    Valid (Bonferroni), whatever the rules are, since they were learned on other runs.
    """

    rules: tuple[Guesses, ...]

    def epsilon(self, delta: float, error: float) -> float:
        """Return the best lower bound on epsilon, wrong with probability at most `error`."""
        return max(rule.epsilon(delta, share * error) for rule, share in self._shared())

    def p_value(self, epsilon: float, delta: float) -> float:
        """Return the least error at which the bound exceeds the claim; 1 where none does."""
        return min(1.0, *(rule.p_value(epsilon, delta) / share for rule, share in self._shared()))

    def _shared(self) -> list[tuple[Guesses, float]]:
        more = len(self.rules) - 1
        shares = [_FIRST, *[(1 - _FIRST) / more] * more] if more else [1.0]
        return list(zip(self.rules, shares, strict=True))


def numbers(rows: Floats) -> Floats:
    """Return outputs with what is no finite number as one: no rule can order it otherwise."""
    return np.nan_to_num(rows, nan=_NOTHING, posinf=_ENDLESS, neginf=-_ENDLESS)


def _least_error(bound: Callable[[float], float], epsilon: float) -> float:
    """Return the p-value of a claim from bounds that are valid at each error.

    Valid: bounds of smaller error contain those of larger error, so the claim is rejected at an error a
    exactly where the p-value is below a.
    """
    if bound(1.0) <= epsilon:
        return 1.0
    low, high = -300.0, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if bound(10.0**middle) > epsilon else (middle, high)
    return 10.0**high


@dataclass(frozen=True)
class Rule:
    """A guess: outputs whose score is beyond the cut are of table `role` (0: here, 1: there)."""

    score: Score
    cut: float
    upper: bool
    role: int

    def fires(self, rows: Floats) -> int:
        """Return on how many of these outputs the rule speaks."""
        values = self.score(rows)
        return int(((values >= self.cut) if self.upper else (values <= self.cut)).sum())


def scores(here: Floats, there: Floats, *, forest: bool) -> Iterator[Score]:
    """Yield scores that tell training outputs of two tables apart, larger on `there`."""
    cells = [Counter(map(tuple, side.tolist())) for side in (here, there)]
    if len(cells[0] | cells[1]) <= _CELLS:
        ratio = {x: math.log((cells[1][x] + 0.5) / (cells[0][x] + 0.5)) for x in cells[0] | cells[1]}
        yield lambda rows: np.array([ratio.get(tuple(row), 0.0) for row in rows.tolist()])
        if here.shape[1] == 1:
            return
    for j in range(min(here.shape[1], _COORDINATES)):
        yield lambda rows, j=j: rows[:, j]
        yield _histogram(here[:, j], there[:, j], j)
    centre = np.median(np.concatenate([here, there]), axis=0)
    spread = np.median(np.abs(np.concatenate([here, there]) - centre), axis=0) + 1e-300

    def scaled(rows: Floats) -> Floats:  # one wild output must not blind the rule
        with np.errstate(over="ignore"):
            return np.clip((rows - centre) / spread, -1e3, 1e3)

    a, b = scaled(here), scaled(there)
    means, variances = [x.mean(axis=0) for x in (a, b)], [x.var(axis=0) + 1e-9 for x in (a, b)]
    if here.shape[1] > 1:
        pooled = np.cov(np.concatenate([a - means[0], b - means[1]]).T) + 1e-6 * np.eye(a.shape[1])
        direction = np.linalg.solve(pooled, means[1] - means[0])
        yield lambda rows: scaled(rows) @ direction
        # Independent noise, and of many coordinates few that differ: less is learned, hence less mistaken.
        each = (means[1] - means[0]) / (variances[0] + variances[1])
        told = np.abs(means[1] - means[0]) > 2 * np.sqrt((variances[0] + variances[1]) / len(a))
        yield lambda rows: scaled(rows) @ each
        yield lambda rows: scaled(rows) @ (each * told)
        middles = [np.median(x, axis=0) for x in (a, b)]
        widths = [np.abs(x - m).mean(axis=0) + 1e-9 for x, m in zip((a, b), middles, strict=True)]
        width = (widths[0] + widths[1]) / 2

        def laplace(rows: Floats, kept: Any) -> Floats:
            z = scaled(rows)
            return ((np.abs(z - middles[0]) - np.abs(z - middles[1])) / width * kept).sum(axis=1)

        yield lambda rows: laplace(rows, 1.0)
        yield lambda rows: laplace(rows, told)
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


def _histogram(here: Floats, there: Floats, column: int) -> Score:
    """Return the log-likelihood ratio of one coordinate: values that repeat by themselves, others in bins."""
    values, codes, counts = np.unique(np.concatenate([here, there]), return_inverse=True, return_counts=True)
    often = np.flatnonzero(counts >= _REPEATS)
    alone = counts < _REPEATS
    bars = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1], method="nearest"))
    sides = [np.bincount(part, minlength=values.size) for part in (codes[: here.size], codes[here.size :])]
    exact = np.log((sides[1][often] + 0.5) / (sides[0][often] + 0.5))
    places = np.searchsorted(bars, values[alone], side="right")
    binned = [np.bincount(places, side[alone], bars.size + 1) + 0.5 for side in sides]
    other, known = np.log(binned[1] / binned[0]), values[often]

    def score(rows: Floats) -> Floats:
        cells = rows[:, column]
        found = other[np.searchsorted(bars, cells, side="right")]
        if known.size:
            place = np.minimum(np.searchsorted(known, cells), known.size - 1)
            found = np.where(known[place] == cells, exact[place], found)
        return found

    return score


def _evidence(hits: Any, alarms: Any, runs: int, delta: float, epsilon: float, error: float) -> Any:
    """Return what one run tells against a claim, at rates that err by that: nats, negative where nothing.

    Of guesses that are right with probability s, where the claim allows c, each tells KL(s || c).
    """
    from scipy.special import expit, rel_entr

    low, high = clopper_pearson(hits, runs, error)[0] - delta, clopper_pearson(alarms, runs, error)[1]
    speaks = np.maximum(low, 0.0) + high
    share, chance = np.maximum(low, 0.0) / speaks, float(expit(epsilon))
    told = speaks * (rel_entr(share, chance) + rel_entr(1 - share, 1 - chance))
    return np.where(share > chance, told, -1.0)


def _cuts(sides: list[Floats]) -> Floats:
    """Return thresholds: quantiles of both sides, and the last values of each end, ever sparser."""
    both = np.sort(np.concatenate(sides))
    ends = np.unique(np.geomspace(1, max(1.0, both.size / 1000), 40).astype(np.int64)) - 1
    return np.unique(
        np.concatenate([np.quantile(both, np.linspace(0.001, 0.999, 400)), both[ends], both[-1 - ends]])
    )


def learn(
    here: Floats, there: Floats, delta: float, *, epsilon: float | None = None, forest: bool = False
) -> tuple[Rule, ...]:
    """Learn from outputs [count, d] of each table the rules that should tell most about others.

    The first has the largest bound. With an `epsilon`, those that tell most against (epsilon, delta) follow,
    where there are any. Scores are fitted on the first half and compared on the second: a forest knows its
    own trees by heart.
    """
    fitted = max(1, len(here) // 2)
    start = min(fitted, len(here) - 1)  # of a single output: on itself
    half, bold = len(here) - start, () if epsilon is None else _BOLD
    heights = [-math.inf, *(0.0 for _ in bold)]
    rules: list[Rule | None] = [None for _ in heights]
    for score in scores(here[:fitted], there[:fitted], forest=forest):
        sides = [np.sort(score(side[start:])) for side in (here, there)]
        cuts = _cuts(sides)
        for upper in (True, False):
            count = [_beyond(side, cuts, upper=upper) for side in sides]
            for role in (0, 1):
                hits, alarms = count[role], count[1 - role]
                low, _ = clopper_pearson(hits, half, _LEARNING)
                _, high = clopper_pearson(alarms, half, _LEARNING)
                told = [np.log(np.maximum(low - delta, 1e-300) / high)]
                told += [_evidence(hits, alarms, half, delta, epsilon or 0.0, error) for error in bold]
                for place, gain in enumerate(told):
                    if gain.max() > heights[place]:
                        heights[place] = float(gain.max())
                        rules[place] = Rule(score, float(cuts[int(gain.argmax())]), upper, role)
    assert rules[0] is not None
    return tuple(dict.fromkeys(rule for rule in rules if rule is not None))


def attack(here: Floats, there: Floats, delta: float, *, forest: bool = False) -> Counts:
    """Learn a rule on one half of the outputs [count, d] of each table, and count on the other half."""
    half = len(here) // 2
    rule = learn(here[:half], there[:half], delta, forest=forest)[0]
    fired = [rule.fires(side[half:]) for side in (here, there)]
    return Counts(fired[rule.role], fired[1 - rule.role], len(here) - half)


def _beyond(ordered: Floats, cuts: Floats, *, upper: bool) -> Any:
    if upper:
        return ordered.size - np.searchsorted(ordered, cuts, side="left")
    return np.searchsorted(ordered, cuts, side="right")


def _taught(count: int) -> int:
    """Return how many of the runs on each table teach the rules."""
    return count // 3 if count >= _MANY else count // 2


def ceiling(found: Finding, delta: float, error: float) -> float:
    """Return the largest bound that a finding's runs could have given, if every guess had been right.

    Of one rule, which has the whole error, and speaks for one table: it is right at most as often as coins
    chose that one. A bound at `error` that cannot pass the claim cannot break it.

    Parameters
    ----------
    found : Finding
        Of the black box, of support or of one run; infinite for other layers. Where an earlier version did
        not tell how many guesses there could be: half of the coins, and infinite for one run.
    delta, error : float
    """
    if found.layer == "black box":
        fresh = found.tried - _taught(found.tried)
        return Guesses(found.guesses or fresh, 0, 2 * fresh).epsilon(delta, error)
    if found.layer == "support":
        runs = found.tried - found.tried // 2
        return Counts(runs, 0, runs).epsilon(delta, error)
    if found.layer == "one run" and found.guesses:
        return one_run_bound(found.guesses, found.guesses, found.canaries, found.tried, delta, error)
    return math.inf


def check(claim: Claim, pair: Pair, count: int, stream: RandomStream, *, full: bool, error: float) -> Finding:
    """Attack a claim by `count` runs on each table of a pair, about; `error` is that of the reported bound.

    The first third of the runs (half of a few) teaches the rules. Of the others, as many are made on each
    table as fair coins say.
    """
    taught = _taught(count)

    def drawn(table: Any, times: int, name: str) -> Floats:
        return numbers(claim.sample(table, times, stream.child(name)))

    pilot = [drawn(table, taught, side) for side, table in (("here", pair.here), ("there", pair.there))]
    delta, epsilon, runs = float(claim.delta), float(claim.epsilon), 2 * (count - taught)
    rules = learn(pilot[0], pilot[1], delta, epsilon=epsilon, forest=full and pilot[0].shape[1] > 1)
    there = int((stream.child("coins").bits(runs) >> np.uint64(63)).sum())
    fired = np.zeros((len(rules), 2), dtype=np.int64)
    for side, table, times in ((0, pair.here, runs - there), (1, pair.there, there)):
        if times:
            rows = drawn(table, times, f"fresh {('here', 'there')[side]}")
            fired[:, side] = [rule.fires(rows) for rule in rules]
    tried = Tried(tuple(
        Guesses(int(told[rule.role]), int(told[1 - rule.role]), runs)
        for rule, told in zip(rules, fired, strict=True)
    ))  # fmt: skip
    return Finding(
        claim.name, "black box", Verdict.HOLDS, tried.epsilon(delta, error), pair.name, count,
        tried.p_value(epsilon, delta), guesses=max(there, runs - there),
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


def one_run_bound(right: int, guesses: int, canaries: int, runs: int, delta: float, error: float) -> float:
    """Return a lower bound on epsilon from right guesses of canaries, wrong with probability at most `error`.

    Parameters
    ----------
    right, guesses : int
        Of all trainings.
    canaries : int
        m, of one training.
    runs : int
        Independent trainings, each with as many guesses.

    Notes
    -----
    Steinke, Nasr & Jagielski, "Privacy Auditing with One (1) Training Run" (NeurIPS 2023), section 5: given
    what is guessed, the right ones among r guesses are dominated by W + F, W ~ Binomial(r, e^epsilon / (1 +
    e^epsilon)) and F in 0..m, independent, of mean at most 2 m delta. Theorem 5.2 takes the worst F, which
    may be m all at once. Of T independent trainings it cannot be: the F are independent, and within r, since
    no more guesses can be right. A sum of T numbers in [0, r] of mean at most u r exceeds x T r with
    probability at most exp(-T KL(x || u)) (Hoeffding 1963, theorem 1), so for b = x T r the test that takes b
    from the right guesses and then a binomial tail errs by at most that much more. One training with T = 1
    is of no use there, and theorem 5.2 is not either at m delta near 1.
    """
    from scipy.special import betaincinv

    excused, spent = 0, 0.0
    if delta > 0:
        spent = _EXCUSED * error
        share = _largest_mean(min(1.0, 2 * canaries * delta * runs / guesses), runs, spent)
        excused = math.ceil(share * guesses)
    if right <= excused:
        return 0.0
    chance = float(betaincinv(right - excused, guesses - right + 1, error - spent))
    if chance == 1:
        return math.inf
    return max(0.0, math.log(chance) - math.log1p(-chance)) if chance > 0.5 else 0.0


def _largest_mean(mean: float, count: int, error: float) -> float:
    """Return what the average of `count` numbers in [0, 1] of that mean exceeds with that probability."""
    from scipy.special import rel_entr

    def distance(x: float) -> float:
        return float(rel_entr(x, mean) + rel_entr(1 - x, 1 - mean))

    if mean >= 1 or count * distance(1.0) <= -math.log(error):
        return 1.0
    low, high = mean, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if count * distance(middle) >= -math.log(error) else (middle, high)
    return high


def one_run(claim: Claim, stream: RandomStream, *, repeats: int, error: float) -> Finding | None:
    """Attack a training by canaries set by coins, some independent trainings taken together.

    Raises
    ------
    ValueError
        If trainings differ in their numbers of canaries or guesses: the bound is for equal ones.
    """
    if claim.one_run is None:
        return None
    told = [claim.one_run(stream.child(f"run {i}")) for i in range(repeats)]
    bits, guesses = (np.array([side[k] for side in told]) for k in (0, 1))
    each = (guesses != 0).sum(axis=1)
    if np.any(each != each[0]) or each[0] == 0:
        raise ValueError("Trainings differ in the number of their guesses, or none is made.")
    delta, made = float(claim.delta), int(each.sum())
    right = int(((guesses == bits) & (guesses != 0)).sum())

    def bound(level: float) -> float:
        return one_run_bound(right, made, bits.shape[1], repeats, delta, level)

    return Finding(
        claim.name, "one run", Verdict.HOLDS, bound(error), f"{bits.size} planted rows", repeats,
        _least_error(bound, float(claim.epsilon)), guesses=made, canaries=bits.shape[1],
    )  # fmt: skip
