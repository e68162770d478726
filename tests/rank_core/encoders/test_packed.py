"""Encoders over flat rows: the same states as over padded rows, and few operations."""

import pytest
import torch
from torch.testing import assert_close

from rank_core.chunking.batches import Chunk
from rank_core.encoders import packed
from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.backbones import load_encoder
from rank_core.encoders.flat_rows import rows_of_lengths
from rank_core.encoders.packed import OWN_ATTENTION, flat_states, packs, weights_of, why_not
from rank_core.machine import ahead
from rank_core.models.build import build_model
from rank_core.ranking import encode
from rank_core.ranking.encode import How, Work, encode_chunks
from rank_core.settings.config import TrialConfig
from rank_core.testing.laws import tokens
from tests.contracts.test_every_backbone import backbones  # noqa: F401
from tests.rank_core.encoders.test_cpu_layers import whole_encoder

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


def test_what_is_recomputed_in_the_backward_pass_is_flat_too(backbones):  # noqa: F811
    backbone = backbones("bert")
    encoder = load_encoder(backbone, 0.0).train()
    ids_CL, _, segments_CL, flat = batch(backbone)
    gradients = []
    for _ in range(2):
        [hidden_CLH] = flat_states(encoder, ids_CL, flat, segments=segments_CL)
        gradients.append(torch.autograd.grad(hidden_CLH.pow(2).sum(), [*encoder.parameters()]))
        encoder.gradient_checkpointing_enable({"use_reentrant": False})
    assert encoder.is_gradient_checkpointing
    for kept, recomputed in zip(*gradients, strict=True):
        assert torch.equal(kept, recomputed)


@pytest.mark.parametrize("kind", FLAT)
def test_flat_rows_have_the_states_of_padded_ones(kind, backbones):  # noqa: F811
    """Whatever their windows and causality: rows are longer than those."""
    backbone = backbones(kind)
    encoder = load_encoder(backbone, 0.0).eval()
    ids_CL, mask_CL, segments_CL, flat = batch(backbone)
    padded = {"input_ids": ids_CL, "attention_mask": mask_CL, "token_type_ids": segments_CL}
    with torch.inference_mode():
        padded = {name: x for name, x in padded.items() if x is not None}
        expected = encoder(**padded).last_hidden_state * mask_CL[:, :, None]
        [found] = flat_states(encoder, ids_CL, flat, segments=segments_CL)
    assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_every_kind_reads_flat_rows_or_gives_a_reason(kind, backbones):  # noqa: F811
    encoder = load_encoder(backbones(kind), 0.0)
    reason = why_not(encoder)
    assert (reason is None) == (kind in FLAT)
    assert reason is None or kind in reason
    encoder.reads_flat_rows = True
    assert packs(encoder, None) == (kind in FLAT)


def ranker(backbone, dropout=0.0):
    """(model whose encoder reads flat rows, its chunks' reader, chunks of unequal length)."""
    settings = {"model.name": "maxp", "model.backbone": str(backbone.folder)}
    config = TrialConfig().override(settings | {"model.dropout": dropout})
    model = build_model(config, backbone, init_seed=1)
    model.encoder.reads_flat_rows = True
    chunks = [Chunk(tokens(5, 1), tokens(size, size)) for size in (20, 3, 20, 11)]
    return model, type(model).reader(config, backbone, {}), chunks


def scored(model, pairs, chunks, autocast=None):
    """x_CH in two batches."""
    with torch.inference_mode():
        return encode_chunks(model.eval(), pairs, chunks, How(50, autocast, Work()))


def test_weights_are_copied_once_for_all_batches_of_a_pass(backbone, monkeypatch):
    model, pairs, chunks = ranker(backbone)
    times = []
    monkeypatch.setattr(packed, "weights_of", lambda *args: times.append(1) or weights_of(*args))
    x_CH = scored(model, pairs, chunks)
    assert len(times) == 1
    assert not hasattr(model.encoder, "weights")
    assert_close(x_CH, model.encode(pairs.layout(chunks)), atol=1e-5, rtol=1e-5)
    with torch.enable_grad():
        encode_chunks(model.train(), pairs, chunks, How(50, None, Work()))
    assert len(times) == 1 + 1 + 2  # a copy that gradients pass belongs to its batch


def test_padded_tensors_are_not_made_for_flat_rows(backbone):
    model, pairs, chunks = ranker(backbone)
    inputs = pairs.layout(chunks)
    with torch.inference_mode():
        x_CH = model.eval().encode(inputs)
        made = {name for name in vars(inputs) if name.endswith("_CL")}
        assert made == set()
        model.encoder.reads_flat_rows = False
        assert_close(x_CH, model.encode(inputs), atol=1e-5, rtol=1e-5)


def test_two_batches_are_laid_out_ahead(backbone, monkeypatch):
    numbers = []

    def recorded(items, device, number=1):
        numbers.append(number)
        return ahead(items, device, number=number)

    monkeypatch.setattr(encode, "ahead", recorded)
    assert len(scored(*ranker(backbone))) == 4
    assert numbers == [2]


def test_memory_is_pinned_for_models_on_a_gpu_alone(backbone, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda _: pytest.fail("opens a context"))
    assert len(scored(*ranker(backbone))) == 4


def compiled_finish():
    layers = whole_encoder("bert", 16).encoder.layer
    [weights, *_] = weights_of(layers, torch.float32)
    x_TH = torch.randn(24, 16, requires_grad=True)
    return packed._compiled_or_not(x_TH, weights, packed._constants(layers[0]))


def test_a_failing_compiler_is_reported_once_and_not_used(caplog, monkeypatch):
    def fails(*_):
        raise NotImplementedError("no compiler here\nand no second line")

    def is_full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: fails)
    for _ in range(2):
        assert compiled_finish() is packed._finish
    assert caplog.text.count("NotImplementedError: no compiler here") == 1
    assert "second" not in caplog.text
    monkeypatch.setattr(torch, "compile", lambda *_, **__: is_full)
    with pytest.raises(torch.OutOfMemoryError):
        compiled_finish()
