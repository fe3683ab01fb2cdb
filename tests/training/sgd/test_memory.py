"""Peak memory of a step: rows times columns, never times parameters (pitfall F34)."""

import tracemalloc

import numpy as np
import pytest

from confide.training.sgd.engine import Problem
from confide.training.sgd.linear import Linear
from confide.training.sgd.losses import Softmax
from confide.training.sgd.mlp import MLP
from confide.training.sgd.sensitivity import plan

from .helpers import first

N, P, K = 20_000, 100, 10


@pytest.mark.parametrize("model", [Linear(P, K), MLP(P, 0, (64, 32), outputs=K)], ids=["linear", "mlp"])
def test_no_step_holds_a_gradient_for_each_row(model):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, P)), rng.integers(0, K, N).astype(float)
    book = plan(1, 1e-6, steps=3, adjacency="replace_label")
    task = Problem(model, Softmax(K), X, np.zeros((N, 0)), y, book, float(N), N, 0.5)
    first(task)  # compile
    tracemalloc.start()
    first(task)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = 8 * N * model.size
    assert whole > 150e6
    # The rows with their constant, logits and activations of a block; the gradients of all rows are 160 MB or more.
    assert peak < 4 * X.nbytes < whole / 2
