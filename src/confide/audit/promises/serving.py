"""Claims of `confide.prediction` as a service uses it: epochs that are stored and go on, and totals of many.

``prediction.restored_epochs`` answers many queries before those that may be unstable, with the state
of its epoch stored and read in between, then opens another epoch of the same object. Its law is that of two
epochs: noise that ends with the twentieth answer, is drawn again where the state is read, or is the same in
the next epoch has another one.

``prediction.serving`` reads no rows, and nothing of it depends on what is drawn but for one run in 10^14:
whether a closed epoch stays closed, what each epoch is charged, that its threshold is kept, that a model
answers within the epochs that are reserved, what totals of 100 queries and more come to, by the audit's own
code, which calls are refused, and which rows of a person count (`confide.audit.refusals`). One outcome has
probability 1, so that one run of another breaks the claim ("law of draws").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from confide.audit import neighbours, refusals
from confide.audit.exact import certain
from confide.audit.promises.mechanisms import sparse_law
from confide.audit.registry import Floats, Kind, Law, Pair, promise, random_state
from confide.errors import ConfideError, UnsupportedError
from confide.mechanisms import RandomStream, SparseVector, split_epoch, stable_threshold
from confide.prediction import CertifiedClassifier, CertifiedModel, StableAnswers, per_answer, release_of
from confide.prediction.budgets import answers
from confide.prediction.model import Facts
from confide.prediction.vector import UNSTABLE
from confide.privacy import Adjacency, Event

_DELTA = Fraction(1, 100)
#: Answers before those that count, and a distance that no noise reaches.
_EARLIER, _CERTAIN = 30, 1 << 40
_THRESHOLD = stable_threshold(_DELTA, *split_epoch(1))
#: Distances of the queries that count, of each epoch.
Last = tuple[int, ...]


def _vector(
    stream: RandomStream, epsilon: Any = 1, delta: Any = _DELTA,
    charge: Callable[[Event], Any] = lambda event: None,
) -> StableAnswers:  # fmt: skip
    return StableAnswers(epsilon, delta, 2, charge=charge, stream=stream)


def _stable(answers: StableAnswers, k: Any) -> int:
    """Return how many of the queries, all of class 0, one epoch answers."""
    return int((answers.until_unstable(np.zeros(len(k), dtype=np.int64), k) != UNSTABLE).sum())


def _restored(last: Last, count: int, stream: RandomStream) -> Floats:
    """Return how many of the last queries are answered, of two epochs of the same objects each."""
    one, other = (_vector(stream.child(name)) for name in ("one", "other"))
    told = np.zeros((count, 2))
    for row in told:
        one.resume(b"")  # what is open is left
        _stable(one, [_CERTAIN] * _EARLIER)
        row[0] = _stable(one, last[:1])
        if row[0]:
            other.resume(one.to_bytes())
            row[0] += _stable(other, last[1:])
            if row[0] == len(last):  # still open
                other.resume(b"")
        row[1] = _stable(other if row[0] else one, last)
    return told


def _restored_law(last: Last) -> Law:
    counts: Any = sparse_law(_THRESHOLD, *split_epoch(1))(list(last))
    told: dict[Any, Any] = {"beyond": (Fraction(0), 2 * counts.pop("beyond")[1])}
    for i, (p, p_up) in counts.items():
        told |= {(i, j): (p * q, p_up * q_up) for j, (q, q_up) in counts.items()}
    return told


def _moved(k: int) -> Pair:
    return Pair(f"distances about {k} rise, the last falls", (k,) * 3, (k + 1, k + 1, k - 1))


promise(
    "prediction.restored_epochs", Kind.ESTIMATOR, 2, 2 * _DELTA, "replace_one",
    "an epoch, whatever it answers and wherever it is kept; confide.prediction.vector",
    lambda: [_moved(_THRESHOLD), _moved(_THRESHOLD + 2)],
    run=lambda last, stream: _restored(last, 1, stream), outputs=_restored, law=_restored_law,
    replayed=False, fuzzed=False, draws=10_000, quick=300,
    note="Replays and prices are those of prediction.sparse_vector: an epoch that is read again is another "
    "object.",
)  # fmt: skip


def _refused(ask: Callable[[], Any]) -> bool:
    try:
        ask()
    except UnsupportedError:
        return True
    except ConfideError:
        return False
    return False


def _bar(state: bytes, stream: RandomStream) -> int:
    """Return the noisy threshold of an epoch whose queries have almost no noise, by asking copies of it."""
    low, high = -_CERTAIN, _CERTAIN
    while high - low > 1:
        middle = (low + high) // 2
        above = SparseVector.from_bytes(state, stream=stream).above(middle)
        low, high = (low, middle) if above else (middle, high)
    return low


#: Shares of an epoch: three thresholds of a scale of 10^9 are never equal, noise of a scale of 1/500 is 0.
_LOUD, _STILL, _EPOCHS = Fraction(1, 10**9), 1000, 3


def _kept(stream: RandomStream) -> Iterator[bool]:
    """Yield whether stored epochs go on as they were: open with their threshold, or closed for good."""
    bars = []
    for i in range(_EPOCHS):
        epoch = SparseVector(1 << 20, _LOUD, _STILL, stream=stream.child(f"epoch {i}"))
        states = [epoch.to_bytes()]
        for _ in range(3):
            epoch = SparseVector.from_bytes(states[-1], stream=stream)
            yield all(epoch.above_many([_CERTAIN] * _EARLIER)) and epoch.open
            states.append(epoch.to_bytes())
        found = {_bar(state, stream) for state in (states[0], *states[-1:] * (i == 0))}
        yield len(found) == 1
        bars += found
        yield epoch.above_many([_CERTAIN, -_CERTAIN, _CERTAIN]) == [True, False]
        yield not epoch.open
        for _ in range(2):
            yield _refused(lambda epoch=epoch: epoch.above(_CERTAIN))
            epoch = SparseVector.from_bytes(epoch.to_bytes(), stream=stream)
            yield not epoch.open
    yield len(set(bars)) > 1


#: Of epochs whose thresholds are hardly ever equal, four of them never; none answers at distance 0.
_SMALL = Fraction(1, 10**4), Fraction(1, 10**20)


def _charged(stream: RandomStream) -> Iterator[bool]:
    """Yield whether each epoch is charged once, has its own threshold, and is not open after its end."""
    paid: list[Event] = []
    first, second = (_vector(stream.child(name), *_SMALL, paid.append) for name in ("first", "second"))
    states = set()
    yield first.to_bytes() == b"" and not paid
    for epoch in range(1, 5):
        yield _stable(first, [_CERTAIN] * _EARLIER) == _EARLIER
        yield len(paid) == epoch
        states.add(first.to_bytes())
        second.resume(first.to_bytes())
        yield _stable(second, [_CERTAIN] * _EARLIER) == _EARLIER
        yield len(paid) == epoch  # the same epoch
        closed = SparseVector.from_bytes(second.to_bytes(), stream=stream)
        closed.above(-_CERTAIN)
        second.resume(closed.to_bytes())  # ended where it was kept
        yield second.to_bytes() == b""
        yield _stable(first, [0]) == 0 and first.to_bytes() == b""
    yield _stable(second, [_CERTAIN]) == 1 and len(paid) == 5
    yield all(event == first.event for event in paid)
    yield first.event["epsilon"] == str(_SMALL[0])
    yield len(states) > 1


#: Totals (epsilon, delta), and the delta of each answer; numbers of answers. One after the other they differ
#: in one number.
_TERMS = (
    (1, Fraction(1, 100), Fraction(0)),
    (1, Fraction(1, 10**6), Fraction(0)),
    (8, Fraction(1, 10**6), Fraction(0)),
    (8, Fraction(1, 10**6), Fraction(1, 10**12)),
)
_COUNTS = (100, 101, 400, 1_000)
#: How much of a total answers take at least.
_TIGHT = 0.99
#: Relative error of a sum in double precision, and of an epsilon that is rounded down to 1e-10.
_ROUNDING = 1e-6


@cache
def _totals() -> tuple[bool, ...]:
    """Return whether answers cost together what their total says: no more, and nearly all of it."""
    return tuple(_summed())


def _summed() -> Iterator[bool]:
    for count, (epsilon, delta, own) in product(_COUNTS, _TERMS):
        each = Fraction(per_answer(epsilon, delta, count, each_delta=own))
        yield not _more(each, own, count, epsilon, delta)
        yield _more(each, own, count, _TIGHT * epsilon, delta)
        told = answers(release_of("response", each, 2, own), count, delta - count * own)
        yield told.epsilon <= epsilon and told.delta <= delta
        yield told.event.count == count and not _more(each, own, count, told.epsilon, told.delta)


def _more(each: Any, own: Any, count: int, epsilon: Any, delta: Any) -> bool:
    """Return whether so many (each, own)-DP answers cost more than (epsilon, delta).

    Kairouz, Oh & Viswanath 2015, theorem 3.3, as a sum over a binomial law: X losses of `each` and the rest
    of -`each`; with probability 1 - (1 - own)^count all is told.
    """
    from scipy.stats import binom

    e, x = float(each), np.arange(count + 1)
    gain = np.maximum(0.0, -np.expm1(float(epsilon) - e * (2 * x - count)))
    kept = float(binom.pmf(x, count, 1 / (1 + np.exp(-e))) @ gain)
    told = -float(np.expm1(count * np.log1p(-float(own))))
    return kept + told * (1 - kept) > float(delta) * (1 + _ROUNDING)


_ROWS = neighbours.table(9, 2, classes=True)
_QUERY = np.array([[-1.0, -0.2]])


#: Numbers of queries and their total: the second call has less delta.
_CALLS = tuple((count, (1, Fraction(1, small))) for count, small in ((120, 100), (120, 10**6)))


def _asked(stream: RandomStream) -> Iterator[bool]:
    """Yield whether a model's answers cost no more together than the total that was asked for."""
    model = CertifiedClassifier([-1.0, 1.0], (-1, 1), certificate="votes", neighbours=3)
    model.fit(_ROWS.X, _ROWS.y)
    for count, total in _CALLS:
        told = model.answer(np.repeat(_QUERY, count, axis=0), total=total, random_state=random_state(stream))
        made, (each,) = model.guarantee_, model.guarantee_.event.parts
        yield len(told) == made.event.count == count
        yield made.epsilon <= 1 and made.delta <= total[1]
        yield not _more(Fraction(str(each["epsilon"])), 0, count, *total)
    total = _CALLS[0][1]
    held = model.preview(1, None, total[1] / 200, "sparse_vector", total=total, epochs=100)
    (epoch,) = held.event.parts
    yield held.epsilon <= 1 and held.delta <= total[1]
    for promised in (total, (held.epsilon, held.delta)):
        yield not _more(Fraction(str(epoch["epsilon"])), Fraction(str(epoch["delta"])), 100, *promised)


