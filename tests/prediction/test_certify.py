"""The front door on tables: classes and bounds of the schema, persons, refusals, charges, edge cases."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier

import confide
from confide.errors import (
    AssumptionError,
    BudgetError,
    DataError,
    LedgerError,
    ParameterError,
    SchemaError,
    UncertifiedWarning,
    UnsupportedError,
)
from confide.ledger import Ledger
from confide.prediction import (
    BallTraining,
    CertifiedModel,
    Ensemble,
    IntervalTraining,
    Persons,
    StronglyConvexERM,
    TeacherVotes,
    VoteGap,
)
from confide.prediction.certificate import Certified
from confide.prediction.model import encoded, feature_columns
from confide.schema import Encoded, Schema, Table

COLUMNS = {
    "age": {"role": "private", "lower": 20, "upper": 80},
    "income": {"role": "private", "lower": 100, "upper": 10000, "transform": "log"},
    "region": {"role": "public", "categories": ["north", "south", "west"]},
    "sick": {"role": "label", "categories": ["no", "yes"]},
}


def frame(n=600, seed=0):
    rng = np.random.default_rng(seed)
    age, income = rng.uniform(20, 80, n), np.exp(rng.uniform(np.log(100), np.log(10000), n))
    region = rng.choice(["north", "south", "west"], n)
    score = (age - 50) / 15 + (region == "south") - 0.5 + 0.3 * rng.normal(size=n)
    return {"age": age, "income": income, "region": region, "sick": np.where(score > 0, "yes", "no")}


def schema(*, ids=None, **changes):
    columns = {**COLUMNS, **changes}
    table = {"name": "visits", "declared_by": "ward"}
    if ids is not None:
        columns["who"] = {"role": "id"}
        table["max_rows_per_id"] = ids
    return {"table": table, "columns": columns}


def table(data=None, **options):
    return Table.from_frame(frame() if data is None else data, schema(**options))


ROWS = {"age": [25.0, 75.0], "income": [500.0, 900.0], "region": ["west", "south"]}


@pytest.mark.parametrize(
    "options",
    [{}, {"alpha": 0.3}, {"model": "huber_hinge"}, {"model": "softmax"}, {"certificate": "votes", "neighbours": 21},
     {"certificate": "ball"}, {"certificate": "ball", "feature_norm": 1.0, "adjacency": "add_remove_one", "max_rows": 700},
     {"certificate": "interval"}, {"certificate": "interval", "model": "mlp", "hidden": (4,), "k_max": 8},
     {"members": 3, "ridge": 5.0}, {"certificate": "votes", "members": 3, "neighbours": 11},
     {"adjacency": "add_remove_one", "ridge": 10.0}, {"adjacency": "replace_private_part"},
     {"certificate": "interval", "adjacency": "add_remove_one", "max_rows": 1000},
     {"certificate": "interval", "hyperparameters": {"learning_rate": 1.0, "clip": 0.1, "epochs": 2}},
     {"certificate": VoteGap(21, 2, (-1, 1))}, {"certificate": StronglyConvexERM(10.0), "members": 2},
     {"certificate": IntervalTraining((6, 1), {"learning_rate": 1.0, "clip": 0.1}, 9, init=np.zeros(7))},
     {"certificate": BallTraining(6, {"learning_rate": 1.0, "clip": 1.0, "clip_by": "norm"}, 2.0)}],
    ids=lambda options: str(options)[:70],
)  # fmt: skip
def test_certificates_answer_a_table(options):
    model = confide.certify(table(), random_state=0, **options)
    assert isinstance(model, CertifiedModel)
    assert isinstance(model.certified, Certified)
    labels, k = model.stability(ROWS)
    assert k.min() >= 0
    if options.get("model") != "mlp":
        assert labels.tolist() == ["no", "yes"]
        assert k.min() >= 1
    assert model.answer(ROWS, 40).shape == (2,)
    wanted = options.get("adjacency", "replace_one")
    assert model.guarantee.adjacency.value == model.adjacency.value == wanted
    assert model.guarantee.unit == "row"
    assert model.guarantee.assumptions == ("seeded", "unrecorded")


def test_what_is_public_of_a_model():
    model = confide.certify(table(), certificate="interval", training_seed=5, partition_key="ours")
    assert model.provenance["parameters"]["type"] == "IntervalTraining"
    assert model.provenance["schema_digest"] == Schema.from_dict(schema()).digest
    assert model.provenance["confide"] == confide.__version__
    assert model.classes.tolist() == ["no", "yes"]
    assert model.guarantee is None
    told = model.preview(3, "0.3")
    assert told.epsilon == Fraction(9, 10)
    assert told.declaration == Schema.from_dict(schema()).declaration
    assert dict(told.event.parameters) == {
        "certificate": "interval",
        "partition_key": "ours",
        "training_seed": 5,
    }
    assert confide.certify(table(), dry_run=True)["columns"] == 6


def test_seed_and_key_are_those_of_an_object():
    own = IntervalTraining((6, 1), {"learning_rate": 1.0, "clip": 0.1}, 9, training_seed=7)
    assert confide.certify(table(), certificate=own).preview(1, 1).event["training_seed"] == 7
    key = Ensemble(VoteGap(5, 2, (-1, 1)), 3, key="theirs")
    assert confide.certify(table(), certificate=key).preview(1, 1).event["partition_key"] == "theirs"


def test_rows_come_as_frames_files_tables_and_matrices(tmp_path):
    pd = pytest.importorskip("pandas")
    model = confide.certify(table())
    data = frame(50, seed=9)
    expected = model.stability(data)
    shuffled = pd.DataFrame(data)[["region", "sick", "income", "age"]]
    shuffled.to_csv(tmp_path / "rows.csv", index=False)
    whole = table(data)
    names = tuple(name for column in feature_columns(whole.schema) for name in column.feature_names)
    block = Encoded(encoded(whole, whole.schema), names)
    raw = pd.DataFrame(data)[[column.name for column in feature_columns(whole.schema)]].to_numpy()
    for rows in (shuffled, str(tmp_path / "rows.csv"), tmp_path / "rows.csv", whole,
                 Table.scan(tmp_path / "rows.csv", schema(), chunk_rows=7), block, raw, raw.tolist()):  # fmt: skip
        labels, k = model.stability(rows)
        assert np.array_equal(labels, expected[0])
        assert np.array_equal(k, expected[1])
    with pytest.raises(DataError, match="income"):
        model.answer({"age": [1.0], "region": ["west"]}, 1)
    with pytest.raises(DataError, match="raw columns"):
        model.answer(np.zeros((2, 5)), 1)
    other = {**COLUMNS, "age": {"role": "private", "lower": 0, "upper": 80}}
    with pytest.raises(DataError, match="'age'"):
        model.answer(Table.from_frame(data, {"columns": other}), 1)


def test_a_chunked_table_is_the_same_model(tmp_path):
    pd = pytest.importorskip("pandas")
    pd.DataFrame(frame()).to_csv(tmp_path / "visits.csv", index=False)
    one = confide.certify(table())
    many = confide.certify(Table.scan(tmp_path / "visits.csv", schema(), chunk_rows=37))
    rows = frame(80, seed=4)
    assert np.array_equal(one.stability(rows)[1], many.stability(rows)[1])


@pytest.mark.parametrize(
    ("cells", "categories", "classes"),
    [([0, 1], [0, 1], ["0", "1"]), ([False, True], [False, True], ["false", "true"]), (["b", "a"], ["b", "a"], ["b", "a"]),
     ([10, 20, 30], [10, 20, 30], ["10", "20", "30"])],
)  # fmt: skip
def test_labels_of_every_type(cells, categories, classes):
    data = frame()
    place = np.digitize(data["age"], np.linspace(20, 80, len(cells) + 1)[1:-1])
    data["sick"] = np.array(cells)[place]
    held = table(data, sick={"role": "label", "categories": categories})
    model = confide.certify(held, alpha=0.001)
    labels, _ = model.stability(data)
    assert model.classes.tolist() == classes == list(held.schema.label.categories)
    assert np.mean(labels == np.array(classes)[place]) > 0.9


def test_a_category_counts_one_and_a_number_a_quarter():
    model = confide.certify(table())
    assert model.certified.rows.norm == pytest.approx(np.sqrt(2 / 16 + 1))
    assert confide.certify(table(), feature_norm=2.0).certified.rows.norm == 2.0


# ---- persons ----------------------------------------------------------------------------------------------


def visits(m, n=900, seed=0):
    data = frame(n, seed)
    data["who"] = np.arange(n) // m
    return data


@pytest.mark.parametrize(
    "options",
    [{"alpha": 0.01}, {"certificate": "votes"}, {"certificate": "interval"}, {"certificate": VoteGap(51, 2, (-1, 1))},
     {"adjacency": "add_remove_one", "ridge": 10.0}, {"adjacency": "add_remove_one", "certificate": "votes"}],
    ids=str,
)  # fmt: skip
def test_distances_count_persons(options):
    rows = confide.certify(table(visits(3)), **options)
    persons = confide.certify(table(visits(3), ids=3), **options)
    queries = frame(60, seed=2)
    labels, k = persons.stability(queries)
    assert persons.unit == persons.preview(1, 1).unit == "person"
    assert rows.preview(1, 1).unit == "row"
    # Ties between neighbours go by ids of persons instead of numbers of rows: nearly always the same.
    whole, own = rows.stability(queries)
    assert np.mean(labels == whole) > 0.95
    assert np.mean(k == own // 3) > 0.9
    assert k.max() >= 2


def test_contributions_are_bounded_before_anything_is_trained():
    data = visits(3)
    loud = {name: np.concatenate([cells, cells[:1].repeat(500)]) for name, cells in data.items()}
    loud["sick"][900:] = "yes"
    queries = frame(60, seed=2)
    plain = confide.certify(table(data, ids=3), ridge=10.0).stability(queries)
    bounded = confide.certify(table(loud, ids=3), ridge=10.0).stability(queries)
    assert np.array_equal(plain[0], bounded[0])
    assert np.array_equal(plain[1], bounded[1])


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("certificate", ["erm", "votes", "interval"])
def test_a_person_moves_no_distance_by_more_than_one(certificate, adjacency):
    """One person's rows change, or go; the rows of others keep their batches, parts and ties."""
    options = {"certificate": certificate, "adjacency": adjacency, "max_rows": 200}
    options |= {"erm": {"ridge": 3.0}, "votes": {"neighbours": 15, "members": 3}, "interval": {}}[certificate]
    rng = np.random.default_rng(1)
    queries = frame(80, seed=5)
    data = visits(3, n=150, seed=3)
    first = confide.certify(table(data, ids=3), **options).stability(queries)
    moved = 0
    for trial in range(6):
        other = {name: cells.copy() for name, cells in data.items()}
        mine = data["who"] == rng.integers(50)
        if adjacency == "add_remove_one" and trial % 2:
            other = {name: cells[~mine] for name, cells in other.items()}
        else:
            other["age"][mine] = rng.choice([1e308, -1e6, 25.0, np.nan], 3)
            other["region"][mine] = "west"
            other["sick"][mine] = rng.choice(["yes", "no", "??"], 3)
        found = confide.certify(table(other, ids=3), **options).stability(queries)
        assert np.abs(found[1] - first[1]).max() <= (
            2 if adjacency == "add_remove_one" and not trial % 2 else 1
        )
        turned = found[0] != first[0]
        if adjacency == "replace_one" or trial % 2:
            assert not np.any(first[1][turned])
            assert not np.any(found[1][turned])
        moved += int(np.sum(found[1] != first[1]))
    assert moved > 0 or certificate == "votes"


