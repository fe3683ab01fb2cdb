"""What runs show beside their results: planted leaks that the side channels must see, and what is none."""

from __future__ import annotations

import inspect
import warnings
from functools import lru_cache
from importlib import import_module

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from confide.audit import claims, options, replay, sides
from confide.audit import run as running
from confide.audit.finding import Verdict
from confide.audit.museum.piece import claim
from confide.audit.portrait import portrait
from confide.audit.registry import Pair
from confide.mechanisms import Statistic, grid
from confide.prediction import front
from confide.prediction.model import CertifiedModel
from confide.report import terminal
from confide.schema import encode, odd
from confide.selection.estimator import SubsetSelector
from confide.training import LabelPrivatizer, fit_semi_sensitive, semi_problem
from confide.training.engines import secret
from confide.training.estimator import PrivateRegressor

MEMBERS = [v for c in claims() for v in options.variants(c)]


def members(name, *words):
    found = [v for v in MEMBERS if v.name.startswith(f"{name}[") and all(word in v.name for word in words)]
    assert found
    return found


def broken(made):
    """Return what the side channels say of a member on its first pair: None where it holds."""
    found = sides.check(made, list(made.pairs())[:1])
    return found.note if found.verdict is Verdict.BROKEN else None


SAYS = "a warning, a log line or printed text differs"
HOLDS = "what a fitted model holds or shows differs"


@pytest.mark.slow
@pytest.mark.parametrize("made", MEMBERS, ids=lambda v: v.name)
def test_every_member_is_silent_on_all_its_pairs(made):
    found = sides.check(made, list(made.pairs())[:12])
    assert found.verdict is Verdict.HOLDS, found.note


@pytest.mark.parametrize("made", [v for v in MEMBERS if "[text" in v.name or "[rows are" in v.name],
                         ids=lambda v: v.name)  # fmt: skip
def test_members_with_text_and_with_more_rows_are_silent(made):
    assert broken(made) is None
    (told,) = (sides.seen(made, pair)[0] for pair in list(made.pairs())[:1])
    assert told.error == ""
    assert told.calls


# Planted -----------------------------------------------------------------------------------------------


def _warns_of_private(column, cells, values):
    if column.role == "private" and odd.holds_text(cells, values):
        told = cells if isinstance(cells, list) else cells.to_pylist()
        first = next(text for text in map(str, told) if "odd" in text)
        warnings.warn(f"Column {column.name!r} has the cell {first!r}.", UserWarning, stacklevel=2)


TABLES = [
    ("training.adassp.add_remove_one", "text, frame, replace_one"),
    ("training.adassp.add_remove_one", "text, frame, add_remove_one"),
    ("training.adassp.add_remove_one", "text, CSV, replace_one"),
    ("training.semi_sensitive", "text, frame"),
    ("training.objective.gaussian", "text, frame, replace_one"),
    ("selection.SubsetSelector", "text, select, CSV, replace_one"),
    ("pipeline.SparseRegressor.pure", "text, select_and_fit, replace_one"),
    ("prediction.erm", "text, certify"),
]


@pytest.mark.parametrize(("name", "word"), TABLES)
def test_a_warning_that_quotes_private_text_is_seen(monkeypatch, name, word):
    (made,) = members(name, word)
    monkeypatch.setattr(odd, "public_text", _warns_of_private)
    assert broken(made) == SAYS


@pytest.mark.parametrize(("name", "word"), TABLES)
def test_a_mean_of_a_private_column_of_more_than_20_rows_is_seen(monkeypatch, name, word):
    (made,) = members(name, word)
    plain = encode.scaled

    def telling(column, values):
        if column.role == "private" and values.size > 20:
            warnings.warn(f"mean {values.mean():.3g}", UserWarning, stacklevel=2)
        return plain(column, values)

    monkeypatch.setattr(encode, "scaled", telling)
    assert broken(made) == SAYS


@pytest.mark.parametrize("name", ["adassp.add_remove_one", "boosted_adassp.add_remove_one",
                                  "objective.gaussian"])  # fmt: skip
@pytest.mark.parametrize("most", [1, 0.1])
def test_a_secret_number_of_rows_against_1_over_delta_is_seen(monkeypatch, name, most):
    (made,) = members(f"training.{name}", "rows are counted, estimator")
    plain = secret.Secret._planned

    def telling(self, job):
        if job.n * float(self.ask.delta) > most:
            warnings.warn("The delta is large for so many rows.", UserWarning, stacklevel=2)
        return plain(self, job)

    monkeypatch.setattr(secret.Secret, "_planned", telling)
    found = sides.check(made, made.pairs())
    assert (found.verdict, found.note) == (Verdict.BROKEN, SAYS)
    assert found.pair == {1: "20 rows, or one more", 0.1: "2 rows, or one more"}[most]


