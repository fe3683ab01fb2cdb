"""Keys by the entries of a chain, and whether the valid ones of the store are those.

The keys belong to the service, which writes its table in the transaction of a chain's entry. Whoever may
write the store could add a key of their own; the chain tells it, but for keys of a version without entries.

==============================================  ==========================================================
a valid key of the store                        what is said
==============================================  ==========================================================
begun in the chain, not ended there             in order, if it is of the same holder and kind
ended in the chain                              refused: it should open nothing
without an entry, after the first one of keys   refused: nobody gave it
without an entry, before the first one, or      of an older version: left alone, and named
where the chain has none
of the owner's or monitor's kind                refused, if it is not of that name
of an analyst named like the monitor            in order, if there is such an account
begun in the chain, absent from the store       left alone: it opens nothing
==============================================  ==========================================================

What this cannot tell: a key whose secret was replaced under its public part, or one that is dated back before
the first entry of keys; that one is named.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confide.errors import LedgerError
from confide.ledger import chain
from confide.ledger.chain import Mark
from confide.ledger.names import plain

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from confide.ledger.session import Dataset
    from confide.ledger.store import Store

#: Names whose keys are no analyst's, and their kinds in the store.
OWNER, MONITOR = "owner", "metrics"
KINDS = {OWNER: 1, MONITOR: 2}
_TABLE = "confide_service_key"
_VALID = (
    f"SELECT prefix, name, owner, created FROM {_TABLE} WHERE dataset_id = ? AND revoked IS NULL "
    "ORDER BY prefix"
)
_ENTRIES = (
    "SELECT body FROM confide_entry WHERE dataset_id = ? AND sequence > ? AND kind = 'key' ORDER BY sequence"
)
_HASH = "SELECT hash FROM confide_entry WHERE dataset_id = ? AND sequence = ?"
_ACCOUNT = "SELECT name FROM confide_account WHERE dataset_id = ? AND name = ?"


class Keys:
    """Who held which key from when to when, by the entries of a chain.

    A key that was given before there were entries of keys has no beginning here.

    Attributes
    ----------
    lines : dict
        Public part of a key -> plain values.
    first : str
        Time of the first entry of keys, or empty.
    """

    def __init__(self) -> None:
        self.lines: dict[str, dict[str, Any]] = {}
        self.first = ""
        self._read = Mark(0, chain.GENESIS)

    def note(self, fields: dict[str, Any]) -> bool:
        """Add an entry; return whether its keys begin once and end once, each of one holder."""
        self.first = self.first or fields["time"]
        holder, key, fits = fields["holder"], fields["key"], fields["act"] in chain.ACTS
        for old in fields["ended"]:
            line = self.lines.setdefault(old, _line(old, holder))
            fits = fits and line["analyst"] == holder and line["until"] is None
            line |= {"until": fields["time"], "ended_by": fields["act"]}
        if key is not None:
            fits = fits and key not in self.lines
            self.lines[key] = {**_line(key, holder), "since": fields["time"]}
        return fits

    @staticmethod
    def up_to(store: Store, connection: Connection, dataset: Dataset, head: Mark) -> Keys:
        """Return the keys of a chain; entries that this process has read are not read again."""
        keys = store.keys.get(dataset.ledger_id)
        if keys is not None and keys._read.sequence:
            row = store.row(connection, _HASH, (dataset.id, keys._read.sequence))
            if row is None or row[0] != keys._read.hash:
                keys = None
        if keys is None:
            keys = store.keys[dataset.ledger_id] = Keys()
        for (body,) in store.rows(connection, _ENTRIES, (dataset.id, keys._read.sequence)):
            keys.note(json.loads(body))
        keys._read = head
        return keys

    def check(self, store: Store, connection: Connection, dataset: Dataset) -> tuple[str, ...]:
        """Compare the store's valid keys with the entries; return those of older versions, by name.

        Raises
        ------
        LedgerError
        """
        from sqlalchemy import inspect

        if not inspect(connection).has_table(_TABLE):
            return ()
        older = []
        for prefix, name, kind, created in store.rows(connection, _VALID, (dataset.id,)):
            key = f"confide_{prefix}"
            line = self.lines.get(key)
            if line is None and (not self.first or created < self.first):
                older.append(f"{plain(name)} ({key})")
            elif line is None:
                raise _strange(dataset, key, name, "has no entry that gave it")
            elif line["until"] is not None:
                raise _strange(dataset, key, name, f"was {line['ended_by']} at {line['until']}")
            elif line["analyst"] != name:
                raise _strange(dataset, key, name, f"was given to {line['analyst']!r:.80}")
            if kind != KINDS.get(name, 0) and not (
                name == MONITOR and not kind and store.row(connection, _ACCOUNT, (dataset.id, name))
            ):
                raise _strange(dataset, key, name, "gives none of that kind to that name")
        return tuple(older)


def _line(key: str, holder: str) -> dict[str, Any]:
    return {"key": key, "analyst": holder, "since": None, "until": None, "ended_by": None}


def _strange(dataset: Dataset, key: str, name: str, what: str) -> LedgerError:
    return LedgerError(
        f"The key {key} of {name!r:.80} is valid in the store, but by the chain of dataset {dataset.name!r} "
        f"it {what}: the table of keys was changed past the ledger.",
        "Stop the service, restore the store from a copy, and give its analysts new keys "
        "(`confide ledger rotate`).",
    )
