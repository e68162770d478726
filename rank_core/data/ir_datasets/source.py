"""An ir_datasets id: its documents, queries, judgments and ranked candidates, as our records.

Everything is read by the public interface of ir_datasets, which downloads what is missing, and says
on standard error where a file that it cannot download comes from and where to put it.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from filelock import FileLock

from rank_core.cache import cache_root
from rank_core.data.trec import in_rank_order
from rank_core.errors import BadInput, shown, unknown
from rank_core.records import Qrels, Run

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
            for judgment in dataset.qrels_iter():
                judged = qrels.setdefault(judgment.query_id, {})
                known = judged.get(judgment.doc_id, judgment.relevance)
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
        with FileLock(cache_root() / "ir_datasets.lock"):
            try:
                yield self._dataset
            except BadInput:
                raise
            except Exception as error:  # of the network, the disk or a damaged file
                raise BadInput(
                    f"{self.dataset_id} could not be read: {type(error).__name__} "
                    f"{shown(str(error))}; ir_datasets names a missing file and its place above"
                ) from error


def known_ids() -> list[str]:
    """All ids of ir_datasets."""
    import ir_datasets

    return sorted(ir_datasets.registry)


def _text(document: Any) -> str:
    """Title and text; ir_datasets would join a web page's without a space."""
    if not hasattr(document, "http_headers"):
        return str(document.default_text())
    import ir_datasets

    fields = ir_datasets.util.sax_html_parser(
        document.body, headers=document.http_headers, fields=[{"title"}, {"body"}]
    )
    return "\n".join(field for field in fields if field)


def _all_equal(scores: dict[str, float]) -> bool:
    return len(scores) > 1 and len(set(scores.values())) == 1
