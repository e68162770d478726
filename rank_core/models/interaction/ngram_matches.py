"""The strongest matches of n-grams in a similarity matrix (PACRR, Hui et al. 2017)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

LATER_IS_LESS = 1e-6
"""What a match loses against an earlier one per place, where matches are compared: more than
rounding errors, and too little to matter between matches that differ."""


class Matches(NamedTuple):
    """The k strongest matches of each query token, strongest first; 0 where there are fewer."""

    strength_BQk: Tensor
    place_BQk: Tensor  # in the text; any place where `found_BQk` is false
    found_BQk: Tensor


class NgramFilters(nn.Module):
    """An n x n convolution that starts at each pair of tokens, then its strongest filter."""

    def __init__(self, channels: int, filters: int, n: int) -> None:
        super().__init__()
        self.n = n
        self.filters = nn.Conv2d(channels, filters, n)

    def forward(self, similarity_BSQD: Tensor) -> Tensor:
        """strength_BQD >= 0 of matrices with S channels that are 0 where there is padding."""
        end = self.n - 1
        # Zeros after the end are what padding holds as well, so no score knows how much there is.
        strength_BFQD = self.filters(pad(similarity_BSQD, (0, end, 0, end)))
        return relu(strength_BFQD).amax(1)


def strongest(strength_BQD: Tensor, mask_BQD: Tensor, k: int) -> Matches:
    """The k largest strengths of each query token where the mask is true; of equals the earlier.

    A word that comes back is equally similar everywhere: what rounding makes of that, which depends
    on the batch, must not choose the place.
    """
    length = strength_BQD.shape[2]
    late_D = LATER_IS_LESS * torch.arange(length, device=strength_BQD.device)
    rank_BQD = (strength_BQD.detach() - late_D).masked_fill(~mask_BQD, float("-inf"))
    rank_BQk, place_BQk = pad(rank_BQD, (0, max(0, k - length)), value=-torch.inf).topk(k, dim=2)
    found_BQk = rank_BQk > float("-inf")
    place_BQk = place_BQk.clamp_max(length - 1)
    strength_BQk = strength_BQD.gather(2, place_BQk).masked_fill(~found_BQk, 0.0)
    return Matches(strength_BQk, place_BQk, found_BQk)
