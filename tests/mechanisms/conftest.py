"""Broken streams and goodness-of-fit helpers of the mechanisms' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from numpy.typing import NDArray


class FakeStream:
    """First the given words, then one pattern for ever (or the words of another stream)."""

    def __init__(self, words: Iterable[int] = (), then: object = 0) -> None:
        self.words = list(words)
        self.then = then
        self.drawn = 0

    @property
    def certified(self) -> bool:
        return False

    def bits(self, count: int) -> NDArray[np.uint64]:
        head = self.words[:count]
        self.words = self.words[count:]
        self.drawn += count
        rest = count - len(head)
        if isinstance(self.then, int):
            tail = np.full(rest, self.then, dtype=np.uint64)
        else:
            tail = self.then.bits(rest)  # type: ignore[attr-defined]
        result = np.concatenate([np.array(head, dtype=np.uint64), tail]).astype(np.uint64)
        result.setflags(write=False)
        return result

    def child(self, name: str) -> FakeStream:
        return self


@pytest.fixture(scope="session")
def fake() -> type[FakeStream]:
    return FakeStream


ONES = (1 << 64) - 1
PATTERNS = {"zeros": 0, "ones": ONES, "alternating": 0xAAAA_AAAA_AAAA_AAAA, "alternating_low": ONES // 3}


@pytest.fixture(params=sorted(PATTERNS))
def pattern(request: pytest.FixtureRequest) -> int:
    return PATTERNS[request.param]


@pytest.fixture(scope="session")
def p_value() -> Callable[[NDArray[np.int64], dict[int, float]], float]:
    """Chi-square p-value of integer draws against a pmf; cells expected below 20 are pooled."""

    def compute(draws: NDArray[np.int64], pmf: dict[int, float]) -> float:
        from scipy.stats import chi2

        values, counts = np.unique(draws, return_counts=True)
        seen = dict(zip(values.tolist(), counts.tolist(), strict=True))
        n = draws.size
        big = {k: p for k, p in pmf.items() if n * p >= 20}
        observed = [seen.get(k, 0) for k in big]
        expected = [n * p for p in big.values()]
        rest_expected, rest_observed = n - sum(expected), n - sum(observed)
        if rest_expected >= 5:
            observed.append(rest_observed)
            expected.append(rest_expected)
        else:
            # Too rare for a cell: no more of them than a Poisson tail of 1e-9 allows.
            assert rest_observed <= rest_expected + 7 * (rest_expected + 1) ** 0.5 + 7
        statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
        return float(chi2.sf(statistic, max(1, len(observed) - 1)))

    return compute
