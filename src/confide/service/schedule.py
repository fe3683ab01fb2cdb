"""When an answer leaves: on a public grid after its request came in, whatever happened inside.

An answer's time must not show k, a cache hit or another analyst's question. So each leaves at

    arrival + step * ceil((rows * per_row) / step),

a function of the number of rows alone, and within `Schedule.tolerance` of it: what a timer takes to wake.
Work that takes longer, an *overrun*, leaves at the next point of the
grid: that is visible, so it is counted, told to the owner's log without any fact of the request, and named as
an assumption of the guarantee. Padding is not a proof.

==============================  ====================================================
edge case                       what happens
==============================  ====================================================
ready before its time           waits
ready at its time to the tick   leaves, no overrun
ready later                     next point of the grid; counted; one log line
woken too late                  next point of the grid; counted: a busy process shows no time of its own
an error after validation       the same times
a step of 0                     no schedule; the guarantee names that there is none
==============================  ====================================================
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confide.errors import ParameterError

#: Of the guarantee, where a schedule is kept and where none is.
KEPT = "answers leave on their public schedule (overruns are counted)"
NONE = "the time of an answer is not observed"


def late(answers: int, since: str) -> str:
    """Return what the guarantee says of answers that left late: a fact, and what it assumes of it.

    Parameters
    ----------
    answers : int
    since : str
        Time of the first of them; its day is told.
    """
    told = "1 answer" if answers == 1 else f"{answers} answers"
    return (
        f"{told} since {since[:10]} left late, past the public time: the guarantee assumes that their "
        "lateness did not depend on the data, and says so for good"
    )


#: Overruns are told to the log once in so many seconds at most, with their number.
QUIET_SECONDS = 10.0
#: Seconds, and part of a step, by which a timer may wake late: the width of a point of the grid.
_TOLERANCE, _PART = 0.005, 0.2

_log = logging.getLogger("confide.service")


@dataclass
class Schedule:
    """A public schedule.

    Parameters
    ----------
    step : float
        Seconds between points of the grid.
    per_row : float
        Seconds granted to each row.
    overrun : callable, optional
        Called at each overrun; takes nothing.
    """

    step: float
    per_row: float = 0.0
    overrun: Callable[[], None] | None = None
    _told: float = field(default=-math.inf, repr=False)
    _untold: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        for name in ("step", "per_row"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ParameterError(f"The '{name}' of the schedule is {value!r}.", "Pass seconds >= 0.")

    @property
    def assumption(self) -> str:
        """What the guarantee assumes of times."""
        return KEPT if self.step else NONE

    def points(self, rows: int) -> int:
        """Return how many steps after its arrival a request of `rows` rows is answered."""
        # Slack for the division alone, so that ten rows of 0.1 step are one step and not two.
        return max(1, math.ceil(rows * self.per_row / self.step - 1e-9)) if self.step else 0

    def due(self, arrival: float, rows: int) -> float:
        """Return when the answer leaves, on the clock of `arrival`."""
        return arrival + self.points(rows) * self.step

    @property
    def tolerance(self) -> float:
        """Seconds within which an answer leaves after a point of the grid."""
        return min(_TOLERANCE, _PART * self.step)

    def next_point(self, arrival: float, rows: int, now: float) -> tuple[float, bool]:
        """Return when an answer that is ready `now` leaves, and whether that is an overrun."""
        due = self.due(arrival, rows)
        if not self.step or now <= due:
            return due, False
        return arrival + math.ceil((now - arrival) / self.step) * self.step, True

    async def wait(self, arrival: float, rows: int, overrun: Callable[[], None] | None = None) -> None:
        """Return at the request's time; call `overrun`, or else the schedule's own, where that is late."""
        if not self.step:
            return
        leaves, late = self.next_point(arrival, rows, time.monotonic())
        while True:
            while (left := leaves - time.monotonic()) > 0:
                await asyncio.sleep(left)
            now = time.monotonic()
            if now <= leaves + self.tolerance:
                break
            # The process was busy, maybe with another's request: how long must not show.
            leaves, late = self.next_point(arrival, rows, now)[0], True
        if late:
            self._count(overrun or self.overrun)

    def _count(self, overrun: Callable[[], None] | None) -> None:
        if overrun is not None:
            overrun()
        self._untold += 1
        now = time.monotonic()
        if now - self._told >= QUIET_SECONDS:
            _log.warning(
                "answers left after their time: %d since the last such line; raise --schedule-ms",
                self._untold,
            )
            self._told, self._untold = now, 0
