"""The Criteo loader reads the documented layout: 23 tab-separated columns, no header, -1 for missing."""

from __future__ import annotations

import gzip
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NAMES = ("_encoding", "training_data", "training_criteo")


@pytest.fixture
def criteo(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("training_criteo")
    for name in NAMES:
        sys.modules.pop(name, None)


def lines(count: int) -> list[list[str]]:
    """Rows of the file's layout: every third click has a sale, every fifth price is missing."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(count):
        sale = i % 3 == 0
        amount = f"{rng.gamma(2.0, 60.0):.2f}" if sale else "-1.0"
        price = "-1" if i % 5 == 0 else f"{rng.gamma(2.0, 40.0):.2f}"
        codes = [f"{rng.integers(8):032X}" for _ in range(13)]
        rest = [f"P{i}", 'a "quoted title', f"{rng.integers(4):032X}", f"U{i}"]
        delay = "86400" if sale else "-1"
        rows.append([str(int(sale)), amount, delay, str(1_596_000_000 + i), str(i), price, *codes, *rest])
    return rows


def write(path: Path, rows: list[list[str]]) -> Path:
    text = "".join("\t".join(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_amounts_of_sales(criteo, tmp_path):
    rows = lines(300)
    rows[0][1] = "5000.0"  # clipped
    data = criteo.load_criteo(write(tmp_path / "CriteoSearchData", rows), buckets=4)
    sales = [row for row in rows if row[0] == "1"]
    assert data.bounds == (0.0, 400.0)
    assert data.X.shape == (len(sales), 14 * 4 + 2) == (len(data.y), len(data.features))
    assert data.X.dtype == np.float64
    np.testing.assert_array_equal(data.y, [min(float(row[1]), 400.0) for row in sales])
    assert data.y[0] == 400.0


def test_numbers_are_scaled_by_declared_bounds_and_a_missing_one_is_in_the_middle(criteo, tmp_path):
    rows = lines(60)
    data = criteo.load_criteo(write(tmp_path / "CriteoSearchData", rows), label="sale")
    price = data.X[:, data.features.index("product_price")]
    for row, got in zip(rows, price, strict=True):
        value = float(row[5])
        expected = 0.0 if value < 0 else np.clip((np.log1p(value) - 4.5) / 4.5, -1, 1)
        assert got == pytest.approx(expected, abs=1e-15)
    assert set(np.unique(data.y)) == {0.0, 1.0}
    assert data.kind == "clicks"


def test_each_category_falls_in_one_bucket_and_equal_cells_in_the_same(criteo, tmp_path):
    rows = lines(120)
    data = criteo.load_criteo(write(tmp_path / "CriteoSearchData", rows), label="sale", buckets=8)
    for position, name in ((10, "product_brand"), (21, "partner_id")):
        block = data.X[:, [feature.startswith(f"{name}=") for feature in data.features]]
        assert np.all(block.sum(axis=1) == 1)
        bucket = {}
        for row, place in zip(rows, block.argmax(axis=1), strict=True):
            assert bucket.setdefault(row[position], place) == place
        assert len(set(bucket.values())) > 1


def test_no_outcome_time_or_person_is_a_feature(criteo, tmp_path):
    data = criteo.load_criteo(write(tmp_path / "CriteoSearchData", lines(9)))
    for name in ("Sale", "time_delay", "click_timestamp", "product_id", "product_title", "user_id"):
        assert not any(feature.startswith(name) for feature in data.features)


def test_chunks_and_compression_change_nothing(criteo, tmp_path):
    rows = lines(100)
    whole = criteo.load_criteo(write(tmp_path / "CriteoSearchData", rows))
    small = criteo.load_criteo(write(tmp_path / "CriteoSearchData.gz", rows), chunk=7)
    np.testing.assert_array_equal(whole.X, small.X)
    np.testing.assert_array_equal(whole.y, small.y)
    assert len(criteo.load_criteo(tmp_path / "CriteoSearchData", label="sale", rows=10).y) == 10


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no such file"), ("1\t2\t3\n", "3 columns"), ("", "empty|columns")]
)
def test_another_file_is_refused(criteo, tmp_path, content, message):
    path = tmp_path / "other"
    if content is not None:
        path.write_text(content)
    with pytest.raises((criteo.Unavailable, ValueError), match=message):
        criteo.load_criteo(path)


def test_split_is_public_and_covers_every_row_once(criteo, tmp_path):
    data = criteo.load_criteo(write(tmp_path / "CriteoSearchData", lines(100)), label="sale")
    train, test = data.split(seed=3)
    again, _ = data.split(seed=3)
    other, _ = data.split(seed=4)
    assert (len(train.y), len(test.y)) == (80, 20)
    np.testing.assert_array_equal(train.X, again.X)
    assert not np.array_equal(train.X, other.X)
    clicks = np.concatenate([train.X[:, 0], test.X[:, 0]])
    np.testing.assert_allclose(np.sort(clicks), np.sort(data.X[:, 0]))
