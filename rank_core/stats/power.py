"""The power of a two-sided t-test, by a quadrature that stays finite for every effect and df.

`scipy.stats.nct` returns NaN for large effects with few degrees of freedom; here the noncentral t
is integrated over the distribution of its chi-square instead.
"""

import math

import numpy as np
from scipy import optimize, stats

from rank_core.errors import BadInput

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)
_QUANTILES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # of the unit interval


def detectable_effect(df: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The smallest difference, in standard errors, that is found with probability `power`."""
    check_probability("alpha", alpha)
    check_probability("power", power)
    if power <= alpha:
        raise BadInput(f"alpha < power must hold, got alpha={alpha}, power={power}")
    if math.isnan(df):
        return math.nan
    critical, spread_N = _critical(df, alpha)
    high = 2 * critical + 10
    while _power(high, critical, spread_N) < power:
        high *= 2
    return float(optimize.brentq(lambda x: _power(x, critical, spread_N) - power, 0.0, high))


def check_probability(name: str, value: float) -> None:
    """Refuse a value that is not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise BadInput(f"0 < {name} < 1 must hold, got {name}={value}")


def _critical(df: float, alpha: float) -> tuple[float, np.ndarray]:
    """The critical t and sqrt(chi2 / df) at the quadrature nodes; infinite df is the normal."""
    if math.isinf(df):
        return float(stats.norm.isf(alpha / 2)), np.ones_like(_QUANTILES)
    return float(stats.t.isf(alpha / 2, df)), np.sqrt(stats.chi2.ppf(_QUANTILES, df) / df)


def _power(effect: float, critical: float, spread_N: np.ndarray) -> float:
    both = stats.norm.cdf(effect - critical * spread_N) + stats.norm.cdf(
        -effect - critical * spread_N
    )
    return float(both @ _WEIGHTS)
