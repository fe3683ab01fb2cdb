"""Draws the support of a request: the one place of this room's front doors where noise is made."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.mechanisms.stream import stream as random_stream
from confide.selection.draws import draw, make_envelope
from confide.selection.exponent import exponent
from confide.selection.gap import gap_condition
from confide.selection.problem import SubsetProblem
from confide.selection.request import PUBLIC_DATA, Request

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
        problem,
        request.mechanism,
        request.row_epsilon,
        relation,
        top=request.top,
        random_state=random_stream(request.seed),
    )
    if not request.diagnostics:
        return support, ()
    facts = {"seconds": time.perf_counter() - start, "score": problem.score(support)}
    if request.mechanism in ("exponential", "permute_and_flip"):
        facts.update(_of_envelope(problem, request))
    if request.mechanism == "mistakes":
        rows = int(request.guarantee.epsilon / request.row_epsilon)
        check = gap_condition(problem, relation, diagnostics=PUBLIC_DATA, rows_per_unit=rows)
        gap = {} if math.isinf(check.gap) else {"gap": check.gap}  # one support
        facts.update(gap, gap_needed=check.needed, gap_condition=float(check.holds))
    return support, tuple(facts.items())


def _of_envelope(problem: SubsetProblem, request: Request) -> dict[str, float]:
    """Return how well the envelope of a draw accepts."""
    eta = exponent(problem, request.mechanism, request.row_epsilon, request.guarantee.adjacency)
    envelope = make_envelope(problem, eta)
    share = envelope.refine(random_stream(request.seed).child("diagnostics"), seconds=10.0)
    masses = np.exp(envelope.log_weights - envelope.log_weights.max())
    return {
        "acceptance": share,
        "buckets": float(len(envelope.buckets)),
        "heaviest_bucket": float(masses.max() / masses.sum()),
    }
