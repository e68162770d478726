"""BM25 and RM3 in memory, exactly as in Lucene, without Java.

Lucene encodes document lengths in one byte and computes in single precision, which decides the
order of nearly equal scores. Source: BM25Similarity and SmallFloat of Lucene 9.
"""

from array import array
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import version
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rank_core.evaluate import without_ties
from rank_core.first_stage.analysis import Memo, lucene_analyser, pieces_of, terms_of
from rank_core.first_stage.rm3 import expanded, may_expand
from rank_core.first_stage.settings import DEPTH, Bm25Settings, Rm3, require_depth
from rank_core.records import Run

_EXACT_LENGTHS = 24
"""Codes below this are the lengths themselves; others have a leading bit and three more."""


def recipe() -> str:
    """All that scores depend on besides texts and settings; part of every cache key of BM25."""
    return f"exact lucene 1, regex {version('regex')}"


def length_to_byte(length: int) -> int:
    """The code (0 to 255) of a length in terms: exact up to 39, then with four significant bits."""
    if length < _EXACT_LENGTHS:
        return length
    rest = length - _EXACT_LENGTHS
    shift = max(rest.bit_length() - 4, -1)
    if shift < 0:
        return _EXACT_LENGTHS + rest
    return _EXACT_LENGTHS + ((shift + 1) << 3 | rest >> shift & 0b111)


def byte_to_length(code: int) -> int:
    """The smallest length with this code."""
    rest = code - _EXACT_LENGTHS
    if rest < 8:
        return code
    return _EXACT_LENGTHS + ((rest & 0b111 | 0b1000) << (rest >> 3) - 1)