def test_certificates_of_persons_need_ids_of_the_table():
    own = Persons(StronglyConvexERM(10.0), 3)
    assert confide.certify(table(visits(3), ids=3), certificate=own).unit == "person"
    with pytest.raises(UnsupportedError, match="no id column"):
        confide.certify(table(), certificate=own)
    far = {"adjacency": "add_remove_one"}
    with pytest.raises(UnsupportedError, match="numbers that depend"):
        confide.certify(table(visits(3), ids=3), certificate=Persons(StronglyConvexERM(10.0, **far), 3))
    assert confide.certify(table(visits(3), ids=3), certificate=Ensemble(own, 2)).unit == "person"
    teachers = TeacherVotes(DummyClassifier(), 3, 2, (-1, 1), **far)
    with pytest.raises(UnsupportedError, match="numbers that depend"):
        confide.certify(table(visits(3), ids=3), certificate=teachers)
    assert confide.certify(table(visits(1), ids=1), certificate=teachers).unit == "person"


# ---- charges and refusals ---------------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path):
    return Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="d", epsilon=3, delta=1e-6, adjacency="replace_one"
    )


def test_answers_are_charged_and_refused_whole(book):
    model = confide.certify(table(), ledger=book)
    assert book.total().epsilon == 0
    model.answer(ROWS, 1, label="monday")
    assert model.guarantee.unconditional
    assert book.total().epsilon == 2
    assert book.show()["charges"][0]["label"] == "monday"
    held, model.certified = model.certified, None
    with pytest.raises(BudgetError):
        model.answer(ROWS, 1)
    for bad in ({"epsilon": 0}, {"epsilon": 1, "release": "noise"}, {"epsilon": 1, "delta": 2},
                {"epsilon": 1, "random_state": "x"}):  # fmt: skip
        with pytest.raises(ParameterError):
            model.answer(ROWS, **bad)
    assert book.total().epsilon == 2
    model.certified = held
    assert model.answer({name: cells[:0] for name, cells in ROWS.items()}, 1).shape == (0,)
    assert book.total().epsilon == 2


