"""Engine `dpsgd` (Cond-DP): noisy gradient steps over conditioned public columns.

A generator: each step yields one `Statistic`, the sum of clipped per-row gradients on a public grid with its
sensitivity, and is sent the private answer. Everything else (means, steps, averages, switches) is a function
of answers and public numbers. Rows are clipped at c (1 - 10^-6). The mean divides by a public expected batch
size; an empty batch yields a zero statistic, gets its noise and counts as a step (pitfalls F22, F25, F28).

==============================================  ========================================================
edge case                                       what happens
==============================================  ========================================================
empty batch                                     zero statistic, noise added, step counted
a row whose gradient or output overflows        contributes zero, wherever it stands
(cells of 1e308, of infinity)
a row of 1e6                                    a vector of norm c
gradient of zero                                contributes zero: no division by its norm
no public, or no private columns                plain DP-SGD; label DP with public columns alone
a batch larger than a block                     summed block by block, on the grid
==============================================  ========================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError, UnsupportedError
from confide.mechanisms import Statistic, grid_step, round_toward_zero
from confide.mechanisms.grid import LARGEST_VALUE, saturated_sum
from confide.privacy import Adjacency
from confide.training.sgd.arrays import Array, Floats, like, namespace, row_squares, to_host, without
from confide.training.sgd.losses import Loss
from confide.training.sgd.models import Model, Rows
from confide.training.sgd.optimizers import Average, Optimizer
from confide.training.sgd.sensitivity import CLIP_ROOM, Accounting, block_rows
from confide.training.sgd.switch import Stage, check_blocks, mapping

#: Gradients and outputs beyond this contribute zero: their squares, and sums of those, stay finite.
_LARGEST = 1e75
#: Clip norms whose squares and grids are normal doubles.
_CLIPS = (1e-60, 1e60)

#: The relations under which columns may be public.
LABELS_AND_PARTS = (Adjacency.REPLACE_LABEL, Adjacency.REPLACE_PRIVATE_PART)
Batches = Iterator[npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Problem:
    """What is fitted.

    Attributes
    ----------
    model : Model
    loss : Loss
    public : array of shape (n, p)
        Public columns before conditioning; p may be 0.
    private : array of shape (n, q) or None
        Private columns, clipped to declared bounds.
    labels : array of shape (n,) or (n, 1)
        Clipped to declared bounds, or class numbers.
    accounting : Accounting
    batch : float
        Public expected number of rows of a batch: the divisor.
    most_rows : int
        Public number of rows whose rounding is paid for (`Accounting.covered`): n itself under the
        replacement relations; under ADD_REMOVE_ONE n is secret, and may be larger.
    clip : float
        c of the first stage; infinite for none: then a step's sensitivity is what one label can move.
    weights : array of shape (n,) or None
        Within [0, accounting.weight_cap]; secret as labels are.
    """

    model: Model
    loss: Loss
    public: Array
    private: Array | None
    labels: Array
    accounting: Accounting
    batch: float
    most_rows: int
    clip: float = math.inf
    weights: Array | None = None

    def __post_init__(self) -> None:
        if not (math.isinf(self.clip) and self.clip > 0) and not _CLIPS[0] <= self.clip <= _CLIPS[1]:
            raise ParameterError(
                f"The 'clip' parameter is {self.clip!r:.80}.", "Pass a number from 1e-60 to 1e60."
            )
        check_clip(self.clip, self.accounting, self.spread_known)
        if self.accounting.adjacency not in LABELS_AND_PARTS and self.public.shape[1]:
            raise UnsupportedError(
                f"Under {self.accounting.adjacency.value!r} no column is public.",
                "Pass them as private columns, or another adjacency.",
            )

    @property
    def spread_known(self) -> bool:
        """Whether what one label can move a sum by is public: see `spread_is_public`."""
        return spread_is_public(
            self.accounting, self.model, private=self.private is not None, weighted=self.weights is not None
        )


def spread_is_public(accounting: Accounting, model: Model, *, private: bool, weighted: bool) -> bool:
    """Return whether what one unit can move a sum by is public: full batches, labels the only secret.

    Sample weights belong to the rows' secrets: a unit with another weight moves a sum by more than a label
    can. So weighted rows are bounded by the clip norm times the cap alone.
    """
    labels_only = accounting.adjacency in LABELS_AND_PARTS and not private and not weighted
    return accounting.full and labels_only and (model.outputs == 1 or model.has_widths)


def check_clip(clip: float, accounting: Accounting, spread_known: bool) -> None:
    """Refuse gradients without a bound, from public facts alone.

    Raises
    ------
    ParameterError
    """
    if math.isinf(clip) and accounting.multiplier > 0 and not spread_known:
        raise ParameterError(
            "The 'clip' parameter is infinite, and one row's gradient has no public bound here.",
            "Pass a finite clip, or a gradient_bound.",
        )


@dataclass
class State:
    """Where a run stands; all of it is released or public, so all of it may be written down.

    Attributes
    ----------
    parameters : ndarray of shape (size,)
    optimizer : Optimizer
    average : Average
    step : int
        Steps done.
    clip : float
        c of the present stage.
    """

    parameters: Floats
    optimizer: Optimizer
    average: Average
    step: int = 0
    clip: float = math.inf

    @property
    def averaged(self) -> Floats:
        """The averaged iterate, in the coordinates of the present stage."""
        return self.average.value(self.parameters)


class Part(NamedTuple):
    """Of one block of rows: the sum, max ||grad f||, and max |f| + ||grad f||.

    The maxima are over rows that count, and infinite where they would tell a secret.
    """

    sums: Floats
    widest: float
    farthest: float


@dataclass
class _Run:
    """Rows of the present stage, and the arithmetic of a step."""

    problem: Problem
    xp: Any = field(init=False)
    matrix: Floats | None = field(init=False, default=None)
    rows: Rows = field(init=False)
    size: int = field(init=False)
    weigh: Any = field(init=False, default=None)
    held: tuple[tuple[float, float], Statistic, bool] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        task = self.problem
        self.xp = namespace(task.public, task.private, task.labels)
        self.size = block_rows(task.model.width)
        if self.xp is np:
            from confide.training.sgd.kernels import clip_weights

            self.weigh = lambda xp, *arrays: _one_pass(clip_weights, *arrays)

    def enter(self, stage: Stage) -> None:
        """Condition the rows."""
        task, xp = self.problem, self.xp
        self.matrix = stage.matrix
        with np.errstate(all="ignore"):
            public = (
                task.public if self.matrix is None else task.public @ like(xp, self.matrix.T, task.public)
            )
        values = public
        labels = xp.reshape(task.labels, (-1,))  # [n, 1] would broadcast to n x n
        parts = [public] if task.private is None else [public, task.private]
        if task.model.constant:
            parts.append(xp.ones_like(xp.reshape(labels, (-1, 1))))
        if len(parts) > 1:
            values = (np.concatenate if xp is np else xp.concat)(parts, axis=1)
        if xp is np:
            values = np.ascontiguousarray(values)
        self.rows = Rows.of(xp, task.model, values, int(task.public.shape[1]), labels, task.weights)

    def gradient_length(self, parameters: Floats) -> float:
        """Return the root mean square of ||grad f|| over public rows at released parameters; 0 if unknown."""
        task = self.problem
        if task.private is not None or task.model.outputs > 1 or self.rows.count == 0:
            return 0.0
        theta, total, count = like(self.xp, parameters, task.public), 0.0, 0
        for rows in _parts(self.rows, self.size):
            with np.errstate(all="ignore"):
                _, tape = task.model.forward(self.xp, theta, rows)
                squares, _ = task.model.backward(self.xp, theta, rows, tape, None)
                values = to_host(rows.widths**2 if squares is None else squares)
            values = values[values < _LARGEST**2]
            total, count = total + float(values.sum()), count + values.size
        return math.sqrt(total / count) if count else 0.0

    def block(self, theta: Array, rows: Rows, clip: float, bad: Array | None = None) -> Part:
        """Return the sum of clipped gradients of some rows, of which those marked bad contribute zero."""
        task, xp = self.problem, self.xp
        model = task.model
        f, tape = model.forward(xp, theta, rows)
        slope = task.loss.slope(xp, f, rows.labels)
        if model.outputs == 1:
            squares, deltas = model.backward(xp, theta, rows, tape, None)
            norm = rows.widths if squares is None else xp.sqrt(squares)
        else:
            squares, deltas = model.backward(xp, theta, rows, tape, slope)
            norm = rows.widths if squares is None else xp.sqrt(squares)
            f = xp.max(abs(f), axis=1)
            slope = xp.ones_like(norm) if squares is not None else xp.sqrt(row_squares(xp, slope))
        weights, farthest, widest = (self.weigh or _weigh)(xp, f, slope, norm, clip * (1.0 - CLIP_ROOM))
        if model.outputs > 1 and squares is None:
            weights = weights / _at_least(xp, slope, 5e-324)  # the seeds carry the slope
        if rows.weighted:
            weights = weights * rows.weights
        if bad is None and task.spread_known and not farthest < _LARGEST:  # NaN too
            bad = ~((abs(f) + norm) < _LARGEST)
        if bad is not None:
            # A zero weight alone would make 0 * inf.
            rows, tape, deltas = model.scrub(xp, rows, tape, deltas, bad)
            weights = without(xp, weights, bad)
            farthest = float(without(xp, abs(f) + norm, bad).max())
            widest = float(without(xp, norm, bad).max())
        sums = to_host(model.contract(xp, theta, rows, tape, deltas, weights))
        if task.spread_known:
            return Part(sums, widest, farthest)
        if bad is None and sums.size and not -math.inf < float(sums.min()) <= float(sums.max()) < math.inf:
            return self.block(theta, rows, clip, ~(abs(slope) * norm < math.inf))
        return Part(sums, math.inf, math.inf)

    def reach(self, parts: list[Part], clip: float) -> tuple[float, float]:
        """Return how far one label can move a row's unclipped gradient, and how long a row's can be."""
        if not self.problem.spread_known:
            return math.inf, clip
        widest = max((part.widest for part in parts), default=0.0) * (1 + 1e-9)
        farthest = max((part.farthest for part in parts), default=0.0)
        loss = self.problem.loss
        longest = clip if clip < math.inf else loss.slope_bound(farthest) * widest
        return loss.label_shift(farthest) * widest, longest

    def grid(self, clip: float, spread: float, length: float) -> tuple[Statistic, bool]:
        """Return a statistic of zeros with the grid and sensitivity of a release, and whether blocks fit it.

        Public numbers alone decide.
        """
        task, book = self.problem, self.problem.accounting
        # A label that moves nothing (all rows zero, or too far out) still gets its noise.
        difference = max(book.difference(clip, spread), 1e-100)
        length *= book.weight_cap
        if self.held is not None and self.held[0] == (difference, length):
            return self.held[1:]
        size, rows, parts = task.model.size, book.covered(task.most_rows), task.model.cancellation
        touched = book.touched(rows, self.size)
        step = grid_step(
            book.multiplier * difference,
            size * (touched * book.ends) ** 2,
            noise_multiplier=max(book.multiplier, 1.0),
            rows=1 + rows // self.size,
        )
        spacing = step * touched * math.sqrt(size)
        error = book.rounding(length, rows, self.size, parts)
        sensitivity = book.sensitivity(difference, error, spacing)
        empty = Statistic(np.zeros(size, dtype=np.int64), step, sensitivity, "dpsgd")
        fits = self.size * length * parts < step * LARGEST_VALUE / 4
        self.held = ((difference, length), empty, fits)
        return empty, fits

    def statistic(self, parameters: Floats, rows: Rows, clip: float) -> Statistic:
        """Return one step's release."""
        task = self.problem
        theta = like(self.xp, parameters, task.public)
        with np.errstate(all="ignore"):  # no warning may depend on a private cell
            parts = [self.block(theta, part, clip) for part in _parts(rows, self.size)]
            if task.accounting.multiplier == 0:
                return _exact([part.sums for part in parts], task.model.size)
            empty, fits = self.grid(clip, *self.reach(parts, clip))
            # Dividing by a power of two is exact. Saturation moves no two values apart, and keeps blocks, and
            # sums with noise, within 64 bits; where public bounds say that no block needs it, it is left out.
            units = [part.sums * (1.0 / empty.step) for part in parts]
            if not fits:
                top = float(LARGEST_VALUE)
                units = [np.clip(np.nan_to_num(values, nan=0.0), -top, top) for values in units]
            if len(units) == 1:
                return _with_value(empty, units[0].astype(np.int64))  # toward zero
            whole = (values.astype(np.int64) for values in units)
            return _with_value(empty, saturated_sum(whole, empty.value.shape))


