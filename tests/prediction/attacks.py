"""Attacks on certified classes: retrain on changed rows, chosen at random or by gradient ascent."""

from __future__ import annotations

import itertools

import numpy as np


def score(model, query):
    """A real number for each class of one query, smooth where the model is."""
    kind = type(model).__name__
    if kind == "FittedPerPerson":
        return score(model.model, query)
    if kind == "FittedEnsemble":
        return sum(_soft(score(member, query)) for member in model.models)
    if kind == "FittedERM":
        return _both(model.rows(query[None])[0] @ model.weights.T)
    if hasattr(model, "nominal"):
        linear = [query.size, model.nominal.size // (query.size + 1)]
        return _both(_forward(model.nominal, list(getattr(model.certificate, "layers", linear)), query))
    return model.votes(query[None])[0].astype(float)


def _both(logits):
    return np.array([0.0, logits[0]]) if len(logits) == 1 else np.asarray(logits, dtype=float)


def _soft(values):
    powers = np.exp(values - values.max())
    return powers / powers.sum()


def _forward(theta, layers, x):
    at, last = 0, len(layers) - 2
    for number, (a, b) in enumerate(itertools.pairwise(layers)):
        W, bias = theta[at : at + a * b].reshape(b, a), theta[at + a * b : at + (a + 1) * b]
        x = W @ x + bias
        x = x if number == last else np.maximum(x, 0)
        at += (a + 1) * b
    return x


def supporters(X, y, query, label, count, rng):
    """Rows of one class near the query first, then the others; a little noise makes attacks differ."""
    far = np.linalg.norm(X - query, axis=1) + 0.2 * rng.random(len(y)) + 10.0 * (y != label)
    return np.argsort(far)[:count]


def poisoned(table, relation, count, row, rival, query, label, rng):
    """`count` changes: supporters of the class become, or give way to, copies of one row of the rival class."""
    X, y, ids = (np.array(part) for part in table)
    chosen = supporters(X, y, query, label, min(count, len(y)), rng)
    if relation == "add_remove_one":
        gone = chosen[: count // 2]
        come = count - gone.size
        new = 10**6 + rng.integers(10**6) * 1000 + np.arange(come)
        X = np.vstack([np.delete(X, gone, 0), np.repeat(row[None], come, 0)])
        return X, np.append(np.delete(y, gone), np.full(come, rival)), np.append(np.delete(ids, gone), new)
    y[chosen] = rival
    if relation == "replace_one":
        X[chosen] = row
    return X, y, ids


def at_random(table, relation, count, classes, rng):
    """`count` random changes, some of them of rows far outside."""
    X, y, ids = (np.array(part) for part in table)
    chosen = rng.choice(len(y), size=min(count, len(y)), replace=False)
    rows = rng.uniform(-1, 1, (count, X.shape[1])) * rng.choice([1, 1, 1e6], size=(count, 1))
    if relation == "add_remove_one":
        gone = chosen[: count // 2]
        come = count - gone.size
        new = 10**9 + rng.integers(10**6) * 1000 + np.arange(come)
        X = np.vstack([np.delete(X, gone, 0), rows[:come]])
        y = np.append(np.delete(y, gone), rng.integers(0, classes, come))
        return X, y, np.append(np.delete(ids, gone), new)
    y[chosen] = rng.integers(0, classes, chosen.size)
    if relation == "replace_one":
        X[chosen] = rows[: chosen.size]
    return X, y, ids


def attack(certificate, table, relation, query, label, count, rng, *, uphill):
    """Yield the class of one query on tables within `count` changes, better and better ones if `uphill`."""
    classes = certificate.classes

    def retrain(changed):
        return certificate.fit(changed[0], changed[1], ids=changed[2])

    def told(model):
        return int(model.stability(query[None])[0][0])

    if not uphill:
        yield told(retrain(at_random(table, relation, count, classes, rng)))
        return
    rival = int(rng.choice([c for c in range(classes) if c != label]))
    seed = int(rng.integers(2**32))

    def height(row):
        changed = poisoned(table, relation, count, row, rival, query, label, np.random.default_rng(seed))
        model = retrain(changed)
        values = score(model, query)
        return values[rival] - values[label], model

    row, step = np.clip(query + 0.1 * rng.normal(size=query.size), -1, 1), 0.6
    for _ in range(3 if relation != "replace_label" else 1):
        base, model = height(row)
        yield told(model)
        slope = np.array([height(row + 1e-3 * unit)[0] - base for unit in np.eye(row.size)])
        row = np.clip(row + step * np.sign(slope), -1, 1)
        step /= 2
    yield told(height(row)[1])
