"""Boxes of parameters through training: bounds of a batch's descent direction, and steps of boxes.

Notation: k changed rows; B, B' boxes; D, D' neighbouring tables; g(row, theta) the clipped gradient on the
grid, in [-c, c]; g_L, g_U its bounds over a box. Everything here is monotone bit for bit (see `kernels`), so
that B inside B' gives g_L(B') <= g_L(B) and g_U(B) <= g_U(B').

**Descent bounds.** Replacement, batch of b rows: with i = min(k, b), lower = (sum of the b - i least g_L -
i c)/b and upper = (sum of the b - i largest g_U + i c)/b. Add/remove, public divisor b0: lower = (sum g_L -
k c)/b0, upper = (sum g_U + k c)/b0, over all rows.

**Step^i.** theta' = a theta - rate m with m = momentum v + d and a = 1 - rate weight_decay: the coefficients
of theta meet once, so that decay contracts a box; a negative a swaps its ends. v' = m + weight_decay theta.

*Nesting.* For D, D' that differ in one row of this batch and B inside B': Step^i_{D'}(B) lies inside
Step^{i+1}_D(B'). Proof for the lower end, replacement. Let A be the b - i rows of D' that attain the least
sum. Take the changed row out of A if it is there, else any row; what is left are b - i - 1 rows that D has
too. The row taken out has g_L >= -c, so sum over A >= sum over the rest of g_L(B) - c >= (least sum of b - i
- 1 terms g_L(B') of D) - c; subtract i c. (i = b: both sides are -b c.) Add/remove: a row more adds g_L >=
-c, a row less takes away g_L <= c; the level above pays c for it. Division, scaling and the step are
monotone. With D = D' the same holds at equal i, and Step^i lies inside Step^{i+1}.

**Per step** (`budget` "step"). B^k_t = Step^k(B^k_{t-1}) in every batch. By induction over t, B^k_t(D') lies
inside B^{k+1}_t(D) for neighbours.

**Per epoch** (`budget` "epoch"). At most k rows differ in all batches of an epoch together: B^{k,j}_t = hull
over i <= j of Step^i(B^{k,j-i}_{t-1}), each epoch from B^{k,k} of the last. Let the changed row lie in batch
s. Before it B^{k,j}(D') lies inside B^{k+1,j}(D); at it Step^i_{D'}(B^{k,j-i}) lies inside
Step^{i+1}_D(B^{k+1,j-i}), one of the sets of the hull B^{k+1,j+1}(D); after it Step^i(B^{k,j-i}(D')) lies
inside Step^i(B^{k+1,j+1-i}(D)), another. So B^{k,k}(D') lies inside B^{k+1,k+1}(D) at the epoch's end.

**1-Lipschitz and sound.** Level 0 is the trained model itself, a point. A query is certified at level k as
class a if every model in the box says a; that is monotone in the box. If k(D) = m then levels 0 ... m of D
say a, so levels 0 ... m - 1 of D' say a by nesting: k(D') >= m - 1, and the class is the same if m >= 1.
Sound: go from D to any table in k(D) changes one row at a time.

A level with a bound that is not finite, or with crossed bounds, is lost, and so are all above it, for good:
if level k of D' is lost then level k + 1 of D is, for its bounds lie outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from confide.prediction.intervals.hyperparameters import Hyperparameters
from confide.prediction.intervals.network import Floats, Ints, Network, Rows

#: Parameters whose kept terms are sorted at once.
_SLICE = 1 << 13


@dataclass(frozen=True)
class Batch:
    """Rows of one batch: secret ones, public ones that never change, and the public divisor."""

    rows: Rows
    public: Rows | None
    divisor: float


@dataclass(frozen=True)
class Boxes:
    """Boxes of parameters and velocities, [..., parameter]."""

    lower: Floats
    upper: Floats
    v_lower: Floats
    v_upper: Floats

    @classmethod
    def at(cls, point: Floats) -> Boxes:
        """Return the box of one point, at rest."""
        return cls(point, point, np.zeros_like(point), np.zeros_like(point))

    def map(self, change: Callable[..., Floats], *others: Boxes) -> Boxes:
        """Apply a function to each of the four arrays."""
        names = ("lower", "upper", "v_lower", "v_upper")
        return Boxes(*(change(*(getattr(box, name) for box in (self, *others))) for name in names))

    def __getitem__(self, places: Any) -> Boxes:
        return self.map(lambda values: values[places])

    def hull(self, other: Boxes) -> Boxes:
        """Return the smallest box around both."""
        return Boxes(
            np.minimum(self.lower, other.lower),
            np.maximum(self.upper, other.upper),
            np.minimum(self.v_lower, other.v_lower),
            np.maximum(self.v_upper, other.v_upper),
        )

    @property
    def sound(self) -> Any:
        """Whether each box has finite bounds in order."""
        good = (self.lower <= self.upper) & (self.v_lower <= self.v_upper)
        for values in (self.lower, self.upper, self.v_lower, self.v_upper):
            good = good & np.isfinite(values)
        return good.all(axis=-1)

    @staticmethod
    def stack(boxes: Sequence[Boxes]) -> Boxes:
        """Return boxes along a new first axis."""
        return boxes[0].map(lambda *values: np.stack(values), *boxes[1:])


@dataclass(frozen=True)
class Descent:
    """What all steps share.

    Parameters
    ----------
    network : Network
    settings : Hyperparameters
    replace : bool
        Whether the relation replaces rows (else it adds or removes one).
    n_jobs : int, optional
        Of joblib, over boxes, in threads: the kernels release the interpreter's lock.
    tick : callable
        Called with the number of boxes done.
    """

    network: Network
    settings: Hyperparameters
    replace: bool
    n_jobs: int | None = None
    tick: Callable[[int], None] = lambda done: None

    def directions(
        self, batch: Batch, boxes: Boxes, budgets: Sequence[Sequence[int]], point: Sequence[bool]
    ) -> list[tuple[Floats, Floats]]:
        """Bound a batch's descent direction over boxes [box, parameter].

        Parameters
        ----------
        batch : Batch
        boxes : Boxes
        budgets : sequence of sequences of int
            For each box, the numbers i of changed rows.
        point : sequence of bool
            Which boxes are one point that every neighbour shares or level 0.

        Returns
        -------
        list of (ndarray, ndarray), each shape [len(budgets[box]), parameter]
        """
        work = list(zip(boxes.lower, boxes.upper, budgets, point, strict=True))
        if len(work) == 1 or self.n_jobs in (None, 1):
            return [self._direction(batch, *item) for item in work]
        from joblib import Parallel, delayed

        run = Parallel(n_jobs=self.n_jobs, prefer="threads")
        found: list[Any] = list(run(delayed(self._direction)(batch, *item) for item in work))
        return found

    def _direction(
        self, batch: Batch, lower: Floats, upper: Floats, budgets: Sequence[int], point: bool
    ) -> tuple[Floats, Floats]:
        rows = batch.rows.count
        clip, step = self.settings.grid
        most = min(max(budgets), rows) if self.replace else 0
        totals = np.zeros((2, self.network.size), dtype=np.int64)
        kept = np.full((2, self.network.size, most), -np.inf)
        self._accumulate(batch.rows, lower, upper, point, totals, kept)
        if batch.public is not None:
            nothing = np.empty((2, self.network.size, 0))
            self._accumulate(batch.public, lower, upper, point, totals, nothing)
        changed = np.array([min(i, rows) if self.replace else i for i in budgets], dtype=np.int64)
        loss = np.zeros((2, len(budgets), self.network.size), dtype=np.int64)
        if most:
            largest_sums(kept, step, changed, loss)
        loss += (changed * int(clip / step))[None, :, None]
        scale = batch.divisor
        self.tick(1)
        return (totals[0] - loss[0]) * step / scale, (totals[1] + loss[1]) * step / scale

    def _accumulate(
        self, rows: Rows, lower: Floats, upper: Floats, point: bool, totals: Ints, kept: Floats
    ) -> None:
        from confide.prediction.intervals.kernels import EXPONENTIALS, gradient_sums

        clip, step = self.settings.grid
        by_norm = self.settings.clip_by == "norm"
        gradient_sums(
            self.network.dims, lower, upper, rows.X, rows.codes, EXPONENTIALS, bool(point), clip, by_norm,
            step, totals, kept,
        )  # fmt: skip

    def advance(self, boxes: Boxes, d_lower: Floats, d_upper: Floats, step: int) -> Boxes:
        """Take step number `step` with bounds of the descent direction, all [..., parameter]."""
        settings = self.settings
        rate, decay, momentum = settings.rate(step), settings.weight_decay, settings.momentum
        if momentum == 0:
            lower, upper = _decayed(boxes, 1 - rate * decay)
            zero = np.zeros_like(d_lower)
            return Boxes(lower - rate * d_upper, upper - rate * d_lower, zero, zero)
        m_lower, m_upper = momentum * boxes.v_lower + d_lower, momentum * boxes.v_upper + d_upper
        v_lower, v_upper = m_lower + decay * boxes.lower, m_upper + decay * boxes.upper
        if settings.nesterov:
            # g + momentum v' = (1 + momentum)(d + decay theta) + momentum^2 v, again with theta met once.
            lower, upper = _decayed(boxes, 1 - rate * (1 + momentum) * decay)
            s_lower = (1 + momentum) * d_lower + momentum**2 * boxes.v_lower
            s_upper = (1 + momentum) * d_upper + momentum**2 * boxes.v_upper
            return Boxes(lower - rate * s_upper, upper - rate * s_lower, v_lower, v_upper)
        lower, upper = _decayed(boxes, 1 - rate * decay)
        return Boxes(lower - rate * m_upper, upper - rate * m_lower, v_lower, v_upper)


def _decayed(boxes: Boxes, factor: float) -> tuple[Floats, Floats]:
    ends = (boxes.lower, boxes.upper) if factor >= 0 else (boxes.upper, boxes.lower)
    return factor * ends[0], factor * ends[1]


def largest_sums(kept: Floats, step: float, changed: Ints, out: Ints) -> None:
    """Write the sums of the i largest kept terms, in grid steps, for each i of `changed`."""
    used = changed > 0
    for side in range(2):
        for start in range(0, kept.shape[1], _SLICE):
            part = slice(start, start + _SLICE)
            terms = (kept[side, part] / step).astype(np.int64)
            if len(changed) > 1:
                terms.sort(axis=1)
            sums = np.cumsum(terms[:, ::-1], axis=1)
            out[side, used, part] = sums[:, changed[used] - 1].T


def per_step(descent: Descent, start: Floats, ks: Sequence[int], batches: Sequence[Batch]) -> Boxes:
    """Return the boxes [level, parameter] for levels `ks` (ascending, the first 0), k changes a batch."""
    boxes = Boxes.at(np.tile(start, (len(ks), 1)))
    alive = len(ks)
    for step, batch in enumerate(_steps(descent, batches)):
        now = boxes[:alive]
        if step == 0:  # one point for all levels: one pass
            found = descent.directions(batch, now[:1], [list(ks[:alive])], [True])
            d_lower, d_upper = found[0]
        else:
            found = descent.directions(batch, now, [[k] for k in ks[:alive]], [k == 0 for k in ks[:alive]])
            d_lower, d_upper = (np.concatenate([pair[side] for pair in found]) for side in (0, 1))
        with np.errstate(all="ignore"):
            now = descent.advance(now, d_lower, d_upper, step)
        boxes, alive = _lose(boxes, now)
        if not alive:
            break
    return boxes


def per_epoch(descent: Descent, start: Floats, ks: Sequence[int], batches: Sequence[Batch]) -> Boxes:
    """Return the boxes [level, parameter] for levels `ks` (ascending, the first 0), k changes an epoch."""
    boxes = Boxes.at(np.tile(start, (len(ks), 1)))
    alive = len(ks)
    for epoch in range(descent.settings.epochs):
        step = epoch * len(batches)
        if epoch == 0:  # all levels start at one point: the largest has all others inside
            ended = _epoch(descent, boxes[0], ks[-1], batches, step, shared=True)
            now = ended[list(ks)]
        else:
            levels = zip(ks[:alive], range(alive))
            now = Boxes.stack([_epoch(descent, boxes[i], k, batches, step, k == 0)[k] for k, i in levels])
        boxes, alive = _lose(boxes, now)
        if not alive:
            break
    return boxes


def _epoch(
    descent: Descent, start: Boxes, k: int, batches: Sequence[Batch], step: int, shared: bool
) -> Boxes:
    """Return B^{k,j} at an epoch's end for j = 0 ... k, all from the box `start` [parameter].

    `shared`: B^{k,0} is a point that no change has touched.
    """
    held = start.map(lambda values: values[None])
    for batch in batches:
        count = len(held.lower)  # 1 in the first batch, then k + 1
        budgets = [range(k + 1 - j) for j in range(count)]
        found = descent.directions(batch, held, budgets, [shared and j == 0 for j in range(count)])
        after: list[Any] = [None] * (k + 1)
        for j, (d_lower, d_upper) in enumerate(found):
            with np.errstate(all="ignore"):
                moved = descent.advance(held[j : j + 1], d_lower, d_upper, step)
            for i in range(len(d_lower)):
                box = moved[i]
                after[j + i] = box if after[j + i] is None else after[j + i].hull(box)
        held = _spread(Boxes.stack(after))
        step += 1
    return held if len(held.lower) > 1 or k == 0 else held[[0] * (k + 1)]


def _spread(boxes: Boxes) -> Boxes:
    """Lose a box [box, parameter] that is unsound, and all after it."""
    return _lose(boxes, boxes)[0]


def _lose(boxes: Boxes, now: Boxes) -> tuple[Boxes, int]:
    """Put the new boxes of the levels in place; return how many from the first are still sound."""
    good = now.sound
    alive = len(good) if good.all() else int(np.argmin(good))
    ends = (-np.inf, np.inf, -np.inf, np.inf)
    names = ("lower", "upper", "v_lower", "v_upper")
    parts = {}
    for name, end in zip(names, ends, strict=True):
        values = np.full_like(getattr(boxes, name), end)
        values[:alive] = getattr(now, name)[:alive]
        parts[name] = values
    return replace(boxes, **parts), alive


def _steps(descent: Descent, batches: Sequence[Batch]) -> Iterator[Batch]:
    for _ in range(descent.settings.epochs):
        yield from batches
