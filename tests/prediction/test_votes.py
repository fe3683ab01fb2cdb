"""Vote gaps, nearest neighbours, teachers, ensembles: the two properties and the published counter-examples."""

import itertools
import warnings

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from confide.errors import AdjacencyError, DataError, ParameterError, UnsupportedError
from confide.prediction.certificate import id_hash, row_hash
from confide.prediction.ensemble import Ensemble, ensemble_distance
from confide.prediction.erm import StronglyConvexERM
from confide.prediction.persons import Persons
from confide.prediction.votes import TeacherVotes, VoteGap, parts, vote_gap

from .helpers import blobs, check_neighbours  # isort: skip


def wins(counts):
    return int(np.argmax(counts))


@pytest.mark.parametrize("classes", [2, 3])
def test_vote_gap_is_the_true_distance_of_turned_votes(classes):
    # By enumeration: the least number of votes that must turn, over all ways to turn them.
    for counts in itertools.product(range(5), repeat=classes):
        label, k = vote_gap([counts])
        winner = wins(counts)
        assert label[0] == winner
        least = min(
            (
                turned
                for after in itertools.product(range(sum(counts) + 1), repeat=classes)
                if sum(after) == sum(counts) and wins(after) != winner
                for turned in [sum(max(0, a - b) for a, b in zip(after, counts))]
            ),
            default=None,
        )
        if least is None:
            assert sum(counts) == 0
        else:
            assert k[0] == least - 1


def test_vote_gap_formula_and_influence():
    assert [int(vote_gap([c])[1][0]) for c in ([4, 1], [1, 4], [3, 3], [5, 0, 0], [0, 0, 5])] == [
        1,
        1,
        0,
        2,
        2,
    ]
    assert vote_gap([[9, 0]], 4)[1][0] == 2
    with pytest.raises(ParameterError, match="influence"):
        vote_gap([[1, 0]], 0)


@pytest.mark.parametrize("adjacency", ["add_remove_one", "replace_one", "replace_label"])
@pytest.mark.parametrize("classes", [2, 3])
def test_neighbours_are_sound_and_lipschitz(adjacency, classes):
    X, y = blobs(60, classes=classes, seed=1)
    X = np.round(X * 4) / 4  # many ties
    Q = np.round(np.random.default_rng(2).uniform(-1, 1, (200, 2)) * 4) / 4
    certificate = VoteGap(9, classes, (-1, 1), adjacency)
    _, largest = check_neighbours(certificate, X, y, Q, adjacency=adjacency, rng=np.random.default_rng(3),
                                  pairs=15, steps=3, extreme=True)  # fmt: skip
    assert largest >= 3


@pytest.mark.parametrize("adjacency", ["replace_one", "replace_label", "add_remove_one"])
def test_the_best_attack_on_neighbours_takes_one_change_more_than_the_distance(adjacency):
    # The nearest rows of the winner give way to copies of the query with the rival's label.
    X, y = blobs(90, classes=3, seed=30)
    certificate = VoteGap(15, 3, (-1, 1), adjacency)
    model, ids = certificate.fit(X, y, ids=np.arange(90)), np.arange(90)
    Q = np.random.default_rng(31).uniform(-1, 1, (150, 2))
    labels, k = model.stability(Q)
    votes = model.votes(Q)
    assert k.max() >= 5
    for q, label in enumerate(labels):
        gaps = votes[q, label] - votes[q] + (np.arange(3) > label)
        rival = min((c for c in range(3) if c != label), key=lambda c: gaps[c])
        far = np.linalg.norm(X - Q[q], axis=1) + 10.0 * (y != label)
        for count in (k[q], k[q] + 1):
            chosen = np.argsort(far)[:count]
            A, b, names = X.copy(), y.copy(), ids.copy()
            b[chosen] = rival
            if adjacency == "replace_one":
                A[chosen] = Q[q]
            elif adjacency == "add_remove_one":
                A, b = np.vstack([X, np.repeat(Q[q : q + 1], count, 0)]), np.append(y, np.full(count, rival))
                names = np.arange(90 + count)
            turned = certificate.fit(A, b, ids=names).stability(Q[q : q + 1])[0][0] != label
            # An added row drives out the farthest of the nearest, which need not be the winner's.
            assert turned == (count > k[q]) or (adjacency == "add_remove_one" and not turned)


