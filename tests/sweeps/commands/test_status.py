"""`ranksweep status` of a sweep that runs, was killed or has ended."""

import json
import os
import time
import uuid
from dataclasses import replace

import pytest

from sweeps.__main__ import main
from sweeps.commands import status
from sweeps.commands.snapshot import take_snapshot
from sweeps.commands.status import status_text
from sweeps.engine.cell_table import STATES
from sweeps.store.driver_lock import only_driver
from sweeps.store.failures import Failure
from sweeps.store.plan_description import manifest, write_description
from sweeps.store.sweep_file import update_sweep_file
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import TrialTable

SMALL = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "2")  # 2 cells x 2 seeds
SWEEP_ID = "window_stride-woods-0a1b2c"


@pytest.fixture
def begun(tmp_path, plan_of):
    """A sweep as its driver leaves it when everything is planned and nothing has run."""
    return begin(str(tmp_path / "results"), plan_of)


def begin(storage, plan_of):
    store = Store(storage, "window_stride")
    store.open()
    plan, ledger = plan_of(*SMALL), TrialTable(store)
    ledger.begin(plan)
    ledger.plan(plan, store.finished())
    description = replace(
        manifest(plan, list(SMALL)),
        experiment=f"rank/{SWEEP_ID}",
        tracking_uri="sqlite:///mlflow.db",
    )
    write_description(store.folder, plan, description)
    return store, list(plan.trials()), ledger


def finish(store, ledger, trial, leave_result, *, dev, state="done", seconds=9.0):
    """Publishes a made-up result; it took `seconds` of training and one of evaluation."""
    ledger.started(trial)
    leave_result(store, trial.name, status=state, seconds=seconds)
    folder = store.folder / "runs" / trial.name
    result = json.loads((folder / "result.json").read_text()) | {"dev": {"nDCG@10": dev}}
    (folder / "result.json").write_text(json.dumps(result))
    ledger.finished(trial)


def seen(store, width=80, now=None):
    snapshot = take_snapshot(str(store.folder))
    when = now if now is not None else (snapshot.news.time / 1000 if snapshot.news else 0.0)
    return status_text(snapshot, now=when, width=width)


def line_of(text, start):
    [line] = [line for line in text.splitlines() if line.startswith(start)]
    return line


def files_and_times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_sweep_that_has_not_run_has_trials_that_wait(begun):
    text = seen(begun[0])
    assert "2 cells x 2 seeds = 4: 4 waiting; 0 attempts" in text
    assert "unknown until a trial has finished" in text
    assert line_of(text, "MaxP 48/32").split() == ["MaxP", "48/32", "0/2"]


def test_counts_means_and_attempts_are_those_of_the_store_and_the_ledger(begun, leave_result):
    store, trials, ledger = begun
    for trial, dev in ((trials[0], 0.25), (trials[2], 0.75)):  # both seeds of FirstP
        finish(store, ledger, trial, leave_result, dev=dev)
    ledger.started(trials[1])
    text = seen(store)
    # mean of .25 and .75, and their standard deviation .5 / sqrt(2)
    assert line_of(text, "FirstP").split()[2:] == ["2/2", "0.500", ".354"]
    assert "= 4: 2 done, 1 interrupted, 1 waiting; 3 attempts" in text


def test_what_a_budget_has_left_counts_lost_attempts(begun, monkeypatch):
    store, trials, ledger = begun
    assert "budget" not in seen(store)
    update_sweep_file(store.folder, budget={"hours": 0.5, "unit": "core", "units": 2.0})
    now = [time.time_ns()]
    monkeypatch.setattr("sweeps.store.trial_events.time.time_ns", lambda: now[0])
    ledger.started(trials[0])
    now[0] += 90 * 10**9  # 90 s of two cores
    ledger.failed(trials[0], Failure("node lost", "x"), again=True)
    assert line_of(seen(store), "budget").split()[1:5] == ["0.05", "of", "0.5", "core-hours"]


