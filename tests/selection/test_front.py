import json
from collections import Counter

import numpy as np
import pytest

from confide.errors import (
    BudgetError,
    ParameterError,
    RefusedError,
    SchemaError,
    UncertifiedWarning,
    UnsupportedError,
)
from confide.ledger import Ledger
from confide.schema import Table
from confide.selection import (
    SelectionResult,
    Status,
    SubsetProblem,
    best_by_mistakes,
    best_supports,
    huber,
    law,
    select,
)
from confide.selection.front import centred_label, encoded, feature_columns

from .tables import ILL, NAMES, SCHEMA, Watched, frame, with_columns

ASK = {"size": 2, "epsilon": 4}
CLASSES = with_columns(cost=None, **ILL)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="clinic", epsilon=6, delta=0, adjacency="replace_one"
    )


def test_dry_run_reads_and_charges_nothing(ledger):
    table = Watched(Table.from_frame(frame(), SCHEMA))
    guarantee = select(table, **ASK, ledger=ledger, dry_run=True)
    assert table.read == []
    assert ledger.total().epsilon == 0
    result = select(table, **ASK, ledger=ledger)
    assert result.guarantee == guarantee
    assert guarantee.declaration == table.schema.declaration
    assert guarantee.unconditional
    assert guarantee.delta == 0
    assert str(ledger.total().epsilon) == "4"
    assert result.entry
    assert select(table, **ASK).entry == ""


def test_cells_are_read_after_the_charge_and_never_when_refused(ledger):
    table = Watched(Table.from_frame(frame(), SCHEMA))
    with pytest.raises(BudgetError):
        select(table, size=2, epsilon=7, ledger=ledger)
    assert "cells" not in table.read  # the number of rows is public under this relation
    seen = []

    class Later(Watched):
        def chunks(self):
            seen.append(str(ledger.total().epsilon))
            return super().chunks()

    select(Later(Table.from_frame(frame(), SCHEMA)), **ASK, ledger=ledger)
    assert set(seen) == {"4"}


def test_a_crash_after_the_charge_keeps_it(ledger):
    class Broken(Watched):
        def chunks(self):
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        select(Broken(Table.from_frame(frame(), SCHEMA)), **ASK, ledger=ledger)
    assert str(ledger.total().epsilon) == "4"


def test_what_is_asked_of_the_core():
    table = Table.from_frame(frame(), SCHEMA)
    result = select(table, size=2, epsilon=50, random_state=0)
    assert isinstance(result, SelectionResult)
    assert result.status is Status.RELEASED
    assert result.support == ("x1", "x2")
    assert result.indices == (1, 2)
    assert result.columns == ("x1", "x2")
    assert result.candidates == len(NAMES)
    assert (result.feature_bound, result.target_bound) == (1.0, 5.0)
    assert result.schema_digest == table.schema.digest
    features = feature_columns(table.schema)
    X, y = encoded(table, features), centred_label(table, table.schema.label)
    assert np.abs(X).max() <= 1
    assert np.abs(y).max() <= 5
    np.testing.assert_allclose(X[:, 1], (frame().x1 - 1) / 2)
    np.testing.assert_allclose(y, frame().cost - 7)
    data = json.loads(result.to_json())
    assert data["support"] == ["x1", "x2"]
    assert data["guarantee"]["event"]["mechanism"] == "exponential"


def test_draws_follow_the_law_of_the_encoded_problem():
    table = Table.from_frame(frame(60), SCHEMA)
    features = feature_columns(table.schema)
    problem = SubsetProblem(
        encoded(table, features), centred_label(table, table.schema.label), 2, feature_bound=1, target_bound=5
    )
    chances = law(problem, "exponential", 3, "replace_one")
    draws = 600
    found = Counter(select(table, size=2, epsilon=3, random_state=seed).indices for seed in range(draws))
    distance = sum(abs(found[support] / draws - chance) for support, chance in chances.items()) / 2
    # Mean total variation of a true sample: at most half the sum of sqrt(p / N).
    assert distance < 1.5 * sum(np.sqrt(chance / draws) for chance in chances.values()) / 2