def test_fewer_rows_than_neighbours():
    rng = np.random.default_rng(4)
    for n in (0, 1, 3):
        X, y = blobs(n, seed=5)
        check_neighbours(VoteGap(3, 2, (-1, 1), "add_remove_one"), X, y, rng.uniform(-1, 1, (50, 2)),
                         adjacency="add_remove_one", rng=rng, pairs=5, steps=3)  # fmt: skip
    assert [
        part.tolist() for part in VoteGap(3, 2, (-1, 1)).fit(np.zeros((0, 2)), []).stability([[0, 0]])
    ] == [[0], [0]]


def test_neighbours_agree_with_scikit_learn_and_order_is_irrelevant():
    X, y = blobs(300, p=5, seed=6)
    Q = np.random.default_rng(7).uniform(-1, 1, (100, 5))
    model = VoteGap(11, 2, (-1, 1)).fit(X, y)
    expected = KNeighborsClassifier(11).fit(X, y).predict(Q)
    assert np.array_equal(model.stability(Q)[0], expected)
    order = np.random.default_rng(8).permutation(300)
    again = VoteGap(11, 2, (-1, 1)).fit(X[order], y[order], ids=np.arange(300)[order])
    assert np.array_equal(again.votes(Q), model.votes(Q))
    one_by_one = np.vstack([model.votes(q[None]) for q in Q])
    assert np.array_equal(one_by_one, model.votes(Q))


def test_hashes_do_not_confuse_kinds_of_ids():
    assert len({int(id_hash([value], "k")[0]) for value in (1, "1", b"1", "i1", -1)}) == 5
    assert id_hash([1], "k")[0] != id_hash([1], "other")[0]
    assert np.array_equal(id_hash(np.array([1, 2]), "k"), id_hash([1, 2], "k"))
    assert row_hash(np.array([[0.0]]), np.zeros(1, int), "k") == row_hash(
        np.array([[-0.0]]), np.zeros(1, int), "k"
    )
    assert np.bincount(parts(id_hash(range(4000), "confide"), 4), minlength=4).min() > 900
    for bad in (np.array([1.5]), np.array([True])):  # by their type; cells are in test_ids
        with pytest.raises(DataError, match="ids"):
            id_hash(bad, "k")
    with pytest.raises(DataError, match="not one id for each row"):
        VoteGap(1, 2, (-1, 1)).fit(np.zeros((3, 1)), [0, 1, 0], ids=[1, 2])


@pytest.mark.parametrize("odd", ["text", None, 10**400, [1, 2], np.nan, 1 + 2j, b"x"])
@pytest.mark.parametrize(
    "certificate",
    [VoteGap(3, 2, (-1, 1)), StronglyConvexERM(1.0), TeacherVotes(DecisionTreeClassifier(random_state=0), 3, 2, (-1, 1)),
     Ensemble(VoteGap(3, 2, (-1, 1)), 2), Persons(StronglyConvexERM(1.0), 2)],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)  # fmt: skip
