"""RM3: the mixture of a query and a relevance model of its top documents (Abdul-Jaleel et al., TREC
2004), step by step as in Anserini."""

import re
from collections.abc import Iterable, Mapping, Sequence

from rank_core.first_stage.settings import Rm3

MOST_FREQUENT = 0.1
"""Maximum document frequency, as a fraction, of terms that may expand a query."""

_PLAIN = re.compile("[a-z0-9]{2,20}")

Weights = dict[str, float]


def may_expand(term: str, num_with: int, num_documents: int) -> bool:
    """True if a term in `num_with` of the documents may expand a query."""
    frequent = num_with > MOST_FREQUENT * num_documents
    return not frequent and _PLAIN.fullmatch(term) is not None


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
        for term, share in _shares(_largest(counts, settings.fb_terms)).items():
            model[term] = model.get(term, 0.0) + share * score
    model, own = _shares(_largest(model, settings.fb_terms)), _shares(query)
    kept = settings.original_weight or float(not model)
    mixed = {term: kept * share for term, share in own.items()}
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
