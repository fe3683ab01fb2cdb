"""Opacus on the MLP of training_speed.py, and Confide's own kernels on torch tensors; one JSON line.

Run by training_speed.py in benchmarks/.venv-peers with PYTHONPATH=src.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

ROWS, COLUMNS, BATCH = 50_000, 100, 1024


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(COLUMNS, 64, bias=False),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 1),
    )


def batches(dtype: torch.dtype, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(BATCH * 4, COLUMNS)), dtype=dtype)
    y = torch.tensor(rng.uniform(-1, 1, size=(BATCH * 4, 1)), dtype=dtype)
    return [(X[i * BATCH : (i + 1) * BATCH], y[i * BATCH : (i + 1) * BATCH]) for i in range(4)] * (count // 4)


def timed(step, data, repeats: int = 5) -> float:
    for x, y in data[:4]:
        step(x, y)
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        for x, y in data:
            step(x, y)
        best = min(best, (time.process_time() - start) / len(data))
    return best


def opacus(mode: str, dtype: torch.dtype) -> float:
    from opacus import PrivacyEngine

    model = network().to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = batches(dtype, 12)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data[0]), batch_size=BATCH)
    options = {
        "noise_multiplier": 1.0,
        "max_grad_norm": 1.0,
        "poisson_sampling": False,
        "grad_sample_mode": mode,
    }
    criterion = torch.nn.MSELoss(reduction="mean")
    if mode == "ghost":
        model, optimizer, criterion, _ = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=loader, criterion=criterion, **options
        )
    else:
        model, optimizer, _ = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=loader, **options
        )

    def step(x, y):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()

    return timed(step, data)


def plain(dtype: torch.dtype) -> float:
    model = network().to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    return timed(step, batches(dtype, 12))


def kernels_on_torch() -> float:
    """Largest difference between the released integers of NumPy and of torch tensors, in steps of the grid."""
    from confide.training.sgd.engine import Problem, State, steps
    from confide.training.sgd.factorisation import FactorisationMachine
    from confide.training.sgd.linear import Linear
    from confide.training.sgd.losses import Logistic, Softmax, Squared
    from confide.training.sgd.mlp import MLP
    from confide.training.sgd.optimizers import Average, Momentum
    from confide.training.sgd.sensitivity import plan
    from confide.training.sgd.switch import Stage

    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(300, 6)), rng.uniform(-1, 1, size=(300, 2))
    X[3] = 1e308
    worst = 0.0
    for model, loss in (
        (Linear(8), Squared(2.0)),
        (Linear(8, 3), Softmax(3)),
        (FactorisationMachine(8, 3), Logistic()),
        (MLP(6, 2, (5, 4), 4, 3, "gelu"), Squared(2.0)),
        (MLP(6, 2, (5,), activation="tanh", outputs=3), Softmax(3)),
    ):
        y = rng.integers(0, 2, 300).astype(float)
        for q, batch in ((1.0, None), (0.5, np.arange(0, 300, 2))):
            book = plan(float("inf"), 0, steps=1, adjacency="replace_private_part", nonprivate=True)
            if q == 1:
                book = plan(1, 1e-6, steps=1, adjacency="replace_private_part")
            found = []
            for wrap in (np.asarray, lambda a: torch.tensor(a, dtype=torch.float64)):
                task = Problem(model, loss, wrap(X), wrap(Z), wrap(y), book, 300.0, 300, 0.5)
                theta = model.initial(0) + 0.1 * np.random.default_rng(1).normal(size=model.size)
                state = State(theta, Momentum(), Average(1))
                got = next(
                    steps(task, (Stage(),), np.ones(1), state, None if batch is None else iter([batch]))
                )
                found.append(got.value * got.step)
            worst = max(worst, float(np.abs(found[0] - found[1]).max()))
    return worst


if __name__ == "__main__":
    result = {"torch": torch.__version__, "difference": kernels_on_torch()}
    import opacus as package

    result["opacus"] = package.__version__
    for name, dtype in (("float32", torch.float32), ("float64", torch.float64)):
        result[name] = {
            "plain": plain(dtype),
            "hooks": opacus("hooks", dtype),
            "ghost": opacus("ghost", dtype),
        }
    print(json.dumps(result))
