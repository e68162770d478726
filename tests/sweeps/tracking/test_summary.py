import logging
import math
import sqlite3

import pytest

from sweeps.tracking.client import connect
from sweeps.tracking.summary import MeasureSummary, SummaryRow, log_summary


def _runs(uri: str) -> list:
    client = connect(uri)
    experiment = client.get_experiment_by_name("rank/ws")
    return client.search_runs([experiment.experiment_id])


def _rows(uri: str) -> list[list]:
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        return [
            sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in ("runs", "metrics", "latest_metrics", "params", "tags")
        ]


def test_the_summary_has_one_run_per_configuration_and_writing_it_again_adds_nothing(uri):
    def rows(mean: float) -> list[SummaryRow]:
        return [
            SummaryRow("75/75", "h1", {"p_5": MeasureSummary(0.4, 0.01, 3)}, {"window": 75}),
            SummaryRow(
                "150/75",
                "h2",
                {"p_5": MeasureSummary(mean, 0.02, 3, mean - 0.4, 0.03, True)},
                {"window": 150},
            ),
        ]

    assert log_summary(uri, "rank/ws", rows(0.5)) == 2
    before = _rows(uri)
    assert log_summary(uri, "rank/ws", rows(0.5)) == 2
    assert _rows(uri) == before
    assert log_summary(uri, "rank/ws", rows(0.6)) == 2
    runs = {run.info.run_name: run for run in _runs(uri)}
    assert len(runs) == 2
    assert runs["150/75"].data.metrics == {
        "agg/p_5_mean": 0.6,
        "agg/p_5_std": 0.02,
        "agg/p_5_n": 3.0,
        "delta/p_5": pytest.approx(0.2),
        "p_both_adjusted/p_5": 0.03,
    }
    assert runs["150/75"].data.tags["significant.p_5"] == "yes"
    assert "significant.p_5" not in runs["75/75"].data.tags
    assert "delta/p_5" not in runs["75/75"].data.metrics


def test_a_summary_without_a_store_is_a_warning_and_no_error(caplog):
    row = SummaryRow("c1", "h1", {"p_5": MeasureSummary(0.5, math.nan, 1)})
    with caplog.at_level(logging.WARNING, "sweeps.tracking"):
        assert log_summary("http://127.0.0.1:9", "rank/ws", [row]) == 0
    assert "0 of 1 configurations" in caplog.text
    assert log_summary("none", "rank/ws", [row]) == 0
