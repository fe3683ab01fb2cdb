"""Draws the support of a request: the one place of this room's front doors where noise is made."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.mechanisms.stream import stream as random_stream
from confide.selection.draws import draw, make_envelope
from confide.selection.exponent import exponent
from confide.selection.problem import SubsetProblem
from confide.selection.request import Request

Diagnostics = tuple[tuple[str, float], ...]


def problem_of(request: Request, X: Any, y: npt.ArrayLike) -> SubsetProblem:
    """Return the problem of a request on data: an array, CSR, or a source of `confide.selection.wide`."""
    return SubsetProblem(
        X,
        y,
        request.size,
        request.loss,
        request.radius,
        request.ridge,
        feature_bound=request.feature_bound,
        target_bound=request.target_bound,
    )


def release(problem: SubsetProblem, request: Request) -> tuple[tuple[int, ...], Diagnostics]:
    """Draw one support. Diagnostics are empty, unless the request declares the data public."""
    start = time.perf_counter()
    relation = request.guarantee.adjacency
    (support,) = draw(
        problem, request.mechanism, request.row_epsilon, relation, random_state=random_stream(request.seed)
    )
    if not request.diagnostics:
        return support, ()
    seconds = time.perf_counter() - start
    eta = exponent(problem, request.mechanism, request.row_epsilon, relation)
    envelope = make_envelope(problem, eta)
    share = envelope.refine(random_stream(request.seed).child("diagnostics"), seconds=10.0)
    masses = np.exp(envelope.log_weights - envelope.log_weights.max())
    facts = {
        "seconds": seconds,
        "acceptance": share,
        "buckets": float(len(envelope.buckets)),
        "heaviest_bucket": float(masses.max() / masses.sum()),
        "score": problem.score(support),
    }
    return support, tuple(facts.items())
