import time

import numpy as np
import pytest

from confide.training import geometry
from confide.training.optimal import optimal_geometry

from .helpers import DATASETS, load


@pytest.mark.parametrize("entry", DATASETS, ids=lambda e: e["file"])
def test_golden_geometry(entry):
    data = load(entry)
    found = geometry(data["X"])
    trace = entry["noise_trace_unit"]
    # Ours lies between the golden dual (a valid lower bound) and the golden primal (a feasible value).
    assert trace["aopt_dual"] * (1 - 1e-9) <= found.primal <= trace["aopt_primal"] * (1 + 1e-9)
    assert found.dual <= trace["aopt_primal"] * (1 + 1e-12)
    assert found.dual == pytest.approx(trace["aopt_dual"], rel=1e-6)
    assert 0 <= found.gap <= 1e-7
    np.testing.assert_allclose(found.M, data["Mz"], rtol=0, atol=2e-6 * np.abs(data["Mz"]).max())
    lengths = np.einsum("ij,jk,ik->i", data["Z"], found.M, data["Z"])
    assert lengths.max() == pytest.approx(1.0, abs=1e-9)
    assert entry["R"] * np.sqrt(lengths.max()) == pytest.approx(entry["sensitivity"]["aopt"], rel=1e-9)


@pytest.mark.parametrize(("n", "d"), [(40, 3), (500, 12), (3000, 8), (60, 59)])
@pytest.mark.parametrize("heavy", [False, True])
def test_certificate_holds_whatever_the_solver_did(n, d, heavy):
    rng = np.random.default_rng(n + d)
    U = np.linalg.qr(rng.standard_t(2.5, size=(n, d)) if heavy else rng.normal(size=(n, d)))[0]
    for tolerance in (1e-1, 1e-3, 1e-7):
        found = optimal_geometry(U, tolerance=tolerance)
        # Primal: feasible, with the stated trace. Dual: recomputed from the weights alone.
        assert np.einsum("ij,jk,ik->i", U, found.M, U).max() <= 1 + 1e-9
        assert np.trace(np.linalg.inv(found.M)) == pytest.approx(found.primal, rel=1e-6)
        assert found.weights.min() >= 0
        assert found.weights.sum() == pytest.approx(1.0)
        S = (U * found.weights[:, None]).T @ U
        assert np.sqrt(np.linalg.eigvalsh(S).clip(0)).sum() ** 2 == pytest.approx(found.dual, rel=1e-6)
        assert found.gap <= tolerance
        assert found.dual >= d**2 / n * (1 - 1e-9)  # uniform weights already certify this


def test_no_other_matrix_beats_the_dual():
    rng = np.random.default_rng(5)
    U = np.linalg.qr(rng.standard_t(3, size=(80, 4)))[0]
    dual = optimal_geometry(U).dual
    for _ in range(300):
        root = rng.normal(size=(4, 4))
        M = root @ root.T
        M /= np.einsum("ij,jk,ik->i", U, M, U).max()
        assert np.trace(np.linalg.inv(M)) >= dual * (1 - 1e-9)


def test_duplicate_rows_change_nothing_but_share_their_weight():
    rng = np.random.default_rng(6)
    U = rng.normal(size=(30, 3))
    one, three = optimal_geometry(U), optimal_geometry(np.repeat(U, 3, axis=0))
    assert three.primal == pytest.approx(one.primal, rel=1e-6)
    np.testing.assert_allclose(three.weights.reshape(30, 3).sum(axis=1), one.weights, atol=1e-4)


def test_degenerate_designs():
    zero = geometry(np.zeros((5, 2)))
    assert (zero.primal, zero.dual, zero.gap) == (0.0, 0.0, 0.0)
    rng = np.random.default_rng(7)
    wide = geometry(rng.normal(size=(6, 20)))
    assert wide.primal == pytest.approx(6.0, rel=1e-6)  # every whitened row is a unit vector of its own
    twin = rng.normal(size=(50, 1))
    assert geometry(np.hstack([twin, twin, twin])).primal == pytest.approx(geometry(twin).primal, rel=1e-6)
    assert np.isfinite(geometry(np.vstack([np.full((1, 2), 1e308), np.eye(2)])).primal)
    with pytest.raises(ValueError, match="tolerance"):
        optimal_geometry(np.eye(2), tolerance=0.0)


def test_large_designs_are_fast():
    U = np.linalg.qr(np.random.default_rng(8).normal(size=(10_000, 50)))[0]
    start = time.process_time()
    found = optimal_geometry(U, tolerance=1e-2)
    # 0.12 s on one core of 2024; the bound leaves room for a loaded machine with several BLAS threads.
    assert time.process_time() - start < 4.0
    assert found.gap <= 1e-2
