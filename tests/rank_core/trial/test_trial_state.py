"""An interrupted trial ends as if undisturbed: bit for bit, at any step, in another process."""

import json
import random
import shutil
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch

from rank_core import machine
from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.trial import trial_state
from rank_core.trial.trial import TrialResult, run_trial

ROOT = Path(__file__).parents[3]
MEASURED = ("train_seconds", "eval_seconds", "peak_memory_bytes")
EVERY_STEP = Cadence(steps=1)
STEPS = 6  # of the small trial over three epochs

CASES = {
    "maxp with dropout": {},
    "maxp by chunks that learn": {"model.dropout": 0.0},
    "sump in small micro-batches": {"model.name": "sump", "training.micro_batch_tokens": 200},
    "parade-transformer": {"model.name": "parade-transformer", "training.schedule": "linear"},
    "co-pacrr shuffles": {"model.name": "co-pacrr", "chunking.window": 80, "chunking.stride": 80},
    "idcm has a loss of its own": {"model.name": "idcm", "model.stage": "student"},
    "passages": {"training.unit": "passage", "training.passage_keep": 0.5},
    "chunk dropout": {"training.chunk_dropout": 0.5, "training.negatives": 2},
    "listwise": {"training.loss": "listwise-softmax", "training.negatives": 3},
    "an optimiser for each epoch": {
        "training.reset_optimizer": True,
        "training.schedule": "one-cycle",
        "training.epoch_decay": 0.5,
    },
    "validation between epochs": {"training.validate_every": 4},
    "patience ends it": {"training.validate_every": 1, "training.patience": 1, "seed": 2},
    "folds": {"evaluation.folds": 3, "training.num_epochs": 2},
    "birch chooses weights on dev": {"model.name": "birch", "chunking.stride": 40},
    "bf16": {"training.precision": "bf16"},
    "kept files": {
        "training.keep_weights": "all",
        "training.keep_run": True,
        "evaluation.keep_chunk_scores": True,
    },
    "adapters in bf16": {
        "training.precision": "bf16",
        "training.lora_rank": 2,
        "training.lora_dropout": 0.1,
    },
}


@pytest.fixture(scope="module")
def config(small_trial):
    few = {"evaluation.max_dev_queries": 3, "evaluation.max_test_queries": 3}
    return small_trial.override({"training.num_epochs": 3, "model.dropout": 0.1} | few)


@pytest.fixture(scope="module")
def undisturbed(config, tmp_path_factory):
    """The result of the trial of `config`."""
    folder = tmp_path_factory.mktemp("trials") / "undisturbed"
    finished(config, folder)
    return outcome(folder)


@pytest.fixture(scope="module")
def left_over(config, tmp_path_factory):
    """The checkpoints of a trial of `config` that died after its third step."""
    folder = tmp_path_factory.mktemp("left over")
    killed_after(config, folder / "w", Checkpoints(str(folder / "c"), EVERY_STEP), 3)
    return folder / "c"


def outcome(folder):
    """A trial's result without times and memory."""
    result = json.loads((folder / "result.json").read_text())
    found = {name: value for name, value in result.items() if name not in MEASURED}
    return found | {
        path.name: path.read_bytes() for path in folder.iterdir() if path.name != "result.json"
    }


def points(progress):
    """The curve and the dev measures, without times."""
    curve = [
        (point.step, point.loss, point.learning_rate, point.gradient_norm)
        for news in progress
        for point in news.curve
    ]
    return curve, [(news.step, news.num_steps, news.dev) for news in progress if news.dev]


def killed_after(config, folder, checkpoints, num_news):
    """The progress of a trial before it dies; its folder is lost."""
    trial = run_trial(config, folder, checkpoints=checkpoints)
    said = list(islice(trial, num_news))
    trial.close()
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(random.getrandbits(32))  # another process starts from another state
    return said


def finished(config, folder, checkpoints=None):
    *progress, result = run_trial(config, folder, checkpoints=checkpoints)
    assert isinstance(result, TrialResult)
    return progress, result


@pytest.mark.slow
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_a_trial_killed_anywhere_ends_like_an_undisturbed_one(config, settings, tmp_path, computed):
    config = config.override(settings)
    expected, _ = finished(config, tmp_path / "undisturbed")
    num_steps = len(computed)
    rng = random.Random(str(settings))
    said = [0, *sorted(rng.sample(range(1, num_steps + 1), 2)), num_steps]
    print("killed after", said)
    for node, news in enumerate(said):
        home = tmp_path / f"node{node}"
        killed_after(config, tmp_path / "work", Checkpoints(str(home), EVERY_STEP), news)
        if home.exists():
            shutil.copytree(home, tmp_path / f"node{node + 1}")
    computed.clear()
    last = Checkpoints(str(tmp_path / f"node{len(said)}"), EVERY_STEP)
    progress, _ = finished(config, tmp_path / "resumed", last)
    assert len(computed) == 0, "the checkpoint after the last step was not used"
    assert outcome(tmp_path / "resumed") == outcome(tmp_path / "undisturbed")
    assert points(progress) == points(expected)


