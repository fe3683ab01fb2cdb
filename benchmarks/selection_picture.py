"""Pictures of selection on synthetic data: recovery against n and epsilon, bucket masses of one draw.

Run: python benchmarks/selection_picture.py
Writes benchmarks/results/selection_recovery.png and selection_buckets.png.

Recovery of `exponential` and `permute_and_flip` is measured by drawing; `top_r` and `mistakes` are drawn here
from their own laws over all supports (enumeration), so p is small enough to enumerate.
"""

from __future__ import annotations

import os
from itertools import combinations

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from _common import RESULTS
from confide.mechanisms.stream import seeded_stream
from confide.selection import SubsetProblem, law
from confide.selection.draws import make_envelope
from confide.selection.exponent import exponent

P, SIZE, RHO, SNR, BOUND = 30, 3, 0.1, 5.0, 0.5
TRUE = (0, 10, 20)
SEEDS = 5
# Okabe and Ito's colours: told apart without colour vision, and by marker.
STYLE = {
    "permute_and_flip": ("#0072B2", "s", "permute-and-flip"),
    "exponential": ("#D55E00", "o", "exponential (default)"),
    "top_r": ("#009E73", "^", "top-R (R = 2 + (p - s) s)"),
    "mistakes": ("#CC79A7", "D", "mistakes (needs an assumption)"),
}


def problem(n: int, seed: int, p: int = P, size: int = SIZE, rho: float = RHO) -> SubsetProblem:
    """Return the paper's generator: equicorrelated columns, coefficients 1/sqrt(s), bounds 0.5."""
    rng = np.random.default_rng(seed)
    X = np.sqrt(1 - rho) * rng.standard_normal((n, p)) + np.sqrt(rho) * rng.standard_normal((n, 1))
    true = np.linspace(0, p, size, endpoint=False).astype(int)
    signal = X[:, true].sum(axis=1) / np.sqrt(size)
    y = signal + rng.normal(size=n) * np.sqrt(1 / SNR)
    X, y = np.clip(X, -BOUND, BOUND), np.clip(y, -BOUND, BOUND)
    return SubsetProblem(X, y, size, feature_bound=BOUND, target_bound=BOUND)


def all_scores(ask: SubsetProblem):
    supports = np.array(list(combinations(range(ask.p), ask.size)), dtype=np.int64)
    return supports, np.array(ask.centred_scores(supports))


def normalised(logs: np.ndarray) -> np.ndarray:
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def chances(ask: SubsetProblem, epsilon: float) -> dict[str, float]:
    """Return P(true support) of each mechanism."""
    supports, scores = all_scores(ask)
    eta = exponent(ask, "exponential", epsilon, "replace_one")
    true = int(np.flatnonzero((supports == np.array(TRUE)).all(axis=1))[0])
    count = 2 + (ask.p - ask.size) * ask.size
    capped = np.minimum(scores, np.partition(scores, count - 1)[count - 1])
    best = supports[np.argmin(scores)]
    wrong = ask.size - np.isin(supports, best).sum(axis=1)
    by_mistakes = np.array([scores[wrong == k].min() for k in range(ask.size + 1)])[wrong]
    return {
        "exponential": normalised(-eta * scores)[true],
        "permute_and_flip": law(ask, "permute_and_flip", epsilon, "replace_one")[TRUE],
        "top_r": normalised(-eta * capped)[true],
        "mistakes": normalised(-eta * by_mistakes)[true],
    }