@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip", "top_r", "mistakes"])
@pytest.mark.parametrize(
    ("loss", "schema"),
    [
        (None, SCHEMA),
        ("huber", SCHEMA),
        (huber(0.5), SCHEMA),
        ("quantile", SCHEMA),
        (None, CLASSES),
        ("hinge", CLASSES),
        ("logistic", CLASSES),
    ],
)
def test_losses_and_mechanisms(loss, schema, mechanism):
    result = select(Table.from_frame(frame(), schema), size=2, epsilon=60, loss=loss, mechanism=mechanism)
    assert result.support == ("x1", "x2")
    assert result.guarantee.event.mechanism == mechanism
    conditional = ("gap condition",) if mechanism == "mistakes" else ()
    assert result.guarantee.assumptions == (*conditional, "unrecorded")
    if schema is CLASSES:
        assert result.loss == (loss or "squared")
        assert result.target_bound == 1.0
        reach = 1.0 if result.loss == "squared" else 4.0
        assert result.radius == pytest.approx(reach / np.sqrt(2))


def test_zcdp_cost_of_each_mechanism():
    from confide.privacy import zcdp_cost

    table = Table.from_frame(frame(), SCHEMA)
    costs = [
        zcdp_cost(select(table, size=2, epsilon=1, mechanism=name, dry_run=True).event)
        for name in ("exponential", "permute_and_flip", "top_r", "mistakes")
    ]
    assert [float(cost) for cost in costs] == [0.125, 0.5, 0.125, 0.125]


def test_mistakes_is_refused_unless_accepted_by_name(tmp_path):
    table = Watched(Table.from_frame(frame(), SCHEMA))
    opened = {"dataset": "clinic", "epsilon": 3, "delta": 0, "adjacency": "replace_one"}
    ledger = Ledger.open(f"sqlite:///{tmp_path}/l.db", **opened)
    for dry_run in (True, False):
        with pytest.raises(RefusedError, match="gap condition"):
            select(table, size=2, epsilon=1, mechanism="mistakes", ledger=ledger, dry_run=dry_run)
    assert "cells" not in table.read
    assert ledger.total().epsilon == 0
    knowing = Ledger.open(f"sqlite:///{tmp_path}/l.db", **opened, accept=("gap condition",))
    result = select(table, size=2, epsilon=1, mechanism="mistakes", ledger=knowing)
    assert result.guarantee.assumptions == ("gap condition",)
    assert "assuming: gap condition" in str(result.guarantee)
    assert ledger.total().epsilon == 1
    assert "(no single unit of the table can change which support is best)" in str(result.guarantee)
    shown = ledger.show()
    assert shown["assumptions"] == ["gap condition"]
    assert shown["charges"][0]["assumptions"] == ["gap condition"]
    with pytest.warns(UncertifiedWarning, match="no single unit"):
        alone = select(table, size=2, epsilon=1, mechanism="mistakes", random_state=0)
    assert alone.guarantee.assumptions == ("gap condition", "seeded", "unrecorded")


def test_a_result_is_shown_in_a_line():
    shown = repr(select(Table.from_frame(frame(), SCHEMA), size=2, epsilon=9))
    assert shown.startswith("SelectionResult(x1, x2; of 8, by exponential. Differentially private")
    assert len(shown) < 300


@pytest.mark.parametrize(
    "call",
    [
        lambda p: best_supports(np.zeros((3, 2)), 5),
        lambda p: best_by_mistakes(np.zeros((3, 2))),
        lambda p: best_by_mistakes(p, optimum=("a", "b")),
        lambda p: best_by_mistakes(p, optimum=1),
    ],
)
def test_proven_lists_say_what_they_take(call):
    problem = SubsetProblem(np.zeros((3, 2)), np.zeros(3), 2, feature_bound=1, target_bound=1)
    with pytest.raises(ParameterError, match=r"SubsetProblem|column numbers"):
        call(problem)


