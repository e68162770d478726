"""A sum of scaled Student's t, one for each part of a variance (Behrens 1929, Fisher 1935).

Where one part has few degrees of freedom, such as the variance between three runs beside that of
many queries, approximations by a single t fail at small levels: a variance that is by chance
estimated near 0 seems not to count. Here each part keeps its own degrees of freedom. The errors of
this test are at most its level in all published computations (Robinson 1976), and in
`tests/benchmarks/gate_loops.py`.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from scipy import signal, special

from rank_core.arrays import Floats

Part = tuple[float, float]
"""A part of a variance and its degrees of freedom."""


def half_width(parts: Sequence[Part], level: float) -> float:
    """The half-width of the interval at level 1 - `level` of a difference whose variance has these
    parts: the quantile of the sum of sqrt(V_k) t_k with a Student's t for each part."""
    known = [(math.sqrt(V), float(f)) for V, f in parts if V > 0]
    if not known:
        return 0.0
    most = sum(-scale * float(special.stdtrit(f, level / 2)) for scale, f in known)
    # On a grid whose step is a small part of the half-width, and whose ends are so far in the tails
    # that what is beyond does not count.
    edges = np.linspace(-_REACH * most, _REACH * most, 2 * _BINS + 2)
    masses = [np.diff(special.stdtr(f, edges / scale)) for scale, f in known]
    mass = reduce(lambda one, other: signal.fftconvolve(one, other, mode="same"), masses)
    within = mass[_BINS] + 2 * np.cumsum(mass[_BINS + 1 :])
    step = edges[1] - edges[0]
    return float(np.interp(1 - level, within, (np.arange(_BINS) + 1.5) * step))


_REACH, _BINS = 8, 2**14


def two_part_p(delta: Any, one: tuple[Any, Any], other: tuple[Any, Any]) -> Floats:
    """The level at which |delta| is `half_width` of two parts, which are numbers or arrays of one
    shape; to four digits. Without a variance 1 for no difference, else 0."""
    delta = np.abs(np.asarray(delta, dtype=np.float64))
    V_N, weight_N = _drawn_variances(*one, nodes=32)
    V_M, weight_M = _drawn_variances(*other, nodes=64)
    p = np.zeros(np.broadcast_shapes(delta.shape, V_N.shape[:-1], V_M.shape[:-1]))
    for n, weight in enumerate(weight_N):
        with np.errstate(divide="ignore", invalid="ignore"):
            # Given both variances the sum is normal.
            z_M = delta[..., None] / np.sqrt(V_N[..., n, None] + V_M)
        z_M = np.where(np.isnan(z_M), 0.0, z_M)
        p = p + weight * (2 * special.ndtr(-z_M) @ weight_M)
    return np.asarray(np.minimum(p, 1.0))


def _drawn_variances(V: Any, f: Any, *, nodes: int) -> tuple[Floats, Floats]:
    """(Variances V f / chi-square_f, whose normal mixture is sqrt(V) t_f, with an axis of nodes;
    their weights): a Gauss-Legendre rule that is dense at small chi-squares, which make the
    tails."""
    x, weight = np.polynomial.legendre.leggauss(nodes)
    root = (x + 1) / 2
    V, f = (np.asarray(one, dtype=np.float64)[..., None] for one in (V, f))
    chi_square = 2 * special.gammaincinv(f / 2, root**_DENSE)
    return V * f / chi_square, weight / 2 * _DENSE * root ** (_DENSE - 1)


_DENSE = 6
