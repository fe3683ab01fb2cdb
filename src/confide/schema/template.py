"""A blank ``schema.toml`` for a file: names and kinds of its columns, and not one value of its data."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confide.errors import DataError, ParameterError
from confide.schema.cells import BLANKS
from confide.schema.rules import ROLES, TRANSFORMS

if TYPE_CHECKING:
    import pyarrow as pa

    from confide.schema.model import Schema
    from confide.schema.sources import FileSource

#: Asks a question with a default answer and returns the answer; the default means "leave blank".
Ask = Callable[[str, str], str]

_HEAD = """\
# Schema of a table for Confide. Everything in this file is public: it may come from a codebook, a law, a
# survey's design or common knowledge, but not from the data. Confide wrote names and kinds of columns here,
# and no value. Check it with: confide schema check {name}
"""


@dataclass
class Draft:
    """What is known or answered about one column before the schema is valid."""

    name: str
    kind: str | None
    values: dict[str, str]


def drafts(path: str | Path, *, delimiter: str | None = None, header_ok: bool = False) -> list[Draft]:
    """Return the columns of a file, with kinds from its metadata (a CSV file has none).

    Reads the header of a CSV file and the schema of a Parquet or Arrow file; neither rows nor the
    statistics and dictionaries that such files also hold.

    Parameters
    ----------
    path : path
    delimiter : str, optional
        Of a CSV file.
    header_ok : bool
        The first line of a CSV file holds names although they look like values. A file without a line of
        names would have the cells of its first row copied as names.

    Raises
    ------
    DataError
        If the file is missing, damaged, names a column twice, or its first line looks like data.
    """
    from confide.schema.sources import FileSource, distinct_names

    source = FileSource(path, delimiter)
    suspects = [] if header_ok else _suspects(source)
    if suspects:
        raise DataError(
            f"The first line of {Path(path).name!r} looks like data: cell {suspects[0]} is no name.",
            "Put a line of column names first; if it is one, pass --header-ok (header_ok=True).",
        )
    distinct_names(source.names)
    return [
        Draft(name, _kind(type_), {})
        for name, type_ in zip(source.names, source.types, strict=True)
        if name.strip(BLANKS) and not name.startswith("__index_level_")
    ]


def _suspects(source: FileSource) -> list[int]:
    from confide.schema.sources import looks_like_data

    return looks_like_data(source.names) if source.kind == "CSV" else []


def _kind(type_: pa.DataType | None) -> str | None:
    import pyarrow as pa

    if type_ is None:
        return None
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "numeric"
    return "categorical"


def set_scales(columns: list[Draft], scales: Iterable[str]) -> None:
    """Fill in published means and deviations, each ``NAME=MEAN,DEVIATION[,SOURCE]``.

    Raises
    ------
    ParameterError
        If one names no column, or a column of text or truth values.
    """
    from confide.schema.scale import parse_scale

    for text in scales:
        name, values = parse_scale(text, [draft.name for draft in columns])
        draft = next(draft for draft in columns if draft.name == name)
        if draft.kind not in ("numeric", None):
            raise ParameterError(
                f"The column {name!r} is {draft.kind} by the file's own types.", "Give numbers a scale."
            )
        draft.kind = "numeric"
        draft.values.update(values)


def interview(columns: list[Draft], ask: Ask) -> tuple[list[Draft], str]:
    """Ask for role, bounds or categories of each column; an empty answer leaves the place blank.

    Returns
    -------
    columns : list of Draft
        Without those that the user leaves out.
    declared_by : str
    """
    declared_by = ask("Who declares this schema (name or office)", "")
    chosen = []
    for draft in columns:
        role = ask(f"{draft.name}: role ({', '.join(ROLES)}, or skip)", "")
        if role.lower() == "skip":
            continue
        draft.values["role"] = role if role in ROLES else ""
        if role != "id":
            draft.kind = (
                ask(f"{draft.name}: kind (numeric, categorical, boolean)", draft.kind or "") or draft.kind
            )
            if draft.kind == "numeric" and "mean" not in draft.values:
                for key in ("lower", "upper"):
                    draft.values[key] = ask(f"{draft.name}: public {key} bound", "")
            elif draft.kind == "categorical":
                draft.values["categories"] = ask(f"{draft.name}: public categories, separated by commas", "")
        chosen.append(draft)
    return chosen, declared_by


def template(columns: list[Draft], *, table: str, file: str = "schema.toml", declared_by: str = "") -> str:
    """Return the text of a ``schema.toml``; what is not known stands as a comment to be filled in.

    Parameters
    ----------
    columns : list of Draft
    table : str
        Name of the table.
    file : str
        Name that the text will have, for its first lines.
    declared_by : str
    """
    from confide.schema.model import toml_key, toml_text

    lines = [_HEAD.format(name=shlex.quote(file))]
    lines += ["[table]", f"name = {toml_text(table)}"]
    lines += [f"declared_by = {toml_text(declared_by)}  # who answers for the roles and bounds below"]
    ids = [draft for draft in columns if draft.values.get("role") == "id"]
    hint = "how many rows of one id may count; needed with, and only with, an id column"
    lines += [f"# max_rows_per_id = 1  # {hint}"]
    if ids:
        lines[-1] = f"max_rows_per_id = 1  # {hint}"
    for draft in columns:
        lines += ["", f"[columns.{toml_key(draft.name)}]", *_column_lines(draft, toml_text)]
    return "\n".join(lines) + "\n"


def _column_lines(draft: Draft, toml_text: Callable[[str], str]) -> list[str]:
    values = draft.values
    role = values.get("role", "")
    lines = [f"role = {toml_text(role)}" + ("" if role else f"  # {', '.join(ROLES)}; or delete this column")]
    if role == "id":
        return lines
    if draft.kind == "boolean":
        return [*lines, "categories = [false, true]"]
    if "mean" in values:
        lines += [f"{key} = {_number(values[key])}" for key in ("mean", "deviation")]
        lines.append("clip = 2  # deviations; bounds are mean -+ clip deviations")
        lines.append(f"source = {toml_text(values['source'])}  # the publication; never this table")
    elif draft.kind in ("numeric", None):
        for key in ("lower", "upper"):
            number = _number(values.get(key, ""))
            lines.append(
                f"{key} = {number}" if number else f"# {key} =   # from public knowledge, in raw units"
            )
        if not any(_number(values.get(key, "")) for key in ("lower", "upper")):
            lines.append(
                "# mean =   # or published mean and deviation, with their source, instead of bounds;"
            )
            lines.append("# deviation =   # never those of this table")
            lines.append('# source = ""')
        lines.append(f'# transform = "log"  # {" or ".join(TRANSFORMS)}, applied after clipping')
    if draft.kind in ("categorical", None):
        names = [part.strip() for part in values.get("categories", "").split(",") if part.strip()]
        if names:
            lines.append(f"categories = [{', '.join(map(toml_text, names))}]")
        else:
            lines.append('# categories = ["", ""]  # from public knowledge; all else becomes "other"')
    if draft.kind is None:
        lines.insert(1, "# A number needs lower and upper, a category needs categories.")
    lines.append('# unit = ""  # for people: "years", "dollars a week"')
    return lines


def _number(text: str) -> str:
    from confide.schema.cells import number_of_text
    from confide.schema.rules import plain

    value = number_of_text(text)
    return plain(value) if abs(value) < float("inf") else ""


def misfits(schema: Schema, path: str | Path, *, delimiter: str | None = None) -> list[str]:
    """Return warnings about columns of a file whose declared kind does not fit its metadata.

    Raises
    ------
    DataError
        If a declared column is missing or named twice.
    """
    import pyarrow as pa

    from confide.schema.sources import FileSource, check_names

    source = FileSource(path, delimiter)
    # Here alone a close name of the file is offered, and not where the first line may be a row.
    check_names(source.names, schema, quote=not _suspects(source))
    types = dict(zip(source.names, source.types, strict=True))
    out = []
    for column in schema.columns:
        type_ = types[column.name]
        if type_ is None:
            continue
        if pa.types.is_nested(type_):
            found = "lists or structures"
        elif column.numeric and pa.types.is_temporal(type_):
            found = "dates or times"
        else:
            continue
        out.append(f"Column {column.name!r} holds {found} ({type_}); its cells cannot be used.")
    return out