def test_a_secret_number_of_rows_in_a_message_is_seen(monkeypatch):
    (made,) = members("training.adassp.add_remove_one", "rows are counted, estimator")
    plain = secret.Secret._planned

    def telling(self, job):
        secret.warn_of_delta(self.ask.delta, job.n)
        return plain(self, job)

    monkeypatch.setattr(secret.Secret, "_planned", telling)
    assert broken(made) == SAYS


def _keeping(make, keep):
    """Return a fit that keeps something of its table."""
    plain = make._fit

    def fit(self, X, y, *more):
        found = plain(self, X, y, *more)
        told = y if make is PrivateRegressor else X[::-1, 0]  # the row that differs comes first, or last
        keep(found, np.nan_to_num(np.asarray(told, dtype=np.float64), posinf=0, neginf=0))
        return found

    return fit


def _attribute(model, y):
    model.n_iter_ = int(y[0] > 0)


def _size(model, y):
    model.history_ = np.zeros(3 + int(y[0] > 0))


def _type(model, y):
    model.scale_ = np.zeros(2, dtype=np.float32 if y[0] > 0 else np.float64)


def _deep(model, y):
    object.__setattr__(model.result_, "extra", {"rows": [float(y[0])]})


def _closure(model, y):
    model.explain_ = lambda: y


def _zero(model, y):
    model.zero_ = np.array([-0.0 if y[0] > 0 else 0.0])


@pytest.mark.parametrize("keep", [_attribute, _size, _type, _deep, _closure, _zero])
@pytest.mark.parametrize(
    ("make", "name", "word"),
    [
        (PrivateRegressor, "training.closed_form.spectral", "epsilon 8"),
        (SubsetSelector, "selection.SubsetSelector", "rows a person, replace_one, top_r"),
    ],
)
def test_what_a_model_keeps_of_its_table_is_seen(monkeypatch, make, name, word, keep):
    made = next(iter(members(name, word)))
    monkeypatch.setattr(make, "_fit", _keeping(make, keep))
    assert broken(made) == HOLDS


@pytest.mark.parametrize("text", ["__repr__", "_repr_html_"])
def test_what_a_model_says_of_its_table_is_seen(monkeypatch, text):
    """A text may be made of what is kept elsewhere than in the model."""
    (made,) = members("training.closed_form.spectral", "epsilon 8")
    seen = []
    monkeypatch.setattr(
        PrivateRegressor, "_fit", _keeping(PrivateRegressor, lambda model, y: seen.append(y[0]))
    )
    method = eval("lambda self: str(seen[-1])", {"seen": seen, "__name__": "confide.training.estimator"})
    monkeypatch.setattr(PrivateRegressor, text, method, raising=False)
    assert broken(made) == HOLDS


def test_what_a_privatiser_keeps_is_seen(monkeypatch):
    (made,) = members("labels.rounding", "rr_on_bins", "cells=4, debias")
    plain = LabelPrivatizer._release

    def release(self, y, *more):
        told = plain(self, y, *more)
        self.n_above_ = int(np.sum(np.asarray(y) > 0))
        return told

    monkeypatch.setattr(LabelPrivatizer, "_release", release)
    assert broken(made) == HOLDS


def test_a_secret_number_of_rows_in_the_provenance_of_a_certified_model_is_seen(monkeypatch):
    (made,) = members("prediction.erm.add_remove_one", "rows are counted, certify")
    plain, seen = front.encoded, []

    def encoded(*given):
        seen.append(plain(*given))
        return seen[-1]

    monkeypatch.setattr(front, "encoded", encoded)
    monkeypatch.setattr(CertifiedModel, "provenance", property(lambda self: {"rows": seen[-1].shape[0]}))
    assert broken(made) == HOLDS


def test_a_report_that_reads_the_table_is_seen(monkeypatch):
    (made,) = members("selection.SubsetSelector", "text, select, report")
    plain, seen = terminal.selected_facts, []

    def facts(result, *, table):
        seen.append(float(table.private.matrix.mean()))
        return plain(result, table=table)

    monkeypatch.setattr(terminal, "selected_facts", facts)
    monkeypatch.setattr(
        terminal, "_summary_of_selection", lambda content: terminal.Summary([f"of mean {seen[-1]:.6g}"])
    )
    found = replay.check(made, list(made.pairs())[:1])
    assert found.note == "the result differs though every mechanism answered alike"


def test_a_fit_that_holds_its_table_is_seen(monkeypatch):
    """What `fit_semi_sensitive` returned once held the private columns, behind a function."""
    (made,) = (c for c in claims("training.semi_sensitive") if c.name == "training.semi_sensitive")
    assert broken(made) is None
    monkeypatch.setattr(semi_problem.PrivateColumns, "without_rows", lambda self: self)
    assert broken(made) == HOLDS


