"""Word vectors in context: a small transformer whose output is mixed with its input (TK, Hofstätter
et al. 2020)."""

from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from rank_core.models.interaction.similarity import at_least_fp32

TEXT_START = 500
"""The position of a document's first token; queries begin at 0, so the two share no positions."""


class Contextualiser(nn.Module):
    """a x + (1 - a) transformer(x + positions), a = 0.5 at first; the same for query and text.

    2 layers of 300 inner numbers; 10 attention heads, or as many below as divide the vectors (10 of
    the paper's 300 numbers, 8 of 768).
    """

    NUM_LAYERS = 2
    MAX_HEADS = 10
    INNER_SIZE = 300

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = max(h for h in range(1, self.MAX_HEADS + 1) if size % h == 0)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(size, self.num_heads, self.INNER_SIZE, dropout)
            for _ in range(self.NUM_LAYERS)
        )
        self.mixing = nn.Parameter(torch.tensor([0.5]))

    def forward(self, x_BTH: Tensor, mask_BT: Tensor, start: int) -> Tensor:
        """y_BTH in fp32 or wider; `start` is the position of place 0. Nothing looks at padding."""
        # A row without any token may look at its padding: its output is masked anyway, but the
        # softmax over nothing would be no number.
        seen_BT = mask_BT | ~mask_BT.any(1, keepdim=True)
        positions_TH = sinusoids(start, x_BTH.shape[1], x_BTH.shape[2], x_BTH.device)
        y_BTH = x_BTH + positions_TH.to(x_BTH.dtype)
        for layer in self.layers:
            y_BTH = through(layer, y_BTH, seen_BT)  # type: ignore[arg-type]
        return self.mixing * at_least_fp32(x_BTH) + (1 - self.mixing) * at_least_fp32(y_BTH)


def through(layer: nn.TransformerEncoderLayer, x_BTH: Tensor, seen_BT: Tensor) -> Tensor:
    """What a layer makes of rows whose places all look at those seen.

    In evaluation torch's own forward pass writes out who looks at whom; the fused kernel, which it
    takes in training alone, needs a quarter of its time for 1,200 tokens on a CPU.
    """
    attention = layer.self_attn
    qkv = linear(x_BTH, attention.in_proj_weight, attention.in_proj_bias)
    query, key, value = qkv.unflatten(2, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    # No dropout of who looks at whom, only of what a layer hands on.
    mixed_BNTE = scaled_dot_product_attention(query, key, value, seen_BT[:, None, None])
    mixed_BTH = attention.out_proj(mixed_BNTE.transpose(1, 2).flatten(2))
    x_BTH = layer.norm1(x_BTH + layer.dropout1(mixed_BTH))
    inner_BTI = layer.dropout(torch.relu(layer.linear1(x_BTH)))
    out_BTH: Tensor = layer.norm2(x_BTH + layer.dropout2(layer.linear2(inner_BTI)))
    return out_BTH


def sinusoids(start: int, length: int, size: int, device: torch.device) -> Tensor:
    """position_TH = [sin(t w_i), cos(t w_i)] for t from `start` on and wavelengths from 2 pi to
    20,000 pi in a geometric row (Vaswani et al. 2017); an odd last number is 0."""
    num_waves = size // 2
    step = log(10_000) / max(1, num_waves - 1)
    frequency_W = torch.exp(-step * torch.arange(num_waves, device=device))
    angle_TW = torch.arange(start, start + length, device=device)[:, None] * frequency_W
    waves_TH = torch.cat([angle_TW.sin(), angle_TW.cos()], dim=1)
    return nn.functional.pad(waves_TH, (0, size % 2))
