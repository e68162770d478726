"""Adjusted p-values of a family of comparisons.

A NaN (a comparison without this test) stays NaN and does not count in the family.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.scopes import Floats


def holm(p: ArrayLike) -> Floats:
    """Holm's (1979) step-down adjustment: controls the probability of any false positive."""
    return _of_tested(p, _holm)


def _holm(p_K: Floats) -> Floats:
    K = len(p_K)
    order = np.argsort(p_K, kind="stable")
    stepped = np.maximum.accumulate(p_K[order] * (K - np.arange(K)))
    adjusted = np.empty(K)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """Benjamini and Hochberg's (1995) adjustment: controls the share of false positives."""
    return _of_tested(p, lambda p_K: stats.false_discovery_control(p_K, method="bh"))


def unadjusted(p: ArrayLike) -> Floats:
    """The p-values unchanged; the probability of a false positive grows with the family."""
    return _of_tested(p, lambda p_K: p_K)


CORRECTIONS: dict[str, Callable[[Sequence[float]], Floats]] = {
    "holm": holm,
    "bh": benjamini_hochberg,
    "none": unadjusted,
}
CORRECTION_NAMES = {
    "holm": "Holm",
    "bh": "Benjamini-Hochberg (exploratory)",
    "none": "no correction",
}


def _of_tested(p: ArrayLike, adjust: Callable[[Floats], Floats]) -> Floats:
    """The adjustment of all p-values that are not NaN."""
    p_K = np.array(p, dtype=np.float64, ndmin=1)
    tested_K = ~np.isnan(p_K)
    if p_K.ndim != 1 or ((p_K < 0) | (p_K > 1)).any():
        raise BadInput(f"p-values must be one list of numbers in [0, 1], got {p_K.tolist()}")
    if tested_K.any():
        p_K[tested_K] = adjust(p_K[tested_K])
    return p_K
