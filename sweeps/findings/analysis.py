"""The numbers of a report: every system against its baselines, on every measure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from string import ascii_lowercase
from typing import Any, TypeAlias

import pandas as pd

from rank_core.stats.best import BestSet, best_set
from rank_core.stats.compare import (
    ByLetter,
    CellComparison,
    Slot,
    compare_pairs,
    compare_with,
    scope_test_of,
)
from rank_core.stats.matrix import ScoreMatrix, proven_copies
from rank_core.stats.scopes import LEAST_SEEDS, ScopeTest
from rank_core.stats.strata import compare_collections
from sweeps.findings.allowance import allowed_gain
from sweeps.findings.dominance import Point, front_of
from sweeps.findings.scores import Matrices, ScoreViews, plain_scores, scores_of
from sweeps.store.scores import as_categories
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.store.test_options import MEASURE
from sweeps.systems.choice import Choice, choose
from sweeps.systems.load import Sweep
from sweeps.systems.summary import cells_of
from sweeps.systems.system import Kind, System


@dataclass(frozen=True)
class Robustness:
    """The letter of a comparison; on condensed lists its difference, corrected p (with one run that
    of the queries alone) and letter."""

    letter: str
    condensed_delta: float
    condensed_p: float
    condensed_letter: str


@dataclass(frozen=True)
class Unjudged:
    """The judged documents among the first `depth` of every run, and the comparisons again."""

    depth: int
    judged: float  # share, a mean over queries and runs
    judged_at_most: float  # likewise, if its judged documents came first in every list
    judged_per_query: float
    grades_differ: bool  # of judged documents of a query; condensed lists are else alike
    of: Mapping[CellComparison, Robustness]


Key: TypeAlias = tuple[str, str, str]
"""(letter of the baseline, measure, system): what identifies a comparison of the table."""
OWN_MODEL = "own model"
"""In the place of a letter: a row with the first stage against the model that is in it."""


@dataclass(frozen=True)
class Analysis:
    """A sweep with its comparisons; `tests` holds the variance parts behind each comparison."""

    sweep: Sweep
    rows: list[System]  # of the table, with their tests
    slots: tuple[Slot, ...]  # the baselines of the letters; none without a comparison
    compared: Mapping[Key, CellComparison]  # letter by letter, measure by measure, row by row
    tests: dict[tuple[str, str], ScopeTest]  # by (measure, system), of `comparisons`
    paired: bool  # whether the tests used the declared pairing of seeds
    cell_scores: ScoreViews
    row_scores: ScoreViews  # with the rows that are not cells
    fixed: tuple[str, ...]  # the rows of these with a single possible run
    best_sets: Mapping[str, BestSet]  # by measure, over all rows; none for one system
    copies: Mapping[str, str] = field(default_factory=dict)
    """{cell: the one that it equals in every run and value}: one system, tested once."""
    num_families: int = 1  # that share alpha; more where p is corrected over the whole table
    published: Mapping[str, Mapping[str, list[str]]] | None = None
    """{cell: {measure: values of papers}} with `--published`; never tested."""
    unjudged: Unjudged | None = None  # with `with_unjudged`

    @cached_property
    def cells(self) -> list[System]:
        """The rows of cells, in the order of the sweep, finished or not."""
        rows = {row.name: row for row in self.rows}
        return [rows[cell.cell] for cell in self.sweep.cells]

    @cached_property
    def interpolated(self) -> list[System]:
        """The rows with the first stage."""
        rows = {row.name: row for row in self.rows}
        return [rows[system.name] for system in self.sweep.interpolated]

    @property
    def first_stage(self) -> System | None:
        """The row of the candidates in their order, if there is one."""
        return next((row for row in self.rows if row.kind is Kind.FIRST_STAGE), None)

    @property
    def baseline(self) -> System:
        """The cell that all others are compared with, finished or not."""
        return next(system for system in self.cells if system.name == self.sweep.baseline)

    def _listed(self, letters: Iterable[str], *, cells: bool | None = None) -> list[CellComparison]:
        """The comparisons under some letters, of cells, of other rows, or of all."""
        letters = set(letters)
        own = {cell.cell for cell in self.sweep.cells}
        return [
            comparison
            for (letter, _, system), comparison in self.compared.items()
            if letter in letters and cells in (None, system in own)
        ]

    @cached_property
    def comparisons(self) -> list[CellComparison]:
        """Of the cells, with the first baseline."""
        return self._listed("a", cells=True)

    @property
    def further(self) -> list[CellComparison]:
        """Of the cells, with the other baselines, such as each system's own."""
        count = len(self.slots) - (FIRST_STAGE in self.slots)
        return self._listed(ascii_lowercase[1:count])

    @cached_property
    def interpolated_comparisons(self) -> list[CellComparison]:
        """Of the other rows, with the first baseline."""
        return self._listed("a", cells=False)

    @cached_property
    def first_stage_comparisons(self) -> list[CellComparison]:
        """Of all rows, with the first stage."""
        letters = ascii_lowercase[len(self.slots) - 1] if FIRST_STAGE in self.slots else ""
        return self._listed(letters)

    @cached_property
    def own_model_comparisons(self) -> list[CellComparison]:
        """Of the rows with the first stage, with their own models, paired by training run."""
        return self._listed([OWN_MODEL])

    @property
    def means(self) -> Matrices:
        """What the tests of the means over collections read; empty for a single collection."""
        tested = self.cell_scores.tested.items()
        return {measure: matrix for measure, matrix in tested if measure in self.sweep.means}

    @property
    def primary(self) -> list[CellComparison]:
        """The comparisons on the primary measure, in the order of the cells."""
        return [pair for pair in self.comparisons if pair.measure == self.sweep.primary]

    @cached_property
    def choice(self) -> Choice | None:
        """The choice of the sweep."""
        return choose(self.sweep)

    @cached_property
    def chosen(self) -> CellComparison | None:
        """The test of the choice on the primary measure, with the first stage or, without its row,
        the baseline; None where it is that system, or was not tested."""
        if self.choice is None:
            return None
        name = self.copies.get(self.choice.system, self.choice.system)
        return self.gains.get(name)

    @cached_property
    def gains(self) -> dict[str, CellComparison]:
        """{row: its test on the primary measure} with the first stage; without its row with the
        baseline."""

        def primary(compared: Iterable[CellComparison]) -> dict[str, CellComparison]:
            return {c.system: c for c in compared if c.measure == self.sweep.primary}

        own = primary(self.first_stage_comparisons)
        return own or primary([*self.comparisons, *self.interpolated_comparisons])

    @cached_property
    def gain_after_choice(self) -> float:
        """The gain of the choice over its reference after allowing for the choice; NaN where that
        cannot be known, as with runs that are too few to decide."""
        choice, test = self.choice, self.chosen
        if choice is None or test is None or test.fewest_seeds < LEAST_SEEDS:
            return math.nan
        matrix = self.row_scores.tested[test.measure]
        return allowed_gain(self.sweep, choice, test, self.rows, matrix, self.fixed)

    @property
    def best_set(self) -> BestSet | None:
        """The systems not distinguishable from the best on the primary measure."""
        return self.best_sets.get(self.sweep.primary)

    @cached_property
    def front(self) -> tuple[Point, ...]:
        """The systems by the measure and the costs of `--objective`; empty without it."""
        matrix = self.row_scores.tested.get(self.sweep.primary)
        if matrix is None or not self.sweep.about.objectives:
            return ()
        return front_of(self.sweep, matrix, self.fixed, paired=self.paired)

    @property
    def undecided(self) -> list[CellComparison]:
        """The primary comparisons in which a side has one seed, whose seed variance is unknown."""
        return [pair for pair in self.primary if math.isnan(pair.p_both)]

    @property
    def single(self) -> list[System]:
        """The trained cells with one run."""
        trained = [s for s in self.cells if s.cell.cell not in self.sweep.deterministic]
        return [system for system in trained if system.num_used == 1]

    @property
    def deterministic(self) -> list[str]:
        """The rows without seeds."""
        return [*self.sweep.deterministic, *[FIRST_STAGE] * bool(self.first_stage)]

    @property
    def has_seeds(self) -> bool:
        """True if a system has training runs, or lacks its only run: their number says something
        then."""
        return any(
            row.name not in self.deterministic or row.num_used < row.num_launched
            for row in self.cells
        )


