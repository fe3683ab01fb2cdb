"""Rows of a request against the model's declared schema: what fits, what is clipped, what is refused.

==========================================  ==========================================================
cell                                        outcome
==========================================  ==========================================================
a number of a numeric column                itself; beyond the bounds it is clipped, and the answer notes it
text, true, a list, an object in its place  422, the field named
a declared category, or ``"other"``         its level; for one that spells a number or a truth, that too
another category                            422: an answer to a misspelt question would be paid for
null                                        the schema's public constant; 422 where it says ``reject``
a field left out                            422: a misspelt name must not become a missing cell
a field that is not declared                422; so are the label and the id
==========================================  ==========================================================

Rows are public to who sends them, yet no message holds a cell: answers, logs and proxies keep messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from confide.schema.cells import label, number_of_text
from confide.service.problems import Faults, pointer, spoken, unreadable

if TYPE_CHECKING:
    from confide.schema import Schema
    from confide.schema.column import Column

MOST_ROWS = 1000
#: Levels that a message lists.
_LISTED = 12
#: JSON values, each with whether it is a truth, that stand for a level.
_Spellings = dict[tuple[bool, str | float], str]
_DOUBLE = 1.7976931348623157e308
#: What a JSON object may hold beside the rows themselves, and a number at its longest.
_FRAME, _CELL = 4096, 64


@dataclass(frozen=True)
class Asked:
    """Rows that fit.

    Attributes
    ----------
    rows : list of dict
        Field -> float, name of a level, or None for a missing cell.
    notes : tuple of str
        What of them was clipped, by field; no value.
    """

    rows: list[dict[str, Any]]
    notes: tuple[str, ...]


class RowReader:
    """Reads rows as the declared columns of a model say.

    Parameters
    ----------
    schema : Schema
        Of the model's table; label and id are left aside.
    most : int
        Rows of one request.
    """

    def __init__(self, schema: Schema, most: int = MOST_ROWS) -> None:
        self.schema = schema
        self.most = most
        self.columns: tuple[Column, ...] = tuple(
            column for column in schema.columns if column.role in ("public", "private")
        )
        self._others = {column.name: column.role for column in schema.columns if column not in self.columns}
        self._columns = {column.name: column for column in self.columns}
        # Looked up once, since every cell would pay for it: columns, and the spellings of levels.
        self._plan: tuple[tuple[str, Any, _Spellings | None], ...] = tuple(
            (column.name, column, None if column.numeric else _spellings(column.levels))
            for column in self.columns
        )

    @property
    def body_limit(self) -> int:
        """Bytes that a body of `most` rows can need; public."""
        longest = sum(
            6 * len(column.name) + _CELL + 6 * max((len(level) for level in column.levels), default=0)
            for column in self.columns
        )
        return _FRAME + self.most * (longest + _CELL)

    def read(self, rows: Any, place: str = "rows") -> Asked:
        """Return the rows of a body.

        Parameters
        ----------
        rows : list of dict
            Straight from JSON.
        place : str
            Name of the member that holds them.

        Raises
        ------
        ProblemError
            Names each field at fault, up to a bound; never a value.
        """
        faults = Faults()
        if not isinstance(rows, list) or not 0 < len(rows) <= self.most:
            faults.add(pointer(place), place, f"Send a list of 1 to {self.most} rows.")
            faults.raise_if_any()
        clipped: dict[str, int] = {}
        read = []
        for index, row in enumerate(rows):
            read.append(self._row(row, (place, index), faults, clipped))
            if faults.full:
                break
        faults.raise_if_any()
        return Asked(read, _notes(clipped))

    def read_one(self, row: Any) -> Asked:
        """Return the one row of a body's ``row``; as `read`."""
        return self._one(row, "null")

    def _one(self, row: Any, empty: str) -> Asked:
        faults, clipped = Faults(), {}
        read = self._row(row, ("row",), faults, clipped, empty)
        faults.raise_if_any()
        return Asked([read], _notes(clipped))

    def _row(
        self,
        row: Any,
        place: tuple[str | int, ...],
        faults: Faults,
        clipped: dict[str, int],
        empty: str = "null",
    ) -> dict[str, Any]:
        if not isinstance(row, dict):
            faults.add(pointer(*place), str(place[0]), "A row is an object: the fields by their names.")
            return {}
        if row.keys() != self._columns.keys():
            self._names(row, place, faults)
        read = {}
        for name, column, spellings in self._plan:
            if name not in row:
                continue
            cell = row[name]
            if spellings is None:
                value, wrong = _number(column, cell, empty)
                if value is not None and not column.lower <= value <= column.upper:
                    clipped[name] = clipped.get(name, 0) + 1
            else:
                value, wrong = _level(column, spellings, cell, empty)
            if wrong:
                faults.add(pointer(*place, name), name, wrong)
            read[name] = value
        return read

    def _names(self, row: Mapping[str, Any], place: tuple[str | int, ...], faults: Faults) -> None:
        for name in self._columns:
            if name not in row:
                rule = (
                    "send null for a missing cell" if self._columns[name].missing != "reject" else "send it"
                )
                faults.add(pointer(*place, name), name, f"The field is left out; {rule}.")
        for name in row:
            if name in self._columns:
                continue
            if name in self._others:
                said, detail = name, f"The field is the {self._others[name]} of the table; leave it out."
            else:
                said, detail = spoken(name), "The schema declares no such field; leave it out."
            faults.add(pointer(*place, said), said, detail)
            if faults.full:
                return

    def of_form(self, fields: Mapping[str, str]) -> Asked:
        """Return the one row of a form, whose cells are texts; an empty one is missing.

        Raises
        ------
        ProblemError
        """
        row: dict[str, Any] = {}
        for name, text in fields.items():
            column = self._columns.get(name)
            stripped = text.strip()
            if column is None or not column.numeric:
                row[name] = None if stripped == "" else text
                continue
            try:
                row[name] = None if stripped == "" else float(stripped)
            except ValueError:
                row[name] = text
        return self._one(row, "an empty field")


