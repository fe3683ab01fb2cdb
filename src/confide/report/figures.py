"""Pictures as inline SVG whose colours are CSS variables, so that they follow light, dark and print.

Matplotlib draws with placeholder colours; `_inline` then takes the file apart from what a page cannot use
(declarations, metadata with a date and foreign addresses, comments that repeat labels), gives every id the
picture's own prefix, and puts the variables in. Text stays text: small, sharp, searchable.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confide.report.html import Safe, clean, tag
from confide.report.words import number, signed

if TYPE_CHECKING:
    from confide.report.regression import Effect, Facts, Measured

#: Placeholder colours and the CSS variable that each stands for.
COLOURS = {
    "ink": "#010101",
    "muted": "#020202",
    "grid": "#030303",
    "accent": "#040404",
    "second": "#050505",
    "paper": "#060606",
}
#: Width of every picture in its own units: a phone's column, so that 12-unit text stays readable there.
WIDTH = 400
_FONT = 13.5
#: Effects drawn; the rest are in the table.
MOST_EFFECTS = 20
_LONGEST_NAME = 32


def _draw(
    name: str, alt: str, height: int, paint: Callable[[Any], None], *, margins: tuple[int, int, int, int]
) -> Safe:
    """Paint on one pair of axes of WIDTH x height units and return it as inline SVG with `alt` as its text.

    `margins`: left, right, bottom, top, in units.
    """
    import matplotlib

    # The Agg canvas draws nothing here; it keeps matplotlib from looking for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    left, right, bottom, top = margins
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": f"confide-{name}",
        "font.family": "sans-serif",
        "font.size": _FONT,
        "text.color": COLOURS["ink"],
        "axes.edgecolor": COLOURS["muted"],
        "axes.labelcolor": COLOURS["ink"],
        "xtick.color": COLOURS["muted"],
        "ytick.color": COLOURS["muted"],
        "xtick.labelcolor": COLOURS["ink"],
        "ytick.labelcolor": COLOURS["ink"],
        "grid.color": COLOURS["grid"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": True,
        "path.simplify": True,
        "text.usetex": False,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A script that the bundled font lacks is drawn by the reader's own fonts.
        warnings.filterwarnings("ignore", message=r".*[Gg]lyph.*")
        figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
        FigureCanvasAgg(figure)
        axes = figure.add_axes(
            (
                left / WIDTH,
                bottom / height,
                (WIDTH - left - right) / WIDTH,
                (height - bottom - top) / height,
            )
        )
        axes.patch.set_visible(False)
        figure.patch.set_visible(False)
        paint(axes)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), name, alt)


def _inline(text: str, name: str, alt: str) -> Safe:
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\sid=")', rf"\g<1>{name}-", text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'xlink:href="#', f'href="#{name}-', text)
    for variable, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{variable})")
    # Matplotlib names its own fonts first; the page's font looks better and is there for certain.
    text = re.sub(r"(font: [^;\"]*?\d(?:px)?) [^;\"]*", r"\1 var(--font)", text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    body = text[text.index(">") + 1 : text.rindex("</svg>")]
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    return tag("svg", Safe(body.strip()), viewBox=box[1], role="img", aria_label=alt, focusable="false")


def _log_ticks(axis: Any, low: float, high: float, limit: int = 6) -> None:
    """Label a log axis with plain decimals: 1, 2 and 5 times powers of ten, or powers alone when many."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [s * 10.0**k for k in range(first, last + 1) for s in steps]
        ticks = [t for t in ticks if low * 0.999 <= t <= high * 1.001]
        if len(ticks) <= limit:
            break
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter([f"{t:.10g}" for t in ticks]))
    axis.set_minor_locator(NullLocator())


def _note(axes: Any, x: float, y: float, text: str, colour: str = "ink", **options: Any) -> None:
    """Write a label beside a point: offset in units by `dx`, `dy`; never parsed as mathematics."""
    dx, dy = options.pop("dx", 0), options.pop("dy", 0)
    axes.annotate(
        text,
        (x, y),
        xytext=(dx, dy),
        textcoords="offset points",
        color=COLOURS[colour],
        parse_math=False,
        annotation_clip=False,
        **options,
    )