def analyse(sweep: Sweep) -> Analysis:
    """The comparisons of all that finished and was not eliminated; none without a finished
    baseline."""
    cells = cells_of(sweep)
    scored = _scored(sweep, cells)
    plain = plain_scores(sweep, scored)
    copies = _copies(sweep, plain, scored)
    scored = [cell for cell in scored if cell not in copies]
    scores = scores_of(sweep, {name: matrix.only(scored) for name, matrix in plain.items()})
    slots = _slots(sweep, scored)
    paired = _is_paired(sweep, [*scores.plain.values(), *scores.tested.values()])
    whole, added_rows = _with_derived(sweep, scored)
    shared = _num_families(whole, slots, added_rows)
    by_measure = (
        _compare_all(sweep, scores.tested, slots, paired=paired, num_families=shared)
        if slots
        else {}
    )
    compared: dict[Key, CellComparison] = {
        (mark, measure, pair.system): pair
        for mark in ascii_lowercase[: len(slots)]
        for measure, by_letter in by_measure.items()
        for pair in by_letter[mark]
    }
    first = [pair for (mark, _, _), pair in compared.items() if mark == "a"]
    of_rows = scores
    if added_rows:
        of_rows = scores_of(whole, plain_scores(whole, [*scored, *added_rows]))
    if first and added_rows:
        compared |= _of_derived(whole, of_rows.tested, slots, added_rows, num_families=shared)
    return Analysis(
        sweep=sweep,
        rows=_rows(sweep, cells, compared, copies),
        slots=(*slots, *[FIRST_STAGE] * bool(sweep.first_stage)) if first else (),
        compared=compared,
        tests={
            (pair.measure, pair.system): scope_test_of(
                scores.tested[pair.measure],
                (pair.system, pair.baseline),
                paired_seeds=paired,
                deterministic=sweep.deterministic,
            )
            for pair in first
        },
        paired=paired,
        copies=copies,
        num_families=shared,
        cell_scores=scores,
        row_scores=of_rows,
        fixed=whole.deterministic,
        best_sets=_best_sets(whole, of_rows.tested),
    )


