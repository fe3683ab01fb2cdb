import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from confide.errors import (
    BudgetError,
    DataError,
    LedgerError,
    ParameterError,
    RefusedError,
    SchemaError,
    UncertifiedWarning,
    UnsupportedError,
)
from confide.ledger import Ledger
from confide.schema import Table
from confide.training import LinearModel, Status, forecast, train

SCHEMA = {
    "table": {"name": "wages", "declared_by": "the statistics office"},
    "columns": {
        "age": {"role": "public", "lower": 18, "upper": 80},
        "region": {"role": "public", "categories": ["north", "south", "west"]},
        "wage": {"role": "label", "lower": 0, "upper": 10},
    },
}
ASK = {"epsilon": 1, "delta": 1e-6}


def frame(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"age": rng.uniform(18, 80, n), "region": rng.choice(["north", "south", "west"], n)})
    wage = data.age / 20 + (data.region == "south") + rng.normal(size=n)
    return data.assign(wage=wage.clip(0, 10))


def with_column(name, spec):
    return {**SCHEMA, "columns": {**SCHEMA["columns"], name: spec}}


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open(
        f"sqlite:///{tmp_path}/ledger.db", dataset="wages", epsilon=2, delta=1e-5, adjacency="replace_label"
    )


class Watched:
    """A table that tells whether anything but its schema was read."""

    def __init__(self, table, allow_public=False):
        self._table, self.read, self._public = table, [], allow_public
        self.schema, self.label_bounds, self.unit = table.schema, table.label_bounds, table.unit

    def chunks(self):
        yield self

    @property
    def public(self):
        self.read.append("public")
        return self._table.public

    @property
    def label(self):
        self.read.append("label")
        return self._table.label

    def content_tag(self, key):
        self.read.append("label")  # a tag covers every cell
        return self._table.content_tag(key)


def test_dry_run_charges_nothing_and_tells_exactly_what_will_be(ledger):
    table = Watched(Table.from_frame(frame(), SCHEMA))
    guarantee = train(table, **ASK, ledger=ledger, dry_run=True)
    assert set(table.read) == {"public"}  # public rows decide how many rounds share the budget
    assert ledger.total().epsilon == 0
    result = train(table, **ASK, ledger=ledger)
    assert result.guarantee == guarantee
    assert [part.mechanism for part in guarantee.event.parts] == ["gaussian"] * 5
    told = train(table, **ASK, ledger=ledger, engine="closed_form", dry_run=True)
    assert train(table, **ASK, ledger=ledger, engine="closed_form").guarantee == told
    assert told.event.mechanism == "gaussian"
    assert guarantee.declaration == table.schema.declaration
    assert guarantee.unconditional
    assert str(ledger.total().epsilon) == "2"


def test_the_label_is_read_after_the_charge_and_never_when_refused(ledger):
    table = Watched(Table.from_frame(frame(), SCHEMA))
    with pytest.raises(BudgetError):
        train(table, epsilon=5, delta=1e-6, ledger=ledger)
    assert "label" not in table.read
    seen = []
    real = Watched.label.fget

    class Later(Watched):
        @property
        def label(self):
            seen.append(str(ledger.total().epsilon))
            return real(self)

        def content_tag(self, key):
            seen.append(str(ledger.total().epsilon))
            return super().content_tag(key)

    train(Later(Table.from_frame(frame(), SCHEMA)), **ASK, ledger=ledger)
    assert set(seen) == {"1"}


