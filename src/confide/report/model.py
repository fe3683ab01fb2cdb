"""What a report says about a model that is more than a line through public columns: classes, `dpsgd`, others.

Every value here is released or public: coefficients, the engine's facts (public, or functions of the
release), declarations, and the ledger's entries. No score stands here: it is a function of secret labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from confide.errors import ParameterError
from confide.report import words
from confide.report.regression import ColumnFact, LedgerFacts, column_fact, ledger_facts, schema_of
from confide.report.release import ReleaseFacts, digest, label_of, other_assumptions, release_facts
from confide.training.engines.models import affine
from confide.training.engines.parts import LinearParts
from confide.training.engines.result import ModelResult

#: What each engine hands out, in words.
ENGINES = {
    "closed_form": (
        "One vector with exactly rounded Gaussian noise: the sums of the public rows of each class. Logits "
        "were fitted to it, and shrunk by its known noise, without reading a label again."
    ),
    "randomized_response": (
        "One drawn class for each row: the true one or, with a known probability, another, so that each row "
        "can deny its own. The model was fitted to the drawn classes and undoes the drawing on average."
    ),
    "dpsgd": (
        "The noisy sum of clipped gradients of every step, and hence every step's parameters. The model is "
        "one of them, or their average."
    ),
    "objective": (
        "The minimiser of a logistic loss with a random linear term, and noise for the solver's distance to "
        "it."
    ),
    "semi_sensitive": (
        "One vector with exactly rounded Gaussian noise: sums of public rows times private columns and "
        "label, and second moments of private columns and label."
    ),
    "adassp": "The second moments of all columns and the label, with noise.",
    "boosted_adassp": (
        "The second moments of all columns and the label, then sums of columns times clipped residuals, "
        "round by round, all with noise."
    ),
}
#: Names of an engine's facts, for people.
FACTS = {
    "rank": "public directions",
    "sensitivity": "L2 sensitivity of the release",
    "noise_multiplier": "noise deviation over sensitivity",
    "contrast": "part of a class that the drawn one keeps",
    "effective": "directions that noise has left",
    "residual_variance": "variance about the fit, estimated in the release",
    "steps": "noisy steps",
    "parameters": "parameters",
    "clip": "clip norm of a row's gradient",
    "sampling_probability": "probability of a row to be in a batch",
    "private_columns": "private columns used",
}
#: Facts that the page tells elsewhere.
_ELSEWHERE = ("rows", "release", "model")


@dataclass(frozen=True)
class Term:
    """One coefficient of a linear model for each output; `words` is its name for people."""

    name: str
    words: str
    values: tuple[float, ...]

    @property
    def size(self) -> float:
        """By which terms are sorted."""
        return max(map(abs, self.values), default=0.0)


@dataclass(frozen=True)
class ReleasedModel:
    """A result with the names of the columns that its model reads, the public ones first."""

    result: ModelResult
    public: tuple[str, ...]
    private: tuple[str, ...]

    @property
    def core(self) -> Any:
        """What predicts from encoded columns: `LinearParts` or `SGDModel`."""
        return getattr(self.result.model, "core", self.result.model)

    @property
    def kind(self) -> str:
        """``"linear"``, ``"fm"`` or ``"mlp"``."""
        if isinstance(self.core, LinearParts):
            return "linear"
        return str(self.result.facts.get("model", "linear"))


@dataclass(frozen=True)
class ModelFacts(ReleaseFacts):
    """Everything that a report says about one such model; see `model_facts`."""

    assumptions: tuple[str, ...]
    noise_multiplier: float
    status: str
    model_digest: str
    columns: tuple[ColumnFact, ...]
    not_covered: tuple[tuple[str, str], ...]
    rows: int | None
    engine: str
    released: str
    kind: str
    description: str
    classes: tuple[str, ...]
    outputs: tuple[str, ...]
    intercept: tuple[float, ...]
    terms: tuple[Term, ...]
    predicts: str
    details: tuple[tuple[str, str], ...]
    ledger: LedgerFacts | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain nested values, fit for JSON (numbers that are not finite as None)."""
        found = asdict(self)
        found["noise_multiplier"] = self.noise_multiplier if math.isfinite(self.noise_multiplier) else None
        return found


def released_model(result: Any) -> ReleasedModel | None:
    """Return the common form of a `ModelResult` and of a fitted estimator that holds one; else None."""
    held = getattr(result, "result_", result)
    if not isinstance(held, ModelResult):
        return None
    model = held.model
    if hasattr(model, "core"):
        return ReleasedModel(held, tuple(model.public), tuple(model.private))
    names, mask = _names_of(result, model)
    private = names[~mask] if result is held or result.uses_private_ else names[:0]
    return ReleasedModel(held, tuple(map(str, names[mask])), tuple(map(str, private)))


