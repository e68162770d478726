"""What a report says of queries that are not alone: its clusters, the queries that its collections
share, and a warning where queries share relevant documents and the tests do not know it."""

import math
from collections import Counter
from typing import Any

from rank_core.stats.clusters import design_effect
from rank_core.stats.matrix import ScoreMatrix
from sweeps.report.analysis import Analysis
from sweeps.terminal.notation import percent

SHARED = 0.1
"""The share of queries that share a relevant document with another above which a report warns."""


def num_clusters(matrix: ScoreMatrix) -> int:
    """The clusters of its queries; 0 where every query is alone."""
    G = len(matrix.query_ids)
    return G if G < matrix.num_queries else 0


def sentences_on_clusters(analysis: Analysis) -> list[str]:
    """All that a report says of them."""
    found = (clusters_sentence(analysis), shared_sentence(analysis), sharing_warning(analysis))
    return [sentence for sentence in found if sentence]


def clusters_sentence(analysis: Analysis) -> str:
    """The number of clusters and what they are made of; "" without any."""
    clusters = analysis.sweep.clusters
    if clusters is None or not analysis.tested:
        return ""
    matrices = [*analysis.means.values()][:1] or [*analysis.tested.values()][:1]
    G, Q = len(matrices[0].query_ids), matrices[0].num_queries
    if G == Q:
        return f"By {clusters.source} each of the {Q} queries is a cluster of its own."
    return (
        f"Tests and intervals are over {G} clusters of {Q} queries ({clusters.source}), whose "
        "scores may be correlated within a cluster."
    )


def shared_sentence(analysis: Analysis) -> str:
    """The queries that the collections of a mean share; "" where they share none."""
    matrix = next(iter(analysis.means.values()), None)
    if matrix is None:
        return ""
    own = [analysis.matrices[name] for name in next(iter(analysis.sweep.means.values()))]
    total = sum(len(one.query_ids) for one in own)
    if matrix.num_queries == total:
        return ""
    known = "texts" if analysis.sweep.query_keys else "ids"
    return (
        f"The collections share queries by their {known} ({total} in all, {matrix.num_queries} "
        "different ones): the test of the mean pairs them."
    )


def sharing_warning(analysis: Analysis) -> str:
    """The design effect of the primary comparisons where many queries share relevant documents and
    the tests take them for independent; "" elsewhere."""
    sweep = analysis.sweep
    if sweep.clusters is not None or not analysis.primary:
        return ""
    worst: tuple[float, str] = (0.0, "")
    for collection, measures in sweep.collections.items():
        of, matrix = sweep.sharing.get(collection), analysis.matrices.get(measures[0])
        if not of or matrix is None:
            continue
        names = [of[query_id] for query_id in matrix.query_ids]
        sizes = Counter(names)
        together = sum(size for size in sizes.values() if size > 1)
        if together < SHARED * len(names):
            continue
        mean = {cell: own.mean(axis=0) for cell, own in matrix.scores.items()}
        effects = [
            design_effect(mean[c.system] - mean[c.baseline], names)
            for c in analysis.primary
            if {c.system, c.baseline} <= mean.keys()
        ]
        effect = max(effects, default=1.0)
        change = math.sqrt(effect) - 1
        how = (
            f"standard errors over queries are up to {percent(change)} larger"
            if change >= 0.005
            else "standard errors over queries are no larger"
        )
        where = f" of {collection}" if collection else ""
        text = (
            f"{together} of {len(names)} queries{where} share a relevant document with another one "
            f"({len(sizes)} clusters), and the tests take them for independent; with clusters "
            f"{how} (design effect {effect:.2f}): --clusters auto, or --clusters FILE."
        )
        worst = max(worst, (effect, text))
    return worst[1]


def cluster_results(analysis: Analysis) -> dict[str, Any]:
    """The clusters and shared queries of the measures that have some, for results.json."""
    clusters = analysis.sweep.clusters
    counts = {
        measure: {
            "num_queries": matrix.num_queries,
            "num_clusters": len(matrix.query_ids),
        }
        for measure, matrix in {**analysis.tested, **analysis.means}.items()
    }
    found: dict[str, Any] = {}
    if clusters:
        found["clusters"] = {"source": clusters.source, "measures": counts}
    if shared := shared_sentence(analysis):
        found["shared_queries"] = shared
    return found