def _number(column: Column, cell: Any, empty: str) -> tuple[float | None, str]:
    if type(cell) is float and -_DOUBLE <= cell <= _DOUBLE:  # nearly all
        return cell, ""
    if cell is None:
        return None, _needed(column)
    if isinstance(cell, bool) or not isinstance(cell, int | float) or not -_DOUBLE <= cell <= _DOUBLE:
        unit = f" in {column.unit}" if column.unit else ""
        null = "" if column.missing == "reject" else f", or {empty} for a missing cell"
        return None, f"Send a number{unit}, from {column.lower:g} to {column.upper:g}{null}."
    return float(cell), ""


def _level(column: Column, spellings: _Spellings, cell: Any, empty: str) -> tuple[str | None, str]:
    if cell is None:
        return None, _needed(column)
    if isinstance(cell, str | int | float):
        level = spellings.get(_spelling(cell))
        if level is not None:
            return level, ""
    more = ", ..." if len(column.levels) > _LISTED else ""
    null = "" if column.missing == "reject" else f"; {empty} for a missing cell"
    return None, f"Send one of the declared categories: {', '.join(column.levels[:_LISTED])}{more}{null}."


def _spelling(cell: str | float) -> tuple[bool, str | float]:
    # To Python, True is 1.
    return isinstance(cell, bool), cell


@lru_cache(maxsize=1024)
def _spellings(levels: tuple[str, ...]) -> _Spellings:
    """Return the JSON values that stand for each level: its text, and the number or truth that it spells."""
    found: _Spellings = {}
    for level in levels:
        found[_spelling(level)] = level
        truth = {"true": True, "false": False}.get(level.lower())
        if truth is not None:
            found[_spelling(truth)] = level
        number = number_of_text(level)
        if truth is None and math.isfinite(number) and label(number) == label(level):
            found[_spelling(number)] = level
    return found


def _needed(column: Column) -> str:
    return "A value is needed here: the schema takes no missing cell." if column.missing == "reject" else ""


def _notes(clipped: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(
        f"{name}: {count} cell{'s' if count != 1 else ''} beyond the declared bounds, clipped"
        for name, count in clipped.items()
    )


def rows_of(body: Mapping[str, Any], reader: RowReader) -> Asked:
    """Return the rows of a body, which has either ``row`` or ``rows``.

    Raises
    ------
    ProblemError
    """
    faults = Faults()
    for name in body:
        if name not in ("row", "rows", "request_id"):
            said = spoken(name)
            faults.add(pointer(said), said, "There is no such member; send row or rows, and request_id.")
    faults.raise_if_any()
    if ("row" in body) == ("rows" in body):
        raise unreadable("Send either 'row', one object, or 'rows', a list of objects.", "rows")
    return reader.read_one(body["row"]) if "row" in body else reader.read(body["rows"])


def json_schema(columns: Iterable[Column]) -> dict[str, Any]:
    """Return the JSON schema of one row, for the OpenAPI document."""
    columns = tuple(columns)
    return {
        "type": "object",
        "properties": {column.name: _cell_schema(column) for column in columns},
        "required": [column.name for column in columns],
        "additionalProperties": False,
    }


def _cell_schema(column: Column) -> dict[str, Any]:
    nullable = column.missing != "reject"
    words = " ".join(part for part in (column.note, "null: missing." if nullable else "") if part)
    if not column.numeric:
        found: dict[str, Any] = {"enum": _enumerated(column, nullable)}
        return {**found, "description": words} if words else found
    unit = f"In {column.unit}. " if column.unit else ""
    span = f"{unit}Clipped to {column.lower:g} ... {column.upper:g}."
    return {
        "type": ["number", "null"] if nullable else "number",
        # No minimum, no maximum: readers take 1.7976931348623157e308 for that decimal or for the double.
        "description": f"{span} {words}".strip(),
    }


def _enumerated(column: Column, nullable: bool) -> list[Any]:
    values = [int(value) if _whole(value) else value for _, value in _spellings(column.levels)]
    return [*values, *([None] if nullable else [])]


def _whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def example_row(columns: Sequence[Column]) -> dict[str, Any]:
    """Return a row that fits, made of declarations alone: middles of bounds and first categories."""
    return {
        column.name: float(f"{column.inverse([column.middle])[0]:.4g}")
        if column.numeric
        else column.levels[0]
        for column in columns
    }
