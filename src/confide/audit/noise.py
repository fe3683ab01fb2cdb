"""The noise that was added against the law that public parameters name for it.

An answer less the input of its mechanism (`replay` records both) is the noise, in units of the grid. Its law
is public: round(N(0, (multiplier sensitivity / step)^2)), or the discrete Laplace of scale
ceil(sensitivity / step) / epsilon, computed here anew. By a fresh uniform V,

    U = P(K > k) + V P(K = k)

is uniform on [0, 1] for any law of K, given all that was drawn before too. So a whole run, and runs after it,
make one sequence of independent uniform numbers, whatever the scales are and whatever an answer leads to.
A sequence that ends early is filled up with fresh ones: its length is fixed, and no stopping can bias it.

============  ==========================================  ==================================================
statistic     its law                                     what it shows
============  ==========================================  ==================================================
sum of z^2    chi square, z the normal quantile of U      another deviation: of N draws, sqrt(2 / N) of z^2
surprisal     Gamma(N) is the sum of -log 2 min(U, 1-U)   another scale: of Laplace noise, 1 / sqrt(N)
sum of z      N(0, N)                                     a shift
tails         Binomial(N, 2^-j), j = 2 .. 17, both sides  tails cut off, or too heavy
shape         Dvoretzky-Kiefer-Wolfowitz, Massart 1990    any other law
pairs         the same, of differences modulo 1           noise that is used twice
============  ==========================================  ==================================================

Each p-value holds for every N: Chernoff bounds of the Gamma law, exact binomial and normal tails, and
Massart's constant. They are joined by a weighted Bonferroni bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit.finding import Finding, Verdict
from confide.audit.registry import Claim, Floats, Kind, Pair
from confide.audit.replay import Call, Recorder, recording
from confide.mechanisms import RandomStream, Statistic, grid
from confide.mechanisms.parameters import root_up

#: k >= 1 -> P(K >= k), of a law that is symmetric about 0.
Above = Callable[[Any], Any]
#: Numbers of a release that is repeated as it is, and of its copies side by side.
_SAME, _COPIES = (400, 50_000), (32_000, 500_000)
#: Runs that are recorded, and draws of the noise of an objective: a tenth where another layer has them.
_RUNS, _DRAWN, _PART = (1, 50), (1_000, 50_000), 10
#: Inputs beyond this many units are left out: their answers round the noise.
_EXACT = 1 << 52
#: Relative error of a statistic, with room; no normal number is larger than that.
_ROUNDING, _LARGEST = 1e-9, 37.0
_TAILS = range(2, 18)


def gaussian(deviation: float) -> Above:
    """Return the law of round(Z), Z of that deviation."""
    from scipy.special import ndtr

    return lambda k: ndtr(-(k - 0.5) / deviation)


def laplace(scale: float) -> Above:
    """Return the discrete Laplace law of that scale."""
    return lambda k: np.exp(-k / scale) / (1.0 + math.exp(-1.0 / scale))


def discrete_gaussian(deviation: float) -> Above:
    """Return the discrete Gaussian law, of a deviation up to some thousands."""
    places = np.arange(math.ceil(40 * deviation) + 2)
    weights = np.exp(-(places.astype(np.float64) ** 2) / (2 * deviation**2))
    tails = np.cumsum(weights[::-1])[::-1]
    tails /= 2 * tails[0] - weights[0]
    return lambda k: tails[np.minimum(np.asarray(k, dtype=np.int64), places.size - 1)]


@dataclass(frozen=True, eq=False)
class Uniform:
    """Numbers that are independent and uniform where the noise has its law.

    Parameters
    ----------
    sign : float array [n]
        +1 or -1, as probable.
    tail : float array [n]
        Uniform on (0, 1/2): the probability of what lies further out on that side.
    """

    sign: Floats
    tail: Floats

    @property
    def z(self) -> Floats:
        """Standard normal numbers."""
        from scipy.special import ndtri

        with np.errstate(divide="ignore"):
            return np.minimum(-ndtri(self.tail), _LARGEST) * self.sign

    @property
    def u(self) -> Floats:
        """Uniform numbers."""
        return np.where(self.sign < 0, self.tail, 1.0 - self.tail)

    def first(self, count: int, rng: np.random.Generator) -> Uniform:
        """Return so many, filled up with fresh ones."""
        more = fresh(max(0, count - self.tail.size), rng)
        return joined([self, more]).part(slice(count))

    def part(self, which: Any) -> Uniform:
        """Return some of them."""
        return Uniform(self.sign[which], self.tail[which])


def fresh(count: int, rng: np.random.Generator) -> Uniform:
    """Return uniform numbers of the audit's own."""
    return spread(np.zeros(count, dtype=np.int64), lambda k: np.zeros(np.shape(k)), rng)


