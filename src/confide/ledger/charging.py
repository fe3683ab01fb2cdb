"""The one way in which the systems spend: reserve, say which table it was for, compute, settle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from confide.errors import RefusedError
from confide.ledger.ledger import Ledger, resolve
from confide.ledger.records import Preview, Reservation
from confide.privacy import Guarantee

if TYPE_CHECKING:
    from confide.schema import ChunkedTable, Table


def rehearse(
    ledger: Ledger | str | None,
    guarantee: Guarantee,
    *,
    table: Table | ChunkedTable | None = None,
    analyst: str | None = None,
) -> Preview | None:
    """Say what `charged` would do, from the ledger and the schema alone; changes nothing.

    Raises
    ------
    RefusedError
        If the charge would be refused now.
    LedgerError
        If the dataset belongs to a table with other secrets.
    """
    book = resolve(ledger)
    if book is None:
        return None
    if table is not None:
        book.check_schema(table.schema.secrets)
    preview = book.preview(guarantee, analyst=analyst)
    if not preview:
        raise RefusedError(preview.reason)
    return preview


@contextmanager
def charged(
    ledger: Ledger | str | None,
    guarantee: Guarantee,
    *,
    table: Table | ChunkedTable | None = None,
    analyst: str | None = None,
    label: str = "",
) -> Iterator[Reservation | None]:
    """Charge `guarantee` before the block and settle after it; an exception inside leaves the charge.

    NumPy ignores all errors of floats inside, whatever the process has set (`numpy.seterr`): that a private
    cell underflows or overflows decides no exception and no warning.

    Parameters
    ----------
    ledger : Ledger, URL with ``#dataset``, or None
        None charges nothing and yields None: the guarantee must then say ``"unrecorded"``.
    guarantee : Guarantee
    table : Table or ChunkedTable, optional
        Bound to the dataset once the charge is durable, because its content tag reads private cells
        (`Ledger.bind`): a table with other secrets is refused, changed content opens a new version. The
        charge names the version bound before it; the entry that settles it names its own.
    analyst, label : str
        See `Ledger.reserve`.

    Raises
    ------
    RefusedError
        Nothing was read, nothing was spent.
    LedgerError
        If the dataset belongs to a table with other secrets; before the charge where the ledger knows it.
    """
    book = resolve(ledger)
    with np.errstate(all="ignore"):
        if book is None:
            yield None
            return
        if table is not None:
            book.check_schema(table.schema.secrets)
        reservation = book.reserve(guarantee, analyst=analyst, label=label)
        version = None
        if table is not None:
            version = book.bind(table.schema.secrets, table.content_tag(book.tag_key))
        yield reservation
        book.settle(reservation, version=version)
