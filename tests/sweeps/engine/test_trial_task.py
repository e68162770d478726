"""A trial's task: what it reports, leaves in the store, and takes up after a death."""

import json
import re
import shutil
import threading
from bdb import BdbQuit
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rank_core.checkpoints import Cadence
from rank_core.chunking.inputs import cell_of, load_inputs
from rank_core.own_code import source_hash
from rank_core.trial.trial import Progress
from sweeps.engine import trial_task
from sweeps.engine.trial_task import TrialTask, attempt
from sweeps.store import storage as storages
from sweeps.store.records import TRIALS, Records
from sweeps.store.storage import Storage
from sweeps.store.trial_status import TrialStatus

STEPS = 6


def named(config):
    inputs = load_inputs(config.collection, config.model.backbone)
    return f"{cell_of(config, inputs)}-seed{config.seed}"


@pytest.fixture
def task(small_trial, tmp_path):
    few = {"evaluation.max_dev_queries": 2, "evaluation.max_test_queries": 2}
    config = small_trial.override({"training.num_epochs": 3} | few)
    return TrialTask(
        name=named(config),
        config=config,
        competes=False,
        storage=str(tmp_path / "s"),
        sweep="sweep",
        threads=1,
        cadence=Cadence(steps=1),
    )


def reports_of(task, dies_at=0):
    """What an attempt reports; it dies with the report of a step."""
    Storage(task.storage).open()  # as the driver has
    reports = []
    with closing(attempt(task)) as attempted:
        for report in attempted:
            reports.append(report)
            if isinstance(report, Progress) and report.step == dies_at:
                return reports
    assert not dies_at
    return reports


def run_folder(task):
    return Path(task.storage) / TRIALS / task.name


def test_a_second_attempt_goes_on_and_leaves_what_one_alone_would_have(task, computed, tmp_path):
    undisturbed = replace(task, storage=str(tmp_path / "undisturbed"), cadence=Cadence())
    [*_, expected] = reports_of(undisturbed)
    computed.clear()
    first = reports_of(task, dies_at=4)
    assert len(computed) == 4 and [news.step for news in first] == [1, 2, 3, 4]
    records = Records(Storage(task.storage, opened=True), task.sweep)
    checkpoints = Path(records.checkpoint_folder(task.name))
    assert any(checkpoints.iterdir())
    second = reports_of(task)
    assert not checkpoints.exists() or not any(checkpoints.iterdir()), "the trial has its result"
    assert len(computed) == STEPS
    assert second[:4] == first, "what was said is said again, with its times"
    history = [json.loads(line) for line in (run_folder(task) / "history.jsonl").open()]
    points = [point["step"] for news in history for point in news["curve"]]
    assert points == list(range(1, STEPS + 1))
    assert [news["step"] for news in history if news["dev"]] == [2, 4, 6]
    ours, theirs = second[-1].result, expected.result
    assert (ours.dev, ours.test) == (theirs.dev, theirs.test)
    for name in ("per_query.parquet", "test.run.gz"):
        assert (run_folder(task) / name).read_bytes() == (
            run_folder(undisturbed) / name
        ).read_bytes()


def test_a_trial_whose_node_is_going_ends_after_a_step_and_goes_on_elsewhere(
    task, computed, tmp_path
):
    [*_, expected] = reports_of(replace(task, storage=str(tmp_path / "undisturbed")))
    computed.clear()
    Storage(task.storage).open()
    often = replace(task, cadence=Cadence(minutes=60))
    first = list(attempt(often, notice=lambda: len(computed) >= 3))
    assert len(computed) == 3, "it ends with the step of the notice"
    assert (first[-1].status, first[-1].kind) == ("failed", "node lost")
    assert re.fullmatch(r"its node is going; checkpoint of step 3, \d\.\d s old", first[-1].reason)
    [*_, end] = attempt(often)
    assert len(computed) == STEPS
    assert (end.result.dev, end.result.test) == (expected.result.dev, expected.result.test)


def test_a_trial_waits_for_a_storage_that_is_away_as_it_begins(
    task, computed, tmp_path, monkeypatch
):
    reports_of(task, dies_at=4)
    monkeypatch.setattr(storages, "FIRST_PAUSE", 0.01)
    storage, elsewhere = Path(task.storage), tmp_path / "elsewhere"
    storage.rename(elsewhere)
    back = threading.Timer(0.1, lambda: elsewhere.rename(storage))
    back.start()
    *news, end = attempt(task)
    back.join()
    assert len(news) == STEPS and end.status == "done"
    assert len(computed) == STEPS, "it went on from its checkpoint"
    assert (run_folder(task) / "result.json").exists()


def test_whoever_leaves_the_debugger_ends_the_command_and_fails_no_trial(task, monkeypatch):
    def quits(task, notice):
        raise BdbQuit

    monkeypatch.setattr(trial_task, "compute", quits)
    with pytest.raises(KeyboardInterrupt):
        list(attempt(task))


def test_a_trial_whose_gpu_is_broken_reads_and_computes_nothing(task, computed, monkeypatch):
    shares = []

    def broken(share):
        shares.append(share)
        raise RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be")

    monkeypatch.setattr(trial_task, "begin_on_device", broken)
    [end] = reports_of(replace(task, gpu_share=0.5))
    assert (end.status, end.kind, shares, computed) == ("failed", "device", [0.5], [])
    assert end.reason == "RuntimeError: CUDA error: unspecified launch failure"
    assert "kernel errors might be" in end.traceback


@pytest.mark.parametrize(
    ("edited", "old", "new"),
    [
        ("data/docs.jsonl", "amber", "umber"),
        ("data/train/qrels.trec", " 1\n", " 2\n"),
        ("encoder/config.json", "{", '{"edited": true,'),
    ],
)
def test_a_process_that_reads_other_data_or_another_encoder_computes_nothing(
    task, computed, tmp_path, edited, old, new
):
    names = {"collection": "data", "model.backbone": "encoder"}
    for setting, name in names.items():
        shutil.copytree(task.config.settings()[setting], tmp_path / name)
    config = task.config.override({key: str(tmp_path / name) for key, name in names.items()})
    planned = replace(task, config=config, name=named(config))
    path = tmp_path / edited
    path.write_text(path.read_text().replace(old, new, 1))
    [end] = reports_of(planned)
    assert end.status == TrialStatus.FAILED and not computed
    assert str(tmp_path / "data") in end.reason and "a file was edited" in end.reason


def test_a_process_whose_own_code_is_not_the_planned_one_computes_nothing(
    task, computed, monkeypatch, tmp_path
):
    path = tmp_path / "edited_model.py"
    imports = "from rank_core.models.passage_scores import MaxP\n"
    text = f"{imports}class Mine(MaxP):\n    label = 'Mine'\n"
    path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    config = task.config.override({"model.name": "edited_model:Mine", "training.num_epochs": 1})
    own = replace(task, config=config, name=named(config))
    source_hash.cache_clear()  # as in a process that starts after an edit
    path.write_text(text + "# edited\n")
    [end] = reports_of(own)
    assert end.status == TrialStatus.FAILED and not computed
    assert "edited_model:Mine" in end.reason and "a file was edited" in end.reason
    source_hash.cache_clear()
    path.write_text(text)
    [*_, end] = reports_of(own)
    assert end.status == TrialStatus.DONE, end.reason
