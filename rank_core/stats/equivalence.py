"""Practical equivalence, with the standard error and degrees of freedom of the difference test.

"No significant difference" is no evidence of equality, which needs a separate test.
"""

from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.scopes import ScopeTest


def equivalence_p(test: ScopeTest, *, margin: float) -> float:
    """p of two one-sided tests (TOST, scope `both`) that |delta| < margin. Below alpha exactly when
    the two-sided interval of level 1 - 2 alpha is within the margin; NaN for one seed.
    """
    if not margin > 0:
        raise BadInput(f"margin > 0 must hold, got margin={margin}")
    return max(_tail(margin - test.delta, test), _tail(margin + test.delta, test))


def _tail(gap: float, test: ScopeTest) -> float:
    """P(T se > gap); without variance the distribution is a point at 0."""
    if test.se_both == 0:
        return 1.0 if gap < 0 else 0.0 if gap > 0 else 0.5
    return float(stats.t.sf(gap / test.se_both, test.df_both))
