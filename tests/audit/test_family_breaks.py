"""Breaks behind rare branches of training, each written into one function and caught in a quick audit."""

from __future__ import annotations

import inspect
import sys
import textwrap
from functools import partial
from itertools import islice

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from confide import ledger as ledger_module
from confide.audit import claims, options, price, replay, sides
from confide.audit.family.shared import CODES, NUMBERS, SECRET
from confide.audit.finding import Verdict
from confide.audit.neighbours import table
from confide.ledger import Ledger
from confide.mechanisms import seeded_stream
from confide.pipeline import SparseClassifier, SparseRegressor
from confide.pipeline import request as pipeline_request
from confide.privacy import Adjacency, Event, Guarantee
from confide.schema import encode
from confide.selection import SubsetSelector, listed
from confide.selection.baselines import peeling
from confide.selection.columns import Columns
from confide.training import (
    PrivateClassifier,
    PrivateLabelClassifier,
    PrivateLabelRegressor,
    PrivateRegressor,
    WeightedLLPRegressor,
    coefficients,
    front,
    hybrid,
    least_squares,
    linear,
    problem,
)
from confide.training.engines import dpsgd, semi
from confide.training.sgd import engine, fitting, mlp, sensitivity

CLAIMS = {claim.name: claim for claim in claims()}


def rewritten(patch, owner, name, old, new):
    """Put a function whose text is changed in one place into its owner, and wherever it was imported."""
    true = inspect.getattr_static(owner, name)
    text = textwrap.dedent(inspect.getsource(true))
    assert text.count(old) == 1
    made = {}
    code = compile(
        "from __future__ import annotations\n" + text.replace(old, new), true.__code__.co_filename, "exec"
    )
    exec(code, true.__globals__, made)
    patch.setattr(owner, name, made[name])
    for module in [m for key, m in list(sys.modules.items()) if key.startswith("confide")]:
        for key, value in list(vars(module).items()):
            if value is true:
                patch.setattr(module, key, made[name])


