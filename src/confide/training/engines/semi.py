"""`semi_sensitive` (`confide.training.semi_sensitive`) at the front doors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from confide.errors import UnsupportedError
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Guarantee
from confide.training.design import Source
from confide.training.engines.ask import WHOLE_ROWS, Ask, Charge, Job, warn_of_delta
from confide.training.engines.parts import LinearParts
from confide.training.engines.result import ModelResult
from confide.training.labels.request import check_seed
from confide.training.problem import LinearProblem
from confide.training.release import drive, exact_answer, gaussian_answer
from confide.training.request import make_request
from confide.training.result import Status
from confide.training.semi_problem import PrivateColumns, plan_release
from confide.training.semi_sensitive import SemiSensitiveFit, assemble, solve


@dataclass(frozen=True)
class SemiSensitive:
    """A validated request."""

    ask: Ask
    guarantee: Guarantee
    multiplier: float
    kind: tuple[str, float, float]

    def quote(self, job: Job) -> Guarantee:
        """Return what `fit` charges: one Gaussian release, whatever the columns are."""
        return self.guarantee

    def fit(self, job: Job, charge: Charge) -> ModelResult:
        """Charge and fit."""
        ask = self.ask
        problem, columns = linear_problem(job, ask), private_columns(job)
        kind, power, rho = self.kind
        plan = plan_release(
            problem, columns, self.multiplier, conditioning=kind, leverage=ask.leverage, power=power, rho=rho
        )
        warn_of_delta(ask.delta, job.n)
        answer = gaussian_answer(self.multiplier, random_stream(check_seed(ask.random_state)))
        with charge.open(self.guarantee) as reservation:
            solution = drive(
                solve(problem, columns, plan, shrinkage=ask.shrinkage),
                answer if self.multiplier else exact_answer,
            )
        found = assemble(problem, columns, plan, solution, *_spent(self.guarantee))
        status = Status.NONPRIVATE if ask.nonprivate else Status.RELEASED
        result = ModelResult(_parts(found), self.guarantee, status, "semi_sensitive", found.facts)
        return result if reservation is None else replace(result, entry=reservation.id)


def make(ask: Ask) -> SemiSensitive:
    """Check a request."""
    ask.only_linear()
    if ask.target_bounds is None:
        raise UnsupportedError(
            "The engine 'semi_sensitive' fits numbers, and the label has classes.",
            "Pass engine='dpsgd', which uses private columns for classes too.",
        )
    if ask.adjacency in WHOLE_ROWS:
        raise UnsupportedError(
            f"The engine 'semi_sensitive' reads public columns; {ask.adjacency.value!r} has none.",
            "Pass adjacency='replace_private_part', or engine='boosted_adassp'.",
        )
    if not ask.fit_intercept:
        raise UnsupportedError("The engine 'semi_sensitive' has an intercept.", "Pass fit_intercept=True.")
    checked = make_request(
        epsilon=ask.epsilon,
        delta=ask.delta,
        adjacency=ask.adjacency,
        engine="closed_form",
        conditioning=ask.conditioning,
        leverage=ask.leverage,
        shrinkage=ask.shrinkage,
        nonprivate=ask.nonprivate,
    )
    guarantee, multiplier = ask.gaussian()
    return SemiSensitive(
        ask, guarantee, multiplier, (checked.conditioning or "optimal", checked.power, checked.rho)
    )


def linear_problem(job: Job, ask: Ask) -> LinearProblem:
    """Return the problem of a job's public columns and label."""
    assert ask.target_bounds is not None
    names, ids = tuple(f"x{i}" for i in range(job.public.shape[1])), job.ids
    return LinearProblem(
        Source(lambda: iter([job.public]), names, job.bounded),
        lambda: iter([np.asarray(job.labels, dtype=np.float64)]),
        *ask.target_bounds,
        None if ids is None else (lambda: iter([ids])),
        True,
        1 if ids is not None else ask.rows_per_unit,
    )


def private_columns(job: Job) -> PrivateColumns:
    """Return a job's private columns with their bounds."""
    bounds = np.array(job.private_bounds, dtype=np.float64).reshape(-1, 2)
    names = tuple(f"z{i}" for i in range(len(bounds)))
    return PrivateColumns(lambda: iter([job.private.to_numpy()]), names, bounds[:, 0], bounds[:, 1], math.inf)


def _spent(guarantee: Guarantee) -> tuple:
    return guarantee.epsilon, guarantee.delta


def _parts(found: SemiSensitiveFit) -> LinearParts:
    columns = found.columns
    shift = found.intercept + float(found.private @ columns.middle)
    return LinearParts(
        np.array([shift]),
        found.public[None, :],
        (found.private * columns.half)[None, :],
        np.column_stack([columns.lower, columns.upper]),
        found.bounds,
    )
