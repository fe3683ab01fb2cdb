"""Tables of a store, and the triggers that let nobody change an entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import MetaData

#: Layout of the tables; a store of another layout is refused.
LAYOUT = 2
_APPEND_ONLY = ("confide_entry", "confide_dataset")


def tables() -> MetaData:
    """Return the tables; `confide_head`, `confide_account` and `confide_secret` alone ever change."""
    from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table, Text, text

    metadata = MetaData()

    def dataset() -> Column:
        return Column("dataset_id", Integer, primary_key=True, autoincrement=False)

    Table("confide_layout", metadata, Column("layout", Integer, nullable=False))
    Table(
        "confide_dataset",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("name", Text, nullable=False, unique=True),
        Column("ledger_id", Text, nullable=False),
        Column("budget", Text, nullable=False),
        Column("tag_key", LargeBinary, nullable=False),
    )
    Table(
        "confide_head",
        metadata,
        dataset(),
        Column("sequence", BigInteger, nullable=False),
        Column("hash", Text, nullable=False),
        Column("spent", Text, nullable=False),
    )
    entry = Table(
        "confide_entry",
        metadata,
        dataset(),
        Column("sequence", BigInteger, primary_key=True, autoincrement=False),
        Column("kind", Text, nullable=False),
        Column("request", Text),
        Column("settles", BigInteger),
        Column("analyst", Text),
        Column("body", Text, nullable=False),
        Column("hash", Text, nullable=False),
        sqlite_with_rowid=False,
    )
    for column in ("request", "settles"):
        present = text(f"{column} IS NOT NULL")
        Index(
            f"confide_{column}",
            entry.c.dataset_id,
            entry.c[column],
            unique=True,
            sqlite_where=present,
            postgresql_where=present,
        )
    present = text("analyst IS NOT NULL")
    Index(
        "confide_analyst",
        entry.c.dataset_id,
        entry.c.analyst,
        entry.c.sequence,
        sqlite_where=present,
        postgresql_where=present,
    )
    Table(
        "confide_account",
        metadata,
        dataset(),
        Column("name", Text, primary_key=True),
        Column("allowed", Text, nullable=False),
        Column("spent", Text, nullable=False),
        Column("key_hash", Text),
    )
    Table(
        "confide_version",
        metadata,
        dataset(),
        Column("version", Integer, primary_key=True, autoincrement=False),
        Column("schema_digest", Text, nullable=False),
        Column("tag", Text, nullable=False),
    )
    Table(
        "confide_secret",
        metadata,
        dataset(),
        Column("sequence", BigInteger, primary_key=True, autoincrement=False),
        Column("secret", LargeBinary, nullable=False),
    )
    return metadata


def guard_names(sqlite: bool) -> list[str]:
    """Return the names of the triggers that `guards` makes."""
    if not sqlite:
        return [f"{table}_guard" for table in _APPEND_ONLY]
    names = [f"{table}_no_{verb}" for table in _APPEND_ONLY for verb in ("update", "delete")]
    return [*names, "confide_entry_no_replace"]


def guards(sqlite: bool) -> list[str]:
    """Return the statements that make entries and datasets append-only."""
    message = "the ledger is append-only"
    if not sqlite:
        function = (
            "CREATE OR REPLACE FUNCTION confide_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{message}'; END $$"
        )
        return [function] + [
            f"CREATE TRIGGER {table}_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION confide_refuse()"
            for table in _APPEND_ONLY
        ]
    abort = f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
    changes = [
        f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb.upper()} ON {table} {abort}"
        for table in _APPEND_ONLY
        for verb in ("update", "delete")
    ]
    # INSERT OR REPLACE removes rows without asking the delete trigger of a connection that is not ours.
    return [
        *changes,
        "CREATE TRIGGER confide_entry_no_replace BEFORE INSERT ON confide_entry WHEN EXISTS (SELECT 1 FROM "
        f"confide_entry WHERE dataset_id = NEW.dataset_id AND sequence >= NEW.sequence) {abort}",
    ]
