"""Elements that reports do not need: inputs, meters, and the words of amounts."""

from __future__ import annotations

import math

from confide.ledger.budget import Quantity
from confide.privacy.exact import show
from confide.report.html import Safe, join, tag
from confide.service.amounts import decimal
from confide.service.page.views import Account


def void(name: str, /, **attributes: object) -> Safe:
    """Return an element without content and end tag."""
    return Safe(tag(name, **attributes).removesuffix(f"</{name}>"))


def words(value: Quantity | None, *, rest: bool = False) -> str:
    """Return an amount for people: six digits, rounded down for what may yet be spent (`rest`), else up."""
    if value is None:
        return "-"
    return show(value) if not value or value == math.inf else decimal(value, up=not rest)


def share(spent: Quantity | int, limit: Quantity) -> float:
    """Return which part of a limit is spent, 0 to 1."""
    if limit == math.inf:
        return 0.0
    return min(1.0, float(spent) / float(limit)) if limit else 1.0


def meter(account: Account) -> Safe:
    """Return how much of an account is spent, of epsilon or of rho where that adds up: a meter and words."""
    unit, spent, limit = "epsilon", account.spent.epsilon, account.limit.epsilon
    if account.limit.rho is not None:
        unit, spent, limit = "rho", account.spent.rho or 0, account.limit.rho
    part = share(spent, limit)
    text = f"{100 * part:.0f} % spent"
    bar = tag(
        "meter", text, min=0, max=1, high="0.9", low="0.75", optimum=0, value=f"{part:.4f}",
        aria_label=f"{unit} of {account.name}: {text}",
    )  # fmt: skip
    return join(bar, " ", tag("span", text, class_="share"))
