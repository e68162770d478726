"""Power and false alarms of the Position Sensitivity Index, `python -m
tests.benchmarks.position_curve`.

Each simulation has new queries, with evidence that begins anywhere in a document, and new training
runs of three systems. One reads only the first tokens, so that it finds later evidence by chance
alone; two read everything. An alarm is an interval of the index that leaves out 0. Reciprocal ranks
are as skewed as those of real rankers, and runs differ in general and by query.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from rank_core.stats.positions import position_curves
from tests.benchmarks.workload import show

LENGTH = 1000  # tokens of a document
ALPHA = 0.05
SEED_SD, RUN_SD = 0.3, 0.6  # of the log odds: of a training run, of a run on a query


def simulated(
    rng: np.random.Generator, queries: int, seeds: int, read: int, quality: float
) -> tuple[dict[str, Any], Any]:
    """({system: reciprocal ranks (S, Q)}, position of the evidence of each query): one system reads
    the first tokens, two read everything."""
    position_Q = rng.integers(0, LENGTH, queries)
    query_Q = rng.normal(0, 1.5, queries)
    scores = {}
    for name, reads in (("first", read), ("all", LENGTH), ("other", LENGTH)):
        odds = quality + query_Q - 4.0 * (position_Q >= reads)
        odds = odds + rng.normal(0, SEED_SD, (seeds, 1)) + rng.normal(0, RUN_SD, (seeds, queries))
        rank = rng.geometric(expit(odds))
        scores[name] = np.where(rank <= 100, 1 / rank, 0.0)
    return scores, position_Q


def rates(
    simulations: int, queries: int, seeds: int, read: int, quality: float, seed: int = 0
) -> dict[str, float]:
    """The share of simulations with an alarm of the biased system, of one of the unbiased ones, and
    of the difference of two."""
    rng = np.random.default_rng([seed, queries, seeds, read])
    counts = np.zeros(4)
    for _ in range(simulations):
        found = position_curves(*simulated(rng, queries, seeds, read, quality), alpha=ALPHA)
        assert found
        first, whole, other = (curve.index for curve in found.curves.values())
        gap = whole - other
        unbiased = whole.low > 0 or other.low > 0
        counts += [first.low > 0, unbiased, (first - whole).low > 0, not gap.low <= 0 <= gap.high]
    names = ("power", "false_alarms", "power_difference", "false_alarms_difference")
    return dict(zip(names, (counts / simulations).tolist(), strict=True))


SETTINGS = [(256, 200, 1, 1.0), (256, 200, 3, 1.0), (128, 400, 3, 1.0)]
"""(tokens read, queries, training runs, log odds of a relevant document's first rank)."""


def main(argv: Sequence[str]) -> int:
    """Prints a row for each setting."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="the first so many")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args(argv)
    rows = []
    for read, queries, seeds, quality in SETTINGS[: args.settings]:
        before = time.process_time()
        found = rates(args.simulations, queries, seeds, read, quality)
        setting = {"read": read, "queries": queries, "seeds": seeds, "quality": quality}
        seconds = round(time.process_time() - before, 1)
        numbers = setting | found | {"seconds": seconds}
        rows.append({name: f"{value:g}" for name, value in numbers.items()})
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