def _scored(sweep: Sweep, cells: Iterable[System]) -> list[str]:
    """The cells that have scores and were not eliminated."""
    eliminated = sweep.about.eliminated
    return [s.cell.cell for s in cells if s.num_used and s.cell.cell not in eliminated]


def _copies(sweep: Sweep, matrices: Matrices, scored: Sequence[str]) -> dict[str, str]:
    """{cell: the one that it equals in every run and value}. Others may be copies of a baseline,
    which is none itself."""
    kept = {sweep.baseline}
    for slot in sweep.slots:
        kept |= {slot} if isinstance(slot, str) else {*slot.values()}
    ordered = sorted(scored, key=lambda cell: cell not in kept)
    found = proven_copies([*matrices.values()], ordered)
    return {cell: first for cell, first in found.items() if cell not in kept}


def _num_families(whole: Sweep, slots: Sequence[Slot], added: Sequence[str]) -> int:
    """The families of a table that share alpha: 1 unless p is corrected over the whole table. Each
    measure has one for each letter, one of the rows that are not cells, and one of those with the
    first stage and their models."""
    if whole.tests.correct_over == MEASURE:
        return 1
    own_models = any(row.name in added for row in whole.interpolated)
    letters = len(slots) + (FIRST_STAGE in added)
    return len(whole.measures) * (letters + bool(added) + own_models)


def _compare_all(
    sweep: Sweep, matrices: Matrices, slots: Sequence[Slot], *, paired: bool, num_families: int
) -> dict[str, ByLetter]:
    """{measure: its comparisons}; of several collections with those of the means."""
    sharing: dict[str, Any] = {"paired": paired, "num_families": num_families}
    if not sweep.means:
        return {
            measure: compare_with(matrix, **_options(sweep, matrix, slots, **sharing))
            for measure, matrix in matrices.items()
        }
    by_measure: dict[str, ByLetter] = {}
    for mean, columns in sweep.means.items():
        own = [matrices[column] for column in columns]
        options = _options(sweep, own[0], slots, **sharing)
        found, by_measure[mean] = compare_collections(own, matrices[mean], **options)
        by_measure |= dict(zip(columns, found, strict=True))
    return by_measure


def _options(
    sweep: Sweep, matrix: ScoreMatrix, slots: Sequence[Slot], *, paired: bool, num_families: int
) -> dict[str, Any]:
    return {
        "baselines": slots,
        "correction": sweep.tests.correction,
        "alpha": sweep.tests.alpha,
        "paired_seeds": paired,
        "num_families": num_families,
        "deterministic": [cell for cell in sweep.deterministic if cell in matrix.cells],
    }


def _is_paired(sweep: Sweep, matrices: Iterable[ScoreMatrix]) -> bool:
    """True if seeds are declared as paired, and all trained cells have the same ones."""
    return sweep.tests.paired_seeds and all(
        len({own for cell, own in matrix.seeds.items() if cell not in sweep.deterministic}) == 1
        for matrix in matrices
    )


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
    """The sweep with the scores of the rows that are not cells, and the names of these: the first
    stage, and the rows with it that no other one equals by construction."""
    derived = [row for row in sweep.interpolated if row.of in scored and not row.identical_to]
    added = [*([sweep.first_stage] if sweep.first_stage else []), *derived]
    if not added:
        return sweep, []
    fixed = [row.name for row in added if row.deterministic]
    tables = [sweep.scores, *(row.scores for row in derived)]
    tables += [sweep.first_stage.scores] if sweep.first_stage else []
    whole = replace(
        sweep,
        scores=as_categories(pd.concat(tables, ignore_index=True)),
        deterministic=(*sweep.deterministic, *fixed),
    )
    return whole, [row.name for row in added]


