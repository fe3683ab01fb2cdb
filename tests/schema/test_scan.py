"""Chunked tables, persons, content tags."""

from __future__ import annotations

import datetime
import itertools
import json
import pickle
import subprocess
import sys
import uuid
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.schema import Column, Schema, Table
from confide.schema.arrays import arrow_array, id_keys
from confide.schema.persons import PersonLimiter

KEY = b"0123456789abcdef"


def first_rows(ids: list[object], limit: int) -> tuple[list[int], list[bool]]:
    """The definition, row by row."""
    seen: dict[object, int] = {}
    numbers: dict[object, int] = {}
    kept = []
    for who in ids:
        if who is None:
            kept.append(False)
            continue
        numbers.setdefault(who, len(numbers))
        seen[who] = seen.get(who, 0) + 1
        kept.append(seen[who] <= limit)
    return [-1 if who is None else numbers[who] for who in ids], kept


ids = st.one_of(
    st.lists(st.none() | st.integers(-3, 3), max_size=40),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=40),
    st.lists(st.none() | st.sampled_from(["a", "b", "ab", "a b", "\x00", "a\x00", "z" * 99]), max_size=40),
)


@settings(max_examples=200, deadline=None)
@given(ids, st.integers(1, 4), st.lists(st.integers(0, 40), max_size=4))
def test_the_first_rows_of_each_person(who: list[object], limit: int, cuts: list[int]) -> None:
    limiter = PersonLimiter(limit)
    codes: list[int] = []
    kept: list[bool] = []
    edges = [0, *sorted(min(cut, len(who)) for cut in cuts), len(who)]
    for start, end in itertools.pairwise(edges):
        part_codes, part_kept = limiter.admit(*id_keys(arrow_array(who[start:end])))
        codes += part_codes.tolist()
        kept += part_kept.tolist()
    assert (codes, kept) == first_rows(who, limit)


@settings(max_examples=100, deadline=None)
@given(ids.filter(bool), st.integers(1, 3), st.data())
def test_removing_a_person_leaves_all_others_alone(
    who: list[object], limit: int, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(who))
    schema = Schema((Column("i", "id"), Column("y", "label", 0, 99)), max_rows_per_id=limit)
    label = list(range(len(who)))
    whole = Table.from_frame({"i": who, "y": label}, schema)
    rest = [(i, y) for i, y in zip(who, label, strict=True) if i != gone]
    less = Table.from_frame({"i": [i for i, _ in rest], "y": [y for _, y in rest]}, schema)
    removed = set(whole.label) - set(less.label)
    assert set(less.label) <= set(whole.label)
    assert len(removed) <= limit
    assert all(who[int(y)] == gone for y in removed)


def test_ids_of_every_type_count_alike() -> None:
    schema = Schema((Column("i", "id"), Column("y", "label", 0, 9)), max_rows_per_id=2)
    label = [0, 1, 2, 3, 4, 5]
    for cells in (
        [7, 8, 7, None, 7, 8],
        ["7", "8", "7.0", "", "07", "8"],
        [7.0, 8.0, 7.0, np.nan, 7.0, 8.0],
        pd.Series([7, 8, 7, None, 7, 8], dtype="Int64"),
        pd.Series(["x", "y", "x", None, "x", "y"], dtype="category"),
        [b"x", b"y", b"x", None, b"x", b"y"],
        [2**70, 2**71, 2**70, None, 2**70, 2**71],
    ):
        table = Table.from_frame({"i": cells, "y": label}, schema)
        assert table.ids is not None
        assert table.ids.tolist() == [0, 1, 0, 1]
        assert table.label.tolist() == [0, 1, 2, 5]
        assert table.kept.tolist() == [True, True, True, False, False, True]
        assert table.unit == "person"
        assert table.n_rows == 4


def test_ids_of_digits_and_signs() -> None:
    schema = Schema((Column("i", "id"), Column("y", "label", 0, 9)), max_rows_per_id=9)
    texts = ["--5", "-", "5-", "-5", "-1234567890123456789", "1234567890123456789", "٣", "3"]
    texts += [str(-(2**63)), str(2**63 - 1), str(2**63), str(-(2**63) - 1), "9" * 20, "9" * 5000, "-" * 5000]
    table = Table.from_frame({"i": texts, "y": [0] * len(texts)}, schema)
    assert table.ids is not None
    assert table.ids.tolist() == list(range(len(texts)))  # all differ, and none raises
    for value in (-1234567890123456789, 1234567890123456789, -5, 0, -(2**63), 2**63 - 1):
        forms = (pa.array([value]), [value], [str(value)], pa.array([str(value)]), [Decimal(value)])
        assert len({id_keys(form)[0][0] for form in forms}) == 1


