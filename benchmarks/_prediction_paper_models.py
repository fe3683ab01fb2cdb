"""Certificates of prediction_paper.py, and the distances that they give, kept in the cache.

No set chose anything. What has no knob is a fixed rule of public numbers; a knob is turned on the set's public
synthetic stand-in (`_prediction_paper_data.stand_in`: same rows, columns and classes), where it gives the
release in question the highest expected accuracy.

boxes       one full-batch step from 0, rate 2, each coordinate of a gradient cut at 0.06: the paper's setting for
            Blobs, here for every set. "boxes random start": from a public draw of its own for each run,
            as the paper starts.
boxes N     N such steps; "boxes mlp": 16 hidden units, two steps, such a start.
ball        logistic regression at rate 1 / L, norm clip 0.5 sqrt(B^2 + 1), B the set's public norm; the knob is the
            number of steps. "ball N": N steps.
erm         the knob is Lambda, at most 3 a row; of members of an ensemble, theirs. "erm L": Lambda = L.
votes       the knob is the number of neighbours, at most half the rows.
teachers    scikit-learn's LogisticRegression(C=1) on each part.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from _encoding import CACHE
from _prediction_paper_data import BLOBS_SCALE, SHAPES, Table, code, load
from confide.prediction import (
    BallTraining,
    Ensemble,
    IntervalTraining,
    StronglyConvexERM,
    TeacherVotes,
    VoteGap,
)
from confide.prediction.intervals import Network

Labels = np.ndarray
STEP = {"learning_rate": 2.0, "clip": 0.06, "learning_rate_decay": 0.6, "learning_rate_min": 0.001}
#: Held-out rows that are asked.
QUERIES = 2_000
#: The curvature version of "erm" takes n p^2 operations a level: up to so many.
CURVATURE = 3e6
#: Values of each knob.
KNOBS = {
    "erm": tuple(10.0 ** (j / 2) for j in range(9)),
    "votes": (7.0, 19.0, 61.0, 191.0, 601.0, 1901.0),
    "ball": (1.0, 4.0, 16.0, 64.0),
}


def knobs(certificate: str, data: str, members: int) -> tuple[float, ...]:
    """Return the values of a certificate's knob; (0,) where it has none."""
    rows = SHAPES[data][0]
    if certificate == "erm":
        return tuple(value for value in KNOBS["erm"] if value <= 3.2 * rows / members)
    if certificate == "votes":
        return tuple(value for value in KNOBS["votes"] if value <= rows / 2)
    return KNOBS.get(certificate, (0.0,))


def certificate_of(name: str, table: Table, members: int, setting: float, run: int = 0) -> Any:
    """Return the certificate for the training part of a set."""
    n, p, classes = len(table.y), table.X.shape[1], table.classes
    if name == "teachers":
        from sklearn.linear_model import LogisticRegression

        return TeacherVotes(LogisticRegression(C=1.0, max_iter=200), members, classes, (-1, 1))
    if name.startswith("erm"):
        levels = 128 if n * p**2 <= CURVATURE else 0
        ridge = float(name[4:] or setting)
        single: Any = StronglyConvexERM(
            ridge, classes, (-1, 1), feature_norm=table.norm, curvature_levels=levels
        )
    elif name == "votes":
        single = VoteGap(int(setting), classes, (-1, 1))
    elif name.startswith("ball"):
        B = table.norm
        rate, steps = 4.0 / (B * B + 1), int(name[4:] or setting)
        settings = {
            "learning_rate": rate,
            "clip": 0.5 * math.sqrt(B * B + 1),
            "epochs": steps,
            "clip_by": "norm",
        }
        single = BallTraining(p, settings, B)
    else:
        single = _boxes(name, p, classes, n // members, run)
    return single if members == 1 else Ensemble(single, members)


def _boxes(name: str, p: int, classes: int, rows: int, run: int) -> IntervalTraining:
    hidden = [16] if name == "boxes mlp" else []
    layers = [p, *hidden, classes]
    words = name.removeprefix("boxes").strip()
    steps = {"": 1, "mlp": 2}.get(words) or (int(words) if words.isdigit() else 1)
    network = Network(tuple(layers))
    start = np.zeros(network.size) if name == "boxes" or words.isdigit() else network.initial(run)
    # Many steps and a hidden layer certify little: all levels up to 200. One step: bisection up to 2,000.
    k_max, levels = (min(2_000, rows), "bisect") if steps == 1 else (min(200, rows), "all")
    return IntervalTraining(layers, {**STEP, "epochs": steps}, k_max, init=start, levels=levels)


def _raw(table: Table) -> Table:
    """Blobs in the paper's units, for training by gradient descent."""
    return replace(table, X=table.X * BLOBS_SCALE) if table.name == "blobs" else table


def distances(
    data: str, certificate: str, members: int, setting: float, run: int
) -> tuple[Labels, Labels, Labels]:
    """Return truth, certified class and distance of the held-out rows, from the cache if they are there."""
    folder = CACHE / "prediction_paper"
    stem = f"{data}-{certificate}-{members}-{setting:.6g}-{run}-{_code()}".replace(" ", "_").replace(",", "")
    kept = folder / f"{stem}.npz"
    if not kept.exists():
        train, test = load(data).split(run)
        if certificate.startswith("boxes"):
            train, test = _raw(train), _raw(test)
        asked = test.X if data == "blobs" else test.X[:QUERIES]
        model = certificate_of(certificate, train, members, setting, run).fit(train.X, train.y)
        labels, k = model.stability(asked)
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"{stem}-{os.getpid()}.partial.npz"
        np.savez_compressed(partial, truth=test.y[: len(asked)], labels=labels, k=k)
        partial.replace(kept)
    with np.load(kept, allow_pickle=False) as stored:
        return stored["truth"], stored["labels"], stored["k"]


@lru_cache(maxsize=1)
def _code() -> str:
    """Return a digest of data and settings, so that an edit here never meets old distances."""
    return hashlib.sha256(code().encode() + Path(__file__).read_bytes()).hexdigest()[:12]


def trained(method: str, data: str, epsilon: float, delta: float, run: int) -> tuple[Labels, Labels]:
    """Return truth and classes of a privately trained model (or of logistic regression) on the held-out rows."""
    train, test = load(data).split(run)
    asked = test.X if data == "blobs" else test.X[:QUERIES]
    if method == "logistic":
        from sklearn.linear_model import LogisticRegression

        model: Any = LogisticRegression(C=1.0, max_iter=300)
    elif method == "majority":
        from sklearn.dummy import DummyClassifier

        model = DummyClassifier()
    else:
        from confide.training import PrivateClassifier

        model = PrivateClassifier(
            epsilon, delta, classes=list(range(train.classes)), engine=method, adjacency="replace_one",
            feature_bounds=(-1, 1), random_state=run,
        )  # fmt: skip
    return test.y[: len(asked)], np.asarray(model.fit(train.X, train.y).predict(asked))