def test_the_list_of_top_r_is_public_and_recorded():
    table = Table.from_frame(frame(), SCHEMA)
    result = select(table, size=2, epsilon=1, mechanism="top_r", top=5)
    assert result.guarantee.event["top"] == result.to_dict()["top"] == result.top == 5
    assert result.guarantee.assumptions == ("unrecorded",)
    default = select(table, size=2, epsilon=1, mechanism="top_r", dry_run=True)
    assert default.event["top"] == 2 + (8 - 2) * 2
    assert select(table, size=7, epsilon=1, mechanism="top_r", dry_run=True, top=100).event["top"] == 8
    plain = select(table, size=2, epsilon=1)
    assert plain.top is None
    assert "top" not in plain.to_dict()
    for bad in (0, 1.5, 10**6 + 1, True):
        with pytest.raises(ParameterError, match="top"):
            select(table, size=2, epsilon=1, mechanism="top_r", top=bad)
    with pytest.raises(ParameterError, match="top_r"):
        select(table, size=2, epsilon=1, top=5)


def test_diagnostics_of_the_other_mechanisms():
    table = Table.from_frame(frame(), SCHEMA)
    options = {"size": 2, "epsilon": 1, "diagnostics": "public data", "adjacency": "add_remove_one"}
    facts = dict(select(table, mechanism="mistakes", **options).diagnostics)
    assert facts["gap_condition"] == (facts["gap"] > facts["gap_needed"])
    assert {"seconds", "score"} == set(dict(select(table, mechanism="top_r", **options).diagnostics))
    whole = dict(select(table, mechanism="mistakes", **{**options, "size": 8}).diagnostics)
    assert whole["gap_condition"] == 1
    assert "gap" not in whole


def test_chunked_tables_give_the_same_support(tmp_path):
    path = tmp_path / "clinic.parquet"
    frame().to_parquet(path)
    wide = with_columns(
        **{f"c{i}": {"role": "private", "categories": [f"v{j}" for j in range(40)]} for i in range(2)}
    )
    data = frame().assign(c0="v1", c1="v2")
    data.to_parquet(tmp_path / "wide.parquet")
    for name, schema in (("clinic", SCHEMA), ("wide", wide)):
        file = tmp_path / f"{name}.parquet"
        whole, parts = Table.read(file, schema), Table.scan(file, schema, chunk_rows=333)
        features = feature_columns(whole.schema)
        a, b = encoded(whole, features), encoded(parts, features)
        assert (a != b).sum() == 0
        for seed in range(3):
            first = select(whole, size=2, epsilon=1, random_state=seed)
            assert first == select(parts, size=2, epsilon=1, random_state=seed)


def test_persons_share_epsilon_over_their_rows():
    data = frame(900).assign(person=np.repeat(np.arange(300), 3))
    schema = with_columns(person={"role": "id"})
    schema["table"] = {**SCHEMA["table"], "max_rows_per_id": 3}
    persons = Table.from_frame(data, schema)
    result = select(persons, size=2, epsilon=3, random_state=0)
    assert result.guarantee.unit == "person"
    assert str(result.guarantee.epsilon) == "3"
    rows = Table.from_frame(data, SCHEMA)
    # The same stream and the same exponent a row: the same draws.
    for seed in range(20):
        ours = select(persons, size=2, epsilon=0.3, random_state=seed)
        assert ours.indices == select(rows, size=2, epsilon="0.1", random_state=seed).indices


def test_diagnostics_are_for_public_data(ledger):
    table = Table.from_frame(frame(), SCHEMA)
    result = select(table, **ASK, diagnostics="public data")
    assert set(dict(result.diagnostics)) >= {"seconds", "acceptance", "buckets"}
    assert 0 < dict(result.diagnostics)["acceptance"] <= 1
    assert "public data" in result.guarantee.assumptions
    with pytest.raises(RefusedError, match="public data"):
        select(table, **ASK, diagnostics="public data", ledger=ledger)
    with pytest.raises(ParameterError, match="diagnostics"):
        select(table, **ASK, diagnostics=True)
    assert ledger.total().epsilon == 0
    assert select(table, **ASK).diagnostics == ()