class Odd:
    """A cell that nothing can be done with."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError("a cell")


NO_IDS = [None, np.nan, pd.NA, pd.NaT, "", " ", "NA", b"", Odd(), object(), 1j, [], (), ("a", None), ["a", ("b",)], {1},
          {"a": 1}, np.zeros((2, 2)), pd.Period("2020"), datetime.timedelta(1), np.timedelta64(1, "D"), (1j, 2)]  # fmt: skip
SAME_IDS = [
    [1, True, "1", " 1.0", b"1", Decimal(1), [1], ("1",), np.array([1])],
    [("a", 1), ["a", "1"], [b"a", 1.0], np.array(["a", 1], dtype=object), pa.scalar(["a", "1"])],
    [datetime.date(2020, 1, 2), "2020-01-02", pd.Timestamp("2020-01-02")],
    [b"\xff1", bytearray(b"\xff1")],
]  # fmt: skip
OTHER_IDS = [b"\xfe1", "\ufffd1", ("a1",) * 2, ("a", 1, 1), (1, "a"), ("a", 11), ("a", "b"), ("ab", "b"), "a", 1.5, -1,
             uuid.UUID(int=1), "<tuple>", "<list>", (0, 1), (0, 256), (2**63, 1)]  # fmt: skip


def id_table(who: Any, limit: int = 1) -> Table:
    schema = Schema((Column("i", "id"), Column("y", "label", 0, 99)), max_rows_per_id=limit)
    return Table.from_frame({"i": who, "y": np.arange(len(who)) % 100}, schema)


def test_cells_that_are_no_id_leave_their_row_out() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cell in NO_IDS:
            table = id_table([cell, "p", cell, "p"], 2)
            assert table.kept.tolist() == [False, True, False, True]


def test_ids_are_told_apart_by_their_content() -> None:
    found = [set(id_keys(group)[0].tolist()) for group in SAME_IDS]
    assert [len(keys) for keys in found] == [1] * len(SAME_IDS)
    alone = [*set().union(*found), *id_keys(OTHER_IDS)[0].tolist()]
    assert b"" not in alone
    assert len(set(alone)) == len(SAME_IDS) + len(OTHER_IDS)


def test_lists_name_one_person_in_every_container() -> None:
    who = [["a", "1"], ["b", "1"], ["a", "1"], None, ["a", None], ["b", "1"]]
    arrays: list[Any] = [
        who,
        pa.array(who),
        pl.Series(who),
        pd.Series(who),
        pd.Series([None if cell is None else np.array(cell, dtype=object) for cell in who]),
        pd.Series(pa.array(who), dtype=pd.ArrowDtype(pa.list_(pa.string()))),
    ]
    for cells in arrays:
        for table in (
            id_table(cells),
            Table.from_frame(pa.table({"i": who, "y": [0] * 6}), id_table(who).schema),
        ):
            assert table.ids is not None
            assert table.ids.tolist() == [0, 1]
            assert table.kept.tolist() == [True, True, False, False, False, False]
    assert id_table(pa.array([{"a": 1}, {"a": 2}])).n_rows == 0


def test_who_leaves_takes_no_row_of_another_who_has_a_cell_of_that_type() -> None:
    """Were all tuples one person, of whom the first row counts, another's row came where the first went."""
    who = [("a", 1), ("b", 1), ("c", 1), datetime.timedelta(1), datetime.timedelta(2), "p"]
    whole = id_table(who)
    for gone in range(len(who)):
        schema = whole.schema
        label = [y for y in range(len(who)) if y != gone]
        less = Table.from_frame({"i": [who[y] for y in label], "y": label}, schema)
        assert set(less.label) == set(whole.label) - {gone}


def test_missing_ids_are_dropped_or_rejected() -> None:
    strict = Schema((Column("i", "id", missing="reject"), Column("y", "label", 0, 9)), max_rows_per_id=1)
    with pytest.raises(DataError, match="'i' has missing cells"):
        Table.from_frame({"i": [1, None], "y": [1, 2]}, strict)
    loose = Schema((Column("i", "id"), Column("y", "label", 0, 9)), max_rows_per_id=1)
    assert Table.from_frame({"i": [None, None], "y": [1, 2]}, loose).n_rows == 0
    assert Table.from_frame({"i": [None, None], "y": [1, 2]}, loose).public.matrix.shape == (0, 0)


@pytest.fixture(scope="module")
def persons(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Path]:
    rng = np.random.default_rng(5)
    data = pd.DataFrame(
        {
            "who": rng.integers(0, 300, 2000),
            "a": rng.normal(size=2000),
            "z": rng.integers(0, 80, 2000),
            "y": rng.random(2000),
        }
    )
    path = tmp_path_factory.mktemp("persons") / "p.parquet"
    data.to_parquet(path, row_group_size=333)
    data.to_csv(path.with_suffix(".csv"), index=False)
    return data, path


