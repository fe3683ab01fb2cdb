"""Unstable rows of the sparse vector that are answered: paid besides their epoch, in one transaction."""

from __future__ import annotations

import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from confide.errors import BudgetError, LedgerError, ParameterError
from confide.ledger import Ledger
from confide.ledger.session import Session
from confide.privacy.losses import primitives
from confide.service import RequestOfAnotherModel, RequestReused, TotalExhausted
from confide.service.answering import LevelDrawing
from confide.service.canonical import Names
from confide.service.config import ServiceConfig

#: Of an epoch, and of an answer to an unstable row.
EPOCH, LAST = 20, Fraction(1, 2)


@pytest.fixture
def served(bench):
    service = then(bench.open(epsilon=1000))
    return bench, service, bench.analyst(service, epsilon=1000)


def then(bench, **settings):
    return bench.epochs(then="response", then_epsilon=LAST, **settings)


class Drawn:
    """Notes what was drawn for; draws one class, unless told otherwise."""

    def __init__(self, answer=None):
        self.answer, self.seen = answer, []

    def draw(self, labels, k, stream):
        self.seen.append((labels.tolist(), k.tolist()))
        return np.full(labels.size, self.answer) if self.answer is not None else labels


def test_an_unstable_row_has_an_answer_and_both_are_paid(served):
    bench, service, ann = served
    told = service.answer(ann, [*bench.stable, bench.unstable[0]], "1")
    assert told.states == ("answered",) * 6
    assert told.values[:5] == (1, 0, 1, 0, 1)
    assert told.values[5] in (0, 1)
    assert (told.cost.epsilon, told.cost.delta) == (EPOCH + LAST, Fraction(1, 10**6))
    assert told.left.epsilon == 1000 - EPOCH - LAST
    assert bench.spent() == bench.spent("ann") == EPOCH + LAST
    charges = bench.ledger.show()["charges"]
    assert [(charge["charge"]["epsilon"], charge["analyst"], charge["status"]) for charge in charges] == [
        ("20", "ann", "settled"), ("1/2", "ann", "settled"),
    ]  # fmt: skip
    assert charges[1]["label"] == "1 unstable, response"
    bench.ledger.verify()


def test_stable_rows_cost_what_they_do_without(served):
    bench, service, ann = served
    assert service.answer(ann, bench.stable, "1").cost.epsilon == EPOCH
    assert service.answer(ann, [[0.95, 0.1]], "2").cost.epsilon == 0
    assert service.answer(ann, bench.unstable[:1], "3").cost.epsilon == LAST  # in the open epoch, which ends
    assert service.answer(ann, [[0.95, 0.2]], "4").cost.epsilon == EPOCH
    assert bench.spent() == 2 * EPOCH + LAST


def test_rows_after_the_last_epoch_stay_unanswered(served):
    bench, service, ann = served
    told = service.answer(ann, [bench.unstable[0], *bench.stable, bench.unstable[1]], "1")
    assert told.states == ("answered",) + ("unanswered",) * 6
    assert told.values[1:] == (None,) * 6
    assert told.cost.epsilon == EPOCH + LAST


def test_several_epochs_and_answers_in_one_request(bench):
    service = then(bench.open(epsilon=1000), epochs=3)
    ann = bench.analyst(service, epsilon=1000)
    told = service.answer(ann, [*bench.unstable, [0.95, 0.0]], "1")
    assert told.states == ("answered",) * 3 + ("unanswered",)
    assert told.cost.epsilon == 3 * EPOCH + 3 * LAST
    assert [charge["charge"]["epsilon"] for charge in bench.ledger.show()["charges"]] == ["20"] * 3 + ["3/2"]
    service.answer(ann, bench.stable, "2")
    more = service.answer(ann, [[0.0, 0.1], [0.0, 0.2], [0.0, 0.4], [0.0, 0.45], [0.0, 0.15]], "3")
    assert more.states == ("answered",) * 4 + ("unanswered",)  # the open one, and three of its own
    assert more.cost.epsilon == 3 * EPOCH + 4 * LAST
    assert bench.spent() == 7 * EPOCH + 7 * LAST
    bench.ledger.verify()


