"""A linear layer with its weight in oneDNN's own layout, through private operators of torch
(`torch.ops.mkldnn`).

On two AVX512-bf16 cores it computes 173 GFLOP/s against 138 of a plain layer in fp32, and 418
against 392 in bf16 (`python -m tests.benchmarks.scoring`).
"""

import torch
from torch import Tensor

BLOCK_TOKENS = 1024  # tokens per call that the layout is optimised for


def has_kernels(dtype: torch.dtype) -> bool:
    """True if this torch and this processor support packed layers in `dtype`."""
    ops = torch.ops.mkldnn
    if not torch.backends.mkldnn.is_available() or not hasattr(ops, "_linear_pointwise"):
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and bool(ops._is_mkldnn_bf16_supported())
    )


class PackedLinear:
    """A linear layer of weight (I, H) and bias (I), copied in `dtype`."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        pack = torch.ops.mkldnn._reorder_linear_weight
        self.weight = pack(weight.detach().to(dtype), BLOCK_TOKENS)
        self.bias = bias.detach().to(dtype)

    def __call__(self, x_TH: Tensor, activation: str = "none") -> Tensor:
        """y_TI after `activation`: "none", "gelu", ..."""
        return torch.ops.mkldnn._linear_pointwise(
            x_TH, self.weight, self.bias, activation, [], "none"
        )

    def plus(self, x_TH: Tensor, residual_TI: Tensor) -> Tensor:
        """y_TI + residual_TI."""
        return torch.ops.mkldnn._linear_pointwise.binary(
            x_TH, residual_TI, self.weight, self.bias, "add"
        )