def person_schema(wide: bool) -> Schema:
    z = Column("z", "public", categories=range(70)) if wide else Column("z", "public", 0, 79)
    return Schema(
        (Column("who", "id"), Column("a", "public", -2, 2), z, Column("y", "label", 0, 1)), max_rows_per_id=3
    )


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rows", [1, 97, 333, 100_000])
def test_chunks_add_up_to_the_table(persons: tuple[pd.DataFrame, Path], rows: int, wide: bool) -> None:
    data, path = persons
    schema = person_schema(wide)
    whole = Table.from_frame(data, schema)
    if rows == 1:
        whole = Table.from_frame(data[:100], schema)
        path = path.with_name("few.parquet")
        data[:100].to_parquet(path)
    scan = Table.scan(path, schema, chunk_rows=rows)
    chunks = list(scan.chunks())
    assert all(chunk.n_rows <= rows for chunk in chunks)
    assert np.array_equal(np.concatenate([chunk.label for chunk in chunks]), whole.label)
    codes = [chunk.ids for chunk in chunks]
    assert np.array_equal(np.concatenate([c for c in codes if c is not None]), whole.ids)
    assert scan.n_rows == whole.n_rows
    assert scan.unit == "person"
    assert scan.label_bounds == (0, 1)
    gram = scan.gram()
    matrix = whole.public.matrix
    dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    assert whole.public.sparse is wide
    design = np.column_stack([np.ones(whole.n_rows), dense])
    assert gram.matrix == pytest.approx(design.T @ design)
    assert gram.names == ("(constant)", *whole.public.names)
    assert gram.n_rows == whole.n_rows
    assert np.array_equal(gram.matrix, gram.matrix.T)
    count, total = scan.accumulate(lambda chunk: (chunk.n_rows, chunk.label.sum()))
    assert count == whole.n_rows
    assert total == pytest.approx(whole.label.sum())
    assert scan.accumulate(lambda chunk: chunk.label.sum()) == pytest.approx(total)
    assert "label" in repr(scan)
    assert str(whole.n_rows) not in repr(scan)


def test_chunk_rows_are_checked(persons: tuple[pd.DataFrame, Path]) -> None:
    for rows in (0, -1, 2.5, True, None):
        with pytest.raises(ParameterError, match="'chunk_rows'"):
            Table.scan(persons[1], person_schema(False), chunk_rows=rows)  # type: ignore[arg-type]


def test_metadata_count_where_they_can(persons: tuple[pd.DataFrame, Path]) -> None:
    data, path = persons
    schema = Schema((Column("y", "label", 0, 1),))
    assert Table.scan(path, schema).n_rows == len(data)
    assert Table.scan(path.with_suffix(".csv"), schema, chunk_rows=64).n_rows == len(data)


def test_a_dask_frame_comes_by_its_partitions(persons: tuple[pd.DataFrame, Path]) -> None:
    dd = pytest.importorskip("dask.dataframe", reason="dask (extra dask) is not installed")
    data, _ = persons
    schema = person_schema(False)
    whole = Table.from_frame(data, schema)
    frame = dd.from_pandas(data.assign(extra=1), npartitions=7)
    scan = Table.scan(frame, schema)
    assert len(list(scan.chunks())) == 7
    assert scan.content_tag(KEY) == whole.content_tag(KEY)
    assert scan.n_rows == whole.n_rows
    assert scan.gram().matrix == pytest.approx(whole.gram().matrix)
    with pytest.raises(DataError, match="no column 'a'"):
        Table.scan(frame[["who", "y", "z"]], schema)
    with pytest.raises(DataError, match="is no table"):
        Table.scan(frame["a"], schema)
    with pytest.raises(UnsupportedError, match=r"Table\.scan"):
        Table.from_frame(frame, schema)


# ---- content tags -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_public_passes_neither_read_nor_parse_secrets(
    suffix: str, frame: pd.DataFrame, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confide.schema import sources, table

    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path) if suffix == "parquet" else frame.to_feather(path)
    want = Table.from_frame(frame, schema)
    cleaned, read = [], []
    real, batches = table._clean, sources.FileSource._batches
    monkeypatch.setattr(table, "_clean", lambda column, *a: cleaned.append(column.role) or real(column, *a))
    monkeypatch.setattr(
        sources.FileSource, "_batches", lambda self, names, n: read.extend(names) or batches(self, names, n)
    )
    scan = Table.scan(path, schema, chunk_rows=70)
    parts = list(scan.public_chunks())
    assert np.concatenate([part.public.matrix for part in parts]).tobytes() == want.public.matrix.tobytes()
    assert scan.gram().n_rows == scan.n_rows == len(frame)
    assert set(cleaned) == {"public"}
    assert set(read) == {"age", "région", "member"}
    for secret in (lambda: parts[0].label, lambda: parts[0].private, lambda: parts[0].values("dose")):
        with pytest.raises(UnsupportedError, match="public columns alone"):
            secret()
    cleaned.clear()
    whole = Table.read(path, schema)
    half = whole.take(np.arange(len(frame)) % 2 == 0)
    assert set(cleaned) == ({"public", "private", "label"} if suffix == "arrow" else {"public"})
    assert half.n_rows == len(frame) // 2
    assert np.array_equal(half.label, want.label[::2])
    assert np.array_equal(half.private.matrix, want.private.matrix[::2])
    assert not half.label.flags.writeable
    assert whole.content_tag(b"k" * 16) == want.content_tag(b"k" * 16) == scan.content_tag(b"k" * 16)
    assert {"private", "label"} <= set(cleaned)


