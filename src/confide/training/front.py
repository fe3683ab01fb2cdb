"""The front door on tables: validate, read what is public, reserve, compute, settle."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import numpy as np

from confide.errors import ParameterError, SchemaError, UncertifiedWarning, UnsupportedError
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Adjacency, Guarantee
from confide.training import rounds
from confide.training.choice import choose
from confide.training.closed_form import Solution, prepare, solve
from confide.training.design import Basis, Source, public_basis
from confide.training.expansion import Powers, expand, names_of, powers_of
from confide.training.problem import LinearProblem, PublicStep, check_adjacency, check_bounds, public_step
from confide.training.release import drive, exact_answer, gaussian_answer, shared_answer
from confide.training.request import DEFAULT, Request, make_request
from confide.training.result import LinearModel, Statistics, Status, TrainingResult
from confide.training.rounds import Design
from confide.training.rounds_geometry import Chosen, choose_geometry
from confide.training.rounds_trace import Trace

INTERCEPT = "(intercept)"


@overload
def train(table: Any, *, dry_run: Literal[True], **options: Any) -> Guarantee: ...
@overload
def train(table: Any, *, dry_run: Literal[False] = ..., **options: Any) -> TrainingResult: ...


def train(  # pyright: ignore[reportInconsistentOverload]
    table: Any,
    *,
    epsilon: Any = None,
    delta: Any = None,
    ledger: Any = None,
    engine: str = DEFAULT,
    conditioning: Any = None,
    leverage: float | None = None,
    shrinkage: bool = True,
    fit_intercept: bool = True,
    degree: int = 1,
    adjacency: Adjacency | str | None = None,
    random_state: int | None = None,
    dry_run: bool = False,
    nonprivate: bool = False,
    analyst: str | None = None,
    label: str = "",
) -> TrainingResult | Guarantee:
    """Fit a private regression of the label on the public columns of a table.

    Parameters
    ----------
    table : Table
        From `confide.schema`; a chunked one is read in passes and never held in memory.
    epsilon, delta : amount
        Total privacy of this call; both required.
    ledger : Ledger or str, optional
        Charged before the label is read, and never refunded. None marks the guarantee ``"unrecorded"``.
    engine : {"rounds", "closed_form"}
        ``rounds`` releases a few clipped residuals, ``closed_form`` one statistic without any clipping; see
        "Choose an engine" in the documentation.
    conditioning : str or tuple, optional
        See `confide.training.conditioning_matrix`; ``("power", p)`` and ``("ridge", rho)`` pass an option.
        None: ``"optimal"`` in ``closed_form``; in each round of ``rounds``, what leaves the least expected
        posterior variance.
    leverage : float, optional
        Leverage quantile in (0, 1] from which public rows are shortened; None lets the expected error
        choose, 1 shortens none (ordinary instead of weighted least squares).
    shrinkage : bool
        Shrink by the known noise (post-processing).
    fit_intercept : bool
    degree : int
        Polynomial degree in each numeric public column, 1 to 10. Powers of public columns are public; each
        term costs one more direction of noise.
    adjacency : Adjacency or str, optional
        ``replace_label`` where the schema has no private column. Where it has some,
        ``replace_private_part`` must be said: this engine then leaves those columns out, with a warning.
    random_state : int, optional
        For tests; marks the guarantee ``"seeded"``.
    dry_run : bool
        Return the guarantee that would be charged; only the schema and the ledger are read. Raises the
        refusal that the ledger would answer with. With ``rounds`` its event is one Gaussian release, to which
        the rounds compose: how many share its budget is decided by the number of rows, which is not read.
    nonprivate : bool
        With ``epsilon=inf``: no noise, no ledger, so marked.
    analyst, label : str
        Passed on to the ledger.

    Returns
    -------
    TrainingResult, or Guarantee with ``dry_run=True``

    Raises
    ------
    ParameterError, UnsupportedError, SchemaError
        Before any data is read.
    RefusedError
        From the ledger, before the label is read.
    """
    if not hasattr(table, "schema"):
        raise ParameterError(
            f"The table is a {type(table).__name__}.",
            "Pass a Table: confide.Table.from_frame(frame, 'schema.toml'), or use confide.PrivateRegressor.",
        )
    schema = table.schema
    private = tuple(column.name for column in schema.columns if column.role == "private")
    if adjacency is None:
        if private:
            raise UnsupportedError(
                f"The schema has private columns ({', '.join(private[:5])}) and no 'adjacency' is given.",
                "Pass adjacency='replace_private_part'; the engine then leaves private columns out.",
            )
        adjacency = Adjacency.REPLACE_LABEL
    relation = check_adjacency(adjacency, private)
    if not any(column.role == "label" for column in schema.columns):
        raise SchemaError("The schema has no label column.", "Give one column role = 'label'.")
    check_bounds(table.label_bounds)
    request = make_request(
        epsilon=epsilon,
        delta=delta,
        adjacency=relation,
        unit=str(schema.unit or "row"),
        declaration=schema.declaration,
        engine=engine,
        conditioning=conditioning,
        leverage=leverage,
        shrinkage=shrinkage,
        random_state=random_state,
        recorded=ledger is not None,
        nonprivate=nonprivate,
    )
    powers = powers_of(numeric_columns(schema), degree)
    if dry_run:
        from confide.ledger import rehearse

        rehearse(ledger, request.guarantee, table=table, analyst=analyst)
        return request.guarantee
    if private:
        warnings.warn(
            UncertifiedWarning(
                f"The engine {request.engine!r} leaves the private columns out: {', '.join(private[:5])}."
            ),
            stacklevel=2,
        )
    problem = table_problem(table, intercept=fit_intercept, powers=powers)
    result = fit(problem, request, ledger=ledger, table=table, analyst=analyst, label=label or "train")
    model = replace(
        result.model,
        names=base_names(schema),
        schema_digest=schema.digest,
        powers=powers,
        features=schema.features().to_dict() if schema.public else None,
    )
    return replace(result, model=model)


def base_names(schema: Any) -> tuple[str, ...]:
    """Return the names of a schema's encoded public columns."""
    return tuple(name for column in schema.public for name in column.feature_names)