def all_rows(sweep: Sweep) -> tuple[Sweep, Matrices]:
    """The sweep with the scores of its first stage and derived rows, and the matrices of every row
    that has scores and was not eliminated."""
    scored = _scored(sweep, cells_of(sweep))
    whole, added = _with_derived(sweep, scored)
    return whole, plain_scores(whole, [*scored, *added])


def _of_derived(
    whole: Sweep,
    matrices: Matrices,
    slots: Sequence[Slot],
    names: Sequence[str],
    *,
    num_families: int,
) -> dict[Key, CellComparison]:
    """The comparisons of the rows called `names` with the first baseline, of all systems with the
    first stage, and of rows with the first stage with their own models. The family of an added row
    is all systems of the table; that of the cells does not change: the p of trained cells must not
    depend on which rows are shown beside them."""
    compared: dict[Key, CellComparison] = {}
    last = ascii_lowercase[len(slots)]
    both = [*slots[:1], *[FIRST_STAGE] * (FIRST_STAGE in names)]
    for measure, matrix in matrices.items():
        paired = _is_paired(whole, [matrix])
        options = _options(whole, matrix, both, paired=paired, num_families=num_families)
        found = compare_with(matrix, **options)
        added = [pair for pair in found["a"] if pair.system in names]
        against = found.get("b", [])
        compared |= {("a", measure, pair.system): pair for pair in one_p(added, against)}
        compared |= {(last, measure, pair.system): pair for pair in one_p(against, added)}
    own = _with_own_models(whole, matrices, names, num_families=num_families)
    return compared | {(OWN_MODEL, pair.measure, pair.system): pair for pair in own}


def _with_own_models(
    whole: Sweep, matrices: Matrices, names: Sequence[str], *, num_families: int
) -> list[CellComparison]:
    """The rows called `names` with the models that are in them, on every measure: a family of its
    own. Both sides are the same training runs, so their runs are paired by construction, whatever
    the sweep declares."""
    pairs = [(row.name, row.of) for row in whole.interpolated if row.name in names]
    found = []
    for matrix in matrices.values():
        options = _options(whole, matrix, (), paired=True, num_families=num_families)
        del options["baselines"]
        found += compare_pairs(matrix, pairs, **options)
    return found


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
                matrix, alpha=whole.tests.alpha, paired_seeds=paired, deterministic=fixed
            )
    return sets


def one_p(own: list[CellComparison], others: list[CellComparison]) -> list[CellComparison]:
    """The comparisons, that of the first stage and the baseline, which is in both families, with
    the larger p of the two: one pair has one p."""
    twins = {frozenset((pair.system, pair.baseline)): pair for pair in others}
    return [
        replace(
            pair,
            # The larger one holds in either family.
            p_both_adjusted=max(pair.p_both_adjusted, twin.p_both_adjusted),
            p_queries_adjusted=max(pair.p_queries_adjusted, twin.p_queries_adjusted),
        )
        for pair in own
        for twin in [twins.get(frozenset((pair.system, pair.baseline)), pair)]
    ]


def _rows(
    sweep: Sweep,
    cells: Sequence[System],
    compared: Mapping[Key, CellComparison],
    copies: Mapping[str, str],
) -> list[System]:
    """The first stage, then every cell followed by the system derived from it; cells of one group
    stand together, groups in order of appearance."""
    after: dict[str, list[System]] = {}
    for row in sweep.interpolated:
        after.setdefault(row.of, []).append(row)
    follow = chain.from_iterable([system, *after.get(system.name, [])] for system in cells)
    systems = [*([sweep.first_stage] if sweep.first_stage else []), *follow]
    groups = list(dict.fromkeys(system.cell.group for system in systems))
    tests: dict[str, dict[str, dict[str, CellComparison]]] = {}  # by system, measure and letter
    for mark, measure, name in sorted(compared, key=lambda key: (len(key[0]), key[0])):
        own = tests.setdefault(name, {}).setdefault(measure, {})
        own[mark] = compared[mark, measure, name]
    rows = [
        replace(
            row,
            is_baseline=row.name == sweep.baseline,
            same_as=sweep.label(same) if (same := copies.get(row.name, row.identical_to)) else "",
            tests=tests.get(row.name, {}),
        )
        for row in systems
    ]
    return sorted(rows, key=lambda row: groups.index(row.cell.group))
