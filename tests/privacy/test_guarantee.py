"""Guarantees: one sentence, round trips, and comparison only where it means something."""

import copy
import math
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide.errors import AdjacencyError, ParameterError
from confide.privacy import NONPRIVATE, Adjacency, Event, Guarantee

EVENT = Event.of("gaussian", noise_multiplier=4.0)
NAMES = [member.value for member in Adjacency]


def make(epsilon=1, delta=1e-6, adjacency="replace_label", unit="row", **more):
    return Guarantee(epsilon, delta, adjacency, unit, EVENT, **more)


@pytest.mark.parametrize("adjacency", NAMES)
def test_prints_one_sentence_with_everything(adjacency):
    text = str(make(0.5, 1e-6, adjacency, "person", assumptions=("gap",)))
    assert text.count(".") - text.count("0.5") == 1
    for part in ("epsilon = 0.5", "delta = 1e-06", "one person", "gap"):
        assert part in text
    assert "delta" not in str(make(1, 0, adjacency))


amounts = st.fractions(min_value=0, max_value=100, max_denominator=10**9)
plain = st.one_of(st.integers(-5, 5), st.text(max_size=5), st.booleans(), st.none())


@given(amounts, st.fractions(min_value=0, max_value=1, max_denominator=10**9), st.sampled_from(NAMES),
       st.dictionaries(st.text(min_size=1, max_size=5), plain, max_size=3), st.lists(st.text(max_size=6), max_size=3))  # fmt: skip
def test_round_trips(epsilon, delta, adjacency, parameters, assumptions):
    event = Event("gaussian", tuple(sorted(parameters.items())), 2)
    value = Guarantee(
        epsilon, delta, adjacency, "row", Event.sequence([event, EVENT]), tuple(assumptions), "hash"
    )
    assert Guarantee.from_json(value.to_json()) == value
    assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value)
    assert Guarantee.from_json(value.to_json()).to_json() == value.to_json()


def test_comparison_within_one_relation():
    assert make(1) < make(2)
    assert make(1) <= make(1)
    assert make(2) > make(1)
    assert not make(1, 1e-5) <= make(2, 1e-6)
    assert not make(2, 1e-6) <= make(1, 1e-5)


@pytest.mark.parametrize("other", [make(adjacency="replace_one"), make(unit="person")])
@pytest.mark.parametrize("compare", ["__le__", "__lt__", "__ge__", "__gt__"])
def test_comparison_across_relations_or_units_is_refused(other, compare):
    with pytest.raises(AdjacencyError, match="not comparable"):
        getattr(make(), compare)(other)
    with pytest.raises(TypeError):
        getattr(make(), compare)(1.0)


def test_strength_of_relations():
    order = ["replace_one", "replace_private_part", "replace_label"]
    for i, strong in enumerate(order):
        for j, weak in enumerate(order):
            assert Adjacency(strong).implies(Adjacency(weak)) is (i <= j)
    assert not Adjacency.REPLACE_ONE.implies(Adjacency.ADD_REMOVE_ONE)


def test_conversion_between_relations():
    assert make(adjacency="replace_one").under("replace_label").epsilon == 1
    doubled = make(1, 1e-6, "add_remove_one").under("replace_one")
    assert doubled.epsilon == 2
    assert Fraction(1, 10**6) * Fraction(1 + math.e) <= doubled.delta <= Fraction(37183, 10**10)
    for weak, strong in [("replace_label", "replace_one"), ("replace_one", "add_remove_one")]:
        with pytest.raises(AdjacencyError, match="says nothing"):
            make(adjacency=weak).under(strong)


def test_infinite_epsilon_needs_its_name():
    with pytest.raises(ParameterError, match="nonprivate"):
        make(math.inf)
    value = make(math.inf, 0, assumptions=(NONPRIVATE,))
    assert str(value).startswith("No privacy")
    assert Guarantee.from_json(value.to_json()) == value


@pytest.mark.parametrize("bad", [-1, math.nan, "x", True])
def test_bad_amounts(bad):
    with pytest.raises(ParameterError, match="'epsilon'"):
        make(bad)
    with pytest.raises(ParameterError, match="'delta'"):
        make(1, bad)


def test_delta_at_most_one():
    with pytest.raises(ParameterError, match="'delta'"):
        make(1, 1.5)


@pytest.mark.parametrize("bad", ["label", "", None, 3])
def test_unknown_adjacency_lists_the_names(bad):
    with pytest.raises(ParameterError, match="replace_label"):
        Adjacency.parse(bad)


def test_adjacency_accepts_enum_and_name():
    assert (
        Adjacency.parse("REPLACE_LABEL")
        is Adjacency.parse(Adjacency.REPLACE_LABEL)
        is Adjacency.REPLACE_LABEL
    )


def test_events_are_plain_and_checked():
    with pytest.raises(ParameterError, match="plain"):
        Event.of("gaussian", noise_multiplier=[1])  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="count"):
        Event("gaussian", (), -1)
    with pytest.raises(ParameterError, match="parts"):
        Event("gaussian", (), 1, (EVENT,))
    assert EVENT["noise_multiplier"] == 4.0
    assert EVENT.get("nothing", 3) == 3
    with pytest.raises(KeyError):
        EVENT["nothing"]
