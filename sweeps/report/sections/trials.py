"""The trials, one by one."""

import math
from typing import Any

from sweeps.report.analysis import Analysis
from sweeps.report.notation import MISSING
from sweeps.report.sections.section import Findings, Section
from sweeps.report.table import Table, table, table_row


def section(found: Findings) -> Section:
    """Every trial of the sweep with its fate and its costs."""
    analysis = found.analysis
    return Section(
        "Trials",
        tables=[_trials(analysis)],
        results={"trials": analysis.sweep.trials.to_dict("records")},
    )


def _trials(analysis: Analysis) -> Table:
    """One line per trial, lost ones marked."""
    sweep = analysis.sweep
    summaries = {one.cell.cell: one for one in analysis.cells}
    rows = []
    for trial in sweep.trials.to_dict("records"):
        summary = summaries[trial["cell"]]
        score = summary.seed_means[sweep.primary].get(int(trial["seed"]))
        peak = _number(trial, "peak_memory_bytes")
        reason = trial.get("stop_reason")  # parquet turns an absent one into NaN or None
        rows.append(
            table_row(
                summary.cell.label,
                str(trial["seed"]),
                str(trial["status"]),
                MISSING if score is None else f"{score:.3f}",
                *(_whole(_number(trial, n)) for n in ("attempts", "train_seconds", "eval_seconds")),
                MISSING if peak is None else f"{peak / 2**30:.1f}",
                reason if isinstance(reason, str) else "",
                style="" if trial["status"] == "done" else "lost",
            )
        )
    columns = "system,seed,status,%s,attempts,training s,evaluation s,peak memory GiB,stop reason"
    return table((columns % sweep.primary).split(","), rows, "lrlrrrrrl")


def _number(trial: dict[Any, Any], name: str) -> float | None:
    """A number of the trials' table; None where the column or the value is missing."""
    try:
        value = float(trial.get(name, math.nan))
    except TypeError:  # None and NA: a trial that never ran has no seconds
        return None
    return value if math.isfinite(value) else None


def _whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"
