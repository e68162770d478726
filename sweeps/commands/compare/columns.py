"""The columns of a comparison: which measure on which collection, and the gain over all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rank_core.errors import BadInput, unknown
from rank_core.evaluate import parse_measure
from rank_core.seeding import generator
from rank_core.stats.baselines import Slot
from rank_core.stats.bootstrap import CrossedWeights, crossed_weights
from rank_core.stats.compare import Comparison
from rank_core.stats.gain import GainInterval, average_gains
from rank_core.stats.matrix import ScoreMatrix, score_matrix
from sweeps.commands.compare.scores import Measured, pooled

Columns = Mapping[str, Mapping[str, ScoreMatrix]]
"""{collection: {column: its scores}}; the columns of a collection share their queries."""

POOL = ""
"""The name of the collection that all query sets form together."""


def collections_of(sets: Sequence[str], *, apart: bool) -> dict[str, tuple[str, ...]]:
    """{collection: its query sets}: all pooled, or by the part of the name before a slash."""
    if not apart:
        return {POOL: tuple(sets)}
    found: dict[str, tuple[str, ...]] = {}
    for name in sets:
        collection = name.rpartition("/")[0] or name
        found[collection] = (*found.get(collection, ()), name)
    return found


def measures_of(measures: Sequence[str], collections: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """{collection: its measures}; `NAME=MEASURE` is for one collection, `MEASURE` for all."""
    found: dict[str, list[str]] = {name: [] for name in collections}
    for text in dict.fromkeys(measures):
        collection, equals, measure = text.rpartition("=")
        parse_measure(measure)
        if equals and collection not in found:
            raise unknown("collection of a measure", collection, found)
        for name in [collection] if equals else found:
            found[name].append(measure)
    without = [name for name, own in found.items() if not own]
    if without:
        raise BadInput(f"every collection needs a measure, {', '.join(without)} has none")
    return {name: tuple(dict.fromkeys(own)) for name, own in found.items()}


def columns_of(
    measured: Measured,
    collections: Mapping[str, Sequence[str]],
    measures: Mapping[str, Sequence[str]],
    systems: Sequence[str],
) -> Columns:
    """The scores of every column; its name is that of the measure, after its collection's if there
    are several."""
    found: dict[str, dict[str, ScoreMatrix]] = {}
    for collection, sets in collections.items():
        table = pooled(measured, sets)
        matrices = [score_matrix(table, measure=one, cells=systems) for one in measures[collection]]
        head = f"{collection} " if len(collections) > 1 else ""
        named = [replace(one, measure=f"{head}{one.measure}") for one in matrices]
        found[collection] = {one.measure: one for one in named}
    return found


def gains_over_columns(
    columns: Columns, comparisons: Sequence[Comparison], *, slot: Slot, alpha: float
) -> dict[str, GainInterval]:
    """{system: average gain over `slot`} where there are several collections, else nothing.

    All columns share the draws of the training runs, because the k-th run of a system is the same
    run everywhere; the columns of one collection share those of its queries as well.
    """
    if len(columns) < 2:
        return {}
    weights: list[CrossedWeights] = []
    for collection, own in columns.items():
        drawn = crossed_weights(
            next(iter(own.values())),
            rng=generator(0, f"average gains {collection}"),
            stretched=True,
        )
        seeds = weights[0].seeds if weights else drawn.seeds
        weights += [CrossedWeights(drawn.queries_BQ, seeds)] * len(own)
    df: dict[str, float] = {}
    for one in comparisons:
        df[one.system] = min(one.df_both, df.get(one.system, one.df_both))
    return average_gains(
        [matrix for own in columns.values() for matrix in own.values()],
        baseline=slot,
        df=df,
        weights=weights,
        level=1 - alpha,
    )
