"""The numbers of a report: every cell against the baseline, on every measure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rank_core.stats.baselines import Slot, compare_with
from rank_core.stats.compare import Comparison
from rank_core.stats.gain import GainInterval, gain_intervals, gain_weights
from rank_core.stats.matrix import ScoreMatrix, score_matrix
from rank_core.stats.scopes import ScopeTest, paired_scope_test, scope_test
from rank_core.stats.table import ResultCell, ResultRow, caption
from sweeps.report.leaders import tied_with_best
from sweeps.report.load import LOST, Sweep
from sweeps.report.sections.race import fate_word, left_after
from sweeps.report.summary import CellSummary, summarize


@dataclass(frozen=True)
class Analysis:
    """A sweep with its comparisons; `tests` holds the variance parts behind each comparison."""

    sweep: Sweep
    cells: list[CellSummary]
    comparisons: list[Comparison]
    own_comparisons: list[Comparison]  # with each system's own baseline, where declared
    tests: dict[tuple[str, str], ScopeTest]  # by (measure, system)
    rows: list[ResultRow]
    paired: bool  # whether the tests used the declared pairing of seeds
    matrices: Mapping[str, ScoreMatrix]  # {measure: scores of the cells with a used seed}
    gains: Mapping[tuple[str, str], GainInterval]  # by (measure, system)
    own_gains: Mapping[tuple[str, str], GainInterval]  # the same over the own baseline
    tied: Mapping[str, frozenset[str]]  # {measure: cells no test tells from the best}

    @property
    def baseline(self) -> CellSummary:
        """The cell all others are compared with, finished or not."""
        return next(one for one in self.cells if one.cell.cell == self.sweep.baseline)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The baselines of the letters: that of the sweep, then each system's own."""
        if not self.comparisons:
            return ()
        own = self.sweep.baselines
        return (self.sweep.baseline, own) if own else (self.sweep.baseline,)

    @property
    def primary(self) -> list[Comparison]:
        """The comparisons on the primary measure, in the order of the cells."""
        return [one for one in self.comparisons if one.measure == self.sweep.primary]

    @property
    def primary_tests(self) -> dict[str, ScopeTest]:
        """{system: its test on the primary measure}."""
        return {one.system: self.tests[one.measure, one.system] for one in self.primary}

    @property
    def undecided(self) -> list[Comparison]:
        """Primary comparisons in which a side has one seed: nothing is known about new runs."""
        return [one for one in self.primary if math.isnan(one.p_both)]

    @property
    def caption(self) -> str:
        """How to read the table, with what limits it in this sweep."""
        text = caption(
            self.rows,
            split=self.sweep.split,
            alpha=self.sweep.alpha,
            baselines=self.slots,
            paired_seeds=self.paired,
            deterministic=self.sweep.deterministic,
            collapsed=sum(len(one.seeds("collapsed")) for one in self.cells),
            failed=sum(len(one.seeds(*LOST)) for one in self.cells),
            ties=_ties(self.sweep),
        )
        if any(self.tied.values()):
            text += (
                " Italic: a mean that is not told from the best one (queries and runs random, "
                "same correction over the comparisons with the best)."
            )
        if left_after(self.sweep):
            text += (
                " Systems without a difference were stopped by halving on dev, by design."
                if fate_word(self.sweep) == "stopped"
                else " Systems without a difference left the race on dev, with fewer seeds by "
                "design."
            )
        if self.undecided:
            text += (
                " Where a system has one seed, p is not defined (—) and letters are conditional "
                "on that one training run."
            )
        if self.sweep.paired_seeds and not self.paired:
            text += (
                " The sweep declares its seeds as paired, but the systems do not have the same "
                "finished seeds: they are compared as unpaired, which is the safe side."
            )
        return text


