"""The measures of one validation: seconds by ir_measures, query by query, and in numpy.

The run has the shape of MS MARCO's document dev set: 5,193 queries of 100 candidates, one of them
relevant. Both give the same values to the last bit, which is asserted here.
Run:
python -m tests.benchmarks.validation [--queries 5193] [--candidates 100] [--json FILE]
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TypeVar

import ir_measures  # noqa: F401  # imported before anything is timed
import pandas as pd  # noqa: F401

from rank_core.evaluate import _by_ir_measures, per_query, query_values
from rank_core.records import Qrels, Run
from rank_core.seeding import generator
from tests.benchmarks.workload import machine, print_table, save

MEASURES = ("nDCG@10", "RR@10", "AP", "R@100")
DOCUMENTS = 3_213_835
T = TypeVar("T")


def made(num_queries: int, num_candidates: int) -> tuple[Qrels, Run]:
    """Judgments and a run with falling scores."""
    rng = generator(1, "validation")
    qrels: Qrels = {}
    run: Run = {}
    for number in range(num_queries):
        doc_ids = [f"D{i}" for i in rng.choice(DOCUMENTS, num_candidates, replace=False)]
        run[str(number)] = {doc_id: -float(rank) for rank, doc_id in enumerate(doc_ids)}
        qrels[str(number)] = {doc_ids[rng.integers(num_candidates)]: 1}
    return qrels, run


def timed(compute: Callable[[], T], repeats: int) -> tuple[T, float]:
    """The result, and the median of its seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = compute()
        seconds.append(time.perf_counter() - start)
    return result, median(seconds)


def measure(num_queries: int, num_candidates: int, repeats: int) -> list[dict[str, str]]:
    """A row for each measure, and one for a validation's table of the first two."""
    qrels, run = made(num_queries, num_candidates)
    rows = []
    before = 0.0
    for name in MEASURES:
        expected, slow = timed(lambda name=name: _by_ir_measures(qrels, run, name), repeats)
        found, fast = timed(lambda name=name: query_values(qrels, run, name), repeats)
        assert found == expected
        before += slow * (name in MEASURES[:2])
        rows.append({"what": name, "ir_measures s": f"{slow:.3f}", "numpy s": f"{fast:.3f}"})
    _, fast = timed(lambda: per_query(qrels, run, MEASURES[:2]), repeats)
    table = "table of " + ", ".join(MEASURES[:2])
    rows.append({"what": table, "ir_measures s": f"> {before:.3f}", "numpy s": f"{fast:.3f}"})
    return rows


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--queries", type=int, default=5_193)
    flags.add_argument("--candidates", type=int, default=100)
    flags.add_argument("--repeats", type=int, default=5)
    flags.add_argument("--json", type=Path, help="write the figures here")
    given = flags.parse_args(argv)
    rows = measure(given.queries, given.candidates, given.repeats)
    print(machine())
    print_table(rows)
    save(given.json, {"rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
