"""Reserve, settle, analysts, request keys, groups, assumptions and adjacency."""

from __future__ import annotations

from fractions import Fraction

import pytest

from confide.errors import (
    AdjacencyError,
    AssumptionError,
    BudgetError,
    LedgerError,
    ParameterError,
    RefusedError,
)
from confide.ledger import Request, Reservation, Update


def entries(ledger):
    return ledger.show()["entries"]


def test_reserve_then_settle(ledger, guarantee):
    reservation = ledger.reserve(guarantee(0.25), label="wages")
    assert isinstance(reservation, Reservation)
    assert ledger.show()["charges"][0]["status"] == "reserved"
    ledger.settle(reservation, secret=b"state")
    assert ledger.show()["charges"][0]["status"] == "settled"
    assert ledger.secret(reservation) == ledger.secret(reservation.id) == b"state"
    assert ledger.total().epsilon == Fraction(1, 4)


def test_settling_twice(ledger, guarantee):
    reservation = ledger.reserve(guarantee())
    ledger.settle(reservation, b"one")
    before = entries(ledger)
    ledger.settle(reservation, b"one")
    assert entries(ledger) == before
    for other in (b"two", None, b""):
        with pytest.raises(LedgerError, match="settled already"):
            ledger.settle(reservation, other)
    assert ledger.secret(reservation) == b"one"
    plain = ledger.reserve(guarantee())
    ledger.settle(plain)
    ledger.settle(plain)
    with pytest.raises(LedgerError, match="settled already"):
        ledger.settle(plain, b"late")


def test_only_a_reservation_of_this_ledger_is_settled(url, ledger, open_ledger, guarantee):
    other = open_ledger(url, dataset="other")
    strange = other.reserve(guarantee())
    with pytest.raises(LedgerError, match="no reservation"):
        ledger.settle(strange)
    ledger.reserve(guarantee())
    with pytest.raises(LedgerError, match="no reservation"):
        ledger.settle(strange)
    with pytest.raises(ParameterError):
        ledger.settle(strange.id)
    with pytest.raises(ParameterError):
        ledger.settle(strange, "text")
    for wrong in ("", "x", "1", "99-abc", strange.id, "9" * 30, "1-" + "0" * 16):
        with pytest.raises(LedgerError, match="no reservation"):
            ledger.secret(wrong)


def test_an_unsettled_reservation_stays_charged(url, ledger, open_ledger, guarantee):
    ledger.reserve(guarantee(0.7))
    assert open_ledger(url).total().epsilon == Fraction(7, 10)


def test_charge_is_reserve_settle_and_secret_at_once(ledger, guarantee):
    reservation = ledger.charge(guarantee(), secret=b"answer", label="query")
    assert reservation.settled
    assert ledger.secret(reservation) == b"answer"
    assert entries(ledger) == 2
    ledger.settle(reservation, b"answer")
    assert entries(ledger) == 2
    with pytest.raises(LedgerError, match="settled already"):
        ledger.settle(reservation, b"another")
    assert ledger.secret(ledger.charge(guarantee())) is None


def test_refusals_write_nothing(url, ledger, open_ledger, guarantee):
    ledger.grant("ann", 0.1)
    before = ledger.export()
    for act in (
        lambda: ledger.reserve(guarantee(2)),
        lambda: ledger.reserve(guarantee(0.2), analyst="ann"),
        lambda: ledger.reserve(guarantee(), analyst="bob"),
        lambda: ledger.reserve(guarantee(unit="person")),
        lambda: ledger.reserve(guarantee(adjacency="replace_label")),
        lambda: ledger.reserve(guarantee(assumptions=("seeded",))),
        lambda: ledger.charge(guarantee(2), secret=b"x"),
    ):
        with pytest.raises(RefusedError):
            act()
        assert ledger.export() == before


