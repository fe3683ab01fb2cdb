"""Reading a store: balances, listings, exports and verification. Nothing here writes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from confide.errors import LedgerError, ParameterError
from confide.ledger import chain
from confide.ledger.budget import Budget, Vector, add, fits, left, parse, refusal, unknown_analyst, zero
from confide.ledger.chain import Mark
from confide.ledger.counter import UNDETECTED
from confide.ledger.keys import Keys
from confide.ledger.names import plain
from confide.ledger.records import AccountState, Preview, Verification
from confide.ledger.session import (
    Dataset,
    check_seen,
    read_vector,
    stated_account,
    stated_total,
    unbalanced,
    write_vector,
)
from confide.privacy.exact import show as decimal

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from confide.ledger.store import Store

_ENTRIES = (
    "SELECT sequence, kind, request, settles, body, hash, analyst FROM confide_entry "
    "WHERE dataset_id = ? ORDER BY sequence"
)


def find_dataset(store: Store, connection: Connection, name: str) -> Dataset | None:
    """Return the row of a dataset, or None."""
    row = store.row(
        connection, "SELECT id, name, ledger_id, budget, tag_key FROM confide_dataset WHERE name = ?", (name,)
    )
    if row is None:
        return None
    return Dataset(row[0], row[1], row[2], Budget.from_dict(json.loads(row[3])), bytes(row[4]))


def dataset_names(store: Store, connection: Connection) -> tuple[str, ...]:
    """Return the names of all datasets of a store, in order."""
    return tuple(sorted(row[0] for row in store.rows(connection, "SELECT name FROM confide_dataset")))


def balance(
    store: Store, connection: Connection, dataset: Dataset, *, check: bool = True
) -> tuple[chain.Mark, Vector]:
    """Return the head of the chain and the total spent, refused where the last entry states another."""
    row = store.row(
        connection, "SELECT sequence, hash, spent FROM confide_head WHERE dataset_id = ?", (dataset.id,)
    )
    if row is None:
        raise LedgerError(f"The balance of dataset {dataset.name!r} is missing.", "Restore the store.")
    mark = chain.Mark(row[0], row[1])
    if check and stated_total(store, connection, dataset, mark) != row[2]:
        raise unbalanced(dataset)
    return mark, read_vector(row[2])


def bound_schema(store: Store, connection: Connection, dataset: Dataset) -> str | None:
    """Return the schema digest that the dataset was bound to, or None."""
    row = store.row(
        connection,
        "SELECT schema_digest FROM confide_version WHERE dataset_id = ? ORDER BY version",
        (dataset.id,),
    )
    return None if row is None else row[0]


def accounts(store: Store, connection: Connection, dataset: Dataset) -> dict[str, tuple[Vector, Vector]]:
    """Return (limit, spent) by analyst, in order of name."""
    rows = store.rows(
        connection,
        "SELECT name, allowed, spent FROM confide_account WHERE dataset_id = ? ORDER BY name",
        (dataset.id,),
    )
    return {row[0]: (read_vector(row[1]), read_vector(row[2])) for row in rows}


def account_state(budget: Budget, name: str, limit: Vector, spent: Vector) -> AccountState:
    """Return an account in words of epsilon and delta."""
    return AccountState(
        name, budget.spending(limit), budget.spending(spent), budget.spending(left(spent, limit))
    )


def entries(store: Store, connection: Connection, dataset: Dataset) -> Iterator[Any]:
    """Yield the rows of the chain in order, without holding all of them."""
    result = store.execute(connection, _ENTRIES, (dataset.id,))
    while rows := result.fetchmany(1000):
        yield from rows


def preview(
    store: Store,
    connection: Connection,
    dataset: Dataset,
    seen: Sequence[Mark],
    vector: Vector,
    analyst: str | None,
) -> Preview:
    """Return what a charge of `vector` would do now."""
    budget = dataset.budget
    cost = budget.spending(vector)
    try:
        mark, spent = balance(store, connection, dataset)
        check_seen(store, connection, dataset, mark, seen)
        after = fits(spent, vector, budget.limit)
        if after is None:
            raise refusal(budget, f"the budget of dataset {dataset.name!r}", spent, vector, budget.limit)
        if analyst is not None:
            account = accounts(store, connection, dataset).get(analyst)
            if account is None:
                raise unknown_analyst(analyst)
            if stated_account(store, connection, dataset, analyst) != tuple(
                write_vector(part) for part in account
            ):
                raise unbalanced(dataset, analyst)
            if fits(account[1], vector, account[0]) is None:
                owner = f"the account of analyst {analyst!r}"
                raise refusal(budget, owner, account[1], vector, account[0])
    except LedgerError as error:
        return Preview(False, cost, None, str(error))
    return Preview(True, cost, budget.spending(left(after, budget.limit)))


def show(store: Store, connection: Connection, dataset: Dataset, seen: Sequence[Mark]) -> dict[str, Any]:
    """Return the state as plain values, without secrets."""
    budget = dataset.budget
    mark, spent = balance(store, connection, dataset, check=False)
    reservations: dict[int, dict[str, Any]] = {}
    versions = []
    keys = Keys()
    created = ""
    for row in entries(store, connection, dataset):
        fields = json.loads(row[4])
        if row[1] in chain.SPENDING:
            charge = {name: fields["charge"][name] for name in budget.names}
            reservations[row[0]] = {
                "sequence": row[0],
                "id": f"{row[0]}-{row[5][:16]}",
                "time": fields["time"],
                "label": fields["label"],
                "analyst": fields["analyst"],
                "version": fields["version"],
                "charge": charge,
                **({"account_charge": fields["account_charge"]} if "account_charge" in fields else {}),
                "mechanism": fields["guarantee"]["event"]["mechanism"],
                "assumptions": fields["guarantee"]["assumptions"],
                "status": "settled" if row[1] == chain.CHARGED else "reserved",
            }
        elif row[1] == chain.SETTLED and row[3] in reservations:
            reservations[row[3]]["status"] = "settled"
            if fields["version"] is not None:
                reservations[row[3]]["version"] = fields["version"]
        elif row[1] == chain.VERSION and fields["version"] > len(versions):  # another names an earlier one
            versions.append(
                {
                    "version": fields["version"],
                    "time": fields["time"],
                    "schema_digest": fields["schema_digest"],
                    "content_tag": fields["tag"],
                }
            )
        elif row[1] == chain.KEY:
            keys.note(fields)
        elif row[1] == chain.CREATED:
            created = fields["time"]
    listed = accounts(store, connection, dataset)
    refused = ""
    try:
        check_seen(store, connection, dataset, mark, seen)
        balance(store, connection, dataset)
    except LedgerError as error:
        refused = str(error)
    return {
        "dataset": dataset.name,
        "store": store.location,
        "created": created,
        "budget": budget.to_dict(),
        "spent": budget.spending(spent).to_dict(),
        "remaining": budget.spending(left(spent, budget.limit)).to_dict(),
        "analysts": [account_state(budget, name, *pair).to_dict() for name, pair in listed.items()],
        "entries": mark.sequence,
        "head": mark.hash,
        "versions": versions,
        "keys": list(keys.lines.values()),
        "charges": list(reservations.values()),
        "refused": refused,
    }


def kept_secret(
    store: Store, connection: Connection, dataset: Dataset, seen: Sequence[Mark], place: str
) -> bytes | None:
    """Return the secret kept with the reservation of this short name, or None."""
    check_seen(store, connection, dataset, balance(store, connection, dataset, check=False)[0], seen)
    number, _, start = place.partition("-")
    found = None
    if number.isdecimal() and len(number) < 19:
        sql = "SELECT hash FROM confide_entry WHERE dataset_id = ? AND sequence = ?"
        found = store.row(connection, sql, (dataset.id, int(number)))
    if found is None or found[0][:16] != start:
        raise LedgerError(
            f"Dataset {dataset.name!r} holds no reservation {number:.40}-{start:.40}.",
            "See `confide ledger show`.",
        )
    sql = "SELECT secret FROM confide_secret WHERE dataset_id = ? AND sequence = ?"
    kept = store.row(connection, sql, (dataset.id, int(number)))
    return None if kept is None else bytes(kept[0])


def export(store: Store, connection: Connection, dataset: Dataset, form: str) -> str:
    """Return all entries as text, without secrets.

    ``"json"``: one array of {"body": canonical text, "hash": ...}; the hash of each body is the
    ``previous`` of the next. ``"csv"``: one line an entry, the parts of the body in columns.
    """
    if form == "json":
        listed = [{"body": row[4], "hash": row[5]} for row in entries(store, connection, dataset)]
        return json.dumps({"dataset": dataset.name, "entries": listed}, indent=1)
    if form != "csv":
        raise ParameterError(f"The 'format' parameter is {form!r:.80}.", "Pass 'json' or 'csv'.")
    buffer = io.StringIO()
    columns: tuple[Any, ...] = (
        "sequence",
        "time",
        "kind",
        "analyst",
        "label",
        "epsilon",
        "delta",
        "rho",
        "epsilon_decimal",
        "delta_decimal",
        "settles",
        "version",
        "assumptions",
        "hash",
        "account_charge",
        "act",
        "key",
        "ended_keys",
    )
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    for row in entries(store, connection, dataset):
        fields = json.loads(row[4])
        amounts = fields.get("charge") or fields.get("limit") or fields.get("budget") or {}
        line: dict[Any, Any] = {
            name: fields.get(name) for name in ("sequence", "time", "kind", "analyst", "label", "version")
        }
        line |= {name: amounts.get(name) for name in ("epsilon", "delta", "rho")}
        if row[1] == chain.KEY:
            line |= {"analyst": fields["holder"], "act": fields["act"], "key": fields["key"]}
            line["ended_keys"] = "; ".join(fields["ended"]) or None
        # Exact rationals for auditors, and numbers that a spreadsheet understands beside them.
        for name in ("epsilon", "delta"):
            value = amounts.get(name)
            line[f"{name}_decimal"] = None if value is None else decimal(parse(value))
        # Where an analyst's account paid something else than the total: exact amounts, by component.
        own = fields.get("account_charge", {})
        line["account_charge"] = "; ".join(f"{name}={value}" for name, value in own.items()) or None
        line["assumptions"] = "; ".join(fields.get("guarantee", {}).get("assumptions", ()))
        # A spreadsheet runs text that begins like a formula; analysts and labels are other people's text.
        for name in ("analyst", "label", "assumptions"):
            if isinstance(line[name], str):
                line[name] = plain(line[name])
            if isinstance(line[name], str) and line[name][:1] in ("=", "+", "-", "@", "\t", "\r"):
                line[name] = "'" + line[name]
        writer.writerow(line | {"settles": row[3], "hash": row[5]})
    return buffer.getvalue()


def verify(
    store: Store, connection: Connection, dataset: Dataset, seen: Sequence[Mark], counted: bool
) -> Verification:
    """Check the chain, the balances, the accounts, the secrets, the guards, the counter and the keys.

    Raises
    ------
    LedgerError
        At the first thing that does not hold; the message names the entry.
    """
    budget = dataset.budget
    total = zero(budget)
    limits: dict[str, Vector] = {}
    spent: dict[str, Vector] = {}
    versions: list[tuple[int, str, str]] = []
    macs: dict[int, str] = {}
    open_, closed = set[int](), set[int]()
    keys = Keys()
    previous, number = chain.GENESIS, 0

    for number, row in enumerate(entries(store, connection, dataset), start=1):
        sequence, kind, request, settles, body, hash_, analyst = row
        fields = _read(dataset, number, body)
        if (sequence, kind) != (number, fields.get("kind")) or fields.get("sequence") != number:
            raise _damage(dataset, number, "is out of order, or the one before it is missing")
        if fields.get("previous") != previous:
            raise _damage(dataset, number, "does not continue the one before it")
        if chain.digest(body) != hash_ or chain.canonical(fields) != body or kind not in chain.KINDS:
            raise _damage(dataset, number, "was changed: its hash does not fit")
        key = fields.get("request")
        expected = None if key is None else chain.canonical([fields["analyst"], key])
        if (request, settles, analyst) != (expected, fields.get("reservation"), fields.get("analyst")):
            raise _damage(dataset, number, "was changed in its index columns")
        if (kind == chain.CREATED) != (number == 1):
            raise _damage(dataset, number, "creates the ledger a second time, or the first does not")
        previous = hash_
        if kind == chain.CREATED:
            if fields["budget"] != budget.to_dict() or fields["ledger_id"] != dataset.ledger_id:
                raise _damage(dataset, number, "states another budget than the store")
        elif kind in chain.SPENDING:
            charge = tuple(parse(fields["charge"][name]) for name in budget.names)
            total = tuple(map(add, total, charge))
            if any(part > most for part, most in zip(total, budget.limit)):
                raise _damage(dataset, number, "spends beyond the budget")
            if (name := fields["analyst"]) is not None:
                before = spent.get(name, zero(budget))
                own = fields.get("account_charge", fields["charge"])
                spent[name] = tuple(map(add, before, (parse(own[part]) for part in budget.names)))
                if name not in limits or any(p > m for p, m in zip(spent[name], limits[name])):
                    raise _damage(dataset, number, "spends beyond the analyst's account")
            (closed if kind == chain.CHARGED else open_).add(number)
            if fields["secret"] is not None:
                macs[number] = fields["secret"]
        elif kind == chain.SETTLED:
            if settles not in open_ or settles in closed:
                raise _damage(dataset, number, "settles nothing that was reserved")
            closed.add(settles)
            if fields["secret"] is not None:
                macs[settles] = fields["secret"]
        elif kind == chain.KEPT:
            if fields["of"] not in closed:
                raise _damage(dataset, number, "keeps state of nothing that was settled")
            macs[fields["of"]] = fields["secret"]
        elif kind == chain.GRANTED:
            limits[fields["analyst"]] = tuple(parse(fields["limit"][name]) for name in budget.names)
        elif kind == chain.KEY:
            if not keys.note(fields):
                raise _damage(dataset, number, "gives out or ends a key for the second time, or another's")
        else:
            named = fields["version"], fields["schema_digest"], fields["tag"]
            if named not in versions:
                versions.append(named)
        account = None
        if analyst is not None:
            parts = limits[analyst], spent.get(analyst, zero(budget))
            account = dict(zip(("allowed", "spent"), map(write_vector, parts)))
        if fields.get("spent") != write_vector(total) or fields.get("account") != account:
            raise _damage(dataset, number, "states other balances than the entries add up to")

    mark, held = balance(store, connection, dataset, check=False)
    if mark != (number, previous):
        raise LedgerError(
            f"The chain of dataset {dataset.name!r} ends at entry {number}, its head says {mark.sequence}.",
            "Restore the store.",
        )
    expected_accounts = {name: (limit, spent.get(name, zero(budget))) for name, limit in limits.items()}
    if held != total or accounts(store, connection, dataset) != expected_accounts:
        raise LedgerError(
            f"The balances of dataset {dataset.name!r} differ from what its entries add up to.",
            "Restore the store; the entries are what counts.",
        )
    sql = "SELECT version, schema_digest, tag FROM confide_version WHERE dataset_id = ? ORDER BY version"
    if [tuple(row) for row in store.rows(connection, sql, (dataset.id,))] != versions:
        raise LedgerError(
            f"The versions of dataset {dataset.name!r} differ from its entries.", "Restore the store."
        )
    _verify_secrets(store, connection, dataset, macs)
    if not store.guarded(connection):
        raise LedgerError(
            f"The triggers of {store.location} that refuse changes are missing.", "Restore the store."
        )
    check_seen(store, connection, dataset, mark, seen)
    older = keys.check(store, connection, dataset)
    return Verification(number, previous, () if counted else (UNDETECTED,), older)


def _read(dataset: Dataset, number: int, body: str) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise _damage(dataset, number, "cannot be read")
    return fields


def _damage(dataset: Dataset, number: int, what: str) -> LedgerError:
    return LedgerError(
        f"Entry {number} of dataset {dataset.name!r} {what}.", "Restore the store from a copy."
    )


def _verify_secrets(store: Store, connection: Connection, dataset: Dataset, macs: dict[int, str]) -> None:
    rows = store.rows(
        connection, "SELECT sequence, secret FROM confide_secret WHERE dataset_id = ?", (dataset.id,)
    )
    kept = {row[0]: chain.secret_mac(dataset.tag_key, row[0], bytes(row[1])) for row in rows}
    if kept != macs:
        wrong = min(number for number in {*kept, *macs} if kept.get(number) != macs.get(number))
        raise LedgerError(
            f"The secret of reservation {wrong} of dataset {dataset.name!r} is missing or was changed.",
            "Restore the store.",
        )