def test_seeded_draws_are_refused_by_a_ledger(ledger):
    with pytest.raises(RefusedError):
        select(Table.from_frame(frame(), SCHEMA), **ASK, ledger=ledger, random_state=1)
    assert ledger.total().epsilon == 0


def test_a_weaker_relation_is_refused_by_the_ledger(ledger):
    table = Watched(Table.from_frame(frame(), SCHEMA))
    with pytest.raises(RefusedError):
        select(table, **ASK, ledger=ledger, adjacency="replace_private_part")
    assert "cells" not in table.read  # the number of rows is public under this relation
    assert ledger.total().epsilon == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"size": 0},
        {"size": -1},
        {"size": 9},
        {"size": 2.0},
        {"size": True},
        {"size": None},
        {"size": "2"},
        {"epsilon": None},
        {"epsilon": 0},
        {"epsilon": -1},
        {"epsilon": float("nan")},
        {"epsilon": float("inf")},
        {"epsilon": "much"},
        {"epsilon": "1e-30"},
        {"mechanism": "top"},
        {"mechanism": None},
        {"loss": "cubic"},
        {"loss": "hinge"},
        {"loss": 3},
        {"radius": 0},
        {"radius": -1.0},
        {"radius": float("nan")},
        {"radius": "wide"},
        {"radius": 1e308},
        {"ridge": -1},
        {"ridge": float("inf")},
        {"ridge": float("nan")},
        {"ridge": "some"},
        {"adjacency": "nearby"},
        {"adjacency": None},
        {"random_state": -1},
        {"random_state": True},
        {"random_state": 1.5},
        {"diagnostics": "yes"},
    ],
    ids=str,
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_bad_requests_touch_neither_data_nor_ledger(bad, dry_run, ledger):
    table = Watched(Table.from_frame(frame(50), SCHEMA))
    with pytest.raises((ParameterError, UnsupportedError)) as info:
        select(table, **{**ASK, **bad}, ledger=ledger, dry_run=dry_run)
    assert info.value.remedy
    assert table.read == []
    assert ledger.total().epsilon == 0


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (with_columns(cost=None), {}, "label"),
        (with_columns(**dict.fromkeys(["x0", "x1", "x2", "x3", "ward"])), {}, "select from"),
        (SCHEMA, {"adjacency": "replace_label"}, "private"),
        (
            with_columns(x0={"role": "public", "lower": 0, "upper": 1, "missing": "reject"}),
            {},
            "rejects missing",
        ),
        (with_columns(cost=None, ill={"role": "label", "categories": ["a", "b", "c"]}), {}, "3 categories"),
        (with_columns(cost=None, ill={"role": "label", "categories": ["a"]}), {}, "1 categories"),
    ],
)
def test_schemas_that_do_not_fit(schema, options, words, ledger):
    class Bare:
        pass

    table = Bare()
    table.schema = Table.from_frame(frame(10).assign(person=1), schema).schema
    with pytest.raises((SchemaError, UnsupportedError), match=words):
        select(table, **ASK, **options, ledger=ledger)
    assert ledger.total().epsilon == 0


def test_all_and_one():
    table = Table.from_frame(frame(50), SCHEMA)
    assert select(table, size=8, epsilon=1).support == NAMES
    one = with_columns(**dict.fromkeys(["x0", "x2", "x3", "ward"]))
    assert select(Table.from_frame(frame(50), one), size=1, epsilon=1).support == ("x1",)


def test_label_cells_outside_both_categories_are_the_first():
    data = frame(30)
    data["ill"] = ["yes", "no", "maybe"] * 10
    table = Table.from_frame(data, CLASSES)
    np.testing.assert_array_equal(centred_label(table, table.schema.label), [1, -1, -1] * 10)
