"""The results of a sweep whose trials have ended: the table of values, the report, and the rows of
MLflow's summary experiment.

MLflow's grouped view averages only the runs on screen; quote the summary.
"""

import json
import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from sweeps.plan.plan import Plan
from sweeps.plan.terminal import say
from sweeps.report.access import ACCESS_FILE
from sweeps.report.build import Report, write_report
from sweeps.store.checksums import SCORES, read_result
from sweeps.store.scores import TEXTS, push_dataset, read_dataset, write_dataset
from sweeps.store.storage_retry import patient_read
from sweeps.store.sweep_file import INTERPOLATED, read_sweep_file, update_sweep_file
from sweeps.store.trial_status import USED
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import TrialState, TrialTable
from sweeps.tracking.kept_models import log_models
from sweeps.tracking.names import metric_name
from sweeps.tracking.summary import SummaryRow, log_summary

COSTS = ("train_seconds", "eval_seconds", "encoder_tokens")


def write_results(plan: Plan, store: Store, trials: TrialTable) -> Report | None:
    """Write tables and report of the finished trials; None without any."""
    trials.write_tables()
    launched = trials.state.trials.keys()

    def pull() -> set[str]:
        finished = store.finished()
        store.pull(finished & launched)
        return finished

    finished = patient_read(store, pull)
    names = [trial.name for trial in plan.trials() if trial.name in finished]
    if not names:
        return None
    for name in sorted((finished & launched) - set(names)):
        if damage := store.damage(name):
            say(f"warning: runs/{name} of another plan is damaged ({damage}): its values are lost")
            finished.discard(name)
    write_dataset(store.folder, sorted(finished & launched))
    results = [read_result(store.folder / "runs" / name).facts for name in names]
    _note_versions(store.folder, results)
    say(_padding_text(results))
    store.pull_file(ACCESS_FILE)
    report = write_report(store.folder, uri=store.uri, collection=plan.inputs.collection)
    store.push("sweep.json", "qrels", INTERPOLATED, "report", ACCESS_FILE)
    push_dataset(store)
    return report


def _padding_text(results: list[dict[str, Any]]) -> str:
    most = {
        kind: max(result[f"{prefix}padding_share"] for result in results)
        for kind, prefix in (("evaluation", ""), ("training", "training_"))
    }
    shares = ", ".join(f"{100 * share:.1f}% in {kind}" for kind, share in most.items())
    return f"padding     at most {shares}, of a trial's tokens"


def _note_versions(folder: Path, results: list[dict[str, Any]]) -> None:
    kinds: dict[str, dict[str, None]] = {}
    for result in results:
        for name, version in result["versions"].items():
            kinds.setdefault(name, {})[version] = None
    versions = {name: ", ".join(several) for name, several in kinds.items()}
    update_sweep_file(folder, versions=versions)


def log_results(
    store: Store, trials: Mapping[str, TrialState], tracking_uri: str, experiment: str
) -> None:
    """Writes the summary, the report and the kept models to MLflow, which has the runs already."""
    report = store.folder / "report"
    log_summary(tracking_uri, experiment, summary_rows(report), report)
    kept = {trial: trials[trial].settings for trial in store.with_weights() & trials.keys()}
    if kept:  # else this is perhaps a copy without weights
        log_models(tracking_uri, experiment, kept, store.uri)


def summary_rows(report: Path) -> list[SummaryRow]:
    """The configurations with a finished seed, the primary measure first. `report` is the folder
    within the sweep's, whose tables have costs and per-query values."""
    trials = pd.read_parquet(report.parent / "trials.parquet")
    results = json.loads((report / "results.json").read_text(encoding="utf-8"))
    comparisons = {(row["system"], row["measure"]): row for row in results["comparisons"]}
    ignored = {cell.cell: cell.ignored for cell in read_sweep_file(report.parent).cells}
    return [
        SummaryRow(
            config_id=cell["label"],
            config_hash=cell["cell"],
            metrics=_metrics(cell, comparisons) | _costs(_rows_of(cell, trials)),
            params={
                name: value
                for name, value in cell["settings"].items()
                if name not in ignored.get(cell["cell"], ())
            },
            tags={"seeds": f"{cell['seeds_used']}/{cell['seeds_launched']}"}
            | _significance(cell, comparisons),
            per_query=partial(_scores, report.parent, _rows_of(cell, trials)),
        )
        for cell in results["cells"]
        if cell["seeds_used"]
    ]


def _rows_of(cell: Any, table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a cell's reported seeds: the folder may also hold trials of other commands."""
    seeds = [int(seed) for seed in cell["fates"]]
    return table[(table["cell"] == cell["cell"]) & table["seed"].isin(seeds)]


def _scores(folder: Path, trials: pd.DataFrame) -> pd.DataFrame:
    used = trials[trials["status"].isin(USED)]
    if (folder / SCORES).is_dir():
        names = map("{}-seed{}".format, used["cell"], used["seed"])
        return read_dataset(folder, list(names), "").astype(dict.fromkeys(TEXTS, str))
    scores = pd.read_parquet(folder / SCORES)
    return scores[scores["cell"].isin(used["cell"]) & scores["seed"].isin(used["seed"])]


def _costs(trials: pd.DataFrame) -> dict[str, float | None]:
    """Means over the seeds with scores."""
    used = trials[trials["status"].isin(USED)]
    return {f"cost/{name}": float(used[name].mean()) for name in COSTS if name in used}


def _metrics(cell: Any, comparisons: Mapping[Any, Any]) -> dict[str, float | None]:
    """A configuration's measures over its seeds, compared with the baseline."""
    metrics: dict[str, float | None] = {}
    for measure, measured in cell["measures"].items():
        if values := list(measured["per_seed"].values()):
            name, compared = metric_name(measure), comparisons.get((cell["cell"], measure), {})
            metrics |= {
                f"agg/{name}_mean": measured["mean"],
                f"agg/{name}_std": statistics.stdev(values) if len(values) > 1 else None,
                f"agg/{name}_n": len(values),
                f"delta/{name}": compared.get("delta"),
                f"p_both_adjusted/{name}": compared.get("p_both_adjusted"),
            }
    return metrics


def _significance(cell: Any, comparisons: Mapping[Any, Any]) -> dict[str, str]:
    compared = {measure: comparisons.get((cell["cell"], measure)) for measure in cell["measures"]}
    return {
        f"significant.{metric_name(measure)}": "yes" if test["significant"] else "no"
        for measure, test in compared.items()
        if test and test["p_both_adjusted"] is not None
    }
