"""Flat rows in 16 bits, against padded rows and against fp32 on a CPU: gradients, dropout, losses.

On a GPU encoders read flat rows where the product lets them; on a CPU, where it never does, all
that can are told to. Both follow `RANKSWEEP_FAST_PATHS=off`.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from rank_core.encoders import flat_rows, packed
from rank_core.encoders.flat_rows import Ends, Reach
from rank_core.models import cedr
from rank_core.ranking.encode import Work
from rank_core.training.train import train
from tests.gpu.work import STREAMS, Parts, parts, queries

SMOOTH = ("avgp", "cedr-knrm", "firstp", "mores", "parade-attn", "parade-transformer", "sump")
"""Models that choose no chunk or token, as rounding could choose another: they read [CLS] alone,
all tokens, or all layers."""
COSINE, NORM = 0.999, 0.01  # of a parameter's gradient; the norms' ratio is 1 +- this
SMALL = 1e-3  # of the largest parameter's gradient: below it, rounding is all that is left
RATE = 0.1
STEP = 1 / 256  # flash attention draws 8 bits for each weight
NUM_ERRORS = 3  # standard errors
NUM_STEPS = 20
CURVES = {"parade-transformer": 2e-3, "sump": 2e-2}
"""{model: the difference of a loss that rounding in 16 bits leaves}; wrong gradients leave more."""
NUM_TOKENS = 2048


@contextlib.contextmanager
def sums_of_a_gpu(device: torch.device) -> Iterator[None]:
    """Lets a CPU's norms sum in fp32, as those of a GPU do; in 16 bits the sum over all tokens, the
    gradient of their bias, would be wrong by a tenth."""

    def in_fp32(x: Tensor, shape: Any, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        return layer_norm(x.float(), shape, weight.float(), bias.float(), epsilon).to(x.dtype)

    with contextlib.ExitStack() as stack:
        if device.type != "cuda":
            stack.enter_context(patch.object(packed, "layer_norm", in_fp32))
        yield


def smooth_counts(cos_BQD: Tensor, text_mask_BD: Tensor, num_bins: int) -> Tensor:
    """count_BQN from 1, where a similarity counts in the two bins that it is between."""
    place_BQD1 = ((cos_BQD + 1) / 2 * (num_bins - 1)).clamp(0, num_bins - 1).unsqueeze(-1)
    share_BQDN = (1 - (place_BQD1 - torch.arange(num_bins).to(place_BQD1)).abs()).clamp(min=0)
    return 1 + (share_BQDN * text_mask_BD[:, None, :, None].to(share_BQDN)).sum(2)


def without_steps() -> Any:
    """Lets CEDR-DRMM count smoothly: where rounding moves a similarity to the next bin, its score
    jumps, on any device."""
    return patch.object(cedr, "histogram", smooth_counts)


def reads(some: Parts, *, flat: bool) -> bool:
    """Makes a model read flat rows, or padded ones; false if it then reads padded ones."""
    as_decided = None if some.model.device.type == "cuda" else True
    some.read(flat=as_decided if flat else False)
    return some.model.packs(torch.bfloat16)


def gradients(some: Parts, number: torch.dtype | None) -> dict[str, Tensor]:
    """{parameter: its gradient, of a weighted mean of the scores}, in fp32 on the host."""
    model = some.model.train()
    score_B = some.scores(number)
    loss = (score_B * torch.linspace(0.5, 1.5, len(score_B), device=score_B.device)).mean()
    (loss + (0 if model.extra_loss is None else model.extra_loss)).backward()
    model.extra_loss = None
    return {name: p.grad.float().cpu() for name, p in model.trainable() if p.grad is not None}


def wrong_gradients(
    found: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    *,
    least_cosine: float = COSINE,
    most_norm: float = NORM,
) -> dict[str, str]:
    """{parameter: what is wrong with its gradient}."""
    if found.keys() != expected.keys():
        return dict.fromkeys(found.keys() ^ expected.keys(), "only one of both has a gradient")
    largest, wrong = max(float(gradient.norm()) for gradient in expected.values()), {}
    for name, wanted in expected.items():
        one, other = found[name].double().flatten(), wanted.double().flatten()
        if float(other.norm()) < SMALL * largest:
            if not float((one - other).norm()) < SMALL * largest:
                wrong[name] = f"differs by {float((one - other).norm()) / largest:.1e} of the most"
            continue
        cosine, ratio = float(torch.cosine_similarity(one, other, 0)), one.norm() / other.norm()
        if not (cosine > least_cosine and abs(ratio - 1) < most_norm):
            wrong[name] = f"cosine {cosine:.5f}, norm times {ratio:.4f}"
    return wrong


class Attention(NamedTuple):
    """What attention of some rows computes with dropout, on the host."""

    weight_THK: Tensor  # with dropout: 0 where it was dropped
    whole_THK: Tensor  # without
    real_THK: Tensor  # keys of the token's own row
    found: dict[str, Tensor]  # gradients of queries, keys and values
    expected: dict[str, Tensor]  # from the same weights, in fp32


def attention(device: torch.device, number: torch.dtype) -> Attention:
    """Attention with dropout over flat rows. The value of a token is 1 at its place in the row
    alone, so that outputs are the weights themselves."""
    lengths, heads, size = (64, 40, 1, 23, 64, 57, 33, 64), 4, 64
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(sum(lengths), heads, size, generator=generator) for _ in range(3)]
    place_T = torch.cat([torch.arange(length) for length in lengths])
    value = torch.nn.functional.one_hot(place_T, size)[:, None].expand(-1, heads, -1)
    query, key, value = ([*made[:2], value][i].to(device, number) for i in range(3))
    inputs = {"query": query, "key": key, "value": value}
    for x in inputs.values():
        x.requires_grad_()
    starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device=device)
    ends = Ends(starts, starts, max(lengths), max(lengths))
    on_gpu = device.type == "cuda"
    attend = flat_rows.flash_attention if on_gpu else flat_rows.attention_row_by_row
    torch.manual_seed(2)
    output = attend(query, key, value, ends, Reach(causal=False), RATE, None)
    output.backward(made[2].to(output))
    found = {name: x.grad.float().cpu() for name, x in inputs.items() if x.grad is not None}
    weight_THK = output.detach().float().cpu()
    exact = {name: x.detach().float().cpu().requires_grad_() for name, x in inputs.items()}
    whole_THK, outputs = [], []
    for rows in torch.arange(sum(lengths)).split(lengths):
        score = torch.einsum("qhd,khd->qhk", exact["query"][rows], exact["key"][rows])
        whole = (score / math.sqrt(size)).softmax(-1)
        whole_THK.append(torch.nn.functional.pad(whole.detach(), (0, size - len(rows))))
        kept = (weight_THK[rows][..., : len(rows)] != 0) / (1 - RATE)
        outputs.append(torch.einsum("qhk,khd->qhd", whole * kept, exact["value"][rows]))
    torch.cat(outputs).backward(made[2].to(number).float())
    expected = {name: x.grad for name, x in exact.items() if x.grad is not None}
    whole = torch.cat(whole_THK)
    return Attention(weight_THK, whole, whole > 0, found, expected)


def wrong_dropout(a: Attention) -> dict[str, str]:
    """{part: what is wrong with attention's dropout, forward or backward}."""
    weights, wrong = a.weight_THK[a.real_THK], {}
    dropped = float((weights == 0).float().mean())
    error = math.sqrt(RATE * (1 - RATE) / len(weights))
    if not abs(dropped - RATE) < NUM_ERRORS * error + STEP:
        wrong["share"] = f"{dropped:.4f} of the weights are dropped, not {RATE}"
    if a.weight_THK[~a.real_THK].any():
        wrong["rows"] = "tokens attend to another row"
    kept, whole = weights[weights != 0] * (1 - RATE), a.whole_THK[a.real_THK][weights != 0]
    if not bool(((kept - whole).abs() < 0.02 * whole + 1e-4).all()):
        wrong["scale"] = f"what is kept is times {float((kept / whole).mean()):.3f}"
    return wrong | wrong_gradients(a.found, a.expected)


def hidden_dropout(device: torch.device, number: torch.dtype, place: str) -> tuple[Tensor, Tensor]:
    """(what dropout made of ones, which of them pass a gradient) in a layer's first (`out`) or
    second (`down`) dropout, compiled where the product compiles it.

    Even features come from the residual as +-1 and tell the shift and scale of the norm; odd ones
    are +-1 and pass the dropout."""
    size = 64
    sign_H = torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(size // 4)
    even_H, odd_H = sign_H * (torch.arange(size) % 2 == 0), sign_H * (torch.arange(size) % 2)
    own = {name: torch.zeros(size) for name in packed.Weights._fields}
    own |= {f"{name}_weight": torch.zeros(size, size) for name in ("qkv", "out", "up", "down")}
    own |= {name: torch.ones(size) for name in ("norm_weight", "last_norm_weight")}
    if place == "out":
        own["out_weight"] = torch.eye(size)
    else:
        own["down_bias"] = odd_H * math.sqrt(2)  # the first norm scales the residual so
    made = {name: x.to(device, number).requires_grad_() for name, x in own.items()}
    weights, constants = packed.Weights(**made), packed.Constants(16, gelu, 1e-12, 0.0, RATE)
    parts = (even_H, odd_H * (place == "out"))
    x_TH, context_TH = (
        x_H.to(device, number).repeat(NUM_TOKENS, 1).requires_grad_() for x_H in parts
    )
    finish = packed._finish_of(x_TH, weights, constants)
    torch.manual_seed(4)
    y_TH = finish(x_TH, context_TH, weights, constants)
    y_TH.backward(torch.randn(y_TH.shape).to(y_TH))
    assert context_TH.grad is not None
    y_TH = y_TH.detach().float().cpu()
    high_T, low_T = (y_TH[:, even_H == sign].mean(1) for sign in (1, -1))
    one_T, zero_T = (high_T - low_T) / 2, (high_T + low_T) / 2
    odd_TH = ((y_TH - zero_T[:, None]) / one_T[:, None] * sign_H)[:, 1::2]
    return odd_TH, context_TH.grad.cpu()[:, 1::2] != 0


def wrong_hidden_dropout(device: torch.device, number: torch.dtype) -> dict[str, str]:
    """{part: what is wrong with the dropouts of a layer's outputs}."""
    wrong = {}
    for place in ("out", "down"):
        made_TH, passes_TH = hidden_dropout(device, number, place)
        kept_TH = made_TH.abs() > 0.5
        dropped, error = float((~kept_TH).float().mean()), math.sqrt(RATE / kept_TH.numel())
        if not abs(dropped - RATE) < NUM_ERRORS * error:
            wrong[f"{place} share"] = f"{dropped:.4f} is dropped, not {RATE}"
        scale = float(made_TH[kept_TH].mean()) * (1 - RATE)
        if not abs(scale - 1) < 0.01:
            wrong[f"{place} scale"] = f"what is kept is times {scale:.3f}"
        if place == "out" and not torch.equal(passes_TH, kept_TH):
            wrong[f"{place} gradient"] = "it does not pass where the value does"
    return wrong


def losses(name: str, backbone: Any, device: torch.device, **how: Any) -> list[float]:
    """The losses of `NUM_STEPS` steps; `flat` and `autocast` as wanted (default: padded, fp32)."""
    settings = {"training.max_steps": NUM_STEPS, "training.num_epochs": 40}
    settings |= {"training.batch_size": 4, "training.micro_batch_tokens": 500}
    some = parts(name, backbone, device, settings)
    reads(some, flat=how.get("flat", False))
    kinds = {"streams": STREAMS, "autocast": how.get("autocast"), "work": Work()}
    records = train(some.model, some.pairs, queries(), some.config.training, **kinds)
    return [point.loss for record in records for point in record.curve]
