"""The shortened last layer and packed layers against unchanged layers: vectors, gradients, masks,
and no stale weights."""

import copy

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, AutoModel

from rank_core.encoders import attention, cls_only
from rank_core.encoders.cls_only import SAME_LAYERS, only_cls, packed_layers
from rank_core.encoders.copies import kept
from rank_core.encoders.cpu_layers import FP32, CpuKernels, cpu_kernels

HAS_BF16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
DTYPES = [
    None,
    pytest.param(torch.bfloat16, marks=pytest.mark.skipif(not HAS_BF16, reason="no bf16 kernels")),
]


def whole_encoder(model_type: str, hidden_size: int, **settings: object) -> torch.nn.Module:
    """Three layers of transformers, as drawn."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        model_type,
        vocab_size=50,
        hidden_size=hidden_size,
        num_hidden_layers=3,
        num_attention_heads=hidden_size // 8,
        intermediate_size=2 * hidden_size,
        **({"embedding_size": hidden_size} | settings),
    )
    return AutoModel.from_config(config).eval()


def encoder(model_type: str = "bert", **settings: object) -> torch.nn.Module:
    """An encoder with the shortened last layer and larger weights."""
    model = whole_encoder(model_type, 32, **settings)
    with (
        torch.no_grad()
    ):  # as large as after training: with the initial 0.02 a layer hardly attends to other tokens
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    only_cls(model)
    return model


def batch(lengths: tuple[int, ...] = (12, 4, 9, 12, 1)) -> dict[str, torch.Tensor]:
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, 50, mask.shape, generator=torch.Generator().manual_seed(1)) * mask
    return {"input_ids": ids + (1 - mask), "attention_mask": mask}


def cls(model: torch.nn.Module, inputs: dict[str, torch.Tensor], dtype: torch.dtype | None = None):
    """[CLS] by packed weights."""
    on = dtype is not None
    with torch.inference_mode(), torch.autocast("cpu", dtype=dtype, enabled=on):
        copies = packed_layers(model, dtype)
        assert list(copies) == [model.encoder]
        with kept(copies):
            return model(**inputs).last_hidden_state[:, 0]


def as_it_is(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.inference_mode():
        return model(**inputs).last_hidden_state[:, 0]


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("model_type", SAME_LAYERS)
def test_the_shortened_layer_gives_cls_and_its_gradients_of_the_whole_one(model_type, padded):
    whole, inputs = whole_encoder(model_type, 16), batch((9, 4, 12))
    short = copy.deepcopy(whole)
    only_cls(short)
    if not padded:
        inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
    outputs = []
    for model in (whole, short):
        cls_CH = model(**inputs).last_hidden_state[:, 0]
        (cls_CH * torch.linspace(-1, 1, 16)).sum().backward()
        outputs.append(cls_CH)
    assert short(**inputs).last_hidden_state.shape[1] == 1
    assert_close(outputs[1], outputs[0], atol=1e-6, rtol=1e-5)
    names = dict(short.named_parameters())
    compared = 0
    for name, parameter in whole.named_parameters():
        if parameter.grad is not None:
            assert_close(names[name].grad, parameter.grad, atol=1e-6, rtol=1e-4)
            compared += 1
    assert compared > 40


@pytest.mark.parametrize("tiles", [True, False])
def test_fp32_is_the_same_on_every_cpu_and_16_bits_suit_its_features(tiles, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    assert cpu_kernels(torch.float32) is FP32 == CpuKernels(1024, attention.fused_context)
    suited = (4096, attention.fused_context) if tiles else (1024, attention.product_context)
    assert cpu_kernels(torch.bfloat16) == CpuKernels(*suited)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [(12, 4, 9, 12, 1), (7, 7, 7)])
@pytest.mark.parametrize("model_type", SAME_LAYERS)
@pytest.mark.parametrize("attend", [attention.fused_context, attention.product_context])
def test_cls_is_that_of_the_layers_as_they_are(attend, model_type, lengths, dtype, monkeypatch):
    attended: list[int] = []
    kernels = CpuKernels(24, lambda *given: attended.append(len(given[0])) or attend(*given))
    monkeypatch.setattr(cls_only, "cpu_kernels", lambda dtype: kernels)
    monkeypatch.setattr(attention, "SCORE_BYTES", 1)
    model, inputs = encoder(model_type, embedding_size=24), batch(lengths)  # ELECTRA's is narrower
    expected = as_it_is(model, inputs)
    assert expected.std() > 0.5
    near = 1e-5 if dtype is None else 4e-2
    assert_close(cls(model, inputs, dtype), expected, atol=near, rtol=0)
    # Two layers in blocks of two rows of 12 tokens, or of three rows of 7.
    assert attended == (2 * [2, 2, 1] if len(lengths) == 5 else 2 * [3])


def _train_a_step(model: torch.nn.Module) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    (model(**batch()).last_hidden_state ** 2).sum().backward()
    optimizer.step()


def _load(model: torch.nn.Module) -> None:
    model.load_state_dict({name: weight * 0.5 for name, weight in model.state_dict().items()})


def _change_data(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(0.5)  # moves no version counter


@pytest.mark.parametrize("change", [_train_a_step, _load, _change_data])
def test_no_weight_is_stale(change):
    model = encoder()
    before = cls(model, batch())
    change(model)
    now = cls(model, batch())
    assert (now - before).abs().max() > 1e-2
    assert_close(now, as_it_is(model, batch()), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("why", ["gradients", "dropout", "float64", "float16"])
def test_nothing_is_packed_if_the_function_would_change(why):
    model = encoder()
    if why == "dropout":
        model.train()
    if why == "float64":
        model.double()
    with torch.set_grad_enabled(why == "gradients"):
        assert not packed_layers(model, torch.float16 if why == "float16" else None)
