"""CPU time of a private step beside the non-private step of the same model, and beside Opacus.

The plain steps below are what one writes by hand with NumPy: forward, backward, mean gradient, Adam; the full
batch in the block size that is fastest for them, and in one piece. Both sides get the same batches, drawn before.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

HERE = Path(__file__).parent
PEERS = HERE / ".venv-peers" / "bin" / "python"
ROWS, COLUMNS, BATCH = 50_000, 100, 1024


def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS))
    return X, np.clip(X @ rng.normal(size=COLUMNS) / 20, -1, 1)


def models():
    from confide.training.sgd.linear import Linear
    from confide.training.sgd.mlp import MLP

    return {"linear d = 100": Linear(COLUMNS), "embedding 64 + MLP 64-32-1": MLP(COLUMNS, 0, (64, 32), 64)}


# -- the plain steps ------------------------------------------------------------------------------------


def adam(theta, moments, gradient, t, rate=0.01):
    first, second = moments
    first *= 0.9
    first += 0.1 * gradient
    second *= 0.999
    second += 0.001 * (gradient * gradient)
    root = np.sqrt(second / (1 - 0.999**t))
    root += 1e-8
    theta -= (rate / (1 - 0.9**t)) * (first / root)


def plain_linear(model, theta, x, y):
    slope = 2.0 * (x @ theta[:-1] + theta[-1] - y)
    out = np.empty_like(theta)
    out[:-1] = slope @ x
    out[-1] = slope.sum()
    return out


def plain_mlp(model, theta, x, y):
    (embedding, _), layers = model._weights(np, theta)
    a = x @ embedding.T
    inputs = [a]
    for W, b in layers[:-1]:
        a = a @ W.T
        a += b
        np.maximum(a, 0.0, out=a)
        inputs.append(a)
    W, b = layers[-1]
    delta = (2.0 * ((a @ W.T + b)[:, 0] - y))[:, None]
    parts = []
    for place in range(len(layers) - 1, -1, -1):
        parts = [delta.T @ inputs[place], delta.sum(axis=0), *parts]
        delta = delta @ layers[place][0]
        if place:
            delta *= inputs[place] > 0
    return np.concatenate([part.ravel() for part in (delta.T @ x, *parts)])


def plain(model, gradient, X, y, steps, batches=None, block=0):
    theta, moments = model.initial(0), (np.zeros(model.size), np.zeros(model.size))
    start = time.process_time()
    for t in range(1, steps + 1):
        if batches is None:
            total = np.zeros(model.size)
            for k in range(0, ROWS, block):
                total += gradient(model, theta, X[k : k + block], y[k : k + block])
            total /= ROWS
        else:
            places = batches[t - 1]
            total = gradient(model, theta, X.take(places, axis=0), y.take(places)) / BATCH
        adam(theta, moments, total, t)
    return (time.process_time() - start) / steps


# -- the private step -----------------------------------------------------------------------------------


def private(model, X, y, steps, *, batches=None, noise=True, draw=False):
    from confide.mechanisms.stream import stream
    from confide.training.sgd import engine
    from confide.training.sgd.batches import poisson_batches, rate_of
    from confide.training.sgd.losses import Squared
    from confide.training.sgd.optimizers import Adam, Average
    from confide.training.sgd.release import step_answer
    from confide.training.sgd.sensitivity import plan
    from confide.training.sgd.switch import Stage

    sampled = batches is not None or draw
    scale, rate = rate_of(BATCH if sampled else None, ROWS)
    book = plan(1, 1e-6, steps=400, sampling_probability=rate, adjacency="replace_label")
    task = engine.Problem(model, Squared(2.0), X, None, y, book, float(BATCH if sampled else ROWS), ROWS, 1.0)
    state = engine.State(model.initial(0), Adam(), Average(steps + 1))
    source = None if not sampled else (poisson_batches(ROWS, scale, stream(None)) if draw else iter(batches))
    answer = (
        step_answer(book.multiplier, stream(None), steps=steps + 1) if noise else (lambda s: s.value * s.step)
    )
    run = engine.steps(task, (Stage(),), np.full(steps + 1, 0.01), state, source)
    statistic = next(run)
    start = time.process_time()
    for _ in range(steps):
        statistic = run.send(answer(statistic))
    return (time.process_time() - start) / steps


def best(*measures, repeats=15):
    """Least time of each, taken in turns, so that a busy machine is busy for all."""
    found = [math.inf] * len(measures)
    for _ in range(repeats):
        for k, measure in enumerate(measures):
            found[k] = min(found[k], measure())
    return found


def drawn(count):
    from confide.mechanisms.stream import seeded_stream
    from confide.training.sgd.batches import poisson_batches, rate_of

    source = poisson_batches(ROWS, rate_of(BATCH, ROWS)[0], seeded_stream(0))
    return [next(source) for _ in range(count)]


def speed(name, model, gradient):
    X, y = table()
    count = 300 if "linear" in name else 60
    batches = drawn(count + 1)
    for kind in ({"batches": batches[:6]}, {"draw": True}, {}):
        private(model, X, y, 5, **kind)  # compiles, calibrates
    lines = []
    base, without, noisy, drawing = best(
        lambda: plain(model, gradient, X, y, count, batches),
        lambda: private(model, X, y, count, batches=batches, noise=False),
        lambda: private(model, X, y, count, batches=batches),
        lambda: private(model, X, y, count, draw=True),
    )
    lines.append(
        f"| {name}, Poisson batch {BATCH:,} | {base * 1e3:.3f} | {without / base:.2f} | {noisy / base:.2f} | "
        f"{drawing / base:.2f} |"
    )
    step = noisy
    few = 10 if "linear" in name else 3
    blocks = (1024, 2048, 4096, 8192)
    *bases, whole, without, noisy = best(
        *(lambda b=b: plain(model, gradient, X, y, few, block=b) for b in blocks),
        lambda: plain(model, gradient, X, y, few, block=ROWS),
        lambda: private(model, X, y, few, noise=False),
        lambda: private(model, X, y, few),
        repeats=25 if "linear" in name else 7,
    )
    base = min(bases)
    lines.append(
        f"| {name}, full batch {ROWS:,} | {base * 1e3:.2f} | {without / base:.2f} | {noisy / base:.2f} | |"
    )
    lines.append(
        f"| the same against the plain step in one piece | {whole * 1e3:.2f} | {without / whole:.2f} | "
        f"{noisy / whole:.2f} | |"
    )
    return lines, step


def memory(index):
    """Peak memory of two full-batch steps over that of the imported process, in GB (run in a process alone)."""
    import confide.training.sgd.engine  # noqa: F401
    from confide.mechanisms.stream import stream

    stream(None)
    model = list(models().values())[index]
    before = peak()
    X, y = table()
    private(model, X, y, 2)
    return (peak() - before) / 1e9


def peak():
    """Peak resident memory of this process in bytes; a child's `ru_maxrss` would begin at its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def peers():
    if not PEERS.exists():
        return None
    run = subprocess.run(
        [str(PEERS), str(HERE / "_training_peers.py")], capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout.strip().splitlines()[-1])


