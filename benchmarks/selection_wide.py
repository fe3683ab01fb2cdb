"""Wide tables: one release each, in a process of its own, with its time and its peak memory.

Run: python benchmarks/selection_wide.py [--small]
Synthetic data: uniform cells in [-1, 1], five columns explain the target (signal-to-noise ratio 5).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

from _common import header, write

SIZE = 5
#: name, n, p, how X is held, epsilons.
CASES = [
    ("float64 in memory, C order", 4_000, 10_000, "C64", (1, 4)),
    ("float32 in memory, C order", 4_000, 10_000, "C32", (1, 4)),
    ("float32 in memory, F order", 4_000, 10_000, "F32", (1, 4)),
    ("CSR, a tenth filled", 4_000, 10_000, "CSR", (1, 4)),
    ("Parquet, by blocks of columns", 4_000, 10_000, "parquet", (1, 4)),
    ("float32 in memory, C order", 2_000, 100_000, "C32", (1, 8)),
    ("float32 on disk, C order", 500, 1_000_000, "disk C", (1, 30)),
    ("float32 on disk, F order", 500, 1_000_000, "disk F", (1, 30)),
]


def truth(p: int) -> list[int]:
    return [int(j) for j in np.linspace(0, p - 1, SIZE)]


def cells(n: int, p: int, fill: float = 1.0):
    """Yield rows of X, so that nobody holds it twice."""
    rng = np.random.default_rng(0)
    for _ in range(n):
        row = rng.random(p, dtype=np.float32) * 2 - 1
        if fill < 1:
            row[rng.random(p, dtype=np.float32) > fill] = 0
        yield row


def target(columns: np.ndarray) -> np.ndarray:
    signal = columns @ np.ones(SIZE)
    noise = np.random.default_rng(1).normal(size=len(signal)) * signal.std() / np.sqrt(5)
    return np.clip(0.4 / signal.std() * (signal + noise), -1, 1)


def prepare(case, folder: Path) -> Path:
    """Write X and y of one case to the folder, in the layout it is held in."""
    _, n, p, kind, _ = case
    fill = 0.1 if kind == "CSR" else 1.0
    order = "F" if "F" in kind else "C"
    dtype = np.float64 if kind == "C64" else np.float32
    path = folder / "X.npy"
    X = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(n, p), fortran_order=order == "F")
    if order == "C":
        for i, row in enumerate(cells(n, p, fill)):
            X[i] = row
    else:
        rng = np.random.default_rng(0)
        for start in range(0, p, 10_000):
            stop = min(start + 10_000, p)
            X[:, start:stop] = (rng.random((stop - start, n), dtype=np.float32) * 2 - 1).T
    np.save(folder / "y.npy", target(np.asarray(X[:, truth(p)], dtype=np.float64)))
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(p)}), folder / "X.parquet")
    X.flush()
    return folder


def child(kind: str, folder: Path, epsilons: list[float]) -> None:
    """Load, select once an epsilon, and print what it took."""
    from confide.selection import ParquetMatrix, SubsetProblem, bounded, draw

    warm = np.random.default_rng(0).uniform(-1, 1, (50, 8))
    for dtype, order in ((np.float32, "C"), (np.float32, "F"), (np.float64, "C")):
        small = SubsetProblem(
            np.array(warm, dtype=dtype, order=order), warm[:, 0], 5, feature_bound=1, target_bound=1
        )
        draw(small, "exponential", 1, "replace_one")
    X = np.load(folder / "X.npy", mmap_mode="r" if "disk" in kind or kind == "parquet" else None)
    if kind == "CSR":
        from scipy.sparse import csr_matrix

        X = csr_matrix(X)
    v = np.ones(X.shape[0], dtype=X.dtype)
    products = []
    for _ in range(3):
        start = time.perf_counter()
        X.T @ v
        products.append(time.perf_counter() - start)
    if kind == "parquet":
        del X
        X = ParquetMatrix(folder / "X.parquet")
    y = np.load(folder / "y.npy")
    out = {"product": min(products), "before": peak(), "runs": []}
    wanted = truth(X.shape[1])
    for epsilon in epsilons:
        start = time.perf_counter()
        source, bound = bounded(X, (-1, 1))
        problem = SubsetProblem(source, y, SIZE, feature_bound=bound, target_bound=1)
        measured = time.perf_counter() - start
        (support,) = draw(problem, "exponential", epsilon, "replace_one")
        seconds = time.perf_counter() - start
        out["runs"].append((epsilon, measured, seconds, len({*support} & {*wanted}), peak()))
        del problem, source
    print(json.dumps(out))


def peak() -> float:
    """Return the largest resident set so far in GB, pages of mapped files included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6 * 1.024


def main() -> None:
    small = "--small" in sys.argv
    lines = [
        "# Selection of 5 columns from wide tables",
        "",
        header(),
        "",
        "One release, exponential mechanism, REPLACE_ONE, default radius and ridge, in a process of its own. "
        "Peak memory is the resident set: X, the pages of mapped files and Python (about 0.3 GB) included. "
        "Screening is the one pass that measures all columns; seconds are the whole release, screening and "
        "reading included. Times are of a machine shared with other work.",
        "",
        "| X | n | p | size of X | X'v | epsilon | screening | release | in X'v | of the 5 found | peak memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES[:5] if small else CASES:
        name, n, p, kind, epsilons = case
        with tempfile.TemporaryDirectory() as temporary:
            folder = prepare(case, Path(temporary))
            data = folder / ("X.parquet" if kind == "parquet" else "X.npy")
            gigabytes = data.stat().st_size / 1e9
            done = subprocess.run(
                [sys.executable, __file__, "--child", kind, str(folder), json.dumps(epsilons)],
                capture_output=True, text=True,
            )  # fmt: skip
        if done.returncode:
            lines.append(f"| {name} | {n:,} | {p:,} | {gigabytes:.2f} GB | failed: {done.stderr[-200:]!r} |")
            continue
        out = json.loads(done.stdout.splitlines()[-1])
        for epsilon, measured, seconds, found, memory in out["runs"]:
            lines.append(
                f"| {name} | {n:,} | {p:,} | {gigabytes:.2f} GB | {out['product']:.3f} s | {epsilon} | "
                f"{measured:.2f} s | {seconds:.2f} s | {seconds / out['product']:.0f} | {found} | {memory:.2f} GB |"
            )
        print(lines[-2:], file=sys.stderr, flush=True)
    lines += [
        "",
        "Small epsilon on very wide tables: the law is spread over all C(p, 5) supports, and a draw says nothing. "
        "With p = 1,000,000 and n = 500 the support must beat e^64 others: that takes an epsilon of tens.",
    ]
    write("selection_wide", "\n".join(lines) + "\n")


if __name__ == "__main__":
    if "--child" in sys.argv:
        at = sys.argv.index("--child")
        child(sys.argv[at + 1], Path(sys.argv[at + 2]), json.loads(sys.argv[at + 3]))
    else:
        main()
