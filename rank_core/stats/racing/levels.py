"""How much of the wrong-departure budget each look of a race may spend.

A spending function (Lan and DeMets, 1983) gives the chance A(t) that, by the share t of the looks,
the configuration the whole grid would name has left; A(1) = alpha. `look_levels` turns it into one
nominal level per look: among equal configurations, drawn many times over, exactly that share loses
the grid's winner. Equal configurations are the least favourable truth. For two of them that is a
theorem: given how far the gap so far strays from the grid's, the verdict is wrong if the grid's gap
lies in an interval around 0, where a normal gap is most often if its mean is 0 (Anderson, 1955).
For more of them it is what `tests.benchmarks.racing` finds. The share spent at a look, taken as its
level, would need no drawing (Dunnett and Bonferroni), but spends a tenth of the budget and costs
more runs.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import stats

from rank_core.errors import BadInput, unknown
from rank_core.seeding import generator
from rank_core.stats.racing.rule import FIRST_LOOK, look

NUM_RACES = 40_000
_NUMBERS = 10_000_000
"""Runs drawn at most: fewer races where a race is large."""

_HIGHEST = 0.5
"""A level never grows beyond a coin's toss, however much budget is left at the last look."""


def pocock_like(share: float, alpha: float) -> float:
    """Nearly the same level at every look: leaves early, where leaving saves most."""
    return alpha * math.log(1 + (math.e - 1) * share)


def obrien_fleming_like(share: float, alpha: float) -> float:
    """Almost nothing at the first looks: only a rout ends early."""
    if share <= 0:
        return 0.0
    return float(2 * stats.norm.sf(stats.norm.isf(alpha / 2) / math.sqrt(share)))


SPENDING: dict[str, Callable[[float, float], float]] = {
    "pocock": pocock_like,
    "obrien-fleming": obrien_fleming_like,
}


def spent(num_seeds: int, *, alpha: float, spending: str) -> dict[int, float]:
    """{seeds complete: budget spent by then} for the looks after 2, ..., num_seeds - 1 seeds.

    After the last seed nothing is decided by a test: the grid is complete.
    """
    if spending not in SPENDING:
        raise unknown("spending", spending, SPENDING)
    if not 0 < alpha < 1:
        raise BadInput(f"0 < alpha < 1 must hold, got alpha={alpha}")
    looks = range(FIRST_LOOK, num_seeds)
    return {s: SPENDING[spending](s / (num_seeds - 1), alpha) for s in looks}


@lru_cache(maxsize=64)
def look_levels(
    num_configurations: int, num_seeds: int, *, alpha: float, spending: str
) -> dict[int, float]:
    """{seeds complete: nominal level}; a configuration leaves if its p is below the level.

    Drawn with a fixed stream, so that the same race has the same levels everywhere. Two standard
    errors of the drawing are kept back from the budget (.0022 of .05), never spent by its luck.
    """
    if num_configurations < 2:
        raise BadInput(f"a race needs 2 configurations or more, got {num_configurations}")
    budget = spent(num_seeds, alpha=alpha, spending=spending)
    K, S = num_configurations, num_seeds
    B = max(min(NUM_RACES, _NUMBERS // (K * S)), 2000)
    score_BKS = generator(1, "racing levels", K, S).normal(size=(B, K, S))
    winner_B = score_BKS.mean(axis=2).argmax(axis=1)
    kept = 1 - 2 * math.sqrt((1 - alpha) / (alpha * B))
    live_BK, levels, lost, before = np.ones((B, K), dtype=np.bool_), {}, 0, 0.0
    for s, total in budget.items():
        running_B = (live_BK.sum(axis=1) > 1) & live_BK[np.arange(B), winner_B]
        found = look(score_BKS[running_B, :, :s], live_BK[running_B], num_seeds=S)
        p_N = np.sort(found.p_BK[np.arange(running_B.sum()), winner_B[running_B]])
        more = int(kept * total * B) - lost
        drawn = float(p_N[more]) if 0 <= more < len(p_N) else 0.0 if more < 0 else _HIGHEST
        levels[s] = min(max(drawn, total - before), _HIGHEST)
        live_BK[running_B] &= ~(found.p_BK < levels[s])
        lost, before = lost + int((p_N < levels[s]).sum()), total
    return levels
