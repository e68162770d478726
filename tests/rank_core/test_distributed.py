"""Several gloo processes against a single one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rank_core import distributed
from rank_core.data.trec import read_run
from rank_core.ranking.chunk_scores import derived_run, read_chunks
from rank_core.trial.trial import run_trial

ROOT = Path(__file__).parents[2]
START = """
import json, os, sys, torch
from pathlib import Path
from torch import distributed as dist
rank, folder = int(sys.argv[1]), Path(sys.argv[2])
torch.set_num_threads(1)
number = int(os.environ["NUMBER"])
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=number)
"""
END = """
dist.barrier()  # a worker that leaves early aborts the other one on its way out
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's own threads may outlive the interpreter's tear-down and abort the process
"""
COLLECTIVES = """
from rank_core import distributed
parameters = [torch.nn.Parameter(torch.zeros(size)) for size in ((2, 3), (4,), (5,))]
parameters[0].grad = torch.full((2, 3), 10.0 ** rank)
if rank == 1:
    parameters[1].grad = torch.arange(4.0)  # rank 0 had no pair
distributed.GradientSums(iter(parameters)).finish()
print(json.dumps({
    "world": distributed.world(),
    "gradients": [parameter.grad.tolist() for parameter in parameters[:2]],
    "untouched": parameters[2].grad is None,
    "sums": distributed.sum_numbers([1.0 + rank, 10.0]),
    "gathered": distributed.gather({"rank": rank}),
}))
"""
TRIAL = """
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import run_trial
config = TrialConfig().override(json.loads(sys.argv[3]))
*progress, result = run_trial(config, folder / str(rank))
losses = [point.loss for news in progress for point in news.curve]
print(json.dumps([losses, result.dev, result.test, result.encoder_tokens]))
"""


def run_two(code, folder, *arguments):
    """The last output line of each of two workers."""
    return run_workers(2, code, folder, *arguments)


def run_workers(number, code, folder, *arguments):
    """The last output line of each worker."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", START + code + END, str(rank), str(folder), *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"NUMBER": str(number)},
        )
        for rank in range(number)
    ]
    try:
        outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()  # a worker waits for one that died
    assert [worker.returncode for worker in workers] == [0] * number
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def centred(run):
    """{(query_id, doc_id): score less the query's mean}: the loss cannot see a constant, so its
    gradient is rounding, which Adam turns into steps."""
    return {
        (query_id, doc_id): score - sum(scores.values()) / len(scores)
        for query_id, scores in run.items()
        for doc_id, score in scores.items()
    }


def test_a_single_process_is_a_world_of_its_own():
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.ones(2)
    sums = distributed.GradientSums([parameter])
    sums.begin()
    (3 * parameter).sum().backward()
    sums.finish()
    assert distributed.world() == (0, 1)
    assert parameter.grad.tolist() == [4, 4]
    assert distributed.sum_numbers([1.5]) == [1.5]
    assert distributed.gather("x") == ["x"]


@pytest.mark.parametrize(
    ("sizes", "num_workers", "expected"),
    [
        ([5, 3, 3, 2, 2, 1], 2, [[0, 3, 5], [1, 2, 4]]),  # 8 and 8
        ([1, 9, 1, 1], 2, [[1], [0, 2, 3]]),
        ([7] * 5, 2, [[0, 2, 4], [1, 3]]),  # in turn
        ([2, 1], 3, [[0], [1], []]),
    ],
)
def test_work_is_dealt_by_size_the_largest_first(sizes, num_workers, expected):
    assert distributed.dealt(sizes, num_workers) == expected


@pytest.mark.slow
def test_workers_add_up_gradients_and_numbers_in_rank_order(tmp_path):
    first, second = run_two(COLLECTIVES, tmp_path)
    assert (first.pop("world"), second.pop("world")) == ([0, 2], [1, 2])
    expected = {
        "gradients": [[[11.0] * 3] * 2, [0.0, 1.0, 2.0, 3.0]],
        "untouched": True,
        "sums": [3.0, 20.0],
        "gathered": [{"rank": 0}, {"rank": 1}],
    }
    assert first == second == expected


