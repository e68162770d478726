"""How often the tests of a results table are wrong, and how often they find what is there.

    python -m tests.benchmarks.error_rates [--simulations 2000] [--seed 1] [--only SECTION]
        [--json FILE]

Two systems are equal by construction, or differ by a planted amount; the shipped tests
(`rank_core.stats`) judge many such sweeps. Shown beside each other: the customary paired t-test on
per-query means over seeds, and the test with queries and training runs random. Every bar is printed
with `ok` or `FAIL`; the exit code is 1 if one fails.

Most sweeps are drawn as means and mean squares, which is exact for normal scores
(`simulated_sweeps` says why). Where a family shares its baseline, query means are drawn in full.

Kinds of collection, calibrated on the letters and the rounding of published tables: R04c like
Robust04, DLc like the pooled TREC Deep Learning tracks, MSMc like MS MARCO document dev.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rank_core.arrays import Floats
from rank_core.stats import scopes
from rank_core.stats.behrens_fisher import two_part_p
from rank_core.stats.best import leaving_p
from rank_core.stats.compare import scope_test_of
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.moderation import (
    LEAST_POOL,
    fitted_prior,
    moderated_error,
    moderated_parts,
    runs_apart,
    seeds_agree,
)
from rank_core.stats.multiplicity import effective_number, family_level
from rank_core.stats.scopes import Inference, infer, two_sided_p
from rank_core.stats.strata import difference_of_collections, over_collections
from tests.benchmarks.bars import Bar, Draw, Section, simulate
from tests.benchmarks.simulated_sweeps import (
    DL,
    MSM,
    R04,
    SHAPES,
    Kind,
    Tables,
    customary_error,
    drawn_tables,
)

ALPHA = 0.05
Z80 = float(stats.norm.isf(ALPHA / 2) + stats.norm.ppf(0.8))
"""The difference, in standard errors, that a test with a known variance finds in 80%."""


class Shown(NamedTuple):
    """Differences and their tests."""

    delta: Floats
    tests: Inference

    @property
    def p_both(self) -> Floats:
        """Of the second order."""
        return self.tests.p_both


SEEDS, SEED_SDS = (3, 5, 10), (0.0, 0.002, 0.005, 0.01)


def type_1_errors(rng: np.random.Generator, num: int) -> Section:
    """All tests of equal systems in every calibrated cell, and the power of the deciding ones."""
    rows, both, gaps = [], [], []
    for kind in (R04, DL, MSM):
        for S in SEEDS:
            for seed_sd in SEED_SDS:
                sides = (S, seed_sd), (S, seed_sd)
                null, *rates = _rates(rng, 10 * num, sides, kind)
                expected = customary_error(kind, S=S, seed_sd=seed_sd, alpha=ALPHA)
                customary = _rate(null.tests.p_queries)
                both.append(rates[1])
                gaps.append(abs(customary - expected))
                rows.append((kind.name, S, seed_sd, customary, expected, *rates))
    return Section(
        "Type-I error at a nominal .05, equal systems; power where a z test has .80",
        ("data", "S", "seed SD", "customary", "predicted", "1st", "2nd", "power, 1st", "2nd"),
        rows,
        [
            Bar(
                "2nd: every cell in [.03, .07]",
                f"{min(both):.4f} to {max(both):.4f}",
                0.03 <= min(both) and max(both) <= 0.07,
            ),
            Bar(
                "customary test: within .03 of 2 Phi(-z sqrt(V_q / V))",
                f"largest gap {max(gaps):.4f}",
                max(gaps) <= 0.03,
            ),
        ],
    )


NEWS = Kind("news", 0.06, 0.06, 250)
NOISY = Kind("noisy", 0.06, 0.15, 200)
UNLIKE = (  # seeds and seed SD of both sides; 0 seeds: deterministic
    ("alike, stable", (3, 0.0), (3, 0.0), NEWS),
    ("alike", (3, 0.01), (3, 0.01), NEWS),
    ("alike, unstable", (3, 0.03), (3, 0.03), NEWS),
    ("alike", (5, 0.01), (5, 0.01), NEWS),
    ("residual alone", (3, 0.0), (3, 0.0), NOISY),
    ("residual alone", (5, 0.0), (5, 0.0), NOISY),
    ("unlike", (2, 0.03), (2, 0.0), NEWS),
    ("unlike", (3, 0.03), (3, 0.0), NEWS),
    ("unlike", (3, 0.03), (10, 0.005), NEWS),
    ("unlike", (5, 0.03), (5, 0.0), NEWS),
    ("unlike", (10, 0.03), (10, 0.0), NEWS),
    ("v deterministic", (2, 0.02), (0, 0.0), NEWS),
    ("v deterministic", (3, 0.02), (0, 0.0), NEWS),
    ("v deterministic", (5, 0.02), (0, 0.0), NEWS),
)


def unequal_scatter(rng: np.random.Generator, num: int) -> Section:
    """Both orders of the degrees of freedom where seeds scatter unequally, or skewed."""
    rows, bars = [], []
    drawn = [(*one, "normal") for one in UNLIKE]
    drawn += [(*UNLIKE[at], shape) for at in (1, 7, 9) for shape in list(SHAPES)[1:]]
    for name, one, other, kind, shape in drawn:
        _, *rates = _rates(rng, 10 * num, (one, other), kind, shape)
        seeds = f"{one[0]} v {other[0] or 'det'}"
        rows.append((name, shape, seeds, one[1], other[1], *rates))
        if shape == "normal" and min(one[0], other[0] or 9) >= 3:
            bars.append(Bar(f"{name}, {seeds}: at most .068", f"{rates[1]:.4f}", rates[1] <= 0.068))
    columns = ("seeds", "scatter", "S", "SD", "SD", "type-I, 1st", "2nd", "power, 1st", "2nd")
    return Section("Type-I error and power of both orders of the df", columns, rows, bars)


Sides = tuple[tuple[int, float], tuple[int, float]]
"""The seeds and the deviation between seeds of two systems."""


def _rates(
    rng: np.random.Generator, num: int, sides: Sides, kind: Kind, shape: str = "normal"
) -> tuple[Shown, float, float, float, float]:
    """(the tests of equal systems; their type-I error by both orders of the df; their power where
    a test that knows the variance has .80)."""
    null, error = _two_systems(rng, num, sides, kind, shape, 0.0)
    truth = error * Z80
    planted, _ = _two_systems(rng, num, sides, kind, shape, truth)
    first, second = ((_rate(_first_order_p(one)), _rate(one.p_both)) for one in (null, planted))
    return null, *first, *second


def _two_systems(
    rng: np.random.Generator, num: int, sides: Sides, kind: Kind, shape: str, delta: float
) -> tuple[Shown, float]:
    """(the tests of `num` pairs that differ by delta, the true standard error of a difference)."""
    Q, residual = kind.num_queries, kind.residual
    S_least = [max(S, 1) for S, _ in sides]
    variance = 2 * kind.query**2 / Q
    V_q = variance + sum(residual**2 / S for S in S_least) / Q
    found_N = delta + rng.normal(0, math.sqrt(variance), num)
    V_s, V_e, seeds = [], [], []
    for sign, (S, sd) in zip((1, -1), sides, strict=True):
        run_NS = rng.normal(0, residual / math.sqrt(Q), (num, max(S, 1)))
        run_NS += sd * SHAPES[shape](rng, run_NS.shape) if S else 0
        found_N += sign * run_NS.mean(axis=1)
        variance += (sd**2 + residual**2 / Q) / max(S, 1)
        if S:
            V_s.append(run_NS.var(axis=1, ddof=1) / S)
            df = (S - 1) * (Q - 1)
            V_e.append(residual**2 / (Q * S) * rng.chisquare(df, num) / df)
            seeds.append(S)
    found = infer(
        delta=found_N,
        variance_queries=V_q * rng.chisquare(Q - 1, num) / (Q - 1),
        variance_seeds=tuple(V_s),
        variance_error=tuple(V_e),
        num_seeds=tuple(seeds),
        num_queries=Q,
    )
    return Shown(found_N, found), math.sqrt(variance)


Deviations = Callable[[int], list[float]]
"""{number of other systems: their deviations between seeds, after that of the first}."""


def _equal(sd: float) -> Deviations:
    return lambda num: [sd] * (num + 1)


def _spread(first: float) -> Deviations:
    return lambda num: [first, *np.linspace(0.002, 0.03, num)]


TABLE, FEW = Kind("table", 0.06, 0.06, 150), Kind("few", 0.06, 0.06, 25)
FAMILIES: dict[str, tuple[Deviations, str, Kind]] = {  # the first system is the baseline
    "alike, .01": (_equal(0.01), "normal", TABLE),
    "alike, .03": (_equal(0.03), "normal", TABLE),
    "alike, .01, few queries": (_equal(0.01), "normal", FEW),
    "alike, .01, resampled": (_equal(0.01), "resampled", TABLE),
    "alike, .01, lognormal": (_equal(0.01), "lognormal", TABLE),
    "alike, .01, bimodal": (_equal(0.01), "bimodal", TABLE),
    "unlike": (_spread(0.01), "normal", TABLE),
    "unlike, stable baseline": (_spread(0.0), "normal", TABLE),
    "unlike, resampled": (_spread(0.01), "resampled", TABLE),
    "unstable baseline": (lambda num: [0.03] + [0.002] * num, "normal", TABLE),
    ".02, deterministic baseline": (lambda num: [math.nan] + [0.02] * num, "normal", TABLE),
    ".02 lognormal, deterministic": (lambda num: [math.nan] + [0.02] * num, "lognormal", TABLE),
    ".02 bimodal, deterministic": (lambda num: [math.nan] + [0.02] * num, "bimodal", TABLE),
}
SIZES, BATCH, DRAWS = (4, 8, 17), 250, 256


def families(rng: np.random.Generator, num: int) -> Section:
    """Holm's and max-t's familywise error of equal systems, which is what simultaneous intervals
    miss, and their power for one that is better."""
    rows, bars = [], []
    for name, (deviations, shape, kind) in FAMILIES.items():
        for K in SIZES:
            for S in (3, 5):
                holm_, max_t, interval, *power = _family_rates(
                    rng, num, kind, S, deviations(K), shape
                )
                rows.append((name, K, S, interval, holm_, max_t, *power))
                noise = 3 * math.sqrt(0.05 * 0.95 / num)
                law = f"{name}, {K} comparisons, {S} seeds: "
                if name in ("alike, .01", "alike, .03"):
                    bars.append(Bar(law + "at most .06", f"{max_t:.4f}", max_t <= 0.06 + noise))
                if shape == "normal":
                    law += "max-t at most .07"
                    bars.append(Bar(law, f"{max_t:.4f}", max_t <= 0.07 + noise))
    columns = (
        "seed SDs",
        "K",
        "S",
        "Bonferroni, own test",
        "Holm",
        "max-t",
        "power, Holm",
        "max-t",
    )
    return Section("Familywise error, and power for one better system", columns, rows, bars)


def _family_rates(
    rng: np.random.Generator, num: int, kind: Kind, S: int, sd_K: list[float], shape: str
) -> list[float]:
    """The familywise error of Holm, max-t and of simultaneous intervals as they were (Bonferroni,
    the own test); the power of Holm and max-t for the middle system, where it is better by what a z
    test at the level of its smallest p finds in 80%."""
    drawn = []
    for start in range(0, num, BATCH):
        tables = drawn_tables(rng, min(BATCH, num - start), kind, S, sd_K, shape)
        drawn.append(_family_decisions(tables))
    return [float(one) for one in np.concatenate(drawn).mean(axis=0)]


def _family_decisions(tables: Tables) -> NDArray[np.bool_]:
    """The five decisions of `_family_rates` about each table, (N, 5)."""
    K = len(tables.seeds_K) - 1
    middle = 1 + K // 2
    truth = tables.error_KK[0, 0] + tables.error_KK[middle, middle]
    z = float(stats.norm.isf(ALPHA / K / 2) + stats.norm.ppf(0.8))
    better_NK = tables.mean_NK + z * math.sqrt(truth) * (np.arange(K + 1) == middle)
    columns = []
    for mean_NK, place in ((tables.mean_NK, slice(None)), (better_NK, middle - 1)):
        found = _pair_tests(replace(tables, mean_NK=mean_NK), 0)
        holm_p = found.own if K + 1 - np.isinf(tables.seeds_K).sum() < LEAST_POOL else found.larger
        by_holm = holm_p * K < ALPHA  # the first step of Holm's
        by_max_t = first_step(found, pooled=True) < ALPHA
        columns += [
            one[:, place].reshape(len(mean_NK), -1).any(axis=1) for one in (by_holm, by_max_t)
        ]
        if mean_NK is tables.mean_NK:
            columns.append((found.own * K < ALPHA).any(axis=1))
    return np.array(columns).T


class Pairs(NamedTuple):
    """The p-values (N, J) of all other systems against one, as `Family` has them."""

    own: Floats
    moderated: Floats
    correlation: Floats  # (N, J, J)
    agree: NDArray[np.bool_]
    apart: NDArray[np.bool_]  # whether the moderated p is that of Behrens and Fisher
    student: Floats  # the moderated p, there by Student's t
    better: NDArray[np.bool_]  # than the one

    @property
    def decides(self) -> NDArray[np.bool_]:
        """Whether the moderated p is corrected, and the own one has to hold alone."""
        return self.agree | self.apart

    @property
    def larger(self) -> Floats:
        """The larger p of both tests, by Student's t."""
        return np.fmax(self.own, self.student)


