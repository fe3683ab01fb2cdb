"""What an adversary sees of a run at most: every answer of its mechanisms, and its result.

A claim of (epsilon, delta) that rests on a composition covers all answers together, and what is fitted on
them is post-processing: a model hides some of what the answers tell, so a distinguisher that reads the
answers is at least as strong. `transcript` runs a claim and keeps them. Where a run is a single release,
`redrawn` runs it once and repeats the release alone.

Lemma. Let a run ask one mechanism once, with an input that is a function of the table (no draw precedes it),
and let the mechanism's noise be independent between coordinates (`gaussian_release`, `laplace_release`) or
rows (`Channel.draw`), with public parameters that do not depend on how many there are. Then `count` copies
of the input, side by side in one call, have the law of the answers of `count` independent runs.
Proof. Both are products of the law of one coordinate (row) over all coordinates of all copies. Deviation,
step and l1_sensitivity are passed on as the run passed them. That the input repeats is checked on every call;
what a test can show of the law is in tests/audit/test_views.py.

================================================  ====================================================
edge case                                         what happens
================================================  ====================================================
two releases in a run, or none                    ValueError: `redrawn` is for one
an input that differs between two runs            ValueError: something was drawn before the release
a release whose noise depends on the dimension    ValueError (`laplace_release` without l1_sensitivity)
a mechanism inside another (objective.release)    only the outer one is seen
a secret batch (discrete draws)                   not shown: no claim covers it
================================================  ====================================================
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.audit.recorded import Mechanism
from confide.audit.registry import Floats, Run
from confide.audit.replay import Recorder, recording
from confide.mechanisms import RandomStream, Statistic

Outputs = Callable[[Any, int, RandomStream], Floats]
#: Mechanisms whose answers every claim covers, with the argument that is repeated.
_SHOWN = {
    "gaussian_release": "statistic",
    "laplace_release": "statistic",
    "step_answer": "statistic",
    "Channel.draw": "codes",
    "draw": "problem",
}
_REPEATED = ("gaussian_release", "laplace_release", "Channel.draw")


@dataclass(frozen=True, eq=False)
class Answer:
    """One answer of a mechanism, as a vector, and what is public of it (`recorded`)."""

    mechanism: str
    public: Any
    values: Floats

    @property
    def deviation(self) -> float:
        """Of Gaussian noise: multiplier times sensitivity."""
        return float(self.public[4]) * float(self.public[2])


class _View(Recorder):
    """Keeps the answers that are shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Floats] = []

    def call(
        self, mechanism: Mechanism, run: Callable[..., Any], args: Any, named: Any, extra: Any = None
    ) -> Any:
        if self._inside:
            return run(*args, **named)
        self._inside = True
        try:
            answer = run(*args, **named)
        finally:
            self._inside = False
        if mechanism.name in _SHOWN:
            self.keep(mechanism, run, args, named, answer)
        return answer

    def keep(self, mechanism: Mechanism, run: Callable[..., Any], args: Any, named: Any, answer: Any) -> None:
        """Keep one answer."""
        self.seen.append(np.ravel(np.asarray(answer, dtype=np.float64)))


class _Releases(_View):
    """Keeps how the releases were called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_made: list[tuple[Mechanism, Callable[..., Any], dict[str, Any]]] = []

    def keep(self, mechanism: Mechanism, run: Callable[..., Any], args: Any, named: Any, answer: Any) -> None:
        bound = inspect.signature(run).bind(*args, **named)
        bound.apply_defaults()
        self.calls_made.append((mechanism, run, dict(bound.arguments)))


class _Answers(_View):
    """Keeps answers with what is public of their calls."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Answer] = []

    def call(
        self, mechanism: Mechanism, run: Callable[..., Any], args: Any, named: Any, extra: Any = None
    ) -> Any:
        seen = len(self.seen)
        answer = super().call(mechanism, run, args, named, extra)
        if len(self.seen) > seen:
            bound = inspect.signature(run).bind(*args, **named)
            bound.apply_defaults()
            public = mechanism.public({**bound.arguments, **(extra or {})})
            self.answers.append(Answer(mechanism.name, public, self.seen[-1]))
        return answer


def answers(run: Run, table: Any, stream: RandomStream) -> list[Answer]:
    """Return the answers of one run, in order."""
    view = _Answers()
    with recording(view):
        run(table, stream)
    return view.answers


def transcript(run: Run, *, result: bool = True) -> Outputs:
    """Return the outputs of a claim: all answers of its mechanisms in order, then its result.

    Parameters
    ----------
    run : function (table, stream) -> array [d]
        Asks for as many numbers on every table: what `Claim.run` is, where all its mechanisms are covered.
    result : bool
        Whether the result is kept beside the answers.
    """

    def outputs(table: Any, count: int, stream: RandomStream) -> Floats:
        rows = []
        with recording(_View()) as view:
            assert isinstance(view, _View)
            for i in range(count):
                view.seen = []
                told = np.ravel(run(table, stream.child(str(i))))
                rows.append(np.concatenate([*view.seen, told] if result else view.seen))
        return np.array(rows, dtype=np.float64)

    return outputs


def redrawn(run: Run) -> Outputs:
    """Return the outputs of a claim whose run is one release: the answers, by the lemma of this module.

    Raises
    ------
    ValueError
        From the outputs, where the lemma does not hold.
    """

    def outputs(table: Any, count: int, stream: RandomStream) -> Floats:
        seen = _Releases()
        with recording(seen):
            for i in range(2):
                run(table, stream.child(f"plan {i}"))
        if len(seen.calls_made) != 2:
            raise ValueError(f"Two runs made {len(seen.calls_made)} releases; 'redrawn' is for one a run.")
        (mechanism, release, given), (_, _, again) = seen.calls_made
        if mechanism.name not in _REPEATED or given.get("l1_sensitivity", 1) is None:
            raise ValueError(f"The noise of {mechanism.name} may depend on the number of copies.")
        if mechanism.public(given) != mechanism.public(again) or not np.array_equal(
            mechanism.private(given), mechanism.private(again)
        ):
            raise ValueError("The input of the release differs between two runs on one table.")
        name = _SHOWN[mechanism.name]
        asked = {**given, name: _copies(given[name], count), "stream": stream.child("draws")}
        return np.asarray(release(**asked), dtype=np.float64).reshape(count, -1)

    return outputs


def _copies(told: Any, count: int) -> Any:
    if isinstance(told, Statistic):
        return Statistic(np.tile(told.value, (count, 1)), told.step, told.sensitivity, told.name)
    return np.tile(np.asarray(told, dtype=np.int64), count)
