"""What every benchmark writes above its figures, and where the figures go."""

from __future__ import annotations

import datetime
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def header(*packages: str) -> str:
    """Return one line: date, processor, usable cores, versions. No host name, no path."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    named = dict.fromkeys(("numpy", "scipy", "numba", "pyarrow", *packages))
    versions = ", ".join(f"{name} {_version(name)}" for name in named)
    today = datetime.date.today().isoformat()
    return f"{today}; {_processor()}, {cores} cores; Python {platform.python_version()}, {versions}."


def write(name: str, text: str) -> Path:
    """Print `text` and keep it as ``benchmarks/results/NAME.md``."""
    print(text)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.md"
    path.write_text(text, encoding="utf-8")
    return path


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
