"""Pictures of distances, accuracies and boxes, for PUBLIC or SYNTHETIC queries and models alone.

The distances, accuracies and boxes of a model of a private table are private: publish no picture of them. The
title of each picture says so. All functions return a matplotlib figure: ``figure.savefig("k.svg")``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from confide.errors import ParameterError
from confide.prediction.intervals.hyperparameters import Hyperparameters
from confide.prediction.intervals.network import parse_layers
from confide.prediction.intervals.training import Intervals, train_intervals
from confide.prediction.laws import LEVELS, whole
from confide.prediction.recommendation import Recommendation
from confide.prediction.releases import release_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe & Ito's colours, told apart by colour-blind readers; lines differ in their dashes and marks too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1.5, 2)), (0, (3, 1.5)), (0, (8, 3)), "-")
_MARKS = ("o", "s", "^", "D", "v", "P", "X")
_INK, _MUTED, _GRID = "#1a1f24", "#505963", "#d5dbe1"
_RELEASES = {
    "response": "response",
    "sparse_vector": "sparse vector",
    "ptr": "propose-test-release",
    "cauchy": "Cauchy",
    "laplace": "Laplace",
    "global": "global",
}
_PUBLIC = "public or synthetic rows"
#: Most boxes drawn; the rest lie between them.
_MOST_BOXES = 8
#: Release error that an epsilon's mark stands for.
_ERROR = 0.01


def distances_figure(
    k: ArrayLike | Mapping[str, ArrayLike] | Recommendation, *, epsilon: Any = None, classes: int = 2
) -> Figure:
    """Draw how many public or synthetic queries have at least each stability distance.

    Parameters
    ----------
    k : int array [q], mapping of name to such arrays, or Recommendation
        Distances **from a model of public or synthetic rows**. Of a recommendation: each certificate's best
        setting.
    epsilon : amount, optional
        Of one answer. The distance from which on `response` errs in fewer than 1 % of answers is marked; of a
        recommendation it is what its budget gives an answer.
    classes : int
        For that mark.

    Returns
    -------
    matplotlib.figure.Figure
    """
    if isinstance(k, Recommendation):
        classes = k.asked.classes
        response = [option for option in k.table if option.release == "response"]
        if epsilon is None and response:
            epsilon = response[0].price.epsilon
        held = _by_certificate(k)
    else:
        held = dict(k) if isinstance(k, Mapping) else {"": k}
    arrays = {name: _distances(values) for name, values in held.items()}
    if not arrays:
        raise ParameterError("There are no distances.", "Pass at least one array.")
    needed = None if epsilon is None else needed_distance(epsilon, classes)
    top = max(max(int(values.max()) for values in arrays.values()), 1)

    def paint(axes: Axes) -> None:
        for place, (name, values) in enumerate(arrays.items()):
            steps = np.arange(0, min(top, int(values.max())) + 2)
            share = 1.0 - np.searchsorted(np.sort(values), steps, side="left") / values.size
            axes.step(steps, share, where="post", **_style(place), label=name or None)
        if needed is not None and epsilon is not None and needed <= 1.5 * top:
            axes.axvline(needed, color=_MUTED, linewidth=1.3, linestyle=(0, (4, 3)))
            right = needed > 0.6 * max(top, needed)
            text = f"k = {needed}: response errs\nin 1 % at epsilon {float(epsilon):.3g}"
            _note(axes, needed, 0.97, text, "right" if right else "left")
            axes.set_xlim(0, max(top, needed) * 1.04)
        else:
            axes.set_xlim(0, top * 1.04)
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("stability distance k (changed rows)")
        axes.set_ylabel("share of queries with at least k")
        if len(arrays) > 1 or "" not in arrays:
            # Outside the axes, whose every corner a curve may cross.
            axes.figure.legend(loc="outside lower center", ncols=2, frameon=False, handlelength=3)

    return _draw(f"How stable answers are ({_PUBLIC})", paint)


def needed_distance(epsilon: Any, classes: int = 2) -> int | None:
    """Return the least k at which `response` errs in at most 1 % of answers; None where no k will do."""
    wrong = (classes - 1) * release_of("response", epsilon, classes).probabilities(LEVELS - 1).wrong
    below = np.flatnonzero(wrong <= _ERROR)
    return int(below[0]) if below.size else None


def accuracy_by_epsilon(
    advice: Recommendation, epsilons: Sequence[float] = (0.1, 0.3, 1, 3, 10, 30)
) -> Figure:
    """Draw expected accuracy against the total epsilon, for each release with its best setting at each.

    Parameters
    ----------
    advice : Recommendation
        From public or synthetic rows.
    epsilons : sequence of float
        Totals for its number of queries.
    """
    title = f"{advice.asked.queries:,} answers, delta {float(advice.asked.delta):g} in total ({_PUBLIC})"
    return _accuracies(
        advice, epsilons, lambda value: advice.at(epsilon=value), "epsilon of all answers", title
    )


def accuracy_by_queries(
    advice: Recommendation, queries: Sequence[int] = (1, 3, 10, 30, 100, 300, 1000, 3000)
) -> Figure:
    """Draw expected accuracy against the number of answers, for each release with its best setting at each.

    Parameters
    ----------
    advice : Recommendation
        From public or synthetic rows.
    queries : sequence of int
        Numbers that share its total budget.
    """
    asked = advice.asked
    title = f"({float(asked.epsilon):g}, {float(asked.delta):g})-DP in total ({_PUBLIC})"
    return _accuracies(
        advice, queries, lambda value: advice.at(queries=int(value)), "answers that share the budget", title
    )


def _accuracies(
    advice: Recommendation,
    values: Sequence[float],
    at: Callable[[float], Recommendation],
    label: str,
    title: str,
) -> Figure:
    if not len(values) or any(not value > 0 for value in values):
        raise ParameterError(f"The values are {values!r:.80}.", "Pass numbers > 0.")
    points: dict[str, list[tuple[float, float]]] = {}
    for value in sorted(values):
        seen = set()
        for option in at(value).table:
            if option.release not in seen:
                seen.add(option.release)
                points.setdefault(option.release, []).append((float(value), option.accuracy))
    free = max(float(trial.correct.mean()) for trial in advice.trials)
    least = min(y for line in points.values() for _, y in line)

    def paint(axes: Axes) -> None:
        axes.set_xscale("log")
        axes.axhline(free, color=_MUTED, linewidth=1.3, linestyle=(0, (1, 2)))
        for place, name in enumerate(_RELEASES):
            if name in points:
                x, y = zip(*points[name])
                axes.plot(x, y, **_style(place), marker=_MARKS[place], markersize=5.5, label=_RELEASES[name])
        room = 0.08 * (free - least) + 1e-3
        axes.set_ylim(least - room, free + 1.6 * room)
        _note(axes, min(values), free + 0.1 * room, f"without privacy: {free:.3f}", "left", base="bottom")
        axes.set_xlabel(label)
        axes.set_ylabel("expected share of right answers")
        _decimals(axes, sorted(values))
        _legend(axes)

    return _draw(title, paint)


def trace_intervals(
    X: Any, y: Any, layers: Any, init: Any, hyperparameters: Any, ks: Sequence[int], adjacency: Any,
    batches: Any = None, **options: Any,
) -> tuple[Intervals, ...]:  # fmt: skip
    """Return the boxes before training and after each epoch (each step, for a full batch).

    Parameters
    ----------
    X, y
        Public or synthetic rows.
    layers, init, hyperparameters, ks, adjacency, batches, **options
        As in `train_intervals`.

    Returns
    -------
    tuple of Intervals, length epochs + 1

    Notes
    -----
    A training of t epochs is the beginning of a longer one, so each is trained anew: the work grows with the
    square of the epochs. For toys.
    """
    network = parse_layers(layers)
    settings = Hyperparameters.of(hyperparameters, network.outputs)
    shorter = (dataclasses.replace(settings, epochs=epochs) for epochs in range(settings.epochs + 1))
    return tuple(
        train_intervals(X, y, network, init, held, ks, adjacency, batches, **options) for held in shorter
    )


def boxes_figure(trace: Sequence[Intervals], parameters: tuple[int, int] = (0, 1)) -> Figure:
    """Draw how the boxes of two parameters move and grow while a toy model is trained.

    Parameters
    ----------
    trace : sequence of Intervals
        From `trace_intervals`, **of public or synthetic rows**; the largest k is drawn.
    parameters : pair of int
    """
    first, second = (whole(p, "parameters") for p in parameters)
    if max(first, second) >= _trace(trace)[0].nominal.size:
        raise ParameterError(
            f"The 'parameters' are {parameters!r}.", "Pass two places among those of the model."
        )
    shown = np.unique(np.linspace(0, len(trace) - 1, min(_MOST_BOXES, len(trace))).astype(int))

    def paint(axes: Axes) -> None:
        from matplotlib.patches import Rectangle

        path = np.array([held.nominal[[first, second]] for held in trace])
        for order, place in enumerate(shown):
            low, high = (end[-1][[first, second]] for end in (trace[place].lower, trace[place].upper))
            if not (np.isfinite(low).all() and np.isfinite(high).all()):
                continue
            shade = 0.25 + 0.75 * order / max(len(shown) - 1, 1)
            box = Rectangle((low[0], low[1]), *(high - low), facecolor=COLOURS[5], alpha=0.13, linewidth=0)
            edge = Rectangle((low[0], low[1]), *(high - low), fill=False, edgecolor=COLOURS[0], alpha=shade,
                             linewidth=1.4)  # fmt: skip
            axes.add_patch(box)
            axes.add_patch(edge)
            if high[0] > low[0]:
                text = f"epoch {place}" if place == shown[-1] else f"{place}"
                _note(axes, high[0], high[1], text, "right", base="bottom", size=9)
        axes.plot(path[:, 0], path[:, 1], color=COLOURS[1], linewidth=1.6, marker="o", markersize=4)
        axes.annotate(
            "trained model", path[-1], xytext=(7, -4), textcoords="offset points", color=COLOURS[1], va="top"
        )
        axes.autoscale_view()
        axes.margins(0.07)
        axes.set_xlabel(f"parameter {first}")
        axes.set_ylabel(f"parameter {second}")

    title = f"Boxes of k = {trace[-1].ks[-1]} after each of {len(trace) - 1} epochs ({_PUBLIC})"
    return _draw(title, paint, grid="both")


def widths_figure(trace: Sequence[Intervals]) -> Figure:
    """Draw the mean width of the boxes by epoch, for up to seven levels k.

    Parameters
    ----------
    trace : sequence of Intervals
        From `trace_intervals`, **of public or synthetic rows**.
    """
    levels = [place for place, k in enumerate(_trace(trace)[0].ks) if k > 0]
    chosen = sorted({levels[i] for i in np.linspace(0, len(levels) - 1, min(7, len(levels))).astype(int)})
    if not levels:
        raise ParameterError("The trace has no level above 0.", "Train with ks=(1, ...).")

    def paint(axes: Axes) -> None:
        for order, place in enumerate(chosen):
            with np.errstate(invalid="ignore"):
                width = np.array([np.mean(held.upper[place] - held.lower[place]) for held in trace])
            steps = np.arange(len(trace))[np.isfinite(width)]
            axes.plot(steps, width[steps], **_style(order), marker=_MARKS[order], markersize=4.5,
                      label=f"k = {trace[0].ks[place]}")  # fmt: skip
        axes.set_xlabel("epochs")
        axes.set_ylabel("mean width of a parameter's interval")
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="x", integer=True)
        _legend(axes)

    return _draw(f"How boxes grow ({_PUBLIC})", paint)


def _trace(trace: Sequence[Intervals]) -> Sequence[Intervals]:
    if len(trace) < 2 or len({held.ks for held in trace}) != 1:
        raise ParameterError("The trace has fewer than two steps, or mixed levels.", "Use trace_intervals.")
    return trace


def _by_certificate(advice: Recommendation) -> dict[str, Any]:
    held: dict[str, Any] = {}
    seen = set()
    for option in advice.table:
        if option.certificate not in seen:
            seen.add(option.certificate)
            held[option.trial.name] = option.trial.k
    return held


def _distances(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu" or array.min() < 0:
        raise ParameterError(
            "The distances are no row of whole numbers >= 0.", "Pass what stability returns."
        )
    return array


def _style(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % 7], "linestyle": _DASHES[place % 7], "linewidth": 2.0}


def _note(
    axes: Axes, x: float, y: float, text: str, side: str, *, base: str = "top", size: float = 10
) -> None:
    shift = (-5 if side == "right" else 5, 0 if base == "top" else 2)
    axes.annotate(
        text, (x, y), xytext=shift, textcoords="offset points", ha=side, va=base, color=_MUTED, fontsize=size,
        annotation_clip=False,
    )  # fmt: skip


def _legend(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0, handlelength=3)


def _decimals(axes: Axes, values: Sequence[float]) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axes.xaxis.set_major_locator(FixedLocator(list(values)))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{value:,.10g}" for value in values]))
    axes.xaxis.set_minor_locator(NullLocator())


def _draw(title: str, paint: Callable[[Axes], None], *, grid: str = "y") -> Figure:
    """Paint one pair of axes; the figure has a canvas of its own and needs no display."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: Any = {
        "font.size": 11,
        "text.color": _INK,
        "axes.edgecolor": _MUTED,
        "axes.labelcolor": _INK,
        "xtick.color": _MUTED,
        "ytick.color": _MUTED,
        "xtick.labelcolor": _INK,
        "ytick.labelcolor": _INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.usetex": False,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.set_axisbelow(True)
        axes.grid(True, axis=grid, color=_GRID, linewidth=0.8)  # pyright: ignore[reportArgumentType]
        paint(axes)
        axes.set_title(title, loc="left", fontsize=11.5)
    return figure
