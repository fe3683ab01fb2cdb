"""The front door on tables: validate, reserve, read, select, fit, settle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, overload

from confide.errors import UnsupportedError
from confide.pipeline.release import Secret, release
from confide.pipeline.request import make_budget, make_fit, make_sparse_request
from confide.pipeline.result import SparseModel, SparseResult
from confide.privacy import Adjacency, Guarantee
from confide.schema import Schema
from confide.schema.odd import telling
from confide.selection.front import candidates_of, centred_label, encoded
from confide.selection.problem import check_rows
from confide.training.coefficients import check_rows as check_fitted_rows


@overload
def select_and_fit(table: Any, *, dry_run: Literal[True], **options: Any) -> Guarantee: ...
@overload
def select_and_fit(table: Any, *, dry_run: Literal[False] = ..., **options: Any) -> SparseResult: ...


def select_and_fit(  # pyright: ignore[reportInconsistentOverload]
    table: Any,
    *,
    size: Any = None,
    epsilon: Any = None,
    delta: Any = 0,
    ledger: Any = None,
    split: Any = None,
    mechanism: str = "exponential",
    top: int | None = None,
    loss: Any = None,
    radius: float | None = None,
    ridge: float | None = None,
    coefficients: str = "auto",
    coefficient_loss: Any = None,
    adjacency: Adjacency | str = "replace_one",
    random_state: int | None = None,
    dry_run: bool = False,
    analyst: str | None = None,
    label: str = "",
) -> SparseResult | Guarantee:
    """Draw the columns of a table that explain its label, and fit their coefficients, under one charge.

    Candidates and label are those of `confide.select`; a label of two categories is fitted with logistic
    loss.

    Parameters
    ----------
    table : Table
        From `confide.schema`.
    size, epsilon : int, amount
        Required; epsilon is the total of both parts.
    delta : amount
        Of the coefficients; 0 keeps both parts pure. Nothing of it is charged where their noise is that of
        pure epsilon all the same, by public numbers.
    ledger : Ledger or str, optional
        Charged before any cell is read, once. None marks the guarantee ``"unrecorded"``.
    split : amount, optional
        Part of epsilon for the support, 1/2 by default. Where `size` is all columns, nothing is selected and
        nothing charged for it: the coefficients take all.
    mechanism, top, loss, radius, ridge
        Of the selection: see `confide.select`.
    coefficients, coefficient_loss
        See `SparseRegressor`.
    adjacency : Adjacency or str
    random_state : int, optional
        For tests; marks the guarantee ``"seeded"``.
    dry_run : bool
        Return the guarantee that would be charged; only the schema is read.
    analyst, label : str
        Passed on to the ledger.

    Returns
    -------
    SparseResult, or Guarantee with ``dry_run=True``

    Raises
    ------
    ParameterError, UnsupportedError, SchemaError
        Before any data is read.
    RefusedError
        From the ledger, before any data is read.

    Warns
    -----
    UncertifiedWarning
        For mechanism ``"mistakes"`` without a ledger, which would have to accept its assumption.
    """
    schema, relation, features, names = candidates_of(table, adjacency, "SparseRegressor")
    target = schema.label
    classes = not target.numeric
    loss_of_classes, target_bound = _loss(target, loss)
    request = make_sparse_request(
        size=size,
        budget=make_budget(epsilon, delta, split),
        fit=make_fit(coefficients, coefficient_loss, classes=classes),
        candidates=len(names),
        rows=None if dry_run else getattr(table, "n_rows", None),
        adjacency=relation,
        rows_per_unit=schema.max_rows_per_id or 1,
        unit=str(schema.unit or "row"),
        declaration=schema.declaration,
        random_state=random_state,
        recorded=ledger is not None,
        mechanism=mechanism,
        top=top,
        loss=loss_of_classes,
        radius=radius,
        ridge=ridge,
        target_bound=target_bound,
    )
    if dry_run:
        from confide.ledger import rehearse

        rehearse(ledger, request.guarantee, table=table, analyst=analyst)
        return request.guarantee
    table = telling(table, relation)
    if relation is not Adjacency.ADD_REMOVE_ONE:  # there n is secret
        rows = int(getattr(table, "n_rows", 0))
        if request.selection is not None:
            check_rows(request.selection.size, rows)
        check_fitted_rows(request.plan.shape, rows)
    half = 1.0 if classes else float(target.half_width)

    def read() -> Secret:
        matrix = encoded(table, features)

        def take(columns: tuple[int, ...]) -> Any:
            cells = matrix[:, list(columns)]
            return cells.toarray() if hasattr(cells, "toarray") else cells

        return Secret(matrix, take, centred_label(table, target), 1.0, half)

    support, selection, fitted, entry = release(
        read, names, request, ledger=ledger, table=table, analyst=analyst, label=label or "select and fit"
    )
    middle = 0.0 if classes else float(target.middle)
    owners = [column for column in features for _ in column.feature_names]
    read_columns = tuple(dict.fromkeys(owners[j] for j in support))
    if selection is not None:
        owned = tuple(column.name for column in read_columns)
        selection = replace(selection, columns=owned, schema_digest=schema.digest)
    declared = Schema(read_columns, name=schema.name, declared_by=schema.declared_by, note=schema.note)
    model = SparseModel(
        tuple(names[j] for j in support),
        tuple(int(j) for j in support),
        middle + fitted.intercept,
        fitted.coefficients,
        None if classes else (middle - half, middle + half),
        tuple(map(str, target.categories)) if classes else (),
        len(names),
        fitted.loss,
        schema.digest,
        declared.to_dict(),
    )
    return SparseResult(model, request.guarantee, selection, fitted, schema.digest, entry)


def _loss(column: Any, loss: Any) -> tuple[Any, float | None]:
    """Return the loss of the selection and b_y for a label column; None where the loss fixes it."""
    from confide.selection.losses import loss_of

    chosen = loss_of("squared" if loss is None else loss)
    if column.numeric:
        if chosen.labels:
            raise UnsupportedError(
                f"The loss {chosen.name!r} needs a label of two categories, and {column.name!r} is a number.",
                f"Declare categories of {column.name!r}, such as [0, 1], or use loss='squared'.",
            )
        return chosen, column.half_width
    if len(column.categories) != 2:
        raise UnsupportedError(
            f"The label {column.name!r} has {len(column.categories)} categories; a selection needs two.",
            "Declare the two of interest; all other cells count as the first.",
        )
    return chosen, None if chosen.labels else 1.0
