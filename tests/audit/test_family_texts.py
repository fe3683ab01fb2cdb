"""Members on arrays, frames and lists whose secret cells are text or pairs: all hold, and old readings are seen."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from confide.audit import claims, family, price, replay
from confide.audit.family.texts import FAMILIES
from confide.audit.finding import Verdict
from confide.schema import loose
from confide.selection import columns, wide
from confide.selection import problem as subsets
from confide.training import LinearProblem, hybrid
from confide.training.sgd import fitting, result
from confide.training.sgd.arrays import to_host

from .members import verdicts

CLAIMS = [claim for claim in claims() if claim.name in FAMILIES]
MEMBERS = {member.name: member for claim in CLAIMS for member in family.variants(claim)}
OF_FUNCTIONS = [name for name in MEMBERS if any(f"[text, {word}" in name for word in
                                                ("sgd.fit", "fit_hybrid", "LinearProblem", "SubsetProblem"))]  # fmt: skip


def test_every_family_is_one_of_a_claim():
    assert {claim.name for claim in CLAIMS} == set(FAMILIES)
    assert len(OF_FUNCTIONS) == 9


@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_a_member_holds_on_all_its_pairs(name):
    member = MEMBERS[name]
    told, paid = replay.check(member, member.pairs()), price.check(member, [], [member])
    assert told.verdict is Verdict.HOLDS, told.note
    assert paid.verdict is Verdict.HOLDS, paid.note
    assert "error" not in told.note + paid.note
    assert "up to 0 calls" not in told.note


def floats(values, *_):
    return np.asarray(values, dtype=np.float64)


def cells(patch):
    patch.setattr(result, "numbers", to_host)


def weights(patch):
    def read(given, n, cap):
        return None if given is None else np.clip(np.nan_to_num(floats(given).reshape(n)), 0.0, cap)

    patch.setattr(fitting, "weights_of", read)


def classes(patch):
    true = fitting.labels_of
    patch.setattr(
        fitting, "labels_of", lambda y, n, asked: true(np.asarray(y, dtype=object).reshape(n, -1), n, asked)
    )


def numbers(patch):
    patch.setattr(hybrid, "number_labels", lambda y, n: lambda: floats(y).reshape(n, -1)[:, 0])


def labels(patch):
    true = LinearProblem.normalised
    patch.setattr(LinearProblem, "normalised", lambda task, given: true(task, floats(given)))


def old(**readings):
    """Return `loose` with other readings."""
    return SimpleNamespace(**{**vars(loose), **readings})


def listed_targets(patch):
    patch.setattr(subsets, "loose", old(vector_of=np.asarray))


def listed_rows(patch):
    patch.setattr(columns, "loose", old(matrix_of=np.asarray))


def sources(patch):
    patch.setattr(wide, "loose", old(numbers=floats))


#: What is broken, as it once was, and where it shows.
BREAKS = {
    "private cells of an array": (cells, "sgd.fit of objects"),
    "private cells of a frame": (cells, "sgd.fit of a frame"),
    "private cells of an array, hybrid": (cells, "fit_hybrid of objects"),
    "private cells of a frame, hybrid": (cells, "fit_hybrid of a frame"),
    "weights": (weights, "sgd.fit of objects, weights"),
    "weights of rows that come": (weights, "sgd.fit of a frame, weights"),
    "classes": (classes, "sgd.fit of pairs"),
    "numbers": (numbers, "fit_hybrid of pairs"),
    "labels": (labels, "LinearProblem of a list"),
    "listed targets": (listed_targets, "SubsetProblem of lists"),
    "listed rows": (listed_rows, "SubsetProblem of lists"),
    "sources": (sources, "SubsetProblem of a source"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_an_old_reading_is_seen(name, monkeypatch):
    apply, where = BREAKS[name]
    (member,) = (member for member in MEMBERS.values() if where in member.name)
    apply(monkeypatch)
    told, _ = verdicts(member)
    assert told.verdict is Verdict.BROKEN, told.note
