"""Small tables, their neighbours, and the two properties that every certificate must have."""

import numpy as np


def blobs(n, p=2, classes=2, seed=0, spread=0.35):
    """Rows within [-1, 1] around one centre a class."""
    rng = np.random.default_rng(seed)
    turn = 2 * np.pi * np.arange(classes) / classes + 0.4
    centres = np.zeros((classes, p))
    centres[:, 0], centres[:, -1] = 0.6 * np.cos(turn), 0.6 * np.sin(turn)
    y = rng.integers(0, classes, n)
    return np.clip(centres[y] + spread * rng.normal(size=(n, p)), -1, 1), y


def change(X, y, ids, adjacency, classes, rng, extreme=False):
    """One random neighbour of a table; returns rows, labels and ids."""
    X, y, ids = X.copy(), y.copy(), list(ids)
    i = int(rng.integers(len(y))) if len(y) else 0
    scale = rng.choice([1, 1e6, 1e308]) if extreme else 1.0
    row = rng.uniform(-1, 1, X.shape[1]) * scale
    if extreme and rng.random() < 0.2:
        row[0] = rng.choice([np.nan, np.inf, -np.inf])
    label = int(rng.integers(classes))
    if adjacency == "add_remove_one":
        if len(y) and rng.random() < 0.5:
            return np.delete(X, i, 0), np.delete(y, i), ids[:i] + ids[i + 1 :]
        place = int(rng.integers(len(y) + 1))
        new = max(ids, default=0) + 1 + int(rng.integers(1000))
        return np.insert(X, place, row, 0), np.insert(y, place, label), [*ids[:place], new, *ids[place:]]
    y[i] = label
    if adjacency != "replace_label":
        X[i] = row
    return X, y, ids


def check_neighbours(certificate, X, y, Q, *, adjacency, rng, pairs, steps=1, extreme=False, ids=None):
    """Assert soundness along random walks of neighbours, and the Lipschitz property on every step.

    Returns the number of (pair, query) checks and the largest distance that was met.
    """
    classes = certificate.classes
    ids = list(range(len(y))) if ids is None else ids
    first = certificate.fit(X, y, ids=ids).stability(Q)
    checks, largest = 0, int(first[1].max())
    for _ in range(pairs):
        table, (labels, k) = (X, y, ids), first
        for step in range(1, steps + 1):
            table = change(*table, adjacency, classes, rng, extreme)
            new_labels, new_k = certificate.fit(table[0], table[1], ids=table[2]).stability(Q)
            assert np.abs(new_k - k).max() <= 1
            turned = new_labels != labels
            assert not np.any(k[turned])
            assert not np.any(new_k[turned])
            kept = first[1] >= step
            assert np.array_equal(new_labels[kept], first[0][kept])
            labels, k = new_labels, new_k
            checks += k.size
    return checks, largest