def test_a_ledger_never_takes_seeded_answers(book):
    model = confide.certify(table(), ledger=book, random_state=1)
    with pytest.raises(AssumptionError, match="seeded"):
        model.answer(ROWS, 1)
    with pytest.raises(AssumptionError, match="seeded"):
        confide.certify(table()).answer(ROWS, 1, ledger=book, random_state=1)
    assert book.total().epsilon == 0


def test_a_zcdp_ledger_says_what_it_cannot_take(tmp_path):
    ledger = Ledger.open(
        f"sqlite:///{tmp_path}/z.db", dataset="d", epsilon=3, delta=1e-5, adjacency="replace_one",
        accountant="zcdp",
    )  # fmt: skip
    model = confide.certify(table(), ledger=ledger)
    for release, named in (
        ("sparse_vector", "sparse_vector"), ("laplace", "smooth_laplace"), ("ptr", "propose_test_release"),
        ("response", "response"),
    ):  # fmt: skip
        with pytest.raises(UnsupportedError, match=f"'{named}', whose own delta is 1/1000000") as problem:
            model.answer(ROWS, "0.1", "1e-6", release)
        assert "accountant='basic'" in problem.value.remedy
    for call in (lambda: model.answer(ROWS, "0.1", slack="1e-6"), lambda: model.preview(9, "0.1", slack="1e-6"),
                 lambda: model.answer(ROWS, "0.1", slack="1e-6", ledger=ledger.handle)):  # fmt: skip
        with pytest.raises(UnsupportedError, match="slack is 1e-06"):
            call()
    assert ledger.total().rho == 0
    model.answer(ROWS, "0.1")
    assert ledger.total().rho == Fraction(2, 200)  # two rows, each epsilon^2 / 2