@pytest.mark.parametrize(
    "every, last",
    [(2, 4), (5, 0), *(pytest.param(*place, marks=pytest.mark.slow) for place in ((1, 3), (4, 4)))],
)
def test_only_what_followed_the_last_checkpoint_is_computed_again(
    config, undisturbed, tmp_path, computed, every, last
):
    checkpoints = Checkpoints(str(tmp_path / "c"), Cadence(steps=every))
    said = killed_after(config, tmp_path / "w", checkpoints, 3 if every == 1 else 2)
    assert last <= said[-1].step < STEPS
    computed.clear()
    finished(config, tmp_path / "w", Checkpoints(str(tmp_path / "c"), Cadence(steps=every)))
    assert len(computed) == STEPS - last
    assert outcome(tmp_path / "w") == undisturbed


OTHERS = {  # what is another, and by what attribute
    "seed": (),
    "torch": (trial_state, "versions", lambda: {"torch": "0.1", "device": "abacus"}),
    # as on a GPU that has no bf16, after one that has
    "precision": (machine, "matrix_units", lambda: True),
    "device class": (trial_state, "device_class", lambda device: "abacus"),
    "": (),
}


@pytest.mark.parametrize("told", OTHERS)
def test_broken_checkpoints_and_those_of_other_trials_are_ignored(
    config, left_over, tmp_path, computed, monkeypatch, caplog, told
):
    folder = shutil.copytree(left_over, tmp_path / "c")
    if OTHERS[told]:
        monkeypatch.setattr(*OTHERS[told])
    elif told == "seed":
        config = config.override({"seed": 2})
    else:
        (folder / "checkpoint").write_bytes((folder / "checkpoint").read_bytes()[:-9])
    computed.clear()
    finished(config, tmp_path / "w", Checkpoints(str(folder), EVERY_STEP))
    assert len(computed) == STEPS
    lines = [line for line in caplog.messages if line.startswith("the trial restarts from scratch")]
    assert len(lines) == bool(told) and all(told in line for line in lines)


@pytest.mark.parametrize("room", [True, False], ids=["saved", "full disk"])
def test_a_trial_leaves_on_a_wish_only_with_its_state(
    config, undisturbed, tmp_path, monkeypatch, room
):
    """A notice ends it in any case; a wish is not worth lost work."""
    if not room:
        monkeypatch.setattr(Checkpoints, "_refusal", lambda self, size: "the disk is full")
    asked = []

    def wish():
        asked.append(True)
        return len(asked) > 1

    checkpoints = Checkpoints(str(tmp_path / "c"), Cadence(minutes=60), wish=wish)
    left = []
    for news in run_trial(config, tmp_path / "w", checkpoints=checkpoints):
        if checkpoints.leaving:
            left.append((news.step, checkpoints.leaving.state.position[1]))
            break
    if room:
        [(step, saved)] = left
        assert 0 < step == saved < STEPS
    else:
        assert not left and outcome(tmp_path / "w") == undisturbed


def test_a_trial_that_moves_names_the_devices_of_all_its_attempts(
    config, left_over, tmp_path, monkeypatch
):
    before = machine.device_name()
    monkeypatch.setattr(trial_state, "device_name", lambda: "abacus")
    shutil.copytree(left_over, tmp_path / "c")
    checkpoints = Checkpoints(str(tmp_path / "c"), EVERY_STEP)
    _, result = finished(config, tmp_path / "w", checkpoints)
    first, second = result.workers
    assert (first.devices, second.devices) == ({before: 1}, {"abacus": 1})
    assert (first.step, second.step) == (0, 3)
    assert 0 < second.seconds < result.train_seconds + result.eval_seconds


def test_workers_of_a_checkpoint_without_devices_are_the_same_ones(config, left_over, tmp_path):
    class Earlier(Checkpoints):
        def load(self):
            content = super().load()
            facts = json.loads(content["facts"])
            for row in facts["workers"]:
                del row["devices"]
            return content | {"facts": json.dumps(facts)}

    shutil.copytree(left_over, tmp_path / "c")
    _, result = finished(config, tmp_path / "w", Earlier(str(tmp_path / "c"), EVERY_STEP))
    [row] = result.workers
    assert (row.step, row.number, row.devices) == (0, 1, {machine.device_name(): 1})


def test_a_trial_without_training_keeps_no_checkpoint(config, reranker_folder, tmp_path):
    as_it_is = {"training.num_epochs": 0, "model.backbone": str(reranker_folder)}
    zero = config.override(as_it_is)
    finished(zero, tmp_path / "w", Checkpoints(str(tmp_path / "c"), EVERY_STEP))
    assert not (tmp_path / "c").exists()


KILLED = """
import json, os, signal, sys, torch
from pathlib import Path
from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import run_trial
torch.set_num_threads(1)
config, home = TrialConfig().override(json.loads(sys.argv[1])), Path(sys.argv[2])
checkpoints = Checkpoints(str(home / "checkpoints"), Cadence(steps=1))
for number, news in enumerate(run_trial(config, home / "work", checkpoints=checkpoints), start=1):
    if number == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_process_that_is_killed_leaves_all_that_the_next_one_needs(config, undisturbed, tmp_path):
    for news, code in ((2, -signal.SIGKILL), (5, -signal.SIGKILL), (10**6, 0)):
        command = [sys.executable, "-c", KILLED, json.dumps(config.settings()), str(tmp_path)]
        done = subprocess.run([*command, str(news)], cwd=ROOT, timeout=500)
        assert done.returncode == code
    assert outcome(tmp_path / "work") == undisturbed
