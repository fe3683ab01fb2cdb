"""The engines `rounds` and `closed_form` of numbers: read what is public, reserve, release, settle."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Guarantee
from confide.training import rounds
from confide.training.choice import choose
from confide.training.closed_form import Solution, prepare, solve
from confide.training.design import Basis, public_basis
from confide.training.problem import LinearProblem, PublicStep, public_step
from confide.training.release import drive, exact_answer, gaussian_answer, shared_answer
from confide.training.request import Request
from confide.training.result import LinearModel, Statistics, Status, TrainingResult
from confide.training.rounds import Design
from confide.training.rounds_geometry import Chosen, choose_geometry
from confide.training.rounds_trace import Trace

INTERCEPT = "(intercept)"


def fit(
    problem: LinearProblem,
    request: Request,
    *,
    ledger: Any = None,
    table: Any = None,
    analyst: str | None = None,
    label: str = "train",
) -> TrainingResult:
    """Read what is public, reserve, release, settle. A charge stays whatever happens after it.

    All that public quantities can refuse (rows, ids, grid, width of the noise) is refused before the charge.
    """
    from confide.ledger import charged

    request, rows, run = _planned(problem, request)
    _warn_of_delta(request, rows)
    with charged(ledger, request.guarantee, table=table, analyst=analyst, label=label) as reservation:
        result = run()
    return result if reservation is None else replace(result, entry=reservation.id)


def quote(problem: LinearProblem, request: Request) -> Guarantee:
    """Return exactly what `fit` charges, from what is public; charges nothing."""
    return _planned(problem, request)[0].guarantee


#: The request with the event of what will be run, the public number of rows, what is run after the charge.
_Planned = tuple[Request, int, Callable[[], TrainingResult]]


def _planned(problem: LinearProblem, request: Request) -> _Planned:
    # Without noise there is nothing to clip: one round of the closed form.
    if request.engine == "rounds" and not request.nonprivate:
        return _plan_rounds(problem, request)
    return _plan_closed_form(problem, request)


def _plan_closed_form(problem: LinearProblem, request: Request) -> _Planned:
    step = plan_step(problem, request)
    prepare(step, request.noise_multiplier)

    def run() -> TrainingResult:
        if request.nonprivate:
            answer = exact_answer
        else:
            answer = gaussian_answer(request.noise_multiplier, random_stream(request.seed))
        solution = drive(solve(problem, step, request.noise_multiplier, shrinkage=request.shrinkage), answer)
        return assemble(problem, request, step, solution)

    return request, step.basis.n, run


def _plan_rounds(problem: LinearProblem, request: Request) -> _Planned:
    design, onto = plan_design(problem, request)
    request = request.shared(design.schedule.multipliers)

    def run() -> TrainingResult:
        answer = shared_answer(design.schedule.multipliers, random_stream(request.seed))
        solver = rounds.solve(problem, design, shrinkage=request.shrinkage)
        return assemble_rounds(problem, request, design, onto, *drive(solver, answer))

    return request, design.basis.n, run


def _warn_of_delta(request: Request, n: int) -> None:
    """Warn of a delta that is not far below one over the public number of rows (pitfall F10)."""
    delta = float(request.guarantee.delta)
    if 10 * delta * n > 1:
        warnings.warn(
            f"The 'delta' parameter is {delta:g} for {n} rows: a mechanism that publishes one row in full "
            f"may satisfy a delta near {1 / max(n, 1):.1g}. Pass a far smaller one.",
            UserWarning,
            stacklevel=5,
        )


def plan_step(problem: LinearProblem, request: Request) -> PublicStep:
    """Choose and measure the release of a request, from public rows alone."""
    basis = public_basis(problem.source, intercept=problem.intercept)
    plan = choose(
        basis,
        request.noise_multiplier,
        kind=request.conditioning or "optimal",
        leverage=request.leverage,
        p=request.power,
        rho=request.rho,
    )
    return public_step(problem, basis, plan)


def plan_design(problem: LinearProblem, request: Request) -> tuple[Design, Basis]:
    """Return the public part of `rounds`, and the basis that its model lives in."""
    basis = public_basis(problem.source, intercept=True)
    onto = basis if problem.intercept else public_basis(problem.source, intercept=False)
    return rounds.plan_rounds(problem, basis, request.noise_multiplier, _chooser(basis, request)), onto


def _chooser(basis: Basis, request: Request) -> rounds.Chooser:
    """Return the geometry of a round: the conditioning that was asked for, or the best one."""
    kind = request.conditioning
    if kind is None:
        return lambda prior, noise, residual: choose_geometry(basis, prior, noise, residual, request.leverage)

    def asked(prior: np.ndarray, noise: float, residual: float) -> Chosen:
        plan = choose(basis, noise, kind=kind, leverage=request.leverage, p=request.power, rho=request.rho)
        return Chosen(plan, kind, float(np.trace(prior)))

    return asked


def assemble(
    problem: LinearProblem, request: Request, step: PublicStep, solution: Solution
) -> TrainingResult:
    """Turn a solution in public coordinates into coefficients of the encoded columns."""
    k = step.basis.size
    unit = np.linalg.solve(step.plan.factor.T @ step.A, np.eye(k))
    statistics = Statistics(
        rows=step.basis.n,
        rank=step.basis.directions.shape[1],
        singular_values=step.basis.singular_values,
        label_range=problem.upper - problem.lower,
        noise_trace=float(np.sum(unit**2)),
        sampling_trace=float(np.sum(np.linalg.solve(step.A, step.B) * np.linalg.inv(step.A).T)),
        lower_trace=k**2 / step.basis.n,
        sensitivity=solution.sensitivity,
        noise_multiplier=request.noise_multiplier,
        share=step.plan.share,
        quantile=step.plan.quantile,
        gap=step.plan.gap,
        effective=solution.effective,
    )
    return _result(problem, request, step.basis, solution, statistics)


def assemble_rounds(
    problem: LinearProblem, request: Request, design: Design, onto: Basis, solution: Solution, trace: Trace
) -> TrainingResult:
    """Turn the solution of `rounds` into coefficients of the encoded columns."""
    if not problem.intercept:
        solution = rounds.projected(problem, solution, design.basis, onto)
    last, n = trace.rounds[-1], onto.n
    scale = (request.noise_multiplier * solution.sensitivity) ** 2
    statistics = Statistics(
        rows=n,
        rank=onto.directions.shape[1],
        singular_values=onto.singular_values,
        label_range=problem.upper - problem.lower,
        noise_trace=float(np.trace(solution.noise)) / scale,
        sampling_trace=float(np.trace(solution.sampling)) / solution.residual_variance,
        lower_trace=onto.size**2 / n,
        sensitivity=solution.sensitivity,
        noise_multiplier=request.noise_multiplier,
        share=last.intercept_share,
        quantile=last.quantile,
        gap=math.nan,
        effective=solution.effective,
    )
    return replace(_result(problem, request, onto, solution, statistics), trace=trace)


def _result(
    problem: LinearProblem, request: Request, basis: Basis, solution: Solution, statistics: Statistics
) -> TrainingResult:
    J = basis.to_coefficients()
    first = 0 if problem.intercept else 1
    names = ((INTERCEPT,) if problem.intercept else ()) + basis.names
    J_named = J[first:]

    def named(theta: np.ndarray) -> dict[str, float]:
        values = J_named @ theta
        if problem.intercept:
            values[0] += problem.centre
        return dict(zip(names, values.tolist(), strict=True))

    def deviations(covariance: np.ndarray) -> dict[str, float]:
        variances = np.einsum("ij,jk,ik->i", J_named, covariance, J_named, optimize=True)
        return dict(zip(names, np.sqrt(np.maximum(variances, 0.0)).tolist(), strict=True))

    values = J @ solution.estimate
    model = LinearModel(
        float(values[0] + problem.centre), values[1:], basis.names, (problem.lower, problem.upper)
    )
    return TrainingResult(
        model,
        request.guarantee,
        Status.NONPRIVATE if request.nonprivate else Status.RELEASED,
        named(solution.estimate),
        named(solution.unbiased),
        J_named @ solution.noise @ J_named.T,
        deviations(solution.noise),
        deviations(solution.noise + solution.sampling),
        deviations(solution.posterior),
        float(np.sqrt(solution.residual_variance)),
        statistics,
    )
