"""How long the statistics of a large sweep take, and how much memory.

    python -m tests.benchmarks.statistics_speed [--cells 100] [--permuted-cells 100] [--json FILE]

All three scopes with Holm for 100 cells x 5 seeds on the 5,193 queries of MS MARCO document dev,
then the randomised Tukey test with 10,000 permutations for the same cells on Robust04's
249 queries and on the same 5,193. Seconds are those of the clock; with other work on the machine
the processor's seconds say more, which two idle cores halve at best. Each part runs in a process
of its own, so that its peak memory (resident set, with Python and the libraries) is its own. Bars
are those of two cores.
"""

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rank_core.seeding import generator
from rank_core.stats.compare import compare
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.permutation import randomised_tukey
from tests.benchmarks.bars import Bar, Section, report

MOST_GIB = 2.0


def scores(num_cells: int, num_seeds: int, num_queries: int) -> ScoreMatrix:
    """Random scores of a sweep in which nothing differs."""
    rng = generator(1, "speed", num_cells, num_queries)
    query_Q = rng.uniform(0.2, 0.8, num_queries)
    cells = tuple(f"cell{number}" for number in range(num_cells))
    return ScoreMatrix(
        measure="RR@10",
        cells=cells,
        query_ids=tuple(map(str, range(num_queries))),
        seeds=dict.fromkeys(cells, tuple(range(num_seeds))),
        scores={
            cell: query_Q
            + rng.normal(0, 0.005, (num_seeds, 1))
            + rng.normal(0, 0.1, (num_seeds, num_queries))
            for cell in cells
        },
    )


def all_scopes(num_cells: int, num_seeds: int, num_queries: int) -> float:
    """Seconds of every comparison with the baseline in all scopes, corrected by Holm."""
    matrix = scores(num_cells, num_seeds, num_queries)
    start = time.perf_counter()
    compare(matrix, baseline="cell0", correction="holm")
    return time.perf_counter() - start


def permutations(num_cells: int, num_seeds: int, num_queries: int) -> float:
    """Seconds of 10,000 permutations for all pairs of cells."""
    matrix = scores(num_cells, num_seeds, num_queries)
    start = time.perf_counter()
    randomised_tukey(matrix, rng=generator(1, "Tukey"), num_permutations=10_000)
    return time.perf_counter() - start


def measured(
    work: Callable[[int, int, int], float], num_cells: int, num_seeds: int, num_queries: int
) -> tuple[float, float, float]:
    """Seconds, processor seconds and peak GiB of `work` in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_with_memory, (work, num_cells, num_seeds, num_queries))


def sections(num_cells: int, num_permuted_cells: int, num_queries: int) -> Iterator[Section]:
    """One table with a line per part."""
    parts = [
        ("all scopes and Holm", all_scopes, (num_cells, 5, num_queries), 3.0),
        ("Tukey, 10,000 permutations", permutations, (num_permuted_cells, 5, 249), 30.0),
        ("Tukey, 10,000 permutations", permutations, (num_permuted_cells, 5, num_queries), 30.0),
    ]
    rows, bars = [], []
    for name, work, size, most in parts:
        seconds, processor, gib = measured(work, *size)
        rows.append((name, *size, seconds, processor, gib))
        where = f"{name}, {size[0]} x {size[1]} x {size[2]}"
        bars.append(Bar(f"{where}: under {most:g} s", f"{seconds:.2f} s", seconds < most))
        bars.append(Bar(f"{where}: under {MOST_GIB:g} GiB", f"{gib:.2f} GiB", gib < MOST_GIB))
    columns = ("part", "cells", "seeds", "queries", "seconds", "processor seconds", "peak GiB")
    yield Section("Speed of the statistics", columns, rows, bars)


def main(argv: Sequence[str]) -> int:
    """Measure every part and print the table; 1 if a bar fails."""
    parser = argparse.ArgumentParser(description="Speed and memory of the statistics.")
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--permuted-cells", type=int, default=100, help="cells of the Tukey test")
    parser.add_argument("--queries", type=int, default=5193)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    arguments = parser.parse_args(argv)
    settings = {name: value for name, value in vars(arguments).items() if name != "json"}
    if min(settings.values()) < 2:
        parser.error("--cells, --permuted-cells and --queries must be at least 2")
    found = sections(**{f"num_{name}": value for name, value in settings.items()})
    return report(found, settings=settings, json_file=arguments.json)


def _with_memory(
    work: Callable[[int, int, int], float], num_cells: int, num_seeds: int, num_queries: int
) -> tuple[float, float, float]:
    before = time.process_time()  # with the drawing of the scores, and of all threads
    seconds = work(num_cells, num_seeds, num_queries)
    processor = time.process_time() - before
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return seconds, processor, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
