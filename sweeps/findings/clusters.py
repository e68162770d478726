"""What a report says of queries that are not alone: its clusters, the queries that its collections
share, and a warning where queries share relevant documents and the tests do not know it."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rank_core.data.groups import share_documents
from rank_core.stats.clusters import design_effect
from rank_core.stats.matrix import ScoreMatrix
from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding, Unit
from sweeps.terminal.notation import percent

_UNEQUAL = 0.5
"""Where unequal clusters count as so small a share of their number, a report says so."""
_VISIBLE = 0.005  # the smallest change that is not printed as 0%


def rows(analysis: Analysis) -> list[Finding]:
    """The clusters of the queries, and the queries that collections share."""
    found = []
    if (clusters := analysis.sweep.clusters) and analysis.cell_scores.tested:
        matrix = next(iter((analysis.means or analysis.cell_scores.tested).values()))
        count, name = len(matrix.query_ids), f"clusters of {matrix.num_queries} queries"
        found.append(Finding("clusters", name, value=count, unit=Unit.COUNT,
                             names=(clusters.source,), link=LINK))  # fmt: skip
    if shared := _shared(analysis):
        total, different, known = shared
        name = f"different ones among {total} queries of the collections"
        found.append(Finding("clusters", name, value=different, unit=Unit.COUNT,
                             names=(f"by their {known}",), link=LINK))  # fmt: skip
    return found


LINK = "clusters-of-queries"


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
    if clusters is None or not analysis.cell_scores.tested:
        return ""
    matrix = next(iter((analysis.means or analysis.cell_scores.tested).values()))
    G, Q = len(matrix.query_ids), matrix.num_queries
    if G == Q:
        return f"By {clusters.source} each of the {Q} queries is a cluster of its own."
    text = (
        f"Tests and intervals are over {G} clusters of {Q} queries ({clusters.source}), whose "
        "scores may be correlated within a cluster."
    )
    if (count := equal_clusters(matrix)) < _UNEQUAL * G:
        text += f" As their sizes differ, they count as about {count:.0f} clusters of one size."
    return text


def equal_clusters(matrix: ScoreMatrix) -> float:
    """The clusters of one size that would determine a variance as well."""
    return sum(matrix.query_df) + len(matrix.query_df) or len(matrix.query_ids)


def _shared(analysis: Analysis) -> tuple[int, int, str] | None:
    """(the queries of all collections, the different ones, what tells them apart) of a mean over
    collections that share some."""
    matrix = next(iter(analysis.means.values()), None)
    if matrix is None:
        return None
    matrices = [
        analysis.cell_scores.plain[name] for name in next(iter(analysis.sweep.means.values()))
    ]
    total = sum(len(one.query_ids) for one in matrices)
    known = "texts" if analysis.sweep.query_keys else "ids"
    return (total, matrix.num_queries, known) if matrix.num_queries < total else None


def shared_sentence(analysis: Analysis) -> str:
    """The queries that the collections of a mean share; "" where they share none."""
    if (shared := _shared(analysis)) is None:
        return ""
    total, different, known = shared
    return (
        f"The collections share queries by their {known} ({total} in all, {different} different "
        "ones): the test of the mean pairs them."
    )


def sharing_warning(analysis: Analysis) -> str:
    """The design effect of the primary comparisons where many queries share relevant documents and
    the tests treat them as independent: that of the worst collection; "" elsewhere."""
    sweep = analysis.sweep
    if sweep.clusters is not None or not analysis.primary:
        return ""
    found = [(0.0, "")]
    for collection, measures in sweep.collections.items():
        of, matrix = sweep.sharing.get(collection), analysis.cell_scores.plain.get(measures[0])
        if of and matrix:
            pairs = [(c.system, c.baseline) for c in analysis.primary]
            found.append(
                sharing_found(matrix, of, pairs, f" of {collection}" if collection else "")
            )
    return max(found)[1]


def sharing_found(
    matrix: ScoreMatrix, of: Mapping[str, str], pairs: Iterable[tuple[str, str]], where: str = ""
) -> tuple[float, str]:
    """The largest design effect of the pairs of systems where many queries share relevant documents
    (`of`, their clusters), and the warning; 0 and "" elsewhere."""
    clusters = {query_id: of[query_id] for query_id in matrix.query_ids}
    if not (together := share_documents(clusters)):
        return 0.0, ""
    mean = {c: score_SQ.mean(axis=0) for c, score_SQ in matrix.scores.items()}
    names = [*clusters.values()]
    tested = (pair for pair in pairs if {*pair} <= {*mean})
    effect = max((design_effect(mean[a] - mean[b], names) for a, b in tested), default=1.0)
    change = math.sqrt(effect) - 1
    larger = f"up to {percent(change)} larger" if change >= _VISIBLE else "no larger"
    return effect, (
        f"{together} of {len(clusters)} queries{where} share a relevant document with another one "
        f"({len({*names})} clusters), but the tests treat them as independent; with clusters "
        f"standard errors over queries are {larger} (design effect {effect:.2f}): --clusters auto, "
        "or --clusters FILE."
    )


def cluster_results(analysis: Analysis) -> dict[str, Any]:
    """The clusters of each measure, and the queries that collections share, for results.json;
    nothing where there are none."""
    found: dict[str, Any] = {}
    if clusters := analysis.sweep.clusters:
        counts = {
            measure: {
                "num_queries": one.num_queries,
                "num_clusters": len(one.query_ids),
                "equal_clusters": equal_clusters(one),
            }
            for measure, one in analysis.cell_scores.tested.items()
        }
        found["clusters"] = {"source": clusters.source, "measures": counts}
    if shared := _shared(analysis):
        found["shared_queries"] = dict(zip(("in_all", "different", "by"), shared, strict=True))
    return found
