"""Sizes of an effect that are not differences of means."""

import math
from dataclasses import dataclass

from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.scopes import check_probability


@dataclass(frozen=True)
class Superiority:
    """The probability that a query's mean over runs is higher, ties counted as halves, and its
    interval over new queries of the same runs."""

    probability: float
    low: float
    high: float


def superiority(wins: int, ties: int, losses: int, *, alpha: float = 0.05) -> Superiority:
    """The probability of superiority of dependent groups (Grissom and Kim 2012): the share of
    queries that are won plus half of those that tie, in the interval of Wilson (1927).

    The queries must be independent. A tie has less variance than a win or a loss, so that with ties
    the interval is wider than it need be. Raises `BadInput` without a query.

    Examples:
        >>> found = superiority(60, 10, 30)
        >>> found.probability, round(found.low, 3), round(found.high, 3)
        (0.65, 0.553, 0.736)
    """
    check_probability("alpha", alpha)
    count = wins + ties + losses
    if min(wins, ties, losses) < 0 or not count:
        raise BadInput(f"superiority needs queries, got {wins} wins, {ties} ties, {losses} losses")
    share, z = (wins + ties / 2) / count, float(stats.norm.isf(alpha / 2))
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count)
    half *= math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return Superiority(share, max(centre - half, 0.0), min(centre + half, 1.0))
