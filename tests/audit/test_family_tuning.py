"""Members of tuning: all hold, and a winner by exact scores, a price and a split that are wrong are seen."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from confide.audit import claims, exact, family, replay
from confide.audit.family.tuning import FAMILIES
from confide.audit.finding import Verdict
from confide.audit.promises.stopping import _LOST, _RUN, _SHAPES
from confide.privacy import Adjacency
from confide.privacy.random_stopping import Stopping, stopping
from confide.tune import front, runs, scoring
from confide.tune.scoring import Scoring

from .members import faults

(TUNE,) = (claim for claim in claims("tune.tune") if claim.name == "tune.tune")
NAMES = {variant.name for variant in FAMILIES["tune.tune"]}
VARIANTS = {v.name: v for v in family.variants(TUNE) if v.name[len("tune.tune[") : -1] in NAMES}


def test_all_are_members():
    assert len(VARIANTS) == len(NAMES)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_member_holds(name):
    assert not faults(VARIANTS[name])


@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_row_moves_is_seen(name):
    variant = VARIANTS[name]
    told = replay.check(variant, variant.pairs())
    assert told.verdict is Verdict.HOLDS, told.note
    assert told.moved > 0.2 or "sides" in name
    assert "error" not in told.note


class _Exact(float):
    """A noisy score that is ordered by the exact one."""

    def __gt__(self, other):
        return self.exact > other.exact


def winner_by_exact_scores(patch):
    true = Scoring.release

    def release(scoring, predicted, labels, stream):
        told = _Exact(true(scoring, predicted, labels, stream))
        told.exact = float(scoring.gains(predicted, labels).sum())
        return told

    patch.setattr(Scoring, "release", release)


def whole_budget_a_run(patch):
    patch.setattr(runs, "price_of_run", lambda law, *amounts: runs.Price(*amounts))


def two_scores_a_run(patch):
    true = Scoring.release

    def release(scoring, predicted, labels, stream):
        return np.mean([true(scoring, predicted, labels, stream.child(name)) for name in "ab"])

    patch.setattr(Scoring, "release", release)


def quiet(name):
    """Return a break: scores have a quarter of their noise."""

    def apply(patch):
        true = getattr(scoring, name)
        patch.setattr(
            scoring, name, lambda statistic, amount, **how: true(statistic, amount * _QUIET[name], **how)
        )

    return apply


_QUIET = {"laplace_release": 4, "gaussian_release": 0.25}


def more_runs(patch):
    true = front.draw_runs
    patch.setattr(front, "draw_runs", lambda law, stream: true(stopping(20, law.eta), stream))


def rows_change_sides(patch):
    true = front.split
    patch.setattr(front, "split", lambda n, share, _, s: true(n, share, Adjacency.REPLACE_ONE, s))


BREAKS = {
    "winner, labels": (winner_by_exact_scores, "two opinions, replace_label"),
    "winner, rows": (winner_by_exact_scores, "two opinions, replace_one"),
    "winner, votes": (winner_by_exact_scores, "two votes"),
    "winner, rows that come": (winner_by_exact_scores, "two opinions, add_remove_one"),
    "price, pure": (whole_budget_a_run, "two opinions, replace_label"),
    **{f"price, {name}": (whole_budget_a_run, f"{name} number of runs]")
       for name in ("geometric", "logarithmic", "heavy")},
    "two scores": (two_scores_a_run, "two votes"),
    "scores, pure": (quiet("laplace_release"), "two opinions, replace_label"),
    "scores, Gaussian": (quiet("gaussian_release"), "geometric number of runs]"),
    "more runs": (more_runs, "two opinions, replace_label"),
    "sides": (rows_change_sides, "rows keep their sides"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_seen(name, monkeypatch):
    apply, where = BREAKS[name]
    members = [v for v in VARIANTS.values() if where in v.name]
    apply(monkeypatch)
    assert members
    assert any(faults(variant) for variant in members)


def _claim(name):
    (found,) = (claim for claim in claims("tune") if claim.name == name)
    return found


def _promised(name, eta, lost):
    """Return the claim with the amounts that the library computes now."""
    total = stopping(3, eta).approximate(_RUN, lost)
    return replace(_claim(name), epsilon=total[0], delta=total[1])


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("lost", [Fraction(0), _LOST])
def test_the_best_run_costs_what_is_said_and_no_less(shape, lost, monkeypatch):
    name = f"tune.random_stopping{shape}{'.approximate' if lost else ''}"

    pairs = _promised(name, _SHAPES[shape], lost).pairs()  # refuse a wrong mean themselves

    def verdict():
        return exact.check(_promised(name, _SHAPES[shape], lost), pairs, search=False).verdict

    assert verdict() is Verdict.HOLDS
    if lost:
        monkeypatch.setattr(Stopping, "mean", 2.5)
    else:
        true = Stopping.widening
        monkeypatch.setattr(Stopping, "widening", lambda law, profile: 0.98 * true(law, profile))
    assert verdict() is Verdict.BROKEN


@pytest.mark.parametrize("shape", _SHAPES)
def test_the_number_of_runs_is_drawn_by_its_law(shape, monkeypatch):
    from confide.audit import blackbox
    from confide.mechanisms import seeded_stream

    claim = _claim(f"tune.number_of_runs{shape}")
    pair = next(iter(claim.pairs()))
    assert blackbox.fit(claim, pair, 1000, seeded_stream(0)).p_value > 1e-3
    true = Stopping.acceptance
    if shape == ".geometric":
        from confide.audit.promises import stopping as promised

        drawn = promised.draw_runs
        monkeypatch.setattr(promised, "draw_runs", lambda law, stream: max(2, drawn(law, stream)))
    else:
        monkeypatch.setattr(Stopping, "acceptance", lambda law, k: true(law, max(1, k - 1)))
    assert blackbox.fit(claim, pair, 1000, seeded_stream(1)).p_value < 1e-6