def _pair_tests(tables: Tables, one: int) -> Pairs:
    """All systems but `one` against it."""
    Q, others = tables.num_queries, np.arange(len(tables.seeds_K)) != one
    df_queries = tables.df_queries or Q - 1
    C = tables.covariance_NKK
    C = C[:, others][:, :, others] - C[:, others, one][:, :, None] - C[:, None, one, others]
    C = (C + tables.covariance_NKK[:, one, one][:, None, None]) / Q
    delta_NJ = tables.mean_NK[:, others] - tables.mean_NK[:, [one]]
    V_s, V_e, S_K = tables.variance_seeds_NK, tables.variance_error_NK, tables.seeds_K
    sides = [(V_s[:, at], V_e[:, at], S_K[at]) for at in (others, [one])]
    V_q = np.diagonal(C, axis1=1, axis2=2)
    found = infer(
        delta=delta_NJ,
        variance_queries=V_q,
        variance_seeds=tuple(side[0] for side in sides),
        variance_error=tuple(side[1] for side in sides),
        num_seeds=tuple(np.minimum(side[2], 1e9) for side in sides),
        num_queries=1 + df_queries,
    )
    shared = C + np.maximum(V_s[:, one] - V_e[:, one], 0)[:, None, None]
    error = np.asarray(found.se_both)
    correlation = shared / error[:, :, None] / error[:, None, :]
    correlation[:, np.arange(len(C[0])), np.arange(len(C[0]))] = 1.0
    trained = np.flatnonzero(np.isfinite(S_K))
    squares_NK, df = S_K[trained] * V_s[:, trained], S_K[trained] - 1
    base = [int(at) for at in np.flatnonzero(trained == one)]

    prior = fitted_prior(squares_NK, df)
    prior = replace(prior, df=prior.df[:, None], variance=prior.variance[:, None])
    student_NJ = two_sided_p(delta_NJ, *moderated_error(V_q, 1 + df_queries, sides, prior))
    agree_N = seeds_agree(squares_NK, df, base)
    apart_N = runs_apart(S_K[trained], agree=agree_N, deterministic=bool(np.isinf(S_K[one])))
    moderated_NJ = student_NJ
    if apart_N.any():
        parts = moderated_parts(V_q, 1 + df_queries, sides[0], prior)
        moderated_NJ = np.where(apart_N[:, None], two_part_p(delta_NJ, *parts), student_NJ)
    return Pairs(
        found.p_both, moderated_NJ, correlation, agree_N, apart_N, student_NJ, delta_NJ > 0
    )


