"""Cond-DP and DP-SGD for training_paper.py: the engine with its defaults, and with parameters tuned on test rows.

Tuning goes coarse to fine over a public grid. To save time a round of the grid runs side by side in float32
with common random numbers, with the engine's clipping, sensitivity and noise multiplier; what is reported is
then measured with the engine itself (`fit`), noise drawn afresh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from confide.training.conditioning import conditioning_matrix
from confide.training.sgd import SGDRequest
from confide.training.sgd import fit as fit_sgd
from confide.training.sgd.sensitivity import plan
from training_data import Dataset

DELTA = 1e-6
CONDITIONING = {"cond_dp": "spectral", "dp_sgd": "identity"}


@dataclass(frozen=True)
class Config:
    """Parameters of a linear fit, in units that mean the same on every set.

    Attributes
    ----------
    optimizer : {"sgd", "adam"}
    rate : float
        ``sgd`` (momentum 0.9): times the largest eigenvalue of A'A / n and the shrinkage of a typical row's
        gradient by clipping; ``adam``: times the root mean square of a row's norm.
    clip : float
        In units of that root mean square.
    steps : int
    average : float
        Share of the last steps whose iterates are averaged; 0 for the last one. The rate falls along a cosine.
    """

    optimizer: str
    rate: float
    clip: float
    steps: int
    average: float = 0.0


def show(config: object) -> str:
    """Return a configuration as one CSV cell."""
    if config is None:
        return ""
    return " ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in vars(config).items())


#: The public grid. First all of optimizers x rates x clips at 60 steps; then, `ROUNDS` times, the moves of
#: `refine` from the best three so far.
RATES = {"sgd": (0.003, 0.01, 0.03, 0.1, 0.3), "adam": (0.03, 0.1, 0.3, 1.0, 3.0)}
CLIPS = (0.05, 0.15, 0.5, 1.5)
STEPS, LEAST, MOST = 60, 15, 960
ROUNDS = 4
AVERAGES = (0.0, 0.5)


def coarse(quick: bool) -> list[Config]:
    """Return the first round of the grid."""
    steps, rates = (20, slice(1, 4)) if quick else (STEPS, slice(None))
    return [Config(o, r, c, steps) for o in RATES for r in RATES[o][rates] for c in CLIPS]


def refine(best: list[Config], quick: bool) -> list[Config]:
    """Return the neighbours of the best ones: rate, clip and number of steps."""
    found: dict[Config, None] = {}
    for config in best:
        for rate, clip in ((1.7, 1), (0.6, 1), (1, 1.7), (1, 0.6), (1, 1)):
            found[replace(config, rate=config.rate * rate, clip=config.clip * clip)] = None
        for steps in (config.steps // 4, config.steps * 4):
            for power in (0.0, 0.5, 1.0) if LEAST <= steps <= MOST and not quick else ():
                rate = config.rate * (config.steps / steps) ** power
                found[replace(config, steps=steps, rate=rate)] = None
    return list(found)


@dataclass(frozen=True)
class Design:
    """Standardised and conditioned rows with a constant, labels in [-1, 1], as the engine sees them."""

    train: np.ndarray
    labels: np.ndarray
    test: np.ndarray
    truth: np.ndarray
    norms: np.ndarray
    top: float

    @classmethod
    def of(cls, train: Dataset, test: Dataset, kind: str) -> Design:
        mean, deviation = train.X.mean(axis=0), train.X.std(axis=0)
        deviation[deviation <= 1e-12] = 1.0
        rows, fresh = ((part.X - mean) / deviation for part in (train, test))
        if kind != "identity":
            C = conditioning_matrix(rows, kind)
            rows, fresh = rows @ C.T, fresh @ C.T
        rows, fresh = (np.column_stack([part, np.ones(len(part))]) for part in (rows, fresh))
        low, high = train.bounds
        labels, truth = ((part.y - (low + high) / 2) / ((high - low) / 2) for part in (train, test))
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        top = float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1])
        small = (part.astype(np.float32) for part in (rows, labels, fresh, truth, norms))
        return cls(*small, top)  # pyright: ignore[reportCallIssue]

    @property
    def length(self) -> float:
        """Root mean square of the rows' norms."""
        return float(np.sqrt(np.mean(self.norms.astype(np.float64) ** 2)))

    def rate(self, config: Config) -> float:
        """Return the engine's learning rate."""
        if config.optimizer == "adam":
            return config.rate / self.length
        return config.rate / (self.top * min(1.0, 2.0 * config.clip))


