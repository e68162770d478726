"""The systems that cannot be told from the best: Hsu's (1984) multiple comparisons with the best.

The best is the method with the highest mean over new queries and new training runs. System i leaves
the set if some system j beats it: if the one-sided p of j - i, corrected for the rivals of i alone,
is below alpha. The set then contains the truly best system with probability 1 - alpha: only that
system has to be covered, so nothing is corrected over i. The one-sided p is half of the two-sided
one of scope `both` (`WelchDf`), or of the moderated test. The correction is max-t, since the rivals
of i share its queries and its runs (as in `Family`): where the seed variances agree, of the
moderated p, and the other has to be below alpha for itself, as where i is deterministic and there
are few runs (`runs_apart`); where they disagree otherwise, or there are no moderated tests, of the
larger p. The highest mean never leaves.

The same comparisons bound how far each system is below the best. Were system b the best, then
m_b - m_i < d_b - d_i + half-width for all i at once, with probability 1 - alpha; the best is one of
the set in the same event. So the largest of these limits over the b of the set holds for all i at
once, and a system whose limit is within a margin is shown to be practically the best (Hsu 1984's
constrained intervals).
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rank_core.arrays import Floats
from rank_core.errors import BadInput
from rank_core.stats.behrens_fisher import half_width, two_part_p
from rank_core.stats.family import can_err, scaled
from rank_core.stats.matrix import ScoreMatrix, copies
from rank_core.stats.moderation import (
    LEAST_POOL,
    TwoParts,
    fitted_prior,
    moderated_error,
    moderated_parts,
    runs_apart,
    seeds_agree,
    where_queries_vary,
)
from rank_core.stats.multiplicity import (
    MOST_DRAWN,
    NUM_DRAWS,
    effective_number,
    fallible,
    family_level,
)
from rank_core.stats.scopes import (
    LEAST_SEEDS,
    ROUNDING,
    Inference,
    check_probability,
    infer,
    seed_variances,
    strata_df,
    two_sided_p,
)


@dataclass(frozen=True)
class BestSet:
    """The set of one measure; `members` and `left` are ordered by their means, highest first.

    `p[system]` is the smallest alpha at which it leaves, 1 for the best. `rivals[system]` is the
    system that comes closest to beating it. `untested` have one run that is not declared
    deterministic; they beat nothing. `two_runs` are the members of two, which beat nothing and
    cannot leave. Neither are judged.
    """

    measure: str
    alpha: float
    best: str
    members: tuple[str, ...]
    left: tuple[str, ...]
    untested: tuple[str, ...]
    two_runs: tuple[str, ...]
    p: dict[str, float]
    rivals: dict[str, str]
    distances: dict[str, float]
    """{system: the upper limit of its true distance to the best}, which hold for all at once with
    probability 1 - alpha; infinite where a system of two runs may be the best, or is it."""

    def within(self, margin: float) -> tuple[str, ...]:
        """The systems that are shown to be less than `margin` below the best, which may be any of
        the set; highest mean first."""
        ordered = (*self.members, *self.left)
        return tuple(system for system in ordered if self.distances[system] < margin)

    @property
    def judged(self) -> tuple[str, ...]:
        """The members but those of two runs."""
        return tuple(system for system in self.members if system not in self.two_runs)

    @property
    def others(self) -> tuple[str, ...]:
        """The judged members without the best."""
        return tuple(system for system in self.judged if system != self.best)


def best_set(
    matrix: ScoreMatrix,
    *,
    alpha: float = 0.05,
    paired_seeds: bool = False,
    deterministic: Collection[str] = (),
) -> BestSet:
    """The systems not distinguishable from the best at level alpha.

    Systems with identical scores enter once and share a verdict. A system of two runs neither
    leaves nor beats another one, as it has no letter.
    """
    check_probability("alpha", alpha)
    untested = tuple(
        cell for cell in matrix.cells if len(matrix.scores[cell]) == 1 and cell not in deterministic
    )
    # Copies of a system would count as rivals of each other and make the correction larger.
    tested = [cell for cell in matrix.cells if cell not in untested]
    same = copies([matrix], tested)
    first_of = {cell: same.get(cell, cell) for cell in tested}
    judged = list(dict.fromkeys(first_of.values()))
    if not judged:
        raise BadInput("the best needs a system with two runs or more, or a deterministic one")
    rivalry = Rivalry(matrix, judged, frozenset(deterministic), paired_seeds)
    p_K, rival_K = rivalry.leaving()
    p = {cell: float(p_K[judged.index(first)]) for cell, first in first_of.items()}
    rivals = {cell: judged[rival_K[judged.index(first)]] for cell, first in first_of.items()}
    mean = {cell: float(matrix.scores[cell].mean()) for cell in first_of}
    ordered = sorted(first_of, key=lambda cell: -round(mean[cell] / (rivalry.scale or 1.0), 12))
    p[ordered[0]] = 1.0  # whatever rounding makes of equal means
    kept = [place for place, cell in enumerate(judged) if p[cell] >= alpha]
    limit_K = rivalry.distances(kept, alpha)
    members = tuple(cell for cell in ordered if p[cell] >= alpha)
    few = (c for c in members if c not in deterministic and matrix.fewest_runs(c) < LEAST_SEEDS)
    return BestSet(
        measure=matrix.measure,
        alpha=alpha,
        best=ordered[0],
        members=members,
        left=tuple(cell for cell in ordered if p[cell] < alpha),
        untested=untested,
        two_runs=tuple(few),
        p=p,
        rivals={cell: rival for cell, rival in rivals.items() if cell != ordered[0]},
        distances={cell: float(limit_K[judged.index(first)]) for cell, first in first_of.items()},
    )


@dataclass(frozen=True)
class _PairTests:
    """The tests of all pairs of a `Rivalry`; the moderated ones are NaN where there are none.
    `decides` is whether the moderated p is corrected where system i is the baseline, (K,), and the
    other has to hold for itself; `apart` has the rivals' parts of the variances of those i whose
    moderated p is that of Behrens and Fisher."""

    found: Inference
    variance_queries: Floats
    moderated_error: Floats
    moderated_df: Floats
    decides: NDArray[np.bool_]
    apart: dict[int, TwoParts]


@dataclass(frozen=True)
class Rivalry:
    """All pairs of K systems; arrays are (K, K), [i, j] being j against i."""

    matrix: ScoreMatrix
    cells: Sequence[str]
    deterministic: frozenset[str]
    paired_seeds: bool

    @cached_property
    def seeds(self) -> Floats:
        """The runs of each system; infinite for a deterministic one."""
        return np.array(
            [math.inf if c in self.deterministic else self.matrix.num_runs(c) for c in self.cells]
        )

    @cached_property
    def parts(self) -> Floats:
        """(V_s, V_e) of each system, (K, 2)."""
        known = np.isfinite(self.seeds)
        return np.array(
            [
                seed_variances(self.matrix.scores[cell], scale=self.scale)
                if trained
                else (0.0, 0.0)
                for cell, trained in zip(self.cells, known, strict=True)
            ]
        )

    @cached_property
    def means(self) -> Floats:
        """The means over seeds, (K, Q)."""
        return np.array([self.matrix.scores[cell].mean(axis=0) for cell in self.cells])

    @cached_property
    def scale(self) -> float:
        """The largest score, whose rounding is no difference."""
        return max(float(np.abs(self.matrix.scores[cell]).max()) for cell in self.cells)

    @cached_property
    def differences(self) -> Floats:
        """The differences of the grand means, 0 where they are rounding."""
        mean_K = self.means.mean(axis=1)
        delta_KK = mean_K[None] - mean_K[:, None]
        delta_KK[np.abs(delta_KK) <= ROUNDING * self.scale] = 0.0
        return np.asarray(delta_KK)

    def leaving(self) -> tuple[Floats, list[int]]:
        """(the p of every system, the rival that decides it)."""
        own_KK, moderated_KK = self.one_sided()
        K = len(self.cells)
        p_K, rivals = np.ones(K), [0] * K
        for i in range(K) if K > 1 else ():
            others = np.flatnonzero(np.arange(K) != i)
            # By their p, so that the order of the systems does not change what is drawn.
            others = others[np.lexsort((own_KK[i, others], moderated_KK[i, others]))]
            own, moderated = own_KK[i, others], moderated_KK[i, others]
            R_JJ = self._correlation(i, others)
            found, place = leaving_p(own, moderated, R_JJ, decides=bool(self._tests.decides[i]))
            p_K[i] = found
            rivals[i] = int(others[int(place)])
        mean_K = self.means.mean(axis=1)
        # The highest mean never leaves; systems that tie with it up to rounding share that.
        p_K[mean_K >= mean_K.max() - ROUNDING * self.scale] = 1.0
        return np.minimum(p_K, 1.0), rivals

    def distances(self, kept: Sequence[int], alpha: float) -> Floats:
        """The upper limits of the true distances to the best, which may be any of `kept`, (K,)."""
        limit_K = np.zeros(len(self.cells))
        for b in kept:
            others = np.flatnonzero(np.arange(len(self.cells)) != b)
            if not len(others):
                break
            # As in `leaving`, the order of the systems does not change what is drawn.
            others = others[np.argsort(self.differences[b, others], kind="stable")]
            half_J = self._half_widths(b, others, alpha)
            limit_K[others] = np.maximum(limit_K[others], half_J - self.differences[b, others])
        return limit_K

    def _half_widths(self, b: int, others: NDArray[np.intp], alpha: float) -> Floats:
        """The half-widths of the one-sided limits of b against others at once: where `leaving_p`
        would be alpha."""
        test, R_JJ = self._tests, self._correlation(b, others)
        # A limit needs no third digit of its level, of which the draws take most of the time.
        level = family_level(alpha, R_JJ, two_sided=False, num_draws=NUM_DRAWS // 8)
        place = (b, others)
        moderated_J = stats.t.isf(level, test.moderated_df[place]) * test.moderated_error[place]
        if b in test.apart:
            (V_q, f_q), (V_s, f_s) = (tuple(x[others] for x in part) for part in test.apart[b])
            each = zip(V_q, f_q, V_s, f_s, strict=True)
            moderated_J = np.array([half_width([(a, f), (c, g)], 2 * level) for a, f, c, g in each])
        own_level = alpha if test.decides[b] else level
        welch, se_J = test.found.welch.part(place), test.found.se_both[place]
        t_J = stats.t.isf(own_level, welch.at_level(2 * own_level))
        own_J = np.where(se_J > 0, t_J * se_J, 0.0)
        # Where nothing varies between the queries, the exact permutation's p or no limit.
        least_J = np.broadcast_to(test.found.p_least, test.variance_queries.shape)[place]
        certain_J = (test.variance_queries[place] > 0) | (least_J / 2 < own_level)
        half_J = np.where(certain_J, np.fmax(own_J, moderated_J), math.inf)
        half_J[self._few[place]] = math.inf
        return half_J

    def _tables(
        self, i: int, V_s_KK: Floats, V_e_KK: Floats, runs_KK: Floats
    ) -> dict[int, tuple[float, float, float]]:
        """{j: (V_s, V_e, S) of a table of scores behind the comparisons of system i}: of each
        trained system; where runs are paired, of the differences of j and i, and at i of its own
        scores where some rival is deterministic."""
        trained_K = np.isfinite(self.seeds)
        own = {
            int(j): (self.parts[j, 0], self.parts[j, 1], self.seeds[j])
            for j in np.flatnonzero(trained_K)
        }
        if not (self.paired_seeds and trained_K[i]):
            return own
        rivals = {j: (V_s_KK[i, j], V_e_KK[i, j], runs_KK[i, j]) for j in own if j != i}
        return rivals if trained_K.all() else rivals | {i: own[i]}

    @cached_property
    def _few(self) -> NDArray[np.bool_]:
        """Where one of both has two runs, (K, K)."""
        few_K = self._fewest < LEAST_SEEDS
        return np.asarray(few_K | few_K[:, None])

    @property
    def _fewest(self) -> Floats:
        """The runs of each system, of several strata those of the smallest, (K,)."""
        fewest_K = np.array([float(self.matrix.fewest_runs(cell)) for cell in self.cells])
        return np.where(np.isfinite(self.seeds), fewest_K, math.inf)

    @cached_property
    def _tests(self) -> _PairTests:
        K, Q = self.means.shape
        V_q, queries, shape = np.zeros((K, K)), np.zeros((K, K)), (K, K)
        for i, mean_Q in enumerate(self.means):
            V_q[i] = (self.means - mean_Q).var(axis=1, ddof=1) / Q
            own_df = self.matrix.query_strata, self.matrix.query_df
            queries[i] = 1 + strata_df(self.means - mean_Q, *own_df)
        V_q[V_q * Q <= (ROUNDING * self.scale) ** 2] = 0.0
        own_K = self.seeds
        runs = [np.array(np.broadcast_to(S, shape)) for S in (own_K[:, None], own_K)]
        V_s = [np.array(np.broadcast_to(x, shape)) for x in (self.parts[:, :1], self.parts[:, 0])]
        V_e = [np.array(np.broadcast_to(x, shape)) for x in (self.parts[:, 1:], self.parts[:, 1])]
        least_K = self._fewest
        least = [np.array(np.broadcast_to(S, shape)) for S in (least_K[:, None], least_K)]
        if self.paired_seeds:
            self._pair(V_s, V_e, runs, least)
        found = infer(
            delta=self.differences,
            variance_queries=V_q,
            variance_seeds=tuple(V_s),
            variance_error=tuple(V_e),
            num_seeds=tuple(runs),
            num_queries=queries,
            fewest_queries=min(self.matrix.query_strata, default=Q),
            fewest_seeds=tuple(least),
        )
        error_KK, df_KK = np.full(shape, math.nan), np.full(shape, math.nan)
        decides_K, apart = np.zeros(K, dtype=bool), {}
        for i in range(K):
            tables = self._tables(i, V_s[0], V_e[0], runs[0])
            if len(tables) < LEAST_POOL:
                continue
            V_T, _, S_T = np.array([*tables.values()]).T
            # With system i as the baseline, on which all its comparisons depend.
            agree = bool(
                seeds_agree(S_T * V_T, S_T - 1, [n for n, j in enumerate(tables) if j == i])
            )
            sides = [tuple(part[i] for part in side) for side in zip(V_s, V_e, runs, strict=True)]
            prior = fitted_prior(S_T * V_T, S_T - 1)
            error_KK[i], df_KK[i] = moderated_error(V_q[i], queries[i], sides, prior)
            fixed = bool(np.isinf(own_K[i]))
            if runs_apart(S_T, agree=agree, deterministic=fixed):
                apart[i] = moderated_parts(V_q[i], queries[i], sides[1], prior)
            decides_K[i] = agree or i in apart
        return _PairTests(found, V_q, error_KK, df_KK, decides_K, apart)

    def one_sided(self) -> tuple[Floats, Floats]:
        """(p that j beats i, the moderated one)."""
        test, delta_KK = self._tests, self.differences
        p_KK = two_sided_p(delta_KK, test.moderated_error, test.moderated_df)
        for i, parts in test.apart.items():
            p_KK[i] = two_part_p(delta_KK[i], *parts)
        moderated_KK = where_queries_vary(p_KK, test.found.p_both, test.variance_queries)
        moderated_KK = np.where(np.isnan(test.moderated_error), math.nan, moderated_KK)
        # With two runs nothing is significant in a table, so nothing may leave the set for it
        # either.
        one_sided = [
            np.where(self._few & ~np.isnan(p), 1.0, np.where(delta_KK > 0, p / 2, 1 - p / 2))
            for p in (test.found.p_both, moderated_KK)
        ]
        return one_sided[0], one_sided[1]

    def _pair(
        self, V_s: list[Floats], V_e: list[Floats], runs: list[Floats], least: list[Floats]
    ) -> None:
        """Put the parts of the differences of paired runs in the place of both sides."""
        for i, one in enumerate(self.cells):
            for j, other in enumerate(self.cells):
                if i == j or {one, other} & self.deterministic:
                    continue
                if self.matrix.seeds[one] != self.matrix.seeds[other]:
                    raise BadInput(f"paired seeds need the same seeds in {one} and {other}")
                delta_SQ = self.matrix.scores[other] - self.matrix.scores[one]
                parts = seed_variances(delta_SQ, scale=self.scale)
                (V_s[0][i, j], V_e[0][i, j]), V_s[1][i, j], V_e[1][i, j] = parts, 0.0, 0.0
                strata = self.matrix.run_strata.get(one, ())
                runs[0][i, j] = 1 + strata_df(delta_SQ.mean(axis=1), strata)
                runs[1][i, j] = least[1][i, j] = math.inf

    def _correlation(self, i: int, others: NDArray[np.intp]) -> Floats:
        """The correlations of the differences of `others` with system i; 0 where more of them can
        err than `MOST_DRAWN`, whose number alone counts: those of all i would take the cube of
        it."""
        error_J, delta_J = self._tests.found.se_both[i, others], self.differences[i, others]
        erring_J = can_err(error_J, delta_J)
        if erring_J.sum() > MOST_DRAWN:
            return np.diag(erring_J.astype(np.float64))
        delta_JQ = self.means[others] - self.means[i]
        covariance_JJ = np.atleast_2d(np.cov(delta_JQ)) / delta_JQ.shape[1]
        # All rivals are compared with system i: its seeds are in each difference, with the same
        # sign. Paired runs count as independent, as in `correlations`: the standard errors are then
        # those of differences, which do not contain the variance of one side.
        shared = 0.0 if self.paired_seeds else max(self.parts[i, 0] - self.parts[i, 1], 0.0)
        return scaled(covariance_JJ + shared, error_J, delta_J)


def leaving_p(
    own_J: Floats,
    moderated_J: Floats,
    correlation_JJ: Floats,
    *,
    decides: Any,
    num_draws: int = 0,
) -> tuple[Floats, NDArray[np.intp]]:
    """(the p of a system by the one-sided p-values of its J rivals, the rival that decides).

    `decides` is whether the moderated p is corrected, and not the larger one; without moderated
    tests they are NaN. Leading axes are systems or tables of their own.
    """

    def corrected(p: Floats) -> Floats:
        return p * _rivals(p, correlation_JJ, num_draws)

    larger = np.fmax(own_J, moderated_J)
    by_both = larger.argmin(axis=-1)
    separate = np.minimum(corrected(np.fmin(_at(larger, by_both), 1.0)), 1.0)
    if not np.any(decides):
        return separate, by_both

    least = np.fmin(moderated_J.min(axis=-1), 1.0)
    # One effective number, at the smallest p, serves to find the deciding rival; the p of that one
    # is corrected with its own below.
    number = corrected(least) / np.maximum(least, 1e-300)
    joint = np.fmax(moderated_J * np.maximum(number, 1)[..., None], own_J)
    place = joint.argmin(axis=-1)
    together = np.minimum(
        np.maximum(corrected(np.fmin(_at(moderated_J, place), 1.0)), _at(own_J, place)), 1.0
    )
    return np.where(decides, together, separate), np.where(decides, place, by_both)


def _at(p_J: Floats, place: NDArray[np.intp]) -> Floats:
    return np.asarray(np.take_along_axis(p_J, place[..., None], axis=-1)[..., 0])


def _rivals(p: Floats, correlation_JJ: Floats, num_draws: int) -> Floats:
    """The effective number of rivals at one-sided p-values; in one system's family its equals do
    not count."""
    if correlation_JJ.ndim == 2:
        correlation_JJ = fallible(correlation_JJ)
    if correlation_JJ.shape[-1] < 2:
        return np.ones(np.shape(p))
    return effective_number(p, correlation_JJ, two_sided=False, num_draws=num_draws)
