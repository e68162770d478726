"""Weights that one trial keeps and another starts from."""

import pytest
import torch

from rank_core.checkpoints.weights import WEIGHTS, load_weights, save_weights, weights_file
from rank_core.errors import BadInput
from rank_core.models.build import build_model
from rank_core.settings.config import TrialConfig


@pytest.fixture
def built(backbone):
    def build(name, seed):
        names = {"model.name": name, "model.backbone": str(backbone.folder)}
        return build_model(TrialConfig().override(names), backbone, init_seed=seed)

    return build


def test_weights_come_back_bit_by_bit(built, tmp_path):
    first, second = built("parade-attn", 1), built("parade-attn", 2)
    with torch.no_grad():
        first.encoder.embeddings.word_embeddings.weight.add_(1)
    save_weights(tmp_path / "trial", first.state_dict())
    assert [path.name for path in (tmp_path / "trial").iterdir()] == [WEIGHTS]
    taken = load_weights(second, weights_file(str(tmp_path / "trial"), 1))
    assert set(taken) == set(first.state_dict())
    for name, weight in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], weight), name
    assert second.head.weight.requires_grad


def test_a_head_is_copied_and_a_missing_aggregator_is_kept(built, tmp_path):
    maxp, attn = built("maxp", 1), built("parade-attn", 2)
    attention = attn.attention.detach().clone()
    save_weights(tmp_path, maxp.state_dict())
    taken = load_weights(attn, tmp_path / WEIGHTS)
    assert "head.weight" in taken and torch.equal(attn.head.weight, maxp.head.weight)
    assert torch.equal(attn.attention, attention)


@pytest.mark.parametrize("fault", ["shape", "missing"])
def test_another_encoder_is_refused_with_its_first_parameter(built, tmp_path, fault):
    model = built("maxp", 1)
    weights = dict(model.state_dict())
    first = next(name for name in weights if name.startswith("encoder."))
    if fault == "shape":
        weights[first] = torch.zeros(3, 4)
    else:
        del weights[first]
    save_weights(tmp_path, weights)
    before = model.head.weight.detach().clone()
    law = r"is of shape \(3, 4\)" if fault == "shape" else "is missing"
    with pytest.raises(BadInput, match=f"of another encoder; {first} has shape .* {law}"):
        load_weights(model, tmp_path / WEIGHTS)
    assert torch.equal(model.head.weight, before)


def test_a_folder_that_is_no_trial_is_refused(tmp_path, built):
    with pytest.raises(BadInput, match=r"no file .*weights\.safetensors.*keep_weights=all"):
        weights_file(str(tmp_path), 1)
    with pytest.raises(BadInput, match="there is no file"):
        weights_file(str(tmp_path / "away"), 1)
    (tmp_path / WEIGHTS).write_text("no weights")
    assert weights_file(str(tmp_path / WEIGHTS), 1) == weights_file(str(tmp_path), 1)
    with pytest.raises(BadInput, match="has no safetensors weights"):
        load_weights(built("maxp", 1), tmp_path / WEIGHTS)