def test_the_ledger_knows_which_table_was_charged_and_refuses_other_secrets(ledger):
    first = train(Table.from_frame(frame(), SCHEMA), epsilon=0.5, delta=1e-6, ledger=ledger)
    assert [charge["id"] for charge in ledger.show()["charges"]] == [first.entry]
    train(Table.from_frame(frame(seed=1), SCHEMA), epsilon=0.5, delta=1e-6, ledger=ledger)
    assert [version["version"] for version in ledger.show()["versions"]] == [1, 2]
    # Fewer public columns protect the same labels; another label does not.
    fewer = {**SCHEMA, "columns": {name: SCHEMA["columns"][name] for name in ("age", "wage")}}
    train(Table.from_frame(frame(), fewer), epsilon=0.25, delta=1e-6, ledger=ledger)
    other = {**SCHEMA, "columns": {**fewer["columns"], "age": {**SCHEMA["columns"]["age"], "role": "label"},
                                   "wage": {**SCHEMA["columns"]["wage"], "role": "public"}}}  # fmt: skip
    spent = ledger.total()
    with pytest.raises(LedgerError, match="other secrets"):
        train(Table.from_frame(frame(), other), epsilon=0.25, delta=1e-6, ledger=ledger)
    assert ledger.total() == spent


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_label_of_a_file_is_parsed_after_the_charge(ledger, tmp_path, monkeypatch, suffix, chunked):
    from confide.schema import table as module

    path = tmp_path / f"wages.{suffix}"
    frame().to_csv(path, index=False) if suffix == "csv" else frame().to_parquet(path)
    parsed = []
    real = module._clean

    def spy(column, *rest):
        parsed.append((column.role, str(ledger.total().epsilon)))
        return real(column, *rest)

    monkeypatch.setattr(module, "_clean", spy)
    table = Table.scan(path, SCHEMA, chunk_rows=700) if chunked else Table.read(path, SCHEMA)
    with pytest.raises(BudgetError):
        train(table, epsilon=5, delta=1e-6, ledger=ledger)
    assert {role for role, _ in parsed} == {"public"}
    train(table, **ASK, ledger=ledger)
    assert {spent for role, spent in parsed if role == "label"} == {"1"}


def test_a_crash_after_the_charge_keeps_it(ledger):
    class Broken(Watched):
        @property
        def label(self):
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        train(Broken(Table.from_frame(frame(), SCHEMA)), **ASK, ledger=ledger)
    assert str(ledger.total().epsilon) == "1"


def test_result_round_trips_and_explains_itself(tmp_path):
    table = Table.from_frame(frame(), SCHEMA)
    result = train(table, **ASK)
    assert result.status is Status.RELEASED
    assert list(result.coefficients)[:2] == ["(intercept)", "age"]
    assert set(result.coefficients) == set(result.standard_errors) == set(result.unbiased)
    assert result.covariance.shape == (len(result.coefficients),) * 2
    for name, error in result.noise_errors.items():
        assert error <= result.standard_errors[name]
    data = json.loads(result.to_json())
    assert data["guarantee"]["adjacency"] == "replace_label"
    assert data["statistics"]["rows"] == 2000
    path = tmp_path / "model.json"
    result.model.save(path)
    model = LinearModel.load(path)
    np.testing.assert_array_equal(model.predict(table), result.predict(table))
    assert model.schema_digest == table.schema.digest
    # age: half-width 31 years, a twentieth of a unit each.
    assert result.unbiased["age"] == pytest.approx(31 / 20, abs=5 * result.standard_errors["age"])
    with pytest.raises(DataError, match="format"):
        LinearModel.from_dict({"format": "pickle"})
    with pytest.raises(DataError, match="finite"):
        LinearModel.from_dict({**model.to_dict(), "intercept": float("nan")})
    with pytest.raises(DataError, match="shape"):
        model.predict(np.ones((2, 1)))
    other = Table.from_frame(
        frame().assign(x=0.0), with_column("x", {"role": "public", "lower": 0, "upper": 1})
    )
    with pytest.raises(DataError, match="schema of the fit"):
        model.predict(other)


def test_noise_error_is_what_noise_does():
    table = Table.from_frame(frame(500), SCHEMA)
    exact = train(table, epsilon=1e6, delta=0.1, shrinkage=False, random_state=0)
    result = train(table, **ASK, shrinkage=False, random_state=0)
    assert (
        result.noise_error(1)
        > result.noise_error(2)
        > result.noise_error(8)
        > result.noise_error(np.inf)
        == 0
    )
    # The geometry depends on epsilon, the fit hardly.
    X = table.public.matrix
    squares = []
    for seed in range(60):
        noisy = train(table, **ASK, shrinkage=False, random_state=seed)
        gap = np.array(list(noisy.unbiased.values())) - np.array(list(exact.unbiased.values()))
        squares.append(np.mean((gap[0] + X @ gap[1:]) ** 2))
    assert np.sqrt(np.mean(squares)) == pytest.approx(result.noise_error(1), rel=0.25)
    with pytest.raises(ParameterError, match="delta"):
        train(table, epsilon=np.inf, delta=0, nonprivate=True).noise_error(1)


