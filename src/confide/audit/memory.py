"""What claims remember between runs, so that a table is fitted once; forgotten before runs that are compared.

Statistics need many answers of one model. But a model that is remembered has shown its warnings, and what it
holds, in its first run: were it kept, a run on a table that was met before would show less than one on its
neighbour, and neither would leak.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

_FORGETTING: list[Callable[[], None]] = []


def remembered(most: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that keeps the last results of a function, until `forget`."""

    def keeping(make: Callable[..., Any]) -> Callable[..., Any]:
        kept = lru_cache(maxsize=most)(make)
        _FORGETTING.append(kept.cache_clear)
        return kept

    return keeping


def forget() -> None:
    """Forget all that claims remember."""
    for clear in _FORGETTING:
        clear()
