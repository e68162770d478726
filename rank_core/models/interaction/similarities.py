"""Similarities of query and document tokens: positions in a batch, cosines, kernels, n-grams.

Shapes: B documents, C rows of the encoder, L tokens of a row, Q query tokens, D tokens of a whole
document, H vector size.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from rank_core.chunking.batches import ChunkBatch
from rank_core.errors import BadInput
from rank_core.models.poolings import at_least_fp32
from rank_core.models.readers import first_rows
from rank_core.settings.config import TrialConfig


class Terms(NamedTuple):
    """Positions of the query (in a document's first row) and of the document (in all its rows).

    A position is row * L + column. Padding has position 0 and a false mask; Q and D are at least 1,
    so that no axis is empty.
    """

    query_BQ: Tensor
    query_mask_BQ: Tensor
    text_BD: Tensor
    text_mask_BD: Tensor


def terms_of(batch: ChunkBatch) -> Terms:
    """The positions of the tokens of a batch of documents."""
    sizes, width = batch.inputs.sizes, batch.inputs.input_ids_CL.shape[1]
    queries, texts = [], []
    for first, count in zip(first_rows(batch.counts), batch.counts, strict=True):
        queries.append(first * width + 1 + np.arange(sizes[first].num_query))
        # A document's rows are adjacent, so positions in order are its tokens in order.
        own = range(first, first + count)
        starts = [row * width + 2 + sizes[row].num_query for row in own]
        places = [at + np.arange(sizes[row].num_text) for at, row in zip(starts, own, strict=True)]
        texts.append(np.concatenate(places))
    device = batch.inputs.input_ids_CL.device
    return Terms(*_places(queries, device), *_places(texts, device))


def _places(places: Sequence[NDArray[np.int64]], device: torch.device) -> tuple[Tensor, Tensor]:
    """(place_BT, mask_BT) of lists of positions, on a device."""
    place_BT = np.zeros((len(places), max(1, *map(len, places))), dtype=np.int64)
    mask_BT = np.zeros(place_BT.shape, dtype=bool)
    for row, own in enumerate(places):
        place_BT[row, : len(own)] = own
        mask_BT[row, : len(own)] = True
    place, mask = (torch.from_numpy(x).to(device, non_blocking=True) for x in (place_BT, mask_BT))
    return place, mask


def take(x_CL: Tensor, place_BT: Tensor) -> Tensor:
    """x_BT (or x_BTH of an x_CLH): the values at positions of a batch."""
    return x_CL.flatten(0, 1)[place_BT]


def cosines(query_BQH: Tensor, text_BDH: Tensor) -> Tensor:
    """cos_BQD, in fp32 also under autocast. 1e-9 is added to each norm, as in CEDR: a zero vector
    has similarity 0."""
    with torch.autocast(query_BQH.device.type, enabled=False):
        query, text = (at_least_fp32(x) for x in (query_BQH, text_BDH))
        query = query / (query.norm(dim=-1, keepdim=True) + 1e-9)
        text = text / (text.norm(dim=-1, keepdim=True) + 1e-9)
        return query @ text.transpose(1, 2)


def pair_mask(terms: Terms) -> Tensor:
    """mask_BQD, true for a real query token and a real document token."""
    return terms.query_mask_BQ[:, :, None] & terms.text_mask_BD[:, None, :]


SMALLEST_VARIANCE = 1e-8
"""A trained width may shrink to 0, where the kernel has no derivative."""


class GaussianKernels(nn.Module):
    """exp(-(x - mu_k)^2 / (2 sigma_k^2)) for kernels k = 1..K (K-NRM, Xiong et al. 2017)."""

    mu_K: Tensor
    sigma_K: Tensor

    def __init__(self, mu: Sequence[float], sigma: Sequence[float], *, trainable: bool) -> None:
        super().__init__()
        for name, values in (("mu_K", mu), ("sigma_K", sigma)):
            if trainable:
                setattr(self, name, nn.Parameter(torch.tensor(values)))
            else:
                self.register_buffer(name, torch.tensor(values))

    def activations(self, similarity: Tensor) -> Tensor:
        """The kernels' activations for each similarity, on a new last axis K."""
        variance_K = self.sigma_K.square().clamp_min(SMALLEST_VARIANCE)
        return torch.exp(-(similarity[..., None] - self.mu_K).square() / (2 * variance_K))

    def forward(self, similarity_BQD: Tensor, text_mask_BD: Tensor) -> Tensor:
        """count_BQK: each query token's activations, summed over the document's tokens."""
        near_BQDK = self.activations(similarity_BQD)
        return near_BQDK.masked_fill(~text_mask_BD[:, None, :, None], 0.0).sum(2)


ROUNDING = 1e-6
"""Relative difference (absolute below 1) up to which two strengths are equal."""


class Matches(NamedTuple):
    """The k strongest matches of each query token in descending order; 0 if there are fewer."""

    strength_BQk: Tensor
    place_BQk: Tensor  # in the document; arbitrary where `real_BQk` is false
    real_BQk: Tensor


class NgramFilters(nn.Module):
    """An n x n convolution starting at each pair of tokens, then the maximum over filters."""

    def __init__(self, channels: int, filters: int, n: int) -> None:
        super().__init__()
        self.n = n
        self.filters = nn.Conv2d(channels, filters, n)

    def forward(self, similarity_BSQD: Tensor) -> Tensor:
        """strength_BQD >= 0 of matrices with S channels, which must be 0 at padding."""
        end = self.n - 1
        # Zero padding, as at padded tokens, so that scores do not depend on the amount of padding.
        strength_BFQD = self.filters(pad(similarity_BSQD, (0, end, 0, end)))
        return relu(strength_BFQD).amax(1)


def strongest(strength_BQD: Tensor, mask_BQD: Tensor, k: int) -> Matches:
    """The k largest strengths of each query token where the mask is true; among equals the earlier.

    A repeated word has the same similarity everywhere up to rounding, which depends on the batch
    and must not choose the position.
    """
    left_BQD = strength_BQD.detach().masked_fill(~mask_BQD, -torch.inf)
    places, reals = [], []
    for _ in range(k):
        largest_BQ1 = left_BQD.amax(2, keepdim=True)
        equal_BQD = left_BQD >= largest_BQ1 - ROUNDING * largest_BQ1.abs().clamp_min(1)
        # Of several maxima, `argmax` finds the first.
        places.append(equal_BQD.byte().argmax(2, keepdim=True))
        reals.append(largest_BQ1 > -torch.inf)
        left_BQD.scatter_(2, places[-1], -torch.inf)
    place_BQk, real_BQk = torch.cat(places, 2), torch.cat(reals, 2)
    strength_BQk = strength_BQD.gather(2, place_BQk).masked_fill(~real_BQk, 0.0)
    return Matches(strength_BQk, place_BQk, real_BQk)


MAX_QUERY = 32
"""Maximum number of query tokens of layers with weights per token, the largest in the papers."""


def at_fixed_length(x_BQF: Tensor) -> Tensor:
    """x_BQF padded with zeros to MAX_QUERY query tokens."""
    return pad(x_BQF, (0, 0, 0, MAX_QUERY - x_BQF.shape[1]))


def check_query_length(config: TrialConfig) -> None:
    """Raises `BadInput` if queries may have more than MAX_QUERY tokens."""
    if config.chunking.max_query_tokens > MAX_QUERY:
        raise BadInput(
            f"chunking.max_query_tokens <= {MAX_QUERY} must hold for model {config.model.name}, "
            "which has separate weights for each query token, got "
            f"chunking.max_query_tokens={config.chunking.max_query_tokens}"
        )
