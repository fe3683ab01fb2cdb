"""What may be declared, and what a message says when it is wrong."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest

from confide.errors import Failure, SchemaError
from confide.privacy.adjacency import Adjacency
from confide.schema import Column, Schema, SchemaFileError, Table

HEAD = '[table]\nname = "t"\n\n'


def problems(text: str) -> list[tuple[int | None, str | None, str]]:
    with pytest.raises(SchemaFileError) as caught:
        Schema.from_toml(text, source="t.toml")
    for problem in caught.value.problems:
        assert str(problem) in str(caught.value)
        assert f"line {problem.line}" in str(problem)
        assert problem.remedy
    return [(problem.line, problem.column, problem.fact) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("body", "line", "column", "words"),
    [
        ('[columns.a]\nrole = "public"\n', 4, "a", "neither bounds nor categories"),
        ('[columns.a]\nrole = "public"\nlower = 1\n', 4, "a", "'upper' is missing"),
        ("[columns.a]\nlower = 1\nupper = 2\n", 4, "a", "role is missing"),
        ('[columns.a]\nrole = ""\nlower = 1\nupper = 2\n', 5, "a", "'role' is blank"),
        ('[columns.a]\nrole = "Public"\nlower = 1\nupper = 2\n', 5, "a", "'role' is 'Public'"),
        ('[columns.a]\nrole = "public"\nlower = 2\nupper = 1\n', 6, "a", "'lower' is 2, not below 'upper' = 1"),
        ('[columns.a]\nrole = "public"\nlower = 2\nupper = 2\n', 6, "a", "'lower' is 2, not below"),
        ('[columns.a]\nrole = "public"\nlower = "2"\nupper = 3\n', 6, "a", "'lower' is '2'"),
        ('[columns.a]\nrole = "public"\nlower = true\nupper = 3\n', 6, "a", "'lower' is True"),
        ('[columns.a]\nrole = "public"\nlower = 0\nupper = inf\n', 7, "a", "'upper' is inf"),
        ('[columns.a]\nrole = "public"\nlower = nan\nupper = 1\n', 6, "a", "'lower' is nan"),
        ('[columns.a]\nrole = "public"\nlower = -1.7e308\nupper = 1.7e308\n', 7, "a", "no ordinary number"),
        ('[columns.a]\nrole = "public"\nlower = 0\nupper = 5e-324\n', 7, "a", "no ordinary number"),
        ('[columns.a]\nrole = "label"\nlower = 0\nupper = 3\ntransform = "log"\n', 6, "a", "needs 'lower' above 0"),
        ('[columns.a]\nrole = "label"\nlower = -1\nupper = 3\ntransform = "log1p"\n', 6, "a", "above -1"),
        ('[columns.a]\nrole = "label"\nlower = 0\nupper = 3\ntransform = "sqrt"\n', 8, "a", "'transform' is 'sqrt'"),
        ('[columns.a]\nrole = "label"\nlower = 0\nupper = 3\nimpute = 4\n', 8, "a", "'impute' is 4, outside"),
        ('[columns.a]\nrole = "label"\nlower = 0\nupper = 3\nimpute = nan\n', 8, "a", "'impute' is nan, outside"),
        ('[columns.a]\nrole = "label"\nlower = 0\nupper = 3\nimpute = "x"\n', 8, "a", "'impute' is 'x'"),
        ('[columns.a]\nrole = "label"\nlower = 0\nupper = 3\nmissing = "reject"\n', 8, "a", "cannot reject"),
        ('[columns.a]\nrole = "private"\ncategories = ["x"]\nmissing = "reject"\n', 7, "a", "cannot reject"),
        ('[columns.a]\nrole = "public"\ncategories = [\n  "x",\n  1,\n  1.0]\n', 9, "a", "'1' is the same as '1'"),
        ('[columns.a]\nrole = "public"\ncategories = ["x", " "]\n', 6, "a", "category ' ' is no text"),
        ('[columns.a]\nrole = "public"\ncategories = []\n', 6, "a", "empty"),
        ('[columns.a]\nrole = "public"\ncategories = "xyz"\n', 6, "a", "'categories' is 'xyz'"),
        ('[columns.a]\nrole = "public"\ncategories = ["x"]\nlower = 1\n', 7, "a", "takes no 'lower'"),
        ('[columns.a]\nrole = "public"\ncategories = ["x"]\nimpute = "y"\n', 7, "a", "'impute' is 'y'"),
        ('[columns.a]\nrole = "public"\ncategories = ["x"]\nkind = "number"\n', 7, "a", "'kind' is 'number'"),
        ('[columns.a]\nrole = "public"\nkind = "categorical"\n', 4, "a", "categories are missing"),
        ('[columns.a]\nrole = "public"\nlowr = 1\nupper = 2\n', 6, "a", "no key 'lowr'"),
        ('[columns.a]\nrole = "id"\nlower = 1\n', 6, "a", "an id column takes no 'lower'"),
        ('[columns.a]\nrole = "id"\n', 5, "a", "needs 'max_rows_per_id'"),
        ('[columns."a.b"]\nrole = "publik"\nlower = 1\nupper = 2\n', 5, "a.b", "'role' is 'publik'"),
        ('[columns]\n"ü x" = { role = "public", lower = 3, upper = 1 }\n', 5, "ü x", "'lower' is 3"),
        ('columns.a.role = "public"\ncolumns.a.lower = 3\ncolumns.a.upper = 1\n', None, None, ""),
        ('[columns.a]\nrole = "public"\nlower = 1\nupper = 2\nunit = 3\n', 8, "a", "'unit' is 3"),
        ('[columns]\na = 3\n', 5, "a", "it is no table"),
        ('[columns.""]\nrole = "public"\nlower = 1\nupper = 2\n', 4, "", "the name is ''"),
        ('[column.a]\nrole = "public"\n', 4, None, "no table 'column'"),
    ],
)  # fmt: skip
def test_each_broken_rule_has_its_line_and_column(
    body: str, line: int | None, column: str | None, words: str
) -> None:
    if body.startswith("columns."):  # dotted keys of the root must stand above the first table
        found = problems(body + "\n" + HEAD)
        assert (2, "a", "'lower' is 3, not below 'upper' = 1.") in found
        return
    found = problems(HEAD + body)
    assert any(at == line and name == column and words in fact for at, name, fact in found), found


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            '[table]\nmax_rows_per_id = 2\n[columns.a]\nrole="public"\nlower=0\nupper=1\n',
            2,
            "without an id column",
        ),
        (
            '[table]\nunit = "person"\n[columns.a]\nrole="public"\nlower=0\nupper=1\n',
            2,
            "no column has role = 'id'",
        ),
        ('[table]\nmax_rows_per_id = 0\n[columns.a]\nrole="id"\n', 2, "'max_rows_per_id' is 0"),
        ('[table]\nmax_rows_per_id = 1\nunit="row"\n[columns.a]\nrole="id"\n', 3, "the unit is 'row'"),
        ('[table]\nmax_rows_per_id = true\n[columns.a]\nrole="id"\n', 2, "'max_rows_per_id' is True"),
        ('[table]\nname = 3\n[columns.a]\nrole="public"\nlower=0\nupper=1\n', 2, "'name' is 3"),
        (
            '[table]\ndeclaredby = "x"\n[columns.a]\nrole="public"\nlower=0\nupper=1\n',
            2,
            "no key 'declaredby'",
        ),
        (
            '[columns.a]\nrole="label"\nlower=0\nupper=1\n[columns.b]\nrole="label"\nlower=0\nupper=1\n',
            6,
            "a second label column; 'a' is one already",
        ),
        (
            '[table]\nmax_rows_per_id = 1\n[columns.a]\nrole="id"\n[columns.b]\nrole="id"\n',
            6,
            "a second id column; 'a' is one already",
        ),
    ],
)
def test_rules_of_the_whole_table(text: str, line: int, words: str) -> None:
    found = problems(text)
    assert any(at == line and words in fact for at, _, fact in found), found


def test_a_spelling_mistake_is_answered_with_the_word() -> None:
    text = HEAD + '[columns.a]\nrole = "privat"\nlowr = 0\nupper = 1\n'
    with pytest.raises(SchemaFileError) as caught:
        Schema.from_toml(text)
    assert "Did you mean 'private'?" in str(caught.value)
    assert "Did you mean 'lower'?" in str(caught.value)


def test_all_problems_are_told_at_once_and_in_order() -> None:
    text = HEAD + '[columns.b]\nrole = "x"\nlower = 1\nupper = 0\n[columns.a]\nkind = "numeric"\n'
    lines = [line for line, _, _ in problems(text)]
    assert len(lines) >= 4
    assert lines == sorted(lines)


def test_syntax_errors_keep_their_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[table]\nname = \n")
    with pytest.raises(SchemaError, match=r"bad\.toml is not TOML.*line 2"):
        Schema.load(path)


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_files_that_are_no_text(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "s.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SchemaError, match="schema file"):
        Schema.load(path)


def test_windows_files_load(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(b'\xef\xbb\xbf[columns.a]\r\nrole = "label"\r\nlower = 0\r\nupper = 1\r\n')
    assert Schema.load(path).label is not None
    path.write_bytes(b'\xef\xbb\xbf[columns.a]\r\nrole = "label"\r\nlower = 2\r\nupper = 1\r\n')
    with pytest.raises(SchemaError, match="line 3, column 'a'"):
        Schema.load(path)


def test_no_bounds_is_an_error_before_any_data_is_read(tmp_path: Path) -> None:
    # F35: the data file does not even exist, and the schema is what the error is about.
    path = tmp_path / "s.toml"
    path.write_text('[columns.a]\nrole = "private"\n')
    for door in (Table.read, Table.scan):
        with pytest.raises(SchemaError, match="never takes them from the data"):
            door(tmp_path / "absent.csv", path)

    class Untouchable:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError("the data were touched")

    with pytest.raises(SchemaError, match="never takes them from the data"):
        Table.from_frame(Untouchable(), path)


def test_sample_weights_have_no_role() -> None:
    # F45: a weight changes the sensitivity; there is no way to smuggle one in.
    with pytest.raises(SchemaError, match="'role' is 'weight'"):
        Column("w", "weight", 0, 1)


def test_columns_are_frozen_and_normal() -> None:
    column = Column("a", "label", 0, np.int64(5), impute=2)
    assert (column.lower, column.upper, column.impute) == (0.0, 5.0, 2.0)
    assert all(type(value) is float for value in (column.lower, column.upper, column.impute))
    assert column == Column("a", "label", -0.0, 5.0, impute=2.0)
    assert Column("b", "public", kind="boolean") == Column("b", "public", categories=[False, True])
    assert Column("b", "public", categories=["x", "Other"]).levels == ("x", "Other", "other")
    assert Column("b", "public", categories=["other", "x"]).levels == ("other", "x")
    with pytest.raises(FrozenInstanceError):
        column.lower = 3  # type: ignore[misc]
    assert replace(column, lower=-1).lower == -1
    with pytest.raises(SchemaError):
        replace(column, lower=9)


def test_schema_rules_hold_in_code_too() -> None:
    a = Column("a", "label", 0, 1)
    for columns, words in [
        ((), "no column is declared"),
        ((a, a), "second label"),
        ((Column("x", "public", 0, 1), Column("x", "private", 0, 1)), "declared twice"),
        ((Column("c", "public", categories=["u"]), Column("c=u", "public", 0, 1)), "encoded name"),
        (("a",), "column is str"),
    ]:
        with pytest.raises(SchemaError, match=words):
            Schema(columns)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"no column 'aa'.*Did you mean 'a'"):
        Schema((a,))["aa"]
    with pytest.raises(SchemaError, match="'schema' parameter is int"):
        Schema.of(3)  # type: ignore[arg-type]


def test_units() -> None:
    a, who = Column("a", "label", 0, 1), Column("who", "id")
    assert Schema((a,)).unit == "row"
    assert not Schema((a,)).per_person
    assert Schema((a,), unit="person-year").unit == "person-year"
    assert Schema((a, who), max_rows_per_id=3).unit == "person"
    assert Schema((a, who), max_rows_per_id=3).per_person
    assert Schema((a, who), max_rows_per_id=3, unit="patient").unit == "patient"


def test_what_a_relation_asks_of_a_schema() -> None:
    public, label = Column("a", "public", 0, 1), Column("y", "label", 0, 1)
    private, strict = Column("p", "private", 0, 1), Column("s", "public", 0, 1, missing="reject")
    for relation in Adjacency:
        Schema((public, label)).require(relation)
        with pytest.raises(SchemaError, match="no label"):
            Schema((public,)).require(relation)
        Schema((public,)).require(relation, label=False)
    with pytest.raises(SchemaError, match="'p' is private"):
        Schema((private, label)).require("replace_label")
    Schema((private, label)).require("replace_private_part")
    for relation in ("replace_label", "replace_private_part"):
        Schema((strict, label)).require(relation)
    for relation in ("replace_one", "add_remove_one"):
        with pytest.raises(SchemaError, match="'s' rejects missing values"):
            Schema((strict, label)).require(relation)


def test_digest_and_declaration() -> None:
    def make(**changes: object) -> Schema:
        column = {"name": "a", "role": "public", "lower": 0, "upper": 1, **changes}
        return Schema((Column(**column), Column("y", "label", 0, 1)), declared_by="us")  # type: ignore[arg-type]

    base = make()
    assert len(base.digest) == len(base.declaration) == 64
    assert make(lower=0.0).digest == base.digest
    assert make(upper=2).digest != base.digest
    assert make(upper=2).declaration == base.declaration
    assert make(declared_by="them").declaration != base.declaration
    assert make(declared_by="us").declaration == base.declaration
    assert make(role="private").declaration != base.declaration
    swapped = Schema(base.columns[::-1], declared_by="us")
    assert swapped.digest != base.digest
    # Fixed for good: ledgers hold these.
    assert base.digest == "be42b31b0be1d2fc196fa8fed5490234fcd78c076d915b04b8dd295393893e28"
    assert base.declaration == "b8c32268bd05f5b3e38f537837c1824aa3b5364c2397b3a7d43203040d18c1ed"


def test_errors_travel_between_processes() -> None:
    with pytest.raises(SchemaFileError) as caught:
        Schema.from_toml('[columns.a]\nrole = "x"\n')
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.problems == caught.value.problems
    assert copy.failure is Failure.SCHEMA


def test_domains_in_words_name_what_any_other_cell_counts_as():
    for role, domain in (("public", "no, yes, other"), ("label", "no, yes (any other cell counts as no)")):
        assert Column("c", role, categories=["no", "yes"]).domain == domain
        assert Column("c", role, categories=["no", "other"]).domain == "no, other"
