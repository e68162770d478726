"""What reaches the outbox of a trial whose driver died before it could record the end."""

import json

import pytest

from sweeps.store.trial_store import HISTORY, Store
from sweeps.tracking.names import metric_name
from sweeps.tracking.outbox import Outbox
from sweeps.tracking.recorder import Recorder


def news(step: int, dev: dict[str, float] | None = None) -> dict:
    point = {"step": step, "seconds": 0.0, "loss": 1 / step, "learning_rate": 1e-3}
    return {"step": step, "num_steps": 3, "curve": [point | {"gradient_norm": 2.0}], "dev": dev}


DEV = {"nDCG@10": 0.4, "RR@10": 0.3}
HISTORY_LINES = [news(1), news(2), news(3, DEV)]


@pytest.fixture
def trial_and_recorder(plan_of, leave_result, tmp_path):
    plan = plan_of()
    trial = next(iter(plan.trials()))
    store = Store(str(tmp_path / "results"), "sweep")
    store.open()
    leave_result(store, trial.name)
    folder = store.folder / "runs" / trial.name
    result = json.loads((folder / "result.json").read_text())
    result |= {"test": DEV, "dev": DEV, "best_step": 3, "versions": {"torch": "2"}}
    (folder / "result.json").write_text(json.dumps(result))
    (folder / HISTORY).write_text("\n".join(map(json.dumps, HISTORY_LINES)))
    return trial, Recorder(Outbox(store.folder / "outbox", "sweep"), store, plan)


def records(recorder: Recorder) -> list[dict]:
    (path,) = recorder.outbox.folder.glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def losses(recorder: Recorder) -> list[int]:
    found = [r for r in records(recorder) if "train/loss" in r.get("values", {})]
    return [record["step"] for record in found]


@pytest.mark.parametrize("seen", [0, 1, 3])
def test_a_trial_in_the_store_gets_its_missing_points_and_its_end(trial_and_recorder, seen):
    trial, recorder = trial_and_recorder
    if seen:
        recorder.started(trial, attempt=1)
    for line in HISTORY_LINES[:seen]:
        recorder.news(trial, line)
    recorder.catch_up(trial)
    assert losses(recorder) == [1, 2, 3], "every point once"
    end = records(recorder)[-1]
    assert end["kind"] == "finish" and end["status"] == "FINISHED"
    finals = {k: v for k, v in end["metrics"].items() if k.startswith(("test/", "best/dev_"))}
    every = {metric_name(name): value for name, value in DEV.items()}
    assert finals == {f"{part}{k}": v for part in ("test/", "best/dev_") for k, v in every.items()}
    assert [r["kind"] for r in records(recorder)].count("trial") == 1


def test_catching_up_twice_adds_nothing(trial_and_recorder):
    trial, recorder = trial_and_recorder
    recorder.catch_up(trial)
    before = records(recorder)
    recorder.catch_up(trial)
    assert records(recorder) == before
