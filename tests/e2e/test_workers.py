"""A trial on two workers gives what it gives on one; a worker that fails ends its group at once,
and the others never wait for the one that is gone."""

import json
import os

import pytest

from rank_core.data.trec import read_run
from sweeps.systems.load import load_sweep
from tests.e2e.conftest import trials_of

pytestmark = [
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.timeout(1800),  # with the sweeps that all tests share
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two workers need two cores"),
]

WORDS = (
    "--smoke-test --num-seeds 1 chunking.window=32,48 chunking.stride=32 model.dropout=0 "
    "training.precision=fp32 training.max_steps=5 training.num_epochs=3 --tracking-uri none"
).split()
PLANTED = """
import sys
from sweeps.launch import command
from sweeps.ray_engine import runner
from sweeps.window_stride import EXPERIMENT
flag = sys.argv.pop()

def worker(config):
    import os, signal, torch
    from ray import train
    from rank_core.training import micro_batch
    from sweeps.ray_engine import trial_process
    if train.get_context().get_world_rank() == 1:
        score = micro_batch.score_documents
        def fails(*args, **kwargs):
            if config["task"].config.chunking.window == 32:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory (planted)")
            if not os.path.exists(flag):
                open(flag, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return score(*args, **kwargs)
        micro_batch.score_documents = fails
    trial_process._train_worker(config)

def run_in_train(config):
    from sweeps.ray_engine import trial_process
    trial_process._train_worker = worker
    trial_process.run_in_train(config)

runner.run_in_train = run_in_train
sys.exit(command.main(EXPERIMENT, sys.argv[1:], doc=None))
"""


@pytest.fixture(scope="module")
def folders(run_local, run_sweep, tmp_path_factory):
    """Three cells with one worker, and with two, of which rank 1 dies in the first trial that it
    gets, and runs out of GPU memory in that with windows of 32."""
    home = tmp_path_factory.mktemp("workers")
    one = run_local(home / "1", *WORDS)
    # It waits for some minutes at most; gloo and Ray Train would wait for half an hour.
    words = [*WORDS, "--num-workers", "2", str(home / "killed")]
    two = run_sweep(home / "2", *words, code=3, program=["-c", PLANTED])
    return one.folder, two.folder


@pytest.fixture
def both(folders):
    """The two trials that have ended well on both, by the trial's name."""
    one, two = (
        {path.parent.name: path.parent for path in folder.parents[1].glob("trials/*/result.json")}
        for folder in folders
    )
    assert len(one) == 3 and len(two) == 2 and two.keys() < one.keys()
    return {name: (one[name], two[name]) for name in two}


@pytest.fixture
def trials(folders):
    """The table of the sweep with two workers, by model and window."""
    table = trials_of(folders[1])
    return table.set_index(["model.name", "chunking.window"])


@pytest.fixture
def failures(folders):
    return load_sweep(folders[1]).failures.set_index("kind")


def losses(folder):
    """{step: loss}."""
    history = map(json.loads, (folder / "history.jsonl").read_text().splitlines())
    return {point["step"]: point["loss"] for news in history for point in news["curve"]}


def test_losses_scores_and_work_are_those_of_one_worker(both):
    for folders in both.values():
        one, two = map(losses, folders)
        assert sorted(one) == [1, 2, 3, 4, 5] and len(set(one.values())) == 5
        assert two == pytest.approx(one, abs=1e-4)
        one, two = (json.loads((folder / "result.json").read_text()) for folder in folders)
        assert one["encoder_tokens"] == two["encoder_tokens"] > 0
        for split in ("dev", "test"):
            one, two = (read_run(folder / f"{split}.run.gz") for folder in folders)
            assert one.keys() == two.keys()
            for query_id in one:
                assert two[query_id] == pytest.approx(one[query_id], abs=1e-4)


def test_a_worker_without_memory_ends_its_trial_and_does_not_hang_the_others(trials, failures):
    [failure] = failures.loc[["device memory"]].to_dict("records")
    assert failure["reason"].startswith("OutOfMemory: ")
    assert failure["reason"].endswith("(rank 1)") and failure["node"] and not failure["again"]
    assert trials.loc[("maxp", 32), "status"] == "failed"
    assert trials.loc[("maxp", 32), "attempts"] == 1


def test_a_worker_that_dies_costs_one_attempt_of_its_trial(trials, failures):
    [failure] = failures.loc[["process died"]].to_dict("records")
    assert failure["again"] and failure["node"] and failure["reason"].endswith("(rank 1)")
    assert sorted(trials[trials["status"] == "done"]["attempts"]) == [1, 2]
