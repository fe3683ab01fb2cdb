"""Members of the families of labels: each holds, and labels that are not cut, or dropped, are seen."""

from __future__ import annotations

import numpy as np
import pytest

from confide.audit import claims, family, price, replay
from confide.audit.finding import Verdict
from confide.pipeline import SparseRegressor
from confide.selection import SubsetProblem, SubsetSelector
from confide.selection.wide import Bounds
from confide.training import coefficients
from confide.training.labels.labels import LabelRange

(CLAIM,) = (claim for claim in claims("labels.rounding") if claim.name == "labels.rounding")
VARIANTS = {v.name: v for v in family.variants(CLAIM) if " labels, " in v.name}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_member_holds_and_labels_move_all_that_they_may(name):
    variant = VARIANTS[name]
    found = replay.check(variant, variant.pairs())
    assert found.verdict is Verdict.HOLDS
    assert "error" not in found.note
    assert 0.99 < found.moved <= 1
    till, shown = price.price(variant, variant.pairs()[0].here, 1)
    assert shown.error == ""
    assert not list(price.dishonest(variant, till))


def test_quick_audits_meet_labels_beyond_and_missing_ones_of_each_method():
    first = [v.pairs()[0].name for v in VARIANTS.values()]
    assert len(VARIANTS) == 30
    assert set(zip(first[::3], first[1::3], first[2::3])) == {("beyond the bounds", "missing", "ends")}


def quick(part):
    """Return whether a quick audit sees it: the first pair of each member."""
    return any(
        replay.check(v, v.pairs()[:1]).verdict is Verdict.BROKEN for n, v in VARIANTS.items() if part in n
    )


def uncut(first=0):
    """Return label ranges that cut labels up to a row alone."""

    def apply(patch):
        bounded, normalised = LabelRange.bounded, LabelRange.normalised

        def all_of(own, y):
            values = np.asarray(y, dtype=np.float64).reshape(-1)
            return np.where(np.isnan(values), own.middle, np.clip(values, -1e9, 1e9))

        def some(own, y):
            told = bounded(own, y)
            told[first:] = all_of(own, y)[first:]
            return told

        def scaled(own, y):
            told = normalised(own, y)
            told[first:] = ((all_of(own, y) - own.middle) / own.half)[first:]
            return told

        patch.setattr(LabelRange, "bounded", some)
        patch.setattr(LabelRange, "normalised", scaled)

    return apply


def without_missing(patch):
    """Leave out rows without a label, and put the middle there in the end."""
    true = LabelRange.normalised
    patch.setattr(
        LabelRange, "normalised",
        lambda own, y: true(own, np.asarray(y)[~np.isnan(np.asarray(y, dtype=np.float64))]),
    )  # fmt: skip


def missing_as_the_mean(patch):
    """Fill a missing label by the mean of the others."""
    true = LabelRange.normalised

    def normalised(own, y):
        values = np.clip(np.asarray(y, dtype=np.float64).reshape(-1), own.lower, own.upper)
        return true(own, np.where(np.isnan(values), np.nanmean(values), values)) * (
            1 + np.isnan(values).any()
        )

    patch.setattr(LabelRange, "normalised", normalised)


@pytest.mark.parametrize("apply", [uncut(), uncut(64), without_missing])
@pytest.mark.parametrize("method", ["laplace", "gaussian"])
def test_labels_that_are_not_cut_or_dropped_are_seen_by_a_quick_audit(monkeypatch, apply, method):
    apply(monkeypatch)
    assert quick(f"method {method}")


def test_labels_that_count_twice_where_one_is_missing_are_seen(monkeypatch):
    missing_as_the_mean(monkeypatch)
    assert quick("method laplace")


def test_two_bounds_cut_labels_so_that_one_of_them_alone_hides_nothing(monkeypatch):
    """What enters a mechanism is the same without `bounded`: `normalised` cuts once more."""
    cells = np.array([1e6, -1e308, 1e308, np.inf, -np.inf, np.nan, 0.3])
    for ends in ((0.1, 0.7), (-1.0, 3.0)):
        own = LabelRange(*ends)
        right = own.normalised(cells)
        with monkeypatch.context() as patch, np.errstate(over="ignore"):
            patch.setattr(
                LabelRange, "bounded", lambda own, y: np.where(np.isnan(y), own.middle, np.asarray(y))
            )
            assert np.allclose(own.normalised(cells), right, rtol=0, atol=2.0**-52)
            assert np.abs(own.normalised(cells)).max() <= 1


def unscaled(patch):
    """Let `Bounds.scale` leave labels beyond the bounds as they are."""
    true = Bounds.scale

    def scale(bounds, cells, columns):
        values = np.array(cells, dtype=np.float64)
        if values.ndim != 1:
            return true(bounds, cells, columns)
        middle, half = (0.0, 1.0) if bounds.symmetric else (bounds.middle, bounds.half_width)
        return np.where(np.isnan(values), 0.0, (np.clip(values, -1e300, 1e300) - middle) / half)

    patch.setattr(Bounds, "scale", scale)


@pytest.mark.parametrize("label", [1e6, -1e6, 1e308, -1e308, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("ends", [(-1, 1), (0, 2), (-3, 8)])
def test_labels_of_supports_and_coefficients_are_cut_twice(monkeypatch, ends, label):
    """So `Bounds.scale` alone, without its cut of labels, changes no release: there is nothing to see."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (40, 4)), rng.uniform(*ends, 40)
    y[0] = label
    given = {"feature_bounds": (-1, 1), "target_bounds": ends, "random_state": 1}

    def told():
        selected = SubsetSelector(2, 1, **given).fit(X, y)
        shown = [selected.get_support(indices=True)]
        for loss in ("squared", "huber"):
            fitted = SparseRegressor(2, 1, support=[0, 2], coefficient_loss=loss, **given).fit(X, y)
            shown += [fitted.coef_, np.ravel(fitted.intercept_)]
        return np.concatenate(shown)

    right = told()
    unscaled(monkeypatch)
    assert told() == pytest.approx(right, abs=1e-12)


def not_cut_again(patch):
    patch.setattr(SubsetProblem, "_clip", lambda problem, y: np.clip(np.nan_to_num(y), -50.0, 50.0))


def not_cut_in_rows(patch):
    true = coefficients._unit

    def unit(values, bound):
        if np.ndim(values) != 1:
            return true(values, bound)
        return np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64) / bound), -50.0, 50.0)

    patch.setattr(coefficients, "_unit", unit)


@pytest.mark.parametrize(
    ("claim", "part", "second"),
    [
        ("selection.extremes.replace_one", "rows in order, labels beyond", not_cut_again),
        ("selection.extremes.replace_one", "bounds of columns, labels beyond", not_cut_again),
        ("pipeline.SparseRegressor.moments", "", not_cut_in_rows),
    ],
)
def test_without_both_cuts_labels_are_seen(monkeypatch, claim, part, second):
    unscaled(monkeypatch)
    second(monkeypatch)
    (whole,) = (each for each in claims(claim) if each.name == claim)
    tried = [v for v in family.variants(whole) if part in v.name] if part else [whole]
    assert any(replay.check(v, v.pairs()).verdict is Verdict.BROKEN for v in tried)