def first_step(found: Pairs, *, pooled: bool) -> Floats:
    """The first step of `Family.adjusted` by max-t, (N, J): with moderated tests if `pooled`."""

    if not pooled:
        return _corrected(found, found.own)
    together = np.maximum(_corrected(found, found.moderated), found.own)
    return np.where(found.decides[:, None], together, _corrected(found, found.larger))


def larger_first_step(found: Pairs, *, by_holm: bool) -> Floats:
    """`first_step` with moderated tests, where all seed variances that disagree are tested by the
    larger p: corrected by Holm, or by max-t."""
    together = np.maximum(_corrected(found, found.student), found.own)
    number = found.own.shape[1]
    apart = number * found.larger if by_holm else _corrected(found, found.larger)
    return np.where(found.agree[:, None], together, apart)


def _corrected(found: Pairs, p_NJ: Floats) -> Floats:
    number = effective_number(p_NJ.min(axis=1), found.correlation, num_draws=DRAWS)
    return np.asarray(number[:, None] * p_NJ)


STAIRS = 0.01
SETS: dict[str, tuple[Deviations, str, Kind]] = {  # the first system is the best
    "alike, .01": (_equal(0.01), "normal", NEWS),
    "alike, .03": (_equal(0.03), "normal", NEWS),
    "few queries": (_equal(0.01), "normal", FEW),
    "resampled": (_equal(0.01), "resampled", NEWS),
    "lognormal": (_equal(0.01), "lognormal", NEWS),
    "bimodal": (_equal(0.01), "bimodal", NEWS),
    "unlike, best unstable": (lambda num: [0.03, *np.linspace(0.002, 0.02, num)], "normal", NEWS),
    "unlike, best stable": (_spread(0.0), "normal", NEWS),
    "best deterministic": (lambda num: [math.nan] + [0.01] * num, "normal", NEWS),
    "best deterministic, bimodal": (lambda num: [math.nan] + [0.01] * num, "bimodal", NEWS),
}


