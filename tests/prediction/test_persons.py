"""Persons of several rows: the two properties for a person's change, which rows are kept, what is divided."""

import itertools

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from confide.errors import DataError, ParameterError
from confide.prediction import (
    BallTraining,
    Ensemble,
    FixedBatches,
    HashedBatches,
    IntervalTraining,
    Persons,
    StronglyConvexERM,
    TeacherVotes,
    VoteGap,
    ensemble_distance,
    vote_gap,
)
from confide.prediction.certificate import Certificate, Certified, id_digests
from confide.prediction.erm import lengths
from confide.prediction.erm_steps import steps_of
from confide.prediction.intervals import HybridTraining
from confide.prediction.persons import PerPerson, kept, per_person

from .attacks import score  # isort: skip
from .helpers import blobs  # isort: skip

BOUNDS = (-1, 1)
TREE = DecisionTreeClassifier(max_depth=3, random_state=0)
SETTINGS = {"learning_rate": 2.0, "clip": 0.1}


def people(persons, most, seed=0, classes=2, spread=0.2):
    """A table whose persons have 1 ... 2 most rows each, in any order."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(persons), rng.integers(1, 2 * most + 1, persons))
    X, y = blobs(ids.size, classes=classes, seed=seed, spread=spread)
    order = rng.permutation(ids.size)
    return X, y, ids[order]


def change_person(X, y, ids, adjacency, classes, rng, most):
    """One random change of one person: rows far away, too many of them, equal ones, unusable ones."""
    X, y, ids = X.copy(), y.copy(), ids.copy()

    def rows(count):
        cells = rng.uniform(-1, 1, (count, X.shape[1])) * rng.choice([1, 1, 1e6, 1e308])
        return np.repeat(cells[:1], count, 0) if rng.random() < 0.3 else cells

    if adjacency == "add_remove_one":
        if rng.random() < 0.5:
            here = ids != rng.choice(ids)
            return X[here], y[here], ids[here]
        count = int(rng.integers(1, 2 * most + 1))
        places = rng.integers(0, len(y) + 1, count)
        new = 10_000 + int(rng.integers(10_000))
        return (np.insert(X, places, rows(count), 0), np.insert(y, places, rng.integers(0, classes, count)),
                np.insert(ids, places, new))  # fmt: skip
    mine = np.flatnonzero(ids == rng.choice(ids))
    y[mine] = rng.integers(0, classes) if rng.random() < 0.7 else rng.integers(0, classes, mine.size)
    if adjacency != "replace_label":
        X[mine] = rows(mine.size)
    return X, y, ids


def check_persons(certificate, table, Q, most, rng, pairs=6, steps=2):
    """The two properties along walks of persons' changes; the number of checks and the largest distance."""
    relation, classes = certificate.adjacency.value, certificate.classes
    first = certificate.fit(*table[:2], ids=table[2]).stability(Q)
    checks = 0
    for _ in range(pairs):
        here, (labels, k) = table, first
        for step in range(1, steps + 1):
            here = change_person(*here, relation, classes, rng, most)
            new_labels, new_k = certificate.fit(*here[:2], ids=here[2]).stability(Q)
            assert np.abs(new_k - k).max() <= 1
            turned = new_labels != labels
            assert not np.any(k[turned])
            assert not np.any(new_k[turned])
            safe = first[1] >= step
            assert np.array_equal(new_labels[safe], first[0][safe])
            labels, k = new_labels, new_k
            checks += k.size
    return checks, int(first[1].max())


def certificates(relation, classes):
    erm = {"adjacency": relation, "feature_norm": 1.0, "max_rows": 10_000, "curvature_levels": 24}
    plain = StronglyConvexERM(3.0, classes, **erm)
    batches = HashedBatches(1, 200) if relation == "add_remove_one" else None
    some = HashedBatches(2, 100) if relation == "add_remove_one" else FixedBatches(3)
    layers = [2, classes]
    interval = IntervalTraining(layers, SETTINGS, 40, relation, init=np.zeros(3 * classes), batches=batches)
    batched = IntervalTraining(layers, SETTINGS, 24, relation, init=np.zeros(3 * classes), batches=some)
    found = {
        "erm": plain,
        "votes": VoteGap(25, classes, BOUNDS, relation),
        "teachers": TeacherVotes(TREE, 9, classes, BOUNDS, relation),
        "interval": interval,
        "batches": batched,
        "epoch": IntervalTraining(layers, SETTINGS, 12, relation, init=np.zeros(3 * classes), batches=some,
                                  budget="epoch"),
        "ensemble": Ensemble(plain, 5),
        "ensemble of votes": Ensemble(VoteGap(9, classes, BOUNDS, relation), 5),
        "ensemble of intervals": Ensemble(batched, 3),
    }  # fmt: skip
    by_norm = {"learning_rate": 1.0, "clip": 2.01, "epochs": 4, "clip_by": "norm"}
    found["ball"] = BallTraining(2, by_norm, 1.0, relation, batches=some, classes=classes)
    if classes == 2:
        found["hybrid"] = HybridTraining(
            [2, 3, 1], {**by_norm, "clip": 0.2, "epochs": 1}, 16, relation, batches=some
        )
    return found


