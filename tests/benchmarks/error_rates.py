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
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from rank_core.stats.moderation import fitted_prior, moderated_p
from rank_core.stats.multiplicity import holm
from rank_core.stats.scopes import Floats, Inference, infer, two_sided_p
from tests.benchmarks.bars import Bar, Draw, Section, simulate
from tests.benchmarks.simulated_sweeps import DL, MSM, R04, SHAPES, Kind, customary_error

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


def large_families(rng: np.random.Generator, num: int) -> Section:
    """Holm over 17 systems against one baseline under three rules: the familywise error of equal
    systems, and the power for one that is better."""
    rows, bars = [], []
    for name, (sd_K, base_sd, shape) in FAMILIES.items():
        for S in (3, 5):
            drawn = [_family_decisions(rng, sd_K, base_sd, S, shape) for _ in range(num)]
            rates = [float(one) for one in np.mean(drawn, axis=0)]
            rows.append((name, shape, S, *rates))
            if shape == "normal":
                law = f"{name}, S = {S}: at most .07"
                bars.append(Bar(law, f"{rates[2]:.4f}", rates[2] <= 0.07))
    rules = ("1st", "2nd", "2nd and moderated")
    columns = ("seed SDs", "scatter", "S", *rules, *(f"power, {one}" for one in rules))
    return Section("Familywise error of Holm over 17 comparisons, 150 queries", columns, rows, bars)


_SPREAD = np.linspace(0.002, 0.03, 17)
FAMILIES = {  # seed SDs of the systems, of the baseline (None: deterministic), their shape
    "all .01": (np.full(17, 0.01), 0.01, "normal"),
    "spread .002 to .03": (_SPREAD, 0.01, "normal"),
    "spread, stable baseline": (_SPREAD, 0.0, "normal"),
    "unstable baseline": (np.full(17, 0.002), 0.03, "normal"),
    ".02, deterministic baseline": (np.full(17, 0.02), None, "normal"),
    ".03, deterministic baseline": (np.full(17, 0.03), None, "normal"),
    "all .01, resampled": (np.full(17, 0.01), 0.01, "resampled"),
    "spread, resampled": (_SPREAD, 0.01, "resampled"),
    "spread, skewed": (_SPREAD, 0.01, "exponential"),
    ".02 skewed, deterministic baseline": (np.full(17, 0.02), None, "exponential"),
}


def _family_decisions(
    rng: np.random.Generator, sd_K: Floats, base_sd: float | None, S: int, shape: str
) -> list[bool]:
    """Whether each rule finds a difference among equals; then whether it finds the middle system
    where that one is better by what a z test at the level of its smallest p finds in 80%."""
    K, Q, query, residual = 17, 150, 0.06, 0.06
    sd_all = np.append(sd_K, base_sd or 0.0)
    run_KS = sd_all[:, None] * SHAPES[shape](rng, (K + 1, S))
    noise_KS = rng.normal(0, residual / math.sqrt(Q), (K + 1, S))
    mean_KQ = rng.normal(0, math.hypot(query, residual / math.sqrt(S)), (K + 1, Q))
    # The residual's share of a mean stands in mean_KQ; of run means it scatters like noise_KS.
    mean_KQ += run_KS.mean(axis=1, keepdims=True)
    V_s = (run_KS + noise_KS).var(axis=1, ddof=1) / S
    df = (S - 1) * (Q - 1)
    V_e = residual**2 / (Q * S) * rng.chisquare(df, K + 1) / df
    trained = slice(0, K) if base_sd is None else slice(0, K + 1)
    prior = fitted_prior((S * V_s[trained]).tolist(), np.full(len(V_s[trained]), S - 1.0).tolist())
    delta_KQ = mean_KQ[:K] - mean_KQ[K]
    delta_K, V_q = delta_KQ.mean(axis=1), delta_KQ.var(axis=1, ddof=1) / Q
    sides = [(V_s[:K], V_e[:K])] + ([] if base_sd is None else [(V_s[K], V_e[K])])
    base = [] if base_sd is None else [(float(V_s[K]), float(V_e[K]), S)]
    middle = K // 2
    truth = 2 * (query**2 + residual**2 / S) / Q + (sd_K[middle] ** 2 + (base_sd or 0) ** 2) / S
    z = float(stats.norm.isf(ALPHA / K / 2) + stats.norm.ppf(0.8))
    better_K = delta_K + z * math.sqrt(truth) * (np.arange(K) == middle)
    decisions = []
    for shown_K in (delta_K, better_K):
        found = infer(
            delta=shown_K,
            variance_queries=V_q,
            variance_seeds=tuple(one for one, _ in sides),
            variance_error=tuple(one for _, one in sides),
            num_seeds=(S,) * len(sides),
            num_queries=Q,
        )
        moderated_K = [
            moderated_p(float(d), float(v), Q, [(float(s), float(e), S), *base], prior)
            for d, v, s, e in zip(shown_K, V_q, V_s[:K], V_e[:K], strict=True)
        ]
        first_K = _first_order_p(Shown(shown_K, found))
        for p_K in (first_K, found.p_both, np.maximum(found.p_both, moderated_K)):
            wrong_K = holm(p_K) < ALPHA
            decisions.append(bool(wrong_K.any() if shown_K is delta_K else wrong_K[middle]))
    return decisions


def _first_order_p(found: Shown) -> Floats:
    """p by Satterthwaite's degrees of freedom."""
    tests = found.tests
    p: Floats = two_sided_p(found.delta, tests.se_both, tests.welch.satterthwaite)
    return p


SECTIONS: dict[str, Draw] = {
    "type-1": type_1_errors,
    "unequal-scatter": unequal_scatter,
    "large-families": large_families,
}


def main(argv: Sequence[str]) -> int:
    """Run the sections and print them; 1 if a bar fails."""
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
