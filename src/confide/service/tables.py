"""Tables of the service, beside the ledger's in the same store.

========================  ===============================================================================
`confide_service_key`     hashes of keys, by their public prefix
`confide_service_query`   answers: who asked what first (``first``), and who else has paid for it since
`confide_service_request` answered requests by the keyed name of (analyst, request id)
`confide_service_block`   what is left of paid blocks, of the total ('') and of accounts
`confide_service_account` counts of requests and rows, for the owner
`confide_service_moment`  the total after the last charge of each ten minutes, for the owner
`confide_service_epoch`   where the open epoch of an analyst lies; its secret lies with the ledger's secrets
`confide_service_late`    since when answers left after their time on the public schedule
`confide_service_overrun` how many did
========================  ===============================================================================

Rows are written in the transaction of the ledger's entry that pays for them. Nothing of them is in an export.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import MetaData

    from confide.ledger.store import Store

#: Counts of an account: requests, rows and refused requests.
COUNTS = ("requests", "answered", "paid", "drawn", "refused")
_ADVISORY_LOCK = 0x436F6E66736572


def tables() -> MetaData:
    """Return the tables."""
    from sqlalchemy import BigInteger, Column, Integer, LargeBinary, MetaData, Table, Text

    metadata = MetaData()

    def dataset() -> Column:
        return Column("dataset_id", Integer, primary_key=True, autoincrement=False)

    Table(
        "confide_service_key",
        metadata,
        dataset(),
        Column("prefix", Text, primary_key=True),
        Column("name", Text, nullable=False),
        Column("owner", Integer, nullable=False),
        Column("digest", LargeBinary, nullable=False),
        Column("created", Text, nullable=False),
        Column("revoked", Text),
        sqlite_with_rowid=False,
    )
    Table(
        "confide_service_query",
        metadata,
        # The name comes first in the key: PostgreSQL plans a list of names on a small table as a scan of
        # the whole dataset, and keeps that plan when the table has grown.
        Column("query", LargeBinary, primary_key=True),
        dataset(),
        Column("analyst", Text, primary_key=True),
        Column("first", Integer, nullable=False),
        Column("answer", Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    Table(
        "confide_service_request",
        metadata,
        Column("request", LargeBinary, primary_key=True),
        dataset(),
        Column("analyst", Text, nullable=False),
        Column("content", LargeBinary, nullable=False),
        Column("answers", LargeBinary, nullable=False),
        Column("cost", Text, nullable=False),
        sqlite_with_rowid=False,
    )
    Table(
        "confide_service_moment",
        metadata,
        dataset(),
        Column("moment", BigInteger, primary_key=True, autoincrement=False),
        Column("spent", Text, nullable=False),
        sqlite_with_rowid=False,
    )
    Table(
        "confide_service_account",
        metadata,
        dataset(),
        Column("analyst", Text, primary_key=True),
        *(Column(name, BigInteger, nullable=False) for name in COUNTS),
        sqlite_with_rowid=False,
    )
    Table(
        "confide_service_block",
        metadata,
        dataset(),
        Column("release", LargeBinary, primary_key=True),
        Column("analyst", Text, primary_key=True),
        Column("size", Integer, primary_key=True, autoincrement=False),
        Column("slack", Text, primary_key=True),
        Column("answers_left", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    Table(
        "confide_service_epoch",
        metadata,
        dataset(),
        Column("release", LargeBinary, primary_key=True),
        Column("place", Text, primary_key=True),
        Column("analyst", Text, primary_key=True),
        Column("sequence", BigInteger, nullable=False),
        Column("hash", Text, nullable=False),
        Column("kept", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    Table(
        "confide_service_late",
        metadata,
        dataset(),
        Column("since", Text, nullable=False),
        sqlite_with_rowid=False,
    )
    Table(
        "confide_service_overrun",
        metadata,
        dataset(),
        Column("answers", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    return metadata


def prepare(store: Store) -> None:
    """Create the tables where they are absent."""
    from sqlalchemy import inspect

    with store.writing() as connection:
        if not store.sqlite:
            store.execute(connection, "SELECT pg_advisory_xact_lock(?)", (_ADVISORY_LOCK,))
        if not inspect(connection).has_table("confide_service_overrun"):  # the newest
            tables().create_all(connection)
