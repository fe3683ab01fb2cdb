"""Powers of public columns: a richer model costs dimensions, never privacy, where its inputs are public."""

from __future__ import annotations

from typing import Any

import numpy as np

from confide.errors import ParameterError
from confide.training.conditioning import PublicMatrix

#: Pairs (base column, power): the terms that follow the base columns.
Powers = tuple[tuple[int, int], ...]

LARGEST_DEGREE = 10


def powers_of(columns: list[int], degree: Any) -> Powers:
    """Return the terms that a polynomial of `degree` in each of `columns` adds to the base columns.

    Raises
    ------
    ParameterError
        If `degree` is not an integer in 1..10.
    """
    if (
        isinstance(degree, bool)
        or not isinstance(degree, int | np.integer)
        or not 1 <= degree <= LARGEST_DEGREE
    ):
        raise ParameterError(
            f"The 'degree' parameter is {degree!r}.", f"Pass an integer from 1 to {LARGEST_DEGREE}."
        )
    return tuple((column, power) for column in columns for power in range(2, int(degree) + 1))


def names_of(names: tuple[str, ...], powers: Powers) -> tuple[str, ...]:
    """Return base names followed by ``age^2``, ..."""
    return names + tuple(f"{names[column]}^{power}" for column, power in powers)


def expand(matrix: PublicMatrix, powers: Powers) -> PublicMatrix:
    """Return the matrix with its power terms appended; sparse stays sparse."""
    if not powers:
        return matrix
    if isinstance(matrix, np.ndarray):
        return np.hstack([matrix, *(matrix[:, [column]] ** power for column, power in powers)])
    from scipy import sparse

    terms = [sparse.csr_matrix(matrix[:, [column]].power(power)) for column, power in powers]
    return sparse.hstack([matrix, *terms]).tocsr()
