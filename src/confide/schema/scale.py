"""A scale from a published mean and deviation, and advice about declared bounds: no data are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from confide.errors import ParameterError

if TYPE_CHECKING:
    from confide.schema.column import Column
    from confide.schema.model import Schema

#: Keys of a scale; the first two belong together.
SCALE_KEYS = ("mean", "deviation", "clip", "source")
#: Deviations on either side of the mean that count.
CLIP = 2.0
_WIDE_CLIP = 4.0
#: Bounds of one sign this many times apart, and from 0 up to this much, rarely hold rows that fill them.
_RATIO = 1000.0
_LARGE = 100_000.0

Wrong = Callable[..., None]


def read_scale(raw: Mapping[str, Any], number: Callable[[str], float | None], wrong: Wrong) -> dict[str, Any]:
    """Resolve ``mean``, ``deviation`` and ``clip`` of a numeric column to bounds.

    Parameters
    ----------
    raw : mapping
        The declaration; ``lower`` and ``upper`` must be absent, or what this gives.
    number : callable
        From a key to its finite number, or None after a problem was told.
    wrong : callable
        Told of each broken rule.

    Returns
    -------
    dict
        lower, upper, mean, deviation, clip; empty where a rule is broken.

    Notes
    -----
    [mean - clip deviation, mean + clip deviation], in decimal arithmetic, so that what is written is what is
    meant. Mean and deviation must come from a publication: taken from the table itself, they are a release
    of it that nobody paid for.
    """
    for key in ("mean", "deviation"):
        if key not in raw:
            remedy = "Declare mean and deviation together, from a publication, or lower and upper."
            wrong(None, f"{key!r} is missing beside the other keys of a scale.", remedy)
            return {}
    if raw.get("transform") is not None:
        wrong("mean", "a transformed column takes no mean and deviation.", "Declare lower and upper.")
        return {}
    values = {key: number(key) for key in ("mean", "deviation")}
    values["clip"] = number("clip") if "clip" in raw else CLIP
    mean, deviation, clip = values["mean"], values["deviation"], values["clip"]
    if mean is None or deviation is None or clip is None:
        return {}
    for key, value in (("deviation", deviation), ("clip", clip)):
        if not value > 0:
            wrong(key, f"{key!r} is {value:g}.", "Use a number above 0.")
            return {}
    centre, reach = Decimal(repr(mean)), Decimal(repr(clip)) * Decimal(repr(deviation))
    bounds = {"lower": float(centre - reach), "upper": float(centre + reach)}
    for key, value in bounds.items():
        if raw.get(key) is not None and raw[key] != value:
            wrong(key, f"{key!r} and a mean with its deviation are both declared.", "Remove one of the two.")
            return {}
    return {**bounds, **values}


def parse_scale(text: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """Return the column and the values of ``NAME=MEAN,DEVIATION[,SOURCE]``.

    Raises
    ------
    ParameterError
        If no column has that name, or the numbers are none.
    """
    found = [name for name in names if text.startswith(f"{name}=")]
    if not found:
        raise ParameterError(
            f"The scale {text!r:.80} names no column of the file.", "Write NAME=MEAN,DEVIATION,SOURCE."
        )
    name = max(found, key=len)
    parts = [part.strip() for part in text[len(name) + 1 :].split(",", 2)]
    try:
        mean, deviation = (float(part) for part in parts[:2])
    except ValueError:
        mean, deviation = math.nan, math.nan
    if not (math.isfinite(mean) and 0 < deviation < math.inf):
        raise ParameterError(
            f"The scale of {name!r} is {text[len(name) + 1 :]!r:.80}.",
            "Write NAME=MEAN,DEVIATION,SOURCE, with a deviation above 0.",
        )
    source = parts[2] if len(parts) == 3 else ""
    return name, {"mean": parts[0], "deviation": parts[1], "source": source}


def advice(schema: Schema) -> list[str]:
    """Return sentences about scales that look unhelpful or unfounded; no data are read.

    Bounds are no mistakes where they are wide; rows just lie close together within them, which costs accuracy
    wherever columns are divided by their half-widths (most of all in `confide.certify`).
    """
    features = [c for c in schema.columns if c.numeric and c.role in ("public", "private")]
    means = any(column.mean is not None for column in features)
    return [told for column in features for told in _about(column, means)]


def _about(column: Column, means: bool) -> list[str]:
    lower, upper = column.lower, column.upper
    assert lower is not None
    assert upper is not None
    out = []
    if column.mean is not None:
        if not column.source:
            out.append(
                f"Column {column.name!r} declares a mean and a deviation without a source. They must come "
                "from a publication, never from this table: name it in 'source'."
            )
        if column.clip is not None and column.clip > _WIDE_CLIP:
            out.append(
                f"Column {column.name!r} is clipped at {column.clip:g} deviations; 2 to 3 lose little and "
                "scale better."
            )
        return out
    if column.transform is not None:
        return out
    same_sign = lower > 0 or upper < 0
    small, large = sorted((abs(lower), abs(upper)))
    remedy = "transform = 'log', or a published mean and deviation (keys 'mean', 'deviation', 'source')"
    if same_sign and large >= _RATIO * small:
        out.append(
            f"The bounds of {column.name!r} are {large / small:,.0f}-fold apart: most rows may lie near one "
            f"end. Declare {remedy}."
        )
    elif lower == 0 and (means or upper >= _LARGE):
        reach = "far up" if upper >= _LARGE else "while other columns have a published mean"
        out.append(
            f"The bounds of {column.name!r} start at 0 and reach {upper:,.10g}, {reach}: rows may lie far "
            "from the middle. If nothing better is known keep them; else declare "
            f"{remedy.replace('log', 'log1p')}."
        )
    return out
