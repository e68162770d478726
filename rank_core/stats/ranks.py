"""The ranks that a table leaves open: simultaneous intervals, and groups of ties.

System j is better than system i if the one-sided p of j - i over new queries and new training runs
(the larger of `both` and, in a table of several trained systems, the moderated one) is below alpha
by Holm's (1979) correction over all K (K - 1) ordered pairs. With probability 1 - alpha none of
these statements is wrong. The rank of every system, 1 + the number of those with a higher mean, is
then between 1 + the number of better systems and K - the number of worse ones, for all systems at
once (Klein, Wright and Wieczorek 2020; Mogstad, Romano, Shaikh and Wilhelm 2024, section 3, who
test ordered pairs stepwise as well). Paired seeds count as independent.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from rank_core.errors import BadInput
from rank_core.stats.best import Rivalry
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.multiplicity import holm
from rank_core.stats.scopes import LEAST_SEEDS


@dataclass(frozen=True)
class Ranks:
    """The ranks of the systems with three runs or more and of deterministic ones.

    `intervals[system]` has both ends, ordered by the means, highest first. Group 1 holds the
    systems that none is better than, group 2 those that none is better than once group 1 is gone,
    and so on: no two of a group can be told apart, and everyone of a further group is worse than
    one of the group before. `unranked` are the systems of fewer runs.
    """

    measure: str
    intervals: Mapping[str, tuple[int, int]]
    groups: tuple[tuple[str, ...], ...]
    unranked: tuple[str, ...]


def rank_intervals(
    matrix: ScoreMatrix, *, alpha: float = 0.05, deterministic: Collection[str] = ()
) -> Ranks:
    """The rank of every system as an interval; all hold at once with probability 1 - alpha."""
    if not 0 < alpha < 0.5:
        raise BadInput(f"0 < alpha < .5 must hold, got alpha={alpha}")
    by_mean = sorted(matrix.cells, key=lambda cell: (-matrix.scores[cell].mean(), cell))
    enough = {c for c in by_mean if c in deterministic or matrix.fewest_runs(c) >= LEAST_SEEDS}
    ranked = [cell for cell in by_mean if cell in enough]
    K = len(ranked)
    better_KK = np.zeros((K, K), dtype=bool)  # [i, j]: j is better than i
    if K > 1:
        own_KK, moderated_KK = Rivalry(
            matrix, ranked, frozenset(deterministic), paired_seeds=False
        ).one_sided()
        ordered = ~np.eye(K, dtype=bool)
        # Both directions of a pair are hypotheses: which system is ahead is part of the statement.
        better_KK[ordered] = holm(np.fmax(own_KK, moderated_KK)[ordered]) < alpha
    ends = zip(1 + better_KK.sum(axis=1), K - better_KK.sum(axis=0), strict=True)
    groups, left = [], list(range(K))
    while left:
        # Layers of a partial order. Someone is always in the next one: `better` follows the means
        # and has no circle.
        first = [i for i in left if not better_KK[i, left].any()]
        groups.append(tuple(ranked[i] for i in first))
        left = [i for i in left if i not in first]
    return Ranks(
        measure=matrix.measure,
        intervals={c: (int(low), int(high)) for c, (low, high) in zip(ranked, ends, strict=True)},
        groups=tuple(groups),
        unranked=tuple(cell for cell in by_mean if cell not in enough),
    )
