"""Five studies of significance tests, each beside our own simulation of the same kind of cells.

    python -m tests.benchmarks.published_studies [--simulations 2000] [--seed 1] [--only SECTION]
        [--json FILE]

Urbano, Lima & Hanjalic 2019: the type-I error of five paired tests on 50 topics. Ihemelandu &
Ekstrand 2023: the same with thousands of queries. Boytsov, Belova & Westfall 2013: max-t in
families of comparisons. Otero, Parapar & Barreiro 2025: Wilcoxon with the correction of Benjamini
and Hochberg. Bouthillier et al. 2021: every source of variation drawn anew. docs/statistics.md
compares.

Scores per query are bounded and skewed. Two systems have one mean; where their scores have another
shape, their differences are skewed too, which is what tests of a median take for a difference.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from rank_core.arrays import Floats
from rank_core.stats.multiplicity import benjamini_hochberg, holm, max_t
from tests.benchmarks.bars import Bar, Draw, Section, simulate
from tests.benchmarks.error_rates import _two_systems
from tests.benchmarks.simulated_sweeps import DL, MSM, R04, Kind

ALPHA = 0.05
RESAMPLES = 1000  # of a permutation test and of a bootstrap
CORRELATION = 0.8  # of two systems' scores over queries, before they are cut to their shapes
ROWS = 1 << 22  # scores drawn at a time


class Shape(NamedTuple):
    """The distributions of a baseline's and another system's scores, by their quantiles; both have
    one mean."""

    baseline: Callable[[Floats], Floats]
    other: Callable[[Floats], Floats]


def _beta(mean: float, concentration: float) -> Callable[[Floats], Floats]:
    a, b = mean * concentration, (1 - mean) * concentration
    grid = np.linspace(0, 1, 4097)
    value = stats.beta.ppf(grid, a, b)
    return lambda u: np.interp(u, grid, value)


def _reciprocal_rank(first: float, second: float) -> Callable[[Floats], Floats]:
    """Shares of queries with the relevant document first and second; 6% third, 9% tenth."""
    values = np.array([0.0, 0.1, 1 / 3, 0.5, 1.0])
    rest = 1 - first - second - 0.15
    ends = np.cumsum([rest, 0.09, 0.06, second])
    return lambda u: values[np.searchsorted(ends, u)]


SHAPES: dict[str, Shape] = {
    "one shape": Shape(_beta(0.3, 3), _beta(0.3, 3)),
    "another shape": Shape(_beta(0.3, 3), _beta(0.3, 1)),
    "RR, one shape": Shape(_reciprocal_rank(0.25, 0.1), _reciprocal_rank(0.25, 0.1)),
    "RR, another shape": Shape(_reciprocal_rank(0.25, 0.1), _reciprocal_rank(0.21, 0.18)),
}


def differences(rng: np.random.Generator, num: int, Q: int, shape: Shape, K: int = 1) -> Floats:
    """Scores of K systems minus those of their baseline, (num, K, Q); in truth all means are
    equal."""
    common = rng.normal(0, math.sqrt(CORRELATION), (num, 1, Q))
    own = rng.normal(0, math.sqrt(1 - CORRELATION), (num, K + 1, Q))
    u = stats.norm.cdf(common + own)
    return shape.other(u[:, 1:]) - shape.baseline(u[:, :1])


def t_p(d: Floats) -> Floats:
    """Student's paired test, over the last axis."""
    n = d.shape[-1]
    error = d.std(axis=-1, ddof=1) / math.sqrt(n)
    return np.asarray(2 * stats.t.sf(np.abs(d.mean(axis=-1)) / error, n - 1))


def wilcoxon_p(d: Floats) -> Floats:
    """The signed rank test by its normal approximation; differences of 0 are left out."""
    rank = stats.rankdata(np.abs(d), axis=-1) - (d == 0).sum(axis=-1, keepdims=True)
    rank[d == 0] = 0
    z = (np.sign(d) * rank).sum(axis=-1) / np.sqrt(np.square(rank).sum(axis=-1))
    return np.asarray(2 * stats.norm.sf(np.abs(z)))


def sign_p(d: Floats) -> Floats:
    """The exact sign test; differences of 0 are left out."""
    above, below = (d > 0).sum(axis=-1), (d < 0).sum(axis=-1)
    p = 2 * stats.binom.cdf(np.minimum(above, below), above + below, 0.5)
    return np.minimum(p, 1.0)


