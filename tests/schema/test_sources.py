"""The same table from every source, and what is refused (pitfalls F39 to F44)."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from confide.errors import DataError, ParameterError
from confide.schema import Column, Schema, Table

Same = Callable[[Any, Any], None]

FRAMES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "polars": pl.from_pandas,
    "polars lazy": lambda f: pl.from_pandas(f).lazy(),
    "arrow": pa.Table.from_pandas,
    "arrow chunks": lambda f: pa.concat_tables([pa.Table.from_pandas(f[:77]), pa.Table.from_pandas(f[77:])]),
    "object": lambda f: f.astype(object),
    "categorical": lambda f: f.astype({"région": "category", "age": "category"}),
    "arrow dtypes": lambda f: f.convert_dtypes(dtype_backend="pyarrow"),
    "nullable dtypes": lambda f: f.convert_dtypes(),
    "series": lambda f: {name: f[name] for name in f},
    "lists": lambda f: {name: f[name].to_list() for name in f},
    "records": lambda f: f.to_records(index=False),
    "shuffled columns": lambda f: f[sorted(f, reverse=True)],
    "other index": lambda f: f.set_index(pd.Index(range(len(f), 0, -1))),
    "text": lambda f: f.astype({"age": str, "member": str, "dose": str, "cost": str}),
    "polars categorical": lambda f: pl.from_pandas(f).with_columns(pl.col("région").cast(pl.Categorical)),
    "polars object": lambda f: pl.DataFrame({n: pl.Series(n, f[n].to_list(), dtype=pl.Object) for n in f}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_frame_gives_the_same_table(kind: str, frame: pd.DataFrame, schema: Schema, same: Same) -> None:
    same(Table.from_frame(FRAMES[kind](frame), schema), Table.from_frame(frame, schema))


@pytest.mark.parametrize(
    "name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet", "b.parquet", "a.feather", "a.arrows", "nosuffix"]
)
def test_every_file_gives_the_same_table(
    name: str, files: dict[str, Path], frame: pd.DataFrame, schema: Schema, same: Same
) -> None:
    want = Table.from_frame(frame, schema)
    same(Table.read(files[name], schema), want)
    same(Table.read(str(files[name]), schema.to_dict()), want)
    for rows in (1, 50, 500, 9999):
        chunked = Table.scan(files[name], schema, chunk_rows=rows)
        assert chunked.content_tag(b"k" * 16) == want.content_tag(b"k" * 16)


def test_matrices_of_objects_and_numbers(frame: pd.DataFrame, schema: Schema, same: Same) -> None:
    want = Table.from_frame(frame, schema)
    same(Table.from_frame(frame[list(schema.names)].to_numpy(), schema), want)
    same(Table.from_frame(frame.to_numpy(), schema, names=list(frame)), want)
    numeric = Schema(
        (Column("a", "public", 0, 9), Column("b", "public", categories=[0, 1]), Column("y", "label", 0, 9))
    )
    matrix = np.random.default_rng(0).integers(0, 3, (20, 3)).astype(float)
    want = Table.from_frame({"a": matrix[:, 0], "b": matrix[:, 1].astype(int), "y": matrix[:, 2]}, numeric)
    for form in (
        matrix,
        np.asfortranarray(matrix),
        matrix.astype(np.float32),
        matrix.astype(int),
        matrix[::-1][::-1],
    ):
        same(Table.from_frame(form, numeric), want)
    same(Table.from_frame(scipy.sparse.csr_matrix(matrix), numeric), want)
    same(Table.from_frame(pd.DataFrame(matrix, columns=["a", "b", "y"]), numeric), want)


def test_booleans_numbers_and_words_are_one_category(same: Same) -> None:
    declared = Schema((Column("m", "public", kind="boolean"), Column("y", "label", 0, 1)))
    want = Table.from_frame({"m": [True, False, None], "y": [1, 0, 1]}, declared)
    assert want.public.names == ("m=false", "m=true", "m=other")
    assert want.public.matrix.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    for cells in ([1, 0, None], [1.0, 0.0, np.nan], ["True", "false", ""], ["1", "0.0", "NA"]):
        same(Table.from_frame({"m": cells, "y": ["1", False, True]}, declared), want)


# ---- names --------------------------------------------------------------------------------------------------

SMALL = Schema((Column("a", "public", 0, 1), Column("y", "label", 0, 1)))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    for door in (
        lambda: Table.from_frame({"a": [1]}, SMALL),
        lambda: Table.from_frame(pd.DataFrame({"a": [1]}), SMALL),
        lambda: Table.read(_csv(tmp_path, "a\n1\n"), SMALL),
        lambda: Table.scan(_csv(tmp_path, "a\n1\n"), SMALL),
    ):
        with pytest.raises(DataError, match="no column 'y'"):
            door()
    with pytest.raises(DataError, match=r"no column 'y'\. Did you mean 'yy'"):
        Table.from_frame({"a": [1], "yy": [1]}, SMALL)
    with pytest.raises(DataError, match="no column 'a'"):
        Table.from_frame({}, SMALL)


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1], [2], [3]], names=["a", "a", "y"]), tmp_path / "t.parquet")
    for door in (
        lambda: Table.from_frame(pd.DataFrame([[1, 2, 3]], columns=["a", "a", "y"]), SMALL),
        lambda: Table.from_frame(pa.table([[1], [2], [3]], names=["a", "a", "y"]), SMALL),
        lambda: Table.from_frame(np.ones((1, 3)), SMALL, names=["a", "a", "y"]),
        lambda: Table.from_frame({1: [1], "1": [2], "y": [1]}, Schema((Column("1", "public", 0, 1),))),
        lambda: Table.from_frame(
            pd.DataFrame([[1, 2]], columns=[1, "1"]), Schema((Column("1", "public", 0, 1),))
        ),
        lambda: Table.read(_csv(tmp_path, "a,a,y\n1,2,3\n"), SMALL),
        lambda: Table.read(tmp_path / "t.parquet", SMALL),
    ):
        with pytest.raises(DataError, match="stands twice"):
            door()


@pytest.mark.parametrize("before", [0, 1, 1000])
def test_a_row_of_16_mib_is_read_wherever_it_stands(tmp_path: Path, before: int) -> None:
    """As docs/guarantee.md promises; the cell is in a column that nobody declared."""
    path, size = tmp_path / "long.csv", 1 << 24
    for cell, fits in ((size - len("1,,0\n"), True), (2 * size, False)):
        path.write_text("a,note,y\n" + "0,,1\n" * before + f"1,{'q' * cell},0\n" + "0,,1\n" * 1000)
        if fits:
            assert Table.read(path, SMALL).n_rows == before + 1001
        else:
            with pytest.raises(DataError, match=r"none is longer than 16 MiB\.$"):
                Table.read(path, SMALL)


def test_names_that_nobody_declared_may_be_equal(tmp_path: Path) -> None:
    """Those of a CSV file without a line of names are cells of its first row."""
    pq.write_table(pa.table([[1], [2], [3], [0]], names=["b", "b", "a", "y"]), tmp_path / "t.parquet")
    feather = pa.table([[1], [2], [3], [0]], names=["b", "b", "a", "y"])
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, feather.schema) as writer:
        writer.write_table(feather)
    for path in (_csv(tmp_path, "b,b,a,y\n1,2,3,0\n"), tmp_path / "t.parquet", tmp_path / "t.arrow"):
        assert Table.read(path, SMALL).values("a").tolist() == [SMALL["a"].upper]
        assert Table.scan(path, SMALL).n_rows == 1
    for door in (Table.read, Table.scan):
        told = set()
        for row in ("0.5,0.25,0.75", "0.5,0.25,0.5", "a,0.25,0.25", "a,a,0.5"):
            with pytest.raises(DataError, match="no column") as caught:
                door(_csv(tmp_path, row + "\n1,2,3\n"), SMALL)
            told.add(str(caught.value).replace("'y'", "'a'"))
        assert len(told) == 1


def test_names_that_are_no_text_and_odd_names(same: Same, tmp_path: Path) -> None:
    declared = Schema((Column("0", "public", 0, 1), Column("1", "label", 0, 1)))
    want = Table.from_frame({"0": [0.5], "1": [1]}, declared)
    same(Table.from_frame(pd.DataFrame([[0.5, 1]]), declared), want)
    same(Table.from_frame(pd.DataFrame([[1, 0.5]], columns=[1, 0]), declared), want)
    odd = ["a b", 'q"uote', "naïve\n2", "comma,", "dot.ted", "#", "=1", " lead"]
    declared = Schema(tuple(Column(name, "public", 0, 10) for name in odd))
    data = pd.DataFrame({name: [i, 1, 2] for i, name in enumerate(odd)})
    data[""] = 0
    data.to_csv(tmp_path / "odd.csv", index=False)
    data.to_parquet(tmp_path / "odd.parquet")
    for table in (Table.read(tmp_path / "odd.csv", declared), Table.read(tmp_path / "odd.parquet", declared)):
        same_public = table.public.matrix
        assert np.array_equal(same_public, Table.from_frame(data, declared).public.matrix)
        assert table.public.names == tuple(odd)


def test_things_that_are_no_table() -> None:
    for thing in (3, "text", None, [1, 2], np.ones(3), np.ones((2, 3)), pd.Series([1]), {"a": 3, "y": 4}):
        with pytest.raises(DataError):
            Table.from_frame(thing, SMALL)
    for column in (np.ones((2, 2)), "xy", b"xy", 3, np.array(3), None):
        with pytest.raises(DataError, match="no sequence of cells"):
            Table.from_frame({"a": [1, 2], "y": column}, SMALL)
    with pytest.raises(DataError, match="differ in length"):
        Table.from_frame({"a": [1, 2], "y": [1]}, SMALL)


# ---- sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_no_and_one_row(
    rows: int, frame: pd.DataFrame, schema: Schema, same: Same, tmp_path: Path
) -> None:
    few = frame[:rows]
    want = Table.from_frame(few, schema)
    assert want.n_rows == rows
    assert want.public.matrix.shape == (rows, 8)
    assert want.label.shape == (rows,)
    few.to_csv(tmp_path / "few.csv", index=False)
    few.to_parquet(tmp_path / "few.parquet")
    same(Table.read(tmp_path / "few.csv", schema), want)
    same(Table.read(tmp_path / "few.parquet", schema), want)
    same(Table.from_frame(pl.from_pandas(few), schema), want)
    for file in ("few.csv", "few.parquet"):
        scan = Table.scan(tmp_path / file, schema, chunk_rows=3)
        assert scan.n_rows == rows
        assert scan.gram().matrix.shape == (9, 9)
        assert scan.gram().n_rows == rows


def test_columns_that_are_all_missing_or_constant(schema: Schema, same: Same, tmp_path: Path) -> None:
    # F39, F40: no data-dependent scaling, dropping or exception.
    for cell in (None, 7, "x"):
        data = pd.DataFrame({name: [cell] * 3 for name in schema.names}, dtype=object)
        table = Table.from_frame(data, schema)
        assert np.isfinite(table.public.matrix).all()
        assert table.public.matrix.shape == (3, 8)
        assert (table.public.matrix == table.public.matrix[0]).all()
        data.to_csv(tmp_path / "c.csv", index=False)
        same(Table.read(tmp_path / "c.csv", schema), table)
    gone = Table.from_frame(pd.DataFrame({name: [None] for name in schema.names}), schema)
    assert gone.public.matrix[0, 0] == 0.0  # the middle of the bounds
    assert gone.private.matrix[0, 0] == 0.0
    assert gone.label[0] == pytest.approx(np.log(1000) / 2)


def test_a_csv_of_one_column_keeps_its_empty_lines(tmp_path: Path) -> None:
    declared = Schema((Column("y", "label", 0, 10),))
    assert Table.read(_csv(tmp_path, "y\n1\n\n3\n"), declared).label.tolist() == [1, 5, 3]
    assert Table.read(_csv(tmp_path, 'y\n1\n""\n3'), declared).label.tolist() == [1, 5, 3]


# ---- files --------------------------------------------------------------------------------------------------


def test_csv_dialects(tmp_path: Path) -> None:
    want = [[-0.5, 0.5], [1, 1]]
    declared = Schema((Column("a", "public", 0, 4), Column("b", "public", 0, 4)))
    for text in (
        "a,b\n1,3\n4,4\n",
        "\ufeffa,b\r\n1,3\r\n4,4",
        'b,"a",c\n"3"," 1 ","x\ny"\n4,4,"say ""hi"""\n',
        "a,b\n1,3\n\n4,4\n\n",
    ):
        assert Table.read(_csv(tmp_path, text), declared).public.matrix.tolist() == want
    assert (
        Table.read(_csv(tmp_path, "a;b\n1;3\n4;4\n"), declared, delimiter=";").public.matrix.tolist() == want
    )
    with pytest.raises(ParameterError, match="'delimiter'"):
        Table.read(_csv(tmp_path, "a,b\n"), declared, delimiter=",,")


