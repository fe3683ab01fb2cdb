"""``confide ledger``: create, show, export; grant, rotate and revoke come from `confide.cli.keys`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide.cli import keys
from confide.cli.shared import Counter, Json, LedgerUrl, reporting, warn_uncounted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from confide.ledger import Ledger

#: Charges that a table for people lists; JSON and exports hold all.
LISTED = 50
_APART = (
    "An account may pay another amount than the total, so that accounts do not add up to it. "
    "'n new, m drawn': n answers were new to the analyst, whose account pays for them; "
    "m of them were new to all, and the total pays for those alone. "
    "A block is paid when its first answer is drawn; the others of it then cost 0."
)

app = typer.Typer(
    help="Budgets of datasets: what may be spent, what was, and by whom.",
    no_args_is_help=True,
    add_completion=False,
)
for command in (keys.grant, keys.rotate, keys.revoke):
    app.command()(command)

_Epsilon = Annotated[str, typer.Option(help="Total epsilon, kept exactly (0.1 is 1/10).")]
_Delta = Annotated[str, typer.Option(help="Total delta, e.g. 1e-6.")]


@app.command()
def create(
    ledger: LedgerUrl,
    epsilon: _Epsilon,
    adjacency: Annotated[
        str,
        typer.Option(help="add_remove_one, replace_one, replace_private_part or replace_label."),
    ],
    delta: _Delta = "0",
    accountant: Annotated[str, typer.Option(help="basic, or zcdp (needs a delta).")] = "basic",
    unit: Annotated[str, typer.Option(help="Whom one neighbour differs in: row or person.")] = "row",
    counter: Counter = None,
    as_json: Json = False,
) -> None:
    """Create the ledger of a dataset, or check that it has exactly this budget."""
    from confide.ledger import Ledger

    with reporting(as_json):
        opened = Ledger.open(
            ledger,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            accountant=accountant,
            unit=unit,
            counter=counter,
        )
        _print_state(opened, as_json, verified=None)


@app.command()
def show(
    ledger: LedgerUrl,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check hash chain, balances, secrets, guards, counter and keys.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help=f"List all charges, not only the last {LISTED}.")
    ] = False,
    counter: Counter = None,
    as_json: Json = False,
) -> None:
    """Show budget, spending, accounts and charges. Never shows a secret, and changes nothing.

    A ledger without #name: lists the names of the datasets in the store.
    """
    from confide.errors import ParameterError
    from confide.ledger.names import parts_of

    with reporting(as_json):
        if not parts_of(ledger)[1]:
            if verify:
                raise ParameterError(
                    "The ledger names no dataset to verify.",
                    "Write it after '#'; the command without --verify lists the names.",
                )
            _print_names(ledger, as_json)
            return
        opened = _open(ledger, counter)
        verified = opened.verify() if verify else None
        entries = None if verified is None else verified.entries
        for holder in () if verified is None else verified.older_keys:
            line = f"Key of {holder}: older than the entries of keys, or dated back; for a new one: rotate."
            typer.echo(line, err=True)
        _print_state(opened, as_json, verified=entries, listed=None if everything else LISTED)


@app.command()
def export(
    ledger: LedgerUrl,
    form: Annotated[str, typer.Option("--format", help="json (verifiable by anyone) or csv.")] = "json",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File; default: print.")] = None,
    counter: Counter = None,
    as_json: Json = False,
) -> None:
    """Export all entries of the chain, without secrets."""
    with reporting(as_json):
        text = _open(ledger, counter).export("json" if as_json else form)
        if output is None:
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
        else:
            output.write_text(text, encoding="utf-8")
            typer.echo(f"Wrote {output}.", err=True)


def _open(handle: str, counter: Path | None) -> Ledger:
    from confide.ledger import Ledger

    return Ledger.from_handle(handle, counter=counter)


def _emit(body: dict[str, Any]) -> None:
    """Print JSON in ASCII: old entries may hold letters that a terminal obeys or cannot show."""
    typer.echo(json.dumps({"ok": True, **body}))


def _cell(text: str, style: str = "") -> Text:
    """Return other people's text: never read as markup, without control letters."""
    from rich.text import Text

    from confide.ledger.names import plain

    return Text(plain(text), style=style)


def _print_names(url: str, as_json: bool) -> None:
    from confide.ledger import Ledger

    names = Ledger.datasets(url)
    if as_json:
        _emit({"datasets": list(names)})
        return
    for name in names:
        typer.echo(str(_cell(name)))
    typer.echo("See one with `confide ledger show --ledger URL#NAME`.", err=True)


