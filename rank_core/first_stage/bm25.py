"""BM25 without Java in one call.

Analysis: lower case, words, Lucene's 33 English stop words, Porter stems. Lucene itself rounds
document lengths to one byte and knows finer rules for words; this does so on demand only, so a few
ranks differ by default from an index built by it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from rank_core.first_stage.analysis import STOP_WORDS
from rank_core.first_stage.index import Bm25Index, best
from rank_core.first_stage.settings import DEPTH, K1, B, Bm25Settings, require_depth

if TYPE_CHECKING:  # rank_core.data uses this package, so a real import would be a circle
    from rank_core.records import Run

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_POSSESSIVE = re.compile(r"['’]s$")


def recipe(*, exact_lucene: bool = False) -> str:
    """What the scores depend on besides the texts; part of every cache key of a first stage."""
    if exact_lucene:
        return f"exact lucene 1, regex {version('regex')}"
    return f"bm25s {version('bm25s')}, PyStemmer {version('PyStemmer')}, lucene analysis 1"


def bm25_run(
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    *,
    depth: int = DEPTH,
    k1: float = K1,
    b: float = B,
    exact_lucene: bool = False,
) -> Run:
    """The `depth` best documents of each query; ties are broken by doc_id.

    A document that shares no term with the query is not retrieved, so a query may get fewer than
    `depth` documents or none. `exact_lucene` gives the ranking of a Lucene index (its one-byte
    lengths, words, stems and arithmetic) in place of the plain formula.
    """
    require_depth(depth)
    if exact_lucene:
        return Bm25Index(documents).run(queries, Bm25Settings(k1=k1, b=b), depth=depth)
    analyse = _analyser()
    doc_ids = sorted(documents)  # a document's number is then its place among ties
    vocabulary: dict[str, int] = {}
    term_ids = [
        [vocabulary.setdefault(term, len(vocabulary)) for term in analyse(documents[doc_id])]
        for doc_id in doc_ids
    ]
    if not vocabulary:
        return {query_id: {} for query_id in queries}
    index = _index(term_ids, vocabulary, k1=k1, b=b)
    run: Run = {}
    for query_id, text in queries.items():
        known = [vocabulary[term] for term in analyse(text) if term in vocabulary]
        scores_D = index.get_scores_from_ids(known) if known else np.zeros(len(doc_ids))
        run[query_id] = {
            doc_ids[number]: float(scores_D[number]) for number in best(scores_D, depth)
        }
    return run


def _index(term_ids: list[list[int]], vocabulary: dict[str, int], *, k1: float, b: float) -> Any:
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it announces each index it builds
    index = bm25s.BM25(method="lucene", k1=k1, b=b)
    # Our own numbering of the terms: that of bm25s changes with the hash seed of the process.
    corpus = bm25s.tokenization.Tokenized(ids=term_ids, vocab=vocabulary)
    index.index(corpus, create_empty_token=False, show_progress=False)
    return index


def _analyser() -> Callable[[str], list[str]]:
    """A function from a text to its index terms."""
    import Stemmer

    stemmer = Stemmer.Stemmer("porter")
    stems: dict[str, str] = {}

    def stem(word: str) -> str:
        if word not in stems:
            stems[word] = stemmer.stemWord(_POSSESSIVE.sub("", word))
        return stems[word]

    def analyse(text: str) -> list[str]:
        words = _WORD.findall(text.lower())
        return [stem(word) for word in words if word not in STOP_WORDS]

    return analyse
