"""A collection read from a folder.

`docs.jsonl[.gz]` holds {doc_id, text, title (optional)}; each of `train`, `dev` and `test` holds
`queries.tsv`, `qrels.trec` and, as its first stage, at most one `*.run[.gz]`. Without a run file
the first stage is BM25 over all documents. All is read once per machine, into the cache, and
mapped from there. `spans.jsonl.gz` beside the
documents is optional; `python -m sweeps doctor` and `positional_bias.py` read it (`spans`).
"""

import functools
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rank_core import first_stage
from rank_core.cache import cached_directory
from rank_core.data.disk.document_store import (
    HASH,
    STORE_VERSION,
    DocumentStore,
    stored_documents,
)
from rank_core.data.disk.split_store import open_split, write_split
from rank_core.data.trec import (
    iter_run,
    open_content,
    read_lines,
    read_qrels,
    read_queries,
    read_run,
    require_identifier,
    write_run,
)
from rank_core.errors import BadInput, shown
from rank_core.progress import reported
from rank_core.records import Collection, Qrels

LAYOUT_VERSION = 1
BLOCK = 1 << 20
SPLITS = ("train", "dev", "test")
LAYOUT = (
    "a collection folder holds docs.jsonl or docs.jsonl.gz and, in each of train, dev and test, "
    "queries.tsv, qrels.trec and at most one *.run or *.run.gz; spans.jsonl.gz beside docs "
    "may say where in a document the relevant text stands"
)


FileState = tuple[str, int, int]
"""(path, bytes, time of the last change in ns) of a file."""


class _SplitFiles(NamedTuple):
    queries: Path
    qrels: Path
    run: Path | None


class _Files(NamedTuple):
    """The files of a collection; hashable, so that it can name a cache entry."""

    folder: Path
    documents: Path
    splits: tuple[tuple[str, _SplitFiles], ...]

    def paths(self) -> list[Path]:
        of_splits = [path for _, files in self.splits for path in files if path is not None]
        return [self.documents, *of_splits]


def load_folder(folder: Path) -> Collection:
    """The collection of a folder, named like it; kept in memory until one of its files changes."""
    files = _find_files(Path(folder).expanduser().resolve())
    return _load(files, tuple(map(_state, files.paths())))


@functools.lru_cache(maxsize=4)
def _load(files: _Files, states: tuple[FileState, ...]) -> Collection:
    """`states` name the contents of the files: those of a state are read once per machine."""
    documents = stored_documents(
        _digest_of(str(STORE_VERSION), states[0]),
        lambda: iter_documents(files.documents),
        source=str(files.documents),
        repeated=functools.partial(_refuse_repeated, files.documents),
    )
    recipe = [first_stage.recipe(), first_stage.DEPTH, first_stage.K1, first_stage.B]
    key = _digest_of(LAYOUT_VERSION, recipe, states)
    folder = cached_directory(
        "collections",
        f"{files.folder.name}-{key}",
        lambda folder: _build(folder, files, documents),
    )
    splits = {name: open_split(folder / name, documents) for name in SPLITS}
    content_hash = (folder / HASH).read_text(encoding="ascii")
    return Collection(files.folder.name, content_hash, documents, splits)


def _build(folder: Path, files: _Files, documents: DocumentStore) -> None:
    """Writes the splits of a collection in our own layout."""
    contents = {str(path.relative_to(files.folder)): path for path in files.paths()}
    judged = {
        name: _read_judged(split.queries, split.qrels, documents) for name, split in files.splits
    }
    _refuse_shared_queries(files)
    runs = {name: split.run for name, split in files.splits if split.run is not None}
    candidates = {
        name: _candidates(path, dict(files.splits)[name].queries, documents)
        for name, path in runs.items()
    }
    without = {name: queries for name, (queries, _) in judged.items() if name not in runs}
    if without:
        documents_hash = _content_hash({"docs": files.documents})
        for name, path in _bm25_runs(documents, without, documents_hash).items():
            candidates[name] = iter_run(path)
            contents[f"{name}/{path.name}"] = path
    for name, (queries, qrels) in judged.items():
        write_split(folder / name, queries, qrels, candidates[name], documents)
    content_hash = _content_hash({name.removesuffix(".gz"): contents[name] for name in contents})
    (folder / HASH).write_text(content_hash[:16], encoding="ascii")


