"""What a process has set for NumPy's float errors makes no private cell decide an exception or a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import confide
from confide.prediction import (
    BallTraining,
    CertifiedClassifier,
    HybridTraining,
    IntervalTraining,
    StronglyConvexERM,
    VoteGap,
)
from confide.selection import SubsetSelector
from confide.training import (
    LabelPrivatizer,
    PrivateClassifier,
    PrivateLabelRegressor,
    PrivateRegressor,
    WeightedLLPRegressor,
)
from confide.tune import tune

ROWS = 120
CELLS = [0.3, 5e-324, -5e-324, 1e308, -1e308, 1e-160, float("inf")]

_made = np.random.default_rng(5)
X = _made.uniform(-1, 1, (ROWS, 3))
Y = np.clip(X @ [0.5, -0.3, 0.2] + 0.3 * _made.normal(size=ROWS), -3, 3)


def features(cell: float) -> np.ndarray:
    """One row of private cells, whose first two are `cell`."""
    out = X.copy()
    out[7, :2] = cell
    return out


def numbers(cell: float) -> np.ndarray:
    out = Y.copy()
    out[7] = cell
    return out


def words(cell: float) -> np.ndarray:
    return np.where(Y > 0, "yes", "no")


def table(cell: float, role: str = "private", *, classes: bool = False, own: bool = False) -> confide.Table:
    """Of label and three columns; with `own`, the label holds the cell too."""
    label = {"categories": ["no", "yes"]} if classes else {"lower": -3, "upper": 3}
    columns = {f"x{j}": {"role": role, "lower": -1, "upper": 1} for j in range(3)}
    cells = features(cell) if role == "private" else X
    y = words(cell) if classes else numbers(cell) if own else Y
    schema = {
        "table": {"name": "t", "declared_by": "z"},
        "columns": {**columns, "y": {"role": "label", **label}},
    }
    return confide.Table.from_frame({**{f"x{j}": cells[:, j] for j in range(3)}, "y": y}, schema)


def train(engine: str, **options: Any) -> Callable[[float, Any], Any]:
    classes = options.pop("classes", False)
    paid = {"epsilon": 1, "delta": 1e-6, "adjacency": "replace_one"} | options

    def run(cell: float, ledger: Any) -> Any:
        role = "public" if paid["adjacency"] == "replace_label" else "private"
        read = table(cell, role, classes=classes, own=not classes)
        return confide.train(read, engine=engine, ledger=ledger, **paid)

    return run


def certify(**options: Any) -> Callable[[float, Any], Any]:
    def run(cell: float, ledger: Any) -> Any:
        model = confide.certify(table(cell, classes=True), ledger=ledger, **options)
        return model.answer({f"x{j}": [0.1, -0.2] for j in range(3)}, epsilon=1)

    return run


def rows_certified(certificate: str) -> Callable[[float, Any], Any]:
    def run(cell: float, ledger: Any) -> Any:
        shell = CertifiedClassifier(["no", "yes"], (-1, 1), certificate=certificate, ledger=ledger)
        return shell.fit(features(cell), words(cell)).answer(X[:2], epsilon=1)

    return run


def tuned(cell: float, ledger: Any) -> Any:
    def make(ridge: float) -> Any:
        return PrivateRegressor(target_bounds=(-3, 3), adjacency="replace_one", engine="adassp",
                                feature_bounds=(-1, 1), fit_intercept=bool(ridge))  # fmt: skip

    return tune(make, [{"ridge": 0}, {"ridge": 1}], features(cell), numbers(cell), epsilon=3, delta=1e-5,
                expected_runs=2, ledger=ledger)  # fmt: skip


OF_LABELS = {"train rounds", "train closed_form", "privatizer rr_on_bins", "privatizer laplace", "label regressor", "bags", "regressor"}  # fmt: skip
LABELS = {"adjacency": "replace_label"}
SPARSE = {"epsilon": 1, "feature_bounds": (-1, 1)}
DOORS: dict[str, Callable[[float, Any], Any]] = {
    **{f"train {name}": train(name, **LABELS) for name in ("rounds", "closed_form")},
    **{f"train {name} of secret rows": train(name) for name in ("adassp", "boosted_adassp", "dpsgd")},
    "train semi_sensitive": train("semi_sensitive", adjacency="replace_private_part"),
    "train objective": train("objective", classes=True),
    "train dpsgd classes": train("dpsgd", classes=True),
    "select": lambda cell, ledger: confide.select(table(cell, own=True), size=2, epsilon=1, ledger=ledger),
    "select classes": lambda cell, ledger: confide.select(
        table(cell, classes=True), size=2, epsilon=1, loss="logistic", ledger=ledger
    ),
    "certify erm": certify(alpha=0.1),
    "certify softmax": certify(alpha=0.1, model="softmax"),
    "certify votes": certify(certificate="votes", neighbours=11),
    "certify interval": certify(certificate="interval"),
    "certify ball": certify(certificate="ball"),
    "certify members": certify(certificate="erm", members=2, ridge=5.0, n_jobs=1),
    **{f"rows {name}": rows_certified(name) for name in ("erm", "votes", "interval", "ball")},
    "tune": tuned,
    **{
        f"privatizer {method}": lambda cell, ledger, method=method: LabelPrivatizer(
            epsilon=1, method=method, target_bounds=(-3, 3), ledger=ledger
        ).fit_transform(numbers(cell))
        for method in ("rr_on_bins", "laplace")
    },
    "label regressor": lambda cell, ledger: PrivateLabelRegressor(
        epsilon=1, target_bounds=(-3, 3), ledger=ledger
    ).fit(X, numbers(cell)),
    "bags": lambda cell, ledger: WeightedLLPRegressor(
        epsilon=1, delta=1e-6, target_bounds=(-3, 3), ledger=ledger
    ).fit(X, numbers(cell)),
    "regressor": lambda cell, ledger: PrivateRegressor(
        epsilon=1, delta=1e-6, target_bounds=(-3, 3), ledger=ledger
    ).fit(X, numbers(cell)),
    "classifier": lambda cell, ledger: PrivateClassifier(
        epsilon=1, delta=1e-6, classes=["no", "yes"], adjacency="replace_one", feature_bounds=(-1, 1),
        ledger=ledger,
    ).fit(features(cell), words(cell)),
    "selector": lambda cell, ledger: SubsetSelector(
        2, epsilon=1, feature_bounds=(-1, 1), target_bounds=(-3, 3), ledger=ledger
    ).fit(features(cell), numbers(cell)),
    "sparse regressor": lambda cell, ledger: confide.SparseRegressor(
        2, **SPARSE, target_bounds=(-3, 3), ledger=ledger
    ).fit(features(cell), numbers(cell)),
    "sparse classifier": lambda cell, ledger: confide.SparseClassifier(
        2, **SPARSE, classes=["no", "yes"], ledger=ledger
    ).fit(features(cell), words(cell)),
}  # fmt: skip


def shown(run: Callable[[float, Any], Any], cell: float, ledger: Any) -> tuple[Any, ...]:
    """Return what a caller sees beside the result: exception, warnings of arithmetic, charge."""
    before, raised = ledger.total().epsilon, None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            run(cell, ledger)
        except Exception as error:
            raised = repr(error)
    noise = [repr(each.message) for each in told if issubclass(each.category, RuntimeWarning)]
    return raised, noise, ledger.total().epsilon - before


@pytest.mark.parametrize("door", DOORS)
def test_no_setting_makes_a_cell_decide(door: str, tmp_path: Any) -> None:
    relation = "replace_label" if door in OF_LABELS else "replace_one"
    relation = "replace_private_part" if door == "train semi_sensitive" else relation
    ledger = confide.Ledger.open(
        f"sqlite:///{tmp_path / 'book.db'}", dataset="t", epsilon=1000, delta=1e-2, adjacency=relation
    )
    for setting in ("raise", "warn"):
        with np.errstate(all=setting):  # pyright: ignore[reportArgumentType]
            want, *rest = [shown(DOORS[door], cell, ledger) for cell in CELLS]
        assert want[0] is None
        assert want[2] > 0
        for cell, got in zip(CELLS[1:], rest, strict=True):
            assert got == want, (setting, cell)


STEPS = {"learning_rate": 1.0, "clip": 0.1}
OBJECTS: dict[str, Callable[[], Any]] = {
    "erm": lambda: StronglyConvexERM(10.0),
    "softmax": lambda: StronglyConvexERM(10.0, loss="softmax"),
    "votes": lambda: VoteGap(5, 2, (-1, 1)),
    "interval": lambda: IntervalTraining((3, 1), STEPS, 9, init=np.zeros(4)),
    "ball": lambda: BallTraining(3, {**STEPS, "clip_by": "norm"}, 2.0),
    "hybrid": lambda: HybridTraining((3, 2, 1), {**STEPS, "clip_by": "norm"}, 3, init=np.full(11, 0.1)),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_certificates_that_are_objects_ignore_settings(name: str) -> None:
    for cell in CELLS:
        with np.errstate(all="raise"):
            OBJECTS[name]().fit(np.clip(features(cell), -1e308, 1e308), (Y > 0).astype(int)).stability(X[:2])
