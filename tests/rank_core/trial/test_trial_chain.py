"""A trial that keeps its weights, and one that starts from them."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.chunking.inputs import cell_of, load_inputs
from rank_core.data.load import load_collection
from rank_core.data.trec import read_run
from rank_core.errors import BadInput
from rank_core.trial.trial import TrialResult, run_trial, trial_streams

ALMOST_NOTHING = {
    "training.max_steps": 1,
    "training.weight_decay": 0.0,
    "training.backbone_learning_rate": 1e-12,
    "training.head_learning_rate": 1e-12,
    "training.aggregator_learning_rate": 1e-12,
}


def finish(config, folder):
    *_, result = run_trial(config, folder)
    assert isinstance(result, TrialResult)
    return result


def cell(config):
    return cell_of(config, load_inputs(config.collection, config.model.backbone))


@pytest.fixture(scope="module")
def first(small_trial, tmp_path_factory):
    """(folder, result) of a trial that keeps its weights."""
    folder = tmp_path_factory.mktemp("trials") / "first"
    config = small_trial.override({"training.num_epochs": 2, "training.keep_weights": "all"})
    return folder, finish(config, folder)


def test_the_order_of_the_training_candidates_may_be_left_for_later_trials(
    first, small_trial, collection_folder, tmp_path
):
    keeping = {"training.num_epochs": 2, "training.keep_run": True, "training.depth": 4}
    plain = {"training.num_epochs": 2, "training.depth": 4}
    results = [
        finish(small_trial.override(settings), tmp_path / name)
        for name, settings in (("keeping", keeping), ("plain", plain))
    ]
    assert results[0].cell == results[1].cell and results[0].test == results[1].test
    assert results[0].ties == results[1].ties
    assert not (tmp_path / "plain" / "train.run.gz").exists()
    path = tmp_path / "keeping" / "train.run.gz"
    run = read_run(path)
    candidates = load_collection(str(collection_folder)).splits["train"].candidates
    assert {q: set(ranked) for q, ranked in run.items()} == {
        q: set(list(ranked)[:4]) for q, ranked in candidates.items()
    }
    for settings in (
        {"training.negatives_from": (str(path),)},
        {"training.teacher": str(path), "training.loss": "margin-mse"},
    ):
        assert cell(small_trial.override(settings)) not in {r.cell for r in results}


def test_a_cell_is_named_by_the_contents_of_weights_not_their_path(first, small_trial, tmp_path):
    folder, _ = first
    copied = shutil.copytree(folder, tmp_path / "copied")
    places = (folder, copied, folder / WEIGHTS)
    configs = [small_trial.override({"training.init_from": str(place)}) for place in places]
    assert len({cell(config) for config in configs}) == 1
    assert len({trial_streams(config, "b").order for config in configs}) == 1
    assert cell(configs[0]) != cell(small_trial)
    before = cell(configs[1])
    (copied / WEIGHTS).write_bytes((copied / WEIGHTS).read_bytes() + b" ")
    assert cell(configs[1]) != before


@pytest.fixture
def a_cell(first, tmp_path):
    """`runs/<cell>` of two trials that kept different weights, as a sweep leaves them."""
    for seed in (1, 12):
        trial = shutil.copytree(first[0], tmp_path / "runs" / f"maxp-abc-seed{seed}")
        told = json.loads((trial / "result.json").read_text()) | {"cell": "maxp-abc", "seed": seed}
        (trial / "result.json").write_text(json.dumps(told))
        weights = {name: w + (seed == 12) for name, w in load_file(trial / WEIGHTS).items()}
        save_weights(trial, weights)
    (tmp_path / "runs" / "maxp-abcd-seed2").mkdir()  # of another cell
    return tmp_path / "runs" / "maxp-abc"


def test_each_trial_starts_from_the_one_with_its_own_seed(a_cell, small_trial, tmp_path):
    config = small_trial.override(ALMOST_NOTHING | {"training.init_from": str(a_cell)})
    for seed in (1, 12):
        own = config.override({"seed": seed, "training.keep_weights": "all"})
        finish(own, tmp_path / f"{seed}")
        theirs = load_file(a_cell.with_name(f"maxp-abc-seed{seed}") / WEIGHTS)
        for name, weight in load_file(tmp_path / f"{seed}" / WEIGHTS).items():
            assert torch.allclose(weight, theirs[name], atol=1e-5), name
    with pytest.raises(BadInput, match=r"has no trial with seed 2, only with 1, 12"):
        finish(config.override({"seed": 2}), tmp_path / "2")


def test_a_chain_is_named_by_the_cell_it_starts_from(a_cell, small_trial, tmp_path):
    config = small_trial.override({"training.init_from": str(a_cell)})
    shutil.copytree(a_cell.parent, tmp_path / "moved")
    moved = config.override({"training.init_from": str(tmp_path / "moved" / "maxp-abc")})
    one = config.override({"training.init_from": f"{a_cell}-seed1"})
    assert cell(config) == cell(moved) and cell(config) not in (cell(one), cell(small_trial))


def test_a_folder_that_is_no_trial_of_the_cell_is_refused(a_cell, small_trial, tmp_path):
    config = small_trial.override({"training.init_from": str(a_cell)})
    shutil.copytree(f"{a_cell}-seed1", f"{a_cell}-seed3")
    with pytest.raises(BadInput, match=r"maxp-abc-seed3 is not a finished trial"):
        cell(config)
