"""The figures of merit at the top of a page: what the choice gains and what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sweeps.report.analysis import Analysis
from sweeps.report.headline import Headline
from sweeps.report.html import Merit
from sweeps.systems.costs import costs_of
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


def costs(analysis: Analysis) -> CostsOfRows:
    """What a use of each system costs, else seconds, of all rows that have a score and were not
    eliminated; a row with the first stage costs what its cell does."""
    sweep, eliminated, known = (
        analysis.sweep,
        analysis.sweep.about.eliminated,
        costs_of(analysis.sweep),
    )
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


def merits(analysis: Analysis, said: Headline) -> list[Merit]:
    """The gain of the choice with its interval, and its cost. A smoke test has none."""
    row = {row.name: row for row in analysis.rows}.get(said.system)
    if row is None:
        return []
    sweep, known = analysis.sweep, costs(analysis)
    found = []
    if test := analysis.chosen:
        interval = interval_text(test.in_family, sweep.digits, "paper")
        name = _named(test.delta, sweep.label(test.baseline))
        found = [Merit(name, signed(test.delta, sweep.digits), detail=interval)]
    if sweep.primary in sweep.about.first_stage and not analysis.first_stage:  # a mean alone
        gain = row.mean(sweep.primary) - sweep.about.first_stage[sweep.primary]
        name = _named(gain, "the first stage")
        found.insert(0, Merit(name, signed(gain, sweep.digits), detail="not tested"))
    return [*found, *([_cost(analysis, row, known)] if row.name in known.of else [])]


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


def _named(gain: float, reference: str) -> str:
    """`Gain over BM25`; a loss is called one."""
    return f"Gain over {reference}" if gain >= 0 else f"Loss against {reference}"
