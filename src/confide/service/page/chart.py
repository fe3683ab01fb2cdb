"""Epsilon over time as a picture in the page itself, with the same numbers as a table below."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from confide.report.html import Safe, join, table, tag

WIDTH, HEIGHT = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 16, 22, 40
#: Points of the line; the last of each stretch is kept.
MOST_POINTS = 240
_ROWS = 20


def thinned(
    history: Sequence[tuple[datetime, float]], most: int = MOST_POINTS
) -> list[tuple[datetime, float]]:
    """Return at most `most` points: the first, and the last of each equal stretch of time."""
    if len(history) <= most:
        return list(history)
    start, span = history[0][0], (history[-1][0] - history[0][0]) / (most - 1)
    if span <= timedelta(0):
        return [history[0], history[-1]]
    kept: dict[int, tuple[datetime, float]] = {-1: history[0]}
    for point in history[1:]:
        kept[min(most - 2, int((point[0] - start) / span))] = point
    return list(kept.values())


def chart(history: Sequence[tuple[datetime, float]], limit: float) -> Safe:
    """Return the picture.

    Parameters
    ----------
    history : sequence of (time, spent epsilon)
        In order; the total at the ends of what it rose in, and at the beginnings.
    limit : float
        The model's total.
    """
    if not history:
        return tag("p", "Nothing was spent yet.")
    points = thinned(history)
    first, last = points[0][0], points[-1][0]
    span = max((last - first).total_seconds(), 1.0)
    top = max(limit if limit != float("inf") else 0.0, points[-1][1], 1e-12)

    def x(time: datetime) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (time - first).total_seconds() / span

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top

    path = [
        f"{'L' if place else 'M'}{x(time):.1f} {y(value):.1f}" for place, (time, value) in enumerate(points)
    ]
    path.append(f"H{WIDTH - _RIGHT}")
    begun, spent = points[0][1], points[-1][1]
    said = (
        f"Spent epsilon rises from {begun:.6g} to {spent:.6g} between {_stamp(first)} and {_stamp(last)} "
        f"UTC; the limit is {limit:.6g}."
    )
    grid = [
        join(
            tag(
                "line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=f"{y(value):.1f}", y2=f"{y(value):.1f}", class_="grid"
            ),
            tag("text", f"{value:.3g}", x=_LEFT - 8, y=f"{y(value) + 4:.1f}", text_anchor="end"),
        )
        for value in (0.0, top / 2, top)
    ]
    bar = f"{y(min(limit, top)):.1f}"
    drawing = tag(
        "svg",
        tag("title", "Epsilon spent over time", id="chart-title"),
        tag("desc", said, id="chart-words"),
        *grid,
        tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=bar, y2=bar, class_="limit"),
        tag("path", d=" ".join(path), class_="spent"),
        tag("text", _stamp(first), x=_LEFT, y=HEIGHT - 10),
        tag("text", f"{_stamp(last)} UTC", x=WIDTH - _RIGHT, y=HEIGHT - 10, text_anchor="end"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby="chart-title chart-words",
        class_="chart",
    )  # fmt: skip
    caption = (
        "The line is epsilon spent in all, from the service's first charge, in steps of ten minutes; times "
        "are UTC. What other rooms spend shows at the service's next charge. The dashed line is the limit."
    )
    rows: list[tuple[object, ...]] = [
        (_stamp(time), f"{value:.6g}") for time, value in thinned(points, _ROWS)
    ]
    numbers = table("Epsilon spent over time", ("time (UTC)", "epsilon spent"), rows, numbers=(1,))
    return tag(
        "figure",
        drawing,
        tag("figcaption", caption),
        tag("details", tag("summary", "The same as a table"), numbers),
    )


def _stamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M")
