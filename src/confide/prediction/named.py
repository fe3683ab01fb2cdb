"""From names and public numbers to a certificate: what both front doors of the room ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.prediction.certificate import Certificate, key_bytes
from confide.prediction.ensemble import Ensemble
from confide.prediction.erm import StronglyConvexERM
from confide.prediction.laws import whole
from confide.prediction.persons import Persons
from confide.prediction.rows import BoxRows, number, unit_rows
from confide.prediction.votes import VoteGap
from confide.privacy import Adjacency

#: Names of certificates, and the models that each has.
MODELS = {
    "erm": ("logistic", "huber_hinge", "softmax"),
    "votes": ("logistic",),
    "interval": ("logistic", "softmax", "mlp"),
    "ball": ("logistic", "softmax"),
}
#: Parameter -> the certificates that it belongs to: given with another, it would be silently ignored.
OWNERS = {
    "alpha": ("erm",),
    "answer_epsilon": ("erm",),
    "ridge": ("erm",),
    "feature_norm": ("erm", "ball"),
    "constant": ("erm",),
    "neighbours": ("votes",),
    "hidden": ("interval",),
    "hyperparameters": ("interval", "ball"),
    "k_max": ("interval",),
}
#: Public default of `max_rows` for certificates that need a bound for rounding errors alone.
MOST_ROWS = 1 << 24
#: Public defaults of "interval", chosen on breast cancer, digits and simulated rows: one step certifies most
#: at epsilon 0.1 to 0.3 an answer; more of them suit 1 on two classes. A network certifies far less.
TRAINING = {
    "linear": {"learning_rate": 1.0, "clip": 0.1, "epochs": 1},
    "mlp": {"learning_rate": 2.0, "clip": 0.2, "epochs": 2},
}
#: Public defaults of "ball", for rows that are brought to `BALL_NORM`, where a step of the rate contracts
#: whatever the columns are. A clip never binds for more than two classes: the softmax needs that.
BALL_NORM = 3.0
BALL = {"learning_rate": 0.3, "clip_by": "norm", "epochs": 30, "weight_decay": 0.03}
BALL_CLIPS = (0.5, 4.5)


@dataclass(frozen=True)
class Recipe:
    """A certificate by name with its public parameters, or an object.

    Attributes
    ----------
    certificate : {"erm", "votes", "interval", "ball"} or Certificate
        With an object those of the attributes below that are its own are refused.
    model : str
    alpha, answer_epsilon, ridge, feature_norm, constant, neighbours, max_rows
        See `confide.certify`.
    hidden : sequence of int
    hyperparameters : Hyperparameters or mapping, optional
    k_max : int
    members : int
    adjacency : Adjacency or str
    partition_key : str
    training_seed : int
    max_rows_per_id : int, optional
        m: the unit is a person of at most so many rows, by ids; None: a row.
    n_jobs : int, optional
    progress : bool
    """

    certificate: Any = "erm"
    model: str = "logistic"
    alpha: float | None = None
    ridge: float | None = None
    feature_norm: float | None = None
    constant: float | None = None
    neighbours: int = 51
    hidden: Sequence[int] = (16,)
    hyperparameters: Any = None
    k_max: int = 128
    members: int = 1
    adjacency: Adjacency | str = "replace_one"
    max_rows: int | None = None
    partition_key: str = "confide"
    training_seed: int = 0
    max_rows_per_id: int | None = None
    n_jobs: int | None = None
    progress: bool = False
    answer_epsilon: float = 0.2

    @property
    def relation(self) -> Adjacency:
        """The relation whose changes are counted."""
        named = isinstance(self.certificate, str)
        return Adjacency.parse(self.adjacency if named else self.certificate.adjacency)

    @property
    def marks(self) -> dict[str, Any]:
        """Public facts of the training that every guarantee shows."""
        if isinstance(self.certificate, str):
            return {
                "certificate": self.certificate,
                "training_seed": self.training_seed,
                "partition_key": self.partition_key,
            }
        held = self.certificate
        return {
            "certificate": type(held).__name__,
            "training_seed": int(getattr(held, "training_seed", self.training_seed)),
            "partition_key": str(getattr(held, "key", self.partition_key)),
        }

    def check(self, classes: int, feature_bounds: Any = None) -> None:
        """Check every parameter, before any data is read.

        Parameters
        ----------
        classes : int
        feature_bounds : pair of scalars or arrays, optional
            Required for a certificate by name.

        Raises
        ------
        ParameterError, UnsupportedError
        """
        Adjacency.parse(self.adjacency)
        whole(self.members, "members", 1)
        whole(self.training_seed, "training_seed")
        if self.max_rows_per_id is not None:
            whole(self.max_rows_per_id, "max_rows_per_id", 1)
        key_bytes(self.partition_key)
        if not isinstance(self.certificate, str):
            self._check_object(classes)
            self._joined(self.certificate)
            return
        if self.certificate not in MODELS:
            raise ParameterError(
                f"The 'certificate' parameter is {self.certificate!r:.80}.",
                f"Pass one of {', '.join(map(repr, MODELS))}, or an object.",
            )
        if self.model not in MODELS[self.certificate]:
            raise UnsupportedError(
                f"The 'model' parameter is {self.model!r:.80} with certificate={self.certificate!r}.",
                f"Pass one of {', '.join(map(repr, MODELS[self.certificate]))}.",
            )
        if self.model == "huber_hinge" and classes > 2:
            raise UnsupportedError(
                f"The 'model' parameter is 'huber_hinge' with {classes} classes.",
                "Leave it out: more than two classes have the softmax.",
            )
        self._check_owners()
        if feature_bounds is None:
            raise ParameterError(
                "The 'feature_bounds' parameter is None.",
                "Pass bounds (lo, hi) from knowledge; they are never read from the data.",
            )
        self.build(classes, feature_bounds, _columns_of(feature_bounds), 1)

    def _given(self, *names: str) -> list[str]:
        """Return which parameters are not at their defaults."""
        defaults = {field.name: repr(field.default) for field in fields(self)}
        return [name for name in names if repr(getattr(self, name)) != defaults[name]]

    def _check_owners(self) -> None:
        """Refuse parameters of another certificate, and those that another one overrules."""
        for name in self._given(*OWNERS):
            if self.certificate not in OWNERS[name]:
                raise UnsupportedError(
                    f"The '{name}' parameter is {getattr(self, name)!r:.80} with "
                    f"certificate={self.certificate!r}.",
                    f"Leave it out: it belongs to {' and '.join(map(repr, OWNERS[name]))}.",
                )
        strengths = self._given("ridge", "alpha", "answer_epsilon")
        if len(strengths) > 1:
            raise UnsupportedError(
                f"The '{strengths[1]}' parameter is given beside '{strengths[0]}', which decides alone.",
                f"Leave '{strengths[1]}' out.",
            )
        defaults = {field.name: field.default for field in fields(self)}
        if self.model != "mlp" and repr(self.hidden) != repr(defaults["hidden"]):
            raise UnsupportedError(
                f"The 'hidden' parameter is {self.hidden!r:.80} with model={self.model!r}.",
                "Leave it out: it belongs to 'mlp'.",
            )

    def _check_object(self, classes: int) -> None:
        if not isinstance(self.certificate, Certificate):
            raise ParameterError(
                f"The 'certificate' parameter is a {type(self.certificate).__name__}.",
                f"Pass one of {', '.join(map(repr, MODELS))}, or an object with adjacency, classes and fit.",
            )
        if self.certificate.classes != classes:
            raise ParameterError(
                f"The certificate has {self.certificate.classes} classes and 'classes' {classes}.",
                "Declare the same classes.",
            )
        unread = self._given("model", *OWNERS, "max_rows")
        if unread:
            raise UnsupportedError(
                f"The '{unread[0]}' parameter is given beside a certificate that is an object.",
                f"Leave it out: a {type(self.certificate).__name__} has parameters of its own.",
            )
        asked = Adjacency.parse(self.adjacency)
        if asked not in (Adjacency.REPLACE_ONE, self.relation):
            raise UnsupportedError(
                f"The 'adjacency' parameter is {asked.value!r}, and the certificate counts changes under "
                f"{self.relation.value!r}.",
                "Make the certificate under the relation that is asked for.",
            )

    def build(self, classes: int, feature_bounds: Any, columns: int, rows: int) -> Certificate:
        """Return the certificate.

        Parameters
        ----------
        classes, columns : int
        feature_bounds : pair of scalars or arrays [columns]
        rows : int
            n; used under the replacement relations alone, where it is public.
        """
        if not isinstance(self.certificate, str):
            return self._joined(self.certificate)
        makers = {"erm": self._erm, "votes": self._votes, "interval": self._interval, "ball": self._ball}
        return self._joined(makers[self.certificate](classes, feature_bounds, columns, rows))

    def _erm(self, classes: int, feature_bounds: Any, columns: int, rows: int) -> Certificate:
        unit_rows(feature_bounds, columns, feature_norm=self.feature_norm, constant=self.constant)
        for name in ("answer_epsilon",) if self.alpha is None else ("alpha", "answer_epsilon"):
            if number(getattr(self, name), name) <= 0:
                raise ParameterError(
                    f"The '{name}' parameter is {getattr(self, name)!r}.", "Pass a number > 0."
                )
        if self.ridge is None and (self.relation is Adjacency.ADD_REMOVE_ONE or self.members > 1):
            raise ParameterError(
                "The 'ridge' parameter is None where the rows of a model are not a public number.",
                "Pass ridge, the Lambda of the sum of losses: alpha times a public guess of a model's rows.",
            )
        return StronglyConvexERM(
            self._ridge(max(1, rows)),
            classes,
            feature_bounds,
            self.model if classes == 2 else "softmax",
            self.feature_norm,
            self.constant,
            self.relation,
            MOST_ROWS if self.max_rows is None else self.max_rows,
        )

    def _ridge(self, rows: int) -> float:
        if self.ridge is not None:
            return self.ridge
        if self.alpha is not None:
            return self.alpha * rows
        return usual_alpha(rows, self.answer_epsilon / (self.max_rows_per_id or 1)) * rows

    def _votes(self, classes: int, feature_bounds: Any, columns: int, rows: int) -> Certificate:
        unit_rows(feature_bounds, columns)
        return VoteGap(self.neighbours, classes, feature_bounds, self.relation, self.partition_key)

    def _interval(self, classes: int, feature_bounds: Any, columns: int, rows: int) -> Certificate:
        from confide.prediction.intervals import IntervalTraining, Network

        hidden = _widths(self.hidden) if self.model == "mlp" else ()
        layers = (columns, *hidden, 1 if classes == 2 else classes)
        settings = self.hyperparameters
        return IntervalTraining(
            layers,
            TRAINING["mlp" if hidden else "linear"] if settings is None else settings,
            self.k_max,
            self.relation,
            # A linear model starts at 0, which no seed improves.
            None if hidden else np.zeros(Network(layers).size),
            self._one_batch(),
            features=BoxRows(unit_rows(feature_bounds, columns)),
            training_seed=self.training_seed,
            n_jobs=self.n_jobs,
            progress=self.progress,
        )

    def _ball(self, classes: int, feature_bounds: Any, columns: int, rows: int) -> Certificate:
        from confide.prediction.intervals import BallTraining

        shape = unit_rows(feature_bounds, columns, feature_norm=self.feature_norm)
        settings = {**BALL, "clip": BALL_CLIPS[classes > 2]}
        return BallTraining(
            columns,
            settings if self.hyperparameters is None else self.hyperparameters,
            BALL_NORM,
            self.relation,
            self._one_batch(),
            progress=self.progress,
            classes=classes,
            features=BoxRows(shape, BALL_NORM / shape.norm),
        )

    def _one_batch(self) -> Any:
        """Return what a step of descent divides by where n is secret; None where it is public."""
        if self.relation is not Adjacency.ADD_REMOVE_ONE:
            return None
        from confide.prediction.intervals import HashedBatches

        if self.max_rows is None:
            raise ParameterError(
                "The 'max_rows' parameter is None; under 'add_remove_one' it divides sums.",
                "Pass a public bound on the number of rows, not far above it.",
            )
        return HashedBatches(1, whole(self.max_rows, "max_rows", 1), self.partition_key)

    def _joined(self, member: Certificate) -> Certificate:
        joined = member
        if self.members > 1:
            joined = Ensemble(member, self.members, key=self.partition_key, n_jobs=self.n_jobs)
        if self.max_rows_per_id is None:
            return joined
        return Persons(joined, self.max_rows_per_id, self.partition_key)


def usual_alpha(rows: int, epsilon: float) -> float:
    """Return the ridge of a mean objective that suits answers at such an epsilon, from public numbers alone.

    A distance grows with alpha n, and an answer needs k epsilon of a few units: so the rule is one of
    n epsilon, fitted to real tables of 286 to 16,000 rows and 30 to 256 columns
    (``benchmarks/prediction_alpha.py``).
    """
    return min(3.0, max(1e-4, 150.0 / (rows * epsilon) ** 1.5))


def _columns_of(feature_bounds: Any) -> int:
    """Return how many columns declared bounds are for; 1 for scalars, and for what `bounds` will refuse."""
    try:
        return max(1, *(np.size(side) for side in feature_bounds))
    except (TypeError, ValueError):
        return 1


def _widths(hidden: Any) -> tuple[int, ...]:
    try:
        widths = tuple(hidden)
    except TypeError:
        widths = ()
    if not widths or not all(
        isinstance(width, int | np.integer) and not isinstance(width, bool) and width >= 1 for width in widths
    ):
        raise ParameterError(f"The 'hidden' parameter is {hidden!r:.80}.", "Pass widths such as (16,).")
    return tuple(int(width) for width in widths)
