"""One ir_datasets id: its documents, queries, judgments and ranked candidates, in our terms.

The parsers of ir_datasets read the files; its document stores and its extracts are not used, since
they are neither safe when several processes build them nor renewed when a source changes.
"""

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
    """A dataset by its id. Cheap to make and to send: nothing is opened before it is asked for."""

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
        """The id of all datasets with the same documents."""
        import ir_datasets

        return str(ir_datasets.docs_parent_id(self.dataset_id))

    def has(self, entity: str) -> bool:
        """Whether the dataset has `docs`, `queries`, `qrels` or `scoreddocs`."""
        return hasattr(self._dataset, f"{entity}_handler")

    @property
    def is_web(self) -> bool:
        """Whether the documents are crawled pages in archives, many millions of them."""
        return is_web(self._handler("docs"))

    def files(self, *entities: str) -> list[SourceFile]:
        """The files behind these entities, where the dataset has them."""
        return list(
            chain.from_iterable(
                source_files(self._handler(entity)) for entity in entities if self.has(entity)
            )
        )

    def require(self, *entities: str) -> None:
        """Refuse a dataset that lacks an entity, or a file of one that nobody can get."""
        for entity in entities:
            if not self.has(entity):
                has = ", ".join(name for name in ENTITIES if self.has(name))
                raise BadInput(f"{self.dataset_id} must have {entity}, found {has or 'nothing'}")
        require_files(self.dataset_id, self.files(*entities))

    def states(self, *entities: str) -> list[FileState]:
        """The state of the files behind these entities."""
        return file_states(self.files(*entities))

    def require_unchanged(self, states: list[FileState], *entities: str) -> None:
        """Refuse a source whose files changed since they had these states."""
        now = self.states(*entities)
        if now != states:
            changed = sorted({path for path, _, _ in set(now) ^ set(states)})
            raise BadInput(
                f"{self.dataset_id}: files may not change while they are read, "
                f"{changed[0]} did; run again"
            )

    def documents(self) -> Iterator[tuple[str, str]]:
        """(doc_id, text) of every document; the title, where there is one, comes first."""
        with self._reading("docs") as handler:
            for document in handler.docs_iter():
                yield document.doc_id, _text(document)

    def some_documents(self, wanted: Iterable[str]) -> Iterator[tuple[str, str]]:
        """(doc_id, text) of the wanted documents that there are, in the order of the source.

        Collections of web pages keep a page where its id says, so only these files are read.
        """
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
        """{query_id: text}; of several fields (title, description) the given one."""
        queries: dict[str, str] = {}
        with self._reading("queries") as handler:
            for query in handler.queries_iter():
                if field is not None and field not in query._fields:
                    raise unknown(f"query field of {self.dataset_id}", field, query._fields[1:])
                text = query.default_text() if field is None else getattr(query, field)
                queries[query.query_id] = " ".join(text.split())
        return queries

    def qrels(self) -> Qrels:
        """The judgments; of several for one query and document (subtopics) the highest."""
        qrels: Qrels = {}
        with self._reading("qrels") as handler:
            for judgment in handler.qrels_iter():
                judged = qrels.setdefault(judgment.query_id, {})
                known = judged.get(judgment.doc_id, judgment.relevance)
                judged[judgment.doc_id] = max(known, judgment.relevance)
        return qrels

    def candidates(self, depth: int) -> Run | None:
        """The `depth` best scored documents of each query; None where they have no order.

        The lists of MS MARCO passages are such sets of a thousand passages without scores.
        """
        run: Run = {}
        with self._reading("scoreddocs") as handler:
            for scored in handler.scoreddocs_iter():
                # One object for each doc_id, not one for each of the 37 million lines.
                run.setdefault(scored.query_id, {})[sys.intern(scored.doc_id)] = scored.score
                if len(run) == 2 and _all_equal(next(iter(run.values()))):
                    return None
        if all(_all_equal(scores) for scores in run.values()):
            return None
        return {query_id: _best(scores, depth) for query_id, scores in run.items()}

    def _handler(self, entity: str) -> Any:
        return getattr(self._dataset, f"{entity}_handler")()

    def _reading(self, entity: str) -> "_Reading":
        return _Reading(self.dataset_id, self._handler(entity))


def known_ids() -> list[str]:
    """All ids that ir_datasets lists."""
    import ir_datasets

    return sorted(ir_datasets.registry)


class _Reading:
    """A handler that reads the source itself, and whose complaints say which dataset it was."""

    def __init__(self, dataset_id: str, handler: Any) -> None:
        self._dataset_id, self._handler = dataset_id, handler
        self._bypass = reading_the_source_itself(handler)

    def __enter__(self) -> Any:
        self._bypass.__enter__()
        return self._handler

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._bypass.__exit__(None, None, None)
        # A damaged file shows in many ways, and none of their messages names the collection.
        if isinstance(error, Exception) and not isinstance(error, BadInput):
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise BadInput(f"{self._dataset_id} could not be read: {reason}") from error


def _text(document: Any) -> str:
    """Title and text. Of a web page ir_datasets would put the two together without a space."""
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
