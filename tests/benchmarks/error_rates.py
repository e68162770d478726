"""How often the tests of a results table are wrong, and how often they find what is there.

    python -m tests.benchmarks.error_rates [--simulations 2000] [--seed 1] [--only SECTION]
        [--json FILE]

Two systems are equal by construction, or differ by a planted amount; the shipped tests
(`rank_core.stats`) judge many such sweeps. Shown beside each other: the customary paired t-test on
per-query means over seeds, and the test with queries and training runs random. Every bar is printed
with `ok` or `FAIL`; the exit code is 1 if one fails.

Most sweeps are drawn as means and mean squares, which is exact for normal scores
(`simulated_sweeps` says why). Where a family shares its baseline, the query means are drawn in
full; where scores are bounded or a correction resamples them, whole tables of scores are.

Kinds of collection, calibrated on the letters and the rounding of published tables: R04c like
Robust04, DLc like the pooled TREC Deep Learning tracks, MSMc like MS MARCO document dev.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from rank_core.stats.design import Goal, Variances, planned_power
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.multiplicity import benjamini_hochberg, holm
from rank_core.stats.scopes import infer, scope_test
from rank_core.stats.selection import expected_luck, selected_gain
from tests.benchmarks.bars import Bar, Draw, Section, simulate
from tests.benchmarks.simulated_sweeps import (
    COLLAPSING,
    DL,
    MSM,
    R04,
    SELECTION,
    best_of_equals,
    bounded_scores,
    customary_error,
    null_and_planted,
    variance_error,
)

ALPHA = 0.05
SEEDS, SEED_SDS = (3, 5, 10), (0.0, 0.002, 0.005, 0.01)


def type_1_errors(rng: np.random.Generator, num: int) -> Section:
    """Both tests of equal systems in every calibrated cell."""
    rows, both, gaps = [], [], []
    for kind in (R04, DL, MSM):
        for S in SEEDS:
            for seed_sd in SEED_SDS:
                found = null_and_planted(kind, rng, num=num, S=S, seed_sd=seed_sd)
                expected = customary_error(kind, S=S, seed_sd=seed_sd, alpha=ALPHA)
                customary = _rate(found.p_queries)
                both.append(_rate(found.p_both))
                gaps.append(abs(customary - expected))
                rows.append((kind.name, S, seed_sd, customary, expected, both[-1]))
    return Section(
        "Type-I error at a nominal .05, equal systems",
        ("data", "seeds", "seed SD", "customary test", "predicted", "queries and runs"),
        rows,
        [
            Bar(
                "queries and runs: every cell in [.03, .07]",
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


def hard_scores(rng: np.random.Generator, num: int) -> Section:
    """Scores that are not normal: bounded with many zeros, and runs that collapse."""
    rows, bars = [], []
    for S in (3, 5):
        p = np.array(
            [
                (test.p_queries, test.p_both)
                for test in (scope_test(*bounded_scores(rng, S=S)) for _ in range(num))
            ]
        )
        rows.append(("bounded, a tenth of the queries 0", S, _rate(p[:, 0]), _rate(p[:, 1])))
        rate = _rate(p[:, 1])
        bars.append(
            Bar(f"bounded scores, S = {S}: in [.03, .07]", f"{rate:.4f}", 0.03 <= rate <= 0.07)
        )
    for S in SEEDS:
        found = null_and_planted(COLLAPSING, rng, num=num, S=S, seed_sd=0.005, collapse=0.1)
        rate = _rate(found.p_both)
        rows.append(("a tenth of the runs collapse", S, _rate(found.p_queries), rate))
        bars.append(Bar(f"collapsing runs, S = {S}: at most .05", f"{rate:.4f}", rate <= 0.05))
    return Section(
        "Type-I error where scores are not normal",
        ("scores", "seeds", "customary test", "queries and runs"),
        rows,
        bars,
    )


def family(rng: np.random.Generator, num: int) -> Section:
    """17 equal systems against one baseline: the chance of any false positive."""
    K, S, seed_sd, kind = 18, 3, 0.005, R04
    Q = kind.num_queries
    wrong = dict.fromkeys(("customary", "customary Holm", "both", "both Holm", "both BH"), 0)
    for _ in range(num):
        mean_KQ = rng.normal(0, math.hypot(kind.query, kind.residual / math.sqrt(S)), (K, Q))
        mean_KQ += rng.normal(0, seed_sd / math.sqrt(S), (K, 1))
        V_s = (seed_sd**2 + kind.residual**2 / Q) / S * rng.chisquare(S - 1, K) / (S - 1)
        V_e = variance_error(kind, rng, S, K)
        delta_KQ = mean_KQ[1:] - mean_KQ[0]
        found = infer(
            delta=delta_KQ.mean(axis=1),
            variance_queries=delta_KQ.var(axis=1, ddof=1) / Q,
            variance_seeds=(V_s[1:], V_s[0]),
            variance_error=(V_e[1:], V_e[0]),
            num_seeds=(S, S),
            num_queries=Q,
        )
        wrong["customary"] += (found.p_queries < ALPHA).any()
        wrong["customary Holm"] += (holm(found.p_queries) < ALPHA).any()
        wrong["both"] += (found.p_both < ALPHA).any()
        wrong["both Holm"] += (holm(found.p_both) < ALPHA).any()
        wrong["both BH"] += (benjamini_hochberg(found.p_both) < ALPHA).any()
    rate = {name: float(count / num) for name, count in wrong.items()}
    return Section(
        "Familywise error of 17 comparisons (R04c, S = 3, seed SD .005)",
        ("correction", "customary test", "queries and runs"),
        [
            ("none", rate["customary"], rate["both"]),
            ("Holm", rate["customary Holm"], rate["both Holm"]),
            ("Benjamini-Hochberg", "", rate["both BH"]),
        ],
        [
            Bar(
                "queries and runs with Holm: at most .06",
                f"{rate['both Holm']:.4f}",
                rate["both Holm"] <= 0.06,
            )
        ],
    )


def fresh_seeds(rng: np.random.Generator, num: int) -> Section:
    """The winner of K equal configurations against an equal baseline, by three protocols."""
    rows, fresh = [], []
    for K in (6, 18, 48):
        for name, (found, gain) in best_of_equals(rng, num=num, K=K).items():
            rows.append((K, name, _rate(found.p_queries), _rate(found.p_both), gain))
            if name == "dev chooses, fresh seeds":
                fresh.append((_rate(found.p_both), abs(gain)))
    rates, biases = zip(*fresh, strict=True)
    return Section(
        "The best of K equal configurations (S = 3, 200 queries, seed SD .005)",
        ("K", "protocol", "customary test", "queries and runs", "bias of the gain"),
        rows,
        [
            Bar(
                "fresh seeds: false positives at most .07", f"{max(rates):.4f}", max(rates) <= 0.07
            ),
            Bar("fresh seeds: |bias| at most .001", f"{max(biases):.5f}", max(biases) <= 0.001),
        ],
    )


def corrected_gain(rng: np.random.Generator, num: int) -> Section:
    """The bias of the winner's gain when nothing can be retrained, before and after correction."""
    kind, K, S, seed_sd, num = SELECTION, 18, 3, 0.005, max(num // 5, 1)
    Q = kind.num_queries
    gains = []
    for _ in range(num):
        score_KSQ = (
            rng.normal(0, kind.query, (K + 1, 1, Q))
            + rng.normal(0, seed_sd, (K + 1, S, 1))
            + rng.normal(0.4, kind.residual, (K + 1, S, Q))
        )
        scores = {f"cell{k}": score_SQ for k, score_SQ in enumerate(score_KSQ)}
        seeds = dict.fromkeys(scores, tuple(range(S)))
        matrix = ScoreMatrix("score", tuple(scores), tuple(map(str, range(Q))), seeds, scores)
        found = selected_gain(matrix, baseline="cell0", rng=rng, num_replicates=300)
        gains.append((found.naive, found.corrected))
    naive, corrected = (float(mean) for mean in np.mean(gains, axis=0))
    single = kind.query**2 / Q + seed_sd**2 / S + kind.residual**2 / (Q * S)
    luck = expected_luck([math.sqrt(2 * single)], num_candidates=K)
    return Section(
        f"The gain of the best of 18 equals, nothing retrained ({num} sweeps)",
        ("estimate", "bias"),
        [
            ("as read off", naive),
            ("expected luck, closed form", luck),
            ("bootstrap bias correction over queries x seeds", corrected),
        ],
        [Bar("corrected: |bias| at most .0015", f"{corrected:+.5f}", abs(corrected) <= 0.0015)],
    )


def power(rng: np.random.Generator, num: int) -> Section:
    """The power of the deciding test, simulated with ten times the sweeps, beside the formula."""
    rows, bars = [], []
    least = {("R04c", 5): 0.80, ("DLc", 5): 0.85, ("MSMc", 10): 0.88}
    for kind, delta in ((R04, 0.02), (DL, 0.02), (MSM, 0.01)):
        for S in SEEDS:
            found = null_and_planted(kind, rng, num=10 * num, S=S, seed_sd=0.005, delta=delta)
            simulated = _rate(found.p_both)
            planned = planned_power(
                Variances(math.sqrt(2) * kind.query, 0.005, kind.residual),
                Goal(delta),
                num_seeds=S,
                num_queries=kind.num_queries,
            )
            rows.append((kind.name, S, delta, simulated, planned))
            near = 0.05 if S == 3 else 0.03
            bars.append(
                Bar(
                    f"{kind.name}, S = {S}: formula within {near:g}",
                    f"{planned - simulated:+.4f}",
                    abs(planned - simulated) <= near,
                )
            )
            if (wanted := least.get((kind.name, S))) is not None:
                bars.append(
                    Bar(
                        f"{kind.name}, S = {S}, delta = {delta:g}: power at least {wanted:.2f}",
                        f"{simulated:.4f}",
                        simulated >= wanted,
                    )
                )
    return Section(
        "Power of queries and runs (seed SD .005)",
        ("data", "seeds", "true difference", "simulated", "formula"),
        rows,
        bars,
    )


SECTIONS: dict[str, Draw] = {
    "type-1": type_1_errors,
    "hard-scores": hard_scores,
    "family": family,
    "fresh-seeds": fresh_seeds,
    "corrected-gain": corrected_gain,
    "power": power,
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
