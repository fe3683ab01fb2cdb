"""Members of the family of tuning that tell which candidate a run's exact scores are for.

An `Opinion` predicts one number whatever it is fitted on. Where all labels are in the middle but one, two
opposite opinions score alike on all rows but that one: its label says which of them is better, by one row.
With the noisy scores told alike, who wins must not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from confide.audit.family.pipeline import Witness, witnessed
from confide.audit.family.places import scored
from confide.audit.family.shared import of
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream, seeded_stream
from confide.privacy import Adjacency
from confide.training import PrivateRegressor
from confide.tune import tune
from confide.tune.scoring import split

#: Rows of a tuning: an odd number of them score. Seven rows where they come and go by coins.
_N, _FEW = 35, 7
_TIMES = 4
_SHAPES = {"geometric": 1, "logarithmic": 0, "heavy": "-1/2"}
_ADDED = "add_remove_one"


class Opinion(Witness):
    """An estimator of one opinion: what it is fitted on changes nothing.

    Parameters
    ----------
    opinion : float
        What it predicts.
    relation : str
    classes : list, optional
        Where it predicts classes.
    """

    def __init__(
        self, opinion: float = 0.0, relation: str = "replace_one", target_bounds: Any = (-1, 1),
        epsilon: Any = None, delta: Any = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        super().__init__([], relation, False, target_bounds, epsilon, delta, random_state)
        self.opinion = opinion

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return its parameters, as scikit-learn asks."""
        names = ("opinion", "relation", "target_bounds", "epsilon", "delta", "random_state")
        return {name: getattr(self, name) for name in names}

    def __sklearn_clone__(self) -> Opinion:
        return type(self)(self.opinion, self.relation, self.target_bounds)

    def predict(self, X: Any) -> Floats:
        """Return the opinion for each row."""
        return np.full(X.shape[0], self.opinion)


class Line(Opinion):
    """A public linear model: what a matrix product would round by the number of rows (`places`)."""

    def predict(self, X: Any) -> Floats:
        """Return its predictions."""
        return scored()[0](X)


class Vote(Opinion):
    """An opinion on two classes."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return its parameters, as scikit-learn asks."""
        told = super().get_params()
        return {**{name: told[name] for name in told if name != "target_bounds"}, "classes": [-1.0, 1.0]}


def _chosen(make: type[Opinion], relation: str, **options: Any) -> Run:
    """Return some tunings that show the winner and its score, so that more than one run is made in some."""
    given: dict[str, Any] = {"epsilon": 1, "delta": 0, "expected_runs": 10, "eta": 1, **options}

    def run(rows: Rows, stream: RandomStream) -> Floats:
        told = []
        for number in range(_TIMES):
            found = tune(
                lambda opinion: make(opinion, relation), [-1.0, 1.0], rows.X, rows.y, **given,
                random_state=random_state(stream.child(str(number))),
            )  # fmt: skip
            told += [found.best, found.score]
        return np.array(told)

    return run


def _one_row(relation: str, classes: bool = False) -> list[Pair]:
    """Return neighbours in which one row that scores is for one opinion, or for the other.

    With classes each label is for one of them: the other rows that score are as many for either.
    """
    (fitted, scored), X = split(_N, 0.2, Adjacency.REPLACE_ONE, seeded_stream(0)), np.zeros((_N, 2))
    y = np.zeros(_N)
    if classes:
        y[fitted], y[scored] = 1.0, np.where(np.arange(scored.size) % 2, 1.0, -1.0)
    sides = []
    for label in (1.0, -1.0):
        told = y.copy()
        told[scored[0]] = label
        sides.append(Rows(X, told))
    return [Pair(f"row {scored[0]} alone decides, {relation}", *sides)]


def _row_comes(label: float, n: int) -> list[Pair]:
    """Return neighbours of which one has a row more, at an odd place, so that it scores (`coins`)."""
    base = Rows(np.zeros((n, 2)), np.zeros(n))
    return [Pair("a row comes and decides", base, base.added(np.zeros(2), label))]


def _tuned(make: Callable[[Any], Any], **options: Any) -> Run:
    given: dict[str, Any] = {"epsilon": 1, "delta": 0.001, "expected_runs": 3, **options}

    def run(rows: Rows, stream: RandomStream) -> Floats:
        found = tune(make, [True, False], rows.X, rows.y, **given, random_state=random_state(stream))
        told = np.asarray(found.model.predict(np.eye(2)), dtype=np.float64)
        return np.append(told, [found.best, found.score])

    return run


def _of_secret_rows(**options: Any) -> Callable[[Any], Any]:
    given: dict[str, Any] = {
        "public": None, "feature_bounds": (-1, 1), "target_bounds": (-1, 1), "adjacency": _ADDED, **options
    }  # fmt: skip
    return lambda kind: PrivateRegressor(**given, fit_intercept=kind)


def _fitted(seen: list[Any]) -> float:
    """Return the sum of the numbers of all rows that were fitted, of which one that comes has none."""
    return float(sum(cells[:, 0].sum() for kind, cells in seen if kind == "fit"))


def _numbered() -> list[Pair]:
    X = np.column_stack([np.arange(1.0, _FEW + 1), np.zeros(_FEW)])
    base = Rows(X, np.zeros(_FEW))
    return [Pair("a row without a number comes", base, base.added(np.zeros(2), 1.0))]


def _tunings() -> Iterator[Variant]:
    for relation in ("replace_label", "replace_one"):
        pairs = partial(_one_row, relation)
        yield Variant(f"two opinions, {relation}", _chosen(Opinion, relation, cap=1.0), pairs, relation)
    votes = _chosen(Vote, "replace_label", score="accuracy")
    yield Variant("two votes", votes, partial(_one_row, "replace_label", True), "replace_label")
    for label in (1.0, -1.0):
        told = _chosen(Opinion, _ADDED, cap=1.0)
        yield Variant(f"two opinions, {_ADDED}, {label:+g}", told, partial(_row_comes, label, _FEW), _ADDED)
    lines = _chosen(Line, _ADDED, score="absolute", cap=1.0, held_out=0.999, expected_runs=1)
    yield Variant("a last bit decides a gain", lines, scored()[1], _ADDED)
    yield Variant("rows keep their sides", witnessed(_ADDED, _fitted), _numbered, _ADDED)
    for n in (20, 21):  # the row that comes is fitted, or scores
        for engine, options in (("adassp", {}), ("dpsgd", {"steps": 2, "max_rows": 32})):
            run = _tuned(_of_secret_rows(engine=engine, **options))
            yield Variant(f"{_ADDED}, {engine}, {n} rows", run, of(n, 2, _ADDED), _ADDED)
    for name, eta in _SHAPES.items():
        run = _tuned(_of_secret_rows(engine="adassp"), eta=eta)
        yield Variant(f"{name} number of runs", run, of(_N, 2, _ADDED), _ADDED)
        pure = _chosen(Opinion, "replace_label", cap=1.0, eta=eta, expected_runs=3)
        pairs = partial(_one_row, "replace_label")
        yield Variant(f"{name} number of runs, pure", pure, pairs, "replace_label")


FAMILIES: Families = {"tune.tune": tuple(_tunings())}
