"""Certificates that count votes: nearest neighbours and disjoint teachers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from confide.errors import UnsupportedError
from confide.prediction.certificate import Labels, Words, hashes, key_bytes, matrix, row_hash, table
from confide.prediction.laws import class_count, whole
from confide.prediction.rows import Floats, UnitRows, unit_rows
from confide.privacy import Adjacency

#: Distances are formed for blocks of queries of about this many cells.
_CELLS = 1 << 22


def vote_gap(counts: ArrayLike, influence: int = 2) -> tuple[Labels, Labels]:
    """Return winner and stability distance of votes.

    Parameters
    ----------
    counts : int array [q, C]
        Votes; the most win, ties go to the smaller class.
    influence : int
        s: how far one change of the table can move the difference of two classes' votes. One vote that turns
        moves it by 2.

    Returns
    -------
    labels, k : int64 arrays [q]

    Notes
    -----
    For a rival b of the winner a let f_b = n_a - n_b + [a wins ties], so that b wins once f_b <= 0, and
    k = min_b ceil(f_b / s) - 1.
    *Sound*: after k changes f_b >= f_b - s k >= 1, since s k < f_b and all are integers.
    *1-Lipschitz*: between neighbours with one winner each f_b moves by at most s, hence each term by at most
    1, hence the minimum. With two winners a, b, f_b <= s on the one table and likewise on the other (f_b on
    the other is <= 0 there): both k are 0.
    """
    votes = np.asarray(counts, dtype=np.int64)
    rows = np.arange(votes.shape[0])
    labels = np.argmax(votes, axis=1).astype(np.int64)
    classes = np.arange(votes.shape[1])
    gaps = votes[rows, labels][:, None] - votes + (classes > labels[:, None])
    gaps[rows, labels] = np.iinfo(np.int64).max // 2
    k = -(-gaps.min(axis=1) // whole(influence, "influence", 1)) - 1
    return labels, np.maximum(k, 0)


@dataclass(frozen=True)
class VoteGap:
    """m nearest neighbours, unweighted, with ties of distance broken by a keyed hash of the id.

    Parameters
    ----------
    neighbours : int
        m.
    classes : int
    feature_bounds : pair of scalars or arrays [p]
        Public. Distances are Euclidean in half-widths.
    adjacency : Adjacency or str
    key : str
        Public and fixed.

    Notes
    -----
    *Sensitivity.* Rows are ordered by (distance, hash of id, hash of content), an order that a row keeps
    whatever the table holds: cells and query are rounded to a grid on which squared distances are exact in
    double precision, in any order of summation. Adding, removing or replacing a row changes one of the m
    nearest at most, so the difference of two classes' votes moves by at most 2 (by 1 where there are fewer
    than m rows). With `vote_gap` both proofs follow. A replaced row may change its id. For persons of several
    rows see `confide.prediction.Persons`; so for every certificate.

    ================================  ===============================================================
    edge case                         what happens
    ================================  ===============================================================
    fewer than m rows, none           all vote; none: class 0, k = 0
    equal distances                   the smaller hash is nearer
    equal rows with equal ids         the same votes in any order
    a cell that is no id              the row stands for itself (`confide.prediction.ids`)
    label that is no class            class 0
    ================================  ===============================================================
    """

    neighbours: int
    classes: int
    feature_bounds: Any
    adjacency: Adjacency = field(default=Adjacency.REPLACE_ONE)
    key: str = "confide"

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", whole(self.neighbours, "neighbours", 1))
        object.__setattr__(self, "classes", class_count(self.classes))
        object.__setattr__(self, "adjacency", Adjacency.parse(self.adjacency))
        key_bytes(self.key)

    def fit(self, X: ArrayLike, y: ArrayLike, *, ids: Any = None) -> Neighbours:
        """Keep the table in its order of hashes."""
        rows, labels = table(X, y, self.classes)
        shape = unit_rows(self.feature_bounds, rows.shape[1])
        # p (2 * 2^b)^2 < 2^53: every partial sum of a squared distance is an exact integer.
        grid = float(1 << ((50 - rows.shape[1].bit_length()) // 2))
        order = np.lexsort(
            (row_hash(rows, labels, self.key), hashes(rows, labels, ids, self.adjacency, self.key))
        )
        cells = np.rint(shape.scaled(rows[order]) * grid)
        return Neighbours(self, shape, grid, cells, labels[order])


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Fitted nearest neighbours."""

    certificate: VoteGap
    rows: UnitRows
    grid: float
    cells: Floats = field(repr=False)
    labels: Labels = field(repr=False)

    def votes(self, X: ArrayLike) -> Labels:
        """Return the votes of the m nearest rows, [q, classes]."""
        queries = np.rint(self.rows.scaled(X) * self.grid)
        n, count = self.cells.shape[0], min(self.certificate.neighbours, self.cells.shape[0])
        out = np.zeros((queries.shape[0], self.certificate.classes), dtype=np.int64)
        if count == 0:
            return out
        squares = np.sum(self.cells * self.cells, axis=1)
        ballots = np.eye(self.certificate.classes)[self.labels]
        step = max(1, _CELLS // n)
        for start in range(0, queries.shape[0], step):
            block = queries[start : start + step]
            distance = squares - 2.0 * (block @ self.cells.T) + np.sum(block * block, axis=1, keepdims=True)
            last = np.partition(distance, count - 1, axis=1)[:, count - 1 : count]
            nearer, tied = distance < last, distance == last
            places = count - nearer.sum(axis=1, keepdims=True)
            chosen = nearer | (tied & (np.cumsum(tied, axis=1) <= places))
            out[start : start + step] = np.rint(chosen.astype(np.float64) @ ballots)
        return out

    def stability(self, X: ArrayLike) -> tuple[Labels, Labels]:
        """See `Certified`."""
        return vote_gap(self.votes(X))


@dataclass(frozen=True)
class TeacherVotes:
    """The votes of any scikit-learn classifiers, each trained on a disjoint part of the table.

    Parameters
    ----------
    estimator : classifier
        Cloned for each part; its randomness must be fixed by its parameters (`random_state`), which are
        public. It sees rows within [-1, 1] and classes 0 ... classes - 1.
    members : int
    classes : int
    feature_bounds : pair of scalars or arrays [p]
    adjacency : Adjacency or str
        Under the replacement relations a replaced row keeps its id.
    ids_change : bool
        Whether a replaced row may have another id: then two parts change.
    key : str
        Of the partition; public and fixed.
    n_jobs : int, optional
        joblib's.

    Notes
    -----
    Rows are dealt to the parts by the hash of their id, each part in the order of the table, so a change of
    one unit, however many rows it has, changes one part (two where ids may change), one vote, and the
    difference of two classes' votes by at most 2 (4). A row whose cell is no id is a unit of its own. With
    `vote_gap` both proofs follow, whatever the classifier does, as long as it does the same with the same
    part. One that raises, on a part with one class or without rows for instance, votes for class 0. No
    warning of a classifier is shown, in `fit` or in answers: it would tell of the part. Each sees a copy of
    the queries, so none can change another's vote.
    """

    estimator: Any
    members: int
    classes: int
    feature_bounds: Any
    adjacency: Adjacency = field(default=Adjacency.REPLACE_ONE)
    ids_change: bool = False
    key: str = "confide"
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", whole(self.members, "members", 1))
        object.__setattr__(self, "classes", class_count(self.classes))
        object.__setattr__(self, "adjacency", Adjacency.parse(self.adjacency))
        key_bytes(self.key)
        if not hasattr(self.estimator, "fit") or not hasattr(self.estimator, "predict"):
            raise UnsupportedError(
                f"The 'estimator' is a {type(self.estimator).__name__} without fit and predict.",
                "Pass a scikit-learn classifier.",
            )

    def fit(self, X: ArrayLike, y: ArrayLike, *, ids: Any = None) -> Teachers:
        """Train the members."""
        from joblib import Parallel, delayed

        rows, labels = table(X, y, self.classes)
        shape = unit_rows(self.feature_bounds, rows.shape[1])
        part = parts(hashes(rows, labels, ids, self.adjacency, self.key), self.members)
        cells = shape.scaled(rows)
        models = Parallel(n_jobs=self.n_jobs)(
            delayed(_taught)(self.estimator, cells[part == i], labels[part == i]) for i in range(self.members)
        )
        return Teachers(self, shape, tuple(models))


@dataclass(frozen=True, eq=False)
class Teachers:
    """Fitted teachers."""

    certificate: TeacherVotes
    rows: UnitRows
    models: tuple[Any, ...] = field(repr=False)

    def votes(self, X: ArrayLike) -> Labels:
        """Return the votes, [q, classes]."""
        cells = self.rows.scaled(matrix(X, "X"))
        classes = self.certificate.classes
        out = np.zeros((cells.shape[0], classes), dtype=np.int64)
        for model in self.models:
            out[np.arange(cells.shape[0]), _vote(model, cells, classes)] += 1
        return out

    def stability(self, X: ArrayLike) -> tuple[Labels, Labels]:
        """See `Certified`."""
        return vote_gap(self.votes(X), 4 if self.certificate.ids_change else 2)


def parts(words: Words, members: int) -> Labels:
    """Return the part, 0 ... members - 1, of each hash."""
    return (words % np.uint64(members)).astype(np.int64)


def _taught(estimator: Any, cells: Floats, labels: Labels) -> Any:
    from sklearn.base import clone

    model: Any = clone(estimator)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a warning would tell of the part
            return model.fit(cells, labels)
    except Exception:  # whatever a part of the table did to it, neighbours take the same path
        return None


def _vote(model: Any, cells: Floats, classes: int) -> Labels:
    if model is None or not cells.size:
        return np.zeros(cells.shape[0], dtype=np.int64)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            told = np.asarray(model.predict(cells.copy()), dtype=np.float64).reshape(cells.shape[0])
    except Exception:
        return np.zeros(cells.shape[0], dtype=np.int64)
    return np.where((told >= 0) & (told < classes), told, 0.0).astype(np.int64)