def spread(units: Any, above: Above, rng: np.random.Generator) -> Uniform:
    """Return uniform numbers of noise [n] in units of the grid, by its law and a fresh V each.

    The value 0 lies on both sides, half of it on each.
    """
    k = np.abs(units)
    high = np.where(k > 0, above(np.maximum(k, 1)), 0.5)
    low = above(k + 1)
    sign = np.where(units == 0, rng.choice([-1.0, 1.0], k.size), np.sign(units))
    return Uniform(sign, low + (1.0 - rng.random(k.size)) * (high - low))


def joined(parts: Iterable[Uniform]) -> Uniform:
    """Return sequences one after the other."""
    all_parts = [Uniform(np.zeros(0), np.zeros(0)), *parts]
    return Uniform(*(np.concatenate([getattr(p, name) for p in all_parts]) for name in ("sign", "tail")))


def p_value(numbers: Uniform) -> float:
    """Return the p-value of a sequence of fixed length."""
    count, z, tail = numbers.tail.size, numbers.z, numbers.tail
    from scipy.special import ndtr

    with np.errstate(divide="ignore"):
        surprise = float(-np.log(2 * tail).sum())
    told = (
        (4, _gamma(float(z @ z) / 2, count / 2)),
        (4, _gamma(surprise, count)),
        (8, 2 * float(ndtr(-abs(float(z.sum())) / math.sqrt(count) * (1 - _ROUNDING)))),
        (8, _tails(numbers)),
        (8, uniform_p_value(numbers.u)),
        (8, min(1.0, 2 * min(uniform_p_value(gaps) for gaps in _gaps(numbers.u)))),
    )
    return min(1.0, *(share * p for share, p in told))


def _gamma(total: float, shape: float) -> float:
    """Bound both tails of the Gamma law: P <= (r e^(1 - r))^shape beyond r times its mean (Chernoff)."""
    if not 0 < total < math.inf:
        return 0.0
    off = total / shape - 1
    off = math.copysign(max(0.0, abs(off) - _ROUNDING), off)
    return min(1.0, 2 * math.exp(shape * (math.log1p(off) - off)))


def _tails(numbers: Uniform) -> float:
    from scipy.special import betainc

    count, worst = numbers.tail.size, 1.0
    levels = 2.0 ** -np.array(_TAILS, dtype=np.float64)
    for side in (-1.0, 1.0):
        ordered = np.sort(numbers.tail[numbers.sign == side])
        hits = np.searchsorted(ordered, levels).astype(np.float64)
        # Tails of the binomial law are incomplete beta functions.
        many = np.where(hits > 0, betainc(np.maximum(hits, 1), count - hits + 1, levels), 1.0)
        few = np.where(hits < count, betainc(np.maximum(count - hits, 1), hits + 1, 1 - levels), 1.0)
        worst = min(worst, float(np.minimum(many, few).min()))
    return min(1.0, 4 * len(_TAILS) * worst)


def uniform_p_value(values: Floats) -> float:
    """Return the p-value of independent uniform numbers: 2 exp(-2 n D^2), D the largest gap of laws."""
    count = values.size
    if not count:
        return 1.0
    ordered, steps = np.sort(values), np.arange(count + 1) / count
    most = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max())) - _ROUNDING
    return min(1.0, 2 * math.exp(-2 * count * max(0.0, most) ** 2))


