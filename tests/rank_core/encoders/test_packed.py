"""Encoders over flat rows: the same states as over padded rows, and few operations."""

import logging

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from rank_core.chunking.batches import Chunk
from rank_core.encoders import packed
from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.backbones import load_encoder
from rank_core.encoders.flat_rows import (
    Ends,
    Reach,
    attention_row_by_row,
    flash_attention,
    flat_attention,
    rows_of_lengths,
)
from rank_core.encoders.packed import OWN_ATTENTION, flat_states, packs, weights_of, why_not
from rank_core.models.build import build_model
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
    reasons = ["16-bit", "mpnet", "compute capability 8.0"]
    assert all(reason in line for reason, line in zip(reasons, caplog.messages, strict=True))
    monkeypatch.setenv("RANKSWEEP_FAST_PATHS", "off")
    packed._of_gpu.cache_clear()
    capability["of"] = (8, 0)
    assert not packs(gpu, torch.bfloat16)
    assert len(caplog.messages) == 3


SHORT = (12, 4, 9, 12, 1)
WIDTH = max(SHORT)


def both_ways(encoder):
    """Hidden states of padded rows and of flat rows, zeros at padding."""
    mask_CL = (torch.arange(WIDTH) < torch.tensor(SHORT)[:, None]).long()
    ids_CL = torch.randint(5, 50, mask_CL.shape, generator=torch.Generator().manual_seed(1))
    ids_CL = ids_CL.where(mask_CL == 1, encoder.config.pad_token_id)
    padded_CLH = encoder(input_ids=ids_CL, attention_mask=mask_CL).last_hidden_state
    [flat_CLH] = flat_states(encoder, ids_CL, rows_of_lengths(SHORT, WIDTH))
    return padded_CLH * mask_CL[:, :, None], flat_CLH


def weighted(x):
    """A number that depends on all of x; the sum of squares after a norm does not."""
    return (x * torch.randn(x.shape, generator=torch.Generator().manual_seed(2))).sum()


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


def finish_arguments(num_tokens, hidden=16):
    encoder = whole_encoder("bert", hidden)
    [weights, *_] = weights_of(encoder.encoder.layer, torch.float32)
    constants = packed._constants(encoder.encoder.layer[0])
    inputs = [torch.randn(num_tokens, hidden, requires_grad=True) for _ in range(2)]
    return *inputs, weights, constants


def compiled_finish():
    x_TH, _, weights, constants = finish_arguments(24)
    return packed._compiled_or_not(x_TH, weights, constants)


@pytest.mark.slow
def test_what_follows_attention_is_one_graph_for_any_number_of_tokens(monkeypatch):
    from torch._dynamo.testing import AotEagerAndRecordGraphs

    graphs, compile_ = AotEagerAndRecordGraphs(), torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, options, **how: compile_(f, backend=graphs, **how)
    )
    monkeypatch.setattr(packed, "TRIED_TOKENS", 32)
    compiled = compiled_finish()
    assert compiled is not packed._finish
    for num_tokens in (24, 7, 100):
        arguments = finish_arguments(num_tokens)
        y_TH = compiled(*arguments)
        expected_TH = packed._finish(*arguments)
        assert_close(y_TH, expected_TH)
        for one, other in zip(
            torch.autograd.grad(weighted(y_TH), arguments[:2]),
            torch.autograd.grad(weighted(expected_TH), arguments[:2]),
            strict=True,
        ):
            assert_close(one, other)
    assert len(graphs.graphs) == 1


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


THREE = (3, 1, 5)
ALL = Reach(causal=False)


def ends(query=THREE, key=THREE):
    cu = [torch.tensor([0, *torch.tensor(x).cumsum(0)], dtype=torch.int32) for x in (query, key)]
    return Ends(*cu, max(query), max(key))


def flat(num_tokens, heads=2, size=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_tokens, heads, size, generator=generator)


