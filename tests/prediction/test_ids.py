"""What ids name, and that no cell of theirs decides an exception or another row's place."""

import datetime
import uuid
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier

from confide.errors import DataError
from confide.prediction import (
    CertifiedClassifier,
    Ensemble,
    Persons,
    StronglyConvexERM,
    TeacherVotes,
    VoteGap,
)
from confide.prediction.certificate import hashes, id_digests, id_hash, row_hash
from confide.prediction.ids import names
from confide.prediction.intervals.batches import HashedBatches
from confide.prediction.intervals.certificate import IntervalTraining
from confide.privacy import Adjacency
from confide.schema import Table, cells

from .helpers import blobs, check_neighbours

BOUNDS = (-1, 1)
TREE = DecisionTreeClassifier(max_depth=2, random_state=0)
ADD, REPLACE = Adjacency.ADD_REMOVE_ONE, Adjacency.REPLACE_ONE


class Odd:
    """A cell that nothing can be done with."""

    def __getattribute__(self, name):
        raise RuntimeError("a cell")

    __hash__ = None


NONE = [None, float("nan"), np.float32("nan"), Decimal("nan"), Decimal("sNaN"), pd.NA, pd.NaT, np.datetime64("NaT"),
        "", "  ", "NA", "nan", "None", b"", b" ", Odd(), object(), 1j, [], (), ("a", None), {1}, {"a": 1},
        np.zeros(3), pd.Period("2020"), np.ma.masked, (("a",), 1)]  # fmt: skip
SAME = [
    [1, True, 1.0, np.int8(1), np.uint64(1), np.float32(1), np.bool_(True), Decimal("1.0"), Fraction(1), [1], (1.0,),
     np.array([1])],
    [1.5, np.float32(1.5), Decimal("1.50"), Fraction(3, 2)],
    [10**5000, 10**5000 + 0],
    [2**70, Decimal(2**70)],
    ["p1", np.str_("p1"), ["p1"], pa.scalar("p1")],
    [b"p1", bytearray(b"p1"), np.bytes_(b"p1")],
    [datetime.date(2020, 1, 2), pd.Timestamp("2020-01-02"), np.datetime64("2020-01-02")],
    [("a", 1), ["a", True]],
]  # fmt: skip
OTHERS = ["1", b"1", "i1", "1.0", "True", "01", " p1", "2020-01-02", "P1", "\ud800", 0, -1, 2, float("inf"), 10**5000 + 1,
          uuid.UUID(int=1), datetime.time(1), ("a", "1"), ("a", 1, 1), ("a1",) * 2, "a1", -0.5, np.nextafter(1, 2)]  # fmt: skip


def test_cells_that_are_no_id():
    for cell in NONE:
        assert names([cell, 1]) == [None, b"i1"]


def test_ids_are_equal_as_python_compares_them():
    found = [set(names(cells)) for cells in SAME]
    assert all(len(group) == 1 for group in found)
    alone = [*set.union(*found), *names(OTHERS)]
    assert None not in alone
    assert len(set(alone)) == len(SAME) + len(OTHERS)
    assert names([0.0, -0.0, False, 0]) == [b"i0"] * 4


@pytest.mark.parametrize("label", ["to_native", "type", "tocsr", "names"])
def test_the_index_of_ids_decides_nothing(label):
    assert names(pd.Series([1, 2], index=[label, "b"])) == [b"i1", b"i2"]


def test_text_is_missing_where_a_table_says_so():
    for text in (
        "x",
        "NA ",
        "n/a",
        "#N/A",
        "NaT",
        "<na>",
        "null",
        "1",
        "true",
        "1e+03",
        "",
        "\t",
        "nan1",
        "-",
    ):
        assert (names([text])[0] is None) == cells.label(text)[1]
    X, _ = blobs(40)
    who = [None if i % 5 == 0 else float("nan") if i % 5 == 1 else f"p{i // 2}" for i in range(40)]
    frame = pd.DataFrame({"who": np.array(who, dtype=object), "a": X[:, 0]})
    schema = {"columns": {"who": {"role": "id"}, "a": {"role": "private", "lower": -1, "upper": 1}},
              "table": {"max_rows_per_id": 2}}  # fmt: skip
    kept = Table.from_frame(frame, schema)
    assert kept.ids is not None
    assert kept.ids.size == sum(name is not None for name in names(who)) == 24


