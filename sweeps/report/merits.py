"""The figures of merit at the top of a page: what the answer gains and what it costs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rank_core.stats.compare import CellComparison
from sweeps.report.analysis import Analysis
from sweeps.report.html import Merit
from sweeps.report.recommendation import Recommendation
from sweeps.systems.best import left_after
from sweeps.systems.system import System
from sweeps.terminal.notation import interval_text, signed


@dataclass(frozen=True)
class Costs:
    """What systems cost: {row of the table: cost}, its unit, and {row: its ends over seeds} where
    it varies."""

    of: Mapping[str, float]
    unit: str = ""
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def gain(analysis: Analysis, row: System) -> CellComparison | None:
    """The tested difference of a row from the first stage, or, where that has no row, from the
    baseline; None without a test."""
    against = [c for c in analysis.first_stage_comparisons if c.measure == analysis.sweep.primary]
    own = against or [*analysis.primary, *analysis.interpolated_comparisons]
    same = (c for c in own if (c.system, c.measure) == (row.name, analysis.sweep.primary))
    return next(same, None)


def costs(analysis: Analysis) -> Costs:
    """Vectors per document of an index, else encoder tokens, else seconds, of all rows that have a
    score and were not eliminated; a row with the first stage costs what its cell does."""
    sweep, eliminated = analysis.sweep, left_after(analysis.sweep)
    cells = [s.cell for s in analysis.cells if s.num_used and s.cell.cell not in eliminated]
    if sweep.indexes:
        vectors = {name: own.figures["vectors_per_document"] for name, own in sweep.indexes.items()}
        return _costs(analysis, vectors, "vectors per document")
    if sweep.serving:
        read = {row["label"]: row["tokens_per_query"] for row in sweep.serving.rows}
        tokens = {c.cell: read[c.label] for c in cells if c.label in read}
        return _costs(analysis, tokens, "encoder tokens per query")
    tokens = {cell.cell: cell.encoder_tokens_per_document or 0.0 for cell in cells}
    if tokens and all(tokens.values()):
        return _costs(analysis, tokens, "encoder tokens per document")
    if "eval_seconds" not in sweep.trials:
        return Costs({})
    groups = sweep.used.groupby("cell", observed=True)["eval_seconds"]
    means = {cell.cell: float(groups.mean().get(cell.cell, math.nan)) for cell in cells}
    known = {cell: seconds for cell, seconds in means.items() if seconds > 0}
    ends = {str(cell): (float(own.min()), float(own.max())) for cell, own in groups}
    return _costs(analysis, known, "seconds to evaluate a run", ends)


def _costs(
    analysis: Analysis,
    known: Mapping[str, float],
    unit: str,
    ends: Mapping[str, tuple[float, float]] | None = None,
) -> Costs:
    def whole(of: Mapping[str, Any]) -> dict[str, Any]:
        return {r.name: of[r.of or r.name] for r in analysis.rows if (r.of or r.name) in of}

    return Costs(whole(known), unit, whole(ends or {}))


def merits(analysis: Analysis, said: Recommendation) -> list[Merit]:
    """The gains of the recommended system and its cost; without one those of the best. A smoke test
    has none."""
    row, whose = {row.name: row for row in analysis.rows}.get(said.system), ""
    if row is None and (row := _largest(analysis)):
        whose = f" of {row.label}"
    if row is None or analysis.sweep.about.smoke_test:
        return []
    primary, first = analysis.sweep.primary, analysis.sweep.about.first_stage
    own = dict.fromkeys([gain(analysis, row), row.test(primary)])
    found = [_gain(analysis, pair, whose) for pair in own if pair]
    if primary in first and not analysis.first_stage:  # a mean alone
        value = signed(row.mean(primary) - first[primary], analysis.sweep.digits)
        name = f"Gain{whose} over the first stage"
        found.insert(0, Merit(name, value, detail="not tested"))
    known = costs(analysis)
    return [*found, *([_cost(analysis, row, known)] if row.name in known.of else [])]


def _largest(analysis: Analysis) -> System | None:
    """The system with the largest tested gain, of those whose test decides, if there are any."""
    tests = {row: test for row in analysis.rows if (test := gain(analysis, row))}
    decided = {row: test for row, test in tests.items() if not math.isnan(test.p_both)}
    among = decided or tests
    return max(among, key=lambda row: among[row].delta, default=None)


def _cost(analysis: Analysis, row: System, known: Costs) -> Merit:
    """The cost of a system, with the range over its seeds or beside the baseline's."""
    value, base = known.of[row.name], known.of.get(analysis.sweep.baseline)
    detail = f"{value / base:.1f} × baseline" if base else ""
    if (ends := known.ends.get(row.name)) and ends[0] < ends[1]:
        detail = f"seeds {ends[0]:.3g} to {ends[1]:.3g}"
    return Merit("Cost", cost_text(value), known.unit, detail)


def cost_text(cost: float) -> str:
    """Three digits at least: `676`, `1.02`, `12,345`."""
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}"


def _gain(analysis: Analysis, pair: CellComparison, whose: str) -> Merit:
    sweep, digits = analysis.sweep, analysis.sweep.digits
    interval = interval_text(pair, digits, "paper")
    name = f"Gain{whose} over {sweep.label(pair.baseline)}"
    return Merit(name, signed(pair.delta, digits), detail=interval)