def _gaps(u: Floats) -> Iterator[Floats]:
    """Yield differences modulo 1 of neighbours in the sequence, and of its halves: disjoint pairs."""
    half = u.size // 2
    yield np.mod(u[0 : 2 * half : 2] - u[1 : 2 * half : 2], 1.0)
    yield np.mod(u[:half] - u[half : 2 * half], 1.0)


def _scale(public: Any) -> float:
    """Return the scale of a Laplace release in units: ceil(L1 sensitivity / step) / epsilon."""
    _, step, sensitivity, shape, epsilon, given = public
    length = root_up(Fraction(max(1, math.prod(shape)))) * Fraction(sensitivity) if given is None else given
    return float(math.ceil(length / Fraction(step)) / epsilon)


def _deviation(public: Any) -> float:
    return float(public[4] * Fraction(public[2]) / Fraction(public[1]))


#: Mechanism -> its law, from what is public of a call.
_LAWS: dict[str, Callable[[Any], Above]] = {
    "gaussian_release": lambda public: gaussian(_deviation(public)),
    "step_answer": lambda public: gaussian(_deviation(public)),
    "laplace_release": lambda public: laplace(_scale(public)),
    "discrete_laplace": lambda public: laplace(float(public[0])),
    "rounded_gaussian": lambda public: gaussian(float(Fraction(public[0]) / Fraction(public[1]))),
    "discrete_gaussian": lambda public: discrete_gaussian(float(public[0])),
}
_RELEASES = ("gaussian_release", "step_answer", "laplace_release")


def added(call: Call, rng: np.random.Generator) -> Uniform:
    """Return the uniform numbers of one recorded call; none for a mechanism that adds no noise."""
    name = call.mechanism.name
    if name not in _LAWS or call.output is None:
        return joined(())
    units = np.ravel(call.output)
    if name in _RELEASES:
        inputs = np.ravel(call.private)
        kept = np.abs(inputs) < _EXACT
        units = (units[kept] / call.public[1]).astype(np.int64) - inputs[kept]
    return spread(units, _LAWS[name](call.public), rng)


def again(call: Call, count: int, stream: RandomStream, *, copies: bool) -> Call | None:
    """Return further calls of a release as one, of about `count` numbers: as it was, or copies side by side.

    Noise is independent between coordinates, so that copies have the law of calls of their own (the lemma of
    `views`); a Laplace release whose noise depends on the dimension is not copied.
    """
    name, public = call.mechanism.name, call.public
    if name not in _RELEASES or not call.private.size:
        return None
    if copies and name == "laplace_release" and public[5] is None:
        return None
    times = math.ceil(count / call.private.size)
    whole = np.tile(call.private.ravel(), times)
    value, times = (whole, 1) if copies else (call.private, times)
    statistic = Statistic(value, public[1], public[2], public[0])
    answer = _answer(name, public, stream, times)
    told = np.concatenate([np.ravel(answer(statistic, i)) for i in range(times)])
    return Call(call.mechanism, public, whole, told)


def _answer(name: str, public: Any, stream: RandomStream, times: int) -> Callable[[Statistic, int], Any]:
    amount = public[4]
    if name == "step_answer":
        from confide.training.sgd.release import step_answer

        answer = step_answer(float(amount), stream, steps=times)
        return lambda statistic, i: answer(statistic)
    if name == "gaussian_release":
        return lambda statistic, i: grid.gaussian_release(statistic, amount, stream=stream.child(str(i)))
    return lambda statistic, i: grid.laplace_release(
        statistic, amount, l1_sensitivity=public[5], stream=stream.child(str(i))
    )


