"""Reports of results: one self-contained HTML file, a terminal summary, and the plain facts behind both.

Everything here is post-processing. A report is a function of released values (the result and its
guarantee), of declarations (the schema), of the ledger's public entries, and of test labels that somebody
declares public in so many words (`PublicTest`); no other private cell is read, so a report costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.report.measured import PublicTest as PublicTest
    from confide.report.regression import Facts as Facts
    from confide.report.regression import facts as facts
    from confide.report.terminal import summary as summary
    from confide.report.write import write_report as write_report

#: Public name -> module; loaded on first use, since importing the room must stay cheap.
_WHERE = {
    "Facts": "regression",
    "PublicTest": "measured",
    "facts": "regression",
    "summary": "terminal",
    "write_report": "write",
}

__all__ = ["Facts", "PublicTest", "facts", "summary", "write_report"]


__getattr__, __dir__ = lazy(__name__, _WHERE)
