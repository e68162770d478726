"""Judgments, queries and runs given as a file of any format, or as `ir:ID` of ir_datasets."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from rank_core.data import readers
from rank_core.data.ir_collections import PREFIX, IrSource
from rank_core.data.vocabulary import Fields
from rank_core.errors import BadInput
from rank_core.records import Qrels

RANKED = 1000
"""Documents per query used of an id's ranked lists."""


def absolute(name: str | Path) -> str:
    """A file's absolute path; an id is unchanged."""
    return str(name) if str(name).startswith(PREFIX) else os.path.abspath(name)


def source_of(name: str | Path, entity: str) -> IrSource | None:
    """The dataset of `ir:ID`; None for a file. Raises `BadInput` if it lacks `entity`."""
    if not str(name).startswith(PREFIX):
        return None
    source = IrSource(str(name).removeprefix(PREFIX))
    source.require(entity)
    return source


def named_digest(name: str | Path, entity: str) -> str | None:
    """16 hex digits that identify the content of `ir:ID`, a hash of the id; None for a file."""
    if source_of(name, entity) is None:
        return None
    return hashlib.sha256(f"{name} {entity}".encode()).hexdigest()[:16]


def named_qrels(
    name: str | Path, fields: Fields | None = None, queries: Mapping[str, str] | None = None
) -> Qrels:
    """The judgments of a file or an ir_datasets id. `fields` is None where a command has no
    `--fields`; a file may name `queries` by their texts."""
    source = source_of(name, "qrels")
    return source.qrels() if source else readers.qrels_of(Path(name), fields, queries)


def named_queries(name: str | Path, fields: Fields | None = None) -> dict[str, str]:
    """{query_id: text} of a file or an ir_datasets id."""
    source = source_of(name, "queries")
    return source.queries() if source else readers.queries_of(Path(name), fields)


def named_run(
    name: str | Path, fields: Fields | None = None
) -> Iterator[tuple[str, dict[str, float]]]:
    """(query_id, {doc_id: score}) of a run file, of the scores in a file of pairs, or of an id's
    ranked documents. `fields` is None where a command has no `--fields`."""
    source = source_of(name, "scoreddocs")
    if source is None and readers.is_pairs(Path(name), fields):
        yield from _pair_scores(Path(name), fields or {})
    elif source is None:
        yield from readers.run_of(Path(name), fields)
    elif (run := source.candidates(RANKED)) is None:
        raise BadInput(f"{name} has unordered documents, no ranked lists")
    else:
        yield from run.items()


def _pair_scores(path: Path, fields: Fields) -> Iterator[tuple[str, dict[str, float]]]:
    """The scores of a file of pairs; raises `BadInput` for texts without one."""
    run: dict[str, dict[str, float]] = {}
    for line in readers.pairs_of(path, fields):
        for passage in line.passages:
            if passage.score is None:
                raise BadInput(f"{line.place}: a teacher's file needs pos_scores and neg_scores")
            run.setdefault(line.query_id, {})[passage.doc_id] = passage.score
    yield from run.items()
