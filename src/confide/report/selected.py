"""What a report says about columns that were drawn privately, and about their coefficients where fitted.

Running time, acceptance, scores and whether an optimum was proven are functions of secret rows: none of
them is read here, even where a result carries them because its data were declared public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from confide.errors import ParameterError, UnsupportedError
from confide.pipeline.result import SparseResult, errors_in_words
from confide.privacy import MEANINGS, Guarantee, show
from confide.report import words
from confide.report.regression import ColumnFact, LedgerFacts, column_fact, ledger_facts, schema_of
from confide.report.release import ReleaseFacts, digest, label_of, other_assumptions, release_facts
from confide.selection.result import SelectionResult

_CONDITION = "The guarantee holds where this is true, and says nothing where it is not: "


@dataclass(frozen=True)
class Chosen:
    """One selected column: its encoded name, the declared column it belongs to, and what was fitted."""

    name: str
    column: ColumnFact | None
    coefficient: float | None
    noise: float | None
    meaning: str


@dataclass(frozen=True)
class Released:
    """A selection, with coefficients where there are some; the common form of results and estimators."""

    guarantee: Guarantee
    selection: SelectionResult | None
    names: tuple[str, ...]
    coefficients: tuple[float, ...] | None
    intercept: float | None
    fitted: Any
    errors: Mapping[str, float] | None
    classes: tuple[str, ...]
    bounds: tuple[float, float] | None
    schema_digest: str
    entry: str
    digest: str


@dataclass(frozen=True)
class SelectedFacts(ReleaseFacts):
    """Everything that a report says about one selection; see `selected_facts`."""

    conditions: tuple[tuple[str, str], ...]
    digest: str
    declared_by: str
    candidates: int | None
    chosen: tuple[Chosen, ...]
    intercept: float | None
    intercept_noise: float | None
    predicts: str
    errors: str
    public: tuple[tuple[str, str], ...]
    parts: tuple[tuple[str, str, str], ...]
    not_covered: tuple[tuple[str, str], ...]
    ledger: LedgerFacts | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain nested values, fit for JSON."""
        return asdict(self)


def released(result: Any) -> Released | None:
    """Return the common form of a selection, a sparse result or a fitted sparse estimator; else None."""
    held = getattr(result, "result_", result)  # an estimator holds what its front door returned
    if isinstance(held, SelectionResult):
        return _of_selection(held)
    if isinstance(held, SparseResult):
        return _of_sparse(held)
    if hasattr(held, "support_") and hasattr(held, "coefficients_"):
        return _of_estimator(held)
    return None


def training_result(result: Any) -> Any:
    """Return the training result that is meant, of a result or of an estimator that holds one.

    Raises
    ------
    UnsupportedError
        For any other object, and for an estimator that is not fitted.
    """
    held = getattr(result, "result_", result)
    wanted = ("guarantee", "model", "statistics", "coefficients", "unbiased", "noise_errors")
    if all(hasattr(held, name) for name in wanted):
        return held
    if hasattr(result, "fit") and not hasattr(result, "guarantee_"):
        raise UnsupportedError(f"The {type(result).__name__} is not fitted.", "Call fit first.")
    raise UnsupportedError(
        f"There is no report of a {type(result).__name__}.",
        "Pass what confide.train, confide.select or confide.pipeline.select_and_fit returned, or a fitted "
        "PrivateRegressor, PrivateClassifier, SubsetSelector, SparseRegressor or SparseClassifier; "
        "str(guarantee) says what any release guarantees.",
    )


def _of_selection(result: Any) -> Released:
    plain = replace(result, diagnostics=())
    return Released(
        result.guarantee, plain, result.support, None, None, None, None, (), None,
        result.schema_digest, result.entry, digest(plain.to_dict()),
    )  # fmt: skip


def _of_sparse(result: Any) -> Released:
    model = result.model
    return Released(
        result.guarantee, result.selection, model.names, tuple(model.coefficients.tolist()), model.intercept,
        result.coefficients, result.noise_errors, model.classes, model.bounds, result.schema_digest,
        result.entry, digest(model.to_dict()),
    )  # fmt: skip


def _of_estimator(model: Any) -> Released:
    known = getattr(model, "feature_names_in_", None)
    places = model.support_.tolist()
    names = tuple(f"x{j}" if known is None else str(known[j]) for j in places)
    values = tuple(model.coef_[model.support_].tolist())
    errors = model.noise_errors_
    classes = tuple(map(str, getattr(model, "classes_", ())))
    bounds = None if classes else (float(model.target_bounds[0]), float(model.target_bounds[1]))
    content = digest({"names": names, "coefficients": values, "intercept": float(model.intercept_)})
    return Released(
        model.guarantee_, model.selection_, names, values, float(model.intercept_), model.coefficients_,
        errors, classes, bounds, "", model.entry_, content,
    )  # fmt: skip


