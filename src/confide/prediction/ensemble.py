"""Ensembles of certified members on disjoint parts: the distance of the vote from the members' distances."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from confide.errors import AdjacencyError, ParameterError
from confide.prediction.certificate import (
    Certificate,
    Certified,
    Labels,
    Words,
    hashes,
    id_digests,
    key_bytes,
    matrix,
    steady,
    table,
)
from confide.prediction.laws import whole
from confide.prediction.votes import parts
from confide.privacy import Adjacency

#: A member's distance counts as at most this: sums stay below 2^62, and larger ones say nothing more.
_FAR = 1 << 40
_NEVER = 1 << 61


def ensemble_distance(votes: ArrayLike, k: ArrayLike, classes: int) -> tuple[Labels, Labels]:
    """Return winner and distance of a vote whose members have distances.

    Parameters
    ----------
    votes : int array [q, T]
        Class of each member.
    k : int array [q, T]
        Its stability distance.
    classes : int

    Returns
    -------
    labels, k : int64 arrays [q]

    Notes
    -----
    The most votes win, ties go to the smaller class. For a rival b of the winner a, b needs a gain of
    G = n_a - n_b + [a wins ties]. Turning a member that votes a gains 2, one that votes neither gains 1, each
    costs k_i + 1 changes. K_b is the least cost of a gain >= G, and K = min_b K_b - 1. The least cost takes
    the t cheapest of the one kind and the G - 2t cheapest of the other, for the best t.

    *Sound.* A change of the table is a change of one member's part, and a member turns only after k_i + 1 of
    them. If b beats a after some changes, the members that turned gained at least G for b, so there were at
    least K_b > K of them.

    *1-Lipschitz.* Neighbours D, D' differ in the part of one member j. If j votes alike on both, its cost
    differs by at most 1 and all else is equal, so each K_b differs by at most 1. Else k_j = 0 on both and j
    costs 1. Same winner: let S be a best set of members on D'; on D turn S and j. Every other member then
    votes as on D' with S turned and j votes b, the best it can, so b wins: K_b(D) <= K_b(D') + 1, and the
    other way round. Different winners a, a': turning j alone lets a' win on D (at worst j votes a' itself
    then), so K(D) = 0, and K(D') = 0.

    The sum of the n smallest distances over *all* members, as published, is not 1-Lipschitz: a member that
    votes for the rival already may supply a distance.
    """
    cast = np.asarray(votes, dtype=np.int64)
    cost = np.minimum(np.asarray(k, dtype=np.int64), _FAR) + 1
    queries, members = cast.shape
    rows = np.arange(queries)
    counts = np.zeros((queries, classes), dtype=np.int64)
    for i in range(members):
        counts[rows, cast[:, i]] += 1
    labels = np.argmax(counts, axis=1).astype(np.int64)
    own = cast == labels[:, None]
    twos = _running(cost, own)
    taken = np.arange(members + 1)
    best = np.full(queries, _NEVER, dtype=np.int64)
    for rival in range(classes):
        gain = counts[rows, labels] - counts[:, rival] + (labels < rival)
        ones = _running(cost, ~own & (cast != rival))
        needed = np.clip(gain[:, None] - 2 * taken, 0, None)
        # More single votes than there are members: out of reach.
        extra = np.take_along_axis(ones, np.minimum(needed, members), axis=1)
        total = np.where(needed > members, _NEVER, np.minimum(twos + extra, _NEVER))
        best = np.where(labels == rival, best, np.minimum(best, total.min(axis=1)))
    return labels, np.maximum(best - 1, 0)


def _running(cost: Labels, mask: NDArray[np.bool_]) -> Labels:
    """Return sums of the t = 0 ... T cheapest of the masked costs, [q, T + 1]."""
    chosen = np.sort(np.where(mask, cost, _NEVER), axis=1)
    total = np.zeros((cost.shape[0], cost.shape[1] + 1), dtype=np.int64)
    for i in range(cost.shape[1]):
        total[:, i + 1] = np.minimum(total[:, i] + chosen[:, i], _NEVER)
    return total


@dataclass(frozen=True)
class Ensemble:
    """Members of one certificate, each on the part of the table that the hash of the id gives it.

    Parameters
    ----------
    certificate : Certificate
        Of a member.
    members : int
        T.
    adjacency : Adjacency or str, optional
        Default: the members' own. A replacement relation with members certified under ADD_REMOVE_ONE is for
        tables where a replaced row may change its id: a removal from one part and an addition to another.
    key : str
        Of the partition; public and fixed.
    n_jobs : int, optional
        joblib's, over members.

    Notes
    -----
    See `ensemble_distance` for the proofs. Under the relation of the members, one change of the table is one
    change of one part: parts are by id, and under the replacement relations a replaced row keeps its id.
    Where it may not, one replacement is two changes under ADD_REMOVE_ONE, and the distance is floor(K / 2):
    sound, since r replacements are 2 r <= K changes, and 1-Lipschitz, since K moves by at most 2.

    ====================================  =============================================================
    edge case                             what happens
    ====================================  =============================================================
    empty part                            a member like any other: it knows its class 0 with k = 0
    more members than rows                many such members
    a row whose cell is no id             it stands for itself (`confide.prediction.ids`)
    members=1                             the certificate itself
    members under a weaker adjacency      AdjacencyError
    ====================================  =============================================================
    """

    certificate: Certificate
    members: int
    adjacency: Adjacency | None = None  # pyright: ignore[reportAssignmentType]
    key: str = "confide"
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", whole(self.members, "members", 1))
        key_bytes(self.key)
        inner = Adjacency.parse(self.certificate.adjacency)
        outer = inner if self.adjacency is None else Adjacency.parse(self.adjacency)
        object.__setattr__(self, "adjacency", outer)
        if not (inner.implies(outer) or inner is Adjacency.ADD_REMOVE_ONE):
            raise AdjacencyError(
                f"Members certified under {inner.value!r} say nothing about {outer.value!r}.",
                f"Use a certificate under {outer.value!r}.",
            )

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.certificate.classes

    @property
    def unit(self) -> str:
        """What a change is a change of: a row, or what the members count."""
        return getattr(self.certificate, "unit", "row")

    @property
    def halves(self) -> bool:
        """Whether a change of the table is two changes of parts."""
        return Adjacency.parse(self.certificate.adjacency) is not self.adjacency and (
            Adjacency.parse(self.certificate.adjacency) is Adjacency.ADD_REMOVE_ONE
        )

    def fit(self, X: ArrayLike, y: ArrayLike, *, ids: Any = None) -> FittedEnsemble:
        """Train the members."""
        from joblib import Parallel, delayed

        if ids is None and self.unit == "person":
            raise ParameterError("There are no 'ids'.", "Pass the person's id of each row.")
        rows, labels = table(X, y, self.classes)
        relation = Adjacency.parse(self.certificate.adjacency)
        words = hashes(rows, labels, ids, relation, self.key)
        part = parts(words, self.members)
        names = words if ids is None else self._names(ids, words)
        models: Any = Parallel(n_jobs=self.n_jobs)(
            delayed(_fitted)(self.certificate, rows[part == i], labels[part == i], names[part == i])
            for i in range(self.members)
        )
        return FittedEnsemble(self, tuple(models))

    def _names(self, ids: Any, words: Words) -> NDArray[np.bytes_]:
        """Return what stands for the id of each row in its part.

        Digests, so that a row keeps its id there too, and hashes of them do not repeat the partition. A row
        without an id stands for itself; where the unit is a person it has none there either.
        """
        names = id_digests(ids, self.key)
        if self.unit == "person":
            return names
        return np.where(names == b"", id_digests(words, self.key), names)


@dataclass(frozen=True, eq=False)
class FittedEnsemble:
    """A fitted ensemble."""

    ensemble: Ensemble
    models: tuple[Certified, ...] = field(repr=False)

    def stability(self, X: ArrayLike) -> tuple[Labels, Labels]:
        """See `Certified`."""
        queries = matrix(X, "X")
        return self._joined([model.stability(queries) for model in self.models])

    def steady(self, X: ArrayLike) -> tuple[Labels, Labels]:
        """See `confide.prediction.certificate.steady`."""
        queries = matrix(X, "X")
        return self._joined([steady(model, queries) for model in self.models])

    def _joined(self, told: list[tuple[Labels, Labels]]) -> tuple[Labels, Labels]:
        votes = np.stack([labels for labels, _ in told], axis=1)
        distances = np.stack([k for _, k in told], axis=1)
        labels, k = ensemble_distance(votes, distances, self.ensemble.classes)
        return labels, k // 2 if self.ensemble.halves else k


def _fitted(certificate: Certificate, X: NDArray[np.float64], y: Labels, names: NDArray[Any]) -> Certified:
    with np.errstate(all="ignore"):  # a worker of joblib has settings of its own
        return copy.deepcopy(certificate).fit(X, y, ids=names)
