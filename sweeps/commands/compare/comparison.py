"""Any TREC runs as systems and seeds: measured on judged queries, tested against baselines."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rank_core.errors import BadInput, unknown
from rank_core.stats.baselines import Slot, compare_with, of_system
from rank_core.stats.compare import Comparison
from rank_core.stats.gain import GainInterval
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.table import ResultCell, ResultRow
from sweeps.commands.compare.columns import (
    collections_of,
    columns_of,
    gains_over_columns,
    measures_of,
)
from sweeps.commands.compare.scores import Measured, Systems, measure_runs

MEASURES = ("nDCG@10", "RR@10")

Found = Mapping[str, list[list[Comparison]]]
"""{column: the comparisons of every baseline slot}."""


@dataclass(frozen=True)
class RunComparison:
    """Systems given as runs, compared with their baselines in every column of one table.

    A column is one measure on one collection, and a collection is one query set or several pooled
    ones.
    """

    systems: Systems
    qrels: Mapping[str, Path]  # {query set: its judgments}
    collections: Mapping[str, tuple[str, ...]]  # {collection: its query sets}
    baselines: tuple[Slot, ...]  # one per letter
    alpha: float
    measured: Measured
    matrices: Mapping[str, ScoreMatrix]  # {column: its scores}
    comparisons: list[Comparison]
    rows: list[ResultRow]
    deterministic: tuple[str, ...] = ()

    @property
    def measures(self) -> tuple[str, ...]:
        """The columns of the table."""
        return tuple(self.matrices)

    @property
    def num_queries(self) -> int:
        """Judged queries of all sets."""
        return sum(self.measured.num_queries.values())

    @property
    def single(self) -> list[str]:
        """Systems with one run, about whose training nothing is known."""
        return [
            name
            for name, runs in self.systems.items()
            if len(runs) == 1 and name not in self.deterministic
        ]


def compare_runs(
    systems: Systems,
    qrels: Path | Mapping[str, Path],
    *,
    baselines: Sequence[Slot] = (),
    measures: Sequence[str] = MEASURES,
    alpha: float = 0.05,
    correction: str = "holm",
    deterministic: Collection[str] = (),
    apart: bool = False,
) -> RunComparison:
    """Measure every run on the judged queries and test every system against its baselines.

    Several query sets are pooled as one collection; with `apart` each is a collection of its own,
    except that `dl/2019` and `dl/2020` are both sets of `dl`. The first system is the baseline
    unless others are named. `deterministic` names systems (BM25) whose one run is declared to be
    the only one there is.
    """
    sets = {qrels.name: qrels} if isinstance(qrels, Path) else dict(qrels)
    slots = tuple(baselines) or (next(iter(systems)),)
    _check_baselines(slots, systems)
    collections = collections_of(list(sets), apart=apart)
    wanted = measures_of(measures, list(collections))
    of_set = {one: wanted[name] for name, own in collections.items() for one in own}
    measured = measure_runs(systems, sets, of_set)
    _check_sizes(measured, collections, sets)
    columns = columns_of(measured, collections, wanted, list(systems))
    matrices = {column: matrix for own in columns.values() for column, matrix in own.items()}
    found = {
        column: compare_with(
            matrix,
            baselines=slots,
            alpha=alpha,
            correction=correction,
            deterministic=deterministic,
        )
        for column, matrix in matrices.items()
    }
    first = [one for by_slot in found.values() for one in by_slot[0]]
    gains = gains_over_columns(columns, first, slot=slots[0], alpha=alpha)
    return RunComparison(
        systems=systems,
        qrels=sets,
        collections=collections,
        baselines=slots,
        alpha=alpha,
        measured=measured,
        matrices=matrices,
        comparisons=[one for by_slot in found.values() for slot in by_slot for one in slot],
        rows=[_row(name, matrices, found, slots, gains.get(name)) for name in systems],
        deterministic=tuple(name for name in systems if name in deterministic),
    )


def _check_baselines(slots: Sequence[Slot], systems: Systems) -> None:
    for slot in slots:
        for name in [slot] if isinstance(slot, str) else [*slot.values(), *slot]:
            if name not in systems:
                raise unknown("baseline", name, systems)


def _check_sizes(
    measured: Measured, collections: Mapping[str, Sequence[str]], qrels: Mapping[str, Path]
) -> None:
    for sets in collections.values():
        count = sum(measured.num_queries[name] for name in sets)
        if count < 2:
            where = ", ".join(str(qrels[name]) for name in sets)
            raise BadInput(f"{where}: a test needs two judged queries or more, found {count}")


def _row(
    name: str,
    matrices: Mapping[str, ScoreMatrix],
    found: Found,
    slots: Sequence[Slot],
    gain: GainInterval | None,
) -> ResultRow:
    num_runs = len(next(iter(matrices.values())).seeds[name])
    cells = []
    for column, matrix in matrices.items():
        mean_S = matrix.scores[name].mean(axis=1)
        deviation = float(np.std(mean_S, ddof=1)) if num_runs > 1 else math.nan
        compared = of_system(found[column], name)
        cells.append(ResultCell(column, float(mean_S.mean()), deviation, *compared))
    is_baseline = any(name == one or name in _own_baselines(one) for one in slots)
    return ResultRow(name, "", name, is_baseline, num_runs, num_runs, tuple(cells), gain)


def _own_baselines(slot: Slot) -> Collection[str]:
    return () if isinstance(slot, str) else slot.values()
