"""`python -m sweeps`: what it refuses; what it does is seen where a sweep has run."""

import json

import pytest

from sweeps.__main__ import COMMANDS, main
from sweeps.report.build import write_report
from sweeps.tracking.client import connect
from sweeps.tracking.description import RUNS
from tests.sweeps.report.test_load import FIVE, write_sweep

DESCRIBED = {
    "sweep": "x",
    "question": "Which?",
    "split": "test",
    "measures": ["P@5"],
    "primary": "P@5",
    "baseline": "c",
    "cells": [{"cell": "c"}],
}
OF_A_SWEEP = ("report", "design", "ui", "sync")
REQUIRED = {"design": ["--delta", "0.01"]}  # flags that a command does not work without


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert [name for name in COMMANDS if f"\n  {name} " not in text] == []


def test_no_command_shows_the_usage_and_fails(capsys):
    assert main([]) == 2
    assert capsys.readouterr().out.startswith("usage: ranksweep COMMAND")


def test_an_unknown_command_is_refused_with_the_nearest_one(capsys):
    assert main(["raport", "x"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: unknown command 'raport'; did you mean report? Nearest: ")


@pytest.mark.parametrize("command", OF_A_SWEEP)
def test_a_folder_that_is_no_sweep_is_refused(command, tmp_path, capsys):
    assert main([command, str(tmp_path), *REQUIRED.get(command, [])]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ") and "sweep.json" in message and str(tmp_path) in message


@pytest.mark.parametrize("command", OF_A_SWEEP)
def test_a_broken_description_is_refused_with_its_line(command, tmp_path, capsys):
    (tmp_path / "sweep.json").write_text('{\n"sweep": "window_stride",\n')
    for name in ("trials.parquet", "per_query.parquet"):
        (tmp_path / name).touch()
    assert main([command, str(tmp_path), *REQUIRED.get(command, [])]) == 2
    assert "sweep.json:3: not valid JSON" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ui", "sync"])
def test_a_description_without_mlflow_is_refused(command, tmp_path, capsys):
    (tmp_path / "sweep.json").write_text(json.dumps(DESCRIBED))
    assert main([command, str(tmp_path)]) == 2
    assert "must name the experiment" in capsys.readouterr().err


@pytest.mark.parametrize("uri, reason", [("none", "other than none"), ("mlruns", "sqlite:///")])
def test_sync_needs_a_place_to_send_to(uri, reason, tmp_path, capsys):
    described = {"tracking_uri": uri, "experiment": "rank/window_stride-woods-0a1b2c"}
    (tmp_path / "sweep.json").write_text(json.dumps(DESCRIBED | described))
    assert main(["sync", str(tmp_path)]) == 2
    assert reason in capsys.readouterr().err


def test_sync_of_a_sweep_without_a_log_is_refused(tmp_path, capsys):
    described = {"tracking_uri": "sqlite:///x.db", "experiment": "rank/x"}
    (tmp_path / "sweep.json").write_text(json.dumps(DESCRIBED | described))
    assert main(["sync", str(tmp_path)]) == 2
    assert "holds events.jsonl, found none" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ui", "sync"])
def test_a_password_that_the_folder_does_not_keep_must_be_given_again(command, tmp_path, capsys):
    described = {"tracking_uri": "postgresql://[redacted]@db/mlflow", "experiment": "rank/x"}
    (tmp_path / "sweep.json").write_text(json.dumps(DESCRIBED | described))
    assert main([command, str(tmp_path)]) == 2
    assert "lacks its secrets" in (message := capsys.readouterr().err)
    assert message.endswith("give --tracking-uri\n")


@pytest.mark.parametrize("command", OF_A_SWEEP)
def test_a_command_without_its_folder_says_what_it_needs(command, capsys):
    assert main([command]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: the following arguments are required: ")
    assert f"`ranksweep {command} --help` lists the flags" in message


@pytest.mark.slow
def test_sync_sends_the_results_as_well(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sweeps.report.build.figures", lambda analysis, trust: [])
    sizes = {"kinds": FIVE[:2], "seeds": (1,), "num_queries": 12}
    folder = write_sweep(tmp_path / "ws" / "woods", **sizes, log=True, experiment="team/ws")
    write_report(folder)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    for events in ("", "0 events sent to"):
        assert main(["sync", str(folder), "--tracking-uri", uri]) == 0
        assert capsys.readouterr().out.startswith(events)
    client = connect(uri)
    experiments = [client.get_experiment_by_name(f"team/ws{part}") for part in RUNS]
    ids = [experiment.experiment_id for experiment in experiments]
    assert [len(client.search_runs([number])) for number in ids] == [2, 2, 1]
    [report] = client.search_runs(ids[2:])
    assert {file.path for file in client.list_artifacts(report.info.run_id)} == {"report"}
