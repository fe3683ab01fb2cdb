"""Small runs of the engine, and the plain per-example gradients that it is checked against."""

import math

import numpy as np

from confide.training.sgd import SGDRequest
from confide.training.sgd.engine import Problem, State, steps
from confide.training.sgd.losses import Logistic, Softmax, Squared
from confide.training.sgd.models import Rows
from confide.training.sgd.optimizers import Average, Momentum
from confide.training.sgd.sensitivity import plan
from confide.training.sgd.switch import Stage

LOSSES = {"squared": Squared(2.0), "logistic": Logistic(), "softmax": Softmax(3)}


def account(adjacency="replace_label", *, steps=3, q=1.0, epsilon=1.0, **options):
    return plan(epsilon, 1e-6, steps=steps, sampling_probability=q, adjacency=adjacency, **options)


def short_request(**options):
    """Return a seeded request of two steps; of numbers, unless classes are given."""
    base = {"epsilon": 1, "delta": 1e-4, "steps": 2, "random_state": 0}
    if "classes" not in options:
        base["target_bounds"] = (-1, 1)
    return SGDRequest(**{**base, **options})


def short_secret(**options):
    """Return such a request whose label and two columns are private."""
    return short_request(adjacency="replace_private_part", private_bounds=[(-1, 1)] * 2, **options)


def problem(model, loss, public, private, labels, book, *, clip=1.0, rows=None, weights=None):
    n = len(labels)
    return Problem(
        model, loss, public, private, labels, book, float(max(n, 1)), rows or max(n, 1), clip, weights
    )


def start(model, seed=0, scale=0.3):
    """A state away from zero, so that no gradient vanishes by symmetry."""
    theta = model.initial(seed) + scale * np.random.default_rng(seed).normal(size=model.size)
    return State(theta, Momentum(), Average(10**9))


def first(task, batch=None, *, state=None, stages=None):
    """The first statistic of a run."""
    batches = None if batch is None else iter([np.asarray(batch, dtype=np.int64)] * 5)
    return next(steps(task, stages or (Stage(),), np.full(3, 0.1), state or start(task.model), batches))


def rows_of(model, values, public, labels=None):
    labels = np.zeros(values.shape[0]) if labels is None else labels
    return Rows.of(np, model, values, public, labels)


def gradients(model, loss, theta, values, public, labels, eps=1e-6):
    """Per-example gradients of the loss by central differences of the outputs, shape [n, size]."""

    def outputs(t):
        f, _ = model.forward(np, t, rows_of(model, values, public))
        return f.reshape(f.shape[0], -1)

    J = np.stack(
        [(outputs(theta + eps * e) - outputs(theta - eps * e)) / (2 * eps) for e in np.eye(model.size)],
        axis=2,
    )
    f, _ = model.forward(np, theta, rows_of(model, values, public))
    slope = loss.slope(np, f, labels).reshape(values.shape[0], -1)
    return np.einsum("nk,nkp->np", slope, J)


def clipped_sum(G, clip):
    norms = np.linalg.norm(G, axis=1)
    return (G * np.minimum(1.0, clip / np.maximum(norms, 1e-300))[:, None]).sum(axis=0)


def distance(one, other):
    """L2 distance of two statistics on one grid, in real units."""
    assert one.step == other.step
    assert one.sensitivity == other.sensitivity
    gap = [(int(a) - int(b)) for a, b in zip(one.value, other.value, strict=True)]
    return math.sqrt(sum(g * g for g in gap)) * one.step
