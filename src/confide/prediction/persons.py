"""Certificates for persons of several rows: the stability distance in persons, from that in rows.

The privacy unit is an id with at most m rows. For the change of one person, as of one row, a certificate must
be sound and 1-Lipschitz (`confide.prediction.certificate`). One person's change is at most m changes of rows:

- ADD_REMOVE_ONE: all rows of one id come or go;
- the replacement relations: rows of one id change, in place; the ids, and how many rows each has, are public,
  as the number of rows is in all of the house.

**floor(k / m)** has both properties where k has them for rows. *Sound*: j <= floor(k / m) persons are at most
j m <= k rows. *1-Lipschitz*: along the rows of one person k moves by at most m, and floor((k + m) / m) =
floor(k / m) + 1. Where classes of neighbours differ both are 0: were k >= m on one table, the class would
withstand the m rows.

It is also what direct formulas give, or more.

- *Votes* of nearest neighbours: a person turns up to m votes, so the gap f moves by at most 2 m, and with
  K = ceil(f / 2) - 1 = max {j : 2 j < f} the direct distance is max {j : 2 m j < f} = floor(K / m).
- *Strongly convex ERM*: the gradient moves by at most m G for one person, the logit by m s. The distance in
  rows is the largest K with s_1 + ... + s_K below the margin over ||x||, in steps s_i <= s that are those of
  single rows (and for the curvature version beta_1 + ... + beta_K with a matrix that has lost as many rows as
  have changed). m single steps in a row are together at most one step for m rows at once, which would have
  to take the last of their bounds for each. (They hold 2 tau m times and not once; tau is a rounding error.)
- *Boxes*: k persons are m k rows, so level k for persons is level m k for rows.

Three certificates do better than floor(k / m):

- `TeacherVotes`: a person is in one part, whatever its rows, and changes one vote. k itself.
- `Ensemble(c, T)`: a person is in one part, so each member's distance is divided and not that of the vote: a
  member that needs c rows to turn needs ceil(c / m) persons, and sum ceil(c_i / m) >= ceil(sum c_i / m).
- `IntervalTraining` with c fixed batches and the budget for a step, and `HybridTraining`. A person's rows are
  put side by side, so each batch has at most r = ceil(m / c) of them. The proofs, step by step in
  `confide.prediction.intervals.descent` and `.hybrid`, ask for one changed row in *each* batch, not in all; a
  person's change is r such changes: floor(k / r).

`Persons` bounds the rows of each id itself, and knows these three. `PerPerson` is floor(k / m) alone, for
tables that hold at most m rows of an id already (`confide.schema.Table`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.errors import DataError, ParameterError
from confide.prediction.certificate import (
    Certificate,
    Certified,
    Labels,
    cells,
    id_digests,
    key_bytes,
    row_hash,
    steady,
)
from confide.prediction.ensemble import Ensemble
from confide.prediction.intervals.batches import Batches, FixedBatches
from confide.prediction.intervals.certificate import IntervalTraining
from confide.prediction.intervals.hybrid import HybridTraining
from confide.prediction.laws import whole
from confide.prediction.votes import TeacherVotes
from confide.privacy import Adjacency
from confide.schema.loose import vector_of
from confide.schema.persons import PersonLimiter


@dataclass(frozen=True)
class Persons:
    """A certificate whose distances count persons of at most m rows, around one that counts rows.

    Parameters
    ----------
    certificate : Certificate
        Of rows: any of this room. `Persons(Ensemble(c, T), m)` is `Ensemble(Persons(c, m), T)`.
    max_rows_per_id : int
        m, public. Of an id with more rows m are kept.
    key : str
        Public: of the choice of the rows that are kept.

    Notes
    -----
    Proofs are at the head of `confide.prediction.persons`. A distance of rows that is cut off, at `k_max` of
    `IntervalTraining` or `curvature_levels` of `StronglyConvexERM`, is cut off at the m-th part here: ask for
    m times as many.

    *Kept rows.* Those with the m smallest keyed hashes of their cells, the label left out, among the rows of
    the id alone: `confide.schema.persons.PersonLimiter` in that order. So it depends on no other person, and
    under the relations that keep the cells on nothing secret. Rows are then put in the order of a keyed hash
    of the id: what a person's change does to the places of its rows moves nobody else's (`FixedBatches`).

    ids must be lasting names of persons. Numbers by first appearance (``Table.ids``) are none: a person less
    renumbers all later ones, and with them their parts, batches and ties.

    ====================================  =============================================================
    edge case                             what happens
    ====================================  =============================================================
    no ids                                ParameterError, before the table is read
    a row whose cell is no id             it is left out, as a table leaves it out
    m = 1                                 the certificate itself, the first row of each id by hash
    more than m rows of an id             m of them are kept, without a word; `TeacherVotes` keeps all
    fewer rows than m                     nothing is filled up
    equal rows of one id                  each counts; among equals the one further up in the table is kept
    ====================================  =============================================================

    Examples
    --------
    >>> from confide.prediction import StronglyConvexERM
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> ids = np.arange(3000) // 3
    >>> certificate = Persons(StronglyConvexERM(60, feature_bounds=(-2, 2)), max_rows_per_id=3)
    >>> model = certificate.fit(X, X[:, 0] > 0, ids=ids)
    >>> rows = StronglyConvexERM(60, feature_bounds=(-2, 2)).fit(X, X[:, 0] > 0)
    >>> bool(model.stability([[1, 0]])[1] == rows.stability([[1, 0]])[1] // 3)
    True
    """

    certificate: Certificate
    max_rows_per_id: int
    key: str = "confide"

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_rows_per_id", whole(self.max_rows_per_id, "max_rows_per_id", 1))
        key_bytes(self.key)
        if not isinstance(self.certificate, Certificate):
            raise ParameterError(
                f"The 'certificate' parameter is a {type(self.certificate).__name__}.",
                "Pass an object with adjacency, classes and fit.",
            )
        if isinstance(self.certificate, Persons):
            raise ParameterError("The 'certificate' parameter counts persons already.", "Pass one of rows.")

    @property
    def adjacency(self) -> Adjacency:
        """The relation; its unit is a person."""
        return Adjacency.parse(self.certificate.adjacency)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.certificate.classes

    @property
    def unit(self) -> str:
        """What a change is a change of."""
        return "person"

    @property
    def divisor(self) -> int:
        """How many changes of the certificate one person's change is at most."""
        return changes(self.certificate, self.max_rows_per_id)

    def fit(self, X: ArrayLike, y: ArrayLike, *, ids: Any = None) -> Certified:
        """Train on the kept rows.

        Parameters
        ----------
        X : float array [n, p]
        y : int array [n]
        ids : sequence of int, str or bytes [n]
            The person of each row; what other cells name is in `confide.prediction.ids`.

        Raises
        ------
        ParameterError
            Without ids.
        DataError
            If the shapes do not fit, or by the declared type of the ids.
        """
        if ids is None:
            raise ParameterError("There are no 'ids'.", "Pass the person's id of each row.")
        if isinstance(self.certificate, Ensemble):
            member = replace(self, certificate=self.certificate.certificate)
            return replace(self.certificate, certificate=member).fit(X, y, ids=ids)
        rows, labels = cells(X), np.asarray(vector_of(y))
        names = id_digests(ids, self.key)
        if labels.shape != rows.shape[:1] or names.shape != rows.shape[:1]:
            raise DataError(
                f"There are {rows.shape[0]} rows, labels of shape {labels.shape} and {names.size} ids.",
                "Pass one label and one id a row.",
            )
        most = None if isinstance(self.certificate, TeacherVotes) else self.max_rows_per_id
        order = kept(rows, names, most, self.key)
        return PerPerson(self.certificate, self.divisor).fit(rows[order], labels[order], ids=names[order])


@dataclass(frozen=True)
class PerPerson:
    """floor(k / m) of a certificate, for a table whose ids have at most m rows each already.

    Parameters
    ----------
    certificate : Certificate
    rows : int
        m: how many changes of the certificate one person's change is at most.

    Notes
    -----
    Proofs are at the head of `confide.prediction.persons`. `fit` hands on what it is given: with ids or
    without, one person's change is at most m changes of rows. Where batches go by place, a person's rows
    must change in place.
    """

    certificate: Certificate
    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", whole(self.rows, "rows", 1))

    @property
    def adjacency(self) -> Adjacency:
        """The relation; its unit is a person."""
        return Adjacency.parse(self.certificate.adjacency)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.certificate.classes

    def fit(self, X: ArrayLike, y: ArrayLike, *, ids: Any = None) -> FittedPerPerson:
        """Train on a table."""
        return FittedPerPerson(self.certificate.fit(X, y, ids=ids), self.rows)


@dataclass(frozen=True, eq=False)
class FittedPerPerson:
    """A fitted model with distances in persons.

    Attributes
    ----------
    model : Certified
        Secret.
    rows : int
        m.
    """

    model: Certified = field(repr=False)
    rows: int

    def stability(self, X: ArrayLike) -> tuple[Labels, Labels]:
        """See `confide.prediction.certificate.Certified`."""
        labels, k = self.model.stability(X)
        return labels, k // self.rows

    def steady(self, X: ArrayLike) -> tuple[Labels, Labels]:
        """See `confide.prediction.certificate.steady`."""
        labels, k = steady(self.model, X)
        return labels, k // self.rows


def per_person(certificate: Certificate, rows: int) -> Certificate:
    """Return `PerPerson`, or the certificate itself for one row a person."""
    return certificate if rows == 1 else PerPerson(certificate, rows)


def kept(rows: NDArray[np.float64], names: NDArray[np.bytes_], most: int | None, key: str) -> Labels:
    """Return the places of the rows that count, in the order of ids and, within one, of the cells' hashes.

    Rows without an id do not count.

    Parameters
    ----------
    rows : float array [n, p]
    names : bytes array [n]
        A digest of each row's id; empty without one.
    most : int or None
        m; None keeps all.
    key : str
    """
    content = row_hash(rows, np.zeros(len(rows), dtype=np.int64), key)
    order = np.lexsort((content, names)).astype(np.int64)
    order = order[names[order] != b""]
    if most is None:
        return order
    admitted = PersonLimiter(most).admit(names[order], np.ones(len(order), dtype=bool))[1]
    return order[admitted]


@singledispatch
def changes(certificate: Any, rows: int) -> int:
    """Return how many changes of a certificate one person's change of at most `rows` rows is at most."""
    return rows


@changes.register
def _(certificate: TeacherVotes, rows: int) -> int:
    return 1


@changes.register
def _(certificate: IntervalTraining, rows: int) -> int:
    return _in_one_batch(certificate.plan.batches, rows) if certificate.budget == "step" else rows


@changes.register
def _(certificate: HybridTraining, rows: int) -> int:
    return _in_one_batch(certificate.plan.batches, rows)


def _in_one_batch(batches: Batches, rows: int) -> int:
    """Return how many rows of one person a batch has at most, its rows side by side."""
    return -(-rows // batches.count) if isinstance(batches, FixedBatches) else rows
