"""The same facts for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confide.report.facts import facts
from confide.report.html import clean
from confide.report.words import listing, number, signed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from confide.training import TrainingResult

#: Effects listed.
MOST = 12


def summary(result: TrainingResult, *, table: Any = None) -> RenderableType:
    """Return what a terminal shows of a training result; print it with ``rich.print``.

    Parameters
    ----------
    result : TrainingResult
    table : Table, ChunkedTable or Schema, optional
        Only its schema is read.

    Returns
    -------
    rich renderable

    Notes
    -----
    Free post-processing, as `confide.report.write_report` explains.
    """
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    content = facts(result, table=table)
    parts: list[RenderableType] = []
    if content.void:
        # Text, not markup: names and prose may hold square brackets.
        parts.append(Panel(Text(" ".join(content.marks)), title="NOT PRIVATE", border_style="bold red"))
    parts.append(Text(clean(content.headline), style="bold"))
    parts.append(Text(clean(content.sentence), style="dim"))
    if not content.void:
        parts += [Text(mark, style="yellow") for mark in content.marks]
    if content.assumptions:
        parts.append(Text(f"Rests on: {clean(listing(content.assumptions))}.", style="yellow"))
    parts.append(Text(_price(content)))
    grid = Table("column", title="Largest coefficients (encoded columns)", title_justify="left")
    for head in ("coefficient", "± privacy", "± with sampling"):
        grid.add_column(head, justify="right")
    meanings = any(effect.meaning for effect in content.effects)
    if meanings:
        grid.add_column("effect")
    for effect in content.effects[:MOST]:
        cells = [signed(effect.value), number(effect.noise, 2), number(effect.standard, 2)]
        cells += [clean(effect.meaning)] if meanings else []
        grid.add_row(*(Text(cell) for cell in (clean(effect.words), *cells)))
    if content.effects:
        parts.append(grid)
    if len(content.effects) > MOST:
        parts.append(Text(f"and {len(content.effects) - MOST} more.", style="dim"))
    return Group(*parts)


def _price(content: Any) -> str:
    unit = f" ({content.label_unit})" if content.label_unit else ""
    chosen = next((p for p in content.prices if p.chosen), None)
    noise = (
        ""
        if chosen is None
        else f"Privacy noise moves a typical prediction by {number(chosen.noise)}{unit}; "
    )
    spread = f"labels lie {number(content.residual)} from the fit. {content.rows:,} rows."
    return noise + spread if noise else spread[0].upper() + spread[1:]
