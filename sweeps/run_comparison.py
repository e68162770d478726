"""Any TREC runs as systems and seeds: measured on judged queries, tested against a baseline."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rank_core.data.collection import Qrels, Run
from rank_core.data.trec import read_qrels, read_run
from rank_core.errors import BadInput, unknown
from rank_core.evaluate import parse_measure, per_query
from rank_core.stats.compare import Comparison, compare
from rank_core.stats.matrix import ScoreMatrix, score_matrix
from rank_core.table import ResultCell, ResultRow

MEASURES = ("nDCG@10", "RR@10")


@dataclass(frozen=True)
class RunComparison:
    """Systems given as runs, compared with one of them on every measure."""

    systems: Mapping[str, tuple[Path, ...]]
    qrels: Path
    baseline: str
    measures: tuple[str, ...]
    alpha: float
    num_queries: int
    comparisons: list[Comparison]
    rows: list[ResultRow]
    notes: list[str]  # what was counted as 0 or left out
    tied: int  # scores of judged queries that another document has as well
    deterministic: tuple[str, ...] = ()

    @property
    def single(self) -> list[str]:
        """Systems with one run, about whose training nothing is known."""
        return [
            name
            for name, runs in self.systems.items()
            if len(runs) == 1 and name not in self.deterministic
        ]


def compare_runs(
    systems: Mapping[str, tuple[Path, ...]],
    qrels: Path,
    *,
    baseline: str | None = None,
    measures: Sequence[str] = MEASURES,
    alpha: float = 0.05,
    correction: str = "holm",
    deterministic: Collection[str] = (),
) -> RunComparison:
    """Measure every run on the judged queries and test every system against the baseline.

    `deterministic` names systems (BM25) whose one run is declared to be the only one there is.
    """
    baseline = next(iter(systems)) if baseline is None else baseline
    if baseline not in systems:
        raise unknown("baseline", baseline, systems)
    measures = tuple(dict.fromkeys(measures))
    for measure in measures:
        parse_measure(measure)
    judged = read_qrels(qrels)
    if len(judged) < 2:
        raise BadInput(f"{qrels}: a test needs two judged queries or more, found {len(judged)}")
    scores, notes, tied = _scores(systems, judged, qrels, measures)
    matrices = [score_matrix(scores, measure=one, cells=list(systems)) for one in measures]
    comparisons = [
        one
        for matrix in matrices
        for one in compare(
            matrix,
            baseline=baseline,
            correction=correction,
            alpha=alpha,
            deterministic=deterministic,
        )
    ]
    return RunComparison(
        systems=systems,
        qrels=qrels,
        baseline=baseline,
        measures=measures,
        alpha=alpha,
        num_queries=len(judged),
        comparisons=comparisons,
        rows=[_row(name, matrices, comparisons, name == baseline) for name in systems],
        notes=notes,
        tied=tied,
        deterministic=tuple(name for name in systems if name in deterministic),
    )


def _scores(
    systems: Mapping[str, tuple[Path, ...]], judged: Qrels, qrels: Path, measures: Sequence[str]
) -> tuple[pd.DataFrame, list[str], int]:
    """The long per-query table of all runs, what was counted as 0 or left out, and tied scores."""
    tables, notes, tied = [], [], 0
    for name, paths in systems.items():
        seen: dict[Path, Run] = {}
        for seed, path in enumerate(paths, start=1):
            run = read_run(path)
            for other, earlier in seen.items():
                if run == earlier:
                    raise BadInput(
                        f"the runs of a system must differ, but {path} has the content of {other} "
                        f"({name}): a copy is no further training run"
                    )
            seen[path] = run
            ranked = {query_id: run[query_id] for query_id in judged if query_id in run}
            if not ranked:
                raise BadInput(
                    f"{path}: a run must rank queries that are judged; {qrels} judges none of its "
                    f"{len(run)}"
                )
            tied += sum(len(scores) - len(set(scores.values())) for scores in ranked.values())
            notes += _lost(path, missing=len(judged) - len(ranked), extra=len(run) - len(ranked))
            # Tools break ties each in their own way: the order of `read_run` becomes the score.
            strict: Run = {
                query_id: {doc_id: float(-rank) for rank, doc_id in enumerate(scores)}
                for query_id, scores in ranked.items()
            }
            table = per_query(judged, strict, measures)
            tables.append(table.assign(cell=name, seed=seed, split=qrels.name))
    return pd.concat(tables, ignore_index=True), notes, tied


def _lost(path: Path, *, missing: int, extra: int) -> list[str]:
    counts = (
        (missing, "judged", "without a result, counted as 0"),
        (extra, "ranked", "without a judgment, left out"),
    )
    return [
        f"{path.name}: {count} {kind} {'query' if count == 1 else 'queries'} {what}."
        for count, kind, what in counts
        if count
    ]


def _row(
    name: str, matrices: list[ScoreMatrix], comparisons: list[Comparison], is_baseline: bool
) -> ResultRow:
    by_measure = {one.measure: one for one in comparisons if one.system == name}
    num_runs = len(matrices[0].seeds[name])
    cells = []
    for matrix in matrices:
        mean_S = matrix.scores[name].mean(axis=1)
        deviation = float(np.std(mean_S, ddof=1)) if num_runs > 1 else math.nan
        comparison = by_measure.get(matrix.measure)
        cells.append(ResultCell(matrix.measure, float(mean_S.mean()), deviation, comparison))
    return ResultRow(name, "", name, is_baseline, num_runs, num_runs, tuple(cells))