def test_lost_attempts_are_counted_by_kind_whatever_became_of_the_trial(begun, leave_result):
    store, trials, ledger = begun
    assert "lost" not in seen(store)
    for number, kind in enumerate(["node lost", "process died", "node lost"]):
        ledger.started(trials[number])
        ledger.failed(trials[number], Failure(kind, "x"), again=True)
    finish(store, ledger, trials[0], leave_result, dev=0.5)
    line = line_of(seen(store), "lost")
    assert line.split(maxsplit=1)[1] == "3 attempts: node lost (2), worker process died (1)"
    ledger.started(trials[3])
    ledger.lost(trials[3], "diverged", "loss is nan")
    ledger.started(trials[1])  # and its driver is gone
    told = " ".join(seen(store).split())
    assert "5 attempts: node lost (2), worker process died (1), diverged (1), interr" in told


def test_why_a_sweep_stopped_is_told_until_another_command_drives_it(begun, leave_result):
    store, trials, ledger = begun
    for trial in trials:
        finish(store, ledger, trial, leave_result, dev=0.5)
    assert "resume" not in seen(store)
    update_sweep_file(store.folder, stopped="2 trials with seed 3 would end after the deadline")
    text = seen(store)
    line = line_of(text, "stopped")
    assert line.split(maxsplit=1)[1] == "2 trials with seed 3 would end after the deadline"
    assert "resume" in text and "the sweep is incomplete" in text
    with only_driver(store):
        assert "stopped" not in seen(store)


def test_a_trial_stopped_early_is_named_and_not_to_be_run_again(begun, leave_result):
    store, trials, ledger = begun
    for trial in trials[1:]:
        finish(store, ledger, trial, leave_result, dev=0.5)
    ledger.started(trials[0])
    ledger.lost(trials[0], "stopped", "stopped early, step 3/9")
    text = seen(store)
    assert "3 done, 1 stopped early" in text and "the sweep has ended" in text
    assert "resume" not in text


def test_a_collapsed_seed_counts_as_a_result_and_is_named(begun, leave_result):
    store, trials, ledger = begun
    finish(store, ledger, trials[0], leave_result, dev=0.5, state="collapsed")
    line = line_of(seen(store), "FirstP")
    assert "1/2" in line and line.endswith("seed 1 collapsed")


@pytest.mark.parametrize("state", ["failed", "diverged"])
def test_a_reason_is_told_once_with_its_trials_and_attempts(begun, state):
    store, trials, ledger = begun
    for trial in trials[:2]:
        ledger.started(trial)
        ledger.started(trial)
        ledger.lost(trial, state, "loss is nan at step 7\nand a second line")
    text = seen(store)
    assert text.count("loss is nan at step 7") == 1 and "second line" not in text
    assert text.count("seed 1 (2 attempts)") == 2
    assert "tracebacks" not in text
    (store.folder / "failures").mkdir()
    assert ("tracebacks" in seen(store)) == (state == "failed")


def test_a_living_driver_is_seen_by_its_lease_and_named(begun, leave_result):
    store, trials, ledger = begun
    finish(store, ledger, trials[0], leave_result, dev=0.5)
    with only_driver(store):
        text = seen(store)
        assert f"running, process {os.getpid()} on " in text
        assert "nothing: the sweep is running" in text and "resume" not in text
    after = seen(store)
    assert "none: the sweep is incomplete" in after
    assert "resume" in after and "python -m sweeps run window_stride" in after


def test_a_running_trial_shows_its_step_and_its_dev_value(begun, leave_result):
    store, trials, ledger = begun
    finish(store, ledger, trials[0], leave_result, dev=0.5)
    running = trials[2]
    ledger.started(running)
    news = {"step": 20, "num_steps": 40, "curve": [{"step": 20, "loss": 1.0}]}
    ledger.reported(running, news | {"dev": {"nDCG@10": 0.125}})
    with only_driver(store):
        assert line_of(seen(store), "FirstP").endswith("seed 2 step 20/40 (0.125)")
        ledger.started(running)
        assert line_of(seen(store), "FirstP").endswith("seed 2 starting")


