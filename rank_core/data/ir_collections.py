"""Collections of ir_datasets: converted once to our store, then opened from the cache.

Everything is read by the public interface of ir_datasets, which downloads what is missing, and says
on standard error where a file that it cannot download comes from and where to put it.

`<cache>/collections/<name>-<key>/` has the queries, judgments and candidates of each split. The key
covers the recipe and the version of ir_datasets; files that it has read are taken as unchanged.
Queries without text or relevant documents are excluded, because measures are undefined for them.
Candidates are from the user's run file, else from the dataset's ranked list, else from BM25 over
all documents.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from rank_core import first_stage
from rank_core.cache import cache_root, cached_directory
from rank_core.data.folds import huston_croft, rotate, round_robin
from rank_core.data.named import NAMED, POOL, DatasetPart, Recipe
from rank_core.data.own_documents import OwnDocuments, documents_of
from rank_core.data.store import (
    HASH,
    STORE_VERSION,
    DocumentStore,
    Splits,
    open_split,
    ranked_rows,
    stored_documents,
    write_document_store,
    write_split,
)
from rank_core.data.trec import in_rank_order, read_run
from rank_core.errors import BadInput, shown, unknown
from rank_core.files import content_state
from rank_core.first_stage.languages import LANGUAGES, UNDETERMINED, other_than_english
from rank_core.lines import beside
from rank_core.records import SPLITS, Collection, Qrels, Run

ENTITIES = ("docs", "queries", "qrels", "scoreddocs")
WEB = ("gov2", "clueweb09", "clueweb12")
"""Crawls of many millions of pages, in archives that their ids name."""


@dataclass(frozen=True)
class IrSource:
    """A dataset by its id; nothing is opened before it is needed."""

    dataset_id: str

    @cached_property
    def _dataset(self) -> Any:
        import ir_datasets

        try:
            return ir_datasets.load(self.dataset_id)
        except KeyError:
            raise unknown("ir_datasets id", self.dataset_id, known_ids()) from None

    @cached_property
    def documents_id(self) -> str:
        """The id shared by all datasets with the same documents."""
        import ir_datasets

        return str(ir_datasets.docs_parent_id(self.dataset_id))

    def has(self, *entities: str) -> bool:
        """True if the dataset has each of these: `docs`, `queries`, `qrels`, `scoreddocs`."""
        return all(self._dataset.has(entity) for entity in entities)

    @cached_property
    def language(self) -> str:
        """The code of the documents' language; empty if ir_datasets does not say one, `und` for
        one without an analysis."""
        code = str(self._dataset.docs_lang() or "").lower().partition("-")[0]
        return code if not code or code in LANGUAGES else UNDETERMINED

    @property
    def is_web(self) -> bool:
        """True for crawled pages in archives, many millions of them."""
        return self.dataset_id.partition("/")[0] in WEB

    def documents(self) -> Iterator[tuple[str, str]]:
        """(doc_id, text) of every document; the text starts with the title, if any."""
        with self._reading("docs") as dataset:
            yield from ((document.doc_id, _text(document)) for document in dataset.docs_iter())

    def some_documents(self, wanted: Iterable[str]) -> Iterator[tuple[str, str]]:
        """(doc_id, text) of the wanted documents that exist, in source order. Web pages are in
        archives named by their ids, so only those archives are read."""
        names = set(wanted)
        with self._reading("docs") as dataset:
            pages = self._pages(dataset, sorted(names)) if self.is_web else dataset.docs_iter()
            for document in pages:
                if document.doc_id in names:
                    names.remove(document.doc_id)
                    yield document.doc_id, _text(document)
                    if not names:
                        return

    def _pages(self, dataset: Any, names: list[str]) -> Iterator[Any]:
        store, found = dataset.docs_store(), dict.fromkeys(names)
        found |= {page.doc_id: page for page in store.get_many_iter(names)}
        for name in names:  # GOV2's store stops at a missing page of an archive
            if found[name] is None:
                found |= {page.doc_id: page for page in store.get_many_iter([name])}
        return (page for page in found.values() if page is not None)

    def queries(self, field: str | None = None) -> dict[str, str]:
        """{query_id: text}; `field` chooses one of several (title, description)."""
        queries: dict[str, str] = {}
        with self._reading("queries") as dataset:
            for query in dataset.queries_iter():
                if field is not None and field not in query._fields:
                    raise unknown(f"query field of {self.dataset_id}", field, query._fields[1:])
                text = query.default_text() if field is None else getattr(query, field)
                queries[query.query_id] = " ".join(text.split())
        return queries

    def qrels(self) -> Qrels:
        """The judgments; the highest of several for a query and document (subtopics)."""
        qrels: Qrels = {}
        with self._reading("qrels") as dataset:
            # The handler's own: BRIGHT's queries have judgments as well, those of short documents.
            for judgment in dataset.qrels_handler().qrels_iter():
                judged = qrels.setdefault(judgment.query_id, {})
                known = judged.get(judgment.doc_id, judgment.relevance)
                # A document that answers one subtopic well is relevant.
                judged[judgment.doc_id] = max(known, judgment.relevance)
        return qrels

    def candidates(self, depth: int) -> Run | None:
        """The top `depth` scored documents of each query; None if they have no order, as MS MARCO's
        thousand passages per query."""
        run: Run = {}
        with self._reading("scoreddocs") as dataset:
            for scored in dataset.scoreddocs_iter():
                # One object per doc_id, not one for each of 37 million lines.
                run.setdefault(scored.query_id, {})[sys.intern(scored.doc_id)] = scored.score
                # The first query is complete when a second one begins: lists without an order are
                # known before millions of lines are read.
                if len(run) == 2 and _all_equal(next(iter(run.values()))):
                    return None
        if all(_all_equal(scores) for scores in run.values()):
            return None
        return {
            query_id: dict(list(in_rank_order(scores).items())[:depth])
            for query_id, scores in run.items()
        }

    def require(self, entity: str) -> None:
        """Raises `BadInput` for a missing entity."""
        if not self.has(entity):
            has = ", ".join(name for name in ENTITIES if self.has(name))
            raise BadInput(f"{self.dataset_id} has no {entity}, only {has or 'nothing'}")

    @contextlib.contextmanager
    def _reading(self, entity: str) -> Iterator[Any]:
        """The dataset, for one process at a time, because ir_datasets fills its own stores while it
        reads; errors name the dataset."""
        self.require(entity)
        cache_root().mkdir(parents=True, exist_ok=True)
        # Two processes that fill one of its stores would write into each other's files.
        with FileLock(cache_root() / "ir_datasets.lock"):
            try:
                yield self._dataset
            except BadInput:
                raise
            except Exception as error:  # of the network, the disk or a damaged file
                what = f"{type(error).__name__} {shown(str(error))}"
                raise BadInput(
                    f"{self.dataset_id} could not be read: {what}; see ir_datasets' words above"
                ) from error


def known_ids() -> list[str]:
    """All ids of ir_datasets."""
    import ir_datasets

    return sorted(ir_datasets.registry)


def _text(document: Any) -> str:
    """Title and text; ir_datasets would join a web page's without a space."""
    if not hasattr(document, "http_headers"):
        text = str(document.default_text())
        return text if str(getattr(document, "title", "a title")).strip() else text.lstrip()
    import ir_datasets

    fields = ir_datasets.util.sax_html_parser(
        document.body, headers=document.http_headers, fields=[{"title"}, {"body"}]
    )
    return "\n".join(field for field in fields if field)


