"""A small table with public and private columns, numbers and categories."""

from __future__ import annotations

import numpy as np
import pandas as pd

SCHEMA = {
    "table": {"name": "clinic", "declared_by": "the clinic"},
    "columns": {
        "x0": {"role": "public", "lower": 0, "upper": 10},
        "x1": {"role": "private", "lower": -1, "upper": 3},
        "x2": {"role": "private", "lower": -5, "upper": 0},
        "x3": {"role": "private", "lower": 0, "upper": 1},
        "ward": {"role": "public", "categories": ["north", "south", "west"]},
        "cost": {"role": "label", "lower": 2, "upper": 12},
    },
}
#: Encoded columns, in order.
NAMES = ("x0", "x1", "x2", "x3", "ward=north", "ward=south", "ward=west", "ward=other")
ILL = {"ill": {"role": "label", "categories": ["no", "yes"]}}


def frame(n=1500, seed=0):
    """Return data whose cost depends on x1 and x2."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "x0": rng.uniform(0, 10, n),
            "x1": rng.uniform(-1, 3, n),
            "x2": rng.uniform(-5, 0, n),
            "x3": rng.uniform(0, 1, n),
            "ward": rng.choice(["north", "south", "west"], n),
        }
    )
    signal = 1.2 * (data.x1 - 1) - (data.x2 + 2.5)
    data["cost"] = (7 + signal + 0.5 * rng.normal(size=n)).clip(2, 12)
    return data.assign(ill=np.where(signal + rng.normal(size=n) > 0, "yes", "no"))


def with_columns(**columns):
    """Return the schema with columns added or replaced; None takes one out."""
    merged = {**SCHEMA["columns"], **columns}
    return {**SCHEMA, "columns": {name: spec for name, spec in merged.items() if spec is not None}}


class Watched:
    """A table that tells whether anything but its schema was read."""

    def __init__(self, table):
        self._table, self.read = table, []
        self.schema, self.label_bounds, self.unit = table.schema, table.label_bounds, table.unit

    def chunks(self):
        self.read.append("cells")
        return self._table.chunks()

    @property
    def n_rows(self):
        self.read.append("rows")
        return self._table.n_rows

    def content_tag(self, key):
        self.read.append("cells")
        return self._table.content_tag(key)
