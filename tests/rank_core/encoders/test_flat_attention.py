"""Attention over flat rows: the reference by hand, and the arguments of the GPU's kernel."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from rank_core.encoders.flat_attention import (
    Ends,
    Reach,
    attention_row_by_row,
    flash_attention,
    flat_attention,
)

LENGTHS = (3, 1, 5)
ALL = Reach(causal=False)


def ends(query=LENGTHS, key=LENGTHS):
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
    query, key, value = (flat(sum(LENGTHS), seed=seed) for seed in range(3))
    row = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS)).tolist()
    place = [p for length in LENGTHS for p in range(length)]
    allowed = torch.tensor(
        [
            [row[q] == row[k] and seen(place[q], place[k]) for k in range(len(row))]
            for q in range(len(row))
        ]
    )
    output = attention_row_by_row(query, key, value, ends(), reach, 0.0, None)
    assert_close(output, by_hand(query, key, value, allowed), atol=1e-6, rtol=1e-5)


def test_one_query_a_row_and_fewer_keys_than_heads():
    query, key, value = flat(3, heads=4), flat(9, seed=1), flat(9, seed=2)
    output = attention_row_by_row(query, key, value, ends((1, 1, 1)), ALL, 0.0, None)
    wide = [x.repeat_interleave(2, dim=1) for x in (key, value)]
    row = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))
    expected = by_hand(query, *wide, row == torch.arange(3)[:, None])
    assert_close(output, expected, atol=1e-6, rtol=1e-5)


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

    monkeypatch.setattr("rank_core.encoders.flat_attention.attention_row_by_row", attend)
    heads = [flat(9).transpose(0, 1)[None] for _ in range(3)]
    names = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
    places = dict(zip(names, own, strict=True))
    output, _ = flat_attention(module, *heads, None, 0.1, 0.5, **places, **extra)
    assert output.shape == (1, 9, 2, 8)
    [(same, own_reach, dropout, scale)] = told
    assert same == own and own_reach == reach and (dropout, scale) == (0.1, 0.5)


def test_dropout_in_training_keeps_the_mean():
    query, key, value = (flat(sum(LENGTHS), seed=seed) for seed in range(3))
    expected = attention_row_by_row(query, key, value, ends(), ALL, 0.0, None)
    torch.manual_seed(1)
    drawn = [attention_row_by_row(query, key, value, ends(), ALL, 0.3, None) for _ in range(200)]
    assert not torch.equal(drawn[0], drawn[1])
    assert_close(torch.stack(drawn).mean(0), expected, atol=0.2, rtol=0)
