"""Effectiveness measures per query, computed by ir_measures."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from subprocess import CalledProcessError
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rank_core.errors import BadInput, nearest, shown
from rank_core.own_code import guarded, is_reference, load
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
    """{judged query: value} of one measure, or of a user's function at `module:name`, in the order
    of `qrels`; 0 for a query without ranked documents. Raises `BadInput` where a query gets no
    finite value, or several."""
    if is_reference(name):
        return _own_values(qrels, run, name)
    import ir_measures

    # gdeval reads query ids as numbers: test-1 and dev-1 would both be query 1.
    number_of = {query_id: str(number) for number, query_id in enumerate(qrels, start=1)}
    judged = {number_of[query_id]: documents for query_id, documents in qrels.items()}
    ranked = {
        number_of[query_id]: in_one_order(documents)
        for query_id, documents in run.items()
        if documents and query_id in number_of
    }
    values: dict[str, float] = {}
    # One measure at a time: computed together, IPrec@0.101 and IPrec@0.102 would be merged.
    for metric in ir_measures.iter_calc([parse_measure(name)], judged, ranked):
        if metric.query_id in values or metric.query_id not in judged:
            raise refused_measure(name, f"it gave query {metric.query_id} of {len(judged)} twice")
        values[metric.query_id] = float(metric.value)
    by_query = {query_id: values.get(number) for query_id, number in number_of.items()}
    return _finite(by_query, name)


def in_one_order(scores: Mapping[str, float]) -> Mapping[str, float]:
    """A query's documents by score, in which equal scores keep the order given: the libraries
    behind the measures break ties in different ways, so that nDCG@10 would be of another ranking
    than RR@10. The same object where no two are equal."""
    given_K = _in_single([*scores.values()])
    if (given_K[1:] < given_K[:-1]).all():
        return scores
    ordered = sorted(scores, key=scores.__getitem__, reverse=True)
    return untied({doc_id: scores[doc_id] for doc_id in ordered})


def _own_values(qrels: Qrels, run: Run, name: str) -> dict[str, float]:
    """The values of a user's function of {doc_id: grade} and the ranked documents, best first."""
    measure, values = load("measure", name), dict[str, float]()
    for query_id, grades in qrels.items():
        ranked = [*in_one_order(run.get(query_id, {}))]
        with guarded(f"measure {name}"):
            value = measure(grades, ranked) if ranked else 0.0
        number = math.nan
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
        if not math.isfinite(number):
            raise BadInput(
                f"measure {name} must return a finite number, got {shown(value)} for the grades "
                f"{shown(grades)} and the ranking {shown(ranked)}"
            )
        values[query_id] = number
    return values


def _finite(values: Mapping[str, float | None], name: str) -> dict[str, float]:
    finite = {query: x for query, x in values.items() if x is not None and math.isfinite(x)}
    if absent := [query_id for query_id in values if query_id not in finite]:
        raise refused_measure(name, f"it is not defined for query {absent[0]}")
    return finite


_SHARES = (
    "AP AP_IA Accuracy Bpref Compat ERR ERR_IA IPrec Judged P P_IA R RBP RR Rprec SetAP SetF SetP "
    "SetR StRecall Success infAP nDCG"
).split()
_COUNTS = ("NumQ", "NumRel", "NumRet")
"""Measures of ir_measures whose values are from 0 to 1 by definition, and from 0 up. Missing are
those of other normalisations: of greedy ideals (alpha_nDCG), of costs (BPM, INST)."""
_ELSEWHERE = {"hit_rate": "Success", "hitrate": "Success", "f1": "SetF"}
"""{name of a measure in other tools, before its @: that of ir_measures}."""


def bounds_of(name: str) -> tuple[float, float]:
    """The least and the largest value that a measure can have for a query; infinite where they are
    not known, as of a measure of one's own. Spellings of other tools, such as ndcg@10, count."""
    import ir_measures

    parameters: Mapping[str, Any] = {}
    try:
        measure = ir_measures.parse_measure(name)
        family, parameters = measure.NAME, measure.params
    except (NameError, ValueError, TypeError, SyntaxError):
        known = {key.lower(): found.NAME for key, found in ir_measures.measures.registry.items()}
        base, at, _ = name.lower().partition("@")
        family = (known | _ELSEWHERE).get(base, "") if at or len(base) > 2 else ""
    if family in _COUNTS:
        return 0.0, math.inf
    # Gains of one's own may be negative.
    return (0.0, 1.0) if family in _SHARES and "gains" not in parameters else (-math.inf, math.inf)


