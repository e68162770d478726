"""Effectiveness measures per query, as defined by ir_measures.

The common ones are computed for all queries at once in numpy, bit-equal to ir_measures. Q queries,
K ranked and J judged documents per query. Sums are accumulated in rank order, as in trec_eval,
because floating-point sums depend on the order.
"""

import math
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, repeat
from math import log2
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.errors import BadInput, nearest
from rank_core.records import Qrels, Run

if TYPE_CHECKING:
    import pandas as pd

WORKING = (
    "nDCG@10", "RR@10", "AP", "AP(rel=2)@100", "P@10", "R@100", "Success@5", "Rprec", "Bpref",
    "infAP", "SetF", "IPrec@0.2", "Compat(p=0.95)", "Judged@10", "nDCG(judged_only=True)@10",
    "ERR@20", "nDCG(dcg='exp-log2')@20",
)  # fmt: skip
"""Examples for messages; those in the last line need perl."""
_RANGES = {"cutoff": (1, math.inf), "rel": (1, math.inf), "recall": (0, 1), "p": (0, 1)}


def parse_measure(name: str) -> Any:
    """The ir_measures measure called `name`, such as nDCG@10 or AP(rel=2). Raises `BadInput` for an
    unknown measure or parameter."""
    import ir_measures

    try:
        measure = ir_measures.parse_measure(name)
    except (NameError, ValueError, TypeError, SyntaxError) as error:
        raise _unknown_measure(name, str(error)) from None
    parameters = measure.SUPPORTED_PARAMS
    if strange := sorted(measure.params.keys() - parameters.keys()):
        known = ", ".join(parameters) or "no setting"
        raise refused_measure(name, f"{measure.NAME} has no {', '.join(strange)}; it has {known}")
    for setting, parameter in parameters.items():
        if setting not in measure.params:
            if parameter.required:
                raise refused_measure(name, f"{measure.NAME} needs a {setting}")
            continue
        value, (least, most) = measure.params[setting], _RANGES.get(setting, (-math.inf, math.inf))
        wrong = not parameter.validate(value) or (parameter.dtype is int and value is True)
        if wrong or (parameter.dtype in (int, float) and not least <= value <= most):
            text = parameter.dtype is str
            kind = "/".join(parameter.choices) if text else parameter.dtype.__name__
            limits = f" from {least} to {most}" if setting in _RANGES else ""
            raise refused_measure(name, f"its {setting} must be {kind}{limits}")
    return measure


def query_values(qrels: Qrels, run: Run, name: str) -> dict[str, float]:
    """{judged query: value} of one measure, in the order of `qrels`; 0 for a query without ranked
    documents. Raises `BadInput` where a query gets no finite value, or several."""
    return _values(qrels, run, [name])[name]