#: What breaks -> (a claim, the member of its family that catches it, owner, function, text, other text).
BREAKS = {
    "coefficients get all of epsilon beside a split": (
        "pipeline.SparseRegressor.pure", "split", pipeline_request, "make_budget",
        "total - first,", "total - first if split is None else total,",
    ),
    "the longest block of a person counts": (
        "training.closed_form.spectral", "ids in two", problem, "public_step",
        "np.add.at(per_unit, ids, norms)",
        "per_unit[:size] = np.maximum(per_unit[:size], np.bincount(ids, weights=norms, minlength=size))",
    ),
    "the longest chunk of a person in a file counts": (
        "training.closed_form.spectral", "Parquet, ids", problem, "public_step",
        "np.add.at(per_unit, ids, norms)",
        "per_unit[:size] = np.maximum(per_unit[:size], np.bincount(ids, weights=norms, minlength=size))",
    ),
    "a row of a person counts, of many rows": (
        "training.closed_form.spectral", "ids in two blocks", problem, "public_step",
        "float(per_unit.max(initial=0.0)),", "float(per_unit.max(initial=0.0)) if basis.n < 1000 else longest,",
    ),
    "many labels are not clipped": (
        "training.closed_form.spectral", "two blocks", problem.LinearProblem, "normalised",
        "return np.clip((np.clip(y, self.lower, self.upper) - self.middle) / self.half, -1.0, 1.0)",
        "t = (y - self.middle) / self.half; return t if y.size > 1000 else np.clip(t, -1.0, 1.0)",
    ),
    "cells of later blocks are not clipped": (
        "training.adassp.replace_one", "two blocks", coefficients.Rows, "blocks",
        "_unit(self.X[start : start + height], self.feature_bound)",
        "np.asarray(self.X[start : start + height], dtype=float) / self.feature_bound if start else "
        "_unit(self.X[start : start + height], self.feature_bound)",
    ),
    "cells of later blocks are not clipped, add/remove": (
        "training.noisy_statistics.add_remove_one", "two blocks", coefficients.Rows, "blocks",
        "_unit(self.X[start : start + height], self.feature_bound)",
        "np.asarray(self.X[start : start + height], dtype=float) / self.feature_bound if start else "
        "_unit(self.X[start : start + height], self.feature_bound)",
    ),
    "the second phase gets all of epsilon": (
        "training.hybrid", "four fifths", hybrid, "_phases",
        "replace(request, epsilon=rest)", "replace(request, epsilon=rest) if 2 * part <= 1 else request",
    ),
    "declared rows of a person are forgotten": (
        "training.semi_sensitive", "declared, estimator", semi, "linear_problem",
        "1 if ids is not None else ask.rows_per_unit", "1",
    ),
    **{
        f"ids are forgotten beside many public columns, {claim}": (
            claim, "ids, a column of categories", front, "table_problem",
            "if per_person else", "if per_person and len(names) < 8 else",
        )
        for claim in ("training.closed_form.spectral", "training.rounds")
    },
    "rows of a person are forgotten beside many private columns": (
        "training.dpsgd.secret", "categories", dpsgd.DPSGD, "fit",
        "private_bounds=job.private_bounds)",
        "private_bounds=job.private_bounds, rows_per_unit=1 if len(job.private_bounds) > 7 else "
        "self.request.rows_per_unit)",
    ),
    "norms of a net are short by its classes": (
        "training.dpsgd.classes", "three classes, MLP", mlp.MLP, "backward",
        "row_squares(xp, delta))\n", "row_squares(xp, delta) / self.outputs)\n",
    ),
    "norms of an embedded net are short by its classes": (
        "training.dpsgd.classes", "three classes, embedding", mlp.MLP, "backward",
        "row_squares(xp, delta))\n", "row_squares(xp, delta) / self.outputs)\n",
    ),
    "weights move no more than labels": (
        "training.dpsgd.linear", "weights of 0", engine, "spread_is_public",
        " and not private and not weighted", " and not private",
    ),
    "two signs turn at most": (
        "training.noisy_statistics.replace_one", "30 columns", least_squares, "l1_sensitivity",
        "range(d + 1)", "range(min(d, 2) + 1)",
    ),
    **{
        f"more than a hundred steps are free, {word} of {claim}": (
            claim, word, sensitivity, "plan", "math.sqrt(steps)", "math.sqrt(min(steps, 100))",
        )
        for claim, word in (
            ("training.dpsgd.linear", "a thousand"), ("training.dpsgd.secret", "a thousand"),
            ("training.dpsgd.linear", "priced"), ("training.dpsgd.secret", "replace_one, 20000"),
            ("training.dpsgd.secret", "add_remove_one, 20000"),
        )
    },
    **{
        f"weights are not cut, {word} of {claim}": (
            claim, word, fitting, "_problem", "ready.request.weight_cap", "1e300",
        )
        for claim, word in (
            ("training.dpsgd.linear", "weights beyond"),
            ("training.dpsgd.secret", "replace_one, weights beyond"),
            ("training.dpsgd.secret", "add_remove_one, weights beyond"),
        )
    },
    "an embedding does not count": (
        "training.dpsgd.mlp", "embedding, no layer", mlp.MLP, "backward",
        "norms = norms + row_squares(xp, delta[:, :cut]) * rows.inside", "pass",
    ),
    "the noise of all rounds, where they are most": (
        "training.rounds.several", "all rounds", linear, "_plan_rounds",
        "shared_answer(design.schedule.multipliers, ",
        "shared_answer([m / (1 + (len(design.schedule.shares) > 5)) for m in design.schedule.multipliers], ",
    ),
    **{
        f"a warning quotes a mean, {claim}": (
            claim, "all at the upper end", encode, "encode", "    matrix = np.zeros",
            "    for c in columns:\n"
            "        if c.numeric and n_rows > 20 and np.mean(cleaned[c.name]) > 0.9 * c.upper:\n"
            "            import warnings\n"
            "            warnings.warn(f'{c.name} is near its bound: {np.mean(cleaned[c.name])}')\n"
            "    matrix = np.zeros",
        )
        for claim in (
            "training.dpsgd.secret", "training.adassp.add_remove_one", "training.semi_sensitive",
            "selection.SubsetSelector", "pipeline.SparseRegressor.gaussian",
        )
    },
    **{
        f"the tail of a list is too rare, {word}": (
            f"selection.top_r.{word}", f"walked, {word}", listed, "draw_top_r",
            "+ logs.min())", "+ (logs.min() if top < 4 else 3 * logs.min()))",
        )
        for word in ("replace_one", "add_remove_one")
    },
    "the third column is peeled by more than its share": (
        "selection.screening", "walked, screening, size 3", peeling, "peel",
        "log_weights=left,", "log_weights=left * (1 if size < 3 else 4),",
    ),
    **{
        f"columns of an earlier table are read, {word}": (
            "selection.extremes.replace_one", f"an earlier table, {word}", Columns, "__init__",
            "self._kept: dict[int, Floats] = {}",
            "self._kept = globals().setdefault('_BEFORE', {}).setdefault((self.n, self.p), {})",
        )
        for word in ("rows in order", "sparse", "huber")
    },
    "noise is drawn before the charge": (
        "training.semi_sensitive", "", semi.SemiSensitive, "fit",
        """
    with charge.open(self.guarantee) as reservation:
        solution = drive(
            solve(problem, columns, plan, shrinkage=ask.shrinkage),
            answer if self.multiplier else exact_answer,
        )
""",
        """
    solution = drive(
        solve(problem, columns, plan, shrinkage=ask.shrinkage),
        answer if self.multiplier else exact_answer,
    )
    with charge.open(self.guarantee) as reservation:
        pass
""",
    ),
}  # fmt: skip


