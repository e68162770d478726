"""Collections read from a folder, in our layout or BEIR's.

Ours: `docs.jsonl` has {doc_id, text, title (optional)}; each of `train`, `dev` and `test` has
`queries.tsv`, `qrels.trec` and optionally a first stage, `*.run[.gz]`; without it, candidates come
from BM25 over all documents. BEIR's: `corpus.jsonl`, `queries.jsonl` and
`qrels/{train,dev,test}.tsv`, not all of them required. In both `train.jsonl` of {query, pos, neg},
as well as `dev` and `test`, may stand in place of a split. A trial that needs a split which is
absent says so. Other file formats are possible (`rank_core.data.readers`; docs/data.md).
Everything is read once per machine, cached and memory-mapped. The optional `spans.jsonl.gz` beside
the documents is for `ranksweep doctor` and `positional_bias.py` (see `spans`).
"""

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

from rank_core import first_stage
from rank_core.cache import cached_directory
from rank_core.data.readers import (
    KINDS,
    Fields,
    gathered_groups,
    group_rows,
    judgment_rows,
    pairs_of,
    queries_of,
)
from rank_core.data.readers import documents as read_documents
from rank_core.data.store import (
    HASH,
    STORE_VERSION,
    DocumentStore,
    Splits,
    open_split,
    stored_documents,
    write_split,
)
from rank_core.data.trec import gathered_qrels, iter_run, open_content, read_lines, write_run
from rank_core.errors import BadInput, shown
from rank_core.progress import reported
from rank_core.records import Collection, Qrels

LAYOUT_VERSION = 3
BLOCK = 1 << 20
SPLITS = ("train", "dev", "test")
LAYOUT = (
    "a collection folder has docs.jsonl[.gz] and, in each of train, dev and test, queries.tsv, "
    "qrels.trec and at most one *.run[.gz]; or BEIR's layout; see docs/data.md. Of one file of "
    "judgments `ranksweep split` makes such a folder"
)
QUERIES = (".tsv", ".tsv.gz", *KINDS)
JUDGMENTS = (".trec", ".qrels", ".txt", *QUERIES)
CALLED = {
    "train": ("qrels/train",),
    "dev": ("qrels/dev", "qrels/validation"),
    "test": ("qrels/test",),
}
"""{split: names of its judgments' file in BEIR's layout}."""


FileState = tuple[str, int, int]
"""(path, bytes, time of last change in ns) of a file."""


class _SplitFiles(NamedTuple):
    queries: Path
    qrels: Path  # that of the queries for a file of pairs
    run: Path | None

    @property
    def is_pairs(self) -> bool:
        return self.queries == self.qrels


class _Files(NamedTuple):
    """The tables of a collection; hashable, because it is part of a cache key."""

    folder: Path
    documents: Path
    splits: tuple[tuple[str, _SplitFiles], ...]
    fields: tuple[tuple[str, str], ...] = ()

    def paths(self) -> list[Path]:
        tables = [path for _, files in self.splits for path in files if path is not None]
        return list(dict.fromkeys([self.documents, *tables]))

    @property
    def pairs(self) -> list[Path]:
        """The splits' files of pairs."""
        return [split.queries for _, split in self.splits if split.is_pairs]


def load_folder(folder: Path, fields: Fields | None = None) -> Collection:
    """The collection of a folder, named after it; cached in memory until one of its files changes.
    `fields` maps the files' own field names to the known ones. Raises `BadInput` for missing or
    invalid files."""
    files = _find_files(Path(folder).expanduser().resolve())
    files = files._replace(fields=tuple((fields or {}).items()))
    states = ((str(path), path.stat()) for path in files.paths())
    return _load(files, tuple((path, s.st_size, s.st_mtime_ns) for path, s in states))


@functools.lru_cache(maxsize=4)
def _load(files: _Files, states: tuple[FileState, ...]) -> Collection:
    """`states` stand for the contents of the files, which are read once per machine and state."""
    fields = dict(files.fields)
    own = [states[0], *(state for state in states if state[0] in set(map(str, files.pairs)))]
    state = [str(STORE_VERSION), *own, *([files.fields] if fields else [])]
    documents = stored_documents(
        _digest_of(*state),
        lambda: _documents(files, fields),
        source=str(files.documents),
        repeated=functools.partial(_refuse_repeated, files.documents, fields),
    )
    recipe = [first_stage.recipe(), first_stage.DEPTH, first_stage.K1, first_stage.B]
    key = _digest_of(LAYOUT_VERSION, recipe, states, *([files.fields] if fields else []))
    folder = cached_directory(
        "collections", f"{files.folder.name}-{key}", lambda folder: _build(folder, files, documents)
    )
    splits = {name: open_split(folder / name, documents) for name, _ in files.splits}
    content_hash, name = (folder / HASH).read_text(encoding="ascii"), files.folder.name
    # The ranker of the candidates: the common prefix of the run files' names, or BM25.
    rankers = {
        split.run.name.partition(".")[0] if split.run else "BM25" for _, split in files.splits
    }
    rankers = {"BM25" if ranker.lower() == "bm25" else ranker for ranker in rankers}
    ranker = rankers.pop() if len(rankers) == 1 else ""
    return Collection(name, content_hash, documents, Splits(name, splits), ranker)


