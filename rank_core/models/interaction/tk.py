"""TK: contextualised word vectors compared by kernels (Hofstätter, Zlabinger & Hanbury 2020). TKL:
TK for long documents, scored by their most relevant regions (Hofstätter, Zamani, Mitra, Craswell &
Hanbury 2020)."""

from math import log, sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, linear, pad, scaled_dot_product_attention

from rank_core.encoders.backbone_types import Backbone
from rank_core.models.interaction.similarities import GaussianKernels, Terms, cosines
from rank_core.models.interaction.word_vectors import WordVectorRanker
from rank_core.models.poolings import at_least_fp32
from rank_core.settings.config import Model

TEXT_START = 500
"""Position of a document's first token; queries start at 0, so positions are not shared."""


class Contextualiser(nn.Module):
    """a x + (1 - a) transformer(x + positions), with a = 0.5 initially; shared by query and text.

    2 layers of inner size 300. The number of heads is the largest up to 10 that divides the vector
    size (10 for the paper's 300, 8 for 768).
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
        """y_BTH in fp32 or wider; `start` is the first position. Padding is not attended to."""
        # A row without tokens attends to its padding, because a softmax over nothing is NaN; its
        # output is masked.
        seen_BT = mask_BT | ~mask_BT.any(1, keepdim=True)
        positions_TH = sinusoids(start, x_BTH.shape[1], x_BTH.shape[2], x_BTH.device)
        y_BTH = x_BTH + positions_TH.to(x_BTH.dtype)
        for layer in self.layers:
            y_BTH = layer_output(layer, y_BTH, seen_BT)  # type: ignore[arg-type]
        return self.mixing * at_least_fp32(x_BTH) + (1 - self.mixing) * at_least_fp32(y_BTH)


def layer_output(layer: nn.TransformerEncoderLayer, x_BTH: Tensor, seen_BT: Tensor) -> Tensor:
    """out_BTH of a transformer layer in which all tokens attend to those of `seen_BT`.

    In evaluation torch's own forward pass materialises the attention weights; the fused kernel
    takes a quarter of the time for 1,200 tokens on a CPU.
    """
    attention = layer.self_attn
    qkv = linear(x_BTH, attention.in_proj_weight, attention.in_proj_bias)
    query, key, value = qkv.unflatten(2, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    # Dropout only on the layer's outputs, none on attention weights.
    mixed_BNTE = scaled_dot_product_attention(query, key, value, seen_BT[:, None, None])
    mixed_BTH = attention.out_proj(mixed_BNTE.transpose(1, 2).flatten(2))
    x_BTH = layer.norm1(x_BTH + layer.dropout1(mixed_BTH))
    inner_BTI = layer.dropout(torch.relu(layer.linear1(x_BTH)))
    return layer.norm2(x_BTH + layer.dropout2(layer.linear2(inner_BTI)))


def sinusoids(start: int, length: int, size: int, device: torch.device) -> Tensor:
    """position_TH = [sin(t w_i), cos(t w_i)] for t from `start` on, with wavelengths from 2 pi to
    20,000 pi in geometric progression (Vaswani et al. 2017); an odd last dimension is 0."""
    num_waves = size // 2
    step = log(10_000) / max(1, num_waves - 1)
    frequency_W = torch.exp(-step * torch.arange(num_waves, device=device))
    angle_TW = torch.arange(start, start + length, device=device)[:, None] * frequency_W
    waves_TH = torch.cat([angle_TW.sin(), angle_TW.cos()], dim=1)
    return nn.functional.pad(waves_TH, (0, size % 2))


MU = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
SIGMA = 0.1


class KernelScorer(WordVectorRanker):
    """Contextualiser, fixed kernels and a linear layer over the kernels.

    Positions have a root mean square of 0.7, the transformer's output 1, but BERT's word vectors
    0.05 (GloVe's 0.4). They are scaled up by the factor that makes the initial table as large as
    the positions.
    """

    scale: Tensor

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        table: Tensor = self.encoder.weight  # type: ignore[assignment]
        size = table.detach().square().mean().sqrt()
        self.register_buffer("scale", sqrt(0.5) / size)
        self.context = Contextualiser(self.size, settings.dropout)
        self.kernels = GaussianKernels(MU, [SIGMA] * len(MU), trainable=False)
        self.head = nn.Linear(len(MU), 1, bias=False)
        nn.init.uniform_(self.head.weight, -0.014, 0.014)

    def in_size(self, ids_BT: Tensor) -> Tensor:
        """x_BTH: word vectors, scaled to the size of positions."""
        return self.encoder(ids_BT) * self.scale


class TK(KernelScorer):
    """score = w . sum over query tokens of log max(1e-10, soft count of each kernel).

    Omitted are the paper's second, length-normalised sum, as in the authors' later code, and that
    code's learned factor per kernel (kernel_alpha_scaler, 1 initially). Dropout acts inside the
    transformer; the authors use none.
    """

    label = "TK"
    paper = "Hofstätter et al. 2020a"

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """score_B from kernel-pooled similarities of contextual vectors."""
        query_BQH = self.context(self.in_size(query_ids_BQ), terms.query_mask_BQ, 0)
        text_BDH = self.context(self.in_size(text_ids_BD), terms.text_mask_BD, TEXT_START)
        with torch.autocast(query_BQH.device.type, enabled=False):
            count_BQK = self.kernels(cosines(query_BQH, text_BDH), terms.text_mask_BD)
            log_BQK = torch.log(at_least_fp32(count_BQK).clamp_min(1e-10))
            sum_BK = log_BQK.masked_fill(~terms.query_mask_BQ[:, :, None], 0.0).sum(1)
            return self.head(sum_BK).squeeze(1)


PIECE = 40  # tokens that attend to each other,
OVERLAP = 5  # and to so many on either side
WINDOW = 30  # tokens over which activations are summed
STEP = 2  # tokens between the starts of consecutive windows
NUM_PEAKS = 3
NEIGHBOURS = (0, -1, 1, -2, 2)  # windows around a peak that count, as offsets


class Windows(NamedTuple):
    """Sums over a document's sliding windows."""

    count_BQWK: Tensor
    length_BW: Tensor  # real tokens of each
    mask_BW: Tensor


class TKL(KernelScorer):
    """score = the weighted sum over the 3 best non-overlapping windows and 2 neighbours on either
    side of each; weights are learned.

    A window's score is w . sum over query tokens of s1 count^(1 / s2) - s3, where s1, s2, s3 are
    linear in the token's importance (a learned function of its vector) and the window's length.
    Unlike here, the published code normalises these two numbers together, which keeps only a sign;
    learns positions within a piece; counts another window twice in place of a missing peak or
    neighbour, which counts 0 here; scores windows beyond the end of the text, often as peaks; and
    drops the last 1 to 4 tokens of texts that exceed a whole number of pieces by so many.
    """

    label = "TKL"
    paper = "Hofstätter et al. 2020b"

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.token_importance = nn.Linear(self.size, 1, bias=False)
        self.saturation = nn.Linear(2, 3)  # s1, s2, s3 = 100: count^0.01 behaves like a logarithm
        nn.init.uniform_(self.saturation.weight, -0.014, 0.014)
        nn.init.constant_(self.saturation.bias, 100.0)
        self.peak_weights = nn.Parameter(torch.ones(len(NEIGHBOURS), NUM_PEAKS))

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """score_B, the sum over the peaks."""
        query_BQH = self.context(self.in_size(query_ids_BQ), terms.query_mask_BQ, 0)
        text_BDH = self.in_pieces(self.in_size(text_ids_BD), terms.text_mask_BD)
        with torch.autocast(query_BQH.device.type, enabled=False):
            near_BQDK = self.kernels.activations(cosines(query_BQH, text_BDH))
            windows = slide(near_BQDK, terms.text_mask_BD)
            score_BW = self.window_scores(query_BQH, terms.query_mask_BQ, windows)
            place_BNP, real_BNP = peaks(score_BW, windows.mask_BW)
            peak_BNP = score_BW.gather(1, place_BNP.flatten(1)).view(place_BNP.shape)
            return (self.peak_weights * peak_BNP.masked_fill(~real_BNP, 0.0)).sum((1, 2))

    def in_pieces(self, text_BDH: Tensor, mask_BD: Tensor) -> Tensor:
        """text_BDH contextualised piece by piece, with the same positions in every piece."""
        num_docs, length, _ = text_BDH.shape
        after = OVERLAP - length % -PIECE  # to the end of the last piece, and its overlap
        padded_BDH = pad(text_BDH, (0, 0, OVERLAP, after))
        padded_BD = pad(mask_BD, (OVERLAP, after))
        whole = PIECE + 2 * OVERLAP
        piece_NTH = padded_BDH.unfold(1, whole, PIECE).transpose(2, 3).flatten(0, 1)
        mask_NT = padded_BD.unfold(1, whole, PIECE).flatten(0, 1)
        context_NTH = self.context(piece_NTH, mask_NT, TEXT_START)[:, OVERLAP:-OVERLAP]
        return context_NTH.reshape(num_docs, -1, text_BDH.shape[2])[:, :length]

    def window_scores(self, query_BQH: Tensor, mask_BQ: Tensor, windows: Windows) -> Tensor:
        """score_BW."""
        importance_BQW = self.token_importance(query_BQH).expand(-1, -1, windows.length_BW.shape[1])
        length_BQW = windows.length_BW[:, None].expand_as(importance_BQW)
        s_BQW3 = self.saturation(torch.stack([importance_BQW, length_BQW], dim=3))
        s1, s2, s3 = s_BQW3[..., None, :].unbind(-1)
        value_BQWK = s1 * windows.count_BQWK.clamp_min(1e-10) ** (1 / s2) - s3
        sum_BWK = value_BQWK.masked_fill(~mask_BQ[:, :, None, None], 0.0).sum(1)
        return self.head(sum_BWK).squeeze(2)


def slide(near_BQDK: Tensor, mask_BD: Tensor) -> Windows:
    """Sums over windows starting every STEP tokens, up to the first that reaches the end."""
    num_docs, num_query, length, num_kernels = near_BQDK.shape
    length_B = mask_BD.sum(1)
    count_B = ((length_B - WINDOW).clamp_min(0) + STEP - 1).div(STEP, rounding_mode="floor") + 1
    num_windows = -(-max(0, length - WINDOW) // STEP) + 1
    after = (num_windows - 1) * STEP + WINDOW - length
    near = near_BQDK.masked_fill(~mask_BD[:, None, :, None], 0.0)
    rows = near.transpose(2, 3).reshape(num_docs, num_query * num_kernels, length)
    sums = avg_pool1d(pad(rows, (0, after)), WINDOW, STEP) * WINDOW
    count_BQWK = sums.view(num_docs, num_query, num_kernels, num_windows).transpose(2, 3)
    window_W = torch.arange(num_windows, device=mask_BD.device)
    length_BW = (length_B[:, None] - window_W * STEP).clamp(0, WINDOW)
    return Windows(count_BQWK, length_BW.to(near.dtype), window_W < count_B[:, None])


def peaks(score_BW: Tensor, mask_BW: Tensor) -> tuple[Tensor, Tensor]:
    """(place_BNP, real_BNP): the best windows without overlap, each with its NEIGHBOURS; short
    documents have fewer."""
    window_W = torch.arange(score_BW.shape[1], device=score_BW.device)
    left_BW = score_BW.detach().masked_fill(~mask_BW, float("-inf"))
    places, reals = [], []
    for _ in range(NUM_PEAKS):
        best_B1 = left_BW.argmax(1, keepdim=True)
        reals.append(left_BW.gather(1, best_B1) > float("-inf"))
        places.append(best_B1)
        left_BW = left_BW.masked_fill((window_W - best_B1).abs() * STEP < WINDOW, float("-inf"))
    place_B1P, real_B1P = torch.stack(places, dim=2), torch.stack(reals, dim=2)
    place_BNP = place_B1P + torch.tensor(NEIGHBOURS, device=score_BW.device)[None, :, None]
    last_B11 = mask_BW.sum(1)[:, None, None] - 1
    real_BNP = real_B1P & (place_BNP >= 0) & (place_BNP <= last_B11)
    return place_BNP.clamp(0, score_BW.shape[1] - 1), real_BNP