CASES = [
    (relation, classes, name)
    for relation, classes in itertools.product(("add_remove_one", "replace_one", "replace_label"), (2, 3))
    for name in certificates(relation, classes)
]


@pytest.mark.parametrize(("relation", "classes", "name"), CASES)
def test_persons_are_sound_and_lipschitz(relation, classes, name):
    rng = np.random.default_rng(len(name))
    informative = 0
    for most in (2, 4):
        certificate = Persons(certificates(relation, classes)[name], most)
        table = people(80, most, seed=most, classes=classes)
        checks, largest = check_persons(certificate, table, rng.uniform(-1, 1, (150, 2)), most, rng, pairs=3)
        assert checks == 900
        informative += largest
    assert informative >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "classes", "name"), CASES)
def test_persons_at_length(relation, classes, name):
    """More than 60 cases of 3,600 checks: above 200,000."""
    rng = np.random.default_rng(7)
    checks = 0
    for most in (2, 3, 5):
        certificate = Persons(certificates(relation, classes)[name], most)
        table = people(80, most, seed=10 + most, classes=classes)
        done, _ = check_persons(certificate, table, rng.uniform(-1, 1, (150, 2)), most, rng, pairs=4, steps=2)
        checks += done
    assert checks == 3600


def attack_persons(certificate, table, query, label, count, rng):
    """Yield the class of a query while all rows of `count` persons climb against it, as one row."""
    X, y, ids = table
    held = np.exp(-np.linalg.norm(X - query, axis=1)) * np.where(y == label, 1.0, -1.0)
    persons = np.unique(ids)
    strongest = persons[np.argsort([-held[ids == person].sum() for person in persons])][:count]
    mine = np.isin(ids, strongest)
    rival = int(rng.choice([c for c in range(certificate.classes) if c != label]))

    def told(row):
        A, b, names = X.copy(), y.copy(), ids
        b[mine] = rival
        if certificate.adjacency.value != "replace_label":
            A[mine] = row
        if certificate.adjacency.value == "add_remove_one":  # half of them go, as many strangers come
            gone = np.isin(ids, strongest[: count // 2])
            come = (count - count // 2) * certificate.max_rows_per_id
            A = np.vstack([X[~gone], np.repeat(row[None], come, 0)])
            b = np.append(y[~gone], np.full(come, rival))
            names = np.append(ids[~gone], 10**6 + np.arange(come) // certificate.max_rows_per_id)
        model = certificate.fit(A, b, ids=names)
        values = score(model, query)
        return values[rival] - values[label], int(model.stability(query[None])[0][0])

    row = np.clip(query + 0.1 * rng.normal(size=query.size), -1, 1)
    for step in (0.5, 0.25):
        base, answer = told(row)
        yield answer
        slope = [told(row + 1e-3 * unit)[0] - base for unit in np.eye(row.size)]
        row = np.clip(row + step * np.sign(slope), -1, 1)
    yield told(row)[1]


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "classes", "name"), CASES)
def test_attacks_by_persons_at_length(relation, classes, name):
    """More than 60 cases of up to 12 attacks, three tables each."""
    rng = np.random.default_rng(20)
    certificate = Persons(certificates(relation, classes)[name], 3)
    table = people(80, 3, seed=21, classes=classes)
    Q = rng.uniform(-1, 1, (200, 2))
    labels, k = certificate.fit(*table[:2], ids=table[2]).stability(Q)
    for q in rng.permutation(np.flatnonzero(k))[:12]:
        for told in attack_persons(certificate, table, Q[q], labels[q], int(k[q]), rng):
            assert told == labels[q]


@pytest.mark.parametrize("name", ["erm", "votes", "batches"])
def test_attacks_by_persons(name):
    rng = np.random.default_rng(22)
    certificate = Persons(certificates("replace_one", 2)[name], 3)
    table = people(80, 3, seed=23)
    Q = rng.uniform(-1, 1, (200, 2))
    labels, k = certificate.fit(*table[:2], ids=table[2]).stability(Q)
    turned = 0
    for q in rng.permutation(np.flatnonzero(k))[:8]:
        assert all(
            t == labels[q] for t in attack_persons(certificate, table, Q[q], labels[q], int(k[q]), rng)
        )
        larger = attack_persons(certificate, table, Q[q], labels[q], min(60, 4 * int(k[q]) + 8), rng)
        turned += any(t != labels[q] for t in larger)
    assert turned >= 1


def test_the_cases_at_length_are_above_two_hundred_thousand():
    assert len(CASES) * 3600 > 200_000


@pytest.mark.parametrize(("name", "claim"), [("erm", 1), ("votes", 1), ("interval", 1), ("batches", 1)])
def test_the_check_convicts_distances_in_rows(name, claim):
    class Undivided:
        classes = 2

        def __init__(self):
            self.persons = Persons(certificates("replace_one", 2)[name], 6)
            self.adjacency = self.persons.adjacency

        def fit(self, X, y, *, ids=None):
            model = self.persons.fit(X, y, ids=ids)
            return type("Fitted", (), {"stability": lambda self, Q: model.model.stability(Q)})()

    rng = np.random.default_rng(claim)
    with pytest.raises(AssertionError):
        check_persons(Undivided(), people(40, 6), rng.uniform(-1, 1, (300, 2)), 6, rng, pairs=40)


def test_votes_divided_are_the_formula_of_their_influence():
    # Gaps of 1 ... 400 votes: floor(K / m) = ceil(f / (2 m)) - 1.
    f = np.arange(1, 401)
    counts = np.column_stack([np.full(400, 400) + f - 1, np.full(400, 400)])  # class 0 wins ties: f = gap + 1
    for m in (1, 2, 3, 7, 50, 500):
        assert np.array_equal(vote_gap(counts)[1] // m, vote_gap(counts, 2 * m)[1])
        assert np.array_equal(vote_gap(counts)[1] // m, -(-f // (2 * m)) - 1)


@pytest.mark.parametrize("m", [2, 5])
@pytest.mark.parametrize("relation", ["add_remove_one", "replace_one", "replace_label"])
def test_erm_divided_is_no_less_than_one_step_for_all_rows_of_a_person(relation, m):
    X, y = blobs(300, seed=24, spread=0.25)
    Q = np.random.default_rng(25).uniform(-1, 1, (2000, 2))
    certificate = StronglyConvexERM(
        20.0, adjacency=relation, feature_norm=1.0, max_rows=1000, curvature_levels=0
    )
    model = certificate.fit(X, y)
    queries = model.rows(Q)
    ratio = np.abs(queries @ model.weights[0]) / lengths(queries)
    size = float(np.linalg.norm(model.weights))
    direct = steps_of(lambda u: m * certificate.change(u), size, 20.0, model.precision).distances(ratio)
    divided = model.stability(Q)[1] // m
    assert direct.max() >= 2
    assert np.all(divided >= direct)


def test_dividing_members_gives_at_least_what_dividing_the_vote_gives():
    rng = np.random.default_rng(0)
    for m, classes in itertools.product((2, 3, 8), (2, 4)):
        votes, k = rng.integers(0, classes, (4000, 9)), rng.integers(0, 40, (4000, 9))
        inner = ensemble_distance(votes, k // m, classes)[1]
        outer = ensemble_distance(votes, k, classes)[1] // m
        assert np.all(inner >= outer)
        assert np.any(inner > outer)


def test_what_is_divided_by_what():
    X, y, ids = people(60, 3)
    Q = np.random.default_rng(1).uniform(-1, 1, (100, 2))
    fixed = {"init": np.zeros(6), "batches": FixedBatches(2)}
    for certificate, divisor in (
        (StronglyConvexERM(2.0), 5),
        (VoteGap(9, 2, BOUNDS), 5),
        (TeacherVotes(TREE, 9, 2, BOUNDS), 1),
        (IntervalTraining([2, 2], SETTINGS, 12, init=np.zeros(6)), 5),
        (IntervalTraining([2, 2], SETTINGS, 12, **fixed), 3),  # two batches: at most 3 of 5 rows in each
        (IntervalTraining([2, 2], SETTINGS, 12, budget="epoch", **fixed), 5),
        (HybridTraining([2, 3, 1], {**SETTINGS, "clip_by": "norm"}, 12, batches=2), 3),
        (BallTraining(2, {**SETTINGS, "clip_by": "norm"}, 1.0, batches=2), 5),
        (IntervalTraining([2, 2], SETTINGS, 12, "add_remove_one", batches=HashedBatches(2, 60)), 5),
    ):
        persons = Persons(certificate, 5)
        assert persons.divisor == divisor
        model = persons.fit(X, y, ids=ids)
        assert np.array_equal(model.stability(Q)[1], model.model.stability(Q)[1] // divisor)
        assert isinstance(persons, Certificate)
        assert isinstance(model, Certified)
        assert (persons.unit, persons.adjacency, persons.classes) == ("person", certificate.adjacency, 2)


def test_side_by_side_no_batch_has_more_of_a_person_than_its_share():
    X, _, ids = people(50, 7, seed=3)
    names = id_digests(ids, "k")
    order = kept(X, names, 7, "k")
    for count in (1, 2, 3, 10):
        for part in FixedBatches(count).split(X[order], ids[order], None):
            assert np.unique(ids[order][part], return_counts=True)[1].max() <= -(-7 // count)


def test_teachers_keep_all_rows_and_others_the_first_by_hash():
    X, y, ids = people(40, 3, seed=4)
    names = id_digests(ids, "confide")
    few, every = kept(X, names, 3, "confide"), kept(X, names, None, "confide")
    assert np.array_equal(np.sort(every), np.arange(len(y)))
    sizes, limited = (np.unique(part, return_counts=True)[1] for part in (ids, ids[few]))
    assert np.array_equal(limited, np.minimum(sizes, 3))
    assert sizes.max() > 3
    # A person in a teacher's part is there with all rows.
    seen = []

    class Counting(DecisionTreeClassifier):
        def fit(self, cells, labels):
            seen.append(len(labels))
            return super().fit(cells, labels)

    Persons(TeacherVotes(Counting(), 3, 2, BOUNDS), 3).fit(X, y, ids=ids)
    assert sum(seen) == len(y)


@pytest.mark.parametrize("name", ["erm", "votes", "interval", "ensemble"])
def test_the_order_of_a_table_is_irrelevant(name):
    X, y, ids = people(60, 3, seed=5)
    Q = np.random.default_rng(6).uniform(-1, 1, (100, 2))
    order = np.random.default_rng(7).permutation(len(y))
    certificate = Persons(certificates("replace_one", 2)[name], 3)
    here, there = (certificate.fit(X[o], y[o], ids=ids[o]).stability(Q) for o in (np.arange(len(y)), order))
    assert np.array_equal(here, there)


def test_kept_rows_depend_on_no_other_person():
    X, _, ids = people(60, 3, seed=8)
    rng = np.random.default_rng(9)

    def of(place, X, ids):
        names = id_digests(ids, "k")
        chosen = kept(X, names, 3, "k")
        return {tuple(row) for row in X[chosen][ids[chosen] == place]}

    for _ in range(20):
        a, _, c = change_person(X, np.zeros(len(ids), dtype=int), ids, "add_remove_one", 2, rng, 3)
        for person in rng.choice(np.intersect1d(ids, c), 5):
            assert of(person, X, ids) == of(person, a, c)
    # Another key keeps others.
    names = id_digests(ids, "k")
    assert not np.array_equal(np.sort(kept(X, names, 1, "k")), np.sort(kept(X, names, 1, "other")))


def test_digests_tell_ids_apart_that_hashes_of_parts_confuse():
    ids = [1, "1", b"1", 2**70, "x" * 1000, *range(10, 2000)]
    assert len(set(id_digests(ids, "k").tolist())) == len(ids)
    assert id_digests(np.arange(3), "k").tolist() == id_digests([0, 1, 2], "k").tolist()
    # Members see each person under its own name, whatever the hash that dealt it to them.
    seen = []

    class Spy:
        adjacency, classes = "replace_one", 2

        def fit(self, X, y, *, ids=None):
            seen.append(len(set(ids.tolist())))
            return StronglyConvexERM(1.0).fit(X, y)

        def __deepcopy__(self, memo):
            return self

    X, y, people_ids = people(60, 3)
    Ensemble(Spy(), 4).fit(X, y, ids=people_ids)
    assert sum(seen) == 60


def test_an_ensemble_of_persons_is_persons_of_an_ensemble():
    X, y, ids = people(90, 3, seed=11)
    Q = np.random.default_rng(12).uniform(-1, 1, (100, 2))
    member = StronglyConvexERM(2.0, feature_norm=1.0)
    one, two = Persons(Ensemble(member, 4), 3), Ensemble(Persons(member, 3), 4)
    a, b = (certificate.fit(X, y, ids=ids).stability(Q) for certificate in (one, two))
    assert np.array_equal(a, b)
    assert one.unit == two.unit == "person"
    assert Ensemble(member, 4).unit == "row"
    for certificate in (one, two):
        with pytest.raises(ParameterError, match="ids"):
            certificate.fit(X, y)


def test_a_replaced_person_may_change_its_id_under_halves():
    X, y, ids = people(150, 2, seed=13)
    Q = np.random.default_rng(14).uniform(-1, 1, (200, 2))
    member = StronglyConvexERM(3.0, adjacency="add_remove_one", feature_norm=1.0, max_rows=10_000)
    certificate = Ensemble(Persons(member, 2), 3, "replace_one")
    labels, k = certificate.fit(X, y, ids=ids).stability(Q)
    assert k.max() >= 1
    rng = np.random.default_rng(15)
    for step in range(6):
        A, b, new = X.copy(), y.copy(), ids.copy()
        mine = ids == rng.choice(ids)
        A[mine], b[mine], new[mine] = rng.uniform(-1, 1, 2), rng.integers(2), 10_000 + step
        other, other_k = certificate.fit(A, b, ids=new).stability(Q)
        assert np.abs(other_k - k).max() <= 1
        assert not np.any(k[labels != other])


def test_counter_example_ids_by_first_appearance():
    # Numbered by first appearance, all later persons change parts when the first one goes.
    X, y, ids = people(90, 2, seed=18)
    Q = np.random.default_rng(19).uniform(-1, 1, (300, 2))
    member = StronglyConvexERM(1.0, adjacency="add_remove_one", feature_norm=1.0, max_rows=10_000)
    certificate = Persons(Ensemble(member, 5), 2)

    def codes(values):
        first = {value: number for number, value in enumerate(dict.fromkeys(values.tolist()))}
        return [first[value] for value in values.tolist()]

    def moved(name):
        rest = ids != ids[0]
        here = certificate.fit(X, y, ids=name(ids)).stability(Q)[1]
        return np.abs(certificate.fit(X[rest], y[rest], ids=name(ids[rest])).stability(Q)[1] - here).max()

    assert moved(lambda values: values) <= 1
    assert moved(codes) > 1


def test_persons_of_one_row_are_rows():
    X, y = blobs(120, seed=16)
    Q = np.random.default_rng(17).uniform(-1, 1, (100, 2))
    certificate = VoteGap(9, 2, BOUNDS)
    assert per_person(certificate, 1) is certificate
    here = Persons(certificate, 1).fit(X, y, ids=range(120)).stability(Q)
    assert np.array_equal(here, certificate.fit(X, y).stability(Q))
    table = PerPerson(certificate, 4)
    assert np.array_equal(table.fit(X, y).stability(Q)[1], certificate.fit(X, y).stability(Q)[1] // 4)
    assert (table.adjacency, table.classes) == (certificate.adjacency, 2)


def test_bad_parameters():
    X, y, ids = people(10, 2)
    erm = StronglyConvexERM(1.0)
    for rows in (0, True, 1.5):
        with pytest.raises(ParameterError, match="max_rows_per_id"):
            Persons(erm, rows)
        with pytest.raises(ParameterError, match="rows"):
            PerPerson(erm, rows)
    with pytest.raises(ParameterError, match="key"):
        Persons(erm, 2, key="")
    with pytest.raises(ParameterError, match="counts persons already"):
        Persons(Persons(erm, 2), 2)
    with pytest.raises(ParameterError, match="'certificate' parameter is a str"):
        Persons("erm", 2)
    with pytest.raises(ParameterError, match="ids"):
        Persons(erm, 2).fit(X, y)
    for broken in (ids[1:], ids.astype(float)):
        with pytest.raises(DataError, match="ids"):
            Persons(erm, 2).fit(X, y, ids=broken)
    with pytest.raises(DataError, match="labels of shape"):
        Persons(erm, 2).fit(X, y[1:], ids=ids)
    empty = Persons(StronglyConvexERM(1.0, adjacency="add_remove_one", max_rows=9), 2)
    model = empty.fit(np.zeros((0, 2)), [], ids=[])
    assert [part.tolist() for part in model.stability([[0.0, 0.0]])] == [[0], [0]]
