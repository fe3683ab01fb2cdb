"""Time and memory of one pass over a 5-million-row Parquet file, against pyarrow's bare read.

Each measurement runs in a process of its own. Run: ``python benchmarks/reader.py [ROWS]``.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import header, write

ROWS = 5_000_000
SCHEMA = """
[table]
name = "visits"
declared_by = "the benchmark"

[columns.age]
role = "public"
lower = 0
upper = 110

[columns.distance]
role = "public"
lower = 0
upper = 500

[columns.waiting]
role = "public"
lower = 0
upper = 365

[columns.score]
role = "public"
lower = -4
upper = 4

[columns.year]
role = "public"
lower = 1990
upper = 2030

[columns.region]
role = "public"
categories = ["north", "east", "south", "west"]

[columns.urban]
role = "public"
categories = [false, true]

[columns.clinic]
role = "public"
categories = [CLINICS]

[columns.cost]
role = "label"
lower = 1
upper = 100000
transform = "log"
""".replace("CLINICS", ", ".join(f'"c{i}"' for i in range(20)))
WITH_IDS = SCHEMA.replace('"visits"', '"visits"\nmax_rows_per_id = 4') + '\n[columns.patient]\nrole = "id"\n'


def make(path: Path, rows: int) -> None:
    """Write the file in pieces of half a million rows, the row groups a database export has."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, 500_000):
        n = min(500_000, rows - start)
        table = pa.table(
            {
                "age": rng.integers(0, 100, n),
                "distance": rng.gamma(2, 20, n),
                "waiting": rng.integers(0, 400, n),
                "score": rng.normal(size=n),
                "year": rng.integers(1995, 2025, n).astype(np.int16),
                "region": pa.array(rng.choice(["north", "east", "south", "west"], n)),
                "urban": rng.random(n) < 0.7,
                "clinic": pa.array([f"c{i}" for i in range(25)]).take(pa.array(rng.integers(0, 25, n))),
                "cost": rng.lognormal(5, 2, n),
                "patient": rng.integers(0, rows // 3, n),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def measure(task: str, folder: Path) -> None:
    """Run one task in this process and print seconds, peak memory and rows."""
    file = folder / "visits.parquet"
    if task == "bare":
        import pyarrow.parquet as pq

        start = time.perf_counter()
        rows = 0
        with pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as parquet:
            for batch in parquet.iter_batches(batch_size=100_000):
                rows += batch.num_rows
    else:
        from confide.schema import Table

        schema = folder / ("ids.toml" if task == "gram, with ids" else "schema.toml")
        start = time.perf_counter()
        rows = Table.scan(file, schema).gram().n_rows
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "gib": peak, "rows": rows}))


def main() -> None:
    """Make the file, measure each task in a fresh process, write the table of results."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "schema.toml").write_text(SCHEMA)
        (folder / "ids.toml").write_text(WITH_IDS)
        # In a process of its own: a child's peak memory counts from what its parent held at the fork.
        subprocess.run([sys.executable, __file__, "--make", str(folder), str(rows)], check=True)
        size = (folder / "visits.parquet").stat().st_size / 2**20
        found = {}
        for task in ("bare", "gram", "gram, with ids"):
            command = [sys.executable, __file__, "--task", task, str(folder)]
            found[task] = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
    bare = found["bare"]["seconds"]
    lines = [
        "# One pass over a Parquet file",
        "",
        header(),
        "",
        f"{rows:,} rows, 8 public columns (34 encoded), a label; {size:.0f} MiB on disk; "
        "chunks of 100,000 rows.",
        '"bare" is pyarrow decoding all columns in the same chunks and dropping them.',
        "",
        "| task | seconds | ratio to bare | peak memory, GiB | rows counted |",
        "|---|---|---|---|---|",
        *(
            f"| {task} | {r['seconds']:.2f} | {r['seconds'] / bare:.1f} | {r['gib']:.2f} | {r['rows']:,} |"
            for task, r in found.items()
        ),
    ]
    write("reader", "\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(Path(sys.argv[2]) / "visits.parquet", int(sys.argv[3]))
    elif sys.argv[1:2] == ["--task"]:
        measure(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
