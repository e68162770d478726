"""BM25 and RM3 in memory, exactly as in Lucene and Anserini, without Java.

Lucene encodes document lengths in one byte and computes in single precision, which decides the
order of nearly equal scores. Source: BM25Similarity and SmallFloat of Lucene 9. RM3 is the mixture
of a query and a relevance model of its top documents (Abdul-Jaleel et al., TREC 2004).
"""

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rank_core.errors import BadInput
from rank_core.evaluate import without_ties
from rank_core.first_stage.analysis import Memo, analyser, pieces_of
from rank_core.first_stage.languages import LUCENE_ENGLISH, TextAnalysis
from rank_core.records import Run

DEPTH = 100
K1 = 0.9
B = 0.4


@dataclass(frozen=True)
class Rm3:
    """Query expansion by a relevance model mixed with the query (Abdul-Jaleel et al., TREC 2004).

    `fb_terms` terms from the top `fb_docs` documents; the original query has weight
    `original_weight`.
    """

    fb_terms: int = 10
    fb_docs: int = 10
    original_weight: float = 0.5

    def __post_init__(self) -> None:
        if min(self.fb_terms, self.fb_docs) < 1 or not 0 <= self.original_weight <= 1:
            raise BadInput(
                f"fb_terms, fb_docs >= 1 and 0 <= original_weight <= 1 must hold, got {self}"
            )


@dataclass(frozen=True)
class Bm25Settings:
    """BM25's saturation `k1` and length normalisation `b`, optionally with RM3."""

    k1: float = K1
    b: float = B
    rm3: Rm3 | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.k1) and self.k1 >= 0 and 0 <= self.b <= 1):
            raise BadInput(f"k1 >= 0 and 0 <= b <= 1 must hold, got k1={self.k1}, b={self.b}")


class Retriever(Protocol):
    """Retrieves from a set of documents."""

    def run(
        self, queries: Mapping[str, str], settings: Bm25Settings = ..., *, depth: int = ...
    ) -> Run:
        """The top `depth` documents of each query; ties are broken by doc_id."""


def require_depth(depth: int) -> None:
    """Raises `BadInput` for a depth below 1."""
    if depth < 1:
        raise BadInput(f"depth >= 1 must hold, got depth={depth}")


MOST_FREQUENT = 0.1
"""Maximum document frequency, as a fraction, of terms that may expand a query."""

_PLAIN = re.compile("[a-z0-9]{2,20}")
_LONGEST = 20  # characters, in any other language

Weights = dict[str, float]


def may_expand(term: str, num_with: int, num_documents: int, *, english: bool = True) -> bool:
    """True if a term in `num_with` of the documents may expand a query: in English one of plain
    letters and digits, as in Anserini, otherwise one of 2 to 20 characters."""
    if num_with > MOST_FREQUENT * num_documents:
        return False
    return _PLAIN.fullmatch(term) is not None if english else 2 <= len(term) <= _LONGEST


def expanded(
    query: Mapping[str, float],
    documents: Sequence[Mapping[str, float]],
    scores: Iterable[float],
    settings: Rm3,
) -> Weights:
    """{term: weight} of a query's terms and of those from its top documents.

    `query` and `documents` are term counts, for documents only of terms that may expand a query;
    `scores` are the documents'. Both parts are normalised to sum 1 and mixed; the query's weight is
    the same where no term expands it, so that its BM25 scores shrink (weight 0 would rank nothing).
    """
    model: Weights = {}
    for counts, score in zip(documents, scores, strict=True):
        # Anserini cuts each document's terms before it mixes them, and the mixture again.
        for term, share in _shares(_largest(counts, settings.fb_terms)).items():
            model[term] = model.get(term, 0.0) + share * score
    model, query_shares = _shares(_largest(model, settings.fb_terms)), _shares(query)
    kept = settings.original_weight or float(not model)
    mixed = {term: kept * share for term, share in query_shares.items()}
    for term, share in model.items():
        mixed[term] = mixed.get(term, 0.0) + (1 - kept) * share
    return mixed


def _largest(weights: Mapping[str, float], number: int) -> Weights:
    """The terms with the largest weights; ties in alphabetical order."""
    ranked = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
    return dict(ranked[:number])


def _shares(weights: Mapping[str, float]) -> Weights:
    total = sum(weights.values())
    return {term: weight / total for term, weight in weights.items()}


_EXACT_LENGTHS = 24
"""Codes below this are the lengths themselves; others have a leading bit and three more."""


def recipe(analysis: TextAnalysis = LUCENE_ENGLISH) -> str:
    """All that scores depend on besides texts and settings; part of every cache key of BM25."""
    of_analysis = analysis.recipe()
    return f"exact lucene 1, regex {version('regex')}" + (of_analysis and f", {of_analysis}")


