"""Measures of all queries at once in numpy, bit-equal to ir_measures.

Q queries, K ranked and J judged documents per query. Sums are accumulated in rank order, as in
trec_eval, because floating-point sums depend on the order.
"""

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from math import log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.records import Qrels, Run

DEEPEST = 1000  # maximum number of ranked documents per query
Values = NDArray[np.float64]


class Grades(NamedTuple):
    """Relevance grades of all queries; 0 for padding and unjudged documents."""

    ranked_QK: Values
    ideal_QJ: Values  # of all judged documents, descending


def grades_of(qrels: Qrels, run: Run) -> Grades | None:
    """The grades of each query of `qrels`; None where tools differ: scores that do not strictly
    decrease as float32, or negative grades."""
    ranked = [run.get(query_id, {}) for query_id in qrels]
    judged = [sorted(grades.values(), reverse=True) for grades in qrels.values()]
    sizes = [len(documents) for documents in ranked]
    if max(sizes, default=0) > DEEPEST or any(grades and grades[-1] < 0 for grades in judged):
        return None
    scores = chain.from_iterable(documents.values() for documents in ranked)
    score = np.fromiter(scores, dtype=np.float32, count=sum(sizes))
    falls = np.append(score[1:] < score[:-1], True)
    falls[np.cumsum(sizes, dtype=np.int64) - 1] = True  # the last document of a query
    if not falls.all() or np.isnan(score).any():
        return None
    grade = chain.from_iterable(
        map(grades.get, documents, repeat(0))
        for grades, documents in zip(qrels.values(), ranked, strict=True)
    )
    ideal = chain.from_iterable(judged)
    return Grades(_rows(grade, sizes), _rows(ideal, [len(grades) for grades in judged]))


def form_of(measure: Any) -> Callable[[Grades], Values] | None:
    """The function from grades to value_Q of an ir_measures measure; None for measures not in
    `FORMS` and for parameters other than `rel` and the cutoff."""
    settings = dict(measure.params)
    cutoff, rel = settings.pop("cutoff", None), settings.pop("rel", 1)
    form = FORMS.get(measure.NAME)
    if form is None or settings or rel < 1:
        return None
    return lambda grades: form(grades, rel, cutoff)


def _ndcg(grades: Grades, rel: int, cutoff: int | None) -> Values:
    return _share(_dcg(grades.ranked_QK[:, :cutoff]), _dcg(grades.ideal_QJ[:, :cutoff]))


def _dcg(grade_QK: Values) -> Values:
    # numpy's own logarithm may differ in the last bit.
    discount_K = np.asarray([log2(rank + 1) for rank in range(1, grade_QK.shape[1] + 1)])
    return _in_order(grade_QK / discount_K)


def _average_precision(grades: Grades, rel: int, cutoff: int | None) -> Values:
    hit_QK = _hits(grades, rel, cutoff)
    precision_QK = hit_QK.cumsum(1) / np.arange(1, hit_QK.shape[1] + 1)
    return _share(_in_order(np.where(hit_QK, precision_QK, 0.0)), _num_relevant(grades, rel))


def _reciprocal_rank(grades: Grades, rel: int, cutoff: int | None) -> Values:
    hit_QK = _hits(grades, rel, cutoff)
    return np.where(hit_QK.any(1), 1 / (hit_QK.argmax(1) + 1), 0.0)


def _precision(grades: Grades, rel: int, cutoff: int | None) -> Values:
    return _hits(grades, rel, cutoff).sum(1) / np.float64(cutoff)


def _recall(grades: Grades, rel: int, cutoff: int | None) -> Values:
    return _share(_hits(grades, rel, cutoff).sum(1), _num_relevant(grades, rel))


def _success(grades: Grades, rel: int, cutoff: int | None) -> Values:
    return np.where(_hits(grades, rel, cutoff).any(1), 1.0, 0.0)


def _r_precision(grades: Grades, rel: int, cutoff: int | None) -> Values:
    hit_QK, num_Q = _hits(grades, rel, cutoff), _num_relevant(grades, rel)
    counted_QK = hit_QK & (np.arange(hit_QK.shape[1]) < num_Q[:, None])
    return _share(counted_QK.sum(1), num_Q)


FORMS = {
    "nDCG": _ndcg,
    "AP": _average_precision,
    "RR": _reciprocal_rank,
    "P": _precision,
    "R": _recall,
    "Success": _success,
    "Rprec": _r_precision,
}


def _hits(grades: Grades, rel: int, cutoff: int | None) -> NDArray[np.bool_]:
    return grades.ranked_QK[:, :cutoff] >= rel


def _num_relevant(grades: Grades, rel: int) -> NDArray[np.int64]:
    return (grades.ideal_QJ >= rel).sum(1)


def _in_order(value_QK: Values) -> Values:
    """Sums from left to right; numpy's `sum` adds pairwise."""
    return value_QK.cumsum(1)[:, -1]


def _share(part_Q: NDArray[Any], whole_Q: NDArray[Any]) -> Values:
    return np.divide(part_Q, whole_Q, out=np.zeros(len(whole_Q)), where=whole_Q > 0)


def _rows(values: Iterable[float], sizes: list[int]) -> Values:
    """Rows with the given numbers of values, padded with 0."""
    flat = np.fromiter(values, dtype=np.float64, count=sum(sizes))
    rows = np.zeros((len(sizes), max(1, max(sizes, default=0))))
    rows[np.arange(rows.shape[1]) < np.asarray(sizes, dtype=np.int64)[:, None]] = flat
    return rows