def test_a_query_that_cannot_be_read_is_refused_before_the_charge(book):
    own = IntervalTraining((6, 1), {"learning_rate": 1.0, "clip": 0.1}, 9)
    columns = feature_columns(table().schema)
    names = tuple(name for column in columns for name in column.feature_names)
    for certificate in (own, Ensemble(own, 2)):
        model = confide.certify(table(), certificate=certificate, ledger=book)
        with pytest.raises(DataError, match="not a finite number"):
            model.answer(Encoded(np.full((1, 6), np.nan), names), 1)
    assert book.total().epsilon == 0


def test_a_ledger_of_another_table_refuses(book):
    other = Table.from_frame(
        {"x": [0.5] * 9, "y": [1.0] * 9},
        {
            "columns": {
                "x": {"role": "private", "lower": 0, "upper": 1},
                "y": {"role": "label", "lower": 0, "upper": 1},
            }
        },
    )
    confide.select(other, size=1, epsilon="0.5", ledger=book)
    with pytest.raises(LedgerError, match="other"):
        confide.certify(table(), ledger=book).answer(ROWS, 1)
    assert book.total().epsilon == Fraction(1, 2)


def test_neighbours_take_the_same_path(book):
    """Whatever one row holds: same warnings, same charge, same shapes; odd cells are in no message."""
    data = frame(200)
    odd = {name: cells.astype(object) for name, cells in data.items()}
    odd["age"][7], odd["income"][7], odd["region"][7], odd["sick"][7] = "s3cret", -1e308, None, "s3cret"
    for options in ({}, {"certificate": "votes"}, {"certificate": "interval"}):
        before = book.total().epsilon
        for held in (data, odd):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model = confide.certify(table(held), ledger=book, **options)
                model.answer(ROWS, "0.1")
            assert "s3cret" not in repr(model) + str(model.provenance) + repr(model.facts)
        assert book.total().epsilon - before == Fraction(4, 10)


