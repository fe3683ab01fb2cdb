"""The arrays that kernels run on: NumPy by default, any array-API array that a user brings.

Kernels use operators and a handful of functions of the array API standard, so that torch, cupy and jax arrays
carry them to their device. Released values, parameters and optimiser states are NumPy arrays on the host:
they are public, and small beside the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from confide.mechanisms import basic_tanh, row_products, row_sums

Floats = npt.NDArray[np.float64]
#: An array of the user's library; the standard has no type for it yet.
Array = Any
Namespace = Any


def namespace(*arrays: Array) -> Namespace:
    """Return the array-API namespace of the arrays (None is skipped); NumPy where it knows no better."""
    held = [array for array in arrays if array is not None]
    if all(isinstance(array, np.ndarray) for array in held):
        return np
    try:
        from array_api_compat import array_namespace
    except ImportError:  # lists, frames and NumPy arrays still work
        return np
    try:
        return array_namespace(*held)
    except TypeError:  # lists, frames: NumPy reads them
        return np


class RowWise:
    """NumPy, but a row's products and sums depend on that row alone (`confide.mechanisms.rowwise`).

    For a forward pass whose rows may come and go. With `tanh` composed of basic operations, all that a model
    does in it is: what else it asks of the namespace is arithmetic and comparisons, element by element.
    """

    matmul = staticmethod(row_products)
    tanh = staticmethod(basic_tanh)
    concat = staticmethod(np.concatenate)

    @staticmethod
    def sum(A: Floats, axis: int) -> Floats:
        """Return the sum of each row: of axis 1 alone."""
        assert axis == 1
        return row_sums(A)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def to_host(array: Array) -> Floats:
    """Return a NumPy float64 array of an array that may live on a device; frames go by `sgd.public`."""
    if isinstance(array, np.ndarray):
        return np.asarray(array, dtype=np.float64)
    for method in ("detach", "cpu", "get"):  # torch, torch, cupy
        if hasattr(array, method):
            array = getattr(array, method)()
    return np.asarray(array, dtype=np.float64)


def like(xp: Namespace, values: npt.ArrayLike, reference: Array) -> Array:
    """Return host values as a float64 array of `xp`, on the device of `reference`."""
    if xp is np:
        return np.asarray(values, dtype=np.float64)
    device = getattr(reference, "device", None)
    return xp.asarray(np.asarray(values, dtype=np.float64), dtype=xp.float64, device=device)


def row_squares(xp: Namespace, A: Array) -> Array:
    """Return the squared norm of each row of A [b, d], shape [b]."""
    if xp is np:
        return np.einsum("ij,ij->i", A, A)
    return xp.sum(A * A, axis=1)


def take_rows(xp: Namespace, A: Array, places: Any) -> Array:
    """Return A[places] along the first axis."""
    if xp is np:
        return A.take(places, axis=0)
    device = getattr(A, "device", None)
    return xp.take(A, xp.asarray(places, device=device), axis=0)


def flatten(xp: Namespace, parts: list[Array]) -> Array:
    """Return all parts in one vector."""
    if len(parts) == 1:
        return xp.reshape(parts[0], (-1,))
    join = xp.concatenate if xp is np else xp.concat
    return join([xp.reshape(part, (-1,)) for part in parts])


def without(xp: Namespace, A: Array, bad: Array) -> Array:
    """Return A with the rows `bad` set to zero, whatever they hold."""
    mask = xp.reshape(bad, (-1,) + (1,) * (A.ndim - 1))
    return xp.where(mask, xp.zeros_like(A), A)
