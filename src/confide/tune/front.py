"""Charged tuning: the best of a secret number of private runs, paid for once and in advance (pitfall F20).

A run draws a candidate at random, fits it on part of the rows and scores it on the rest, both privately.
The number of runs is random and secret, and only the winner comes out: candidate, model and noisy score.
What that costs is proved in `confide.privacy.random_stopping`; the cost grows with the expected number of
runs, far slower than composition, and not at all with the number of candidates.

Fit and score are on disjoint rows, so that one row is in one of them and each may use the whole of a run's
budget. The split is public where the number of rows is (a fixed permutation); under ADD_REMOVE_ONE each row
goes by a coin of its own, and what the other rows get does not depend on it.

The score is a sum over held-out rows of gains in [0, 1], so that one row moves it by at most 1 under every
relation, on a grid (`confide.mechanisms.grid`), with exactly rounded Gaussian noise, or discrete Laplace
where delta is 0. That no row moves the gain of another, not by a rounding, is proved at `Scoring`.

What is not protected: time. The number of runs can be guessed from how long the call takes, and so can the
winner's candidate if candidates differ in speed; who may see the clock should not be who must not learn
that (pitfall K13).

===================================  ===================================================================
edge case                            what happens
===================================  ===================================================================
one candidate, one expected run      one fit at the whole epsilon and delta
a candidate that cannot be fitted    refused in a rehearsal on what is public, before the charge
an engine chosen by public columns   rehearsed on them at the price of a run; priced by what it then is
pure candidates, delta > 0           delta 0 is charged, each run and score is pure
no or one row under ADD_REMOVE_ONE   as any other table
an amount set in `make`              refused: a run would overwrite it
a candidate with a ledger            refused: it would be charged twice
candidates of several relations      refused
persons with several rows            refused: the split is by rows
sample weights                       no such argument
labels of 1e308, infinite, missing   a gain within [0, 1]; missing is 0
a list of labels with an odd cell    each cell is read by itself
===================================  ===================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from confide.errors import ParameterError
from confide.mechanisms import RandomStream, is_certified, weighted_choice
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import SEEDED, UNRECORDED, Adjacency, Guarantee, exact
from confide.privacy.random_stopping import stopping
from confide.tune.runs import (
    check_run,
    common_bounds,
    common_classes,
    draw_runs,
    fresh,
    make_estimators,
    quiet,
    rehearse,
)
from confide.tune.scoring import SCORES, Scoring, rows_of, split


class Status(Enum):
    """What became of a tuning."""

    RELEASED = ("released", "The best run was released; all others stay secret, and so does their number.")

    def __init__(self, code: str, prose: str) -> None:
        self.code = code
        self.prose = prose


@dataclass(frozen=True)
class TuneResult:
    """The best run.

    Attributes
    ----------
    model : estimator
        The winner, fitted on the rows that were not held out. Its ``guarantee_`` is that of the whole tuning.
    best : object
        The winner's candidate.
    score : float
        Its noisy score: mean gain of a held-out row, or the sum of gains where the number of rows is secret.
        The best of noisy scores is optimistic.
    guarantee : Guarantee
        Of everything that came out.
    status : Status
    facts : dict
        Public: epsilon and delta of a run, expected runs as asked for (the law's mean is at most that, and
        nearly so), candidates, deviation of the noise in `score`.
    entry : str
        Id of the ledger's entry; empty without a ledger.
    """

    model: Any
    best: Any
    score: float
    guarantee: Guarantee
    status: Status
    facts: dict[str, float]
    entry: str = ""


def tune(
    make: Callable[[Any], Any],
    candidates: Sequence[Any],
    X: Any,
    y: Any = None,
    *,
    epsilon: Any,
    delta: Any,
    expected_runs: Any,
    score: str = "squared",
    cap: float = 0.5,
    held_out: float = 0.2,
    eta: Any = 0,
    ledger: Any = None,
    analyst: str | None = None,
    label: str = "tune",
    random_state: int | RandomStream | None = None,
) -> TuneResult:
    """Choose among candidates by their score on held-out rows, under one charge for everything.

    Parameters
    ----------
    make : callable
        Turns a candidate into an unfitted estimator of Confide: with parameters ``epsilon``, ``delta`` and
        ``random_state``, which are set here and refused if `make` sets them; and with a
        ``guarantee_`` after `fit`.
    candidates : sequence
        Public: any values that `make` takes, chosen without a look at the data.
    X : array or frame of shape (n, p), or Table
        A table gives its encoded public columns and its label, by row.
    y : array of shape (n,), optional
        None with a table.
    epsilon, delta : amount
        Total of this call. With ``delta=0`` all candidates must be pure; where they are, no delta is charged
        and the score has Laplace noise.
    expected_runs : amount
        Mean of the number of runs, >= 1. A fixed number of runs is not offered: knowing it is what makes the
        best of k cost k times as much.
    score : {"squared", "absolute", "accuracy"}
        Gain of a row: 1 - min(1, (r / (cap R))^2) or 1 - min(1, |r| / (cap R)), r the error of the prediction
        and R the width of the estimators' ``target_bounds``; or whether the class is right, for estimators
        that share their ``classes``: a label that is none of them counts as the first.
    cap : float
        In (0, 1]. Errors above cap R count as that: less noise relative to the rest.
    held_out : float
        Share of the rows that score, in (0, 1).
    eta : amount
        Shape of the law of the number of runs, -1 < eta <= 1; 0 is the logarithmic law.
    ledger : Ledger or str, optional
        Charged once, before a private cell is read. None marks the guarantee ``"unrecorded"``.
    analyst, label : str
        Passed on to the ledger.
    random_state : None, int or RandomStream
        None draws from the operating system, the only state that carries a guarantee.

    Returns
    -------
    TuneResult

    Raises
    ------
    ParameterError, UnsupportedError, DataError
        Before a private cell is read or anything is charged.
    RefusedError
        From the ledger, likewise.
    """
    from confide.ledger import charged
    from confide.training.engines.ask import warn_of_delta

    table = X if hasattr(X, "content_tag") else None
    rows = rows_of(table, X, y)
    total, lost = exact(epsilon, "epsilon"), exact(delta, "delta")
    if total == 0 or lost >= 1:
        raise ParameterError(
            f"The 'epsilon' and 'delta' parameters are {epsilon!r} and {delta!r}.",
            "Pass epsilon > 0, delta < 1.",
        )
    law = stopping(expected_runs, _shape(eta))
    _check_options(score, cap, held_out)
    stream = random_stream(random_state)
    estimators = make_estimators(make, candidates)
    bounds = common_bounds(estimators, score)
    classes = common_classes(estimators, score)
    rows.check_labels(classes)
    plan = rehearse(estimators, rows, held_out, bounds, total, lost, law)
    price, adjacency, assumptions = plan.price, plan.adjacency, plan.assumptions
    lost = Fraction(0) if price.kind == "pure" else lost
    scoring = Scoring(score, bounds, cap, price.epsilon, price.delta, classes)
    public_rows = adjacency is not Adjacency.ADD_REMOVE_ONE
    if public_rows and lost > 0:
        warn_of_delta(lost, rows.n)
    assumptions += (() if ledger is not None else (UNRECORDED,)) + (() if is_certified(stream) else (SEEDED,))
    declaration = "" if table is None else table.schema.declaration
    guarantee = Guarantee(
        total, lost, adjacency, "row", law.event(price.event, price.event), assumptions, declaration
    )
    with charged(ledger, guarantee, table=table, analyst=analyst, label=label) as reservation, quiet():
        fitting, scored = split(rows.n, held_out, adjacency, stream.child("split"))
        best: tuple[float, int, Any] | None = None
        for number in range(draw_runs(law, stream.child("runs"))):
            child = stream.child(f"run/{number}")
            chosen = weighted_choice([1] * len(estimators), stream=child.child("candidate"))
            model = fresh(estimators[chosen], price, child)
            model.fit(rows.features(fitting), rows.labels(fitting))
            check_run(model, price, adjacency)
            value = scoring.release(model.predict(rows.features(scored)), rows.labels(scored), child)
            if best is None or value > best[0]:  # of equal scores the first run
                best = value, chosen, model
        assert best is not None
    value, chosen, model = best
    entry = "" if reservation is None else reservation.id
    _restate(model, guarantee)
    scale = 1.0 / max(1, scored.size) if public_rows else 1.0
    facts = {
        "run_epsilon": float(price.epsilon),
        "run_delta": float(price.delta),
        "expected_runs": float(exact(expected_runs)),
        "candidates": float(len(estimators)),
        "score_deviation": scoring.deviation * scale,
    }
    return TuneResult(model, candidates[chosen], value * scale, guarantee, Status.RELEASED, facts, entry)


def _check_options(score: Any, cap: Any, held_out: Any) -> None:
    if score not in SCORES:
        raise ParameterError(
            f"The 'score' parameter is {score!r}.", f"Pass one of {', '.join(map(repr, SCORES))}."
        )
    for name, value in (("cap", cap), ("held_out", held_out)):
        if not isinstance(value, int | float) or isinstance(value, bool) or not 1e-6 <= value <= 1:
            raise ParameterError(f"The {name!r} parameter is {value!r}.", "Pass a number in (0, 1].")
    if held_out == 1:
        raise ParameterError("The 'held_out' parameter is 1.", "Leave rows to fit on.")


def _shape(eta: Any) -> Fraction:
    try:
        return Fraction(str(eta))
    except (ValueError, ZeroDivisionError):
        raise ParameterError(f"The 'eta' parameter is {eta!r:.80}.", "Pass -1 < eta <= 1.") from None


def _restate(model: Any, guarantee: Guarantee) -> None:
    """Write the guarantee of the whole tuning on the winner: its own run's would be false."""
    model.guarantee_ = guarantee
    result = getattr(model, "result_", None)
    if dataclasses.is_dataclass(result) and hasattr(result, "guarantee"):
        model.result_ = dataclasses.replace(result, guarantee=guarantee)  # type: ignore[type-var]
