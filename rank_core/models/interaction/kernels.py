"""Kernel pooling: soft counts of similarities near some values (K-NRM, Xiong et al. 2017)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

SMALLEST_VARIANCE = 1e-8
"""A trained width may shrink towards 0, where the kernel has no derivative."""


class GaussianKernels(nn.Module):
    """exp(-(x - mu_k)^2 / (2 sigma_k^2)) for kernels k = 1..K."""

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
        """How near each similarity is to each kernel; a last axis K is added."""
        variance_K = self.sigma_K.square().clamp_min(SMALLEST_VARIANCE)
        return torch.exp(-(similarity[..., None] - self.mu_K).square() / (2 * variance_K))

    def forward(self, similarity_BQD: Tensor, text_mask_BD: Tensor) -> Tensor:
        """count_BQK: each query token's activations, summed over the real tokens of the text."""
        near_BQDK = self.activations(similarity_BQD)
        return near_BQDK.masked_fill(~text_mask_BD[:, None, :, None], 0.0).sum(2)
