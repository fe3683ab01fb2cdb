"""Reports of results: one self-contained HTML file, a terminal summary, and the plain facts behind both.

Everything here is post-processing. A report is a function of released values (the result and its
guarantee), of declarations (the schema), of the ledger's public entries, and of test labels that somebody
declares public in so many words (`PublicTest`); no other private cell is read, so a report costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.report.facts import Facts as Facts
    from confide.report.facts import facts as facts
    from confide.report.measured import PublicTest as PublicTest
    from confide.report.terminal import summary as summary
    from confide.report.write import write_report as write_report

#: Public name -> module; loaded on first use, since importing the room must stay cheap.
_WHERE = {
    "Facts": "facts",
    "PublicTest": "measured",
    "facts": "facts",
    "summary": "terminal",
    "write_report": "write",
}

__all__ = ["Facts", "PublicTest", "facts", "summary", "write_report"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