def _all_equal(scores: dict[str, float]) -> bool:
    return len(scores) > 1 and len(set(scores.values())) == 1


DEPTH = 1000  # maximum number of candidates per query
OWN_DOCUMENTS = "documents"


def file_name(name: str) -> str:
    """A collection's name as the name of a folder."""
    return name.replace("/", "_").replace(":", "_")


def run_file(name: str, split: str) -> Path | None:
    """The user's own run file for a split, if it exists."""
    return next((path for path in _run_files(name, split) if path.exists()), None)


def build(folder: Path, name: str, recipe: Recipe, shared: DocumentStore | None) -> None:
    """Writes all splits of a recipe, and its documents without a `shared` store."""
    judged = {split: _judged(name, split, parts) for split, parts in recipe.splits.items()}
    runs = {
        split: run
        for split, parts in recipe.splits.items()
        if (run := _given_run(name, split, parts, judged[split][0])) is not None
    }
    qrels_of = {split: qrels for split, (_, qrels) in judged.items()}
    documents = shared or _ranked_documents(folder / OWN_DOCUMENTS, name, recipe, qrels_of, runs)
    without = {split: queries for split, (queries, _) in judged.items() if split not in runs}
    runs |= _bm25_runs(documents, without, first_stage.TextAnalysis(_language(recipe)))
    contents: dict[str, bytes] = {}
    of_texts = documents_of((queries for queries, _ in judged.values()), documents)
    for split, (queries, qrels) in judged.items():
        own_documents = OwnDocuments(
            queries, documents, qrels, of_texts, left_out=recipe.leaves_own_out
        )
        runs[split] = dict(own_documents.watched(runs[split].items()))
        ranked = (doc_id for ranked in runs[split].values() for doc_id in ranked)
        if strange := _absent(ranked, documents):
            raise BadInput(
                f"{name}, candidates of {split}: {len(strange):,} documents are not in the "
                f"collection, such as {', '.join(strange[:3])}"
            )
        absent = _absent(_relevant(qrels), documents)
        if absent:
            beside(f"{name}, {split}: {len(absent)} relevant documents are missing")
        for file, content in _contents(queries, qrels, absent, runs[split], documents):
            contents[f"{split}/{file}"] = content
        # Measures need missing relevant documents; training could not read them.
        gone = set(absent) if split == "train" else set()
        kept = {q: {d: grade for d, grade in qrels[q].items() if d not in gone} for q in queries}
        write_split(folder / split, queries, kept, runs[split].items(), documents)
        own_documents.note(split if recipe.leaves_own_out else f"{name}, {split}")
    language = other_than_english(_language(recipe))
    digest = hashlib.sha256((documents.content_hash + language).encode())
    for file in sorted(contents, key=Path):
        digest.update(f"{file}\n{len(contents[file])}\n".encode() + contents[file])
    (folder / HASH).write_text(digest.hexdigest()[:16], encoding="ascii")


