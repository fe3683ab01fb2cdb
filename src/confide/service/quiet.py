"""Lines of the log that come once in a while, with their number, and without a fact of any request."""

from __future__ import annotations

import logging
import math
import threading
import time

from confide.errors import ConfideError, Failure

#: Seconds between two lines of one kind.
QUIET_SECONDS = 10.0

_log = logging.getLogger("confide.service")


class Quiet:
    """One kind of line. Shared by threads.

    Parameters
    ----------
    words : str
        With one ``%d``: how often it was noted since the last line.
    """

    def __init__(self, words: str) -> None:
        self.words = words
        self._lock = threading.Lock()
        self._told, self._untold = -math.inf, 0

    def note(self) -> None:
        """Count; write a line unless there was one just now."""
        with self._lock:
            self._untold += 1
            now = time.monotonic()
            if now - self._told < QUIET_SECONDS:
                return
            count, self._told, self._untold = self._untold, now, 0
        _log.error(self.words, count)


_LINES = {
    Failure.OUT_OF_REACH: Quiet(
        "the ledger's store is out of reach: %d refused (503) since the last such line"
    ),
    Failure.LEDGER: Quiet(
        "the ledger's store is missing, damaged or was rolled back: %d refused (503) since the last such "
        "line; see confide ledger show --verify"
    ),
    Failure.ENTROPY: Quiet("the source of random bits failed: %d refused (503) since the last such line"),
}


def note_failure(error: ConfideError) -> None:
    """Tell the owner's log of an error that is the service's own, and of no other."""
    line = _LINES.get(error.failure)
    if line is not None:
        line.note()
