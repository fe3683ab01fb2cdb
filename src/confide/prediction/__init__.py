"""Private answers from models that were trained without noise: certified stability, and what is released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.prediction.response import response_probabilities as response_probabilities

#: Public name -> module. Loaded on first use, so that importing the room stays cheap.
_WHERE = {
    "response_probabilities": "response",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
