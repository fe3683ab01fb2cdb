"""The ridge of private answers by a public rule of rows and epsilon, beside fixed ones and the best in hindsight.

    python benchmarks/prediction_alpha.py [--quick]

`CertifiedClassifier` and `certify` without `alpha`: alpha = 150 / (n answer_epsilon)^1.5 within [1e-4, 3]. The
constants were chosen on the first five tables alone; the others were kept for a check. Expected share of right
answers by `response` at an epsilon an answer, REPLACE_ONE, held-out rows, features and norms of
`_prediction_paper_data.py`. Regret: what the best of 15 fixed alphas reaches on the same rows (in hindsight: a
part of it is luck) less what an alpha reaches. `left out` is the rule at the default answer_epsilon of 0.2,
whatever the epsilon is. Results: results/prediction_alpha.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from _common import header, write
from _prediction_paper_data import Table, load
from confide.prediction import StronglyConvexERM, release_of
from confide.prediction.named import usual_alpha

EPSILONS = (0.1, 0.3, 1.0)
HINT = 0.2
ALPHAS = tuple(float(f"{10.0 ** (place / 3):.3g}") for place in range(-12, 3))
#: Table, rows of the training part (None: all), runs.
CHOSEN_ON = (
    ("breast", None, 8),
    ("digits 3-8", None, 8),
    ("adult", 16_000, 1),
    ("adult", 2_400, 2),
    ("mnist 3-8", None, 3),
)
KEPT = (
    ("mnist 4-9", None, 2),
    ("mnist 0-1", None, 2),
    ("covid", 9_000, 1),
    ("covid", 1_500, 2),
    ("reviews", 2_000, 1),
)
RULES: dict[str, Callable[[int, float], float]] = {
    "rule": usual_alpha,
    "left out": lambda n, epsilon: usual_alpha(n, HINT),
    "alpha 0.03": lambda n, epsilon: 0.03,
    "alpha 0.3": lambda n, epsilon: 0.3,
    "alpha 1": lambda n, epsilon: 1.0,
}  # fmt: skip


def accuracies(train: Table, asked: Table, alpha: float) -> list[float]:
    """Return the expected share of right answers at each epsilon."""
    made = StronglyConvexERM(alpha * len(train.y), train.classes, (-1, 1), None, train.norm)
    labels, k = made.fit(train.X, train.y).stability(asked.X)
    out = []
    for epsilon in EPSILONS:
        p = release_of("response", epsilon, train.classes).probabilities(int(k.max()))
        out.append(float(np.where(labels == asked.y, p[k], p.wrong[k]).mean()))
    return out


def regrets(name: str, rows: int | None, runs: int) -> tuple[int, list[float], dict[str, list[float]]]:
    """Return n, the best accuracy at each epsilon, and the regret of each rule."""
    best, reached = [], {rule: [] for rule in RULES}
    n = 0
    for run in range(runs):
        train, asked = load(name).split(run)
        train = train._rows(slice(0, rows))
        n = len(train.y)
        rules = {rule: [of(n, epsilon) for epsilon in EPSILONS] for rule, of in RULES.items()}
        found = {
            a: accuracies(train, asked, a) for a in {*ALPHAS, *(a for row in rules.values() for a in row)}
        }
        best.append([[found[a][place] for a in ALPHAS] for place in range(len(EPSILONS))])
        for rule, row in rules.items():
            reached[rule].append([found[a][place] for place, a in enumerate(row)])
    top = np.mean(best, axis=0).max(axis=1)
    return n, top.tolist(), {rule: (top - np.mean(rows, axis=0)).tolist() for rule, rows in reached.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="two tables, one run, nothing written")
    quick = parser.parse_args().quick
    lines = [header("scikit-learn"), "", (__doc__ or "").split("\n\n", 2)[2], "| table | n | epsilon | best | " + " | ".join(RULES) + " |",
             "|---" * (4 + len(RULES)) + "|"]  # fmt: skip
    for title, cases in (("chosen on", CHOSEN_ON), ("kept", KEPT)):
        held: dict[str, list[float]] = {rule: [] for rule in RULES}
        for name, rows, runs in cases[:1] if quick else cases:
            n, best, told = regrets(name, rows, 1 if quick else runs)
            for place, epsilon in enumerate(EPSILONS):
                cells = [f"{told[rule][place]:.3f}" for rule in RULES]
                lines.append(f"| {name} | {n:,} | {epsilon:g} | {best[place]:.3f} | {' | '.join(cells)} |")
            for rule in RULES:
                held[rule] += told[rule]
        for word, of in (("worst", max), ("mean", np.mean)):
            cells = [f"{of(held[rule]):.3f}" for rule in RULES]
            lines.append(f"| **{title}: {word}** | | | | {' | '.join(cells)} |")
    text = "\n".join(lines) + "\n"
    if quick:
        print(text)
    else:
        write("prediction_alpha", text)


if __name__ == "__main__":
    main()