@pytest.mark.parametrize(
    "make",
    [np.array, list, tuple, pd.Series, pl.Series, pa.array, lambda v: np.array(v, dtype=object),
     lambda v: pd.Series(v, dtype="Int64"), lambda v: pd.Series(v, dtype="category"),
     lambda v: pd.Series(v, dtype="int64[pyarrow]"), lambda v: pa.array(v).dictionary_encode()],
)  # fmt: skip
def test_whole_numbers_of_any_source_are_the_same_ids(make):
    assert names(make([3, 1, 3])) == [b"i3", b"i1", b"i3"]
    assert len(id_digests(make([3, 1, 3]), "k")) == 3


FLOATS = [1.0, 2.0]
REFUSED = [
    np.array(FLOATS), np.array([True, False]), np.array([1j, 2j]), np.array(["2020-01-01"] * 2, "M8[D]"),
    np.array([1, 2], "m8[s]"), pd.Series(FLOATS), pd.Series([1, None]), pd.Series(FLOATS, dtype="Float64"),
    pd.Series(FLOATS, dtype="category"), pd.Series(pd.to_datetime(["2020-01-01"] * 2)), pl.Series(FLOATS),
    pl.Series([True, False]), pa.array(FLOATS), pa.array([True, False]), pa.array(FLOATS).dictionary_encode(),
    np.array([[1], [2]]), pd.DataFrame({"a": [1, 2]}), np.array(1), "ab", b"ab", {1, 2}, {1: 1, 2: 2}, iter([1, 2]), 2,
]  # fmt: skip


@pytest.mark.parametrize("ids", REFUSED, ids=lambda ids: f"{type(ids).__name__} {getattr(ids, 'dtype', '')}")
def test_what_is_declared_is_refused(ids):
    X, y = blobs(2)
    with pytest.raises(DataError, match=r"The ids (are|have)"):
        names(ids)
    for relation in ("add_remove_one", "replace_one"):
        model = CertifiedClassifier([0, 1], BOUNDS, ridge=1.0, adjacency=relation)
        with pytest.raises(DataError, match=r"The ids (are|have)"):
            model.fit(X, y, ids=ids)


def doors(relation):
    """All that read ids, as their unit counts them: names, certificates, largest number of rows of an id."""
    erm = StronglyConvexERM(5.0, adjacency=relation, curvature_levels=0)
    votes = VoteGap(5, 2, BOUNDS, relation)
    found = {
        "votes": votes,
        "teachers": TeacherVotes(TREE, 3, 2, BOUNDS, relation),
        "ensemble": Ensemble(erm, 3),
        "ensemble of votes": Ensemble(votes, 3),
        "persons": Persons(erm, 2),
        "persons, votes": Persons(votes, 2),
        "persons, teachers": Persons(TeacherVotes(TREE, 3, 2, BOUNDS, relation), 2),
        "ensemble of persons": Ensemble(Persons(votes, 2), 3),
        "estimator": CertifiedClassifier([0, 1], BOUNDS, ridge=5.0, adjacency=relation, max_rows_per_id=2),
        "estimator, votes": CertifiedClassifier([0, 1], BOUNDS, certificate="votes", adjacency=relation),
    }
    if relation == "add_remove_one":
        settings = {"learning_rate": 0.5, "clip": 0.1, "epochs": 1}
        found["batches"] = IntervalTraining(
            [2, 2], settings, 8, relation, init=np.zeros(6), batches=HashedBatches(3, 10)
        )
    return found


@pytest.mark.parametrize("relation", ["add_remove_one", "replace_one"])
@pytest.mark.parametrize("name", doors("add_remove_one"))
def test_no_cell_is_refused(name, relation):
    if name not in doors(relation):
        return
    X, y = blobs(20)
    queries = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    for odd in ([None], [1.5], [True], [Odd()], [float("nan")], NONE[:20], OTHERS[:20]):
        ids = [*odd, *(f"q{i}" for i in range(20 - len(odd)))]
        for given in (ids, pd.Series(ids, dtype=object)):
            doors(relation)[name].fit(X, y, ids=given).stability(queries)


