"""The two properties at length: 200,000 neighbour checks over all certificates, and 2,000 attacks on each sort.

Every relation, batching, budget and model of this room is here at least once. More of each, at length too: boxes
and the ball in `intervals/test_boxes.py` and `test_ball.py`, persons in `test_persons.py`. The counter-examples
of the design page are in `test_votes.py` (coarse search, stopping and resetting, sums over all members).
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

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
)
from confide.prediction.intervals import HybridTraining, Network

from .attacks import attack  # isort: skip
from .helpers import blobs, check_neighbours  # isort: skip

TREE = DecisionTreeClassifier(max_depth=3, random_state=0)
RELATIONS = ("add_remove_one", "replace_one", "replace_label")
BOUNDS = (-1, 1)


def certificates(relation, classes):
    """Name -> certificate, for tables of 150 rows of 2 features."""
    erm = {"adjacency": relation, "feature_norm": 1.0, "max_rows": 10_000, "curvature_levels": 24}
    losses = ("logistic", "huber_hinge") if classes == 2 else ("softmax",)
    found = {
        f"{loss} {ridge}": StronglyConvexERM(ridge, classes, loss=loss, **erm)
        for loss in losses
        for ridge in (1.0, 6.0)
    }
    plain = found[f"{losses[0]} 1.0"]
    votes = VoteGap(15, classes, BOUNDS, relation)
    teachers = TeacherVotes(TREE, 9, classes, BOUNDS, relation)
    boxes = {
        f"boxes {name}": training(relation, classes, **options)
        for name, options in {
            "full": {},
            "one logit" if classes == 2 else "momentum": {"one": classes == 2, "momentum": 0.5, "epochs": 2},
            "batches": {"count": 3},
            "epoch": {"count": 3, "budget": "epoch", "k_max": 8},
            "mlp": {"hidden": (4,)},
            "mlp epoch": {"hidden": (4,), "count": 2, "budget": "epoch", "k_max": 6},
            "bisected": {"levels": "bisect", "weight_decay": 0.2},
        }.items()
    }
    found |= {"votes": votes, "teachers": teachers, **boxes}
    settings = {"learning_rate": 0.5, "clip": 2.01, "epochs": 8, "clip_by": "norm", "weight_decay": 0.1}
    ball = {"adjacency": relation, "classes": classes}
    found["ball"] = BallTraining(2, settings, 1.0, batches=placed(relation, 1), **ball)
    found["ball batches"] = BallTraining(2, settings, 1.0, batches=placed(relation, 3), **ball)
    found["ensemble ball"] = Ensemble(found["ball batches"], 3)
    if classes == 2:
        settings = {"learning_rate": 1.0, "clip": 0.2, "epochs": 2, "clip_by": "norm"}
        found["hybrid"] = HybridTraining([2, 4, 1], settings, 12, relation, batches=placed(relation, 2))
    found |= {
        "ensemble erm": Ensemble(plain, 5),
        "ensemble votes": Ensemble(votes, 5),
        "ensemble teachers": Ensemble(TeacherVotes(TREE, 3, classes, BOUNDS, relation), 3),
        "ensemble boxes": Ensemble(boxes["boxes batches"], 3),
        "persons erm": Persons(plain, 1),
        "persons boxes": Persons(boxes["boxes batches"], 1),
        "persons ensemble": Persons(Ensemble(plain, 5), 1),
    }
    return found


def training(relation, classes, *, hidden=(), one=False, count=1, k_max=16, budget="step", levels="all",
             **settings):  # fmt: skip
    layers = [2, *hidden, 1 if one else classes]
    init = Network(tuple(layers)).initial(0) if hidden else np.zeros(3 * layers[-1])
    settings = {"learning_rate": 2.0, "clip": 0.1, **settings}
    return IntervalTraining(layers, settings, k_max, relation, init=init, batches=placed(relation, count),
                            budget=budget, levels=levels)  # fmt: skip


def placed(relation, count):
    return HashedBatches(count, 150 / count) if relation == "add_remove_one" else FixedBatches(count)


NAMED = [
    (relation, classes, name)
    for relation, classes in itertools.product(RELATIONS, (2, 3))
    for name in certificates(relation, classes)
]


def neighbours(relation, classes, name, queries, pairs):
    number = list(certificates(relation, classes)).index(name)
    rng = np.random.default_rng([classes, number])
    X, y = blobs(150, classes=classes, seed=number, spread=0.25)
    Q = rng.uniform(-1, 1, (queries, 2))
    return check_neighbours(certificates(relation, classes)[name], X, y, Q, adjacency=relation, rng=rng, pairs=pairs,
                            steps=3, extreme=True)  # fmt: skip


@pytest.mark.parametrize(("relation", "classes", "name"), [case for case in NAMED if case[1] == 2])
def test_neighbours(relation, classes, name):
    checks, largest = neighbours(relation, classes, name, queries=200, pairs=1)
    assert checks == 600
    assert largest >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "classes", "name"), NAMED)
def test_neighbours_at_length(relation, classes, name):
    """More than 110 cases of 2,400 checks: above 250,000."""
    checks, _ = neighbours(relation, classes, name, queries=400, pairs=2)
    assert checks == 2400


def test_the_checks_at_length_are_above_two_hundred_thousand():
    assert 2400 * len(NAMED) > 250_000


def bare(certificate):
    """The certificate with the same model and less work: no curvature version."""
    if isinstance(certificate, StronglyConvexERM):
        return replace(certificate, curvature_levels=0)
    if isinstance(certificate, Ensemble | Persons):
        return replace(certificate, certificate=bare(certificate.certificate))
    return certificate


def attacks(relation, classes, name, count):
    """Assert that `count` attacks within the distance change no class; count the larger attacks that do."""
    certificate = certificates(relation, classes)[name]
    rng = np.random.default_rng([classes, count, len(name)])
    X, y = blobs(150, classes=classes, seed=3, spread=0.25)
    table = (X, y, np.arange(150))
    Q = rng.uniform(-1, 1, (200, 2))
    labels, k = certificate.fit(X, y, ids=table[2]).stability(Q)
    certified, certificate = rng.permutation(np.flatnonzero(k)), bare(certificate)
    done = 0
    for number, q in enumerate(np.resize(certified, count)):
        changes = int(rng.integers(1, k[q] + 1)) if number % 4 == 1 else int(k[q])
        for told in attack(
            certificate, table, relation, Q[q], labels[q], changes, rng, uphill=number % 2 == 0
        ):
            assert told == labels[q]
        done += 1
    # Attacks that the certificate does not exclude do change classes: these are no straw men.
    flips = 0
    for q in certified[:6]:
        larger = attack(
            certificate, table, relation, Q[q], labels[q], min(4 * int(k[q]) + 4, 100), rng, uphill=True
        )
        flips += any(told != labels[q] for told in larger)
    return done, flips


@pytest.mark.parametrize("name", ["logistic 6.0", "votes", "boxes batches", "ball", "ensemble votes"])
def test_attacks_never_change_a_certified_class(name):
    done, flips = attacks("replace_one", 2, name, 10)
    assert done == 10
    assert flips >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "classes", "name"), NAMED)
def test_attacks_on_all_at_length(relation, classes, name):
    """More than 110 cases of 20 attacks: above 2,000, half of them by gradient ascent."""
    assert attacks(relation, classes, name, 20)[0] == 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("relation", "loss"), list(itertools.product(RELATIONS, ("logistic", "huber_hinge")))
)
def test_attacks_at_length(relation, loss):
    rng = np.random.default_rng(7)
    attacks = 0
    for seed in range(6):
        X, y = blobs(80, seed=seed, spread=0.35)
        ridge = float(rng.choice([1.0, 3.0, 8.0]))
        certificate = StronglyConvexERM(ridge, loss=loss, adjacency=relation, feature_norm=1.0, max_rows=1000,
                                        curvature_levels=32)  # fmt: skip
        bare = StronglyConvexERM(ridge, loss=loss, adjacency=relation, feature_norm=1.0, max_rows=1000,
                                 curvature_levels=0)  # fmt: skip
        model = certificate.fit(X, y)
        Q = rng.uniform(-1, 1, (400, 2))
        labels, k = model.stability(Q)
        push = model.rows(Q) @ model.rows(X).T
        for q in rng.permutation(np.flatnonzero(k))[:58]:
            count = int(k[q])
            A, b = X.copy(), y.copy()
            holding = np.where(y == labels[q], push[q], -push[q])
            if relation == "add_remove_one":
                # Rows that hold the class up go, copies of the query with the other label come.
                gone = np.argsort(-holding)[: count // 2]
                come = count - gone.size
                A = np.vstack([np.delete(A, gone, 0), np.repeat(Q[q : q + 1], come, 0)])
                b = np.append(np.delete(b, gone), np.full(come, 1 - labels[q]))
            elif relation == "replace_one":
                worst = np.argsort(-holding)[:count]
                A[worst], b[worst] = Q[q], 1 - labels[q]
            else:
                worst = np.argsort(-np.where(y == labels[q], np.abs(push[q]), -1))[:count]
                b[worst] = 1 - labels[q]
            assert bare.fit(A, b).stability(Q[q : q + 1])[0][0] == labels[q]
            attacks += 1
    assert attacks >= 340  # six cases: above 2,000


@pytest.mark.parametrize("factor", [2, 8])
def test_the_checks_convict_a_distance_that_claims_more(factor):
    class Boastful:
        classes = 2

        def fit(self, X, y, *, ids=None):
            self.model = StronglyConvexERM(6.0, feature_norm=1.0).fit(X, y, ids=ids)
            return self

        def stability(self, Q):
            labels, k = self.model.stability(Q)
            return labels, factor * k

    X, y = blobs(150, seed=1, spread=0.25)
    Q = np.random.default_rng(2).uniform(-1, 1, (700, 2))
    with pytest.raises(AssertionError):
        check_neighbours(Boastful(), X, y, Q, adjacency="replace_one", rng=np.random.default_rng(3), pairs=10)


def test_attacks_come_near_the_distance():
    # The attack of twice the certified distance turns some classes: the distances are no wild underestimates.
    X, y = blobs(80, seed=1, spread=0.35)
    certificate = StronglyConvexERM(60.0, feature_norm=1.0)
    model = certificate.fit(X, y)
    Q = np.random.default_rng(4).uniform(-1, 1, (200, 2))
    labels, k = model.stability(Q)
    push = model.rows(Q) @ model.rows(X).T
    turned = tried = 0
    for q in np.flatnonzero(k)[:60]:
        A, b = X.copy(), y.copy()
        worst = np.argsort(-np.where(y == labels[q], push[q], -push[q]))[: 2 * int(k[q]) + 1]
        A[worst], b[worst] = Q[q], 1 - labels[q]
        turned += certificate.fit(A, b).stability(Q[q : q + 1])[0][0] != labels[q]
        tried += 1
    assert turned > tried / 2