def _with_value(empty: Statistic, value: npt.NDArray[np.int64]) -> Statistic:
    """Return a statistic like one that was checked, with another value within +-2^61."""
    value.setflags(write=False)
    result = object.__new__(Statistic)
    result.__dict__.update(empty.__dict__, value=value)
    return result


def _weigh(xp: Any, f: Array, slope: Array, norm: Array, limit: float) -> tuple[Array, float, float]:
    """Return slope * min(1, limit / (|slope| norm)), max(|f| + norm) and max norm."""
    weights = slope
    if limit < math.inf:
        weights = slope * (limit / _at_least(xp, abs(slope) * norm, limit))
    return weights, float((abs(f) + norm).max()), float(norm.max())


def _one_pass(
    kernel: Any, f: Floats, slope: Floats, norm: Floats, limit: float
) -> tuple[Floats, float, float]:
    out = np.empty(f.size)
    farthest, widest = kernel(f, slope, norm, limit, out)
    return out, farthest, widest


def _at_least(xp: Any, values: Array, bound: float) -> Array:
    if xp is np:
        return np.maximum(values, bound)
    return xp.maximum(values, xp.full_like(values, bound))  # NaN stays NaN


def _parts(rows: Rows, size: int) -> Iterator[Rows]:
    if 0 < rows.count <= size:
        yield rows
    else:
        for start in range(0, rows.count, size):
            yield rows[start : start + size]