def test_the_time_left_follows_the_tokens_that_cells_read(begun, leave_result):
    store, trials, ledger = begun
    path = store.folder / "sweep.json"
    described = json.loads(path.read_text())
    described["cells"][0]["encoder_tokens_per_document"] = 100.0
    described["cells"][1]["encoder_tokens_per_document"] = 300.0
    path.write_text(json.dumps(described))
    finish(store, ledger, trials[0], leave_result, dev=0.5)
    # FirstP took 9 + 1 s: one more of it, and two of MaxP at three times its tokens
    assert "10 s in finished trials; about 1 min 10 s left, one at a time" in seen(store)
    for trial in (trials[1], trials[3]):
        ledger.started(trial)
    with only_driver(store):
        assert "about 35 s left, 2 at a time" in seen(store)
        ledger.lost(trials[1], "failed", "a bug")  # this command does not try it again
        assert "about 40 s left, 1 at a time" in seen(store)


def test_the_age_of_the_last_news_and_what_mlflow_lacks(begun, leave_result):
    store, trials, ledger = begun
    finish(store, ledger, trials[0], leave_result, dev=0.5)
    news = take_snapshot(str(store.folder)).news
    assert news is not None and (news.cell, news.seed) == (trials[0].cell.cell, 1)
    assert "last event  3 min 20 s ago, from FirstP" in seen(store, now=news.time / 1000 + 200)
    assert "2 events not sent yet (sqlite:///mlflow.db)" in " ".join(seen(store).split())


def test_a_sweep_that_has_ended_says_what_is_left_to_do(begun, leave_result):
    store, trials, ledger = begun
    for trial in trials:
        finish(store, ledger, trial, leave_result, dev=0.5)
    assert f"ranksweep sync {store.folder}" in seen(store)
    (store.folder / "report").mkdir()
    (store.folder / "report" / "index.html").write_text("page")
    text = seen(store)
    assert "none: the sweep has ended" in text and "report/index.html" in text
    assert "resume" not in text


@pytest.mark.parametrize("width", [80, 160])
def test_no_line_but_a_path_or_a_command_is_wider_than_the_terminal(begun, width):
    store, trials, ledger = begun
    path = store.folder / "sweep.json"
    described = json.loads(path.read_text())
    described["cells"][0]["label"] = "a label " * 30
    path.write_text(json.dumps(described))
    ledger.started(trials[0])
    ledger.lost(trials[0], "failed", "a reason " * 40)
    whole = (str(store.folder), described["command"])
    wide = [line for line in seen(store, width).splitlines() if len(line) > width]
    assert [line for line in wide if not any(text in line for text in whole)] == []


def test_looking_changes_nothing(begun, leave_result):
    store, trials, ledger = begun
    finish(store, ledger, trials[0], leave_result, dev=0.5)
    with only_driver(store):
        before = files_and_times(store.folder)
        seen(store)
        assert files_and_times(store.folder) == before


def test_a_remote_sweep_is_read_where_another_machine_left_it(
    plan_of, leave_result, tmp_path, monkeypatch, capsys
):
    storage = f"memory://{uuid.uuid4().hex}"
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "first"))
    store, trials, ledger = begin(storage, plan_of)
    leave_result(store, trials[0].name)
    ledger.started(trials[0])
    ledger.finished(trials[0])
    store.push("sweep.json")
    here = status_text(take_snapshot(f"{storage}/window_stride"), now=0.0, width=80)
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "second"))
    assert main(["status", f"{storage}/window_stride/"]) == 0
    there = capsys.readouterr().out
    assert "= 4: 1 done, 3 waiting; 1 attempt\n" in there and "= 4: 1 done, 3 waiting" in here
    assert "none: the sweep is incomplete" in there
    assert not (tmp_path / "second").exists()