def price_figure(facts: Facts) -> Safe:
    """Draw what epsilon buys: predicted noise error against epsilon, the chosen one marked."""
    prices = facts.prices
    chosen = next(p for p in prices if p.chosen)
    lowest = min(prices[0].amount, chosen.amount) / 1.4
    highest = max(prices[-1].amount, chosen.amount) * 1.4
    bottom = min(p.noise for p in prices) / 2
    spread = facts.spread.value if facts.spread.known else 0.0
    top = max(max(p.noise for p in prices), spread) * 2
    alt = (
        "Error from privacy noise against epsilon, both on log axes: it falls from "
        f"{number(prices[0].noise)} at epsilon {prices[0].epsilon} to {number(prices[-1].noise)} at "
        f"epsilon {prices[-1].epsilon}; at the chosen epsilon {chosen.epsilon} it is "
        f"{number(chosen.noise)}."
    )
    if facts.spread.known:
        alt += f" The spread of the label about the fit is {number(spread)} whatever epsilon is."

    def paint(axes: Any) -> None:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(lowest, highest)
        axes.set_ylim(bottom, top)
        axes.grid(True, linewidth=0.8)
        axes.plot(
            [p.amount for p in prices],
            [p.noise for p in prices],
            color=COLOURS["accent"],
            linewidth=2.2,
            marker="o",
            markersize=3.5,
        )
        if bottom < spread < top:
            axes.axhline(spread, color=COLOURS["second"], linewidth=1.6, linestyle=(0, (5, 3)))
            text = f"spread about the fit: {number(spread)}"
            # At the end where the solid line is farther away.
            away = [abs(math.log(p.noise / spread)) for p in (prices[0], prices[-1])]
            if away[0] > away[1]:
                _note(axes, lowest, spread, text, "second", dx=4, dy=5, ha="left")
            else:
                _note(axes, highest, spread, text, "second", dx=-4, dy=5, ha="right")
        axes.plot([chosen.amount], [chosen.noise], marker="o", markersize=10, color=COLOURS["accent"])
        right = math.log(chosen.amount / lowest) > 0.62 * math.log(highest / lowest)
        _note(
            axes,
            chosen.amount,
            chosen.noise,
            f"this model: {number(chosen.noise)}",
            dx=-9 if right else 9,
            dy=-17 if right else 7,
            ha="right" if right else "left",
            fontweight="bold",
        )
        axes.set_xlabel("epsilon (less privacy to the right)")
        _log_ticks(axes.xaxis, lowest, highest)
        _log_ticks(axes.yaxis, bottom, top)

    return _draw("price", alt, 290, paint, margins=(52, 12, 46, 10))


def measured_figure(measured: Measured) -> Safe:
    """Draw measured test errors against epsilon, with the private mean and the fit without privacy."""
    points = measured.points
    roots = [math.sqrt(p.error) for p in points]
    levels = [
        (name, math.sqrt(value), style, colour)
        for name, value, style, colour in (
            ("private mean alone", measured.baseline, (0, (5, 3)), "second"),
            ("without privacy", measured.reference, (0, (1.5, 2)), "ink"),
        )
        if value is not None
    ]
    # The line: noise as predicted on top of the fit without privacy, or else of the least noisy point.
    floor = points[-1].error - points[-1].noise ** 2 if measured.reference is None else measured.reference
    predicted = [math.sqrt(max(floor + p.noise**2, 0.0)) for p in points]
    # Predictions are before shrinkage, and may leave the picture where noise rules.
    every = roots + [level for _, level, _, _ in levels]
    pad = max(0.16 * (max(every) - min(every)), 0.02 * max(every))
    low, high = max(min(every) - 1.7 * pad, 0.0), max(every) + 1.4 * pad
    lowest, highest = points[0].amount / 1.6, points[-1].amount * 1.6
    chosen = next((i for i, p in enumerate(points) if p.chosen), None)
    alt = "Measured root-mean-square test error against epsilon on a log axis: " + "; ".join(
        f"{number(root)} at epsilon {p.epsilon}{' (this model)' if p.chosen else ''}"
        for p, root in zip(points, roots)
    )
    alt += "".join(f"; {name} {number(level)}" for name, level, _, _ in levels) + "."

    def paint(axes: Any) -> None:
        axes.set_xscale("log")
        axes.set_xlim(lowest, highest)
        axes.set_ylim(low, high)
        axes.grid(True, axis="y", linewidth=0.8)
        for name, level, style, colour in levels:
            axes.axhline(level, color=COLOURS[colour], linewidth=1.6, linestyle=style)
            above = name != "without privacy"
            text = f"{name}: {number(level)}"
            _note(axes, highest, level, text, colour, dx=-4, dy=5 if above else -17, ha="right")
        if len(points) > 1:
            axes.plot(
                [p.amount for p in points], predicted, color=COLOURS["accent"], linewidth=1.8, alpha=0.75
            )
        axes.plot(
            [p.amount for p in points],
            roots,
            color=COLOURS["accent"],
            marker="o",
            linestyle="none",
            markersize=6,
            markeredgecolor=COLOURS["paper"],
        )
        if chosen is not None:
            point, root = points[chosen], roots[chosen]
            axes.plot([point.amount], [root], marker="o", markersize=11, color=COLOURS["accent"])
            text = f"this model: {number(root)}"
            right = math.log(point.amount / lowest) > 0.62 * math.log(highest / lowest)
            side = {"dx": 0, "ha": "center"} if not right else {"dx": 6, "ha": "right"}
            _note(axes, point.amount, root, text, dy=13, fontweight="bold", **side)
        axes.set_xlabel("epsilon (less privacy to the right)")
        amounts = [p.amount for p in points]
        from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

        if len(amounts) <= 7:
            axes.xaxis.set_major_locator(FixedLocator(amounts))
            axes.xaxis.set_major_formatter(FixedFormatter([p.epsilon for p in points]))
            axes.xaxis.set_minor_locator(NullLocator())
        else:
            _log_ticks(axes.xaxis, lowest, highest)

    return _draw("measured", alt, 270, paint, margins=(52, 12, 46, 10))


