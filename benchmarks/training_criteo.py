"""Criteo Sponsored Search Conversion Log (Tallis & Yadav 2018), for a user who has the file.

    python benchmarks/training_criteo.py CriteoSearchData        # prints what was read
    from training_criteo import load_criteo; data = load_criteo("CriteoSearchData")

The file is no part of any package, and its terms want a download by hand. It is tab-separated, without a header,
with the 23 columns of `COLUMNS`; -1 marks a missing cell (and, in the amount, a click without a sale). The
plain file and its .gz are read alike, in chunks.

As in "Regression with Label Differential Privacy" (ICLR 2023): the label is `SalesAmountInEuro` of the clicks
that led to a sale, clipped at 400 euros; that a click was converted counts as public there, and a fifth of the
rows is for testing. With label="sale" all clicks stay, and the label is whether they were converted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from _encoding import Encoding, Number, Unavailable, encode, hashed, log1p
from training_data import Dataset

COLUMNS = (
    "Sale",
    "SalesAmountInEuro",
    "time_delay_for_conversion",
    "click_timestamp",
    "nb_clicks_1week",
    "product_price",
    "product_age_group",
    "device_type",
    "audience_id",
    "product_gender",
    "product_brand",
    *(f"product_category{k}" for k in range(1, 8)),
    "product_country",
    "product_id",
    "product_title",
    "partner_id",
    "user_id",
)
#: Columns used as features: what the advertisement shows. Left out: outcomes, the time, product_id,
#: product_title, and user_id, which names a person.
HASHED = (*COLUMNS[6:19], "partner_id")
#: Largest amount, in euros: the declared bound of the label.
CAP = 400.0
LABELS = ("amount", "sale")


def load_criteo(
    path: str | Path,
    label: str = "amount",
    *,
    buckets: int = 16,
    rows: int | None = None,
    chunk: int = 200_000,
) -> Dataset:
    """Return the Criteo set from the user's file.

    Parameters
    ----------
    path : path
        ``CriteoSearchData``, or its .gz.
    label : {"amount", "sale"}
    buckets : int
        Of the public hash of each categorical column; d = 14 buckets + 2. The full file with label="amount"
        has about 1.7 million sales, which is 3 GB at 16 buckets.
    rows : int, optional
        Read this many lines of the file only.
    chunk : int
        Lines parsed at a time; no effect on the result.

    Raises
    ------
    Unavailable
        If there is no such file, or a line has not the documented columns.
    ValueError
        For another label.
    """
    import pandas as pd

    if label not in LABELS:
        raise ValueError(f"label is {label!r}: pass one of {LABELS}")
    if not Path(path).is_file():
        raise Unavailable(
            "there is no such file: get CriteoSearchData from Criteo's AI lab, and pass its path"
        )
    encodings: tuple[Encoding, ...] = (
        Number("nb_clicks_1week", 0, 12, log1p),
        Number("product_price", 0, 9, log1p),
        *(hashed(name, buckets) for name in HASHED),
    )
    reader = pd.read_csv(
        path, sep="\t", header=None, quoting=3, keep_default_na=False, dtype=str, nrows=rows, chunksize=chunk
    )
    parts, labels = [], []
    features: tuple[str, ...] = ()
    for part in reader:
        if part.shape[1] != len(COLUMNS):
            raise Unavailable(f"the file has {part.shape[1]} columns, not the documented {len(COLUMNS)}")
        frame = part.set_axis(list(COLUMNS), axis=1)
        if label == "amount":
            frame = frame[frame["Sale"] == "1"]
        for name in COLUMNS[:6]:
            frame = frame.assign(**{name: pd.to_numeric(frame[name], errors="coerce")})
        # A missing category is a level of its own: the text -1.
        X, features = encode(frame, encodings)
        parts.append(X)
        labels.append(frame["SalesAmountInEuro" if label == "amount" else "Sale"].to_numpy(np.float64))
    if not parts:
        raise Unavailable("the file is empty")
    bounds = (0.0, CAP if label == "amount" else 1.0)
    y = np.clip(np.nan_to_num(np.concatenate(labels), nan=sum(bounds) / 2), *bounds)
    what = (
        f"sales amount in euros, [0, {CAP:g}], of converted clicks" if label == "amount" else "sale, 0 or 1"
    )
    note = f"Label: {what}. Assumed public: the click and the product shown. Left out: outcomes, time, product and user ids."
    return Dataset(
        f"criteo-{label}",
        np.concatenate(parts),
        y,
        bounds,
        features,
        note,
        "regression" if label == "amount" else "clicks",
    )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    criteo = load_criteo(sys.argv[1], *sys.argv[2:3])
    print(f"{criteo.name}: n {criteo.X.shape[0]}, d {criteo.X.shape[1]}, mean label {criteo.y.mean():.4g}")
    print(criteo.note)
