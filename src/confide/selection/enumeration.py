"""The law of a draw, by enumeration of all supports: the oracle of `draw`, for small problems."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from confide.errors import UnsupportedError
from confide.privacy import Adjacency
from confide.selection.exponent import exponent
from confide.selection.listed import proven, top_of
from confide.selection.problem import SubsetProblem

Floats = npt.NDArray[np.float64]

#: Supports that are enumerated at most.
LIMIT = 200_000
_CHUNK = 1 << 16


def all_supports(problem: SubsetProblem) -> npt.NDArray[np.int64]:
    """Return every support in lexicographic order, int64 [C(p, size), size].

    Raises
    ------
    UnsupportedError
        Past 200,000 of them.
    """
    count = math.comb(problem.p, problem.size)
    if count > LIMIT:
        raise UnsupportedError(
            f"There are C({problem.p}, {problem.size}) supports, more than {LIMIT}.",
            "Use `draw`, which does not enumerate.",
        )
    flat = np.fromiter(
        (j for support in combinations(range(problem.p), problem.size) for j in support),
        dtype=np.int64,
        count=count * problem.size,
    )
    return flat.reshape(count, problem.size)


def law(
    problem: SubsetProblem,
    mechanism: str,
    epsilon: Any,
    adjacency: Adjacency | str,
    *,
    top: int | None = None,
) -> dict[tuple[int, ...], float]:
    """Return the probability of every support under the law that `draw` realises.

    Parameters
    ----------
    problem : SubsetProblem
    mechanism : {"exponential", "permute_and_flip", "top_r", "mistakes"}
    epsilon : amount
    adjacency : Adjacency or str
    top : int, optional
        R of `top_r`, as for `draw`.

    Returns
    -------
    dict of {sorted tuple of column numbers: probability}

    Raises
    ------
    UnsupportedError
        Past 200,000 supports. The certified gap tau of the scores and the float slack are in the exponent.
    """
    eta = exponent(problem, mechanism, epsilon, adjacency)
    listed = top_of(mechanism, top, problem.p, problem.size)
    supports = all_supports(problem)
    scores = np.concatenate(
        [problem.centred_scores(supports[i : i + _CHUNK]) for i in range(0, len(supports), _CHUNK)]
    )
    if listed is not None:
        scores = top_scores(scores, listed)
    elif mechanism == "mistakes":
        (best,), _ = proven(problem, 1)
        scores = mistakes_scores(supports, scores, best)
    logs = log_law(scores, eta, mechanism)
    return {tuple(map(int, s)): math.exp(v) for s, v in zip(supports, logs.tolist(), strict=True)}


def top_scores(scores: Floats, top: int) -> Floats:
    """Return what `top_r` scores every support by, [m]: no more than the `top`-th least of all scores."""
    return np.minimum(scores, np.partition(scores, top - 1)[top - 1])


def mistakes_scores(supports: npt.NDArray[np.int64], scores: Floats, best: npt.NDArray[np.int64]) -> Floats:
    """Return what `mistakes` scores every support by, [m]: the least with as many columns outside `best`."""
    mistakes = best.size - np.isin(supports, best).sum(axis=1)
    levels = np.full(best.size + 1, math.inf)
    np.minimum.at(levels, mistakes, scores)
    return levels[mistakes]


def log_law(scores: Floats, eta: float, mechanism: str) -> Floats:
    """Return log-probabilities for the scores of a mechanism (lower is better) and exponent eta, [m]."""
    gaps = -eta * (scores - scores.min())
    if mechanism == "permute_and_flip":
        return gaps + _log_share(np.exp(gaps))
    return gaps - math.log(math.fsum(np.exp(gaps)))


def _log_share(p: Floats) -> Floats:
    """Return the log of the integral over u in [0, 1] of prod over R != S of (1 - u p_R), for each S.

    In permute-and-flip, give every support an independent uniform arrival; S wins if its coin p_S comes up
    and no earlier support's did: each R != S lets it through with probability 1 - u p_R. The integrand is a
    polynomial without zeros in [0, 1): Gauss-Legendre with 20 nodes on panels that shrink geometrically
    towards both ends (its scale at 0 is 1 / sum p, its nearest zeros lie at 1 / max p >= 1).
    """
    nodes, weights = np.polynomial.legendre.leggauss(20)
    total = max(float(p.sum()), 1.0)
    down = [0.5**k for k in range(1, 60) if 0.5**k > 0.02 / total]
    ends = np.array([0.0, *reversed(down), *(1 - 0.5**k for k in range(2, 45)), 1.0])
    width = np.diff(ends)
    # 1 - u is kept apart: near 1 it must not be a difference.
    left = np.concatenate([1 - ends[: len(down) + 1], 0.5 ** np.arange(2.0, 45.0), [0.0]])
    u = (ends[:-1, None] + width[:, None] * (nodes + 1) / 2).reshape(-1)
    rest = (left[1:, None] + width[:, None] * (1 - nodes) / 2).reshape(-1)
    w = (width[:, None] * weights / 2).reshape(-1)
    q = -np.expm1(np.log(np.maximum(p, 1e-320)))  # 1 - p
    common = np.array([_log_product(p, q, a, b) for a, b in zip(u, rest, strict=True)])
    result = np.empty(p.size)
    for start in range(0, p.size, 4096):
        part, gap = p[start : start + 4096, None], q[start : start + 4096, None]
        factor = rest * part + gap  # 1 - u p
        logs = common - np.log(factor) + np.log(w)
        top = logs.max(axis=1, keepdims=True)
        result[start : start + 4096] = (top + np.log(np.exp(logs - top).sum(axis=1, keepdims=True)))[:, 0]
    return result


def _log_product(p: Floats, q: Floats, u: float, rest: float) -> float:
    near = p > 0.5
    return float(np.log1p(-u * p[~near]).sum() + np.log(rest * p[near] + q[near]).sum())
