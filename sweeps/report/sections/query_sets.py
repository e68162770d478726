"""Pooled query sets: one mean over all queries, and beside it what every set says alone."""

import pandas as pd

from rank_core.stats.pooling import queries_per_set, query_set_of
from sweeps.report.analysis import Analysis

SetMeans = dict[str, dict[str, float]]
"""{cell: {query set: mean of the primary measure over seeds and its queries}}."""

MOST_SETS = 20
"""Of more prefixes than this, a slash in a query's id is part of its name and no set."""


def set_sizes(analysis: Analysis) -> dict[str, int]:
    """{query set: its queries} where every query of the split names its set, as `dl19/1037`;
    empty unless there are two sets or more."""
    sizes = queries_per_set(analysis.sweep.scores["query_id"].unique())
    return sizes if 2 <= len(sizes) <= MOST_SETS else {}


def set_means(analysis: Analysis) -> SetMeans:
    """The means by query set; empty unless there are two sets or more."""
    if not set_sizes(analysis):
        return {}
    scores = analysis.sweep.scores
    primary = scores[scores["measure"] == analysis.sweep.primary]
    sets = pd.Series([query_set_of(one) for one in primary["query_id"]], index=primary.index)
    means = primary["value"].groupby([primary["cell"], sets], sort=False).mean()
    found: SetMeans = {}
    for (cell, name), value in means.items():
        found.setdefault(str(cell), {})[str(name)] = float(value)
    return found