def side_by_side(design: Design, configs: list[Config], epsilon: float, seed: int) -> np.ndarray:
    """Return test errors [configs, len(AVERAGES)] of fits that share their steps and their noise."""
    steps, n, d = configs[0].steps, *design.train.shape
    infinite = math.isinf(epsilon)
    multiplier = plan(
        epsilon, 0 if infinite else DELTA, steps=steps, adjacency="replace_label", nonprivate=infinite
    ).multiplier
    clips = np.array([c.clip for c in configs]) * design.length
    spread = np.minimum(2 * clips, 4.0 * float(design.norms.max())) * multiplier / n
    base = np.array([design.rate(c) for c in configs])
    adam = np.array([c.optimizer == "adam" for c in configs])
    limit = clips.astype(np.float32)
    theta, velocity, second = (np.zeros((d, len(configs))) for _ in range(3))
    total, count = np.zeros_like(theta), 0
    rng = np.random.default_rng([seed, steps])
    for t in range(1, steps + 1):
        slope = 2 * (design.train @ theta.astype(np.float32) - design.labels[:, None])
        lengths = np.abs(slope) * design.norms[:, None]
        slope *= np.minimum(1, limit / np.maximum(lengths, np.float32(1e-30)))
        gradient = (design.train.T @ slope).astype(np.float64) / n + rng.normal(size=(d, 1)) * spread
        rate = base * 0.5 * (1 + math.cos(math.pi * (t - 1) / steps))
        velocity = np.where(adam, 0.9 * velocity + 0.1 * gradient, 0.9 * velocity + gradient)
        second = 0.999 * second + 0.001 * gradient**2
        root = np.sqrt(second / (1 - 0.999**t)) + 1e-8
        theta -= rate * np.where(adam, velocity / (1 - 0.9**t) / root, velocity)
        np.clip(theta, -1e6, 1e6, out=theta)  # divergence shows as a large error, not as a warning
        if t > steps // 2:
            total, count = total + theta, count + 1
    errors = [
        np.mean((np.clip(design.test @ w.astype(np.float32), -1, 1) - design.truth[:, None]) ** 2, axis=0)
        for w in (theta, total / max(count, 1))
    ]
    return np.stack(errors, axis=1)


def tuned(method: str, epsilon: float, parts: list[tuple[Dataset, Dataset]], quick: bool) -> Config:
    """Return the configuration with the least test error: tuned on test rows."""
    designs = [Design.of(train, test, CONDITIONING[method]) for train, test in parts]
    seen: dict[Config, float] = {}

    def measure(configs: list[Config]) -> None:
        for steps in sorted({c.steps for c in configs}):
            group = [c for c in configs if c.steps == steps and replace(c, average=0.0) not in seen]
            if not group:
                continue
            errors = np.mean([side_by_side(x, group, epsilon, i) for i, x in enumerate(designs)], axis=0)
            for config, row in zip(group, errors, strict=True):
                seen.update(
                    {replace(config, average=a): float(e) for a, e in zip(AVERAGES, row, strict=True)}
                )

    def best() -> list[Config]:
        kept: dict[Config, None] = {}
        for config in sorted(seen, key=seen.__getitem__):
            kept[replace(config, average=0.0)] = None
        return list(kept)[:3]

    measure(coarse(quick))
    for _ in range(1 if quick else ROUNDS):
        measure(refine(best(), quick))
    return min(seen, key=seen.__getitem__)


def fit(
    train: Dataset, X: np.ndarray, epsilon: float, run: int, config: Config | None, kind: str
) -> np.ndarray:
    """Return predictions of the engine on rows X [m, d]; its defaults where there is no configuration."""
    infinite = math.isinf(epsilon)
    options: dict[str, object] = {}
    if config is not None:
        design = Design.of(train, train, kind)
        options = {
            "optimizer": config.optimizer, "learning_rate": design.rate(config), "schedule": "cosine",
            "clip": config.clip * design.length, "steps": config.steps, "average": config.average,
        }  # fmt: skip
    request = SGDRequest(
        epsilon, 0 if infinite else DELTA, target_bounds=train.bounds, conditioning=kind, random_state=run,
        nonprivate=infinite, **options,
    )  # fmt: skip
    return fit_sgd(train.X, None, train.y, request).model.predict(X)
