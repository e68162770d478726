"""The numbers of a report: every system against its baselines, on every measure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from string import ascii_lowercase
from typing import Any

import pandas as pd

from rank_core.stats.best import BestSet, best_set
from rank_core.stats.compare import ByLetter, CellComparison, Slot, compare_with, scope_test_of
from rank_core.stats.matrix import ScoreMatrix, score_matrices
from rank_core.stats.scopes import ScopeTest
from rank_core.stats.strata import compare_collections, over_collections
from sweeps.store.scores import as_categories
from sweeps.store.sweep_file import FIRST_STAGE, Cell
from sweeps.store.trial_status import USED
from sweeps.systems.best import left_after
from sweeps.systems.load import Sweep
from sweeps.systems.summary import CellSummary, summarize

Matrices = Mapping[str, ScoreMatrix]
"""{measure: scores of the cells with a used seed}."""


@dataclass(frozen=True)
class Robustness:
    """The letter of a comparison; on condensed lists its difference, corrected p (with one run that
    of the queries alone) and letter; the bounds of its difference, and its letter in the worst
    case. NaN and "" without bounds."""

    letter: str
    condensed_delta: float
    condensed_p: float
    condensed_letter: str
    bound_low: float
    bound_high: float
    bound_letter: str


@dataclass(frozen=True)
class Unjudged:
    """The judged documents among the first `depth` of every run, and the comparisons again."""

    depth: int
    judged: float  # share, a mean over queries and runs
    judged_at_most: float  # likewise, if its judged documents came first in every list
    judged_per_query: float
    grades_differ: bool  # of judged documents of a query; condensed lists are else alike
    of: Mapping[CellComparison, Robustness]


@dataclass(frozen=True)
class Analysis:
    """A sweep with its comparisons; `tests` holds the variance parts behind each comparison."""

    sweep: Sweep
    cells: list[CellSummary]
    slots: tuple[Slot, ...]  # the baselines of the letters; none without a comparison
    comparisons: list[CellComparison]  # with the first baseline
    further: list[CellComparison]  # with the others, such as each system's own
    tests: dict[tuple[str, str], ScopeTest]  # by (measure, system), of `comparisons`
    rows: list[CellSummary]  # of the table, with their tests
    paired: bool  # whether the tests used the declared pairing of seeds
    matrices: Matrices
    whole: Matrices  # the same with the rows that are no cells
    interpolated: list[CellSummary]  # of `sweep.interpolated`: rows of the table, no cells
    interpolated_comparisons: list[CellComparison]  # with the first baseline
    best_sets: Mapping[str, BestSet]  # by measure, over all rows; none for one system
    means: Matrices = field(default_factory=dict)  # of `sweep.means`, scaled: no plain values
    first_stage: CellSummary | None = None  # a row of the table, no cell
    first_stage_comparisons: list[CellComparison] = field(
        default_factory=list
    )  # of all rows with it
    published: Mapping[str, Mapping[str, list[str]]] | None = None
    """{cell: {measure: values of papers}} with `--published`; never tested."""
    unjudged: Unjudged | None = None  # with `with_unjudged`

    @property
    def baseline(self) -> CellSummary:
        """The cell that all others are compared with, finished or not."""
        return next(system for system in self.cells if system.cell.cell == self.sweep.baseline)

    @property
    def primary(self) -> list[CellComparison]:
        """The comparisons on the primary measure, in the order of the cells."""
        return [pair for pair in self.comparisons if pair.measure == self.sweep.primary]

    @property
    def best(self) -> CellComparison | None:
        """The primary comparison with the largest gain; None without any."""
        return max(self.primary, key=lambda pair: pair.delta, default=None)

    @property
    def best_set(self) -> BestSet | None:
        """The systems not distinguishable from the best on the primary measure."""
        return self.best_sets.get(self.sweep.primary)

    @property
    def undecided(self) -> list[CellComparison]:
        """The primary comparisons in which a side has one seed, whose seed variance is unknown."""
        return [pair for pair in self.primary if math.isnan(pair.p_both)]

    @property
    def single(self) -> list[CellSummary]:
        """The trained cells with one run."""
        trained = [s for s in self.cells if s.cell.cell not in self.sweep.deterministic]
        return [system for system in trained if system.num_used == 1]

    @property
    def deterministic(self) -> list[str]:
        """The rows without seeds."""
        return [*self.sweep.deterministic, *[FIRST_STAGE] * bool(self.first_stage)]


def analyse(sweep: Sweep) -> Analysis:
    """The comparisons of all that finished and was not eliminated; none without a finished
    baseline."""
    cells = summarize(sweep)
    scored = _scored(sweep, cells)
    matrices = _matrices(sweep, scored)
    slots = _slots(sweep, scored)
    means = _means(sweep, matrices)
    paired = _is_paired(sweep, [*matrices.values(), *means.values()])
    by_measure = _compare_all(sweep, matrices, means, slots, paired=paired) if slots else {}
    first, *further = (
        [pair for compared in by_measure.values() for pair in compared[mark]]
        for mark in ascii_lowercase[: max(1, len(slots))]
    )
    whole, added_rows = _with_derived(sweep, scored)
    every = _matrices(whole, [*scored, *added_rows]) if added_rows else matrices
    with_rows = _compare_derived(whole, every, slots, added_rows) if first and added_rows else {}
    of = {system.cell.cell: system for system in cells}
    derived = [
        _derived(row.scores, Cell(row.cell, row.label, own.cell.group), sweep.measures, own.fates)
        for row in sweep.interpolated
        for own in [of[row.of]]
    ]
    first_stage = None
    if len(sweep.first_stage_scores):
        cell = Cell(FIRST_STAGE, sweep.first_stage_name, sweep.first_stage_name)
        first_stage = _derived(sweep.first_stage_scores, cell, sweep.measures, {})
    for measure, (added, against) in with_rows.items():
        by_measure[measure]["a"] += added
        by_measure[measure][ascii_lowercase[len(slots)]] = against
    return Analysis(
        sweep=sweep,
        cells=cells,
        slots=(*slots, *[FIRST_STAGE] * bool(first_stage)) if first else (),
        comparisons=first,
        further=[*chain.from_iterable(further)],
        tests={
            (pair.measure, pair.system): scope_test_of(
                (means if pair.measure in means else matrices)[pair.measure],
                (pair.system, pair.baseline),
                paired_seeds=paired,
                deterministic=sweep.deterministic,
            )
            for pair in first
        },
        rows=_rows(sweep, cells, derived, first_stage, by_measure),
        paired=paired,
        matrices=matrices,
        whole=every,
        interpolated=derived,
        interpolated_comparisons=[pair for added, _ in with_rows.values() for pair in added],
        best_sets=_best_sets(whole, {**every, **means}),
        means=means,
        first_stage=first_stage,
        first_stage_comparisons=[pair for _, against in with_rows.values() for pair in against],
    )


def _scored(sweep: Sweep, cells: Iterable[CellSummary]) -> list[str]:
    """The cells that have scores and were not eliminated."""
    eliminated = left_after(sweep)
    return [s.cell.cell for s in cells if s.num_used and s.cell.cell not in eliminated]


def _compare_all(
    sweep: Sweep, matrices: Matrices, means: Matrices, slots: Sequence[Slot], *, paired: bool
) -> dict[str, ByLetter]:
    """{measure: its comparisons}; of several collections with those of the means."""
    if not means:
        return {
            measure: compare_with(matrix, **_options(sweep, matrix, slots, paired=paired))
            for measure, matrix in matrices.items()
        }
    by_measure: dict[str, ByLetter] = {}
    for mean, columns in sweep.means.items():
        own = [matrices[column] for column in columns]
        options = _options(sweep, own[0], slots, paired=paired)
        found, by_measure[mean] = compare_collections(own, means[mean], **options)
        by_measure |= dict(zip(columns, found, strict=True))
    return by_measure


def _options(
    sweep: Sweep, matrix: ScoreMatrix, slots: Sequence[Slot], *, paired: bool
) -> dict[str, Any]:
    return {
        "baselines": slots,
        "correction": sweep.correction,
        "alpha": sweep.about.alpha,
        "paired_seeds": paired,
        "deterministic": [cell for cell in sweep.deterministic if cell in matrix.cells],
    }


def _is_paired(sweep: Sweep, matrices: Iterable[ScoreMatrix]) -> bool:
    """True if seeds are declared as paired, and all trained cells have the same ones."""
    return sweep.about.paired_seeds and all(
        len({own for cell, own in matrix.seeds.items() if cell not in sweep.deterministic}) == 1
        for matrix in matrices
    )


def _matrices(sweep: Sweep, scored: Sequence[str]) -> Matrices:
    """One per measure; measures of one collection share their queries."""
    matrices: dict[str, ScoreMatrix] = {}
    for measures in sweep.collections.values() if scored else ():
        table = sweep.scores[sweep.scores["measure"].isin(measures)]
        # Seeds agree where alpha is 0: the first stage alone.
        derived = [system.cell for system in sweep.interpolated]
        matrices |= score_matrices(table, measures=measures, cells=scored, may_agree=derived)
    return matrices


def _means(sweep: Sweep, matrices: Matrices) -> Matrices:
    """The matrices of the means over collections."""
    return {
        mean: over_collections(
            [matrices[column] for column in columns],
            measure=mean,
            separate_runs=sweep.separate_runs,
        )
        for mean, columns in sweep.means.items()
        if matrices
    }


def _slots(sweep: Sweep, scored: Sequence[str]) -> tuple[Slot, ...]:
    """The baselines that have a score; none without the first."""
    first, *further = (
        slot
        if isinstance(slot, str)
        else {cell: base for cell, base in slot.items() if {cell, base} <= set(scored)}
        for slot in sweep.slots
    )
    if first not in scored:
        return ()
    return (first, *(slot for slot in further if slot))


def _with_derived(sweep: Sweep, scored: Sequence[str]) -> tuple[Sweep, list[str]]:
    """The sweep with the scores of the rows that are no cells, and the names of these: the first
    stage, and the rows with it that no other one equals by construction."""
    derived = [
        system for system in sweep.interpolated if system.of in scored and not system.identical_to
    ]
    first_stage = [FIRST_STAGE] * bool(len(sweep.first_stage_scores))
    names = [*first_stage, *(system.cell for system in derived)]
    if not names:
        return sweep, names
    fixed = [*first_stage, *(system.cell for system in derived if system.deterministic)]
    tables = [sweep.scores, *(system.scores for system in derived), sweep.first_stage_scores]
    table = pd.concat([scores for scores in tables if len(scores)], ignore_index=True)
    whole = replace(
        sweep, scores=as_categories(table), deterministic=(*sweep.deterministic, *fixed)
    )
    return whole, names


def all_rows(sweep: Sweep) -> tuple[Sweep, Matrices]:
    """The sweep with the scores of its first stage and derived rows, and the matrices of every row
    that has scores and was not eliminated."""
    scored = _scored(sweep, summarize(sweep))
    whole, added = _with_derived(sweep, scored)
    return whole, _matrices(whole, [*scored, *added])


def _compare_derived(
    whole: Sweep, matrices: Matrices, slots: Sequence[Slot], names: Sequence[str]
) -> dict[str, tuple[list[CellComparison], list[CellComparison]]]:
    """{measure: (the rows called `names` with the first baseline, all systems with the first
    stage)}. The family of an added row is all systems of the table; that of the cells does not
    change."""
    by_measure = {}
    for measure, matrix in matrices.items():
        paired = _is_paired(whole, [matrix])
        both = [*slots[:1], *[FIRST_STAGE] * (FIRST_STAGE in names)]
        compared = compare_with(matrix, **_options(whole, matrix, both, paired=paired))
        added = [pair for pair in compared["a"] if pair.system in names]
        against = compared.get("b", [])
        by_measure[measure] = one_p(added, against), one_p(against, added)
    return by_measure


def _best_sets(whole: Sweep, matrices: Matrices) -> dict[str, BestSet]:
    """The systems not distinguishable from the best, of each measure with two that can be judged:
    those of several runs, and deterministic ones."""
    sets = {}
    for measure, matrix in matrices.items():
        fixed = [cell for cell in whole.deterministic if cell in matrix.cells]
        judged = [cell for cell in matrix.cells if cell in fixed or len(matrix.seeds[cell]) > 1]
        if len(judged) > 1:
            columns = whole.means.get(measure, ())
            paired = _is_paired(whole, [matrix, *map(matrices.__getitem__, columns)])
            sets[measure] = best_set(
                matrix, alpha=whole.about.alpha, paired_seeds=paired, deterministic=fixed
            )
    return sets


def one_p(own: list[CellComparison], others: list[CellComparison]) -> list[CellComparison]:
    """The comparisons, that of the first stage and the baseline, which is in both families, with
    the larger p of the two: one pair has one p."""
    twins = {frozenset((pair.system, pair.baseline)): pair for pair in others}
    return [
        replace(
            pair,
            p_both_adjusted=max(pair.p_both_adjusted, twin.p_both_adjusted),
            p_queries_adjusted=max(pair.p_queries_adjusted, twin.p_queries_adjusted),
        )
        for pair in own
        for twin in [twins.get(frozenset((pair.system, pair.baseline)), pair)]
    ]


def _derived(
    scores: pd.DataFrame, cell: Cell, measures: Sequence[str], fates: Mapping[int, str]
) -> CellSummary:
    """A row that is no cell, of those of its `fates` that have scores."""
    means: dict[str, dict[int, float]] = {measure: {} for measure in measures}
    grouped = scores.groupby(["measure", "seed"], observed=True)["value"].mean()
    for (measure, seed), value in grouped.items():
        means[str(measure)][int(seed)] = float(value)
    used = {seed: fate for seed, fate in fates.items() if fate in USED}
    return CellSummary(cell, means, used, derived=True)


def _rows(
    sweep: Sweep,
    cells: Sequence[CellSummary],
    derived: Sequence[CellSummary],
    first_stage: CellSummary | None,
    by_measure: Mapping[str, ByLetter],
) -> list[CellSummary]:
    """The first stage, then every cell followed by the system derived from it; cells of one group
    stand together, groups in order of appearance."""
    after = {one.of: row for one, row in zip(sweep.interpolated, derived, strict=True)}
    pairs = [(system, after.get(system.cell.cell)) for system in cells]
    systems = [row for row in (first_stage, *chain.from_iterable(pairs)) if row is not None]
    groups = list(dict.fromkeys(system.cell.group for system in systems))
    same = {
        one.cell: sweep.label(one.identical_to) for one in sweep.interpolated if one.identical_to
    }

    def tested(row: CellSummary) -> CellSummary:
        name = row.cell.cell
        tests = {
            measure: {
                mark: c for mark, compared in slots.items() for c in compared if c.system == name
            }
            for measure, slots in by_measure.items()
        }
        is_base = name == sweep.baseline
        return replace(row, is_baseline=is_base, same_as=same.get(name, ""), tests=tests)

    return [tested(row) for row in sorted(systems, key=lambda row: groups.index(row.cell.group))]
