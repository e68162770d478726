"""Pooling of token vectors into a row's vector, and of a document's chunks: x is x_BP or x_BPH, the
mask is mask_BP."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from rank_core.encoders.backbone_types import POOLINGS


def at_least_fp32(x: Tensor) -> Tensor:
    """`x` in fp32, or unchanged if its type is wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def row_vectors(hidden_CLH: Tensor, attention_mask_CL: Tensor | None, pooling: str) -> Tensor:
    """x_CH: the vector of the first token (`cls`), the mean of all tokens in fp32 (`mean`), or the
    vector of the last token (`last`). Padding is excluded. Any other name is of the modes of
    sentence-transformers' Pooling, joined by +, whose vectors are joined. `cls` needs no mask."""
    if pooling == "cls":
        return hidden_CLH[:, 0]
    assert attention_mask_CL is not None
    if pooling not in POOLINGS:
        features = {"token_embeddings": hidden_CLH, "attention_mask": attention_mask_CL}
        vectors: Tensor = _library_pooling(hidden_CLH.shape[-1], pooling)(features)[
            "sentence_embedding"
        ]
        return vectors
    if pooling == "last":
        row_C, place_L = (torch.arange(n, device=hidden_CLH.device) for n in hidden_CLH.shape[:2])
        return hidden_CLH[row_C, (attention_mask_CL * place_L).argmax(1)]
    wide_CLH = at_least_fp32(hidden_CLH)
    absent_CL1 = (attention_mask_CL == 0)[:, :, None]
    return wide_CLH.masked_fill(absent_CL1, 0.0).sum(1) / attention_mask_CL.sum(1, keepdim=True)


@lru_cache(maxsize=4)
def _library_pooling(size: int, pooling: str) -> Any:
    from sentence_transformers.sentence_transformer.modules import Pooling

    return Pooling(size, tuple(pooling.split("+")))


def first(x: Tensor, mask_BP: Tensor) -> Tensor:
    """The first chunk's value."""
    return x[:, 0]


def masked_max(x: Tensor, mask_BP: Tensor) -> Tensor:
    """The maximum over real chunks."""
    # amax shares the gradient among equal maxima; the padding's infinity never is one, as a
    # document has a chunk.
    return x.masked_fill(~_like(mask_BP, x), float("-inf")).amax(1)


def masked_sum(x: Tensor, mask_BP: Tensor) -> Tensor:
    """The sum over real chunks."""
    return x.masked_fill(~_like(mask_BP, x), 0.0).sum(1)


def masked_mean(x: Tensor, mask_BP: Tensor) -> Tensor:
    """The mean over the document's real chunks."""
    count_B = mask_BP.sum(1)
    return masked_sum(x, mask_BP) / count_B.view(-1, *(1,) * (x.dim() - 2))


def masked_top(x_BP: Tensor, mask_BP: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(top_BK, real_BK): the k largest values over real chunks in descending order; 0 where a
    document has fewer than k."""
    most = min(k, x_BP.shape[1])
    top_BK = x_BP.masked_fill(~mask_BP, float("-inf")).topk(most, dim=1).values
    real_BK = torch.arange(most, device=x_BP.device) < mask_BP.sum(1, keepdim=True)
    return top_BK.masked_fill(~real_BK, 0.0), real_BK


def masked_top_mean(x_BP: Tensor, mask_BP: Tensor, k: int) -> Tensor:
    """The mean of the k largest values, or of all if there are fewer."""
    top_BK, real_BK = masked_top(x_BP, mask_BP, k)
    return top_BK.sum(1) / real_BK.sum(1)


def masked_softmax(logit: Tensor, mask_BP: Tensor) -> Tensor:
    """Weights over real chunks that sum to 1; padding has weight 0."""
    return torch.softmax(logit.masked_fill(~_like(mask_BP, logit), float("-inf")), dim=1)


def _like(mask_BP: Tensor, x: Tensor) -> Tensor:
    return mask_BP if x.dim() == 2 else mask_BP[:, :, None]
