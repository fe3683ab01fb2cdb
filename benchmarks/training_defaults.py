"""One public default for all tables: learning rates of `dpsgd` and the hybrid, weights of Weighted-LLP.

    python benchmarks/training_defaults.py [--quick]

Noise seeds and splits are others than those of training_paper.py. Errors are shares of the variance of the
test labels. A rate is in units of 1 / sqrt(steps); the defaults are 0.3 (`dpsgd`), 0.1 (hybrid) and "sign".
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from _encoding import Unavailable
from confide.training import WeightedLLPRegressor, fit_hybrid
from confide.training.sgd import SGDRequest, fit
from training_data import Dataset, load

DELTA = 1e-6
EPSILONS = (0.25, 1.0, 4.0)
SETS = (
    "diabetes", "wage", "loans", "bikeshare", "synthetic-top", "synthetic-bottom", "synthetic-all", "flights",
    "randhie", "diamonds", "cps1988", "california", "cpssw8",
)  # fmt: skip
SEEDS = (101, 102)
ROWS = 25_000
RATES = (1.0, 0.3, 0.1)


def parts(name: str, seeds: tuple[int, ...]) -> Iterator[tuple[int, Dataset, Dataset]]:
    data = load(name)
    if len(data.y) > ROWS:
        rows = np.random.default_rng([77]).permutation(len(data.y))[:ROWS]
        data = replace(data, X=data.X[rows], y=data.y[rows])
    for seed in seeds:
        yield seed, *data.split(seed=seed)


def request(a: Dataset, epsilon: float, seed: int, **options: Any) -> SGDRequest:
    return SGDRequest(epsilon, DELTA, target_bounds=a.bounds, random_state=seed, **options)


def gradient(conditioning: str, rate: float) -> Callable[..., Any]:
    def predict(a: Dataset, X: Any, epsilon: float, seed: int) -> Any:
        asked = request(a, epsilon, seed, conditioning=conditioning, learning_rate=rate / math.sqrt(100))
        return fit(a.X, None, a.y, asked).model.predict(X)

    return predict


def hybrid(rate: float) -> Callable[..., Any]:
    def predict(a: Dataset, X: Any, epsilon: float, seed: int) -> Any:
        asked = request(a, epsilon, seed, learning_rate=rate / math.sqrt(100))
        return fit_hybrid(a.X, None, a.y, asked).model.predict(X)

    return predict


def bags(weights: str) -> Callable[..., Any]:
    def predict(a: Dataset, X: Any, epsilon: float, seed: int) -> Any:
        model = WeightedLLPRegressor(
            epsilon, DELTA, target_bounds=a.bounds, weights=weights, random_state=seed, bag_seed=seed
        )
        return model.fit(a.X, a.y).predict(X)

    return predict


WAYS: dict[str, dict[str, Callable[..., Any]]] = {
    "dpsgd, spectral (Cond-DP)": {f"{rate:g}": gradient("spectral", rate) for rate in RATES},
    "dpsgd, identity (DP-SGD)": {f"{rate:g}": gradient("identity", rate) for rate in RATES},
    "hybrid": {f"{rate:g}": hybrid(rate) for rate in RATES},
    "Weighted-LLP, bags of 8": {weights: bags(weights) for weights in ("gaussian", "sign")},
}


def main() -> None:
    warnings.simplefilter("ignore")  # labels here are public, and delta is as the study says
    quick = "--quick" in sys.argv
    names, seeds = (SETS[:2], SEEDS[:1]) if quick else (SETS, SEEDS)
    start, lines = time.process_time(), ["# Public defaults of the gradient engines and of Weighted-LLP", ""]
    found: dict[tuple[str, str, str, float], float] = {}
    for name in names:
        try:
            cut = list(parts(name, seeds))
        except Unavailable as reason:
            print(f"{name}: {reason}")
            continue
        for title, ways in WAYS.items():
            for way, predict in ways.items():
                for epsilon in EPSILONS:
                    shares = [
                        float(np.mean((predict(a, b.X, epsilon, seed) - b.y) ** 2) / np.mean((b.y - a.y.mean()) ** 2))
                        for seed, a, b in cut
                    ]  # fmt: skip
                    found[title, way, name, epsilon] = float(np.mean(shares))
    for title, ways in WAYS.items():
        heads = [f"{way}, eps {epsilon:g}" for epsilon in EPSILONS for way in ways]
        lines += [f"## {title}", "", f"| set | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for name in dict.fromkeys(key[2] for key in found):
            cells = [f"{found[title, way, name, epsilon]:.3f}" for epsilon in EPSILONS for way in ways]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        first = next(iter(ways))
        for way in list(ways)[1:]:
            ratios = [
                value / found[title, first, key[2], key[3]]
                for key, value in found.items()
                if key[:2] == (title, way)
            ]
            lines.append(
                f"\n{way} over {first}: geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, least "
                f"{min(ratios):.2f}, most {max(ratios):.2f}, over {len(ratios)} cells."
            )
        lines.append("")
    lines.append(
        f"{len(seeds)} seeds, delta 1e-6, 100 full-batch steps; {time.process_time() - start:.0f} s of CPU."
    )
    text = "\n".join(lines) + "\n"
    print(text)
    if not quick:
        (Path(__file__).parent / "results" / "training_defaults.md").write_text(text)


if __name__ == "__main__":
    main()