OVERFLOW = """
from rank_core.distributed import GradientSums
from rank_core.settings.config import Training
from rank_core.training.step_times import StepTimes
from rank_core.training.train import LoopState, _update
torch.manual_seed(0)
layer = torch.nn.Linear(4, 1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
state = LoopState(torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True), scaler)
told = []
for overflows in (True, False):
    before = layer.weight.detach().clone()
    scaler.scale(layer(torch.ones(2, 4)).sum()).backward()
    if overflows and rank == 0:
        layer.weight.grad[0, 0] = float("inf")
    parameters = list(layer.parameters())
    times = StepTimes(torch.device("cpu"))
    norm = _update(state, parameters, GradientSums(parameters), Training(), times)
    told.append([torch.equal(before, layer.weight), scaler.get_scale()])
print(json.dumps([told, float(norm), layer.weight.tolist()]))
"""


@pytest.mark.long
def test_an_fp16_overflow_of_one_worker_is_skipped_by_both(tmp_path):
    first, second = run_two(OVERFLOW, tmp_path)
    assert first == second
    (skipped, half), (stays, same) = first[0]
    assert (skipped, half) == (True, 2.0) and (stays, same) == (False, 2.0)
    # Each worker's gradient: 2 for each of four weights and the bias.
    assert first[1] == pytest.approx((5 * 4**2) ** 0.5)


@pytest.mark.parametrize(
    ("model", "batch_size"),
    [
        pytest.param("parade-transformer", 3, marks=pytest.mark.long),  # shares of two and one
        pytest.param("maxp", 4, marks=pytest.mark.slow),
        pytest.param("firstp", 1, marks=pytest.mark.long),  # one worker has no pair
        pytest.param("idcm", 4, marks=pytest.mark.long),  # an auxiliary loss
    ],
)
def test_two_workers_train_and_score_like_one(small_trial, tmp_path, model, batch_size):
    config = small_trial.override(
        {
            "model.name": model,
            "model.dropout": 0.0,
            "training.precision": "fp32",
            "training.batch_size": batch_size,
            "training.max_steps": 5,
            "training.num_epochs": 3,
            "training.backbone_learning_rate": 1e-4,
            "training.head_learning_rate": 1e-4,
            "evaluation.max_dev_queries": 7,  # shares of four and three
            "evaluation.keep_chunk_scores": model == "maxp",
        }
        | ({"chunking.stride": 40} if model == "firstp" else {})
        | ({"training.micro_batch_tokens": 200} if model == "maxp" else {})  # several a step
        | ({"model.stage": "student"} if model == "idcm" else {})
    )
    *progress, result = run_trial(config, tmp_path / "one")
    two, other = run_two(TRIAL, tmp_path, json.dumps(config.settings()))
    assert two == other
    losses, dev, test, encoder_tokens = two
    alone = [point.loss for news in progress for point in news.curve]
    assert len(alone) == 5 and losses == pytest.approx(alone, abs=1e-4)
    assert encoder_tokens == result.encoder_tokens
    for split in ("dev", "test"):
        runs = [read_run(tmp_path / name / f"{split}.run.gz") for name in ("one", "0")]
        assert list(runs[0]) == list(runs[1])
        assert centred(runs[1]) == pytest.approx(centred(runs[0]), abs=1e-4)
        if model == "maxp":
            assert derived_run(read_chunks(tmp_path / "0", split), config) == runs[1]
    assert dev == pytest.approx(result.dev) and test == pytest.approx(result.test)
    assert not (tmp_path / "1").exists(), "rank 0 writes"