def test_secret_state_moves_on_with_charges_in_one_transaction(url, ledger, open_ledger, guarantee):
    epoch = ledger.charge(guarantee(0.5), secret=b"threshold 1, count 0", label="epoch")
    free = Request(guarantee(0), key="query 1", secret=b"class 0")
    answer, moved = ledger.charge_many([free, Update(epoch, b"threshold 1, count 1")])
    assert moved == epoch
    assert ledger.secret(answer) == b"class 0"
    assert open_ledger(url).secret(epoch) == b"threshold 1, count 1"
    ledger.charge_many([Update(epoch, b"a"), Update(epoch, b"b")])
    assert ledger.secret(epoch) == b"b"
    assert ledger.verify().entries == 6
    assert ledger.total().epsilon == Fraction(1, 2)
    # Begun, settled and moved on in one group; and what cannot be moved on does not stop the others.
    fresh = ledger.reserve(guarantee(0.1))
    refused, other = ledger.charge_many([Update(fresh, b"x"), Request(guarantee(0.1))])
    assert "not settled" in str(refused)
    assert other.settled
    ledger.settle(fresh)
    assert ledger.secret(fresh) is None
    ledger.charge_many([Update(fresh, b"x")])
    assert ledger.secret(fresh) == b"x"
    store = ledger._store
    with store.writing() as connection:
        store.execute(connection, "DELETE FROM confide_secret WHERE sequence = ?", (fresh.sequence,))
    with pytest.raises(LedgerError, match=f"secret of reservation {fresh.sequence}"):
        ledger.verify()


def test_a_malformed_update(ledger, guarantee):
    for bad in (Update("1-abc", b"x"), Update(ledger.charge(guarantee()), "text")):
        with pytest.raises(ParameterError):
            ledger.charge_many([bad])
    with pytest.raises(ParameterError, match="only reserved"):
        ledger.charge_many([Request(guarantee(), secret=b"x")], settle=False)


# -- analysts


def test_an_account_lies_under_the_total(ledger, guarantee):
    ledger.grant("ann", 0.5)
    ledger.grant("bob", 0.9)  # accounts may add up to more than the total
    ledger.reserve(guarantee(0.5), analyst="ann")
    with pytest.raises(BudgetError, match=r"account of analyst 'ann': spent epsilon = 0\.5"):
        ledger.reserve(guarantee(0.1), analyst="ann")
    with pytest.raises(BudgetError, match="budget of dataset 'visits'"):
        ledger.reserve(guarantee(0.6), analyst="bob")
    ledger.reserve(guarantee(0.5), analyst="bob")
    assert ledger.remaining().epsilon == 0
    assert ledger.remaining("bob").epsilon == Fraction(2, 5)
    assert ledger.account("ann").spent.epsilon == Fraction(1, 2)
    assert ledger.verify().entries == 5


def test_a_grant_may_be_changed_and_spending_stays(ledger, guarantee):
    ledger.grant("ann", 0.5)
    ledger.reserve(guarantee(0.5), analyst="ann")
    ledger.grant("ann", 0.3)
    assert ledger.remaining("ann").epsilon == 0
    assert ledger.account("ann").spent.epsilon == Fraction(1, 2)
    with pytest.raises(BudgetError):
        ledger.reserve(guarantee(0.1), analyst="ann")
    ledger.grant("ann", 0.6)
    ledger.reserve(guarantee(0.1), analyst="ann")
    # Lowering a limit below what was spent is no damage: it only stops further charges.
    ledger.grant("ann", 0.2)
    assert ledger.verify()


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True, None])
def test_a_bad_grant(ledger, bad):
    with pytest.raises(ParameterError):
        ledger.grant("ann", bad)
    with pytest.raises(RefusedError):
        ledger.account("ann")


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", None, 3, b"ann"])
def test_a_bad_analyst_name(ledger, guarantee, name):
    with pytest.raises(ParameterError):
        ledger.grant(name, 1)
    if name is not None:
        with pytest.raises(ParameterError):
            ledger.reserve(guarantee(), analyst=name)


# -- request keys


def test_the_same_key_is_charged_once(ledger, guarantee):
    first = ledger.reserve(guarantee(0.4), key="request 1", label="a")
    again = ledger.reserve(guarantee(0.4), key="request 1", label="a")
    assert (again.sequence, again.hash, again.replayed) == (first.sequence, first.hash, True)
    assert not first.replayed
    assert not again.settled
    assert again.guarantee == first.guarantee
    ledger.settle(again, b"answer")
    third = ledger.charge(guarantee(0.4), key="request 1", label="a", secret=b"new answer")
    assert third.settled
    assert third.replayed
    assert ledger.secret(third) == b"answer"
    assert ledger.total().epsilon == Fraction(2, 5)


