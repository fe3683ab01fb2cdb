"""Hybrid baseline: a warm start on randomised labels, then DP-SGD from there (chua2024), in one charge.

First phase. RR-on-Bins makes each label private with epsilon_1 = share * epsilon, de-biased (the channel
inverted); a model of the public columns is fitted to these labels without noise, which is post-processing. A
linear model is a standardised ridge regression whose penalty is chosen on the private labels; others take the
engine's own steps without noise, private columns held at 0, the middle of their bounds.

Second phase. Engine `dpsgd` with (epsilon_2, delta), epsilon_2 = epsilon - epsilon_1 as rationals, from these
parameters, on the true labels and with the private columns.

Proof of the guarantee. Under REPLACE_LABEL and REPLACE_PRIVATE_PART neighbours differ in one label (and its
row's private columns, which the first phase does not read): the private labels are epsilon_1-DP. The start is
a function of them and of public columns, and given any start the second phase is (epsilon_2, delta)-DP. Basic
composition: (epsilon_1 + epsilon_2, delta) = (epsilon, delta).

=================================  ================================================================
edge case                          what happens
=================================  ================================================================
NaN, text in a label               the middle of the bounds, in both phases
labels outside the bounds          the nearer bound, in both phases
constant, collinear, zero columns  a ridge start; directions that the conditioning drops start at 0
more columns than rows             the same
private cells of 1e308, NaN        clipped, the middle; the first phase reads none
text, lists, 10**400 in a cell     the middle; beyond every bound (`confide.training.sgd.cells`)
no public columns                  refused: there would be nothing to warm
several rows a unit                refused: each of them meets the channel
epsilon = inf, ``nonprivate``      true labels, no noise, so marked
=================================  ================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Event, Guarantee, exact
from confide.training.inputs import dense, number_labels, shape_of
from confide.training.labels.channel import split_share
from confide.training.labels.labels import LabelRange
from confide.training.labels.request import LabelRequest, label_request
from confide.training.release import drive, exact_answer
from confide.training.result import Status
from confide.training.sgd.arrays import Floats
from confide.training.sgd.batches import poisson_batches
from confide.training.sgd.cells import labels_of
from confide.training.sgd.engine import LABELS_AND_PARTS, Problem, State, steps
from confide.training.sgd.fitting import Prepared, prepare
from confide.training.sgd.linear import Linear
from confide.training.sgd.optimizers import Average, make_optimizer
from confide.training.sgd.release import step_answer
from confide.training.sgd.request import SGDRequest
from confide.training.sgd.result import SGDModel
from confide.training.sgd.sensitivity import Accounting, plan

#: Learning rate of linear models times the root of the steps, where none is given: the start is near the end.
_RATE = 0.1
#: Penalties that the ridge start chooses among, for standardised columns.
_PENALTIES = np.logspace(-2, 6, 25)


@dataclass(frozen=True)
class HybridResult:
    """Both phases of a fit.

    Attributes
    ----------
    model : SGDModel
        After the second phase.
    start : SGDModel
        The warm start; released as well.
    guarantee : Guarantee
        Of everything here together.
    status : Status
    accounting : Accounting
        Of the second phase.
    entry : str or None
        The ledger's entry.
    """

    model: SGDModel
    start: SGDModel
    guarantee: Guarantee
    status: Status
    accounting: Accounting
    entry: str | None = None


def fit_hybrid(
    X_public: Any,
    X_private: Any,
    y: Any,
    request: SGDRequest,
    *,
    share: Any = 0.5,
    ledger: Any = None,
    table: Any = None,
    analyst: str | None = None,
    label: str = "hybrid",
) -> HybridResult:
    """Fit by a warm start on randomised labels and noisy gradient steps from there.

    Parameters
    ----------
    X_public : array, sparse matrix or frame of shape (n, p)
        p >= 1; as in `confide.training.sgd.fit`.
    X_private : array or frame of shape (n, q), or None
        Read after the charge, as in `confide.training.sgd.fit`: no cell decides an exception.
    y : array or list of shape (n,) or (n, 1)
        Numbers; read likewise.
    request : SGDRequest
        Of both phases together: epsilon and delta are the total. ``replace_label`` or
        ``replace_private_part``, with target_bounds.
    share : amount
        Share of epsilon for the labels of the warm start, in (0, 1).
    ledger, table, analyst, label
        As in `confide.training.sgd.fit`.

    Returns
    -------
    HybridResult

    Raises
    ------
    ParameterError, UnsupportedError
        Before any data is read.
    ValueError, DataError
        Before the charge, from public columns, shapes and declared types.
    """
    if request.recorded != (ledger is not None):
        found = "without a ledger" if ledger is None else "with a ledger"
        raise ParameterError(
            f"The request has recorded={request.recorded!r} {found}.",
            "Make the request with recorded=True where a ledger is given.",
        )
    first, second = _phases(request, share)
    if X_public is None or shape_of(X_public)[1] == 0:
        raise UnsupportedError(
            "There is no public column, and a warm start is a model of public columns.",
            "Use confide.training.sgd.fit, or declare public columns.",
        )
    n = shape_of(X_public)[0]
    ready = prepare(X_public, X_private, n, second)
    read = number_labels(y, n)
    guarantee = _guarantee(request, first, ready.accounting)
    from confide.ledger import charged

    with charged(ledger, guarantee, table=table, analyst=analyst, label=label) as reservation:
        source = random_stream(request.random_state)
        labels = _private_labels(first, read(), source)
        start = warm_start(ready, labels)
        private = None if X_private is None else ready.inputs.private(dense(X_private))
        problem = _problem(ready, private, labels_of(y, n, second))
        batches = None
        if not ready.accounting.full:
            batches = poisson_batches(n, ready.scale, source.child("batches"))
        answer = step_answer(ready.accounting.multiplier, source.child("steps"), steps=second.steps)
        end, matrix = _run(ready, problem, start, answer, batches)
    return HybridResult(
        ready.released(end, matrix),
        ready.released(start, ready.stages[0].matrix),
        guarantee,
        Status.NONPRIVATE if request.nonprivate else Status.RELEASED,
        ready.accounting,
        None if reservation is None else reservation.id,
    )


def _phases(request: SGDRequest, share: Any) -> tuple[LabelRequest, SGDRequest]:
    """Return the requests of both phases, whose epsilons add up exactly."""
    if request.target_bounds is None:
        raise UnsupportedError(
            "The label has classes.", "Pass target_bounds: the warm start is a regression."
        )
    if request.relation not in LABELS_AND_PARTS:
        raise UnsupportedError(
            f"Under {request.relation.value!r} no column is public.",
            "Pass adjacency='replace_label' or 'replace_private_part'.",
        )
    if request.rows_per_unit != 1:
        raise UnsupportedError(
            f"A unit has up to {request.rows_per_unit} rows, each of which would meet the channel.",
            "Pass rows_per_unit=1.",
        )
    part = exact(share, "share")
    if not 0 < part < 1:
        raise ParameterError(f"The 'share' parameter is {share!r:.80}.", "Pass a share of epsilon in (0, 1).")
    first: Any = math.inf
    second = request
    if not request.nonprivate:
        first, rest = split_share(exact(request.epsilon, "epsilon"), part)
        if first == 0 or rest == 0:
            raise ParameterError(
                f"The 'share' parameter {share!r:.80} leaves nothing for one phase.",
                "Pass one nearer to 1/2.",
            )
        second = replace(request, epsilon=rest)
    if second.learning_rate is None and second.model == "linear":
        second = replace(second, learning_rate=_RATE / math.sqrt(second.steps))
    asked = label_request(
        "rr_on_bins",
        first,
        Fraction(0),
        options={"target_bounds": request.target_bounds},
        adjacency=request.relation,
        random_state=request.random_state,
        recorded=request.recorded,
        nonprivate=request.nonprivate,
    )
    return asked, second


def _guarantee(request: SGDRequest, first: LabelRequest, accounting: Accounting) -> Guarantee:
    """Return what is charged: both phases, by basic composition."""
    stated = request.guarantee(accounting)
    if request.nonprivate:
        return stated
    return replace(stated, event=Event.sequence((first.guarantee.event, accounting.event)))


def _private_labels(first: LabelRequest, y: Floats, source: Any) -> Floats:
    """Return private labels in units of half the range about the middle; de-biased ones may leave [-1, 1]."""
    if first.nonprivate:
        values = first.method.plain(y)
    else:
        values = first.method.release(y, source.child("labels")).values
    bounds: LabelRange = first.method.range  # pyright: ignore[reportAttributeAccessIssue]
    return (np.asarray(values, dtype=np.float64) - bounds.middle) / bounds.half


def warm_start(ready: Prepared, labels: Floats) -> Floats:
    """Return parameters fitted to private labels and public columns: post-processing.

    Parameters
    ----------
    ready : Prepared
    labels : array of shape (n,)
    """
    if isinstance(ready.model, Linear):
        return _ridge_start(ready, ready.model, labels)
    quiet = plan(math.inf, 0, steps=ready.request.steps, adjacency=ready.request.relation, nonprivate=True)
    middle = np.zeros((ready.public.shape[0], len(ready.request.private_bounds)))
    problem = replace(
        _problem(ready, middle if middle.shape[1] else None, labels),
        accounting=quiet,
        batch=float(ready.public.shape[0]),
    )
    calm = replace(ready, stages=ready.stages[:1])
    return _run(calm, problem, ready.model.initial(ready.request.init_seed), exact_answer, None)[0]


def _ridge_start(ready: Prepared, model: Linear, labels: Floats) -> Floats:
    from sklearn.linear_model import RidgeCV

    # Public columns are standardised already, so that the constant is the mean of the labels.
    middle = float(labels.mean()) if model.intercept else 0.0
    fitted = RidgeCV(alphas=_PENALTIES, fit_intercept=False).fit(ready.public, labels - middle)
    weights = np.asarray(fitted.coef_, dtype=np.float64)
    matrix = ready.stages[0].matrix
    if matrix is not None:  # theta C x = w x; what C does not see of w, no public row has
        weights = weights @ np.linalg.pinv(matrix, rcond=1e-13)
    theta = np.zeros(model.size)
    theta[: weights.size] = weights
    if model.intercept:
        theta[-1] = middle
    return theta


def _problem(ready: Prepared, private: Floats | None, labels: Floats) -> Problem:
    return Problem(
        ready.model,
        ready.request.loss(),
        ready.public,
        private,
        labels,
        ready.accounting,
        ready.batch,
        ready.rows,
        ready.clip,
    )


def _run(
    ready: Prepared, problem: Problem, start: Floats, answer: Callable[[Any], Floats], batches: Any
) -> tuple[Floats, Floats | None]:
    """Take the steps; return the parameters that are handed out and the conditioning that they belong to."""
    asked = ready.request
    matrix = ready.stages[0].matrix

    def watch(state: State, present: Floats | None) -> None:
        nonlocal matrix
        matrix = present

    burn = asked.steps - max(1, round(asked.average * asked.steps))
    optimizer = make_optimizer(asked.optimizer, momentum=asked.momentum, betas=asked.betas)
    state = State(start.copy(), optimizer, Average(burn))
    state = drive(steps(problem, ready.stages, ready.rates, state, batches, watch), answer)
    return (state.averaged if asked.average > 0 else state.parameters), matrix
