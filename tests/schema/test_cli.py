"""``confide schema init`` and ``confide schema check``."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from confide.cli.schema import app
from confide.errors import DataError
from confide.schema import Schema, Table
from confide.schema.template import drafts, interview, template

runner = CliRunner()

#: Every value here is easy to find in a text, and none is in the template's own words.
VALUES: dict[str, list[Any]] = {
    "age": [7301, 7302, 7399],
    "land": ["ZETAPOLIS", "OMEGAVILLE", "ZETAPOLIS"],
    "fee": [0.73015, 0.73999, 0.731],
    "member": [True, False, True],
    "we ird": ["QQ1", "QQ2", "QQ3"],
}
LEAKS = ("73", "ZETA", "OMEGA", "QQ")


@pytest.fixture(params=["csv", "parquet", "feather"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"visits data.{request.param}"
    data = pd.DataFrame(VALUES).astype({"land": "category"})
    if request.param == "csv":
        data.to_csv(path, index=False)
    elif request.param == "parquet":
        data.to_parquet(path)  # with statistics, pandas metadata and a dictionary
    else:
        data.to_feather(path)
    return path


def test_init_copies_no_value(file: Path) -> None:
    done = runner.invoke(app, ["init", str(file), "--non-interactive"])
    assert done.exit_code == 0, done.output
    target = file.with_suffix(".toml")
    text = target.read_text()
    assert not [leak for leak in LEAKS if leak in text]
    assert list(tomllib.loads(text)["columns"]) == list(VALUES)
    assert "lower = " not in re.sub(r"#.*", "", text)
    # The blanks are named one by one, and what the file's types tell is filled in.
    checked = runner.invoke(app, ["check", str(target), "--json"])
    assert checked.exit_code == 4
    problems = json.loads(checked.stdout)["error"]["problems"]
    assert {p["column"] for p in problems} == set(VALUES)
    lines = text.splitlines()
    for problem in problems:
        if problem["fact"] == "'role' is blank.":
            assert lines[problem["line"] - 1].startswith('role = ""')
    typed = file.suffix != ".csv"
    assert ("categories = [false, true]" in text) is typed


def test_the_head_of_a_schema_names_its_check_ready_to_be_pasted(file: Path) -> None:
    assert runner.invoke(app, ["init", str(file), "--non-interactive"]).exit_code == 0
    assert "confide schema check 'visits data.toml'" in file.with_suffix(".toml").read_text()


def test_init_does_not_overwrite(file: Path) -> None:
    target = file.with_suffix(".toml")
    target.write_text("precious")
    done = runner.invoke(app, ["init", str(file)])
    assert done.exit_code == 2
    assert target.read_text() == "precious"
    assert "--force" in done.stderr
    assert runner.invoke(app, ["init", str(file), "--force"]).exit_code == 0
    assert target.read_text() != "precious"
    other = file.parent / "other.toml"
    done = runner.invoke(app, ["init", str(file), "-o", str(other), "--json"])
    assert json.loads(done.stdout)["columns"] == list(VALUES)
    assert other.exists()
    assert runner.invoke(app, ["init", str(file), "-o", str(file.parent / "no" / "x.toml")]).exit_code == 2


def test_an_interview_makes_a_schema_that_reads_the_file(file: Path) -> None:
    answers = {
        "Who": "the clinic",
        "age: role": "public", "age: kind": "numeric", "age: public lower": "0", "age: public upper": "1e4",
        "land: role": "public", "land: kind": "categorical", "land: public cat": 'A, OMEGAVILLE ,say "B"',
        "fee: role": "label", "fee: kind": "numeric", "fee: public lower": "0", "fee: public upper": "10.5",
        "member: role": "private", "member: kind": "boolean",
        "we ird: role": "id",
    }  # fmt: skip

    def ask(question: str, default: str) -> str:
        return next((answer for start, answer in answers.items() if question.startswith(start)), default)

    columns, declared_by = interview(drafts(file), ask)
    schema = Schema.from_toml(template(columns, table="t", declared_by=declared_by))
    assert schema.declared_by == "the clinic"
    assert schema["land"].categories == ("A", "OMEGAVILLE", 'say "B"')
    assert schema["age"].upper == 10_000
    assert schema["member"].categories == ("false", "true")
    table = Table.read(file, schema)
    assert table.n_rows == 3
    assert table.label.tolist() == VALUES["fee"]
    skipped, _ = interview(drafts(file), lambda question, default: "skip" if "role" in question else "")
    assert skipped == []
    blank, _ = interview(drafts(file), lambda question, default: "")
    assert "lower = " not in re.sub(r"#.*", "", template(blank, table="t"))


def test_a_terminal_is_asked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confide.cli.schema._interactive", lambda: True)
    lines = ["me", "label", "numeric", "0", "9", "skip", "skip", "skip", "skip"]
    done = runner.invoke(app, ["init", str(file)], input="\n".join(lines) + "\n")
    assert done.exit_code == 0, done.output
    schema = Schema.load(file.with_suffix(".toml"))
    assert schema.declared_by == "me"
    assert schema.names == ("age",)
    assert schema["age"].bounds == (0, 9)


GOOD = """[table]
name = "visits"
max_rows_per_id = 2

