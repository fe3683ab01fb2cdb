import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from confide.errors import DataError, ParameterError
from confide.selection import ParquetMatrix, SubsetProblem, SubsetSelector, bounded, draw, law
from confide.selection.wide import Bounds, ParquetColumns, ScaledColumns

LOW = np.array([0, -1, -5, 2, -1e3, 0, 0, 0.0])
HIGH = np.array([1, 3, 0, 4, 1e3, 1, 1, 1.0])


def raw(n=90, seed=0):
    """Return cells in and out of their bounds, with gaps and infinities."""
    rng = np.random.default_rng(seed)
    X = LOW + (HIGH - LOW) * rng.uniform(-0.1, 1.1, size=(n, LOW.size))
    X[:, 5] = 0.0
    X[:, 6] = rng.random(n) < 0.2
    X[0, 1], X[1, 2], X[2, 4], X[3, 0] = np.nan, np.inf, -np.inf, 1e300
    return X


def expected(X):
    """Return the documented cell, one at a time."""
    out = np.empty(X.shape)
    for (i, j), x in np.ndenumerate(X):
        middle, half = (LOW[j] + HIGH[j]) / 2, (HIGH[j] - LOW[j]) / 2
        out[i, j] = 0.0 if np.isnan(x) else (min(max(x, LOW[j]), HIGH[j]) - middle) / half
    return out


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    X = raw()
    names = [f"c{j}" for j in range(X.shape[1])]
    table = pa.table({name: pa.array(X[:, j], from_pandas=True) for j, name in enumerate(names)})
    pq.write_table(table, folder / "X.parquet", row_group_size=17)
    for order in "CF":
        held = np.lib.format.open_memmap(
            folder / f"{order}.npy", mode="w+", dtype=np.float64, shape=X.shape, fortran_order=order == "F"
        )
        held[:] = X
        held.flush()
    return folder


def kinds(folder):
    X = raw()
    return {
        "C": X,
        "F": np.asfortranarray(X),
        "memmap C": np.load(folder / "C.npy", mmap_mode="r"),
        "memmap F": np.load(folder / "F.npy", mmap_mode="r"),
        "CSR": sparse.csr_matrix(X),
        "CSC": sparse.csc_matrix(X),
        "Parquet": ParquetMatrix(folder / "X.parquet"),
    }


