"""Training losses over (positive, negative) pairs; N pairs of a micro-batch."""

import torch
from torch import Tensor


def pairwise_margin(positive_N: Tensor, negative_N: Tensor, margin: float) -> Tensor:
    """sum_n max(0, margin - positive_n + negative_n).

    A sum, not a mean: gradients of micro-batches then add up to the gradient of the batch.
    """
    return torch.clamp(margin - positive_N + negative_N, min=0).sum()
