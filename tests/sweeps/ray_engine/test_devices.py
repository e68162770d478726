"""A GPU that is broken for a process, and GPUs that were not reserved, with Ray's own processes;
the machine has one GPU, as Ray is told."""

import os
from dataclasses import replace
from functools import partial

import pytest
import torch
from ray import train

from sweeps.engine.trial_task import End
from sweeps.plan.options import parse
from sweeps.ray_engine import cluster, runner
from sweeps.ray_engine.cluster import Resources
from sweeps.ray_engine.nodes import Nodes
from sweeps.ray_engine.trial_process import end_of_group, run_group
from sweeps.store.failures import LIMITS
from sweeps.store.trial_status import TrialStatus
from tests.sweeps.conftest import follow

pytestmark = [pytest.mark.ray, pytest.mark.long]

END = End(TrialStatus.DIVERGED, reason="this stands for any end")
NO_GPU = Resources(num_workers=1, cpus=1, gpus=0, threads=1, slots=1)
VISIBLE = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def ray_with_gpu():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VISIBLE, raising=False)
        for name in cluster.OF_PROCESSES:
            patch.delenv(name, raising=False)
        patch.setattr(cluster.ray, "init", partial(cluster.ray.init, num_cpus=2, num_gpus=1))
        cluster.connect(num_workers=1)
    yield
    cluster.disconnect()


@pytest.fixture
def run(ray_with_gpu, plan_of, records, monkeypatch):
    """Runs four trials on one slot, computed by a function of their names; the events."""

    def run(compute, resources=NO_GPU):
        def planted(config):
            from sweeps.engine import trial_task
            from sweeps.ray_engine import trial_process

            trial_task.compute = lambda task, *asked: compute(task.name)
            trial_process.run_in_tune(config)

        monkeypatch.setattr(runner, "run_in_tune", planted)
        words = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "2")
        events = follow(records, plan_of(*words))
        options = parse([], prog="window_stride.py", description="")
        runner.run_on_slots(events, options, resources, Nodes())
        return events

    return run


def notes(path):
    return [line.split() for line in path.read_text().splitlines()]


def breaking(path, breaks):
    """What trials compute where the context of a process is broken for good after a trial that
    `breaks(its name, the number of its attempt)`; each attempt is noted with its process."""
    end = END

    def compute(name):
        done = path.read_text() if path.exists() else ""
        with path.open("a") as file:
            file.write(f"{name} {os.getpid()}\n")
        if breaks(name, 1 + done.count(name)):
            torch.context_is_broken = True
        if getattr(torch, "context_is_broken", False):
            raise RuntimeError("CUDA error: device-side assert triggered\nCompile with DSA")
        yield end

    return compute


def test_a_trial_that_broke_its_gpu_once_and_the_trials_after_it_get_another_process(run, tmp_path):
    path = tmp_path / "attempts"
    events = run(breaking(path, lambda name, attempt: name.endswith("seed1") and attempt == 1))
    assert list(events.screen.statuses.values()) == ["diverged"] * 4, events.screen.out.getvalue()
    states = events.records.states(events.screen.statuses).values()
    kinds = [attempt.kind for state in states for attempt in state.attempts if attempt.lost]
    assert kinds == ["device"] * 2
    attempts = notes(path)
    of_trial = dict(reversed(attempts))  # the process of each trial's first attempt
    broken = [pid for name, pid in of_trial.items() if name.endswith("seed1")]
    pids = [pid for _, pid in attempts]
    assert len(attempts) == 6 and [pids.count(pid) for pid in broken] == [1, 1]
    text = " ".join(events.screen.out.getvalue().split())
    assert "device, runs again: RuntimeError: CUDA error: device-side" in text


def test_a_trial_that_breaks_its_gpu_in_fresh_processes_too_has_failed(run, tmp_path):
    path = tmp_path / "attempts"
    events = run(breaking(path, lambda name, attempt: name.endswith("seed1")))
    assert sorted(events.screen.statuses.values()) == ["diverged"] * 2 + ["failed"] * 2
    attempts = notes(path)
    for trial in {name for name, _ in attempts if name.endswith("seed1")}:
        pids = [pid for name, pid in attempts if name == trial]
        assert len(pids) == len(set(pids)) == LIMITS["device"] + 1
    text = " ".join(events.screen.out.getvalue().split())
    assert "FAILED: RuntimeError: CUDA error: device-side assert triggered; 3 times" in text
    assert text.count("CUDA_LAUNCH_BLOCKING=1") == 2


@pytest.mark.parametrize(("gpus", "seen"), [(0, ""), (0.5, "0")])
def test_a_trial_sees_the_gpus_that_were_reserved_for_it(run, tmp_path, gpus, seen):
    path, end = tmp_path / "seen", END

    def compute(name):
        with path.open("a") as file:
            file.write(os.environ.get("CUDA_VISIBLE_DEVICES", "unset") + "\n")
        yield end

    run(compute, Resources(num_workers=1, cpus=1, gpus=gpus, threads=1, slots=1))
    assert path.read_text().splitlines() == [seen] * 4


def test_a_group_without_gpus_and_a_task_that_measures_see_none(ray_with_gpu, monkeypatch):
    def seen(config=None):
        return os.environ.get("CUDA_VISIBLE_DEVICES", "all")

    assert run_group(seen, {}, NO_GPU, "group") == ""
    for name in ("connect", "disconnect"):
        monkeypatch.setattr(cluster, name, lambda *given, **more: None)
    for gpus, expected in (("0", ""), ("1", "0")):
        options = parse(["--gpus-per-worker", gpus], prog="window_stride.py", description="")
        assert cluster.on_a_slot(seen, options)[1] == expected


def test_the_worker_that_failed_is_named_and_not_the_one_that_waits_for_it(ray_with_gpu):
    def worker(config):
        import torch.distributed as dist

        from rank_core.errors import OutOfMemory

        if dist.get_rank() == 1:
            raise OutOfMemory("planted")
        dist.barrier()

    with pytest.raises(train.TrainingFailedError) as failed:
        run_group(worker, {}, replace(NO_GPU, num_workers=2), "group")
    end = end_of_group(failed.value)
    assert (end.kind, end.reason) == ("device memory", "OutOfMemory: planted (rank 1)")