@pytest.mark.parametrize("kind", ["C", "F", "memmap C", "memmap F", "CSR", "CSC", "Parquet"])
@pytest.mark.parametrize("tile", [1, 100, 1 << 21])
def test_every_source_is_the_same_matrix(kind, tile, files, monkeypatch):
    monkeypatch.setattr("confide.selection.wide._TILE", tile)
    source, bound = bounded(kinds(files)[kind], (LOW, HIGH))
    Z = expected(raw())
    rng = np.random.default_rng(1)
    y, V = rng.normal(size=len(Z)), rng.normal(size=(len(Z), 3))
    assert bound == 1.0
    assert (source.n, source.p) == Z.shape
    np.testing.assert_allclose(source.measure(y), Z.T @ y, atol=1e-12)
    np.testing.assert_allclose(source.squares, (Z**2).sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(source.correlations(V), Z.T @ V, atol=1e-12)
    np.testing.assert_allclose(source.correlations(y), Z.T @ y, atol=1e-12)
    np.testing.assert_allclose(source.gram(), Z.T @ Z, atol=1e-12)
    np.testing.assert_allclose(source.gram(20), Z[:20].T @ Z[:20], atol=1e-12)
    for columns in ([3], [7, 0, 3], range(8)):
        taken = source.take(columns)
        np.testing.assert_allclose(taken, Z[:, list(columns)], atol=1e-12)
        assert np.abs(taken).max() <= 1
        assert taken.flags.f_contiguous
    # Measuring twice is measuring once.
    np.testing.assert_allclose(source.measure(y), Z.T @ y, atol=1e-12)
    np.testing.assert_allclose(source.squares, (Z**2).sum(axis=0), atol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_laws_and_draws_agree(loss, files):
    Z = expected(raw())
    y = np.where(Z[:, 1] - Z[:, 3] > 0, 1.0, -1.0)
    plain = SubsetProblem(Z, y, 2, loss, feature_bound=1, target_bound=1)
    chances = law(plain, "exponential", 2, "replace_one")
    for X in kinds(files).values():
        source, bound = bounded(X, (LOW, HIGH))
        problem = SubsetProblem(source, y, 2, loss, feature_bound=bound, target_bound=1)
        ours = law(problem, "exponential", 2, "replace_one")
        assert ours.keys() == chances.keys()
        for support, chance in chances.items():
            assert ours[support] == pytest.approx(chance, rel=1e-6)
    drawn = [draw(p, "exponential", 2, "replace_one", random_state=4, size=50) for p in (plain, problem)]
    assert drawn[0] == drawn[1]


def test_a_symmetric_pair_reads_the_matrix_itself(files):
    X = np.random.default_rng(0).uniform(-1, 1, size=(30, 4))
    source, bound = bounded(X, (-2, 2))
    assert source is X
    assert bound == 2.0
    source, bound = bounded(ParquetMatrix(files / "X.parquet"), (-0.5, 0.5))
    assert bound == source.bound == 0.5
    np.testing.assert_array_equal(
        source.take(range(8)), np.clip(np.nan_to_num(raw(), posinf=9, neginf=-9), -0.5, 0.5)
    )


def test_sparse_entries_that_name_a_cell_twice_stay_in_bounds():
    """Clipped one by one they would add up beyond the bound, and one row would move too much."""
    X = sparse.csr_matrix((np.ones(4), np.array([0, 0, 1, 1]), np.array([0, 2, 4])), shape=(2, 3))
    for bounds in ((-1, 1), (0, 1), (np.full(3, -1.0), np.full(3, 1.0))):
        source, bound = bounded(X, bounds)
        problem = SubsetProblem(source, np.ones(2), 1, feature_bound=bound, target_bound=1)
        taken = problem.columns.take([0, 1, 2])
        assert np.abs(taken).max() <= bound
        np.testing.assert_array_equal(problem.columns.squares, (taken**2).sum(axis=0))
        plain = SubsetProblem(X, np.ones(2), 1, feature_bound=1, target_bound=1)
        np.testing.assert_array_equal(plain.columns.take([0, 1, 2]), [[1, 0, 0], [0, 1, 0]])
    assert X.nnz == 4  # the caller's matrix is as it was


def test_cells_never_raise():
    """No cell is an error: integers past 2^53, huge numbers, gaps."""
    for cells in ([1e308, -1e308, np.nan], [np.inf, -np.inf, 5e-324]):
        for bounds in ((-1e308, 1e308), (0, 5e-324 * 4), (0, 1), (-1e-300, 1e300)):
            taken = Bounds.of(bounds).scale(np.array(cells)[:, None], slice(0, 1))
            limit = Bounds.of(bounds).symmetric or 1.0
            assert (np.abs(taken) <= limit).all()


def test_parquet_integers_and_booleans(tmp_path):
    path = tmp_path / "mixed.parquet"
    table = {
        "big": pa.array([2**62 + 1, None, -(2**62)], type=pa.int64()),
        "flag": pa.array([True, False, None]),
        "a": pa.array([1.0, 2.0, 3.0], type=pa.float32()),
        "a.b": pa.array([4, 5, 6], type=pa.uint8()),
    }
    pq.write_table(pa.table({**table, "text": pa.array(["x", "y", "z"])}), path)
    matrix = ParquetMatrix(path, ["a.b", "big", "flag", "a"])
    np.testing.assert_array_equal(matrix.read(["a"]), [[1], [2], [3]])
    np.testing.assert_array_equal(matrix.read(["a.b", "flag"]), [[4, 1], [5, 0], [6, np.nan]])
    source = ParquetColumns(matrix, Bounds.of((0, 10)))
    np.testing.assert_allclose(source.take([1])[:, 0], [1, 0, -1])
    with pytest.raises(DataError, match=r"'text' holds string.*columns"):
        ParquetMatrix(path)
    with pytest.raises(DataError, match="no column 'z'"):
        ParquetMatrix(path, ["z"])
    with pytest.raises(DataError, match="twice"):
        ParquetMatrix(path, ["a", "a"])


def test_selector_on_files(files):
    y = np.clip(expected(raw())[:, 1] - expected(raw())[:, 4], -2, 2)
    ask = {"feature_bounds": (LOW, HIGH), "target_bounds": (-2, 2), "epsilon": 3}
    for seed in range(4):
        fitted = [SubsetSelector(2, random_state=seed, **ask).fit(X, y) for X in kinds(files).values()]
        assert len({tuple(model.support_) for model in fitted}) == 1
    assert list(fitted[-1].get_feature_names_out()) == [f"c{j}" for j in fitted[-1].support_]


def test_bounds_that_do_not_fit(files):
    with pytest.raises(ParameterError, match="8 columns, and X has 3"):
        bounded(np.zeros((2, 3)), (LOW, HIGH))
    with pytest.raises(ParameterError):
        bounded(np.zeros((2, 3)), None)
    with pytest.raises(DataError):
        ScaledColumns(np.zeros((2, 0)), Bounds.of((0, 1)))
    with pytest.raises(ParameterError, match="feature_bound"):
        SubsetProblem(bounded(np.zeros((2, 3)), (0, 1))[0], np.zeros(2), 1, feature_bound=2, target_bound=1)
    with pytest.raises(DataError, match="y has shape"):
        SubsetProblem(bounded(np.zeros((2, 3)), (0, 1))[0], np.zeros(3), 1, feature_bound=1, target_bound=1)


def test_nothing_is_as_large_as_the_matrix(tmp_path):
    """Tracemalloc sees every array: reading 40 MB of cells takes a few tiles of 16 MB."""
    import tracemalloc

    n, p = 200, 50_000
    path = tmp_path / "wide.npy"
    held = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, p))
    held[:] = np.random.default_rng(0).random((n, p), dtype=np.float32)
    y = np.clip(3 * (held[:, 7] - 0.5) + 3 * (held[:, 40_000] - 0.5), -3, 3)
    held.flush()
    X = np.load(path, mmap_mode="r")
    tracemalloc.start()
    model = SubsetSelector(2, 60, feature_bounds=(0, 1), target_bounds=(-3, 3)).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert set(model.support_) == {7, 40_000}
    assert peak < 100e6  # the matrix as float64 has 80 MB, p x p has 20 GB; trees and columns are in it


def test_a_column_that_is_called_as_a_method_of_matrices_is_a_column():
    X, y = np.random.default_rng(0).uniform(-1, 1, (9, 2)), np.linspace(-1, 1, 9)
    frame = pd.DataFrame(X, columns=["tocsr", "tocsc"])
    plain, found = (SubsetProblem(M, y, 1, feature_bound=1, target_bound=1) for M in (X, frame))
    assert found.score([0]) == plain.score([0])
    plain, found = (ScaledColumns(M, Bounds.of((-1, 2))) for M in (X, frame))
    np.testing.assert_array_equal(found._read([0, 1]), plain._read([0, 1]))
