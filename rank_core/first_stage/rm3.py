"""RM3: a query and a relevance model of its best documents, mixed (Abdul-Jaleel et al., TREC 2004),
step by step as Anserini does it."""

import re
from collections.abc import Iterable, Mapping, Sequence

from rank_core.first_stage.settings import Rm3

MOST_FREQUENT = 0.1
"""Terms in a larger share of the documents say nothing of what a query is about."""

_PLAIN = re.compile("[a-z0-9]{2,20}")

Weights = dict[str, float]


def may_expand(term: str, num_with: int, num_documents: int) -> bool:
    """Whether a term that `num_with` of the documents have may become one of a query."""
    frequent = num_with > MOST_FREQUENT * num_documents
    return not frequent and _PLAIN.fullmatch(term) is not None


def expanded(
    query: Mapping[str, float],
    documents: Sequence[Mapping[str, float]],
    scores: Iterable[float],
    settings: Rm3,
) -> Weights:
    """The weights of a query's terms and of those that its best documents add.

    `query` and `documents` are counts of terms, of the documents' only those that may expand;
    `scores` are the documents'. Each part's weights sum to one before they are mixed.
    """
    model: Weights = {}
    for counts, score in zip(documents, scores, strict=True):
        for term, share in _shares(_largest(counts, settings.fb_terms)).items():
            model[term] = model.get(term, 0.0) + share * score
    model, own = _shares(_largest(model, settings.fb_terms)), _shares(query)
    kept = settings.original_weight if model else 1.0
    mixed = {term: kept * share for term, share in own.items()}
    for term, share in model.items():
        mixed[term] = mixed.get(term, 0.0) + (1 - kept) * share
    return mixed


def _largest(weights: Mapping[str, float], number: int) -> Weights:
    """The terms of the largest weights, equal ones by the alphabet."""
    ranked = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
    return dict(ranked[:number])


def _shares(weights: Mapping[str, float]) -> Weights:
    """The same weights, with sum one."""
    total = sum(weights.values())
    return {term: weight / total for term, weight in weights.items()}