def test_trials_of_other_commands_on_the_folder_are_counted_apart(begun):
    store, trials, ledger = begun
    ledger.started(trials[0])
    path = store.folder / "sweep.json"
    described = json.loads(path.read_text()) | {"seeds": [2]}
    path.write_text(json.dumps(described))
    assert "= 2: 2 waiting; 0 attempts; 1 more from other commands" in " ".join(seen(store).split())


def test_the_command_to_resume_names_no_folder_that_the_reader_is_in(begun, monkeypatch):
    store, *_ = begun
    elsewhere, link = store.folder / "elsewhere", store.folder / "link"
    elsewhere.mkdir()
    link.symlink_to(elsewhere)
    update_sweep_file(store.folder, directory=str(link))
    assert f"cd {link} && python" in seen(store)
    monkeypatch.chdir(elsewhere)
    assert "cd " not in seen(store), "one folder under two paths"


@pytest.mark.parametrize("where", ["DIR", "memory://nobody/window_stride"])
def test_a_place_without_a_sweep_is_refused(where, tmp_path, capsys):
    where = where.replace("DIR", str(tmp_path))
    assert main(["status", where]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: DIR must be a sweep's folder, which holds sweep.json")
    assert where in message


@pytest.mark.parametrize("where", ["memory://sweep", "nosuch://bucket/sweep"])
def test_a_uri_that_names_no_sweep_is_refused(where, capsys):
    assert main(["status", where]) == 2
    assert "s3://bucket/path" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, words",
    [('{\n"sweep": "x",\n', "sweep.json:3: not valid JSON"), ("{}", "missing: sweep, question")],
)
def test_a_broken_description_is_refused(content, words, tmp_path, capsys):
    (tmp_path / "sweep.json").write_text(content)
    assert main(["status", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err


def test_a_broken_table_of_an_earlier_version_is_refused(begun, capsys):
    (begun[0].folder / "events.jsonl").unlink()
    (begun[0].folder / "trials.parquet").write_text("no table")
    assert main(["status", str(begun[0].folder)]) == 2
    assert "trials.parquet must be a table of a sweep" in capsys.readouterr().err


def test_every_status_of_the_ledger_has_a_word():
    assert set(TrialStatus) | {"interrupted", "damaged"} == set(STATES)


def test_a_driver_that_records_nothing_for_minutes_is_called_silent(begun):
    store, trials, ledger = begun
    ledger.started(trials[0])
    with only_driver(store):
        snapshot = take_snapshot(str(store.folder))
        last = snapshot.news.time / 1000
        soon, late = (status_text(snapshot, now=last + s, width=120) for s in (170.0, 372.0))
    assert "silent" not in soon and "nothing: the sweep is running" in soon
    assert "silent for 6 min 12 s" in late and "is running" not in late


def test_watching_waits_for_a_sweep_that_has_not_begun(begun, monkeypatch, capsys, tmp_path):
    store, *_ = begun
    late = store.folder.rename(tmp_path / "late")
    steps = iter([store.folder.mkdir, store.folder.rmdir, lambda: late.rename(store.folder)])

    def sleep(seconds: float) -> None:
        next(steps)()

    monkeypatch.setattr(status.time, "sleep", sleep)
    assert main(["status", str(store.folder)]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["status", str(store.folder), "--watch"]) == 0
    said = capsys.readouterr().out
    assert said.count(f"waiting for a sweep to begin in {store.folder}\n") == 1
    assert "window_stride: " in said


def test_watching_ends_with_the_command_that_is_watched(begun, monkeypatch, capsys):
    store, *_ = begun
    driver, waits = only_driver(store), []
    driver.__enter__()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            driver.__exit__(None, None, None)

    monkeypatch.setattr(status.time, "sleep", sleep)
    assert main(["status", str(store.folder), "--watch", "7"]) == 0
    assert waits == [7, 7]
    assert capsys.readouterr().out.count("window_stride: ") == 3
    assert main(["status", str(store.folder), "--watch"]) == 0
    assert waits == [7, 7], "nobody drives it: once is enough"
    assert main(["status", str(store.folder), "--watch", "0"]) == 2
    assert "--watch must be seconds above 0, got 0" in capsys.readouterr().err