def test_chunked_tables_give_the_same_fit(tmp_path):
    path = tmp_path / "wages.parquet"
    frame(10_000).to_parquet(path)
    whole = train(Table.read(path, SCHEMA), **ASK, random_state=3)
    parts = train(Table.scan(path, SCHEMA, chunk_rows=999), **ASK, random_state=3)
    for name, value in whole.coefficients.items():
        assert parts.coefficients[name] == pytest.approx(value, abs=1e-5)
    assert parts.guarantee == whole.guarantee


def test_persons(tmp_path):
    data = frame(3000).assign(person=np.repeat(np.arange(1000), 3))
    spec = with_column("person", {"role": "id"})
    spec["table"] = {**SCHEMA["table"], "max_rows_per_id": 3}
    table = Table.from_frame(data, spec)
    result = train(table, **ASK)
    assert result.guarantee.unit == "person"
    assert "one person" in str(result.guarantee)
    rows = train(Table.from_frame(data.drop(columns="person"), SCHEMA), **ASK)
    assert 2 * rows.statistics.sensitivity < result.statistics.sensitivity <= 3.001 * 10
    path = tmp_path / "persons.parquet"
    data.sample(frac=1, random_state=0).to_parquet(path)
    chunked = train(Table.scan(path, spec, chunk_rows=100), **ASK)
    assert chunked.statistics.sensitivity == pytest.approx(result.statistics.sensitivity, rel=0.02)


@pytest.mark.parametrize("engine", ["rounds", "closed_form"])
def test_a_chunk_whose_rows_are_all_beyond_the_limit_of_their_persons_is_empty(engine, tmp_path):
    # Rows 100 to 199 are of persons who have all their rows before.
    data = frame(300).assign(person=np.r_[np.arange(100), np.arange(100), np.arange(100, 200)])
    spec = with_column("person", {"role": "id"})
    spec["table"] = {**SCHEMA["table"], "max_rows_per_id": 1}
    path = tmp_path / "persons.parquet"
    data.to_parquet(path)
    whole, parts = (
        train(table, **ASK, engine=engine, random_state=3)
        for table in (Table.read(path, spec), Table.scan(path, spec, chunk_rows=100))
    )
    assert parts.guarantee == whole.guarantee
    for name, value in whole.coefficients.items():
        assert parts.coefficients[name] == pytest.approx(value, abs=1e-5)


def test_private_columns_need_their_relation(tmp_path):
    schema = with_column("illness", {"role": "private", "lower": 0, "upper": 1})
    table = Watched(Table.from_frame(frame().assign(illness=0.5), schema))
    with pytest.raises(UnsupportedError, match=r"illness.*replace_private_part"):
        train(table, **ASK)
    with pytest.raises(UnsupportedError, match="replace_label"):
        train(table, **ASK, adjacency="replace_label")
    assert table.read == []
    with pytest.warns(UncertifiedWarning, match="illness"):
        result = train(table, **ASK, adjacency="replace_private_part")
    assert result.guarantee.adjacency.value == "replace_private_part"
    assert "illness" not in result.coefficients


@pytest.mark.parametrize("adjacency", ["add_remove_one", "replace_one"])
def test_relations_that_hide_public_columns_are_refused(adjacency):
    table = Watched(Table.from_frame(frame(), SCHEMA))
    with pytest.raises(UnsupportedError) as info:
        train(table, **ASK, adjacency=adjacency)
    assert "replace_label" in info.value.remedy
    assert table.read == []


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon": None},
        {"epsilon": 0},
        {"delta": 0},
        {"delta": None},
        {"engine": "rounds?"},
        {"conditioning": "best"},
        {"epsilon": float("inf")},
        {"epsilon": "abc"},
    ],
)
def test_bad_requests_touch_neither_data_nor_ledger(bad, ledger):
    table = Watched(Table.from_frame(frame(), SCHEMA))
    with pytest.raises((ParameterError, UnsupportedError)):
        train(table, **{**ASK, **bad}, ledger=ledger)
    assert table.read == []
    assert ledger.total().epsilon == 0


