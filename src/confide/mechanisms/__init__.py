"""Every private random draw of the project, and the public grid that releases live on.

Importing this package loads neither numba nor scipy: names are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.mechanisms.above_threshold import SparseVector as SparseVector
    from confide.mechanisms.above_threshold import false_stable as false_stable
    from confide.mechanisms.above_threshold import sparse_vector as sparse_vector
    from confide.mechanisms.above_threshold import split_epoch as split_epoch
    from confide.mechanisms.above_threshold import stable_threshold as stable_threshold
    from confide.mechanisms.choice import choice_cost as choice_cost
    from confide.mechanisms.choice import choice_error as choice_error
    from confide.mechanisms.choice import choice_probabilities as choice_probabilities
    from confide.mechanisms.choice import weighted_choice as weighted_choice
    from confide.mechanisms.discrete import bernoulli_exp as bernoulli_exp
    from confide.mechanisms.discrete import bernoulli_log as bernoulli_log
    from confide.mechanisms.discrete import discrete_gaussian as discrete_gaussian
    from confide.mechanisms.discrete import discrete_laplace as discrete_laplace
    from confide.mechanisms.gaussian import rounded_gaussian as rounded_gaussian
    from confide.mechanisms.grid import Statistic as Statistic
    from confide.mechanisms.grid import gaussian_release as gaussian_release
    from confide.mechanisms.grid import grid_step as grid_step
    from confide.mechanisms.grid import grid_sum as grid_sum
    from confide.mechanisms.grid import laplace_release as laplace_release
    from confide.mechanisms.grid import noise_deviation as noise_deviation
    from confide.mechanisms.grid import padded_sensitivity as padded_sensitivity
    from confide.mechanisms.grid import round_toward_zero as round_toward_zero
    from confide.mechanisms.grid import sum_error as sum_error
    from confide.mechanisms.rowwise import basic_tanh as basic_tanh
    from confide.mechanisms.rowwise import row_products as row_products
    from confide.mechanisms.rowwise import row_squares as row_squares
    from confide.mechanisms.rowwise import row_sums as row_sums
    from confide.mechanisms.stream import EntropyError as EntropyError
    from confide.mechanisms.stream import RandomStream as RandomStream
    from confide.mechanisms.stream import is_certified as is_certified
    from confide.mechanisms.stream import os_stream as os_stream
    from confide.mechanisms.stream import seeded_stream as seeded_stream
    from confide.mechanisms.walk import exp_negative as exp_negative
    from confide.mechanisms.walk import full_exponent_uniform as full_exponent_uniform

_HOMES = {
    "choice": ("choice_cost", "choice_error", "choice_probabilities", "weighted_choice"),
    "discrete": ("bernoulli_exp", "bernoulli_log", "discrete_gaussian", "discrete_laplace"),
    "gaussian": ("rounded_gaussian",),
    "grid": (
        "Statistic",
        "gaussian_release",
        "grid_step",
        "grid_sum",
        "laplace_release",
        "noise_deviation",
        "padded_sensitivity",
        "round_toward_zero",
        "sum_error",
    ),
    "above_threshold": ("SparseVector", "false_stable", "sparse_vector", "split_epoch", "stable_threshold"),
    "rowwise": ("basic_tanh", "row_products", "row_squares", "row_sums"),
    "stream": ("EntropyError", "RandomStream", "is_certified", "os_stream", "seeded_stream"),
    "walk": ("exp_negative", "full_exponent_uniform"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "EntropyError",
    "RandomStream",
    "SparseVector",
    "Statistic",
    "basic_tanh",
    "bernoulli_exp",
    "bernoulli_log",
    "choice_cost",
    "choice_error",
    "choice_probabilities",
    "discrete_gaussian",
    "discrete_laplace",
    "exp_negative",
    "false_stable",
    "full_exponent_uniform",
    "gaussian_release",
    "grid_step",
    "grid_sum",
    "is_certified",
    "laplace_release",
    "noise_deviation",
    "os_stream",
    "padded_sensitivity",
    "round_toward_zero",
    "rounded_gaussian",
    "row_products",
    "row_squares",
    "row_sums",
    "seeded_stream",
    "sparse_vector",
    "split_epoch",
    "stable_threshold",
    "sum_error",
    "weighted_choice",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"confide.mechanisms.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