def test_damaged_files_are_refused_without_quoting_them(tmp_path: Path) -> None:
    cases = {
        "ragged.csv": b"a,y\n1,2\nSECRET,3,4\n",
        "empty.csv": b"",
        "broken.parquet": b"PAR1 SECRET",
        "broken.feather": b"SECRET",
        "broken.csv.gz": b"SECRET",
        "what.xls": b"SECRET",
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError) as caught:
            Table.read(tmp_path / name, SMALL)
        assert "SECRET" not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
    with pytest.raises(DataError, match="no file"):
        Table.read(tmp_path / "absent.csv", SMALL)
    with pytest.raises(DataError, match="no file"):
        Table.read(tmp_path, SMALL)


def test_bytes_that_are_no_text_raise_nothing(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_bytes(b"a,y,r\n0.5,\xff\xfe,n\xff\n1,1,x\n")
    declared = Schema((*SMALL.columns, Column("r", "private", categories=["x"])))
    table = Table.read(path, declared)
    assert table.label.tolist() == [0.5, 1]
    assert table.private.matrix.tolist() == [[0, 1], [1, 0]]


def test_types_of_a_csv_do_not_depend_on_its_data(tmp_path: Path) -> None:
    # A late text in a column of numbers neither fails nor changes any other row.
    rows = [f"{i % 7 / 7},{i % 2}" for i in range(300_000)]
    clean = Table.read(_csv(tmp_path, "a,y\n" + "\n".join(rows)), SMALL)
    rows[-1] = "0.5,oops"
    dirty = Table.read(_csv(tmp_path, "a,y\n" + "\n".join(rows)), SMALL)
    assert np.array_equal(clean.label[:-1], dirty.label[:-1])
    assert dirty.label[-1] == 0.5


# ---- policies -----------------------------------------------------------------------------------------------


def test_reject_names_the_column_and_no_value(tmp_path: Path) -> None:
    declared = Schema((Column("a", "public", 0, 1, missing="reject"), Column("y", "label", 0, 1)))
    Table.from_frame({"a": [1, 0], "y": [None, "x"]}, declared)
    messages = set()
    for cells in ([1, None], ["SECRET", 1], [datetime.date(2020, 1, 1), 1], [None, None]):
        with pytest.raises(DataError, match="'a' has missing cells") as caught:
            Table.from_frame({"a": cells, "y": [0, 1]}, declared)
        messages.add(str(caught.value))
    assert len(messages) == 1
    coded = Schema((Column("a", "public", categories=["x"], missing="reject"),))
    assert Table.from_frame({"a": ["unseen", "x"]}, coded).public.matrix.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(DataError, match="'a' has missing cells"):
        Table.from_frame({"a": ["", "x"]}, coded)


def test_declared_constants_are_imputed() -> None:
    declared = Schema(
        (
            Column("a", "public", 0, 4, impute=1),
            Column("r", "private", categories=["u", "v"], impute="v"),
            Column("y", "label", 1, 100, transform="log", impute=10),
        )
    )
    table = Table.from_frame(
        {"a": [None, 9, -9], "r": [None, "w", "u"], "y": [None, np.inf, -np.inf]}, declared
    )
    assert table.public.matrix.ravel().tolist() == [-0.5, 1, -1]
    assert table.private.matrix.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert table.label.tolist() == [np.log(10), np.log(100), 0.0]


def test_a_declared_category_may_be_spelt_like_a_gap() -> None:
    declared = Schema((Column("land", "private", categories=["NA", "DE"]),))
    assert Table.from_frame({"land": ["NA", "n/a", None]}, declared).private.matrix.tolist() == [
        [1, 0, 0],
        [0, 0, 1],
        [0, 0, 1],
    ]


def test_importing_the_room_is_cheap() -> None:
    code = (
        "import sys, confide.schema, confide.cli.schema, confide.data\n"
        "heavy = {'numpy', 'pyarrow', 'narwhals', 'scipy', 'pandas', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _csv(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def narrow(*chunks: list[str]) -> pa.ChunkedArray:
    """Cells by dictionaries that hold what their own chunk needs, with 8-bit indices."""
    packed = []
    for cells in chunks:
        known = list(dict.fromkeys(cells))
        indices = pa.array([known.index(cell) for cell in cells], pa.int8())
        packed.append(pa.DictionaryArray.from_arrays(indices, pa.array(known)))
    return pa.chunked_array(packed)


@pytest.mark.parametrize("last", ["c1", "c127"])
def test_no_number_of_distinct_cells_chooses_a_type(last: str, tmp_path: Path, same: Same) -> None:
    first = [f"c{row % 100}" for row in range(127)]
    rest = [*(f"c{100 + row % 27}" for row in range(126)), last]
    cells = narrow(first, rest)
    schema = Schema.of(
        {"table": {"name": "t", "declared_by": "x", "max_rows_per_id": 5},
         "columns": {"x": {"role": "private", "categories": ["c0", "c1", "c127"]},
                     "i": {"role": "id"}, "y": {"role": "label", "categories": ["c2", "c126"]}}}
    )  # fmt: skip
    want = Table.from_frame(dict.fromkeys("xiy", first + rest), schema)
    table = pa.table(dict.fromkeys("xiy", cells))
    same(Table.from_frame(dict.fromkeys("xiy", cells), schema), want)
    same(Table.from_frame(table, schema), want)
    path = tmp_path / "t.arrows"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    same(Table.read(path, schema), want)
    for rows in (1, 100, 254):
        chunks = Table.scan(path, schema, chunk_rows=rows).chunks()
        assert np.array_equal(np.concatenate([chunk.private.matrix for chunk in chunks]), want.private.matrix)


@pytest.mark.parametrize("last", ["c1", "c127"])
def test_chunks_that_arrow_cannot_join_are_read_by_cells(last: str) -> None:
    first = [f"c{row % 100}" for row in range(127)]
    flat = narrow(first, [*(f"c{100 + row % 27}" for row in range(126)), last])
    ends = pa.array(range(128), pa.int32())
    nested = pa.chunked_array([pa.ListArray.from_arrays(ends, chunk) for chunk in flat.chunks])
    lists = pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([[cell]]))
            for cell in (*first, last)
        ]
    )
    schema = Schema.of({"columns": {"x": {"role": "private", "categories": ["c0", "c1"]}}})
    for cells in (nested, lists):
        told = Table.from_frame({"x": cells}, schema).private.matrix
        assert np.array_equal(told, Table.from_frame({"x": cells.to_pylist()}, schema).private.matrix)
