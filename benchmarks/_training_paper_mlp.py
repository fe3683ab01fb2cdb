"""The MLP study of training_paper.py: conditioning, its switch and anneal on sets with non-linear structure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from confide.training.sgd import SGDRequest
from confide.training.sgd import fit as fit_sgd
from training_data import Dataset

DELTA = 1e-6
EPSILONS = (0.5, 1.0)
#: Conditioning and switch of each variant; a tuned switch also chooses when.
METHODS = {
    "dp_sgd": ("identity", (None,)),
    "cond_dp": ("spectral", (None,)),
    "switch": ("spectral", (0.25, 0.5)),
    "anneal": ("spectral", ("anneal",)),
    "power": (("power", 0.5), (None,)),
}
RATES = (0.006, 0.02)
#: In units of the engine's own clip norm, the root mean square of ||grad f|| at the initial parameters.
CLIPS = (0.02, 0.06, 0.2)
STEPS = 100
#: CPU seconds of a fit with 16,000 rows, in the 64-bit floats of the engine.
SECONDS = 1.9


@dataclass(frozen=True)
class Config:
    """Adam, constant rate, second half averaged."""

    conditioning: object
    switch: object
    rate: float | None = None
    clip: float | None = None
    steps: int = STEPS


def grid(method: str, quick: bool = False) -> list[Config]:
    """Return the first round of a variant's budget of configurations."""
    kind, switches = METHODS[method]
    rates, steps = (RATES[1:2], 10) if quick else (RATES, STEPS)
    return [Config(kind, s, r, c, steps) for s in switches for r in rates for c in CLIPS]


def moves(config: Config) -> list[Config]:
    """Return the second round: neighbours of the best one."""
    assert config.rate is not None
    assert config.clip is not None
    rates = [replace(config, rate=config.rate * factor) for factor in (0.5, 2.0)]
    return rates + [replace(config, clip=config.clip * factor) for factor in (0.5, 2.0)]


def count(method: str) -> int:
    """Return the number of configurations that are tried."""
    return len(grid(method)) + 4


def choose(method: str, parameters: str, epsilon: float, parts, quick: bool) -> Config | None:
    """Return the parameters of a fit: the engine's own, or those with the least error on the first test part."""
    if parameters == "untuned":
        kind, switches = METHODS[method]
        return Config(kind, switches[-1], steps=10 if quick else STEPS)
    train, test = parts[0]

    def error(config: Config) -> float:
        guess = fit(train, test.X, epsilon, 100, config)
        return float(np.mean((np.clip(guess, *train.bounds) - test.y) ** 2))

    first = {config: error(config) for config in grid(method, quick)}
    best = min(first, key=first.__getitem__)
    second = first if quick else {best: first[best], **{config: error(config) for config in moves(best)}}
    return min(second, key=second.__getitem__)


def fit(train: Dataset, X, epsilon: float, run: int, config: Config | None):
    """Return predictions of the engine: embedding 16, hidden layers of 32 and 16;."""
    assert config is not None
    options: dict[str, object] = {}
    if config.rate is not None:
        options["learning_rate"] = config.rate
    request = SGDRequest(
        epsilon, DELTA, target_bounds=train.bounds, model="mlp", embedding=16, hidden=(32, 16),
        conditioning=config.conditioning, switch=config.switch, steps=config.steps, init_seed=run,
        random_state=run, nonprivate=math.isinf(epsilon), **options,
    )  # fmt: skip
    if config.clip is not None:
        from confide.training.sgd.fitting import prepare

        own = prepare(train.X, None, len(train.y), request).clip
        request = replace(request, clip=config.clip * own)
    return fit_sgd(train.X, None, train.y, request).model.predict(X)
