"""What `design` promises, and what the shipped final stage finds.

    python -m tests.benchmarks.design_power [--simulations 2000] [--only SECTION] [--json FILE]

The plan knows the true deviations and the correlation of the comparisons, so that only the rule is
tested: one system is better by the difference that the plan finds with a power of .80, and the
others are equal to the baseline.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np

from rank_core.stats import scopes
from rank_core.stats.design import Goal, Variances, planned_detectable
from rank_core.stats.moderation import LEAST_POOL
from tests.benchmarks.bars import Bar, Section, simulate
from tests.benchmarks.error_rates import ALPHA, BATCH, _pair_tests, first_step
from tests.benchmarks.simulated_sweeps import Kind, drawn_tables

POWER, SIZES, SEEDS, QUERIES = 0.8, (1, 4, 17, 40), (3, 4, 5, 10), 150
TRUTHS = {  # SDs of query x system, residual, run
    "seeds steady": (0.06, 0.05, 0.003),
    "seeds as usual": (0.06, 0.05, 0.01),
    "seeds unsteady": (0.06, 0.05, 0.02),
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
        p_NJ = first_step(pairs, pooled=K + 1 >= LEAST_POOL)
        found.append(p_NJ[:, middle - 1] < ALPHA)
    return float(np.concatenate(found).mean())


def _plans(rng: np.random.Generator, num: int) -> Section:
    """The difference that a plan promises to find, as its own test at the level alpha / K would
    plan it and by the rule in force, and how often it is found."""
    rows, bars, noise = [], [], 3 * math.sqrt(POWER * (1 - POWER) / num)
    for name, (query, residual, sd) in TRUTHS.items():
        variances, kind = (
            Variances(math.sqrt(2) * query, sd, residual),
            Kind(name, query, residual, QUERIES),
        )
        for K, S in product(SIZES, SEEDS):
            goal, own = Goal(1.0, ALPHA, POWER, K, CORRELATION), Goal(1.0, ALPHA / K, POWER)
            alone, delta = (
                planned_detectable(variances, one, num_seeds=S, num_queries=QUERIES)
                for one in (own, goal)
            )
            true = _true_power(rng, num, kind, S, sd, K, delta)
            rows.append((name, K, S, alone, delta, true))
            law = f"{name}, K {K}, {S} seeds: true power .78 to .84"
            bars.append(Bar(law, f"{true:.4f}", 0.78 - noise <= true <= 0.84 + noise))
    columns = ("deviations", "K", "S", "own test at alpha / K", "by the rule", "true power")
    return Section("The power of differences that are promised .80", columns, rows, bars)


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
