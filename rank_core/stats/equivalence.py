"""How small a difference is, with the same t-pivot that asks whether there is one.

"No significant difference" is no evidence of equality; "no more than 5 %" is a claim of its own,
and its test is the one-sided upper limit.
"""

from dataclasses import dataclass

from scipy import stats

from rank_core.errors import BadInput, unknown
from rank_core.stats.power import check_probability
from rank_core.stats.scopes import SCOPES, ScopeTest


@dataclass(frozen=True)
class Rope:
    """How the pivot splits around the region of practical equivalence [-margin, margin].

    The three shares sum to 1; they are confidence, not posterior odds, unless the prior is flat.
    """

    margin: float
    below: float  # delta < -margin
    within: float
    above: float  # delta > margin


def upper_limit(test: ScopeTest, level: float = 0.95, *, scope: str = "both") -> float:
    """The one-sided upper limit: with this confidence the true difference is no larger."""
    check_probability("level", level)
    se, df = _spread(test, scope)
    return test.delta + float(stats.t.ppf(level, df)) * se


def equivalence_p(test: ScopeTest, *, margin: float, scope: str = "both") -> float:
    """p of two one-sided tests (TOST): small values say that |delta| < margin.

    Below alpha exactly when the two-sided interval of level 1 - 2 alpha lies inside the margin.
    """
    se, df = _checked(test, margin, scope)
    return max(_tail(margin - test.delta, se, df), _tail(margin + test.delta, se, df))


def rope(test: ScopeTest, *, margin: float, scope: str = "both") -> Rope:
    """The shares of the pivot below, within and above the margin; NaN where the scope is."""
    se, df = _checked(test, margin, scope)
    above = _tail(margin - test.delta, se, df)
    below = _tail(margin + test.delta, se, df)
    return Rope(margin=margin, below=below, within=1 - above - below, above=above)


def _spread(test: ScopeTest, scope: str) -> tuple[float, float]:
    if scope not in SCOPES:
        raise unknown("scope", scope, SCOPES)
    return getattr(test, f"se_{scope}"), getattr(test, f"df_{scope}")


def _checked(test: ScopeTest, margin: float, scope: str) -> tuple[float, float]:
    if not margin > 0:
        raise BadInput(f"margin > 0 must hold, got margin={margin}")
    return _spread(test, scope)


def _tail(gap: float, se: float, df: float) -> float:
    """P(T se > gap); without any spread all mass sits at 0."""
    if se == 0:
        return 1.0 if gap < 0 else 0.0 if gap > 0 else 0.5
    return float(stats.t.sf(gap / se, df))
