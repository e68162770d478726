"""How long the report of a large sweep takes, and how much memory.

    python -m tests.benchmarks.report_size [--cells 100] [--seeds 10] [--queries 5193] [--json FILE]

Per-query values of three measures for MS MARCO's document dev, as a dataset with a file per trial:
15.6 million values. Read, tested and written as `python -m sweeps report` does it, in a process of
its own: its seconds, by the clock and of the processor (which say more where other work runs), and
its peak memory (resident set, with Python and the libraries).
"""

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from rank_core.files import write_json
from rank_core.seeding import generator
from tests.benchmarks.bars import Bar, Section, report
from tests.sweeps.report.test_load import write_sweep

MEASURES = ("nDCG@10", "RR@10", "AP")
MOST_SECONDS, MOST_GIB = 60.0, 4.0


def write_large_sweep(folder: Path, num_cells: int, num_seeds: int, num_queries: int) -> None:
    """A sweep with `num_queries` on test and a tenth of them on dev."""
    from sweeps.store.scores import CHECKSUMS, SCORE_COLUMNS

    grid = product(range(100, 1001, 100), range(10, 101, 10))
    kinds = [("FirstP", 96, 96), *(("MaxP", window, stride) for window, stride in grid)]
    seeds = tuple(range(1, num_seeds + 1))
    write_sweep(
        folder, kinds=kinds[:num_cells], seeds=seeds, num_queries=2, measures=list(MEASURES)
    )
    (folder / "per_query.parquet").unlink()
    (folder / "per_query.parquet").mkdir()
    write_json(folder / "per_query.parquet" / CHECKSUMS, {})
    rng = generator(1, "report", num_cells, num_queries)
    difficulty = rng.beta(1.2, 1.6, num_queries)
    names = np.array([f"query{number}" for number in range(num_queries)])
    splits = {"test": num_queries, "dev": max(2, num_queries // 10)}
    sizes = [size for size in splits.values() for _ in MEASURES]
    columns = {
        "split": np.repeat(list(splits), [size * len(MEASURES) for size in splits.values()]),
        "query_id": np.concatenate([names[:size] for size in sizes]),
        "measure": np.repeat(list(MEASURES) * len(splits), sizes),
    }
    trials = pd.read_parquet(folder / "trials.parquet")
    for cell, of_cell in trials.groupby("cell", sort=False):
        taste = difficulty + rng.normal(0, 0.06, num_queries)
        for seed in of_cell["seed"]:
            skill = taste + rng.normal(0, 0.004) + rng.normal(0, 0.05, num_queries)
            rank = np.floor(12 * (1 - np.clip(skill, 0, 1))) + 1
            found = rank <= 10
            gains = [found / np.log2(rank + 1), found / rank, 1 / (rank + 1)]
            values = np.concatenate([gain[:size] for size in splits.values() for gain in gains])
            table = pd.DataFrame({"cell": cell, "seed": seed, **columns, "value": values})
            file = folder / "per_query.parquet" / f"{cell}-seed{seed}.parquet"
            table[list(SCORE_COLUMNS)].to_parquet(file, index=False)


def measured(folder: Path) -> tuple[float, float, float]:
    """Seconds, processor seconds and peak GiB of a report, in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_report, (folder,))


def sections(num_cells: int, num_seeds: int, num_queries: int) -> Iterator[Section]:
    """One table with one line."""
    with tempfile.TemporaryDirectory() as name:
        write_large_sweep(Path(name), num_cells, num_seeds, num_queries)
        seconds, processor, gib = measured(Path(name))
    values = num_cells * num_seeds * num_queries * len(MEASURES)
    rows = [(num_cells, num_seeds, num_queries, len(MEASURES), values, seconds, processor, gib)]
    bars = [
        Bar(f"under {MOST_SECONDS:g} s", f"{seconds:.1f} s", seconds < MOST_SECONDS),
        Bar(f"under {MOST_GIB:g} GiB", f"{gib:.2f} GiB", gib < MOST_GIB),
    ]
    columns = (
        "cells",
        "seeds",
        "queries",
        "measures",
        "values",
        "seconds",
        "processor seconds",
        "peak GiB",
    )
    yield Section("Report of a large sweep", columns, rows, bars)


def main(argv: Sequence[str]) -> int:
    """Write the sweep, measure its report and print the table; 1 if a bar fails."""
    parser = argparse.ArgumentParser(description="Speed and memory of a report.")
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--queries", type=int, default=5193)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    arguments = parser.parse_args(argv)
    settings = {name: value for name, value in vars(arguments).items() if name != "json"}
    if min(settings.values()) < 2:
        parser.error("--cells, --seeds and --queries must be at least 2")
    found = sections(**{f"num_{name}": value for name, value in settings.items()})
    return report(found, settings=settings, json_file=arguments.json)


def _report(folder: Path) -> tuple[float, float, float]:
    from sweeps.report.build import write_report

    start, before = time.perf_counter(), time.process_time()
    write_report(folder)
    seconds, processor = time.perf_counter() - start, time.process_time() - before
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return seconds, processor, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