def _print_state(ledger: Ledger, as_json: bool, *, verified: int | None, listed: int | None = LISTED) -> None:
    state = ledger.show()
    if as_json:
        _emit({**state, "verified": verified is not None})
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    budget = ledger.budget

    def line(*parts: str | Text) -> None:
        console.print(Text.assemble(*(_cell(part) if isinstance(part, str) else part for part in parts)))

    line("Ledger of dataset ", _cell(state["dataset"], "bold"), f" in {state['store']}")
    unlimited = "no limit: non-private" if budget.nonprivate else ""
    terms = f"{budget.adjacency.value}, per {budget.unit}, accountant {budget.accountant}"
    line(f"Terms: {terms}{f' ({unlimited})' if unlimited else ''}; created {state['created']}.")

    names = list(state["spent"])
    held = _key_states(state["keys"])
    balances = Table("account", "", *names, *(("key",) if held else ()), title="Budget")
    _account_rows(balances, "total", state["budget"], state["spent"], state["remaining"], names)
    for account in state["analysts"]:
        name = account["analyst"]
        _account_rows(
            balances, name, account["limit"], account["spent"], account["remaining"], names,
            held.get(name, "none") if held else "",
        )  # fmt: skip
    console.print(balances)

    if state["charges"]:
        console.print(
            _charges(state["charges"][-listed:] if listed else state["charges"], budget.names, console)
        )
        if listed and len(state["charges"]) > listed:
            line(f"... and {len(state['charges']) - listed} earlier ones: --all, --json or export.")
        if any("account_charge" in charge for charge in state["charges"]):
            line(_APART)
    if state["keys"]:
        console.print(_keys(state["keys"]))
    for version in state["versions"]:
        line(f"Version {version['version']} of the data since {version['time']}.")
    noun = "entry" if state["entries"] == 1 else "entries"
    line(f"{state['entries']} {noun}; last hash {state['head'][:16]}.")
    if verified is not None:
        line(f"Verified: {verified} entries, balances, secrets, guards and keys are in order.")
    if state["refused"]:
        line(_cell(state["refused"], "red"))
    for assumption in ledger.assumptions:
        line(_cell(f"Assumption: {assumption}", "yellow"), " (no counter is kept outside the store).")
    warn_uncounted(ledger)
    from confide.privacy import glossed

    conditional = {name: 0 for charge in state["charges"] for name in charge["assumptions"]}
    for charge in state["charges"]:
        conditional |= {name: conditional[name] + 1 for name in charge["assumptions"]}
    for assumption, count in sorted(conditional.items()):
        charges_ = "1 charge rests" if count == 1 else f"{count} charges rest"
        line(_cell(f"Conditional: {charges_} on an assumption: {glossed(assumption)}.", "yellow"))


def _charges(listed: list[dict[str, Any]], parts: tuple[str, ...], console: Console) -> Table:
    """Return the table of charges.

    Times to the minute, amounts and an open status are never cut: where room is short the mechanism goes, and
    the status where all are settled.
    """
    from rich.table import Table

    wide = console.width >= 100
    settled = not wide and all(charge["status"] == "settled" for charge in listed)
    apart = any("account_charge" in charge for charge in listed)
    table = Table(title="Charges, all settled" if settled else "Charges", padding=(0, 1 if wide else 0))
    headings = ("#", "time", "what", *(("mechanism",) if wide else ()), "analyst", *parts)
    for heading in (*headings, *(("of account",) if apart else ()), *(() if settled else ("status",))):
        table.add_column(
            heading,
            no_wrap=heading not in ("what", "mechanism", "analyst", "of account"),
            overflow="fold",
        )
    for charge in listed:
        own = charge.get("account_charge", charge["charge"])
        paid = ", ".join(_short(own[part]) for part in parts if part == parts[0] or own[part] != "0")
        status = _cell(charge["status"], "" if charge["status"] == "settled" else "yellow")
        table.add_row(
            str(charge["sequence"]),
            _cell(charge["time"][: 19 if wide else 16].replace("T", " ")),
            _what(charge),
            *((_cell(charge["mechanism"]),) if wide else ()),
            _cell(charge["analyst"] or "-"),
            *(_short(charge["charge"][part]) for part in parts),
            *((_cell(paid if charge["analyst"] else "-"),) if apart else ()),
            *(() if settled else (status,)),
        )
    return table


def _key_states(held: list[dict[str, Any]]) -> dict[str, str]:
    """Return by analyst whether a key is valid, or the last one was revoked."""
    states: dict[str, str] = {}
    for key in held:
        if key["until"] is None:
            states[key["analyst"]] = "valid"
        else:
            states.setdefault(key["analyst"], "revoked")
    return states


def _keys(held: list[dict[str, Any]]) -> Table:
    """Return the table of who held which key when, by the public parts of keys."""
    from rich.table import Table

    table = Table("analyst", "key", "since", "until", title="Keys of `confide serve`")
    for key in held:
        since, until = ("-" if moment is None else moment[:16].replace("T", " ")
                        for moment in (key["since"], key["until"]))  # fmt: skip
        ended = "" if key["ended_by"] is None else f" ({key['ended_by']})"
        table.add_row(_cell(key["analyst"]), _cell(key["key"]), _cell(since), _cell(until + ended))
    return table


def _what(charge: dict[str, Any]) -> Text:
    """Return what a charge was for, with the assumptions that its guarantee rests on."""
    text = _cell(charge["label"] or "-")
    if charge["assumptions"]:
        text.append_text(_cell(f" [assuming: {', '.join(charge['assumptions'])}]", "yellow"))
    return text


def _account_rows(
    table: Any,
    name: str,
    limit: dict[str, Any],
    spent: dict[str, str],
    remaining: dict[str, str],
    names: list[str],
    key: str = "",
) -> None:
    for title, amounts in (("limit", limit), ("spent", spent), ("left", remaining)):
        first = title == "limit"
        cells = (*(_short(amounts[n]) for n in names), *((key if first else "",) if key else ()))
        table.add_row(_cell(name if first else ""), title, *cells)
    table.add_section()


def _short(amount: str) -> str:
    from confide.ledger.budget import parse
    from confide.privacy.exact import show

    return show(parse(amount))
