"""Collections read from a folder, in our layout or BEIR's.

Ours: `docs.jsonl` has {doc_id, text, title (optional)}; each of `train`, `dev` and `test` has
`queries.tsv`, `qrels.trec` and optionally a first stage, `*.run[.gz]`; without it, candidates come
from BM25 over all documents. BEIR's: `corpus.jsonl`, `queries.jsonl` and
`qrels/{train,dev,test}.tsv`, not all of them required. Other file formats are possible
(`rank_core.data.readers.records`; docs/data.md). Everything is read once per machine, cached and
memory-mapped. The optional `spans.jsonl.gz` beside the documents is for `ranksweep doctor` and
`positional_bias.py` (see `spans`).
"""

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

from rank_core import first_stage
from rank_core.cache import cached_directory
from rank_core.data.disk.document_store import HASH, STORE_VERSION, DocumentStore, stored_documents
from rank_core.data.disk.split_store import Splits, open_split, write_split
from rank_core.data.readers.records import (
    KINDS,
    TREC,
    Fields,
    judgment_rows,
    queries_of,
    table_files,
)
from rank_core.data.readers.records import documents as read_documents
from rank_core.data.trec import gathered_qrels, iter_run, open_content, read_lines, write_run
from rank_core.errors import BadInput, shown
from rank_core.progress import reported
from rank_core.records import Collection, Qrels

LAYOUT_VERSION = 2
BLOCK = 1 << 20
SPLITS = ("train", "dev", "test")
LAYOUT = (
    "a collection folder has docs.jsonl[.gz] and, in each of train, dev and test, queries.tsv, "
    "qrels.trec and at most one *.run[.gz]; or BEIR's layout; see docs/data.md"
)
CORPUS, JUDGMENTS = "corpus", "qrels"
"""BEIR's names of the documents and of the folder of judgments."""
CALLED = {"train": ("train",), "dev": ("dev", "validation"), "test": ("test",)}
"""{split: names of its judgments' file in BEIR's layout}."""


FileState = tuple[str, int, int]
"""(path, bytes, time of last change in ns) of a file."""


class _SplitFiles(NamedTuple):
    queries: Path
    qrels: Path
    run: Path | None


class _Files(NamedTuple):
    """The tables of a collection; hashable, because it is part of a cache key."""

    folder: Path
    documents: Path
    splits: tuple[tuple[str, _SplitFiles], ...]
    fields: tuple[tuple[str, str], ...] = ()

    def paths(self) -> list[Path]:
        tables = [path for _, files in self.splits for path in files if path is not None]
        return [part for table in (self.documents, *tables) for part in table_files(table)]


def load_folder(folder: Path, fields: Fields | None = None) -> Collection:
    """The collection of a folder, named after it; cached in memory until one of its files changes.
    `fields` maps the files' own field names to the known ones. Raises `BadInput` for missing or
    invalid files."""
    files = _find_files(Path(folder).expanduser().resolve())
    files = files._replace(fields=tuple((fields or {}).items()))
    return _load(files, tuple(map(_state, files.paths())))


@functools.lru_cache(maxsize=4)
def _load(files: _Files, states: tuple[FileState, ...]) -> Collection:
    """`states` stand for the contents of the files, which are read once per machine and state."""
    fields, parts = dict(files.fields), len(table_files(files.documents))
    state = [str(STORE_VERSION), *states[:parts], *([files.fields] if fields else [])]
    documents = stored_documents(
        _digest_of(*state),
        lambda: ((doc_id, text) for _, doc_id, text in read_documents(files.documents, fields)),
        source=str(files.documents),
        repeated=functools.partial(_refuse_repeated, files.documents, fields),
    )
    recipe = [first_stage.recipe(), first_stage.DEPTH, first_stage.K1, first_stage.B]
    key = _digest_of(LAYOUT_VERSION, recipe, states, *([files.fields] if fields else []))
    folder = cached_directory(
        "collections", f"{files.folder.name}-{key}", lambda folder: _build(folder, files, documents)
    )
    splits = {name: open_split(folder / name, documents) for name, _ in files.splits}
    content_hash = (folder / HASH).read_text(encoding="ascii")
    name = files.folder.name
    ranker = _first_stage(files)
    return Collection(name, content_hash, documents, Splits(name, splits), ranker)


def _first_stage(files: _Files) -> str:
    """The ranker of the candidates: the common prefix of the run files' names, or BM25."""
    runs = [split.run for _, split in files.splits]
    names = {run.name.partition(".")[0] if run else "bm25" for run in runs}
    names = {"BM25" if name.lower() == "bm25" else name for name in names}
    return names.pop() if len(names) == 1 else ""


