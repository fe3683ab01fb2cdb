"""Members of the families of the pipeline and of tuning.

A `Witness` is an estimator that keeps what it saw: a row that is both fitted and scored, or a private cell
that a rehearsal reads, shows in the output of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from confide.audit.family.selection import far, framed
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream, seeded_stream
from confide.pipeline import SparseClassifier, SparseRegressor, select_and_fit
from confide.privacy import UNRECORDED, Adjacency, Event, Guarantee, exact
from confide.training import PrivateClassifier, PrivateRegressor
from confide.tune import tune
from confide.tune.scoring import split

#: Rows of one person in a table, and how many of them count.
_OWNED, _CAP = 10, 3
_FEW: dict[str, int] = {"few": 4, "many": 8}
#: Rows of a tuning.
_N = 30


def sparse(make: Any, **options: Any) -> Run:
    """Return a run of select-then-fit."""
    kind: Any = {"classes": [-1.0, 1.0]} if make is SparseClassifier else {"target_bounds": (-1, 1)}
    given = {"size": 3, "epsilon": 1, "feature_bounds": (-1, 1), **kind, **options}

    def run(rows: Rows, stream: RandomStream) -> Floats:
        fitted = make(**given, random_state=random_state(stream)).fit(rows.X, rows.y)
        return np.append(np.ravel(fitted.coef_), fitted.intercept_)

    return run


def _sparse(relation: str, make: Any, **options: Any) -> Variant:
    shown = ", ".join(f"{name} {value}" for name, value in options.items())
    pair = partial(far, relation, 3, **_FEW)
    run = sparse(make, adjacency=relation, **options)
    return Variant(f"{relation}, 3 columns, {shown}", run, lambda: [pair()], relation, options.get("epsilon"))


def _of_tables(relation: str, classes: bool, **options: Any) -> Variant:
    """Return the front door on a table whose persons have more rows than count."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        held = framed(rows, _CAP, classes=classes)
        told = select_and_fit(
            held, size=2, epsilon=1, adjacency=relation, random_state=random_state(stream), **options
        )
        return np.concatenate([told.model.indices, told.model.coefficients, [told.model.intercept]])

    shown = ", ".join(f"{name} {value}" for name, value in options.items())
    pair = partial(far, relation, 2, count=_OWNED)
    name = f"select_and_fit, {relation}, {'categories' if classes else 'numbers'}, {shown}"
    return Variant(name, run, lambda: [pair()], relation)


def _regressors() -> Iterator[Variant]:
    yield _sparse("replace_one", SparseRegressor, split=0.2, coefficient_loss="huber")
    yield _sparse("replace_one", SparseRegressor, split=0.9, coefficient_loss="squared")
    yield _sparse("replace_one", SparseRegressor, delta=0.001, coefficient_loss="quantile", split=0.7)
    yield _sparse("replace_one", SparseRegressor, epsilon=8, coefficient_loss="huber")
    yield _sparse("add_remove_one", SparseRegressor, split=0.2, coefficient_loss="squared")
    yield _of_tables("replace_one", False, coefficient_loss="squared")
    yield _of_tables("replace_one", False, delta=0.001, split=0.2, coefficient_loss="huber")


def _classifiers() -> Iterator[Variant]:
    yield _sparse("replace_one", SparseClassifier, delta=0.001, coefficient_loss="hinge", split=0.7)
    yield _of_tables("replace_one", True, split=0.3)


