"""Classes of public columns: `closed_form` and `randomized_response` (`confide.training.class_moments`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Event, Guarantee
from confide.training import class_moments
from confide.training.choice import Plan, choose
from confide.training.class_moments import ClassPlan, ClassProblem, ClassSolution, plan_classes
from confide.training.design import Basis, Source
from confide.training.engines.ask import WHOLE_ROWS, Ask, Charge, Job, warn_of_delta
from confide.training.engines.parts import LinearParts
from confide.training.engines.result import ModelResult
from confide.training.labels.request import check_seed
from confide.training.problem import LinearProblem
from confide.training.release import drive, exact_answer, gaussian_answer
from confide.training.request import make_request
from confide.training.result import Status

#: Engine asked for -> release; None leaves it to public quantities.
_RELEASES = {"auto": None, "closed_form": "closed_form", "randomized_response": "randomized_response"}


@dataclass(frozen=True)
class Classes:
    """A validated request."""

    ask: Ask
    guarantee: Guarantee
    multiplier: float
    conditioned: Callable[[Basis, float], Plan] | None

    def quote(self, job: Job) -> Guarantee:
        """Return what `fit` charges: public rows decide which release it is, and so whether delta is 0."""
        return self._planned(job)[2]

    def _planned(self, job: Job) -> tuple[ClassProblem, ClassPlan, Guarantee]:
        ask = self.ask
        assert ask.classes is not None
        problem = class_problem(job, ask, len(ask.classes))
        wanted = _RELEASES[ask.engine]
        plan = plan_classes(
            problem, ask.epsilon, self.multiplier, wanted, conditioned=self.conditioned, leverage=ask.leverage
        )
        return problem, plan, self.guarantee if plan.channel is None else _pure(ask)

    def fit(self, job: Job, charge: Charge) -> ModelResult:
        """Charge and fit; private columns are left out."""
        ask = self.ask
        assert ask.classes is not None
        problem, plan, guarantee = self._planned(job)
        warn_of_delta(guarantee.delta, job.n)
        with charge.open(guarantee) as reservation:
            solution = self._solve(problem, plan)
        model = model_of(plan, solution, ask.classes)
        result = ModelResult(model, guarantee, _status(ask), plan.engine, facts_of(plan, solution))
        return result if reservation is None else replace(result, entry=reservation.id)

    def _solve(self, problem: ClassProblem, plan: ClassPlan) -> ClassSolution:
        source = random_stream(check_seed(self.ask.random_state))
        if plan.channel is not None:
            return class_moments.respond(problem, plan, source, shrinkage=self.ask.shrinkage)
        solver = class_moments.solve(problem, plan, shrinkage=self.ask.shrinkage)
        return drive(solver, gaussian_answer(self.multiplier, source) if self.multiplier else exact_answer)


def make(ask: Ask) -> Classes:
    """Check a request."""
    ask.only_linear()
    if ask.classes is None:
        raise UnsupportedError(
            f"The engine {ask.engine_name} of classes is asked for a number.", "Declare classes of the label."
        )
    if ask.adjacency in WHOLE_ROWS:
        raise UnsupportedError(
            f"The engine {ask.engine_name} reads public columns; {ask.adjacency.value!r} keeps rows secret.",
            "Pass engine='dpsgd' or 'objective'.",
        )
    if not isinstance(ask.shrinkage, bool):
        raise ParameterError(f"The 'shrinkage' parameter is {ask.shrinkage!r}.", "Pass True or False.")
    if ask.engine == "randomized_response":
        epsilon, _ = ask.amounts()
        return Classes(
            ask,
            ask.gaussian()[0] if math.isinf(epsilon) else _pure(ask),
            0.0 if math.isinf(epsilon) else 1.0,
            None,
        )
    guarantee, multiplier = ask.gaussian()
    checked = make_request(
        epsilon=ask.epsilon,
        delta=ask.delta,
        adjacency=ask.adjacency,
        engine="closed_form",
        conditioning=ask.conditioning,
        leverage=ask.leverage,
        nonprivate=ask.nonprivate,
    )
    kind = checked.conditioning
    if kind is None:
        return Classes(ask, guarantee, multiplier, None)

    def conditioned(basis: Basis, noise: float) -> Plan:
        return choose(basis, noise, kind=kind, leverage=ask.leverage, p=checked.power, rho=checked.rho)

    return Classes(ask, guarantee, multiplier, conditioned)


def _pure(ask: Ask) -> Guarantee:
    epsilon, _ = ask.amounts()
    return ask.guarantee(Event.of("pure", epsilon=str(epsilon)), epsilon, 0)


def _status(ask: Ask) -> Status:
    return Status.NONPRIVATE if ask.nonprivate else Status.RELEASED


def class_problem(job: Job, ask: Ask, classes: int) -> ClassProblem:
    """Return the problem of a job's public columns."""
    names = tuple(f"x{i}" for i in range(job.public.shape[1]))
    ids = job.ids
    design = LinearProblem(
        Source(lambda: iter([job.public]), names, job.bounded),
        lambda: iter(()),  # classes are read through the codes alone
        -1.0,
        1.0,
        None if ids is None else (lambda: iter([ids])),
        bool(ask.fit_intercept),
        1 if ids is not None else ask.rows_per_unit,
    )
    return ClassProblem(design, lambda: iter([np.asarray(job.labels, dtype=np.int64)]), classes)


def model_of(plan: ClassPlan, solution: ClassSolution, classes: tuple[Any, ...]) -> LinearParts:
    """Turn logits in public coordinates into coefficients of the columns."""
    values = plan.step.basis.to_coefficients() @ solution.theta  # [p + 1, K]
    if len(classes) == 2:
        values = values[:, 1:] - values[:, :1]
    m = values.shape[1]
    return LinearParts(
        values[0].copy(), values[1:].T.copy(), np.zeros((m, 0)), np.zeros((0, 2)), None, tuple(classes)
    )


def facts_of(plan: ClassPlan, solution: ClassSolution) -> dict[str, Any]:
    """Return public facts of a release, and what it told."""
    return {
        "rows": plan.step.basis.n,
        "rank": plan.step.basis.directions.shape[1],
        "release": plan.engine,
        "sensitivity": plan.sensitivity,
        "noise_multiplier": plan.multiplier,
        "contrast": plan.contrast,
        "effective": solution.effective,
        "residual_variance": solution.residual_variance,
    }
