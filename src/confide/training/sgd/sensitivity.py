"""One object that knows adjacency, sampler, sensitivity, accountant and noise (pitfalls F22, F23, F28, K11).

Let a row's clipped contribution have norm at most c (clip norm, times the public cap of its sample weight).

=======================  ==================  =====================================================
relation                 batch               a released sum moves by at most
=======================  ==================  =====================================================
REPLACE_LABEL            full                min(2c, label_shift max_i ||grad f_i||), the maximum over
                                             all public rows at the released parameters: gradients of
                                             two labels lie on one line, and clipping moves no two
                                             points apart.
                                             2c where the row has private columns, or a head has several
                                             outputs and is not linear
REPLACE_PRIVATE_PART     full                2c (as REPLACE_LABEL where there are public columns alone)
REPLACE_ONE              full                2c
ADD_REMOVE_ONE           full                c
any REPLACE              Poisson             the pair (c, -c): from the batch without the row, c either way
ADD_REMOVE_ONE           Poisson             c, and 0 where the row is not drawn
=======================  ==================  =====================================================

A unit of m rows (declared and public) moves a full-batch sum by m times as much; with Poisson batches it is
refused, because its rows would be drawn apart. Noise is `multiplier` times the sensitivity of the released
statistic, padding included: so the calibration is relative, and for the pair (c, -c), whose ends are 2c
apart, half the usual multiplier "of the clip norm".

Full batches are Gaussian mechanisms whose sensitivities may differ from step to step: each is
1/multiplier-GDP whatever its sensitivity, which only released values decide, so T of them cost what one of
multiplier / sqrt(T) costs, exactly (Dong, Roth & Su 2022, corollary 3.3). Poisson batches are accounted by
privacy loss distributions; where those fail, or their round-off hides delta (below 10^-10, or 2^-48 a step),
by Renyi divergences, and `accountant` says so.

Rounding. Sums are computed in blocks of `block_rows` rows by matrix products, whatever order those take: off
by at most gamma_n n c in L2 (`confide.mechanisms.sum_error`, summed over coordinates by the triangle
inequality), rounded once to the grid, and added as integers. A unit's rows touch few blocks when rows keep
their places (full batch, REPLACE), every block otherwise. Where rows do not keep their places, a row's own
gradient is computed beside other rows, and a product may round differently there. `PLACE` of c a row is
allowed for that: an allowance, checked on each platform by a test, and not a theorem (docs/decisions/0006).

A secret number of rows. Under ADD_REMOVE_ONE nothing compares n with a declared number: a message, an
exception or a charge that did would tell n to who may choose the number. The rounding of `covered` rows is
paid for, 2^24 or what was declared, whichever is more. Every part of the padding is proportional to n, so a
table of n more rows than that has a sensitivity of at most 1 + 2^-8 n / covered times the one that is paid
for (the factorisation machine, whose parts cancel: 1 + 2^-5 n / covered).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from confide.errors import CalibrationError, ParameterError, UnsupportedError
from confide.mechanisms import sum_error
from confide.privacy import Adjacency, Event, RDPAccountant, exact, gaussian_sigma, noise_multiplier
from confide.privacy.accountants import usable_delta

#: Numbers that the rows of one matrix product hold, about: so that they stay in a core's cache.
_HELD = 2**18
#: Movement of a row's contribution between two places of a batch that is allowed for, in units of c.
PLACE = 2.0**-34
#: Rows whose rounding is paid for at least, where their number is secret.
COVERED = 1 << 24
#: Rows are clipped to c (1 - 10^-6): room for the rounding of norms and factors.
CLIP_ROOM = 1e-6


@dataclass(frozen=True)
class Accounting:
    """How T noisy sums are sampled, bounded, noised and charged.

    Attributes
    ----------
    adjacency : Adjacency
    steps : int
        T.
    sampling_probability : float
        Poisson rate q, rounded up; 1 for full batches.
    multiplier : float
        Noise deviation over the L2 sensitivity of a released statistic; 0 without privacy.
    accountant : {"gaussian", "pld", "rdp", "none"}
        Which calculus priced it.
    rows_per_unit : int
    weight_cap : float
    """

    adjacency: Adjacency
    steps: int
    sampling_probability: float
    multiplier: float
    accountant: str
    rows_per_unit: int = 1
    weight_cap: float = 1.0

    @property
    def full(self) -> bool:
        """Whether each step takes all rows."""
        return self.sampling_probability == 1

    @property
    def ends(self) -> int:
        """How many clip norms apart the sums of neighbours may be: 1 for ADD_REMOVE_ONE, else 2."""
        return 1 if self.adjacency is Adjacency.ADD_REMOVE_ONE else 2

    @property
    def clip_multiplier(self) -> float:
        """Noise deviation over the clip norm, where no smaller sensitivity holds."""
        return self.multiplier * self.ends

    @property
    def event(self) -> Event:
        """What is run: T releases."""
        return self.event_of(self.steps)

    def event_of(self, steps: int) -> Event:
        """Return the event of so many of the releases."""
        if self.full or self.multiplier == 0:
            return Event.of("gaussian", count=steps, noise_multiplier=self.multiplier)
        return Event.of(
            "poisson_gaussian",
            count=steps,
            noise_multiplier=self.clip_multiplier,
            sampling_probability=self.sampling_probability,
            adjacency=self.adjacency.value,
        )

    def covered(self, rows: int) -> int:
        """Return the rows whose rounding is paid for: a public n, or at least `COVERED` where n is secret."""
        return max(rows, COVERED) if self.adjacency is Adjacency.ADD_REMOVE_ONE else max(rows, 1)

    def touched(self, rows: int, block: int) -> int:
        """Return how many sums of `block` rows a unit's change can alter, of a table of at most `rows`."""
        blocks = max(1, -(-rows // block))
        if self.full and self.adjacency is not Adjacency.ADD_REMOVE_ONE:
            return min(blocks, self.rows_per_unit)
        return blocks

    def difference(self, clip: float, spread: float = math.inf) -> float:
        """Return the L2 distance of exact sums on neighbouring tables, rounded up.

        Parameters
        ----------
        clip : float
            c; infinite where rows are not clipped.
        spread : float
            Largest movement of one row before clipping, where that is public; infinite elsewhere. It only
            counts for full batches: of a pair (c, c - D) half of D is not a clip norm.
        """
        if not self.full:
            spread = math.inf
        one = min(self.ends * clip, spread * (1 + 1e-9))
        return one * self.rows_per_unit * self.weight_cap * (1 + 1e-12)

    def rounding(self, length: float, rows: int, block: int, cancellation: float = 1.0) -> float:
        """Return e, the L2 error of the computed sums that a unit's change can alter.

        Parameters
        ----------
        length : float
            Bound on the length of one row's contribution, weight included.
        rows : int
            Rows of a batch at most, a public number.
        block : int
            Rows of one float sum.
        cancellation : float
            How many times longer the parts of a contribution may be.
        """
        if not math.isfinite(length):
            return math.inf
        one = sum_error(min(rows, block), length * cancellation)
        places = 0.0
        if not self.full or self.adjacency is Adjacency.ADD_REMOVE_ONE:
            places = rows * PLACE * length
        return (self.touched(rows, block) * one + places) * (1 + 1e-12)

    def sensitivity(self, difference: float, rounding: float, spacing: float) -> float:
        """Return the L2 sensitivity of what is released, padding included, rounded up.

        D + 2 e + `spacing`, h sqrt(d) for every block that a unit touches. With Poisson batches each end
        of the pair is that far from the batch without the row, so the padding counts once an end.
        """
        pad = 2.0 * rounding + spacing
        return (difference + pad * (1 if self.full else self.ends)) * (1 + 1e-12)


def block_rows(width: int) -> int:
    """Return how many rows go into one matrix product, of a model that holds `width` numbers a row.

    Public and fixed by the model's shape: the rounding bound counts the terms of a float sum.
    """
    return 2 ** min(12, max(11, (_HELD // max(1, width)).bit_length() - 1))


def plan(
    epsilon: Any,
    delta: Any,
    *,
    steps: int,
    sampling_probability: float = 1.0,
    adjacency: Adjacency | str,
    rows_per_unit: int = 1,
    weight_cap: float = 1.0,
    nonprivate: bool = False,
) -> Accounting:
    """Calibrate the noise of T steps.

    Parameters
    ----------
    epsilon, delta : amount
        Total of all steps; ``epsilon=inf`` only with ``nonprivate=True``.
    steps : int
    sampling_probability : float
        In (0, 1]; from public numbers alone.
    adjacency : Adjacency or str
    rows_per_unit : int
        Declared, public.
    weight_cap : float
        Public bound on sample weights.
    nonprivate : bool

    Raises
    ------
    ParameterError, UnsupportedError
        Before any data is read.
    CalibrationError
        If no noise within the grid reaches the target.
    """
    relation = Adjacency.parse(adjacency)
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= 10**7:
        raise ParameterError(f"The 'steps' parameter is {steps!r:.80}.", "Pass an integer from 1 to 10^7.")
    if not (isinstance(sampling_probability, float | int) and 0 < sampling_probability <= 1):
        raise ParameterError(
            f"The sampling probability is {sampling_probability!r:.80}.",
            "Pass a batch size of at most the number of rows.",
        )
    if isinstance(rows_per_unit, bool) or not isinstance(rows_per_unit, int) or rows_per_unit < 1:
        raise ParameterError(
            f"The 'rows_per_unit' parameter is {rows_per_unit!r:.80}.", "Pass an integer >= 1."
        )
    if rows_per_unit > 1 and sampling_probability < 1:
        raise UnsupportedError(
            f"A unit has up to {rows_per_unit} rows, which Poisson batches of rows draw apart.",
            "Pass batch_size=None for full batches.",
        )
    if not (isinstance(weight_cap, float | int) and 0 < weight_cap < math.inf):
        raise ParameterError(
            f"The 'weight_cap' parameter is {weight_cap!r:.80}.", "Pass a finite number > 0."
        )
    infinite = isinstance(epsilon, float) and epsilon == math.inf
    if infinite != bool(nonprivate):
        raise ParameterError(
            f"The 'epsilon' parameter is {epsilon!r:.80} with nonprivate={nonprivate!r}.",
            "Pass a finite epsilon, or epsilon=inf together with nonprivate=True for a fit without privacy.",
        )
    shape = (relation, steps, float(sampling_probability))
    if infinite:
        return Accounting(*shape, 0.0, "none", rows_per_unit, float(weight_cap))
    if exact(epsilon, "epsilon") == 0:
        raise ParameterError("The 'epsilon' parameter is 0.", "Pass a positive epsilon.")
    if not 0 < exact(delta, "delta") < 1:
        raise ParameterError(
            f"The 'delta' parameter is {delta!r:.80}; Gaussian noise needs a positive one.",
            "Pass 0 < delta < 1, well below one over the number of rows.",
        )
    if sampling_probability == 1:
        multiplier, accountant = gaussian_sigma(epsilon, delta, math.sqrt(steps) * (1 + 2e-16)), "gaussian"
    else:
        # All replacements face the same pair (c, -c): one calibration serves them.
        pair = relation if relation is Adjacency.ADD_REMOVE_ONE else Adjacency.REPLACE_ONE
        multiplier, accountant = _sampled(exact(epsilon, "epsilon"), exact(delta, "delta"), pair, *shape[1:])
    return Accounting(*shape, multiplier, accountant, rows_per_unit, float(weight_cap))


@lru_cache(maxsize=256)
def _sampled(epsilon: Any, delta: Any, relation: Adjacency, steps: int, rate: float) -> tuple[float, str]:
    """Return (deviation over the distance of the pair's ends, accountant)."""
    ends = 1 if relation is Adjacency.ADD_REMOVE_ONE else 2
    if usable_delta(delta, steps) is None:
        return renyi_multiplier(epsilon, delta, steps, rate, relation) / ends, "rdp"
    try:
        of_clip = noise_multiplier(epsilon, delta, steps=steps, sampling_probability=rate, adjacency=relation)
        return of_clip / ends, "pld"
    except (CalibrationError, MemoryError, OverflowError, ArithmeticError):
        return renyi_multiplier(epsilon, delta, steps, rate, relation) / ends, "rdp"


def renyi_multiplier(epsilon: Any, delta: Any, steps: int, rate: float, relation: Adjacency) -> float:
    """Return a noise multiplier "of the clip norm" by Renyi divergences; the fallback.

    For ADD_REMOVE_ONE the sampled Gaussian's own divergences (Mironov, Talwar & Zhang 2019). The pair (c, -c)
    passes through the batch without the row, R: for every a > 1, by Hoelder's inequality (Mironov 2017,
    proposition 11),

        D_a(P || Q) <= (a - 1/2)/(a - 1) D_2a(P || R) + D_(2a - 1)(R || Q),

    both of them divergences of add/remove at integer orders. The full batch's noise always suffices as well.
    """
    full = gaussian_sigma(
        epsilon, delta, (1 if relation is Adjacency.ADD_REMOVE_ONE else 2) * math.sqrt(steps)
    )
    high = full * (1 + 1e-12)

    def holds(multiplier: float) -> bool:
        return _renyi_epsilon(multiplier, rate, steps, relation, delta) <= epsilon

    low = high
    while low > 1e-3 and holds(low / 2):
        low /= 2
    if low == high and not holds(high):
        return high  # sampling never needs more noise than the full batch
    high, low = low, low / 2
    while high > low * (1 + 1e-5):
        middle = math.sqrt(low * high)
        high, low = (middle, low) if holds(middle) else (high, middle)
    return high


def _renyi_epsilon(multiplier: float, rate: float, steps: int, relation: Adjacency, delta: Any) -> float:
    import numpy as np

    from confide.privacy.losses import loss
    from confide.privacy.zcdp import order_epsilon

    event = Event.of(
        "poisson_gaussian",
        noise_multiplier=multiplier,
        sampling_probability=rate,
        adjacency=Adjacency.ADD_REMOVE_ONE.value,
    )
    if relation is Adjacency.ADD_REMOVE_ONE:
        return float(RDPAccountant().compose(event, steps).epsilon(delta))
    renyi = loss(event).renyi
    assert renyi is not None
    orders = np.unique(np.concatenate([np.arange(2.0, 33.0), np.round(np.geomspace(33.0, 512.0, 12))]))
    ahead, back = renyi(2 * orders), renyi(2 * orders - 1)
    total = steps * ((orders - 0.5) / (orders - 1) * ahead + back) * (1 + 1e-12)
    number = math.nextafter(float(delta), 0.0)
    return min(order_epsilon(float(t), float(a), number) for t, a in zip(total, orders, strict=True))
