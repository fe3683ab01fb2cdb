"""Poisson batches: their law, their rate, their independence."""

import math

import numpy as np
import pytest

from confide.errors import ParameterError
from confide.mechanisms.enclosure import LazyUniform
from confide.mechanisms.stream import os_stream, seeded_stream
from confide.mechanisms.tables import geometric
from confide.training.sgd.batches import gap_law, poisson_batches, rate_of


def test_rates_cover_what_is_drawn():
    for batch, n in ((1, 50_000), (1024, 50_000), (0.5, 10), (9.99, 10), (49_999, 50_000)):
        scale, q = rate_of(batch, n)
        assert batch / n * (1 - 1e-12) <= q <= batch / n * (1 + 1e-12)
        assert -math.expm1(-1 / scale) <= q < 1
    for batch in (None, 10, 11):
        assert rate_of(batch, 10) == (0.0, 1.0)


@pytest.mark.parametrize("batch", [0, -1, math.nan, math.inf, "8", True, 1e-12])
def test_batch_sizes_are_checked(batch):
    with pytest.raises(ParameterError):
        rate_of(batch, 10)


def test_each_row_and_each_pair_comes_with_its_probability():
    n, count = 12, 20_000
    scale, q = rate_of(3, n)
    seen = np.zeros((count, n))
    stream = poisson_batches(n, scale, seeded_stream(0))
    for step in range(count):
        batch = next(stream)
        assert (np.diff(batch) > 0).all()
        seen[step, batch] = 1
    assert np.abs(seen.mean(axis=0) - q).max() < 5 * math.sqrt(q * (1 - q) / count)
    pairs = seen.T @ seen / count
    off = pairs[~np.eye(n, dtype=bool)]
    assert np.abs(off - q * q).max() < 5 * math.sqrt(q * q * (1 - q * q) / count)  # pitfall F24
    sizes = seen.sum(axis=1)
    assert sizes.var() == pytest.approx(n * q * (1 - q), rel=0.05)
    next_to = (seen[:-1] * seen[1:]).mean(axis=0)
    assert np.abs(next_to - q * q).max() < 5 * math.sqrt(q * q / count)  # steps are independent


def test_one_digit_and_several_digits_are_one_law():
    scale = 48.3
    table = gap_law(scale)
    assert table.levels == 1
    for g in (0, 1, 7, 200, 900):
        exact = -math.expm1(-(g + 1) / scale)
        assert int(table.thresholds[0, g]) / 2**64 == pytest.approx(exact, rel=1e-12)
    slow = geometric(table.scale)
    assert slow.levels > 1
    # The tail beyond the table, and a word that equals a threshold, are settled exactly.
    assert table.exact([LazyUniform(2**64 - 1, 64, os_stream())]) > 45 * scale * 0.9
    word = int(table.thresholds[0, 5])
    assert table.exact([LazyUniform(word, 64, seeded_stream(0))]) in (5, 6)
    assert gap_law(1e7).levels > 1


def test_rare_and_dense_batches():
    stream = poisson_batches(5, rate_of(0.05, 5)[0], seeded_stream(0))
    sizes = [next(stream).size for _ in range(4000)]
    assert np.mean(np.array(sizes) == 0) == pytest.approx(0.99**5, abs=0.01)
    stream = poisson_batches(1000, rate_of(990, 1000)[0], seeded_stream(0))
    assert np.mean([next(stream).size for _ in range(200)]) == pytest.approx(990, abs=2)
    stream = poisson_batches(0, 10.0, seeded_stream(0))
    assert next(stream).size == 0
