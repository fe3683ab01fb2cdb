from __future__ import annotations

import copy
import os
import pickle

import numpy as np
import pytest

from confide.errors import ParameterError
from confide.mechanisms.stream import RandomStream, is_certified, os_stream, seeded_stream, stream


def test_operating_system_stream_is_certified_and_never_repeats() -> None:
    source = os_stream()
    assert source.certified
    assert is_certified(source)
    assert source.bits(0).size == 0
    blocks = [source.bits(4).tobytes() for _ in range(50)]
    assert len(set(blocks)) == 50


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_of_the_certified_stream_draws_other_bits(clone) -> None:
    source = os_stream()
    other = clone(source)
    assert other.certified
    assert source.bits(8).tobytes() != other.bits(8).tobytes()
    assert not hasattr(source, "__dict__")  # no state that could be shared


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_draws_other_bits() -> None:
    source = os_stream()
    source.bits(4)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, source.bits(8).tobytes())
        os._exit(0)
    theirs = os.read(reader, 64)
    os.waitpid(child, 0)
    assert len(theirs) == 64
    assert theirs != source.bits(8).tobytes()


def test_operating_system_bits_are_balanced() -> None:
    ones = np.unpackbits(os_stream().bits(20_000).view(np.uint8)).mean()
    assert abs(ones - 0.5) < 7 * 0.5 / np.sqrt(64 * 20_000)


def test_seeded_stream_repeats_and_is_not_certified() -> None:
    first, second = seeded_stream(7), seeded_stream(7)
    assert not first.certified
    assert not is_certified(first)
    assert np.array_equal(first.bits(10), second.bits(10))
    assert not np.array_equal(first.bits(10), seeded_stream(8).bits(10))


def test_seeded_bits_are_the_same_on_every_platform() -> None:
    assert seeded_stream(0).bits(2).tolist() == GOLDEN_BITS


GOLDEN_BITS: list[int] = [5818760325347978796, 10229496922654102457]


def test_children_are_distinct_and_do_not_depend_on_position() -> None:
    parent, moved = seeded_stream(1), seeded_stream(1)
    moved.bits(100)
    names = ["coefficients", "intercept", "selection", "prediction"]
    children = {name: parent.child(name).bits(4000) for name in names}
    assert np.array_equal(children["intercept"], moved.child("intercept").bits(4000))
    unit = {name: bits / 2.0**64 - 0.5 for name, bits in children.items()}
    for a in names:  # F32: correlations near 0
        for b in names:
            if a < b:
                assert abs(np.corrcoef(unit[a], unit[b])[0, 1]) < 7 / np.sqrt(4000)


def test_a_second_child_of_one_name_is_another_stream() -> None:
    parent = seeded_stream(1)
    assert not np.array_equal(parent.child("noise").bits(4), parent.child("noise").bits(4))


def test_random_state_convention() -> None:
    assert stream(None).certified
    assert not stream(3).certified
    assert np.array_equal(stream(np.int64(3)).bits(4), seeded_stream(3).bits(4))
    source = seeded_stream(1)
    assert stream(source) is source
    assert isinstance(os_stream(), RandomStream)
    assert isinstance(source, RandomStream)


@pytest.mark.parametrize("bad", [-1, 1.5, True, "seed", np.random.default_rng(1)])
def test_other_random_states_are_refused(bad) -> None:
    with pytest.raises(ParameterError):
        stream(bad)


def test_a_stream_that_claims_to_be_certified_is_not(fake) -> None:
    class Claims(fake):
        certified = True

    assert not is_certified(Claims())
