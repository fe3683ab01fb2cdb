"""Charged tuning: `confide.tune` chooses among candidates under one charge. `front` has the function."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.tune.front import Status as Status
    from confide.tune.front import TuneResult as TuneResult
    from confide.tune.front import tune as tune

_WHERE = {"Status": "front", "TuneResult": "front", "tune": "front"}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)


class _Door(ModuleType):
    """The package is callable, since importing it binds its name over the function's: confide.tune(...)."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.tune(*args, **options)


sys.modules[__name__].__class__ = _Door
