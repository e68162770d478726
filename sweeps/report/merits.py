"""The three figures at the top of a page: what the choice reaches, what of its gain remains after
allowing for the choice, and what it costs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sweeps.findings.analysis import Analysis
from sweeps.report.headline import Headline
from sweeps.report.html import Merit
from sweeps.systems.costs import costs_of
from sweeps.terminal.notation import number, signed

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
    sweep, known = analysis.sweep, costs_of(analysis.sweep)
    eliminated = sweep.about.eliminated
    cells = [s.name for s in analysis.cells if s.num_used and s.name not in eliminated]
    if cells and all(known.of.get(cell) for cell in cells):
        return CostsOfRows(_of_rows(analysis, {cell: known.of[cell] for cell in cells}), known.unit)
    if "eval_seconds" not in sweep.trials:
        return CostsOfRows({})
    groups = sweep.used.groupby("cell", observed=True)["eval_seconds"]
    seconds = {str(cell): values for cell, values in groups if cell in cells and values.mean() > 0}
    means = {cell: float(values.mean()) for cell, values in seconds.items()}
    ends = {cell: (float(values.min()), float(values.max())) for cell, values in seconds.items()}
    unit = "seconds to evaluate a run"
    return CostsOfRows(_of_rows(analysis, means), unit, _of_rows(analysis, ends))


def _of_rows(analysis: Analysis, of: Mapping[str, T]) -> dict[str, T]:
    return {r.name: of[r.of or r.name] for r in analysis.rows if (r.of or r.name) in of}


def merits(analysis: Analysis, headline: Headline) -> list[Merit]:
    """Those of the choice; none of a smoke test."""
    sweep = analysis.sweep
    if not headline.system or headline.mean is None:
        return []
    alone = ""
    if headline.mean_alone is not None:
        alone = f"{number(headline.mean_alone, sweep.digits)} without {sweep.first_stage_name}"
    mean = number(headline.mean, sweep.digits)
    found = [Merit(f"{sweep.primary} on {sweep.split}", mean, detail=alone)]
    gain = analysis.gain_after_choice
    if not math.isnan(gain):
        name = f"Gain over {sweep.label(headline.reference)}, allowing for the choice"
        found.append(Merit(name, signed(gain, sweep.digits)))
    known = costs(analysis)
    if headline.system in known.of:
        found.append(_cost(analysis, headline.system, known))
    return found


def _cost(analysis: Analysis, row: str, known: CostsOfRows) -> Merit:
    """The cost of a system, with the range over its seeds or beside the baseline's."""
    value, base = known.of[row], known.of.get(analysis.sweep.baseline)
    whole = analysis.sweep.label(analysis.sweep.baseline)
    detail = f"{value / base:.1f} × {whole}" if base else ""
    if (ends := known.ends.get(row)) and ends[0] < ends[1]:
        detail = f"seeds {ends[0]:.3g} to {ends[1]:.3g}"
    return Merit("Cost", cost_number(value), known.unit, detail)


def cost_number(cost: float) -> str:
    """Three digits at least: `676`, `1.02`, `12,345`."""
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}"
