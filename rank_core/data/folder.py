"""Collections read from a folder, in our layout or BEIR's.

Ours: `docs.jsonl` has {doc_id, text, title (optional)}; each of `train`, `dev` and `test` has
`queries.tsv`, `qrels.trec` and optionally a first stage, `*.run[.gz]`; without it, candidates come
from BM25 over all documents. BEIR's: `corpus.jsonl`, `queries.jsonl` and
`qrels/{train,dev,test}.tsv`, not all of them required. In both `train.jsonl` of {query, pos, neg},
as well as `dev` and `test`, may stand in place of a split. Other file formats are possible
(`rank_core.data.readers`; docs/data.md). Everything is read once per machine, cached and
memory-mapped. The optional `ranksweep.json` has the language of the texts, {"language": "de"}. The
optional `spans.jsonl.gz` beside the documents is for `ranksweep doctor` and
`positional_bias.py` (see `spans`).
"""

import functools
import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from rank_core import first_stage
from rank_core.cache import cached_directory, loaded_once
from rank_core.data.own_documents import OWN_DOCUMENTS, OwnDocuments, documents_of
from rank_core.data.readers import documents as read_documents
from rank_core.data.readers import (
    gathered_groups,
    group_rows,
    ids_of_texts,
    judgment_rows,
    pairs_of,
    queries_of,
)
from rank_core.data.store import (
    HASH,
    STORE_VERSION,
    DocumentStore,
    First,
    Splits,
    open_split,
    stored_documents,
    write_split,
)
from rank_core.data.tables import KINDS, TABS, unique_fields
from rank_core.data.trec import (
    gathered_qrels,
    identifier,
    is_run,
    iter_run,
    open_content,
    read_lines,
    write_run,
)
from rank_core.data.vocabulary import Fields
from rank_core.errors import BadInput, shown, unknown
from rank_core.files import SCHEMA, FileState, content_state
from rank_core.first_stage.languages import language_code, other_than_english
from rank_core.notes import say
from rank_core.parsing import parsed_json
from rank_core.progress import reported
from rank_core.records import SPLITS, Collection, Qrels

LAYOUT_VERSION = 5
BLOCK = 1 << 20
LAYOUT = (
    "a collection folder has docs.jsonl[.gz] and, in each of train, dev and test, queries.tsv, "
    "qrels.trec and at most one *.run[.gz]; or BEIR's layout; see docs/data.md. Of one file of "
    "judgments `ranksweep split` makes such a folder"
)
RECORDS = (*KINDS, *TABS)
JUDGMENTS = (".trec", ".qrels", ".txt", *RECORDS)
SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "validation"), "test": ("test",)}
"""{split: its names in files and folders}."""
_ALSO_CALLED = {
    "train": ("train", "training"),
    "dev": ("dev", "devel", "development", "val", "valid", "validation"),
    "test": ("test", "testing"),
}
"""{split: what others call it, in any case}; such a name is refused where the split is missing."""
DECLARED = "ranksweep.json"
"""The file of a folder that says what its texts do not: {"language": "de"}."""
_RUNS = (".run", ".run.gz", ".run.xz", ".run.zst", ".run.bz2", ".run.zip")  # in any case
_TEXTS = (".trec", ".txt", ".res", ".tsv", ".trec.gz", ".txt.gz", ".res.gz", ".tsv.gz")
"""Endings of files that may be runs."""
OWN = "own_documents.txt"
"""The file of a cached collection with the number of documents that are not texts of pairs."""


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
    language: str = ""
    leaves_own_out: bool = False  # documents that are the query itself

    @property
    def analysis(self) -> first_stage.TextAnalysis:
        return first_stage.TextAnalysis(self.language)

    def paths(self) -> list[Path]:
        tables = [path for _, files in self.splits for path in files if path is not None]
        return list(dict.fromkeys([self.documents, *tables]))

    @property
    def pairs(self) -> list[Path]:
        """The splits' files of pairs."""
        return [split.queries for _, split in self.splits if split.is_pairs]

    def states(self) -> tuple[FileState, ...]:
        """The states of the files, links followed."""
        return tuple(content_state(path.resolve()) for path in self.paths())


