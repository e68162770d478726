"""The ranked lists of a sweep's runs, and how much of them two runs of the choice share."""

import hashlib
import math
import zlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import combinations, groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from rank_core.data.trec import read_qrels
from rank_core.errors import BadInput
from rank_core.records import Qrels
from rank_core.stats.matrix import ScoreMatrix
from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding, Unit
from sweeps.store.records import REMEDY, trial_name
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.load import Sweep
from sweeps.systems.system import ListReader

MOST_QUERIES = 1000
"""Of more queries, those with the smallest hashes of their ids are compared."""
TOP = 10
_AS_WRITTEN = (
    pyarrow.csv.ReadOptions(
        column_names=["query_id", "q0", "doc_id", "rank", "score", "tag"], block_size=1 << 24
    ),
    pyarrow.csv.ParseOptions(delimiter=" ", quote_char=False),
    pyarrow.csv.ConvertOptions(
        include_columns=["query_id", "doc_id"],
        column_types={"query_id": pa.string(), "doc_id": pa.string()},
    ),
)

Lists = dict[str, list[str]]
"""{query_id: doc_ids, best first}."""


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
        cell: [readers[key] for key in trials]
        for cell, trials in keys.items()
        if all(key in readers for key in trials)
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
    wanted = pa.array([*queries], pa.string())
    query_ids, doc_ids = list[str](), list[str]()
    try:
        with pyarrow.csv.open_csv(path, *_AS_WRITTEN) as parts:
            for part in parts:
                rows = part.filter(pc.is_in(part["query_id"], wanted))
                query_ids += rows["query_id"].to_pylist()
                doc_ids += rows["doc_id"].to_pylist()
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} must be a run as its trial wrote it: {error}; {REMEDY}") from None
    lists: Lists = {}
    for query_id, pairs in groupby(zip(query_ids, doc_ids, strict=True), itemgetter(0)):
        lists.setdefault(query_id, []).extend(doc_id for _, doc_id in pairs)
    return lists


def rows(analysis: Analysis) -> list[Finding]:
    """The documents that two runs of the choice share in their first ten."""
    sweep, choice = analysis.sweep, analysis.choice
    matrix = analysis.row_scores.plain.get(sweep.primary)
    if choice is None or matrix is None or choice.system not in matrix.cells:
        return []
    readers = list_readers(sweep, matrix).get(choice.system, [])
    if len(readers) < 2:
        return []
    queries = sampled(matrix.query_ids)
    lists = [read(queries) for read in readers]
    shared = [
        len({*one[query][:TOP]} & {*other[query][:TOP]})
        for one, other in combinations(lists, 2)
        for query in one.keys() & other.keys()
    ]
    if not shared or not any(len(documents) > TOP for run in lists for documents in run.values()):
        return []
    name = f"documents that two runs share in their first {TOP}"
    return [Finding("lists", name, choice.label, float(np.mean(shared)), unit=Unit.NUMBER)]


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
        sum(doc_id in qrels.get(query_id, {}) for doc_id in doc_ids) / len(doc_ids)
        for query_id, ranked in lists.items()
        if (doc_ids := ranked[:depth])
    )


def _mean(values: Iterable[float | np.floating]) -> float:
    numbers = [float(value) for value in values]
    return float(np.mean(numbers)) if numbers else math.nan
