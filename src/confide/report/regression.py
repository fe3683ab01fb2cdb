"""What a report says, as plain values, before any page or picture is made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from confide.errors import ParameterError
from confide.privacy import exact, show
from confide.report import words
from confide.report.measured import Error, PublicTest, Share, measure, share_kept
from confide.report.noise import Spread, drowned, spread
from confide.report.release import ReleaseFacts, digest, label_of, other_assumptions, release_facts

if TYPE_CHECKING:
    from confide.training import TrainingResult

#: Epsilon at which the price of privacy is tabulated, besides the result's own.
GRID = ("0.1", "0.25", "0.5", "1", "2", "4", "8")


@dataclass(frozen=True)
class ColumnFact:
    """One declared column: name, role, domain, unit and who declared it."""

    name: str
    role: str
    domain: str
    unit: str
    declared_by: str
    note: str


@dataclass(frozen=True)
class Effect:
    """One coefficient.

    Attributes
    ----------
    name, words : str
        Of the encoded column, and the name for people.
    value, unbiased : float
        Used by the model, and before shrinkage.
    noise, standard : float
        Standard errors of `unbiased`: of privacy noise alone, and of privacy and sampling noise.
    meaning : str
        In the columns' own units, where the schema tells them.
    """

    name: str
    words: str
    value: float
    unbiased: float
    noise: float
    standard: float
    meaning: str


@dataclass(frozen=True)
class Price:
    """Predicted root-mean-square error that noise adds at one epsilon, from public quantities."""

    epsilon: str
    amount: float
    noise: float
    chosen: bool


@dataclass(frozen=True)
class Point:
    """A measured test error at one epsilon, with the public prediction of what noise adds to it."""

    epsilon: str
    amount: float
    error: float
    deviation: float
    noise: float
    kept: Share | None
    chosen: bool


@dataclass(frozen=True)
class Measured:
    """Errors on public test labels (mean squared, in the label's unit) and who declared them public."""

    declared_by: str
    reason: str
    rows: int
    points: tuple[Point, ...]
    error: float
    deviation: float
    baseline: float | None
    baseline_sentence: str
    reference: float | None
    reference_reason: str
    kept: Share | None


@dataclass(frozen=True)
class Account:
    """One line of the ledger's balance, amounts as exact text by component.

    `own` is what this release cost the account, None where the ledger does not hold its entry.
    """

    name: str
    limit: dict[str, str]
    before: dict[str, str] | None
    own: dict[str, str] | None
    spent: dict[str, str]
    remaining: dict[str, str]


@dataclass(frozen=True)
class LedgerFacts:
    """The ledger before and after: balances, entries, the entry of this release, the chain's head."""

    dataset: str
    handle: str
    terms: str
    parts: tuple[str, ...]
    accounts: tuple[Account, ...]
    charges: tuple[dict[str, Any], ...]
    own: str | None
    entries: int
    head: str
    assumptions: tuple[str, ...]
    refused: str


@dataclass(frozen=True)
class Facts(ReleaseFacts):
    """Everything that a report says about one training result; see `facts`."""

    assumptions: tuple[str, ...]
    status: str
    label_unit: str
    label_range: tuple[float, float]
    model_digest: str
    columns: tuple[ColumnFact, ...]
    not_covered: tuple[tuple[str, str], ...]
    rows: int
    row_limit: str
    spectrum: tuple[float, ...]
    effects: tuple[Effect, ...]
    intercept: Effect | None
    absent: tuple[str, ...]
    prices: tuple[Price, ...]
    spread: Spread
    effective: float
    drowned: str
    noise_multiplier: float
    sensitivity: float
    measured: Measured | None
    ledger: LedgerFacts | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain nested values, fit for JSON (numbers that are not finite as None)."""
        return _plain(asdict(self))


def facts(
    result: TrainingResult,
    *,
    table: Any = None,
    ledger: Any = None,
    before: Mapping[str, Any] | None = None,
    test: PublicTest | None = None,
) -> Facts:
    """Collect what a report says.

    Parameters
    ----------
    result : TrainingResult
    table : Table, ChunkedTable or Schema, optional
        Only its schema is read.
    ledger : Ledger, str or mapping, optional
        The ledger, its handle, or what `Ledger.show` returned: the state after the release.
    before : mapping, optional
        What `Ledger.show` returned before the release.
    test : PublicTest, optional

    Returns
    -------
    Facts

    Raises
    ------
    ParameterError
        If an argument is of another kind, or the schema is not the one of the fit.

    Notes
    -----
    Free post-processing: released values, declarations, public entries of the ledger, and test labels that
    are declared public. No cell of `table` is read.
    """
    schema = schema_of(table)
    guarantee = result.guarantee
    if schema is not None and guarantee.declaration and guarantee.declaration != schema.declaration:
        raise ParameterError(
            "The 'table' declares other columns public than the guarantee does.",
            "Pass the table, or the schema, of the fit.",
        )
    if test is not None and not isinstance(test, PublicTest):
        raise ParameterError(
            f"The 'test' parameter is a {type(test).__name__}.",
            "Pass PublicTest(table, declared_by=...): test labels are shown only where declared public.",
        )
    label_column = None if schema is None else schema.label
    label = label_of(schema)
    effects, intercept, absent = _effects(result, schema)
    public = result.model.names if schema is None else tuple(c.name for c in schema.public)
    statistics = result.statistics
    unit = _label_unit(label_column)
    return Facts(
        **release_facts(guarantee, schema, result.model.schema_digest),
        assumptions=other_assumptions(guarantee),
        status=result.status.prose,
        label_unit=unit,
        label_range=result.model.bounds,
        model_digest=digest(result.model.to_dict()),
        columns=() if schema is None else tuple(column_fact(schema, column) for column in schema.columns),
        not_covered=tuple(words.not_covered(guarantee, public, label, grouped=_grouped(schema))),
        rows=statistics.rows,
        row_limit=_row_limit(schema),
        spectrum=tuple(float(s) / math.sqrt(statistics.rows) for s in statistics.singular_values),
        effects=effects,
        intercept=intercept,
        absent=absent,
        prices=prices(result),
        spread=spread(result),
        # Without shrinkage the intercept counts too, and every direction is left.
        effective=min(statistics.effective, float(statistics.rank)),
        drowned="" if words.void_marks(guarantee) else drowned(result, unit),
        noise_multiplier=statistics.noise_multiplier,
        sensitivity=statistics.sensitivity,
        measured=None if test is None else _measured(result, test),
        ledger=None if ledger is None else ledger_facts(result.entry, ledger, before),
    )


def prices(result: TrainingResult, grid: tuple[str, ...] = GRID) -> tuple[Price, ...]:
    """Return predicted noise errors by epsilon, the result's own marked; none without a guarantee."""
    guarantee = result.guarantee
    if not isinstance(guarantee.epsilon, Fraction) or not guarantee.delta:
        return ()
    own = guarantee.epsilon
    amounts = sorted({*(exact(text, "epsilon") for text in grid), own})
    return tuple(
        Price(show(e), float(e), result.noise_error(float(e)), e == own) for e in amounts if float(e) > 0
    )


def schema_of(table: Any) -> Any:
    """Return the schema of a table, or a schema as it is; None for None."""
    if table is None:
        return None
    schema = getattr(table, "schema", table)
    if not (hasattr(schema, "columns") and hasattr(schema, "declaration")):
        raise ParameterError(
            f"The 'table' parameter is a {type(table).__name__}.", "Pass the table of the fit, or its schema."
        )
    return schema


def column_fact(schema: Any, column: Any) -> ColumnFact:
    """Return what is declared of a column."""
    declared_by = schema.declarer(column) or "nobody named"
    domain = _row_limit(schema) + " count" if column.role == "id" else column.domain
    return ColumnFact(column.name, column.role, domain, column.unit, declared_by, column.note)


def _grouped(schema: Any) -> bool:
    """Whether one unit may have several rows: then ids are declared."""
    return schema is not None and any(column.role == "id" for column in schema.columns)


def _row_limit(schema: Any) -> str:
    """Return how many rows of one unit count, in words; empty where a row is a unit."""
    if not _grouped(schema):
        return ""
    most = schema.max_rows_per_id
    return f"at most {most} {'row' if most == 1 else 'rows'} of each {schema.unit}"


def _label_unit(column: Any) -> str:
    if column is None or not column.numeric:
        return ""
    if column.transform:
        return f"{column.transform} of {column.unit or column.name}"
    return column.unit


def _effects(
    result: TrainingResult, schema: Any
) -> tuple[tuple[Effect, ...], Effect | None, tuple[str, ...]]:
    """Return effects by falling size, the intercept, and columns about which the public rows say nothing."""
    rows = []
    # The intercept is named by the training room; a column of the same name would follow it.
    first = next(iter(result.coefficients), "")
    has_intercept = len(result.coefficients) == len(result.model.terms) + 1
    for name, value in result.coefficients.items():
        # With its square in the model, a column has no effect per unit that is the same everywhere.
        curved = f"{name}^2" in result.coefficients
        meaning = "" if curved else words.effect_words(name, value, schema)
        if meaning and abs(value) < result.noise_errors[name] / 100:
            meaning = "about 0"  # digits of what noise has shrunk away mean nothing
        rows.append(
            Effect(
                name,
                words.column_words(name, schema),
                value,
                result.unbiased[name],
                result.noise_errors[name],
                result.standard_errors[name],
                meaning,
            )
        )
    intercept = rows.pop(0) if has_intercept and rows and rows[0].name == first else None
    # A column that is constant in the public rows has neither effect nor noise: both are 0 up to rounding.
    largest = max((max(abs(e.value), e.noise) for e in rows), default=0.0)
    absent = [e for e in rows if max(abs(e.value), e.noise) <= 1e-12 * largest]
    kept = [e for e in rows if e not in absent]
    kept.sort(key=lambda e: (-abs(e.value), e.name))
    return tuple(kept), intercept, tuple(e.words for e in absent)


def _measured(result: TrainingResult, test: PublicTest) -> Measured:
    own = measure(result, test.table)
    baseline = None if test.baseline is None else measure(test.baseline, test.table)
    reference = None if test.reference is None else measure(test.reference, test.table)

    def kept(error: Error) -> Share | None:
        return None if baseline is None or reference is None else share_kept(error, baseline, reference)

    points = []
    for release in sorted({id(r): r for r in (*test.others, result)}.values(), key=_order):
        epsilon = release.guarantee.epsilon
        if isinstance(epsilon, Fraction):
            error = measure(release, test.table)
            noise = release.noise_error(float(epsilon))
            chosen = release is result
            points.append(
                Point(
                    show(epsilon), float(epsilon), error.squared, error.deviation, noise, kept(error), chosen
                )
            )
    sentence = "" if test.baseline is None else str(test.baseline.guarantee)
    return Measured(
        test.declared_by,
        test.reason,
        test.rows,
        tuple(points),
        own.squared,
        own.deviation,
        None if baseline is None else baseline.squared,
        sentence,
        None if reference is None else reference.squared,
        test.reference_reason,
        kept(own),
    )


def _order(release: TrainingResult) -> float:
    return float(release.guarantee.epsilon)


def ledger_facts(entry: str, ledger: Any, before: Mapping[str, Any] | None) -> LedgerFacts:
    """Return the ledger after the release whose entry is `entry`, and before it where that is known."""
    if isinstance(ledger, Mapping):
        state = ledger
    else:
        from confide.ledger import resolve

        book = resolve(ledger)
        assert book is not None
        state = book.show()
    if before is not None and before["dataset"] != state["dataset"]:
        raise ParameterError(
            "The ledger states before and after are of different datasets.", "Pass two states of one ledger."
        )
    budget = state["budget"]
    parts = tuple(state["spent"]) if budget["accountant"] == "zcdp" else ("epsilon", "delta")
    earlier = {} if before is None else {a["analyst"]: a["spent"] for a in before["analysts"]}
    mine = next((c for c in state["charges"] if entry and c["id"] == entry), None)
    cost = None if mine is None else _amounts(mine["charge"], parts)
    spent_before = None if before is None else _amounts(before["spent"], parts)
    accounts = [
        Account(
            "All together",
            _amounts(budget, parts),
            spent_before,
            cost,
            _amounts(state["spent"], parts),
            _amounts(state["remaining"], parts),
        )
    ]
    for analyst in state["analysts"]:
        past = earlier.get(analyst["analyst"])
        accounts.append(
            Account(
                analyst["analyst"],
                _amounts(analyst["limit"], parts),
                None if past is None else _amounts(past, parts),
                cost if mine is not None and mine["analyst"] == analyst["analyst"] else None,
                _amounts(analyst["spent"], parts),
                _amounts(analyst["remaining"], parts),
            )
        )
    terms = f"{budget['adjacency']}, per {budget['unit']}, accountant {budget['accountant']}"
    charges = tuple(dict(charge) for charge in state["charges"])
    return LedgerFacts(
        state["dataset"],
        f"{state['store']}#{state['dataset']}",
        terms,
        parts,
        tuple(accounts),
        charges,
        None if mine is None else entry,
        state["entries"],
        state["head"],
        tuple(state.get("assumptions", ())),
        state["refused"],
    )


def _amounts(values: Mapping[str, str], parts: tuple[str, ...]) -> dict[str, str]:
    return {part: _short(values[part]) for part in parts if part in values}


def _short(text: str) -> str:
    return show(math.inf if text == "inf" else Fraction(text))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
