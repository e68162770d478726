"""A trial's own process: what it reports, leaves in the store, and takes up after a death."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from rank_core.checkpoint import Cadence
from rank_core.training_step import TrainingStep
from sweeps.store import Store
from sweeps.trainable import _run

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
        "threads": 1,
        "cadence": asdict(Cadence(steps=1)),
    }


@pytest.fixture
def computed(monkeypatch):
    steps = []
    backward = TrainingStep.backward

    def counted(self, batch, seed):
        steps.append(seed)
        return backward(self, batch, seed)

    monkeypatch.setattr(TrainingStep, "backward", counted)
    return steps


def attempt(work, dies_at=0):
    """What an attempt reports; it dies with the report of a step."""
    reports = []

    def report(what):
        reports.append(what)
        if dies_at and what["status"] == "running" and what["news"]["step"] == dies_at:
            raise Killed

    try:
        _run(work, report, publishes=True)
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
