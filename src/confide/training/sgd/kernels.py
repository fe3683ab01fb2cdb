"""One pass over a block's rows for what `confide.training.sgd.engine` does row by row on NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def clip_weights(f: Any, slope: Any, norm: Any, limit: float, out: Any) -> Any:
    """Fill weights slope * min(1, limit / (|slope| norm)); return max(|f| + norm) and max norm.

    The same arithmetic as the array path. A NaN anywhere makes the first maximum NaN.

    Parameters
    ----------
    f, slope, norm : float64 arrays [b], any strides
    limit : float
        Infinite: no clipping.
    out : float64 array [b]
    """
    farthest = 0.0
    widest = 0.0
    clipped = limit < np.inf
    for i in range(f.size):
        length = norm[i]
        weight = slope[i]
        if clipped:
            size = abs(weight) * length
            weight *= limit / (limit if size <= limit else size)  # a NaN stays
        out[i] = weight
        far = abs(f[i]) + length
        if not far <= farthest:
            farthest = far if farthest == farthest else farthest
        widest = max(widest, length)
    return farthest, widest
