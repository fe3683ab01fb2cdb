import numpy as np
import pytest
from scipy import sparse

from confide.errors import DataError, ParameterError
from confide.training import conditioning_matrix, from_gram

from .helpers import DATASETS, load


@pytest.mark.parametrize("entry", DATASETS, ids=lambda e: e["file"])
def test_golden_conditioning_rows_and_leverages(entry):
    data = load(entry)
    C = conditioning_matrix(data["X"], "spectral", scaled=False, rcond=entry["rcond"])
    np.testing.assert_allclose(C, data["C"], rtol=0, atol=1e-12 * np.abs(data["C"]).max())
    Z = data["X"] @ C
    np.testing.assert_allclose(Z, data["Z"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.sum(Z**2, axis=1), data["leverage"], rtol=0, atol=1e-12)
    # Squaring the condition number costs digits, and no more than that.
    G = from_gram(data["X"].T @ data["X"], entry["n"], "spectral", scaled=False)
    np.testing.assert_allclose(G, data["C"], rtol=0, atol=1e-15 * entry["cond"] ** 2 * np.abs(G).max())


@pytest.mark.parametrize("entry", DATASETS, ids=lambda e: e["file"])
def test_golden_sensitivities_and_traces(entry):
    X, R = load(entry)["X"], entry["R"]
    for name, kind in (("XT", "identity"), ("UT", "spectral")):
        Z = X @ conditioning_matrix(X, kind, scaled=False)
        longest = np.linalg.norm(Z, axis=1).max()
        assert R * longest == pytest.approx(entry["sensitivity"][name], rel=1e-10)
        # theta = (Z'Z)^-1 b: noise of deviation `longest` costs longest^2 tr (Z'Z)^-1 in fitted values.
        trace = longest**2 * np.trace(np.linalg.inv(Z.T @ Z))
        assert trace == pytest.approx(entry["noise_trace_unit"][name], rel=1e-8)


def test_optimal_makes_every_row_at_most_one_long():
    X = load(DATASETS[1])["X"]
    Z = X @ conditioning_matrix(X, "optimal", scaled=False).T
    assert np.linalg.norm(Z, axis=1).max() == pytest.approx(1.0, abs=1e-6)
    trace = np.trace(np.linalg.inv(Z.T @ Z))
    assert trace == pytest.approx(DATASETS[1]["noise_trace_unit"]["aopt_primal"], rel=1e-6)


def test_family_ends_and_scaling():
    X = np.random.default_rng(0).normal(size=(60, 4)) * [5, 2, 1, 0.1]
    spectral = conditioning_matrix(X, "spectral", scaled=False)
    np.testing.assert_allclose(conditioning_matrix(X, "spectral"), np.sqrt(60) * spectral)
    s = np.linalg.svd(X, compute_uv=False)
    np.testing.assert_allclose(conditioning_matrix(X, "power", p=0.0), np.eye(4), atol=1e-12)
    np.testing.assert_allclose(conditioning_matrix(X, "power", p=1.0), s[0] * spectral, rtol=1e-9)
    np.testing.assert_allclose(conditioning_matrix(X, "ridge", scaled=False, rho=0.0), spectral, rtol=1e-9)
    half = conditioning_matrix(X, "power", p=0.5)
    np.testing.assert_allclose(np.linalg.eigvalsh(half), np.sort((s / s[0]) ** -0.5), rtol=1e-9)
    np.testing.assert_allclose(conditioning_matrix(X, "identity"), np.eye(4))


DEGENERATE = {
    "constant": np.column_stack([np.ones(30), np.arange(30.0)]),
    "duplicate": np.repeat(np.arange(30.0)[:, None], 3, axis=1),
    "zero": np.zeros((30, 3)),
    "one zero column": np.column_stack([np.zeros(30), np.arange(30.0)]),
    "wide": np.random.default_rng(1).normal(size=(5, 12)),
    "huge row": np.vstack([np.ones((1, 2)) * 1e308, np.random.default_rng(2).normal(size=(20, 2))]),
    "no columns": np.zeros((5, 0)),
}


@pytest.mark.parametrize("X", DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize("kind", ["identity", "spectral", "power", "ridge", "optimal"])
def test_degenerate_designs_stay_finite(X, kind):
    C = conditioning_matrix(X, kind)
    assert C.shape == (X.shape[1],) * 2
    assert np.isfinite(C).all()
    if kind == "spectral":
        Z = X / np.sqrt(X.shape[0]) @ C
        values = np.linalg.svd(Z, compute_uv=False) if X.shape[1] else np.zeros(0)
        np.testing.assert_allclose(values[values > 0.5], 1.0, rtol=1e-6)
        assert np.all(values[values <= 0.5] < 1e-6)


def test_sparse_equals_dense():
    codes = np.random.default_rng(3).integers(0, 7, size=200)
    X = np.eye(7)[codes]
    for kind in ("spectral", "power", "ridge", "optimal"):
        dense, thin = conditioning_matrix(X, kind), conditioning_matrix(sparse.csr_matrix(X), kind)
        np.testing.assert_allclose(thin, dense, rtol=1e-6, atol=1e-6 * np.abs(dense).max())


def test_bad_input_is_refused_with_a_remedy():
    X = np.ones((3, 2))
    with pytest.raises(ParameterError, match=r"'kind' is 'svd'.*Pass one of"):
        conditioning_matrix(X, "svd")
    for options in ({"p": 2.0}, {"rho": -1.0}, {"rho": np.inf}, {"rcond": 1.0}):
        with pytest.raises(ParameterError):
            conditioning_matrix(X, "power" if "p" in options else "ridge", **options)
    for bad in (np.full((2, 2), np.nan), np.full((2, 2), np.inf), np.ones(3), np.ones((0, 2))):
        with pytest.raises(DataError):
            conditioning_matrix(bad)
    with pytest.raises(ParameterError, match="rows"):
        from_gram(np.eye(2), 5, "optimal")
    with pytest.raises(ParameterError):
        from_gram(np.eye(2), 0)
    with pytest.raises(DataError):
        from_gram(np.full((2, 2), np.nan), 5)
