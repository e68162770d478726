"""What `design` promises, and what the shipped final stage finds with the sizes that it plans.

    python -m tests.benchmarks.design_power [--simulations 2000] [--only SECTION] [--json FILE]

The plan knows the true deviations and the correlation of the comparisons, so that only the rule is
tested: one system is better by delta, the others are equal to the baseline, and the table has the
seeds and queries that `design` asks for.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from rank_core.stats import scopes
from rank_core.stats.design import Goal, Variances, planned_power, queries_needed
from rank_core.stats.family import ENOUGH_SEEDS
from rank_core.stats.moderation import LEAST_POOL
from tests.benchmarks.bars import Bar, Section, simulate
from tests.benchmarks.error_rates import ALPHA, BATCH, _pair_tests, first_step
from tests.benchmarks.simulated_sweeps import Kind, drawn_tables

POWER, SIZES, SEEDS = 0.8, (1, 4, 17, 40), (3, 5, 10)
TRUTHS = {  # SDs of query x system, residual, run; the difference to be found
    "seeds steady": (0.06, 0.05, 0.003, 0.02),
    "seeds as usual": (0.06, 0.05, 0.01, 0.03),
    "seeds unsteady": (0.06, 0.05, 0.02, 0.06),
}
CORRELATION = 0.5
"""Of two comparisons of systems alike with one baseline."""


def _true_power(
    rng: np.random.Generator, num: int, kind: Kind, S: int, sd: float, K: int, delta: float
) -> float:
    """How often the middle one of K systems, which is better by delta, is found."""
    middle, found = 1 + K // 2 if K > 1 else 1, []
    for start in range(0, num, BATCH):
        size = min(BATCH, num - start)
        tables = drawn_tables(rng, size, kind, S, [sd] * (K + 1), "normal")
        better_NK = tables.mean_NK + delta * (np.arange(K + 1) == middle)
        pairs = _pair_tests(replace(tables, mean_NK=better_NK), 0)
        p_NJ = first_step(pairs, pooled=K + 1 >= LEAST_POOL, enough=S >= ENOUGH_SEEDS)
        found.append(p_NJ[:, middle - 1] < ALPHA)
    return float(np.concatenate(found).mean())


def _plans(rng: np.random.Generator, num: int) -> Section:
    """The queries that so many seeds need, before (the level alpha / K) and now, and the power."""
    rows, bars, noise = [], [], 3 * math.sqrt(POWER * (1 - POWER) / num)
    for name, (query, residual, sd, delta) in TRUTHS.items():
        variances = Variances(math.sqrt(2) * query, sd, residual)
        for K in SIZES:
            for S in SEEDS:
                goal = Goal(delta, ALPHA, POWER, K, CORRELATION)
                bonferroni = queries_needed(variances, replace(goal, correlation=0.0), num_seeds=S)
                Q = queries_needed(variances, goal, num_seeds=S)
                if math.isinf(Q):
                    rows.append((name, K, S, bonferroni, Q, math.nan, math.nan))
                    continue
                promised = planned_power(variances, goal, num_seeds=S, num_queries=int(Q))
                kind = Kind(name, query, residual, int(Q))
                true = _true_power(rng, num, kind, S, sd, K, delta)
                rows.append((name, K, S, bonferroni, Q, promised, true))
                law = f"{name}, K {K}, {S} seeds: true power .78 to .84"
                ok = 0.78 - noise <= true <= 0.84 + noise
                bars.append(Bar(law, f"{true:.4f}", ok))
    columns = ("deviations", "K", "S", "queries at alpha / K", "queries", "promised", "true")
    return Section("Promised and true power", columns, rows, bars)


SECTIONS = {"plans": _plans}


def main(argv: Sequence[str]) -> int:
    """Run the sections and print them; 1 if a bar fails."""
    with patch.object(scopes, "HALVINGS", 25):  # p to 1e-6 is enough for a rate
        return simulate(
            argv,
            SECTIONS,
            title="Promised and true power",
            option="simulations",
            default=2000,
            unit="simulated tables per cell",
            rate=POWER,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
