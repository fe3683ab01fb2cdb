"""A private prediction service: keys, budgets, answers given exactly once, and their HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.service.config import ServiceConfig as ServiceConfig
    from confide.service.records import Analyst as Analyst
    from confide.service.records import Answers as Answers
    from confide.service.records import BudgetView as BudgetView
    from confide.service.records import KeyRevoked as KeyRevoked
    from confide.service.records import Overview as Overview
    from confide.service.records import Promise as Promise
    from confide.service.records import RequestOfAnotherModel as RequestOfAnotherModel
    from confide.service.records import RequestReused as RequestReused
    from confide.service.records import RowError as RowError
    from confide.service.records import TooManyRequests as TooManyRequests
    from confide.service.records import TotalExhausted as TotalExhausted
    from confide.service.records import UnknownKeys as UnknownKeys
    from confide.service.service import Service as Service

#: Public name -> module. Loaded on first use, so that importing the room stays cheap.
_WHERE = {
    "Analyst": "records",
    "Answers": "records",
    "BudgetView": "records",
    "KeyRevoked": "records",
    "Overview": "records",
    "Promise": "records",
    "RequestOfAnotherModel": "records",
    "RequestReused": "records",
    "RowError": "records",
    "Service": "service",
    "ServiceConfig": "config",
    "TooManyRequests": "records",
    "TotalExhausted": "records",
    "UnknownKeys": "records",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
