import json
import logging
import math
import sqlite3

import pytest

from sweeps.tracking.client import connect
from sweeps.tracking.summary import SummaryRow, log_summary
from sweeps.tracking.uploader import Uploader

P_5 = {"agg/p_5_mean": 0.4, "agg/p_5_std": 0.01, "agg/p_5_n": 3, "delta/p_5": None}


def _runs(uri: str) -> list:
    client = connect(uri)
    experiment = client.get_experiment_by_name("rank/ws/summary")
    return client.search_runs([experiment.experiment_id])


def _rows(uri: str) -> list[list]:
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        return [
            sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in ("runs", "metrics", "latest_metrics", "params", "tags")
        ]


@pytest.fixture
def report(tmp_path):
    """A sweep's folder with the folder of a report."""
    cells = [{"cell": "c"}]
    described = {"sweep": "ws", "question": "Which window?", "split": "test", "measures": ["P@5"]}
    described |= {"primary": "P@5", "baseline": "c", "cells": cells}
    folder = tmp_path / "ws" / "report"
    folder.mkdir(parents=True)
    (folder.parent / "sweep.json").write_text(json.dumps(described))
    return folder


def _note(uri: str, part: str = "") -> str:
    experiment = connect(uri).get_experiment_by_name(f"rank/ws{part}")
    return experiment.tags.get("mlflow.note.content", "")


def test_descriptions_have_the_question_and_at_the_end_the_sentence_of_the_report(uri, report):
    uploader = Uploader(report.parent, uri, "rank/ws")
    uploader.start()
    assert uploader.close(30) == 0
    assert _note(uri).startswith("Question: Which window?\n\nNo answer yet.")
    answer = "On P@5, 75/75 is better than 150/75."
    (report / "results.json").write_text(json.dumps({"conclusions": [answer, "More."]}))
    row = SummaryRow("75/75", "h1", P_5)
    assert log_summary(uri, "rank/ws", [row], report) == 1
    for part, what in (("", "a trial"), ("/summary", "a configuration"), ("/report", "the report")):
        note = _note(uri, part)
        assert note.startswith(f"{answer}\n\nQuestion: Which window?\n") and what in note


def test_a_description_that_somebody_has_changed_stays(uri, report):
    row = SummaryRow("75/75", "h1", P_5)
    log_summary(uri, "rank/ws", [row], report)
    client = connect(uri)
    experiment = client.get_experiment_by_name("rank/ws")
    client.set_experiment_tag(experiment.experiment_id, "mlflow.note.content", "See the wiki.")
    log_summary(uri, "rank/ws", [row], report)
    assert _note(uri) == "See the wiki." and "Which window?" in _note(uri, "/summary")


def test_the_summary_has_one_run_per_configuration_and_writing_it_again_adds_nothing(uri, report):
    def rows(mean: float) -> list[SummaryRow]:
        numbers = {"agg/p_5_mean": mean, "agg/p_5_std": 0.02, "agg/p_5_n": 3}
        numbers |= {"delta/p_5": mean - 0.4, "p_both_adjusted/p_5": 0.03}
        return [
            SummaryRow("75/75", "h1", P_5, {"window": 75}),
            SummaryRow("150/75", "h2", numbers, {"window": 150}, {"significant.p_5": "yes"}),
        ]

    assert log_summary(uri, "rank/ws", rows(0.5), report) == 2
    before = _rows(uri)
    assert log_summary(uri, "rank/ws", rows(0.5), report) == 2
    assert _rows(uri) == before
    assert log_summary(uri, "rank/ws", rows(0.6), report) == 2
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


def test_a_summary_without_a_store_is_a_warning_and_no_error(tmp_path, caplog):
    row = SummaryRow("c1", "h1", {"agg/p_5_mean": 0.5, "agg/p_5_std": math.nan})
    with caplog.at_level(logging.WARNING, "sweeps.tracking"):
        assert log_summary("http://127.0.0.1:9", "rank/ws", [row], tmp_path) == 0
    assert "0 of 1 configurations" in caplog.text
    assert log_summary("none", "rank/ws", [row], tmp_path) == 0
