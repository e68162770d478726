"""A family of comparisons: one rule for letters, p-values and intervals.

Every comparison has the p of its own test (`WelchDf`) and, in a table of three trained systems or
more, that of the moderated test. Their correction by max-t:

* without moderated tests: max-t of the own ones;
* where the seed variances agree (`seeds_agree`): the larger one of the moderated p corrected by
  max-t and of the own p. The moderated test is then the right one, and decides over all
  comparisons; the own one has to hold for the comparison alone;
* where they disagree: max-t of the larger p of both tests;
* where they disagree, the baseline is deterministic and there are fewer than five runs
  (`runs_apart`): as where they agree, with the moderated p of Behrens and Fisher.

`Applied` says which of them a table got. A simultaneous interval is the wider one of both tests at
the levels that this rule gives all comparisons at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rank_core.arrays import Floats
from rank_core.stats.corrections import CORRECTION_NAMES, MAX_T, NONE
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.multiplicity import adjusted, family_level
from rank_core.stats.scopes import ScopeTest

Pair = tuple[str, str]
"""A system and its baseline."""


OWN, MODERATED, BEHRENS_FISHER, LARGER = "own", "moderated", "behrens-fisher", "larger"
"""The p that is corrected: of the own test, of the moderated one (by Student's t or by Behrens and
Fisher), or the larger of both."""

DECIDES = (MODERATED, BEHRENS_FISHER)
"""Where the moderated p is corrected, and the own one has to hold for the comparison alone."""


@dataclass(frozen=True)
class Applied:
    """The correction that a family got."""

    correction: str  # a key of `CORRECTION_NAMES`
    p: str  # `OWN`, `MODERATED`, `BEHRENS_FISHER` or `LARGER`
    size: int  # comparisons that share alpha

    @property
    def text(self) -> str:
        """For a caption: `max-t over 7 comparisons`."""
        if self.size == 1:
            return "a single comparison"
        return correction_text(self.correction, str(self.size))


def correction_text(correction: str, sizes: str) -> str:
    """`max-t over 7 comparisons`; `sizes` may be a range."""
    if correction == NONE:
        return f"not corrected for {sizes} comparisons"
    return f"{CORRECTION_NAMES[correction]} over {sizes} comparisons"


@dataclass(frozen=True, eq=False)
class FamilyRecord:
    """What decided the corrected p-values of a family, from which they can be computed again."""

    pairs: tuple[Pair, ...]
    applied: Applied
    correlation_both: Floats | None  # (K, K), of the differences in scope `both`, for max-t
    correlation_queries: Floats | None  # likewise in scope `queries`
    level: float  # of each comparison, at which all together err with probability alpha
    alpha: float
    seeds_agree: bool
    prior_variance: float  # s_0^2 of the moderated tests; NaN without them
    prior_df: float  # d_0; infinite where the variances scatter no more than equal ones
    pool_df: float  # the degrees of freedom of all seed variances
    paired: bool = False  # whether run i of a system is paired with run i of its baseline

    @property
    def effective_size(self) -> float:
        """The number of comparisons that the correction counts, at most all."""
        return self.alpha / self.level

    @property
    def correlation(self) -> float:
        """The mean correlation of two comparisons; 0 where the correction uses none."""
        R_KK, K = self.correlation_both, len(self.pairs)
        if R_KK is None or K < 2 or self.applied.correction != MAX_T:
            return 0.0
        return float(R_KK[~np.eye(K, dtype=bool)].mean())


@dataclass(frozen=True)
class Family:
    """The p-values of K comparisons in scope `both`; NaN where one is undefined."""

    own_K: Floats
    moderated_K: Floats
    correlation_KK: Floats | None  # for max-t
    agree: bool  # whether their seed variances do
    num_families: int = 1  # that share alpha, such as one for each collection
    apart: bool = False  # whether the moderated p is that of Behrens and Fisher

    @property
    def larger_p(self) -> Floats:
        """The larger p of both tests."""
        # `fmax` ignores NaN: a comparison without a moderated test has its own p.
        return np.fmax(self.own_K, self.moderated_K)

    def applied(self, correction: str) -> Applied:
        """What a family gets where `correction` is asked for."""
        size = max(int((~np.isnan(self.own_K)).sum()), 1) * self.num_families
        if np.isnan(self.moderated_K).all():
            return Applied(correction, OWN, size)
        if correction != MAX_T or self.correlation_KK is None:
            return Applied(correction, LARGER, size)
        disagree = BEHRENS_FISHER if self.apart else LARGER
        return Applied(MAX_T, MODERATED if self.agree else disagree, size)

    def adjusted(self, correction: str) -> Floats:
        """The corrected p-values."""
        applied = self.applied(correction)
        p_K = {OWN: self.own_K, LARGER: self.larger_p}.get(applied.p, self.moderated_K)
        found_K = self.shared(
            adjusted(p_K, applied.correction, self.correlation_KK), applied.correction
        )
        return np.fmax(found_K, self.own_K) if applied.p in DECIDES else found_K

    def shared(self, p_K: Floats, correction: str = MAX_T) -> Floats:
        """The corrected p-values with alpha shared by the families (Bonferroni)."""
        families = 1 if correction == NONE else self.num_families
        return np.minimum(families * p_K, 1) if families > 1 else p_K

    def levels(self, alpha: float, correction: str) -> tuple[float, float]:
        """The levels of the own and of the moderated test whose wider intervals cover all true
        differences at once."""
        applied = self.applied(correction)
        # Bonferroni's levels: Holm's steps depend on the data and give no simultaneous interval of
        # fixed width.
        if applied.correction != MAX_T or self.correlation_KK is None:
            return alpha / applied.size, alpha / applied.size
        tested = np.flatnonzero(~np.isnan(self.own_K))
        R_KK = self.correlation_KK[np.ix_(tested, tested)]
        level = family_level(alpha / self.num_families, R_KK)
        # Where the moderated tests decide, the own test has to hold alone, as in `adjusted`.
        return (alpha if applied.p in DECIDES else level), level


def correlations(
    matrix: ScoreMatrix,
    pairs: Sequence[Pair],
    tests: Sequence[ScopeTest],
    *,
    paired_seeds: bool = False,
    scope: str = "both",
) -> Floats:
    """The correlations of the mean differences of all pairs, (K, K): the covariance of their
    queries and the seed variance of the systems that two pairs share. Seeds of paired tests count
    as independent, which hardly ever makes a corrected p smaller. A pair without a variance counts
    as independent of the others, and not at all (a row of 0) without a difference.
    """
    mean_Q = {
        cell: matrix.scores[cell].mean(axis=0) for cell in {c for pair in pairs for c in pair}
    }
    delta_KQ = np.array([mean_Q[system] - mean_Q[base] for system, base in pairs])
    # Queries: all systems answer the same ones.
    covariance_KK = np.atleast_2d(np.cov(delta_KQ)) / delta_KQ.shape[1]
    errors_K = np.array([getattr(test, f"se_{scope}") for test in tests])
    if scope == "both" and not paired_seeds:
        parts: dict[str, float] = {}  # {cell: the variance that its seeds add to a difference}
        for (system, base), test in zip(pairs, tests, strict=True):
            for cell, V_s, V_e in (
                (system, test.variance_seeds_a, test.variance_error_a),
                (base, test.variance_seeds_b, test.variance_error_b),
            ):
                # Without the residual, which the covariance over queries contains, as V does in
                # `infer`.
                parts[cell] = 0.0 if math.isnan(V_s) else max(V_s - V_e, 0.0)
        cells = list(parts)
        # Two differences share the seeds of a cell that is in both: with a plus where it is on the
        # same side of both, as a common baseline is.
        signs_KC = np.array(
            [[(cell == system) - (cell == base) for cell in cells] for system, base in pairs], float
        )
        covariance_KK = covariance_KK + (signs_KC * np.array(list(parts.values()))) @ signs_KC.T
    return scaled(covariance_KK, errors_K, np.array([test.delta for test in tests]))


def scaled(covariance_KK: Floats, errors_K: Floats, delta_K: Floats) -> Floats:
    """The correlations of differences with these standard errors; 0 where one is 0 or NaN. The
    diagonal is 1 where a comparison can err (`can_err`)."""
    known_K = errors_K > 0
    factor_K = np.divide(1, errors_K, out=np.zeros_like(errors_K), where=known_K)
    with np.errstate(invalid="ignore"):  # scores whose squares overflow
        R_KK = np.nan_to_num(covariance_KK * factor_K[:, None] * factor_K).clip(-1, 1)
    np.fill_diagonal(R_KK, can_err(errors_K, delta_K).astype(np.float64))
    return R_KK


def can_err(errors_K: Floats, delta_K: Floats) -> NDArray[np.bool_]:
    """Where a comparison can err: with a variance, or a constant difference."""
    return np.asarray((errors_K > 0) | ((errors_K == 0) & (delta_K != 0)))
