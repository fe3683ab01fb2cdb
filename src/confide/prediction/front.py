"""The front door on tables: from a schema and public numbers to a certified model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np

from confide.errors import ParameterError, SchemaError, UnsupportedError
from confide.ledger.ledger import resolve
from confide.mechanisms.stream import stream as as_stream
from confide.prediction.certificate import Certificate, Certified
from confide.prediction.model import CertifiedModel, Facts, encoded, feature_columns, public_classes
from confide.prediction.named import Recipe
from confide.prediction.persons import Persons, per_person
from confide.prediction.votes import TeacherVotes
from confide.privacy import Adjacency
from confide.schema.odd import telling

#: Encoded columns lie within it, whatever the table holds.
BOX = (-1.0, 1.0)


@overload
def certify(table: Any, *, dry_run: Literal[True], **options: Any) -> dict[str, Any]: ...
@overload
def certify(table: Any, *, dry_run: Literal[False] = ..., **options: Any) -> CertifiedModel: ...


def certify(  # pyright: ignore[reportInconsistentOverload]
    table: Any,
    *,
    certificate: Any = "erm",
    model: str = "logistic",
    alpha: float | None = None,
    answer_epsilon: float = 0.2,
    ridge: float | None = None,
    feature_norm: float | None = None,
    constant: float | None = None,
    neighbours: int = 51,
    hidden: Sequence[int] = (16,),
    hyperparameters: Any = None,
    k_max: int = 128,
    members: int = 1,
    adjacency: Adjacency | str = "replace_one",
    max_rows: int | None = None,
    partition_key: str = "confide",
    training_seed: int = 0,
    random_state: Any = None,
    ledger: Any = None,
    progress: bool = False,
    n_jobs: int | None = None,
    dry_run: bool = False,
) -> CertifiedModel | dict[str, Any]:
    """Train a classifier of a table's label without noise, so that its answers can be private.

    Nothing leaves and nothing is charged: the model is as secret as the table. `CertifiedModel.answer`
    charges.

    Parameters
    ----------
    table : Table
        From `confide.schema`; a chunked one is gathered. Its label needs declared categories, which are the
        classes (as text, whatever type the cells have); a cell that is none of them counts as the first. All
        public and private columns are features, encoded within [-1, 1] by their declarations; a category is
        one 0/1 column a level.
    certificate : {"erm", "votes", "interval", "ball"} or Certificate
        Strongly convex ERM, nearest neighbours, gradient descent with boxes (abstract gradient training),
        many steps of it with a ball, or an object of `confide.prediction` with these classes, that takes
        encoded rows (``feature_bounds=(-1, 1)``, or `inputs`); beside an object the parameters from `model`
        to `max_rows` are refused, but for `members`.
    model : {"logistic", "huber_hinge", "softmax", "mlp"}
        Of "erm" the first three, of "interval" a linear model or "mlp", of "ball" a linear model; more than
        two classes always have the softmax.
    alpha : float, optional
        Ridge of the mean objective of "erm": Lambda = alpha n. More of it makes answers more stable and the
        model coarser. None: 150 / (n answer_epsilon)^1.5 within [1e-4, 3]
        (`confide.prediction.named.usual_alpha`).
    answer_epsilon : float
        Of "erm" without `alpha`: about the epsilon that an answer will have. It chooses the ridge and
        promises nothing.
    ridge : float, optional
        Lambda itself; required for "erm" under ``add_remove_one``, where n is secret, and for ensembles.
    feature_norm, constant : float, optional
        Of "erm": the public norm that encoded rows are shortened to, and the constant that makes the
        intercept. Defaults: sqrt(q / 16 + c) for q numbers and c categories, and a fifth of it. "ball" has
        the same norm, and then multiplies rows by 3 / `feature_norm`.
    neighbours : int
        m of "votes".
    hidden : sequence of int
        Widths of "mlp".
    hyperparameters : Hyperparameters or mapping, optional
        Of "interval" and "ball" (``clip_by="norm"``).
    k_max : int
        Of "interval": largest distance that is searched.
    members : int
        More than 1 makes an `Ensemble` on disjoint parts.
    adjacency : Adjacency or str
        Any; ``replace_label`` where the schema has no private column.
    max_rows : int, optional
        Public stand-in for the secret number of rows under ``add_remove_one``: descent divides by it.
        No table is compared with it; rounding covers so many rows, and 2^24 at least.
    partition_key : str
        Public: of ensembles and of ties between neighbours; in every guarantee.
    training_seed : int
        Public: of the start of "mlp"; in every guarantee.
    random_state : int, optional
        Noise seed of answers, for tests; marks guarantees ``"seeded"``.
    ledger : Ledger or str, optional
        Charged by `CertifiedModel.answer`.
    progress : bool
        A bar on work past two seconds ("interval").
    n_jobs : int, optional
        joblib's, over members or levels.
    dry_run : bool
        Check everything that is public and return the model's provenance; only the schema is read.

    Returns
    -------
    CertifiedModel, or its public facts with ``dry_run=True``

    Raises
    ------
    ParameterError, UnsupportedError, SchemaError
        Before any data is read.

    Notes
    -----
    With an id column the unit is a person of at most ``max_rows_per_id`` = m rows, of which the table holds
    no more: distances then count persons (`confide.prediction.persons`). Under ``add_remove_one`` parts and
    ties go by the content of rows, since the numbers of ids depend on who else is in the table.

    ======================================  ===========================================================
    edge case                               what happens
    ======================================  ===========================================================
    a missing or strange cell               the schema's public constant
    a label that is no category, missing    the first class, or the declared `impute`
    no rows, one class in the table         the same path ("interval" needs a row where n is public)
    a category that never occurs            a column like any other
    ======================================  ===========================================================

    Examples
    --------
    >>> import confide
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 80, 2000)
    >>> frame = {"age": age, "sick": np.where(age + rng.normal(0, 5, 2000) > 50, "yes", "no")}
    >>> columns = {"age": {"role": "private", "lower": 20, "upper": 80},
    ...            "sick": {"role": "label", "categories": ["no", "yes"]}}
    >>> table = confide.Table.from_frame(frame, {"columns": columns})
    >>> model = confide.certify(table, alpha=0.01)
    >>> model.answer({"age": [25, 78]}, epsilon=2).tolist()
    ['no', 'yes']
    >>> print(model.guarantee.epsilon, model.guarantee.adjacency.value)
    4 replace_one
    """
    schema, classes = _declared(table)
    normed = isinstance(certificate, str) and certificate in ("erm", "ball")
    recipe = Recipe(
        certificate, model, alpha, ridge, row_norm(schema, feature_norm) if normed else feature_norm,
        constant, neighbours, hidden, hyperparameters, k_max, members, adjacency, max_rows, partition_key,
        training_seed, None, n_jobs, progress, answer_epsilon,
    )  # fmt: skip
    as_stream(random_state)
    recipe.check(len(classes), BOX)
    schema.require(recipe.relation)
    width = sum(len(column.feature_names) for column in feature_columns(schema))
    facts = Facts(
        public_classes(classes),
        recipe.relation,
        width,
        str(schema.unit or "row"),
        schema.declaration,
        recipe.marks,
        schema,
    )
    _check_persons(recipe, schema)
    _check_width(certificate, width)
    if dry_run:
        return provenance(facts)
    held = resolve(ledger)
    table = telling(table, recipe.relation)
    with np.errstate(all="ignore"):  # no setting of the process turns a private cell into an exception
        X = encoded(table, schema)
        if schema.max_rows_per_id:  # a person's answers are as stable as those of so many rows together
            recipe = replace(recipe, answer_epsilon=answer_epsilon / schema.max_rows_per_id)
        built = recipe.build(len(classes), BOX, width, X.shape[0])
        fitted = _fit(table, recipe, built, X, _labels(table, len(classes)))
    facts = replace(facts, provenance=provenance(facts, built))
    return CertifiedModel(fitted, facts, ledger=held, random_state=random_state)


def provenance(facts: Facts, certificate: Any = None) -> dict[str, Any]:
    """Return the public facts of a training as plain values; with a certificate, its parameters too."""
    from importlib.metadata import version

    from confide.prediction.states import shown

    out = {
        "confide": version("confide"),
        "adjacency": facts.adjacency.value,
        "unit": facts.unit,
        "classes": facts.classes.tolist(),
        "columns": facts.columns,
        "schema_digest": "" if facts.schema is None else facts.schema.digest,
        **facts.marks,
    }
    return out if certificate is None else {**out, "parameters": shown(certificate)}


def _declared(table: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a table's schema and the classes of its label.

    Raises
    ------
    ParameterError, SchemaError
    """
    if not hasattr(table, "schema"):
        raise ParameterError(
            f"The table is a {type(table).__name__}.",
            "Pass a Table: confide.Table.from_frame(frame, 'schema.toml'), or confide.CertifiedClassifier.",
        )
    schema = table.schema
    if schema.label is None:
        raise SchemaError("The schema has no label column.", "Give one column role = 'label'.")
    if schema.label.numeric:
        raise SchemaError(
            f"The label {schema.label.name!r} is a number.",
            "Declare its categories: the classes that it may be.",
        )
    classes = tuple(schema.label.categories)
    if len(classes) < 2:
        raise SchemaError(
            f"The label has {len(classes)} categories.", "Declare two or more categories of the label."
        )
    if not feature_columns(schema):
        raise SchemaError("The schema has no feature column.", "Give columns role = 'public' or 'private'.")
    return schema, classes


