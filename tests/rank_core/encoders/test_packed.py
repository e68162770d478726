"""Every kind of encoder over one flat row of tokens, against the same encoder over padded rows."""

import logging

import pytest
import torch
from torch.testing import assert_close

from rank_core.encoders import packed
from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.backbones import load_encoder
from rank_core.encoders.flat_rows import rows_of_lengths
from rank_core.encoders.packed import OWN_ATTENTION, flat_states, packs, why_not
from tests.contracts.test_every_backbone import backbones  # noqa: F401

LENGTHS = (9, 3, 24, 1, 40, 17, 40, 5)  # in all more tokens than the encoders have positions
FLAT = sorted(set(TYPES) - set(OWN_ATTENTION))


def batch(backbone):
    """(ids_CL, mask_CL, segments_CL, places) of rows of unequal length."""
    generator = torch.Generator().manual_seed(1)
    width = max(LENGTHS)
    mask_CL = (torch.arange(width) < torch.tensor(LENGTHS)[:, None]).long()
    ids_CL = torch.randint(4, 50, mask_CL.shape, generator=generator)
    ids_CL[:, 0] = backbone.cls_id
    ids_CL = ids_CL.where(mask_CL == 1, backbone.pad_id)
    segments_CL = (torch.arange(width) >= 4).long() * mask_CL if backbone.num_segments > 1 else None
    return ids_CL, mask_CL, segments_CL, rows_of_lengths(LENGTHS, width)


def both_ways(encoder, backbone, **how):
    """(states of padded rows, states of flat rows), zeros at padding in both."""
    ids_CL, mask_CL, segments_CL, flat = batch(backbone)
    extra = {} if segments_CL is None else {"token_type_ids": segments_CL}
    output = encoder(input_ids=ids_CL, attention_mask=mask_CL, output_hidden_states=True, **extra)
    states = [*output.hidden_states[:-1], output.last_hidden_state]
    padded = torch.stack([x.masked_fill(mask_CL[:, :, None] == 0, 0.0) for x in states])
    alone = flat_states(encoder, ids_CL, flat, segments_CL=segments_CL, layers=True, **how)
    return padded, torch.stack(alone)


@pytest.mark.parametrize("kind", FLAT)
def test_hidden_states_and_gradients_are_those_of_padded_rows(kind, backbones):  # noqa: F811
    backbone = backbones(kind)
    encoder = load_encoder(backbone, 0.0).train()
    assert why_not(encoder) is None
    padded, flat = both_ways(encoder, backbone)
    assert flat.shape == padded.shape and padded.std() > 0.1
    assert_close(flat, padded, atol=1e-5, rtol=1e-5)
    weight = torch.randn(padded.shape, generator=torch.Generator().manual_seed(2))
    names = [name for name, p in encoder.named_parameters() if p.requires_grad]
    gradients = [
        torch.autograd.grad((weight * x).sum(), list(encoder.parameters()), allow_unused=True)
        for x in (padded, flat)
    ]
    for name, one, other in zip(names, *gradients, strict=True):
        assert (one is None) == (other is None), name
        if one is not None:
            assert_close(other, one, atol=1e-4, rtol=1e-4, msg=name)


def test_what_is_recomputed_in_the_backward_pass_is_flat_too(backbones):  # noqa: F811
    backbone = backbones("bert")
    encoder = load_encoder(backbone, 0.0).train()
    ids_CL, _, segments_CL, flat = batch(backbone)
    gradients = []
    for _ in range(2):
        [hidden_CLH] = flat_states(encoder, ids_CL, flat, segments_CL=segments_CL)
        gradients.append(torch.autograd.grad(hidden_CLH.pow(2).sum(), [*encoder.parameters()]))
        encoder.gradient_checkpointing_enable({"use_reentrant": False})
    assert encoder.is_gradient_checkpointing
    for kept, recomputed in zip(*gradients, strict=True):
        assert torch.equal(kept, recomputed)


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_every_kind_reads_flat_rows_or_gives_a_reason(kind, backbones):  # noqa: F811
    encoder = load_encoder(backbones(kind), 0.0)
    reason = why_not(encoder)
    assert (reason is None) == (kind in FLAT)
    assert reason is None or kind in reason
    encoder.reads_flat_rows = True
    assert packs(encoder, None) == (kind in FLAT)


def test_heads_that_flash_attention_has_no_kernel_for_are_a_reason(backbones):  # noqa: F811
    encoder = load_encoder(backbones("bert"), 0.0)
    encoder.config.num_attention_heads = 4
    assert "head size 4" in why_not(encoder)


class OnGpu(torch.nn.Module):
    """An encoder whose parameters say that they are on a GPU."""

    def __init__(self, encoder):
        super().__init__()
        self.config = encoder.config

    def parameters(self):
        class Weight:
            device = torch.device("cuda", 0)

        return iter([Weight])


def test_padded_rows_are_the_default_on_a_cpu_and_flat_ones_on_a_gpu(
    backbones,  # noqa: F811
    monkeypatch,
    caplog,
):
    capability = {"of": (8, 0)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability["of"])
    packed._of_gpu.cache_clear()
    packed._warn_once.cache_clear()
    encoder = load_encoder(backbones("bert"), 0.0)
    gpu = OnGpu(encoder)
    with caplog.at_level(logging.WARNING):
        assert not packs(encoder, torch.bfloat16)
        assert packs(gpu, torch.bfloat16) and packs(gpu, torch.float16)
        assert caplog.messages == []
        for _ in range(3):
            assert not packs(gpu, None)
            assert not packs(OnGpu(load_encoder(backbones("mpnet"), 0.0)), torch.bfloat16)
        packed._of_gpu.cache_clear()
        capability["of"] = (7, 5)
        assert not packs(gpu, torch.float16)
    reasons = ["16-bit", "mpnet adds", "compute capability 8.0"]
    assert all(reason in line for reason, line in zip(reasons, caplog.messages, strict=True))
    monkeypatch.setenv("RANKSWEEP_FAST_PATHS", "off")
    packed._of_gpu.cache_clear()
    capability["of"] = (8, 0)
    assert not packs(gpu, torch.bfloat16)
    assert len(caplog.messages) == 3
