"""The agreement of runs: the overlap of two runs of a system, and of runs of two systems."""

import dataclasses
import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from rank_core.evaluate import parse_measure
from rank_core.records import Qrels
from rank_core.stats.agreement import Ranks, rank_biased_overlap, ranks, top_overlap
from rank_core.stats.matrix import ScoreMatrix
from sweeps.report.load import Sweep
from sweeps.report.query_page import QUERY_PAGE, moved_text
from sweeps.report.runs import Lists, judgments, list_readers
from sweeps.report.sections.section import Findings, Section

MOST_QUERIES = 1000
"""Of more queries, those with the smallest hashes of their ids are compared."""
TOP = 10


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


def section(findings: Findings) -> Section | None:
    """One line, and the link to the queries that moved; None where fewer than two runs are on this
    machine."""
    analysis = findings.analysis
    matrix = analysis.matrices.get(analysis.sweep.primary)
    rows = [] if matrix is None else agreements(analysis.sweep, matrix)
    if sum(row.num_runs for row in rows) < 2:
        return None
    moved = moved_text(analysis, findings.queries)
    return Section(
        "Agreement of runs",
        note=_shared_documents(rows),
        link=(QUERY_PAGE, moved) if moved else None,
        results={"agreement": [dataclasses.asdict(row) for row in rows]},
    )


def agreements(sweep: Sweep, matrix: ScoreMatrix) -> list[Agreement]:
    """Every cell whose runs are here, in the order of the matrix; the runs of at most two cells are
    in memory."""
    files = list_readers(sweep, matrix)
    queries = sampled(matrix.query_ids)
    places: dict[str, dict[str, int]] = defaultdict(dict)
    qrels = judgments(sweep) if files else None

    def read(cell: str) -> tuple[list[Ranks], float]:
        lists = [read_run(queries) for read_run in files.get(cell, [])]
        shares = [judged_share(run, qrels, judged_depth(sweep.primary)) for run in lists]
        return [ranks(run, queries, places) for run in lists], _mean(shares)

    base, base_judged = read(sweep.baseline)
    rows = []
    for cell in files:
        if cell == sweep.baseline:
            own, judged, others = base, base_judged, []
        else:
            (own, judged), others = read(cell), base
        seeds, between = list(combinations(own, 2)), list(product(own, others))
        rows.append(
            Agreement(
                cell=cell,
                num_runs=len(own),
                rbo_seeds=_mean(np.nanmean(rank_biased_overlap(*pair)) for pair in seeds),
                top_seeds=_mean(np.nanmean(top_overlap(*pair, TOP)) for pair in seeds),
                rbo_baseline=_mean(np.nanmean(rank_biased_overlap(*pair)) for pair in between),
                top_baseline=_mean(np.nanmean(top_overlap(*pair, TOP)) for pair in between),
                judged=judged,
            )
        )
    return rows


def sampled(query_ids: Sequence[str]) -> list[str]:
    """At most `MOST_QUERIES` of the queries, the same ones in every report."""
    by_hash = sorted(query_ids, key=lambda query_id: hashlib.sha256(query_id.encode()).digest())
    chosen = set(by_hash[:MOST_QUERIES])
    return [query_id for query_id in query_ids if query_id in chosen]


def judged_depth(measure: str) -> int:
    """The cutoff of the measure; `TOP` where it has none."""
    return int(parse_measure(measure).params.get("cutoff", TOP))


def judged_share(lists: Lists, qrels: Qrels | None, depth: int) -> float:
    """The share of the first `depth` documents of each query that have a judgment, a mean over
    queries; NaN without judgments."""
    if qrels is None or not lists:
        return math.nan
    return _mean(
        np.mean([doc_id in qrels.get(query_id, {}) for doc_id in doc_ids[:depth]])
        for query_id, doc_ids in lists.items()
    )


def _mean(values: Iterable[float | np.floating]) -> float:
    numbers = [float(value) for value in values]
    return float(np.mean(numbers)) if numbers else math.nan


def _shared_documents(rows: Sequence[Agreement]) -> str:
    """The number of documents that two runs share in their first ten, a mean over systems."""
    own = [row.top_seeds for row in rows if not math.isnan(row.top_seeds)]
    crossed = [row.top_baseline for row in rows if not math.isnan(row.top_baseline)]
    parts = [
        f"{TOP * _mean(values):.1f} documents between {pair}"
        for pair, values in (("seeds of a system", own), ("a system and the baseline", crossed))
        if values
    ]
    return f"Shared top {TOP}: {', '.join(parts)}." if parts else ""
