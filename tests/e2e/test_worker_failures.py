"""A worker that fails ends its group at once, and the trial is run again or given up by the kind of
the failure; the others never wait for the one that is gone."""

import os

import pandas as pd
import pytest

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two workers need two cores"),
]

PLANTED = """
import sys
from sweeps.driver import command
from sweeps.ray_engine import runner
from sweeps.window_stride import EXPERIMENT
flag = sys.argv.pop()

def worker(config):
    import os, signal, torch
    from ray import train
    from rank_core.training import micro_batch
    from sweeps.ray_engine import trial_process as trainable
    if train.get_context().get_world_rank() == 1:
        score = micro_batch.score_documents
        def fails(*args, **kwargs):
            if config["placed"].task.config.model.name == "firstp":
                raise torch.cuda.OutOfMemoryError("CUDA out of memory (planted)")
            if not os.path.exists(flag):
                open(flag, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return score(*args, **kwargs)
        micro_batch.score_documents = fails
    trainable._train_worker(config)

def run_in_train(config):
    from sweeps.ray_engine import trial_process as trainable
    trainable._train_worker = worker
    trainable.run_in_train(config)

runner.run_in_train = run_in_train
sys.exit(command.main(EXPERIMENT, sys.argv[1:], doc=None))
"""


@pytest.fixture(scope="module")
def planted(run_sweep, five_steps, tmp_path_factory):
    """Rank 1 runs out of GPU memory in every FirstP trial, and dies in the first other one."""
    home = tmp_path_factory.mktemp("planted")
    words = [*five_steps, "--num-workers", "2", str(home / "killed")]
    # It waits for some minutes at most; gloo and Ray Train would wait for half an hour.
    return run_sweep(home / "results", *words, code=3, program=["-c", PLANTED])


def test_a_worker_without_memory_ends_its_trial_and_does_not_hang_the_others(planted):
    trials = pd.read_parquet(planted.folder / "trials.parquet").set_index("model.name")
    failures = pd.read_parquet(planted.folder / "failures.parquet").set_index("kind")
    [failure] = failures.loc[["device memory"]].to_dict("records")
    assert failure["reason"].startswith("OutOfMemory: the GPU must hold one row of the loss")
    assert failure["reason"].endswith("(rank 1)") and failure["node"] and not failure["again"]
    assert trials.loc["firstp", "status"] == "failed" and trials.loc["firstp", "attempts"] == 1


def test_a_worker_that_dies_costs_one_attempt_of_its_trial(planted):
    trials = pd.read_parquet(planted.folder / "trials.parquet").set_index("model.name")
    failures = pd.read_parquet(planted.folder / "failures.parquet").set_index("kind")
    [failure] = failures.loc[["process died"]].to_dict("records")
    assert failure["again"] and failure["node"] and failure["reason"].endswith("(rank 1)")
    assert trials.loc["maxp", "status"] == "done" and trials.loc["maxp", "attempts"] == 2