def caught(claim, word):
    """Return what a quick audit says against members with a word in their names."""
    for member in options.variants(claim):
        if word in member.name:
            first = islice(member.pairs(), 1)
            told = replay.check(member, first, kind=sides.Sitting, beside=sides.beside)
            for one in told, price.check(claim, [], [member]):
                if one.verdict is Verdict.BROKEN:
                    yield f"{member.name}: {one.note}"


@pytest.mark.parametrize("what", BREAKS)
def test_a_break_behind_a_branch_is_caught_by_the_member_that_takes_it(what, monkeypatch):
    name, word, owner, function, old, new = BREAKS[what]
    assert not list(caught(CLAIMS[name], word))
    rewritten(monkeypatch, owner, function, old, new)
    assert list(caught(CLAIMS[name], word))


_SPARSE = {"size": 2, "feature_bounds": (-1, 1), "epsilon": 1}
#: What is refused -> how it is made: each engine and estimator that charges a ledger.
REFUSED = {
    **{
        f"PrivateRegressor, {engine}": partial(PrivateRegressor, **NUMBERS, engine=engine)
        for engine in ("closed_form", "rounds", "dpsgd")
    },
    **{
        f"PrivateRegressor, secret rows, {engine}": partial(
            PrivateRegressor, **NUMBERS, **SECRET, engine=engine
        )
        for engine in ("adassp", "boosted_adassp", "dpsgd")
    },
    "PrivateRegressor, semi_sensitive": partial(
        PrivateRegressor, **NUMBERS, engine="semi_sensitive", public=[True, True, False], feature_bounds=(-1, 1),
        adjacency="replace_private_part",
    ),
    **{
        f"PrivateClassifier, {engine}": partial(PrivateClassifier, **CODES, engine=engine)
        for engine in ("closed_form", "randomized_response", "dpsgd")
    },
    "PrivateClassifier, objective": partial(PrivateClassifier, **CODES, **SECRET, engine="objective"),
    "PrivateLabelRegressor": partial(PrivateLabelRegressor, Ridge(), epsilon=1, target_bounds=(-1, 1)),
    "PrivateLabelClassifier": partial(PrivateLabelClassifier, LogisticRegression(), epsilon=1, classes=[0, 1]),
    "WeightedLLPRegressor": partial(WeightedLLPRegressor, **NUMBERS),
    "SubsetSelector": partial(SubsetSelector, **_SPARSE, target_bounds=(-1, 1)),
    **{
        f"SparseRegressor, {loss}": partial(
            SparseRegressor, **_SPARSE, target_bounds=(-1, 1), coefficient_loss=loss
        )
        for loss in ("huber", "squared")
    },
    "SparseClassifier": partial(SparseClassifier, **_SPARSE, classes=[0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_an_exhausted_ledger_refuses_before_any_mechanism_is_called(what, tmp_path):
    model = REFUSED[what]()
    relation = getattr(model, "adjacency", None) or "replace_label"
    given = {"dataset": "a", "epsilon": 0.5, "delta": 1e-5, "adjacency": relation}
    model.set_params(ledger=Ledger.open(f"sqlite:///{tmp_path}/l.db", **given))
    recorder = replay.Recorder()
    X, y = table(40, 3).X, np.arange(40) % 2.0
    shown = replay.observe(lambda: model.fit(X, y), recorder)
    assert shown.error.startswith("BudgetError")
    assert not recorder.calls


def test_calls_before_a_refused_charge_are_told():
    till = price.Till(Adjacency.REPLACE_LABEL)
    claim = CLAIMS["mechanisms.gaussian_release"]
    event = Event.of("gaussian", noise_multiplier=9.0)
    guarantee = Guarantee(1, 0.001, Adjacency.REPLACE_LABEL, "row", event, ("unrecorded",))

    def late():
        claim.run(next(iter(claim.pairs())).here, seeded_stream(0))
        with ledger_module.charged("not a ledger", guarantee):
            pass

    shown = replay.observe(late, till)
    assert shown.error
    assert [what for what in price.dishonest(claim, till) if "outside of every charge" in what]
