"""Documents that are a query itself: by its id, as in BEIR's ArguAna and Quora, whose queries are
documents, or by its text. They rank first in every system and measure nothing, and in training
they are negatives that say the query's own words. Where the collection says so they are no
candidates, as in BEIR's own evaluation; elsewhere a note counts them."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from rank_core.data.folds import same_text
from rank_core.data.store import TEXTS, DocumentStore
from rank_core.notes import say
from rank_core.records import Qrels, Run

OWN_DOCUMENTS = "own_documents"
"""The field of `ranksweep.json` that is false where they are left out."""
_FIRST = 10  # documents of a run without texts in which the query's own id is looked for
_SPACE = 64  # characters by which equal texts may differ in white space
_TITLE = 1000  # the longest title

OfTexts = Mapping[str, Collection[str]]
"""{text, as `same_text` has it: the documents with this text}."""


def documents_of(
    queries: Iterable[Mapping[str, str]], documents: Mapping[str, str]
) -> dict[str, set[str]]:
    """The documents that have the text of a query, with a title before it or without."""
    texts = {same_text(text) for of_split in queries for text in of_split.values()}
    longest = 2 * max(map(len, texts), default=0) + _SPACE
    found: dict[str, set[str]] = {}
    for doc_id, text in _short(documents, 4 * longest + _TITLE):
        for part in (text, text.partition("\n")[2]):
            if len(part) <= longest and (same := same_text(part)) in texts:
                found.setdefault(same, set()).add(doc_id)
    return found


def _short(documents: Mapping[str, str], most: int) -> Iterator[tuple[str, str]]:
    """The documents of at most so many bytes; those of a store are found without reading the
    others."""
    if isinstance(documents, DocumentStore):
        table = documents.table
        for row in np.flatnonzero(table.column(TEXTS).lengths() <= most).tolist():
            yield table.id_of(row), documents.value(row)
    else:
        yield from ((name, text) for name, text in documents.items() if len(text) <= most)


class OwnDocuments:
    """Watches the candidates of a split, and leaves out a query's own ones with `left_out`. A
    relevant document with the query's text stays."""

    def __init__(
        self,
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        qrels: Qrels,
        of_texts: OfTexts,
        *,
        left_out: bool,
    ) -> None:
        self._queries, self._documents, self._qrels = queries, documents, qrels
        self._of_texts, self._left_out = of_texts, left_out
        self.found: list[str] = []
        """The queries that have a document of their own among their candidates."""

    def watched(
        self, ranked: Iterable[tuple[str, dict[str, float]]]
    ) -> Iterator[tuple[str, dict[str, float]]]:
        """The candidates of each query."""
        for query_id, scores in ranked:
            own = self._own(query_id, scores)
            if own:
                self.found.append(query_id)
            if own and self._left_out:
                scores = {doc_id: score for doc_id, score in scores.items() if doc_id not in own}
            yield query_id, scores

    def _own(self, query_id: str, doc_ids: Collection[str]) -> set[str]:
        if query_id not in self._queries:
            return set()
        query, judged = same_text(self._queries[query_id]), self._qrels.get(query_id, {})
        own = set()
        if query_id in doc_ids:
            text = same_text(self._documents[query_id])
            if self._left_out or query in text or text in query:
                own.add(query_id)
        for doc_id in self._of_texts.get(query, ()):
            if doc_id in doc_ids and not (self._left_out and judged.get(doc_id, 0) > 0):
                own.add(doc_id)
        return own

    def note(self, split: str) -> None:
        """Says how many queries have one."""
        if not self.found:
            return
        number = f"{split}: {len(self.found):,} of {len(self._queries):,} queries"
        if self._left_out:
            say(f"{number} are documents themselves, which are left out of their candidates")
        else:
            say(
                f"{number} rank a document of their own id or text, such as {self.found[0]}: it "
                f'measures nothing, and is trained against; {{"{OWN_DOCUMENTS}": false}} in the '
                "folder's ranksweep.json leaves such documents out"
            )


def own_ids(run: Run, qrels: Qrels) -> str:
    """The note on judged queries of a run that rank the document of their own id among the first;
    "" for none."""
    own = [q for q in qrels if q in [*run.get(q, ())][:_FIRST]]
    if not own:
        return ""
    return (
        f"{len(own):,} of {len(qrels):,} judged queries rank the document of their own id among "
        f"the first {_FIRST}, such as {own[0]}: where it is the query itself, as in BEIR's ArguAna "
        "and Quora, published values leave it out."
    )