def length_to_byte(length: int) -> int:
    """The code (0 to 255) of a length in terms: exact up to 39, then with four significant bits."""
    if length < _EXACT_LENGTHS:
        return length
    # Lucene's SmallFloat.intToByte4: a float with a mantissa of four bits, the leading one implied.
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
    are `_documents_P[starts[t]:starts[t + 1]]`, P over all terms. Texts are analysed as English, or
    by `analysis`."""

    def __init__(
        self, documents: Mapping[str, str], analysis: TextAnalysis = LUCENE_ENGLISH
    ) -> None:
        self._analysis = analysis
        self._doc_ids = sorted(documents)  # ties are then broken by document number
        self._vocabulary: dict[str, int] = {}
        terms_T, lengths_D = self._analysed(documents)
        codes = [length_to_byte(int(length)) for length in lengths_D]
        # Documents whose lengths share a code have equal norms, and so equal scores where Lucene's
        # are equal.
        self._quantised_D = np.array([byte_to_length(code) for code in codes], dtype=np.float32)
        self._num_with_terms = int(np.count_nonzero(lengths_D))
        # The mean of the unquantised lengths.
        self._mean_length = np.float32(lengths_D.sum() / max(self._num_with_terms, 1))
        # A key per token, equal for tokens of the same term and document.
        num_documents = max(len(lengths_D), 1)
        keys = terms_T * np.int64(num_documents)
        keys += np.repeat(np.arange(len(lengths_D)), lengths_D)
        del terms_T
        # One sort of integers in place of a dictionary of dictionaries: postings lie in order of
        # term and document, and runs of equal keys are the frequencies.
        keys.sort()
        is_first = np.ones(len(keys), dtype=bool)
        is_first[1:] = keys[1:] != keys[:-1]
        firsts = np.flatnonzero(is_first)
        self._frequencies_P = np.diff(firsts, append=len(keys)).astype(np.float32)
        keys = keys[firsts]
        first_keys = np.arange(len(self._vocabulary) + 1) * num_documents
        self._starts = np.searchsorted(keys, first_keys)
        self._documents_P = (keys % num_documents).astype(np.int32)
        self._analyse = analyser(analysis.terms())

    def _analysed(self, documents: Mapping[str, str]) -> tuple[np.ndarray, np.ndarray]:
        """(term numbers of all tokens, number of tokens per document)."""
        numbers, terms_of = self._vocabulary, self._analysis.terms()
        known: Memo[list[int]] = Memo(
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
        settings: Bm25Settings = Bm25Settings(),
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
        settings: Bm25Settings = Bm25Settings(),
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
        hits = best(scores_D, rm3.fb_docs)
        counts, scores = [self._counts(n) for n in hits], map(float, scores_D[hits])
        return self._sums(expanded(weights, counts, scores, rm3), inverse_norms_D)

    def _inverse_norms(self, settings: Bm25Settings) -> np.ndarray:
        """1 / (k1 (1 - b + b length / mean length)) per document; infinite for k1 = 0."""
        k1, b, one = np.float32(settings.k1), np.float32(settings.b), np.float32(1)
        mean = self._mean_length if self._mean_length > 0 else one
        with np.errstate(divide="ignore"):
            # The order of operations is Lucene's: another one rounds differently in single
            # precision.
            return one / (k1 * ((one - b) + b * self._quantised_D / mean))

    def _counts(self, document: int) -> dict[str, float]:
        """{term: frequency} of a document, for terms that may expand a query."""
        places_P, starts, names, num_with = self._by_document
        places = places_P[starts[document] : starts[document + 1]]
        terms = np.searchsorted(self._starts, places, side="right") - 1
        return {
            names[term]: float(self._frequencies_P[place])
            for term, place in zip(terms, places, strict=True)
            if may_expand(
                names[term],
                int(num_with[term]),
                len(self._doc_ids),
                english=self._analysis.is_english,
            )
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
            # The 1 inside keeps the weight of a term in more than half of the documents positive.
            idf = np.log(1 + (self._num_with_terms - num_with + 0.5) / (num_with + 0.5))
            weight = np.float32(count) * np.float32(idf)
            saturation = inverse_norms_D[documents]
            saturation *= self._frequencies_P[postings]
            saturation += one
            # weight tf / (tf + norm) as Lucene writes it: weight - weight / (1 + tf / norm), which
            # grows with tf also after rounding.
            scores_D[documents] += weight - weight / saturation
        return scores_D.astype(np.float32)


def best(scores_D: np.ndarray, depth: int) -> np.ndarray:
    """The numbers of the `depth` highest positive scores; ties by number."""
    hits = np.flatnonzero(scores_D > 0)
    if len(hits) > depth:
        # All ties at the cut stay until the stable sort has put them in order of their numbers.
        least = np.partition(scores_D[hits], -depth)[-depth]
        hits = hits[scores_D[hits] >= least]
    return hits[np.argsort(-scores_D[hits], kind="stable")][:depth]