class _Known:
    """A certified model whose class is 0, and whose distance of a query is its cell."""

    def stability(self, X: Any) -> tuple[Any, Any]:
        """Return classes and distances."""
        return np.zeros(len(X), dtype=np.int64), X[:, 0].astype(np.int64)


#: A distance that epochs of `_SMALL` answer once in 10^15, and those of a delta of 1/100 nearly always.
_MIDDLE = 300_000
#: Distances of the queries of four epochs, each of which ends with an unstable one.
_EPOCHS_ASKED = [[_CERTAIN, _MIDDLE], [_CERTAIN, _CERTAIN, 0], [_MIDDLE], [_CERTAIN, 0]]


def _reserved(stream: RandomStream) -> Iterator[bool]:
    """Yield whether a model answers in the epochs that are reserved alone, each of the delta asked for."""
    model = CertifiedModel(_Known(), Facts(np.array([0, 1]), Adjacency.REPLACE_ONE, 1))
    asked = np.concatenate(_EPOCHS_ASKED)[:, None]
    for epochs in range(1, 5):
        seed = random_state(stream.child(f"epochs {epochs}"))
        told: Any = model.answer(asked, *_SMALL, "sparse_vector", epochs=epochs, random_state=seed)
        within = np.arange(asked.size) < len(np.concatenate(_EPOCHS_ASKED[:epochs]))
        yield np.array_equal(~np.ma.getmaskarray(told), within & (asked[:, 0] == _CERTAIN))
        made = model.guarantee
        yield made is not None and made.epsilon >= epochs * _SMALL[0]
        yield made is not None and made.delta >= epochs * _SMALL[1] * (1 - Fraction(1, 10**9))


