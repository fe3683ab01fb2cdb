"""Golden multipliers and golden noiseless iterates on conditioned rows."""

import math

import numpy as np
import pytest

from confide.training.conditioning import conditioning_matrix
from confide.training.release import drive, exact_answer
from confide.training.sgd.engine import Problem, State, steps
from confide.training.sgd.linear import Linear
from confide.training.sgd.losses import Squared
from confide.training.sgd.optimizers import Adam, Average, Momentum
from confide.training.sgd.sensitivity import CLIP_ROOM, plan
from confide.training.sgd.switch import Stage

from ..helpers import DATASETS, INDEX, load

FIELDS = {"add_remove_one": "add_remove_mult_of_clip", "replace_one": "replace_one_mult_of_clip"}


def slow(entry):
    """Many grid points of a loss distribution: seconds."""
    marks = [pytest.mark.slow] if entry["q"] < 1 and entry["eps"] >= 4 else []
    return pytest.param(entry, marks=marks, id=f"q{entry['q']}-T{entry['T']}-eps{entry['eps']}")


@pytest.mark.parametrize("entry", [slow(entry) for entry in INDEX["dpsgd"]])
@pytest.mark.parametrize("adjacency", FIELDS)
def test_multipliers(entry, adjacency):
    book = plan(
        entry["eps"], entry["delta"], steps=entry["T"], sampling_probability=entry["q"], adjacency=adjacency
    )
    golden = entry[FIELDS[adjacency]]
    assert 0.99 * golden <= book.clip_multiplier <= golden * (1 + 1e-6)
    assert book.accountant == ("gaussian" if entry["q"] == 1 else "pld")


@pytest.mark.parametrize("adjacency", ["replace_label", "replace_private_part"])
def test_weaker_replacements_face_the_same_pair(adjacency):
    options = {"steps": 50, "sampling_probability": 0.1}
    assert plan(1, 1e-6, adjacency=adjacency, **options).multiplier == pytest.approx(
        plan(1, 1e-6, adjacency="replace_one", **options).multiplier
    )


@pytest.mark.parametrize("entry", DATASETS, ids=lambda e: e["file"])
@pytest.mark.parametrize("name", ["gd", "gd-clip", "adam-clip"])
@pytest.mark.parametrize("count", [1, 5, 50])
@pytest.mark.parametrize("column", [False, True])
def test_noiseless_conditioned_iterates(entry, name, count, column):
    held = load(entry)
    clip = float(held[f"clip_{name}"])
    X, y = held["X"], held["y"]
    book = plan(math.inf, 0, steps=count, adjacency="replace_label", nonprivate=True)
    model = Linear(X.shape[1], intercept=False)
    task = Problem(
        model,
        Squared(float(held["hi"] - held["lo"])),
        X,
        None,
        y[:, None] if column else y,
        book,
        float(len(y)),
        len(y),
        math.inf if math.isnan(clip) else clip / (1 - CLIP_ROOM),  # theirs has no room for rounding
    )
    optimizer = Adam() if name.startswith("adam") else Momentum()
    state = State(model.initial(0), optimizer, Average(count))
    stages = (Stage(0, conditioning_matrix(X, "spectral", scaled=True)),)
    drive(steps(task, stages, np.full(count, float(held["lr"])), state), exact_answer)
    np.testing.assert_allclose(state.parameters, held[f"iter_{name}_T{count}"], rtol=1e-9, atol=1e-12)