def load_folder(folder: Path, fields: Fields | None = None, language: str = "") -> Collection:
    """The collection of a folder, named after it; cached in memory until one of its files changes.
    `fields` maps the files' own field names to the known ones; `language` holds where the folder
    declares none. Raises `BadInput` for missing or invalid files."""
    files = _files_of(folder, fields)
    files = files._replace(language=files.language or language)
    return _load(files, files.states())


def check_folder(folder: Path, fields: Fields | None, *, documents: Path) -> DocumentStore:
    """Reads a folder as `load_folder` does, but for its runs, and returns its documents. Raises
    `BadInput` where that would. `documents` is what its file of documents is a link to."""
    files = _files_of(folder, fields)._replace(documents=documents)
    _judged(files, stored := _stored(files, files.states()))
    return stored


def titles_in(folder: Path, fields: Fields | None) -> dict[str, int]:
    """{doc_id: characters of the title with which its text begins} of the documents of a folder
    that have one; a line break follows it."""
    read = read_documents(_files_of(folder, fields).documents, fields or {})
    lengths = (
        (document.doc_id, len(document.text) - len(document.untitled) - 1) for document in read
    )
    return {doc_id: length for doc_id, length in lengths if length > 0}


def _files_of(folder: Path, fields: Fields | None) -> _Files:
    files = _find_files(Path(folder).expanduser().resolve())
    return files._replace(
        fields=tuple((fields or {}).items()),
        language=declared_language(files.folder),
        leaves_own_out=not _declared(files.folder)[OWN_DOCUMENTS],
    )


def declared_language(folder: Path) -> str:
    """The code of the language that a folder's `ranksweep.json` names; empty without the file.
    Raises `BadInput` for anything else in it."""
    return str(_declared(folder)["language"])


def _declared(folder: Path) -> dict[str, Any]:
    """What a folder declares of its texts, and the defaults of what it does not."""
    path = folder / DECLARED
    found: dict[str, Any] = {"language": "", OWN_DOCUMENTS: True}
    if not path.exists():
        return found
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} could not be read as JSON: {error}") from None
    declared = parsed_json(text, path, object_pairs_hook=unique_fields)
    if not isinstance(declared, dict):
        raise BadInput(f'{path} must be an object such as {{"language": "de"}}')
    for name in declared:
        if name not in (*found, SCHEMA):
            raise BadInput(f"{path}: {unknown('field', str(name), found)}")
    found |= declared
    language = found["language"]
    if not isinstance(language, str):
        raise BadInput(f'{path}: language must be a code such as "de", got {shown(language)}')
    if not isinstance(found[OWN_DOCUMENTS], bool):
        found_text = shown(found[OWN_DOCUMENTS])
        raise BadInput(f"{path}: {OWN_DOCUMENTS} must be true or false, got {found_text}")
    return found | {"language": language_code(language, str(path)) if language else ""}


@loaded_once(maxsize=4)
def _load(files: _Files, states: tuple[FileState, ...]) -> Collection:
    """`states` stand for the contents of the files, which are read once per machine and state."""
    documents = _stored(files, states)
    recipe = [first_stage.recipe(files.analysis), first_stage.DEPTH, first_stage.K1, first_stage.B]
    changed = [files.fields] * bool(files.fields) + [OWN_DOCUMENTS] * files.leaves_own_out
    key = _digest_of(LAYOUT_VERSION, recipe, states, *changed)
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
    num_own = int((folder / OWN).read_text(encoding="ascii"))
    return Collection(
        name,
        content_hash,
        documents,
        Splits(name, splits),
        ranker,
        unranked=len(documents) - num_own,
        language=files.language,
        leaves_own_out=files.leaves_own_out,
    )


def _stored(files: _Files, states: tuple[FileState, ...]) -> DocumentStore:
    """The documents, then the texts of pairs that are not among them."""
    fields, pairs = dict(files.fields), set(files.pairs)
    of_pairs = [state for path, state in zip(files.paths(), states, strict=True) if path in pairs]
    state = [str(STORE_VERSION), states[0], *of_pairs, *([files.fields] if fields else [])]
    return stored_documents(
        _digest_of("texts 3", *state),
        lambda: _documents(files, fields),
        source=str(files.documents),
        repeated=functools.partial(_refuse_repeated, files.documents, fields),
    )


