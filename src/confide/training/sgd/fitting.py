"""From arrays to a result: read what is public, reserve, run the engine, settle."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from confide.errors import DataError, ParameterError, UnsupportedError
from confide.mechanisms.stream import stream as random_stream
from confide.privacy import Adjacency
from confide.schema.loose import attribute
from confide.training.conditioning import finite_rows
from confide.training.inputs import shape_of
from confide.training.release import drive
from confide.training.result import Status
from confide.training.sgd.arrays import Floats, like, namespace, to_host
from confide.training.sgd.batches import poisson_batches, rate_of
from confide.training.sgd.cells import (
    check_columns,
    check_labels,
    check_weights,
    labels_of,
    on_host,
    weights_of,
)
from confide.training.sgd.checkpoint import (
    Snapshot,
    charged_once,
    check_kept,
    digest_of,
    keep,
    new_run,
    tag_of,
    take_turn,
)
from confide.training.sgd.engine import LABELS_AND_PARTS, Problem, State, check_clip, spread_is_public, steps
from confide.training.sgd.models import Model, Rows
from confide.training.sgd.optimizers import Average, learning_rates, make_optimizer
from confide.training.sgd.public import Names, names_of, public_cells
from confide.training.sgd.release import step_answer
from confide.training.sgd.request import SGDRequest
from confide.training.sgd.result import Inputs, SGDModel, SGDResult, TracePoint
from confide.training.sgd.sensitivity import Accounting
from confide.training.sgd.switch import Stage, check_blocks, kinds, stages


@dataclass(frozen=True)
class Prepared:
    """All that is public about a fit, before its charge."""

    request: SGDRequest
    model: Model
    accounting: Accounting
    stages: tuple[Stage, ...]
    inputs: Inputs
    public: Floats
    rows: int
    scale: float
    batch: float
    clip: float
    rates: Floats
    names: Names = ()

    @property
    def digest(self) -> str:
        """Of what decides the rest of a run."""
        asked = replace(self.request, random_state=None, recorded=False)
        return digest_of(asked, self.public, self.rows, self.batch, self.clip)

    def released(self, parameters: Floats, matrix: Floats | None) -> SGDModel:
        """Return a model of some released parameters."""
        asked = self.request
        classes = None if asked.classes is None else tuple(asked.classes)
        return SGDModel(self.model, parameters, matrix, self.inputs, asked.target_bounds, classes, self.names)


def prepare(
    X_public: Any, X_private: Any, n: int, request: SGDRequest, *, weighted: bool = False
) -> Prepared:
    """Read public columns and calibrate: all that can be refused is refused here.

    Parameters
    ----------
    X_public : array or frame of shape (n, p), or None
    X_private : array or frame of shape (n, q), or None
        Only its shape, its names and its declared types are looked at.
    n : int
        Number of rows.
    request : SGDRequest
    weighted : bool
        Whether rows have sample weights.
    """
    q = len(request.private_bounds)
    found = 0 if X_private is None else shape_of(X_private)[1]
    if found != q:
        raise DataError(
            f"There are {q} 'private_bounds' for {found} private columns.",
            "Declare the bounds of each private column.",
        )
    if X_private is not None:
        check_columns(X_private, n)
    relation, rows = request.relation, n
    if X_public is not None and relation not in LABELS_AND_PARTS:
        raise UnsupportedError(
            f"Under {relation.value!r} no column is public.", "Pass them as private columns with bounds."
        )
    if relation is Adjacency.ADD_REMOVE_ONE:
        assert request.rows is not None
        rows = request.rows  # n is secret: nothing compares it with a number that is not
    elif n == 0:
        raise DataError("The table has no rows.", "Pass at least one row.")
    public, centre, scale = _standardised(X_public, n)
    bounds = np.array(request.private_bounds, dtype=np.float64).reshape(-1, 2)
    inputs = Inputs(centre, scale, bounds[:, 0] / 2 + bounds[:, 1] / 2, bounds[:, 1] / 2 - bounds[:, 0] / 2)
    gap, rate = rate_of(request.batch_size, rows)
    accounting = request.account(rate)
    batch = float(rows) if rate == 1 else float(request.batch_size or rows)
    model = request.make_model(public.shape[1], q)
    wanted = kinds(*request.kind, request.switch, request.steps, max(1, round(1 / rate)))
    if len(wanted) > 1:
        check_blocks(model.blocks)
    made = stages(public, wanted)
    clip = _clip(request, model, public, made[0], q)
    check_clip(clip, accounting, spread_is_public(accounting, model, private=q > 0, weighted=weighted))
    return Prepared(
        request,
        model,
        accounting,
        made,
        inputs,
        public,
        rows,
        gap,
        batch,
        clip,
        learning_rates(request.rate, request.steps, request.schedule),
        names_of(X_public, X_private),
    )


def _standardised(X_public: Any, n: int) -> tuple[Floats, Floats, Floats]:
    """Return public columns with mean 0 and deviation 1 (0 where constant), and how to repeat that."""
    if X_public is None:
        return np.zeros((n, 0)), np.zeros(0), np.zeros(0)
    X: Any = finite_rows(public_cells(X_public))
    if X.shape[0] != n:
        raise DataError(f"The public columns have {X.shape[0]} rows for {n} labels.", "Pass one row a label.")
    # In units of the largest entry, so that sums near 1e308 stay finite.
    top = np.maximum(np.abs(X).max(axis=0, initial=0.0), 1e-300)
    mean = (X / top).mean(axis=0)
    deviation = np.sqrt(((X / top - mean) ** 2).mean(axis=0))
    constant = deviation <= 1e-12
    centre = np.where(constant, X[0], mean * top)
    scale = np.where(constant, top, deviation * top)
    return (X / 2 - centre / 2) / (scale / 2), centre, scale


def _clip(request: SGDRequest, model: Model, public: Floats, stage: Stage, q: int) -> float:
    """Return the clip norm of the first stage."""
    if request.gradient_bound is not None:
        return float(request.gradient_bound)
    if request.clip is None:
        return math.inf
    if request.clip != "auto":
        return float(request.clip)
    # ||grad f|| at the initial parameters over public rows; a private column counts as uniform in its bounds.
    # Without public columns n may be secret: 256 rows of no column stand for any number (pitfall F22).
    public = public if public.shape[1] else np.zeros((256, 0))
    n = min(public.shape[0], 4096) or 256
    values = public[:: max(1, public.shape[0] // n)][:n]
    values = values if stage.matrix is None else values @ stage.matrix.T
    n = values.shape[0] or 256
    generator = np.random.Generator(np.random.Philox(request.init_seed))
    parts = [values if values.shape[0] else np.zeros((n, 0)), generator.uniform(-1, 1, (n, q))]
    if model.constant:
        parts.append(np.ones((n, 1)))
    rows = Rows.of(np, model, np.concatenate(parts, axis=1), public.shape[1], np.zeros(n))
    theta = model.initial(request.init_seed)
    with np.errstate(all="ignore"):
        _, tape = model.forward(np, theta, rows)
        seeds = None if model.outputs == 1 else np.full((n, model.outputs), model.outputs**-0.5)
        squares, _ = model.backward(np, theta, rows, tape, seeds)
        squares = rows.widths**2 if squares is None else squares
    squares = squares[squares < 1e60]
    length = math.sqrt(float(squares.mean())) if squares.size else 1.0
    return min(max(length, 1e-30), 1e30)


def fit(
    X_public: Any,
    X_private: Any,
    y: Any,
    request: SGDRequest,
    *,
    sample_weight: Any = None,
    ledger: Any = None,
    table: Any = None,
    analyst: str | None = None,
    label: str = "dpsgd",
    trace: int = 0,
    checkpoint: Any = None,
    every: int = 0,
    resume: Any = None,
    recharge: bool = False,
    hook: Callable[[TracePoint], None] | None = None,
) -> SGDResult:
    """Fit a private model by noisy gradient steps over conditioned public columns.

    Parameters
    ----------
    X_public : array, sparse matrix or frame of shape (n, p), or None
        Public columns; any array-API array, whose device the steps then run on, or a frame of pandas or
        polars or an Arrow table (`confide.training.sgd.public`). The model keeps the names of frames.
    X_private : array of shape (n, q) or None
        Private columns, of the same kind of array, or a frame. Of frames and of arrays of objects a cell
        that is no number is missing (`confide.training.sgd.cells`).
    y : array or list of shape (n,) or (n, 1)
        Read likewise.
    request : SGDRequest
    sample_weight : array of shape (n,), optional
        Secret as labels are: read after the charge, and part of what a unit may change. Needs
        ``request.weight_cap``, and a clip.
    ledger : Ledger or str, optional
        Charged before a private cell is read; ``request.recorded`` must say whether there is one.
    table, analyst, label
        As in `confide.ledger.charged`.
    trace : int
        Number of models to keep along the way.
    checkpoint : path, optional
        Where to write a snapshot after every `every` steps.
    resume : path or Snapshot, optional
        Go on from it: the same request and public data. `confide.training.sgd.checkpoint`.
    recharge : bool
        Whether to pay for another continuation of a snapshot that was gone on from, or for one with other
        private cells; the whole fit is charged.
    hook : callable, optional
        Called with each traced model; with snapshots, only once its turn is taken.

    Returns
    -------
    SGDResult

    Raises
    ------
    ParameterError, UnsupportedError, ValueError, DataError
        Before the charge, from the request, public cells, shapes and declared types alone.
    """
    if request.recorded != (ledger is not None):
        raise ParameterError(
            f"The request has recorded={request.recorded!r}, and the 'ledger' parameter is {ledger!r:.60}.",
            "Make the request with recorded=True where a ledger is given, and only there.",
        )
    if checkpoint is not None and not (isinstance(every, int) and every >= 1):
        raise ParameterError(f"The 'every' parameter is {every!r:.80}.", "Pass the steps between snapshots.")
    n = _count(X_public, X_private, y)
    check_weights(sample_weight, n, request.weight_cap)
    check_labels(y, n, request)
    ready = prepare(X_public, X_private, n, request, weighted=sample_weight is not None)
    guarantee = request.guarantee(ready.accounting)
    keeper = _Keeper(ready, ledger, checkpoint, every, trace, hook)
    keeper.begin(resume, recharge)
    with charged_once(
        ledger, guarantee, keeper.run, table=table, analyst=analyst, label=label
    ) as reservation:
        problem = _problem(ready, X_public, X_private, y, n, sample_weight)
        if checkpoint is not None or keeper.resumed:
            parts = (problem.private, problem.labels, problem.weights)
            keeper.check_rows(tag_of(ledger, *(None if part is None else to_host(part) for part in parts)))
        source = random_stream(request.random_state)
        batches = None
        if not ready.accounting.full:
            batches = poisson_batches(n, ready.scale, source.child(f"batches/{keeper.state.step}"))
        answer = step_answer(
            ready.accounting.multiplier, source.child(f"noise/{keeper.state.step}"), steps=request.steps
        )
        state = drive(steps(problem, ready.stages, ready.rates, keeper.state, batches, keeper.watch), answer)
        keeper.publish(None)
        chosen = state.averaged if request.average > 0 else state.parameters
        result = SGDResult(
            ready.released(chosen, keeper.matrix),
            guarantee,
            Status.NONPRIVATE if request.nonprivate else Status.RELEASED,
            ready.accounting,
            state.clip,
            ready.rates,
            tuple(keeper.trace),
        )
    return result if reservation is None else replace(result, entry=reservation.id)


def _count(X_public: Any, X_private: Any, y: Any) -> int:
    for X in (X_public, X_private):
        if X is not None:
            return shape_of(X)[0]
    shape = attribute(y, "shape")
    return int(shape[0]) if shape else len(y)


def _problem(ready: Prepared, X_public: Any, X_private: Any, y: Any, n: int, sample_weight: Any) -> Problem:
    """Read the private cells."""
    xp = namespace(X_public, X_private)
    reference = X_public if X_public is not None else X_private

    def there(values: Floats) -> Any:
        return like(xp, values, reference)

    private = None if X_private is None else ready.inputs.private(X_private)
    weights = weights_of(sample_weight, n, ready.request.weight_cap)
    return Problem(
        ready.model,
        ready.request.loss(),
        there(ready.public),
        None if private is None else there(private),
        there(labels_of(on_host(y), n, ready.request)),
        ready.accounting,
        ready.batch,
        ready.rows,
        ready.clip,
        None if weights is None else there(weights),
    )


class _Keeper:
    """Traces, snapshots and turns of one run."""

    def __init__(self, ready: Prepared, ledger: Any, path: Any, every: int, trace: int, hook: Any) -> None:
        self.ready, self.ledger, self.path, self.every, self.hook = ready, ledger, path, every, hook
        asked = ready.request
        marks = np.linspace(asked.steps, 0, trace, endpoint=False) if trace else np.zeros(0)
        self.marks = set(np.round(marks).astype(int).tolist())
        self.trace: list[TracePoint] = []
        self.waiting: list[TracePoint] = []
        self.matrix: Floats | None = ready.stages[0].matrix
        self.run, self.last, self.resumed = new_run(), 0, False
        burn = asked.steps - max(1, round(asked.average * asked.steps))
        optimizer = make_optimizer(asked.optimizer, momentum=asked.momentum, betas=asked.betas)
        self.state = State(ready.model.initial(asked.init_seed), optimizer, Average(burn))

    def begin(self, resume: Any, recharge: bool) -> None:
        """Go on from a snapshot, if there is one; its turn is taken before anything is read."""
        if resume is None:
            return
        snapshot = resume if isinstance(resume, Snapshot) else Snapshot.load(resume)
        if snapshot.digest != self.ready.digest:
            raise DataError(
                "The snapshot belongs to another request or other public data.",
                "Resume with what the run began with.",
            )
        asked = self.ready.request
        guarantee = asked.guarantee(self.ready.accounting)
        name = f"{snapshot.run} {snapshot.step} written"
        check_kept(self.ledger, guarantee, name, snapshot.fingerprint, "values of the snapshot are")
        if recharge:
            self.last = 0
        else:
            take_turn(self.ledger, guarantee, snapshot.run, snapshot.step)
            self.run, self.resumed = snapshot.run, True
        self.state = snapshot.state(self.state.optimizer, self.state.average.burn)
        present = max(i for i, s in enumerate(self.ready.stages) if s.start < snapshot.step)
        self.matrix = self.ready.stages[present].matrix

    def check_rows(self, tag: bytes) -> None:
        """Tie a run with snapshots to its private cells; after the charge, before a step."""
        guarantee, name = self.ready.request.guarantee(self.ready.accounting), f"{self.run} rows"
        if self.resumed:
            check_kept(self.ledger, guarantee, name, tag, "private cells are")
        else:
            keep(self.ledger, guarantee, name, tag)

    def watch(self, state: State, matrix: Floats | None) -> None:
        """Keep traces; write a snapshot when it is time."""
        self.matrix = matrix
        if state.step in self.marks:
            released = self.ready.released(state.averaged, matrix)
            self.waiting.append(TracePoint(state.step, released))
            if self.path is None and self.last == 0:
                self._flush()
        if self.path is not None and state.step % self.every == 0 and state.step < self.ready.rates.size:
            self.publish(state)

    def publish(self, state: State | None) -> None:
        """Take the turn after the last snapshot, then write the next one (None: the result follows)."""
        if self.last:
            guarantee = self.ready.request.guarantee(self.ready.accounting)
            take_turn(self.ledger, guarantee, self.run, self.last)
        self._flush()
        if state is not None:
            snapshot = Snapshot.of(self.run, self.ready.digest, state)
            guarantee = self.ready.request.guarantee(self.ready.accounting)
            keep(self.ledger, guarantee, f"{self.run} {state.step} written", snapshot.fingerprint)
            snapshot.save(self.path)
            self.last = state.step

    def _flush(self) -> None:
        for point in self.waiting:
            self.trace.append(point)
            if self.hook is not None:
                self.hook(point)
        self.waiting.clear()