def test_what_public_facts_refuse_is_refused_before_the_charge(ledger, tmp_path, monkeypatch):
    from confide.training import PrivateRegressor, closed_form

    X = np.random.default_rng(0).uniform(size=(50, 2))
    for bounds in ((-1e306, 1e306), (0, 1e-310), (-1e160, 1e160), (1.7e18, 1.7e18 + 1280)):
        with pytest.raises(ParameterError, match="label bounds"):
            PrivateRegressor(1, 1e-6, target_bounds=bounds, ledger=ledger).fit(X, np.zeros(50))
    spec = with_column("wage", {"role": "label", "lower": 1.7e18, "upper": 1.7e18 + 1280})
    table = Watched(Table.from_frame(frame(), spec))
    for dry_run in (True, False):
        with pytest.raises(ParameterError, match="too close"):
            train(table, **ASK, ledger=ledger, dry_run=dry_run)
    assert table.read == []
    # Noise that no grid can hold.
    monkeypatch.setattr(closed_form, "_WIDEST", 1.0)
    table = Watched(Table.from_frame(frame(), SCHEMA))
    with pytest.raises(ParameterError, match="grid"):
        train(table, **ASK, ledger=ledger)
    assert "label" not in table.read
    assert ledger.total().epsilon == 0


def test_no_label_column():
    schema = {**SCHEMA, "columns": {k: v for k, v in SCHEMA["columns"].items() if k != "wage"}}
    with pytest.raises(SchemaError, match="label"):
        train(_Unlabelled(Table.from_frame(frame(), schema)), **ASK)


class _Unlabelled:
    label_bounds = (0, 1)

    def __init__(self, table):
        self.schema, self.unit = table.schema, table.unit


def test_seeded_fits_are_refused_by_a_ledger(ledger):
    from confide.errors import RefusedError

    with pytest.raises(RefusedError):
        train(Table.from_frame(frame(), SCHEMA), **ASK, ledger=ledger, random_state=1)
    assert ledger.total().epsilon == 0


@pytest.mark.parametrize("label", [np.nan, np.inf, -np.inf, 1e9])
def test_neighbours_cost_and_answer_alike(label, tmp_path):
    costs = []
    for i, value in enumerate((1.0, label)):
        data = frame(300)
        data.loc[5, "wage"] = value
        book = Ledger.open(
            f"sqlite:///{tmp_path}/{i}.db", dataset="wages", epsilon=2, delta=1e-5, adjacency="replace_label"
        )
        result = train(Table.from_frame(data, SCHEMA), **ASK, ledger=book)
        costs.append((str(result.guarantee), str(book.total()), result.status, result.statistics.sensitivity))
    assert costs[0] == costs[1]


def test_polynomials_of_public_columns():
    from scipy import sparse

    from confide.training.expansion import expand, powers_of

    table = Table.from_frame(frame(4000), SCHEMA)
    result = train(table, epsilon=20, delta=1e-6, degree=3)
    assert result.model.terms[-2:] == ("age^2", "age^3")
    assert list(result.coefficients) == ["(intercept)", *result.model.terms]
    plain = train(table, epsilon=20, delta=1e-6)
    errors = [np.mean((r.predict(table) - table.label) ** 2) for r in (result, plain)]
    assert errors[0] < 1.02 * errors[1]
    X = table.public.matrix
    powers = powers_of([0], 3)
    np.testing.assert_allclose(expand(sparse.csr_matrix(X), powers).toarray(), expand(X, powers))
    for bad in (0, 11, 1.5, True, "2"):
        with pytest.raises(ParameterError, match="degree"):
            train(table, **ASK, degree=bad)


def test_a_forecast_is_the_noise_of_the_fit_and_reads_no_label():
    table = Watched(Table.from_frame(frame(), SCHEMA))
    told = forecast(table, (0.5, 2), delta=1e-6, degree=2)
    assert "label" not in table.read
    assert [row.epsilon for row in told] == [0.5, 2.0]
    for row in told:
        fit = {"epsilon": row.epsilon, "delta": 1e-6, "degree": 2, "engine": "closed_form"}
        result = train(Table.from_frame(frame(), SCHEMA), **fit)
        assert row.noise_error == pytest.approx(result.noise_error(row.epsilon), rel=1e-3)
        assert row.rows == 2000
        assert row.engine == "closed_form"
        assert "closed_form" in str(row)


