"""Exact draws of supports: proposals from the envelope, accepted so that the law is exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from confide.errors import ParameterError
from confide.mechanisms.discrete import bernoulli_log
from confide.mechanisms.stream import RandomStream
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Adjacency
from confide.selection.bounds import ALLOWANCE, Bounder, QuadraticBounder
from confide.selection.envelope import Envelope, EnvelopeError
from confide.selection.exponent import exponent
from confide.selection.gram import Gram
from confide.selection.listed import draw_mistakes, draw_top_r, top_of
from confide.selection.problem import SubsetProblem

Support = tuple[int, ...]
#: Tried one after the other; the last puts bounds below all scores whatever the data: delta is 2^-52 n M.
_ALLOWANCES = (ALLOWANCE, 2.0**21, 2.0**41, 2.0**61)


def draw(
    problem: SubsetProblem,
    mechanism: str,
    epsilon: Any,
    adjacency: Adjacency | str,
    *,
    top: int | None = None,
    random_state: int | RandomStream | None = None,
    size: int = 1,
) -> list[Support]:
    """Draw supports from the whole law over all C(p, s) of them, without enumeration.

    Parameters
    ----------
    problem : SubsetProblem
    mechanism : {"exponential", "permute_and_flip", "top_r", "mistakes"}
        `mistakes` is private under the gap condition alone (`gap_condition`).
    epsilon : amount
        Of each release: `size` releases cost `size` times as much.
    adjacency : Adjacency or str
    top : int, optional
        R of `top_r`, public: its best supports keep their scores, all others get the R-th. Default
        2 + (p - s) s; at most 10^6, and C(p, s) where that is less.
    random_state : None, int or RandomStream
        None draws from the operating system; anything else is for tests.
    size : int
        Independent releases.

    Returns
    -------
    list of `size` sorted tuples of column numbers

    Notes
    -----
    The accepted supports have exactly the law of `law`: a proposal S has probability proportional to
    exp(-eta bound_S) and is accepted with probability exp(-eta (F_S - bound_S)). How the buckets were split,
    and for how long, changes the time alone. `top_r` and `mistakes` draw from proven lists
    (`confide.selection.listed`). Running time depends on the data and is outside the guarantee.
    """
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
        raise ParameterError(f"The 'size' parameter is {size!r:.80}.", "Pass the number of releases, >= 0.")
    eta = exponent(problem, mechanism, epsilon, adjacency)
    listed = top_of(mechanism, top, problem.p, problem.size)
    source = random_stream(random_state)
    if listed is not None:
        return draw_top_r(problem, eta, listed, int(size), source)
    if mechanism == "mistakes":
        return draw_mistakes(problem, eta, int(size), source)
    run = sample
    if mechanism == "permute_and_flip":
        from confide.selection.flips import flip

        run = flip
    for allowance in _ALLOWANCES:
        try:
            return run(make_envelope(problem, eta, allowance), int(size), source)
        except EnvelopeError:  # has not been seen (`bounds`): the same law from looser bounds
            continue
    raise EnvelopeError("A bound lies above a score.")


def make_envelope(problem: SubsetProblem, eta: float, allowance: float = ALLOWANCE) -> Envelope:
    """Return the envelope of a problem, one bucket yet."""
    return Envelope(problem, eta, make_bounder(problem, eta, allowance))


def make_bounder(problem: SubsetProblem, eta: float, allowance: float = ALLOWANCE) -> Bounder:
    """Return what computes bounds for the problem's loss."""
    if problem.loss.name == "squared":
        return QuadraticBounder(problem, eta, Gram(problem.columns), allowance)
    from confide.selection.certificate import CertificateBounder

    if problem.loss.curvature(problem.reach) > 1e-3:
        from confide.selection.curved import CurvedBounder

        return CurvedBounder(problem, eta, Gram(problem.columns), allowance)
    return CertificateBounder(problem, eta, allowance)


def sample(envelope: Envelope, size: int, source: RandomStream) -> list[Support]:
    """Draw `size` supports from the exponential mechanism by rejection."""
    trials, proposals, coins = source.child("trials"), source.child("proposals"), source.child("coins")
    result: list[Support] = []
    if size == 0:
        return result
    share = envelope.refine(trials, draws=size)
    while len(result) < size:
        wanted = size - len(result)
        count = min(1 << 16, 8 + math.ceil(1.1 * wanted / max(share, 1e-3)))
        supports, log_bounds, nus = envelope.propose(count, proposals)
        # Two coins whose probabilities multiply to that of acceptance; the first spares most scores.
        screen = envelope.log_screen(supports, log_bounds, nus)
        kept = np.flatnonzero(bernoulli_log(screen, stream=coins))
        logs, _ = envelope.log_acceptance(supports[kept], log_bounds[kept])
        accepted = kept[bernoulli_log(logs - screen[kept], stream=coins)]
        result += map(tuple, supports[accepted[:wanted]].tolist())
        if len(result) < size:
            share = (share + accepted.size / count) / 2
            if accepted.size * 20 < count:  # the trials were too hopeful: the partition may depend on rejects
                share = envelope.refine(trials, draws=size - len(result))
                envelope.split(len(envelope.buckets))
    return result
