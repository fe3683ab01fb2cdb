"""Members of training's families: all hold, all are run, and breaks behind their branches are caught."""

from __future__ import annotations

import dataclasses
import sys
from itertools import islice

import numpy as np
import pytest

from confide.audit import claims, family, price, replay
from confide.audit.family.training import FAMILIES
from confide.audit.finding import Verdict
from confide.audit.run import audit
from confide.privacy import gaussian_sigma
from confide.training import least_squares
from confide.training.labels.channel import Channel
from confide.training.sgd import batches, engine, fitting, sensitivity

#: Functions below the front doors, which are replayed alone: they say nothing of what they spend.
_SILENT = ("quantile .2", "Huber, radius", "hinge, ridge", "semi_sensitive[shortened rows]")
CLAIMS = {claim.name: claim for claim in claims() if claim.name in FAMILIES}
MEMBERS = {v.name: (claim, v) for claim in CLAIMS.values() for v in family.variants(claim)}


def test_every_family_is_one_of_a_claim():
    assert set(FAMILIES) == set(CLAIMS)


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_holds_without_an_error_and_calls_its_mechanisms(name):
    claim, member = MEMBERS[name]
    pairs = list(islice(member.pairs(), 1))
    found, paid = replay.check(member, pairs), price.check(claim, [], [member])
    assert found.verdict is Verdict.HOLDS, found.note
    assert paid.verdict is Verdict.HOLDS, paid.note
    assert "error" not in found.note + paid.note
    assert "up to 0 calls" not in found.note or "steps, priced" in name
    if not any(word in name for word in _SILENT):
        till, _ = price.price(member, pairs[0].here)
        assert till.paid or till.last is not None  # it is held against what it says itself


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_holds_on_all_its_pairs(name):
    _, member = MEMBERS[name]
    found = replay.check(member, member.pairs())
    assert found.verdict is Verdict.HOLDS, found.note
    assert "error" not in found.note


def everywhere(patch, true, broken):
    """Put a broken function in the place of a true one, in each module that holds it."""
    for module in [m for name, m in list(sys.modules.items()) if name.startswith("confide.training")]:
        for name, value in list(vars(module).items()):
            if value is true:
                patch.setattr(module, name, broken)


def _certain_from_4(patch):
    true = Channel.of.__func__

    def of(cls, size, epsilon):
        made = true(cls, size, epsilon)
        return cls(made.size, made.own, 1) if epsilon >= 4 else made

    patch.setattr(Channel, "of", classmethod(of))


def _floored(patch):
    def sigma(epsilon, delta, size):
        return gaussian_sigma(epsilon, max(float(delta), 1e-5), size)

    everywhere(patch, gaussian_sigma, sigma)


def _half_square(patch):
    def sigma(epsilon, delta, size):
        return gaussian_sigma(epsilon if epsilon <= 2 else epsilon * epsilon / 2, delta, size)

    everywhere(patch, gaussian_sigma, sigma)


def _renyi(patch):
    true = sensitivity.renyi_multiplier
    sensitivity._sampled.cache_clear()
    patch.setattr(sensitivity, "renyi_multiplier", lambda *args: true(*args) / 2)


def _many_steps(patch):
    true = sensitivity.plan

    def plan(*args, steps, **how):
        made = true(*args, steps=steps, **how)
        return dataclasses.replace(made, multiplier=made.multiplier / 2) if steps >= 100 else made

    everywhere(patch, true, plan)


def _added(patch):
    true = sensitivity.Accounting.difference

    def difference(book, *args):
        return true(book, *args) * (0.5 if book.ends == 1 else 1)

    patch.setattr(sensitivity.Accounting, "difference", difference)


def _unweighted(patch):
    true = sensitivity.Accounting.difference

    def difference(book, *args):
        return true(book, *args) / book.weight_cap

    patch.setattr(sensitivity.Accounting, "difference", difference)


def _wide_moments(patch):
    true = least_squares.l1_sensitivity

    def narrow(columns, *args):
        return true(columns, *args) * (0.5 if columns > 4 else 1)

    patch.setattr(least_squares, "l1_sensitivity", narrow)


def _wide_matrix(patch):
    true = least_squares.make_plan

    def plan(shape, *args, **how):
        made = true(shape, *args, **how)
        return made if shape.size < 5 else dataclasses.replace(made, multiplier=made.multiplier / 2)

    patch.setattr(least_squares, "make_plan", plan)


def _overflowing(patch):
    """Let a row whose gradient overflows decide the sum."""
    true = engine._Run.block

    def block(self, theta, rows, clip, bad=None):
        told = true(self, theta, rows, clip, bad)
        return told if bad is None else told._replace(sums=np.full(told.sums.shape, 1e300))

    patch.setattr(engine._Run, "block", block)


_CALIBRATED = (
    "training.closed_form.spectral", "training.rounds", "training.closed_form.classes",
    "training.dpsgd.linear", "training.dpsgd.secret", "training.adassp.replace_one",
    "training.boosted_adassp.add_remove_one", "training.semi_sensitive", "labels.WeightedLLPRegressor",
    "labels.rounding", "training.objective.gaussian",
)  # fmt: skip
BROKEN = [
    *((name, _certain_from_4) for name in ("training.randomized_response", "labels.rounding")),
    *((name, spoil) for name in _CALIBRATED for spoil in (_floored, _half_square)),
    pytest.param("training.dpsgd.poisson", _renyi, marks=pytest.mark.slow),
    *(pytest.param("training.hybrid", spoil, marks=pytest.mark.slow) for spoil in (_floored, _half_square)),
    ("training.dpsgd.linear", _many_steps),
    ("training.dpsgd.secret", _added),
    ("training.dpsgd.secret", _overflowing),
    ("training.dpsgd.linear", _unweighted),
    ("training.noisy_statistics.replace_one", _wide_moments),
    ("training.adassp.replace_one", _wide_matrix),
]


@pytest.mark.parametrize(("name", "spoil"), BROKEN, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_a_break_behind_a_branch_of_a_member_is_caught_in_a_quick_audit(name, spoil, monkeypatch):
    spoil(monkeypatch)
    found = []
    for claim, member in (both for both in MEMBERS.values() if both[0].name == name):
        found += replay.check(member, islice(member.pairs(), 1)), price.check(claim, [], [member])
    sensitivity._sampled.cache_clear()
    assert any(one.verdict is Verdict.BROKEN for one in found)


def _reused(true):
    def drawn(*args):
        for batch in true(*args):
            yield batch
            yield batch

    return drawn


@pytest.mark.parametrize("spoil", ["rate", "reused"])
def test_batches_of_another_rate_and_batches_that_repeat_are_caught(spoil, monkeypatch):
    if spoil == "rate":
        true = batches.gap_law
        monkeypatch.setattr(batches, "gap_law", lambda scale: true(scale / 3))
    else:
        monkeypatch.setattr(fitting, "poisson_batches", _reused(fitting.poisson_batches))
    found = audit("training.poisson_batches", full=False)
    assert "law of draws" in {one.layer for one in found.findings if one.verdict is Verdict.BROKEN}