def best_sets(rng: np.random.Generator, num: int) -> Section:
    """How often the set has the truly best system where all are equal, by max-t and Bonferroni; its
    mean size where they are not, against that of an oracle who knows every variance."""
    rows, bars = [], []
    for name, (deviations, shape, kind) in SETS.items():
        for K in (5, 9):
            for S in (3, 5):
                sd_K = deviations(K - 1)

                def in_batches(num: int, sd_K: list[float] = sd_K, S: int = S) -> list[Tables]:
                    sizes = [min(BATCH, num - at) for at in range(0, num, BATCH)]
                    return [drawn_tables(rng, size, kind, S, sd_K, shape) for size in sizes]  # noqa: B023

                kept = [_kept(tables, 0) for tables in in_batches(10 * num)]
                sizes = [_set_sizes(tables) for tables in in_batches(num)]
                inside, plain = np.concatenate(kept).mean(axis=0)
                rows.append((name, K, S, float(inside), float(plain)))
                rows[-1] += tuple(float(size) for size in np.concatenate(sizes).mean(axis=0))
                if shape == "normal":
                    least = 0.95 - 3 * math.sqrt(0.05 * 0.95 / (10 * num))
                    law = f"{name}, {K} systems, {S} seeds: the best inside"
                    bars.append(Bar(law, f"{inside:.4f}", bool(inside >= least)))
    columns = ("seed SDs", "K", "S", "best inside", "Bonferroni", "size", "Bonferroni", "oracle")
    return Section("The set not distinguishable from the best, at .95", columns, rows, bars)