def test_a_forecast_refuses_what_closed_form_does_not_fit():
    classes = with_column("wage", {"role": "label", "categories": ["low", "high"]})
    with pytest.raises(UnsupportedError, match="number"):
        forecast(Table.from_frame(frame(), classes), (1,), delta=1e-6)
    secret = {**SCHEMA, "columns": {name: {**spec, "role": spec["role"].replace("public", "private"),
                                           "missing": "impute"} for name, spec in SCHEMA["columns"].items()}}  # fmt: skip
    with pytest.raises(UnsupportedError, match="private"):
        forecast(Table.from_frame(frame(), secret), (1,), delta=1e-6)


def test_a_delta_near_one_over_n_is_warned_of(ledger):
    with pytest.warns(UserWarning, match="publishes one row"):
        train(Table.from_frame(frame(), SCHEMA), epsilon=1, delta=0.01)


def test_a_dry_run_meets_the_refusal_that_the_charge_would(ledger):
    table = Watched(Table.from_frame(frame(), SCHEMA))
    with pytest.raises(RefusedError, match="does not fit"):
        train(table, epsilon=5, delta=1e-6, ledger=ledger, dry_run=True)
    with pytest.raises(ParameterError, match="from_frame"):
        train(frame(), epsilon=1, delta=1e-6)
    assert "label" not in table.read
    assert ledger.total().epsilon == 0


def test_a_model_loads_from_the_file_of_a_result_too(tmp_path):
    result = train(Table.from_frame(frame(), SCHEMA), epsilon=1, delta=1e-6)
    (tmp_path / "result.json").write_text(result.to_json())
    result.model.save(tmp_path / "model.json")
    for name in ("result.json", "model.json"):
        assert LinearModel.load(tmp_path / name).to_dict() == result.model.to_dict()
    assert str(result.guarantee) in str(result)


@pytest.mark.parametrize("persons", [False, True])
def test_new_rows_need_neither_label_nor_id(tmp_path, persons):
    data, declared = frame(300).assign(who=np.arange(300) // 5), SCHEMA
    if persons:
        declared = with_column("who", {"role": "id"})
        declared = {**declared, "table": {**declared["table"], "max_rows_per_id": 2}}
    table = Table.from_frame(data, declared)
    result = train(table, epsilon=1, delta=1e-6, degree=2)
    new = data[["region", "age"]]
    want = result.predict(new)
    assert want.shape == (300,)  # one for each row, whatever the schema keeps for a fit
    kept = table.kept if persons else slice(None)
    np.testing.assert_array_equal(result.predict(table), want[kept])
    new.to_parquet(tmp_path / "new.parquet")
    new.to_csv(tmp_path / "new.csv", index=False)
    result.model.save(tmp_path / "model.json")
    model = LinearModel.load(tmp_path / "model.json")
    sources = (str(tmp_path / "new.parquet"), tmp_path / "new.csv", pl.from_pandas(new), new.to_dict("list"))
    for source in sources:
        np.testing.assert_array_equal(model.predict(source), want)
    chunked = Table.scan(tmp_path / "new.csv", table.schema.features(), chunk_rows=70)
    np.testing.assert_array_equal(model.predict(chunked), want)
    with pytest.raises(DataError, match="region"):
        model.predict(new[["age"]])
    with pytest.raises(DataError, match="no column 'x'"):
        LinearModel(0.0, np.zeros(1), ("x",), (0, 1)).predict(new)


def test_a_table_without_public_columns_gives_the_private_mean():
    label_only = {**SCHEMA, "columns": {"wage": SCHEMA["columns"]["wage"]}}
    data = frame(500)
    result = train(Table.from_frame(data, label_only), epsilon=1, delta=1e-6)
    predictions = result.predict(Table.from_frame(data, label_only))
    assert np.ptp(predictions) == 0
    assert predictions[0] == pytest.approx(data.wage.mean(), abs=0.5)
