"""Several workers under one command: one that fails at the first start ends all, a later one is tried again.

What keeps a worker from the first start (a store that was rolled back, a model that is gone) is the owner's
to mend, who is there. Once any of them has served, the others may serve on while a replacement cannot start.

======================================  ================================================================
edge case                               what happens
======================================  ================================================================
none has served yet, one fails          the command ends, with the status of that error
a worker that had served dies           replaced at once
its replacement fails at its start      tried again after 1 s, 2 s, 4 s, ... 30 s, for ever; told to the log
one that was tried again serves         its next failure is waited for 1 s again
killed before it served                 tried again likewise, also at the first start: another may do better
told to stop during a pause             the command ends at once
======================================  ================================================================
"""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from confide.errors import Failure

#: Exit code of a worker that an error of Confide kept from starting, less the status of that error.
REFUSED = 100
#: Status of the command where a worker failed to start for another reason.
NOT_STARTED = 1
#: Seconds before a worker that could not start is tried again: the first time, and the most.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
_STATUSES = {failure.exit_status for failure in Failure}

_log = logging.getLogger("confide.service")


def note_start(folder: str | os.PathLike[str]) -> None:
    """Note in the workers' folder that this process serves from now on."""
    _note(folder, os.getpid()).touch()


def _note(folder: str | os.PathLike[str], pid: int | None) -> Path:
    return Path(folder, f"{pid}.started")


class Workers(Multiprocess):
    """Workers of one command.

    Parameters
    ----------
    folder : path
        Of the workers; `note_start` writes to it.
    config, sockets
        Of uvicorn.

    Attributes
    ----------
    status : int
        Of the command: 0, or why a worker could not start.
    """

    def __init__(self, folder: str | os.PathLike[str], config: Any, sockets: list[Any]) -> None:
        super().__init__(config, sockets=sockets)
        self.folder = folder
        self.status = 0
        #: By place: the worker that could not start, when it is replaced, and the pause before that.
        self._waiting: dict[int, tuple[Any, float, float]] = {}

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died; end all where the first start failed."""
        for place, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if worker.is_alive(timeout=self.config.timeout_worker_healthcheck):
                continue
            worker.kill()  # where it does not say that it lives
            worker.process.join()
            if not self._may_go_on(worker):
                return
            if self._due(place, worker):
                self._replace(place)

    def _may_go_on(self, worker: Any) -> bool:
        """Return whether a dead worker may be replaced; else end the command with its status."""
        code = worker.process.exitcode
        if self._served(worker) or code == -signal.SIGKILL or any(Path(self.folder).glob("*.started")):
            return True
        self.status = status_of(code)
        self.should_exit.set()
        return False

    def _served(self, worker: Any) -> bool:
        return _note(self.folder, worker.process.pid).exists()

    def _due(self, place: int, worker: Any) -> bool:
        """Return whether a dead worker is replaced now: at once if it had served, else after a pause."""
        if self._served(worker):
            self._waiting.pop(place, None)
            return True
        failed, due, pause = self._waiting.get(place, (None, 0.0, FIRST_PAUSE / 2))
        if failed is not worker:
            pause = min(2 * pause, LONGEST_PAUSE)
            due = time.monotonic() + pause
            self._waiting[place] = worker, due, pause
            _log.error("a worker could not start; another one is tried in %g s", pause)
        return time.monotonic() >= due

    def _replace(self, place: int) -> None:
        _log.info("a worker ended and is replaced")
        worker = Process(self.config, self.sockets)
        worker.start()
        self.processes[place] = worker


def status_of(code: int) -> int:
    """Return the status of the command whose worker could not start and ended with `code`."""
    return code - REFUSED if code - REFUSED in _STATUSES else NOT_STARTED