def by_hand(query, key, value, allowed):
    """Attention of every token to the keys that `allowed` (Q, K) says."""
    score = torch.einsum("qhd,khd->hqk", query, key) * query.shape[-1] ** -0.5
    weight = score.masked_fill(~allowed, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weight, value)


@pytest.mark.parametrize(
    ("reach", "seen"),
    [
        (ALL, lambda q, k: True),
        (Reach(causal=True, right=0), lambda q, k: k <= q),
        (Reach(causal=False, left=1, right=1), lambda q, k: abs(q - k) <= 1),
        (Reach(causal=True, left=2, right=0), lambda q, k: 0 <= q - k <= 2),
    ],
)
def test_a_token_sees_its_own_row_as_far_as_it_reaches(reach, seen):
    query, key, value = (flat(sum(THREE), seed=seed) for seed in range(3))
    row = torch.repeat_interleave(torch.arange(3), torch.tensor(THREE)).tolist()
    place = [p for length in THREE for p in range(length)]
    allowed = torch.tensor(
        [
            [row[q] == row[k] and seen(place[q], place[k]) for k in range(len(row))]
            for q in range(len(row))
        ]
    )
    output = attention_row_by_row(query, key, value, ends(), reach, 0.0, None)
    assert_close(output, by_hand(query, key, value, allowed), atol=1e-6, rtol=1e-5)


class Calls(TorchDispatchMode):
    """Records the arguments of flash attention."""

    def __init__(self):
        super().__init__()
        self.forward, self.backward = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name == "_flash_attention_forward":
            self.forward.append((args, kwargs))
        if name == "_flash_attention_backward":
            self.backward.append((args, kwargs))
        return function(*args, **(kwargs or {}))


def on_meta(*tensors):
    return [x.to("meta", torch.bfloat16).requires_grad_() for x in tensors]


def test_the_kernel_gets_dropout_reach_and_scale_and_its_gradient_is_recorded():
    query, key, value = on_meta(flat(3), flat(9), flat(9))
    own = ends((1, 1, 1))
    on_device = Ends(own.query.to("meta"), own.key.to("meta"), 1, 5)
    with Calls() as calls:
        reach = Reach(causal=True, left=4, right=0)
        output = flash_attention(query, key, value, on_device, reach, 0.1, 0.25)
        assert output.shape == query.shape and output.dtype == torch.bfloat16
        output.sum().backward()
    [(args, kwargs)] = calls.forward
    assert args[5:] == (1, 5, 0.1, True, False)
    assert kwargs == {"scale": 0.25, "window_size_left": 4, "window_size_right": 0}
    [(args, kwargs)] = calls.backward
    assert args[8:12] == (1, 5, 0.1, True)
    assert kwargs == {"scale": 0.25, "window_size_left": 4, "window_size_right": 0}
    assert [x.grad.shape for x in (query, key, value)] == [x.shape for x in (query, key, value)]


@pytest.mark.parametrize(
    ("extra", "reach"),
    [
        ({}, ALL),
        ({"sliding_window": 65}, Reach(False, 64, 64)),  # counts the token itself
        ({"is_causal": True}, Reach(True, -1, 0)),
        ({"is_causal": True, "sliding_window": 8}, Reach(True, 7, 0)),
    ],
)
def test_windows_and_causality_follow_transformers(extra, reach, monkeypatch):
    module = nn.Module()
    module.is_causal = False
    own, told = ends(), []

    def attend(query, key, value, *rest):
        told.append(rest)
        return query

    monkeypatch.setattr("rank_core.encoders.flat_rows.attention_row_by_row", attend)
    heads = [flat(9).transpose(0, 1)[None] for _ in range(3)]
    names = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
    places = dict(zip(names, own, strict=True))
    output, _ = flat_attention(module, *heads, None, 0.1, 0.5, **places, **extra)
    assert output.shape == (1, 9, 2, 8)
    [(same, own_reach, dropout, scale)] = told
    assert same == own and own_reach == reach and (dropout, scale) == (0.1, 0.5)
