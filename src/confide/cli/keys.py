"""``confide ledger grant``, ``rotate``, ``revoke``: accounts of analysts, and their keys to the service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide.cli.shared import Counter, Json, LedgerUrl, reporting, warn_uncounted
from confide.ledger.names import plain

if TYPE_CHECKING:
    from confide.ledger import Ledger

_Name = Annotated[str, typer.Argument(help="The analyst.")]


def grant(
    name: Annotated[str, typer.Argument(help="The analyst; 'owner' for the owner's page.")],
    ledger: LedgerUrl,
    epsilon: Annotated[str, typer.Option(help="Total epsilon, kept exactly (0.1 is 1/10).")],
    delta: Annotated[str, typer.Option(help="Total delta, e.g. 1e-6.")] = "0",
    key: Annotated[
        bool,
        typer.Option("--key/--no-key", help="Give a key to `confide serve` where the name has none."),
    ] = True,
    counter: Counter = None,
    as_json: Json = False,
) -> None:
    """Give an analyst an account within the total, and a key, shown this once; or change its limits."""
    with reporting(as_json):
        from confide.service import keys

        book = _open(ledger, counter)
        wanted = key and not keys.holds(book, name)
        made = keys.grant(book, name, epsilon, delta) if wanted else None
        account = book.account(name) if wanted else book.grant(name, epsilon, delta)
        told = [f"{plain(name)}: limit {account.limit}; spent {account.spent}."]
        if account.limit.epsilon < account.spent.epsilon or account.limit.delta < account.spent.delta:
            told.append("Warning: more was spent than this limit: no new answer until it is raised.")
        if made is None and key:
            told.append("The key that it has stays; for another one: confide ledger rotate.")
        _tell(as_json, {**account.to_dict(), "key": made}, *told, key=made)


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
