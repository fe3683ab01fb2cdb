"""Engine `rounds`: a few noisy linear statistics, each of a residual that the last one has made smaller.

A round is the release of `confide.training.closed_form` for the label as seen through a window about the
predictions so far (`rounds_clip`), in the geometry that is expected to leave the least posterior variance
(`rounds_geometry`). Its noise is proportional to the window, not to the declared bounds. Two rounds on one
number, mean and spread, come first. All second moments together tell p and the residual (`rounds_spread`).

Estimate. With A = sum w_i u_i u_i', predictions g_i and the share p inside the window, a round gives
theta_t = A^-1 (sum w_i u_i g_i + G / p), G = sum w_i u_i (clip(t_i) - g_i) + noise: unbiased for the
weighted fit of t where rows and residuals are jointly normal (Bussgang), with noise of known covariance.
Rounds are added by their precisions, so none is wasted; a clipped round has an allowance for skewed residuals
added to its intercept (`rounds_clip.allowance`), so that a wide early round overrules narrow later ones where
noise is low. Empirical-Bayes shrinkage (`shrinkage`) of the sum by its covariance gives the predictions of
the next round, and of the model; it contracts, and the mean of the label alone is among its priors.

Privacy (proof). Given the answers so far, windows, geometry, grid and sensitivity are functions of public
rows and released values. v_i in [-1, 1] is then a function of row i's own label, so the round is the release
of `confide.training.problem` with v for t, and has its sensitivity 2 reach, second moment included, for units
of one row or several; its floating point is that of `closed_form`. Round j adds Gaussian noise of sigma_j
times its sensitivity, and sum 1 / sigma_j^2 = 1 / sigma^2: adaptive Gaussian mechanisms compose to the
Gaussian mechanism of multiplier sigma (Dong, Roth & Su 2022, theorem 3.2 and corollary 3.3), which the exact
curve of Balle & Wang prices. How the budget is split depends on public n and sigma alone.

=========================================  ================================================================
edge case                                  what happens
=========================================  ================================================================
n / sigma below 25, or no usable column    one round: the private mean; coefficients are 0
label missing, infinite, out of bounds     imputed by the middle or clipped, as in `closed_form`
a row of 1e308                             shortened like any long row
predictions beyond the bounds              clipped to them before a window is laid about them
no intercept                               fitted with one, then projected on the columns (post-processing)
epsilon infinite                           no noise, nothing to clip: the front door runs `closed_form`
=========================================  ================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from confide.mechanisms import Statistic, round_toward_zero
from confide.training.choice import Plan
from confide.training.closed_form import Release, Solution, prepare
from confide.training.design import Basis
from confide.training.problem import LinearProblem, PublicStep, public_step
from confide.training.rounds_clip import Window, allowance, choose_clip, share_of
from confide.training.rounds_geometry import Chosen, choose_geometry
from confide.training.rounds_spread import Evidence, Reading, Spread, lifted, read_moment
from confide.training.rounds_trace import Round, Trace
from confide.training.shrinkage import shrink

Floats = npt.NDArray[np.float64]
#: (prior covariance, noise per unit of row length, residual variance) -> a plan; public rows decide the rest.
Chooser = Callable[[Floats, float, float], Chosen]

# Constants of utility alone, set on small and synthetic sets; benchmarks/rounds.py names those kept out.
#: Below this n / sigma: the private mean.
SMALLEST = 25.0
#: n / sigma from which there are 2, 3 and 4 rounds of coefficients.
_MORE = (60.0, 200.0, 2000.0)
#: Each round of coefficients gets this much more budget than the one before.
_GROWTH = 1.3
#: The two rounds on the mean get (60 sigma / n)^2 of the budget together, within these limits.
_MEAN, _LEAST, _MOST = 60.0, 0.02, 0.2
#: Clip of the second of them, in half-ranges: two typical deviations.
_FIRST_CLIP = 0.5
#: Before the coefficients are seen, columns explain this part of the label's variance.
_EXPLAINED = 0.3
#: The scale of clips falls to no less than this part of itself from round to round.
_FLOOR = 0.7
#: A clip is chosen for noise in at least this part of the directions.
_OPEN = 0.25
#: Deviations by which a clipped mean may lie beside the mean.
_LEAN = 0.15
#: Public rows on which predictions stand for all, to read a spread.
_SAMPLE = 256
_WIDE = Window(2.0)


@dataclass(frozen=True)
class Schedule:
    """How a budget is split over rounds; public.

    Attributes
    ----------
    shares : tuple of float
        Parts of mu^2, summing to 1: one (the mean alone), or two on the mean and then one a round.
    multipliers : tuple of float
        Noise multipliers sigma / sqrt(share), rounded up.
    """

    shares: tuple[float, ...]
    multipliers: tuple[float, ...]


def schedule(rows: float, noise_multiplier: float, *, columns: bool = True) -> Schedule:
    """Split a budget by the public rule in n / sigma.

    Parameters
    ----------
    rows : float
        Rows over the most rows of one unit.
    noise_multiplier : float
        Of all rounds together.
    columns : bool
        Whether there are coefficients besides the intercept.
    """
    signal = rows / noise_multiplier
    shares = [1.0]
    if columns and signal >= SMALLEST:
        first = min(_MOST, max(_LEAST, (_MEAN / signal) ** 2))
        later = _GROWTH ** np.arange(1 + sum(signal >= level for level in _MORE))
        shares = [first / 2, first / 2, *((1.0 - first) * later / later.sum()).tolist()]
    # A relative 1e-12 more noise than the shares ask for covers every rounding in the sum of squares.
    multipliers = tuple(noise_multiplier / math.sqrt(share) * (1.0 + 1e-12) for share in shares)
    return Schedule(tuple(shares), multipliers)


@dataclass(frozen=True)
class Design:
    """All that is public before the first release.

    Attributes
    ----------
    basis : Basis
        With an intercept, whether the model has one or not.
    mean_step : PublicStep
        The release of the mean.
    schedule : Schedule
    choose : callable
        The geometry of a round.
    """

    basis: Basis
    mean_step: PublicStep
    schedule: Schedule
    choose: Chooser

    @property
    def rows_per_unit(self) -> float:
        """The most rows of one unit."""
        return self.mean_step.reach


def plan_rounds(
    problem: LinearProblem, basis: Basis, noise_multiplier: float, choose: Chooser | None = None
) -> Design:
    """Measure what is public, and refuse what public quantities can refuse, before any charge.

    Parameters
    ----------
    problem : LinearProblem
    basis : Basis
        With an intercept.
    noise_multiplier : float
        Of all rounds together, > 0.
    choose : callable, optional
        Geometry of a round; by default the least expected posterior variance.

    Raises
    ------
    ParameterError, DataError
        As `prepare` and `public_step`.
    """
    flat = replace(
        basis,
        directions=basis.directions[:, :0],
        singular_values=basis.singular_values[:0],
        sample=basis.sample[:, :1],
    )
    step = public_step(problem, flat, Plan(np.array([[math.sqrt(basis.n)]]), 1.0, 1.0, math.nan))
    split = schedule(basis.n / step.reach, noise_multiplier, columns=basis.size > 1)
    chooser = choose or (lambda prior, noise, residual: choose_geometry(basis, prior, noise, residual))
    for multiplier in split.multipliers:
        prepare(step, multiplier)
    if len(split.shares) > 1:
        # A typical label stands for the one that is not known yet: rows without finite coordinates show here.
        prior = _first_prior(basis, 1e-4, 0.25)
        noise = split.multipliers[2] * step.reach
        trial = public_step(problem, basis, chooser(prior, noise, 0.06).plan)
        for multiplier in split.multipliers[2:]:
            prepare(trial, multiplier)
    return Design(basis, step, split, chooser)


@dataclass(frozen=True)
class _Answer:
    """A private answer with what is public about it, in units of v.

    `values` is (b, q); with o_i = centre_i - g_i, `offsets`, `curvature` and `fitted` are sum w_i u_i o_i,
    sum w_i o_i^2 and sum w_i u_i g_i.
    """

    step: PublicStep
    release: Release
    multiplier: float
    values: Floats
    offsets: Floats
    curvature: float
    fitted: Floats

    @property
    def sigma(self) -> float:
        return self.multiplier * self.release.sensitivity

    def sum(self) -> Floats:
        """Return sum w_i u_i v_i."""
        return np.asarray(np.linalg.solve(self.step.plan.factor.T, self.values[:-1]), dtype=np.float64)

    def read(self, window: Window, rows: Floats, theta: Floats, prior: Floats) -> Reading:
        """Return the second moment, with weights of a sample of rows, for predictions u' theta.

        `prior` is the covariance of what is unknown about theta.
        """
        _, weights = self.step.plan.rows(rows)
        moment = read_moment(
            self.step,
            self.sigma,
            float(self.values[-1]),
            self.sum(),
            window,
            self.offsets,
            self.curvature,
            prior,
        )
        return Reading(moment, window, theta, weights / weights.sum(), self.step.A / self.step.mass)


def _ask(
    problem: LinearProblem, step: PublicStep, multiplier: float, window: Window, theta: Floats
) -> Generator[Statistic, Floats, _Answer]:
    """Release sum f_i v_i and the second moment of v, for predictions clip(u_i' theta, -1, 1)."""
    release = prepare(step, multiplier)
    k, square = step.basis.size, 2.0 * step.kappa
    total = np.zeros(k + 1, dtype=np.int64)
    offsets, curvature, fitted = np.zeros(k), 0.0, np.zeros(k)
    for block, t in zip(problem.source.blocks(), problem.label_blocks(), strict=True):
        u = step.basis.coordinates(block)
        f, w = step.plan.rows(u)
        predictions = np.clip(u @ theta, -1.0, 1.0)
        with np.errstate(all="ignore"):  # tiny products may underflow, and no warning may depend on a label
            v = window.view(t, predictions)
            total += round_toward_zero(np.append(f.T @ v, square * (w @ (v * v))), release.grid)
        offset = window.offset(predictions)
        offsets += (w * offset) @ u
        curvature += float(w @ offset**2)
        fitted += (w * predictions) @ u
    name = "mean" if k == 1 else "coefficients"
    answer = yield Statistic(total, release.grid, release.sensitivity, f"rounds/{name}")
    return _Answer(step, release, multiplier, answer, offsets, curvature, fitted)


@dataclass(frozen=True)
class _Estimates:
    """Independent unbiased estimates of theta with their covariances: privacy noise, and with allowances."""

    values: tuple[Floats, ...] = ()
    noises: tuple[Floats, ...] = ()
    doubts: tuple[Floats, ...] = ()

    def add(self, value: Floats, noise: Floats, doubt: Floats) -> _Estimates:
        return _Estimates((*self.values, value), (*self.noises, noise), (*self.doubts, noise + doubt))

    def combine(self, mean: Floats, precision: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the sum by precisions, its covariance, and the part of it that is privacy noise.

        `mean` and `precision` are those of the intercept from the rounds on one number, which count in full.
        """
        inverses = [np.linalg.inv(doubt) for doubt in self.doubts]
        covariance = np.linalg.inv(precision + sum(inverses, np.zeros_like(precision)))
        total = precision @ mean + sum(
            (i @ v for i, v in zip(inverses, self.values, strict=True)), 0.0 * mean
        )
        noise = covariance @ precision @ covariance
        for inverse, part in zip(inverses, self.noises, strict=True):
            weight = covariance @ inverse
            noise = noise + weight @ part @ weight.T
        return covariance @ total, (covariance + covariance.T) / 2, (noise + noise.T) / 2


@dataclass(frozen=True)
class _Mean:
    """Mean and spread of the label, in half-ranges, with the variance of the mean and its trace."""

    value: float
    variance: float
    spread: Spread
    readings: tuple[Reading, ...]
    rounds: tuple[Round, ...]


def solve(
    problem: LinearProblem, design: Design, *, shrinkage: bool = True
) -> Generator[Statistic, Floats, tuple[Solution, Trace]]:
    """Yield the statistics of `design.schedule` in order, be sent their private answers, and return the fit.

    Parameters
    ----------
    problem : LinearProblem
        Its labels are read once a round.
    design : Design
        From `plan_rounds`.
    shrinkage : bool
        Whether the model is shrunk; the predictions between rounds always are.

    Returns
    -------
    Solution
        In coordinates of `design.basis`, of y less the middle; `projected` takes the intercept out.
    Trace
    """
    basis, split = design.basis, design.schedule
    mean = yield from _solve_mean(problem, design)
    if len(split.shares) == 1:
        return _mean_solution(problem, design, mean), Trace(mean.rounds)
    n, k, half = basis.n, basis.size, problem.half
    first = np.zeros(k)
    first[0] = math.sqrt(n)
    few = basis.sample[:: -(-basis.sample.shape[0] // _SAMPLE)]
    base, scale, evidence = mean.value * first, mean.spread.scale, lifted(mean.readings, few)
    precision = np.zeros((k, k))
    precision[0, 0] = 1.0 / (n * mean.variance)
    theta, prior = base, _first_prior(basis, mean.variance, scale)
    # The explained variance is at most the label's: shrinkage expects up to a twentieth of this energy.
    energy = n * min(20.0 * scale**2, 1.0)
    directions, estimates, rounds = 0.5 * k, _Estimates(), list(mean.rounds)
    solution: Solution | None = None
    for share, multiplier in zip(split.shares[2:], split.multipliers[2:], strict=True):
        strength = multiplier * design.rows_per_unit
        window = choose_clip(scale, n, strength, directions * k)
        noise = 2.0 * window.half * strength / share_of(window, scale)
        chosen = design.choose(prior, noise, scale**2)
        step = public_step(problem, basis, chosen.plan)
        answer = yield from _ask(problem, step, multiplier, window, theta)
        evidence = evidence.add(answer.read(window, few, theta, prior))
        spread = evidence.about(theta)
        gained = (window.half * answer.sum() + answer.offsets) / spread.inside
        estimates = estimates.add(
            np.asarray(np.linalg.solve(step.A, answer.fitted + gained), dtype=np.float64),
            answer.release.noise * (window.half / spread.inside) ** 2,
            np.outer(first, first) * allowance(window.clip, spread.scale) ** 2,
        )
        unbiased, covariance, privacy = estimates.combine(base, precision)
        inverse = np.linalg.solve(step.A, np.eye(k))
        residual = spread.scale**2
        sampling = np.asarray(residual * (inverse @ step.B @ inverse.T), dtype=np.float64)
        shrunk = shrink(unbiased - base, covariance + sampling, basis.singular_values, energy, fixed=1)
        estimate = shrunk.mean + base
        # What the round has explained leaves the residual, as far as it is known.
        told = evidence.about(estimate, shrunk.covariance).scale
        scale = max(told, _FLOOR * scale)
        theta = estimate
        prior = _open_prior(shrunk.covariance, _first_prior(basis, mean.variance, scale), covariance)
        directions = max(shrunk.effective + 1.0, _OPEN * k)
        rounds.append(
            Round(
                "coefficients",
                share,
                multiplier,
                window.clip * half,
                spread.inside,
                spread.scale * half,
                chosen.name,
                chosen.plan.quantile,
                chosen.plan.share,
                half * math.sqrt(float(np.trace(shrunk.covariance)) / n),
            )
        )
        sampling *= told**2 / residual
        beyond = covariance - privacy + sampling
        solution = Solution(
            half * unbiased,
            half * (estimate if shrinkage else unbiased),
            half**2 * privacy,
            half**2 * beyond,
            half**2 * (shrunk.covariance if shrinkage else covariance + sampling),
            (half * told) ** 2,
            shrunk.effective if shrinkage else float(k),
            2.0 * half * design.rows_per_unit,
        )
    assert solution is not None
    return solution, Trace(tuple(rounds))


def _solve_mean(problem: LinearProblem, design: Design) -> Generator[Statistic, Floats, _Mean]:
    """Release the label's mean and spread: once through the widest window, then through a narrower one."""
    n, half, step = design.basis.n, problem.half, design.mean_step
    window, at, information, total = _WIDE, 0.0, 0.0, 0.0
    spread, evidence = Spread(0.0, 1.0), Evidence(np.full((1, 1), 1.0 / math.sqrt(n)))
    rounds: list[Round] = []
    split = design.schedule
    for share, multiplier in list(zip(split.shares, split.multipliers, strict=True))[:2]:
        theta = np.array([at * math.sqrt(n)])
        answer = yield from _ask(problem, step, multiplier, window, theta)
        doubt = np.array([[n / max(information, 1.0)]])
        evidence = evidence.add(answer.read(window, evidence.rows, theta, doubt))
        spread = evidence.about(theta)
        moved = window.half * float(answer.values[0]) / n + float(window.offset(np.array([at]))[0])
        variance = (window.half * answer.sigma / n / spread.inside) ** 2
        variance += (_LEAN * spread.scale if window.clip < 2.0 else 0.0) ** 2
        information += 1.0 / variance
        total += (at + moved / spread.inside) / variance
        at = min(max(total / information, -1.0), 1.0)
        # Of a fitted label: of the mean, and of what columns are expected to explain beside it.
        deviation = half * math.sqrt(1.0 / information + _EXPLAINED * spread.scale**2)
        clip, width = window.clip * half, spread.scale * half
        rounds.append(
            Round("mean", share, multiplier, clip, spread.inside, width, "mean", 1.0, 1.0, deviation)
        )
        window = Window(_FIRST_CLIP)
    return _Mean(at, 1.0 / information, spread, evidence.readings, tuple(rounds))


def _first_prior(basis: Basis, variance: float, scale: float) -> Floats:
    """Return the prior covariance before any coefficient is seen: half of it flat, half as columns lie."""
    square = basis.singular_values**2
    shape = 0.5 * square / square.sum() + 0.5 / square.size
    return np.diag(np.concatenate([[basis.n * variance], basis.n * _EXPLAINED * scale**2 * shape]))


def _open_prior(posterior: Floats, first: Floats, noise: Floats) -> Floats:
    """Return the prior of the next geometry: the posterior, and what a believer in the columns has left.

    Where noise still drowns every coefficient, shrinkage finds that there are none. A geometry that believed
    it would release the intercept alone and never learn better.
    """
    believed = first - first @ np.linalg.solve(first + noise, first)
    return 0.5 * posterior + 0.25 * (believed + believed.T)


def _mean_solution(problem: LinearProblem, design: Design, mean: _Mean) -> Solution:
    """Return the model that is the private mean: coefficients are 0, and as uncertain as bounds allow."""
    n, k, half = design.basis.n, design.basis.size, problem.half
    theta = np.zeros(k)
    theta[0] = mean.value * math.sqrt(n)
    noise, beyond = np.zeros((k, k)), np.eye(k)
    noise[0, 0] = n * mean.variance
    # ||theta||^2 is at most n; what is known of the spread bounds the explained part too.
    beyond *= n
    beyond[0, 0] = mean.spread.scale**2
    return Solution(
        half * theta,
        half * theta,
        half**2 * noise,
        half**2 * beyond,
        half**2 * (noise + beyond),
        (half * mean.spread.scale) ** 2,
        0.0,
        2.0 * half * design.rows_per_unit,
    )


def projected(problem: LinearProblem, solution: Solution, basis: Basis, onto: Basis) -> Solution:
    """Return the fit without an intercept that is nearest to a fit with one: exact for least squares.

    The columns' span lies within that of constant and columns, so X'y = X'(fit of y with a constant), and
    least squares through the origin is the projection of that fit. Everything here is public or released.

    Parameters
    ----------
    problem : LinearProblem
    solution : Solution
        In coordinates of `basis`, of y less the middle.
    basis, onto : Basis
        With and without an intercept.

    Returns
    -------
    Solution
        In coordinates of `onto`, of y itself.
    """
    K, ones = np.zeros((onto.size, basis.size)), np.zeros(onto.size)
    for block in problem.source.blocks():
        u = onto.coordinates(block)
        K += u.T @ basis.coordinates(block)
        ones += u.sum(axis=0)
    whole = solution.estimate.copy()
    whole[0] += problem.middle * math.sqrt(basis.n)
    estimate = K @ solution.estimate + problem.middle * ones
    lost = max(0.0, float(whole @ whole - estimate @ estimate)) / basis.n
    return Solution(
        K @ solution.unbiased + problem.middle * ones,
        estimate,
        K @ solution.noise @ K.T,
        K @ solution.sampling @ K.T,
        K @ solution.posterior @ K.T,
        solution.residual_variance + lost,
        min(solution.effective, float(onto.size)),
        solution.sensitivity,
    )