def test_a_key_pays_for_no_other_charge(ledger, guarantee):
    ledger.reserve(guarantee(0.1), key="k")
    for other in ({"guarantee": guarantee(0.2)}, {"label": "else"}):
        asked = {"guarantee": guarantee(0.1), "key": "k"} | other
        with pytest.raises(RefusedError, match="another charge"):
            ledger.reserve(asked.pop("guarantee"), **asked)
    assert ledger.total().epsilon == Fraction(1, 10)


def test_keys_belong_to_their_analyst(ledger, guarantee):
    ledger.grant("ann", 1)
    ledger.grant("bob", 1)
    places = {ledger.reserve(guarantee(), key="k", analyst=name).sequence for name in ("ann", "bob", None)}
    assert len(places) == 3


def test_a_replay_needs_no_budget(ledger, guarantee):
    first = ledger.charge(guarantee(1), key="all", secret=b"s")
    assert ledger.charge(guarantee(1), key="all", secret=b"t").sequence == first.sequence


# -- groups


def test_a_group_is_decided_one_by_one_in_order(ledger, guarantee):
    ledger.grant("ann", 0.3)
    asked = [
        Request(guarantee(0.5), label="0"),
        Request(guarantee(0.6), label="1"),
        Request(guarantee(0.2), analyst="ann", label="2", secret=b"two"),
        Request(guarantee(0.2), analyst="ann", label="3"),
        Request(guarantee(0.2, assumptions=("seeded",)), label="4"),
        Request(guarantee(0.1), analyst="ann", label="5", key="five", secret=b"five"),
        Request(guarantee(0.1), analyst="ann", label="5", key="five", secret=b"again"),
        Request(guarantee(0.2), label="6"),
        Request(guarantee("1e-9"), label="7"),
    ]
    answers = ledger.charge_many(asked)
    kinds = [type(answer).__name__ for answer in answers]
    assert kinds == [
        "Reservation",
        "BudgetError",
        "Reservation",
        "BudgetError",
        "AssumptionError",
        "Reservation",
        "Reservation",
        "Reservation",
        "BudgetError",
    ]
    assert answers[6].replayed
    assert answers[6].sequence == answers[5].sequence
    assert ledger.secret(answers[2]) == b"two"
    assert ledger.secret(answers[6]) == b"five"
    assert ledger.total().epsilon == 1
    assert ledger.account("ann").spent.epsilon == Fraction(3, 10)
    assert ledger.verify().entries == 6
    assert [charge["label"] for charge in ledger.show()["charges"]] == ["0", "2", "5", "6"]


def test_an_empty_group_and_one_without_a_single_fit(ledger, guarantee):
    before = ledger.export()
    assert ledger.charge_many([]) == []
    assert [type(x) for x in ledger.charge_many([Request(guarantee(2))] * 3)] == [BudgetError] * 3
    assert ledger.export() == before


def test_a_malformed_request_stops_the_group_before_it_is_written(ledger, guarantee):
    before = ledger.export()
    with pytest.raises(ParameterError):
        ledger.charge_many([Request(guarantee()), Request(guarantee(), secret="text")])
    assert ledger.export() == before


def test_a_large_group_equals_single_charges(url, open_ledger, guarantee):
    grouped, single = (open_ledger(url, dataset=name, epsilon=50) for name in ("grouped", "single"))
    amounts = [Fraction(i % 7, 10) for i in range(200)]
    answers = grouped.charge_many([Request(guarantee(a), key=f"k{i}") for i, a in enumerate(amounts)])
    accepted = [isinstance(answer, Reservation) for answer in answers]
    for i, amount in enumerate(amounts):
        try:
            single.charge(guarantee(amount), key=f"k{i}")
        except BudgetError:
            assert not accepted[i]
        else:
            assert accepted[i]
    assert grouped.total() == single.total()
    assert grouped.verify().entries == single.verify().entries
    again = grouped.charge_many([Request(guarantee(a), key=f"k{i}") for i, a in enumerate(amounts)])
    assert [isinstance(answer, Reservation) for answer in again] == accepted
    assert grouped.total() == single.total()


