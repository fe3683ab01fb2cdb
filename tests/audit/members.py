"""What several tests of members of families ask of one, on its first pair."""

from __future__ import annotations

from confide.audit import price, replay


def verdicts(member):
    """Return what replay and price find."""
    pair = next(iter(member.pairs()))
    return replay.check(member, [pair]), price.check(member, [], [member])


def faults(variant):
    """Return what replay and the variant's own charge show against it; its runs must end well."""
    pair = next(iter(variant.pairs()))
    told = replay.replay(variant, pair, 1)
    till, shown = price.price(variant, pair.here, 1)
    assert told.recorded.error == shown.error == ""
    return [*(f.what for f in replay.faults(variant, told)), *price.dishonest(variant, till)]


def coefficients_take_all(patch):
    """Break: the part for the coefficients is twice what it should be."""
    from confide.pipeline import request

    true = request._plan
    patch.setattr(request, "_plan", lambda shape, epsilon, *rest: true(shape, 2 * epsilon, *rest))