def main():
    from _common import header, write

    text = [
        "# Speed of engine `dpsgd`",
        "",
        header("torch"),
        "CPU time of one thread, least of several runs in turns. The plain step is NumPy written by hand; Adam on "
        f"both sides; float64; n = {ROWS:,}; label DP, clipped. `python benchmarks/training_speed.py`",
        "",
        "| step | plain, ms | private without noise | with exact noise | and with exact Poisson draws |",
        "|---|---|---|---|---|",
    ]
    mlp_step = math.inf
    for (name, model), gradient in zip(models().items(), (plain_linear, plain_mlp), strict=True):
        lines, step = speed(name, model, gradient)
        text += lines
        mlp_step = step
    text += [
        "",
        "Aims: 1.2 without noise; with it 1.7 at the batch and 1.25 at the full batch.",
        "Draws of the next batch (about 1,024 of 50,000 rows, exactly Poisson) cost the same for a non-private step "
        "that wants them; the other columns give both sides batches that were drawn before.",
        "",
        "## Memory",
        "",
    ]
    for index, name in enumerate(models()):
        command = [sys.executable, __file__, "--memory", str(index)]
        used = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        text.append(
            f"- {name}, full batch: peak {used:.3f} GB over the imported process, the table of "
            f"{ROWS * COLUMNS * 8 / 1e9:.2f} GB included (aim 0.3)."
        )
    text += ["", "## Opacus", ""]
    found = peers()
    if found is None:
        text.append("Not measured: benchmarks/.venv-peers is absent (benchmarks/requirements-peers.txt).")
    else:
        text += [
            f"torch {found['torch']}, Opacus {found['opacus']}, batches of {BATCH:,} without sampling, the MLP, one "
            f"thread. Ours, float64 with exact noise: {mlp_step * 1e3:.2f} ms.",
            "",
            "| | plain torch, ms | hooks, ms | ghost clipping, ms | hooks / ours | ghost / ours |",
            "|---|---|---|---|---|---|",
        ]
        for kind in ("float32", "float64"):
            row = found[kind]
            text.append(
                f"| {kind} | {row['plain'] * 1e3:.2f} | {row['hooks'] * 1e3:.2f} | {row['ghost'] * 1e3:.2f} | "
                f"{row['hooks'] / mlp_step:.1f} | {row['ghost'] / mlp_step:.1f} |"
            )
        text += [
            "",
            "Aims: 10 times faster than hooks, twice as fast as ghost clipping.",
            f"The same kernels on torch tensors release what they release on NumPy arrays to {found['difference']:.1g}.",
        ]
    write("training_speed", "\n".join(text) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        print(memory(int(sys.argv[2])))
    else:
        main()
