"""scikit-learn shell over certificates and releases."""

from __future__ import annotations

import os
import warnings
from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from confide.errors import DataError, UncertifiedWarning, UnsupportedError
from confide.mechanisms.stream import stream as as_stream
from confide.prediction.certificate import Certified, Labels
from confide.prediction.front import provenance
from confide.prediction.ids import check_ids, names
from confide.prediction.model import CertifiedModel, Facts, public_classes
from confide.prediction.named import Recipe
from confide.prediction.saved import read, save_model
from confide.privacy import Adjacency, Guarantee
from confide.privacy.exact import Amount
from confide.schema import loose

#: Parameters that are no part of a model.
_UNSAVED = ("ledger", "random_state", "n_jobs", "classes")


class CertifiedClassifier(ClassifierMixin, BaseEstimator):
    """A classifier trained without noise, whose *answers* are private.

    Parameters
    ----------
    classes : sequence
        Required and public: all classes there may be. With two, the first is the negative logit. A label
        that is none of them counts as the first, without a word.
    feature_bounds : pair of scalars or of arrays of shape (p,)
        Declared and public; a published mean and deviation (mean -+ 2 deviations) does far better than a
        wide range.
    certificate : {"erm", "votes", "interval", "ball"} or Certificate
        Strongly convex ERM, nearest neighbours, gradient descent with boxes, many steps of it with a ball, or
        an object such as `IntervalTraining`, `TeacherVotes` or `Ensemble` with these classes. An object reads
        rows as they are and has parameters of its own: beside it `feature_bounds` and the parameters below,
        up to `max_rows`, are refused, but for `members`.
    model : {"logistic", "huber_hinge", "softmax", "mlp"}
        Of "erm" the first three, of "interval" a linear model or "mlp", of "ball" a linear model; more than
        two classes always have the softmax.
    alpha : float, optional
        Ridge of the mean objective where the number of rows is public: Lambda = alpha n. More of it makes
        answers more stable and the model coarser. None: 150 / (n answer_epsilon)^1.5 within [1e-4, 3]
        (`confide.prediction.named.usual_alpha`).
    answer_epsilon : float
        Of "erm" without `alpha`: about the epsilon that an answer will have. It chooses the ridge and
        promises nothing.
    ridge : float, optional
        Lambda itself; required for "erm" under ADD_REMOVE_ONE, where n is secret, and for ensembles.
    feature_norm, constant : float, optional
        See `confide.prediction.rows.unit_rows`; of "ball" the first, which multiplies rows by
        3 / `feature_norm` after.
    neighbours : int
        m of "votes".
    hidden : sequence of int
        Widths of "mlp".
    hyperparameters : Hyperparameters or mapping, optional
        Of "interval" and "ball" (``clip_by="norm"``).
    k_max : int
        Of "interval": largest distance that is searched.
    members : int
        More than 1 makes an `Ensemble`.
    adjacency : Adjacency or str
    max_rows : int, optional
        Public stand-in for the secret number of rows under ADD_REMOVE_ONE: descent divides by it.
        No table is compared with it; rounding covers so many rows, and 2^24 at least.
    partition_key : str
        Public: of ensembles and of ties between neighbours; in every guarantee.
    max_rows_per_id : int, optional
        The unit is a person with at most so many rows, by the lasting `ids` of `fit`, of whose rows no more
        are kept. None: a row.
    training_seed : int
        Public: of the start of "mlp"; in every guarantee.
    ledger : Ledger or str, optional
        Charged by `answer`, before anything is drawn. None marks guarantees ``"unrecorded"``.
    random_state : int, optional
        Noise seed for tests; marks guarantees ``"seeded"``. None draws from the operating system.
    n_jobs : int, optional
        joblib's, over members.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    model_ : CertifiedModel
        The fitted model. Secret.
    certified_ : Certified
        What certifies in it. Secret.
    guarantee_ : Guarantee
        Of the last `answer`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    `fit` charges nothing, since it releases nothing: what is fitted is as secret as the table. `predict` and
    `score` are not private and warn; `stability` is not private either. Only the classes that `answer`
    returns leave: never k, a margin, a scale or which certificate fired (pitfall F61). The same query asked
    twice is charged twice.

    **No step before it may be fitted on the table**, but for columns that the relation leaves public:
    ``make_pipeline(StandardScaler(), CertifiedClassifier(...))`` moves every row when one is replaced, and
    the distances mean nothing. Nothing can warn of it. Declare `feature_bounds`, use a fixed rule
    (`FunctionTransformer`), or freeze a step that was fitted on public rows
    (`sklearn.frozen.FrozenEstimator`). Store with `save`: a file of joblib or pickle may be read by others.

    ======================================  ===========================================================
    edge case                               what happens
    ======================================  ===========================================================
    NaN in a query, or in the table         the middle of the bounds; `answer` warns of a query's
    infinite, or outside the bounds         the bound; `answer` warns of a query's infinity
    a label that is no class                the first class, without a word
    one class in the table                  the same path; the other may be answered where k is near 0
    ids that repeat, no `max_rows_per_id`   DataError under the replacement relations, else not looked at
    no rows to answer                       no answers, no charge, no `guarantee_`
    ======================================  ===========================================================

    The table's cells and labels are read one by one (`confide.schema.loose`): a cell that is no number is
    missing, a label that is no class is the first, whatever else stands in the table, and no exception or
    warning tells of either. Only the declared type of an array, its shape and its names are judged.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> model = CertifiedClassifier(["no", "yes"], (-2, 2)).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    >>> model.answer([[1.5, 0, 0], [-1.5, 0, 0]], epsilon=1).tolist()
    ['yes', 'no']
    >>> print(model.guarantee_.epsilon, model.guarantee_.adjacency.value)
    2 replace_one
    """

    def __init__(
        self,
        classes: Any = None,
        feature_bounds: Any = None,
        *,
        certificate: Any = "erm",
        model: str = "logistic",
        alpha: float | None = None,
        answer_epsilon: float = 0.2,
        ridge: float | None = None,
        feature_norm: float | None = None,
        constant: float | None = None,
        neighbours: int = 51,
        hidden: Any = (16,),
        hyperparameters: Any = None,
        k_max: int = 128,
        members: int = 1,
        adjacency: Adjacency | str = "replace_one",
        max_rows: int | None = None,
        partition_key: str = "confide",
        training_seed: int = 0,
        max_rows_per_id: int | None = None,
        ledger: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.classes = classes
        self.feature_bounds = feature_bounds
        self.certificate = certificate
        self.model = model
        self.alpha = alpha
        self.answer_epsilon = answer_epsilon
        self.ridge = ridge
        self.feature_norm = feature_norm
        self.constant = constant
        self.neighbours = neighbours
        self.hidden = hidden
        self.hyperparameters = hyperparameters
        self.k_max = k_max
        self.members = members
        self.adjacency = adjacency
        self.max_rows = max_rows
        self.partition_key = partition_key
        self.training_seed = training_seed
        self.max_rows_per_id = max_rows_per_id
        self.ledger = ledger
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, *, ids: Any = None) -> Self:
        """Train without noise; nothing leaves and nothing is charged.

        Parameters
        ----------
        X : array-like of shape (n, p)
        y : array-like of shape (n,)
        ids : sequence of int, str or bytes, optional
            The privacy unit's id of each row: see `confide.prediction.certificate`, and
            `confide.prediction.ids` for other cells, none of which is refused. Required with
            `max_rows_per_id`; a row without an id is left out then. Without `max_rows_per_id` the unit is a
            row, whatever the ids say: ids that repeat are refused under the replacement relations, where they
            are public. Under ADD_REMOVE_ONE they are secret and nothing looks: there each person has to have
            one row.

        Raises
        ------
        DataError
            If ids repeat without `max_rows_per_id`, under a replacement relation. By the declared type,
            shape and number of the ids.
        """
        vars(self).pop("model_", None)  # no older model under new parameters
        known = public_classes(self.classes)
        recipe = self._recipe()
        as_stream(self.random_state)
        recipe.check(len(known), self.feature_bounds)
        if not isinstance(self.certificate, str) and self.feature_bounds is not None:
            raise UnsupportedError(
                "The 'feature_bounds' parameter is given beside a certificate that is an object.",
                "Leave it out, and give bounds to the object: it reads rows as they are.",
            )
        matrix = self._table(X)
        n, p = matrix.shape
        codes = class_codes(column(y, n), known)
        certificate = recipe.build(len(known), self.feature_bounds, p, n)
        unit = getattr(certificate, "unit", "row")
        if ids is not None:
            check_ids(ids, n)
            if unit == "row" and recipe.relation is not Adjacency.ADD_REMOVE_ONE:
                _check_distinct(ids)
        facts = Facts(known, recipe.relation, p, unit, marks=recipe.marks)
        facts = replace(facts, provenance=provenance(facts, certificate))
        with np.errstate(all="ignore"):  # no setting of the process turns a private cell into an exception
            self.model_ = CertifiedModel(certificate.fit(matrix, codes, ids=ids), facts)
        self.classes_ = known
        return self

    def _table(self, X: Any) -> NDArray[np.float64]:
        """Return private rows: type, shape and names are judged, and no cell decides what is raised."""
        loose.check_features(X)
        X = loose.matrix_of(X)
        loose.check_table(X)
        rows: Any = validate_data(self, X, dtype=None, ensure_all_finite=False, ensure_min_samples=0)
        loose.check_numeric(rows)
        return loose.numbers(rows)

    def _recipe(self) -> Recipe:
        return Recipe(**{field.name: getattr(self, field.name) for field in fields(Recipe)
                         if field.name != "progress"})  # fmt: skip

    @property
    def certified_(self) -> Certified:
        """The fitted model; secret."""
        return self.model_.certified

    @property
    def guarantee_(self) -> Guarantee:
        """Of the last `answer`."""
        told = self.model_.guarantee
        if told is None:
            raise AttributeError("guarantee_ comes with an 'answer' of at least one row.")
        return told

    def _queries(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        rows: Any = validate_data(
            self, X, reset=False, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0
        )
        return rows

    def stability(self, X: Any) -> tuple[NDArray[Any], Labels]:
        """Return the certified class and the stability distance of each query; *not private*."""
        queries = self._queries(X)
        return self.model_.stability(queries)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the model's classes; *not private*, and warns so."""
        queries = self._queries(X)
        warnings.warn(
            UncertifiedWarning(
                "CertifiedClassifier.predict is not private: it shows the model as trained. Use 'answer'."
            ),
            stacklevel=2,
        )
        return self.model_.stability(queries)[0]

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
        """Return the guarantee that `answer` would have for `count` rows; reads nothing private."""
        check_is_fitted(self, "model_")
        return self.model_.preview(
            count, epsilon, delta, release,
            slack=slack, epochs=epochs, total=total, **self._defaults(ledger, random_state),
        )  # fmt: skip

    def _defaults(self, ledger: Any, random_state: Any) -> dict[str, Any]:
        return {
            "ledger": self.ledger if ledger is None else ledger,
            "random_state": self.random_state if random_state is None else random_state,
        }

    def answer(
        self,
        X: Any,
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
        label: str = "CertifiedClassifier",
    ) -> NDArray[Any]:
        """Answer queries privately; the composition over all of them is charged first.

        Parameters
        ----------
        X : array-like of shape (q, p)
            Public queries.
        epsilon, delta, release, slack, epochs, total, ledger, random_state, analyst, label
            See `CertifiedModel.answer`; ledger and noise seed default to those of the constructor.

        Returns
        -------
        ndarray of shape (q,)
            Classes. For "sparse_vector" a masked array: masked where the query was called unstable, and from
            the end of the last epoch on.

        Raises
        ------
        ParameterError, UnsupportedError, RefusedError
            Before anything is computed on the model.
        """
        queries = self._queries(X)
        return self.model_.answer(
            queries, epsilon, delta, release, slack=slack, epochs=epochs, total=total,
            **self._defaults(ledger, random_state), analyst=analyst, label=label,
        )  # fmt: skip

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier to one file; see `CertifiedModel.save`.

        Ledger and noise seed are not stored.
        """
        check_is_fitted(self, "model_")
        shell = {name: value for name, value in self.get_params(deep=False).items() if name not in _UNSAVED}
        # Beside the model, which holds them: an object that was passed for 'certificate', and bounds.
        save_model(
            self.model_,
            path,
            shell={**shell, "classes": None},
            names=getattr(self, "feature_names_in_", None),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, ledger: Any = None) -> Self:
        """Read a classifier that `save` wrote; its answers are those of the saved one, bit for bit.

        Raises
        ------
        DataError
            As `CertifiedModel.load`, and for the model of a table.
        """
        model, shell, names = read(path)
        if shell is None:
            raise DataError(
                f"The file {path} holds the model of a table.",
                "Read it with confide.load, or confide.prediction.CertifiedModel.load.",
            )
        return cls._around(path, (model, shell, names), ledger)

    @classmethod
    def _around(cls, path: Any, parts: tuple[CertifiedModel, dict[str, Any], Any], ledger: Any) -> Self:
        """Return the classifier of a file that was read."""
        model, shell, names = parts
        try:
            self = cls(**{**shell, "classes": model.classes.tolist(), "ledger": ledger})
        except TypeError:
            raise DataError(f"The parts of {path} do not fit each other.", "Save the model again.") from None
        self.model_ = model
        self.classes_ = model.classes
        vars(self)["n_features_in_"] = model.facts.columns
        if names is not None:
            vars(self)["feature_names_in_"] = np.array(names, dtype=object)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        try:
            tags.classifier_tags.multi_class = len(self.classes) > 2
        except TypeError:  # not declared yet
            tags.classifier_tags.multi_class = True
        return tags


def certified_of(path: str | os.PathLike[str], *, ledger: Any = None) -> CertifiedModel | CertifiedClassifier:
    """Return what a file holds: the model of a table, or a classifier with the names of its columns."""
    model, shell, names = read(path, ledger=ledger)
    if shell is None:
        return model
    model.ledger = None  # the classifier's own
    return CertifiedClassifier._around(path, (model, shell, names), ledger)  # pyright: ignore[reportPrivateUsage]


def _check_distinct(ids: Any) -> None:
    """Refuse public ids that repeat where the unit is a row: each would be several units.

    Raises
    ------
    DataError
    """
    held = [name for name in names(ids) if name is not None]
    if len(set(held)) < len(held):
        raise DataError(
            "Some ids have several rows, and without 'max_rows_per_id' the guarantee is one of a row.",
            "Pass max_rows_per_id, the most rows of a person, or leave 'ids' out.",
        )


def column(y: Any, rows: int) -> NDArray[Any]:
    """Return labels as one column, whatever they are."""
    if y is None:
        raise DataError("CertifiedClassifier requires y to be passed, but the target y is None.")
    given = np.asarray(loose.vector_of(y))  # one text must not make text of a list of numbers
    if given.ndim == 2 and given.shape[1] == 1:
        warnings.warn(
            DataConversionWarning("A column-vector y was passed when a 1d array was expected."), stacklevel=3
        )
        given = given[:, 0]
    if given.shape != (rows,):
        # Without the number of rows, which may be secret.
        raise DataError("There is not one label for each row.", "Pass labels of shape (n,).")
    return given


def class_codes(given: NDArray[Any], known: NDArray[Any]) -> Labels:
    """Return the place of each label among the classes; 0 for a label that is none of them.

    Each label by itself: what it equals does not depend on the others.
    """
    members = known.tolist()
    place = {label: code for code, label in enumerate(members)}

    def code(label: Any) -> int:
        if type(label) in (bool, int, float, str):
            return place.get(label, 0)
        return next((code for code, member in enumerate(members) if loose.equal(label, member)), 0)

    return np.array([code(label) for label in given.tolist()], dtype=np.int64)
