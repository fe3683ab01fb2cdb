"""One declared column: role, bounds or categories, and what happens to a missing value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from confide.schema.cells import label
from confide.schema.rules import OTHER, SchemaFileError, plain, read_column, transformed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Column:
    """What is declared, and therefore public, about one column.

    Parameters
    ----------
    name : str
        Name of the column in the data.
    role : {"public", "private", "label", "id"}
        Who may see it. ``public`` is a claim by `declared_by`, not something that Confide checks.
    lower, upper : float, optional
        Bounds of a numeric column, in `unit`, finite, lower < upper. They must come from public knowledge.
        A declared constant (lower == upper) is refused; a column that is constant in the data is fine.
    categories : sequence of str, int, float or bool, optional
        Levels of a categorical column. Cells outside the list go to the extra level ``"other"``, or to
        the declared level of that name.
    impute : float or str, optional
        Public constant for missing cells. Default: the middle of the bounds (on the transformed scale), or
        ``"other"``.
    missing : {"impute", "reject", "drop"}, optional
        ``impute`` is the default. ``reject`` (public and id columns only) raises `DataError`. For id columns
        the default is ``drop``: a row without an id contributes nothing.
    unit : str, optional
        Unit of measure, for people: "years", "dollars a week".
    kind : {"numeric", "categorical", "boolean"}, optional
        Default: categorical where `categories` is given. ``boolean`` is short for the categories false
        and true.
    transform : {"log", "log1p"}, optional
        Public transform of a numeric column, applied after clipping to the bounds, which are in raw units.
    declared_by : str, optional
        Who declares this column to be what it is. Default: the schema's `declared_by`.
    note : str, optional
        Why the declaration is right.
    mean, deviation : float, optional
        Instead of bounds: those published for such a column, in `unit`. They resolve to the bounds
        mean -+ `clip` deviations. **Never those of this table**: that would be a release nobody paid for.
    clip : float, optional
        Default 2.
    source : str, optional
        Where mean and deviation are published.

    Raises
    ------
    SchemaError
        For a declaration that breaks a rule, before any data is read. All broken rules are named.

    Notes
    -----
    Cleaning is the same arithmetic for each cell alone, whatever the other cells hold: missing -> `impute`,
    then clip to [lower, upper] (so plus and minus infinity become the bounds), then `transform`. Hence a
    changed cell changes the cleaned column in that place only, and by at most the width of the bounds.

    ===============================  =====================================================
    cell of a numeric column         cleaned value
    ===============================  =====================================================
    within the bounds                itself
    1e308, inf                       ``upper``
    -1e308, -inf                     ``lower``
    NaN, null, text, dates           ``impute``
    ===============================  =====================================================
    """

    name: str
    role: str
    lower: float | None = None
    upper: float | None = None
    categories: tuple[str, ...] | None = None
    impute: float | str | None = None
    missing: str | None = None
    unit: str = ""
    kind: str | None = None
    transform: str | None = None
    declared_by: str = ""
    note: str = ""
    mean: float | None = None
    deviation: float | None = None
    clip: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        raw = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "name"}
        if isinstance(raw["categories"], Iterable) and not isinstance(raw["categories"], (str, bytes, dict)):
            raw["categories"] = tuple(raw["categories"])
        values, problems = read_column(self.name, raw)
        if problems:
            raise SchemaFileError("declaration", problems)
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @property
    def numeric(self) -> bool:
        """Whether cells are numbers within bounds."""
        return self.kind == "numeric"

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """Names of the one-hot levels: the categories, and ``"other"`` last unless it is declared."""
        names = self.categories or ()
        return names if OTHER in names else (*names, OTHER)

    @cached_property
    def codes(self) -> dict[str, int]:
        """From the canonical text of a cell to the number of its level."""
        return {label(name)[0]: index for index, name in enumerate(self.levels)}

    @property
    def other_code(self) -> int:
        """Number of the level for cells outside the list."""
        return self.codes[OTHER]

    @property
    def missing_code(self) -> int:
        """Number of the level for missing cells."""
        return self.other_code if self.impute is None else self.codes[label(self.impute)[0]]

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the cleaned values: after `transform`; (0, number of levels - 1) for categories."""
        if self.lower is None or self.upper is None:
            return 0.0, float(len(self.levels) - 1)
        return transformed(self.lower, self.transform), transformed(self.upper, self.transform)

    @property
    def middle(self) -> float:
        """Middle of `bounds`; halved before adding, so that it cannot overflow."""
        lower, upper = self.bounds
        return lower / 2 + upper / 2

    @property
    def half_width(self) -> float:
        """Half the width of `bounds`."""
        lower, upper = self.bounds
        return upper / 2 - lower / 2

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns: ``age``, or ``region=south`` ..., ``region=other``."""
        if self.numeric:
            return (self.name,)
        return tuple(f"{self.name}={level}" for level in self.levels)

    def clean(self, values: np.ndarray) -> np.ndarray:
        """Return float64 `values` [n] with missing cells imputed, clipped to the bounds and transformed."""
        import numpy as np

        lower, upper = self.bounds
        raw_lower, raw_upper = self.lower, self.upper
        assert raw_lower is not None
        assert raw_upper is not None
        gap = np.isnan(values)
        cleaned = np.clip(np.where(gap, raw_lower, values), raw_lower, raw_upper)
        if self.transform is not None:
            cleaned = np.log(cleaned) if self.transform == "log" else np.log1p(cleaned)
        fill = self.middle if self.impute is None else transformed(float(self.impute), self.transform)
        # The vectorised logarithm may differ from the scalar one in the last bit: clip once more.
        return np.clip(np.where(gap, fill, cleaned), lower, upper) + 0.0

    def inverse(self, values: ArrayLike) -> np.ndarray:
        """Return cleaned (transformed) numbers, such as predictions of a label, in raw units."""
        import numpy as np

        array = np.asarray(values, dtype=np.float64)
        if self.transform == "log":
            return np.exp(array)
        return np.expm1(array) if self.transform == "log1p" else array.copy()

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain values, without the name and without defaults."""
        out: dict[str, Any] = {"role": self.role}
        if self.mean is not None:
            out.update(mean=self.mean, deviation=self.deviation, clip=self.clip)
        elif self.numeric:
            out.update(lower=self.lower, upper=self.upper)
        if self.categories is not None:
            out["categories"] = list(self.categories)
        if self.impute is not None:
            out["impute"] = self.impute
        if self.missing != ("drop" if self.role == "id" else "impute"):
            out["missing"] = self.missing
        for key in ("source", "transform", "unit", "declared_by", "note"):
            if getattr(self, key):
                out[key] = getattr(self, key)
        return out

    @property
    def domain(self) -> str:
        """The bounds or the categories in words."""
        if self.role == "id":
            return "identifies a unit"
        if self.role == "label" and self.categories and OTHER not in self.categories:
            return f"{', '.join(self.categories)} (any other cell counts as {self.categories[0]})"
        if not self.numeric:
            return ", ".join(self.levels)
        assert self.lower is not None
        assert self.upper is not None
        span = f"{plain(self.lower)} to {plain(self.upper)}"
        if self.mean is not None:
            assert self.deviation is not None
            span += f" (mean {plain(self.mean)}, deviation {plain(self.deviation)})"
        return f"{self.transform} of {span}" if self.transform else span
