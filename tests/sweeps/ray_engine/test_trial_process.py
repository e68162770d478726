"""A trial's own process: what it reports, leaves in the store, and takes up after a death."""

import json
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

from rank_core.checkpoints.checkpoint import Cadence
from sweeps.ray_engine.trial_process import _run
from sweeps.store import storage_retry as patience
from sweeps.store.rungs import best_on_dev, read_rung
from sweeps.store.trial_store import Store

STEPS = 6


class Killed(BaseException):
    """Stands for the end of the process: nothing may catch it."""


@pytest.fixture
def work(small_trial, tmp_path):
    few = {"evaluation.max_dev_queries": 2, "evaluation.max_test_queries": 2}
    config = small_trial.override({"training.num_epochs": 3} | few)
    return {
        "name": "cell-seed1",
        "settings": config.settings(),
        "storage": str(tmp_path / "s"),
        "sweep": "sweep",
        "num_workers": 1,
        "epochs": 0,
        "threads": 1,
        "cadence": asdict(Cadence(steps=1)),
    }


def attempt(work, dies_at=0):
    """What an attempt reports; it dies with the report of a step."""
    Store(work["storage"], work["sweep"]).open()  # as the driver has
    reports = []

    def report(what):
        reports.append(what)
        if dies_at and what["status"] == "running" and what["news"]["step"] == dies_at:
            raise Killed

    try:
        _run(work, report)
    except Killed:
        assert dies_at
    return reports


def run_folder(work):
    return Path(work["storage"]) / "sweep" / "runs" / work["name"]


def test_a_second_attempt_goes_on_and_leaves_what_one_alone_would_have(work, computed, tmp_path):
    undisturbed = work | {"storage": str(tmp_path / "undisturbed"), "cadence": asdict(Cadence())}
    [*_, expected] = attempt(undisturbed)
    computed.clear()
    first = attempt(work, dies_at=4)
    assert len(computed) == 4 and [r["news"]["step"] for r in first] == [1, 2, 3, 4]
    second = attempt(work)
    assert len(computed) == STEPS
    assert second[:4] == first, "what was said is said again, with its times"
    history = [json.loads(line) for line in (run_folder(work) / "history.jsonl").open()]
    points = [point["step"] for news in history for point in news["curve"]]
    assert points == list(range(1, STEPS + 1))
    assert [news["step"] for news in history if news["dev"]] == [2, 4, 6]
    for split in ("dev", "test"):
        assert second[-1]["result"][split] == expected["result"][split]
    for name in ("per_query.parquet", "test.run.gz"):
        assert (run_folder(work) / name).read_bytes() == (
            run_folder(undisturbed) / name
        ).read_bytes()


def test_a_trial_waits_for_a_storage_that_is_away_as_it_begins(
    work, computed, tmp_path, monkeypatch
):
    attempt(work, dies_at=4)
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    storage, elsewhere = Path(work["storage"]), tmp_path / "elsewhere"
    storage.rename(elsewhere)
    back = threading.Timer(0.1, lambda: elsewhere.rename(storage))
    back.start()
    reports = []
    _run(work, reports.append)
    back.join()
    assert [report["status"] for report in reports] == ["running"] * STEPS + ["done"]
    assert len(computed) == STEPS, "it went on from its checkpoint"
    assert (run_folder(work) / "result.json").exists()


def test_checkpoints_go_when_the_trial_is_published(work):
    attempt(work, dies_at=2)
    folder = Path(Store(work["storage"], "sweep").checkpoint_folder(work["name"]))
    assert len(list(folder.iterdir())) == 2
    attempt(work)
    assert not folder.exists()


def test_a_short_trial_keeps_none_and_zero_minutes_keep_none(work, computed):
    for cadence in (Cadence(), Cadence(minutes=0)):
        attempt(work | {"cadence": asdict(cadence)}, dies_at=4)
    assert not (Path(work["storage"]) / "sweep" / "checkpoints").exists()


def test_a_diverged_trial_leaves_no_checkpoint(work):
    work["settings"] |= {"training.backbone_learning_rate": 1e30, "training.warmup": 0.0}
    work["cadence"] = asdict(Cadence(steps=1))
    [*_, last] = attempt(work)
    assert last["status"] == "diverged"
    assert not (Path(work["storage"]) / "sweep" / "checkpoints" / work["name"]).exists()


def test_a_trial_pauses_at_its_rung_and_goes_on_as_if_it_never_had(work, computed, tmp_path):
    work["cadence"] = asdict(Cadence())  # so short a trial has no other checkpoint
    undisturbed = work | {"storage": str(tmp_path / "undisturbed")}
    [*_, expected] = attempt(undisturbed)
    history = (run_folder(undisturbed) / "history.jsonl").read_text().splitlines()
    computed.clear()
    first = attempt(work | {"epochs": 1})
    store = Store(work["storage"], "sweep")
    rung = read_rung(store, work["name"], 1)
    assert len(computed) == 2 and rung.step == 2 and rung.num_steps == STEPS
    assert rung.dev == best_on_dev(history, "nDCG@10", 2)
    assert first[-1] == {"status": "stopped", "reason": rung.text()}
    assert not run_folder(work).exists(), "a trial that has paused is not a finished one"
    assert attempt(work | {"epochs": 1}) == [first[-1]], "asked again it only says where it stands"
    attempt(work | {"epochs": 2})
    assert len(computed) == 4 and read_rung(store, work["name"], 2).step == 4
    [*_, last] = attempt(work)
    assert len(computed) == STEPS
    for split in ("dev", "test"):
        assert last["result"][split] == expected["result"][split]
    assert (run_folder(work) / "per_query.parquet").read_bytes() == (
        run_folder(undisturbed) / "per_query.parquet"
    ).read_bytes()


def test_without_checkpoints_it_starts_anew_and_ends_alike(work, computed, tmp_path):
    work["cadence"] = asdict(Cadence(minutes=0))
    [*_, expected] = attempt(work | {"storage": str(tmp_path / "undisturbed")})
    attempt(work | {"epochs": 1})
    [*_, last] = attempt(work)
    assert len(computed) == STEPS + 2 + STEPS
    assert last["result"]["test"] == expected["result"]["test"]


def test_a_process_that_dies_after_its_checkpoint_pauses_without_computing(work, computed):
    work["epochs"] = 2
    attempt(work, dies_at=4)
    [*_, last] = attempt(work)
    assert len(computed) == 4 and last["status"] == "stopped"


def test_a_rung_at_the_end_of_training_is_the_end(work):
    work["epochs"] = 3
    [*_, last] = attempt(work)
    assert last["status"] == "done"


def test_a_rung_between_two_validations_is_at_the_later_one(work, computed):
    work["settings"] |= {"training.validate_every": 3}
    attempt(work | {"epochs": 1})  # 2 steps
    assert len(computed) == 3
    assert read_rung(Store(work["storage"], "sweep"), work["name"], 1).step == 3