def _contents(
    queries: Mapping[str, str],
    qrels: Qrels,
    absent: Iterable[str],
    run: Run,
    documents: DocumentStore,
) -> Iterator[tuple[str, bytes]]:
    """(file, bytes) of a split as first stored, of which the content hash is made."""
    texts = {
        "queries.tsv": [f"{q}\t{' '.join(text.split())}" for q, text in queries.items()],
        "qrels.trec": [f"{q} 0 {d} {grade}" for q in qrels for d, grade in qrels[q].items()],
        "absent.txt": absent,
    }
    for name, lines in texts.items():
        yield name, "".join(f"{line}\n" for line in lines).encode()
    lists = [ranked_rows(run.get(query_id, {}), documents) for query_id in queries]
    ends = np.cumsum([0, *(len(rows) for rows, _ in lists)], dtype=np.int64)
    yield "candidates/rows.npy", _saved(np.concatenate([rows for rows, _ in lists]))
    yield "candidates/scores.npy", _saved(np.concatenate([scores for _, scores in lists]))
    yield "candidates/offsets.npy", _saved(ends)


def _saved(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _judged(name: str, split: str, parts: tuple[DatasetPart, ...]) -> tuple[dict[str, str], Qrels]:
    """The judged queries of a split, and their judgments."""
    queries: dict[str, str] = {}
    qrels: Qrels = {}
    excluded: list[str] = []
    for part in parts:
        source = IrSource(part.dataset_id)
        judgments = source.qrels()
        for query_id, text in source.queries(part.query_field).items():
            if query_id not in judgments:
                continue
            long_id, relevance = f"{part.prefix}{query_id}", judgments[query_id]
            if long_id in queries:
                raise BadInput(f"{name}, {split}: two parts have query {long_id!r}")
            if not text or max(relevance.values()) <= 0:
                excluded.append(long_id)
                continue
            queries[long_id], qrels[long_id] = text, relevance
    if excluded:
        beside(
            f"{name}, {split}: {len(excluded)} judged queries without text or a relevant document "
            f"are excluded: {', '.join(excluded[:5])}"
        )
    if not queries:
        ids = ", ".join(part.dataset_id for part in parts)
        raise BadInput(f"{ids}: no query has a relevant document")
    return queries, qrels


def _given_run(
    name: str, split: str, parts: tuple[DatasetPart, ...], queries: Mapping[str, str]
) -> Run | None:
    """The candidates from a run file or the dataset; None if there are none."""
    if (path := run_file(name, split)) is not None:
        run = read_run(path)
        if not queries.keys() & run.keys():
            raise BadInput(f"{path} has none of the queries of {name}")
        return {q: dict(list(run.get(q, {}).items())[:DEPTH]) for q in queries}
    run = {}
    for part in parts:
        if not part.ranked_ids:
            return None
        for ranked_id in part.ranked_ids:
            source = IrSource(ranked_id)
            ranked = source.candidates(DEPTH) if source.has("scoreddocs") else None
            if ranked is None:
                return None
            run |= {f"{part.prefix}{query_id}": scores for query_id, scores in ranked.items()}
    return {query_id: run.get(query_id, {}) for query_id in queries}


def _bm25_runs(
    documents: DocumentStore,
    queries: Mapping[str, Mapping[str, str]],
    analysis: first_stage.TextAnalysis,
) -> dict[str, Run]:
    """BM25 over all documents for splits without candidates, with one index for all."""
    if not queries:
        return {}
    beside(
        f"BM25 for {sum(map(len, queries.values())):,} queries over {len(documents):,} documents"
    )
    index = first_stage.Bm25Index(documents, analysis)
    return {split: index.run(texts, depth=DEPTH) for split, texts in queries.items()}


def _ranked_documents(
    folder: Path, name: str, recipe: Recipe, qrels: Mapping[str, Qrels], runs: Mapping[str, Run]
) -> DocumentStore:
    """The ranked or relevant documents, of a collection too large to store."""
    for split in recipe.splits:
        if split not in runs:
            raise BadInput(
                f"{name} is too large for our BM25; put a TREC run for its {split} queries at "
                f"{_run_files(name, split)[0]} (or .gz)"
            )
    source = IrSource(recipe.parts[0].dataset_id)
    wanted = {doc_id for run in runs.values() for ranked in run.values() for doc_id in ranked}
    wanted |= {doc_id for of_split in qrels.values() for doc_id in _relevant(of_split)}
    folder.mkdir()
    return write_document_store(folder, source.some_documents(wanted), source=source.documents_id)


def _run_files(name: str, split: str) -> list[Path]:
    import ir_datasets

    folder = Path(ir_datasets.util.home_path()) / "runs" / file_name(name)
    return [folder / f"{split}.run", folder / f"{split}.run.gz"]


def _absent(doc_ids: Iterable[str], documents: DocumentStore) -> list[str]:
    names = sorted(set(doc_ids))
    return [names[n] for n in np.flatnonzero(documents.rows(names) < 0)]


def _relevant(qrels: Qrels) -> Iterable[str]:
    return (doc for judged in qrels.values() for doc, grade in judged.items() if grade > 0)


PREFIX = "ir:"
LAYOUT_VERSION = 3
_FOLD = re.compile(r"(?P<name>[\w-]+)/(?P<fold>fold\d+)")


def is_fold(name: str) -> bool:
    """True for a fold of a named collection, `NAME/fold2`."""
    match = _FOLD.fullmatch(name)
    return match is not None and match["name"] in NAMED


def load_named(name: str) -> Collection:
    """The collection of an entry of `NAMED`, or of one of its folds."""
    match = _FOLD.fullmatch(name)
    base, fold = (match["name"], match["fold"]) if match else (name, "")
    return load_recipe(base, NAMED[base], fold=fold)


def load_recipe(name: str, recipe: Recipe, *, fold: str = "") -> Collection:
    """The collection of a recipe; `fold` chooses a fold of a pool."""
    if fold and not recipe.is_pool:
        raise BadInput(f"{name} has its own splits and no folds, got fold {fold!r}")
    shared = None if recipe.ranked_only else _documents(recipe.parts[0].dataset_id)
    folder = cached_directory(
        "collections",
        f"{file_name(name)}-{_key(name, recipe)}",
        lambda folder: build(folder, name, recipe, shared),
    )
    documents_folder = shared.folder if shared else folder / OWN_DOCUMENTS
    whole = _open(name, folder, documents_folder, _language(recipe))
    whole = dataclasses.replace(whole, leaves_own_out=recipe.leaves_own_out)
    return _of_fold(whole, recipe, fold or "fold1") if recipe.is_pool else whole


def _key(name: str, recipe: Recipe) -> str:
    """A hash of what a recipe's files depend on: itself, the user's runs and BM25's settings."""
    runs = [path for split in recipe.splits if (path := run_file(name, split)) is not None]
    states = [content_state(path) for path in runs]
    all_parts = {split: list(map(dataclasses.astuple, p)) for split, p in recipe.splits.items()}
    analysis = first_stage.TextAnalysis(_language(recipe))
    bm25 = [first_stage.recipe(analysis), first_stage.K1, first_stage.B, DEPTH]
    settings = ["own documents left out"] * recipe.leaves_own_out
    settings += _reading_of(recipe.parts[0].dataset_id)
    return _digest(LAYOUT_VERSION, all_parts, recipe.ranked_only, bm25, states, *settings)


def _reading_of(dataset_id: str) -> list[str]:
    """How documents are read where that has changed: those of BEIR, whose titles may be blank."""
    return ["blank titles are left out"] * dataset_id.startswith("beir/")


def _language(recipe: Recipe) -> str:
    """The language of a recipe's documents."""
    return IrSource(recipe.parts[0].dataset_id).language


def _documents(dataset_id: str) -> DocumentStore:
    """All documents of a dataset."""
    source = IrSource(dataset_id)
    key = _digest(source.documents_id, *_reading_of(dataset_id))
    return stored_documents(key, source.documents, source=source.documents_id)


def _digest(*parts: object) -> str:
    import ir_datasets

    text = json.dumps([STORE_VERSION, ir_datasets.__version__, *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=4)
def _open(name: str, folder: Path, documents_folder: Path, language: str) -> Collection:
    documents = DocumentStore(documents_folder)
    names = [split for split in (*SPLITS, POOL) if (folder / split).is_dir()]
    splits = {split: open_split(folder / split, documents) for split in names}
    content_hash = (folder / HASH).read_text(encoding="ascii")
    return Collection(name, content_hash, documents, Splits(name, splits), language=language)


def _of_fold(collection: Collection, recipe: Recipe, fold: str) -> Collection:
    whole = collection.splits[POOL]
    query_ids = list(whole.queries)
    folds = huston_croft() if recipe.folds == "huston-croft" else round_robin(whole.queries)
    members = rotate(folds, fold, query_ids)
    splits = {split: whole.subset(query_ids) for split, query_ids in members.items()}
    splits["train"] = splits["train"].judged_in(collection.documents)
    text = json.dumps([collection.content_hash, members])
    return Collection(
        f"{collection.name}/{fold}",
        hashlib.sha256(text.encode()).hexdigest()[:16],
        collection.documents,
        Splits(collection.name, splits),
        language=collection.language,
    )


def is_dataset(name: str) -> bool:
    """True for an id of ir_datasets."""
    return name in known_ids()


def load_dataset(dataset_id: str) -> Collection:
    """The collection of an ir_datasets id, named `ir:ID`."""
    return load_recipe(f"{PREFIX}{dataset_id}", recipe_of(dataset_id))


def recipe_of(dataset_id: str) -> Recipe:
    """The splits that an id stands for; raises `BadInput` for an id without judgments.

    An id that ends in train, dev or test also stands for its siblings. An id without own judgments,
    such as `beir/nfcorpus`, stands for its train, dev and test. Any other id is a test set; of web
    crawls only ranked and relevant documents are kept.
    """
    base, _, last = dataset_id.rpartition("/")
    judged = _is_judged(dataset_id)
    if judged and last not in SPLITS:
        is_web = IrSource(dataset_id).is_web
        return Recipe({"test": (DatasetPart(dataset_id),)}, ranked_only=is_web)
    base = base if judged else dataset_id
    ids = [f"{base}/{split}" for split in SPLITS]
    parts = {
        split: (DatasetPart(id_),)
        for split, id_ in zip(SPLITS, ids, strict=True)
        if is_dataset(id_) and _is_judged(id_)
    }
    if not parts:
        raise BadInput(f"neither {dataset_id} nor {', '.join(ids)} has docs, queries and qrels")
    return Recipe(parts)


def _is_judged(dataset_id: str) -> bool:
    return IrSource(dataset_id).has("docs", "queries", "qrels")