def spectrum_figure(facts: Facts) -> Safe:
    """Draw the singular values of the public design over sqrt(n): its deviation in each direction."""
    values = facts.spectrum
    count = len(values)
    alt = (
        f"Spread of the public columns in their {count} directions, largest first: from "
        f"{number(values[0])} down to {number(values[-1])}."
    )

    def paint(axes: Any) -> None:
        index = range(1, count + 1)
        axes.set_xlim(0.4, count + 0.6)
        axes.grid(True, axis="y", linewidth=0.8)
        wide = values[-1] <= 0 or values[0] / values[-1] > 50
        if wide:
            axes.set_yscale("log")
            low, high = max(values[-1], values[0] * 1e-8) / 2, values[0] * 2
            axes.set_ylim(low, high)
            _log_ticks(axes.yaxis, low, high)
        else:
            axes.set_ylim(0, values[0] * 1.15)
        if count <= 30 and not wide:
            axes.set_axisbelow(True)
            axes.bar(index, values, width=0.62, color=COLOURS["accent"])
        else:
            marker = "o" if count <= 60 else ""
            axes.plot(index, values, color=COLOURS["accent"], linewidth=2, marker=marker, markersize=4)
        axes.set_xlabel("direction of the public columns")
        if count <= 15:
            axes.set_xticks(list(index))

    return _draw("spectrum", alt, 220, paint, margins=(52, 12, 46, 10))


def effects_figure(effects: tuple[Effect, ...]) -> Safe:
    """Draw effects with error bars, the name of each above its line, by falling size."""
    shown = effects[:MOST_EFFECTS]
    step, pad = 40, 46
    height = step * len(shown) + pad + 8
    alt = "Coefficients by size, each plus or minus two standard errors of privacy noise: " + "; ".join(
        f"{clean(e.words)} {signed(e.value)} ± {number(2 * e.noise, 2)}" for e in shown
    )

    def paint(axes: Any) -> None:
        ends = [v for e in shown for v in (e.value, e.unbiased - 2 * e.standard, e.unbiased + 2 * e.standard)]
        low, high = min(*ends, 0.0), max(*ends, 0.0)
        room = 0.05 * (high - low or 1.0)
        axes.set_xlim(low - room, high + room)
        axes.set_ylim(-len(shown) + 0.35, 0.65)
        axes.grid(True, axis="x", linewidth=0.8)
        # Names hide the grid behind them, and nothing else: bars and the zero line lie on top.
        axes.set_axisbelow(True)
        for row, effect in enumerate(shown):
            y = -row
            axes.plot([0, 0], [y - 0.15, y + 0.15], color=COLOURS["muted"], linewidth=1.4)
            thin = [effect.unbiased - 2 * effect.standard, effect.unbiased + 2 * effect.standard]
            thick = [effect.unbiased - 2 * effect.noise, effect.unbiased + 2 * effect.noise]
            axes.plot(thin, [y, y], color=COLOURS["second"], linewidth=2.4, solid_capstyle="butt")
            axes.plot(thick, [y, y], color=COLOURS["accent"], linewidth=9, solid_capstyle="butt")
            axes.plot(
                [effect.value],
                [y],
                marker="o",
                markersize=6,
                color=COLOURS["ink"],
                markeredgecolor=COLOURS["paper"],
            )
            name = clean(effect.words)
            short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
            axes.annotate(
                f"{short}  {signed(effect.value)}",
                (0, y),
                xycoords=("axes fraction", "data"),
                xytext=(2, 9),
                zorder=1.5,
                textcoords="offset points",
                color=COLOURS["ink"],
                parse_math=False,
                bbox={"facecolor": COLOURS["paper"], "edgecolor": "none", "pad": 1},
            )
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("coefficient of the encoded column")
        axes.locator_params(axis="x", nbins=6)

    return _draw("effects", alt, height, paint, margins=(10, 12, pad, 4))
