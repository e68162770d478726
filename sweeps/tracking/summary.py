"""The summary experiment, with numbers to quote: a run per configuration."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.plan.secrets import redact, redact_text
from sweeps.tracking.client import artifact_root, connect, ensure_experiment
from sweeps.tracking.description import RUNS, describe
from sweeps.tracking.mlflow_writer import age, log_report, put_query_table
from sweeps.tracking.uri import NONE, check_tracking_uri
from sweeps.tracking.views import layout_of, summary_view_tags

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient

_log = logging.getLogger("sweeps.tracking")


@dataclass(frozen=True)
class MeasureSummary:
    """A measure of a configuration over its seeds, compared with the baseline."""

    mean: float
    std: float
    n: int  # seeds
    delta: float | None = None  # of the means; None for the baseline itself
    p_both_adjusted: float | None = None  # over seeds and queries, corrected for all comparisons
    significant: bool | None = None


@dataclass(frozen=True)
class SummaryRow:
    """One configuration. `measures` has metric names (`ndcg_cut_10`), the primary one first."""

    config_id: str
    config_hash: str
    measures: Mapping[str, MeasureSummary]
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)  # means over seeds
    per_query: "Callable[[], pd.DataFrame] | None" = None
    """A function that reads its rows of `per_query.parquet`, of all seeds."""


def log_summary(
    tracking_uri: str, experiment: str, rows: Iterable[SummaryRow], report: Path
) -> int:
    """Writes `rows` to `experiment`/summary, the files of the folder `report` to the one run of
    `experiment`/report, and the answer to the descriptions of all three; return the number of
    configurations written. A configuration keeps its run (tag `config.hash`), and existing values
    are not written again. An unavailable store causes a warning; the report is not affected.
    """
    check_tracking_uri(tracking_uri)
    if tracking_uri == NONE:
        return 0
    written = 0
    rows = list(rows)
    try:
        client = connect(tracking_uri)
        root = artifact_root(tracking_uri, Path.cwd())
        trials, summary, its_report = (
            ensure_experiment(client, experiment + part, root) for part in RUNS
        )
        for row in rows:
            _write(client, summary, row)
            written += 1
        _write_view(client, summary, rows)
        log_report(client, its_report, report)
        for part, experiment_id in zip(RUNS, (trials, summary, its_report), strict=True):
            describe(client, experiment_id, report.parent, experiment, part)
    except Exception as error:
        _log.warning(
            "the summary in MLflow has %d of %d configurations, or not their files (%s); the "
            "report on disk is complete, and the same command again writes the rest",
            written,
            len(rows),
            redact_text(str(error))[:300],
        )
    return written


def _write(client: "MlflowClient", experiment_id: str, row: SummaryRow) -> None:
    from mlflow.entities import Metric, Param, RunTag

    runs = client.search_runs(
        [experiment_id], filter_string=f"tags.`config.hash` = '{row.config_hash}'"
    )
    if runs:
        run = min(runs, key=age)
    else:
        run = client.create_run(
            experiment_id, tags={"config.hash": row.config_hash}, run_name=row.config_id[:40]
        )
    now = time.time_ns() // 1_000_000
    stored = run.data.metrics
    new = {name: value for name, value in _metrics(row).items() if stored.get(name) != value}
    params = {str(name): str(value) for name, value in redact(row.params).items()}
    client.log_batch(
        run.info.run_id,
        params=[Param(name, text) for name, text in params.items() if name not in run.data.params],
    )
    client.log_batch(
        run.info.run_id,
        metrics=[Metric(name, value, now, 0) for name, value in new.items()],
        tags=[RunTag(name, text) for name, text in _tags(row).items()],
    )
    if row.per_query is not None:
        put_query_table(client, run.info.run_id, row.per_query())
    if run.info.status != "FINISHED":
        client.set_terminated(run.info.run_id, "FINISHED")


def _metrics(row: SummaryRow) -> dict[str, float]:
    """The finite numbers of a row; MLflow turns infinities into 1.8e308."""
    values: dict[str, float | None] = {}
    for name, summary in row.measures.items():
        values |= {
            f"agg/{name}_mean": summary.mean,
            f"agg/{name}_std": summary.std,
            f"agg/{name}_n": summary.n,
            f"delta/{name}": summary.delta,
            f"p_both_adjusted/{name}": summary.p_both_adjusted,
        }
    values |= {f"cost/{name}": value for name, value in row.costs.items()}
    return {
        name: float(value)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }


def _tags(row: SummaryRow) -> dict[str, str]:
    tags = {name: str(value) for name, value in redact(row.tags).items()}
    tags |= {"config.hash": row.config_hash, "config.id": row.config_id}
    for name, summary in row.measures.items():
        if summary.significant is not None:
            tags[f"significant.{name}"] = "yes" if summary.significant else "no"
    return tags


def _write_view(client: "MlflowClient", experiment_id: str, rows: list[SummaryRow]) -> None:
    metrics = list(dict.fromkeys(name for row in rows for name in _metrics(row)))
    params = dict.fromkeys(name for row in rows for name in row.params)
    swept = [name for name in params if len({str(row.params.get(name)) for row in rows}) > 1]
    layout = layout_of(metrics, swept)
    for name, value in summary_view_tags(layout).items() if layout else ():
        client.set_experiment_tag(experiment_id, name, value)