class Bm25Index:
    """An inverted index in memory: built once, searched with any k1 and b. The postings of term t
    are `_documents_P[starts[t]:starts[t + 1]]`, P over all terms."""

    def __init__(self, documents: Mapping[str, str]) -> None:
        self._doc_ids = sorted(documents)  # ties are then broken by document number
        self._vocabulary: dict[str, int] = {}
        terms_T, lengths_D = self._analysed(documents)
        codes = [length_to_byte(int(length)) for length in lengths_D]
        self._quantised_D = np.array([byte_to_length(code) for code in codes], dtype=np.float32)
        self._num_with_terms = int(np.count_nonzero(lengths_D))
        # The mean of the unquantised lengths.
        self._mean_length = np.float32(lengths_D.sum() / max(self._num_with_terms, 1))
        # A key per token, equal for tokens of the same term and document.
        num_documents = max(len(lengths_D), 1)
        keys = terms_T * np.int64(num_documents)
        keys += np.repeat(np.arange(len(lengths_D)), lengths_D)
        del terms_T
        keys.sort()
        is_first = np.ones(len(keys), dtype=bool)
        is_first[1:] = keys[1:] != keys[:-1]
        firsts = np.flatnonzero(is_first)
        self._frequencies_P = np.diff(firsts, append=len(keys)).astype(np.float32)
        keys = keys[firsts]
        first_keys = np.arange(len(self._vocabulary) + 1) * num_documents
        self._starts = np.searchsorted(keys, first_keys)
        self._documents_P = (keys % num_documents).astype(np.int32)
        self._analyse = lucene_analyser()

    def _analysed(self, documents: Mapping[str, str]) -> tuple[np.ndarray, np.ndarray]:
        """(term numbers of all tokens, number of tokens per document)."""
        numbers = self._vocabulary
        known: Memo[str, list[int]] = Memo(
            lambda piece: [numbers.setdefault(term, len(numbers)) for term in terms_of(piece)]
        )
        terms_T, ends = array("i"), [0]
        for doc_id in self._doc_ids:
            terms_T.extend(
                chain.from_iterable(map(known.__getitem__, pieces_of(documents[doc_id])))
            )
            ends.append(len(terms_T))
        return np.array(terms_T, dtype=np.int32), np.diff(ends)

    def run(
        self,
        queries: Mapping[str, str],
        settings: Bm25Settings = Bm25Settings(),  # noqa: B008 - frozen
        *,
        depth: int = DEPTH,
    ) -> Run:
        """The top `depth` documents of each query; ties are broken by doc_id, also in the scores.
        Only documents with a term of the query are ranked. Raises `BadInput` for depth < 1."""
        require_depth(depth)
        inverse_norms_D = self._inverse_norms(settings)
        run: Run = {}
        for query_id, text in queries.items():
            scores_D = self._scores(text, settings.rm3, inverse_norms_D)
            hits = best(scores_D, depth)
            scores = without_ties(scores_D[hits])
            run[query_id] = {self._doc_ids[n]: score for n, score in zip(hits, scores, strict=True)}
        return run

    def scores(
        self,
        query: str,
        settings: Bm25Settings = Bm25Settings(),  # noqa: B008 - frozen
    ) -> NDArray[np.float32]:
        """score_D in doc_id order; 0 without a common term."""
        return self._scores(query, settings.rm3, self._inverse_norms(settings))

    def _scores(
        self, query: str, rm3: Rm3 | None, inverse_norms_D: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        weights: Mapping[str, float] = Counter(self._analyse(query))
        scores_D = self._sums(weights, inverse_norms_D)
        if rm3 is None:
            return scores_D
        return self._sums(self._expanded(weights, scores_D, rm3), inverse_norms_D)

    def _inverse_norms(self, settings: Bm25Settings) -> np.ndarray:
        """1 / (k1 (1 - b + b length / mean length)) per document; infinite for k1 = 0."""
        k1, b, one = np.float32(settings.k1), np.float32(settings.b), np.float32(1)
        mean = self._mean_length if self._mean_length > 0 else one
        with np.errstate(divide="ignore"):
            return one / (k1 * ((one - b) + b * self._quantised_D / mean))

    def _expanded(
        self, query: Mapping[str, float], scores_D: np.ndarray, settings: Rm3
    ) -> Mapping[str, float]:
        hits = best(scores_D, settings.fb_docs)
        return expanded(
            query, [self._counts(n) for n in hits], map(float, scores_D[hits]), settings
        )

    def _counts(self, document: int) -> dict[str, float]:
        """{term: frequency} of a document, for terms that may expand a query."""
        places_P, starts, names, num_with = self._by_document
        places = places_P[starts[document] : starts[document + 1]]
        terms = np.searchsorted(self._starts, places, side="right") - 1
        return {
            names[term]: float(self._frequencies_P[place])
            for term, place in zip(terms, places, strict=True)
            if may_expand(names[term], int(num_with[term]), len(self._doc_ids))
        }

    @cached_property
    def _by_document(self) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
        """Positions of the postings in document order, each document's first, the terms, and their
        document frequencies."""
        places_P = np.argsort(self._documents_P, kind="stable")
        starts = np.searchsorted(self._documents_P[places_P], np.arange(len(self._doc_ids) + 1))
        return places_P, starts, list(self._vocabulary), np.diff(self._starts)

    def _sums(self, query: Mapping[str, float], inverse_norms_D: np.ndarray) -> NDArray[np.float32]:
        """score_D: terms in single precision, their sum in double, the total in single."""
        scores_D = np.zeros(len(self._doc_ids))
        one = np.float32(1)
        for term, count in query.items():
            number = self._vocabulary.get(term)
            if number is None:
                continue
            postings = slice(self._starts[number], self._starts[number + 1])
            documents = self._documents_P[postings].astype(np.intp)  # the fastest for indexing
            num_with = len(documents)
            idf = np.log(1 + (self._num_with_terms - num_with + 0.5) / (num_with + 0.5))
            weight = np.float32(count) * np.float32(idf)
            saturation = inverse_norms_D[documents]
            saturation *= self._frequencies_P[postings]
            saturation += one
            scores_D[documents] += weight - weight / saturation
        return scores_D.astype(np.float32)


def best(scores_D: np.ndarray, depth: int) -> np.ndarray:
    """The numbers of the `depth` highest positive scores; ties by number."""
    hits = np.flatnonzero(scores_D > 0)
    if len(hits) > depth:
        least = np.partition(scores_D[hits], -depth)[-depth]
        hits = hits[scores_D[hits] >= least]
    return hits[np.argsort(-scores_D[hits], kind="stable")][:depth]
