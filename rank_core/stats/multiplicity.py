"""Adjusted p-values of a family of comparisons.

A NaN (a comparison that could not be tested) stays NaN but counts in the family as the largest
p-value: that is conservative, the others are adjusted as if it had been tested.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rank_core.errors import BadInput


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Holm's (1979) step-down adjustment: holds the chance of any false positive."""
    p_K, tested_K = _family(p)
    K = len(p_K)
    order = np.argsort(p_K, kind="stable")
    stepped = np.maximum.accumulate(p_K[order] * (K - np.arange(K)))
    adjusted = np.empty(K)
    adjusted[order] = np.minimum(stepped, 1.0)
    return np.where(tested_K, adjusted, np.nan)


def benjamini_hochberg(p: ArrayLike) -> NDArray[np.float64]:
    """Benjamini and Hochberg's (1995) adjustment: holds the share of false positives."""
    p_K, tested_K = _family(p)
    if len(p_K) == 0:
        return p_K
    return np.where(tested_K, stats.false_discovery_control(p_K, method="bh"), np.nan)


def unadjusted(p: ArrayLike) -> NDArray[np.float64]:
    """The p-values as they are; the chance of any false positive grows with the family."""
    p_K, tested_K = _family(p)
    return np.where(tested_K, p_K, np.nan)


CORRECTIONS: dict[str, Callable[[Sequence[float]], NDArray[np.float64]]] = {
    "holm": holm,
    "bh": benjamini_hochberg,
    "none": unadjusted,
}
CORRECTION_NAMES = {
    "holm": "Holm",
    "bh": "Benjamini-Hochberg (exploratory)",
    "none": "no correction",
}


def _family(p: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The p-values with NaN as 1, and which of them were tested."""
    p_K = np.array(p, dtype=np.float64, ndmin=1)
    tested_K = ~np.isnan(p_K)
    if p_K.ndim != 1 or ((p_K < 0) | (p_K > 1)).any():
        raise BadInput(f"p-values must be one list of numbers in [0, 1], got {p_K.tolist()}")
    return np.where(tested_K, p_K, 1.0), tested_K
