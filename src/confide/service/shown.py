"""What the page shows, made of the service's own records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from confide.ledger.budget import parse
from confide.privacy.exact import show
from confide.service.metrics import REFUSED
from confide.service.page.views import Account, Overview, Standing

if TYPE_CHECKING:
    from confide.service.app import Front


def standing(front: Front) -> Standing:
    """Return the part of the page that stays."""
    from confide.service.routes import promised

    config, told = front.service.config, promised(front)
    what = "each epoch that it opens costs" if config.stable else "a question that is new to it costs"
    delta = f", delta {show(config.delta)}" if config.delta else ""
    return Standing(
        model=front.reader.schema.name,
        sentence=told["sentence"],
        answer=f"One {'epoch' if config.stable else 'answer'} by itself: {told['answer']}",
        assumptions=tuple(told["assumptions"]),
        price=f"The answer is charged to the owner's account: {what} epsilon {show(config.epsilon)}{delta}.",
    )


def overview(
    held: Mapping[str, Any], history: Iterable[tuple[datetime, float]], counts: Mapping[str, int]
) -> Overview:
    """Return the moving part of the page.

    Parameters
    ----------
    held : mapping
        What `Service.overview` returned.
    history : iterable of (datetime, epsilon)
    counts : mapping
        What `Counters.sums` returned: refusals, since the service started.
    """
    accounts = tuple(
        Account(item["name"], _amounts(item["limit"]), _amounts(item["spent"]), item["rows"], item["key"])
        for item in held["analysts"]
    )
    rows = sum(account.rows for account in accounts)
    total = Account("all analysts", _amounts(held["budget"]), _amounts(held["spent"]), rows)
    return Overview(total, accounts, tuple(history), counts[REFUSED])


def _amounts(held: Mapping[str, str]) -> dict[str, Any]:
    return {name: parse(held[name]) for name in ("epsilon", "delta")}
