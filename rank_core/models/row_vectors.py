"""From the tokens of a row to the one vector that stands for it."""

import torch
from torch import Tensor


def row_vectors(hidden_CLH: Tensor, attention_mask_CL: Tensor, pooling: str) -> Tensor:
    """x_CH: the first token's vector (cls), the mean of all real ones in fp32 (mean), or that of
    the last real one (last)."""
    if pooling == "cls":
        return hidden_CLH[:, 0]
    length_C = attention_mask_CL.sum(1)
    if pooling == "last":
        row_C = torch.arange(len(hidden_CLH), device=hidden_CLH.device)
        return hidden_CLH[row_C, length_C - 1]
    wide_CLH = hidden_CLH.to(torch.promote_types(hidden_CLH.dtype, torch.float32))
    absent_CL1 = (attention_mask_CL == 0)[:, :, None]
    return wide_CLH.masked_fill(absent_CL1, 0.0).sum(1) / length_C[:, None]
