"""Effectiveness measures per query, as defined by ir_measures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rank_core.errors import BadInput, nearest
from rank_core.measure_arrays import form_of, grades_of
from rank_core.records import Qrels, Run

if TYPE_CHECKING:
    import pandas as pd

WORKING = (
    "nDCG@10", "RR@10", "AP", "AP(rel=2)@100", "P@10", "R@100", "Success@5", "Rprec", "Bpref",
    "infAP", "SetF", "IPrec@0.2", "Compat(p=0.95)", "Judged@10", "nDCG(judged_only=True)@10",
    "ERR@20", "nDCG(dcg='exp-log2')@20",
)  # fmt: skip
"""Examples for messages; those in the last line need perl."""
_KINDS = {int: "a whole number", float: "a decimal number", bool: "True or False"}
_LEAST = {"cutoff": 1, "rel": 1, "recall": 0.0, "p": 0.0}
_MOST = {"recall": 1.0, "p": 1.0}


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
        raise refused_measure(
            name, f"{measure.NAME} has no {', '.join(strange)}; it has {_listed(parameters)}"
        )
    for setting, parameter in parameters.items():
        if setting not in measure.params:
            if parameter.required:
                raise refused_measure(name, f"{measure.NAME} needs a {setting}")
            continue
        value = measure.params[setting]
        kind = parameter.dtype
        if not parameter.validate(value) or (kind is int and isinstance(value, bool)):
            expected = _listed(parameter.choices) if kind is str else _KINDS.get(kind, kind)
            raise refused_measure(name, f"its {setting} must be {expected}")
        if setting in _LEAST and value < _LEAST[setting]:
            raise refused_measure(name, f"its {setting} must be {_LEAST[setting]} or more")
        if setting in _MOST and value > _MOST[setting]:
            raise refused_measure(name, f"its {setting} must be {_MOST[setting]} or less")
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
    for text, parse in (
        (name, ir_measures.parse_trec_measure),
        (f"{near[0]}{at}{cutoff}", ir_measures.parse_measure),
    ):
        try:
            suggestion = parse(text)
        except (NameError, ValueError, TypeError, SyntaxError, KeyError):
            continue
        meant = suggestion[0] if isinstance(suggestion, list) else suggestion
        return BadInput(
            f"unknown measure {name!r}; did you mean {meant}? `ranksweep measures` lists all, "
            "spelled as in ir_measures"
        )
    return refused_measure(name, reason)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "no setting"
