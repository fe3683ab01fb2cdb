"""What an engine is asked, what it is given, and what it must be: the protocol of this package."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError, UnsupportedError
from confide.privacy import NONPRIVATE, SEEDED, UNRECORDED, Adjacency, Event, Guarantee, exact, gaussian_sigma
from confide.training.engines.result import ModelResult
from confide.training.labels.request import check_infinite, check_seed

Floats = npt.NDArray[np.float64]

#: Options of engine ``dpsgd`` with their defaults, the same at every front door.
SGD_OPTIONS: dict[str, Any] = {
    "hidden": (64, 32),
    "activation": "relu",
    "embedding": 0,
    "rank": 8,
    "switch": None,
    "optimizer": "adam",
    "learning_rate": None,
    "steps": 100,
    "batch_size": None,
    "clip": "auto",
    "average": 0.5,
}
WHOLE_ROWS = (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE_ONE)


@dataclass(frozen=True)
class Ask:
    """A request before any data is read.

    Attributes
    ----------
    engine, model : str
    epsilon, delta : amount
    adjacency : Adjacency
    target_bounds : (float, float) or None
        Of a number; else `classes`.
    classes : tuple or None
    conditioning, leverage, shrinkage, fit_intercept
        See `confide.train`.
    options : mapping
        Options of ``dpsgd`` that are not at their default.
    max_rows : int or None
        Public bound on n under ``add_remove_one``.
    rows_per_unit : int
    unit, declaration : str
    assumptions : tuple of str
    recorded : bool
    random_state : int or None
    nonprivate : bool
    """

    engine: str
    epsilon: Any
    delta: Any
    adjacency: Adjacency
    target_bounds: tuple[float, float] | None = None
    classes: tuple[Any, ...] | None = None
    model: str = "linear"
    conditioning: Any = None
    leverage: float | None = None
    shrinkage: bool = True
    fit_intercept: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    max_rows: int | None = None
    rows_per_unit: int = 1
    unit: str = "row"
    declaration: str = ""
    assumptions: tuple[str, ...] = ()
    recorded: bool = False
    random_state: Any = None
    nonprivate: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """What the guarantee rests on besides."""
        marks = self.assumptions + (() if self.recorded else (UNRECORDED,))
        marks += () if check_seed(self.random_state) is None else (SEEDED,)
        return marks + ((NONPRIVATE,) if self.nonprivate else ())

    def guarantee(self, event: Event, epsilon: Any, delta: Any) -> Guarantee:
        """Return a guarantee under the relation and unit that were asked for."""
        return Guarantee(epsilon, delta, self.adjacency, self.unit, event, self.marks, self.declaration)

    def amounts(self) -> tuple[Fraction | float, Fraction]:
        """Check epsilon, delta, seed and ``nonprivate``; return the amounts, epsilon possibly infinite."""
        check_seed(self.random_state)
        if check_infinite(self.epsilon, self.nonprivate):
            return math.inf, Fraction(0)
        epsilon, delta = exact(self.epsilon, "epsilon"), exact(self.delta, "delta")
        if epsilon == 0:
            raise ParameterError("The 'epsilon' parameter is 0.", "Pass a positive epsilon.")
        if delta >= 1:
            raise ParameterError(f"The 'delta' parameter is {self.delta!r}.", "Pass 0 < delta < 1.")
        return epsilon, delta

    def gaussian(self) -> tuple[Guarantee, float]:
        """Return the guarantee of one Gaussian release and its noise multiplier."""
        epsilon, delta = self.amounts()
        if math.isinf(epsilon):
            return self.guarantee(Event.of("gaussian", noise_multiplier=0.0), math.inf, self.delta), 0.0
        if delta == 0:
            raise self.no_delta()
        multiplier = gaussian_sigma(epsilon, delta, 1.0)
        return self.guarantee(Event.of("gaussian", noise_multiplier=multiplier), epsilon, delta), multiplier

    def no_delta(self) -> ParameterError:
        """Return the refusal of delta = 0, which names what needs none under the same relation."""
        other = ""
        if self.adjacency not in WHOLE_ROWS:
            other = "confide.training.PrivateLabelRegressor"
            if self.classes is not None:
                linear = "engine='randomized_response'"
                other = linear if self.model == "linear" else "confide.training.PrivateLabelClassifier"
        elif self.classes is not None and len(self.classes) == 2:
            other = "engine='objective'" + ("" if self.model == "linear" else " with model='linear'")
        return ParameterError(
            f"The 'delta' parameter is {self.delta!r}; Gaussian noise needs a positive one.",
            "Pass 0 < delta < 1, well below one over the number of rows"
            + (f", or use {other}, which needs none." if other else "."),
        )

    @property
    def engine_name(self) -> str:
        """The engine in words: a choice is spelt out."""
        return "'closed_form' or 'randomized_response'" if self.engine == "auto" else repr(self.engine)

    def only_linear(self) -> None:
        """Refuse models and options that this engine does not know."""
        if self.model != "linear":
            raise UnsupportedError(
                f"The 'model' parameter is {self.model!r:.80} with engine {self.engine_name}.",
                "Pass engine='dpsgd', or model='linear'.",
            )
        if self.options:
            raise ParameterError(
                f"The engine {self.engine_name} does not use {', '.join(map(repr, sorted(self.options)))}.",
                "Leave it out, or pass engine='dpsgd'.",
            )


def given_delta(epsilon: Any, delta: Any, nonprivate: Any) -> Fraction:
    """Return delta exactly; None for either amount, which stands for one that was forgotten, is refused.

    A fit without privacy has no delta, so that None is 0 there.

    Raises
    ------
    ParameterError
    """
    infinite = check_infinite(epsilon, nonprivate)
    if infinite and delta is None:
        return Fraction(0)
    if delta is None:
        raise ParameterError(
            "The 'delta' parameter is None.", "Pass 0 < delta < 1, well below one over the number of rows."
        )
    return exact(delta, "delta")


def changed_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of ``dpsgd`` that differ from their defaults.

    Raises
    ------
    ParameterError
        For a name that no engine knows.
    """
    unknown = sorted(set(given) - set(SGD_OPTIONS))
    if unknown:
        raise ParameterError(
            f"The parameters {', '.join(map(repr, unknown))} are not known.",
            f"Engine 'dpsgd' takes {', '.join(map(repr, SGD_OPTIONS))}.",
        )
    return {name: value for name, value in given.items() if not _same(value, SGD_OPTIONS[name])}


