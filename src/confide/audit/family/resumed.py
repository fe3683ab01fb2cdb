"""Members of gradient steps that crash and go on from a snapshot (`confide.training.sgd.checkpoint`).

A run is charged once, for its steps: `price` counts the steps before the crash and those after it together.
What must be refused is asked for as well: a snapshot that no run wrote, a second continuation, other rows.
Whoever got one of these under the same charge would get any number, and their noise would cancel: the labels
themselves stand for that, and so they do where a step was shown whose snapshot was not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confide.audit.family.shared import AMOUNTS, Options, of
from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows
from confide.audit.registry import Floats, Run, random_state
from confide.errors import RefusedError
from confide.mechanisms import RandomStream

_STEPS, _EVERY = 4, 2


class _Crash(Exception):
    """Stands for a process that ends."""


@contextmanager
def _crash(answered: int) -> Iterator[None]:
    """End the fit inside the block when it asks for one answer more than that."""
    from confide.training.sgd import fitting

    true, left = fitting.step_answer, answered

    def step_answer(*args: Any, **named: Any) -> Callable[[Any], Any]:
        answer = true(*args, **named)

        def until(statistic: Any) -> Any:
            nonlocal left
            if left == 0:
                raise _Crash
            left -= 1
            return answer(statistic)

        return until

    fitting.step_answer = step_answer
    try:
        yield
    except _Crash:
        pass
    finally:
        fitting.step_answer = true


class _Fits:
    """Fits of one table: `go` begins, or goes on, and tells whether it was refused."""

    def __init__(self, rows: Rows, asked: Any, path: Path) -> None:
        self.rows, self.asked, self.path, self.steps = rows, asked, path, list[int]()

    def go(self, y: Floats | None = None, **how: Any) -> Floats | None:
        """Return parameters; None where it is refused."""
        from confide.training.sgd import fit

        private, public = (self.rows.X, None) if self.asked.private_bounds else (None, self.rows.X)
        labels = self.rows.y if y is None else y
        try:
            told = fit(
                public, private, labels, self.asked, checkpoint=self.path, every=_EVERY, trace=_STEPS,
                hook=lambda point: self.steps.append(point.step), **how,
            )  # fmt: skip
        except RefusedError:
            return None
        return told.model.parameters


def _goes_on(fits: _Fits) -> tuple[Floats | None, bool]:
    """Go on once from a snapshot; return parameters, and whether more was to be had."""
    from confide.training.sgd.checkpoint import Snapshot

    with _crash(_EVERY):
        fits.go()
    written = Snapshot.load(fits.path)
    arrays = {**written.arrays, "parameters": written.arrays["parameters"] + 1}
    more = fits.go(resume=replace(written, arrays=arrays)) is not None
    told = fits.go(resume=written)
    return told, more or fits.go(resume=written) is not None


def _pays_anew(fits: _Fits) -> tuple[Floats | None, bool]:
    """Go on with other rows, which is refused, then for another charge."""
    from confide.training.sgd.checkpoint import Snapshot

    with _crash(_EVERY + 1):
        fits.go()
    shown = max(fits.steps, default=0) > _EVERY
    written = Snapshot.load(fits.path)
    other = fits.go(-fits.rows.y, resume=written) is not None
    return fits.go(resume=written, recharge=True), shown or other


def _run(how: Callable[[_Fits], tuple[Floats | None, bool]], relation: str, **options: Any) -> Run:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        from confide.training.sgd import SGDRequest

        p = rows.X.shape[1]
        asked = SGDRequest(
            **{"epsilon": 1, "delta": 0.001, "steps": _STEPS, "target_bounds": (-1, 1), **options},
            adjacency=relation, private_bounds=() if relation == "replace_label" else [(-1, 1)] * p,
            random_state=random_state(stream),
        )  # fmt: skip
        with TemporaryDirectory() as folder:
            told, more = how(_Fits(rows, asked, Path(folder) / "snapshot.npz"))
        if more:
            return rows.y
        assert told is not None
        return told

    return run


_FAST: Options = dict(zip(("epsilon", "delta"), AMOUNTS[1], strict=True))


def _resumed(relation: str) -> Iterator[Variant]:
    pairs = of(12, 2, relation)
    for name, how in (("goes on", _goes_on), ("pays anew", _pays_anew)):
        yield Variant(f"{name}, {relation}", _run(how, relation), pairs, relation)


def _batched() -> Iterator[Variant]:
    relation = "replace_label"
    run = _run(_goes_on, relation, batch_size=4, **_FAST)
    yield Variant("goes on, batches", run, of(12, 2, relation), epsilon=_FAST["epsilon"])


FAMILIES: Families = {
    "training.dpsgd.linear": tuple(_resumed("replace_label")),
    "training.dpsgd.secret": tuple(_resumed("replace_one")),
    "training.dpsgd.poisson": tuple(_batched()),
}
