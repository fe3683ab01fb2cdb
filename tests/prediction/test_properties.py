"""The two properties at length: 200,000 neighbour checks over all certificates here, and 2,000 attacks."""

import itertools

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from confide.prediction import Ensemble, StronglyConvexERM, TeacherVotes, VoteGap

from .helpers import blobs, check_neighbours  # isort: skip

RELATIONS = ("add_remove_one", "replace_one", "replace_label")
BOUNDS = (-1, 1)


def certificates(relation, classes):
    erm = {"adjacency": relation, "feature_norm": 1.0, "max_rows": 10_000, "curvature_levels": 24}
    losses = ("logistic", "huber_hinge") if classes == 2 else ("softmax",)
    found = [StronglyConvexERM(ridge, classes, loss=loss, **erm) for loss in losses for ridge in (1.0, 6.0)]
    found.append(VoteGap(15, classes, BOUNDS, relation))
    found.append(TeacherVotes(LogisticRegression(), 9, classes, BOUNDS, relation))
    return [*found, Ensemble(found[0], 5), Ensemble(found[-2], 5)]


@pytest.mark.parametrize(("relation", "classes"), list(itertools.product(RELATIONS, (2, 3))))
def test_neighbours_at_length(relation, classes):
    rng = np.random.default_rng(classes)
    checks = 0
    for number, certificate in enumerate(certificates(relation, classes)):
        X, y = blobs(150, classes=classes, seed=number, spread=0.25)
        Q = rng.uniform(-1, 1, (700, 2))
        done, largest = check_neighbours(certificate, X, y, Q, adjacency=relation, rng=rng, pairs=3, steps=3,
                                         extreme=True)  # fmt: skip
        assert largest >= 1
        checks += done
    assert checks >= 34_000  # six cases: above 200,000


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