def panel(axis, xs, rows, label: str) -> None:
    for name, (colour, marker, text) in STYLE.items():
        values = np.array([[row[name] for row in seeds] for seeds in rows])
        axis.plot(
            xs, values.mean(axis=1), color=colour, marker=marker, markersize=5, linewidth=1.6, label=text
        )
        axis.fill_between(xs, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.12, linewidth=0)
    axis.axhline(0.95, color="#777777", linewidth=0.8, linestyle=":")
    axis.set_xscale("log")
    axis.set_xticks(xs, [f"{x:g}" for x in xs])
    axis.minorticks_off()
    axis.set_xlabel(label)
    axis.set_ylim(-0.02, 1.02)
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def recovery() -> None:
    ns = (125, 250, 350, 500, 700, 1000)
    epsilons = (0.1, 0.2, 0.35, 0.5, 0.7, 1)
    by_n = [[chances(problem(n, seed), 1) for seed in range(SEEDS)] for n in ns]
    fixed = [problem(1000, seed) for seed in range(SEEDS)]
    by_epsilon = [[chances(ask, epsilon) for ask in fixed] for epsilon in epsilons]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    panel(left, ns, by_n, "rows n, at epsilon = 1")
    panel(right, epsilons, by_epsilon, "epsilon, at n = 1,000 rows")
    left.set_ylabel("P(true support is released)")
    left.legend(frameon=False, fontsize=9, loc="upper left")
    figure.suptitle(
        f"{SIZE} of {P} columns, squared loss, replace_one; synthetic data, {SEEDS} tables "
        "(line: mean, band: all)", fontsize=10,
    )  # fmt: skip
    figure.savefig(RESULTS / "selection_recovery.png", dpi=150)
    plt.close(figure)
    print(
        "epsilon = 1, by n:",
        {
            n: {k: round(float(np.mean([r[k] for r in rows])), 3) for k in STYLE}
            for n, rows in zip(ns, by_n, strict=True)
        },
    )
    print(
        "n = 1000, by epsilon:",
        {
            e: {k: round(float(np.mean([r[k] for r in rows])), 3) for k in STYLE}
            for e, rows in zip(epsilons, by_epsilon, strict=True)
        },
    )


def shares(envelope, order, stream, trials: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of proposals that fall into each bucket, and the share that is accepted there."""
    supports, log_bounds, *_ = envelope.propose(trials, stream)
    accepted = np.exp(envelope.log_acceptance(supports, log_bounds)[0])
    inside = np.zeros((trials, envelope.problem.p), dtype=bool)
    inside[np.arange(trials)[:, None], supports] = True
    proposed, kept = np.empty(len(order)), np.empty(len(order))
    for place, i in enumerate(order):
        bucket = envelope.buckets[i]
        here = inside[:, list(bucket.pinned)].all(axis=1) & ~inside[:, list(bucket.excluded)].any(axis=1)
        proposed[place], kept[place] = here.mean(), (here * accepted).mean()
    return proposed, kept


def buckets() -> None:
    """Show what one draw does: where proposals fall, and how many of them are accepted."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    size, p = 5, 200
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.85, size + 1))
    for axis, (rho, n) in zip(axes, ((0.1, 1000), (0.5, 3000)), strict=True):
        ask = problem(n, 0, p=p, size=size, rho=rho)
        envelope = make_envelope(ask, exponent(ask, "exponential", 1, "replace_one"))
        trials = seeded_stream(0)
        first = envelope.acceptance(1000, trials)
        envelope.refine(trials, acceptance=0.5, seconds=60)
        share = envelope.acceptance(1000, trials)
        order = np.argsort(-envelope.log_weights)[:40]
        proposed, kept = shares(envelope, order, trials)
        left = np.array([envelope.buckets[i].left for i in order])
        places = np.arange(len(order))
        axis.bar(places, proposed, color=colours[left], alpha=0.3, width=0.85)
        axis.bar(places, kept, color=colours[left], width=0.85)
        axis.set_xlim(-0.8, 39.8)
        axis.set_xlabel(
            f"buckets by weight ({min(40, len(envelope.buckets))} of {len(envelope.buckets):,} shown)"
        )
        axis.set_title(
            f"correlation {rho}, n = {n:,}: accepted {first:.2g} unsplit, {share:.2f} after", fontsize=10
        )
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_yscale("log")
        axis.set_ylim(1e-4, 1)
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        print(f"rho {rho}, n {n}: buckets {len(envelope.buckets)}, acceptance {first:.2e} -> {share:.3f}")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colours[k]) for k in range(size + 1)]
    names = [f"{k} columns still free" for k in range(size + 1)]
    axes[1].legend(handles, names, frameon=False, fontsize=9)
    axes[0].set_ylabel("share of proposals (solid: accepted)")
    figure.suptitle(
        f"Bucket masses of one draw: {size} of {p} columns, epsilon = 1; synthetic data", fontsize=10
    )
    figure.savefig(RESULTS / "selection_buckets.png", dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    RESULTS.mkdir(exist_ok=True)
    recovery()
    buckets()
