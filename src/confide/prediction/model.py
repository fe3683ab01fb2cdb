"""`CertifiedModel`: a model that was trained without noise, whose answers are private."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.errors import DataError, ParameterError, UncertifiedWarning, UnsupportedError
from confide.mechanisms.stream import stream as as_stream
from confide.prediction.budgets import Answers, Terms, answers, terms_of
from confide.prediction.certificate import Certified, Labels, matrix, warn_of_strange
from confide.prediction.laws import small_delta, whole
from confide.prediction.releases import SPARSE_VECTOR, release_of
from confide.prediction.vector import UNSTABLE, StableAnswers
from confide.privacy import SEEDED, UNRECORDED, Adjacency, Guarantee, compose, exact
from confide.privacy.exact import Amount, show


@dataclass(frozen=True)
class Facts:
    """What is public about a certified model.

    Attributes
    ----------
    classes : ndarray of shape (C,)
    adjacency : Adjacency
    columns : int
        p, encoded columns of a row.
    unit : str
    declaration : str
        Hash of who declared which columns public.
    marks : mapping
        Of every guarantee: certificate, training seed and partition key.
    schema : Schema, optional
        Of the table; None for a model on arrays.
    provenance : mapping
        Plain values: what trained it, with which public numbers.
    """

    classes: NDArray[Any]
    adjacency: Adjacency
    columns: int
    unit: str = "row"
    declaration: str = ""
    marks: Mapping[str, Any] = field(default_factory=dict)
    schema: Any = None
    provenance: Mapping[str, Any] = field(default_factory=dict)


class CertifiedModel:
    """A classifier trained without noise, whose *answers* are private.

    Made by `confide.certify`, or read from a file by `load`. The object, and its file, are as secret as the
    table: only what `answer` returns may leave.

    Parameters
    ----------
    certified : Certified
        The fitted model. Secret.
    facts : Facts
    ledger : Ledger or str, optional
        Default of `answer`. Never saved.
    random_state : int, optional
        Default of `answer`, for tests. Never saved.

    Attributes
    ----------
    classes : ndarray of shape (C,)
    schema : Schema or None
    adjacency : Adjacency
    unit : str
        ``"row"``, or the schema's word for a person.
    provenance : dict
        Public: version, certificate with its public parameters, digest of the schema, seed and key.
    guarantee : Guarantee or None
        Of the last `answer`; None before, and after an answer of no rows.

    Notes
    -----
    `predict` and `stability` are not private. Of an answer only the class leaves: never k, a margin, a scale
    or which certificate fired (pitfall F61). The same query asked twice is charged twice.

    A file is read without executing anything in it. A ledger that knows the table refuses the answers of a
    model whose schema protects something else; which version of the table a model was trained on is not in
    its file, so the entries of a ledger do not name it.

    ======================================  ===========================================================
    edge case                               what happens
    ======================================  ===========================================================
    no rows                                 no answers, no charge
    a missing column, another width         DataError before the charge
    a missing cell in a row of a table      the schema's public constant
    refused by the ledger                   nothing is computed, nothing is charged
    ======================================  ===========================================================
    """

    def __init__(
        self, certified: Certified, facts: Facts, *, ledger: Any = None, random_state: Any = None
    ) -> None:
        as_stream(random_state)
        self.certified = certified
        self.facts = facts
        self.ledger = ledger
        self.random_state = random_state
        self.guarantee: Guarantee | None = None

    @property
    def classes(self) -> NDArray[Any]:
        """All classes, public."""
        return self.facts.classes

    @property
    def schema(self) -> Any:
        """Schema of the table, or None."""
        return self.facts.schema

    @property
    def adjacency(self) -> Adjacency:
        """Whose changes the distances count."""
        return self.facts.adjacency

    @property
    def unit(self) -> str:
        """What one privacy unit is."""
        return self.facts.unit

    @property
    def provenance(self) -> dict[str, Any]:
        """Public facts of the training, plain values."""
        return dict(self.facts.provenance)

    def __repr__(self) -> str:
        what = self.facts.marks.get("certificate", "certificate")
        members = getattr(getattr(self.certified, "model", self.certified), "models", None)
        what = what if members is None else f"{what} of {len(members)} members"
        return f"CertifiedModel({what}, {len(self.classes)} classes, {self.adjacency.value}, per {self.unit})"

    # ---- not private ----------------------------------------------------------------------------------

    def stability(self, rows: Any) -> tuple[NDArray[Any], Labels]:
        """Return the certified class and the stability distance of each row; *not private*.

        Parameters
        ----------
        rows
            As in `answer`.
        """
        labels, k = self.certified.stability(self.queries(rows))
        return self.classes[labels], k

    def predict(self, rows: Any) -> NDArray[Any]:
        """Return the model's classes; *not private*, and warns so."""
        queries = self.queries(rows)
        warnings.warn(
            UncertifiedWarning(
                f"{type(self).__name__}.predict is not private: it shows the model as trained. Use 'answer'."
            ),
            stacklevel=2,
        )
        return self.classes[self.certified.stability(queries)[0]]

    # ---- private --------------------------------------------------------------------------------------

    def preview(
        self,
        count: int,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        release: str = "response",
        *,
        slack: Amount = 0,
        epochs: int = 1,
        total: tuple[Amount, Amount] | None = None,
        ledger: Any = None,
        random_state: Any = None,
    ) -> Guarantee:
        """Return the guarantee that `answer` would have for `count` rows; reads nothing private.

        Examples
        --------
        >>> from confide.prediction import CertifiedClassifier
        >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
        >>> model = CertifiedClassifier([0, 1], (-1, 1)).fit(X, X[:, 0] > 0).model_
        >>> print(model.preview(20, "0.3").epsilon)
        6
        >>> round(float(model.preview(100, total=(10, "1e-5")).epsilon), 6)  # of each: 0.204
        10.0
        """
        small_delta(slack, name="slack")
        terms = self._terms(count, epsilon, delta, release, slack, epochs, total)
        epsilon, slack = terms.epsilon, terms.slack
        if release == SPARSE_VECTOR:
            cost = self._epochs(epsilon, delta, slack, epochs)
        else:
            law = release_of(release, epsilon, len(self.classes), delta)
            if epochs != 1:
                raise UnsupportedError(
                    f"The 'epochs' parameter is {epochs!r:.80} with release={release!r}.",
                    "Leave it out: it belongs to 'sparse_vector'.",
                )
            cost = answers(law, count, slack)
        held, seed = self._defaults(ledger, random_state)
        _check_slack(held, slack)
        marks = (() if held is not None else (UNRECORDED,)) + (() if seed is None else (SEEDED,))
        told = replace(cost.event, parameters=tuple(sorted(self.facts.marks.items())))
        return Guarantee(
            cost.epsilon, cost.delta, self.adjacency, self.unit, told, marks, self.facts.declaration
        )

    def _terms(
        self,
        count: int,
        epsilon: Amount | None,
        delta: Amount,
        release: str,
        slack: Amount,
        epochs: int,
        total: tuple[Amount, Amount] | None,
    ) -> Terms:
        number_of = whole(epochs, "epochs", 1) if release == SPARSE_VECTOR else whole(count, "count", 1)
        return terms_of(number_of, epsilon, delta, slack, total)

    def _defaults(self, ledger: Any, random_state: Any) -> tuple[Any, Any]:
        return (
            self.ledger if ledger is None else ledger,
            self.random_state if random_state is None else random_state,
        )

    def _epochs(self, epsilon: Amount, delta: Amount, slack: Amount, epochs: int) -> Answers:
        number_of, rest = whole(epochs, "epochs", 1), small_delta(slack)
        vector = StableAnswers(epsilon, delta, len(self.classes), charge=lambda event: None)
        own = min(Fraction(1), number_of * vector.delta)
        total = exact(compose(vector.epsilon, number_of, rest))
        return Answers(total, own + rest * (1 - own), vector.event.times(number_of))

    def answer(
        self,
        rows: Any,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        release: str = "response",
        *,
        slack: Amount = 0,
        epochs: int = 1,
        total: tuple[Amount, Amount] | None = None,
        ledger: Any = None,
        random_state: Any = None,
        analyst: str | None = None,
        label: str = "answer",
    ) -> NDArray[Any]:
        """Answer rows privately; the composition over all of them is charged first.

        Parameters
        ----------
        rows : frame, dict of columns, list of dicts, array, path, Table, ChunkedTable or Encoded
            Public queries. A frame, dicts or a file need the feature columns of the table's schema, and no
            label or id; an array holds raw cells in the order of these columns. Encoded columns are passed as
            `confide.schema.Encoded`. A model on arrays takes a matrix alone.
        epsilon, delta : amount
            Of one answer; of one epoch for "sparse_vector".
        release : {"response", "sparse_vector", "cauchy", "laplace", "ptr", "global"}
        slack : amount
            Delta that the exact composition may spend to add less epsilon (see
            `confide.prediction.budgets.answers`); 0 adds epsilons. Refused with a ledger of zCDP, which
            composes without it.
        epochs : int
            Of "sparse_vector": how many are reserved.
        total : pair of amounts, optional
            In place of `epsilon` and `slack`: (epsilon, delta) of all answers of this call (of all epochs),
            from which each takes what `per_answer` says.
        ledger : Ledger or str, optional
            Charged before anything is computed. None: the model's own; without one, nothing is recorded and
            the guarantee says ``"unrecorded"``.
        random_state : int, optional
            Noise seed for tests; marks the guarantee ``"seeded"``.
        analyst, label : str
            Passed on to the ledger.

        Returns
        -------
        ndarray of shape (q,)
            Classes. For "sparse_vector" a masked array: masked where the row was called unstable, and from
            the end of the last epoch on.

        Raises
        ------
        ParameterError, UnsupportedError, DataError, RefusedError
            Before anything is computed on the model.
        """
        from confide.ledger.charging import charged
        from confide.ledger.ledger import resolve

        held, seed = self._defaults(ledger, random_state)
        held, source = resolve(held), as_stream(seed)
        queries = self.queries(rows)
        check_queries(self.certified, queries)
        warn_of_strange(queries)
        count = queries.shape[0]
        # Parameters are checked where there are no rows, too.
        terms = self._terms(max(1, count), epsilon, delta, release, slack, epochs, total)
        epsilon = terms.epsilon
        guarantee = self.preview(
            max(1, count), epsilon, delta, release,
            slack=terms.slack, epochs=epochs, ledger=held, random_state=seed,
        )  # fmt: skip
        if count == 0:
            self.guarantee = None  # not that of an older answer
            return self.classes[:0].copy()
        if held is not None and self.schema is not None:
            held.check_schema(self.schema.secrets)
        with charged(held, guarantee, analyst=analyst, label=label):
            labels, k = self.certified.stability(queries)
            if release == SPARSE_VECTOR:
                told = _by_epochs(labels, k, epsilon, delta, len(self.classes), epochs, source)
            else:
                law = release_of(release, epsilon, len(self.classes), delta)
                told = law.draw(labels, k, stream=source)
        self.guarantee = guarantee
        if release != SPARSE_VECTOR:
            return self.classes[told]
        return np.ma.MaskedArray(self.classes[np.maximum(told, 0)], mask=told == UNSTABLE)

    # ---- rows -----------------------------------------------------------------------------------------

    def queries(self, rows: Any) -> NDArray[np.float64]:
        """Return rows as the matrix [q, p] that the model reads.

        Raises
        ------
        DataError
            If the columns are not those of the fit. Queries are public.
        """
        if self.schema is None:
            found = matrix(_cells_alone(rows), "rows")
        else:
            found = encoded(rows, self.schema)
        if found.shape[1] != self.facts.columns:
            raise DataError(
                f"The rows have {found.shape[1]} columns and the model {self.facts.columns}.",
                "Pass the columns of the fit, in their order.",
            )
        return found

    # ---- files ----------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file, readable by its owner alone (mode 0600): it is as secret as the table.

        The schema travels with it, ledger and noise seed do not. The file is replaced as a whole, or left as
        it was.

        Raises
        ------
        UnsupportedError
            For a model of foreign objects, such as scikit-learn's teachers: they cannot be stored without
            pickle, which executes what it reads.
        ParameterError
            If the file cannot be written.
        """
        from confide.prediction.saved import save_model

        save_model(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, ledger: Any = None) -> CertifiedModel:
        """Read a model that `save` wrote; its answers are those of the saved one, bit for bit.

        Raises
        ------
        DataError
            For a file that is missing, cut short, changed, of another kind, or of a newer format. Nothing in
            it is executed.
        """
        from confide.prediction.saved import load_model

        return load_model(path, ledger=ledger)


def _cells_alone(rows: Any) -> Any:
    """Refuse, for a model on arrays, rows that only a schema could read.

    Raises
    ------
    DataError
    """
    first = rows[0] if isinstance(rows, list | tuple) and rows else None
    if isinstance(rows, Mapping | str | os.PathLike) or isinstance(first, Mapping) or hasattr(rows, "chunks"):
        raise DataError(
            "The model was fitted on arrays and has no schema that reads columns by name or a file.",
            "Pass a matrix with the columns of the fit in their order, or certify a table.",
        )
    return rows


def _check_slack(ledger: Any, slack: Amount) -> None:
    """Refuse a slack that a ledger would not spend: zCDP adds what was run, and its delta is the total's.

    Raises
    ------
    UnsupportedError
    """
    accountant = getattr(getattr(ledger, "budget", None), "accountant", "basic")
    if accountant == "zcdp" and small_delta(slack):
        raise UnsupportedError(
            f"The slack is {show(small_delta(slack))}, and the ledger's accountant 'zcdp' spends none.",
            "Leave out 'slack' and the delta of a 'total', or use a ledger with accountant='basic'.",
        )


def check_queries(model: Any, queries: NDArray[np.float64]) -> None:
    """Let a fitted model, and those inside it, refuse public queries before an answer is charged.

    Raises
    ------
    DataError
    """
    check = getattr(model, "check_queries", None)
    if check is not None:
        check(queries)
    for inner in (getattr(model, "model", None), *getattr(model, "models", ())):
        if inner is not None:
            check_queries(inner, queries)


def feature_schema(schema: Any) -> Any:
    """Return the schema of the public and private columns alone: what a row needs for an answer."""
    from confide.schema import Schema

    return Schema(feature_columns(schema), name=schema.name, declared_by=schema.declared_by, note=schema.note)


def feature_columns(schema: Any) -> tuple[Any, ...]:
    """Return the public and private columns of a schema, in its order."""
    return tuple(column for column in schema.columns if column.role in ("public", "private"))


def encoded(rows: Any, schema: Any) -> NDArray[np.float64]:
    """Return the encoded feature columns of raw rows or of a table, float64 [n, p]."""
    from confide.schema.rows import encoded_as, table_of

    features = feature_schema(schema)
    names = tuple(name for column in features.columns for name in column.feature_names)
    held = table_of(rows, features.to_dict(), names)
    if hasattr(held, "schema") and hasattr(held, "chunks"):
        held = encoded_as(held, features, names)
    return matrix(held.toarray() if hasattr(held, "toarray") else held, "rows")


def public_classes(classes: Sequence[Any] | Any) -> NDArray[Any]:
    """Return the declared classes as an array."""
    try:
        known = np.asarray(list(classes))
    except (TypeError, ValueError):
        known = np.zeros(0)
    if known.ndim != 1 or known.size < 2 or len(set(known.tolist())) != known.size:
        raise ParameterError(
            f"The 'classes' parameter is {classes!r:.80}.",
            "Pass all classes there may be, at least two, from knowledge and not from the data.",
        )
    return known


def _by_epochs(
    labels: Labels, k: Labels, epsilon: Amount, delta: Amount, classes: int, epochs: int, source: Any
) -> Labels:
    """Return what the reserved epochs answer; `UNSTABLE` after the last."""
    left = epochs

    def charge(event: object) -> None:
        nonlocal left
        left -= 1

    vector = StableAnswers(epsilon, delta, classes, charge=charge, stream=source)
    told = np.full(labels.size, UNSTABLE, dtype=np.int64)
    place = 0
    while place < labels.size and left > 0:
        # Up to the end of one epoch: it closes with its first unstable query.
        part = vector.until_unstable(labels[place:], k[place:])
        told[place : place + part.size] = part
        place += part.size
    return told
