"""Tables that several tests of the schema room share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from confide.schema import Column, Schema, Table


@pytest.fixture(scope="session")
def schema() -> Schema:
    return Schema(
        (
            Column("age", "public", 0, 100, unit="years"),
            Column("région", "public", categories=["nord", "sud", 1]),
            Column("member", "public", kind="boolean"),
            Column("dose", "private", -1, 3),
            Column("cost", "label", 1, 1000, transform="log"),
        ),
        name="visits",
        declared_by="the tests",
    )


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    """500 rows with gaps, values out of bounds, unseen categories, and a column that nobody declared."""
    rng = np.random.default_rng(1)
    n = 500
    return pd.DataFrame(
        {
            "extra": rng.normal(size=n),
            "cost": rng.lognormal(3, 3, n),
            "member": rng.random(n) < 0.5,
            "age": rng.integers(-5, 130, n),
            "région": rng.choice(["nord", "sud", "1", "1.0", "est", "", None], n),
            "dose": np.where(rng.random(n) < 0.1, np.nan, rng.normal(1, 2, n)),
        }
    )


Same = Callable[[Any, Any], None]


@pytest.fixture(scope="session")
def same() -> Same:
    """Assert that two tables are equal bit by bit."""

    def check(one: Table, other: Table) -> None:
        assert one.n_rows == other.n_rows
        for block in ("public", "private"):
            a, b = getattr(one, block), getattr(other, block)
            assert a.names == b.names
            assert a.sparse == b.sparse
            a, b = (m.matrix.toarray() if m.sparse else m.matrix for m in (a, b))
            assert a.tobytes() == b.tobytes()
        assert one.label.tobytes() == other.label.tobytes()
        if one.ids is not None:
            assert np.array_equal(one.ids, other.ids)
        assert one.content_tag(b"k" * 16) == other.content_tag(b"k" * 16)

    return check


@pytest.fixture(scope="session")
def files(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The frame in every kind of file."""
    import pyarrow as pa
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("files with space")
    table = pa.Table.from_pandas(frame)
    found = {}
    for name in ("a.csv", "a.csv.gz"):
        frame.to_csv(folder / name, index=False)
        found[name] = folder / name
    frame.to_csv(folder / "a.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "a.parquet", index=True)
    pq.write_table(table, folder / "b.parquet", row_group_size=37, use_dictionary=False)
    feather.write_feather(table, str(folder / "a.feather"), chunksize=41)
    with pa.ipc.new_stream(str(folder / "a.arrows"), table.schema) as writer:
        writer.write_table(table, max_chunksize=43)
    for name in ("a.tsv", "a.parquet", "b.parquet", "a.feather", "a.arrows"):
        found[name] = folder / name
    (folder / "nosuffix").write_bytes((folder / "a.parquet").read_bytes())
    found["nosuffix"] = folder / "nosuffix"
    return found