def _values(qrels: Qrels, run: Run, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """{measure: {judged query: value}}."""
    forms = {name: form_of(parse_measure(name)) for name in names}
    grades = grades_of(qrels, run) if any(forms.values()) else None
    return {
        name: dict(zip(qrels, form(grades).tolist(), strict=True))
        if form and grades
        else _by_ir_measures(qrels, run, name)
        for name, form in forms.items()
    }


def _by_ir_measures(qrels: Qrels, run: Run, name: str) -> dict[str, float]:
    import ir_measures

    # gdeval reads query ids as numbers: test-1 and dev-1 would both be query 1.
    number_of = {query_id: str(number) for number, query_id in enumerate(qrels, start=1)}
    judged = {number_of[query_id]: documents for query_id, documents in qrels.items()}
    ranked = {
        number_of[query_id]: documents
        for query_id, documents in run.items()
        if documents and query_id in number_of
    }
    values: dict[str, float] = {}
    # One measure at a time: computed together, IPrec@0.101 and IPrec@0.102 would be merged.
    for metric in ir_measures.iter_calc([parse_measure(name)], judged, ranked):
        if metric.query_id in values or metric.query_id not in judged:
            raise refused_measure(name, f"it gave query {metric.query_id} of {len(judged)} twice")
        values[metric.query_id] = float(metric.value)
    for query_id, number in number_of.items():
        if not math.isfinite(values.get(number, math.nan)):
            raise refused_measure(name, f"it is not defined for query {query_id}")
    return {query_id: values[number] for query_id, number in number_of.items()}


def per_query(qrels: Qrels, run: Run, measures: Sequence[str]) -> "pd.DataFrame":
    """A frame with a row `query_id, measure, value` per judged query and measure; 0 for a query
    without ranked documents. Unjudged documents count as not relevant. Raises `BadInput` for a
    measure that cannot be computed."""
    import pandas as pd

    values, query_ids, names = _values(qrels, run, measures), sorted(qrels), sorted(measures)
    return pd.DataFrame(
        {
            "query_id": query_ids * len(names),
            "measure": [name for name in names for _ in query_ids],
            "value": [values[name][query_id] for name in names for query_id in query_ids],
        }
    )


def mean_values(table: "pd.DataFrame") -> dict[str, float]:
    """{measure: mean over queries}."""
    return {
        str(name): float(value) for name, value in table.groupby("measure").value.mean().items()
    }


def without_ties(scores_K: Sequence[float] | NDArray[np.float32]) -> list[float]:
    """Scores in rank order, tied ones lowered by the smallest steps of a float32.

    Tools break ties differently (trec_eval by descending doc_id, Lucene by ascending doc_id);
    without ties they all measure the same ranking.
    """
    given_K = np.asarray(scores_K, dtype=np.float32)
    if (given_K < np.append(np.float32(np.inf), given_K[:-1])).all():
        return given_K.tolist()
    scores: list[float] = []
    limit = np.float32(np.inf)
    for score in given_K:
        limit = min(score, np.nextafter(limit, np.float32(-np.inf)))
        scores.append(float(limit))
    return scores


def untied(ranked: Mapping[str, float]) -> dict[str, float]:
    """A ranked list in its own order, with scores from `without_ties`."""
    return dict(zip(ranked, without_ties([*ranked.values()]), strict=True))


def refused_measure(name: str, reason: str) -> BadInput:
    """The error for a measure that cannot be computed, with examples."""
    return BadInput(
        f"measure {name!r} cannot be computed: {reason.strip(' .')}; "
        f"names that work, spelled as ir_measures does: {', '.join(WORKING)}"
    )


def _unknown_measure(name: str, reason: str) -> BadInput:
    """The error for an unknown name, with a suggestion: nDCG@10 for trec_eval's `ndcg_cut_10`, for
    `ndcg@10` and for `NDGC@10`."""
    import ir_measures

    word, at, cutoff = name.replace("_cut_", "@").replace("mrr", "rr").partition("@")
    near = nearest(word, ir_measures.measures.registry, 1, cutoff=0.7) or [word]
    meant: Any = ""
    with suppress(NameError, ValueError, TypeError, SyntaxError):
        meant = ir_measures.parse_measure(f"{near[0]}{at}{cutoff}")
    with suppress(NameError, ValueError, TypeError, SyntaxError, KeyError):
        [meant, *_] = ir_measures.parse_trec_measure(name)
    if not meant:
        return refused_measure(name, reason)
    return BadInput(
        f"unknown measure {name!r}; did you mean {meant}? `ranksweep measures` lists all, "
        "spelled as in ir_measures"
    )


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


_SAFE = re.compile(r"(nDCG|AP|MAP|RR|MRR)(@[1-9]\d{0,3})?|(P|R|Recall|Success)@[1-9]\d{0,3}|Rprec")
"""Measures that can be computed for any judgments and need no trial."""
_GRADES = frozenset({0, 1, 2})


def check_measures(names: Sequence[str], judged: Iterable[Qrels] = ()) -> None:
    """Raises `BadInput` for measures that `per_query` could not compute, and for duplicates.

    The grades of the toy run include those of `judged`, because some tools accept only certain
    grades (ERR: at most 4).
    """
    parsed: dict[Any, str] = {}
    for name in names:
        measure = parse_measure(name)
        if measure in parsed:
            raise BadInput(f"{parsed[measure]!r} and {name!r} are the same measure; name it once")
        parsed[measure] = name
    unsure = [name for name in names if not _SAFE.fullmatch(name)]
    if not unsure:
        return
    grades = {grade for qrels in judged for docs in qrels.values() for grade in docs.values()}
    for name in unsure:
        if reason := _reason(name, _GRADES):
            raise refused_measure(name, reason)
        if reason := _reason(name, _GRADES | grades):
            raise refused_measure(name, f"{reason} for grades from {min(grades)} to {max(grades)}")


@cache
def _reason(name: str, grades: frozenset[int]) -> str:
    """Why a measure cannot be computed for a toy run; empty if it can."""
    documents = {f"d{grade}": grade for grade in sorted(grades)}
    qrels = {
        "graded": documents,
        "missed": {"a": 1},
        "without-candidates": {"a": 1},
        "nothing-relevant": {"a": 0},
        "all-relevant": {"a": 1, "b": 1},
    }
    run: dict[str, dict[str, float]] = {
        "graded": {doc_id: float(-rank) for rank, doc_id in enumerate(["x", *documents, "y"])},
        "missed": {"x": 1.0},
        "without-candidates": {},
        "nothing-relevant": {"x": 1.0, "a": 0.5},
        "all-relevant": {"a": 1.0, "b": 0.5},
    }
    try:
        query_values(qrels, run, name)
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]}, which computes it, failed with exit code {error.returncode}"
    except ZeroDivisionError:
        return "it is undefined for some queries"
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        return re.sub(r"Unsupported measures \{.*?\}", "no installed tool computes it", words)
    return ""