def _names_of(result: Any, model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return names of columns, and which are public, of an estimator or of a bare result on arrays."""
    if hasattr(result, "columns_"):
        mask = np.asarray(result.columns_, dtype=bool)
        known = getattr(result, "feature_names_in_", None)
        return (np.array([f"x{j}" for j in range(mask.size)], dtype=object) if known is None else known), mask
    p, q = _widths(model)
    return np.array([f"x{j}" for j in range(p + q)], dtype=object), np.arange(p + q) < p


def _widths(model: Any) -> tuple[int, int]:
    if isinstance(model, LinearParts):
        return model.public.shape[1], model.private.shape[1]
    return model.inputs.centre.size, model.inputs.middle.size


def model_facts(
    found: ReleasedModel, *, table: Any = None, ledger: Any = None, before: Mapping[str, Any] | None = None
) -> ModelFacts:
    """Collect what a report says about a model; parameters and errors as in `confide.report.facts`."""
    schema = schema_of(table)
    result = found.result
    guarantee = result.guarantee
    declared = getattr(result.model, "schema_digest", "")
    if schema is not None and declared and declared != schema.digest:
        raise ParameterError(
            "The 'table' has another schema than the fit.", "Pass the table, or the schema, of the fit."
        )
    label = label_of(schema)
    core = found.core
    classes = () if core.classes is None else tuple(map(str, core.classes))
    intercept, terms = _terms(found, schema)
    grouped = schema is not None and schema.id is not None
    public = found.public if schema is None else tuple(column.name for column in schema.public)
    multiplier = words.gaussian_multiplier(guarantee.event)
    return ModelFacts(
        **release_facts(guarantee, schema, declared),
        assumptions=other_assumptions(guarantee),
        noise_multiplier=math.nan if multiplier is None else multiplier,
        status=result.status.prose,
        model_digest=digest(result.model.to_dict() if hasattr(result.model, "to_dict") else _sgd(core)),
        columns=() if schema is None else tuple(column_fact(schema, column) for column in schema.columns),
        not_covered=_not_covered(guarantee, public, label, grouped),
        rows=int(result.facts["rows"]) if "rows" in result.facts else None,
        engine=result.engine,
        released=ENGINES.get(result.engine, ""),
        kind=found.kind,
        description=_description(found, classes),
        classes=classes,
        outputs=classes if len(classes) > 2 else (classes[1:] or (label,)),
        intercept=intercept,
        terms=terms,
        predicts=_predicts(found, classes, label),
        details=tuple(
            (FACTS.get(key, key.replace("_", " ")), _show(value))
            for key, value in result.facts.items()
            if key not in _ELSEWHERE
        ),
        ledger=None if ledger is None else ledger_facts(result.entry, ledger, before),
    )


def _terms(found: ReleasedModel, schema: Any) -> tuple[tuple[float, ...], tuple[Term, ...]]:
    """Return intercepts and terms by falling size; none of a model that is not linear."""
    if found.kind != "linear":
        return (), ()
    intercept, public, private = affine(found.core)
    names = (*found.public, *found.private)
    values = np.concatenate([public, private], axis=1).T if private.shape[1] else public.T
    terms = [
        Term(name, words.column_words(name, schema), tuple(row.tolist()))
        for name, row in zip(names, values, strict=True)
    ]
    return tuple(intercept.tolist()), tuple(sorted(terms, key=lambda term: (-term.size, term.name)))


def _description(found: ReleasedModel, classes: tuple[str, ...]) -> str:
    kind = {"linear": "A linear model", "fm": "A factorisation machine", "mlp": "A neural network (MLP)"}
    target = f"{len(classes)} classes" if classes else "a number"
    p, q, encoded = len(found.public), len(found.private), hasattr(found.result.model, "core")
    return (
        f"{kind[found.kind]} of {target}, on {p} public and {q} private {'encoded ' if encoded else ''}"
        f"columns, by engine {found.result.engine!r}."
    )


def _predicts(found: ReleasedModel, classes: tuple[str, ...], label: str) -> str:
    if not classes:
        bounds = getattr(found.core, "bounds", None) or getattr(found.core, "target_bounds", None)
        if bounds is None:
            return ""
        low, high = (f"{bound:.6g}" for bound in bounds)
        return f"Predictions of {label} are clipped to its declared bounds, {low} to {high}."
    if len(classes) == 2:
        return (
            f"The model's output is the log-odds of {classes[1]!r} against {classes[0]!r}: above 0 it "
            f"predicts {classes[1]!r}, else {classes[0]!r}."
        )
    return "The model has one output (logit) for each class, and predicts the class of the largest."


def _not_covered(
    guarantee: Any, public: tuple[str, ...], label: str, grouped: bool
) -> tuple[tuple[str, str], ...]:
    said = (
        f"The model is there to say how the label ({label}) goes with the columns. It says that about people "
        "who are not in the table too, and the guarantee does not prevent such inferences."
    )
    items = words.not_covered(guarantee, public, label, grouped=grouped)
    return tuple((name, said if name == "What is true of people like you" else text) for name, text in items)


def _show(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return words.number(float(value), 4)


def _sgd(model: Any) -> dict[str, Any]:
    from confide.training.engines.table_model import sgd_to_dict

    return sgd_to_dict(model)
