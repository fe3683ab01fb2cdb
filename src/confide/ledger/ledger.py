"""The ledger: a handle on one dataset's budget in a durable store.

``reserve`` makes a charge durable before any private value is read, ``settle`` marks it as done; nothing
is ever refunded. A handle is a name for one account book: copies, clones, pickles and forked or spawned
workers all charge the same store (pitfalls F01, F02).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from confide.errors import LedgerError, ParameterError, RefusedError, TermsError
from confide.ledger.budget import Budget, Spending, left
from confide.ledger.handle import CounterPlace, Handle
from confide.ledger.names import name_of, one_spelling, secret_of, split_handle, version_of
from confide.ledger.pricing import Pricer
from confide.ledger.records import AccountState, Preview, Request, Reservation, Update, Verification
from confide.privacy.adjacency import Adjacency
from confide.privacy.exact import Amount, exact
from confide.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from confide.ledger.session import Operation


class Ledger(Handle):
    """The budget of one dataset. Make one with `Ledger.open` or `Ledger.from_handle`.

    Notes
    -----
    Two handles are equal if they name the same dataset of the same store. ``copy``, ``deepcopy`` and
    scikit-learn's ``clone`` return the handle itself; a pickle holds the URL *without its password* and
    connects on first use, so that saved models carry no credentials. Worker processes on PostgreSQL
    therefore find the password where libpq does: ``PGPASSWORD`` or a password file. Threads may share a
    handle; charges of threads that wait at the same time share one commit.

    The assumptions accepted by name (`accept`) belong to the handle and travel with it; each charge
    records which of them it used.
    """

    # -- opening ---------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        url: str,
        *,
        dataset: str | None = None,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        adjacency: Adjacency | str | None = None,
        accountant: str = "basic",
        unit: str = "row",
        nonprivate: bool = False,
        accept: Iterable[str] = (),
        schema_digest: str | None = None,
        content_tag: str | None = None,
        counter: CounterPlace = None,
        create: bool = True,
    ) -> Ledger:
        """Open the ledger of `dataset`, and create it where it is absent.

        Parameters
        ----------
        url : str
            ``sqlite:///path/ledger.db`` or ``postgresql://user@host/database``, optionally with
            ``#dataset``.
        dataset : str
            Name of the table whose budget this is: printable letters, no ``#`` or ``/``. Spaces around it and
            Unicode's spelling (NFC or NFD) make no difference; upper and lower case, and letters that only
            look alike, do.
        epsilon, delta : amount
            The total over the life of the dataset. ``math.inf`` only with ``nonprivate=True``.
        adjacency : Adjacency or str
            The relation that the total is stated for.
        accountant : str
            ``"basic"`` (exact sums of epsilon and delta) or ``"zcdp"`` (sum of rho within what
            (epsilon, delta) allows; needs delta > 0).
        unit : str
            ``"row"`` or ``"person"``.
        nonprivate : bool
            Record charges without a guarantee, as infinite.
        accept : iterable of str
            Assumptions that charges through this handle may rest on.
        schema_digest, content_tag : str, optional
            See `bind`.
        counter : path, None or False
            Folder of the counter that detects a rolled-back store (`confide.ledger.counter`).
        create : bool
            False: only open; the budget's parameters may then be left out.

        Raises
        ------
        LedgerError
            If the dataset exists with another budget (the message says both), is absent and `create` is
            False, or its store was removed or rolled back.
        """
        base, name = split_handle(url, dataset)
        ledger = cls(base, name, accept=accept, counter=counter)
        if epsilon is None:
            if create:
                raise ParameterError(
                    "The 'epsilon' of the ledger is missing.", "State the total budget, or pass create=False."
                )
            ledger._load()
        else:
            ledger._open(Budget.of(epsilon, delta, adjacency, accountant, unit, nonprivate), create)
        if schema_digest is not None or content_tag is not None:
            ledger.bind(schema_digest or "", content_tag or "")
        return ledger

    @classmethod
    def from_handle(cls, handle: str, *, accept: Iterable[str] = (), counter: CounterPlace = None) -> Ledger:
        """Open an existing ledger named by ``URL#dataset``.

        Raises
        ------
        LedgerError
            If it does not exist.
        """
        return cls.open(handle, accept=accept, counter=counter, create=False)

    @staticmethod
    def datasets(url: str) -> tuple[str, ...]:
        """Return the names of the datasets that a store holds ledgers of, in order; changes nothing.

        Parameters
        ----------
        url : str
            As for `open`; what follows a ``#`` is left aside.

        Raises
        ------
        LedgerError
            If the store is out of reach, or is no store of ledgers.
        """
        from confide.ledger.opening import datasets

        return datasets(url)

    def _open(self, budget: Budget, create: bool) -> None:
        from confide.ledger.opening import create as create_dataset
        from confide.ledger.reading import find_dataset

        store = self._store
        found = None
        if store.exists():
            with store.reading() as connection:
                found = find_dataset(store, connection, self._dataset_name)
        if found is None and create:
            found = create_dataset(store, self._dataset_name, budget, self._directory)
        if found is None:
            raise self._absent()
        if not found.budget.same_terms(budget):
            raise TermsError(
                f"The ledger of dataset {self._dataset_name!r} was opened with: "
                f"{found.budget}. Asked: {budget}.",
                "Open it with its own budget, or give the dataset another name.",
            )
        self._row = found
        self._remember_place()

    # -- spending --------------------------------------------------------------------------------------

    def reserve(
        self,
        guarantee: Guarantee,
        *,
        analyst: str | None = None,
        label: str = "",
        key: str | None = None,
        accept: Iterable[str] = (),
        version: int | None = None,
    ) -> Reservation:
        """Charge `guarantee`, durably, before the caller reads any private value.

        Parameters
        ----------
        guarantee : Guarantee
            Stated under the ledger's adjacency or a stronger one, for the ledger's unit.
        analyst : str, optional
            Whose account is charged, besides the total.
        label : str
            What it is for; public text of printable letters.
        key : str, optional
            Request id. The same key (of the same analyst) with the same charge returns the first
            reservation, marked ``replayed``, and charges nothing.
        accept : iterable of str
            Further assumptions accepted for this charge alone.
        version : int, optional
            What `bind` returned. Default: what this handle bound last, or else the newest version of all.

        Raises
        ------
        BudgetError
            If it does not fit the total or the account: names spent, asked and limit.
        AssumptionError, AdjacencyError, RefusedError
            If the guarantee is not one this ledger takes (`confide.ledger.budget.price`).
        LedgerError
            If the store fails or was rolled back. On every refusal nothing is written.
        """
        version = self._bound if version is None else version
        return self._spend(Request(guarantee, analyst, label, key, None, accept, version), settle=False)

    def charge(
        self,
        guarantee: Guarantee,
        *,
        secret: bytes | None = None,
        analyst: str | None = None,
        label: str = "",
        key: str | None = None,
        accept: Iterable[str] = (),
        version: int | None = None,
    ) -> Reservation:
        """Reserve, settle and keep `secret` (an answer, a mechanism's state) in one transaction.

        For callers that hold the outcome back until this returns. Parameters as in `reserve`; `secret` as in
        `settle`.
        """
        version = self._bound if version is None else version
        return self._spend(Request(guarantee, analyst, label, key, secret, accept, version), settle=True)

    def charge_many(
        self, requests: Iterable[Request | Update], *, settle: bool = True
    ) -> list[Reservation | LedgerError]:
        """Charge many requests in one durable transaction (group commit).

        Each is accepted or refused by itself, in order, as if asked one by one. An `Update` among them moves
        the secret state of a settled reservation on in the same transaction (a sparse-vector epoch, say).

        Parameters
        ----------
        requests : iterable of Request or Update
            Thousands at most: other writers wait meanwhile.
        settle : bool
            False: as `reserve` rather than `charge`.

        Returns
        -------
        list of Reservation or LedgerError
            One a request; a refusal is returned, not raised.

        Raises
        ------
        LedgerError
            If the store fails: then none is charged, or their outcome is unknown; no answer may leave.
        """
        from confide.ledger.operations import operation_of, reservation_of
        from confide.ledger.session import run_all

        row = self._load()
        asked: list[tuple[Request | Update, Operation | LedgerError]] = []
        for request in requests:
            try:
                asked.append((request, operation_of(request, self._price, settle)))
            except RefusedError as error:
                asked.append((request, error))
        operations = [item for _, item in asked if not isinstance(item, LedgerError)]
        results = iter(run_all(self._store, row, self._directory, operations) if operations else ())
        answer: list[Reservation | LedgerError] = []
        for request, item in asked:
            outcome = item if isinstance(item, LedgerError) else next(results)
            if not isinstance(outcome, LedgerError):
                outcome = reservation_of(self._dataset_name, request, *outcome)
            answer.append(outcome)
        return answer

    def _spend(self, request: Request, *, settle: bool) -> Reservation:
        from confide.ledger.operations import operation_of, reservation_of
        from confide.ledger.session import run

        operation = operation_of(request, self._price, settle)
        outcome = run(self._store, self._load(), self._directory, operation)
        return reservation_of(self._dataset_name, request, *outcome)

    @property
    def _price(self) -> Pricer:
        if self._pricer is None:
            self._pricer = Pricer(self.budget, self._accept)
        return self._pricer

    def settle(
        self, reservation: Reservation, secret: bytes | None = None, *, version: int | None = None
    ) -> None:
        """Mark a reservation as done.

        Parameters
        ----------
        reservation : Reservation
            What `reserve` returned, on this ledger.
        secret : bytes, optional
            Secret state to keep with it; `secret` reads it back. The chain holds its keyed hash alone, and
            `show` and `export` leave it out.
        version : int, optional
            What `bind` returned, where the table was bound after the charge (`charged`): the version it was
            about in fact.

        Raises
        ------
        LedgerError
            If it is settled already with another outcome (settling twice alike changes nothing), or is not
            a reservation of this ledger.
        """
        from confide.ledger.operations import Settle
        from confide.ledger.session import run

        if not isinstance(reservation, Reservation):
            raise ParameterError(
                f"The reservation is a {type(reservation).__name__}.", "Pass what `reserve` returned."
            )
        kept = None if secret is None else secret_of(secret)
        operation = Settle(reservation.sequence, reservation.hash, kept, version_of(version))
        run(self._store, self._load(), self._directory, operation)

    def secret(self, reservation: Reservation | str) -> bytes | None:
        """Return the secret kept with a reservation (the object or its ``id``), or None."""
        from confide.ledger import reading

        place = reservation.id if isinstance(reservation, Reservation) else str(reservation)
        store, row, seen = self._store, self._load(), self._seen()
        with store.reading() as connection:
            return reading.kept_secret(store, connection, row, seen, place)

    # -- the owner -------------------------------------------------------------------------------------

    def grant(self, name: str, epsilon: Amount, delta: Amount = 0) -> AccountState:
        """Give analyst `name` an account with these limits, or change its limits.

        Accounts may add up to more than the total: every charge must fit both, so the total holds whoever
        colludes. What was spent stays spent; a limit below it refuses all further charges.
        """
        from confide.ledger.operations import Grant
        from confide.ledger.session import run

        row = self._load()
        allowed = row.budget.sub_limit(epsilon, delta)
        unlimited = isinstance(epsilon, float) and epsilon == float("inf")
        words = ("inf", "inf") if unlimited else (str(exact(epsilon, "epsilon")), str(exact(delta, "delta")))
        run(self._store, row, self._directory, Grant(name_of(name, "analyst"), *words, allowed))
        return self.account(name)

    def bind(self, schema_digest: str, content_tag: str) -> int:
        """Say which table the next charges are about; return its version number (1, 2, ...).

        The first call fixes what the dataset protects. A new tag (rows were appended or changed) opens a new
        version, whose charges add to the old ones in the same budget; a tag seen before keeps its number.

        Parameters
        ----------
        schema_digest : str
            ``table.schema.secrets``: the part of the schema that says what neighbours may differ in.
        content_tag : str
            ``table.content_tag(ledger.tag_key)``: keyed, so that an export tells nothing about the rows.

        Raises
        ------
        LedgerError
            If the dataset was bound to another schema.
        """
        from confide.ledger.operations import Bind
        from confide.ledger.session import run

        operation = Bind(name_of(schema_digest, "schema_digest"), name_of(content_tag, "content_tag"))
        version: int = run(self._store, self._load(), self._directory, operation)
        self._bound = version
        return version

    def check_schema(self, schema_digest: str) -> None:
        """Check that `bind` would take this digest; reads the ledger alone and changes nothing.

        Raises
        ------
        LedgerError
            If the dataset was bound to another.
        """
        from confide.ledger.operations import same_schema
        from confide.ledger.reading import bound_schema

        store, row = self._store, self._load()
        with store.reading() as connection:
            bound = bound_schema(store, connection, row)
        if bound is not None:
            same_schema(row.name, bound, schema_digest)

    # -- reading: pure ---------------------------------------------------------------------------------

    def total(self) -> Spending:
        """Return what has been spent in all."""
        from confide.ledger.reading import balance

        store, row = self._store, self._load()
        with store.reading() as connection:
            return row.budget.spending(balance(store, connection, row)[1])

    def remaining(self, analyst: str | None = None) -> Spending:
        """Return what is left of the total, or of an analyst's own account (which the total also bounds).

        Under zCDP `rho` is what is left, and `epsilon` what that rho alone amounts to.
        """
        if analyst is not None:
            return self.account(analyst).remaining
        from confide.ledger.reading import balance

        store, row = self._store, self._load()
        with store.reading() as connection:
            return row.budget.spending(left(balance(store, connection, row)[1], row.budget.limit))

    def account(self, name: str) -> AccountState:
        """Return an analyst's limit, spending and remainder.

        Raises
        ------
        RefusedError
            If there is no such account.
        """
        from confide.ledger.budget import unknown_analyst
        from confide.ledger.reading import account_state, accounts

        store, row, name = self._store, self._load(), one_spelling(name)
        with store.reading() as connection:
            found = accounts(store, connection, row).get(name)
        if found is None:
            raise unknown_analyst(name)
        return account_state(row.budget, name, *found)

    def preview(
        self, guarantee: Guarantee, *, analyst: str | None = None, accept: Iterable[str] = ()
    ) -> Preview:
        """Say whether `guarantee` would be accepted now, and what would be left; changes nothing."""
        from confide.ledger import reading

        store, row, seen = self._store, self._load(), self._seen()
        try:
            priced = self._price(guarantee, accept)
        except RefusedError as error:
            return Preview(False, None, None, str(error))
        with store.reading() as connection:
            return reading.preview(store, connection, row, seen, priced.vector, one_spelling(analyst))

    def show(self) -> dict[str, Any]:
        """Return budget, spending, accounts, versions and charges as plain values; no secrets.

        ``assumptions`` names what the sums rest on: `assumptions`, and those of each charge.
        """
        from confide.ledger import reading

        store, row, seen = self._store, self._load(), self._seen()
        with store.reading() as connection:
            shown = reading.show(store, connection, row, seen)
        conditions = {name for charge in shown["charges"] for name in charge["assumptions"]}
        return {**shown, "assumptions": [*self.assumptions, *sorted(conditions - set(self.assumptions))]}

    def export(self, format: str = "json") -> str:
        """Return all entries as ``"json"`` (verifiable by anyone) or ``"csv"`` text; no secrets."""
        from confide.ledger import reading

        store, row = self._store, self._load()
        with store.reading() as connection:
            return reading.export(store, connection, row, format)

    def verify(self) -> Verification:
        """Check chain, balances, accounts, secrets, guards, counter and valid keys.

        Raises
        ------
        LedgerError
            At the first thing that does not hold.
        """
        from confide.ledger import reading

        store, row, seen = self._store, self._load(), self._seen()
        with store.reading() as connection:
            return reading.verify(store, connection, row, seen, not self.assumptions)


def resolve(ledger: Ledger | str | None) -> Ledger | None:
    """Return the ledger meant by a front door's ``ledger=`` argument.

    Parameters
    ----------
    ledger : None, str or Ledger
        None records nothing. A handle ``"sqlite:///ledger.db#visits"`` must exist.
    """
    if ledger is None or isinstance(ledger, Ledger):
        return ledger
    if isinstance(ledger, str):
        return Ledger.from_handle(ledger)
    raise ParameterError(
        f"The 'ledger' parameter is a {type(ledger).__name__}.",
        "Pass None, a handle such as 'sqlite:///ledger.db#visits', or a Ledger.",
    )