def permutation_p(rng: np.random.Generator, d: Floats) -> Floats:
    """The test of the mean over signs; all tables share the drawn signs."""
    signs = rng.choice([-1.0, 1.0], (d.shape[-1], RESAMPLES))
    reached = np.abs(d @ signs) >= np.abs(d.sum(axis=-1, keepdims=True)) * (1 - 1e-9)
    return (reached.sum(axis=-1) + 1) / (RESAMPLES + 1)


def bootstrap_p(rng: np.random.Generator, d: Floats) -> Floats:
    """The test of the mean by the shifted bootstrap; all tables share the drawn queries."""
    n = d.shape[-1]
    counts = rng.multinomial(n, np.full(n, 1 / n), RESAMPLES).T.astype(float)
    mean = d.mean(axis=-1, keepdims=True)
    reached = np.abs((d - mean) @ counts / n) >= np.abs(mean)
    return (reached.sum(axis=-1) + 1) / (RESAMPLES + 1)


def _batches(num: int, size: int) -> list[int]:
    """Numbers of tables of `size` scores that are drawn at a time."""
    most = max(1, ROWS // size)
    return [min(most, num - start) for start in range(0, num, most)]


def paired_tests(rng: np.random.Generator, num: int) -> Section:
    """Urbano et al.: the type-I error of five tests on 50 topics."""
    rows, bars = [], []
    for name in ("one shape", "another shape"):
        rejected = []
        for size in _batches(10 * num, 50):
            d = differences(rng, size, 50, SHAPES[name])[:, 0]
            p = (t_p(d), permutation_p(rng, d), bootstrap_p(rng, d), wilcoxon_p(d), sign_p(d))
            rejected.append(np.array(p) < ALPHA)
        rates = [float(rate) for rate in np.concatenate(rejected, axis=1).mean(axis=1)]
        rows.append((name, *rates))
        near = max(abs(rate - ALPHA) for rate in rates[:2])
        bars.append(Bar(f"{name}: t and permutation within .02 of .05", f"{near:.4f}", near < 0.02))
    columns = ("scores", "t", "permutation", "bootstrap", "Wilcoxon", "sign")
    return Section("Type-I error at a nominal .05 on 50 topics, equal means", columns, rows, bars)


def many_queries(rng: np.random.Generator, num: int) -> Section:
    """Ihemelandu & Ekstrand: the same with more queries, and with sparse judgments."""
    rows, bars = [], []
    for name in SHAPES:
        for Q in (50, 500, 5000):
            rejected = []
            for size in _batches(num, Q):
                d = differences(rng, size, Q, SHAPES[name])[:, 0]
                rejected.append(np.array([t_p(d), wilcoxon_p(d), sign_p(d)]) < ALPHA)
            rates = [float(rate) for rate in np.concatenate(rejected, axis=1).mean(axis=1)]
            rows.append((name, Q, *rates))
            gap, noise = abs(rates[0] - ALPHA), 3 * math.sqrt(ALPHA * (1 - ALPHA) / num)
            bars.append(Bar(f"{name}, {Q}: t near .05", f"{rates[0]:.4f}", gap < 0.01 + noise))
    columns = ("scores", "queries", "t", "Wilcoxon", "sign")
    return Section("Type-I error at a nominal .05, equal means", columns, rows, bars)


def _max_t(p: Floats, R: Floats) -> Floats:
    """The shipped max-t. It lies between p and Holm's, and takes a thousand times as long: where
    both decide alike, Holm's stands for it."""
    return holm(p) if ((holm(p) < ALPHA) == (p < ALPHA)).all() else max_t(p, R)


CORRECTED: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "t alone": lambda t, w, R: t,
    "t, Holm": lambda t, w, R: holm(t),
    "t, max-t": lambda t, w, R: _max_t(t, R),
    "t, BH": lambda t, w, R: benjamini_hochberg(t),
    "Wilcoxon, Holm": lambda t, w, R: holm(w),
    "Wilcoxon, BH": lambda t, w, R: benjamini_hochberg(w),
}
"""{procedure: its p of the comparisons of a table, from those of both tests and the correlation of
the differences}."""
NUM_SYSTEMS = 10


