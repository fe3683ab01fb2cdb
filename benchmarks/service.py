"""The private prediction service under load, kills, races, malformed input, a stopwatch and repetition.

Run: python benchmarks/service.py [--full] [--only PART ...] [--store sqlite|postgresql] [--folder PATH]

Without ``--full`` every part runs at a small size and only prints: a check that all of it works. With it the
sizes are those of the targets, each part is kept in results/service.csv as soon as it is done, and a second
run goes on where the first one stopped (``--again`` measures anew). results/service.md is made of the parts
kept. Parts: load, kills, race, fuzz, malformed, timing, repetition; "load sqlite" is one store's alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from typing import Any

import _resume
import _service_world as world
from _common import RESULTS, header, write
from _service_part import Part

TITLES = {
    "load": "Load",
    "kills": "Kills",
    "race": "Race for the last unit of budget",
    "fuzz": "OpenAPI document, by schemathesis",
    "malformed": "Malformed rows",
    "timing": "Latency",
    "repetition": "Repetition",
}
#: Parts that are measured on both stores; the others do not depend on it.
BOTH = ("load", "kills", "race")
KEPT, KEYS, COLUMNS = RESULTS / "service.csv", ("part",), ("part", "status", "about", "lines", "missed")


def measure(name: str, store: str, full: bool, place: str | None) -> Part:
    """Return what one part of the benchmark came to."""
    from importlib import import_module

    module = import_module(f"_service_{'fuzz' if name == 'malformed' else name}")
    return getattr(module, "malformed" if name == "malformed" else "run")(store, full, place)


def parts(only: list[str], store: str | None) -> list[str]:
    """Return names of what is asked, in order."""
    kinds = world.stores(store)
    every = [f"{name} {kind}" for name in TITLES for kind in (kinds if name in BOTH else kinds[:1])]
    chosen = [part for part in every if not only or any(part.startswith(word) for word in only)]
    if not chosen:
        raise SystemExit(f"No such part; there are: {', '.join(every)}.")
    return chosen


def report() -> str:
    """Return the page of results, from what is kept."""
    found = {row["part"]: row for row in _resume.read(KEPT, KEYS) if row["status"] == "done"}
    lines = ["# Private prediction service", ""]
    for name, title in TITLES.items():
        for part, row in found.items():
            if part.split()[0] == name:
                kind = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[part.split()[1]]
                lines += [f"## {title}, {kind}", "", row["about"], "", *json.loads(row["lines"]), ""]
                missed = json.loads(row["missed"])
                lines += [*(f"MISSED: {what}." for what in missed), ""] if missed else []
    return "\n".join(lines)


def main() -> int:
    """Run the parts and return 1 if a target is missed, 2 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="at the sizes of the targets; keep what is found")
    parser.add_argument("--again", action="store_true", help="measure what is kept already, too")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART")
    parser.add_argument("--store", choices=("sqlite", "postgresql"))
    parser.add_argument("--folder", help="file system to measure; default: temporary files")
    options = parser.parse_args()
    os.environ.update(world.environment())
    done: set[Any] = set()
    if options.full:
        RESULTS.mkdir(exist_ok=True)
        _resume.begin(KEPT, COLUMNS)
        done = set() if options.again else _resume.finished(KEPT, KEYS, retry=True)
    worst = 0
    for part in parts(options.only, options.store):
        if (part,) in done:
            print(f"{part}: kept from an earlier run")
            continue
        print(f"\n{part} ...", flush=True)
        begun = time.perf_counter()
        row: dict[str, Any] = {"part": part, "about": header("fastapi", "uvicorn", "SQLAlchemy", "psycopg")}
        try:
            found = measure(*part.split(), options.full, options.folder)
            row |= {"status": "done", "lines": json.dumps(found.lines), "missed": json.dumps(found.missed)}
            worst = max(worst, int(bool(found.missed)))
            print("\n".join(found.lines))
            print("".join(f"MISSED: {what}.\n" for what in found.missed), end="")
        except Exception as error:
            traceback.print_exc()
            row |= {"status": f"failed: {type(error).__name__}", "lines": "[]", "missed": "[]"}
            worst = 2
        print(f"({time.perf_counter() - begun:.0f} s)", flush=True)
        if options.full:
            _resume.append(KEPT, COLUMNS, [row])
            write("service", report())
    return worst


if __name__ == "__main__":
    sys.exit(main())