def test_one_odd_cell_or_label_decides_no_exception(certificate, odd):
    X, y = blobs(20, seed=32)
    Q = X[:5]
    cells, labels = X.tolist(), y.tolist()
    cells[3][1], labels[4] = odd, odd
    ids = np.arange(20) // 2
    told = certificate.fit(cells, labels, ids=ids).stability(Q)
    arrays = np.empty((20, 2), dtype=object), np.empty(20, dtype=object)
    for i in range(20):
        arrays[1][i] = labels[i]
        for j in range(2):
            arrays[0][i, j] = cells[i][j]
    assert np.array_equal(told, certificate.fit(*arrays, ids=ids).stability(Q))
    plain, first = X.copy(), y.copy()
    plain[3, 1] = np.inf if odd == 10**400 else np.nan
    first[4] = 0
    assert np.array_equal(told, certificate.fit(plain, first, ids=ids).stability(Q))
    with pytest.raises(DataError, match="no numbers"):
        certificate.fit(np.array([["a", "b"]]), [1], ids=[1])
    with pytest.raises(DataError, match="labels are no numbers"):
        certificate.fit(X, y.astype(str), ids=ids)


@pytest.mark.parametrize("change", [False, True])
def test_teachers(change):
    X, y = blobs(120, classes=3, seed=9)
    Q = np.random.default_rng(10).uniform(-1, 1, (150, 2))
    for estimator in (LogisticRegression(), DecisionTreeClassifier(random_state=0)):
        certificate = TeacherVotes(estimator, 15, 3, (-1, 1), ids_change=change)
        _, largest = check_neighbours(certificate, X, y, Q, adjacency="replace_one",
                                      rng=np.random.default_rng(11), pairs=4, steps=2)  # fmt: skip
        assert largest >= (2 if change else 5)


def test_a_teacher_that_raises_votes_for_the_first_class():
    model = TeacherVotes(LogisticRegression(), 5, 2, (-1, 1)).fit(np.ones((3, 2)), np.ones(3))
    assert model.votes([[0.0, 0.0]]).tolist() == [[5, 0]]
    with pytest.raises(UnsupportedError, match="without fit"):
        TeacherVotes("tree", 5, 2, (-1, 1))


class Loud(DecisionTreeClassifier):
    """Warns, divides by zero, alters the queries and at times raises: by what it was trained on."""

    def predict(self, X):
        told = super().predict(X)
        if self.tree_.node_count > 1:
            warnings.warn("the part holds a split", stacklevel=2)
            np.ones(1) / np.zeros(1)
            X[:] = 0.0
        if self.tree_.node_count > 5:
            raise ValueError(f"threshold {self.tree_.threshold[0]}")
        return told


def test_what_a_teacher_does_while_it_answers_shows_in_its_vote_alone(recwarn):
    """Audited: a warning during an answer told which part a row had changed."""
    X, y = blobs(60, seed=3, spread=0.6)
    Q = np.random.default_rng(4).uniform(-1, 1, (30, 2))
    certificate = TeacherVotes(Loud(random_state=0), 6, 2, (-1, 1))
    with np.errstate(all="raise"):  # the caller's settings do not reach a teacher either
        loud = certificate.fit(X, y)
        votes = loud.votes(Q)
    assert any(model.tree_.node_count > 1 for model in loud.models)
    assert any(model.tree_.node_count > 5 for model in loud.models)
    quiet = np.zeros_like(votes)
    for model in loud.models:
        raises = model.tree_.node_count > 5
        told = np.zeros(30, dtype=int) if raises else DecisionTreeClassifier.predict(model, Q).astype(int)
        quiet[np.arange(30), told] += 1
    assert np.array_equal(votes, quiet)
    assert not recwarn.list
    check_neighbours(certificate, X, y, Q, adjacency="replace_one", rng=np.random.default_rng(5), pairs=5)
    assert not recwarn.list


def brute_distance(votes, k, classes):
    """Least total cost over all sets of turned members and all votes they may turn to, minus 1."""
    winner = wins(np.bincount(votes, minlength=classes))
    best = None
    for after in itertools.product(range(classes), repeat=len(votes)):
        if wins(np.bincount(after, minlength=classes)) != winner:
            cost = sum(d + 1 for d, a, v in zip(k, after, votes) if a != v)
            best = cost if best is None else min(best, cost)
    return winner, best - 1