def _find_files(folder: Path) -> _Files:
    """Where the collection's files are; one error names everything that is missing."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise BadInput(f"{folder} must be a folder, found {found}; {LAYOUT}")
    missing = []
    documents = [
        path for path in (folder / "docs.jsonl", folder / "docs.jsonl.gz") if _is_there(path)
    ]
    if not documents:
        missing.append("docs.jsonl (or docs.jsonl.gz)")
    splits = []
    for name in SPLITS:
        required = (folder / name / "queries.tsv", folder / name / "qrels.trec")
        missing += [f"{name}/{path.name}" for path in required if not _is_there(path)]
        runs = sorted([*folder.glob(f"{name}/*.run"), *folder.glob(f"{name}/*.run.gz")])
        runs = [path for path in runs if _is_there(path)]
        _refuse_several(f"{folder / name}: a split", "run file", runs)
        splits.append((name, _SplitFiles(*required, run=runs[0] if runs else None)))
    if missing:
        raise BadInput(f"{folder} lacks {', '.join(missing)}; {LAYOUT}")
    _refuse_several(f"{folder}: a collection", "file of documents", documents)
    return _Files(folder, documents[0], tuple(splits))


def _is_there(path: Path) -> bool:
    """Whether a file has this name; refused is whatever has it and can be no file of ours."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            target = path.readlink()
            raise BadInput(
                f"{path} must be a file, found a symbolic link to nowhere ({target})"
            ) from None
        return False
    except OSError as error:  # a loop of links, a folder that we may not enter
        raise BadInput(f"{path} must be readable: {error.strerror or error}") from None
    if not stat.S_ISREG(mode):
        found = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"
        raise BadInput(f"{path} must be a file, found {found}")
    return True


def _refuse_several(owner: str, kind: str, paths: list[Path]) -> None:
    if len(paths) > 1:
        names = " and ".join(path.name for path in paths)
        raise BadInput(f"{owner} may have one {kind}, found {names}; remove all but one")


def _read_judged(
    queries_path: Path, qrels_path: Path, documents: Mapping[str, str]
) -> tuple[dict[str, str], Qrels]:
    """The queries that have judgments, in the order of their file, and these judgments."""
    queries, qrels = read_queries(queries_path), read_qrels(qrels_path)
    if not queries:
        raise BadInput(f"{queries_path} must hold at least one query, found none")
    _require_known("query", qrels, queries, qrels_path, column=0, source=queries_path.name)
    judged_ids = (doc_id for judged in qrels.values() for doc_id in judged)
    _require_known("document", judged_ids, documents, qrels_path, column=2, source="the documents")
    if not any(relevance > 0 for judged in qrels.values() for relevance in judged.values()):
        raise BadInput(f"{qrels_path} must judge a document relevant (above 0) for some query")
    judged_queries = {query_id: text for query_id, text in queries.items() if query_id in qrels}
    return judged_queries, {query_id: qrels[query_id] for query_id in judged_queries}


def _candidates(
    path: Path, queries_path: Path, documents: DocumentStore
) -> Iterator[tuple[str, dict[str, float]]]:
    """The queries of a run file and their candidates; refuses names that the collection lacks."""
    queries, found = read_queries(queries_path), False
    for query_id, ranked in reported(iter_run(path), str(path), total=len(queries)):
        found = True
        if query_id not in queries or (documents.rows(list(ranked)) < 0).any():
            run = read_run(path)
            _require_known("query", run, queries, path, column=0, source=queries_path.name)
            names = (doc_id for of_query in run.values() for doc_id in of_query)
            _require_known("document", names, documents, path, column=2, source="the documents")
        yield query_id, ranked
    if not found:
        raise BadInput(
            f"{path} must rank a document for some query, found no line; without the file the "
            "first stage is BM25"
        )


