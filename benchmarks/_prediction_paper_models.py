"""Certificates of prediction_paper.py under fixed rules, and the distances that they give, kept in the cache.

Every setting comes from public numbers by a rule that was written down before any run: no set chose anything.
`need` is the distance from which a release errs by less than 1 % (`need_of`); a certificate that has a knob for
stability turns it so that typical distances can reach that.

boxes       one full-batch step from 0, rate 2, each coordinate of a gradient cut at 0.06: the paper's setting for
            Blobs, here for every set. "boxes, random start": from `Network.initial(0)`, as the paper starts.
boxes N     N such steps; "boxes mlp": 16 hidden units, two steps.
ball        logistic regression by 16 steps at rate 1 / L, norm clip 0.5 sqrt(B^2 + 1), B the set's public norm.
erm         Lambda = 3.16 need, at most 3 a row; members of an ensemble: need / ceil(T / 2).
votes       6 need + 1 nearest neighbours, at most half the rows.
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
from _prediction_paper_data import BLOBS_SCALE, Table, code, load
from confide.mechanisms.above_threshold import split_epoch, stable_threshold
from confide.prediction import (
    BallTraining,
    Ensemble,
    IntervalTraining,
    StronglyConvexERM,
    TeacherVotes,
    VoteGap,
    release_of,
)
from confide.prediction.intervals import Network

Labels = np.ndarray
STEP = {"learning_rate": 2.0, "clip": 0.06, "learning_rate_decay": 0.6, "learning_rate_min": 0.001}
#: Held-out rows that are asked.
QUERIES = 2_000
#: The curvature version of "erm" takes n p^2 operations a level: up to so many.
CURVATURE = 3e6
#: Certificates without a knob: one setting for every need.
FIXED = ("boxes", "ball", "teachers")


def snap(value: float) -> float:
    """Return the nearest half of a power of ten: few settings, so few fits."""
    return 10.0 ** (round(2 * math.log10(value)) / 2)


@lru_cache(maxsize=256)
def need_of(release: str, epsilon: float, delta: float, classes: int) -> int:
    """Return the least distance at which an answer is wrong with at most 1 % (an epoch: halts seldom)."""
    if release == "sparse_vector":
        return math.ceil(1.3 * stable_threshold(delta, *split_epoch(epsilon)))
    law = release_of(release, epsilon, classes, delta)
    low, high = 0, (1 << 16) - 1
    if law.probabilities(high)[high] < 0.99:
        return 1 if release == "global" else high
    p = law.probabilities(high)
    return max(1, int(np.argmax(np.asarray(p) >= 0.99)), low)


def setting_of(certificate: str, need: int, members: int, rows: int) -> float:
    """Return the knob of a certificate under its rule; 0 where it has none."""
    if certificate == "erm":
        return min(3.16 * snap(max(1.0, need / math.ceil(members / 2))), 3.0 * rows / members)
    if certificate == "votes":
        return min(6 * round(snap(need)) + 1, rows // 2)
    return 0.0


def certificate_of(name: str, table: Table, members: int, setting: float) -> Any:
    """Return the certificate for the training part of a set."""
    n, p, classes = len(table.y), table.X.shape[1], table.classes
    if name == "teachers":
        from sklearn.linear_model import LogisticRegression

        return TeacherVotes(LogisticRegression(C=1.0, max_iter=200), members, classes, (-1, 1))
    if name == "erm":
        levels = 128 if n * p**2 <= CURVATURE * members else 0
        single: Any = StronglyConvexERM(
            setting, classes, (-1, 1), feature_norm=table.norm, curvature_levels=levels
        )
    elif name == "votes":
        single = VoteGap(int(setting), classes, (-1, 1))
    elif name.startswith("ball"):
        B = table.norm
        rate, steps = 4.0 / (B * B + 1), int(name[4:] or 16)
        settings = {
            "learning_rate": rate,
            "clip": 0.5 * math.sqrt(B * B + 1),
            "epochs": steps,
            "clip_by": "norm",
        }
        single = BallTraining(p, settings, B)
    else:
        single = _boxes(name, p, classes, n // members)
    return single if members == 1 else Ensemble(single, members)


def _boxes(name: str, p: int, classes: int, rows: int) -> IntervalTraining:
    hidden = [16] if name == "boxes mlp" else []
    layers = [p, *hidden, classes]
    words = name.removeprefix("boxes").strip()
    steps = {"": 1, "mlp": 2}.get(words) or (int(words) if words.isdigit() else 1)
    network = Network(tuple(layers))
    start = np.zeros(network.size) if name == "boxes" or words.isdigit() else network.initial(0)
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
        model = certificate_of(certificate, train, members, setting).fit(train.X, train.y)
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