def test_known_answers_are_free_whatever_the_request(served):
    bench, service, ann = served
    rows = [*bench.stable, *bench.unstable[:1], *bench.unstable[:1]]
    first = service.answer(ann, rows, "1")
    assert first.values[-1] == first.values[-2]  # one draw
    again = service.answer(ann, rows, "1")
    assert (again.values, again.states, again.cost, again.replayed) == (
        first.values, first.states, first.cost, True,
    )  # fmt: skip
    other = service.answer(ann, rows, "2")
    assert (other.values, other.cost.epsilon) == (first.values, 0)
    with pytest.raises(RequestReused):
        service.answer(ann, bench.stable, "1")
    bench.restart()
    service = then(bench)
    assert service.answer(ann, rows, "3").values == first.values
    assert service.answer(ann, rows, "1").replayed
    assert bench.spent() == EPOCH + LAST


def test_another_analyst_has_draws_of_its_own_and_pays_them(served):
    bench, service, ann = served
    bob = bench.analyst(service, "bob", epsilon=1000)
    for analyst in (ann, bob):
        assert service.answer(analyst, bench.unstable[:1], "1").cost.epsilon == EPOCH + LAST
    assert bench.spent() == 2 * (EPOCH + LAST)


@pytest.mark.parametrize(
    ("left", "rows", "epochs"),
    [
        (20, 1, 1),
        (Fraction(2049, 100), 1, 1),
        (Fraction(2049, 100), 5, 1),
        (40, 2, 2),
        (Fraction(4099, 100), 5, 2),
    ],
)
@pytest.mark.parametrize("whose", ["account", "total"])
def test_what_may_not_be_covered_is_refused_before_anything_is_drawn(bench, left, rows, epochs, whose):
    """Stable rows would have been covered; whether they are is not to be found out by a refusal."""
    service = then(bench.open(epsilon=1000), epochs=epochs)
    ann = bench.analyst(service, epsilon=left if whose == "account" else 1000)
    if whose == "total":
        bench.ledger.charge(_of(1000 - left))
    kept = bench.state()
    service._stream, service._drawing = Silent(), Drawn(0)
    with pytest.raises(BudgetError, match=r"may cost|does not cover") as caught:
        service.answer(ann, [*bench.stable, *bench.unstable][:rows], "1")
    assert isinstance(caught.value, TotalExhausted) == (whose == "total")
    assert not service._drawing.seen
    assert bench.state() == kept


class Silent:
    certified = True

    def bits(self, count):
        raise AssertionError("drawn")

    def child(self, name):
        return self


def _of(epsilon):
    from confide.privacy import Event, Guarantee

    return Guarantee(epsilon, 0, "replace_one", "row", Event.of("pure", epsilon=str(epsilon)))


def test_an_account_that_covers_the_worst_case_to_the_last_bit(bench):
    service = then(bench.open(epsilon=41), epochs=2)
    ann = bench.analyst(service, epsilon=41)
    assert service.answer(ann, bench.unstable[:2], "1").cost.epsilon == 41
    with pytest.raises(BudgetError):
        service.answer(ann, [[0.95, 0.0]], "2")
    assert service.answer(ann, bench.unstable[:2], "3").cost.epsilon == 0
    bench.ledger.verify()


def test_an_open_epoch_needs_the_answer_alone(bench):
    """One row can end it, and open none."""
    service = then(bench.open(epsilon=1000))
    ann = bench.analyst(service, epsilon=EPOCH + LAST)
    service.answer(ann, bench.stable, "1")
    with pytest.raises(BudgetError):
        service.answer(ann, [[0.95, 0.0], [0.95, 0.1]], "2")  # the first may end it, the second open one
    assert service.answer(ann, [[0.95, 0.0]], "3").cost.epsilon == 0
    assert service.answer(ann, bench.unstable[:1], "4").cost.epsilon == LAST
    assert service.budget(ann).left.epsilon == 0