def _exact(sums: list[Floats], size: int) -> Statistic:
    """Return a sum without privacy on a grid that keeps its digits."""
    total = np.sum(sums, axis=0) if sums else np.zeros(size)
    top = float(np.abs(total).max(initial=0.0))
    step = 2.0 ** max(-900, math.frexp(top)[1] - 60) if math.isfinite(top) else 1.0
    return Statistic(round_toward_zero(total, step), step, 1.0, "dpsgd")


def steps(
    problem: Problem,
    stages: tuple[Stage, ...],
    rates: Floats,
    state: State,
    batches: Batches | None = None,
    watch: Callable[[State, Floats | None], None] | None = None,
) -> Generator[Statistic, Floats, State]:
    """Yield each step's statistic, be sent its private answer, and return the last state.

    Parameters
    ----------
    problem : Problem
    stages : tuple of Stage
        The first starts at 0.
    rates : ndarray of shape (T,)
        Learning rate of each step.
    state : State
        Where to begin; changed in place. A resumed state is in the coordinates of the stage it stopped in.
    batches : iterator of int arrays, optional
        Row numbers of each batch; None for full batches.
    watch : callable, optional
        Called after each step with the state and the conditioning matrix; sees released values alone.
    """
    run = _Run(problem)
    present = max(i for i, stage in enumerate(stages) if stage.start <= state.step)
    if state.step and stages[present].start == state.step:
        present -= 1  # the switch itself is still to come
    run.enter(stages[present])
    if state.step == 0:
        state.clip = problem.clip
    for step in range(state.step, rates.shape[0]):
        while present + 1 < len(stages) and stages[present + 1].start <= step:
            present += 1
            _switch(run, stages[present], state)
        rows = run.rows if batches is None else run.rows.take(run.xp, next(batches))
        answer = yield run.statistic(state.parameters, rows, state.clip)
        state.optimizer.step(state.parameters, answer / problem.batch, float(rates[step]))
        state.step = step + 1
        state.average.add(state.step, state.parameters)
        if watch is not None:
            watch(state, run.matrix)
    return state


def _switch(run: _Run, stage: Stage, state: State) -> None:
    """Enter a stage: the function stays, coordinates, moments, clip norm and noise change."""
    before = run.gradient_length(state.parameters)
    run.enter(stage)
    if stage.change is not None:
        blocks = check_blocks(run.problem.model.blocks)
        change = mapping(blocks, int(run.problem.public.shape[1]), stage.change)
        change(state.parameters)
        if state.average.mean is not None:
            change(state.average.mean)
        state.optimizer.switched(change)
    after = run.gradient_length(state.parameters)
    if before > 0 and after > 0 and math.isfinite(state.clip):
        # The clip norm keeps its meaning relative to gradients of the public rows.
        state.clip = min(max(state.clip * after / before, _CLIPS[0]), _CLIPS[1])