def _documents(files: _Files, fields: Fields) -> Iterator[tuple[str, str]]:
    """The documents, then the texts of pairs that are not among them. Raises `BadInput` for an id
    with two texts."""
    known: dict[str, tuple[bytes, ...]] = {}
    for document in read_documents(files.documents, fields):
        if files.pairs:
            texts = {document.text, document.untitled}
            known[document.doc_id] = tuple(map(_text_hash, texts))
        yield document.doc_id, document.text
    for path in files.pairs:
        for line in pairs_of(path, fields):
            if line.passages and all(passage.text.strip() in known for passage in line.passages):
                raise BadInput(
                    f"{line.place}: the texts of a training line must be texts, found ids of "
                    f"documents, such as {shown(line.passages[0].text)}; judgments of ids are a "
                    "file of qrels (docs/data.md)"
                )
            for passage in line.passages:
                text, untitled = _text_hash(passage.text), _text_hash(passage.untitled)
                if passage.doc_id not in known:
                    known[passage.doc_id] = text, untitled
                    yield passage.doc_id, passage.text
                elif {text, untitled}.isdisjoint(known[passage.doc_id]):
                    first = _place_of(files, fields, passage.doc_id)
                    raise BadInput(
                        f"{line.place}: document {passage.doc_id!r} has another text at {first}; "
                        "an id must be of one text in all files of a collection"
                    )


def _text_hash(text: str) -> bytes:
    """A hash of a text, ignoring white space."""
    return hashlib.blake2b(" ".join(text.split()).encode(), digest_size=16).digest()


def _place_of(files: _Files, fields: Fields, doc_id: str) -> str:
    """The first place of a document's text."""
    for document in read_documents(files.documents, fields):
        if document.doc_id == doc_id:
            return document.place
    lines = (line for path in files.pairs for line in pairs_of(path, fields))
    return next(
        line.place for line in lines if doc_id in {passage.doc_id for passage in line.passages}
    )


def _build(folder: Path, files: _Files, documents: DocumentStore) -> None:
    contents = {str(path.relative_to(files.folder)): path for path in files.paths()}
    fields = dict(files.fields)
    judged = _judged(files, documents)
    candidates = {
        name: _candidates(split.run, queries_of(split.queries, fields), documents)
        for name, split in files.splits
        if split.run is not None
    }
    candidates |= {
        name: iter(negatives)
        for name, split in files.splits
        if name == "train" and split.is_pairs and (negatives := _negatives(split.queries, fields))
    }
    num_own = len(documents)
    if files.pairs:
        num_own = sum(1 for _ in read_documents(files.documents, fields))
    without = {name: queries for name, (queries, _) in judged.items() if name not in candidates}
    if without:
        documents_hash = _content_hash({"docs": files.documents}, files.fields)
        searched = First(documents, num_own) if files.pairs else documents
        runs = bm25_runs(searched, without, documents_hash, files.analysis)
        for name, path in runs.items():
            candidates[name] = iter_run(path)
            contents[f"{name}/{path.name}"] = path
    groups = {name: _groups(split, judged[name][0], fields) for name, split in files.splits}
    of_texts = documents_of((queries for queries, _ in judged.values()), documents)
    for name, (queries, qrels) in judged.items():
        own_documents = OwnDocuments(
            queries, documents, qrels, of_texts, left_out=files.leaves_own_out
        )
        ranked = own_documents.watched(candidates[name])
        write_split(folder / name, queries, qrels, ranked, documents, groups[name])
        own_documents.note(f"{files.folder.name}, {name}")
    named = {name.removesuffix(".gz"): contents[name] for name in contents}
    language = other_than_english(files.language)
    declared = [("language", language)] if language else []
    declared += [(OWN_DOCUMENTS, "false")] if files.leaves_own_out else []
    if any(document.is_blank_titled for document in read_documents(files.documents, fields)):
        declared.append(("blank titles", "left out"))  # texts began with a line break once
    content_hash = _content_hash(named, (*files.fields, *declared))
    (folder / OWN).write_text(str(num_own), encoding="ascii")
    (folder / HASH).write_text(content_hash[:16], encoding="ascii")