def test_noise_is_drawn_for_all_rows_whichever_are_unstable(served):
    """The work tells nothing of which were; the draw of a row has its own class and distance."""
    bench, service, ann = served
    service._drawing = drawn = Drawn()
    for number, rows in enumerate(
        (bench.stable, bench.unstable, bench.stable, [*bench.stable, *bench.unstable])
    ):
        service.answer(ann, rows, f"{number}")
        labels, k = service.model.certified.stability(np.array(rows))
        assert drawn.seen[-1] == (labels.tolist(), k.tolist())
    assert len(drawn.seen) == 4


@pytest.mark.parametrize("answer", [0, 1])
def test_the_answer_is_the_draw_of_its_row_and_stable_rows_take_none(served, answer):
    bench, service, ann = served
    service._drawing = Drawn(answer)
    told = service.answer(ann, [*bench.stable, bench.unstable[0]], "1")
    assert told.values == (1, 0, 1, 0, 1, answer)


def test_it_is_drawn_by_the_response_at_its_own_epsilon(served):
    from confide.prediction.response import response_law

    _, service, _ = served
    assert isinstance(service._drawing, LevelDrawing)
    assert service._drawing.law.units == response_law(LAST, 2).units
    assert service._drawing.law.epsilon == LAST


def test_a_crash_leaves_epoch_answer_and_charges_or_none_of_them(bench, monkeypatch):
    class Crash(BaseException):
        pass

    service = then(bench.open(epsilon=1000))
    ann = bench.analyst(service, epsilon=1000)
    real = Session.flush

    def crash(self):
        real(self)
        raise Crash

    for rows in (bench.unstable[:1], bench.stable):
        kept = bench.state()
        with monkeypatch.context() as patch:
            patch.setattr(Session, "flush", crash)
            with pytest.raises(Crash):
                service.answer(ann, rows, "r")
        assert bench.state() == kept
    told = service.answer(ann, bench.unstable[:1], "r")
    bench.restart()
    again = then(bench).answer(ann, bench.unstable[:1], "r")
    assert (again.values, again.cost, again.replayed) == (told.values, told.cost, True)
    assert bench.spent() == EPOCH + LAST
    bench.ledger.verify()


def test_a_source_of_noise_that_fails_charges_nothing(served):
    bench, service, ann = served

    class Broken:
        def draw(self, labels, k, stream):
            raise LedgerError("SECRET", "SECRET")

    kept = bench.state()
    service._drawing = Broken()
    with pytest.raises(LedgerError, match="random bits") as caught:
        service.answer(ann, bench.unstable[:1], "1")
    assert "SECRET" not in str(caught.value)
    assert bench.state() == kept


def test_requests_at_once_are_charged_as_one_after_another(bench):
    service = then(bench.open(epsilon=1000))
    people = [bench.analyst(service, f"p{number}", epsilon=300) for number in range(3)]
    with ThreadPoolExecutor(12) as pool:
        told = list(pool.map(lambda n: service.answer(people[n % 3], [[0.0, 0.01 * n]], f"r{n}"), range(30)))
    assert all(one.cost.epsilon == EPOCH + LAST for one in told)
    assert bench.spent() == 30 * (EPOCH + LAST)
    bench.ledger.verify()


def test_a_second_worker_pays_its_own_epoch_and_tells_what_was_told(served):
    bench, service, ann = served
    service.answer(ann, bench.stable, "1")
    second = then(bench)
    assert second.answer(ann, bench.unstable[:1], "2").cost.epsilon == EPOCH + LAST
    assert service.answer(ann, bench.unstable[:1], "3").cost.epsilon == 0
    assert service.answer(ann, [[0.95, 0.0]], "4").cost.epsilon == 0  # its own epoch is open


# -- settings, and what is said of them ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"then": "response"}, "go together"), ({"then_epsilon": 1}, "go together"),
        ({"then": "response", "then_epsilon": 0}, "go together"), ({"then": "cauchy", "then_epsilon": 1}, "then"),
        ({"then": "response", "then_epsilon": -1}, "negative"),
        ({"then": "response", "then_epsilon": 1, "release": "response", "delta": 0}, "sparse_vector alone"),
    ],
)  # fmt: skip
def test_settings_outside_their_domain(bad, word):
    with pytest.raises(ParameterError, match=word):
        ServiceConfig.of(**{"epsilon": 1, "delta": "1e-6", "release": "sparse_vector", **bad})