def selected_facts(
    found: Released, *, table: Any = None, ledger: Any = None, before: Mapping[str, Any] | None = None
) -> SelectedFacts:
    """Collect what a report says about a selection; parameters and errors as in `confide.report.facts`.

    Raises
    ------
    ParameterError
        Also if the schema is not the one of the selection.
    """
    schema = schema_of(table)
    guarantee = found.guarantee
    if schema is not None and found.schema_digest and schema.digest != found.schema_digest:
        raise ParameterError(
            "The 'table' has another schema than the selection.",
            "Pass the table, or the schema, of the call.",
        )
    label = label_of(schema)
    what = "selection" if found.coefficients is None else "model"
    owners = (
        {}
        if schema is None
        else {n: c for role in ("public", "private") for c in schema.of_role(role) for n in c.feature_names}
    )
    errors = found.errors
    chosen = []
    for place, name in enumerate(found.names):
        value = None if found.coefficients is None else found.coefficients[place]
        owner = None if name not in owners else column_fact(schema, owners[name])
        meaning = "" if value is None or found.classes else words.effect_words(name, value, schema)
        chosen.append(Chosen(name, owner, value, None if errors is None else errors.get(name), meaning))
    return SelectedFacts(
        **release_facts(guarantee, schema, found.schema_digest, what=what),
        conditions=tuple((name, _meaning(name)) for name in other_assumptions(guarantee)),
        digest=found.digest,
        declared_by=_declarers(schema),
        candidates=None if found.selection is None else found.selection.candidates,
        chosen=tuple(chosen),
        intercept=found.intercept,
        intercept_noise=None if errors is None else errors.get("(intercept)"),
        predicts=_predicts(found, label),
        errors="" if found.fitted is None else errors_in_words(found.fitted),
        public=_public(found),
        parts=_parts(found),
        not_covered=_not_covered(guarantee, label, what, schema),
        ledger=None if ledger is None else ledger_facts(found.entry, ledger, before),
    )


def _meaning(name: str) -> str:
    if name in MEANINGS:
        return f"{_CONDITION}{MEANINGS[name][0]} ({MEANINGS[name][1]})."
    return f"{_CONDITION}{name}."


def _predicts(found: Released, label: str) -> str:
    if found.coefficients is None:
        return ""
    if found.classes:
        return f"The score is positive for {found.classes[1]!r}, and else stands for {found.classes[0]!r}."
    if found.bounds is None:
        return ""
    low, high = (f"{bound:.6g}" for bound in found.bounds)
    return f"Predictions of {label} are clipped to its declared bounds, {low} to {high}."


def _public(found: Released) -> tuple[tuple[str, str], ...]:
    """Return the public parameters of mechanism and fit, (name, value)."""
    rows: list[tuple[str, str]] = []
    one = found.selection
    if one is not None:
        top = "" if one.top is None else f", R = {one.top}"
        rows += [
            ("mechanism of the support", f"{one.mechanism}{top}"),
            ("columns", f"{one.size} of {one.candidates} encoded ones"),
            ("loss of the support's score", one.loss),
            ("norm ball and ridge of the score", f"{one.radius:.6g}, {one.ridge:.6g}"),
            ("bounds of encoded columns and label", f"±{one.feature_bound:.6g}, ±{one.target_bound:.6g}"),
        ]
    elif found.fitted is not None:
        rows.append(("support", "public: nothing was selected, and nothing charged for it"))
    if found.fitted is not None:
        rows.append(("mechanism of the coefficients", f"{found.fitted.method}, {found.fitted.loss} loss"))
    return tuple(rows)


def _parts(found: Released) -> tuple[tuple[str, str, str], ...]:
    """Return how the charge is made up: (part, epsilon, delta)."""
    if found.fitted is None:
        return ()
    rows = []
    if found.selection is not None:
        rows.append(("support", found.selection.guarantee.epsilon, Fraction(0)))
    first = Fraction(0) if found.selection is None else found.selection.guarantee.epsilon
    rows.append(("coefficients", found.guarantee.epsilon - first, found.guarantee.delta))
    rows.append(("charged in all", found.guarantee.epsilon, found.guarantee.delta))
    return tuple((part, show(epsilon), show(delta)) for part, epsilon, delta in rows)


def _declarers(schema: Any) -> str:
    if schema is None:
        return ""
    return words.listing(list(dict.fromkeys(schema.declarer(c) or "nobody named" for c in schema.columns)))


def _not_covered(guarantee: Guarantee, label: str, what: str, schema: Any) -> tuple[tuple[str, str], ...]:
    public = () if schema is None else tuple(column.name for column in schema.public)
    grouped = schema is not None and schema.id is not None
    said = (
        f"The {what} is there to say which columns go with the label ({label}). It says that about people "
        "who are not in the table too, and the guarantee does not prevent such inferences."
    )
    items = words.not_covered(guarantee, public, label, grouped=grouped)
    return tuple((name, said if name == "What is true of people like you" else text) for name, text in items)
