"""The shortened last layer against the whole one: outputs, gradients, padding."""

import copy

import pytest
import torch
from transformers import AutoConfig, AutoModel

from rank_core.encoders.fast_paths import SAME_LAYERS, only_cls


def encoder(model_type: str) -> torch.nn.Module:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        model_type,
        vocab_size=50,
        hidden_size=16,
        embedding_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return AutoModel.from_config(config)


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    lengths = torch.tensor([9, 4, 12])
    mask = (torch.arange(12) < lengths[:, None]).long()
    ids = torch.randint(5, 50, (3, 12), generator=torch.Generator().manual_seed(1)) * mask
    return {"input_ids": ids + (1 - mask), "attention_mask": mask}


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("model_type", SAME_LAYERS)
def test_cls_and_its_gradients_are_those_of_the_whole_layer(model_type, padded, batch):
    whole = encoder(model_type)
    short = copy.deepcopy(whole)
    only_cls(short)
    if not padded:
        batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
    outputs = []
    for model in (whole, short):
        cls = model.eval()(**batch).last_hidden_state[:, 0]
        (cls * torch.linspace(-1, 1, 16)).sum().backward()
        outputs.append(cls)
    assert short(**batch).last_hidden_state.shape[1] == 1
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-6, rtol=1e-5)
    names = dict(short.named_parameters())
    compared = 0
    for name, parameter in whole.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(names[name].grad, parameter.grad, atol=1e-6, rtol=1e-4)
            compared += 1
    assert compared > 40


def test_an_encoder_of_another_kind_is_left_alone():
    config = AutoConfig.for_model("distilbert", dim=16, n_heads=2, n_layers=1, hidden_dim=32)
    model = AutoModel.from_config(config)
    only_cls(model)
    assert model(torch.ones(1, 5, dtype=torch.long)).last_hidden_state.shape == (1, 5, 16)


def test_a_copy_computes_with_its_own_parameters(batch):
    model = encoder("bert").eval()
    only_cls(model)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert model(**batch).last_hidden_state.abs().sum() == 0
    assert copied(**batch).last_hidden_state.abs().sum() > 0
