"""A handle: what names one dataset's ledger, and stays the same under copies, clones and pickles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confide.errors import LedgerError, ParameterError
from confide.ledger import counter as counters
from confide.ledger.budget import Budget
from confide.ledger.chain import Mark
from confide.ledger.names import accept_of, name_of
from confide.ledger.pricing import Pricer

if TYPE_CHECKING:
    from confide.ledger.session import Dataset, Operation
    from confide.ledger.store import Store

#: Where the counter lies: None for the default folder, a folder, or False for none.
CounterPlace = str | Path | None | bool


class Parts(NamedTuple):
    """What a room above needs to decide inside the ledger's own transactions.

    An operation of its own (`confide.ledger.session.Operation`) may read and write tables of its own through
    the session's store and connection: with the ledger's entries, or not at all.
    """

    store: Store
    dataset: Dataset
    directory: Path | None  #: where counters lie
    price: Pricer

    def run(self, operation: Operation) -> Any:
        """Apply an operation durably, in one commit with those that other threads wait for."""
        from confide.ledger.session import run

        return run(self.store, self.dataset, self.directory, operation)


class Handle:
    """The identity of a `confide.ledger.Ledger`, which documents it."""

    def __init__(
        self, url: str, dataset: str, *, accept: Iterable[str] = (), counter: CounterPlace = None
    ) -> None:
        from confide.ledger.store import normal_url

        self._url = normal_url(url)
        self._dataset_name = name_of(dataset, "dataset")
        self._accept = accept_of(accept)
        if not (counter is None or counter is False or isinstance(counter, str | Path)):
            raise ParameterError(
                f"The 'counter' parameter is {counter!r:.80}.",
                "Pass a folder, None for the default, or False.",
            )
        self._counter_place: str | bool | None = str(counter) if isinstance(counter, str | Path) else counter
        self._row: Dataset | None = None
        self._bound: int | None = None
        self._pricer: Pricer | None = None

    def _load(self) -> Dataset:
        """Return the dataset's row, read on first use."""
        if self._row is None:
            from confide.ledger.reading import find_dataset

            store = self._store
            if store.exists():
                with store.reading() as connection:
                    self._row = find_dataset(store, connection, self._dataset_name)
            if self._row is None:
                raise self._absent()
        return self._row

    def _absent(self) -> LedgerError:
        return LedgerError(
            f"There is no ledger of dataset {self._dataset_name!r} in {self._store.location}.",
            "Create it with Ledger.open(..., epsilon=, adjacency=) or `confide ledger create`.",
        )

    @cached_property
    def _store(self) -> Store:
        from confide.ledger.store import Store

        return Store.at(self._url)

    @cached_property
    def _directory(self) -> Path | None:
        """Folder of the counter, or None where there can be none; decided once a handle."""
        if self._counter_place is False:
            return None
        place = self._counter_place
        directory = Path(place) if isinstance(place, str) else counters.default_directory()
        return directory if counters.usable(directory) else None

    def parts(self) -> Parts:
        """Return store, dataset and prices, for a room above that charges in transactions of its own."""
        return Parts(self._store, self._load(), self._directory, Pricer(self.budget, self._accept))

    @property
    def _counter(self) -> counters.Counter | None:
        directory = self._directory
        return None if directory is None else self._store.counter(directory, self._load().ledger_id)

    def _seen(self) -> list[Mark]:
        from confide.ledger.session import seen_before

        return seen_before(self._store, self._load(), self._counter)

    def _remember_place(self) -> None:
        directory = self._directory
        if directory is not None and self._row is not None:
            counters.remember_place(directory, self._store.location, self._dataset_name, self._row.ledger_id)

    @property
    def dataset(self) -> str:
        """Name of the dataset."""
        return self._dataset_name

    @property
    def handle(self) -> str:
        """``URL#dataset`` without the password: plain text that `resolve` takes."""
        return f"{self._store.location}#{self._dataset_name}"

    @property
    def budget(self) -> Budget:
        """The total and its terms."""
        return self._load().budget

    @property
    def tag_key(self) -> bytes:
        """Secret random key of content tags (`confide.schema`), made with the dataset; 32 bytes."""
        return self._load().tag_key

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What this ledger's own promise rests on: ``("rollback undetected",)`` where no counter is kept.

        Or where it could not be advanced at this process's last commit.
        """
        counter = self._counter
        kept = counter is not None and not counter.failed and counter.read() is not None
        return () if kept else (counters.UNDETECTED,)

    def check(self) -> None:
        """Check the head of the chain, its last entry, the counter and the valid keys (`verify`: all of it).

        Raises
        ------
        LedgerError
            If the store was rolled back, replaced, or changed past the ledger.
        """
        from confide.ledger.keys import Keys
        from confide.ledger.reading import balance
        from confide.ledger.session import check_seen

        store, row, seen = self._store, self._load(), self._seen()
        with store.reading() as connection:
            head = balance(store, connection, row)[0]
            check_seen(store, connection, row, head, seen)
            Keys.up_to(store, connection, row, head).check(store, connection, row)

    def uncounted(self) -> str:
        """Return what to tell an owner whose ledger has no counter here; empty where there is one.

        The counter begins with the ledger, so a ledger without one was made elsewhere, or its counter is
        gone; the next entry would begin another without a word.
        """
        if not self.assumptions:
            return ""
        directory = self._directory
        if directory is None:
            return (
                f"No counter is kept of the ledger of dataset {self._dataset_name!r}: a store that is rolled "
                f"back goes unseen. Name a folder that can be written to ({counters.ENVIRONMENT})."
            )
        return (
            f"There is no counter of the ledger of dataset {self._dataset_name!r} in {directory}: whether "
            "its store was rolled back cannot be told, and the next entry begins another counter. That is "
            "right on a machine that is new to this ledger; else find the lost one first "
            f"({counters.ENVIRONMENT})."
        )

    def __repr__(self) -> str:
        from confide.ledger.store import without_password

        shown = without_password(self._url)
        if self._url.password is not None:
            shown = shown.set(password="***")
        shown = shown.render_as_string(hide_password=True)
        return f"{type(self).__name__}({f'{shown}#{self._dataset_name}'!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return NotImplemented
        return self.handle == other.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            type(self),
            self._store.location,
            self._dataset_name,
            self._accept,
            self._counter_place,
        )


def _rebuild(
    kind: type[Handle], url: str, dataset: str, accept: Sequence[str], counter: CounterPlace
) -> Handle:
    return kind(url, dataset, accept=accept, counter=counter)
