"""The figures of merit at the top of a page: what the answer gains and what it costs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rank_core.stats.compare import CellComparison
from sweeps.report.analysis import Analysis
from sweeps.report.html import Merit
from sweeps.report.recommendation import Recommendation, costs_of
from sweeps.systems.best import left_after
from sweeps.systems.system import System
from sweeps.terminal.notation import interval_text, signed

T = TypeVar("T")


@dataclass(frozen=True)
class CostsOfRows:
    """What systems cost: {row of the table: cost}, its unit, and {row: its ends over seeds} where
    it varies."""

    of: Mapping[str, float]
    unit: str = ""
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def gains(analysis: Analysis) -> dict[str, CellComparison]:
    """{row: its tested difference on the primary measure} from the first stage; where that has no
    row, and among indexes, from the baseline."""
    first = [] if analysis.sweep.indexes else analysis.first_stage_comparisons
    own = _primary(analysis, first)
    return own or _primary(analysis, [*analysis.comparisons, *analysis.interpolated_comparisons])


def _primary(analysis: Analysis, compared: Sequence[CellComparison]) -> dict[str, CellComparison]:
    return {c.system: c for c in compared if c.measure == analysis.sweep.primary}


def costs(analysis: Analysis) -> CostsOfRows:
    """What a use of each system costs, else seconds, of all rows that have a score and were not
    eliminated; a row with the first stage costs what its cell does."""
    sweep, eliminated, known = analysis.sweep, left_after(analysis.sweep), costs_of(analysis)
    cells = [s.name for s in analysis.cells if s.num_used and s.name not in eliminated]
    if cells and all(known.of.get(cell) for cell in cells):
        return CostsOfRows(_of_rows(analysis, {cell: known.of[cell] for cell in cells}), known.unit)
    if "eval_seconds" not in sweep.trials:
        return CostsOfRows({})
    groups = sweep.used.groupby("cell", observed=True)["eval_seconds"]
    own = {str(cell): values for cell, values in groups if cell in cells and values.mean() > 0}
    means = {cell: float(values.mean()) for cell, values in own.items()}
    ends = {cell: (float(values.min()), float(values.max())) for cell, values in own.items()}
    unit = "seconds to evaluate a run"
    return CostsOfRows(_of_rows(analysis, means), unit, _of_rows(analysis, ends))


def _of_rows(analysis: Analysis, of: Mapping[str, T]) -> dict[str, T]:
    return {r.name: of[r.of or r.name] for r in analysis.rows if (r.of or r.name) in of}


def merits(analysis: Analysis, said: Recommendation) -> list[Merit]:
    """The gains of the recommended system and its cost; without one those of the best. A smoke test
    has none."""
    row, whose = {row.name: row for row in analysis.rows}.get(said.system), ""
    if row is None and (row := _largest(analysis)):
        whose = f" of {row.label}"
    if row is None or analysis.sweep.about.smoke_test:
        return []
    primary, first = analysis.sweep.primary, analysis.sweep.about.first_stage
    over_first = _primary(analysis, analysis.first_stage_comparisons).get(row.name)
    found = [_gain(analysis, test, whose) for test in (over_first, row.test(primary)) if test]
    if primary in first and not analysis.first_stage:  # a mean alone
        gain = row.mean(primary) - first[primary]
        name = _named(gain, whose, "the first stage")
        value = signed(gain, analysis.sweep.digits)
        found.insert(0, Merit(name, value, detail="not tested"))
    known = costs(analysis)
    return [*found, *([_cost(analysis, row, known)] if row.name in known.of else [])]


def _largest(analysis: Analysis) -> System | None:
    """The system with the largest tested gain, of those whose test decides, if there are any."""
    tests = gains(analysis)
    if analysis.sweep.indexes:  # which chunks, whatever BM25 adds
        tests = _primary(analysis, analysis.comparisons)
    decided = {name: test for name, test in tests.items() if not math.isnan(test.p_both)}
    among = decided or tests
    rows = [row for row in analysis.rows if row.name in among]
    return max(rows, key=lambda row: among[row.name].delta, default=None)


def _cost(analysis: Analysis, row: System, known: CostsOfRows) -> Merit:
    """The cost of a system, with the range over its seeds or beside the baseline's."""
    value, base = known.of[row.name], known.of.get(analysis.sweep.baseline)
    whole = analysis.sweep.label(analysis.sweep.baseline)
    detail = f"{value / base:.1f} × {whole}" if base else ""
    if (ends := known.ends.get(row.name)) and ends[0] < ends[1]:
        detail = f"seeds {ends[0]:.3g} to {ends[1]:.3g}"
    return Merit("Cost", cost_number(value), known.unit, detail)


def cost_number(cost: float) -> str:
    """Three digits at least: `676`, `1.02`, `12,345`."""
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}"


def _gain(analysis: Analysis, pair: CellComparison, whose: str) -> Merit:
    """A gain with its interval; without a recommendation it is the largest of all, and the interval
    is that of all at once, as the corrected p is."""
    sweep, digits = analysis.sweep, analysis.sweep.digits
    detail = interval_text(pair, digits, "paper")
    if whose and pair.in_family is not pair:
        detail = f"{interval_text(pair.in_family, digits, 'paper')}, simultaneous"
    name = _named(pair.delta, whose, sweep.label(pair.baseline))
    return Merit(name, signed(pair.delta, digits), detail=detail)


def _named(gain: float, whose: str, reference: str) -> str:
    """`Gain of MaxP 48/32 over BM25`; a loss is called one."""
    return f"Gain{whose} over {reference}" if gain >= 0 else f"Loss{whose} against {reference}"