def _groups(first: float, one: float, other: float) -> Deviations:
    return lambda num: [first] + [one] * (num // 2) + [other] * (num - num // 2)


OTHER = Kind("other", 0.05, 0.08, 80)
CONFIRMED: dict[str, tuple[Deviations, str]] = {
    "two groups, baseline like the rest": (_groups(0.01, 0.005, 0.02), "normal"),
    "two groups, stable baseline": (_groups(0.005, 0.005, 0.02), "normal"),
    "one unstable system": (lambda num: [0.005, 0.04] + [0.005] * (num - 1), "normal"),
    "baseline .02, others .01": (_groups(0.02, 0.01, 0.01), "normal"),
    "baseline .005, others .015": (_groups(0.005, 0.015, 0.015), "normal"),
    "alike, .006": (_equal(0.006), "t, 3 df"),
    "spread, deterministic baseline": (_spread(math.nan), "normal"),
    ".01 v a stable baseline": (_groups(0.0, 0.01, 0.01), "lognormal"),
}


def confirmation(rng: np.random.Generator, num: int) -> Section:
    """Families and sets in cells that played no part in choosing their rules."""
    rows, bars = [], []
    for name, (deviations, shape) in CONFIRMED.items():
        for K, S in ((6, 3), (12, 3), (12, 4)):
            holm_, max_t, _, *power = _family_rates(rng, num, OTHER, S, deviations(K), shape)
            tables = [
                drawn_tables(rng, min(BATCH, 5 * num - at), OTHER, S, deviations(K - 1), shape)
                for at in range(0, 5 * num, BATCH)
            ]
            inside = float(np.concatenate([_kept(one, 0) for one in tables]).mean(axis=0)[0])
            rows.append((name, shape, K, S, holm_, max_t, *power, inside))
            noise = 3 * math.sqrt(0.05 * 0.95 / num)
            law = f"{name}, {K} comparisons, {S} seeds: max-t at most .06"
            bars.append(Bar(law, f"{max_t:.4f}", max_t <= 0.06 + noise))
    columns = ("seed SDs", "runs", "K", "S", "Holm", "max-t", "power, Holm", "max-t", "best inside")
    return Section("Families and sets in other cells, 80 queries", columns, rows, bars)


def _kept(tables: Tables, one: int) -> NDArray[np.bool_]:
    """Whether a system stays in the set, and in Bonferroni's, (N, 2)."""
    found = _pair_tests(tables, one)
    own, moderated = (
        np.where(found.better, p / 2, 1 - p / 2) for p in (found.own, found.moderated)
    )
    by_max_t, _ = leaving_p(
        own, moderated, found.correlation, decides=found.decides, num_draws=DRAWS
    )
    bonferroni = len(tables.seeds_K) * np.fmax(own, moderated).min(axis=1)
    return np.array([by_max_t, bonferroni]).T >= ALPHA


def _set_sizes(tables: Tables) -> Floats:
    """The sizes of the set, of Bonferroni's and of the oracle's, (N, 3), where each system is worse
    than the one before it."""
    K = len(tables.seeds_K)
    mean_NK = tables.mean_NK - STAIRS * np.arange(K)
    tables, size = replace(tables, mean_NK=mean_NK), np.zeros((len(mean_NK), 3))
    for one in range(K):
        others = np.arange(K) != one
        V_J = np.diagonal(tables.error_KK)[others] + tables.error_KK[one, one]
        R_JJ = tables.error_KK[one, one] / np.sqrt(np.outer(V_J, V_J))
        np.fill_diagonal(R_JJ, 1.0)
        z_N = ((mean_NK[:, others] - mean_NK[:, [one]]) / np.sqrt(V_J)).max(axis=1)
        oracle_N = z_N <= stats.norm.isf(family_level(ALPHA, R_JJ, two_sided=False))
        size += np.column_stack([_kept(tables, one), oracle_N])
    return size


SEVERAL = (Kind("small", 0.06, 0.06, 50), TABLE, NEWS)
Case = tuple[float, float, float, bool]
"""The run SDs of both systems, the SD of runs x collections, and whether runs are separate."""
MEANS: dict[str, Case] = {
    "alike": (0.01, 0.01, 0.0, False),
    "unlike": (0.02, 0.002, 0.0, False),
    "runs x collections": (0.005, 0.005, 0.015, False),
    "separate, alike": (0.01, 0.01, 0.0, True),
    "separate, unlike": (0.02, 0.002, 0.0, True),
}


def collections(rng: np.random.Generator, num: int) -> Section:
    """The mean over collections, on each of which the systems differ: false positives and coverage
    where the mean difference is 0, power where it is what a z test finds in 80%."""
    rows, bars = [], []
    for name, case in MEANS.items():
        for C in (2, 3):
            for S in (3, 5):
                tables = [_on_collections(rng, case, SEVERAL[:C], S) for _ in range(num)]
                null = _mean_tests(tables, case[-1])
                half = stats.t.isf(ALPHA / 2, null.tests.welch.at_level(ALPHA))
                covered = float((np.abs(null.delta) <= half * null.tests.se_both).mean())
                truth = Z80 * _mean_error(case, SEVERAL[:C], S)
                power = _rate(null.tests.welch.two_sided_p(null.delta + truth, null.tests.se_both))
                # One run tested everywhere, taken for a run of each collection.
                wrong = math.nan if case[-1] else _rate(_mean_tests(tables, True).p_both)
                found = _rate(null.p_both)
                rows.append((name, C, S, found, covered, power, wrong))
                noise = 3 * math.sqrt(0.05 * 0.95 / num)
                law = f"{name}, {C} collections, {S} seeds: at most .06"
                bars.append(Bar(law, f"{found:.4f}", found <= 0.06 + noise))
    columns = ("runs", "C", "S", "false positives", "coverage", "power", "as separate runs")
    return Section("The mean over collections", columns, rows, bars)


def test_sets(rng: np.random.Generator, num: int) -> Section:
    """One trained model on many test sets: false positives of the mean over the sets, of which the
    differences have the mean 0, and of the interactions of the first set with each other one, where
    the difference is the same on all sets."""
    rows, bars = [], []
    for name, case in MEANS.items():
        if case[-1]:
            continue  # separate runs
        for C in (2, 4, 8):
            for S in (3, 5):
                kinds = [SEVERAL[c % len(SEVERAL)] for c in range(C)]
                tables = [_on_collections(rng, case, kinds, S) for _ in range(num)]
                mean = _rate(_mean_tests(tables, False).p_both)
                wrong = _rate(_mean_tests(tables, True).p_both)
                alike = [_on_collections(rng, case, kinds, S, apart=0.0) for _ in range(num)]
                p_JN = np.array([_interactions(alike, c).p_both for c in range(1, C)])
                single, family = _rate(p_JN), _rate((C - 1) * p_JN.min(axis=0))
                rows.append((name, C, S, mean, wrong, single, family))
                noise = 3 * math.sqrt(0.05 * 0.95 / num)
                for what, found in (("mean", mean), ("family of interactions", family)):
                    law = f"{name}, {C} sets, {S} seeds: {what} at most .06"
                    bars.append(Bar(law, f"{found:.4f}", found <= 0.06 + noise))
    columns = ("runs", "sets", "S", "mean", "as separate runs", "interaction", "family of them")
    return Section("One training, many test sets", columns, rows, bars)


def _interactions(tables: Sequence[list[ScoreMatrix]], c: int) -> Shown:
    """The tests of the difference of the first collection and another one, of all tables."""
    return _shown(difference_of_collections(one[0], one[c], measure="") for one in tables)


def _on_collections(
    rng: np.random.Generator, case: Case, kinds: Sequence[Kind], S: int, apart: float = 0.02
) -> list[ScoreMatrix]:
    """Two systems on every collection, whose differences there have the mean 0 and are `apart` from
    it at most."""
    *sd_2, interaction, separate = case
    run_2S1 = [sd * rng.normal(0, 1, (S, 1)) for sd in sd_2]
    ones = []
    for kind, shift in zip(kinds, np.linspace(-apart, apart, len(kinds)), strict=True):
        scores, size = {}, kind.num_queries
        for cell, sd, run_S1 in zip("ab", sd_2, run_2S1, strict=True):
            own_S1 = sd * rng.normal(0, 1, (S, 1)) if separate else run_S1
            own_S1 = own_S1 + interaction * rng.normal(0, 1, (S, 1)) + shift * (cell == "a")
            own_Q = rng.normal(0, kind.query, size)
            scores[cell] = own_S1 + own_Q + rng.normal(0, kind.residual, (S, size))
        ids, seeds = tuple(map(str, range(size))), dict.fromkeys("ab", tuple(range(S)))
        ones.append(ScoreMatrix("", ("a", "b"), ids, seeds, scores))
    return ones


def _mean_tests(tables: Sequence[list[ScoreMatrix]], separate: bool) -> Shown:
    """The tests of the mean of all tables."""
    runs = "ab" if separate else ()
    return _shown(over_collections(one, measure="", separate_runs=runs) for one in tables)


def _shown(means: Iterable[ScoreMatrix]) -> Shown:
    """The tests of the two systems of each matrix."""
    drawn = []
    for mean in means:
        with patch.object(scopes, "HALVINGS", 0):  # p is found below, of all tables at once
            one = scope_test_of(mean, ("a", "b"), paired_seeds=False, deterministic=())
        parts = one.variance_seeds_a, one.variance_seeds_b, one.variance_error_a
        parts += one.variance_error_b, mean.num_runs("a"), mean.num_runs("b")
        drawn.append((one.delta, one.variance_queries, one.df_queries, *parts))
    delta_N, V_q, df_q, *sides = np.array(drawn).T
    tests = infer(
        delta=delta_N,
        variance_queries=V_q,
        variance_seeds=tuple(sides[:2]),
        variance_error=tuple(sides[2:4]),
        num_seeds=tuple(sides[4:]),
        num_queries=1 + df_q,
    )
    return Shown(delta_N, tests)


def _mean_error(case: Case, kinds: Sequence[Kind], S: int) -> float:
    """The true standard error of the mean difference."""
    *sd_2, interaction, separate = case
    C = len(kinds)
    V = sum(sd**2 for sd in sd_2) / S / (C if separate else 1) + 2 * interaction**2 / (S * C)
    V += sum(2 * (k.query**2 + k.residual**2 / S) / k.num_queries for k in kinds) / C**2
    return math.sqrt(V)


def _first_order_p(found: Shown) -> Floats:
    """p by Satterthwaite's degrees of freedom."""
    tests = found.tests
    p: Floats = two_sided_p(found.delta, tests.se_both, tests.welch.satterthwaite)
    return p


SECTIONS: dict[str, Draw] = {
    "type-1": type_1_errors,
    "unequal-scatter": unequal_scatter,
    "families": families,
    "best": best_sets,
    "collections": collections,
    "test-sets": test_sets,
    "confirmation": confirmation,
}


def main(argv: Sequence[str]) -> int:
    """Run the sections and print them; 1 if a bar fails."""
    with patch.object(scopes, "HALVINGS", 25):  # p to 1e-6 is enough for a rate
        return simulate(
            argv,
            SECTIONS,
            title="Error rates and power of the shipped tests",
            option="simulations",
            default=2000,
            unit="simulated sweeps per cell",
            rate=ALPHA,
        )


def _rate(p: Any) -> float:
    """The share of p-values below alpha."""
    return float((np.asarray(p) < ALPHA).mean())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
