"""Is system A better than system B: three scopes of one comparison, in closed form.

Scope `queries` keeps the trained runs fixed and draws new queries (the usual paired t-test). Scope
`seeds` keeps the queries and draws new training runs (Welch's t-test on the seed means). Scope
`both` draws both, and is the one that answers a question about methods. It is Clark's (1973)
quasi-F for subjects x items; on balanced data its standard error equals that of a crossed REML fit.
Its p-values use Welch's (1947) second-order approximation in place of the first-order one of
Satterthwaite, because the seed variance has only S - 1 degrees of freedom (`WelchDf`). Seeds are
nested in systems: seed 1 of A and seed 1 of B share nothing unless the sweep declares it
(`paired_scope_test`).

A t-test compares a difference with its variance, so where nothing varies it cannot decide: a
permutation test does (`certain_p`, `infer`), and there is no interval.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy import special, stats

from rank_core.arrays import Floats
from rank_core.errors import BadInput, unknown

Strata = tuple[int, ...]
"""Sizes of strata that follow one another; () is a single one."""

HALVINGS = 60  # of the interval around a p-value, to the last bit
LARGEST_Z = 38.0  # beyond it a p-value is 0 in double precision


@dataclass(frozen=True)
class WelchDf:
    """Degrees of freedom of V = x_1 + x_2 + ..., where x_i is a multiple, maybe a negative one, of
    a mean square with f_i degrees of freedom. Fields are numbers or arrays of one shape.

    Satterthwaite's single number is the first order of an expansion. With three seeds on one side
    and a stable system on the other it rejects too often: where the seed variance (two degrees of
    freedom) is underestimated, so is its share of the variance. Welch's (1947) second order depends
    on the level of the test; here it is capped at Satterthwaite's, so that its p-value is never the
    smaller one.
    """

    first: Any  # u = sum of (x_i / V)^2 / f_i: 1 / Satterthwaite's degrees of freedom
    square: Any  # a = sum of (x_i / V)^2 / f_i^2
    cubic: Any  # b = sum of (x_i / V)^3 / f_i^2
    fewest: Any  # the smallest f_i of the queries and of the seeds of a trained side

    @classmethod
    def of(cls, parts: Sequence[tuple[Any, Any]], total: Any, fewest: Any) -> "WelchDf":
        """From (x_i, f_i) of all parts and V. NaN where V is 0 or a part is NaN."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = [(np.asarray(x, dtype=np.float64) / total, f) for x, f in parts]
            return cls(
                first=sum(w**2 / f for w, f in shares),
                square=sum(w**2 / f**2 for w, f in shares),
                cubic=sum(w**3 / f**2 for w, f in shares),
                fewest=fewest,
            )

    @property
    def satterthwaite(self) -> Any:
        """The first-order degrees of freedom."""
        with np.errstate(divide="ignore"):
            return 1 / np.asarray(self.first)

    def part(self, place: Any) -> "WelchDf":
        """Those at a place of the arrays."""
        fields = (self.first, self.square, self.cubic, self.fewest)
        return WelchDf(*(np.broadcast_to(one, np.shape(self.first))[place] for one in fields))

    def at_level(self, alpha: float) -> Any:
        """The degrees of freedom of a two-sided test, or an interval, at level alpha."""
        return self._at()(float(-special.ndtri(alpha / 2)))

    def _at(self) -> Callable[[Any], Any]:
        """The degrees of freedom of a test by its critical value z under a known variance."""
        u, a, b = self.first, self.square, self.cubic
        with np.errstate(divide="ignore", invalid="ignore"):
            # By Cauchy-Schwarz b >= u^2 for positive shares that sum to 1. The residual's share is
            # negative, so that the difference can fall below 0, and the critical value would then
            # fall with z.
            bend = np.maximum(b - u**2, 0)
            start = u - 2 * a + 16 / 3 * b - 10 / 3 * u**2
            # A sum of mean squares never has fewer degrees of freedom than the part with the
            # fewest.
            most = np.maximum(u, 1 / np.asarray(self.fewest))

        def at(z: Any) -> Any:
            second = start + 4 / 3 * (z**2 - 1 / (1 + z**2)) * bend
            # `u` caps the degrees of freedom at Satterthwaite's, as the class says: the correction
            # may only make a test more cautious.
            return 1 / np.minimum(np.maximum(second, u), most)

        return at

    def two_sided_p(self, delta: Any, se: Any) -> Floats:
        """p: the level at which |delta| / se is the critical value. Without variance 1 for no
        difference and NaN for a constant one, of which a t-test says nothing."""
        delta, se = np.abs(np.asarray(delta, dtype=np.float64)), np.asarray(se, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = delta / se
            # Satterthwaite's p: the start of the search, and the least that is returned.
            first = special.stdtr(self.satterthwaite, -t)
        # The critical value rises with z, and at Satterthwaite's p it is |t| or more.
        low, at = np.zeros_like(first), self._at()
        high = np.minimum(-special.ndtri(first), LARGEST_Z)
        with np.errstate(divide="ignore", invalid="ignore"):
            # The degrees of freedom depend on the level and the level on them: bisection over the
            # normal quantile z of the level finds the fixed point, for arrays of any shape at once.
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                below = special.ndtr(-middle) > special.stdtr(at(middle), -t)
                low, high = np.where(below, middle, low), np.where(below, high, middle)
        # The last bit of the bisection must not undercut Satterthwaite's p.
        p = np.where(np.isnan(first), np.nan, np.maximum(2 * special.ndtr(-high), 2 * first))
        return np.where(se == 0, np.where(delta == 0, 1.0, np.nan), p)


SCOPES = ("queries", "seeds", "both")

LEAST_SEEDS = 3
"""Least number of runs of every trained system for a significant comparison. Two runs determine the
standard deviation between seeds only within a factor of .45 to 32: with unequal seed variances, p <
.05 then happens by chance up to 10% of the time."""

ROUNDING = 16 * np.finfo(np.float64).eps
"""A difference below this share of the largest score is rounding."""


@dataclass(frozen=True)
class Inference:
    """Standard errors, degrees of freedom and p-values of one comparison, or of many, elementwise.

    `df_both` is that of a test at .05; `welch` has those of other levels. `p_least` is the smallest
    p that scope `both` can have: 0, unless nothing varies between the queries.
    """

    se_queries: Any
    se_seeds: Any
    se_both: Any
    df_queries: Any
    df_seeds: Any
    df_both: Any
    p_queries: Any
    p_seeds: Any
    p_both: Any
    p_least: Any
    welch: WelchDf


@dataclass(frozen=True)
class ScopeTest(Inference):
    """Difference of the grand means A - B and its three two-sided p-values.

    Fields that need seed variance are NaN if a trained side has one seed. `variance_*` are
    variances of the difference: `variance_queries` (V_q) contains query x system and residual,
    `variance_seeds_*` (V_s) seed and residual, `variance_error_*` (V_e) the residual alone. In a
    paired test `_a` has the parts of the table of differences; `_b` is 0.
    """

    delta: float
    variance_queries: float
    variance_seeds_a: float
    variance_seeds_b: float
    variance_error_a: float
    variance_error_b: float
    df_runs_a: float  # of V_s; infinite without such a part
    df_runs_b: float


def scope_test(
    score_A_SQ: Floats,
    score_B_SQ: Floats,
    *,
    deterministic: tuple[bool, bool] = (False, False),
    query_strata: Strata = (),
    query_df: Sequence[float] = (),
    run_strata: tuple[Strata, Strata] = ((), ()),
) -> ScopeTest:
    """Compare two systems measured on the same queries, each with its own seeds; S may differ.

    A side declared deterministic (BM25: training again gives the same run) has one run and no seed
    variance; it adds nothing to V or the degrees of freedom.
    """
    score_A_SQ, score_B_SQ = _checked(score_A_SQ), _checked(score_B_SQ)
    if score_A_SQ.shape[1] != score_B_SQ.shape[1]:
        raise BadInput(
            "both systems need the same queries, "
            f"got {score_A_SQ.shape[1]} and {score_B_SQ.shape[1]} columns"
        )
    scale = float(max(np.abs(score_A_SQ).max(), np.abs(score_B_SQ).max()))
    # Both systems answer the same queries: a query that is hard for both cancels here.
    delta_Q = score_A_SQ.mean(axis=0) - score_B_SQ.mean(axis=0)
    sides = zip((score_A_SQ, score_B_SQ), deterministic, strict=True)
    seeds = [_side_variances(score_SQ, fixed, scale=scale) for score_SQ, fixed in sides]
    return _test(
        delta_Q,
        variance_seeds=(seeds[0][0], seeds[1][0]),
        variance_error=(seeds[0][1], seeds[1][1]),
        num_seeds=(_number(score_A_SQ, run_strata[0]), _number(score_B_SQ, run_strata[1])),
        fewest_seeds=(_fewest(score_A_SQ, run_strata[0]), _fewest(score_B_SQ, run_strata[1])),
        deterministic=deterministic,
        query_strata=query_strata,
        query_df=query_df,
        scale=scale,
    )


def paired_scope_test(
    score_A_SQ: Floats,
    score_B_SQ: Floats,
    *,
    query_strata: Strata = (),
    query_df: Sequence[float] = (),
    run_strata: Strata = (),
) -> ScopeTest:
    """Compare two systems whose row s shares its randomness: initialisation, order, negatives. Only
    for a sweep that declares this; equal seed numbers alone pair nothing."""
    score_A_SQ, score_B_SQ = _checked(score_A_SQ), _checked(score_B_SQ)
    if score_A_SQ.shape != score_B_SQ.shape:
        raise BadInput(
            "paired seeds need the same seeds and queries on both sides, "
            f"got the shapes {score_A_SQ.shape} and {score_B_SQ.shape}"
        )
    scale = float(max(np.abs(score_A_SQ).max(), np.abs(score_B_SQ).max()))
    delta_SQ = score_A_SQ - score_B_SQ
    variance_seeds, variance_error = seed_variances(delta_SQ, scale=scale)
    return _test(
        delta_SQ.mean(axis=0),
        variance_seeds=(variance_seeds,),
        variance_error=(variance_error,),
        num_seeds=(_number(delta_SQ, run_strata),),
        fewest_seeds=(_fewest(delta_SQ, run_strata),),
        query_strata=query_strata,
        query_df=query_df,
        scale=scale,
    )


def confidence_interval(
    test: ScopeTest, level: float = 0.95, *, scope: str = "both"
) -> tuple[float, float]:
    """The two-sided interval of the difference; NaN where the scope is undefined, and where nothing
    varies between the seeds or, in another scope than theirs, between the queries."""
    if scope not in SCOPES:
        raise unknown("scope", scope, SCOPES)
    check_probability("level", level)
    se: float = getattr(test, f"se_{scope}")
    if (test.se_seeds if scope == "seeds" else test.se_queries) == 0:
        return math.nan, math.nan
    df: float = getattr(test, f"df_{scope}")
    if scope == "both" and se > 0:
        df = float(test.welch.at_level(1 - level))
    half = float(stats.t.ppf((1 + level) / 2, df)) * se
    return test.delta - half, test.delta + half


def variance_interval(test: ScopeTest, level: float = 0.95) -> tuple[float, float]:
    """Both ends of the variance of the difference in scope `both`, with the variance between seeds
    at the ends of its chi-square interval; NaN for one seed."""
    if test.se_seeds == 0:
        return test.se_both**2, test.se_both**2
    tails = (1 + level) / 2, (1 - level) / 2
    error = test.variance_error_a + test.variance_error_b
    # df s^2 / sigma^2 is chi-square distributed: the upper quantile gives the lower end.
    low, high = test.se_seeds**2 * test.df_seeds / stats.chi2.ppf(tails, test.df_seeds)
    return (
        test.variance_queries + max(float(low) - error, 0.0),
        test.variance_queries + max(float(high) - error, 0.0),
    )


def seed_variances(score_SQ: Floats, *, scale: float | None = None) -> tuple[float, float]:
    """V_s and V_e of one system: the variance of its mean over seeds, and the residual's share.

    V_s = var_s(seed means) / S; V_e = MSE / (Q S). Both are NaN for one seed. `scale` is the
    largest score (default: the system's), whose rounding is no variance.
    """
    scale = float(np.abs(score_SQ).max()) if scale is None else scale
    S, Q = score_SQ.shape
    if S == 1:
        return float("nan"), float("nan")
    mean_S = score_SQ.mean(axis=1)
    # One value per run and query: their interaction cannot be told from noise, and is the residual
    # of the two-way layout.
    residual_SQ = score_SQ - mean_S[:, None] - score_SQ.mean(axis=0) + score_SQ.mean()
    mean_square_error = float((residual_SQ**2).sum()) / ((S - 1) * (Q - 1))
    # The mean of a run over Q queries carries a Q-th of the residual, so V_s contains V_e; `infer`
    # subtracts it where V_q has counted it already.
    variance_seeds = without_rounding(float(mean_S.var(ddof=1)), scale) / S
    return variance_seeds, without_rounding(mean_square_error, scale) / (Q * S)


def infer(
    *,
    delta: Any,
    variance_queries: Any,
    variance_seeds: tuple[Any, ...],
    variance_error: tuple[Any, ...],
    num_seeds: tuple[Any, ...],
    num_queries: Any,
    fewest_queries: Any = None,
    fewest_seeds: tuple[Any, ...] | None = None,
) -> Inference:
    """The three scopes from the variance parts, one part per trained system (one when paired); a
    part without runs that vary has S = infinity.

    V = V_q + sum of max(V_s - V_e, 0): V_q already contains the residual once. The degrees of
    freedom keep the terms of a part truncated at 0: they are continuous where V_s crosses V_e, and
    conservative. A deterministic system has no part. Arguments may be arrays and broadcast.

    Without variance between queries the permutation of their signs decides scope `queries`, without
    variance between runs that of the runs scope `seeds`. Where nothing varies between queries scope
    `both` is at most as certain as either of them. `fewest_*` are the queries and runs that these
    permute, in strata those of the smallest; they default to `num_*`.
    """
    V_q, Q = np.asarray(variance_queries, dtype=np.float64), np.asarray(num_queries)
    parts = [
        (np.asarray(V_s), np.asarray(V_e), np.asarray(S) - 1.0)
        for V_s, V_e, S in zip(variance_seeds, variance_error, num_seeds, strict=True)
    ]
    V_seeds, df_seeds = _of_runs(parts)
    V_both = V_q + sum((np.maximum(V_s - V_e, 0) for V_s, V_e, _ in parts), np.float64(0))
    df_queries = np.broadcast_to(Q - 1.0, V_q.shape)
    # V in mean squares, each with its degrees of freedom: V_q + V_s - V_e. The residual enters with
    # a minus sign and (S - 1)(Q - 1) degrees of freedom.
    mean_squares = [(V_q, Q - 1.0)]
    for V_s, V_e, df in parts:
        mean_squares += [(V_s, df), (-V_e, df * (Q - 1.0))]
    fewest = reduce(np.minimum, [df for _, _, df in parts], Q - 1.0)
    welch = WelchDf.of(mean_squares, V_both, fewest)
    delta = np.asarray(delta, dtype=np.float64)
    # Where nothing varies a t-test would give p = 0 from two runs; a permutation test knows how few
    # arrangements there are.
    least_queries = certain_p(num_queries if fewest_queries is None else fewest_queries)
    least_seeds = certain_runs_p(num_seeds if fewest_seeds is None else fewest_seeds)
    least_seeds = np.where(V_seeds == 0, least_seeds, 0.0)
    p_queries = two_sided_p(delta, np.sqrt(V_q), df_queries)
    p_queries = np.where((V_q == 0) & (delta != 0), least_queries, p_queries)
    p_seeds = two_sided_p(delta, np.sqrt(V_seeds), df_seeds)
    p_seeds = np.where((V_seeds == 0) & (delta != 0), least_seeds, p_seeds)
    p_both = welch.two_sided_p(delta, np.sqrt(V_both))
    return Inference(
        se_queries=np.sqrt(V_q),
        se_seeds=np.sqrt(V_seeds),
        se_both=np.sqrt(V_both),
        df_queries=df_queries,
        df_seeds=df_seeds,
        df_both=np.where(V_both == 0, df_queries, welch.at_level(0.05)),
        p_queries=p_queries,
        p_seeds=p_seeds,
        p_both=np.where(V_q == 0, np.fmax(np.maximum(p_queries, p_seeds), p_both), p_both),
        p_least=np.where(V_q == 0, np.maximum(least_queries, least_seeds), 0.0),
        welch=welch,
    )


def _of_runs(parts: Sequence[tuple[Any, Any, Any]]) -> tuple[Any, Any]:
    """(variance between runs, its degrees of freedom) of parts (V_s, V_e, df)."""
    V_seeds = sum((V_s for V_s, _, _ in parts), np.float64(0))
    with np.errstate(divide="ignore", invalid="ignore"):
        seeds_term = sum((V_s**2 / df for V_s, _, df in parts), np.float64(0))
        df_seeds = V_seeds**2 / seeds_term
    # Without any variance the degrees of freedom are 0/0; the p-value does not use them.
    return V_seeds, np.where(V_seeds == 0, sum(df for _, _, df in parts), df_seeds)


def strata_df(value_N: Floats, strata: Strata, df: Sequence[float] = ()) -> Any:
    """Satterthwaite's degrees of freedom of the variance of N values that deviate within strata,
    given by their sizes; N - 1 for one stratum. `df` has those of each stratum where they are not
    its size minus 1. Leading axes are tables of their own."""
    df = df or [size - 1 for size in strata or (value_N.shape[-1],)]
    if len(df) < 2:
        return df[0]
    parts = np.split(value_N, np.cumsum(strata)[:-1], axis=-1)
    squares = [
        ((part_N - part_N.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1) for part_N in parts
    ]
    total = sum(squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Satterthwaite: a sum of squares of several strata, each with f degrees of freedom.
        found = total**2 / sum(square**2 / f for square, f in zip(squares, df, strict=True))
    # Exact arithmetic never falls below the smallest stratum's degrees of freedom; rounding of tiny
    # squares might.
    return np.where(total > 0, np.maximum(found, min(df)), sum(df))


def _number(score_SQ: Floats, strata: Strata) -> float:
    """The runs of a system by the degrees of freedom of their means."""
    return float(1 + strata_df(score_SQ.mean(axis=1), strata))


def _fewest(score_SQ: Floats, strata: Strata) -> int:
    """The runs of a system, of several strata those of the smallest."""
    return min(strata, default=len(score_SQ))


def two_sided_p(delta: Any, se: Any, df: Any) -> Floats:
    """Student's two-sided p; without variance 1 for no difference and NaN for a constant one, of
    which a t-test says nothing."""
    delta, se = np.abs(np.asarray(delta, dtype=np.float64)), np.asarray(se, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stats.t.sf(delta / se, df)
    return np.where(se == 0, np.where(delta == 0, 1.0, np.nan), p)


def certain_p(num: Any) -> Floats:
    """The two-sided p of `num` equal differences that are not 0, by the exact permutation of their
    signs (the sign test): 2^(1 - num). What does not vary can be no more certain."""
    return np.exp2(1 - np.asarray(num, dtype=np.float64))


def certain_runs_p(num_seeds: Sequence[Any]) -> Floats:
    """The two-sided p of runs that differ between two sides and not within one, by the exact
    permutation of the runs: 2 / (S_a + S_b choose S_a). Of one trained side (paired runs, or
    against a deterministic system) by that of their signs; 0 where nothing is trained."""
    sides: list[Any] = [np.asarray(S, dtype=np.float64) for S in num_seeds]
    # A side that is not trained has no runs to exchange: infinity stands for it, and the signs of
    # the other side's runs decide.
    S_a, S_b = [*sides, math.inf, math.inf][:2]
    both = np.isfinite(S_a) & np.isfinite(S_b)
    with np.errstate(invalid="ignore", over="ignore"):
        exchanged = 2 / special.binom(np.where(both, S_a + S_b, 2.0), np.where(both, S_a, 1.0))
    return np.where(both, exchanged, certain_p(np.minimum(S_a, S_b)))


def _test(
    delta_Q: Floats,
    *,
    variance_seeds: tuple[float, ...],
    variance_error: tuple[float, ...],
    num_seeds: tuple[float, ...],
    fewest_seeds: tuple[int, ...],
    scale: float,
    deterministic: tuple[bool, ...] = (False,),
    query_strata: Strata = (),
    query_df: Sequence[float] = (),
) -> ScopeTest:
    Q = len(delta_Q)
    trained = [side for side, fixed in enumerate(deterministic) if not fixed]
    delta = float(delta_Q.mean())
    # Two sums of equal numbers in another order differ in the last bits: that is no difference.
    if abs(delta) <= ROUNDING * scale:
        delta = 0.0
    variance_queries = without_rounding(float(delta_Q.var(ddof=1)), scale) / Q
    inference = infer(
        delta=delta,
        variance_queries=variance_queries,
        variance_seeds=tuple(variance_seeds[side] for side in trained),
        variance_error=tuple(variance_error[side] for side in trained),
        num_seeds=tuple(num_seeds[side] for side in trained),
        num_queries=1 + strata_df(delta_Q, query_strata, query_df),
        fewest_queries=min(query_strata, default=Q),
        fewest_seeds=tuple(fewest_seeds[side] for side in trained),
    )
    return ScopeTest(
        delta=delta,
        variance_queries=variance_queries,
        variance_seeds_a=variance_seeds[0],
        variance_seeds_b=variance_seeds[1] if len(variance_seeds) > 1 else 0.0,
        variance_error_a=variance_error[0],
        variance_error_b=variance_error[1] if len(variance_error) > 1 else 0.0,
        df_runs_a=math.inf if 0 not in trained else num_seeds[0] - 1,
        df_runs_b=math.inf if 1 not in trained else num_seeds[1] - 1,
        welch=inference.welch,
        **{name: float(value) for name, value in vars(inference).items() if name != "welch"},
    )


def _side_variances(score_SQ: Floats, deterministic: bool, *, scale: float) -> tuple[float, float]:
    """(V_s, V_e) of one side, both 0 where the side is declared deterministic."""
    if not deterministic:
        return seed_variances(score_SQ, scale=scale)
    if len(score_SQ) != 1:
        raise BadInput(f"a deterministic system must have one run, got {len(score_SQ)}")
    return 0.0, 0.0


def without_rounding(square: float, scale: float) -> float:
    """A variance or square of differences, or 0 where it is only the rounding of equal numbers."""
    return 0.0 if square <= (ROUNDING * scale) ** 2 else square


def _checked(score_SQ: Floats) -> Floats:
    score_SQ = np.asarray(score_SQ, dtype=np.float64)
    if score_SQ.ndim != 2 or score_SQ.shape[0] < 1 or score_SQ.shape[1] < 2:
        raise BadInput(
            "scores must be seeds x queries with at least 1 seed and 2 queries, "
            f"got the shape {score_SQ.shape}"
        )
    if not np.isfinite(score_SQ).all():
        raise BadInput("scores must be finite, got NaN or infinity")
    return score_SQ


def equivalence_p(test: ScopeTest, *, margin: float) -> float:
    """p of two one-sided tests (TOST, scope `both`) that |delta| < margin; that a difference is not
    significant shows no equality. Below alpha where the two-sided interval of level 1 - 2 alpha is
    within the margin, up to the degrees of freedom, which are those at .05; NaN for one seed.
    Where nothing varies between the queries it is not below the permutation's p (`p_least`)."""
    if not margin > 0:
        raise BadInput(f"margin > 0 must hold, got margin={margin}")
    tails = max(_tail(margin - test.delta, test), _tail(margin + test.delta, test))
    return max(tails, test.p_least)


def _tail(gap: float, test: ScopeTest) -> float:
    """P(T se > gap); without variance the distribution is a point at 0."""
    if test.se_both == 0:
        return 1.0 if gap < 0 else 0.0 if gap > 0 else 0.5
    return float(stats.t.sf(gap / test.se_both, test.df_both))


def check_probability(name: str, value: float) -> None:
    """Refuse a value that is not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise BadInput(f"0 < {name} < 1 must hold, got {name}={value}")
