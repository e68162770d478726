"""The ranked lists of a sweep's trials, and the agreement of runs: the overlap of two runs of a
system, and of runs of two systems."""

import hashlib
import math
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from csv import QUOTE_NONE
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd

from rank_core.data.trec import read_qrels
from rank_core.errors import BadInput
from rank_core.evaluate import cutoff_of
from rank_core.records import Qrels
from rank_core.stats.agreement import (
    Ranks,
    num_documents,
    rank_biased_overlap,
    ranks,
    top_overlap,
)
from rank_core.stats.matrix import ScoreMatrix
from sweeps.store.records import REMEDY, trial_name
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.load import Sweep
from sweeps.systems.system import ListReader

MOST_QUERIES = 1000
"""Of more queries, those with the smallest hashes of their ids are compared."""
TOP = 10
_COLUMNS = ("query_id", "q0", "doc_id", "rank", "score", "tag")
_WANTED = ("query_id", "doc_id")

Lists = dict[str, list[str]]
"""{query_id: doc_ids, best first}."""


@dataclass(frozen=True)
class Agreement:
    """A system's runs against each other and against the baseline's, means over pairs of runs and
    over queries; NaN without such a pair. `judged` is NaN without judgments."""

    cell: str
    num_runs: int
    rbo_seeds: float
    top_seeds: float
    rbo_baseline: float
    top_baseline: float
    judged: float  # share of the first `judged_depth` documents that have a judgment
    pooled: float  # documents of two lists together; NaN without a pair


def list_readers(sweep: Sweep, matrix: ScoreMatrix) -> dict[str, list[ListReader]]:
    """{cell: a function that reads the lists of its used seeds}, of cells whose runs are all
    here."""
    readers: dict[tuple[str, int], ListReader] = dict(sweep.lists)
    if not (sweep.third_party or sweep.lists):
        for cell, seeds in matrix.seeds.items():
            for seed in seeds:
                trial = sweep.stored.trial_folder(trial_name(cell, seed))
                if (path := trial / f"{sweep.split}.run.gz").is_file():
                    readers[cell, seed] = partial(read_lists, path)
    for row in sweep.interpolated:
        readers |= {(row.name, seed): read for seed, read in row.lists.items()}
    if (path := sweep.folder / FIRST_STAGE / f"{sweep.split}.run.gz").is_file():
        readers |= {(FIRST_STAGE, seed): partial(read_lists, path) for seed in sweep.about.seeds}
    keys = {cell: [(cell, seed) for seed in matrix.seeds[cell]] for cell in matrix.cells}
    return {
        cell: [readers[key] for key in own]
        for cell, own in keys.items()
        if all(key in readers for key in own)
    }


def judgments(sweep: Sweep) -> Qrels | None:
    """Lists of the reported queries, where they are on this machine."""
    if sweep.third_party:
        return sweep.qrels
    file = sweep.folder / "qrels" / f"{sweep.split}.qrels"
    return read_qrels(file) if file.is_file() else None


def read_lists(path: Path, queries: Collection[str]) -> Lists:
    """The lists of some queries in a run as a trial writes it: in rank order, equal scores by
    ascending document id. The file is read in parts."""
    try:
        with pd.read_csv(
            path, sep=" ", names=_COLUMNS, usecols=_WANTED, dtype=str, na_filter=False,
            quoting=QUOTE_NONE, chunksize=1_000_000,
        ) as parts:  # fmt: skip
            table = pd.concat(part[part["query_id"].isin(set(queries))] for part in parts)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} must be a run as its trial wrote it: {error}; {REMEDY}") from None
    return {
        str(qid): list(own)
        for qid, own in table.groupby("query_id", sort=False, observed=True)["doc_id"]
    }


def agreements(sweep: Sweep, matrix: ScoreMatrix) -> list[Agreement]:
    """Every cell whose runs are here, in the order of the matrix, where these are two runs or more;
    the runs of at most two cells are in memory."""
    files = list_readers(sweep, matrix)
    if sum(map(len, files.values())) < 2:
        return []
    queries = sampled(matrix.query_ids)
    places: dict[str, dict[str, int]] = defaultdict(dict)
    qrels = judgments(sweep)
    depth = cutoff_of(sweep.primary) or TOP

    def read(cell: str) -> tuple[list[Ranks], float]:
        lists = [read_run(queries) for read_run in files.get(cell, [])]
        shares = [judged_share(run, qrels, depth) for run in lists]
        return [ranks(run, queries, places) for run in lists], _mean(shares)

    def pooled(pairs: Sequence[tuple[Ranks, Ranks]]) -> float:
        return _mean(np.mean(num_documents(*pair)) for pair in pairs)

    def means(pairs: Sequence[tuple[Ranks, Ranks]]) -> tuple[float, float]:
        tops = _mean(np.nanmean(top_overlap(*pair, TOP)) for pair in pairs)
        return _mean(np.nanmean(rank_biased_overlap(*pair)) for pair in pairs), tops

    base, base_judged = read(sweep.baseline)
    rows = []
    for cell in files:
        is_base = cell == sweep.baseline
        own, judged = (base, base_judged) if is_base else read(cell)
        seeds, between = list(combinations(own, 2)), list(product(own, [] if is_base else base))
        together = pooled([*seeds, *between])
        rows.append(Agreement(cell, len(own), *means(seeds), *means(between), judged, together))
    return rows


def sampled(query_ids: Sequence[str]) -> list[str]:
    """At most `MOST_QUERIES` of the queries, the same ones in every report."""
    by_hash = sorted(query_ids, key=lambda query_id: hashlib.sha256(query_id.encode()).digest())
    chosen = set(by_hash[:MOST_QUERIES])
    return [query_id for query_id in query_ids if query_id in chosen]


def judged_share(lists: Lists, qrels: Qrels | None, depth: int) -> float:
    """The share of the first `depth` documents of each query that have a judgment, a mean over
    queries; NaN without judgments."""
    if qrels is None or not lists:
        return math.nan
    return _mean(
        np.mean([doc_id in qrels.get(query_id, {}) for doc_id in doc_ids[:depth]])
        for query_id, doc_ids in lists.items()
        if doc_ids
    )


def _mean(values: Iterable[float | np.floating]) -> float:
    numbers = [float(value) for value in values]
    return float(np.mean(numbers)) if numbers else math.nan


def shared_documents(rows: Sequence[Agreement]) -> str:
    """The number of documents that two runs share in their first ten, a mean over systems; "" where
    two lists have no more documents, as all share them."""
    together = _mean(row.pooled for row in rows if not math.isnan(row.pooled))
    if not together > TOP:
        return ""
    shares = {
        "seeds of a system": [row.top_seeds for row in rows],
        "a system and the baseline": [row.top_baseline for row in rows],
    }
    parts = [
        f"{TOP * np.nanmean(own):.1f} between {pair}"
        for pair, own in shares.items()
        if not np.isnan(own).all()
    ]
    lists = f"two lists together contain {together:,.0f} documents"
    return f"Shared documents in the top {TOP}: {', '.join(parts)} ({lists})." if parts else ""