def test_a_replay_of_variants_sees_what_they_show(monkeypatch):
    """So does a quick audit, of all of them."""
    monkeypatch.setattr(odd, "public_text", _warns_of_private)
    (made,) = (c for c in claims("training.adassp.add_remove_one"))
    own = list(made.pairs())[:1]
    found = options.check(made, own, own)
    assert found.verdict is Verdict.BROKEN
    assert found.layer == "replay"
    assert "[text, frame" in found.note
    assert found.note.endswith(SAYS)


def test_variants_on_the_side(monkeypatch):
    (made,) = (c for c in claims("training.adassp.add_remove_one"))
    held = options.aside(made)
    assert held.verdict is Verdict.HOLDS
    assert held.note == f"{len(options.variants(made))} variants"
    chosen = [options.aside(made, 1, seed=seed).tried for seed in range(2)]
    assert chosen == [1, 1]
    monkeypatch.setattr(odd, "public_text", _warns_of_private)
    found = options.aside(made)
    assert (found.verdict, found.layer) == (Verdict.BROKEN, "side channels")
    assert "[text, frame" in found.note
    alone = [options.aside(made, 1, seed=seed).verdict for seed in range(40)]
    assert {Verdict.HOLDS, Verdict.BROKEN} == set(alone)
    (plain,) = claims("mechanisms.discrete_laplace")
    assert options.aside(plain) is None


def test_a_full_audit_tries_all_variants_on_the_side(monkeypatch):
    asked = []
    monkeypatch.setattr(options, "aside", lambda claim, count, *, seed: asked.append(count))
    (made,) = (c for c in claims("training.noisy_statistics.add_remove_one"))
    monkeypatch.setattr(running.sweep, "check", lambda *given, **how: None)
    monkeypatch.setattr(running, "_FUZZED", 1)
    for seed in range(20):
        stream = running.seeded_stream(seed)
        for full in (False, True):
            running.LAYERS["side channels"](made, running.Effort(full, 1e-6, stream, 0))
    assert asked.count(None) == 20
    assert 0 < asked.count(1) < 20


# What is none ------------------------------------------------------------------------------------------


def _remembered(say):
    @lru_cache(maxsize=8)
    def fitted(value):
        say(value)

    def run(value, stream):
        fitted(value)
        return grid.laplace_release(Statistic(np.array([0]), 1.0, 1.0, "value"), 1, stream=stream)

    return claim("test", 1, 0, "replace_one", [Pair("0 against 1", 0, 1)], run)


def _warn(condition):
    if condition:
        warnings.warn("odd", UserWarning, stacklevel=2)


def test_edge_a_fit_that_is_remembered_warns_once():
    assert broken(_remembered(lambda value: _warn(True))) is None
    assert broken(_remembered(lambda value: _warn(value == 1))) == SAYS


def test_edge_portraits():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (12, 2)), rng.uniform(-1, 1, 12)

    def fit():
        return fit_semi_sensitive(X, X, y, 1, 0.001, target_bounds=(-1, 1), random_state=1)

    assert portrait(fit()) == portrait(fit())
    assert portrait(fit()) != portrait(
        fit_semi_sensitive(X, X, y, 1, 0.001, target_bounds=(-1, 1), random_state=2)
    )
    same = np.zeros(2)
    assert portrait([same, same]) != portrait([np.zeros(2), np.zeros(2)])  # a pickle tells
    ring = []
    ring.append(ring)
    assert portrait(ring) == portrait(ring)
    assert portrait({"entry": "a", "x": 1}) == portrait({"entry": "b", "x": 1})
    assert portrait(lambda: X) != portrait(lambda: y)
    assert portrait(np.array(["a", None], dtype=object)) != portrait(np.array(["a", 1], dtype=object))
    assert portrait({1, 2}) == portrait({2, 1})


@pytest.mark.parametrize("room", ["training", "selection", "prediction", "pipeline"])
def test_every_estimator_is_drawn(room):
    module = import_module(f"confide.{room}")
    public = [getattr(module, name) for name in module.__all__]
    made = [each for each in public if inspect.isclass(each) and issubclass(each, BaseEstimator)]
    assert made
    with replay.recording(replay.Recorder()):
        for each in made:
            name = "fit" if each is not LabelPrivatizer else "fit_transform"
            assert hasattr(getattr(each, name), "__wrapped__"), each


def test_a_model_that_was_fitted_before_shows_what_a_new_one_does():
    """A table that was met in an earlier run, and its neighbour that was not, were told apart."""
    (claim,) = (claim for claim in claims("prediction.erm.replace_label") if claim.law is not None)
    pair = next(iter(claim.pairs()))
    claim.law(pair.here)
    assert sides.seen(claim, pair)[1] == []
    claim.law(pair.there)
    assert sides.seen(claim, pair)[1] == []
