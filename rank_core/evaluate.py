"""Effectiveness per query, by ir_measures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rank_core.errors import BadInput
from rank_core.records import Qrels, Run

if TYPE_CHECKING:
    import pandas as pd


def parse_measure(name: str) -> Any:
    """The ir_measures measure spelled `name`, for example nDCG@10 or AP(rel=2)."""
    import ir_measures

    try:
        measure = ir_measures.parse_measure(name)
    except (NameError, ValueError, TypeError, SyntaxError) as error:
        known = ", ".join(sorted(ir_measures.measures.registry))
        raise BadInput(
            f"a measure is spelled as ir_measures does (nDCG@10, RR@10, AP(rel=2)), got {name!r} "
            f"({error}); known: {known}"
        ) from None
    strange = sorted(measure.params.keys() - measure.SUPPORTED_PARAMS.keys())
    if strange:
        raise BadInput(
            f"a measure is spelled as ir_measures does (nDCG@10, RR@10, AP(rel=2)), got {name!r}: "
            f"{measure.NAME} has no {', '.join(strange)}; "
            f"known: {', '.join(measure.SUPPORTED_PARAMS)}"
        )
    return measure


def per_query(qrels: Qrels, run: Run, measures: Sequence[str]) -> "pd.DataFrame":
    """A row `query_id, measure, value` for every judged query and measure; 0 where the run has
    nothing for a query. Documents of a run that are not judged count as not relevant."""
    import ir_measures
    import pandas as pd

    parsed = {parse_measure(name): name for name in measures}
    # ir_measures fills in judged queries that the run misses, but refuses a run without any row.
    rows = [
        (metric.query_id, parsed[metric.measure], float(metric.value))
        for metric in ir_measures.iter_calc(list(parsed), qrels, run)
    ]
    table = pd.DataFrame(rows, columns=["query_id", "measure", "value"])
    return table.sort_values(["measure", "query_id"], ignore_index=True)


def mean_values(table: "pd.DataFrame") -> dict[str, float]:
    """{measure: mean over queries}."""
    return {
        str(name): float(value) for name, value in table.groupby("measure").value.mean().items()
    }


def without_ties(scores_K: Sequence[float] | NDArray[np.float32]) -> list[float]:
    """Scores in rank order, each lowered below the one before by as little as a float32 can be.

    Programs break ties in their own ways (trec_eval by descending doc_id, Lucene by ascending):
    without ties all of them measure the same ranking.
    """
    given_K = np.asarray(scores_K, dtype=np.float32)
    if (given_K < np.append(np.float32(np.inf), given_K[:-1])).all():
        fall: list[float] = given_K.tolist()
        return fall
    scores: list[float] = []
    limit = np.float32(np.inf)
    for score in given_K:
        limit = min(score, np.nextafter(limit, np.float32(-np.inf)))
        scores.append(float(limit))
    return scores
