"""The ranked lists of a sweep's trials, read a file at a time."""

from collections.abc import Collection
from functools import partial
from pathlib import Path

from pyarrow import ArrowInvalid, array, compute, csv, string

from rank_core.data.trec import read_qrels
from rank_core.errors import BadInput
from rank_core.records import Qrels
from rank_core.stats.matrix import ScoreMatrix
from sweeps.report.load import ListReader, Sweep
from sweeps.store.records import REMEDY
from sweeps.store.sweep_file import find_sweep

_COLUMNS = ("query_id", "q0", "doc_id", "rank", "score", "tag")
_WANTED = ("query_id", "doc_id")

Lists = dict[str, list[str]]
"""{query_id: doc_ids, best first}."""


def list_readers(sweep: Sweep, matrix: ScoreMatrix) -> dict[str, list[ListReader]]:
    """{cell: a function that reads the lists of its used seeds}, of cells whose runs are all
    here."""
    if sweep.third_party or sweep.lists:
        keys = {cell: [(cell, seed) for seed in matrix.seeds[cell]] for cell in matrix.cells}
        return {
            cell: [sweep.lists[key] for key in own]
            for cell, own in keys.items()
            if all(key in sweep.lists for key in own)
        }
    records = find_sweep(str(sweep.folder))
    files = {
        cell: [
            records.trial_folder(f"{cell}-seed{seed}") / f"{sweep.split}.run.gz"
            for seed in matrix.seeds[cell]
        ]
        for cell in matrix.cells
    }
    return {
        cell: [partial(read_lists, path) for path in own]
        for cell, own in files.items()
        if all(path.is_file() for path in own)
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
    lists: Lists = {}
    query_ids = array(list(queries), string())
    try:
        with csv.open_csv(
            path,
            read_options=csv.ReadOptions(column_names=_COLUMNS, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=" ", quote_char=False),
            convert_options=csv.ConvertOptions(
                include_columns=_WANTED, column_types=dict.fromkeys(_WANTED, string())
            ),
        ) as batches:
            for batch in batches:
                rows = batch.filter(compute.is_in(batch["query_id"], value_set=query_ids))
                for query_id, doc_id in zip(
                    rows["query_id"].to_pylist(), rows["doc_id"].to_pylist(), strict=True
                ):
                    lists.setdefault(query_id, []).append(doc_id)
    except (ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path} must be a run as its trial wrote it: {reason}; {REMEDY}") from None
    return lists