@cache
def _known() -> tuple[bool, ...]:
    """Return whether what must be refused is refused, and whether rows of persons count as they must."""
    return (*refusals.calls(), *refusals.kept(), *refusals.tabled(), *refusals.counted())


def _nothing() -> list[Pair]:
    """Return no rows; what is known is asked for first, since what it draws is no run's noise."""
    _known()
    return [Pair("no rows", 0, 0)]


#: What is checked, in order.
_CHECKS: tuple[Callable[[RandomStream], Iterable[bool]], ...] = (
    _kept, _charged, lambda stream: _totals(), _asked, _reserved, lambda stream: _known(),
)  # fmt: skip
#: How many checks each yields.
_MANY = (
    31, 29, 4 * len(_COUNTS) * len(_TERMS), 3 * len(_CALLS) + 3, 12, 2 * len(refusals.CALLS) + 45 + 28 + 168,
)  # fmt: skip


def _served(stream: RandomStream) -> Floats:
    """Return how many checks there were, and how many failed, of each sort."""
    told = [list(check(stream.child(f"check {i}"))) for i, check in enumerate(_CHECKS)]
    return np.array([number for each in told for number in (len(each), each.count(False))], dtype=np.float64)


promise(
    "prediction.serving", Kind.ESTIMATOR, 1, 0, "replace_one",
    "what is kept of an epoch, sums of exact amounts, refusals; confide.prediction.vector, .budgets",
    _nothing,
    run=lambda table, stream: _served(stream),
    law=lambda table: certain({tuple(n for each in _MANY for n in (float(each), 0.0)): Fraction(1)}),
    replayed=False, fuzzed=False, draws=4, quick=2,
    note="No rows are read: what is kept, charged, composed and refused is known beforehand.",
)  # fmt: skip
