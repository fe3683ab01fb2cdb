"""The front door on tables: from a schema to a request, from a table to an engine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import numpy as np

from confide.errors import ParameterError, SchemaError, UncertifiedWarning, UnsupportedError
from confide.privacy import Adjacency, Guarantee
from confide.schema.odd import telling
from confide.schema.rows import stacked
from confide.training import engines
from confide.training.design import Source
from confide.training.engines.ask import (
    WHOLE_ROWS,
    Ask,
    Charge,
    Job,
    SecretColumns,
    SecretLabels,
    changed_options,
    given_delta,
)
from confide.training.engines.result import ModelResult
from confide.training.expansion import Powers, expand, names_of, powers_of
from confide.training.inputs import dense
from confide.training.linear import fit, quote
from confide.training.problem import LinearProblem, check_adjacency, check_bounds
from confide.training.request import ENGINES, make_request
from confide.training.result import TrainingResult


@overload
def train(table: Any, *, dry_run: Literal[True], **options: Any) -> Guarantee: ...
@overload
def train(table: Any, *, dry_run: Literal[False] = ..., **options: Any) -> Any: ...


def train(  # pyright: ignore[reportInconsistentOverload]
    table: Any,
    *,
    epsilon: Any = None,
    delta: Any = None,
    ledger: Any = None,
    engine: str | None = None,
    model: str = "linear",
    conditioning: Any = None,
    leverage: float | None = None,
    shrinkage: bool = True,
    fit_intercept: bool = True,
    degree: int = 1,
    adjacency: Adjacency | str | None = None,
    max_rows: int | None = None,
    random_state: int | None = None,
    dry_run: bool = False,
    nonprivate: bool = False,
    analyst: str | None = None,
    label: str = "",
    **options: Any,
) -> TrainingResult | ModelResult | Guarantee:
    """Fit a private model of the label of a table: of a number, or of classes where the label has categories.

    Parameters
    ----------
    table : Table
        From `confide.schema`. A chunked one is read in passes and never held in memory by ``rounds`` and
        ``closed_form`` of numbers; the others hold its encoded columns.
    epsilon, delta : amount
        Total privacy of this call; both required.
    ledger : Ledger or str, optional
        Charged before the label is read, and never refunded. None marks the guarantee ``"unrecorded"``.
    engine : str, optional
        Numbers: ``"rounds"`` (a few clipped residuals; the default with public columns), ``"closed_form"``
        (one statistic without any clipping), ``"semi_sensitive"`` (public and private columns),
        ``"adassp"`` or ``"boosted_adassp"`` (no public column; the latter the default there), ``"dpsgd"``.
        Classes: ``"closed_form"``, ``"randomized_response"`` (None takes the better of both by public
        quantities, and the latter with delta = 0, which it does not need), ``"objective"`` (two classes, no
        public column), ``"dpsgd"``. See "Choose an engine".
    model : {"linear", "fm", "mlp"}
        The last two are fitted by ``dpsgd``.
    conditioning : str or tuple, optional
        See `confide.training.conditioning_matrix`; ``("power", p)`` and ``("ridge", rho)`` pass an option.
        None: ``"optimal"`` in ``closed_form``; in each round of ``rounds``, what leaves the least expected
        posterior variance; ``"spectral"`` for linear models and ``("power", 0.5)`` for others in ``dpsgd``.
    leverage : float, optional
        Leverage quantile in (0, 1] from which public rows are shortened; None lets the expected error
        choose, 1 shortens none (ordinary instead of weighted least squares).
    shrinkage : bool
        Shrink by the known noise (post-processing).
    fit_intercept : bool
    degree : int
        Polynomial degree in each numeric public column, 1 to 10, of ``rounds`` and ``closed_form`` of
        numbers. Powers of public columns are public; each term costs one more direction of noise.
    adjacency : Adjacency or str, optional
        ``replace_label`` where the schema has no private column. Where it has some,
        ``replace_private_part`` must be said: engines that read public columns alone then leave those out,
        with a warning. ``replace_one`` and ``add_remove_one`` need a schema without public columns.
    max_rows : int, optional
        Public stand-in for the secret number of rows under ``add_remove_one``, for ``dpsgd``: batches and
        means use it. No table is compared with it; rounding covers so many rows, and 2^24 at least.
    random_state : int, optional
        For tests; marks the guarantee ``"seeded"``.
    dry_run : bool
        Return exactly the guarantee that would be charged, event included; the ledger and what is public
        are read, no label and no private cell. Raises the refusal that the ledger would answer with.
    nonprivate : bool
        With ``epsilon=inf``: no noise, no ledger, so marked.
    analyst, label : str
        Passed on to the ledger.
    **options
        Of engine ``dpsgd``: hidden, activation, embedding, rank, switch, optimizer, learning_rate, steps,
        batch_size, clip, average. See `confide.training.sgd.SGDRequest`.

    Returns
    -------
    TrainingResult (``rounds`` and ``closed_form`` of numbers), ModelResult, or Guarantee with
    ``dry_run=True``

    Raises
    ------
    ParameterError, UnsupportedError, SchemaError
        Before any data is read.
    RefusedError
        From the ledger, before the label is read.

    Warns
    -----
    UserWarning
        Of text in numeric public columns, which counts as missing, once a column.
    """
    ready = prepared(
        table,
        epsilon=epsilon,
        delta=delta,
        ledger=ledger,
        engine=engine,
        model=model,
        conditioning=conditioning,
        leverage=leverage,
        shrinkage=shrinkage,
        fit_intercept=fit_intercept,
        degree=degree,
        adjacency=adjacency,
        max_rows=max_rows,
        random_state=random_state,
        nonprivate=nonprivate,
        analyst=analyst,
        label=label,
        **options,
    )
    return ready.rehearse() if dry_run else ready.run()


@dataclass(frozen=True)
class Prepared:
    """A request whose parameters fit its schema; no row was read.

    Attributes
    ----------
    quote : callable
        Returns exactly what `run` would charge, from what is public.
    run : callable
        Charges and fits.
    charge : Charge
    """

    quote: Callable[[], Guarantee]
    run: Callable[[], Any]
    charge: Charge

    def rehearse(self) -> Guarantee:
        """Return the quote, or raise the refusal that the ledger would answer with."""
        from confide.ledger import rehearse

        guarantee = self.quote()
        rehearse(self.charge.ledger, guarantee, table=self.charge.table, analyst=self.charge.analyst)
        return guarantee


def prepared(
    table: Any,
    *,
    epsilon: Any,
    delta: Any,
    ledger: Any = None,
    engine: str | None = None,
    model: str = "linear",
    conditioning: Any = None,
    leverage: float | None = None,
    shrinkage: bool = True,
    fit_intercept: bool = True,
    degree: int = 1,
    adjacency: Adjacency | str | None = None,
    max_rows: int | None = None,
    random_state: int | None = None,
    nonprivate: bool = False,
    analyst: str | None = None,
    label: str = "",
    **options: Any,
) -> Prepared:
    """Check all that parameters and schema tell; parameters and errors as in `train`."""
    if not hasattr(table, "schema"):
        raise ParameterError(
            f"The table is a {type(table).__name__}.",
            "Pass a Table: confide.Table.from_frame(frame, 'schema.toml'), or use confide.PrivateRegressor.",
        )
    schema = table.schema
    if not any(column.role == "label" for column in schema.columns):
        raise SchemaError("The schema has no label column.", "Give one column role = 'label'.")
    relation = _relation(schema, adjacency)
    classes = () if schema.label.numeric else tuple(schema.label.categories)
    if schema.label.numeric:
        check_bounds(table.label_bounds)
    elif len(classes) < 2:
        raise SchemaError(
            f"The label has {len(classes)} categories.", "Declare two or more categories of the label."
        )
    amount = given_delta(epsilon, delta, nonprivate)
    chosen = engine or engines.default_engine(
        classes=len(classes),
        model=model,
        adjacency=relation,
        public=bool(schema.public) or not schema.private,
        pure=amount == 0 and not nonprivate,
    )
    powers = powers_of(numeric_columns(schema), degree)
    ask = Ask(
        chosen,
        epsilon,
        amount if delta is None else delta,
        relation,
        None if classes else (float(table.label_bounds[0]), float(table.label_bounds[1])),
        classes or None,
        model,
        conditioning,
        leverage,
        shrinkage,
        fit_intercept,
        changed_options(options),
        max_rows,
        schema.max_rows_per_id or 1,
        str(schema.unit or "row"),
        schema.declaration,
        (),
        ledger is not None,
        random_state,
        nonprivate,
    )
    prepare = _linear if chosen in ENGINES and not classes else _engine
    table = telling(table, relation)
    return prepare(table, ask, powers, Charge(ledger, table, analyst, label or "train"))


def _relation(schema: Any, adjacency: Adjacency | str | None) -> Adjacency:
    """Return the relation that is asked for, where the roles of the columns allow it."""
    private = tuple(column.name for column in schema.private)
    if adjacency is None:
        if private:
            raise UnsupportedError(
                f"The schema has private columns ({', '.join(private[:5])}) and no 'adjacency' is given.",
                "Pass adjacency='replace_private_part'.",
            )
        return Adjacency.REPLACE_LABEL
    relation = Adjacency.parse(adjacency)
    if relation not in WHOLE_ROWS:
        return check_adjacency(relation, private)
    if schema.public:
        raise UnsupportedError(
            f"Under {relation.value!r} no column is public, and {schema.public[0].name!r} is declared so.",
            "Declare all columns private, or pass adjacency='replace_label' or 'replace_private_part'.",
        )
    schema.require(relation)
    return relation


def _linear(table: Any, ask: Ask, powers: Powers, charge: Charge) -> Prepared:
    """Prepare `rounds` or `closed_form` of a number, which read tables in passes."""
    if ask.options or ask.model != "linear":
        ask.only_linear()
    schema = table.schema
    request = make_request(
        epsilon=ask.epsilon,
        delta=ask.delta,
        adjacency=ask.adjacency,
        unit=ask.unit,
        declaration=ask.declaration,
        engine=ask.engine,
        conditioning=ask.conditioning,
        leverage=ask.leverage,
        shrinkage=ask.shrinkage,
        random_state=ask.random_state,
        recorded=ask.recorded,
        nonprivate=ask.nonprivate,
    )

    def problem() -> LinearProblem:
        return table_problem(table, intercept=ask.fit_intercept, powers=powers)

    def run() -> TrainingResult:
        _warn_of_private(ask, schema)
        result = fit(
            problem(), request, ledger=charge.ledger, table=table, analyst=charge.analyst, label=charge.label
        )
        model = replace(
            result.model,
            names=base_names(schema),
            schema_digest=schema.digest,
            powers=powers,
            features=schema.features().to_dict() if schema.public else None,
        )
        return replace(result, model=model)

    return Prepared(lambda: quote(problem(), request), run, charge)


def _engine(table: Any, ask: Ask, powers: Powers, charge: Charge) -> Prepared:
    """Prepare an engine of `confide.training.engines`."""
    if powers:
        raise UnsupportedError(
            f"The engine {ask.engine!r} knows no 'degree'.", "Leave it out, or pass model='mlp' with 'dpsgd'."
        )
    if ask.engine in engines.ONLY_PRIVATE and table.schema.public:
        raise UnsupportedError(
            f"The engine {ask.engine!r} reads no column as public.",
            "Declare all columns private, or pass an engine that uses public columns.",
        )
    engine = engines.make(ask)
    uses = ask.engine in engines.USES_PRIVATE

    def run() -> ModelResult:
        if not uses:
            _warn_of_private(ask, table.schema)
        result = engine.fit(table_job(table, private=uses), charge)
        return replace(result, model=table_model(result.model, table.schema, private=uses))

    return Prepared(lambda: engine.quote(table_job(table, private=uses)), run, charge)


def _warn_of_private(ask: Ask, schema: Any) -> None:
    private = [column.name for column in schema.private]
    if private:
        name = "closed_form" if ask.engine == "auto" else ask.engine
        # Measured: docs/how-to/semi-sensitive.md.
        other = (
            "engine='dpsgd' uses them."
            if ask.classes
            else "engine='semi_sensitive' uses them at the same charge; its noise is worth it where rows "
            "times epsilon are 500 or more a column."
        )
        warnings.warn(
            UncertifiedWarning(
                f"The engine {name!r} leaves the private columns out: {', '.join(private[:5])}. {other}"
            ),
            stacklevel=4,
        )


def table_job(table: Any, *, private: bool) -> Job:
    """Return the columns of a table, encoded; private ones and labels are read when they are asked for."""
    schema = table.schema
    chunked = hasattr(table, "public_chunks")
    parts = list(table.public_chunks()) if chunked else [table]
    public = stacked([part.public.matrix for part in parts], len(base_names(schema)))
    n = sum(part.n_rows for part in parts)
    names = [name for column in schema.private for name in column.feature_names] if private else []

    def chunks() -> Iterator[Any]:
        return iter(table.chunks()) if chunked else iter((table,))

    def cells() -> Any:
        return dense(stacked([part.private.matrix for part in chunks()], len(names)))

    def labels() -> Any:
        return np.concatenate([np.asarray(part.label) for part in chunks()])

    ids = None if schema.id is None else np.concatenate([part.ids for part in parts])
    secret = SecretColumns((n, len(names)), cells if names else (lambda: np.zeros((n, 0))))
    return Job(public, secret, SecretLabels(n, labels), ((-1.0, 1.0),) * len(names), True, ids)


def table_model(core: Any, schema: Any, *, private: bool) -> Any:
    """Return a model that reads raw rows by the declarations of the columns it uses."""
    from confide.schema import Schema
    from confide.training.engines.table_model import TableModel

    used = (*schema.public, *(schema.private if private else ()))
    features = Schema(used, name=schema.name, declared_by=schema.declared_by, note=schema.note).to_dict()
    names = [name for column in schema.private for name in column.feature_names] if private else []
    return TableModel(core, base_names(schema), tuple(names), schema.digest, features if used else None)


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
