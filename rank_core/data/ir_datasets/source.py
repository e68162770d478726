"""An ir_datasets id: its documents, queries, judgments and ranked candidates, as our records.

Files are read by ir_datasets' parsers. Its document stores and extracts are not used: they are not
safe when several processes build them, and not renewed when a source changes.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from rank_core.data.ir_datasets.files import FileState, file_states, require_files
from rank_core.data.ir_datasets.internals import (
    SourceFile,
    is_web,
    keep_what_the_user_put,
    reading_the_source_itself,
    source_files,
    web_pages,
)
from rank_core.data.trec import in_rank_order
from rank_core.errors import BadInput, unknown
from rank_core.records import Qrels, Run

ENTITIES = ("docs", "queries", "qrels", "scoreddocs")


@dataclass(frozen=True)
class IrSource:
    """A dataset by its id; nothing is opened before it is needed."""

    dataset_id: str

    @cached_property
    def _dataset(self) -> Any:
        import ir_datasets

        try:
            dataset = ir_datasets.load(self.dataset_id)
        except KeyError:
            raise unknown("ir_datasets id", self.dataset_id, known_ids()) from None
        keep_what_the_user_put(dataset)
        return dataset

    @cached_property
    def documents_id(self) -> str:
        """The id shared by all datasets with the same documents."""
        import ir_datasets

        return str(ir_datasets.docs_parent_id(self.dataset_id))

    def has(self, entity: str) -> bool:
        """True if the dataset has `docs`, `queries`, `qrels` or `scoreddocs`."""
        return hasattr(self._dataset, f"{entity}_handler")

    @property
    def is_web(self) -> bool:
        """True for crawled pages in archives, many millions of them."""
        return is_web(self._handler("docs"))

    def files(self, *entities: str) -> list[SourceFile]:
        """The files behind the entities that the dataset has."""
        return list(
            chain.from_iterable(
                source_files(self._handler(entity)) for entity in entities if self.has(entity)
            )
        )

    def require(self, *entities: str) -> None:
        """Raises `BadInput` for a missing entity, or a missing file that cannot be downloaded."""
        for entity in entities:
            if not self.has(entity):
                has = ", ".join(name for name in ENTITIES if self.has(name))
                raise BadInput(f"{self.dataset_id} has no {entity}, only {has or 'nothing'}")
        require_files(self.dataset_id, self.files(*entities))

    def states(self, *entities: str) -> list[FileState]:
        """The states of the files behind the entities."""
        return file_states(self.files(*entities))

    def require_unchanged(self, states: list[FileState], *entities: str) -> None:
        """Raises `BadInput` if a file has changed since `states`."""
        now = self.states(*entities)
        if now != states:
            changed = sorted({path for path, _, _ in set(now) ^ set(states)})
            raise BadInput(f"{self.dataset_id}: {changed[0]} changed while it was read; run again")

    def documents(self) -> Iterator[tuple[str, str]]:
        """(doc_id, text) of every document; the text starts with the title, if any."""
        with self._reading("docs") as handler:
            for document in handler.docs_iter():
                yield document.doc_id, _text(document)

    def some_documents(self, wanted: Iterable[str]) -> Iterator[tuple[str, str]]:
        """(doc_id, text) of the wanted documents that exist, in source order. Web pages are in
        archives named by their ids, so only those archives are read."""
        names = set(wanted)
        with self._reading("docs") as handler:
            pages = web_pages(handler, names) if is_web(handler) else handler.docs_iter()
            for document in pages:
                if document.doc_id in names:
                    names.remove(document.doc_id)
                    yield document.doc_id, _text(document)
                    if not names:
                        return

    def queries(self, field: str | None = None) -> dict[str, str]:
        """{query_id: text}; `field` chooses one of several (title, description)."""
        queries: dict[str, str] = {}
        with self._reading("queries") as handler:
            for query in handler.queries_iter():
                if field is not None and field not in query._fields:
                    raise unknown(f"query field of {self.dataset_id}", field, query._fields[1:])
                text = query.default_text() if field is None else getattr(query, field)
                queries[query.query_id] = " ".join(text.split())
        return queries

    def qrels(self) -> Qrels:
        """The judgments; the highest of several for a query and document (subtopics)."""
        qrels: Qrels = {}
        with self._reading("qrels") as handler:
            for judgment in handler.qrels_iter():
                judged = qrels.setdefault(judgment.query_id, {})
                known = judged.get(judgment.doc_id, judgment.relevance)
                judged[judgment.doc_id] = max(known, judgment.relevance)
        return qrels

    def candidates(self, depth: int) -> Run | None:
        """The top `depth` scored documents of each query; None if they have no order, as MS MARCO's
        thousand passages per query.
        """
        run: Run = {}
        with self._reading("scoreddocs") as handler:
            for scored in handler.scoreddocs_iter():
                # One object per doc_id, not one for each of 37 million lines.
                run.setdefault(scored.query_id, {})[sys.intern(scored.doc_id)] = scored.score
                if len(run) == 2 and _all_equal(next(iter(run.values()))):
                    return None
        if all(_all_equal(scores) for scores in run.values()):
            return None
        return {query_id: _best(scores, depth) for query_id, scores in run.items()}

    def _handler(self, entity: str) -> Any:
        return getattr(self._dataset, f"{entity}_handler")()

    @contextlib.contextmanager
    def _reading(self, entity: str) -> Iterator[Any]:
        """The handler of an entity, reading its source, with errors that name the dataset."""
        handler = self._handler(entity)
        try:
            with reading_the_source_itself(handler):
                yield handler
        except BadInput:
            raise
        except Exception as error:  # damaged files raise various ones, without the dataset's name
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise BadInput(f"{self.dataset_id} could not be read: {reason}") from error


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


def _best(scores: dict[str, float], depth: int) -> dict[str, float]:
    return dict(list(in_rank_order(scores).items())[:depth])
