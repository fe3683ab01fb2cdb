"""Kernel of RR-on-Bins: the cheapest partition of a line into intervals, with a price for each."""

import numpy as np
from numba import njit


@njit(cache=True)
def cheapest_partition(mass, first, second, keep, spread, price, starts):
    """Fill `starts` [k + 1] with the start of the last bin of the best partition of values 0 .. r - 1.

    The cost of values l .. r - 1 in one bin is m2 - m1^2 / w - price, w = keep dP0 + (1 - keep),
    m1 = keep dP1, m2 = keep dP2 + (1 - keep) spread, from prefix sums `mass`, `first`, `second` [k + 1]
    (P0, P1, P2, of values around their mean). O(k^2) time, O(k) memory. Of equal costs the widest bin wins.
    """
    k = mass.size - 1
    best = np.empty(k + 1)
    best[0] = 0.0
    for r in range(1, k + 1):
        low = np.inf
        place = 0
        for left in range(r):
            weight = keep * (mass[r] - mass[left]) + (1.0 - keep)
            moment = keep * (first[r] - first[left])
            cost = keep * (second[r] - second[left]) + (1.0 - keep) * spread
            if weight > 0.0:
                cost -= moment * moment / weight
            cost = best[left] + max(cost, 0.0) - price
            if cost < low:
                low = cost
                place = left
        best[r] = low
        starts[r] = place
