"""Where a model stands that is exported: beside the first stage, and as a champion."""

import math

from sweeps.findings.analysis import Analysis
from sweeps.systems.order import ROUNDING
from sweeps.terminal.notation import decisive_p, interval_text, signed


def beside_first_stage(analysis: Analysis, label: str) -> str:
    """`below BM25 by 0.089, p .012`: the row's mean on the primary measure, with p where it was
    tested; "" where the first stage is unknown."""
    sweep = analysis.sweep
    first = sweep.first_stage_mean
    rows = [*analysis.cells, *analysis.interpolated]
    mean = next((row.mean(sweep.primary) for row in rows if row.cell.label == label), math.nan)
    if first is None or math.isnan(mean):
        return ""
    if abs(mean - first) <= ROUNDING:
        return f"equal to {sweep.first_stage_name}"
    side = "below" if mean < first else "above"
    tested = (c for c in analysis.first_stage_comparisons if c.measure == sweep.primary)
    found = next((c for c in tested if sweep.label(c.system) == label), None)
    p = f", p {decisive_p(found)}" if found else ""
    return f"{side} {sweep.first_stage_name} by {abs(mean - first):.3f}{p}"


def no_champion(analysis: Analysis, cell: str) -> str:
    """Why a cell is not a champion: it must be the confirmed choice, significantly better than the
    baseline and above the first stage on the reported split; "" where it is one."""
    sweep = analysis.sweep
    if not sweep.about.confirms:
        return "its gain is not confirmed: export the confirmation (--confirm)"
    if sweep.about.confirms.get("cell") != cell:
        return "it is not the confirmed choice"
    row = analysis.choice.system if analysis.choice else ""
    tested = (*analysis.primary, *analysis.interpolated_comparisons)
    compared = next((c for c in tested if c.system == row and c.measure == sweep.primary), None)
    if compared is None or compared.delta <= 0 or not compared.significant(sweep.tests.alpha):
        baseline = sweep.label(sweep.baseline)
        gain = ""
        if compared:
            interval = interval_text(compared.in_family, sweep.digits)
            gain = f": {signed(compared.delta, sweep.digits)} {interval}"
        return f"it is not significantly better than {baseline} on {sweep.primary}{gain}"
    beside = beside_first_stage(analysis, sweep.label(row))
    if not beside.startswith("above"):
        return f"it is {beside or 'not compared with a first stage'} on {sweep.primary}"
    return ""