def cutoff_of(name: str) -> int | None:
    """The rank at which a measure stops, if any; that of a user's function is not known."""
    cutoff = None if is_reference(name) else parse_measure(name).params.get("cutoff")
    return None if cutoff is None else int(cutoff)


def condensed(qrels: Qrels, lists: Mapping[str, Iterable[str]]) -> Run:
    """The judged documents of ranked lists, best first, with scores that fall by rank (condensed
    lists, Sakai 2007)."""
    return {
        query_id: {doc_id: -float(rank) for rank, doc_id in enumerate(doc_ids) if doc_id in judged}
        for query_id, doc_ids in lists.items()
        if (judged := qrels.get(query_id))
    }


def per_query(qrels: Qrels, run: Run, measures: Sequence[str]) -> "pd.DataFrame":
    """A frame with a row `query_id, measure, value` per judged query and measure; 0 for a query
    without ranked documents. Unjudged documents count as not relevant. Raises `BadInput` for a
    measure that cannot be computed.

    Examples:
        >>> import ranksweep
        >>> run = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d1": 1.0}}
        >>> ranksweep.per_query({"q1": {"d2": 1}, "q2": {"d1": 1}}, run, ["RR"])
          query_id measure  value
        0       q1      RR    0.5
        1       q2      RR    1.0
    """
    import pandas as pd

    values = {name: query_values(qrels, run, name) for name in measures}
    query_ids, names = sorted(qrels), sorted(measures)
    return pd.DataFrame(
        {
            "query_id": query_ids * len(names),
            "measure": [name for name in names for _ in query_ids],
            "value": [values[name][query_id] for name in names for query_id in query_ids],
        }
    )


def mean_value(qrels: Qrels, run: Run, name: str) -> float:
    """The mean of a measure over the queries of `qrels`."""
    values = query_values(qrels, run, name)
    return sum(values.values()) / len(values)


def mean_values(table: "pd.DataFrame") -> dict[str, float]:
    """{measure: mean over queries}."""
    return {
        str(name): float(value)
        for name, value in table.groupby("measure", observed=True).value.mean().items()
    }


def without_ties(scores_K: Sequence[float] | NDArray[np.float32]) -> list[float]:
    """Scores in rank order, tied ones lowered by the smallest steps of a float32.

    Tools break ties differently (trec_eval by descending doc_id, Lucene by ascending doc_id);
    without ties they all measure the same ranking.
    """
    given_K = _in_single(scores_K)
    if (given_K < np.append(np.float32(np.inf), given_K[:-1])).all():
        return given_K.tolist()
    scores: list[float] = []
    limit = np.float32(np.inf)
    for score in given_K:
        limit = min(score, np.nextafter(limit, np.float32(-np.inf)))
        scores.append(float(limit))
    return scores


def _in_single(scores_K: Sequence[float] | NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores as trec_eval keeps them; those beyond its largest number are infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(scores_K, dtype=np.float32)


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

    several = re.split(r",\s*(?![^()]*\))", name)
    if len(several) > 1 and all(map(_is_known, several)):
        return BadInput(f"{name!r} is {len(several)} measures; name each by itself")
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


def _is_known(name: str) -> bool:
    """Whether ir_measures or trec_eval has a measure of this name."""
    import ir_measures

    for parse in (ir_measures.parse_measure, ir_measures.parse_trec_measure):
        with suppress(NameError, ValueError, TypeError, SyntaxError, KeyError):
            return bool(parse(name))
    return False


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
        measure = load("measure", name) if is_reference(name) else parse_measure(name)
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
    except CalledProcessError as error:
        return f"{error.cmd[0]}, which computes it, failed with exit code {error.returncode}"
    except ZeroDivisionError:
        return "it is undefined for some queries"
    except Exception as error:
        if is_reference(name):  # the error names the file and line
            raise
        words = " ".join(str(error).split()) or type(error).__name__
        return re.sub(r"Unsupported measures \{.*?\}", "no installed tool computes it", words)
    return ""
