"""Racing: configurations compete seed by seed and are eliminated once they are credibly worse.

Seeds are blocks: every live configuration runs one more seed, then an interim analysis follows. A
configuration is eliminated if the whole grid is unlikely to name it the winner. With probability
1 - alpha or more, for runs with equal variances, the winner is the one that all configurations with
all seeds would have given on the same dev queries; with an indifference `delta` it may be one that
the grid puts at most delta behind its own. Whether it is the better *method* needs queries it was
not chosen on and fresh seeds. The state is a pure function of the ended trials, in any order.

The test of one interim analysis (`interim_analysis`) uses the run means, over the dev queries, of
the live configurations, each with the same s seeds of the S planned. The seeds run so far are a
random s of those S, so that

    (leader - k over s seeds) - (leader - k over S seeds)  has variance  2 sigma^2 (1/s - 1/S)

whatever the true difference is: the finite-population correction of sampling without replacement.
If k is the grid's winner, the second bracket is at most 0 (or delta), and the statistic

    t_k = (leader's mean - k's mean) / sqrt(2 sigma^2 (1/s - 1/S))

is at most the largest of L - 1 such differences of equals: one-sided Dunnett (1955) with
correlation 1/2, the leader being any of the L - 1 rivals, as in Gupta's (1965) subset selection and
Hsu's (1984) comparisons with the best.

sigma^2 is the mean square of configuration x seed pooled over the live configurations, with
(L - 1)(s - 1) degrees of freedom: seeds are blocks, so the effect of a seed that all configurations
share cancels as it does in the difference. A configuration whose own runs vary more than the pool
(a collapse) has its own mean square, shrunk towards the pool; never a smaller one than the pool's.
Where no run varies at all, no t-test decides: p is that of the permutation of s signs, 2^(1 - s).

The levels of all interim analyses (`nominal_levels`): a spending function (Lan and DeMets, 1983)
gives the probability A(t) that, by the share t of the analyses, the configuration the whole grid
would name is eliminated; A(1) = alpha. Simulated races of equal configurations turn it into one
level per analysis. For two configurations a tie is the least favourable truth: the verdict is wrong
if the grid's gap is in an interval around 0, which is most probable for a normal gap of mean 0
(Anderson, 1955). For more of them all equal is not: once the clearly worse ones are eliminated, two
that tie are in a race of two. So an analysis has the smaller one of two levels (`level_of`): that
of all configurations, and that of a race which only those still live had started
(`tests.benchmarks.racing`, section `ties`).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import interpolate, special, stats

from rank_core.arrays import Floats
from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.stats.matrix import QUERIES_THAT_PROVE
from rank_core.stats.scopes import certain_p, check_probability

Bools = NDArray[np.bool_]

FIRST_ANALYSIS = 2
"""Seeds before the first interim analysis: one has no seed variance."""

_ROUNDING = 64 * np.finfo(np.float64).eps
"""A standard deviation below this share of the largest mean is rounding."""

_POOL_DF = 4
"""Degrees of freedom of the pool in a configuration's moderated variance."""

_REACH = 1e4
"""The largest tabulated statistic; with one degree of freedom its p is still 1e-4."""


@dataclass(frozen=True)
class InterimAnalysis:
    """An interim analysis of B races of K configurations; eliminated ones have p = NaN.

    `gap` is the leader's mean minus the configuration's, `se` its standard error about the gap of
    the whole grid, `df` the pool's degrees of freedom, `p` the probability of such a gap between
    equals. The leader has gap 0 and p = 1.
    """

    leader_B: NDArray[np.intp]
    gap_BK: Floats
    se_BK: Floats
    df_B: Floats
    p_BK: Floats


