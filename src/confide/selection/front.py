"""The front door on tables: validate, reserve, read, draw, settle."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np

from confide.errors import ParameterError, SchemaError, UncertifiedWarning, UnsupportedError
from confide.privacy import GAP_CONDITION, MEANINGS, UNRECORDED, Adjacency, Guarantee
from confide.schema.odd import telling
from confide.selection.request import Request, make_request
from confide.selection.result import SelectionResult, Status


@overload
def select(table: Any, *, dry_run: Literal[True], **options: Any) -> Guarantee: ...
@overload
def select(table: Any, *, dry_run: Literal[False] = ..., **options: Any) -> SelectionResult: ...


def select(  # pyright: ignore[reportInconsistentOverload]
    table: Any,
    *,
    size: Any = None,
    epsilon: Any = None,
    ledger: Any = None,
    mechanism: str = "exponential",
    top: int | None = None,
    loss: Any = None,
    radius: float | None = None,
    ridge: float | None = None,
    adjacency: Adjacency | str = "replace_one",
    random_state: int | None = None,
    dry_run: bool = False,
    diagnostics: str | None = None,
    analyst: str | None = None,
    label: str = "",
) -> SelectionResult | Guarantee:
    """Draw which `size` encoded columns of a table explain its label, under pure epsilon-DP.

    Candidates are all encoded public and private columns, in the order of the schema; the schema's bounds
    put every cell into [-1, 1]. The label is centred at the middle of its bounds; one of two declared
    categories becomes -1 (the first, and cells outside both) and +1 (the second).

    Parameters
    ----------
    table : Table
        From `confide.schema`. A chunked one is gathered: its encoded columns are held in memory, n p
        numbers.
    size : int
        s, columns to select; required.
    epsilon : amount
        Total privacy of this call; required. Pure: delta is 0.
    ledger : Ledger or str, optional
        Charged before any cell is read, and never refunded. None marks the guarantee ``"unrecorded"``.
    mechanism : {"exponential", "permute_and_flip", "top_r", "mistakes"}
        ``"mistakes"`` is private under the gap condition alone: its guarantee assumes ``"gap condition"``,
        and a ledger refuses it unless it accepts that by name. See the how-to page on mechanisms.
    top : int, optional
        R of ``"top_r"``, see `draw`. Default 2 + (p - size) size.
    loss : str or Loss, optional
        ``"squared"``, ``"huber"``, ``"quantile"`` for a numeric label, and ``"logistic"``, ``"hinge"`` for
        one of two categories, which ``"squared"`` (the default for both) takes too, as -1 and +1, in a
        fraction of the time.
    radius, ridge : float, optional
        Public levers of utility, in units of encoded columns and of the label. Defaults: radius
        b_y / sqrt(size) with b_y half the width of the label's bounds, 4 / sqrt(size) for logistic and
        hinge loss; ridge 4. See the how-to page on defaults.
    adjacency : Adjacency or str
        Under ``add_remove_one`` the number of rows is secret, and nothing in the result depends on it.
        (The rounding proof covers 2^20 rows up to size 24, 2^26 / (40 + size) above: that no table has more
        is then a public precondition, which nothing checks.)
    random_state : int, optional
        For tests; marks the guarantee ``"seeded"``.
    dry_run : bool
        Return the guarantee that would be charged; only the schema is read.
    diagnostics : {None, "public data"}
        Returns running time, acceptance and more with the result. They are functions of the data: the
        guarantee then assumes ``"public data"``, and a ledger refuses it unless it accepts that by name.
    analyst, label : str
        Passed on to the ledger.

    Returns
    -------
    SelectionResult, or Guarantee with ``dry_run=True``

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

    Notes
    -----
    With an id column the unit is a person of at most ``max_rows_per_id`` = m rows, and the draw spends
    epsilon / m a row.
    """
    schema, relation, features, names = candidates_of(table, adjacency, "SubsetSelector")
    loss_, target_bound = _loss(schema.label, loss)
    request = make_request(
        size=size,
        epsilon=epsilon,
        candidates=len(names),
        mechanism=mechanism,
        top=top,
        loss=loss_,
        radius=radius,
        ridge=ridge,
        target_bound=target_bound,
        adjacency=relation,
        unit=str(schema.unit or "row"),
        declaration=schema.declaration,
        rows_per_unit=schema.max_rows_per_id or 1,
        random_state=random_state,
        recorded=ledger is not None,
        diagnostics=diagnostics,
    )
    if dry_run:
        from confide.ledger import rehearse

        rehearse(ledger, request.guarantee, table=table, analyst=analyst)
        return request.guarantee

    table = telling(table, relation)
    if relation is not Adjacency.ADD_REMOVE_ONE:  # there n is secret
        from confide.selection.problem import check_rows

        check_rows(request.size, getattr(table, "n_rows", 0))

    def read() -> tuple[Any, np.ndarray]:
        return encoded(table, features), centred_label(table, schema.label)

    result = draw_support(
        read, names, request, ledger=ledger, table=table, analyst=analyst, label=label or "select"
    )
    owners = [column.name for column in features for _ in column.feature_names]
    columns = tuple(dict.fromkeys(owners[j] for j in result.indices))
    return replace(result, columns=columns, schema_digest=schema.digest)


def draw_support(
    read: Any,
    names: tuple[str, ...],
    request: Request,
    *,
    ledger: Any = None,
    table: Any = None,
    analyst: str | None = None,
    label: str = "select",
) -> SelectionResult:
    """Reserve, read, draw, settle. A charge stays whatever happens after it.

    Parameters
    ----------
    read : callable
        Returns X [n, p] within +-feature_bound and y [n]; called after the charge.
    names : tuple of str, length p
    request : Request
    """
    from confide.ledger import charged
    from confide.selection.release import problem_of, release

    if UNRECORDED in request.guarantee.assumptions and GAP_CONDITION in request.guarantee.assumptions:
        warnings.warn(
            UncertifiedWarning(
                f"The mechanism 'mistakes' is private on a table where {MEANINGS[GAP_CONDITION][0]}, and on "
                "no other; no ledger was asked to accept that. See the how-to page on selection mechanisms."
            ),
            stacklevel=3,
        )
    with charged(ledger, request.guarantee, table=table, analyst=analyst, label=label) as reservation:
        support, facts = release(problem_of(request, *read()), request)
    chosen = tuple(names[j] for j in support)
    return SelectionResult(
        chosen,
        tuple(int(j) for j in support),
        request.guarantee,
        Status.RELEASED,
        request.mechanism,
        _name(request.loss),
        request.size,
        len(names),
        request.radius,
        request.ridge,
        request.feature_bound,
        request.target_bound,
        chosen,
        diagnostics=facts,
        entry="" if reservation is None else reservation.id,
        top=request.top,
    )


def candidates_of(
    table: Any, adjacency: Adjacency | str, estimator: str
) -> tuple[Any, Adjacency, tuple[Any, ...], tuple[str, ...]]:
    """Return a table's schema, the relation, the columns to select from, and the names of the encoded ones.

    Raises
    ------
    ParameterError
        For what is no table; it names the `estimator` that takes arrays.
    SchemaError
    """
    if not hasattr(table, "schema"):
        raise ParameterError(
            f"The table is a {type(table).__name__}.",
            f"Pass a Table: confide.Table.from_frame(frame, 'schema.toml'), or use confide.{estimator}.",
        )
    schema = table.schema
    relation = Adjacency.parse(adjacency)
    schema.require(relation)
    features = feature_columns(schema)
    names = tuple(name for column in features for name in column.feature_names)
    if not names:
        raise SchemaError(
            "The schema has no column to select from.", "Give columns role = 'public' or 'private'."
        )
    return schema, relation, features, names


def feature_columns(schema: Any) -> tuple[Any, ...]:
    """Return the public and private columns of a schema, in its order."""
    return tuple(column for column in schema.columns if column.role in ("public", "private"))


def encoded(table: Any, features: tuple[Any, ...]) -> Any:
    """Return the encoded columns, float64 array or CSR [n, p], of a table whole or chunked."""
    from confide.schema.encode import encode, is_sparse

    def block(part: Any) -> Any:
        values = {column.name: part.values(column.name) for column in features}
        return encode(features, values, part.n_rows).matrix

    parts = table.chunks()
    if is_sparse(features):
        from scipy.sparse import vstack

        blocks = [block(part) for part in parts]
        return blocks[0] if len(blocks) == 1 else vstack(blocks, format="csr")
    blocks = []
    gathered, start = None, 0
    for part in parts:
        if part.n_rows == table.n_rows:
            return block(part)
        if gathered is None:
            width = sum(len(column.feature_names) for column in features)
            gathered = np.empty((table.n_rows, width))
        gathered[start : start + part.n_rows] = block(part)
        start += part.n_rows
    return np.zeros((0, sum(len(c.feature_names) for c in features))) if gathered is None else gathered


def centred_label(table: Any, column: Any) -> np.ndarray:
    """Return the label about the middle of its bounds, or -1 and +1 for two categories, float64 [n]."""
    labels = [np.asarray(part.label, dtype=np.float64) for part in table.chunks()]
    values = np.concatenate(labels) if labels else np.zeros(0)
    return values - column.middle if column.numeric else np.where(values == 1.0, 1.0, -1.0)


def _loss(column: Any, loss: Any) -> tuple[Any, float | None]:
    """Return the loss and b_y for a label column; None where the loss fixes it."""
    from confide.selection.losses import loss_of

    if column.numeric:
        chosen = loss_of("squared" if loss is None else loss)
        if chosen.labels:
            raise UnsupportedError(
                f"The loss {chosen.name!r} needs a label of two categories, and {column.name!r} is a number.",
                f"Declare categories of {column.name!r}, such as [0, 1], or use loss='squared'.",
            )
        return chosen, column.half_width
    chosen = loss_of("squared" if loss is None else loss)
    if len(column.categories) != 2:
        raise UnsupportedError(
            f"The label {column.name!r} has {len(column.categories)} categories; a selection needs two.",
            "Declare the two of interest; all other cells count as the first.",
        )
    return chosen, None if chosen.labels else 1.0


def _name(loss: Any) -> str:
    return f"{loss.name}({loss.shape:g})" if loss.shape else loss.name