def _same(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        return isinstance(value, tuple | list) and tuple(value) == default
    return value is default or (type(value) is type(default) and value == default)


class SecretLabels:
    """Labels [n] that are read when an engine asks for them, after its charge."""

    def __init__(self, n: int, read: Callable[[], npt.ArrayLike]) -> None:
        self._n, self.read = n, read

    def __len__(self) -> int:
        return self._n

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.read(), dtype=dtype)


class SecretColumns:
    """Private columns [n, q] that are read when an engine asks for them, after its charge."""

    def __init__(self, shape: tuple[int, int], read: Callable[[], npt.ArrayLike]) -> None:
        self.shape, self.read = shape, read

    def to_numpy(self) -> Floats:
        """Return the cells, which may be NaN or infinite."""
        return np.asarray(self.read(), dtype=np.float64)


@dataclass(frozen=True)
class Job:
    """What an engine fits.

    Attributes
    ----------
    public : array or CSR matrix of shape (n, p)
        p may be 0.
    private : SecretColumns
        Of shape (n, q); q may be 0.
    labels : SecretLabels
        Numbers, or numbers of classes.
    private_bounds : tuple of (float, float)
        Of each private column.
    bounded : bool
        Whether public cells lie in [-1, 1].
    ids : array [n] or None
        Public units.
    """

    public: Any
    private: SecretColumns
    labels: SecretLabels
    private_bounds: tuple[tuple[float, float], ...] = ()
    bounded: bool = False
    ids: npt.NDArray[np.int64] | None = None

    @property
    def n(self) -> int:
        """Number of rows; secret under ``add_remove_one``."""
        return len(self.labels)


@dataclass(frozen=True)
class Charge:
    """Where a fit is recorded; see `confide.ledger.charged`."""

    ledger: Any = None
    table: Any = None
    analyst: str | None = None
    label: str = "train"

    def open(self, guarantee: Guarantee) -> Any:
        """Return the context that charges before its block and settles after it."""
        from confide.ledger import charged

        return charged(self.ledger, guarantee, table=self.table, analyst=self.analyst, label=self.label)


class Engine(Protocol):
    """A validated request of one engine."""

    def quote(self, job: Job) -> Guarantee:
        """Return exactly what `fit` charges for a job, from its public part alone; charges nothing."""
        ...

    def fit(self, job: Job, charge: Charge) -> ModelResult:
        """Read what is public, charge, release."""
        ...


def warn_of_delta(delta: Any, n: int) -> None:
    """Warn of a delta that is not far below one over the public number of rows (pitfall F10)."""
    if 10 * float(delta) * n > 1:
        warnings.warn(
            f"The 'delta' parameter is {float(delta):g} for {n} rows: a mechanism that publishes one row in "
            f"full may satisfy a delta near {1 / max(n, 1):.1g}. Pass a far smaller one.",
            UserWarning,
            stacklevel=5,
        )
