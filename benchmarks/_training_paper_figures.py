"""Figures of training_paper.py, from its CSV alone. Untuned and tuned methods never share a panel unsaid."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from _training_paper_table import Table, best

#: Okabe and Ito's colours; a marker each, so that no curve is told by colour alone.
STYLE = {
    "rounds": ("#000000", "o", "rounds"),
    "closed_form": ("#7F7F7F", "s", "closed form"),
    "cond_dp": ("#0072B2", "^", "Cond-DP"),
    "dp_sgd": ("#D55E00", "v", "DP-SGD"),
    "hybrid": ("#56B4E9", "P", "RR warm start, then Cond-DP"),
    "rr_on_bins": ("#C69C6D", "<", "RR-on-Bins"),
    "rr_debiased": ("#8C510A", ">", "RR-on-Bins, de-biased"),
    "rounding": ("#CC79A7", "D", "randomised rounding"),
    "gaussian_labels": ("#E69F00", "X", "Gaussian labels"),
    "weighted_llp": ("#009E73", "*", "Weighted-LLP"),
    "adassp": ("#999933", "h", "AdaSSP (replace one)"),
    "boosted_adassp": ("#AA4499", "H", "boosted AdaSSP (replace one)"),
    "switch": ("#009E73", "D", "switch to identity"),
    "anneal": ("#CC79A7", "s", "anneal to identity"),
    "power": ("#E69F00", "P", "power 1/2, constant"),
}
PARENTS = ("cond_dp", "dp_sgd")
GRID = {"color": "#dddddd", "linewidth": 0.6}


def draw_all(path: Path, folder: Path) -> None:
    """Draw every figure that the CSV has rows for."""
    table = Table(path)
    methods = [name for name in STYLE if name not in ("switch", "anneal", "power")]
    untuned = [(name, "untuned") for name in methods]
    parents = [("rounds", "untuned"), *((name, "tuned") for name in (*PARENTS, "weighted_llp"))]
    errors(table, folder, untuned, "untuned", "Without tuning: every method with its defaults")
    text = "Parents tuned on the test rows, which nobody can have at this epsilon; rounds without any tuning"
    errors(table, folder, parents, "tuned", text)
    ratios(table, folder)
    lemma(table, folder)
    networks(table, folder)


def place(epsilon: float, largest: float) -> float:
    """Return the x coordinate of an epsilon: infinity stands two doublings to the right."""
    return 4 * largest if math.isinf(epsilon) else epsilon


def errors(table: Table, folder: Path, curves, name: str, title: str) -> None:
    """Draw error over that of the mean against epsilon: a panel for each set."""
    sets = table.names("linear", 1)
    if not sets:
        return
    epsilons = table.names("linear", 4)
    largest = max((e for e in epsilons if not math.isinf(e)), default=1.0)
    xs = [place(e, largest) for e in epsilons]
    lines = -(-len(sets) // 5)
    figure, axes = plt.subplots(lines, min(5, len(sets)), figsize=(14, 2.75 * lines + 1.5), squeeze=False,
                                sharex=True, layout="constrained")  # fmt: skip
    drawn = set()
    for axis, data in zip(np.ravel(axes), sets):
        unit = table.mean("linear", data, "mean", "untuned", math.inf)
        for method, parameters in curves:
            results = [table.get("linear", data, method, parameters, e) for e in epsilons]
            means = np.array([r.mean for r in results]) / unit
            if not np.isfinite(means).any():
                continue
            bars = np.nan_to_num(np.array([r.deviation for r in results]) / unit)
            colour, marker, _ = STYLE[method]
            dashed = parameters == "tuned"
            axis.errorbar(xs, means, bars, color=colour, marker=marker, markersize=5, linewidth=1.4, capsize=0,
                          elinewidth=0.8, linestyle=(0, (4, 2)) if dashed else "-",
                          markerfacecolor="white" if dashed else colour)  # fmt: skip
            drawn.add((method, parameters))
        floor = table.mean("linear", data, "least_squares", "untuned", math.inf) / unit
        axis.axhline(1.0, color="#555555", linewidth=1, linestyle=":")
        if floor == floor:
            axis.axhline(floor, color="#555555", linewidth=1)
            axis.set_ylim(_low(floor), 1 + 0.35 * (1 - _low(floor)))
        axis.set_xscale("log")
        ticks = [e for e in epsilons if math.isinf(e) or e in (0.25, 1, 4)]
        axis.set_xticks(
            [place(e, largest) for e in ticks], ["inf" if math.isinf(e) else f"{e:g}" for e in ticks]
        )
        axis.minorticks_off()
        axis.set_title(data, fontsize=9.5)
        axis.tick_params(labelsize=8)
        axis.grid(axis="y", **GRID)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in np.ravel(axes)[len(sets) :]:
        axis.set_visible(False)
    for line in axes:
        line[0].set_ylabel("test MSE / that of the mean", fontsize=8.5)
    for axis in axes[-1]:
        axis.set_xlabel("epsilon", fontsize=9)
    figure.suptitle(f"{title}\ndelta = 1e-6, replace_label; mean of the runs, bars one deviation; what leaves a "
                    "panel is worse than the mean", fontsize=10)  # fmt: skip
    more = [Line2D([], [], color="#555555", linestyle=":", label="the mean, not private"),
            Line2D([], [], color="#555555", label="least squares, not private")]  # fmt: skip
    legend(figure, drawn, more)
    save(figure, folder, name)


def _low(floor: float) -> float:
    return max(0.0, floor - 0.12 * (1 - floor))


def legend(figure, drawn, more=(), columns: int = 5) -> None:
    """One entry a method, below the panels."""
    handles = []
    for method, (colour, marker, text) in STYLE.items():
        for parameters in ("untuned", "tuned"):
            if (method, parameters) in drawn:
                dashed = parameters == "tuned"
                handles.append(Line2D([], [], color=colour, marker=marker, linestyle=(0, (4, 2)) if dashed else "-",
                                      markerfacecolor="white" if dashed else colour,
                                      label=f"{text}, tuned on test rows" if dashed else text))  # fmt: skip
    figure.legend(
        handles=[*handles, *more], loc="outside lower center", ncols=columns, frameon=False, fontsize=8.5
    )


def ratios(table: Table, folder: Path) -> None:
    """Draw rounds over the better tuned parent: a line for each set, a mark for each epsilon."""
    sets = table.names("linear", 1)
    epsilons = [e for e in table.names("linear", 4) if not math.isinf(e)]
    if not sets or not epsilons:
        return
    figure, axis = plt.subplots(figsize=(8.5, 0.34 * len(sets) + 1.9), layout="constrained")
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(epsilons)))
    for k, epsilon in enumerate(epsilons):
        values = [over_parents(table, data, epsilon) for data in sets]
        spot = np.arange(len(sets)) + 0.13 * (k - (len(epsilons) - 1) / 2)
        axis.scatter(
            values,
            spot,
            s=34,
            color=colours[k],
            marker="osD^v"[k % 5],
            label=f"epsilon = {epsilon:g}",
            zorder=3,
        )
    for value, text in ((1.0, "equal"), (1.05, "1.05"), (1.15, "1.15")):
        axis.axvline(value, color="#777777", linewidth=0.9, linestyle="-" if value == 1 else ":")
        axis.annotate(text, (value, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 2), fontsize=8,
                      textcoords="offset points", ha="center", color="#555555")  # fmt: skip
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    ticks = [t for t in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3) if low <= t <= high]
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    axis.set_yticks(range(len(sets)), sets, fontsize=8.5)
    axis.invert_yaxis()
    axis.grid(axis="y", **GRID)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlabel("test MSE of rounds (untuned) / of the better of Cond-DP and DP-SGD (both tuned on the test rows)",
                    fontsize=8.5)  # fmt: skip
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=8.5)
    save(figure, folder, "ratio")


def over_parents(table: Table, data: str, epsilon: float) -> float:
    """Return the error of rounds over that of the better tuned parent."""
    parents = best(table.mean("linear", data, name, "tuned", epsilon) for name in PARENTS)
    return table.mean("linear", data, "rounds", "untuned", epsilon) / parents


def improvements(table: Table) -> list[tuple[float, float, dict[str, float]]]:
    """Return (angle, predicted, {measured}) of the turning label: ratios DP-SGD over Cond-DP at epsilon = 1.

    ``excess`` is of test errors less that of least squares, ``error`` of test errors themselves.
    """
    found = []
    for name in table.names("turning", 1):
        result = table.get("turning", name, "cond_dp", "tuned", 1.0)
        floor = table.mean("turning", name, "least_squares", "untuned", math.inf)
        measured = {}
        for kind in ("tuned", "untuned"):
            cond, plain = (table.mean("turning", name, m, kind, 1.0) for m in PARENTS)
            measured[f"error {kind}"] = plain / cond
            measured[f"excess {kind}"] = (plain - floor) / (cond - floor) if cond > floor else math.nan
        if result.row.get("predicted"):
            found.append((float(name), float(result.row["predicted"]), measured))
    return found


def lemma(table: Table, folder: Path) -> None:
    """Draw predicted and measured improvement as the label turns."""
    found = improvements(table)
    if not found:
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.9), layout="constrained")
    angles = [90 * angle / (math.pi / 2) for angle, _, _ in found]
    left.plot(angles, [p for _, p, _ in found], color="#000000", linewidth=1.6, label="Lemma 4.13, predicted")
    curves = {
        "excess tuned": ("#0072B2", "^", "excess error, both tuned"),
        "error tuned": ("#D55E00", "v", "test error, both tuned"),
        "excess untuned": ("#009E73", "s", "excess error, defaults"),
    }
    for key, (colour, marker, text) in curves.items():
        values = [measured[key] for _, _, measured in found]
        style = {"color": colour, "marker": marker, "markersize": 6, "linewidth": 1.3}
        left.plot(angles, values, **style, label=text)
        right.plot([p for _, p, _ in found], values, **style)
    left.set_xlabel("angle of the label from the top to the bottom direction (degrees)")
    left.set_ylabel("improvement: DP-SGD / Cond-DP")
    ends = [1.0, max(p for _, p, _ in found)]
    right.plot(ends, ends, color="#000000", linewidth=1.6)
    right.set_xlabel("predicted improvement")
    right.set_xscale("log")
    right.xaxis.set_major_formatter("{x:g}")
    for axis in (left, right):
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.axhline(1.0, color="#777777", linewidth=0.8, linestyle=":")
        axis.grid(axis="y", **GRID)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle("Label in one spectral direction that turns; singular values 1/j, n = 8,000, d = 50, epsilon = 1",
                    fontsize=10)  # fmt: skip
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    save(figure, folder, "lemma")


def networks(table: Table, folder: Path) -> None:
    """Draw the MLP's variants over the better of Cond-DP and DP-SGD: a panel for each epsilon and kind."""
    sets = table.names("mlp", 1)
    if not sets:
        return
    epsilons = [e for e in table.names("mlp", 4) if not math.isinf(e)]
    variants = ("dp_sgd", "cond_dp", "switch", "anneal", "power", "rounds")
    figure, axes = plt.subplots(2, len(epsilons), figsize=(6 * len(epsilons), 7.4), squeeze=False, sharey="row",
                                sharex=True, layout="constrained")  # fmt: skip
    for line, kind in zip(axes, ("untuned", "tuned"), strict=True):
        for axis, epsilon in zip(line, epsilons):
            for k, method in enumerate(variants):
                chosen = "untuned" if method == "rounds" else kind
                results = [table.get("mlp", data, method, chosen, epsilon) for data in sets]
                units = [table.mean("mlp", data, "mean", "untuned", math.inf) for data in sets]
                colour, marker, text = STYLE[method]
                label = "rounds, linear, untuned" if method == "rounds" else text
                axis.errorbar(
                    np.arange(len(sets)) + 0.12 * (k - 2.5), [r.mean / u for r, u in zip(results, units)],
                    [r.deviation / u for r, u in zip(results, units)], color=colour, marker=marker, markersize=6,
                    linestyle="", elinewidth=0.8, label=label if axis is axes[0][0] else None,
                )  # fmt: skip
            axis.axhline(1.0, color="#777777", linewidth=0.8, linestyle=":")
            axis.set_xticks(range(len(sets)), sets, fontsize=9)
            words = "tuned on the test rows" if kind == "tuned" else "defaults"
            axis.set_title(f"epsilon = {epsilon:g}, {words}", fontsize=10)
            axis.grid(axis="y", **GRID)
            axis.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel("test MSE / that of the mean")
    figure.suptitle("MLP: embedding 16, hidden 32 and 16, full batches", fontsize=10)
    figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=8.5)
    save(figure, folder, "mlp")


def save(figure, folder: Path, name: str) -> None:
    figure.savefig(folder / f"training_paper_{name}.png", dpi=130)
    plt.close(figure)
    print(f"training_paper_{name}.png", flush=True)
