"""The largest familywise error of the final stage with few runs, found by search.

    python -m tests.benchmarks.least_favourable [--simulations 400] [--only SECTION] [--json FILE]

All systems are equal. A section searches a grid of deviations between runs, relative to the noise
of the queries: of the baseline, of the others, of one or of half of them. The worst of each case
are simulated again, with other draws and ten times as many tables, so that the largest of many
estimates is not taken for an error. The caption of a table has these bounds
(`sweeps/report/error_bounds.py`).
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from unittest.mock import patch

import numpy as np

from rank_core.stats import scopes
from rank_core.stats.moderation import (
    ENOUGH_SEEDS,
    LEAST_POOL,
)
from tests.benchmarks.bars import Bar, Section, simulate
from tests.benchmarks.error_rates import ALPHA, BATCH, _pair_tests, first_step
from tests.benchmarks.simulated_sweeps import Kind, drawn_tables

SIZES = (4, 8, 17, 40)
RATIOS = (0.1, 1 / 3, 1.0, math.sqrt(10))
SDS, KIND = (0.01, 0.03), Kind("table", 0.06, 0.06, 100)
AGAIN, MORE = 3, 10  # so many of a case are simulated again, with so many times the tables


@dataclass(frozen=True)
class Cell:
    """Equal systems, the first of which is the baseline."""

    text: str
    sd_K: tuple[float, ...]
    seeds_K: tuple[int, ...]
    shape: str = "normal"

    def error(self, rng: np.random.Generator, num: int) -> float:
        """The familywise error rate in `num` tables."""
        pooled = sum(not math.isnan(sd) for sd in self.sd_K) >= LEAST_POOL
        fewest = min(self.seeds_K)
        errs = []
        for start in range(0, num, BATCH):
            size = min(BATCH, num - start)
            tables = drawn_tables(rng, size, KIND, self.seeds_K, self.sd_K, self.shape)
            p_NJ = first_step(_pair_tests(tables, 0), pooled=pooled, enough=fewest >= ENOUGH_SEEDS)
            errs.append((p_NJ < ALPHA).any(axis=1))
        return float(np.concatenate(errs).mean())


def _deviations(K: int, sd: float) -> Iterator[tuple[str, tuple[float, ...]]]:
    """SDs of the baseline, which may be deterministic, and of K others: all alike, one or half of
    these different."""
    for base in (*RATIOS, math.nan):
        start = (base * sd,)
        yield f"baseline {base:.2g}", start + (sd,) * K
        if K > 1:
            for other in (0.1, math.sqrt(10)):
                half = tuple(sd * (other if k % 2 else 1) for k in range(K))
                yield f"baseline {base:.2g}, half {other:.2g}", start + half
            one = (sd,) * (K - 1) + (sd * math.sqrt(10),)
            yield f"baseline {base:.2g}, one {math.sqrt(10):.2g}", start + one


def _alike(S: int, K: int) -> Iterator[Cell]:
    for sd in SDS:
        for text, sd_K in _deviations(K, sd):
            yield Cell(f"SD {sd:g}, {text}", sd_K, (S,) * (K + 1))


def _unequal(S: int, K: int) -> Iterator[Cell]:
    """The baseline has ten runs, the others S, or the other way round; or every second system."""
    numbers = {
        "baseline 10 runs": (10,) + (S,) * K,
        "others 10 runs": (S,) + (10,) * K,
        "half 10 runs": (S, *(10 if k % 2 else S for k in range(K))),
    }
    for sd, (what, seeds_K) in product(SDS, numbers.items()):
        for text, sd_K in _deviations(K, sd):
            yield Cell(f"{what}, SD {sd:g}, {text}", sd_K, seeds_K)


def _bimodal(baselines: Sequence[float]) -> Callable[[int, int], Iterator[Cell]]:
    """Runs of all systems of which some collapse, the baseline's SD being such shares of theirs."""

    def cells(S: int, K: int) -> Iterator[Cell]:
        shapes = ("bimodal", "1 in 20 collapses")
        for sd, shape, base in product((0.005, 0.01, 0.02, 0.05), shapes, baselines):
            sd_K = (base * sd, *(sd,) * K)
            yield Cell(f"{shape}, SD {sd:g}, baseline {base:.2g}", sd_K, (S,) * (K + 1), shape)

    return cells


def _searched(
    title: str, cells: Callable[[int, int], Iterator[Cell]], seeds: Sequence[int]
) -> Callable[[np.random.Generator, int], Section]:
    def draw(rng: np.random.Generator, num: int) -> Section:
        rows = []
        for S, K in product(seeds, SIZES):
            tried = sorted(((cell.error(rng, num), cell) for cell in cells(S, K)), key=_first)
            worst = [(cell.error(rng, MORE * num), cell.text) for _, cell in tried[-AGAIN:]]
            rows.append((S, K, len(tried), *max(worst)[::-1]))
        largest = max(row[-1] for row in rows)
        bar = Bar("the largest one is known", f"{largest:.4f}", largest < 1)
        return Section(title, ("S", "K", "tried", "least favourable", "FWER"), rows, [bar])

    return draw


def _first(found: tuple[float, Cell]) -> float:
    return found[0]


SECTIONS = {
    "alike": _searched("As many runs of all systems", _alike, (3, 4, 5)),
    "unequal": _searched("Fewer runs of some systems", _unequal, (3, 5)),
    "bimodal": _searched("Runs of all systems collapse alike", _bimodal((1.0,)), (3, 4, 5)),
    "one side": _searched("Runs of the baseline collapse less", _bimodal((0.1, 0.5)), (3, 5)),
}


def main(argv: Sequence[str]) -> int:
    """Run the sections and print them; 1 if a bar fails."""
    with patch.object(scopes, "HALVINGS", 25):  # p to 1e-6 is enough for a rate
        return simulate(
            argv,
            SECTIONS,
            title="Least favourable tables",
            option="simulations",
            default=400,
            unit="simulated tables per cell of the search",
            rate=ALPHA,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
