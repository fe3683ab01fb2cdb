"""Prices, blocks and settings; the law that is drawn; the names of queries."""

from __future__ import annotations

import csv
import io
import warnings
from collections import Counter
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pytest

from confide.errors import (
    AdjacencyError,
    BudgetError,
    LedgerError,
    ParameterError,
    RefusedError,
    UnsupportedError,
)
from confide.ledger import Ledger
from confide.ledger.store import Store
from confide.mechanisms.stream import seeded_stream
from confide.prediction.laws import Law
from confide.prediction.response import response_law
from confide.privacy import Event, compose
from confide.schema import Column, Schema
from confide.service import RowError, Service, ServiceConfig, TotalExhausted, answering
from confide.service.answering import LevelDrawing, drawing_of
from confide.service.canonical import Names, Reader, canonical, model_digest


def toy(classes, bits=8, units=(60, 31, 9, 2, 2)):
    return Law(Event.of("toy"), Fraction(1), Fraction(0), classes, bits, units)


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("units", [(60, 31, 9, 2, 2), (60, 31, 9, 0), (85, 85)])
def test_the_levels_draw_the_law_exactly(monkeypatch, classes, units):
    """Every value of the noise once: each answer as often as its units say."""
    law = toy(classes, units=units)
    if (classes - 1) * units[0] > 256:
        pytest.skip("no law")
    others = classes - 1

    def all_of_them(total, count, source):
        number = np.arange(count)
        return (number // others) if total == 256 else number % others

    monkeypatch.setattr(answering, "uniform_integers", all_of_them)
    count = 256 * others
    for k in (0, 1, 2, 3, 4, 5, 1000, 1 << 62):
        for label in range(classes):
            told = LevelDrawing(law).draw(np.full(count, label), np.full(count, k), None)
            found = Counter(told.tolist())
            wrong = units[min(k, len(units) - 1)]
            for other in range(classes):
                expected = 256 * others - others * others * wrong if other == label else others * wrong
                assert found[other] == expected


def test_levels_agree_with_the_release_in_distribution():
    law = response_law("1/2", 3)
    k = np.repeat([0, 3, 30], 20_000)
    told = LevelDrawing(law).draw(np.ones(k.size, dtype=np.int64), k, seeded_stream(5))
    for distance, p in zip((0, 3, 30), law.probabilities(30)[[0, 3, 30]]):
        share = np.mean(told[k == distance] == 1)
        assert abs(share - p) < 5 * np.sqrt(p * (1 - p) / 20_000) + 1e-9
    assert set(told[:20_000].tolist()) == {0, 1, 2}


def test_releases_that_are_no_table_draw_by_themselves():
    from confide.prediction.releases import release_of

    told = drawing_of(release_of("ptr", 1, 3, "1e-6")).draw(
        np.zeros(50, dtype=np.int64), np.full(50, 10**6), seeded_stream(1)
    )
    assert not told.any()


@pytest.mark.parametrize("release", ["response", "global", "cauchy", "laplace", "ptr"])
def test_all_releases_are_served(local, rows, release):
    delta = "1e-5" if release in ("laplace", "ptr") else 0
    service = local.open(epsilon=100, delta="1e-2").serve(release=release, delta=delta)
    ann = local.analyst(service, delta="1e-2")
    told = service.answer(ann, rows.ten, "r")
    assert told.states == ("answered",) * 10
    assert (told.cost.epsilon, told.cost.delta) == (1, 10 * Fraction(delta))
    local.ledger.verify()


def test_answers_keep_their_accuracy(local):
    service = local.open(epsilon=1000).serve(epsilon=2)
    ann = local.analyst(service, epsilon=1000)
    far = [[1.0 - 0.001 * i, 1.0] for i in range(100)] + [[-1.0 + 0.001 * i, 1.0] for i in range(100)]
    told = service.answer(ann, far, "r")
    assert told.values == (1,) * 100 + (0,) * 100  # k >= 10: an error has probability below e^-20


def test_blocks_are_paid_when_they_begin(bench, rows):
    slack = Fraction(1, 10**6)
    service = bench.open(epsilon=30, delta="1e-4").serve(
        epsilon="1/5", slack=slack, block=100, analyst_block=20
    )
    block, own = Fraction(repr(compose("1/5", 100, slack))), Fraction(repr(compose("1/5", 20, slack)))
    assert block < 20
    ann, bob = bench.analyst(service, epsilon=30), bench.analyst(service, "bob", epsilon=30)
    assert service.answer(ann, rows.one, "1").cost.epsilon == own
    assert bench.spent() == block
    assert service.answer(ann, rows.all[1:20], "2").cost.epsilon == 0
    assert service.answer(ann, rows.all[20:21], "3").cost.epsilon == own
    assert (bench.spent(), bench.spent("ann")) == (block, 2 * own)
    assert service.budget(ann).answers == 19 + 20 * ((30 - 2 * own) // own)
    bench.restart()
    again = bench.serve(epsilon="1/5", slack=slack, block=100, analyst_block=20)
    told = again.answer(bob, rows.all[:90], "1")  # 21 of them were drawn
    assert told.cost.epsilon == 5 * own
    assert bench.spent() == block
    again.answer(ann, rows.all[90:101], "4")
    assert bench.spent() == 2 * block
    assert bench.ledger.total().delta == 2 * slack
    with pytest.raises(BudgetError):
        again.answer(ann, rows.all[101:500], "5")
    assert (
        bench.ledger.verify().entries == 1 + 4 + 5
    )  # created, two grants with keys, five requests with new rows


#: Requests, one after the other: who asks, and the rows from one up to another.
ASKED = (
    ("ann", 0, 1), ("ann", 0, 2), ("ann", 2, 3), ("bob", 0, 3), ("bob", 3, 9), ("ann", 3, 7), ("ann", 7, 20),
    ("bob", 19, 21), ("bob", 21, 22), ("ann", 20, 33),
)  # fmt: skip


@pytest.mark.parametrize(("block", "own"), [(2, 5), (5, 2), (1, 3), (3, 1), (2, 7)])
def test_blocks_of_other_sizes_are_paid_by_what_is_drawn_and_what_is_told(bench, rows, block, own):
    """The total pays for each row once, in its blocks; an account for each row it is told, in its own."""
    each = Fraction(1, 4)
    service = bench.open(epsilon=1000).serve(epsilon=each, block=block, analyst_block=own)
    names = {name: bench.analyst(service, name, epsilon=1000) for name in ("ann", "bob")}
    told = {name: set() for name in names}
    for i, (name, start, stop) in enumerate(ASKED):
        before = bench.spent(name)
        answer = service.answer(names[name], rows.all[start:stop], str(i))
        told[name] |= set(range(start, stop))
        drawn = set.union(*told.values())
        assert bench.spent() == each * block * -(-len(drawn) // block)
        assert bench.spent(name) == each * own * -(-len(told[name]) // own)
        assert answer.cost.epsilon == bench.spent(name) - before
        if i == 5:
            bench.restart()
            service = bench.serve(epsilon=each, block=block, analyst_block=own)
    assert bench.ledger.total().epsilon == bench.spent()


@pytest.mark.parametrize(("block", "own"), [(2, 5), (5, 2)])
def test_a_total_ends_with_its_last_whole_block(local, rows, block, own):
    """Of a total of 13 answers 12 are drawn in blocks of 2, and 10 in blocks of 5, whatever accounts pay in."""
    each, most = Fraction(1, 4), 13 // block * block
    service = local.open(epsilon=13 * each).serve(epsilon=each, block=block, analyst_block=own)
    ann, bob = local.analyst(service, epsilon=1000), local.analyst(service, "bob", epsilon=1000)
    for i in range(most):
        service.answer((ann, bob)[i % 2], rows.all[i : i + 1], f"{i}")
    for name in (ann, bob):
        with pytest.raises(TotalExhausted):
            service.answer(name, rows.all[most : most + 1], "more")
    assert local.spent() == each * most


def test_a_request_may_begin_several_blocks(local, rows):
    service = local.open(epsilon=1000, delta="1e-4").serve(epsilon="1/10", slack="1e-6", block=30)
    ann = local.analyst(service, epsilon=1000)
    service.answer(ann, rows.all[:100], "1")
    assert local.ledger.total().delta == 4 * Fraction(1, 10**6)
    assert local.spent("ann") == 10
    service.answer(ann, rows.all[100:120], "2")
    assert local.ledger.total().delta == 4 * Fraction(1, 10**6)


def test_the_account_and_the_total_pay_apart_in_one_chain(bench, rows):
    service = bench.open().serve()
    ann, bob = bench.analyst(service), bench.analyst(service, "bob")
    service.answer(ann, rows.ten, "r")
    service.answer(bob, rows.ten, "r")
    charges = bench.ledger.show()["charges"]
    assert [charge["charge"]["epsilon"] for charge in charges] == ["1", "0"]
    assert charges[1]["account_charge"] == {"epsilon": "1", "delta": "0"}
    listed = list(csv.DictReader(io.StringIO(bench.ledger.export("csv"))))
    assert [line["account_charge"] for line in listed] == [""] * 6 + ["delta=0; epsilon=1"]
    assert [line["epsilon"] for line in listed[5:]] == ["1", "0"]
    bench.ledger.verify()
    store = Store.at(bench.ledger._url)
    with store.writing() as connection:
        store.execute(connection, "UPDATE confide_account SET spent = '0 0' WHERE name = 'bob'")
    store.known.clear()
    with pytest.raises(LedgerError, match="differ"):
        bench.ledger.verify()
    with pytest.raises(LedgerError, match="changed past the ledger"):
        service.answer(bob, rows.all[20:21], "s")


def test_one_entry_a_request_and_none_for_known_answers(bench, rows):
    service = bench.open().serve()
    ann = bench.analyst(service)
    before = bench.ledger.verify().entries
    service.answer(ann, rows.all[:50], "1")
    assert bench.ledger.verify().entries == before + 1
    service.answer(ann, rows.all[:50], "2")
    service.answer(ann, rows.all[:50], "1")
    assert bench.ledger.verify().entries == before + 1


def test_a_group_of_many_requests(bench, rows):
    from concurrent.futures import ThreadPoolExecutor

    service = bench.open(epsilon=100).serve()
    people = [bench.analyst(service, f"p{number}", epsilon=100) for number in range(3)]
    with ThreadPoolExecutor(20) as pool:
        told = list(
            pool.map(lambda n: service.answer(people[n % 3], rows.all[n : n + 30], f"r{n}"), range(60))
        )
    answers = {}
    for start, one in enumerate(told):
        for offset, value in enumerate(one.values):
            assert answers.setdefault(start + offset, value) == value
    assert bench.spent() == Fraction(89, 10)
    bench.ledger.verify()


def test_zcdp_ledgers(local, rows):
    local.open(epsilon=3, delta="1e-5", accountant="zcdp")
    service = local.serve()
    ann = local.analyst(service, epsilon=2, delta="1e-5")
    told = service.answer(ann, rows.ten, "r")
    assert told.cost.rho > 0
    assert service.budget(ann).answers == 11
    with pytest.raises(BudgetError):
        service.answer(ann, rows.all, "s")


@pytest.mark.parametrize("blocks", [{"block": 100}, {"analyst_block": 20}, {"block": 9, "analyst_block": 9}])
def test_a_zcdp_ledger_spends_no_slack(local, blocks):
    """A block's price is the sum of its rhos; a slack would be declared and change nothing."""
    local.open(epsilon=3, delta="1e-5", accountant="zcdp")
    before = local.ledger.export()
    with pytest.raises(UnsupportedError, match=r"slack is 1e-06.*'zcdp' spends none") as caught:
        local.serve(epsilon="1/100", slack="1e-6", **blocks)
    assert "--slack" in caught.value.remedy
    assert local.ledger.export() == before
    service = local.serve(epsilon="1/100", **blocks)
    rho = Fraction(1, 100) ** 2 / 2
    assert service._terms.price(1).vector == (rho * blocks.get("block", 1),)
    assert service._terms.own(1).vector == (rho * blocks.get("analyst_block", 1),)


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon": 0}, {"epsilon": -1}, {"epsilon": "nan"}, {"delta": 1}, {"slack": "1e-6"}, {"block": 0}, {"release": "other"},
        {"release": "sparse_vector"}, {"release": "sparse_vector", "delta": "1e-6", "block": 3}, {"rate": 0}, {"unknown": 1},
        {"rows": 0}, {"delta": "1e-6", "release": "cauchy"},
    ],
)  # fmt: skip
def test_settings_outside_their_domain(local, bad):
    local.open()
    with pytest.raises((ParameterError, UnsupportedError)):
        local.serve(**bad)


def test_ledgers_that_do_not_fit(sqlite_url, model):
    weaker = Ledger.open(sqlite_url, dataset="a", epsilon=1, adjacency="add_remove_one")
    with pytest.raises(AdjacencyError):
        Service.open(model, weaker, ServiceConfig.of(epsilon=1))
    person = Ledger.open(sqlite_url, dataset="b", epsilon=1, adjacency="replace_one", unit="person")
    with pytest.raises(RefusedError, match="per row"):
        Service.open(model, person, ServiceConfig.of(epsilon=1))


def test_a_seeded_model_is_not_served(local, model):
    from confide.prediction import CertifiedModel

    local.open()
    seeded = CertifiedModel(model.certified, model.facts, random_state=1)
    with pytest.raises(ParameterError, match="random_state"):
        Service.open(seeded, local.ledger, ServiceConfig.of(epsilon=1))


def test_the_digest_follows_the_model(model, tmp_path):
    from confide.prediction import CertifiedClassifier, CertifiedModel

    model.save(tmp_path / "m.npz")
    assert model_digest(CertifiedModel.load(tmp_path / "m.npz")) == model_digest(model)
    other = np.random.default_rng(1).uniform(-1, 1, (400, 2))
    changed = CertifiedClassifier([0, 1], (-1, 1), certificate="erm").fit(other, other[:, 0] > 0).model_
    assert model_digest(changed) != model_digest(model)


def test_a_model_that_bisects_trains_every_level_at_its_first_question(local, rows):
    """Not those that the questions need: which these are, and how many, depends on the table."""
    from confide.prediction import CertifiedClassifier
    from confide.prediction.intervals import IntervalTraining

    data = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    training = IntervalTraining([2, 1], {"learning_rate": 1.0, "clip": 0.1}, 40, levels="bisect")
    local.model = CertifiedClassifier([0, 1], certificate=training).fit(data, data[:, 0] > 0).model_
    before = model_digest(local.model)
    service = local.open(epsilon=100).serve()
    ann = local.analyst(service, epsilon=100)
    service.answer(ann, rows.one, "1")
    assert sorted(local.model.certified._boxes) == list(range(41))
    service.answer(ann, rows.ten, "2")
    assert model_digest(local.model) == before


def test_names_are_keyed(model):
    config = ServiceConfig.of(epsilon=1)
    matrix = canonical(np.array([[0.5, 0.0], [0.5, -0.0], [0.5, 1.0]]))
    names = Names(b"k" * 32, b"m", config).queries(matrix, "ann")
    assert names[0] == names[1] != names[2]
    assert names == Names(b"k" * 32, b"m", config).queries(matrix, "bob")
    for other in (
        Names(b"j" * 32, b"m", config),
        Names(b"k" * 32, b"n", config),
        Names(b"k" * 32, b"m", ServiceConfig.of(epsilon=2)),
    ):
        assert not set(other.queries(matrix, "ann")) & set(names)
    stable = Names(b"k" * 32, b"m", ServiceConfig.of(epsilon=1, delta="1e-6", release="sparse_vector"))
    assert not set(stable.queries(matrix, "ann")) & set(stable.queries(matrix, "bob"))


@pytest.fixture(scope="module")
def tabular():
    from confide.prediction import certify
    from confide.schema import Table

    schema = Schema(
        (
            Column("age", "private", 18, 90),
            Column("dose", "public", 0, 10),
            Column("ward", "private", categories=["north", "south"]),
            Column("ill", "label", categories=["no", "yes"]),
        ),
        name="visits",
        declared_by="the hospital",
    )
    draw = np.random.default_rng(3)
    age = draw.uniform(18, 90, 200)
    columns = {
        "age": age,
        "dose": draw.uniform(0, 10, 200),
        "ward": draw.choice(["north", "south"], 200),
        "ill": np.where(age > 50, "yes", "no"),
    }
    return certify(Table.from_frame(columns, schema))


def read(model, rows, most):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one would carry cells into a log
        return Reader(model, most)(rows)


GOOD = {"age": 40, "dose": 5, "ward": "north"}


def test_rows_of_a_schema(tabular):
    base = read(tabular, [GOOD], 10)
    for same in ({**GOOD, "age": 40.0}, {"ward": "north", "dose": 5.0, "age": 40}):
        assert np.array_equal(read(tabular, [same], 10), base)
    high = read(tabular, [{**GOOD, "age": 91}, {**GOOD, "age": 1e300}, {**GOOD, "age": 90}], 10)
    assert np.array_equal(base, tabular.queries([GOOD]))
    assert np.array_equal(high[0], high[1])
    assert np.array_equal(high[0], high[2])
    assert read(tabular, [{**GOOD, "age": None, "ward": None}], 10).shape == base.shape


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"age": "40.123456"}, "age"), ({"age": [40.123456]}, "age"), ({"age": float("inf")}, "age"), ({"age": 10**400}, "age"),
        ({"ward": {"x": "123456"}}, "ward"), ({"123456": 1}, "row"), ({"ill": "yes"}, "row"), ({"age": ...}, "age"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_the_schema(tabular, change, field):
    row = {name: cell for name, cell in {**GOOD, **change}.items() if cell is not ...}
    with pytest.raises(RowError) as caught:
        read(tabular, [GOOD, row], 10)
    assert caught.value.faults[0][:2] == (1, field)
    assert "123456" not in str(caught.value)


def test_plain_rows_are_read_as_any_others(tabular):
    """Floats and texts alone are read by columns; a row beside them that is not plain changes none of them."""
    draw = np.random.default_rng(3)
    ages = [float(x) for x in (*draw.uniform(-200, 200, 60), -0.0, 0.0, 1e308, -1e308, 5e-324)]
    wards = ["north", "south", "other", "North", " north ", "", "NA", "1e3", "\ud800", "é"]
    rows = [{"ward": str(draw.choice(wards)), "age": age, "dose": float(draw.normal())} for age in ages]
    plain = read(tabular, rows, 100)
    mixed = read(tabular, [*rows, {**GOOD, "age": None}], 100)
    assert plain.tobytes() == mixed[:-1].tobytes()
    with pytest.warns(UserWarning, match="not a declared category"):
        assert plain.tobytes() == canonical(tabular.queries(rows)).tobytes()


def test_a_tabular_model_is_served(local, tabular):
    local.model = tabular
    service = local.open().serve()
    ann = local.analyst(service)
    told = service.answer(ann, [GOOD, {**GOOD, "age": 90}], "r")
    assert set(told.values) <= {"no", "yes"}
    assert service.answer(ann, [{**GOOD, "age": 1000}], "s").cost.epsilon == 0  # the bound was asked before


def test_the_sentence_names_the_block_and_its_price(local):
    assert "block" not in local.open().serve().guarantee().sentence
    service = local.serve(block=20, slack="1e-6")
    price = local.ledger.budget.spending(service._terms.price(1).vector)
    assert f"The total pays {price} for each block of 20 answers" in service.guarantee().sentence


def test_an_epoch_is_called_one_in_the_ledger(local):
    service = local.open(epsilon=100).epochs()
    service.answer(local.analyst(service, epsilon=50), local.stable[:1], "r")
    assert [charge["label"] for charge in local.ledger.show()["charges"]] == ["1 epoch"]


def test_an_account_above_the_total_promises_no_more_answers_than_the_total_could(local, rows):
    service = local.open(epsilon=2).serve()
    rich, poor = local.analyst(service, "rich", epsilon=100), local.analyst(service, "poor", epsilon=1)
    assert service.budget(rich).answers == 20
    assert service.budget(poor).answers == 10
    service.answer(rich, rows.ten, "r")
    assert service.budget(rich).answers == 20  # what others leave of the total is not said
    assert service.budget(poor).answers == 10


def test_the_guarantee(local, rows, monkeypatch):
    service = local.open().serve()
    promise = service.guarantee()
    assert (promise.answer.epsilon, promise.total.epsilon) == (Fraction(1, 10), 10)
    assert promise.assumptions == ("rollback undetected",) or promise.assumptions == ()
    assert "epsilon = 0.1" in promise.sentence
    service.overran()
    assert service.guarantee().late in service.guarantee().assumptions
    assert service.overruns == 1


def test_colluding_analysts_stay_within_the_total(bench, rows):
    """Everything that all accounts together may spend is far more than the total."""
    service = bench.open(epsilon=2).serve()
    people = [bench.analyst(service, f"p{number}", epsilon=2) for number in range(5)]
    drawn = 0
    for number in range(100):
        try:
            service.answer(people[number % 5], [rows.all[number]], "x" + str(number))
            drawn += 1
        except TotalExhausted:
            pass
    assert drawn == 20
    assert bench.spent() == 2


def test_a_column_that_takes_no_gap(tabular):
    """Only public columns may reject, under relations that do not protect them."""
    from types import SimpleNamespace

    schema = Schema(
        (Column("dose", "public", 0, 10, missing="reject"), Column("ill", "label", categories=["a", "b"])),
        declared_by="x",
    )
    with pytest.raises(RowError, match="dose"):
        read(SimpleNamespace(schema=schema, facts=SimpleNamespace(columns=1)), [{"dose": None}], 10)


def test_the_history_begins_after_the_ledger_and_never_in_the_future(local, rows):
    begun = datetime.now(UTC).replace(microsecond=0)
    service = local.open().serve()
    service.answer(local.analyst(service), rows.ten, "r")
    assert service.overview().history[0][1] == 0
    times = [time for time, _ in service.overview().history]
    assert times
    assert all(begun <= time <= datetime.now(UTC) for time in times)