def interim_analysis(
    mean_BKs: Floats,
    live_BK: Bools,
    *,
    num_seeds: int,
    delta: float = 0.0,
    same_BK: Bools | None = None,
) -> InterimAnalysis:
    """Judge every live configuration after s complete seeds of `num_seeds`, 2 <= s < num_seeds.

    Among equal means the configuration that comes first leads. `same_BK` marks live configurations
    with the values of another one: they are judged, but are neither rivals nor evidence on sigma.
    `delta` >= 0, in units of the measure, is the difference that does not matter.
    """
    s = mean_BKs.shape[2]
    counted_BK = live_BK if same_BK is None else live_BK & ~same_BK
    rounding_B1 = _ROUNDING * np.abs(np.where(live_BK[:, :, None], mean_BKs, 0)).max(axis=(1, 2))
    rounding_B1 = rounding_B1[:, None]
    mean_BK = np.where(live_BK, mean_BKs.mean(axis=2), -np.inf)
    top_B1 = mean_BK.max(axis=1, keepdims=True)
    # `argmax` of a mask is the first of the equal ones: the order of the plan decides, not the last
    # bit.
    leader_B1 = (mean_BK >= top_B1 - rounding_B1).argmax(axis=1, keepdims=True)
    gap_BK = np.where(live_BK, top_B1 - np.where(live_BK, mean_BK, 0), np.nan)
    gap_BK[gap_BK <= rounding_B1] = 0.0
    variance_BK = _variances(mean_BKs, counted_BK)
    variance_BK[variance_BK <= rounding_B1**2] = 0.0
    # The variance of a difference of two configurations; seeds are blocks, so that what all of them
    # share at a seed has been removed.
    variance_BK = variance_BK + np.take_along_axis(variance_BK, leader_B1, axis=1)
    # The finite-population correction of the module's head: with all seeds run nothing is
    # uncertain.
    se_BK = np.where(live_BK, np.sqrt(variance_BK * (1 / s - 1 / num_seeds)), np.nan)
    behind_BK = gap_BK + delta * (np.arange(gap_BK.shape[1]) != leader_B1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t_BK = np.where(behind_BK == 0, 0.0, behind_BK / se_BK)
    p_BK = np.full(t_BK.shape, np.nan)
    L_B = counted_BK.sum(axis=1)
    # The null distribution depends on the number of rivals alone: races that have as many live
    # configurations share a table.
    for L in np.unique(L_B):
        rows = L_B == L
        p_BK[rows] = dunnett_p(t_BK[rows], rivals=int(L) - 1, df=int((L - 1) * (s - 1)))
    # Equal leads in every seed: no t decides, the permutation of their signs does.
    p_BK[(se_BK == 0) & live_BK] = certain_p(s)
    p_BK[(behind_BK == 0) & live_BK] = 1.0
    df_B = ((L_B - 1) * (s - 1)).astype(np.float64)
    return InterimAnalysis(leader_B1[:, 0], gap_BK, se_BK, df_B, p_BK)


def dunnett_p(t: Floats, *, rivals: int, df: int) -> Floats:
    """P(the largest of `rivals` correlated one-sided t statistics >= t), elementwise, for t >= 0.
    NaN stays NaN; an infinite statistic has p = 0."""
    if rivals < 1:
        return np.where(np.isnan(t), np.nan, 1.0)
    table = _log_tail(rivals, df)
    with np.errstate(invalid="ignore"):
        p = np.exp(table(np.arcsinh(np.minimum(t, _REACH))))
    return np.where(np.isinf(t), 0.0, np.minimum(p, 1.0))


@lru_cache(maxsize=4096)
def _log_tail(rivals: int, df: int) -> interpolate.CubicSpline:
    """log P(max >= t) as a spline over asinh(t); the integral is over the shared normal and chi.

    Given the rival's own normal z and u = sqrt(chi2 / df), the others are independent:
    P(max < t) = E[Phi(sqrt(2) t u + z)^rivals].
    """
    x_T = np.linspace(0, np.arcsinh(_REACH), 120)
    node, weight = np.polynomial.legendre.leggauss(48)
    z_Z, weight_Z = 9 * node, 9 * weight * stats.norm.pdf(9 * node)
    # Nodes even in the logarithm of the chi's quantile: its far tail makes the far tail of t.
    log_q = (node - 1) * 9
    u_U = np.sqrt(stats.chi2.ppf(np.exp(log_q), df) / df)
    weight_U = np.exp(log_q) * weight
    shift_TU = np.sqrt(2) * np.sinh(x_T)[:, None] * u_U
    tail_T = np.zeros(len(x_T))
    for z, weight_z in zip(z_Z, weight_Z, strict=True):
        tail_T += weight_z * (
            -np.expm1(rivals * special.log_ndtr(shift_TU + z)) @ (weight_U / weight_U.sum())
        )
    return interpolate.CubicSpline(x_T, np.log(np.maximum(tail_T, 1e-300)))


def _variances(mean_BKs: Floats, counted_BK: Bools) -> Floats:
    """sigma^2 of each configuration, (B, K): the pool's, or its own moderated one if larger. 0
    where fewer than two configurations are live."""
    s = mean_BKs.shape[2]
    L_B1 = counted_BK.sum(axis=1, keepdims=True)
    seed_Bs = np.where(counted_BK[:, :, None], mean_BKs, 0).sum(axis=1) / L_B1
    residual_BKs = mean_BKs - mean_BKs.mean(axis=2, keepdims=True)
    residual_BKs -= (seed_Bs - seed_Bs.mean(axis=1, keepdims=True))[:, None, :]
    # The seed's mean contains 1 / L of each configuration's own square.
    own_BK = (residual_BKs**2).sum(axis=2) / (s - 1) * L_B1 / np.maximum(L_B1 - 1, 1)
    pool_B1 = np.where(counted_BK, own_BK, 0).sum(axis=1, keepdims=True) / L_B1
    # One's own square alone has s - 1 degrees of freedom: a chance outlier would keep a bad
    # configuration alive.
    moderated_BK = (_POOL_DF * pool_B1 + (s - 1) * own_BK) / (_POOL_DF + s - 1)
    return np.maximum(pool_B1, moderated_BK)


NUM_RACES = 40_000
_NUMBERS = 10_000_000
"""The limit of simulated runs: fewer races where a race is large."""

_HIGHEST = 0.5
"""The largest level of an analysis, even if more of the budget is left at the last."""


def spent(num_seeds: int, *, alpha: float) -> dict[int, float]:
    """{seeds complete: budget spent by then} for the analyses after 2, ..., num_seeds - 1 seeds, as
    Pocock's boundaries spend it: nearly the same level at every analysis eliminates early and saves
    most runs. After the last seed the grid is complete and needs no test."""
    check_probability("alpha", alpha)
    analyses = range(FIRST_ANALYSIS, num_seeds)
    return {s: alpha * math.log(1 + (math.e - 1) * (s / (num_seeds - 1))) for s in analyses}


@lru_cache(maxsize=256)
def nominal_levels(num_configurations: int, num_seeds: int, *, alpha: float) -> dict[int, float]:
    """{seeds complete: nominal level}; a configuration is eliminated if its p is below the level.

    Simulated with a fixed random stream, so that the same race has the same levels everywhere. Two
    standard errors of the simulation are subtracted from the budget (.0022 of .05).
    """
    if num_configurations < 2:
        raise BadInput(f"a race needs 2 configurations or more, got {num_configurations}")
    # The levels are solved one after the other: at each analysis, the level at which the simulated
    # races lose their winner just as often as the spending function allows by then.
    budget = spent(num_seeds, alpha=alpha)
    K, S = num_configurations, num_seeds
    B = max(min(NUM_RACES, _NUMBERS // (K * S)), 2000)
    score_BKS = generator(1, "racing levels", K, S).normal(size=(B, K, S))
    winner_B = score_BKS.mean(axis=2).argmax(axis=1)
    safety = 1 - 2 * math.sqrt((1 - alpha) / (alpha * B))
    live_BK, levels, lost, before = np.ones((B, K), dtype=np.bool_), {}, 0, 0.0
    for s, total in budget.items():
        running_B = (live_BK.sum(axis=1) > 1) & live_BK[np.arange(B), winner_B]
        analysis = interim_analysis(score_BKS[running_B, :, :s], live_BK[running_B], num_seeds=S)
        # Only races whose winner is still in can lose it: the k-th smallest p of those winners is
        # the level that eliminates k of them.
        p_N = np.sort(analysis.p_BK[np.arange(running_B.sum()), winner_B[running_B]])
        more = int(safety * total * B) - lost
        drawn = float(p_N[more]) if 0 <= more < len(p_N) else 0.0 if more < 0 else _HIGHEST
        # Never below the increment of the budget (by Bonferroni over analyses that is valid without
        # a simulation).
        levels[s] = min(max(drawn, total - before), _HIGHEST)
        live_BK[running_B] &= ~(analysis.p_BK < levels[s])
        lost, before = lost + int((p_N < levels[s]).sum()), total
    return levels


def level_of(
    num_configurations: int, live: int, num_seeds: int, num_complete: int, *, alpha: float
) -> float:
    """The level after `num_complete` seeds of a race that `live` configurations are left in."""
    return min(
        nominal_levels(num, num_seeds, alpha=alpha)[num_complete]
        for num in {num_configurations, max(live, 2)}
    )


Trial = tuple[str, int]
"""A configuration and its seed."""


@dataclass(frozen=True)
class Judged:
    """One configuration in one interim analysis; `gap` and `p` as in `InterimAnalysis`.
    `twin` names an earlier configuration with the same values."""

    configuration: str
    gap: float
    p: float
    leaves: bool
    twin: str | None


@dataclass(frozen=True)
class Verdict:
    """The decision of an interim analysis after `num_seeds` of `planned_seeds` seeds. A
    configuration with p < level is eliminated; `df` are those of the pooled seed variance."""

    num_seeds: int
    planned_seeds: int
    leader: str
    level: float
    df: float
    judged: tuple[Judged, ...]

    @property
    def stays(self) -> tuple[str, ...]:
        """The configurations that run another seed, in their order."""
        return tuple(judged.configuration for judged in self.judged if not judged.leaves)

    @property
    def leaves(self) -> tuple[str, ...]:
        """The eliminated configurations."""
        return tuple(judged.configuration for judged in self.judged if judged.leaves)


@dataclass(frozen=True)
class Standing:
    """A line of the report of a race: `left_after` seeds, or None if the configuration is live.

    `mean` is over the `num_seeds` it was judged on; a live configuration has as many as the others.
    One that `lost` a trial was eliminated for that, without a test.
    """

    configuration: str
    mean: float
    num_seeds: int
    left_after: int | None
    lost: bool = False


@dataclass(frozen=True)
class Race:
    """The state of a race after its finished trials; see `race_so_far`.

    `num_complete` seeds are complete for all live configurations. `pending` are the trials to run
    next, in order; none once the race is over. `standings` lists the live configurations, best
    first, then the eliminated ones, latest first.
    """

    configurations: tuple[str, ...]
    seeds: tuple[int, ...]
    live: tuple[str, ...]
    num_complete: int
    verdicts: tuple[Verdict, ...]
    pending: tuple[Trial, ...]
    standings: tuple[Standing, ...]

    @property
    def over(self) -> bool:
        """True if nothing is left to run: one configuration is live, or all seeds are complete."""
        return not self.pending

    @property
    def winner(self) -> str:
        """The first of the standings: the leader so far, the winner once the race is over."""
        return self.standings[0].configuration

    @property
    def cost(self) -> float:
        """The trials of complete blocks as a share of the whole grid's."""
        trials = sum(standing.num_seeds for standing in self.standings)
        return trials / (len(self.configurations) * len(self.seeds))


def survivors(
    scores: Mapping[str, Floats],
    *,
    num_configurations: int,
    num_seeds: int,
    alpha: float = 0.05,
    delta: float = 0.0,
) -> Verdict:
    """Judge the live configurations, `scores[configuration]` being dev values (s, Q), s alike.

    `num_configurations` started the race and `num_seeds` are planned; analyses follow 2 to
    num_seeds - 1 seeds. The leader is never eliminated; of equal means the first leads.
    `delta` >= 0 is the difference of the measure that does not matter.
    """
    if not 0 <= delta < float("inf"):
        raise BadInput(f"delta >= 0 must hold, got delta={delta}")
    names, score_LSQ = tuple(scores), _stacked(scores)
    s = score_LSQ.shape[1]
    first: dict[bytes, str] = {}
    firsts = [
        first.setdefault(score_SQ.tobytes(), n)
        for n, score_SQ in zip(names, score_LSQ, strict=True)
    ]
    twin_of = [None if twin == name else twin for name, twin in zip(names, firsts, strict=True)]
    live = twin_of.count(None)
    level = level_of(num_configurations, live, num_seeds, s, alpha=alpha)
    same_1L = np.array([[twin is not None for twin in twin_of]])
    live_1L, mean_1Ls = np.ones_like(same_1L), score_LSQ.mean(axis=2)[None]
    analysis = interim_analysis(
        mean_1Ls, live_1L, num_seeds=num_seeds, delta=delta, same_BK=same_1L
    )
    columns = names, analysis.gap_BK[0], analysis.p_BK[0], twin_of
    judged = tuple(
        Judged(name, float(gap), float(p), bool(p < level), twin)
        for name, gap, p, twin in zip(*columns, strict=True)
    )
    leader, df = names[int(analysis.leader_B[0])], float(analysis.df_B[0])
    return Verdict(s, num_seeds, leader, level, df, judged)


def race_so_far(
    finished: Mapping[Trial, Floats],
    *,
    configurations: Sequence[str],
    seeds: Sequence[int],
    lost: Collection[Trial] = (),
    alpha: float = 0.05,
    delta: float = 0.0,
) -> Race:
    """Replay a race from `finished`: per trial its dev values, one per query, queries in one order.

    Only complete blocks are judged, not trials that finished before their block or after their
    configuration was eliminated. A configuration that `lost` a trial is eliminated at that seed.
    """
    spent(len(seeds), alpha=alpha)  # refuses a bad alpha early
    live, verdicts = tuple(configurations), list[Verdict]()
    runs = dict.fromkeys(configurations, 0)
    pending: tuple[Trial, ...] = ()
    num_complete = 0
    for s, seed in enumerate(seeds, start=1):
        live = tuple(name for name in live if (name, seed) not in lost)
        # A block is judged when it is complete: which trial ended first must not matter.
        pending = tuple((name, seed) for name in live if (name, seed) not in finished)
        if pending or not live:
            break
        num_complete = s
        runs |= dict.fromkeys(live, s)
        if FIRST_ANALYSIS <= s < len(seeds):
            verdict = survivors(
                {name: _rows(finished, name, seeds[:s]) for name in live},
                num_configurations=len(configurations),
                num_seeds=len(seeds),
                alpha=alpha,
                delta=delta,
            )
            verdicts.append(verdict)
            live = verdict.stays
        if len(live) == 1 and s >= FIRST_ANALYSIS:
            break
    return Race(
        configurations=tuple(configurations),
        seeds=tuple(seeds),
        live=live,
        num_complete=num_complete,
        verdicts=tuple(verdicts),
        pending=pending,
        standings=_standings(finished, seeds, runs, live, {name for name, _ in lost}),
    )


def _standings(
    finished: Mapping[Trial, Floats],
    seeds: Sequence[int],
    runs: Mapping[str, int],
    live: Sequence[str],
    lost: Collection[str],
) -> tuple[Standing, ...]:
    """Live first, then the latest eliminated; better means first, equals in the given order. Means
    are rounded before they are compared, because summation order changes their last digits."""

    def place(standing: Standing) -> tuple[bool, int, float]:
        mean = -round(standing.mean, 12) if standing.num_seeds else 0.0
        return standing.left_after is not None, -standing.num_seeds, mean

    standings = []
    for name, s in runs.items():
        mean = float(_rows(finished, name, seeds[:s]).mean(axis=1).mean()) if s else float("nan")
        left_after = None if name in live else s
        standings.append(Standing(name, mean, s, left_after, name in lost))
    return tuple(sorted(standings, key=place))


def _rows(finished: Mapping[Trial, Floats], name: str, seeds: Sequence[int]) -> Floats:
    """The dev values (s, Q) of one configuration."""
    return np.stack([np.asarray(finished[name, seed], dtype=np.float64) for seed in seeds])


def _stacked(scores: Mapping[str, Floats]) -> Floats:
    """The scores of the live configurations as (L, s, Q), checked."""
    arrays = {name: np.asarray(score_SQ, dtype=np.float64) for name, score_SQ in scores.items()}
    for name, score_SQ in arrays.items():
        if not np.isfinite(score_SQ).all():
            raise BadInput(f"dev values must be finite, got NaN or infinity for {name}")
        # Collapsed runs, which are constant, may agree.
        varied = score_SQ[np.ptp(score_SQ, axis=1) > 0]
        copied = len(np.unique(varied, axis=0)) < len(varied)
        if score_SQ.shape[1] >= QUERIES_THAT_PROVE and copied:
            raise BadInput(
                f"training runs must differ, but two seeds of {name} have identical values for "
                "all queries: the seed has no effect, training changes nothing, or a run was copied"
            )
    return np.stack(list(arrays.values()))
