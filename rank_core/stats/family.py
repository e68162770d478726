"""A family of comparisons: one rule for letters, p-values and intervals.

Every comparison has the p of its own test (`WelchDf`) and, in a table of several trained systems,
that of the moderated test. Their correction by max-t:

* without moderated tests: max-t of the own ones;
* where the seed variances agree (`seeds_agree`): the larger one of the moderated p corrected by
  max-t and of the own p. The moderated test is then the right one, and carries the correction;
  the own one has to hold for the comparison alone;
* elsewhere: Holm of the larger p, as one test or the other errs too often.

A simultaneous interval is the wider one of both tests at the levels that this rule gives all
comparisons at once (Bonferroni where it says Holm).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.multiplicity import MAX_T, adjusted, family_level, holm, max_t
from rank_core.stats.scopes import Floats, ScopeTest

Pair = tuple[str, str]
"""A system and its baseline."""


@dataclass(frozen=True)
class Family:
    """The p-values of K comparisons in scope `both`; NaN where one is undefined."""

    own_K: Floats
    moderated_K: Floats
    correlation_KK: Floats | None  # for max-t
    agree: bool  # whether their seed variances do
    num_families: int = 1  # that share alpha, such as one for each collection

    @property
    def larger_p(self) -> Floats:
        """The larger p of both tests."""
        # `fmax` ignores NaN: a comparison without a moderated test has its own p.
        return np.fmax(self.own_K, self.moderated_K)

    def adjusted(self, correction: str) -> Floats:
        """The corrected p-values."""
        if correction != MAX_T or self.correlation_KK is None:
            return self.shared(adjusted(self.larger_p, correction), correction)
        if np.isnan(self.moderated_K).all():
            return self.shared(max_t(self.own_K, self.correlation_KK))
        if self.agree:
            return np.fmax(self.shared(max_t(self.moderated_K, self.correlation_KK)), self.own_K)
        return self.shared(holm(self.larger_p))

    def shared(self, p_K: Floats, correction: str = MAX_T) -> Floats:
        """The corrected p-values with alpha shared by the families (Bonferroni)."""
        families = 1 if correction == "none" else self.num_families
        return np.minimum(families * p_K, 1) if families > 1 else p_K

    def levels(self, alpha: float, correction: str) -> tuple[float, float]:
        """The levels of the own and of the moderated test whose wider intervals cover all true
        differences at once."""
        # Bonferroni's levels: Holm's steps depend on the data and give no simultaneous interval of
        # fixed width.
        num = max(int((~np.isnan(self.own_K)).sum()), 1) * self.num_families
        moderated = not np.isnan(self.moderated_K).all()
        R_KK = self.correlation_KK
        if correction != MAX_T or R_KK is None or (moderated and not self.agree):
            return alpha / num, alpha / num
        tested = np.flatnonzero(~np.isnan(self.own_K))
        level = family_level(alpha / self.num_families, R_KK[np.ix_(tested, tested)])
        # With moderated tests these carry the correction; the own test has to hold alone, as in
        # `adjusted`.
        return (alpha if moderated else level), level


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
    diagonal is 1 where a comparison can err: with a variance, or a constant difference."""
    known_K = errors_K > 0
    factor_K = np.divide(1, errors_K, out=np.zeros_like(errors_K), where=known_K)
    with np.errstate(invalid="ignore"):  # scores whose squares overflow
        R_KK = np.nan_to_num(covariance_KK * factor_K[:, None] * factor_K).clip(-1, 1)
    constant_K = (errors_K == 0) & (delta_K != 0)
    np.fill_diagonal(R_KK, (known_K | constant_K).astype(np.float64))
    return R_KK