def test_reserving_a_group(ledger, guarantee):
    (first,) = ledger.charge_many([Request(guarantee())], settle=False)
    assert not first.settled
    ledger.settle(first, b"later")
    assert ledger.secret(first) == b"later"


@pytest.mark.parametrize("field", [{"label": None}, {"label": "x" * 2001}, {"key": ""}, {"version": 0}])
def test_malformed_fields(ledger, guarantee, field):
    with pytest.raises(ParameterError):
        ledger.reserve(guarantee(), **field)


# -- what a guarantee must be


@pytest.mark.parametrize("name", ["seeded", "unrecorded"])
def test_never_accepted(url, open_ledger, guarantee, name):
    ledger = open_ledger(url, accept=(name,))
    with pytest.raises(AssumptionError, match=name):
        ledger.reserve(guarantee(assumptions=(name,)), accept=(name,))


@pytest.mark.parametrize(
    "name", ["gap", "Gap condition", "gap-condition", "gapcondition", "public", "at most 3 rows"]
)
def test_names_that_are_nearly_right_are_refused(url, open_ledger, ledger, guarantee, name):
    with pytest.raises(ParameterError, match=r"which no guarantee assumes.*'gap condition', 'public data'"):
        open_ledger(url, accept=(name,))
    with pytest.raises(ParameterError):
        ledger.reserve(guarantee(), accept=(name,))


@pytest.mark.parametrize(
    "name", ["gap condition", "public data", "at most 30 rows a person", "timing is padded"]
)
def test_names_that_are_right_or_the_callers_own_pass(url, open_ledger, name):
    open_ledger(url, accept=(name,))


def test_the_refusal_says_what_is_assumed_and_how_to_accept_it(ledger, guarantee):
    with pytest.raises(AssumptionError) as info:
        ledger.reserve(guarantee(assumptions=("gap condition",)))
    for words in (
        "no single unit",
        "docs/how-to/selection-mechanisms.md",
        '--accept "gap condition"',
        "accept=('gap",
    ):
        assert words in str(info.value)


def test_assumptions_are_accepted_by_name(url, ledger, open_ledger, guarantee):
    conditional = guarantee(assumptions=("public rows are complete", "timing is padded"))
    with pytest.raises(AssumptionError, match="'public rows are complete', 'timing is padded'"):
        ledger.reserve(conditional)
    with pytest.raises(AssumptionError, match="assumes 'timing is padded'"):
        ledger.reserve(conditional, accept=("public rows are complete",))
    with pytest.raises(ParameterError, match="tuple"):
        ledger.reserve(conditional, accept="timing is padded")
    ledger.reserve(conditional, accept=("public rows are complete", "timing is padded"))
    handle = open_ledger(url, accept=("timing is padded",))
    handle.reserve(conditional, accept=("public rows are complete",))
    assert ledger.show()["charges"][0]["assumptions"] == ["public rows are complete", "timing is padded"]
    with pytest.raises(AssumptionError):  # acceptance belongs to the handle that gave it
        ledger.reserve(conditional)


@pytest.mark.parametrize(
    ("own", "stated", "factor"),
    [
        ("replace_label", "replace_one", 1),
        ("replace_label", "replace_private_part", 1),
        ("replace_private_part", "replace_one", 1),
        ("replace_private_part", "add_remove_one", 2),
        ("replace_one", "add_remove_one", 2),
        ("replace_label", "add_remove_one", 2),
        ("add_remove_one", "add_remove_one", 1),
        ("replace_one", "replace_private_part", None),
        ("replace_one", "replace_label", None),
        ("replace_private_part", "replace_label", None),
        ("add_remove_one", "replace_one", None),
        ("add_remove_one", "replace_label", None),
    ],
)
def test_a_stronger_relation_is_taken_and_a_weaker_refused(
    sqlite_url, open_ledger, guarantee, own, stated, factor
):
    ledger = open_ledger(sqlite_url, adjacency=own, delta=0.5)
    charge = guarantee(0.125, 0.001, adjacency=stated)
    if factor is None:
        with pytest.raises(AdjacencyError):
            ledger.reserve(charge)
        assert not ledger.preview(charge)
        assert ledger.total().epsilon == 0
        return
    ledger.reserve(charge)
    assert ledger.total().epsilon == Fraction(factor, 8)
    # (1 + e^(1/8)) delta = 0.00213314845..., rounded up
    expected = 0.001 if factor == 1 else 0.0021331484530668263
    assert expected <= float(ledger.total().delta) <= expected * (1 + 1e-9)


