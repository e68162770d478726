"""TKL: TK for long documents; the score is that of their densest regions (Hofstätter, Zamani,
Mitra, Craswell & Hanbury 2020)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, pad

from rank_core.encoders.backbone_types import Backbone
from rank_core.models.interaction.contextualise import TEXT_START
from rank_core.models.interaction.similarity import Terms, cosines
from rank_core.models.interaction.tk import KernelScorer
from rank_core.settings.config import Model

PIECE = 40  # tokens that see each other,
OVERLAP = 5  # and those on either side that they see too
WINDOW = 30  # tokens whose activations are added up
STEP = 2  # tokens between the starts of neighbouring windows
NUM_PEAKS = 3
NEIGHBOURS = (0, -1, 1, -2, 2)  # windows of a peak that count, from its own


class Windows(NamedTuple):
    """Sums over a document's sliding windows."""

    count_BQWK: Tensor
    length_BW: Tensor  # real tokens of each
    mask_BW: Tensor


class TKL(KernelScorer):
    """score = sum over the 3 best windows that do not overlap, and 2 neighbours on either side, of
    a learned weight times the window's score.

    A window's score is w . sum over query tokens of s1 count^(1 / s2) - s3, with s1, s2, s3 linear
    in the token (one number of its vector) and the window's length. Where the published code
    differs: it normalises these two numbers together, which leaves only a sign of them; it learns
    the positions inside a piece; and where a document has no third peak or a peak no neighbour it
    counts another window twice, while here what is missing counts 0.
    """

    label = "TKL"
    paper = "Hofstätter et al. 2020b"

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.token_importance = nn.Linear(self.size, 1, bias=False)
        self.saturation = nn.Linear(2, 3)  # s1, s2, s3 = 100: count^0.01 moves like a logarithm
        nn.init.uniform_(self.saturation.weight, -0.014, 0.014)
        nn.init.constant_(self.saturation.bias, 100.0)
        self.peak_weights = nn.Parameter(torch.ones(len(NEIGHBOURS), NUM_PEAKS))

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """Finds the peaks and adds them up."""
        query_BQH = self.context(self.in_size(query_ids_BQ), terms.query_mask_BQ, 0)
        text_BDH = self.in_pieces(self.in_size(text_ids_BD), terms.text_mask_BD)
        with torch.autocast(query_BQH.device.type, enabled=False):
            near_BQDK = self.kernels.activations(cosines(query_BQH, text_BDH))
            windows = slide(near_BQDK, terms.text_mask_BD)
            score_BW = self.window_scores(query_BQH, terms.query_mask_BQ, windows)
            place_BNP, found_BNP = peaks(score_BW, windows.mask_BW)
            peak_BNP = score_BW.gather(1, place_BNP.flatten(1)).view(place_BNP.shape)
            return (self.peak_weights * peak_BNP.masked_fill(~found_BNP, 0.0)).sum((1, 2))

    def in_pieces(self, text_BDH: Tensor, mask_BD: Tensor) -> Tensor:
        """text_BDH in context, piece by piece; every piece has the same positions."""
        num_docs, length, _ = text_BDH.shape
        after = OVERLAP - length % -PIECE  # up to the end of the last piece, and its overlap
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
        score_BW: Tensor = self.head(sum_BWK).squeeze(2)
        return score_BW


def slide(near_BQDK: Tensor, mask_BD: Tensor) -> Windows:
    """Sums over windows that start every STEP tokens until one reaches the document's end."""
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
    """(place_BNP, found_BNP): the best windows that share no token with a better peak, each with
    its NEIGHBOURS; not all are found in short documents."""
    window_W = torch.arange(score_BW.shape[1], device=score_BW.device)
    left_BW = score_BW.detach().masked_fill(~mask_BW, float("-inf"))
    places, founds = [], []
    for _ in range(NUM_PEAKS):
        best_B1 = left_BW.argmax(1, keepdim=True)
        founds.append(left_BW.gather(1, best_B1) > float("-inf"))
        places.append(best_B1)
        left_BW = left_BW.masked_fill((window_W - best_B1).abs() * STEP < WINDOW, float("-inf"))
    place_B1P, found_B1P = torch.stack(places, dim=2), torch.stack(founds, dim=2)
    place_BNP = place_B1P + torch.tensor(NEIGHBOURS, device=score_BW.device)[None, :, None]
    last_B11 = mask_BW.sum(1)[:, None, None] - 1
    found_BNP = found_B1P & (place_BNP >= 0) & (place_BNP <= last_B11)
    return place_BNP.clamp(0, score_BW.shape[1] - 1), found_BNP