def _build(folder: Path, files: _Files, documents: DocumentStore) -> None:
    contents = {str(path.relative_to(files.folder)): path for path in files.paths()}
    fields = dict(files.fields)
    judged = {name: _read_judged(split, documents, fields) for name, split in files.splits}
    _refuse_shared_queries(judged, files)
    runs = {name: split.run for name, split in files.splits if split.run is not None}
    candidates = {
        name: _candidates(path, queries_of(dict(files.splits)[name].queries, fields), documents)
        for name, path in runs.items()
    }
    without = {name: queries for name, (queries, _) in judged.items() if name not in runs}
    if without:
        first, *others = table_files(files.documents)
        parts = {"docs": first} | {f"docs/{path.name}": path for path in others}
        documents_hash = _content_hash(parts, files.fields)
        for name, path in bm25_runs(documents, without, documents_hash).items():
            candidates[name] = iter_run(path)
            contents[f"{name}/{path.name}"] = path
    for name, (queries, qrels) in judged.items():
        write_split(folder / name, queries, qrels, candidates[name], documents)
    named = {name.removesuffix(".gz"): contents[name] for name in contents}
    content_hash = _content_hash(named, files.fields)
    (folder / HASH).write_text(content_hash[:16], encoding="ascii")


def _find_files(folder: Path) -> _Files:
    """The paths of the collection's files; raises one `BadInput` with everything that is
    missing."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise BadInput(f"{folder} {what}; {LAYOUT}")
    corpus = _tables(folder, CORPUS, KINDS)
    return _beir_files(folder, corpus) if corpus else _own_files(folder)


def _own_files(folder: Path) -> _Files:
    missing = []
    documents = _tables(folder, "docs", KINDS)
    if not documents:
        missing.append("docs.jsonl (or docs.jsonl.gz)")
    splits = []
    for name in SPLITS:
        tables = []
        for stem, usual in (("queries", ".tsv"), ("qrels", ".trec")):
            kinds = KINDS if stem == "queries" else (*TREC, *KINDS)
            matches = _tables(folder / name, stem, kinds)
            if not matches:
                missing.append(f"{name}/{stem}{usual}")
            _refuse_several(f"{folder / name}: a split", f"file of {stem}", matches)
            tables.append(matches[0] if matches else folder)
        runs = sorted([*folder.glob(f"{name}/*.run"), *folder.glob(f"{name}/*.run.gz")])
        _refuse_several(f"{folder / name}: a split", "run file", runs)
        splits.append((name, _SplitFiles(tables[0], tables[1], runs[0] if runs else None)))
    if missing:
        raise BadInput(f"{folder} lacks {', '.join(missing)}; {LAYOUT}")
    _refuse_several(f"{folder}: a collection", "file of documents", documents)
    return _Files(folder, documents[0], tuple(splits))


def _beir_files(folder: Path, corpus: list[Path]) -> _Files:
    _refuse_several(f"{folder}: a collection", "corpus", corpus)
    queries = _tables(folder, "queries", KINDS)
    _refuse_several(f"{folder}: a collection", "file of queries", queries)
    splits = []
    for name in SPLITS:
        kinds = (*TREC, *KINDS)
        tables = [
            path for stem in CALLED[name] for path in _tables(folder / JUDGMENTS, stem, kinds)
        ]
        _refuse_several(f"{folder / JUDGMENTS}: a split", "file of judgments", tables)
        splits += [(name, table) for table in tables]
    if not queries or not splits:
        lacking = "a qrels/{train,dev,test}.tsv" if queries else "queries.jsonl"
        raise BadInput(
            f"{folder} lacks {lacking} beside {corpus[0].name} (BEIR's layout); {LAYOUT}"
        )
    with_queries = tuple((name, _SplitFiles(queries[0], table, None)) for name, table in splits)
    return _Files(folder, corpus[0], with_queries)


def _tables(folder: Path, stem: str, kinds: tuple[str, ...]) -> list[Path]:
    """The tables called `stem`: files of the given kinds, or a folder of files."""
    files = [path for kind in kinds if (path := folder / f"{stem}{kind}").is_file()]
    return [*files, folder / stem] if (folder / stem).is_dir() else files


def _refuse_several(owner: str, kind: str, paths: list[Path]) -> None:
    if len(paths) > 1:
        names = " and ".join(path.name for path in paths)
        raise BadInput(f"{owner} may have only one {kind}, found {names}; remove the others")


def _read_judged(
    split: _SplitFiles, documents: Mapping[str, str], fields: Fields
) -> tuple[dict[str, str], Qrels]:
    """The judged queries, in file order, and their judgments."""
    queries = queries_of(split.queries, fields)
    if not queries:
        raise BadInput(f"{split.queries} has no queries")

    def known() -> Iterator[tuple[str, str, str, str]]:
        for place, query_id, doc_id, relevance in judgment_rows(split.qrels, fields):
            _require_known(place, "query", query_id, queries, split.queries.name)
            _require_known(place, "document", doc_id, documents, "the documents")
            yield place, query_id, doc_id, relevance

    qrels = gathered_qrels(known())
    if not any(relevance > 0 for judged in qrels.values() for relevance in judged.values()):
        raise BadInput(f"{split.qrels} has no relevant document (relevance above 0)")
    judged_queries = {query_id: text for query_id, text in queries.items() if query_id in qrels}
    return judged_queries, {query_id: qrels[query_id] for query_id in judged_queries}


def _candidates(
    path: Path, queries: Mapping[str, str], documents: DocumentStore
) -> Iterator[tuple[str, dict[str, float]]]:
    """The queries of a run file with their candidates; raises `BadInput` for unknown ids."""
    empty = True
    for query_id, ranked in reported(iter_run(path), str(path), total=len(queries)):
        empty = False
        if query_id not in queries or (documents.rows(ranked) < 0).any():
            for number, line in read_lines(path):
                place, (query_id, _, doc_id, *_) = f"{path}:{number}", line.split()
                _require_known(place, "query", query_id, queries, "the queries")
                _require_known(place, "document", doc_id, documents, "the documents")
        yield query_id, ranked
    if empty:
        raise BadInput(f"{path} has no lines; without the file, BM25 is the first stage")


def _require_known(place: str, kind: str, name: str, known: Mapping[str, str], source: str) -> None:
    if name not in known:
        raise BadInput(
            f"{place}: unknown {kind} {shown(name)}, which is not in {source}; is this file of "
            "another collection or split?"
        )


def _refuse_shared_queries(
    judged: Mapping[str, tuple[dict[str, str], Qrels]], files: _Files
) -> None:
    """Raises `BadInput` for a judged query of two splits: it could be trained on and tested."""
    owners: dict[str, Path] = {}
    for name, split in files.splits:
        for query_id in judged[name][1]:
            if query_id in owners:
                raise BadInput(
                    f"{split.qrels}: query {query_id!r} is also in {owners[query_id]}; a query may "
                    "be in only one split"
                )
            owners[query_id] = split.qrels


def bm25_runs(
    documents: Mapping[str, str], queries: Mapping[str, Mapping[str, str]], documents_hash: str
) -> dict[str, Path]:
    """{split: path of its BM25 run}, for {split: queries}; built once for these documents."""
    recipe = [first_stage.recipe(), first_stage.DEPTH, first_stage.K1, first_stage.B]
    key = _digest_of(recipe, documents_hash, queries)
    file_name = f"bm25.top{first_stage.DEPTH}.run.gz"

    def build(folder: Path) -> None:
        together = {
            query_id: text for split in queries.values() for query_id, text in split.items()
        }
        run = first_stage.Bm25Index(documents).run(together)
        for name, of_split in queries.items():
            (folder / name).mkdir()
            part = {query_id: run[query_id] for query_id in of_split}
            write_run(folder / name / file_name, part, tag="bm25")

    folder = cached_directory("first-stage", key, build)
    return {name: folder / name / file_name for name in queries}


def _content_hash(files: Mapping[str, Path], fields: Iterable[tuple[str, str]] = ()) -> str:
    """A hash that is unambiguous about names and contents."""
    digest = hashlib.sha256(b"".join(f"{name}\n".encode() for pair in fields for name in pair))
    for name in sorted(files):
        digest.update(f"{name}\n{_size(files[name])}\n".encode())
        with open_content(files[name]) as stream:
            for block in iter(functools.partial(stream.read, BLOCK), b""):
                digest.update(block)
    return digest.hexdigest()


def _size(path: Path) -> int:
    with open_content(path) as stream:
        return stream.seek(0, os.SEEK_END)


def _digest_of(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _state(path: Path) -> FileState:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns


def _refuse_repeated(path: Path, fields: Fields, doc_id: str) -> NoReturn:
    """Raises `BadInput` with the places of a duplicate doc_id."""
    first, second, *_ = (place for place, name, _ in read_documents(path, fields) if name == doc_id)
    raise BadInput(f"{second}: doc_id {doc_id!r} is a duplicate of {first}")