def row_norm(schema: Any, feature_norm: float | None) -> float | None:
    """Return the public norm of rows: a number counts as a quarter of its box, a category as what it is."""
    if feature_norm is not None:
        return feature_norm
    return math.sqrt(sum(1 / 16 if column.numeric else 1.0 for column in feature_columns(schema)))


def _labels(table: Any, count: int) -> np.ndarray:
    """Return class numbers; a cell outside the declared categories is the first class."""
    codes = np.concatenate([np.zeros(0), *(np.asarray(part.label) for part in table.chunks())])
    return np.where(codes < count, codes, 0).astype(np.int64)


def _check_persons(recipe: Recipe, schema: Any) -> None:
    """Refuse certificates that count what the table has not, before any data is read.

    Raises
    ------
    UnsupportedError
    """
    persons = getattr(recipe.certificate, "unit", "row") == "person"
    if persons and schema.id is None:
        raise UnsupportedError(
            "The certificate counts persons, and the schema has no id column.",
            "Give one column role = 'id', or pass the certificate of rows.",
        )
    if schema.id is None or recipe.relation is not Adjacency.ADD_REMOVE_ONE:
        return
    if persons or (isinstance(recipe.certificate, TeacherVotes) and schema.max_rows_per_id > 1):
        raise UnsupportedError(
            "Under 'add_remove_one' the ids of a table are numbers that depend on who is in it.",
            "Pass a certificate of rows ('certify' counts persons itself), or a replacement relation.",
        )


