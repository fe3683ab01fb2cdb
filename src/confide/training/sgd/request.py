"""What a user asks of engine `dpsgd`, validated before any data is read and any budget is written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from confide.errors import ParameterError, UnsupportedError
from confide.privacy import NONPRIVATE, SEEDED, UNRECORDED, Adjacency, Guarantee
from confide.schema.loose import declared_classes
from confide.training.conditioning import KINDS
from confide.training.sgd.factorisation import FactorisationMachine
from confide.training.sgd.linear import Linear
from confide.training.sgd.losses import Loss, make_loss
from confide.training.sgd.mlp import MLP
from confide.training.sgd.models import Model
from confide.training.sgd.optimizers import learning_rates, make_optimizer
from confide.training.sgd.sensitivity import Accounting, plan
from confide.training.sgd.switch import kinds

MODELS = ("linear", "fm", "mlp")


@dataclass(frozen=True)
class SGDRequest:
    """Options of a fit. One default learning rate serves all tables: `benchmarks/training_defaults.py`.

    Parameters
    ----------
    epsilon, delta : amount
        Total of the fit; ``epsilon=inf`` only with ``nonprivate=True``.
    adjacency : Adjacency or str
        Under ``replace_one`` and ``add_remove_one`` no column is public.
    target_bounds : pair of float, optional
        Declared bounds of a numeric label.
    classes : sequence, optional
        Declared classes of a label, instead; cells that are none of them count as the first.
    private_bounds : sequence of (float, float)
        Declared bounds of each private column; cells are clipped, missing ones are imputed by the middle.
    model : {"linear", "fm", "mlp"}
    hidden, embedding, private_embedding, activation
        Of the MLP; see `confide.training.sgd.mlp.MLP`.
    rank : int
        Of the factorisation machine.
    fit_intercept : bool
        Of the linear model.
    conditioning : str or tuple
        A kind of `confide.training.conditioning_matrix`, or ``("power", p)``, ``("ridge", rho)``. None is
        ``"spectral"`` for linear models and ``("power", 0.5)`` for the others.
    switch : None, int, float or "anneal"
        `confide.training.sgd.switch`.
    optimizer : {"adam", "sgd"}
    momentum, betas, learning_rate, schedule
        `confide.training.sgd.optimizers`. A learning rate of None is 1 / sqrt(steps) for linear models of
        classes, whose logits must grow large, and 0.3 / sqrt(steps) for all others.
    steps : int
    batch_size : float, optional
        Public expected size of Poisson batches; None for full batches, which a size of at least the number of
        rows means too.
    clip : float, "auto" or None
        Clip norm of a row's gradient, for labels in [-1, 1]; ``"auto"`` is the root mean square of ||grad f||
        over the public rows at the initial parameters. None does not clip, where what one label can move is
        public (full batches, labels the only secret).
    gradient_bound : float, optional
        M, a declared public bound on every row's gradient, in place of clipping (Theorem 4.3). A row that
        breaks it is shortened to it, so that the guarantee does not rest on the declaration.
    average : float
        Share of the last steps whose iterates are averaged; 0 returns the last iterate.
    rows : int, optional
        Under ``add_remove_one``: public stand-in for n, which is secret and compared with nothing.
    rows_per_unit : int
    weight_cap : float, optional
        Public bound on sample weights, which are secret themselves; without it weights are refused.
    init_seed : int
        Public seed of initial parameters.
    random_state : int, optional
        Noise seed for tests; marks the guarantee ``"seeded"``.
    recorded, unit, declaration, nonprivate
        As in `confide.training.request`.
    """

    epsilon: Any
    delta: Any = 0
    adjacency: Adjacency | str = Adjacency.REPLACE_LABEL
    target_bounds: tuple[float, float] | None = None
    classes: Sequence[Any] | None = None
    private_bounds: Sequence[tuple[float, float]] = ()
    model: str = "linear"
    hidden: tuple[int, ...] = (64, 32)
    embedding: int = 0
    private_embedding: int = 0
    activation: str = "relu"
    rank: int = 8
    fit_intercept: bool = True
    conditioning: Any = None
    switch: Any = None
    optimizer: str = "adam"
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    learning_rate: float | None = None
    schedule: str = "constant"
    steps: int = 100
    batch_size: float | None = None
    clip: Any = "auto"
    gradient_bound: float | None = None
    average: float = 0.5
    rows: int | None = None
    rows_per_unit: int = 1
    weight_cap: float | None = None
    init_seed: int = 0
    random_state: int | None = None
    recorded: bool = False
    unit: str = "row"
    declaration: str = ""
    nonprivate: bool = False
    kind: tuple[str, float, float] = field(init=False)

    def __post_init__(self) -> None:
        relation = Adjacency.parse(self.adjacency)
        object.__setattr__(self, "adjacency", relation)
        self._check_numbers()
        object.__setattr__(self, "private_bounds", tuple(_bounds(pair) for pair in self.private_bounds))
        object.__setattr__(self, "kind", _kind(self.conditioning, self.model))
        if (self.target_bounds is None) == (self.classes is None):
            raise ParameterError(
                "Of 'target_bounds' and 'classes' not exactly one is given.",
                "Declare the bounds of a number, or the classes of a category.",
            )
        if self.target_bounds is not None:
            object.__setattr__(self, "target_bounds", _bounds(self.target_bounds))
        else:
            object.__setattr__(self, "classes", declared_classes(self.classes))
        if self.model not in MODELS:
            raise ParameterError(
                f"The 'model' parameter is {self.model!r:.80}.",
                f"Pass one of {', '.join(map(repr, MODELS))}.",
            )
        if self.model == "fm" and (self.loss().outputs > 1 or self.switch is not None):
            raise UnsupportedError(
                "A factorisation machine has one output, and no other conditioning re-expresses it.",
                "Pass two classes or target_bounds and switch=None, or model='mlp'.",
            )
        for name, value, low in (("rank", self.rank, 1), ("init_seed", self.init_seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ParameterError(
                    f"The '{name}' parameter is {value!r:.80}.", f"Pass an integer >= {low}."
                )
        self._check_clip()
        if relation is Adjacency.ADD_REMOVE_ONE:
            if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
                raise ParameterError(
                    f"The 'rows' parameter is {self.rows!r:.80}; under 'add_remove_one' n is secret.",
                    "Pass a public bound on the number of rows.",
                )
        elif self.rows is not None:
            raise ParameterError(
                f"The 'rows' parameter is {self.rows!r:.80} under {relation.value!r}, where n is public.",
                "Leave it out.",
            )
        if self.random_state is not None:
            from confide.mechanisms.stream import seeded_stream

            seeded_stream(self.random_state)
        self.make_model(1, len(self.private_bounds))
        make_optimizer(self.optimizer, momentum=self.momentum, betas=self.betas)
        self.account(1.0)  # every other parameter, and a full batch's noise
        learning_rates(self.rate, self.steps, self.schedule)
        kinds(*self.kind, self.switch, self.steps, 1)

    def _check_numbers(self) -> None:
        for name, value in (("momentum", self.momentum), ("average", self.average)):
            if not (_is_number(value) and 0 <= value < 1):
                raise ParameterError(f"The '{name}' parameter is {value!r:.80}.", "Pass a number in [0, 1).")
        for name, value in (("weight_cap", self.weight_cap), ("batch_size", self.batch_size)):
            if value is not None and not (_is_number(value) and 0 < value < math.inf):
                raise ParameterError(
                    f"The '{name}' parameter is {value!r:.80}.", "Pass a finite number > 0, or None."
                )
        if not isinstance(self.fit_intercept, bool):
            raise ParameterError(
                f"The 'fit_intercept' parameter is {self.fit_intercept!r:.80}.", "Pass True or False."
            )

    def _check_clip(self) -> None:
        for name, value in (("clip", self.clip), ("gradient_bound", self.gradient_bound)):
            real = isinstance(value, int | float) and not isinstance(value, bool) and 1e-60 <= value <= 1e60
            if not (value is None or real or (name == "clip" and value == "auto")):
                raise ParameterError(
                    f"The '{name}' parameter is {value!r:.80}.", "Pass a number from 1e-60 to 1e60, or None."
                )
        if self.gradient_bound is not None and self.clip is not None:
            raise ParameterError(
                f"Both 'clip' ({self.clip!r}) and 'gradient_bound' are given.",
                "Pass clip=None with a gradient_bound: it stands in place of clipping.",
            )

    @property
    def relation(self) -> Adjacency:
        """The neighbouring relation."""
        return Adjacency.parse(self.adjacency)

    @property
    def rate(self) -> float:
        """Learning rate; the default when none is given."""
        if self.learning_rate is not None:
            return self.learning_rate
        far = self.model == "linear" and self.classes is not None
        return (1.0 if far else 0.3) / math.sqrt(max(1, int(self.steps)))

    def loss(self) -> Loss:
        """Return the loss, for labels in [-1, 1] or class numbers."""
        if self.classes is None:
            return make_loss("squared", width=2.0)
        return make_loss("logistic" if len(self.classes) == 2 else "softmax", classes=len(self.classes))

    def make_model(self, public: int, private: int) -> Model:
        """Return the model of so many columns."""
        outputs = self.loss().outputs
        if self.model == "linear":
            return Linear(public + private, outputs, self.fit_intercept)
        if self.model == "fm":
            return FactorisationMachine(public + private, self.rank)
        return MLP(
            public,
            private,
            tuple(self.hidden),
            self.embedding,
            self.private_embedding or self.embedding,
            self.activation,
            outputs,
        )

    def account(self, rate: float) -> Accounting:
        """Calibrate the noise at a sampling rate from public numbers."""
        return plan(
            self.epsilon,
            self.delta,
            steps=self.steps,
            sampling_probability=rate,
            adjacency=self.relation,
            rows_per_unit=self.rows_per_unit,
            weight_cap=1.0 if self.weight_cap is None else self.weight_cap,
            nonprivate=self.nonprivate,
        )

    def guarantee(self, accounting: Accounting) -> Guarantee:
        """Return what is charged."""
        marks = () if self.recorded else (UNRECORDED,)
        marks += () if self.random_state is None else (SEEDED,)
        marks += (NONPRIVATE,) if self.nonprivate else ()
        return Guarantee(
            self.epsilon, self.delta, self.relation, self.unit, accounting.event, marks, self.declaration
        )


def _is_number(value: Any) -> bool:
    """Whether a value is a real number, of Python or NumPy, and no truth value."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _bounds(pair: Any) -> tuple[float, float]:
    try:
        ordered = () if isinstance(pair, str | bytes | set | frozenset | dict) else pair
        low, high = (float(value) if _is_number(value) else math.nan for value in ordered)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (-1e140 < low < high < 1e140):
        raise ParameterError(f"The bounds {pair!r:.80} are no interval.", "Pass (low, high), low < high.")
    return low, high


def _kind(value: Any, model: str) -> tuple[str, float, float]:
    if value is None:
        return ("spectral", 0.5, 0.1) if model == "linear" else ("power", 0.5, 0.1)
    kind, power, rho = value, 0.5, 0.1
    if isinstance(value, tuple) and len(value) == 2 and value[0] in ("power", "ridge"):
        kind = value[0]
        option = (
            value[1] if isinstance(value[1], int | float) and not isinstance(value[1], bool) else math.nan
        )
        power, rho = (float(option), rho) if kind == "power" else (power, float(option))
    if kind not in KINDS or not 0 <= power <= 1 or not 0 <= rho < math.inf:
        raise ParameterError(
            f"The 'conditioning' parameter is {value!r:.80}.",
            f"Pass one of {', '.join(map(repr, KINDS))}, ('power', p) with 0 <= p <= 1, or ('ridge', rho).",
        )
    return kind, power, rho
