"""Members of the families of the pipeline and of tuning: each holds, and breaks of a branch are seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from confide.audit import claims, family
from confide.pipeline import request
from confide.tune import front, runs
from confide.tune.scoring import Scoring

from .members import coefficients_take_all, faults

VARIANTS = {
    v.name: v
    for claim in claims()
    if claim.name.partition(".")[0] in ("pipeline", "tune")
    for v in family.variants(claim)
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_member_holds(name):
    assert not faults(VARIANTS[name])


def one_row_twice(patch):
    true = front.split

    def split(*args):
        fitted, scored = true(*args)
        return np.append(fitted, scored[:1]), scored

    patch.setattr(front, "split", split)


def rehearsed_on_private_cells(patch):
    patch.setattr(runs, "_public_cells", lambda X, public: X)


def gains_of_two(patch):
    true = Scoring.gains
    patch.setattr(Scoring, "gains", lambda scoring, *cells: 2 * true(scoring, *cells))


def one_row_a_person(patch):
    true = request.make_shape
    patch.setattr(request, "make_shape", lambda *a, **how: true(*a, **{**how, "rows_per_unit": 1}))


def ledger_of_a_part(patch):
    true = request.make_sparse_request

    def made(**given):
        told = true(**given)
        less = replace(told.guarantee, epsilon=told.guarantee.epsilon / 2)
        return replace(told, guarantee=less)

    from confide.pipeline import shell

    patch.setattr(shell, "make_sparse_request", made)


BREAKS = {
    "one row twice": (one_row_twice, "no row twice, replace_one"),
    "one row twice, secret rows": (one_row_twice, "no row twice, add_remove_one"),
    "private cells in a rehearsal": (rehearsed_on_private_cells, "rehearsals"),
    "gains of two": (gains_of_two, "a row that scores, classes"),
    "gains of two, pure": (gains_of_two, "a row that scores, pure"),
    "coefficients take all": (coefficients_take_all, "split 0.2"),
    "coefficients take all, at 8": (coefficients_take_all, "epsilon 8"),
    "persons": (one_row_a_person, "select_and_fit"),
    "half is charged": (ledger_of_a_part, "split 0.9"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_seen(name, monkeypatch):
    apply, where = BREAKS[name]
    members = [v for v in VARIANTS.values() if where in v.name]
    apply(monkeypatch)
    assert any(faults(variant) for variant in members), [v.name for v in members]