RESUMED = """
from itertools import islice
from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import run_trial
config = TrialConfig().override(json.loads(sys.argv[3]))
work = folder / f"work{rank}"
def attempt():
    # Rank 0 decides when: the other one's cadence does not count.
    checkpoints = Checkpoints(str(folder / "checkpoints"), Cadence(steps=1 if rank == 0 else 1000))
    return run_trial(config, work, checkpoints=checkpoints)
whole = list(run_trial(config, folder / f"whole{rank}"))
trial = attempt()
list(islice(trial, 2))
trial.close()
dist.barrier()
names = [path.name for path in (folder / "checkpoints").iterdir()]
torch.manual_seed(rank)
resumed = list(attempt())
def told(items):
    losses = [point.loss for news in items[:-1] for point in news.curve]
    result = vars(items[-1])
    return [losses, result["dev"], result["test"], result["encoder_tokens"], result["ties"]]
print(json.dumps([names, told(whole), told(resumed)]))
"""


@pytest.mark.long
@pytest.mark.parametrize("patience", [0, 1])
def test_two_workers_resume_from_the_checkpoint_of_one(small_trial, tmp_path, patience):
    config = small_trial.override(
        {
            "model.dropout": 0.1,
            "training.batch_size": 3,
            "training.num_epochs": 3,
            "evaluation.max_dev_queries": 3,
            "evaluation.max_test_queries": 3,
        }
        | ({"training.patience": 1, "training.validate_every": 1} if patience else {})
    )
    first, second = run_two(RESUMED, tmp_path, json.dumps(config.settings()))
    for names, whole, resumed in (first, second):
        assert "checkpoint" in names
        assert resumed == whole
    assert first[1] == second[1]
    for file in ("per_query.parquet", "test.run.gz"):
        assert (tmp_path / "work0" / file).read_bytes() == (tmp_path / "whole0" / file).read_bytes()


RESIZED = """
from itertools import islice
from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.settings.config import TrialConfig
from rank_core.trial import trial_state
from rank_core.trial.trial import run_trial
trial_state.device_name = lambda: "A100 T4".split()[rank]  # of worker 0 and of worker 1
config = TrialConfig().override(json.loads(sys.argv[3]))
checkpoints = Checkpoints(str(folder / "checkpoints"), Cadence(steps=1), elastic=sys.argv[4] == "1")
trial = run_trial(config, folder / f"work{rank}", checkpoints=checkpoints)
items = list(islice(trial, int(sys.argv[5])))
trial.close()
points = [(p.step, p.loss, p.learning_rate) for news in items if hasattr(news, "curve")
          for p in news.curve]
result = vars(items[-1]) if len(items) < int(sys.argv[5]) else {}
names = ("encoder_tokens", "ties", "test")
rows = [[row.step, row.number, row.devices] for row in result.get("workers", ())]
print(json.dumps([points, {name: result[name] for name in names if result}, rows]))
"""


@pytest.mark.long
def test_a_trial_goes_on_with_another_number_of_workers(small_trial, tmp_path):
    """2, 1, 2 workers: the batches, their order and the learning rates are those of any number;
    losses and scores differ by rounding alone. Without a change they are equal to the bit."""
    config = small_trial.override(
        {
            "model.dropout": 0.0,
            "training.precision": "fp32",
            "training.batch_size": 3,
            "training.num_epochs": 3,
            "training.validate_every": 1,
            "training.schedule": "linear",
            "evaluation.max_dev_queries": 3,
            "evaluation.max_test_queries": 3,
        }
    )
    settings, end = json.dumps(config.settings()), "99"

    def attempt(home, workers, news, elastic="1"):
        (tmp_path / home / "meet").unlink(missing_ok=True)
        (tmp_path / home).mkdir(exist_ok=True)
        arguments = (settings, elastic, news)
        return run_workers(workers, RESIZED, tmp_path / home, *arguments)[0]

    whole, costs, rows = attempt("fixed", 2, end, elastic="")
    num_steps = len(whole)
    two, one = [2, {"A100": 1, "T4": 1}], [1, {"A100": 1}]
    assert rows == [[0, *two]] and num_steps >= 6
    attempt("same", 2, "2")
    same = attempt("same", 2, end)
    assert same == [whole, costs, [[0, *two]]]
    attempt("changed", 2, "2")
    attempt("changed", 1, "4")
    shutil.copytree(tmp_path / "changed", tmp_path / "refused")
    points, changed, rows = attempt("changed", 2, end)
    assert rows == [[0, *two], [2, *one], [4, *two]]
    assert points[:2] == whole[:2]  # the bits of the steps before the first change
    for ours, theirs in zip(points, whole, strict=True):
        assert (ours[0], ours[2]) == (theirs[0], theirs[2])
        assert ours[1] == pytest.approx(theirs[1], abs=1e-4)
    assert changed["encoder_tokens"] == costs["encoder_tokens"]
    assert changed["test"] == pytest.approx(costs["test"])
    # A fixed number promises its bits: it begins anew.
    assert attempt("refused", 2, end, elastic="") == [whole, costs, [[0, *two]]]


