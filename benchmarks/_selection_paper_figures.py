"""Figures and tables of selection_paper.py, from its CSV alone."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from _common import header

#: Okabe and Ito's colours; a marker each, so that no curve is told by colour alone.
STYLE = {
    "exponential": ("#D55E00", "o", "exponential"),
    "permute_and_flip": ("#0072B2", "s", "permute-and-flip"),
    "top_r": ("#009E73", "^", "top-R"),
    "mistakes": ("#CC79A7", "D", "mistakes (needs an assumption)"),
    "markov_chain": ("#56B4E9", "v", "MCMC (approximate)"),
    "markov_chain_published": ("#56B4E9", "v", "MCMC, published exponent (2 eps)"),
    "lasso_votes": ("#E69F00", "P", "Lasso votes"),
    "screening": ("#7F7F7F", "X", "marginal screening"),
    "best_subset": ("#000000", "*", "best subset (not private)"),
    "pipeline": ("#8C510A", "h", "SparseRegressor, delta = 0"),
    "pipeline_delta": ("#C69C6D", "H", "SparseRegressor, delta = 1e-6"),
}
SETTING = {"confide": "default radius and ridge", "paper": "the paper's: r = 1.1, lambda = 120"}
FREE = ("lasso_votes", "screening")
GRID = {"color": "#dddddd", "linewidth": 0.6}


class Rows:
    """Rows of the CSV; of equal keys the last one counts."""

    def __init__(self, rows, keys):
        last = {tuple(row[k] for k in keys): row for row in rows}
        self.rows = list(last.values())

    def where(self, **wanted):
        return [row for row in self.rows if all(row[k] == str(v) for k, v in wanted.items())]


def mean(rows, value) -> float:
    values = [float(row[value]) for row in rows if row["status"] == "done" and row[value]]
    return float(np.mean(values)) if values else math.nan


def curves(rows, x: str, value: str):
    """Return {(mechanism, setting): (xs, means)} with NaN where nothing finished."""
    grouped = defaultdict(lambda: defaultdict(list))
    for row in rows:
        grouped[row["mechanism"], row["setting"]][float(row[x])].append(row)
    order = list(STYLE)
    return {
        key: ([*sorted(found)], [mean(found[v], value) for v in sorted(found)])
        for key, found in sorted(grouped.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    }


def panel(axis, rows, x, value, label, *, log=True) -> set[tuple[str, str]]:
    """Draw the curves of one panel; crosses at its foot where nothing finished."""
    drawn = set()
    for place, ((mechanism, setting), (xs, values)) in enumerate(curves(rows, x, value).items()):
        colour, marker, _ = STYLE[mechanism]
        dashed = setting == "paper"
        axis.plot(xs, values, color=colour, marker=marker, linewidth=1.5, markersize=5.5,
                  linestyle=(0, (4, 2)) if dashed else "-",
                  markerfacecolor="white" if dashed else colour, markeredgecolor=colour)  # fmt: skip
        lost = [v for v, y in zip(xs, values) if math.isnan(y)]
        if lost:
            axis.plot(lost, [0.015 + 0.02 * (place % 5)] * len(lost), color=colour, marker="x", linestyle="",
                      markersize=4.5, transform=axis.get_xaxis_transform())  # fmt: skip
        drawn.add((mechanism, setting))
    if log:
        axis.set_xscale("log")
        ticks = sorted({float(row[x]) for row in rows if float(row[x]) > 0})
        axis.set_xticks(ticks, [short(v) for v in ticks])
        axis.minorticks_off()
    axis.set_xlabel(label)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="y", **GRID)
    axis.spines[["top", "right"]].set_visible(False)
    return drawn


def short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def legend(figure, drawn, crosses=False, columns=4, settings=None) -> None:
    """One entry a mechanism and one a setting, below the panels."""
    settings = settings or SETTING
    names = [name for name in STYLE if any(mechanism == name for mechanism, _ in drawn)]
    handles = []
    for name in names:
        colour, marker, text = STYLE[name]
        hollow = name == "markov_chain_published"
        handles.append(Line2D([], [], color=colour, marker=marker, label=text, linewidth=1.5,
                              linestyle=(0, (4, 2)) if hollow else "-",
                              markerfacecolor="white" if hollow else colour))  # fmt: skip
    if {setting for name, setting in drawn if name not in FREE} >= set(SETTING):
        handles.append(Line2D([], [], color="#444444", marker="o", label=settings["confide"]))
        handles.append(Line2D([], [], color="#444444", marker="o", markerfacecolor="white",
                              linestyle=(0, (4, 2)), label=settings["paper"]))  # fmt: skip
    if crosses:
        handles.append(
            Line2D([], [], color="#444444", marker="x", linestyle="", label="not finished in time")
        )
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8.5)


def shares(axes, rows) -> None:
    """Give panels of probabilities their range, with a strip for crosses where there are any."""
    for axis in np.ravel(axes):
        axis.set_ylim(-0.13 if unfinished(rows) else -0.03, 1.03)
        axis.set_yticks(np.linspace(0, 1, 6))


def save(figure, folder: Path, name: str) -> None:
    figure.savefig(folder / f"selection_paper_{name}.png", dpi=150)
    plt.close(figure)
    print(f"selection_paper_{name}.png", flush=True)


def unfinished(rows) -> bool:
    return any(row["status"] != "done" for row in rows)


def against_rows(data: Rows, folder: Path, value: str, name: str, text: str) -> None:
    """Draw one figure for each p: a panel for each epsilon."""
    for p in sorted({int(row["p"]) for row in data.where(study="recovery")}):
        figure, axes = plt.subplots(1, 3, figsize=(11.5, 4.9), sharey=True, layout="constrained")
        drawn, everything = set(), data.where(study="recovery", p=p)
        for axis, epsilon in zip(axes, ("1", "5", "10"), strict=True):
            rows = [row for row in everything if row["epsilon"] in (epsilon, "inf")]
            if rows:
                drawn |= panel(axis, rows, "n", value, "rows n")
            axis.set_title(f"epsilon = {epsilon}", fontsize=10)
        axes[0].set_ylabel(text)
        shares(axes, everything)
        figure.suptitle(f"5 of {p:,} columns, correlation 0.1, SNR 5, b = 0.5, replace_one (mean over tables)",
                        fontsize=10)  # fmt: skip
        legend(figure, drawn, unfinished(everything))
        save(figure, folder, f"{name}_{p}")


def prediction(data: Rows, folder: Path) -> None:
    rows = data.where(study="prediction")
    if not rows:
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5.2), layout="constrained")
    private = [row for row in rows if row["mechanism"].startswith("pipeline") and row["status"] == "done"]
    rest = [row for row in rows if not row["mechanism"].startswith("pipeline")]
    drawn = panel(left, rest, "n", "error", "rows n")
    left.set_title("columns selected at epsilon = 2, coefficients refitted without privacy", fontsize=10)
    both = [row for row in rest if (row["mechanism"], row["setting"]) in
            (("exponential", "confide"), ("best_subset", "confide"))]  # fmt: skip
    panel(right, both, "n", "error", "rows n")
    right.set_title("SparseRegressor: columns and coefficients at epsilon = 2 together", fontsize=10)
    if private:
        drawn |= panel(right, private, "n", "private_error", "rows n")
    left.set_ylabel("mean squared error on fresh rows")
    figure.suptitle("5 of 100 columns, b = 0.5, replace_one; mean over tables and draws", fontsize=10)
    legend(figure, drawn, unfinished(rest))
    save(figure, folder, "prediction")


def hinge(data: Rows, folder: Path) -> None:
    rows = data.where(study="hinge")
    if not rows:
        return
    figure, axes = plt.subplots(2, 3, figsize=(11.5, 7.6), sharey=True, sharex=True, layout="constrained")
    drawn = set()
    for line, (value, text) in zip(
        axes, (("recovery", "P(true support)"), ("f1", "F1 of the support")), strict=True
    ):
        for axis, epsilon in zip(line, ("1", "5", "10"), strict=True):
            here = [row for row in rows if row["epsilon"] == epsilon]
            if here:
                drawn |= panel(axis, here, "n", value, "rows n" if value == "f1" else "")
            axis.set_title(f"epsilon = {epsilon}", fontsize=10)
        line[0].set_ylabel(text)
    shares(axes, rows)
    figure.suptitle("Hinge loss, 3 of 50 columns, correlation 0.1, b = 0.5, replace_one (mean over tables)",
                    fontsize=10)  # fmt: skip
    legend(
        figure, drawn, unfinished(rows), settings={**SETTING, "paper": "the paper's: r = 1.1, lambda = 100"}
    )
    save(figure, folder, "hinge")


def ablation_top(data: Rows, folder: Path) -> None:
    rows = data.where(study="top")
    if not rows:
        return
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
    drawn = set()
    for axis, epsilon in zip(axes, ("1", "5"), strict=True):
        drawn |= panel(
            axis, [row for row in rows if row["epsilon"] == epsilon], "top", "recovery", "R of top-R"
        )
        axis.axvline(477, color="#999999", linewidth=0.8, linestyle=":")
        axis.set_title(f"epsilon = {epsilon}", fontsize=10)
    axes[0].annotate("default R = 477", (477, 0.97), xytext=(-4, 0), textcoords="offset points", fontsize=8,
                     ha="right", color="#555555")  # fmt: skip
    axes[0].set_ylabel("P(true support)")
    shares(axes, rows)
    figure.suptitle(
        f"Size of the list: 5 of 100 columns, n = {int(rows[0]['n']):,}, replace_one", fontsize=10
    )
    legend(figure, drawn, unfinished(rows))
    save(figure, folder, "top")


def ablation(data: Rows, folder: Path, study: str, label: str, zero: float | None = None) -> None:
    """Draw recovery and F1 against ridge or bound."""
    rows = data.where(study=study)
    if not rows:
        return
    for row in rows:
        if zero and float(row[study]) == 0:
            row[study] = str(zero)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
    drawn = set()
    for axis, value, text in zip(
        axes, ("recovery", "f1"), ("P(true support)", "F1 of the support"), strict=True
    ):
        drawn |= panel(axis, rows, study, value, label)
        axis.set_title(text, fontsize=10)
        if zero:
            ticks = axis.get_xticks()
            axis.set_xticks(ticks, ["0" if v == zero else short(v) for v in ticks])
    axes[0].set_ylabel("mean over tables")
    shares(axes, rows)
    n = int(rows[0]["n"])
    figure.suptitle(f"5 of 100 columns, n = {n:,}, epsilon = 1, replace_one", fontsize=10)
    radius = {"confide": "default radius", "paper": "the paper's radius 1.1"}
    legend(figure, drawn, unfinished(rows), settings=radius if study == "ridge" else SETTING)
    save(figure, folder, study)


def correlation(data: Rows, folder: Path) -> None:
    """Draw recovery against the correlation of neighbouring columns."""
    rows = data.where(study="correlation")
    if not rows:
        return
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), sharey=True, layout="constrained")
    drawn = set()
    for axis, value, text in zip(
        axes, ("recovery", "f1"), ("P(true support)", "F1 of the support"), strict=True
    ):
        drawn |= panel(axis, rows, "rho", value, "correlation of neighbouring columns", log=False)
        axis.set_title(text, fontsize=10)
    axes[0].set_ylabel("mean over tables")
    shares(axes, rows)
    first = rows[0]
    figure.suptitle(f"5 of {first['p']} columns, n = {int(first['n']):,}, epsilon = {first['epsilon']}, b = 0.5, "
                    "replace_one", fontsize=10)  # fmt: skip
    legend(figure, drawn, unfinished(rows))
    save(figure, folder, "correlation")


def side_by_side(data: Rows, folder: Path) -> None:
    """Draw every method at one n: recovery and F1, a panel for each epsilon."""
    rows = data.where(study="recovery", p=100, n=2000) or data.where(study="recovery", p=100)
    if not rows:
        return
    n = rows[0]["n"]
    figure, axes = plt.subplots(1, 3, figsize=(11.5, 4.6), sharey=True, layout="constrained")
    names = [name for name in STYLE if any(row["mechanism"] == name for row in rows)]
    for axis, epsilon in zip(axes, ("1", "5", "10"), strict=True):
        for y, name in enumerate(reversed(names)):
            colour, _, _ = STYLE[name]
            found = {row["setting"] for row in rows if row["mechanism"] == name}
            for setting, shift in (("confide", 0.16), ("paper", -0.16)):
                shift *= len(found) - 1
                here = [row for row in rows if row["mechanism"] == name and row["setting"] == setting
                        and row["n"] == n and row["epsilon"] in (epsilon, "inf")]  # fmt: skip
                face = colour if setting == "confide" else "white"
                for value, marker in (("recovery", "o"), ("f1", "d")):
                    axis.plot(
                        mean(here, value), y + shift, marker, color=colour, markerfacecolor=face, markersize=7
                    )
        axis.set_xlim(-0.03, 1.05)
        axis.set_title(f"epsilon = {epsilon}", fontsize=10)
        axis.grid(axis="both", **GRID)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(names)), [STYLE[name][2] for name in reversed(names)])
    handles = [Line2D([], [], color="#444444", linestyle="", **kind) for kind in (
        {"marker": "o", "label": "P(true support)"}, {"marker": "d", "label": "F1 of the support"},
        {"marker": "s", "label": f"filled: {SETTING['confide']}"},
        {"marker": "s", "markerfacecolor": "white", "label": f"hollow: {SETTING['paper']}"})]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    figure.suptitle(
        f"All methods: 5 of 100 columns, n = {int(n):,}, b = 0.5, replace_one (mean over tables)", fontsize=10
    )
    save(figure, folder, "side_by_side")


def draw_all(path: Path, folder: Path) -> None:
    """Draw every figure whose rows are there, and write the tables."""
    from _selection_paper_cells import KEYS
    from selection_paper import read

    data = Rows(read(path), KEYS)
    against_rows(data, folder, "recovery", "recovery", "P(true support)")
    against_rows(data, folder, "f1", "f1", "F1 of the support")
    side_by_side(data, folder)
    prediction(data, folder)
    hinge(data, folder)
    correlation(data, folder)
    ablation_top(data, folder)
    ablation(data, folder, "ridge", "ridge lambda", zero=0.02)
    ablation(data, folder, "bound", "clip bound b of columns and label")
    text = tables(Rows(read(path), KEYS))
    (folder / "selection_paper.md").write_text(text, encoding="utf-8")
    print(f"{folder / 'selection_paper.md'}")


def tables(data: Rows) -> str:
    lines = ["# The paper's figures", "", header("confide", "scikit-learn"), "",
             "Tables of arXiv 2510.22062: rows N(0, 0.1^|i-j|), five coefficients 1/sqrt(5), SNR 5, b = 0.5, "
             "REPLACE_ONE. P(true support), mean over tables; 'exact law' needs no draws (`selection_paper.csv` says "
             "how each number was made). D: Confide's default radius and ridge; P: r = 1.1, lambda = 120.", ""]  # fmt: skip
    rows = data.where(study="recovery")
    for p in sorted({int(row["p"]) for row in rows}):
        lines += _table([row for row in rows if row["p"] == str(p)], p)
    lines += _seconds(rows)
    lost = [row for row in data.rows if row["status"] != "done"]
    lines += ["## What did not finish", ""]
    lines += _reasons(lost) if lost else ["Nothing: every cell has its number.", ""]
    return "\n".join(lines)


def _columns(rows):
    found = {(row["mechanism"], row["setting"]) for row in rows}
    order = list(STYLE)
    return sorted(found, key=lambda key: (order.index(key[0]), key[1]))


def _table(rows, p):
    columns = _columns(rows)
    alone = [*FREE, "best_subset"]
    names = [f"{m} {'' if m in alone else 'D' if s == 'confide' else 'P'}".strip() for m, s in columns]
    lines = [f"## p = {p:,}", "", f"| epsilon | n | {' | '.join(names)} |", "|" + "---|" * (2 + len(names))]
    for epsilon in ("1", "5", "10"):
        for n in sorted({int(row["n"]) for row in rows}):
            cells = []
            for mechanism, setting in columns:
                here = [row for row in rows if (row["mechanism"], row["setting"], row["n"]) == (mechanism, setting, str(n))
                        and row["epsilon"] in (epsilon, "inf")]  # fmt: skip
                value = mean(here, "recovery")
                cells.append("-" if math.isnan(value) else f"{value:.3f}")
            lines.append(f"| {epsilon} | {n:,} | {' | '.join(cells)} |")
    return [*lines, ""]


def _seconds(rows):
    lines = [
        "## CPU seconds of one cell",
        "",
        "Median (largest) of those that finished, table and all draws included.",
        "",
    ]
    sizes = sorted({int(row["p"]) for row in rows})
    lines += [f"| method | {' | '.join(f'p = {p:,}' for p in sizes)} |", "|" + "---|" * (1 + len(sizes))]
    for mechanism, setting in _columns(rows):
        cells = []
        for p in sizes:
            times = [float(row["seconds"]) for row in rows if row["status"] == "done" and row["p"] == str(p)
                     and (row["mechanism"], row["setting"]) == (mechanism, setting)]  # fmt: skip
            cells.append(f"{np.median(times):.2g} ({max(times):.2g})" if times else "-")
        lines.append(f"| {mechanism}, {setting} | {' | '.join(cells)} |")
    return [*lines, ""]


def _reasons(lost):
    grouped = defaultdict(set)
    for row in lost:
        about = f"{row['study']}: {row['mechanism']}, {row['setting']}, p = {int(row['p']):,}"
        about += f", R = {row['top']}" if row["top"] else ""
        about += f", lambda = {row['ridge']}" if row["ridge"] else ""
        about += f", b = {row['bound']}" if row["study"] == "bound" else ""
        text = row["status"] + (f" ({row['how']})" if row["how"] else "")
        grouped[about, text].add(int(row["n"]))
    lines = ["| what | n | reason |", "|---|---|---|"]
    for (about, text), found in sorted(grouped.items()):
        lines.append(f"| {about} | {', '.join(f'{n:,}' for n in sorted(found))} | {text} |")
    return [*lines, ""]