def _documents(files: _Files, fields: Fields) -> Iterator[tuple[str, str]]:
    """The documents, then the texts of pairs that are not among them."""
    known = set[str]()
    for _, doc_id, text in read_documents(files.documents, fields):
        if files.pairs:
            known.add(doc_id)
        yield doc_id, text
    for path in files.pairs:
        for line in pairs_of(path):
            for passage in (*line.positives, *line.negatives):
                if passage.doc_id not in known:
                    known.add(passage.doc_id)
                    yield passage.doc_id, passage.text


class _First(Mapping[str, str]):
    """The first documents of a store: the collection without the texts of pairs."""

    def __init__(self, documents: Mapping[str, str], number: int) -> None:
        self._documents, self._number = documents, number

    def __getitem__(self, doc_id: str) -> str:
        return self._documents[doc_id]

    def __iter__(self) -> Iterator[str]:
        return islice(self._documents, self._number)

    def __len__(self) -> int:
        return self._number


def _build(folder: Path, files: _Files, documents: DocumentStore) -> None:
    contents = {str(path.relative_to(files.folder)): path for path in files.paths()}
    fields = dict(files.fields)
    judged = {name: _read_judged(split, documents, fields) for name, split in files.splits}
    owners: dict[str, Path] = {}
    for name, split in files.splits:
        for query_id in judged[name][0]:
            if query_id in owners:  # it could be trained on and tested
                raise BadInput(
                    f"{split.qrels}: query {query_id!r} is also in {owners[query_id]}; a query may "
                    "be in only one split"
                )
            owners[query_id] = split.qrels
    candidates = {
        name: _candidates(split.run, queries_of(split.queries, fields), documents)
        for name, split in files.splits
        if split.run is not None
    }
    candidates |= {
        name: iter(negatives)
        for name, split in files.splits
        if name == "train" and split.is_pairs and (negatives := _negatives(split.queries))
    }
    without = {name: queries for name, (queries, _) in judged.items() if name not in candidates}
    if without:
        documents_hash = _content_hash({"docs": files.documents}, files.fields)
        number = sum(1 for _ in read_documents(files.documents, fields)) if files.pairs else 0
        ranked = _First(documents, number) if files.pairs else documents
        for name, path in bm25_runs(ranked, without, documents_hash).items():
            candidates[name] = iter_run(path)
            contents[f"{name}/{path.name}"] = path
    groups = {name: _groups(split, judged[name][0], fields) for name, split in files.splits}
    for name, (queries, qrels) in judged.items():
        write_split(folder / name, queries, qrels, candidates[name], documents, groups[name])
    named = {name.removesuffix(".gz"): contents[name] for name in contents}
    content_hash = _content_hash(named, files.fields)
    (folder / HASH).write_text(content_hash[:16], encoding="ascii")


