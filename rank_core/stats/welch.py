"""Degrees of freedom of a studentised difference whose variance is a sum of mean squares.

Satterthwaite's single number of degrees of freedom is the first order of an expansion. With three
seeds on one side and a stable system on the other it rejects too often: where the seed variance
(two degrees of freedom) is underestimated, so is its share of the variance. Welch's (1947) second
order depends on the level of the test; here it is capped at Satterthwaite's, so that its p-value is
never the smaller one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

HALVINGS = 60  # of the interval around a p-value, to the last bit
LARGEST_Z = 38.0  # beyond it a p-value is 0 in double precision


@dataclass(frozen=True)
class WelchDf:
    """Degrees of freedom of V = x_1 + x_2 + ..., where x_i is a multiple, maybe a negative one, of
    a mean square with f_i degrees of freedom. Fields are numbers or arrays of one shape."""

    first: Any  # u = sum of (x_i / V)^2 / f_i: 1 / Satterthwaite's degrees of freedom
    square: Any  # a = sum of (x_i / V)^2 / f_i^2
    cubic: Any  # b = sum of (x_i / V)^3 / f_i^2
    fewest: Any  # the smallest f_i of the queries and of the seeds of a trained side

    @classmethod
    def of(cls, parts: Sequence[tuple[Any, Any]], total: Any, fewest: Any) -> "WelchDf":
        """From (x_i, f_i) of all parts and V. NaN where V is 0 or a part is NaN."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = [(np.asarray(x, dtype=np.float64) / total, f) for x, f in parts]
            return cls(
                first=sum(w**2 / f for w, f in shares),
                square=sum(w**2 / f**2 for w, f in shares),
                cubic=sum(w**3 / f**2 for w, f in shares),
                fewest=fewest,
            )

    @property
    def satterthwaite(self) -> Any:
        """The first-order degrees of freedom."""
        with np.errstate(divide="ignore"):
            return 1 / np.asarray(self.first)

    def at(self, z: Any) -> Any:
        """The degrees of freedom of a test whose critical value under a known variance is z."""
        u, a, b = self.first, self.square, self.cubic
        bend = np.maximum(b - u**2, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            second = u - 2 * a + 16 / 3 * b - 10 / 3 * u**2 + 4 / 3 * (z**2 - 1 / (1 + z**2)) * bend
            return 1 / np.clip(second, u, np.maximum(u, 1 / np.asarray(self.fewest)))

    def at_level(self, alpha: float) -> Any:
        """The degrees of freedom of a two-sided test, or an interval, at level alpha."""
        return self.at(float(-special.ndtri(alpha / 2)))

    def two_sided_p(self, delta: Any, se: Any) -> Floats:
        """p: the level at which |delta| / se is the critical value. Without variance 1 for no
        difference and 0 for a constant one."""
        delta, se = np.abs(np.asarray(delta, dtype=np.float64)), np.asarray(se, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = delta / se
            first = special.stdtr(self.satterthwaite, -t)
        # The critical value rises with z, and at Satterthwaite's p it is |t| or more.
        low = np.zeros_like(first)
        high = np.minimum(-special.ndtri(first), LARGEST_Z)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            below = special.ndtr(-middle) > special.stdtr(self.at(middle), -t)
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        p = np.where(np.isnan(first), np.nan, np.maximum(2 * special.ndtr(-high), 2 * first))
        return np.where(se == 0, np.where(delta == 0, 1.0, 0.0), p)
