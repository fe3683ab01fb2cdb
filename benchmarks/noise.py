"""Speed of the private draws on one core, against NumPy's normal and opendp, and what timing reveals.

PYTHONPATH=src python benchmarks/noise.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

import confide.mechanisms as m
from _common import header, write

N = 1_000_000


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a markdown table."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def cpu_time(call: Callable[[], object], repeats: int = 9) -> float:
    """Return the median CPU time of `call` in seconds; one call before warms up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def compile_times() -> list[tuple[str, str]]:
    """First calls: loading or compiling kernels, and tables. Numba's cache makes later processes fast."""
    calls = {
        "rounded_gaussian": lambda: m.rounded_gaussian(1.0, 1.0, 2),
        "discrete_laplace": lambda: m.discrete_laplace(1.0, 2),
        "discrete_gaussian": lambda: m.discrete_gaussian(1.0, 2),
        "weighted_choice": lambda: m.weighted_choice(log_weights=[0.0, 1.0], size=2),
        "tables of discrete_laplace(2^20)": lambda: m.discrete_laplace(2.0**20, 2),
    }
    rows = []
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        rows.append((name, f"{time.perf_counter() - start:.3f} s"))
    return rows


def opendp_draws() -> dict[str, float]:
    """CPU seconds for 10^5 draws of opendp's vector measurements, times 10."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return {}
    dp.enable_features("contrib")
    n = 100_000
    zeros = [0] * n
    result = {}
    for scale in (1.0, 50.0, 2.0**20):
        domain = dp.vector_domain(dp.atom_domain(T="i64"), n)
        laplace = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
        gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
        result[f"discrete_laplace({scale:g})"] = 10 * cpu_time(lambda f=laplace: f(zeros), 3)
        result[f"discrete_gaussian({scale:g})"] = 10 * cpu_time(lambda f=gaussian: f(zeros), 3)
    floats = dp.vector_domain(dp.atom_domain(T=float, nan=False), n)
    real = dp.m.make_gaussian(floats, dp.l2_distance(T=float), scale=1.0, k=-20)
    result["rounded_gaussian(1, 2^-20)"] = 10 * cpu_time(lambda: real([0.0] * n), 3)
    return result


def correlation(draw) -> float:
    """Spearman correlation of |noise| and the wall time of single draws (20,000 of them)."""
    from scipy.stats import spearmanr

    for _ in range(200):
        draw()
    times, sizes = [], []
    for _ in range(20_000):
        start = time.perf_counter_ns()
        value = draw()
        times.append(time.perf_counter_ns() - start)
        sizes.append(abs(value))
    return float(spearmanr(times, sizes).statistic)


def main() -> None:
    first = table(("first call", "wall time"), compile_times())
    generator = np.random.default_rng()
    normal = cpu_time(lambda: generator.normal(size=N))
    logs = np.random.default_rng(1).normal(size=1000)
    big = np.random.default_rng(1).normal(size=1_000_000)
    calls = {"numpy.random.Generator.normal": lambda: generator.normal(size=N)}
    for exponent in (0, 20, 30, 36):
        calls[f"rounded_gaussian(1, 2^-{exponent})"] = lambda e=exponent: m.rounded_gaussian(1, 2.0**-e, N)
    for scale in (1.0, 50.0, 2.0**20):
        calls[f"discrete_laplace({scale:g})"] = lambda s=scale: m.discrete_laplace(s, N)
        calls[f"discrete_gaussian({scale:g})"] = lambda s=scale: m.discrete_gaussian(s, N)
    calls["bernoulli_exp(1)"] = lambda: m.bernoulli_exp(1.0, N)
    calls["weighted_choice(1000 logs)"] = lambda: m.weighted_choice(log_weights=logs, size=N)
    calls["os_stream().bits"] = lambda: m.os_stream().bits(N)
    oracle = opendp_draws()
    rows = []
    for name, call in calls.items():
        seconds = cpu_time(call)
        ratio = f"{oracle[name] / seconds:.0f} x" if name in oracle else ""
        rows.append((name, f"{seconds * 1000:.1f}", f"{seconds / normal:.2f}", ratio))
    once = cpu_time(lambda: m.weighted_choice(log_weights=big), 3)
    rows.append(("weighted_choice, one draw among 10^6 logs", f"{once * 1000:.1f}", "", ""))
    speed = table(("10^6 draws", "CPU ms", "times normal", "opendp takes"), rows)
    singles = {
        "rounded_gaussian(1, 2^-20)": lambda: m.rounded_gaussian(1.0, 2.0**-20, 1)[0],
        "discrete_laplace(50)": lambda: m.discrete_laplace(50.0, 1)[0],
        "discrete_gaussian(50)": lambda: m.discrete_gaussian(50.0, 1)[0],
    }
    try:
        import opendp.prelude as dp

        integer = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
        laplace = dp.m.make_laplace(*integer, scale=50.0)
        singles["opendp laplace(50)"] = lambda: laplace(0)
    except ImportError:
        pass
    timing = table(
        ("single draws", "Spearman correlation of time and abs(noise)"),
        [(name, f"{correlation(draw):+.4f}") for name, draw in singles.items()],
    )
    parts = (
        "# Noise",
        header("opendp"),
        "`PYTHONPATH=src python benchmarks/noise.py`; CPU time of one core, medians; opendp from and to Python lists.",
        first,
        speed,
        "Time of single draws against abs(noise); independent samples of 20,000 stay within +-0.02.",
        timing,
    )
    write("noise", "\n\n".join(part.rstrip() for part in parts) + "\n")


if __name__ == "__main__":
    main()
