"""The schema of a table: its columns, its privacy unit, and who says so."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from confide.errors import SchemaError
from confide.privacy.adjacency import Adjacency
from confide.schema.column import Column
from confide.schema.lines import key_lines, nearest_line
from confide.schema.rules import TABLE_KEYS, Problem, SchemaFileError, plain, read_column, suggestion

_FORMAT = "confide-schema-1"


@dataclass(frozen=True)
class Schema:
    """Everything that is public about a table by declaration.

    Parameters
    ----------
    columns : sequence of Column
        In the order in which they are encoded. At most one label and one id.
    name : str
        Name of the table.
    declared_by : str
        Who declares the roles, bounds and categories of all columns that name nobody themselves.
    unit : str
        What one privacy unit is called. Default ``"row"``; with an id column ``"person"``. Without an id
        column the word names one row (such as ``"person-year"``), and ``"person"`` is refused.
    max_rows_per_id : int, optional
        Required with, and only with, an id column: the first so many rows of each id in file order are kept.
    note : str
        Free text.

    Raises
    ------
    SchemaError
        With all broken rules, before any data is read.

    Notes
    -----
    Keeping the first m rows of each id bounds contributions under each adjacency: adding or removing a
    person adds or removes at most m rows and leaves the kept rows of all others alone (add_remove_one);
    under the replacement relations the id column and n are public structure, a person's rows are replaced
    in place, and the kept rows are a function of the public ids alone.
    """

    columns: tuple[Column, ...]
    name: str = "table"
    declared_by: str = ""
    unit: str = ""
    max_rows_per_id: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        columns = tuple(self.columns)
        for column in columns:
            if not isinstance(column, Column):
                raise SchemaError(
                    f"A schema's column is {type(column).__name__}.", "Pass objects of class Column."
                )
        object.__setattr__(self, "columns", columns)
        raw = {key: getattr(self, key) for key in TABLE_KEYS}
        problems = _table_problems(raw) + _set_problems([(c.name, c.role) for c in columns], raw)
        names: set[str] = set()
        for column in columns:
            if column.role != "id" and names.intersection(column.feature_names):
                fact = "an encoded name such as column=category is also the name of another column."
                problems.append(Problem(("columns", column.name), fact, "Rename one of them."))
            names.update(column.feature_names if column.role != "id" else ())
        if problems:
            raise SchemaFileError("declaration", problems)
        if not self.unit:
            object.__setattr__(self, "unit", "person" if self.id is not None else "row")

    # ---- columns ------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"There is no column {name!r}.", suggestion(name, self.names))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all declared columns."""
        return tuple(column.name for column in self.columns)

    def of_role(self, role: str) -> tuple[Column, ...]:
        """Return the columns of one role, in order."""
        return tuple(column for column in self.columns if column.role == role)

    @property
    def public(self) -> tuple[Column, ...]:
        """The public columns."""
        return self.of_role("public")

    @property
    def private(self) -> tuple[Column, ...]:
        """The private columns, without the label."""
        return self.of_role("private")

    @property
    def label(self) -> Column | None:
        """The label column, if one is declared."""
        return next(iter(self.of_role("label")), None)

    @property
    def id(self) -> Column | None:
        """The id column, if one is declared."""
        return next(iter(self.of_role("id")), None)

    @property
    def per_person(self) -> bool:
        """Whether a privacy unit is all rows of one id (else: one row)."""
        return self.id is not None

    def features(self) -> Schema:
        """Return the schema of the public columns alone: what a row needs for a prediction.

        It encodes them as this one does, asks for no label and no id, and keeps every row.
        """
        return Schema(self.public, name=self.name, declared_by=self.declared_by, note=self.note)

    # ---- who declared what ------------------------------------------------------------------------------

    def declarer(self, column: Column) -> str:
        """Return who declares `column`: itself, else the table; empty where nobody is named."""
        return column.declared_by or self.declared_by

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical text of the whole schema."""
        return _sha256({"format": _FORMAT, **self.to_dict(), "order": list(self.names)})

    @cached_property
    def declaration(self) -> str:
        """SHA-256 (hex) over who declared which columns public: travels in every guarantee."""
        public = [[c.name, c.role, self.declarer(c)] for c in self.columns if c.role in ("public", "id")]
        return _sha256({"format": _FORMAT, "table": self.name, "unit": self.unit, "public": public})

    @cached_property
    def secrets(self) -> str:
        """SHA-256 (hex) over what neighbouring tables may differ in: unit, id, label and private columns.

        Two schemas with the same secrets protect the same cells of the same units, so that their releases
        may share a budget; public columns, bounds and notes may differ.
        """
        private = sorted(column.name for column in self.columns if column.role == "private")
        label, who = (None if column is None else column.name for column in (self.label, self.id))
        what = {
            "unit": self.unit,
            "id": who,
            "rows": self.max_rows_per_id,
            "label": label,
            "private": private,
        }
        return _sha256({"format": _FORMAT, **what})

    def require(self, adjacency: Adjacency | str, *, label: bool = True) -> None:
        """Check that the schema fits a neighbouring relation, before any data is read.

        Raises
        ------
        SchemaError
            If the label is missing (and `label` asks for one); if private columns stand beside
            REPLACE_LABEL, which protects labels alone; or if a column rejects missing values under a
            relation that protects whole rows, where the refusal itself would tell neighbours apart.
        """
        relation = Adjacency.parse(adjacency)
        if label and self.label is None:
            raise SchemaError("The schema has no label column.", "Give one column role = 'label'.")
        if relation is Adjacency.REPLACE_LABEL and self.private:
            raise SchemaError(
                f"Column {self.private[0].name!r} is private, and 'replace_label' protects labels alone.",
                "Use adjacency 'replace_private_part', or leave the private columns out.",
            )
        if relation in (Adjacency.ADD_REMOVE_ONE, Adjacency.REPLACE_ONE):
            for column in self.columns:
                if column.missing == "reject":
                    other = "drop" if column.role == "id" else "impute"
                    raise SchemaError(
                        f"Column {column.name!r} rejects missing values, and {relation.value!r} keeps whole "
                        "rows secret: the refusal would tell neighbours apart.",
                        f"Declare missing = '{other}'.",
                    )

    # ---- reading and writing ------------------------------------------------------------------------------

    @classmethod
    def of(cls, schema: Schema | str | Path | Mapping[str, Any]) -> Schema:
        """Return a schema from itself, the path of a file, or a dictionary."""
        if isinstance(schema, Schema):
            return schema
        if isinstance(schema, Mapping):
            return cls.from_dict(schema)
        if isinstance(schema, (str, Path)):
            return cls.load(schema)
        raise SchemaError(
            f"The 'schema' parameter is {type(schema).__name__}.", "Pass a Schema, a dictionary, or a path."
        )

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a ``schema.toml``.

        Raises
        ------
        SchemaError
            Names the file and, for each problem, the column and the line.
        """
        path = Path(path)
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise SchemaError(
                f"The schema file {path} cannot be read ({error.strerror}).",
                "Write one with `confide schema init FILE`.",
            ) from None
        except UnicodeDecodeError:
            raise SchemaError(f"The schema file {path} is not UTF-8 text.", "Save it as UTF-8.") from None
        return cls.from_toml(text, source=path.name)

    @classmethod
    def from_toml(cls, text: str, *, source: str = "text") -> Schema:
        """Read a schema from the text of a ``schema.toml``; `source` names it in messages."""
        text = text.replace("\r\n", "\n")
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"The schema {source} is not TOML: {error}.", "Mend that line.") from None
        fields, problems = _read(data)
        if problems:
            lines = key_lines(text)
            placed = [problem.at(nearest_line(lines, problem.path)) for problem in problems]
            raise SchemaFileError(source, sorted(placed, key=lambda p: p.line or 0))
        return cls(**fields)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """Build a schema from ``{"table": {...}, "columns": {name: {...}}}``, as in the TOML file."""
        fields, problems = _read(data)
        if problems:
            raise SchemaFileError("dictionary", problems)
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that `from_dict` reads; defaults are left out."""
        table: dict[str, Any] = {"name": self.name}
        if self.unit != ("row" if self.id is None else "person"):
            table["unit"] = self.unit
        for key in ("declared_by", "max_rows_per_id", "note"):
            if getattr(self, key):
                table[key] = getattr(self, key)
        return {"table": table, "columns": {column.name: column.to_dict() for column in self.columns}}

    def to_toml(self) -> str:
        """Return the text of a ``schema.toml`` that `from_toml` reads back to an equal schema."""
        data = self.to_dict()
        parts = ["[table]", *_toml_pairs(data["table"])]
        for name, values in data["columns"].items():
            parts += ["", f"[columns.{toml_key(name)}]", *_toml_pairs(values)]
        return "\n".join(parts) + "\n"


def _read(data: Any) -> tuple[dict[str, Any], list[Problem]]:
    """Check a whole declaration of plain values; return the arguments of `Schema` and all problems."""
    if not isinstance(data, Mapping):
        return {}, [Problem((), f"it is {type(data).__name__}.", "Use tables 'table' and 'columns'.")]
    problems = [
        Problem((key,), f"there is no table {key!r}.", suggestion(str(key), ("table", "columns")))
        for key in data
        if key not in ("table", "columns")
    ]
    table = data.get("table", {})
    if not isinstance(table, Mapping):
        problems.append(Problem(("table",), "'table' is no table.", "Write [table] and its keys below."))
        table = {}
    problems += [
        Problem(("table", key), f"there is no key {key!r}.", suggestion(str(key), TABLE_KEYS))
        for key in table
        if key not in TABLE_KEYS
    ]
    raw = {key: table[key] for key in TABLE_KEYS if key in table}
    problems += _table_problems(raw)
    declared = data.get("columns", {})
    if not isinstance(declared, Mapping):
        problems.append(Problem(("columns",), "'columns' is no table.", "Write [columns.NAME] for each."))
        declared = {}
    arguments, roles = [], []
    for name, values in declared.items():
        if not isinstance(values, Mapping):
            problems.append(Problem(("columns", str(name)), "it is no table.", f"Write [columns.{name}]."))
            continue
        fields, wrong = read_column(name, values)
        problems += wrong
        roles.append((str(name), fields.get("role")))
        arguments.append(fields)
    # Where the columns stand under a misspelt key, or are no tables, that is the one problem to tell.
    if roles or not problems:
        problems += _set_problems(roles, raw)
    if problems:
        return {}, problems
    return {**raw, "columns": tuple(Column(**fields) for fields in arguments)}, []


def _table_problems(raw: Mapping[str, Any]) -> list[Problem]:
    problems = []
    for key in ("name", "declared_by", "unit", "note"):
        if not isinstance(raw.get(key, ""), str):
            problems.append(Problem(("table", key), f"{key!r} is {raw[key]!r}.", "Use a text in quotes."))
    rows = raw.get("max_rows_per_id")
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows < 2**31):
        problems.append(
            Problem(
                ("table", "max_rows_per_id"), f"'max_rows_per_id' is {rows!r}.", "Use a whole number >= 1."
            )
        )
    return problems


def _set_problems(roles: list[tuple[str, str | None]], raw: Mapping[str, Any]) -> list[Problem]:
    """Rules that concern several columns at once."""
    if not roles:
        return [Problem(("columns",), "no column is declared.", "Add [columns.NAME] for each column in use.")]
    problems = []
    for role in ("label", "id"):
        named = [name for name, held in roles if held == role]
        for name in named[1:]:
            fact = f"a second {role} column; {named[0]!r} is one already."
            problems.append(Problem(("columns", name, "role"), fact, "Give one of them another role."))
    names = [name for name, _ in roles]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        problems.append(Problem(("columns", name), "the name is declared twice.", "Remove one."))
    has_id = any(role == "id" for _, role in roles)
    if has_id and raw.get("max_rows_per_id") is None:
        fact = "an id column needs 'max_rows_per_id' in [table]."
        name = next(name for name, role in roles if role == "id")
        problems.append(Problem(("columns", name, "role"), fact, "Declare how many rows of an id may count."))
    if not has_id and raw.get("max_rows_per_id") is not None:
        fact = "'max_rows_per_id' is declared without an id column."
        remedy = "Give the column that identifies a person role = 'id'."
        problems.append(Problem(("table", "max_rows_per_id"), fact, remedy))
    if not has_id and raw.get("unit") == "person":
        fact = "the unit is 'person', and no column has role = 'id'."
        problems.append(Problem(("table", "unit"), fact, "Name an id column, or say what one row is."))
    if has_id and raw.get("unit") == "row":
        fact = "the unit is 'row', and an id column makes it all rows of one id."
        problems.append(Problem(("table", "unit"), fact, "Name the unit, or remove the id column."))
    return problems


def _sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def toml_key(name: str) -> str:
    """Return a name as a TOML key, in quotes where it needs them."""
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else toml_text(name)


def toml_text(text: str) -> str:
    """Return a text as a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_pairs(values: Mapping[str, Any]) -> Iterable[str]:
    for key, value in values.items():
        if isinstance(value, str):
            shown = toml_text(value)
        elif isinstance(value, list):
            shown = f"[{', '.join(map(toml_text, value))}]"
        else:
            shown = plain(value)
        yield f"{key} = {shown}"
