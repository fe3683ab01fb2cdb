"""The rules of a declaration, checked on plain values, so that files, dictionaries and code share them.

Each broken rule becomes a `Problem` with the path of the key at fault; `Schema.load` adds the line of the
file. Everything here is public: the messages may quote what was declared.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from confide.errors import SchemaError
from confide.schema.cells import BLANKS, label
from confide.schema.lines import Path
from confide.schema.scale import SCALE_KEYS, read_scale

ROLES = ("public", "private", "label", "id")
KINDS = ("numeric", "categorical", "boolean")
TRANSFORMS = ("log", "log1p")
OTHER = "other"

COLUMN_KEYS = (
    "role", "kind", "lower", "upper", "categories", "impute", "missing", "transform",
    "unit", "declared_by", "note", *SCALE_KEYS,
)  # fmt: skip
TABLE_KEYS = ("name", "declared_by", "unit", "max_rows_per_id", "note")


@dataclass(frozen=True)
class Problem:
    """One broken rule: where it is, what is wrong, what to do."""

    path: Path
    fact: str
    remedy: str
    line: int | None = None

    @property
    def column(self) -> str | None:
        """Name of the column at fault, if it is one."""
        return str(self.path[1]) if len(self.path) > 1 and self.path[0] == "columns" else None

    def at(self, line: int | None) -> Problem:
        """Return the same problem with its line."""
        return replace(self, line=line)

    def __str__(self) -> str:
        places = [] if self.line is None else [f"line {self.line}"]
        if self.column is not None:
            places.append(f"column {self.column!r}")
        elif self.path and self.path[0] == "table":
            places.append("[table]")
        return f"{', '.join(places) or 'schema'}: {self.fact} {self.remedy}".strip()


class SchemaFileError(SchemaError):
    """A declaration with one or more broken rules, all of them named.

    Attributes
    ----------
    problems : tuple of Problem
        Each with the column and, for a file, the line.
    """

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"The schema {source} has {count} problem{'s' if count != 1 else ''}:"
        super().__init__("\n  ".join([head, *map(str, self.problems)]))

    def __reduce__(self) -> Any:
        return (_rebuild, (self.fact, self.problems))


def _rebuild(fact: str, problems: tuple[Problem, ...]) -> SchemaFileError:
    error = SchemaFileError("", problems)
    error.args = (fact, "")
    error.fact = fact
    return error


def read_column(name: Any, raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Check one column's declaration and bring its values to their canonical form.

    Parameters
    ----------
    name : str
        The column's name in the data.
    raw : mapping
        Values under the keys `COLUMN_KEYS`; ``None`` counts as absent.

    Returns
    -------
    fields : dict
        Arguments for `Column`; only meaningful when there are no problems.
    problems : list of Problem
    """
    reader = _ColumnReader(name, {key: value for key, value in raw.items() if value is not None})
    reader.read()
    return reader.fields, reader.problems


