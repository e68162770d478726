"""How large a difference is, beside how sure one may be of it."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.power import check_probability
from rank_core.stats.scopes import Floats, ScopeTest

MEANINGFUL = 0.75
"""The probability of a better run from which Bouthillier et al. (2021) call a gain meaningful."""


@dataclass(frozen=True)
class Superiority:
    """P(a run of A beats a run of B) on these queries; ties count half."""

    probability: float
    num_pairs: int  # of runs, S_A x S_B: no more than that many different values are possible


def standardised_difference(test: ScopeTest, *, num_queries: int) -> float:
    """d_z = mean / standard deviation of the per-query differences of the means over seeds.

    0 for two equal systems, infinite for a constant difference.
    """
    deviation = math.sqrt(test.variance_queries * num_queries)
    if deviation == 0:
        return math.copysign(math.inf, test.delta) if test.delta else 0.0
    return test.delta / deviation


def probability_of_superiority(score_A_SQ: Floats, score_B_SQ: Floats) -> Superiority:
    """The share of pairs of runs in which A's mean over queries is above B's.

    The Mann-Whitney statistic of the seed means: what retraining both once would show.
    """
    mean_A, mean_B = score_A_SQ.mean(axis=1), score_B_SQ.mean(axis=1)
    gap_AB = mean_A[:, None] - mean_B
    # The means of the same scores in another order differ by rounding.
    tied_AB = np.isclose(gap_AB, 0, atol=1e-12)
    wins = int(((gap_AB > 0) & ~tied_AB).sum()) + int(tied_AB.sum()) / 2
    return Superiority(wins / gap_AB.size, gap_AB.size)


def runs_needed(
    probability: float = MEANINGFUL, *, alpha: float = 0.05, power: float = 0.95
) -> float:
    """Pairs of runs (one of A, one of B each) that tell this probability from 1/2.

    Noether (1987), one-sided: ((z_alpha + z_power) / (sqrt(6) (1/2 - probability)))^2. Not rounded;
    infinite at 1/2.
    """
    check_probability("alpha", alpha)
    check_probability("power", power)
    if not 0 <= probability <= 1:
        raise BadInput(f"0 <= probability <= 1 must hold, got {probability}")
    if probability == 0.5:
        return math.inf
    z = float(stats.norm.isf(alpha) + stats.norm.ppf(power))
    return (z / (math.sqrt(6) * (0.5 - probability))) ** 2