def _check_width(certificate: Any, width: int) -> None:
    """Refuse an object for rows of another width, before any data is read.

    Raises
    ------
    ParameterError
    """
    inputs = getattr(certificate, "inputs", None)
    if inputs is not None and inputs != width and getattr(certificate, "features", None) is None:
        raise ParameterError(
            f"The certificate is for {inputs} columns, and the schema's features encode into {width}.",
            f"Pass inputs={width}; certificate='ball' finds it by itself.",
        )


def _fit(table: Any, recipe: Recipe, certificate: Certificate, X: Any, y: Any) -> Certified:
    """Train with the table's unit.

    Under the replacement relations ids are public structure, and their numbers do. Under ADD_REMOVE_ONE one
    person less renumbers all later ones, so rows go by their content: a person's change is at most m changes
    of rows, wherever these lie, and floor(k / m) the distance (`confide.prediction.persons`).
    """
    most, key = table.schema.max_rows_per_id, recipe.partition_key
    if most is None:
        return certificate.fit(X, y)
    if recipe.relation is Adjacency.ADD_REMOVE_ONE:
        return per_person(certificate, most).fit(X, y)
    ids = np.concatenate([np.zeros(0, dtype=np.int64), *(part.ids for part in table.chunks())])
    if most == 1 or getattr(certificate, "unit", "row") == "person":
        return certificate.fit(X, y, ids=ids)
    return Persons(certificate, most, key).fit(X, y, ids=ids)
