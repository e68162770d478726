"""Each process of a trial on two workers is killed, at each stage of its group. The trial runs
again within a minute, and the sweep ends with the bits of an undisturbed one: no death leaves
resources behind that later groups wait for."""

import json
import os
import re
from itertools import pairwise

import pandas as pd
import pytest

from tests.e2e.conftest import values_of

FAULTS = ("controller-before", "controller-asks", "controller-after", "worker", "tune", "raylet")
"""The victim; of the controller also the stage: before it asks for the placement group of its
workers, when it has asked and no worker lives, when they live."""
STALL = 60.0  # seconds from a kill to the next attempt of its trial, beside the start of a group
WORDS = (
    "--smoke-test --num-seeds 2 chunking.window=32,48 chunking.stride=32 training.max_steps=5 "
    "training.num_epochs=3 --tracking-uri none --num-workers 2"
).split()
pytestmark = [
    *(pytest.mark.ray, pytest.mark.chaos, pytest.mark.long),
    pytest.mark.timeout(1800),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two workers need two cores"),
]
PLANTED = """
import os, sys
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from sweeps.launch import command
from sweeps.ray_engine import runner
from sweeps.window_stride import EXPERIMENT
home, *faults = sys.argv.pop().split(",")

def due(trial):
    # The fault of a trial's first attempt.
    import os
    for fault in faults:
        try:
            with open(f"{home}/{fault}", "x") as file:
                file.write(trial)
        except FileExistsError:
            if open(f"{home}/{fault}").read() == trial:
                return ""
            continue
        return fault
    return ""

def die(fault, pid=0):
    import os, signal, time
    with open(f"{home}/{fault}.killed", "w") as file:
        file.write(str(time.time()))
    os.kill(pid or os.getpid(), signal.SIGKILL)
    time.sleep(600)

class Planted(WorkerGroupCallback):
    def __init__(self, fault):
        self.fault = fault

    def before_worker_group_start(self, context):
        if self.fault == "controller-before":
            die(self.fault)
        if self.fault == "controller-asks":
            from ray.train.v2._internal.execution.worker_group import placement_group_handle
            wait = placement_group_handle.DefaultPlacementGroupHandle.wait
            def waits(handle, seconds):
                wait(handle, seconds)
                die(self.fault)
            placement_group_handle.DefaultPlacementGroupHandle.wait = waits

    def after_worker_group_start(self, group):
        if self.fault == "controller-after":
            die(self.fault)

def worker(config):
    import os, psutil
    from ray import train
    from rank_core.training import micro_batch
    from sweeps.ray_engine import trial_process
    fault, score = config["fault"], micro_batch.score_documents
    def dies(*args, **kwargs):
        if fault == "worker":
            die(fault)
        if fault == "tune":
            die(fault, config["tune"])
        if fault == "raylet":
            [raylet] = [p for p in psutil.Process().parents() if p.name() == "raylet"]
            die(fault, raylet.pid)
        return score(*args, **kwargs)
    if train.get_context().get_world_rank() == 1:
        micro_batch.score_documents = dies
    trial_process._train_worker(config)

def run_in_train(config):
    import os
    from sweeps.ray_engine import trial_process
    run_group, fault = trial_process.run_group, due(config["task"].name)
    def run(function, config, resources, name, callbacks, **where):
        config = config | {"fault": fault, "tune": os.getpid()}
        return run_group(worker, config, resources, name, [*callbacks, Planted(fault)], **where)
    trial_process.run_group = run
    try:
        trial_process.run_in_train(config)
    finally:
        trial_process.run_group = run_group

runner.run_in_train = run_in_train
sys.exit(command.main(EXPERIMENT, sys.argv[1:], doc=None))
"""


@pytest.fixture(scope="module")
def sweeps(run_sweep, tmp_path_factory):
    """The folder of the faults, the sweep that has them, and the same sweep without a fault."""
    home = tmp_path_factory.mktemp("groups")
    (home / "faults").mkdir()
    planted = ["-c", PLANTED]
    words = [*WORDS, ",".join([str(home / "faults"), *FAULTS])]
    return (
        home / "faults",
        run_sweep(home / "disturbed", *words, program=planted),
        run_sweep(home / "undisturbed", *WORDS),
    )


def stall(sweep, trial, killed):
    """The seconds from a kill to the begin of the trial's next attempt."""
    files = (sweep.storage / "trials" / trial).glob("attempt-*.json")
    begun = [json.loads(file.read_text())["begun"] / 1000 for file in files]
    return min(seconds for seconds in begun if seconds > killed) - killed


def longest_start(sweep):
    """The longest time between two trials: a group starts one after the other."""
    files = sweep.storage.glob("trials/*/attempt-*.json")
    spans = sorted((a["begun"], a["ended"]) for a in (json.loads(f.read_text()) for f in files))
    return max(begun - ended for (_, ended), (begun, _) in pairwise(spans)) / 1000


def test_no_death_stalls_the_sweep(sweeps):
    faults, disturbed, undisturbed = sweeps
    stalls = {
        fault: stall(
            disturbed,
            (faults / fault).read_text(),
            float((faults / f"{fault}.killed").read_text()),
        )
        for fault in FAULTS
    }
    start = longest_start(undisturbed)
    print({fault: round(seconds, 1) for fault, seconds in stalls.items()}, round(start, 1))
    assert max(stalls.values()) <= STALL + start, (stalls, start, disturbed.text)


def test_the_numbers_are_those_of_an_undisturbed_sweep(sweeps):
    _, disturbed, undisturbed = sweeps
    ours, theirs = values_of(disturbed.folder), values_of(undisturbed.folder)
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert not re.search("[1-9] failed", disturbed.text)
