"""What answers cost here: fixed when the service opens, exact, worked out once a number of blocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from confide.errors import BudgetError, UnsupportedError
from confide.ledger import chain
from confide.ledger.budget import Budget, Vector, add, fits, left, text, unknown_analyst
from confide.ledger.handle import Parts
from confide.ledger.operations import Charge, Own
from confide.ledger.pricing import Price
from confide.ledger.session import Account, Session
from confide.prediction.model import CertifiedModel
from confide.privacy import Event, Guarantee
from confide.privacy.exact import show
from confide.service.canonical import Names
from confide.service.config import ServiceConfig
from confide.service.records import TotalExhausted

if TYPE_CHECKING:
    from confide.service.cache import Shelf

_REMEMBERED = 4096


@dataclass(frozen=True, eq=False)
class Terms:
    """Prices of one model under one configuration on one ledger.

    Parameters
    ----------
    model : CertifiedModel
    config : ServiceConfig
    parts : Parts
        Of the ledger.
    names : Names

    Notes
    -----
    The total pays for draws: b blocks when the open block runs out, each a fixed interactive mechanism of at
    most `block` answers, (compose(epsilon, block, slack), delta_block)-DP whatever is asked and whenever the
    asking stops. Such mechanisms add up, also when they are interleaved with others (concurrent composition:
    Vadhan & Wang 2021, Lyu 2022). An analyst's account pays for what that analyst is told, drawn or not, so
    that it bounds what one analyst learns; the total bounds what all of them learn together, since an answer
    that is told again is no new draw. Under the sparse vector no answer of one analyst is told to another: it
    has epochs of its own, and a query's name is its own (`confide.service.canonical.Names.queries`), so that
    account and total pay alike for each.
    """

    model: CertifiedModel
    config: ServiceConfig
    parts: Parts
    names: Names
    _prices: dict[int, Price] = field(default_factory=dict, repr=False)
    _blocks: dict[int, Guarantee] = field(default_factory=dict, repr=False)
    _own: dict[int, Own] = field(default_factory=dict, repr=False)
    _then: dict[int, Price] = field(default_factory=dict, repr=False)

    @property
    def blocks(self) -> bool:
        """Whether answers are paid in blocks of several."""
        return self.config.block > 1 or self.config.analyst_block > 1

    def of_answers(self, count: int, slack: Fraction = Fraction(0)) -> Guarantee:
        """Return the guarantee of `count` answers, or of as many epochs."""
        config, stable = self.config, self.config.stable
        return self.model.preview(
            1 if stable else count,
            config.epsilon,
            config.delta,
            config.release,
            slack=slack,
            epochs=count if stable else 1,
            ledger=True,
        )

    def of_one(self) -> Guarantee:
        """Return the guarantee of one answer, or of one epoch with the answer to the row that ends it."""
        epoch = self.of_answers(1)
        if not self.config.then:
            return epoch
        last = self._of_unstable(1)
        return replace(
            epoch, epsilon=epoch.epsilon + last.epsilon, event=Event.sequence((epoch.event, last.event))
        )

    def _of_unstable(self, count: int) -> Guarantee:
        config = self.config
        return self.model.preview(count, config.then_epsilon, 0, config.then, ledger=True)

    def then(self, count: int) -> Price:
        """Return what the answers to `count` >= 1 unstable rows cost account and total."""
        if count not in self._then:
            self._then[count] = self.parts.price(self._of_unstable(count))
        return self._then[count]

    def worst(self, opened: int, ended: int) -> Vector:
        """Return what `opened` epochs cost, and the answers to the rows that end `ended` of them."""
        epochs = self.price(opened).vector
        if not (self.config.then and ended):
            return epochs
        return tuple(map(add, epochs, self.then(ended).vector))

    @property
    def each(self) -> Vector:
        """What an account needs for something new: a block, or an epoch to its end."""
        return self.worst(1, 1) if self.config.stable else self.own(1).vector

    @property
    def needed(self) -> Vector:
        """What the total needs for something new."""
        return self.worst(1, 1)

    def price(self, blocks: int) -> Price:
        """Return what `blocks` blocks cost the total."""
        if blocks not in self._prices:
            if len(self._prices) >= _REMEMBERED:
                self._prices.clear()
            self._prices[blocks] = self._price(blocks, self.config.block)
        return self._prices[blocks]

    def prepare(self) -> None:
        """Work out what a request can cost, so that no request takes longer for being the first of its kind.

        Raises
        ------
        RefusedError
            If the ledger takes no such charge.
        UnsupportedError
            If a slack is declared on a ledger that spends none.
        BudgetError
            If its whole total does not cover one: nothing could ever be answered.
        """
        self._spends_slack()
        self._covers_one()
        for blocks in range(min(self.config.rows, _REMEMBERED - 1) + 1):
            self.price(blocks)
            self.own(blocks)
        for ended in range(1, min(self.config.rows, self.config.epochs + 1) + 1 if self.config.then else 0):
            self.then(ended)

    def _spends_slack(self) -> None:
        accountant, slack = self.parts.dataset.budget.accountant, self.config.slack
        if slack and accountant == "zcdp":
            raise UnsupportedError(
                f"The slack is {show(slack)}, and the ledger's accountant 'zcdp' spends none: a block costs "
                "the sum of its answers' rho, whatever the slack.",
                "Leave the slack out (--slack); zCDP adds less epsilon without one. Or use a ledger with "
                "accountant='basic'.",
            )

    def _covers_one(self) -> None:
        budget, asked = self.parts.dataset.budget, self.worst(1, 1)
        short = [
            name
            for name, part, most in zip(budget.names, asked, budget.limit)
            if fits((Fraction(0),), (part,), (most,)) is None
        ]
        if not short:
            return
        config = self.config
        what = "epoch" if config.stable else "answer"
        what = f"{what} with the answer to the row that ends it" if config.then else what
        what = f"block of {config.block} answers" if config.block > 1 else what
        names = " and ".join(short)
        cost, limit = budget.spending(asked), budget.spending(budget.limit)
        raise BudgetError(
            f"One {what} costs {cost}, and the ledger's whole total is {limit}: "
            f"its {names} can never cover it.",
            f"Serve answers of a smaller {names}, or create a ledger with more.",
            spent=budget.spending(tuple(Fraction(0) for _ in asked)),
            asked=cost,
            limit=limit,
        )

    def _price(self, blocks: int, size: int) -> Price:
        if size not in self._blocks:
            self._blocks[size] = self.of_answers(size, self.config.slack if size > 1 else Fraction(0))
        return self.parts.price(_times(self._blocks[size], blocks))

    def own(self, blocks: int) -> Own:
        """Return what `blocks` blocks of an account cost."""
        if blocks not in self._own:
            if len(self._own) >= _REMEMBERED:
                self._own.clear()
            alike = self.config.analyst_block == self.config.block
            price = self.price(blocks) if alike else self._price(blocks, self.config.analyst_block)
            vector = price.vector
            amounts = {name: text(part) for name, part in zip(self.parts.dataset.budget.names, vector)}
            self._own[blocks] = Own(vector, chain.canonical(amounts))
        return self._own[blocks]

    def exhausted(
        self, account: tuple[Vector, Vector], total: Vector, paid: tuple[int, int], held: bool
    ) -> bool:
        """Return whether one new question would meet `TotalExhausted`.

        As `check` asks: the account first. An account that does not cover the question is told nothing of the
        total, so that it sees nothing of others where the limits add up to the total at most.

        Parameters
        ----------
        account : (limit, spent)
            Of who asks.
        total : vector
            Spent in all.
        paid : (int, int)
            Answers that are left of the open block of the account, and of the total.
        held : bool
            Whether an epoch is open, which a stable answer costs nothing in.
        """
        config, (limit, spent) = self.config, account
        if config.stable:
            own = needed = self.worst(1 - held, 1)
        else:
            own = self.own(_needed(1, paid[0], config.analyst_block)[0]).vector
            needed = self.price(_needed(1, paid[1], config.block)[0]).vector
        if fits(spent, own, limit) is None:
            return False
        return fits(total, needed, self.parts.dataset.budget.limit) is None

    def charge_unstable(self, session: Session, analyst: str, count: int) -> Vector:
        """Append the entry that pays for the answers to `count` unstable rows; return what it charged.

        That there are so many is what the sparse vector said, which is paid for: so this is a mechanism that
        earlier ones chose, charged as it is run. Sums are a filter for such (Rogers et al. 2016).
        """
        price = self.then(count)
        label = f"{count} unstable, {self.config.then}"
        Charge(price, analyst, label, None, None, None, True, None).apply(session)
        return price.vector

    def charge(self, session: Session, shelf: Shelf, analyst: str, paid: int, drawn: int) -> Payment:
        """Decide what a request of `paid` answers new to `analyst`, `drawn` of them to all, is charged.

        Changes nothing.

        Raises
        ------
        BudgetError
            If it does not fit the account; of another's spending nothing is told.
        TotalExhausted
            If it does not fit the total.
        RefusedError
            If there is no account.
        """
        config, release = self.config, self.names.release
        slack = text(config.slack)
        mine = (release, analyst, config.analyst_block, slack)
        all_ = (release, "", config.block, slack)
        # The total's blocks have no analyst: an account's name is never empty.
        before = shelf.left(all_) if self.blocks else 0
        own_blocks, own_left = _needed(paid, shelf.left(mine) if self.blocks else 0, config.analyst_block)
        blocks, rest = _needed(drawn, before, config.block)
        own = self.own(own_blocks)
        price = self.price(blocks)
        if paid:  # what was paid for before stays free, whatever became of the limits
            # As if nobody had asked any of it before, or one request could ask who had. Refusals are free all
            # the same, and show how many answers the total still covers: with it how many others paid for,
            # and over two requests whether they had paid for a row. Without epochs that is a fact of what
            # analysts ask, not of the table; how many epochs others paid for depends on the table too, which
            # the total covers and no account. Where the accounts' limits add up to the total at most, in
            # blocks of one size, the total never refuses before the account, and shows nothing (serve.md,
            # "What analysts see").
            most = self.price(_needed(paid, before, config.block)[0])
            check(session, analyst, own.vector, most.vector)
        lefts = ((mine, own_left), (all_, rest)) if self.blocks else ()
        same = own.vector == price.vector
        label = "1 epoch" if config.stable else f"{paid} new, {drawn} drawn"
        return Payment(analyst, price, own, None if same else own, label, lefts)


@dataclass(frozen=True, eq=False)
class Payment:
    """A charge that was found to fit."""

    analyst: str
    price: Price
    cost: Own
    own: Own | None
    label: str
    lefts: tuple = ()

    def apply(self, session: Session, shelf: Shelf, secret: bytes | None = None) -> chain.Mark:
        """Append the entry; return its place."""
        for block, left_ in self.lefts:
            shelf.set_left(block, left_)
        charge = Charge(
            self.price, self.analyst, self.label, None, None, secret, True, None, self.own
        )  # fmt: skip
        return charge.apply(session)[0]


def check(session: Session, analyst: str, own: Vector, total: Vector, verb: str = "costs") -> None:
    """Refuse what does not fit the account, or the total; the account is asked first.

    Raises
    ------
    BudgetError, RefusedError
    """
    budget = session.dataset.budget
    account = session.account(analyst)
    if account is None:
        raise unknown_analyst(analyst)
    if fits(account.spent, own, account.allowed) is None:
        raise _refused(
            budget, account, own, BudgetError, f"The request {verb} {{}}, and your account has {{}} left."
        )
    if fits(session.spent, total, budget.limit) is None:
        told = (
            "The model's total budget does not cover the request ({}), whatever your account has left ({})."
        )
        raise _refused(budget, account, own, TotalExhausted, told)


def _refused(
    budget: Budget, account: Account, own: Vector, kind: type[BudgetError], told: str
) -> BudgetError:
    """Return a refusal in the words of the asker's own account alone."""
    asked, rest = budget.spending(own), budget.spending(left(account.spent, account.allowed))
    return kind(
        told.format(asked, rest),
        "Nothing was charged. Ask fewer new rows, or the owner.",
        spent=budget.spending(account.spent),
        asked=asked,
        limit=budget.spending(account.allowed),
    )


def _needed(count: int, left_: int, size: int) -> tuple[int, int]:
    """Return how many new blocks `count` answers need, and what is left of the last one then."""
    blocks = max(0, -(-(count - left_) // size))
    return blocks, left_ + blocks * size - count


def _times(guarantee: Guarantee, count: int) -> Guarantee:
    """Return `count` such mechanisms, by the sum of their epsilons and of their deltas."""
    return replace(
        guarantee,
        epsilon=guarantee.epsilon * count,
        delta=min(Fraction(1), guarantee.delta * count),
        event=guarantee.event.times(count),
    )
