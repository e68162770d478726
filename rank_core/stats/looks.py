"""Several looks at one question: the level of each, and an interval that holds at small levels.

A loop of proposals, or a sweep that gets more seeds after its results were seen, errs if any of its
looks does, so a look has a smaller level than alpha.
"""

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from scipy import signal, special

from rank_core.stats.scopes import ScopeTest

Part = tuple[float, float]
"""A part of a variance and its degrees of freedom."""


def half_width(parts: Sequence[Part], level: float) -> float:
    """The half-width of the interval at level 1 - `level` of a difference whose variance has these
    parts: the quantile of the sum of sqrt(V_k) t_k with a Student's t for each part (Behrens 1929,
    Fisher 1935).

    With one steady side and three runs of the other, approximations by a single t fail at levels
    like .001: they take a variance between runs that is by chance estimated near 0 for a part that
    does not count. Here each part keeps its few degrees of freedom. The errors of this interval are
    at most its level in all published computations (Robinson 1976), and in
    `tests/benchmarks/gate_loops.py`.
    """
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


def parts_of(test: ScopeTest, *, queries: float = 1, runs: float = 1) -> list[Part]:
    """The parts of the variance of a difference in scope `both`, which add up to it; with these
    multiples of its queries and runs, and the same variances of single ones.

    The residual is taken out of the part of the queries, and not, as in `infer`, out of those of
    the runs: each of these then has the degrees of freedom of its runs, and is not 0 by chance.
    """
    sides = [
        (test.variance_seeds_a, test.variance_error_a, test.df_runs_a),
        (test.variance_seeds_b, test.variance_error_b, test.df_runs_b),
    ]
    tastes = max(test.variance_queries - sum(V_e for _, V_e, _ in sides), 0.0)
    return [
        (tastes / queries, (test.df_queries + 1) * queries - 1),
        *(
            ((max(V_s - V_e, 0.0) + min(V_e, V_s) / queries) / runs, (df + 1) * runs - 1)
            for V_s, V_e, df in sides
        ),
    ]


def interval_of_look(test: ScopeTest, level: float) -> tuple[float, float]:
    """The interval of a difference at a level far below .05; NaN for one seed, and where nothing
    varies between the queries."""
    if test.variance_queries == 0 or math.isnan(test.se_both):
        return math.nan, math.nan
    half = half_width(parts_of(test), level)
    return test.delta - half, test.delta + half


def level_of_look(alpha: float, number: int) -> float:
    """The level of the `number`-th look at an experiment that grew after the look before: alpha
    over the square of its number. All looks together have at most 1.64 alpha (pi^2 / 6)."""
    return alpha / number**2
