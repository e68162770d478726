"""Whether a gain depends on the collection: the difference of the gains on two collections, with
the test of the mean over collections, of which it is another linear combination. Collections that
differ in their first stage alone say whether a gain depends on the candidates."""

from dataclasses import dataclass
from typing import Any

from rank_core.stats.clusters import joined
from rank_core.stats.compare import CellComparison, compare_with
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.strata import difference_of_collections
from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding
from sweeps.systems.clusters import shared_columns

TESTED = (
    "system baseline measure delta se_both ci_low ci_high p_queries p_both p_queries_adjusted "
    "p_both_adjusted correction family_size"
).split()


@dataclass(frozen=True)
class Interaction:
    """The gain of a system over the baseline on the first collection and on another one, and the
    test of their difference, the first minus the other."""

    collections: tuple[str, str]
    gains: tuple[float, float]
    test: CellComparison


def interactions(analysis: Analysis) -> list[Interaction]:
    """Of every system, on the first collection against each other one, by the primary measure; all
    of them are one family. Empty for a single collection."""
    sweep = analysis.sweep
    columns = sweep.means.get(sweep.primary, ())
    if not analysis.means or not analysis.slots:
        return []
    names, found = [*sweep.collections], []
    gains = {(c.measure, c.system): c.delta for c in analysis.comparisons}
    for name, column in zip(names[1:], columns[1:], strict=True):
        compared = compare_with(
            _contrast(analysis, {names[0]: columns[0], name: column}),
            baselines=analysis.slots[:1],
            correction=sweep.tests.correction,
            alpha=sweep.tests.alpha,
            paired_seeds=analysis.paired,
            deterministic=sweep.deterministic,
            num_families=len(names) - 1,
        )["a"]
        for test in compared:
            sides = (gains[columns[0], test.system], gains[column, test.system])
            found.append(Interaction((names[0], name), sides, test))
    return found


def _contrast(analysis: Analysis, columns: dict[str, str]) -> ScoreMatrix:
    """The difference of two collections, {name: column}; a query of both is one column."""
    sweep = analysis.sweep
    first, second = (analysis.cell_scores.tested[column] for column in columns.values())
    matrix = difference_of_collections(
        first, second, measure=sweep.primary, separate_runs=sweep.separate_runs
    )
    ids = {name: analysis.cell_scores.plain[column].query_ids for name, column in columns.items()}
    return joined(matrix, *shared_columns(ids, sweep.clusters, sweep.query_keys))


def rows(analysis: Analysis) -> list[Finding]:
    """The difference of the gains of a system on two collections, the smallest p first."""
    label = analysis.sweep.label
    return [
        Finding(
            "interactions",
            f"gain over {label(one.test.baseline)}, {one.collections[0]} less {one.collections[1]}",
            label(one.test.system),
            one.test.delta,
            one.test.ci_low,
            one.test.ci_high,
            one.test.p_both_adjusted,
            link="the-mean-over-collections",
        )
        for one in sorted(interactions(analysis), key=lambda one: one.test.p_both_adjusted)
    ]


def interaction_results(analysis: Analysis) -> list[dict[str, Any]]:
    """The differences for results.json; empty for a single collection."""
    return [
        {
            "collections": one.collections,
            "gains": one.gains,
            **{name: getattr(one.test, name) for name in TESTED},
        }
        for one in interactions(analysis)
    ]