def perturbations(plan: Any, count: int, stream: RandomStream, rng: np.random.Generator) -> list[Uniform]:
    """Return uniform numbers of `count` draws of the noise b [m] of objective perturbation, in sequences.

    Of K-norm noise, density exp(-||b||_inf / scale): the norm has the Gamma law of shape m, the coordinate
    that attains it and its sign are uniform, and so are the others within +-norm; all are independent.
    """
    from scipy.special import gammaincc

    from confide.training import objective

    size = plan.shape.size
    zeros = Statistic(np.zeros(size, dtype=np.int64), plan.noise_step, plan.scale, "perturbation")
    b = np.array([objective.answers(plan, stream.child(str(i)))(zeros) for i in range(count)])
    if not plan.pure:
        units = np.rint(b.ravel() / plan.noise_step).astype(np.int64)
        return [spread(units, gaussian(plan.scale / plan.noise_step), rng)]
    largest, rows = np.abs(b).argmax(axis=1), np.arange(count)
    norm = np.abs(b)[rows, largest]
    face = (2 * largest + (b[rows, largest] > 0) + rng.random(count)) / (2 * size)
    inside = np.arange(size) != largest[:, None]
    others = (b / norm[:, None])[inside].reshape(count, size - 1) / 2 + 0.5
    return [_two_sided(gammaincc(size, norm / plan.scale)), _two_sided(np.column_stack([face, others]))]


def _two_sided(u: Floats) -> Uniform:
    u = u.ravel()
    return Uniform(np.where(u < 0.5, -1.0, 1.0), np.minimum(u, 1.0 - u))


def _recorded(claim: Claim, table: Any, runs: int, count: int, stream: RandomStream) -> list[Call]:
    """Return the calls of some runs; of a mechanism itself, of `count` draws."""
    with recording(Recorder()) as told:
        if not claim.replayed:
            claim.sample(table, 1, stream.child("look"))
        if told.calls:
            told.calls.clear()
            claim.sample(table, count, stream.child("draws"))
        for i in range(runs if claim.replayed else 0):
            claim.run(table, stream.child(f"run {i}"))
    return told.calls


def check(claim: Claim, pair: Pair, stream: RandomStream, *, full: bool) -> Finding | None:
    """Hold the noise of a claim's releases on one table against its law.

    Tried are the noise of whole runs and of the same releases repeated as they were, that of many copies side
    by side, and that of objectives.

    Returns
    -------
    Finding or None
        None for a claim that adds no noise of these laws.
    """
    same, copied, runs, drawn = (sizes[full] for sizes in (_SAME, _COPIES, _RUNS, _DRAWN))
    rng = np.random.default_rng(stream.child("audit").bits(4))
    drawn = drawn if claim.kind is Kind.ENGINE and claim.law is None else drawn // _PART
    draws = min(copied, 2 * (claim.draws if full else claim.quick))
    calls = _recorded(claim, pair.here, runs, draws, stream)
    own = [added(call, rng) for call in calls]
    plans = {c.public for c in calls if c.mechanism.where == "confide.training.objective:release"}
    sequences = [
        (numbers, numbers.tail.size)
        for plan in plans
        for numbers in perturbations(plan, drawn if plan.pure else 4 * drawn, stream.child("plan"), rng)
    ]
    if not claim.replayed:
        sequences.append((joined(own), draws))
    else:
        known = {(c.mechanism.name, c.public): c for c in calls if c.mechanism.name in _RELEASES}
        for count, copies in ((same, False), (copied, True)):
            asked, child = math.ceil(count / max(1, len(known))), stream.child(f"copies {copies}")
            calls = (
                again(told, asked, child.child(str(place)), copies=copies)
                for place, told in enumerate(known.values())
            )
            more = [added(call, rng) for call in calls if call is not None]
            sequences.append((joined(more if copies else own + more), count))
    found = [(numbers, count) for numbers, count in sequences if numbers.tail.size]
    if not found:
        return None
    values = [p_value(numbers.first(count, rng)) for numbers, count in found]
    return Finding(
        claim.name, "noise", Verdict.HOLDS, pair=pair.name, tried=sum(count for _, count in found),
        p_value=min(1.0, len(values) * min(values)),
    )  # fmt: skip
