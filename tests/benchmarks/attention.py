"""Attention alone: torch's fused kernel against plain matrix products, forward and with backward,
and which of them a trial uses on this machine.

Run: python -m tests.benchmarks.attention [--threads 2] [--json FILE]
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as fused

from rank_core.encoders.cpu.attention import plain_attention
from rank_core.encoders.cpu.forms import form, number_of
from rank_core.machine import trial_device
from tests.benchmarks.workload import median, show, wait_for_device

SHAPES = "25x12x161x32,38x12x185x32,22x12x185x64,42x12x96x32,8x12x512x64"


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--shapes", default=SHAPES, help="rows x heads x tokens x size of a head")
    flags.add_argument("--repeats", type=int, default=9)
    flags.add_argument("--threads", type=int, default=torch.get_num_threads())
    flags.add_argument("--json", type=Path, help="write the figures here")
    options = flags.parse_args(argv)
    torch.set_num_threads(options.threads)
    rows = [
        _row(tuple(map(int, shape.split("x"))), dtype, backward, options.repeats)
        for shape in options.shapes.split(",")
        for dtype in (torch.float32, torch.bfloat16)
        for backward in (False, True)
    ]
    show(rows, options.json)


def _row(
    shape: tuple[int, ...], dtype: torch.dtype, backward: bool, repeats: int
) -> dict[str, str]:
    seconds = {}
    for name, attend in (("fused", fused), ("products", plain_attention)):
        seconds[name] = median(_times(attend, shape, dtype, backward, repeats))
    return {
        "rows x heads x tokens x size": " x ".join(map(str, shape)),
        "type": str(dtype).removeprefix("torch."),
        "pass": "forward and backward" if backward else "forward",
        "fused ms": f"{seconds['fused'] * 1e3:.1f}",
        "products ms": f"{seconds['products'] * 1e3:.1f}",
        "ratio": f"{seconds['fused'] / seconds['products']:.2f}",
        "form here": form(f"{'training' if backward else 'scoring'} attention {number_of(dtype)}"),
    }


def _times(
    attend: Callable[..., Tensor],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    backward: bool,
    repeats: int,
) -> list[float]:
    num_rows, heads, length, size = shape
    torch.manual_seed(0)
    device = trial_device()
    parts = [
        torch.randn(num_rows, length, heads, size, dtype=dtype, device=device).transpose(1, 2)
        for _ in range(3)
    ]
    mask = torch.ones(num_rows, 1, length, length, dtype=torch.bool, device=device)
    mask[:, :, :, -3:] = False
    seconds = []
    for _ in range(repeats + 2):
        parts = [part.detach().requires_grad_(backward) for part in parts]
        start = time.perf_counter()
        with torch.set_grad_enabled(backward):
            output = attend(*parts, mask)
            if backward:
                output.sum().backward()
        wait_for_device()
        seconds.append(time.perf_counter() - start)
    return seconds[2:]


if __name__ == "__main__":
    main(sys.argv[1:])