def analyse(sweep: Sweep) -> Analysis:
    """Compare whatever finished and has not left a race; without a finished baseline there is no
    comparison."""
    cells, left = summarize(sweep), left_after(sweep)
    scored = [one.cell.cell for one in cells if one.num_used and one.cell.cell not in left]
    matrices = {
        measure: score_matrix(sweep.scores, measure=measure, cells=scored)
        for measure in sweep.measures
        if scored
    }
    paired = sweep.paired_seeds and all(
        len(set(matrix.seeds.values())) == 1 for matrix in matrices.values()
    )
    comparisons, own_comparisons = _comparisons(sweep, matrices, scored, paired=paired)
    gains, own_gains = (
        _gains(sweep, matrices, found, slot, paired=paired)
        for found, slot in ((comparisons, sweep.baseline), (own_comparisons, sweep.baselines))
    )
    return Analysis(
        sweep=sweep,
        cells=cells,
        comparisons=comparisons,
        own_comparisons=own_comparisons,
        tests={
            (one.measure, one.system): _scope_test(sweep, matrices[one.measure], one, paired=paired)
            for one in comparisons
        },
        rows=_rows(sweep, cells, comparisons, own_comparisons),
        paired=paired,
        matrices=matrices,
        gains=gains,
        own_gains=own_gains,
        tied={
            measure: tied_with_best(
                matrix, alpha=sweep.alpha, correction=sweep.correction, paired=paired
            )
            for measure, matrix in matrices.items()
        },
    )


def _comparisons(
    sweep: Sweep, matrices: Mapping[str, ScoreMatrix], scored: list[str], *, paired: bool
) -> tuple[list[Comparison], list[Comparison]]:
    """Those with the sweep's baseline, and those with each system's own."""
    if sweep.baseline not in scored:
        return [], []
    own = {cell: base for cell, base in sweep.baselines.items() if {cell, base} <= set(scored)}
    by_slot: tuple[list[Comparison], list[Comparison]] = ([], [])
    for matrix in matrices.values():
        found = compare_with(
            matrix,
            baselines=(sweep.baseline, own),
            correction=sweep.correction,
            alpha=sweep.alpha,
            paired_seeds=paired,
            deterministic=[cell for cell in sweep.deterministic if cell in scored],
        )
        for slot, one in zip(by_slot, found, strict=True):
            slot.extend(one)
    return by_slot


def _gains(
    sweep: Sweep,
    matrices: Mapping[str, ScoreMatrix],
    comparisons: list[Comparison],
    slot: Slot,
    *,
    paired: bool,
) -> dict[tuple[str, str], GainInterval]:
    """The relative gains; all measures share the replicates, they come from the same runs."""
    if not comparisons:
        return {}
    weights = gain_weights(matrices[sweep.primary], paired_seeds=paired)
    found: dict[tuple[str, str], GainInterval] = {}
    for measure, matrix in matrices.items():
        df = {one.system: one.df_both for one in comparisons if one.measure == measure}
        gains = gain_intervals(matrix, baseline=slot, df=df, weights=weights, level=1 - sweep.alpha)
        found |= {(measure, system): one for system, one in gains.items()}
    return found


def _scope_test(sweep: Sweep, matrix: ScoreMatrix, one: Comparison, *, paired: bool) -> ScopeTest:
    sides = matrix.scores[one.system], matrix.scores[one.baseline]
    fixed = one.system in sweep.deterministic, one.baseline in sweep.deterministic
    if paired and not any(fixed):
        return paired_scope_test(*sides)
    return scope_test(*sides, deterministic=fixed)


def _rows(
    sweep: Sweep,
    cells: list[CellSummary],
    comparisons: list[Comparison],
    own_comparisons: list[Comparison],
) -> list[ResultRow]:
    """The rows of the table; cells of one group stand together, groups in order of appearance."""
    by_place = {(one.system, one.measure): one for one in comparisons}
    own = {(one.system, one.measure): one for one in own_comparisons}
    groups = list(dict.fromkeys(one.cell.group for one in cells))
    return [
        ResultRow(
            label=one.cell.label,
            group=one.cell.group,
            cell=one.cell.cell,
            is_baseline=one.cell.cell == sweep.baseline,
            seeds_used=one.num_used,
            seeds_launched=one.num_launched,
            cells=tuple(
                ResultCell(
                    measure=measure,
                    mean=one.mean(measure),
                    sd_seeds=_deviation(list(one.seed_means[measure].values())),
                    comparison=by_place.get(place := (one.cell.cell, measure)),
                    others=(own[place],) if place in own else (),
                )
                for measure in sweep.measures
            ),
        )
        for one in sorted(cells, key=lambda one: groups.index(one.cell.group))
    ]


def _deviation(values: list[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def _ties(sweep: Sweep) -> int | None:
    """Tied scores of all used trials; None where the ledger does not count them."""
    if "ties" not in sweep.trials:
        return None
    return int(sweep.trials["ties"].fillna(0).sum())
