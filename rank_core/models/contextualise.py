"""Word vectors in context: a small transformer whose output is mixed with its input (TK, Hofstätter
et al. 2020)."""

from math import log

import torch
from torch import Tensor, nn

from rank_core.models.similarity import at_least_fp32

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
            _layer(size, self.num_heads, self.INNER_SIZE, dropout) for _ in range(self.NUM_LAYERS)
        )
        self.mixing = nn.Parameter(torch.tensor([0.5]))

    def forward(self, x_BTH: Tensor, mask_BT: Tensor, start: int) -> Tensor:
        """y_BTH in fp32 or wider; `start` is the position of place 0. Nothing looks at padding."""
        absent_BT = ~mask_BT
        # A row without any token may look at its padding: its output is masked anyway, but the
        # softmax over nothing would be no number.
        absent_BT = absent_BT & mask_BT.any(1, keepdim=True)
        positions_TH = sinusoids(start, x_BTH.shape[1], x_BTH.shape[2], x_BTH.device)
        y_BTH = x_BTH + positions_TH.to(x_BTH.dtype)
        for layer in self.layers:
            y_BTH = layer(y_BTH, src_key_padding_mask=absent_BT)
        return self.mixing * at_least_fp32(x_BTH) + (1 - self.mixing) * at_least_fp32(y_BTH)


def _layer(size: int, num_heads: int, inner_size: int, dropout: float) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        size, num_heads, inner_size, dropout=dropout, batch_first=True
    )
    # Dropout of what a layer hands on, not of who looks at whom.
    layer.self_attn.dropout = 0.0
    return layer


def sinusoids(start: int, length: int, size: int, device: torch.device) -> Tensor:
    """position_TH = [sin(t w_i), cos(t w_i)] for t from `start` on and wavelengths from 2 pi to
    20,000 pi in a geometric row (Vaswani et al. 2017); an odd last number is 0."""
    num_waves = size // 2
    step = log(10_000) / max(1, num_waves - 1)
    frequency_W = torch.exp(-step * torch.arange(num_waves, device=device))
    angle_TW = torch.arange(start, start + length, device=device)[:, None] * frequency_W
    waves_TH = torch.cat([angle_TW.sin(), angle_TW.cos()], dim=1)
    return nn.functional.pad(waves_TH, (0, size % 2))