class _ColumnReader:
    def __init__(self, name: Any, raw: dict[str, Any]) -> None:
        self.name = name
        self.raw = raw
        self.fields: dict[str, Any] = {"name": name}
        self.problems: list[Problem] = []

    def wrong(self, key: str | None, fact: str, remedy: str = "", index: int | None = None) -> None:
        path: Path = ("columns", self.name if isinstance(self.name, str) else repr(self.name))
        if key is not None:
            path = (*path, key)
        if index is not None:
            path = (*path, index)
        self.problems.append(Problem(path, fact, remedy))

    def read(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            self.wrong(None, f"the name is {self.name!r}.", "Use a text that is not empty.")
        elif not _is_unicode(self.name):
            self.wrong(None, f"the name {self.name!r} holds half of a surrogate pair.", "Use Unicode text.")
        for key in self.raw:
            if key not in COLUMN_KEYS:
                self.wrong(key, f"there is no key {key!r}.", suggestion(key, COLUMN_KEYS))
        for key in ("unit", "declared_by", "note", "source"):
            self.fields[key] = self.text(key)
        role = self.choice("role", ROLES)
        if "role" not in self.raw:
            self.wrong(None, "the role is missing.", f"Add role = one of {quoted(ROLES)}.")
        self.fields["role"] = role
        if role == "id":
            self.read_id()
            return
        kind = self.kind()
        self.fields["kind"] = "categorical" if kind == "boolean" else kind
        if kind == "numeric":
            self.read_numeric()
        elif kind is not None:
            self.read_categories(kind)
        self.read_missing(role)

    def text(self, key: str) -> str:
        value = self.raw.get(key, "")
        if not isinstance(value, str):
            self.wrong(key, f"{key!r} is {value!r}.", "Use a text in quotes.")
            return ""
        return value

    def choice(self, key: str, options: tuple[str, ...]) -> str | None:
        value = self.raw.get(key)
        if value is None or (isinstance(value, str) and value in options):
            return value
        if value == "":
            self.wrong(key, f"{key!r} is blank.", f"Choose one of {quoted(options)}.")
        else:
            remedy = (
                suggestion(value, options) if isinstance(value, str) else f"Use one of {quoted(options)}."
            )
            self.wrong(key, f"{key!r} is {value!r}.", remedy)
        return None

    def kind(self) -> str | None:
        kind = self.choice("kind", KINDS)
        if "kind" in self.raw:
            return kind
        if "categories" in self.raw:
            return "categorical"
        if any(key in self.raw for key in ("lower", "upper", "mean", "deviation")):
            return "numeric"
        self.wrong(
            None,
            "neither bounds nor categories are declared, and Confide never takes them from the data.",
            "Declare lower and upper, mean and deviation, or categories, from public knowledge.",
        )
        return None

    def read_id(self) -> None:
        self.fields["kind"] = "id"
        for key in ("kind", "lower", "upper", "categories", "impute", "transform", *SCALE_KEYS):
            if self.raw.get(key, "") != "" and not (key == "kind" and self.raw[key] == "id"):
                self.wrong(key, f"an id column takes no {key!r}.", "Remove the key.")
        missing = self.choice("missing", ("drop", "reject"))
        self.fields["missing"] = missing or "drop"

    def read_numeric(self) -> None:
        if "categories" in self.raw:
            self.wrong("categories", "a numeric column takes no categories.", "Remove them, or the kind.")
        transform = self.choice("transform", TRANSFORMS)
        self.fields["transform"] = transform
        if any(self.raw.get(key, "") != "" for key in SCALE_KEYS):
            scale = read_scale(self.raw, self.finite, self.wrong)
            self.fields.update(scale)
            if not scale:
                return
            self.raw = {**self.raw, "lower": scale["lower"], "upper": scale["upper"]}
        lower, upper = self.bound("lower"), self.bound("upper")
        self.fields.update(lower=lower, upper=upper)
        if lower is None or upper is None:
            return
        if not lower < upper:
            remedy = (
                "Leave the column out: a declared constant carries no information."
                if lower == upper
                else "Swap them."
            )
            self.wrong("lower", f"'lower' is {plain(lower)}, not below 'upper' = {plain(upper)}.", remedy)
        elif transform == "log" and lower <= 0:
            self.wrong("lower", f"log needs 'lower' above 0, and it is {plain(lower)}.", "Raise it.")
        elif transform == "log1p" and lower <= -1:
            self.wrong("lower", f"log1p needs 'lower' above -1, and it is {plain(lower)}.", "Raise it.")
        else:
            span = transformed(upper, transform) - transformed(lower, transform)
            if not (math.isfinite(span) and 0 < span / 2 < math.inf and span > 1e-300):
                self.wrong(
                    "upper", "the distance between the bounds is no ordinary number.", "Narrow the bounds."
                )
        impute = self.raw.get("impute")
        if impute is None:
            return
        if not is_number(impute):
            self.wrong("impute", f"'impute' is {impute!r}.", "Use a number within the bounds.")
        elif not lower <= impute <= upper:
            self.wrong(
                "impute",
                f"'impute' is {plain(impute)}, outside the bounds {plain(lower)} to {plain(upper)}.",
                "Use a public constant within the bounds.",
            )
        else:
            self.fields["impute"] = float(impute) + 0.0

    def bound(self, key: str) -> float | None:
        value = self.raw.get(key)
        if value is None:
            self.wrong(
                None,
                f"{key!r} is missing, and Confide never takes a bound from the data.",
                f"Declare {key} from public knowledge.",
            )
            return None
        return self.finite(key)

    def finite(self, key: str) -> float | None:
        value = self.raw[key]
        if not is_number(value):
            self.wrong(key, f"{key!r} is {value!r}.", "Use a number.")
            return None
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.wrong(key, f"{key!r} is {number}.", "Use a finite number.")
            return None
        return number + 0.0  # no negative zero, which would print and hash differently

    def read_categories(self, kind: str) -> None:
        for key in ("lower", "upper", "transform", *SCALE_KEYS):
            if self.raw.get(key, "") != "":
                self.wrong(
                    key, f"a {kind} column takes no {key!r}.", "Remove it, or declare kind = 'numeric'."
                )
        categories = self.raw.get("categories")
        if categories is None:
            if kind == "boolean":
                categories = (False, True)
            else:
                self.wrong(
                    None,
                    "the categories are missing, and Confide never takes them from the data.",
                    'Declare categories = ["...", "..."] from public knowledge.',
                )
                return
        if isinstance(categories, (str, bytes, Mapping)) or not isinstance(categories, Iterable):
            self.wrong("categories", f"'categories' is {categories!r}.", "Use a list.")
            return
        names: list[str] = []
        seen: dict[str, str] = {}
        for index, value in enumerate(categories):
            if not isinstance(value, (str, int, float)) or not str(value).strip(BLANKS) or value != value:
                self.wrong("categories", f"category {value!r} is no text or number.", "Name it.", index)
                continue
            key = label(value)[0]
            shown = value.strip(BLANKS) if isinstance(value, str) else _spell(value)
            if key in seen:
                self.wrong(
                    "categories", f"category {shown!r} is the same as {seen[key]!r}.", "Remove one.", index
                )
                continue
            seen[key] = shown
            names.append(shown)
        if not names and not self.problems:
            self.wrong("categories", "the list of categories is empty.", "Declare at least one.")
        self.fields["categories"] = tuple(names)
        impute = self.raw.get("impute")
        if impute is None:
            return
        key = label(impute)[0] if isinstance(impute, (str, int, float)) else None
        if key in seen:
            self.fields["impute"] = seen[key]
        elif key == OTHER:
            self.fields["impute"] = OTHER
        else:
            self.wrong("impute", f"'impute' is {impute!r}.", "Use one of the categories, or 'other'.")

    def read_missing(self, role: str | None) -> None:
        missing = self.choice("missing", ("impute", "reject"))
        self.fields["missing"] = missing or "impute"
        if missing == "reject" and role in ("private", "label"):
            self.wrong(
                "missing",
                f"a {role} column cannot reject missing values: the refusal would tell that one is missing.",
                "Use missing = 'impute'.",
            )
        if missing == "reject" and "impute" in self.raw:
            self.wrong(
                "impute", "'impute' has no use where missing values are rejected.", "Remove one of the two."
            )


def suggestion(word: str, options: Iterable[str]) -> str:
    """Return "Did you mean ...?" for a close option, else the list of all."""
    options = tuple(options)
    close = difflib.get_close_matches(word.lower(), options, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"Use one of {quoted(options)}."


def quoted(options: Iterable[str]) -> str:
    """Return the options as a list in words."""
    return ", ".join(map(repr, options))


def is_number(value: Any) -> bool:
    """Whether a declared value is a number (true and false are not)."""
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float)) or (
        type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 and value.dtype.kind in "iuf"
    )


def plain(value: float) -> str:
    """Return the shortest text of a declared number: ``18``, not ``18.0``."""
    number = float(value)
    return str(int(number)) if abs(number) < 1e15 and number == int(number) else repr(number)


def transformed(value: float, transform: str | None) -> float:
    """Return the declared public transform of one number."""
    return {None: float, "log": math.log, "log1p": math.log1p}[transform](value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _spell(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else label(value)[0]