def _find_files(folder: Path) -> _Files:
    """The paths of the collection's files. Raises one `BadInput` with everything that is missing,
    and one for two files of the same thing."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder; {LAYOUT}")

    def tables(stems: Iterable[str], kinds: tuple[str, ...]) -> list[Path]:
        names = [f"{stem}{kind}" for stem in stems for kind in kinds]
        return [path for name in names for path in sorted(folder.glob(name)) if path.is_file()]

    def one(what: str, paths: list[Path]) -> Path | None:
        if len(paths) > 1:
            names = ", ".join(str(path.relative_to(folder)) for path in paths)
            raise BadInput(f"{folder} has several files for {what}: {names}; keep one of them")
        return paths[0] if paths else None

    documents = one("the documents", tables(("docs", "corpus"), RECORDS))
    queries = one("the queries", tables(("queries",), RECORDS))
    is_beir = documents is not None and documents.name.startswith("corpus")
    missing = [] if documents else ["docs.jsonl (or docs.jsonl.gz)"]
    splits: list[tuple[str, _SplitFiles]] = []
    for split, called in SPLIT_NAMES.items():
        pairs = tables(called, RECORDS)
        beir = tables([f"qrels/{name}" for name in called], JUDGMENTS)
        folders = [
            (
                tables([f"{name}/queries"], RECORDS),
                tables([f"{name}/qrels"], JUDGMENTS),
                tables([f"{name}/*"], (".run", ".run.gz")),
            )
            for name in called
        ]
        forms = [*pairs, *beir, *(next(filter(None, pair))[0] for pair in folders if any(pair))]
        found = one(split, forms)
        if found in pairs:
            splits.append((split, _SplitFiles(pairs[0], pairs[0], None)))
        elif found in beir:
            missing += [] if queries or "queries.jsonl" in missing else ["queries.jsonl"]
            splits.append((split, _SplitFiles(queries or folder, beir[0], None)))
        elif found or (not is_beir and any((folder / name).is_dir() for name in called)):
            own_queries, qrels, runs = next(filter(any, folders), ([], [], []))
            name = found.parent.name if found else split
            run = one(f"the runs of {name}", runs)
            if run is None:
                _refuse_unread_run(folder / name)
            missing += [] if own_queries else [f"{name}/queries.tsv"]
            missing += [] if qrels else [f"{name}/qrels.trec"]
            split_files = _SplitFiles(
                one(f"the queries of {name}", own_queries) or folder,
                one(f"the judgments of {name}", qrels) or folder,
                run,
            )
            splits.append((split, split_files))
    _refuse_unread_splits(folder, [name for name in SPLITS if name not in dict(splits)])
    if not splits:
        layout = [f"{name}/{file}" for name in SPLITS for file in ("queries.tsv", "qrels.trec")]
        missing += ["qrels/{train,dev,test}.tsv"] if is_beir else layout
    if documents is None or missing:
        raise BadInput(
            f"{folder} lacks {', '.join(missing)}; {_undivided(folder, documents) or LAYOUT}"
        )
    return _Files(folder, documents, tuple(splits))


def _undivided(folder: Path, documents: Path | None) -> str:
    """The command that makes a collection of documents, queries and judgments that lie in one
    folder; "" where they do not."""
    queries, qrels = (
        next((path for path in sorted(folder.glob(f"{name}.*")) if path.suffix in endings), None)
        for name, endings in (("queries", RECORDS), ("qrels", JUDGMENTS))
    )
    if documents is None or queries is None or qrels is None:
        return ""
    files = {"docs": documents, "queries": queries, "qrels": qrels}
    words = " ".join(f"--{name} {shlex.quote(str(path))}" for name, path in files.items())
    return (
        f"{queries.name} and {qrels.name} are not divided into splits: `ranksweep split {words} "
        "--to FOLDER`, with --shares 0,50,50 for a question that trains nothing, such as "
        "chunk_size or serving"
    )


def _refuse_unread_splits(folder: Path, missing: Iterable[str]) -> None:
    """Raises `BadInput` for a missing split whose files are there under another name (`valid.tsv`,
    `Test/qrels.trec`): a sweep would silently do without it."""
    files = [*folder.iterdir(), *folder.glob("qrels/*"), *folder.glob("*/qrels.*")]
    for path in sorted(files):
        part = path.parent if path.name.startswith("qrels.") else path
        called = part.name.lower().partition(".")[0]
        split = next((name for name in missing if called in _ALSO_CALLED[name]), "")
        if split and path.is_file() and path.name.lower().endswith(JUDGMENTS):
            raise BadInput(
                f"{path} is not read, and there is no other {split} split: its files and folders "
                f"are called {' or '.join(SPLIT_NAMES[split])}; rename {part.name}, or move it out "
                "of the folder"
            )


def _refuse_unread_run(folder: Path) -> None:
    """Raises `BadInput` for a run under another name in the folder of a split without one: BM25
    would stand in its place."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = path.name.lower()
        named = name.endswith(_RUNS) or (name.endswith(_TEXTS) and is_run(path))
        if named and path.is_file() and not name.startswith("."):
            raise BadInput(
                f"{path} is a run that is not read: the first stage of a split is NAME.run or "
                "NAME.run.gz; rename the file, or move it out of the folder"
            )


