"""scikit-learn shell over certificates and releases."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from confide.errors import DataError, ParameterError, UncertifiedWarning, UnsupportedError
from confide.ledger.charging import charged
from confide.mechanisms.stream import stream as as_stream
from confide.prediction.budgets import Answers, answers
from confide.prediction.certificate import Certificate, Labels
from confide.prediction.ensemble import Ensemble
from confide.prediction.erm import StronglyConvexERM
from confide.prediction.laws import small_delta, whole
from confide.prediction.releases import SPARSE_VECTOR, release_of
from confide.prediction.rows import number
from confide.prediction.vector import UNSTABLE, StableAnswers
from confide.prediction.votes import VoteGap
from confide.privacy import SEEDED, UNRECORDED, Adjacency, Guarantee, compose, exact
from confide.privacy.exact import Amount

MODELS = ("logistic", "huber_hinge", "softmax")


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
    certificate : {"erm", "votes"} or Certificate
        Strongly convex ERM, nearest neighbours, or an object such as `IntervalTraining`, `TeacherVotes` or
        `Ensemble` with these classes; of such an object the parameters below, up to `members`, are not read.
    model : {"logistic", "huber_hinge", "softmax"}
        Loss of "erm"; more than two classes always have the softmax.
    alpha : float
        Ridge of the mean objective where the number of rows is public: Lambda = alpha n. More of it makes
        answers more stable and the model coarser: about 1 suits epsilon = 0.1 an answer, 0.1 to 1 suits 0.3,
        0.01 to 0.1 suits 1.
    ridge : float, optional
        Lambda itself; required for "erm" under ADD_REMOVE_ONE, where n is secret, and for ensembles.
    feature_norm, constant : float, optional
        See `confide.prediction.rows.unit_rows`.
    neighbours : int
        m of "votes".
    members : int
        More than 1 makes an `Ensemble`.
    adjacency : Adjacency or str
    max_rows : int
        Public bound on the number of rows under ADD_REMOVE_ONE.
    partition_key : str
        Public: of ensembles and of ties between neighbours.
    ledger : Ledger or str, optional
        Charged by `answer`, before anything is drawn. None marks guarantees ``"unrecorded"``.
    random_state : int, optional
        Noise seed for tests; marks guarantees ``"seeded"``. None draws from the operating system.
    n_jobs : int, optional
        joblib's, over members.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    certified_ : Certified
        The fitted model. Secret.
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
        alpha: float = 0.03,
        ridge: float | None = None,
        feature_norm: float | None = None,
        constant: float | None = None,
        neighbours: int = 51,
        members: int = 1,
        adjacency: Adjacency | str = "replace_one",
        max_rows: int = 1 << 24,
        partition_key: str = "confide",
        ledger: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.classes = classes
        self.feature_bounds = feature_bounds
        self.certificate = certificate
        self.model = model
        self.alpha = alpha
        self.ridge = ridge
        self.feature_norm = feature_norm
        self.constant = constant
        self.neighbours = neighbours
        self.members = members
        self.adjacency = adjacency
        self.max_rows = max_rows
        self.partition_key = partition_key
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
            The privacy unit's id of each row, one row a unit: see `confide.prediction.certificate`.
        """
        known = public_classes(self.classes)
        plan = self._plan(len(known))
        matrix: Any = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)
        given = column(y, matrix.shape[0])
        codes = class_codes(given, known)
        certificate = plan if plan is not None else self._erm(len(known), matrix.shape[0])
        self.certified_ = self._joined(certificate).fit(matrix, codes, ids=ids)
        self.adjacency_ = Adjacency.parse(self._joined(certificate).adjacency)
        self.classes_ = known
        return self

    def _plan(self, count: int) -> Certificate | None:
        """Check the parameters; return the certificate, or None for one that waits for the public n."""
        relation = Adjacency.parse(self.adjacency)
        whole(self.members, "members", 1)
        as_stream(self.random_state)
        if not isinstance(self.certificate, str):
            if not isinstance(self.certificate, Certificate):
                raise ParameterError(
                    f"The 'certificate' parameter is a {type(self.certificate).__name__}.",
                    "Pass 'erm', 'votes' or an object with adjacency, classes and fit.",
                )
            if self.certificate.classes != count:
                raise ParameterError(
                    f"The certificate has {self.certificate.classes} classes and 'classes' {count}.",
                    "Declare the same classes.",
                )
            return self.certificate
        if self.feature_bounds is None:
            raise ParameterError(
                "The 'feature_bounds' parameter is None.",
                "Pass bounds (lo, hi) from knowledge; they are never read from the data.",
            )
        if self.certificate == "votes":
            return VoteGap(self.neighbours, count, self.feature_bounds, relation, self.partition_key)
        if self.certificate != "erm":
            raise ParameterError(
                f"The 'certificate' parameter is {self.certificate!r}.", "Pass 'erm', 'votes' or an object."
            )
        if self.model not in MODELS:
            raise UnsupportedError(
                f"The 'model' parameter is {self.model!r}.", f"Pass one of {', '.join(map(repr, MODELS))}."
            )
        if self.ridge is None and (relation is Adjacency.ADD_REMOVE_ONE or self.members > 1):
            raise ParameterError(
                "The 'ridge' parameter is None where the rows of a model are not a public number.",
                "Pass ridge: the Lambda of the sum of losses.",
            )
        if number(self.alpha, "alpha") <= 0:
            raise ParameterError(f"The 'alpha' parameter is {self.alpha!r}.", "Pass a number > 0.")
        self._erm(count, 1)
        return None

    def _erm(self, count: int, rows: int) -> StronglyConvexERM:
        ridge = self.alpha * max(1, rows) if self.ridge is None else self.ridge
        return StronglyConvexERM(
            ridge,
            count,
            self.feature_bounds,
            self.model if count == 2 else "softmax",
            self.feature_norm,
            self.constant,
            Adjacency.parse(self.adjacency),
            self.max_rows,
        )

    def _joined(self, certificate: Certificate) -> Certificate:
        if self.members == 1:
            return certificate
        return Ensemble(certificate, self.members, key=self.partition_key, n_jobs=self.n_jobs)

    def _queries(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "certified_")
        rows: Any = validate_data(
            self, X, reset=False, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0
        )
        return rows

    def stability(self, X: Any) -> tuple[NDArray[Any], Labels]:
        """Return the certified class and the stability distance of each query; *not private*."""
        labels, k = self.certified_.stability(self._queries(X))
        return self.classes_[labels], k

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the model's classes; *not private*, and warns so."""
        queries = self._queries(X)
        warnings.warn(
            UncertifiedWarning(
                "CertifiedClassifier.predict is not private: it shows the model as trained. Use 'answer'."
            ),
            stacklevel=2,
        )
        return self.classes_[self.certified_.stability(queries)[0]]

    def preview(
        self,
        count: int,
        epsilon: Amount,
        delta: Amount = 0,
        release: str = "response",
        *,
        slack: Amount = 0,
        epochs: int = 1,
    ) -> Guarantee:
        """Return the guarantee that `answer` would have for `count` rows; reads nothing private."""
        check_is_fitted(self, "certified_")
        if release == SPARSE_VECTOR:
            cost = self._epochs(epsilon, delta, slack, epochs)
        else:
            law = release_of(release, epsilon, len(self.classes_), delta)
            cost = answers(law, count, slack)
        marks = (() if self.ledger is not None else (UNRECORDED,)) + (
            () if self.random_state is None else (SEEDED,)
        )
        return cost.guarantee(self.adjacency_, assumptions=marks)

    def _epochs(self, epsilon: Amount, delta: Amount, slack: Amount, epochs: int) -> Answers:
        number_of, rest = whole(epochs, "epochs", 1), small_delta(slack)
        vector = StableAnswers(epsilon, delta, len(self.classes_), charge=lambda event: None)
        own = min(Fraction(1), number_of * vector.delta)
        total = exact(compose(vector.epsilon, number_of, rest))
        return Answers(total, own + rest * (1 - own), vector.event.times(number_of))

    def answer(
        self,
        X: Any,
        epsilon: Amount,
        delta: Amount = 0,
        release: str = "response",
        *,
        slack: Amount = 0,
        epochs: int = 1,
    ) -> NDArray[Any]:
        """Answer queries privately; the composition over all of them is charged first.

        Parameters
        ----------
        X : array-like of shape (q, p)
            Public queries.
        epsilon, delta : amount
            Of one answer; of one epoch for "sparse_vector".
        release : {"response", "sparse_vector", "cauchy", "laplace", "ptr", "global"}
        slack : amount
            Delta that the exact composition may spend to add less epsilon (see
            `confide.prediction.budgets.answers`); 0 adds epsilons.
        epochs : int
            Of "sparse_vector": how many are reserved.

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
        count = queries.shape[0]
        if count == 0:
            return self.classes_[:0].copy()
        guarantee = self.preview(count, epsilon, delta, release, slack=slack, epochs=epochs)
        source = as_stream(self.random_state)
        with charged(self.ledger, guarantee, label=type(self).__name__):
            labels, k = self.certified_.stability(queries)
            if release == SPARSE_VECTOR:
                told = _by_epochs(labels, k, epsilon, delta, len(self.classes_), epochs, source)
            else:
                told = release_of(release, epsilon, len(self.classes_), delta).draw(labels, k, stream=source)
        self.guarantee_ = guarantee
        if release != SPARSE_VECTOR:
            return self.classes_[told]
        return np.ma.MaskedArray(self.classes_[np.maximum(told, 0)], mask=told == UNSTABLE)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        try:
            tags.classifier_tags.multi_class = len(self.classes) > 2
        except TypeError:  # not declared yet
            tags.classifier_tags.multi_class = True
        return tags


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


def column(y: Any, rows: int) -> NDArray[Any]:
    """Return labels as one column, whatever they are."""
    if y is None:
        raise DataError("CertifiedClassifier requires y to be passed, but the target y is None.")
    given = np.asarray(y)
    if given.ndim == 2 and given.shape[1] == 1:
        warnings.warn(
            DataConversionWarning("A column-vector y was passed when a 1d array was expected."), stacklevel=3
        )
        given = given[:, 0]
    if given.shape != (rows,):
        raise DataError(f"The labels have shape {given.shape} for {rows} rows.", "Pass one label a row.")
    return given


def class_codes(given: NDArray[Any], known: NDArray[Any]) -> Labels:
    """Return the place of each label among the classes; 0 for a label that is none of them."""
    place = {label: code for code, label in enumerate(known.tolist())}

    def code(label: Any) -> int:
        try:
            return place.get(label, 0)
        except TypeError:  # a label that cannot be looked up is no class
            return 0

    return np.array([code(label) for label in given.tolist()], dtype=np.int64)


def public_classes(classes: Any) -> NDArray[Any]:
    """Return the declared classes as an array."""
    try:
        known = np.asarray(list(classes))
    except TypeError:
        known = np.zeros(0)
    if known.ndim != 1 or known.size < 2 or len(set(known.tolist())) != known.size:
        raise ParameterError(
            f"The 'classes' parameter is {classes!r:.80}.",
            "Pass all classes there may be, at least two, from knowledge and not from the data.",
        )
    return known
