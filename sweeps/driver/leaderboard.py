"""The rows of MLflow's summary experiment: one per configuration, from the report's own results.

MLflow's grouped view averages only the runs it has loaded; this is the leaderboard to quote.
"""

import json
import statistics
from pathlib import Path
from typing import Any

import pandas as pd

from sweeps.store.trial_status import USED
from sweeps.tracking.names import metric_name
from sweeps.tracking.summary import MeasureSummary, SummaryRow

COSTS = ("train_seconds", "eval_seconds", "encoder_tokens")


def summary_rows(report: Path) -> list[SummaryRow]:
    """The configurations with a finished seed, the primary measure first; `report` is the folder
    in the sweep's own, whose tables give costs and per-query values."""
    trials = pd.read_parquet(report.parent / "trials.parquet")
    scores = pd.read_parquet(report.parent / "per_query.parquet")
    results = json.loads((report / "results.json").read_text(encoding="utf-8"))
    comparisons = {(one["system"], one["measure"]): one for one in results["comparisons"]}
    alpha = results["sweep"]["alpha"]
    return [
        SummaryRow(
            config_id=cell["label"],
            config_hash=cell["cell"],
            measures={
                metric_name(name): _measure(found, comparisons.get((cell["cell"], name)), alpha)
                for name, found in cell["measures"].items()
                if found["per_seed"]
            },
            params=cell["settings"],
            tags={"seeds": f"{cell['seeds_used']}/{cell['seeds_launched']}"},
            costs=_costs(_of(cell, trials)),
            per_query=_of(cell, scores),
        )
        for cell in results["cells"]
        if cell["seeds_used"]
    ]


def _of(cell: Any, table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a cell's reported seeds; the folder may hold trials of other commands, too."""
    seeds = [int(seed) for seed in cell["fates"]]
    return table[(table["cell"] == cell["cell"]) & table["seed"].isin(seeds)]


def _costs(trials: pd.DataFrame) -> dict[str, float]:
    """What a trial of the configuration cost on average, of those with a result."""
    used = trials[trials["status"].isin(USED)]
    return {name: float(used[name].mean()) for name in COSTS if name in used}


def _measure(found: Any, compared: Any, alpha: float) -> MeasureSummary:
    values = list(found["per_seed"].values())
    p = None if compared is None else compared["p_both_adjusted"]
    return MeasureSummary(
        mean=found["mean"],
        std=statistics.stdev(values) if len(values) > 1 else float("nan"),
        n=len(values),
        delta=None if compared is None else compared["delta"],
        p_both_adjusted=p,
        significant=None if p is None else p < alpha,
    )