@pytest.mark.parametrize(("own", "stated"), [("row", "person"), ("person", "row")])
def test_another_unit_is_refused(sqlite_url, open_ledger, guarantee, own, stated):
    ledger = open_ledger(sqlite_url, unit=own)
    with pytest.raises(RefusedError, match=f"per {stated} and the ledger per {own}"):
        ledger.reserve(guarantee(unit=stated))
    ledger.reserve(guarantee(unit=own))


# -- reading


def test_reading_is_pure(ledger, guarantee):
    ledger.grant("ann", 0.5)
    ledger.reserve(guarantee(0.3), analyst="ann")

    def read():
        return (
            ledger.total(),
            ledger.remaining(),
            ledger.remaining("ann"),
            ledger.preview(guarantee(0.3)),
            ledger.preview(guarantee(0.3), analyst="ann"),
            ledger.preview(guarantee(3)),
            ledger.show(),
            ledger.export(),
            ledger.export("csv"),
            ledger.verify(),
            ledger.assumptions,
        )

    first = read()
    assert first == read()
    assert first == read()


def test_preview_says_what_reserve_does(ledger, guarantee):
    ledger.grant("ann", 0.2)
    good = ledger.preview(guarantee(0.4))
    assert good
    assert (good.cost.epsilon, good.remaining.epsilon, good.reason) == (Fraction(2, 5), Fraction(3, 5), "")
    for charge, analyst, words in (
        (guarantee(1.5), None, "limit epsilon = 1"),
        (guarantee(0.4), "ann", "analyst 'ann'"),
        (guarantee(0.4), "bob", "no account"),
        (guarantee(0.1, assumptions=("seeded",)), None, "seeded"),
        (guarantee(0.1, unit="person"), None, "per person"),
    ):
        shown = ledger.preview(charge, analyst=analyst)
        assert not shown
        assert words in shown.reason
        with pytest.raises(RefusedError) as refused:
            ledger.reserve(charge, analyst=analyst)
        assert str(refused.value) == shown.reason


# -- versions of the data


def test_an_append_opens_a_version_whose_old_spends_count(url, ledger, open_ledger, guarantee):
    assert ledger.bind("a" * 64, "tag one") == 1
    assert ledger.bind("a" * 64, "tag one") == 1
    ledger.reserve(guarantee(0.6), version=1)
    assert ledger.bind("a" * 64, "tag two") == 2
    assert ledger.bind("a" * 64, "tag one") == 1  # seen before
    with pytest.raises(BudgetError):
        ledger.reserve(guarantee(0.6), version=2)
    ledger.reserve(guarantee(0.4), version=2)
    assert [charge["version"] for charge in ledger.show()["charges"]] == [1, 2]
    assert [version["version"] for version in ledger.show()["versions"]] == [1, 2]
    assert open_ledger(url, schema_digest="a" * 64, content_tag="tag two").total().epsilon == 1
    assert ledger.verify().entries == 8


def test_another_schema_is_refused(ledger):
    ledger.bind("a" * 64, "t")
    before = ledger.export()
    with pytest.raises(LedgerError, match="declared with schema aaaaaaaaaaaa, not bbbbbbbbbbbb"):
        ledger.bind("b" * 64, "t")
    assert ledger.export() == before


def test_the_tag_key_is_random_stable_and_never_shown(url, ledger, open_ledger):
    key = ledger.tag_key
    assert len(key) == 32
    assert open_ledger(url).tag_key == key
    assert open_ledger(url, dataset="other").tag_key != key
    for text in (ledger.export(), ledger.export("csv"), str(ledger.show()), repr(ledger)):
        assert key.hex() not in text
        assert repr(key) not in text
