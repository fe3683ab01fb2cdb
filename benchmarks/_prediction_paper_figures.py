"""Figures of prediction_paper.py, from its CSV alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from _prediction_paper_cells import ANSWERS, EPOCH_GRID, MEMBERS, QUERIES, RELEASES, RIDGES, STEPS, TOTALS
from _prediction_paper_table import CERTIFICATES, RELEASE_NAMES, Table

#: Okabe and Ito's colours; a marker each, so that no curve is told by colour alone.
RELEASE = {
    "response": ("#0072B2", "o"),
    "sparse_vector": ("#009E73", "D"),
    "ptr": ("#E69F00", "s"),
    "cauchy": ("#D55E00", "^"),
    "laplace": ("#CC79A7", "v"),
    "global": ("#7F7F7F", "x"),
}
CERTIFICATE = {
    "boxes": ("#D55E00", "^"),
    "boxes random start": ("#E69F00", "v"),
    "boxes mlp": ("#CC79A7", "P"),
    "ball": ("#009E73", "s"),
    "erm": ("#0072B2", "o"),
    "votes": ("#000000", "D"),
    "teachers": ("#56B4E9", "*"),
}
TRAINED = {"dpsgd": ("#000000", "--", "DP-SGD"), "objective": ("#000000", "-.", "objective perturbation")}
GRID = {"color": "#dddddd", "linewidth": 0.6}


def draw_all(path: Path, folder: Path) -> None:
    """Draw every figure that the CSV has rows for."""
    table = Table(path)
    by_epsilon(table, folder)
    by_certificate(table, folder)
    for total in TOTALS:
        by_queries(table, folder, total)
    same_distances(table, folder)
    ensembles(table, folder)
    distances(table, folder)
    steps(table, folder)
    epochs(table, folder)


def panels(sets: Sequence[str], columns: int = 5, height: float = 2.6, rows: int = 1, **options):
    """Return a figure with a panel for each set, and its used axes."""
    lines = -(-len(sets) // columns) * rows
    figure, axes = plt.subplots(
        lines, min(columns, len(sets)), figsize=(14, height * lines + 1.5), squeeze=False,
        layout="constrained", **options,
    )  # fmt: skip
    used = np.ravel(axes)[: len(sets) * rows]
    for axis in np.ravel(axes)[len(used) :]:
        axis.set_visible(False)
    for axis, name in zip(used, sets):
        axis.set_title(name, fontsize=10)
    for axis in used:
        axis.grid(axis="y", **GRID)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, used, axes


def curve(axis, xs, rows, colour: str, marker: str, **style) -> bool:
    """Draw accuracies with their standard errors; False where there are none."""
    values = np.array([row.accuracy for row in rows])
    if not np.isfinite(values).any():
        return False
    bars = np.nan_to_num([row.error for row in rows])
    look = {"markersize": 4.5, "linewidth": 1.4, "elinewidth": 0.8, **style}
    axis.errorbar(xs, values, bars, color=colour, marker=marker, **look)
    return True


def floor(axis, table: Table, data: str) -> None:
    """Draw what no privacy reaches, and the class with the most rows."""
    for method, style in (("logistic", "-"), ("majority", ":")):
        value = table.trained(data, method).accuracy
        if math.isfinite(value):
            axis.axhline(value, color="#555555", linewidth=1, linestyle=style)


FLOOR = (
    Line2D([], [], color="#555555", label="logistic regression, not private"),
    Line2D([], [], color="#555555", linestyle=":", label="the larger class"),
)


def finish(
    figure, axes, folder: Path, name: str, title: str, x: str, handles, y: str = "expected accuracy"
) -> None:
    """Label, put the legend below the panels, save."""
    for line in axes:
        line[0].set_ylabel(y, fontsize=9)
    for column in range(axes.shape[1]):
        seen = [line[column] for line in axes if line[column].get_visible()]
        if seen:
            seen[-1].set_xlabel(x, fontsize=9)
            seen[-1].tick_params(labelbottom=True)
    for axis in axes.flat:
        low, high = axis.get_ylim()
        if high - low < 0.05 and axis.get_yticks().size:  # a panel of equal numbers shows no differences
            axis.set_ylim((low + high) / 2 - 0.025, (low + high) / 2 + 0.025)
    figure.suptitle(title, fontsize=10.5)
    figure.legend(handles=list(handles), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.savefig(folder / f"prediction_paper_{name}.png", dpi=130)
    plt.close(figure)
    print(f"prediction_paper_{name}.png", flush=True)


def releases_drawn(names) -> list[Line2D]:
    return [
        Line2D([], [], color=RELEASE[n][0], marker=RELEASE[n][1], label=RELEASE_NAMES[n])
        for n in RELEASES
        if n in names
    ]


def certificates_drawn(names) -> list[Line2D]:
    return [Line2D([], [], color=CERTIFICATE[n][0], marker=CERTIFICATE[n][1], label=CERTIFICATES[n])
            for n in CERTIFICATES if n in names]  # fmt: skip


def by_epsilon(table: Table, folder: Path) -> None:
    """Accuracy of one answer against its epsilon: a curve for each release of ERM."""
    sets = table.sets("answers")
    if not sets:
        return
    figure, used, axes = panels(sets, sharex=True)
    drawn = set()
    for axis, data in zip(used, sets):
        floor(axis, table, data)
        for release, look in RELEASE.items():
            rows = [table.get("answers", data, "erm", release, e) for e in ANSWERS]
            if curve(axis, ANSWERS, rows, *look):
                drawn.add(release)
        axis.set_xscale("log")
        axis.set_xticks(ANSWERS, [f"{e:g}" for e in ANSWERS])
        axis.minorticks_off()
    title = ("One answer: expected accuracy by its epsilon (up is better), strongly convex ERM, by release\n"
             "delta = 1e-5 for propose-test-release and Laplace, else 0; bars: one standard error over splits")  # fmt: skip
    finish(figure, axes, folder, "epsilon", title, "epsilon of an answer", [*releases_drawn(drawn), *FLOOR])


def by_certificate(table: Table, folder: Path) -> None:
    """Accuracy of the response against epsilon: a curve for each certificate."""
    sets = table.sets("answers")
    if not sets:
        return
    figure, used, axes = panels(sets, sharex=True)
    drawn = set()
    for axis, data in zip(used, sets):
        floor(axis, table, data)
        for certificate, look in CERTIFICATE.items():
            rows = [table.get("answers", data, certificate, "response", e) for e in ANSWERS]
            if curve(axis, ANSWERS, rows, *look):
                drawn.add(certificate)
        axis.set_xscale("log")
        axis.set_xticks(ANSWERS, [f"{e:g}" for e in ANSWERS])
        axis.minorticks_off()
    title = "One answer by the response: expected accuracy by its epsilon (up is better), by certificate, delta = 0"
    handles = [*certificates_drawn(drawn), *FLOOR]
    finish(figure, axes, folder, "certificates", title, "epsilon of an answer", handles)


def by_queries(table: Table, folder: Path, total: float) -> None:
    """Accuracy against the number of answers within one total."""
    sets = [
        name
        for name in table.sets("budget")
        if math.isfinite(table.get("budget", name, "erm", "response", total).accuracy)
    ]
    if not sets:
        return
    figure, used, axes = panels(sets, sharex=True)
    drawn, methods = set(), set()
    for axis, data in zip(used, sets):
        floor(axis, table, data)
        for method, (colour, dashes, _) in TRAINED.items():
            value = table.trained(data, method, total).accuracy
            if math.isfinite(value):
                axis.axhline(value, color=colour, linewidth=1.4, linestyle=dashes)
                methods.add(method)
        for release, look in RELEASE.items():
            rows = [table.get("budget", data, "erm", release, total, count) for count in QUERIES]
            if curve(axis, QUERIES, rows, *look):
                drawn.add(release)
        _queries_axis(axis)
    title = (f"Total ({total:g}, 1e-5): expected accuracy by the number of answers (up is better), strongly convex ERM, by release\n"
             "DP-SGD and objective perturbation train once with the same total and answer any number")  # fmt: skip
    more = [Line2D([], [], color=c, linestyle=d, label=t) for m, (c, d, t) in TRAINED.items() if m in methods]
    handles = [*releases_drawn(drawn), *more, *FLOOR]
    finish(figure, axes, folder, f"queries_{total:g}", title, "answers Q", handles)


def _queries_axis(axis) -> None:
    axis.set_xscale("log")
    axis.set_xticks(QUERIES, ["1", "10", "100", "1k", "10k", "100k"])
    axis.minorticks_off()


def same_distances(table: Table, folder: Path) -> None:
    """Blobs: releases on the same distances."""
    names = [
        n for n in ("boxes random start", "boxes", "boxes mlp") if n in table.certificates("budget", "blobs")
    ]
    if not names:
        return
    figure, used, axes = panels(names, columns=3, height=3.6, sharex=True, sharey=True)
    drawn = set()
    for axis, certificate in zip(used, names):
        axis.set_title(CERTIFICATES[certificate], fontsize=10)
        for release, look in RELEASE.items():
            rows = [table.get("budget", "blobs", certificate, release, 10.0, count) for count in QUERIES]
            if curve(axis, QUERIES, rows, *look):
                drawn.add(release)
        _queries_axis(axis)
    title = "Blobs, total (10, 1e-5): expected accuracy by the number of answers (up is better), releases on the same distances"
    finish(figure, axes, folder, "blobs", title, "answers Q", releases_drawn(drawn))


def ensembles(table: Table, folder: Path) -> None:
    """Accuracy against the number of members: a row of panels for each certificate."""
    sets = table.sets("ensembles")
    if not sets:
        return
    certificates = [
        c for c in ("boxes", "erm", "teachers") if any(c in table.certificates("ensembles", s) for s in sets)
    ]
    figure, axes = plt.subplots(
        len(certificates), len(sets), figsize=(14, 2.5 * len(certificates) + 1.5), squeeze=False, sharex=True,
        sharey="col", layout="constrained",
    )  # fmt: skip
    drawn = set()
    for line, certificate in zip(axes, certificates):
        for axis, data in zip(line, sets):
            for release, (colour, marker) in RELEASE.items():
                rows = [
                    table.get("ensembles", data, certificate, release, 10.0, 100, members=t) for t in MEMBERS
                ]
                if curve(axis, MEMBERS, rows, colour, marker):
                    drawn.add(release)
            axis.set_title(f"{data}: {certificate}", fontsize=9)
            axis.set_xscale("log")
            axis.set_xticks(MEMBERS, [str(t) for t in MEMBERS])
            axis.minorticks_off()
            axis.grid(axis="y", **GRID)
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(labelsize=8)
            if not axis.has_data():
                axis.set_visible(False)
    title = "Ensembles, total (10, 1e-5), Q = 100 answers: expected accuracy by the number of members (up is better)"
    finish(figure, axes, folder, "ensembles", title, "members T", releases_drawn(drawn))


def distances(table: Table, folder: Path) -> None:
    """Distribution of k at the settings for Q = 100 answers within (10, 1e-5)."""
    sets = table.sets("budget")
    if not sets:
        return
    figure, used, axes = panels(sets, height=2.4, sharex=True)
    drawn = set()
    for axis, data in zip(used, sets):
        names = table.certificates("budget", data)
        for place, certificate in enumerate(names):
            row = table.get("budget", data, certificate, "response", 10.0, 100)
            if not row.quantiles:
                continue
            colour, marker = CERTIFICATE[certificate]
            low, _, first, quarter, middle, third, last, _, high = row.quantiles
            axis.plot([low, high], [place] * 2, color=colour, linewidth=0.8)
            axis.plot([first, last], [place] * 2, color=colour, linewidth=2.5)
            axis.plot([quarter, third], [place] * 2, color=colour, linewidth=6, solid_capstyle="butt")
            axis.plot(middle, place, marker=marker, color=colour, markeredgecolor="white", markersize=9)
            drawn.add(certificate)
        axis.set_yticks([])
        axis.set_ylim(-0.6, len(names) - 0.4)
        axis.invert_yaxis()
        axis.axvline(19, color="#555555", linewidth=0.9, linestyle=":")
        axis.set_xscale("symlog", linthresh=1, linscale=0.5)
        axis.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
        axis.minorticks_off()
        axis.grid(axis="x", **GRID)
    title = ("Stability distance k of held-out rows (right is better), settings for 100 answers within (10, 1e-5)\n"
             "mark: median; bars: middle half, middle 80 %, middle 98 %; dotted: k = 19, from which the response errs below 1 %")  # fmt: skip
    finish(figure, axes, folder, "distances", title, "distance k", certificates_drawn(drawn), y="")


def steps(table: Table, folder: Path) -> None:
    """Accuracy without noise against the median distance, as steps are added or Lambda falls."""
    sets = [name for name in table.sets("steps") if name != "blobs"]  # always right, whatever the steps
    if not sets:
        return
    figure, used, axes = panels(sets, columns=3, height=3.6)
    looks = {"boxes {}": "boxes", "ball {}": "ball"}
    for axis, data in zip(used, sets):
        for pattern, name in looks.items():
            rows = [(n, table.get("steps", data, pattern.format(n), "response", 1.0)) for n in STEPS]
            _path(axis, [(f"{n}", row) for n, row in rows if row.quantiles], name)
        rows = [(L, table.get("steps", data, f"erm {L}", "response", 1.0)) for L in RIDGES]
        _path(axis, [(f"{L}", row) for L, row in rows if row.quantiles], "erm")
        value = table.trained(data, "logistic").accuracy
        if math.isfinite(value):
            axis.axhline(value, color="#555555", linewidth=1)
        axis.axhline(0.95, color="#555555", linewidth=0.8, linestyle="--")
        axis.margins(y=0.15)
        axis.set_xscale("symlog", linthresh=1, linscale=0.4)
        axis.set_xlim(-0.15, 3_000)
        axis.set_xticks([0, 1, 3, 10, 30, 100, 300, 1000], ["0", "1", "3", "10", "30", "100", "300", "1000"])
        axis.minorticks_off()
    handles = [
        *(Line2D([], [], color=CERTIFICATE[n][0], marker=CERTIFICATE[n][1], label=text)
          for n, text in (("boxes", "boxes: number of steps"), ("ball", "ball: number of steps"), ("erm", "ERM: Lambda"))),
        FLOOR[0], Line2D([], [], color="#555555", linestyle="--", linewidth=0.8, label="accuracy 0.95"),
    ]  # fmt: skip
    title = (
        "What steps cost: accuracy of the model without noise by its median distance (up and right is better)"
    )
    finish(figure, axes, folder, "steps", title, "median distance k", handles, y="accuracy without noise")


def _path(axis, rows, name: str) -> None:
    colour, marker = CERTIFICATE[name]
    axis.plot([row.median for _, row in rows], [row.nominal for _, row in rows], color=colour, marker=marker,
              markersize=5, linewidth=1.2)  # fmt: skip
    for i, (text, row) in enumerate(rows):
        if i in (0, len(rows) - 1):
            place = {"boxes": (0, -13), "ball": (0, 6), "erm": (-14, -23) if i else (0, 10)}[name]
            axis.annotate(text, (row.median, row.nominal), xytext=place, textcoords="offset points",
                          fontsize=8, color=colour, ha="center")  # fmt: skip


def epochs(table: Table, folder: Path) -> None:
    """Accuracy of the sparse vector against the number of paid epochs."""
    sets = table.sets("epochs")
    if not sets:
        return
    figure, used, axes = panels(sets, columns=6, height=3.0, sharex=True)
    styles = {10_000: "-", 100_000: "--"}
    totals = {1.0: ("#D55E00", "^"), 10.0: ("#0072B2", "o")}
    for axis, data in zip(used, sets):
        floor(axis, table, data)
        for total, (colour, marker) in totals.items():
            for count, dashes in styles.items():
                rows = [
                    table.get("epochs", data, "erm", "sparse_vector", total, count, epochs=n)
                    for n in EPOCH_GRID
                ]
                curve(axis, EPOCH_GRID, rows, colour, marker, linestyle=dashes)
        axis.set_xscale("log")
        axis.set_xticks(EPOCH_GRID[::2], [str(n) for n in EPOCH_GRID[::2]])
        axis.minorticks_off()
    handles = [
        Line2D([], [], color=c, marker=m, linestyle=d, label=f"total ({total:g}, 1e-5), Q = {count:,}")
        for total, (c, m) in totals.items() for count, d in styles.items()
    ]  # fmt: skip
    title = (
        "Sparse vector: expected accuracy by the number of paid epochs (up is better), strongly convex ERM"
    )
    finish(figure, axes, folder, "epochs", title, "epochs", [*handles, *FLOOR])