[columns.age]
role = "public"
lower = 0
upper = 9999
unit = "years"
declared_by = "the [bold]board"

[columns.fee]
role = "label"
lower = 0
upper = 2
impute = 1

[columns."we ird"]
role = "id"
"""


def test_check_prints_and_warns(file: Path) -> None:
    path = file.parent / "good.toml"
    path.write_text(GOOD)
    schema = Schema.load(path)
    done = runner.invoke(app, ["check", str(path), str(file)])
    assert done.exit_code == 0, done.output
    for word in ("age", "public", "0 to 9999", "years", "impute 1", "[bold]", "person", schema.digest):
        assert word in done.stdout
    assert "Nobody is named as declaring: fee, we ird" in done.stderr
    facts = json.loads(runner.invoke(app, ["check", str(path), "--json"]).stdout)
    assert facts["ok"] is True
    assert facts["digest"] == schema.digest
    assert facts["unit"] == "person"
    assert [column["name"] for column in facts["columns"]] == ["age", "fee", "we ird"]


def test_check_fails_with_the_exit_code_of_the_failure(file: Path) -> None:
    path = file.parent / "bad.toml"
    path.write_text(GOOD.replace("upper = 2", "upper = -2"))
    done = runner.invoke(app, ["check", str(path)])
    assert done.exit_code == 4
    assert "line 14, column 'fee'" in done.stderr
    path.write_text(GOOD.replace("columns.age", "columns.agee"))
    done = runner.invoke(app, ["check", str(path), str(file), "--json"])
    assert done.exit_code == 4
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "data"
    assert "no column 'agee'" in error["fact"]
    assert runner.invoke(app, ["check", str(file.parent / "absent.toml")]).exit_code == 4
    assert runner.invoke(app, ["init", str(file.parent / "absent.csv")]).exit_code == 4


def test_check_reads_no_row(tmp_path: Path) -> None:
    # The second line is no row of this header: whoever reads it must fail.
    (tmp_path / "t.csv").write_text("age,fee,we ird\n1,2\n")
    (tmp_path / "good.toml").write_text(GOOD)
    assert runner.invoke(app, ["check", str(tmp_path / "good.toml"), str(tmp_path / "t.csv")]).exit_code == 0


def test_check_warns_of_types_that_cannot_fit(tmp_path: Path) -> None:
    table = pa.table({"age": pa.array([0], pa.timestamp("s")), "fee": pa.array([[1]]), "we ird": [1]})
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "good.toml").write_text(GOOD)
    done = runner.invoke(app, ["check", str(tmp_path / "good.toml"), str(tmp_path / "t.parquet")])
    assert done.exit_code == 0
    assert "'age' holds dates or times" in done.stderr
    assert "'fee' holds lists or structures" in done.stderr


def test_init_refuses_names_that_stand_twice(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,a\n1,2\n")
    done = runner.invoke(app, ["init", str(tmp_path / "t.csv")])
    assert done.exit_code == 4
    assert "stands twice" in done.stderr


HEADERLESS = {
    "number": "Jane Roe,38,HIV+,120000\nJohn Doe,41,none,90000\n",
    "missing": "Jane Roe,,HIV+\nJohn Doe,x,y\n",
    "word": "Jane Roe,N/A,HIV+\nJohn Doe,x,y\n",
    "truth": "Jane Roe,TRUE,HIV+\nJohn Doe,x,y\n",
}


@pytest.mark.parametrize("text", HEADERLESS.values(), ids=HEADERLESS)
def test_a_first_row_is_not_taken_for_names(text: str, tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    path.write_text(text)
    for more in ([], ["--json"]):
        done = runner.invoke(app, ["init", str(path), "--non-interactive", *more])
        assert done.exit_code == 4
        assert "looks like data" in done.output
        assert "--header-ok" in done.output
        assert not [cell for cell in ("Jane", "38", "HIV", "120000") if cell in done.output]
    assert not path.with_suffix(".toml").exists()
    # The first row is offered nowhere as a name, even where a declared one is close.
    declared = {"table": {}, "columns": {"Jane Ro": {"role": "label", "lower": 0, "upper": 1}}}
    (tmp_path / "s.toml").write_text(Schema.from_dict(declared).to_toml())
    messages = [runner.invoke(app, ["check", str(tmp_path / "s.toml"), str(path)]).output]
    for door in (Table.read, Table.scan):
        with pytest.raises(DataError) as caught:
            door(path, declared)
        messages.append(str(caught.value))
    for message in messages:
        assert "no column 'Jane Ro'" in message
        assert "Jane Roe" not in message
    done = runner.invoke(app, ["init", str(path), "--non-interactive", "--header-ok"])
    assert done.exit_code == 0, done.output


def test_names_are_offered_by_check_alone(tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    path.write_text(",wages,age\n1,2,3\n")  # an unnamed index is no sign of data
    assert runner.invoke(app, ["init", str(path), "--non-interactive"]).exit_code == 0
    declared = {"table": {}, "columns": {"wage": {"role": "label", "lower": 0, "upper": 1}}}
    (tmp_path / "s.toml").write_text(Schema.from_dict(declared).to_toml())
    assert "'wages'" in runner.invoke(app, ["check", str(tmp_path / "s.toml"), str(path)]).output
    for door in (Table.read, Table.scan):
        with pytest.raises(DataError) as caught:
            door(path, declared)
        assert "wages" not in str(caught.value)


def test_cells_of_the_first_row_that_are_equal_tell_nothing(tmp_path: Path) -> None:
    declared = {"table": {}, "columns": {"y": {"role": "label", "lower": 0, "upper": 1}}}
    path, spec = tmp_path / "h.csv", tmp_path / "s.toml"
    spec.write_text(Schema.from_dict(declared).to_toml())
    told = set()
    for row in ("1,1,2", "1,3,2"):
        path.write_text(f"{row}\n1,2,3\n")
        for door in (Table.read, Table.scan):
            with pytest.raises(DataError) as caught:
                door(path, declared)
            told.add(str(caught.value))
        told.add(runner.invoke(app, ["check", str(spec), str(path)]).stderr.replace("\n", " ").strip())
    assert all("no column 'y'" in text for text in told)
    assert len(told) == 2  # of the readers, and of the command


def test_init_tells_of_another_delimiter_and_repeats_it(tmp_path):
    from confide.cli.app import app

    file = tmp_path / "a b.csv"
    file.write_text("age;wage\n1;2\n")
    base = ["schema", "init", str(file), "--non-interactive", "--force"]
    plain = CliRunner().invoke(app, base)
    assert "with 1 column." in plain.output
    assert "--delimiter ';'" in plain.stderr
    right = CliRunner().invoke(app, [*base, "--delimiter", ";"])
    assert "with 2 columns." in right.output
    assert f"'{file}' --delimiter ';'" in right.output
    assert right.stderr == ""