def test_a_row_without_an_id_stands_for_itself():
    X, y = blobs(30)
    holes = np.arange(30) % 3 == 0
    ids = [None if hole else f"p{i}" for i, hole in enumerate(holes)]
    named = id_hash([f"p{i}" for i in range(30)], "k")
    assert np.array_equal(hashes(X, y, ids, ADD, "k"), np.where(holes, row_hash(X, y, "k"), named))
    assert np.array_equal(hashes(X, y, ids, REPLACE, "k"), np.where(holes, id_hash(range(30), "k"), named))
    assert np.array_equal(hashes(X, y, [None] * 30, ADD, "k"), hashes(X, y, None, ADD, "k"))
    assert np.array_equal(id_digests(ids, "k") == b"", holes)
    digests = id_digests(ids, "k")
    assert np.array_equal(id_digests(digests, "k") == b"", holes)  # what is no id stays none inside a part
    # In the parts of an ensemble too: each has its own name there, whatever the others have.
    seen = []

    class Spy:
        adjacency, classes = "add_remove_one", 2

        def fit(self, X, y, *, ids=None):
            seen.append({(row.tobytes(), name) for row, name in zip(X, ids, strict=True)})
            return StronglyConvexERM(1.0).fit(X, y)

        def __deepcopy__(self, memo):
            return self

    Ensemble(Spy(), 1).fit(X, y, ids=ids)
    Ensemble(Spy(), 1).fit(X[1:], y[1:], ids=ids[1:])
    assert seen[0] > seen[1]
    assert len({name for _, name in seen[0]}) == 30


@pytest.mark.parametrize("relation", ["add_remove_one", "replace_one"])
@pytest.mark.parametrize("name", ["persons", "persons, votes", "persons, teachers", "ensemble of persons"])
def test_a_row_without_an_id_is_no_persons(name, relation):
    X, y = blobs(60)
    queries = np.random.default_rng(1).uniform(-1, 1, (50, 2))
    holes = np.arange(60) % 4 == 1
    ids = np.array([f"p{i // 2}" for i in range(60)], dtype=object)
    ids[holes] = [None, float("nan"), "NA"] * 5
    certificate = doors(relation)[name]
    here = certificate.fit(X, y, ids=ids).stability(queries)
    there = certificate.fit(X[~holes], y[~holes], ids=ids[~holes]).stability(queries)
    assert np.array_equal(here, there)
    assert here[1].any()


@pytest.mark.parametrize("name", doors("add_remove_one"))
def test_units_with_odd_ids_come_and_go(name):
    """k is sound and moves by 1 at most where rows of any ids are added, and where they all leave again."""
    certificate = doors("add_remove_one")[name]
    if name.startswith("estimator"):
        return
    rng = np.random.default_rng(2)
    X, y = blobs(60)
    queries = rng.uniform(-1, 1, (60, 2))
    cells = [*NONE, *(cell for group in SAME for cell in group), *OTHERS]
    most = 2 if getattr(certificate, "unit", "row") == "person" else 1
    lasting = [f"p{i // most}" for i in range(60)]
    before = certificate.fit(X, y, ids=lasting).stability(queries)
    for _ in range(12):
        ids, rows, labels = list(lasting), X, y
        last = before
        for odd in (cells[i] for i in rng.permutation(len(cells))[:3]):
            count = 1 if names([odd])[0] is None else most
            new, place = rng.uniform(-1, 1, (count, 2)), int(rng.integers(len(ids)))
            known = names(ids)
            if names([odd])[0] is not None and names([odd])[0] in known:
                continue
            rows, labels = np.insert(rows, place, new, 0), np.insert(labels, place, rng.integers(0, 2, count))
            ids = [*ids[:place], *[odd] * count, *ids[place:]]
            told = certificate.fit(rows, labels, ids=ids).stability(queries)
            assert np.abs(told[1] - last[1]).max() <= 1
            turned = told[0] != last[0]
            assert not np.any(told[1][turned])
            assert not np.any(last[1][turned])
            last = told
    assert before[1].max() >= 1


def test_rows_of_every_kind_of_id_have_both_properties():
    X, y = blobs(40)
    queries = np.random.default_rng(3).uniform(-1, 1, (60, 2))
    ids = [OTHERS[i] if i < len(OTHERS) else None for i in range(40)]
    for name, certificate in doors("replace_one").items():
        if name in ("votes", "teachers", "ensemble", "ensemble of votes"):
            done, _ = check_neighbours(certificate, X, y, queries, adjacency="replace_one",
                                       rng=np.random.default_rng(4), pairs=5, steps=2, ids=ids)  # fmt: skip
            assert done


def test_missing_ids_do_not_repeat_and_equal_ones_do():
    X, y = blobs(4)
    model = CertifiedClassifier([0, 1], BOUNDS, certificate="votes", neighbours=1)
    model.fit(X, y, ids=[None, None, float("nan"), "a"])
    with pytest.raises(DataError, match="max_rows_per_id"):
        model.fit(X, y, ids=[1, True, 2, 3])
    model.fit(X, y, ids=[1, "1", b"1", 2])
    with pytest.raises(DataError, match="not one id for each row"):
        model.fit(X, y, ids=[1, 2, 3])
