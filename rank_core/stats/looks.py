"""Several looks at one question: the level of each, and an interval that holds at small levels.

A loop of proposals, or a sweep that gets more seeds after its results were seen, errs if any of its
looks does, so a look has a smaller level than alpha.
"""

import math

from rank_core.stats.behrens_fisher import Part, half_width
from rank_core.stats.scopes import ScopeTest


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
