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
class SummaryRow:
    """One configuration. `metrics` are those of the primary measure first."""

    config_id: str
    config_hash: str
    metrics: Mapping[str, float | None]
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
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
    tags = {name: str(value) for name, value in redact(row.tags).items()}
    tags |= {"config.hash": row.config_hash, "config.id": row.config_id}
    client.log_batch(
        run.info.run_id,
        params=[Param(name, text) for name, text in params.items() if name not in run.data.params],
    )
    client.log_batch(
        run.info.run_id,
        metrics=[Metric(name, value, now, 0) for name, value in new.items()],
        tags=[RunTag(name, text) for name, text in tags.items()],
    )
    if row.per_query is not None:
        put_query_table(client, run.info.run_id, row.per_query())
    if run.info.status != "FINISHED":
        client.set_terminated(run.info.run_id, "FINISHED")


def _metrics(row: SummaryRow) -> dict[str, float]:
    """The finite numbers of a row; MLflow turns infinities into 1.8e308."""
    return {
        name: float(value)
        for name, value in row.metrics.items()
        if value is not None and math.isfinite(value)
    }


def _write_view(client: "MlflowClient", experiment_id: str, rows: list[SummaryRow]) -> None:
    metrics = list(dict.fromkeys(name for row in rows for name in _metrics(row)))
    params = dict.fromkeys(name for row in rows for name in row.params)
    swept = [name for name in params if len({str(row.params.get(name)) for row in rows}) > 1]
    layout = layout_of(metrics, swept)
    for name, value in summary_view_tags(layout).items() if layout else ():
        client.set_experiment_tag(experiment_id, name, value)