def test_what_is_not_private_says_so():
    model = confide.certify(table())
    with pytest.warns(UncertifiedWarning, match="CertifiedModel.predict is not private"):
        assert model.predict(ROWS).tolist() == ["no", "yes"]


def test_bad_parameters_before_any_data(tmp_path):
    class Unread:
        schema = Schema.from_dict(schema())

        def chunks(self):
            raise AssertionError("the data were read")

    for options in (
        {"certificate": "boxes"}, {"certificate": 3}, {"model": "tree"}, {"certificate": "votes", "model": "mlp"},
        {"alpha": 0}, {"ridge": -1.0}, {"feature_norm": 0}, {"constant": -1}, {"adjacency": "rows"}, {"members": 0},
        {"members": 3}, {"adjacency": "add_remove_one"}, {"certificate": "votes", "neighbours": 0},
        {"certificate": VoteGap(5, 3, (-1, 1))}, {"random_state": "x"}, {"training_seed": -1}, {"partition_key": ""},
        {"certificate": "interval", "hidden": (), "model": "mlp"}, {"certificate": "interval", "k_max": -1},
        {"certificate": "interval", "hyperparameters": {"epochs": 1}},
        {"certificate": "votes", "alpha": 0.1}, {"certificate": "interval", "ridge": 1.0}, {"neighbours": 5},
        {"certificate": "interval", "hidden": (4,)}, {"k_max": 5}, {"certificate": "votes", "feature_norm": 1.0},
        {"certificate": VoteGap(5, 2, (-1, 1)), "adjacency": "add_remove_one"},
        {"certificate": VoteGap(5, 2, (-1, 1)), "feature_norm": 1.0}, {"certificate": "ball", "k_max": 9},
        {"certificate": "ball", "alpha": 0.1}, {"certificate": "ball", "model": "huber_hinge"},
        {"certificate": "ball", "adjacency": "add_remove_one"}, {"alpha": 0.1, "answer_epsilon": 1},
        {"certificate": "interval", "adjacency": "add_remove_one"}, {"max_rows": 0, "adjacency": "add_remove_one", "ridge": 1.0},
    ):  # fmt: skip
        with pytest.raises((ParameterError, UnsupportedError)):
            confide.certify(Unread(), **options)
        with pytest.raises((ParameterError, UnsupportedError)):
            confide.certify(Unread(), dry_run=True, **options)
    narrow = BallTraining(3, {"learning_rate": 1.0, "clip": 1.0, "clip_by": "norm"}, 2.0)
    with pytest.raises(ParameterError, match="is for 3 columns, and the schema's features encode into 6"):
        confide.certify(Unread(), certificate=narrow)
    with pytest.raises(SchemaError, match="labels alone"):
        confide.certify(Unread(), adjacency="replace_label")
    with pytest.raises(LedgerError):
        confide.certify(Unread(), ledger=f"sqlite:///{tmp_path}/none.db#d")
    with pytest.raises(ParameterError, match="CertifiedClassifier"):
        confide.certify(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("columns", "message"),
    [({"x": {"role": "private", "lower": 0, "upper": 1}}, "no label column"),
     ({"x": {"role": "private", "lower": 0, "upper": 1}, "y": {"role": "label", "lower": 0, "upper": 1}}, "is a number"),
     ({"x": {"role": "private", "lower": 0, "upper": 1}, "y": {"role": "label", "categories": ["a"]}}, "1 categories"),
     ({"y": {"role": "label", "categories": ["a", "b"]}}, "no feature column"),
     ({"x": {"role": "public", "lower": 0, "upper": 1, "missing": "reject"},
       "y": {"role": "label", "categories": ["a", "b"]}}, "rejects missing")],
)  # fmt: skip
def test_schemas_that_do_not_fit(columns, message):
    held = Table.from_frame({"x": [0.1, 0.2], "y": ["a", "b"]}, {"columns": columns})
    with pytest.raises(SchemaError, match=message):
        confide.certify(held)


