"""From TREC runs to per-query values: on one query set, on pooled sets, on several collections."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from rank_core.data.trec import read_qrels, read_run
from rank_core.errors import BadInput
from rank_core.evaluate import per_query
from rank_core.records import Qrels, Run
from rank_core.stats.pooling import pool_query_sets

RunFiles = Path | Mapping[str, Path]
"""What one training run ranked: one file for all query sets, or {query set: its file}."""

Systems = Mapping[str, tuple[RunFiles, ...]]
"""{system: its training runs}; the k-th is the same training run on every query set."""


@dataclass
class Measured:
    """The values of every query set, and what was counted on the way."""

    tables: dict[str, pd.DataFrame]  # {query set: long per-query table}
    num_queries: dict[str, int]  # {query set: judged queries}
    notes: list[str] = field(default_factory=list)  # what was counted as 0 or left out
    tied: int = 0  # scores of judged queries that another document has as well


def measure_runs(
    systems: Systems, qrels: Mapping[str, Path], measures: Mapping[str, Sequence[str]]
) -> Measured:
    """Every run on the judged queries of every set; `measures` are those of each set."""
    judged = {name: read_qrels(path) for name, path in qrels.items()}
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in qrels}
    found = Measured(tables={}, num_queries={name: len(one) for name, one in judged.items()})
    for system, runs in systems.items():
        seen: dict[Path, tuple[int, Run]] = {}
        for seed, files in enumerate(runs, start=1):
            for path, sets in _sets_of_file(files, list(qrels)):
                run = _read(path, seed, seen, system)
                _check_apart(path, sets, judged)
                own = {name: _ranked(path, run, judged[name], qrels[name]) for name in sets}
                found.notes += _lost(path, run, {name: judged[name] for name in sets}, own)
                for name, ranked in own.items():
                    found.tied += sum(len(one) - len(set(one.values())) for one in ranked.values())
                    table = per_query(judged[name], _strict(ranked), measures[name])
                    # The split is the same for all sets: they are pooled as one.
                    parts[name].append(table.assign(cell=system, seed=seed, split="judged"))
    found.tables = {name: pd.concat(one, ignore_index=True) for name, one in parts.items()}
    return found


def pooled(found: Measured, sets: Sequence[str]) -> pd.DataFrame:
    """The table of one collection: its one query set, or all its sets keyed by (set, query_id)."""
    if len(sets) == 1:
        return found.tables[sets[0]]
    return pool_query_sets({name.rpartition("/")[2]: found.tables[name] for name in sets})


def _sets_of_file(files: RunFiles, names: list[str]) -> Iterator[tuple[Path, list[str]]]:
    """Every file of a training run once, with the query sets it answers."""
    if isinstance(files, Path):
        yield files, names
        return
    for path in dict.fromkeys(files[name] for name in names):
        yield path, [name for name in names if files[name] == path]


def _read(path: Path, seed: int, seen: dict[Path, tuple[int, Run]], system: str) -> Run:
    """The run of a file; refused if another training run of the system has the same content."""
    run = read_run(path)
    for other, (earlier, content) in seen.items():
        if earlier != seed and run == content:
            raise BadInput(
                f"the runs of a system must differ, but {path} has the content of {other} "
                f"({system}): a copy is no further training run"
            )
    seen[path] = (seed, run)
    return run


def _check_apart(path: Path, sets: Sequence[str], judged: Mapping[str, Qrels]) -> None:
    """One file for several sets is only right where no query id stands in two of them."""
    owner: dict[str, str] = {}
    for name in sets:
        for query_id in judged[name]:
            if query_id in owner:
                raise BadInput(
                    f"{path}: one run file for several query sets needs different query ids, but "
                    f"{owner[query_id]} and {name} both judge {query_id}; give one file per set, "
                    "with {set} in its name"
                )
            owner[query_id] = name


def _ranked(path: Path, run: Run, judged: Qrels, qrels: Path) -> Run:
    ranked = {query_id: run[query_id] for query_id in judged if query_id in run}
    if not ranked:
        raise BadInput(
            f"{path}: a run must rank queries that are judged; {qrels} judges none of its "
            f"{len(run)}"
        )
    return ranked


def _strict(ranked: Run) -> Run:
    """Tools break ties each in their own way: the order of `read_run` becomes the score."""
    return {
        query_id: {doc_id: float(-rank) for rank, doc_id in enumerate(scores)}
        for query_id, scores in ranked.items()
    }


def _lost(
    path: Path, run: Run, judged: Mapping[str, Qrels], ranked: Mapping[str, Run]
) -> Iterator[str]:
    """What was counted as 0, per set, and what was left out."""
    for name, queries in judged.items():
        where = f" of {name}" if len(judged) > 1 else ""
        if missing := len(queries) - len(ranked[name]):
            yield (
                f"{path.name}: {missing} judged {_queries(missing)}{where} without a result, "
                "counted as 0."
            )
    if extra := len(set(run).difference(*judged.values())):
        yield f"{path.name}: {extra} ranked {_queries(extra)} without a judgment, left out."


def _queries(count: int) -> str:
    return "query" if count == 1 else "queries"