def numeric_columns(schema: Any) -> list[int]:
    """Return which encoded public columns are numbers and not levels of a category."""
    numeric = [column.numeric for column in schema.public for _ in column.feature_names]
    return [i for i, flag in enumerate(numeric) if flag]


def table_problem(table: Any, *, intercept: bool = True, powers: Powers = ()) -> LinearProblem:
    """Return the linear problem of a table's public columns and label, whole or chunked."""
    lower, upper = table.label_bounds

    def parts() -> Iterator[Any]:
        return iter(table.chunks()) if hasattr(table, "chunks") else iter((table,))

    def public_parts() -> Iterator[Any]:
        # The passes before the charge: the label is neither read nor parsed in them.
        return iter(table.public_chunks()) if hasattr(table, "public_chunks") else parts()

    names = names_of(base_names(table.schema), powers)
    per_person = table.schema.id is not None
    return LinearProblem(
        Source(lambda: (expand(part.public.matrix, powers) for part in public_parts()), names, bounded=True),
        lambda: (part.label for part in parts()),
        float(lower),
        float(upper),
        (lambda: (part.ids for part in public_parts())) if per_person else None,
        intercept,
    )


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

    # Without noise there is nothing to clip: one round of the closed form.
    planner = _plan_rounds if request.engine == "rounds" and not request.nonprivate else _plan_closed_form
    request, rows, run = planner(problem, request)
    _warn_of_delta(request, rows)
    with charged(ledger, request.guarantee, table=table, analyst=analyst, label=label) as reservation:
        result = run()
    return result if reservation is None else replace(result, entry=reservation.id)


#: The request with the event of what will be run, the public number of rows, what is run after the charge.
_Planned = tuple[Request, int, Callable[[], TrainingResult]]


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
            stacklevel=4,
        )


@dataclass(frozen=True)
class Forecast:
    """What one epsilon would buy, from public quantities.

    Attributes
    ----------
    epsilon, delta : float
    noise_error : float
        Root-mean-square error that privacy noise would add to a fitted label, before shrinkage, in the
        label's encoded unit, if the whole budget went into one release without clipping (``closed_form``).
    rows : int
    """

    epsilon: float
    delta: float
    noise_error: float
    rows: int


def forecast(
    table: Any,
    epsilons: Sequence[Any],
    *,
    delta: Any,
    conditioning: Any = None,
    leverage: float | None = None,
    fit_intercept: bool = True,
    degree: int = 1,
) -> tuple[Forecast, ...]:
    """Say what each epsilon would buy, before any label is read or anything is charged.

    Reads the public columns alone. The parameters are those of `train`, for adjacency ``replace_label``, and
    the figures those of the engine ``closed_form``. The noise of ``rounds`` is proportional to residuals,
    which no public quantity tells; where they are far narrower than the declared bounds it is far smaller.
    """
    schema = table.schema
    problem = table_problem(table, intercept=fit_intercept, powers=powers_of(numeric_columns(schema), degree))
    rows = []
    for epsilon in epsilons:
        request = make_request(
            epsilon=epsilon,
            delta=delta,
            adjacency=Adjacency.REPLACE_LABEL,
            unit=str(schema.unit or "row"),
            declaration=schema.declaration,
            engine="closed_form",
            conditioning=conditioning,
            leverage=leverage,
            recorded=False,
        )
        step = plan_step(problem, request)
        noise = prepare(step, request.noise_multiplier).noise
        error = (problem.upper - problem.lower) / 2 * math.sqrt(float(np.trace(noise)) / step.basis.n)
        amounts = request.guarantee
        rows.append(Forecast(float(amounts.epsilon), float(amounts.delta), error, step.basis.n))
    return tuple(rows)


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
