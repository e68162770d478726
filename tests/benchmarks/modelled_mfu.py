"""Modelled speed of BERT on GPUs: tokens/s and MFU of scoring and of training, by a roofline over
the operations that a fake GPU counts (`tests.benchmarks.launches`). Trust it to some 30% at
65,536 tokens a call, where an H200 had .86 to 1.0 of it for BERT-base; below, and for smaller
encoders, the host takes longer than is assumed (docs/benchmarks.md).

Assumed: a kernel takes as long as its arithmetic or its bytes at .8 of the bandwidth, whichever is
longer, and 2 us at least; an operation is one kernel. Products have .65 of the data sheet's dense
bf16 rate. Attention over rows of 161 tokens has the rates that an H200 had in `tests.gpu.ladder`,
on other GPUs by their multiprocessors and clock. The host needs 2 ms for a call (rows, copies,
Python) and 15 us for each launch (500 in 7.5 ms) while the GPU computes, so a call takes as long as
the slower of both, and nobody waits otherwise. All rows are alike: tails and padding would cost
padded rows more. Padded rows are given one fused kernel of attention, as if their mask allowed it.
"compiled" counts each run of dropout, sums, norm and GELU as one kernel that reads and writes once.

MFU counts the products that the model needs, the last layer's for [CLS] alone, three times as many
in training, over the data sheet's rate. A training step is one pass forward and backward and its
update.
Needs g++. Run: python -m tests.benchmarks.modelled_mfu [--gpus "H100 SXM,L4"] [--host-us 8]
"""

import sys
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.launches import kernels, number, parser
from tests.benchmarks.workload import SIZES, show
from tests.contracts.fake_cuda.trace import QUERY, WINDOW

GPUS = {  # dense bf16 FLOP/s, bytes/s, multiprocessors x GHz of the data sheet
    "H100 SXM": (989e12, 3.35e12, 132 * 1.98),
    "H200 SXM": (989e12, 4.8e12, 132 * 1.98),
    "A100 SXM 80 GB": (312e12, 2.04e12, 108 * 1.41),
    "L4": (121e12, 0.30e12, 58 * 2.04),
}
PRODUCTS = 0.65  # of the rate
ATTENTION = {"scoring": 64e12, "training": 50e12}  # FLOP/s of an H200, forward and backward
BANDWIDTH_SHARE = 0.8
LEAST = 2e-6  # seconds of a kernel
LENGTH = QUERY + WINDOW + 3


def main(argv: Sequence[str]) -> None:
    """Models and prints."""
    flags = parser(__doc__ or "")
    flags.add_argument("--tokens", default="4096,16384,65536", help="of one call")
    flags.add_argument("--gpus", default="H100 SXM")
    flags.add_argument("--host-us", type=float, default=15.0, help="between two launches")
    flags.add_argument("--call-ms", type=float, default=2.0, help="of the host, for a call")
    options = flags.parse_args(argv)
    host = (options.host_us * 1e-6, options.call_ms * 1e-3)
    lines = kernels(options.size, ["maxp"], [int(n) for n in options.tokens.split(",")])
    rows = [
        _row(options.size, gpu, phase, way, line, host)
        for gpu in options.gpus.split(",")
        for phase in ("scoring", "training")
        for line in lines
        for way in (("kernels", "compiled") if line["flat"] else ("kernels",))
    ]
    show(rows, options.json)


def _row(
    size: str, gpu: str, phase: str, way: str, line: dict[str, Any], host: tuple[float, float]
) -> dict[str, str]:
    """The table's row of one call, or of a training step of one call and its update."""
    steps = line[way][phase] + (line[way]["update"] if phase == "training" else [])
    num_inputs = max(1, line["tokens"] // LENGTH)
    tokens = num_inputs * LENGTH
    a_launch, a_call = host
    on_gpu, on_host = (
        sum(_seconds(gpu, phase, step) for step in steps),
        number(steps) * a_launch + a_call,
    )
    seconds = max(on_gpu, on_host)
    flops = model_flops(size, num_inputs) * (3 if phase == "training" else 1)
    name = "padded" if not line["flat"] else "flat" if way == "kernels" else "flat, compiled"
    return {
        "GPU": gpu,
        "phase": phase,
        "tokens": f"{line['tokens']:,}",
        "rows": name,
        "launches": str(number(steps)),
        "GB": f"{sum(moved for *_, moved in steps) / 1e9:.1f}",
        "host ms": f"{on_host * 1e3:.1f}",
        "GPU ms": f"{on_gpu * 1e3:.1f}",
        "tokens/s": f"{tokens / seconds:,.0f}",
        "MFU": f"{flops / seconds / GPUS[gpu][0]:.0%}",
    }


def _seconds(gpu: str, phase: str, step: Sequence[Any]) -> float:
    rate, bandwidth, clock = GPUS[gpu]
    _, kind, flops, moved = step
    if kind == "copy":  # beside the kernels
        return 0.0
    of_attention = ATTENTION[phase] * clock / GPUS["H200 SXM"][2]
    rates = {"product": PRODUCTS * rate, "attention": of_attention}
    return max(flops / rates.get(kind, rate), moved / (bandwidth * BANDWIDTH_SHARE), LEAST)


def model_flops(size: str, num_inputs: int) -> float:
    """FLOPs of the products of a scoring pass over rows of `LENGTH` tokens."""
    return SIZES[size].flops(num_inputs * LENGTH, LENGTH)


if __name__ == "__main__":
    main(sys.argv[1:])
