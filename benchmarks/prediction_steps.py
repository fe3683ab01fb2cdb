"""Certified distances after several steps of gradient training: the ball and the hybrid against the paper's boxes.

    python benchmarks/prediction_steps.py [--runs 20] [--quick]

Breast cancer (scikit-learn), REPLACE_ONE, stratified splits with a quarter of the rows held out. Columns are
scaled by a declared mean and deviation (those of the whole set stand for published ones) and clipped at +-2
deviations. Logistic regression by gradient descent, full batch or three batches. A setting (row norm, clip,
rate, epochs, decay, batches) is chosen by 5-fold cross-validation inside the training rows: of those with a mean
accuracy of at least .96, the one with the largest median distance. Choosing so is not private (a public set or
`confide.tune` would do it); held-out rows play no part. The bar is .96, not the .95 asked for on held-out rows:
the best of many settings looks better than it is. Boxes run at the same setting, where the trained model
is the same, and with the paper's clip by value at settings of their own, chosen by the same rule.

Networks with 8 hidden units, few steps, at settings that are listed, not chosen: the hybrid domain and boxes with
rows clipped by norm; boxes with the paper's clip by value, other settings; and the ball behind a hidden layer of
50 units that a public seed draws (rows pass beside it too), many steps.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedKFold, train_test_split

from _common import header, write
from confide.prediction import BallTraining, IntervalTraining, release_of
from confide.prediction.intervals import HybridTraining

LEAST = 0.96
#: What boxes search: k = 8 is above the promised 5.
BOX_LEVELS = 8
BALL = [
    {"norm": norm, "clip": clip, "rate": rate, "epochs": epochs, "decay": decay, "batches": batches}
    for norm, clip, rate, epochs, decay, batches in itertools.product(
        (3.0, 5.0), (0.5, 1.0, 2.0), (0.1, 0.3), (10, 30, 100), (0.0, 0.03), (1, 3)
    )
]
#: The paper's optimiser: rows as they are, each coordinate of a gradient clipped.
BOXES = [
    {"clip": clip, "rate": rate, "epochs": epochs, "decay": decay, "batches": 1}
    for clip, rate, epochs, decay in itertools.product((0.1, 0.3), (0.3, 1.0, 3.0), (4, 8, 16), (0.0,))
]
#: Networks: epochs, rate, clip.
NORM_CLIPPED = ((2, 2.0, 1.0), (2, 8.0, 0.5), (3, 1.0, 1.0), (3, 2.0, 1.0), (3, 4.0, 0.5), (4, 1.0, 1.0))
VALUE_CLIPPED = ((2, 8.0, 0.03), (2, 8.0, 0.3), (3, 8.0, 0.03), (3, 4.0, 0.3), (4, 4.0, 0.1), (4, 4.0, 0.3))
DRAWN = ((30, 2.0, 0.5), (100, 0.5, 0.5), (100, 1.0, 0.5), (100, 1.0, 1.0))
UNITS, NETWORK_LEVELS = 50, 12
Floats = Any


def scaled() -> tuple[Floats, Floats]:
    X, y = load_breast_cancer(return_X_y=True)
    return np.clip((X - X.mean(axis=0)) / X.std(axis=0), -2, 2), y


def hyper(setting: dict[str, Any], clip_by: str) -> dict[str, Any]:
    return {"learning_rate": setting["rate"], "clip": setting["clip"], "epochs": setting["epochs"],
            "weight_decay": setting["decay"], "clip_by": clip_by}  # fmt: skip


def ball(setting: dict[str, Any], inputs: int) -> BallTraining:
    return BallTraining(inputs, hyper(setting, "norm"), setting["norm"], batches=setting["batches"])


def boxes(setting: dict[str, Any], inputs: int, clip_by: str) -> IntervalTraining:
    return IntervalTraining([inputs, 1], hyper(setting, clip_by), BOX_LEVELS, init=np.zeros(inputs + 1),
                            batches=setting["batches"])  # fmt: skip


class Found:
    """Accuracy of the trained model, and distances of some rows."""

    def __init__(self, model: Any, Q: Floats, y: Floats) -> None:
        self.labels, self.k = model.stability(Q)
        self.right = self.labels == y
        self.nominal = float(self.right.mean())
        self.median = float(np.median(self.k))

    def private(self, epsilon: float) -> float:
        """Expected accuracy of answers by `response`."""
        p = release_of("response", epsilon, 2, 0).probabilities(int(self.k.max(initial=0)))
        return float(np.where(self.right, p[self.k], p.wrong[self.k]).mean())


def choose(settings: list[dict[str, Any]], make: Any, X: Floats, y: Floats, run: int) -> dict[str, Any]:
    """Return the setting with the largest median distance of those accurate enough, by 5 folds."""
    folds = list(StratifiedKFold(5, shuffle=True, random_state=run).split(X, y))
    scores = []
    for setting in settings:
        found = [Found(make(setting).fit(X[a], y[a]), X[b], y[b]) for a, b in folds]
        accuracy = float(np.mean([one.nominal for one in found]))
        k = float(np.mean([np.median(one.k) for one in found]))
        share = float(np.mean([np.mean(one.k) for one in found]))
        scores.append((accuracy >= LEAST, k if accuracy >= LEAST else accuracy, share))
    return settings[max(range(len(settings)), key=lambda place: scores[place])]


def one_run(X: Floats, y: Floats, run: int) -> dict[str, Any]:
    A, B, a, b = train_test_split(X, y, test_size=0.25, random_state=run, stratify=y)
    inputs = X.shape[1]
    setting = choose(BALL, lambda s: ball(s, inputs), A, a, run)
    model = ball(setting, inputs)
    own = choose(BOXES, lambda s: boxes(s, inputs, "value"), A, a, run)
    return {
        "setting": setting,
        "own": own,
        "ball": Found(model.fit(A, a), B, b),
        # The same rows, so the same trained model.
        "same": Found(boxes(setting, inputs, "norm").fit(model.shortened(A), a), model.shortened(B), b),
        "boxes": Found(boxes(own, inputs, "value").fit(A, a), B, b),
    }


def named(setting: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in setting.items())


def tables(runs: list[dict[str, Any]]) -> list[str]:
    lines = ["| split | chosen setting | accuracy | ball: median k | share k >= 5 | boxes there: median k | "
             "boxes, own setting: accuracy | median k |", "|---" * 8 + "|"]  # fmt: skip
    for number, run in enumerate(runs):
        found, same, own = run["ball"], run["same"], run["boxes"]
        lines.append(
            f"| {number} | {named(run['setting'])} | {found.nominal:.3f} | {found.median:g} | "
            f"{np.mean(found.k >= 5):.2f} | {same.median:g} | {own.nominal:.3f} | {own.median:g} |"
        )
    lines += ["", "| | accuracy | median k: least, median, largest split | private accuracy, eps 0.3 | eps 1 |",
              "|---" * 5 + "|"]  # fmt: skip
    titles = {"ball": "ball", "same": "boxes, same setting", "boxes": "boxes, clip by value, own setting"}
    for key, title in titles.items():
        found = [run[key] for run in runs]
        k = [one.median for one in found]
        cells = [spread([one.nominal for one in found]), f"{min(k):g}, {np.median(k):g}, {max(k):g}"]
        cells += [spread([one.private(epsilon) for one in found]) for epsilon in (0.3, 1.0)]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def drawn(rows: Floats) -> Floats:
    """Rows beside a hidden layer that a public seed draws."""
    W = np.random.default_rng(0).standard_normal((rows.shape[1] + 1, UNITS)) / np.sqrt(rows.shape[1] + 1)
    hidden = np.maximum(np.column_stack([rows, np.ones(len(rows))]) @ W, 0)
    return np.hstack([rows / 3, 2 * hidden / np.sqrt(UNITS)])


def networks(X: Floats, y: Floats, count: int) -> list[str]:
    inputs = X.shape[1]
    layers = [inputs, 8, 1]

    def settings(epochs: int, rate: float, clip: float, clip_by: str) -> dict[str, Any]:
        return {"epochs": epochs, "learning_rate": rate, "clip": clip, "clip_by": clip_by}

    def line(title: str, setting: tuple[int, float, float], clip_by: str, *makes: Any) -> str:
        found: list[list[Found]] = [[] for _ in makes]
        for run in range(count):
            A, B, a, b = train_test_split(X, y, test_size=0.25, random_state=run, stratify=y)
            for make, place in zip(makes, found, strict=True):
                place.append(Found(make(settings(*setting, clip_by)).fit(A, a), B, b))
        cells = [title, "epochs {:g}, rate {:g}, clip {:g}".format(*setting)]
        cells.append(spread([one.nominal for one in found[0]]))
        cells += [f"{np.mean([one.k.mean() for one in place]):.2f}" for place in found]
        cells += ["-"] * (2 - len(found))
        return f"| {' | '.join(cells)} |"

    def mixed(values: dict[str, Any]) -> Any:
        return HybridTraining(layers, values, NETWORK_LEVELS)

    def plain(values: dict[str, Any]) -> Any:
        return IntervalTraining(layers, values, NETWORK_LEVELS)

    def behind(values: dict[str, Any]) -> Any:
        values = {**values, "weight_decay": 0.01}
        return BallTraining(inputs + UNITS, values, 1.5, features=drawn, k_max=NETWORK_LEVELS)

    lines = [
        f"| network | setting | accuracy | mean k (at most {NETWORK_LEVELS}) | boxes: mean k |",
        "|---" * 5 + "|",
    ]
    lines += [line("hybrid, clip by norm", one, "norm", mixed, plain) for one in NORM_CLIPPED]
    lines += [line("boxes, clip by value", one, "value", plain) for one in VALUE_CLIPPED]
    lines += [line("ball, drawn hidden layer", one, "norm", behind) for one in DRAWN]
    return lines


def spread(values: list[float]) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.4f} ± {error:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="two runs, nothing written")
    options = parser.parse_args()
    X, y = scaled()
    start = time.process_time()
    runs = [one_run(X, y, run) for run in range(2 if options.quick else options.runs)]
    text = "\n".join([
        header("scikit-learn"), "",
        f"Breast cancer, {len(runs)} splits. Settings are chosen on the training rows alone. "
        f"Boxes search k up to {BOX_LEVELS}, which bounds their medians and private accuracies here.", "", *tables(runs), "",
        "Networks (with rows clipped by norm the hybrid beats boxes; where the clip is free, boxes with a clip by value "
        "certify more, and the ball behind a drawn layer more still at the same accuracy):", "", *networks(X, y, len(runs)), "",
        f"{time.process_time() - start:.0f} s of CPU.", "",
    ])  # fmt: skip
    if options.quick:
        print(text)
    else:
        write("prediction_steps", text)


if __name__ == "__main__":
    main()
