"""Several workers under one command: one that fails at its start ends all of them, and is not tried for ever.

What keeps a worker from starting (a store that was rolled back, a model that is gone) keeps the next one too.
A worker that had served and died is replaced.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from uvicorn.supervisors import Multiprocess

from confide.errors import Failure

#: Exit code of a worker that an error of Confide kept from starting, less the status of that error.
REFUSED = 100
#: Status of the command where a worker failed to start for another reason.
NOT_STARTED = 1
_STATUSES = {failure.exit_status for failure in Failure}


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

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died; end all where one never started."""
        workers = list(self.processes)
        if not self._failed(workers):
            super().keep_subprocess_alive()
            self._failed(workers)  # one may have died while it was asked whether it lives

    def _failed(self, workers: Iterable[Any]) -> bool:
        if self.should_exit.is_set():
            return False
        for worker in workers:
            code = worker.process.exitcode
            # Killed: by us, since it was too slow to say that it lives, or for memory. Another may do better.
            if code in (None, -signal.SIGKILL) or _note(self.folder, worker.process.pid).exists():
                continue
            self.status = status_of(code)
            self.should_exit.set()
            return True
        return False


def status_of(code: int) -> int:
    """Return the status of the command whose worker could not start and ended with `code`."""
    return code - REFUSED if code - REFUSED in _STATUSES else NOT_STARTED
