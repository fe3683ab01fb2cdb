"""Tables, neighbours, attacks and an independent trainer for the tests of interval training."""

from __future__ import annotations

import itertools

import numpy as np

from confide.prediction.intervals import FixedBatches, HashedBatches, train_intervals

CLIP = 0.3
#: name -> layers, hyperparameters. Small, but every optimiser, clip and head.
MODELS = {
    "linear_two_logits": ([3, 2], {}),
    "linear_one_logit_nesterov": ([3, 1], {"momentum": 0.9, "nesterov": True, "learning_rate_decay": 0.5}),
    "linear_four_classes_decay": ([3, 4], {"weight_decay": 0.4, "momentum": 0.5}),
    "decay_past_one": ([3, 2], {"weight_decay": 2.2, "learning_rate": 0.6}),
    "linear_by_norm": ([3, 2], {"clip_by": "norm", "weight_decay": 0.1}),
    "mlp": ([3, 4, 2], {"momentum": 0.6, "weight_decay": 0.2}),
    "mlp_one_logit_by_norm": ([3, 4, 1], {"clip_by": "norm"}),
    "deep": ([3, 4, 3, 3], {"momentum": 0.3, "nesterov": True, "weight_decay": 0.1}),
}
#: name -> adjacency, batches, budget.
SETTINGS = {
    "replace_full": ("replace_one", None, "step"),
    "replace_batches": ("replace_one", FixedBatches(3), "step"),
    "replace_epoch": ("replace_one", FixedBatches(3), "epoch"),
    "add_full": ("add_remove_one", HashedBatches(1, 9), "step"),
    "add_batches": ("add_remove_one", HashedBatches(4, 3), "step"),
    "add_epoch": ("add_remove_one", HashedBatches(3, 3), "epoch"),
}


def hyperparameters(extra):
    return {"learning_rate": 0.5, "clip": CLIP, "epochs": 2, **extra}


def table(rng, rows=12, columns=3, classes=2):
    X = rng.standard_normal((rows, columns))
    y = np.minimum((X[:, 0] > 0) + (X[:, 1] > 0.5) * (classes > 2), classes - 1).astype(np.int64)
    return X, y, np.arange(rows)


def odd_row(rng, columns, classes):
    """A row that is ordinary, far away, overflowing, or unusable."""
    kind = rng.integers(8)
    x = np.clip(rng.standard_normal(columns), -1.7, 1.7) * (1.0, 1.0, 3.0, 1e6, 1e300, 1.0, 1e308, 1.0)[kind]
    if kind == 5:
        x[rng.integers(columns)] = (np.nan, np.inf)[rng.integers(2)]
    label = int(rng.integers(classes)) if kind != 7 else 99
    return x, label


def neighbour(rng, data, adjacency, classes):
    """One change of (X, y, ids) under the relation."""
    X, y, ids = (part.copy() for part in data)
    x, label = odd_row(rng, X.shape[1], classes)
    if adjacency == "replace_one":
        row = rng.integers(len(y))
        X[row], y[row] = x, label
        return X, y, ids
    if rng.integers(2) and len(y):
        row = rng.integers(len(y))
        return np.delete(X, row, 0), np.delete(y, row), np.delete(ids, row)
    place = rng.integers(len(y) + 1)
    return (
        np.insert(X, place, x, 0),
        np.insert(y, place, label),
        np.insert(ids, place, 1000 + rng.integers(10**6)),
    )


def run(data, model, setting, ks, init, **options):
    layers, extra = MODELS[model]
    adjacency, batches, budget = SETTINGS[setting]
    X, y, ids = data
    ids = ids if isinstance(batches, HashedBatches) else None
    return train_intervals(
        X, y, layers, init, hyperparameters(extra), ks, adjacency, batches, ids=ids, budget=budget, **options
    )


def start(rng, layers):
    size = sum((a + 1) * b for a, b in itertools.pairwise(layers))
    return rng.standard_normal(size) * 0.6


def unpack(theta, layers):
    parts, at = [], 0
    for a, b in itertools.pairwise(layers):
        parts.append((theta[at : at + a * b].reshape(b, a), theta[at + a * b : at + a * b + b]))
        at += (a + 1) * b
    return parts


def row_gradients(theta, layers, X, y):
    """Gradients of all rows [rows, parameter], written with matrix products and scipy's functions."""
    from scipy.special import expit, softmax

    parts = unpack(theta, layers)
    inputs, h = [X], X
    for W, b in parts[:-1]:
        h = np.maximum(h @ W.T + b, 0)
        inputs.append(h)
    z = h @ parts[-1][0].T + parts[-1][1]
    if layers[-1] == 1:
        d = expit(z) - y[:, None]
    else:
        d = softmax(z, axis=1) - np.eye(layers[-1])[y]
    out = []
    for layer in range(len(parts) - 1, -1, -1):
        W, _ = parts[layer]
        out = [np.einsum("ro,ri->roi", d, inputs[layer]).reshape(len(y), -1), d, *out]
        d = (d @ W) * (inputs[layer] > 0)
    return np.concatenate(out, axis=1)


def train_plainly(data, layers, init, settings, batches):
    """Train by gradient descent on batches [(places, divisor)]: the oracle of the nominal model."""
    X, y, _ = data
    theta, v, step = init.copy(), np.zeros_like(init), 0
    momentum, decay = settings.get("momentum", 0), settings.get("weight_decay", 0)
    for _ in range(settings["epochs"]):
        for places, divisor in batches:
            g = row_gradients(theta, layers, X[places], y[places])
            if settings.get("clip_by") == "norm":
                norm = np.linalg.norm(g, axis=1, keepdims=True)
                g = g * np.minimum(1, settings["clip"] / np.maximum(norm, 1e-300))
            else:
                g = np.clip(g, -settings["clip"], settings["clip"])
            g = g.sum(axis=0) / divisor + decay * theta
            v = momentum * v + g
            rate = settings["learning_rate"] / (1 + settings.get("learning_rate_decay", 0) * step)
            theta = theta - rate * (g + momentum * v if settings.get("nesterov") else v)
            step += 1
    return theta


def uphill(rng, data, changes, adjacency, classes, query, retrain):
    """Change rows by gradient ascent (finite differences) on the gap between two logits of a query."""
    X, y, ids = (part.copy() for part in data)
    if adjacency == "replace_one":
        rows = rng.choice(len(y), size=changes, replace=False)
    else:
        rows = np.arange(len(y), len(y) + changes)
        X = np.vstack([X, np.zeros((changes, X.shape[1]))])
        y = np.concatenate([y, np.zeros(changes, dtype=y.dtype)])
        ids = np.concatenate([ids, 1000 + rng.integers(10**6, size=changes)])
    X[rows] = rng.standard_normal((changes, X.shape[1])) + query
    y[rows] = rng.integers(classes)
    side = rng.choice([-1, 1])

    def height(values):
        z = retrain((values, y, ids)).logits(query[None])[0][0, 0]
        return side * (z[0] - z[-1] if len(z) > 1 else z[0])

    for _ in range(3):
        base, slope = height(X), np.zeros((changes, X.shape[1]))
        for place, row in enumerate(rows):
            for column in range(X.shape[1]):
                moved = X.copy()
                moved[row, column] += 1e-4
                slope[place, column] = height(moved) - base
        X[rows] += 2.0 * np.sign(slope)
    return X, y, ids