def families(rng: np.random.Generator, num: int) -> Section:
    """Boytsov et al. and Otero et al.: ten systems against a baseline, none or five of them better
    by what a single t-test finds in 80%. A quarter of the simulations: max-t takes its time."""
    rows, bars, num = [], [], max(1, num // 4)
    for name in ("one shape", "another shape"):
        for Q in (50, 1000):
            better = np.arange(NUM_SYSTEMS) < NUM_SYSTEMS // 2
            null, planted = (_decisions(rng, num, Q, SHAPES[name], better * on) for on in (0, 1))
            for at, procedure in enumerate(CORRECTED):
                wrong = planted[:, at, ~better].sum(axis=1)
                found = planted[:, at, better].sum(axis=1)
                any_null = float(null[:, at].any(axis=1).mean())
                rows.append(
                    (
                        *(name, Q, procedure, any_null, float((wrong > 0).mean())),
                        float((wrong / np.maximum(wrong + found, 1)).mean()),
                        float(found.mean() / better.sum()),
                    )
                )
                if procedure in ("t, Holm", "t, max-t"):
                    noise = 3 * math.sqrt(ALPHA * (1 - ALPHA) / num)
                    law = f"{name}, {Q} queries, {procedure}: at most .06"
                    bars.append(Bar(law, f"{any_null:.4f}", any_null <= 0.06 + noise))
    columns = (
        *("scores", "queries", "procedure", "any false, none better", "any false, five better"),
        *("share of false findings", "power"),
    )
    return Section("Ten systems against a baseline", columns, rows, bars)


def _decisions(
    rng: np.random.Generator, num: int, Q: int, shape: Shape, better_K: Floats
) -> Floats:
    """Which comparisons each procedure calls significant, (num, procedures, systems)."""
    z = float(stats.norm.isf(ALPHA / 2) + stats.norm.ppf(0.8))
    decided = []
    for size in _batches(num, Q * (NUM_SYSTEMS + 1)):
        d = differences(rng, size, Q, shape, NUM_SYSTEMS)
        d += (better_K * z * d.std() / math.sqrt(Q))[:, None]
        for t, w, table in zip(t_p(d), wilcoxon_p(d), d, strict=True):
            R = np.corrcoef(table)
            decided.append([own(t, w, R) < ALPHA for own in CORRECTED.values()])
    return np.array(decided)


def sources(rng: np.random.Generator, num: int) -> Section:
    """Bouthillier et al.: equal methods, tested with one source of variation and with both."""
    rows, bars = [], []
    for kind in (R04, DL, MSM):
        for S in (1, 3, 5, 10):
            for seed_sd in (0.005, 0.01):
                rates = _source_rates(rng, 10 * num, kind, S, seed_sd)
                rows.append((kind.name, S, seed_sd, *rates))
                if S > 1:
                    law = f"{kind.name}, {S} runs, SD {seed_sd}: both in [.03, .07]"
                    both = float(rates[2])
                    bars.append(Bar(law, f"{both:.4f}", 0.03 <= both <= 0.07))
    columns = ("data", "runs", "seed SD", "queries alone", "runs alone", "both")
    return Section("Type-I error at a nominal .05, equal methods", columns, rows, bars)


def _source_rates(
    rng: np.random.Generator, num: int, kind: Kind, S: int, seed_sd: float
) -> list[float | str]:
    """How often equal methods differ by the test over queries, over runs, and over both; one run
    has the first alone."""
    if S == 1:
        Q = kind.num_queries
        V_q = 2 * (kind.query**2 + kind.residual**2) / Q
        delta = rng.normal(0, math.sqrt(V_q + 2 * seed_sd**2), num)
        t = np.abs(delta) / np.sqrt(V_q * rng.chisquare(Q - 1, num) / (Q - 1))
        return [float((2 * stats.t.sf(t, Q - 1) < ALPHA).mean()), "", ""]
    found, _ = _two_systems(rng, num, ((S, seed_sd), (S, seed_sd)), kind, "normal", 0.0)
    tests = found.tests
    return [float((p < ALPHA).mean()) for p in (tests.p_queries, tests.p_seeds, tests.p_both)]


SECTIONS: dict[str, Draw] = {
    "paired-tests": paired_tests,
    "many-queries": many_queries,
    "families": families,
    "sources": sources,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print all sections; 1 if a bar fails."""
    return simulate(
        sys.argv[1:] if argv is None else argv,
        SECTIONS,
        title="Published studies of significance tests, simulated",
        option="simulations",
        default=2000,
        unit="simulations of each cell",
        rate=ALPHA,
    )


if __name__ == "__main__":
    sys.exit(main())