_Judged = tuple[dict[str, str], Qrels]
"""The judged queries of a split, in file order, and their judgments."""


def _judged(files: _Files, documents: DocumentStore) -> dict[str, _Judged]:
    """{split: its judged queries and their judgments}. Raises `BadInput` for a query that could be
    trained on and tested."""
    fields = dict(files.fields)
    if empty := documents.num_blank():
        if empty == len(documents):
            raise BadInput(f"{files.documents}: all {empty:,} documents are empty")
        say(f"{files.documents}: {empty:,} of {len(documents):,} documents are empty")
    judged = {}
    owners: dict[str, Path] = {}
    for name, split in files.splits:
        judged[name] = (
            _paired(split.queries, fields)
            if split.is_pairs
            else _read_judged(name, split, documents, fields)
        )
        for query_id in judged[name][0]:
            if query_id in owners:
                raise BadInput(
                    f"{split.qrels}: query {query_id!r} is also in {owners[query_id]}; a query may "
                    "be in only one split"
                )
            owners[query_id] = split.qrels
    return judged


def _read_judged(
    name: str, split: _SplitFiles, documents: DocumentStore, fields: Fields
) -> _Judged:
    """A split of queries and judgments. Judged documents that the collection lacks are counted:
    measures need them, and training cannot read them."""
    queries = queries_of(split.queries, fields)
    if not queries:
        raise BadInput(f"{split.queries} has no queries")
    number, absent = 0, list[tuple[str, str, str]]()

    def known() -> Iterator[tuple[str, object, object, object]]:
        nonlocal number
        rows = ids_of_texts(judgment_rows(split.qrels, fields), queries)
        for place, query, document, relevance in rows:
            query_id = identifier(place, "query_id", query)
            doc_id = identifier(place, "doc_id", document)
            _require_known(place, "query", query_id, queries)
            number += 1
            if doc_id not in documents:
                absent.append((place, query_id, doc_id))
            yield place, query_id, doc_id, relevance

    qrels = gathered_qrels(known())
    # Pooled judgments often name a few documents that a later dump lacks; most of them missing is
    # another mistake.
    if 2 * len(absent) > number:  # the files of two collections
        place, _, doc_id = absent[0]
        _require_known(place, "document", doc_id, documents)
    if not any(relevance > 0 for judged in qrels.values() for relevance in judged.values()):
        raise BadInput(f"{split.qrels} has no relevant document (relevance above 0)")
    if absent:
        place, _, doc_id = absent[0]
        what = "training leaves them out" if name == "train" else "measures count them"
        say(
            f"{name}: {len(absent):,} of {number:,} judged documents are missing in the collection "
            f"({what}), such as {doc_id}, {place}"
        )
    for _, query_id, doc_id in absent if name == "train" else ():
        del qrels[query_id][doc_id]
    judged_queries = {query_id: text for query_id, text in queries.items() if query_id in qrels}
    return judged_queries, {query_id: qrels[query_id] for query_id in judged_queries}