def test_a_table_of_unparsed_secrets_can_be_pickled(
    frame: pd.DataFrame, schema: Schema, tmp_path: Path
) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    part = Table.read(tmp_path / "t.csv", schema).take(np.array([3, 1]))
    assert np.array_equal(pickle.loads(pickle.dumps(part)).label, part.label)


def test_public_passes_without_public_columns_or_with_ids(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("who,y\na,1\nb,2\na,3\na,4\n")
    label = Column("y", "label", 0, 9)
    assert Table.scan(path, Schema((label,)), chunk_rows=3).n_rows == 4
    assert [part.n_rows for part in Table.scan(path, Schema((label,)), chunk_rows=3).public_chunks()] == [
        3,
        1,
    ]
    people = Table.scan(path, Schema((label, Column("who", "id")), max_rows_per_id=2), chunk_rows=3)
    assert people.n_rows == 3
    ids = [part.ids for part in people.public_chunks()]
    assert [part.tolist() for part in ids if part is not None] == [[0, 1, 0], []]


def test_content_tags_tell_versions_apart(frame: pd.DataFrame, schema: Schema) -> None:
    table = Table.from_frame(frame, schema)
    tag = table.content_tag(KEY)
    assert len(tag) == 64
    assert table.content_tag(KEY) == tag
    assert table.content_tag(KEY[::-1]) != tag
    assert Table.from_frame(frame[::-1], schema).content_tag(KEY) != tag
    assert Table.from_frame(frame[:-1], schema).content_tag(KEY) != tag
    for name in schema.names:
        other = frame.copy()
        other[name] = other[name].to_numpy()[np.random.default_rng(0).permutation(len(frame))]
        assert Table.from_frame(other, schema).content_tag(KEY) != tag
    ignored = frame.assign(extra=0, more=1)
    assert Table.from_frame(ignored, schema).content_tag(KEY) == tag
    noted = Schema(schema.columns, name="else", note="a note")
    assert Table.from_frame(frame, noted).content_tag(KEY) == tag
    for key in (b"short", "x" * 16, None):
        with pytest.raises(ParameterError, match="'key'"):
            table.content_tag(key)  # type: ignore[arg-type]


def test_values_cannot_slip_from_one_column_to_the_next() -> None:
    two = Schema((Column("a", "private", 0, 9), Column("b", "private", 0, 9)))
    one = Table.from_frame({"a": [1, 2], "b": [3, 4]}, two).content_tag(KEY)
    assert Table.from_frame({"a": [1, 3], "b": [2, 4]}, two).content_tag(KEY) != one
    swapped = Schema((Column("b", "private", 0, 9), Column("a", "private", 0, 9)))
    assert Table.from_frame({"b": [1, 2], "a": [3, 4]}, swapped).content_tag(KEY) != one


# ---- memory -------------------------------------------------------------------------------------------------

MEASURE = """
import json, sys
from confide.schema import Table
gram = Table.scan(sys.argv[1], sys.argv[2]).gram()
# The high-water mark of this program's own memory: ru_maxrss would start at that of the process it came from.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(json.dumps({"rows": gram.n_rows, "mib": int(peak) / 1024}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc to read a peak")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """One row group of 1.5 million rows, 12 columns (144 MB as float64), is never held."""
    rows, columns = 1_500_000, 12
    schema = Schema(tuple(Column(f"x{i}", "public", 0, 1) for i in range(columns)))
    (tmp_path / "s.toml").write_text(schema.to_toml())
    rng = np.random.default_rng(0)
    data = rng.random(rows)
    table = pa.table({f"x{i}": data for i in range(columns)})
    peaks = []
    for count in (150_000, rows):
        pq.write_table(table[:count], tmp_path / "t.parquet", row_group_size=rows, use_dictionary=False)
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(tmp_path / "t.parquet"), str(tmp_path / "s.toml")],
            check=True,
            capture_output=True,
            text=True,
        )
        found = json.loads(done.stdout)
        assert found["rows"] == count
        peaks.append(found["mib"])
    assert peaks[1] < 512
    assert peaks[1] - peaks[0] < 100
