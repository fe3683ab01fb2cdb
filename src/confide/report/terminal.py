"""The same facts for a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from confide.report.html import clean
from confide.report.model import ModelFacts, model_facts, released_model
from confide.report.regression import facts
from confide.report.selected import SelectedFacts, released, selected_facts, training_result
from confide.report.words import listing, number, signed

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Effects listed.
MOST = 12
#: Classes whose coefficients are listed.
MOST_OUTPUTS = 6


class Summary:
    """A short account of a result: for ``rich.print``, for ``print``, and for a notebook's last line.

    Parameters
    ----------
    parts : list of rich renderables
    """

    def __init__(self, parts: list[RenderableType]) -> None:
        self._parts = parts

    def __rich__(self) -> RenderableType:
        from rich.console import Group

        return Group(*self._parts)

    def __str__(self) -> str:
        return self._recorded().export_text().rstrip("\n")

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: escaped text in one block, its styles inline."""
        form = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'
        return self._recorded().export_html(inline_styles=True, code_format=form)

    def _recorded(self) -> Any:
        from rich.console import Console

        console = Console(width=100, record=True, file=io.StringIO(), force_terminal=False)
        console.print(self)
        return console


def summary(result: Any, *, table: Any = None) -> Summary:
    """Return a short account of a result for a terminal or a notebook.

    ``rich.print`` shows it as wide as the terminal is, with colours; ``print`` plain; and a notebook shows it
    by itself.

    Parameters
    ----------
    result : TrainingResult, ModelResult, SelectionResult, SparseResult, or a fitted estimator that holds one
    table : Table, ChunkedTable or Schema, optional
        Only its schema is read.

    Returns
    -------
    Summary

    Raises
    ------
    UnsupportedError
        For a result that has no report.

    Notes
    -----
    Free post-processing, as `confide.report.write_report` explains.
    """
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    chosen = released(result)
    if chosen is not None:
        return _summary_of_selection(selected_facts(chosen, table=table))
    model = released_model(result)
    if model is not None:
        return _summary_of_model(model_facts(model, table=table))
    content = facts(training_result(result), table=table)
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
    if content.drowned:
        parts.append(Text(content.drowned, style="bold yellow"))
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
    return Summary(parts)


def _summary_of_selection(content: SelectedFacts) -> Summary:
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = _opening(content)
    parts += [Text(clean(f"Assuming: {a}. {b}"), style="yellow") for a, b in content.conditions]
    fitted = content.intercept is not None
    errors = any(chosen.noise is not None for chosen in content.chosen)
    grid = Table("column", title="Selected columns (encoded)", title_justify="left")
    for heading in (*(("coefficient",) if fitted else ()), *(("± privacy",) if errors else ())):
        grid.add_column(heading, justify="right")
    first = (("(intercept)", content.intercept, content.intercept_noise),) if fitted else ()
    for name, value, noise in (*first, *((c.name, c.coefficient, c.noise) for c in content.chosen)):
        cells = [signed(value)] if fitted and value is not None else []
        cells += ["" if noise is None else number(noise, 2)] if errors else []
        grid.add_row(*(Text(cell) for cell in (clean(name), *cells)))
    parts.append(grid)
    parts += [Text(clean(text)) for text in (content.predicts, content.errors) if text]
    return Summary(parts)


def _summary_of_model(content: ModelFacts) -> Summary:
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = _opening(content)
    if content.assumptions:
        parts.append(Text(f"Rests on: {clean(listing(content.assumptions))}.", style="yellow"))
    parts.append(Text(clean(f"{content.description} {content.predicts}".strip())))
    if content.terms:
        grid = Table("column", title="Largest coefficients", title_justify="left")
        for output in content.outputs[:MOST_OUTPUTS]:
            grid.add_column(clean(output) if len(content.outputs) > 1 else "coefficient", justify="right")
        for title, values in [
            ("(intercept)", content.intercept),
            *((term.words, term.values) for term in content.terms[:MOST]),
        ]:
            grid.add_row(Text(clean(title)), *(Text(signed(value)) for value in values[:MOST_OUTPUTS]))
        parts.append(grid)
    if len(content.terms) > MOST:
        parts.append(Text(f"and {len(content.terms) - MOST} more.", style="dim"))
    parts.append(Text("; ".join(f"{what}: {value}" for what, value in content.details) + ".", style="dim"))
    return Summary(parts)


def _opening(content: ModelFacts | SelectedFacts) -> list[RenderableType]:
    from rich.panel import Panel
    from rich.text import Text

    parts: list[RenderableType] = []
    if content.void:
        parts.append(Panel(Text(" ".join(content.marks)), title="NOT PRIVATE", border_style="bold red"))
    parts.append(Text(clean(content.headline), style="bold"))
    parts.append(Text(clean(content.sentence), style="dim"))
    return parts + ([] if content.void else [Text(mark, style="yellow") for mark in content.marks])


def _move(content: Any, unit: str) -> str:
    """Return how far noise moves a typical prediction; none leaves the declared range of the label."""
    chosen = next(p for p in content.prices if p.chosen)
    low, high = content.label_range
    if chosen.noise >= high - low:
        return f"the whole range {number(low)} to {number(high)}{unit} of the label, if nothing shrank it"
    return f"{number(chosen.noise)}{unit}"


def _price(content: Any) -> str:
    unit = f" ({content.label_unit})" if content.label_unit else ""
    chosen = next((p for p in content.prices if p.chosen), None)
    noise = "" if chosen is None else f"Privacy noise moves a typical prediction by {_move(content, unit)}; "
    spread = content.spread
    about = (
        f"labels lie {spread.words()} from the fit."
        if spread.known
        else "how far labels lie from the fit is not determined, as noise dominates it."
    )
    limit = f" ({content.row_limit})" if content.row_limit else ""
    about += f" {content.rows:,} rows{limit}."
    return noise + about if noise else about[0].upper() + about[1:]
