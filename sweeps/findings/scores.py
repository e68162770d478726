"""The scores that a report reads: plain, and as its tests read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rank_core.stats.clusters import joined
from rank_core.stats.matrix import ScoreMatrix, score_matrices
from rank_core.stats.strata import over_collections
from sweeps.systems.clusters import shared_columns
from sweeps.systems.load import Sweep, in_clusters

Matrices = Mapping[str, ScoreMatrix]
"""{measure: scores of the systems with a used seed}."""


@dataclass(frozen=True)
class ScoreViews:
    """The scores of some rows of a table, by measure."""

    plain: Matrices
    tested: Matrices
    """In clusters of queries, where there are some; with the means over collections."""


def plain_scores(sweep: Sweep, names: Sequence[str]) -> Matrices:
    """A matrix for each measure; measures of one collection share their queries."""
    matrices: dict[str, ScoreMatrix] = {}
    for measures in sweep.collections.values() if names else ():
        table = sweep.scores[sweep.scores["measure"].isin(measures)]
        # Seeds agree where alpha is 0: the first stage alone.
        agree = [*sweep.alike, *(system.name for system in sweep.interpolated)]
        matrices |= score_matrices(table, measures=measures, cells=names, may_agree=agree)
    return matrices


def scores_of(sweep: Sweep, plain: Matrices) -> ScoreViews:
    """The scores of all collections with those that the tests read; rows of several collections
    have means over these."""
    tested = {
        measure: in_clusters(sweep, plain[measure], collection)
        for collection, measures in sweep.collections.items()
        for measure in measures
        if measure in plain
    }
    return ScoreViews(plain, {**tested, **_means(sweep, plain, tested)})


def _means(sweep: Sweep, plain: Matrices, tested: Matrices) -> Matrices:
    """The matrices of the means over collections; what these share is one column."""
    means = {}
    for mean, columns in sweep.means.items() if plain else ():
        over = over_collections(
            [tested[column] for column in columns], measure=mean, separate_runs=sweep.separate_runs
        )
        ids = (plain[column].query_ids for column in columns)
        queries = dict(zip(sweep.collections, ids, strict=True))
        keys, number = shared_columns(queries, sweep.clusters, sweep.query_keys)
        means[mean] = joined(over, keys, number)
    return means
