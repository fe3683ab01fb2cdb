"""Crashed and resumed fits, and secret batches: all hold; what is redrawn, spent again or not noised is seen."""

from __future__ import annotations

from itertools import repeat

import pytest

from confide.audit import claims, family
from confide.audit.family.resumed import FAMILIES
from confide.audit.family.steps import STEPS
from confide.audit.finding import Verdict
from confide.training import hybrid
from confide.training.sgd import engine, fitting, sensitivity

from .members import verdicts

CLAIMS = {claim.name: claim for claim in claims("training")}
NAMES = {v.name for variants in FAMILIES.values() for v in variants}
MEMBERS = {
    member.name: member
    for name in STEPS
    for member in family.variants(CLAIMS[name])
    if member.name[len(name) + 1 : -1] in NAMES or "batches" in member.name
}


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_holds(name):
    told, paid = verdicts(MEMBERS[name])
    assert told.verdict is Verdict.HOLDS, told.note
    assert paid.verdict is Verdict.HOLDS, paid.note
    assert "error" not in told.note + paid.note
    assert told.moved > 0.5


def second_continuation(patch):
    patch.setattr(fitting, "take_turn", lambda *a: None)


def any_snapshot(patch):
    true = fitting.check_kept
    patch.setattr(fitting, "check_kept", lambda *a: None if "snapshot" in a[-1] else true(*a))


def any_rows(patch):
    patch.setattr(fitting._Keeper, "check_rows", lambda keeper, tag: None)
    second_continuation(patch)


def shown_before_its_turn(patch):
    true = fitting._Keeper.watch

    def watch(keeper, state, matrix):
        true(keeper, state, matrix)
        keeper._flush()

    patch.setattr(fitting._Keeper, "watch", watch)


def noise_of_what_is_left(patch):
    """Calibrate the noise of a run that goes on as if the steps before were another's."""
    true = fitting.step_answer

    def step_answer(multiplier, stream, *, steps):
        return true(multiplier / 2 if "/2" in repr(stream) or seen else multiplier, stream, steps=steps)

    seen = []
    begin = fitting._Keeper.begin

    def noted(keeper, resume, recharge):
        seen[:] = [1] if resume is not None else []
        begin(keeper, resume, recharge)

    patch.setattr(fitting._Keeper, "begin", noted)
    patch.setattr(fitting, "step_answer", step_answer)


def no_noise(patch):
    begin = fitting._Keeper.begin
    true = fitting.drive

    def noted(keeper, resume, recharge):
        seen[:] = [1] if resume is not None else []
        begin(keeper, resume, recharge)

    def exact(statistic):
        return statistic.value * statistic.step

    seen = []
    patch.setattr(fitting._Keeper, "begin", noted)
    patch.setattr(fitting, "drive", lambda run, answer: true(run, exact if seen else answer))


def one_batch(patch):
    for module in (fitting, hybrid):
        patch.setattr(module, "steps", _with_one_batch(module.steps))


def _with_one_batch(true):
    def steps(problem, stages, rates, state, drawn=None, watch=None):
        return true(problem, stages, rates, state, None if drawn is None else repeat(next(drawn)), watch)

    return steps


def batch_kept_in_steps(patch):
    """Draw each batch, and use the first one."""
    true = engine.steps

    def steps(problem, stages, rates, state, drawn=None, watch=None):
        def first():
            one = next(drawn)
            yield one
            for _ in drawn:
                yield one

        return true(problem, stages, rates, state, None if drawn is None else first(), watch)

    patch.setattr(fitting, "steps", steps)


def half_a_pair(patch):
    true = sensitivity.Accounting.difference

    def difference(book, *args):
        return true(book, *args) / (1 if book.full else 2)

    patch.setattr(sensitivity.Accounting, "difference", difference)


BREAKS = {
    "second continuation": (second_continuation, "goes on"),
    "any snapshot": (any_snapshot, "goes on, replace_label"),
    "any rows": (any_rows, "pays anew"),
    "shown too early": (shown_before_its_turn, "pays anew, replace_label"),
    "less noise": (noise_of_what_is_left, "goes on, replace_one"),
    "no noise": (no_noise, "goes on, replace_label"),
    "one batch": (one_batch, "goes on, batches"),
    "one batch, secret rows": (one_batch, "secret[batches]"),
    "one batch, rows that come": (one_batch, "secret[added, batches]"),
    "one batch, hybrid": (one_batch, "hybrid[batches]"),
    "half a pair": (half_a_pair, "secret[batches]"),
    "half a pair, rows that come": (half_a_pair, "secret[added, batches]"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_seen(name, monkeypatch):
    apply, where = BREAKS[name]
    members = [member for member in MEMBERS.values() if where in member.name]
    assert members
    apply(monkeypatch)
    assert any(one.verdict is Verdict.BROKEN for member in members for one in verdicts(member))


def test_a_batch_of_the_engine_that_is_used_again_has_another_law(monkeypatch):
    from confide.audit import blackbox
    from confide.mechanisms import seeded_stream

    claim = CLAIMS["training.poisson_batches"]
    pair = next(iter(claim.pairs()))
    assert blackbox.fit(claim, pair, 2000, seeded_stream(0)).p_value > 1e-3
    batch_kept_in_steps(monkeypatch)
    assert blackbox.fit(claim, pair, 2000, seeded_stream(0)).p_value < 1e-6