def _groups(split: _SplitFiles, queries: Mapping[str, str], fields: Fields) -> dict[str, str]:
    """The groups of a split's judged queries; empty if the file of queries has none."""
    pairs = pairs_of(split.queries, fields) if split.is_pairs else ()
    rows = [(line.place, line.query_id, line.group) for line in pairs]
    groups = gathered_groups(rows or group_rows(split.queries, fields))
    return {query_id: groups[query_id] for query_id in queries} if groups else {}


def _paired(path: Path, fields: Fields) -> _Judged:
    """The queries and judgments of a file of pairs; texts without a grade are unjudged."""
    queries: dict[str, str] = {}
    places: dict[str, str] = {}
    qrels: Qrels = {}
    for line in pairs_of(path, fields):
        first = places.setdefault(line.query_id, line.place)
        if queries.setdefault(line.query_id, line.query) != line.query:
            raise BadInput(
                f"{line.place}: query_id {line.query_id!r} has two texts, the other one at {first}"
            )
        judged = qrels.setdefault(line.query_id, {})
        for passage in line.passages:
            if (
                passage.grade is not None
                and judged.setdefault(passage.doc_id, passage.grade) != passage.grade
            ):
                raise BadInput(
                    f"{line.place}: query {line.query_id!r} judges a text as {passage.grade}, and "
                    f"as {judged[passage.doc_id]} before: {shown(passage.text)}"
                )
    if not queries:
        raise BadInput(f"{path} has no queries")
    if not any(grade > 0 for judged in qrels.values() for grade in judged.values()):
        raise BadInput(f"{path} has no relevant text (a grade above 0)")
    return queries, qrels


def _negatives(path: Path, fields: Fields) -> list[tuple[str, dict[str, float]]]:
    """The texts of each query that are not relevant, in the file's order; empty if no line has
    any."""
    run: dict[str, dict[str, float]] = {}
    for line in pairs_of(path, fields):
        ranked = run.setdefault(line.query_id, {})
        for passage in line.passages:
            if (passage.grade or 0) <= 0:
                # Scores that fall with the place: a run needs an order, and the file has no scores.
                ranked.setdefault(passage.doc_id, -float(len(ranked)))
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
                _require_known(f"{path}:{number}", "query", query_id, queries)
                _require_known(f"{path}:{number}", "document", doc_id, documents)
        yield query_id, ranked
    if empty:
        raise BadInput(f"{path} has no lines; without the file, BM25 is the first stage")


def _require_known(place: str, kind: str, name: str, known: Mapping[str, str]) -> None:
    if name not in known:
        raise BadInput(
            f"{place}: unknown {kind} {shown(name)}; is this file of another collection or split?"
        )


def bm25_runs(
    documents: Mapping[str, str],
    queries: Mapping[str, Mapping[str, str]],
    documents_hash: str,
    analysis: first_stage.TextAnalysis,
) -> dict[str, Path]:
    """{split: path of its BM25 run}, for {split: queries}; built once for these documents."""
    recipe = [first_stage.recipe(analysis), first_stage.DEPTH, first_stage.K1, first_stage.B]
    key = _digest_of(recipe, documents_hash, queries)
    file_name = f"bm25.top{first_stage.DEPTH}.run.gz"

    def build(folder: Path) -> None:
        together = {
            query_id: text for split in queries.values() for query_id, text in split.items()
        }
        # One index for all splits; building it takes most of the time.
        run = first_stage.Bm25Index(documents, analysis).run(together)
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
            seeks = stream.seekable()
            size = stream.seek(0, os.SEEK_END) if seeks else sum(map(len, _blocks(stream)))
            digest.update(f"{name}\n{size}\n".encode())
        with open_content(files[name]) as stream:
            for block in _blocks(stream):
                digest.update(block)
    return digest.hexdigest()


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    return iter(functools.partial(stream.read, BLOCK), b"")


def _digest_of(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _refuse_repeated(path: Path, fields: Fields, doc_id: str) -> NoReturn:
    """Raises `BadInput` with the places of a duplicate doc_id."""
    first, second, *_ = (
        document.place for document in read_documents(path, fields) if document.doc_id == doc_id
    )
    raise BadInput(f"{second}: doc_id {doc_id!r} is a duplicate of {first}")
