"""A model that trains nothing ranks by weights that it was given, or is refused; a single trained
model is one run."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from rank_core.checkpoints.weights import WEIGHTS, load_weights, save_weights
from rank_core.errors import BadInput
from rank_core.export.folder import read_model, write_model
from rank_core.models import MODELS, model_class
from rank_core.models.build import build_model, is_deterministic, require_weights
from rank_core.models.checks import check_model
from rank_core.testing.test_model import config_of

TRAINED = [name for name in MODELS if model_class(name).trains]


@pytest.fixture(scope="module")
def start(backbone, tmp_path_factory):
    """The weights of a MaxP trial."""
    folder = tmp_path_factory.mktemp("start")
    model = build_model(config_of("maxp", backbone), backbone, init_seed=3)
    save_weights(folder, model.learned_state())
    return folder


def zero_shot(name, backbone, start):
    untrained = {"training.num_epochs": 0, "training.init_from": str(start)}
    return config_of(name, backbone).override(untrained)


def weights(config, backbone, seed, path):
    model = build_model(config, backbone, init_seed=seed)
    load_weights(model, path, model.learned_state())
    return model.state_dict()


@pytest.mark.parametrize("name", TRAINED)
def test_no_weight_of_a_zero_shot_model_is_drawn(name, start, backbone):
    """With weights of another model to start from: it is refused, or all seeds have the same."""
    config = zero_shot(name, backbone, start)
    try:
        first, second = (weights(config, backbone, s, start / WEIGHTS) for s in (1, 2))
    except BadInput as error:  # it reads words, or has layers of its own
        assert "the weights are of another encoder" in str(error)
        return
    differ = [n for n in first if not torch.equal(first[n], second[n])]
    if not differ:
        require_weights(config, backbone)
        assert is_deterministic(config, backbone) is not model_class(name).reads_by_seed
        return
    part = differ[0].partition(".")[0]
    with pytest.raises(BadInput, match=f"would rank at random.* {part}.*{start} does not have"):
        require_weights(config, backbone)
    require_weights(config.override({"training.num_epochs": 1}), backbone)  # it may be trained


def test_some_are_refused_and_some_are_not(start, backbone):
    check_model(zero_shot("maxp", backbone, start), backbone)
    with pytest.raises(BadInput, match="would rank at random"):
        check_model(zero_shot("parade-attn", backbone, start), backbone)


def test_one_trained_model_is_one_run_and_those_of_a_cell_are_several(start, backbone, tmp_path):
    one = zero_shot("maxp", backbone, start)
    assert is_deterministic(one, backbone)
    assert not is_deterministic(one.override({"training.num_epochs": 1}), backbone)
    cell = tmp_path / "maxp-abc"
    for seed in (1, 2):
        trial = shutil.copytree(start, f"{cell}-seed{seed}")
        result = json.dumps({"cell": cell.name, "seed": seed})
        (tmp_path / trial / "result.json").write_text(result)
    several = zero_shot("maxp", backbone, cell)
    require_weights(several, backbone)
    assert not is_deterministic(several, backbone)
    with pytest.raises(BadInput, match="attention would be drawn"):
        require_weights(zero_shot("parade-attn", backbone, cell), backbone)


def test_an_export_that_started_from_weights_elsewhere_loads(start, backbone, tmp_path):
    write_model(tmp_path / "m", zero_shot("maxp", backbone, start), start / WEIGHTS)
    model = read_model(tmp_path / "m").model
    saved = load_file(start / WEIGHTS)
    assert torch.equal(model.state_dict()["head.weight"], saved["head.weight"])