def test_a_total_that_never_covers_an_epoch_to_its_end_is_refused_at_the_start(local):
    local.open(epsilon=20)
    local.epochs()
    with pytest.raises(
        BudgetError, match=r"epoch with the answer to the row that ends it costs epsilon = 20\.5"
    ):
        then(local)


def test_names_are_apart_and_those_without_stay_as_they_were():
    base = {"epsilon": 1, "delta": "1e-6", "release": "sparse_vector"}

    def name(**more):
        return Names(b"k" * 32, b"m", ServiceConfig.of(**base, **more)).release

    found = [name(), name(then="response", then_epsilon="1/10"), name(then="response", then_epsilon="1/5")]
    assert len(set(found)) == 3
    assert found[0].hex() == "423a9440c9696e0a025a396967257d18"


def test_an_answer_under_other_settings_is_not_told_again(served):
    bench, service, ann = served
    service.answer(ann, bench.unstable[:1], "1")
    plain = bench.epochs()
    with pytest.raises(RequestOfAnotherModel):
        plain.answer(ann, bench.unstable[:1], "1")
    assert plain.answer(ann, bench.unstable[:1], "2").states == ("unstable",)


def test_the_account_counts_epochs_to_their_end(served):
    bench, service, _ = served
    cleo = bench.analyst(service, "cleo", epsilon=62)
    assert service.budget(cleo).answers == 3
    poor = bench.analyst(service, "poor", epsilon=20)
    assert service.budget(poor).answers == 0
    bench.ledger.charge(_of(1000 - 20))
    assert service.budget(cleo).total_exhausted
    assert not service.budget(poor).total_exhausted  # its account refuses first, as the service does


def test_the_guarantee_states_both_prices(served):
    _, service, _ = served
    promise = service.guarantee()
    assert (promise.answer.epsilon, promise.answer.delta) == (EPOCH + LAST, Fraction(1, 10**6))
    parts = [part for outer in promise.answer.event.parts for part, _ in primitives(outer)]
    assert [part.mechanism for part in parts] == ["sparse_vector", "response"]
    assert "an unstable answer, which ends one, epsilon = 0.5" in promise.sentence
    assert service.config.released == "sparse_vector, then response"


def test_the_page_says_both_prices():
    spec = importlib.util.spec_from_file_location("service_fake", Path(__file__).with_name("fake.py"))
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)
    _, app = fake.made(release="sparse_vector", delta="1e-6", then="response", then_epsilon="1/5")
    page = TestClient(app).get("/", auth=("x", "owner-key")).text
    assert "each epoch that it opens costs epsilon 0.1, delta 1e-06, an unstable answer 0.2." in page


def test_the_command_takes_it(tmp_path, local):
    from confide.cli.app import app

    path = tmp_path / "m.npz"
    tabular().save(path)
    Ledger.open(local.url, dataset="visits", epsilon=30, delta="1e-3", adjacency="replace_one")
    options = [
        "--ledger",
        f"{local.url}#visits",
        "--epsilon",
        "20",
        "--delta",
        "1e-6",
        "--release",
        "sparse_vector",
    ]
    told = CliRunner().invoke(
        app,
        ["serve", str(path), *options, "--then", "response", "--then-epsilon", "0.5", "--check", "--json"],
    )
    assert told.exit_code == 0, told.output
    body = json.loads(told.stdout)
    assert body["release"] == "sparse_vector, then response"
    assert "epsilon = 0.5" in body["sentence"]
    told = CliRunner().invoke(app, ["serve", str(path), *options, "--then", "response", "--check"])
    assert told.exit_code == 2


def tabular():
    import confide
    from confide.schema import Column, Schema

    draw = np.random.default_rng(0)
    age = draw.uniform(18, 90, 200)
    columns = (Column("age", "private", 18, 90), Column("ill", "label", categories=["no", "yes"]))
    schema = Schema(columns, name="visits", declared_by="the hospital")
    return confide.certify(
        confide.Table.from_frame({"age": age, "ill": np.where(age > 54, "yes", "no")}, schema)
    )