class Witness:
    """An estimator that keeps the rows that it is given, and answers by the middle of its bounds.

    Parameters
    ----------
    seen : list
        Of (method, X): what every copy was given.
    relation : str
    public : bool
        Whether all columns but the last are public.
    """

    def __init__(
        self, seen: Any = None, relation: str = "replace_one", public: bool = False,
        target_bounds: Any = (-1, 1),
        epsilon: Any = None, delta: Any = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        self.seen, self.relation, self.public, self.target_bounds = seen, relation, public, target_bounds
        self.epsilon, self.delta, self.random_state = epsilon, delta, random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return its parameters, as scikit-learn asks."""
        return dict(vars(self)) if not hasattr(self, "guarantee_") else {}

    def set_params(self, **given: Any) -> Witness:
        """Set parameters, as scikit-learn asks."""
        vars(self).update(given)
        return self

    def __sklearn_clone__(self) -> Witness:
        return Witness(self.seen, self.relation, self.public, self.target_bounds)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but what it saw, which is no part of a model (`portrait`)."""
        return {name: told for name, told in vars(self).items() if name != "seen"}

    def fit(self, X: Any, y: Any) -> Witness:
        """Keep rows and labels."""
        self.seen.append(("fit", np.column_stack([X, np.asarray(y, dtype=np.float64)])))
        if self.public:
            self.columns_ = np.arange(X.shape[1]) < X.shape[1] - 1
        epsilon = exact(self.epsilon, "epsilon")
        event = Event.of("pure", epsilon=str(epsilon))
        self.guarantee_ = Guarantee(epsilon, 0, Adjacency.parse(self.relation), "row", event, (UNRECORDED,))
        return self

    def predict(self, X: Any) -> Floats:
        """Keep rows and return 0."""
        self.seen.append(("predict", np.array(X)))
        return np.zeros(X.shape[0])


def witnessed(relation: str, read: Callable[[list[Any]], float], *, public: bool = False) -> Run:
    """Return a tuning of witnesses that shows what is read of all that they saw."""

    def run(rows: Rows, stream: RandomStream) -> Floats:
        seen: list[Any] = []
        tune(
            lambda kind: Witness(seen, relation, public), [0, 1], rows.X, rows.y,
            epsilon=1, delta=0, expected_runs=3, random_state=random_state(stream),
        )  # fmt: skip
        return np.array([read(seen)])

    return run


def _in_both(seen: list[Any]) -> float:
    """Return how many rows were both fitted and scored, by the numbers in their first column."""
    numbers = {
        what: {int(number) for kind, cells in seen if kind == what for number in cells[:, 0]} - {0}
        for what in ("fit", "predict")
    }
    return float(len(numbers["fit"] & numbers["predict"]))


def _before(seen: list[Any]) -> float:
    """Return the sum of what rehearsals were given: of each candidate on zeros, then on public cells."""
    return float(sum(np.abs(cells).sum() for _, cells in seen[:6]))


def _numbered() -> list[Pair]:
    """Return a table of zeros, and the same with its rows numbered: whoever sees a row twice can tell."""
    y = np.zeros(_N)
    numbers = np.column_stack([np.arange(1.0, _N + 1), np.zeros(_N)])
    return [Pair("rows are numbered", Rows(np.zeros((_N, 2)), y), Rows(numbers, y))]


def _private() -> list[Pair]:
    """Return tables that differ in every private cell, and in no released number."""
    X, y = np.zeros((_N, 2)), np.zeros(_N)
    X[:, 0] = np.linspace(-1, 1, _N)
    there = X.copy()
    there[:, 1] = 1.0
    return [Pair("private cells", Rows(X, y), Rows(there, y))]


def _where(scores: bool, relation: str = "replace_label", classes: bool = False) -> list[Pair]:
    """Return neighbours that differ in a row that scores, or in one that is fitted."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (_N, 2))
    y = np.where(X[:, 0] > 0, 1.0, 0.0) if classes else np.clip(X[:, 0], -1, 1)
    places = split(_N, 0.2, Adjacency.REPLACE_ONE, seeded_stream(0))
    found = []
    for place in places[int(scores)][:3]:
        sides = []
        for label in (0.0 if classes else -1.0, 1.0):
            changed, cells = y.copy(), X.copy()
            changed[place] = label
            if relation == "replace_one":
                cells[place] = label
            sides.append(Rows(cells, changed))
        found.append(Pair(f"row {place}", *sides))
    return found


#: Shrinking is post-processing, and the slowest part of a fit.
_CLOSED: dict[str, Any] = {"engine": "closed_form", "target_bounds": (-1, 1), "shrinkage": False}


def _by_conditioning(kind: str) -> Any:
    return PrivateRegressor(**_CLOSED, conditioning=kind)


def _classes(kind: float) -> Any:
    return PrivateClassifier(engine="closed_form", classes=[0.0, 1.0], leverage=kind)


def _pure(kind: int) -> Any:
    return PrivateClassifier(engine="randomized_response", classes=[0.0, 1.0])


def _secret(kind: float) -> Any:
    return PrivateRegressor(
        engine="dpsgd", steps=2, public=None, feature_bounds=(-1, 1), target_bounds=(-1, 1),
        adjacency="replace_one", learning_rate=kind,
    )  # fmt: skip


def _tuned(make: Callable[[Any], Any], candidates: list[Any], **options: Any) -> Run:
    given = {"epsilon": 1, "delta": 0.001, "expected_runs": 6, **options}

    def run(rows: Rows, stream: RandomStream) -> Floats:
        found = tune(make, candidates, rows.X, rows.y, **given, random_state=random_state(stream))
        return np.append(np.asarray(found.model.predict(np.eye(2)), dtype=np.float64), found.score)

    return run


def _tunings() -> Iterator[Variant]:
    for relation in ("replace_one", "add_remove_one"):
        yield Variant(f"no row twice, {relation}", witnessed(relation, _in_both), _numbered, relation)
    private = "replace_private_part"
    yield Variant("rehearsals", witnessed(private, _before, public=True), _private, private)
    for scores in (True, False):
        where = "a row that scores" if scores else "a row that is fitted"
        kinds: list[Any] = ["spectral", "identity"]
        for name, options in {"": {}, ", absolute, cap 0.1": {"score": "absolute", "cap": 0.1}}.items():
            yield Variant(
                where + name,
                _tuned(_by_conditioning, kinds, **options),
                partial(_where, scores),
                "replace_label",
            )
        coded = partial(_where, scores, classes=True)
        yield Variant(
            f"{where}, classes", _tuned(_classes, [0.5, 1], score="accuracy"), coded, "replace_label"
        )
        yield Variant(
            f"{where}, pure", _tuned(_pure, [0, 1], score="accuracy", delta=0, expected_runs=2), coded,
            "replace_label",
        )  # fmt: skip
    yield Variant(
        "secret columns", _tuned(_secret, [0.1, 1.0], expected_runs=2), partial(_where, False, "replace_one"),
        "replace_one",
    )  # fmt: skip


FAMILIES: Families = {
    "pipeline.SparseRegressor.pure": tuple(_regressors()),
    "pipeline.SparseClassifier": tuple(_classifiers()),
    "tune.tune": tuple(_tunings()),
}