@pytest.mark.parametrize(("classes", "members"), [(2, 5), (3, 5), (4, 4)])
def test_ensemble_distance_by_enumeration(classes, members):
    rng = np.random.default_rng(classes)
    votes = rng.integers(0, classes, (60, members))
    k = rng.integers(0, 6, (60, members))
    labels, distance = ensemble_distance(votes, k, classes)
    for i in range(60):
        assert (labels[i], distance[i]) == brute_distance(votes[i], k[i], classes)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_ensemble_distance_is_lipschitz_in_one_member(classes):
    rng = np.random.default_rng(classes)
    n, members = 20_000, 7
    votes = rng.integers(0, classes, (n, members))
    k = rng.integers(0, 8, (n, members)) * rng.integers(0, 2, (n, members))
    labels, distance = ensemble_distance(votes, k, classes)
    other_votes, other_k = votes.copy(), k.copy()
    j, rows = rng.integers(0, members, n), np.arange(n)
    other_k[rows, j] = np.maximum(0, k[rows, j] + rng.integers(-1, 2, n))
    free = (k[rows, j] == 0) & (rng.random(n) < 0.7)
    other_k[rows[free], j[free]] = 0
    other_votes[rows[free], j[free]] = rng.integers(0, classes, free.sum())
    other_labels, other_distance = ensemble_distance(other_votes, other_k, classes)
    assert np.abs(distance - other_distance).max() == 1
    turned = labels != other_labels
    assert turned.sum() > 50
    assert not np.any(distance[turned])
    assert not np.any(other_distance[turned])