@pytest.mark.parametrize("certificate", ["erm", "votes", "interval"])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
def test_odd_tables(certificate, adjacency):
    options = {"certificate": certificate, "adjacency": adjacency, "max_rows": 100}
    options |= {"ridge": 3.0} if certificate == "erm" else {}
    data = frame(40)
    one = {name: cells[:1] for name, cells in data.items()}
    none = {name: cells[:0] for name, cells in data.items()}
    alike = {**data, "sick": np.full(40, "yes")}
    strange = {
        **data,
        "sick": np.full(40, "maybe"),
        "region": np.full(40, "moon"),
        "age": np.full(40, np.nan),
    }
    missing = {**data, "sick": np.full(40, None, dtype=object)}
    for held in (one, alike, strange, missing):
        labels, k = confide.certify(table(held), **options).stability(ROWS)
        assert labels.shape == k.shape == (2,)
    labels, _ = confide.certify(table(strange), **options).stability(strange)
    assert set(labels.tolist()) == {"no"}
    if certificate == "interval" and adjacency == "replace_one":
        with pytest.raises(DataError, match="0 rows"):
            confide.certify(table(none), **options)
    else:
        labels, k = confide.certify(table(none), **options).stability(ROWS)
        assert labels.tolist() == ["no", "no"]
        assert k.tolist() == [0, 0] or certificate == "interval"


def test_declared_constants_stand_for_missing_labels():
    data = frame(60)
    data["sick"] = np.full(60, None, dtype=object)
    held = table(data, sick={"role": "label", "categories": ["no", "yes"], "impute": "yes"})
    labels, _ = confide.certify(held, ridge=1.0).stability(data)
    assert set(labels.tolist()) == {"yes"}