LEFT = """
from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import run_trial
config = TrialConfig().override(json.loads(sys.argv[3]))
whole = list(run_trial(config, folder / f"whole{rank}"))
def attempt(**options):
    checkpoints = Checkpoints(str(folder / "checkpoints"), Cadence(minutes=60), **options)
    return checkpoints, run_trial(config, folder / f"work{rank}", checkpoints=checkpoints)
checkpoints, trial = attempt(notice=lambda: rank == 1)
for news in trial:
    if checkpoints.leaving:
        break
trial.close()
names = [path.name for path in (folder / "checkpoints").iterdir()]
dist.barrier()
resumed = list(attempt()[1])
steps = [point.step for news in resumed[:-1] for point in news.curve]
tests = [vars(items[-1])["test"] for items in (whole, resumed)]
print(json.dumps([names, news.step, steps, tests]))
"""


@pytest.mark.long
def test_all_workers_leave_where_the_node_of_one_goes(small_trial, tmp_path):
    few = {"evaluation.max_dev_queries": 3, "evaluation.max_test_queries": 3}
    config = small_trial.override({"training.num_epochs": 3, "training.batch_size": 3} | few)
    for names, step, steps, tests in run_two(LEFT, tmp_path, json.dumps(config.settings())):
        assert "checkpoint" in names and 0 < step < len(steps)
        assert steps == [*range(1, len(steps) + 1)] and tests[0] == tests[1]


TRAINED = """
from rank_core.training import micro_batch
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import run_trial
config = TrialConfig().override(json.loads(sys.argv[3]))
losses, failures = {}, 0
for small in (False, True):
    if small and rank == 1:
        score = micro_batch.score_documents
        def limited(model, pairs, documents, **kwargs):
            global failures
            if len(documents) > 2:  # more than one row of the loss
                failures += 1
                raise torch.cuda.OutOfMemoryError("CUDA out of memory (made up)")
            return score(model, pairs, documents, **kwargs)
        micro_batch.score_documents = limited
    *progress, result = run_trial(config, folder / f"{small}{rank}")
    losses[small] = [point.loss for news in progress for point in news.curve]
print(json.dumps([losses[False], losses[True], failures]))
"""


@pytest.mark.long
def test_one_rank_may_use_smaller_batches_without_a_deadlock(small_trial, tmp_path):
    """One runs out of GPU memory: the other waits for its gradients as ever."""
    config = small_trial.override(
        {
            "model.dropout": 0.0,
            "training.precision": "fp32",
            "training.batch_size": 8,
            "training.num_epochs": 4,
            "training.max_steps": 4,
            "evaluation.max_dev_queries": 2,
            "evaluation.max_test_queries": 2,
        }
    )
    first, second = run_two(TRAINED, tmp_path, json.dumps(config.settings()))
    assert (first[2], second[2] > 0) == (0, True)
    assert first[:2] == second[:2] and len(first[1]) == 4
    assert first[1] == pytest.approx(first[0], abs=1e-4)