def test_counter_example_the_smallest_distances_over_all_members():
    # Published: the sum of the n smallest distances, n the votes that must turn, over all members.
    def published(votes, k):
        gap = abs(2 * sum(votes) - len(votes))
        return sum(sorted(k)[: gap // 2 + 1])

    # The first member votes for the rival; its only change turns it to the winner.
    first, second = ([0, 1, 1, 1, 1], [0, 30, 30, 30, 30]), ([1, 1, 1, 1, 1], [0, 30, 30, 30, 30])
    assert published(*first) == 30
    assert abs(published(*first) - published(*second)) == 30  # neighbours
    ours = [int(ensemble_distance([v], [k], 2)[1][0]) for v, k in (first, second)]
    assert ours == [61, 62]


def test_counter_example_a_coarse_search_for_k():
    # Certified at 0..9, 10..45 by 5, 50..200 by 10: neighbours with true k of 70 and 69 report 70 and 50 or 60.
    grid = [*range(10), *range(10, 50, 5), *range(50, 201, 10)]
    coarse = [max(g for g in grid if g <= k) for k in (70, 69)]
    assert abs(coarse[0] - coarse[1]) == 10
    from confide.prediction import response_probabilities

    wrong = response_probabilities(1, 2, 70).wrong
    assert wrong[coarse[1]] / wrong[coarse[0]] > 20_000  # not e^1
    # Every integer is reached here.
    X, y = blobs(400, seed=12, spread=0.3)
    Q = np.random.default_rng(13).uniform(-1, 1, (5000, 2))
    _, k = StronglyConvexERM(40.0, feature_norm=1.0).fit(X, y).stability(Q)
    assert set(range(25)) <= set(k.tolist())


def test_counter_examples_data_dependent_stopping_and_reset_to_zero():
    # A sweep that stops at the first level where no query drops out: one query that moves by 1 ends it early.
    def stopped(true):
        last = next(level for level in range(1, 100) if not np.any(true == level))
        return np.minimum(true, last)

    here = np.arange(1, 41)
    there = np.where(here == 3, 2, here)
    assert np.abs(here - there).max() == 1
    assert np.abs(stopped(here) - stopped(there)).max() == 37
    # A distance that is reset to 0 when one level fails is not 1-Lipschitz; the cap below the failure is.
    failed = 30
    reset = [0 if k >= failed else k for k in (30, 29)]
    assert abs(reset[0] - reset[1]) == 29
    capped = [min(k, failed - 1) for k in (30, 29)]
    assert abs(capped[0] - capped[1]) <= 1
    # Here: a cap of levels moves no distance by more than the cap, and levels are never skipped.
    X, y = blobs(120, seed=14, spread=0.2)
    Q = np.random.default_rng(15).uniform(-1, 1, (300, 2))
    full = StronglyConvexERM(8.0, feature_norm=1.0, curvature_levels=40).fit(X, y)
    few = StronglyConvexERM(8.0, feature_norm=1.0, curvature_levels=3).fit(X, y)
    queries = full.rows(Q)
    margin = np.abs(queries @ full.weights[0])
    assert np.array_equal(
        np.minimum(full.levels.distances(queries, margin), 3), few.levels.distances(queries, margin)
    )


@pytest.mark.parametrize(("inner", "outer"), [("replace_one", None), ("add_remove_one", None),
                                              ("add_remove_one", "replace_one"), ("replace_label", None)])  # fmt: skip
def test_ensembles_are_sound_and_lipschitz(inner, outer):
    X, y = blobs(400, classes=2, seed=16, spread=0.2)
    Q = np.random.default_rng(17).uniform(-1, 1, (200, 2))
    member = StronglyConvexERM(
        3.0, 2, adjacency=inner, feature_norm=1.0, max_rows=10_000, curvature_levels=16
    )
    ensemble = Ensemble(member, 5, outer)
    relation = outer or inner
    _, largest = check_neighbours(ensemble, X, y, Q, adjacency=relation, rng=np.random.default_rng(18), pairs=4,
                                  steps=2, extreme=True)  # fmt: skip
    assert largest >= 3


def test_a_replaced_row_may_change_its_id():
    X, y = blobs(400, seed=19, spread=0.2)
    Q = np.random.default_rng(20).uniform(-1, 1, (200, 2))
    member = StronglyConvexERM(
        3.0, adjacency="add_remove_one", feature_norm=1.0, max_rows=10_000, curvature_levels=16
    )
    rng = np.random.default_rng(21)
    ensemble = Ensemble(member, 5, "replace_one")
    ids = list(range(400))
    labels, k = ensemble.fit(X, y, ids=ids).stability(Q)
    assert k.max() >= 3
    for step in range(8):
        A, b, new = X.copy(), y.copy(), list(ids)
        i = int(rng.integers(400))
        A[i], b[i], new[i] = rng.uniform(-1, 1, 2), 1 - b[i], 10_000 + step
        other, other_k = ensemble.fit(A, b, ids=new).stability(Q)
        assert np.abs(other_k - k).max() <= 1
        assert not np.any(k[labels != other])
    with pytest.raises(AdjacencyError, match="replace_label"):
        Ensemble(StronglyConvexERM(1.0, adjacency="replace_label"), 3, "replace_one")


def test_ensembles_of_votes_and_empty_parts():
    X, y = blobs(30, classes=3, seed=22)
    Q = np.random.default_rng(23).uniform(-1, 1, (50, 2))
    check_neighbours(Ensemble(VoteGap(3, 3, (-1, 1)), 7), X, y, Q, adjacency="replace_one",
                     rng=np.random.default_rng(24), pairs=10, steps=2)  # fmt: skip
    many = Ensemble(StronglyConvexERM(1.0), 200).fit(X[:5], y[:5] % 2)
    assert many.stability(Q)[0].tolist() == [0] * 50
    single = Ensemble(StronglyConvexERM(1.0), 1).fit(X, y % 2).stability(Q)
    alone = StronglyConvexERM(1.0).fit(X, y % 2).stability(Q)
    assert np.array_equal(single, alone)
    with joblib.parallel_config(backend="threading"):
        parallel = Ensemble(StronglyConvexERM(1.0), 3, n_jobs=2).fit(X, y % 2).stability(Q)
    assert np.array_equal(parallel, Ensemble(StronglyConvexERM(1.0), 3).fit(X, y % 2).stability(Q))