def _require_known(
    kind: str,
    names: Iterable[str],
    known: Mapping[str, str],
    path: Path,
    *,
    column: int,
    source: str,
) -> None:
    """Refuse a name that `known` lacks, at the first line of `path` that has it."""
    distinct = dict.fromkeys(names)
    strange = [name for name in distinct if name not in known]
    if not strange:
        return
    lines = ((number, line.split()[column]) for number, line in read_lines(path))
    number, name = next(item for item in lines if item[1] not in known)
    message = f"{path}:{number}: a {kind} must be in {source}, found {shown(name)}"
    if len(distinct) > 1 and 2 * len(strange) > len(distinct):
        message += (
            f"; {len(strange)} of {len(distinct)} are not: a file of another collection or split?"
        )
    raise BadInput(message)


def _refuse_shared_queries(files: _Files) -> None:
    """A query of two splits would let training see what is measured."""
    owners: dict[str, Path] = {}
    for _, split in files.splits:
        for query_id in read_queries(split.queries):
            if query_id in owners:
                places = [
                    f"{path}:{next(n for n, line in read_lines(path) if _id_of(line) == query_id)}"
                    for path in (split.queries, owners[query_id])
                ]
                raise BadInput(
                    f"{places[0]}: a query_id may be in one split only, found {query_id!r} in "
                    f"{places[1]} as well"
                )
            owners[query_id] = split.queries


def _id_of(line: str) -> str:
    return line.partition("\t")[0].strip()


def _bm25_runs(
    documents: Mapping[str, str], queries: Mapping[str, Mapping[str, str]], documents_hash: str
) -> dict[str, Path]:
    """{split: its BM25 run file}, built once for these documents and queries."""
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


def _content_hash(files: Mapping[str, Path]) -> str:
    """A hash of named contents that no other split into names and contents shares."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\n{_size(files[name])}\n".encode())
        with open_content(files[name]) as stream:
            for block in iter(functools.partial(stream.read, BLOCK), b""):
                digest.update(block)
    return digest.hexdigest()


def _size(path: Path) -> int:
    """Bytes of a file's content."""
    with open_content(path) as stream:
        return stream.seek(0, os.SEEK_END)


def _digest_of(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _state(path: Path) -> FileState:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns


def iter_documents(path: Path) -> Iterator[tuple[str, str]]:
    """(doc_id, title, newline and text) of each line."""
    return (_parse_document(line, f"{path}:{number}") for number, line in read_lines(path))


def _refuse_repeated(path: Path, doc_id: str) -> NoReturn:
    """Names the lines of a doc_id that occurs twice."""
    names = ((number, _parse_document(line, "")[0]) for number, line in read_lines(path))
    first, second, *_ = (number for number, name in names if name == doc_id)
    raise BadInput(
        f"{path}:{second}: a doc_id may occur once, found {doc_id!r} in lines {first} and {second}"
    )


def _parse_document(line: str, place: str) -> tuple[str, str]:
    law = f"{place}: a line must be one JSON object"
    try:
        record = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        raise BadInput(f"{law}: {error.msg} at character {error.colno}") from None
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond all bounds
        raise BadInput(f"{law}: {shown(str(error))}") from None
    if not isinstance(record, dict):
        raise BadInput(f"{law}, found {type(record).__name__}")
    for field in ("doc_id", "text"):
        if field not in record:
            known = ", ".join(name if name.isidentifier() else shown(name) for name in record)
            raise BadInput(
                f"{place}: a document must have doc_id and text, found {known or 'no field'}"
            )
    doc_id, text = _text(record, "doc_id", place), _text(record, "text", place)
    require_identifier(place, "doc_id", doc_id)
    if record.get("title") is not None:
        text = f"{_text(record, 'title', place)}\n{text}"
    if not text.strip():
        raise BadInput(f"{place}: a document must not be empty, found document {doc_id!r}")
    return doc_id, text


def _text(record: dict[str, Any], field: str, place: str) -> str:
    value = record[field]
    if not isinstance(value, str):
        # What is nested may be nested too deep to be written.
        kind = "an object" if isinstance(value, dict) else "a list"
        found = kind if isinstance(value, dict | list) and value else json.dumps(value)[:80]
        raise BadInput(f"{place}: {field} must be a text, found {found}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{place}: {field} must be valid Unicode, found half of a surrogate pair "
            f"at character {error.start}"
        ) from None
    return value


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object; JSON lets a later one of the same name replace the first."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a field stands in it twice")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_fields)