def _find_files(folder: Path) -> _Files:
    """The paths of the collection's files; raises one `BadInput` with everything that is
    missing."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder; {LAYOUT}")
    missing: list[str] = []

    def table(stem: str, kinds: tuple[str, ...], *others: str, needed: str = "") -> Path | None:
        """The table called `stem` or one of `others`."""
        names = [f"{name}{kind}" for name in (stem, *others) for kind in kinds]
        paths = [path for name in names for path in folder.glob(name) if path.is_file()]
        if len(paths) > 1:
            names = [str(path.relative_to(folder)) for path in paths]
            raise BadInput(f"{folder} may have only one of {', '.join(names)}; remove the others")
        if needed and not paths:
            missing.append(needed)
        return paths[0] if paths else None

    splits: list[tuple[str, _SplitFiles]] = []
    pairs = {name: path for name in SPLITS if (path := table(name, KINDS))}
    if documents := table("corpus", KINDS):  # BEIR's
        judged = {name: table(called[0], JUDGMENTS, *called[1:]) for name, called in CALLED.items()}
        needed = "queries.jsonl" if any(judged.values()) or not pairs else ""
        queries = table("queries", QUERIES, needed=needed) or folder
        for name, qrels in judged.items():
            if name in pairs:
                splits.append((name, _SplitFiles(pairs[name], pairs[name], None)))
            elif qrels:
                splits.append((name, _SplitFiles(queries, qrels, None)))
        missing += [] if splits else ["qrels/{train,dev,test}.tsv"]
    else:
        documents = table("docs", KINDS, needed="docs.jsonl (or docs.jsonl.gz)") or folder
        there = [name for name in SPLITS if name in pairs or (folder / name).is_dir()]
        for name in there or SPLITS:
            if name in pairs:
                splits.append((name, _SplitFiles(pairs[name], pairs[name], None)))
                continue
            queries = table(f"{name}/queries", QUERIES, needed=f"{name}/queries.tsv") or folder
            qrels = table(f"{name}/qrels", JUDGMENTS, needed=f"{name}/qrels.trec") or folder
            run = table(f"{name}/*", (".run", ".run.gz"))
            splits.append((name, _SplitFiles(queries, qrels, run)))
    if missing:
        raise BadInput(f"{folder} lacks {', '.join(missing)}; {LAYOUT}")
    return _Files(folder, documents, tuple(splits))


def _read_judged(
    split: _SplitFiles, documents: Mapping[str, str], fields: Fields
) -> tuple[dict[str, str], Qrels]:
    """The judged queries, in file order, and their judgments."""
    if split.is_pairs:
        return _paired(split.queries)
    queries = queries_of(split.queries, fields)
    if not queries:
        raise BadInput(f"{split.queries} has no queries")

    def known() -> Iterator[tuple[str, str, str, str]]:
        for place, query_id, doc_id, relevance in judgment_rows(split.qrels, fields):
            _require_known(place, query_id, queries, doc_id, documents)
            yield place, query_id, doc_id, relevance

    qrels = gathered_qrels(known())
    if not any(relevance > 0 for judged in qrels.values() for relevance in judged.values()):
        raise BadInput(f"{split.qrels} has no relevant document (relevance above 0)")
    judged_queries = {query_id: text for query_id, text in queries.items() if query_id in qrels}
    return judged_queries, {query_id: qrels[query_id] for query_id in judged_queries}


def _groups(split: _SplitFiles, queries: Mapping[str, str], fields: Fields) -> dict[str, str]:
    """The groups of a split's judged queries; empty if the file of queries has none."""
    pairs = pairs_of(split.queries) if split.is_pairs else ()
    rows = [(line.place, line.query_id, line.group) for line in pairs]
    groups = gathered_groups(rows or group_rows(split.queries, fields))
    return {query_id: groups[query_id] for query_id in queries} if groups else {}


def _paired(path: Path) -> tuple[dict[str, str], Qrels]:
    """The queries of a file of pairs; their texts in `pos` are relevant, all others unjudged."""
    queries: dict[str, str] = {}
    qrels: Qrels = {}
    for line in pairs_of(path):
        if queries.setdefault(line.query_id, line.query) != line.query:
            raise BadInput(f"{line.place}: query_id {line.query_id!r} has two texts")
        qrels.setdefault(line.query_id, {}).update((own.doc_id, 1) for own in line.positives)
    if not queries:
        raise BadInput(f"{path} has no queries")
    return queries, qrels


def _negatives(path: Path) -> list[tuple[str, dict[str, float]]]:
    """The texts in `neg` of each query, in the file's order; empty if no line has any."""
    run: dict[str, dict[str, float]] = {}
    for line in pairs_of(path):
        own = run.setdefault(line.query_id, {})
        for passage in line.negatives:
            own.setdefault(passage.doc_id, -float(len(own)))
    return list(run.items()) if any(run.values()) else []


def _candidates(
    path: Path, queries: Mapping[str, str], documents: DocumentStore
) -> Iterator[tuple[str, dict[str, float]]]:
    """The queries of a run file with their candidates; raises `BadInput` for unknown ids."""
    empty = True
    for query_id, ranked in reported(iter_run(path), str(path), total=len(queries)):
        empty = False
        if query_id not in queries or (documents.rows(ranked) < 0).any():
            for number, line in read_lines(path):
                query_id, _, doc_id, *_ = line.split()
                _require_known(f"{path}:{number}", query_id, queries, doc_id, documents)
        yield query_id, ranked
    if empty:
        raise BadInput(f"{path} has no lines; without the file, BM25 is the first stage")


def _require_known(
    place: str, query_id: str, queries: Mapping[str, str], doc_id: str, documents: Mapping[str, str]
) -> None:
    for kind, name, known in (("query", query_id, queries), ("document", doc_id, documents)):
        if name not in known:
            raise BadInput(
                f"{place}: unknown {kind} {shown(name)}; is this file of another collection or "
                "split?"
            )


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
        with open_content(files[name]) as stream:
            digest.update(f"{name}\n{stream.seek(0, os.SEEK_END)}\n".encode())
        with open_content(files[name]) as stream:
            for block in iter(functools.partial(stream.read, BLOCK), b""):
                digest.update(block)
    return digest.hexdigest()


def _digest_of(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _refuse_repeated(path: Path, fields: Fields, doc_id: str) -> NoReturn:
    """Raises `BadInput` with the places of a duplicate doc_id."""
    first, second, *_ = (place for place, name, _ in read_documents(path, fields) if name == doc_id)
    raise BadInput(f"{second}: doc_id {doc_id!r} is a duplicate of {first}")
