"""``confide ledger grant``, ``rotate``, ``revoke``: accounts of analysts, and their keys to the service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide.cli.shared import Counter, Json, LedgerUrl, reporting, warn_uncounted
from confide.errors import ParameterError
from confide.ledger.names import one_spelling, plain

if TYPE_CHECKING:
    from confide.ledger import Budget, Ledger, Spending

_Name = Annotated[str, typer.Argument(help="The analyst.")]


def grant(
    name: Annotated[
        str,
        typer.Argument(help="The analyst; 'owner' for the owner's page, 'metrics' for a key to /metrics."),
    ],
    ledger: LedgerUrl,
    epsilon: Annotated[str, typer.Option(help="Total epsilon, kept exactly (0.1 is 1/10).")],
    delta: Annotated[str, typer.Option(help="Total delta, e.g. 1e-6.")] = "0",
    key: Annotated[
        bool | None,
        typer.Option(
            "--key/--no-key",
            help="Give a key to `confide serve` where the name has none. \\[default: unless one was revoked]",
            show_default=False,
        ),
    ] = None,
    counter: Counter = None,
    as_json: Json = False,
) -> None:
    """Give an analyst an account within the total, and a key, shown this once; or change its limits."""
    with reporting(as_json):
        from confide.service import keys
        from confide.service.records import METRICS

        book = _open(ledger, counter)
        held = keys.holds(book, name)
        if one_spelling(name) == METRICS:
            _grant_monitor(book, epsilon, delta, key, held, as_json)
            return
        wanted = _wants_key(key, held)
        made = keys.grant(book, name, epsilon, delta) if wanted else None
        account = book.account(name) if wanted else book.grant(name, epsilon, delta)
        told = [f"{plain(name)}: limit {account.limit}; spent {account.spent}."]
        if account.limit.epsilon < account.spent.epsilon or account.limit.delta < account.spent.delta:
            told.append("Warning: more was spent than this limit: no new answer until it is raised.")
        if _above(account.limit, book.budget):
            told.append("Warning: this is above the ledger's own total, which refuses first.")
        told += _of_zcdp(book, account.limit, epsilon, delta)
        if held and key is not False:
            told.append("The key that it has stays; for another one: confide ledger rotate.")
        if held is False and not wanted:
            told.append("Its key was revoked and no other is given; for one: --key.")
        _tell(as_json, {**account.to_dict(), "key": made}, *told, key=made)


def _grant_monitor(
    book: Ledger, epsilon: str, delta: str, key: bool | None, held: bool | None, as_json: bool
) -> None:
    """Give the monitor its key: it has no account, so its epsilon is 0."""
    from confide.privacy import exact
    from confide.service import keys
    from confide.service.records import METRICS

    if exact(epsilon, "epsilon") or exact(delta, "delta"):
        raise ParameterError(
            f"The name {METRICS!r} is that of the monitor, which has no account.",
            "Pass epsilon=0 for its key, or name the analyst otherwise.",
        )
    wanted = _wants_key(key, held)
    made = keys.metrics_key(book) if wanted else None
    told = "metrics: no account; its key reads /metrics and nothing else."
    _tell(as_json, {"analyst": METRICS, "key": made}, told, key=made)


def _wants_key(key: bool | None, held: bool | None) -> bool:
    """Return whether a key is given, to whom holds one, held one that was revoked, or never had any (None).

    A key that was revoked was meant to end: another one is given only where that is said.
    """
    return key is not False and not held and (key is True or held is None)


def _above(limit: Spending, budget: Budget) -> bool:
    """Return whether a limit is above that of the ledger, in what the ledger adds up."""
    asked = budget.vector(limit.epsilon, limit.delta, limit.rho)
    return any(part > most for part, most in zip(asked, budget.limit))


def _of_zcdp(book: Ledger, limit: Spending, epsilon: str, delta: str) -> list[str]:
    """Return why the limit is told in other numbers than were asked for, where it is."""
    from confide.privacy import exact
    from confide.privacy.exact import show

    asked = exact(epsilon, "epsilon"), exact(delta, "delta")
    if limit.rho is None or asked == (limit.epsilon, limit.delta):
        return []
    return [
        f"The ledger adds up rho (accountant zcdp), so what was kept is rho = {show(limit.rho)}: the most "
        f"that epsilon = {show(asked[0])} allows at delta = {show(asked[1])}. At the ledger's own delta = "
        f"{show(limit.delta)} the same rho amounts to epsilon = {show(limit.epsilon)}."
    ]


def rotate(name: _Name, ledger: LedgerUrl, counter: Counter = None, as_json: Json = False) -> None:
    """Replace an analyst's key to the service; the account stays as it is."""
    with reporting(as_json):
        from confide.service import keys

        made = keys.rotate(_open(ledger, counter), name)
        told = f"{plain(name)}: the old key ended."
        _tell(as_json, {"analyst": name, "key": made}, told, key=made)


def revoke(name: _Name, ledger: LedgerUrl, counter: Counter = None, as_json: Json = False) -> None:
    """End an analyst's key to the service; the account stays as it is."""
    with reporting(as_json):
        from confide.service import keys

        keys.revoke(_open(ledger, counter), name)
        _tell(as_json, {"analyst": name}, f"{plain(name)}: no key is valid any more.")


def _open(handle: str, counter: Path | None) -> Ledger:
    from confide.ledger import Ledger

    book = Ledger.from_handle(handle, counter=counter)
    warn_uncounted(book)
    return book


def _tell(as_json: bool, body: dict[str, Any], *lines: str, key: str | None = None) -> None:
    """Say what was done on standard error; a new key alone goes to standard output, for a pipe to keep.

    Without a new key nothing stands there: ``KEY=$(confide ledger grant ...)`` is a key or empty.
    """
    if as_json:
        typer.echo(json.dumps({"ok": True, **body}))
        return
    for line in lines:
        typer.echo(line, err=True)
    if key is not None:
        typer.echo("Its key, shown this once; only a hash is stored:", err=True)
        typer.echo(key)
