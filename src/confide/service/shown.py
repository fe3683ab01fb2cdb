"""What the page shows, made of the service's own records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from confide.ledger.budget import parse
from confide.privacy.exact import show
from confide.service.page.views import Account, Overview, Standing

if TYPE_CHECKING:
    from confide.service.app import Front
    from confide.service.records import AccountLine
    from confide.service.records import Overview as Records


def standing(front: Front) -> Standing:
    """Return the part of the page that stays."""
    from confide.service.routes import promised

    config, told = front.service.config, promised(front)
    what = "each epoch that it opens costs" if config.stable else "a question that is new to it costs"
    last = f", an unstable answer {show(config.then_epsilon)}" if config.then else ""
    delta = f", delta {show(config.delta)}" if config.delta else ""
    return Standing(
        model=front.reader.schema.name,
        sentence=told["sentence"],
        answer=f"One {'epoch' if config.stable else 'answer'} by itself: {told['answer']}",
        assumptions=tuple(told["assumptions"]),
        short=f"Epsilon {_short(told['epsilon'])}{_delta(told['delta'])} for all answers together.",
        price=f"The answer is charged to the owner's account: {what} epsilon {show(config.epsilon)}{delta}"
        f"{last}.",
    )


def _short(amount: str) -> str:
    return show(parse(amount))


def _delta(amount: str) -> str:
    return "" if amount == "0" else f", delta {_short(amount)}"


def overview(held: Records) -> Overview:
    """Return the moving part of the page."""
    total = _line(held.total, "all analysts")
    # The line goes on to this moment, whenever the last charge was.
    now = (datetime.now(UTC), float(total.spent.epsilon))
    history = (*held.history, now) if held.history else ()
    return Overview(total, tuple(map(_line, held.accounts)), history)


def _line(line: AccountLine, name: str = "") -> Account:
    assert line.left is not None
    return Account(
        name or line.name, line.limit, line.spent, line.left, line.answered, line.refused, line.state
    )
