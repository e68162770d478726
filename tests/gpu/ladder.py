"""The speed of each part of scoring on this device, from products alone to whole calls: where time
goes between the data sheet and what a sweep gets.

For each encoder: products and attention alone; attention over a flat row beside torch's kernels for
a batch of rows of one length, for `--lengths`; scoring of `--tokens` a call over flat rows whose
layers are compiled, over flat rows that are not, and over padded rows with the encoder as
transformers loads it (plain); then rows of `--lengths` tokens at the largest call; training steps
in the same ways, with dropout and clipping; last a table of the profiler over a scoring call and a
training step. A line of JSON is appended to `--json` after each measurement, so that nothing is
lost when the time is over: the profiler's tables to the same name with .txt.
Run: python -m tests.gpu.ladder [--small] [--sizes minilm] [--minutes 9] [--json gpu-ladder.jsonl]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers.utils.logging import disable_progress_bar

from rank_core.encoders import flat_rows, packed
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.flat_rows import Ends, Reach
from rank_core.machine import autocast_type, make_deterministic, trial_device
from tests.benchmarks.papers_policy import untouched
from tests.benchmarks.workload import SIZES, machine, matrix_rate, peak_rate, random_backbone
from tests.gpu import speed
from tests.gpu.work import QUERY, WORDS, Parts, parts, tokens

DEFAULT_SIZES = "bert-base,minilm,modernbert"
TOKENS, LENGTHS = (4096, 16_384, 65_536, 262_144), (125, 128, 161, 253)
SMALL = {"tokens": (512, 1024), "sizes": "tiny"}
BATCHED = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
)
WAYS = ("compiled", "not compiled", "plain")
CALLS = 4  # of a measurement, at least
LEAST_TOKENS = {"cpu": 0, "cuda": 1_000_000}  # of a measurement: the first call waits for the host
NUM_SPECIAL = 3
Row = dict[str, Any]


def main(argv: Sequence[str]) -> None:
    """Measures, prints and writes."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--small", action="store_true", help="sizes for a CPU")
    flags.add_argument("--sizes", help=f"of {', '.join(SIZES)}")
    flags.add_argument("--tokens", help="of a call")
    flags.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="tokens of a row")
    flags.add_argument("--minutes", type=float, default=60.0, help="measure no more after them")
    flags.add_argument("--json", type=Path, default=Path("gpu-ladder.jsonl"))
    given, start = flags.parse_args(argv), time.monotonic()
    sizes = given.sizes or (SMALL["sizes"] if given.small else DEFAULT_SIZES)
    calls = numbers(given.tokens) if given.tokens else SMALL["tokens"] if given.small else TOKENS
    disable_progress_bar()
    make_deterministic(False)
    told({"machine": machine(), "fast paths of": str(trial_device())}, given.json)
    for size in sizes.split(","):
        with tempfile.TemporaryDirectory(prefix="ranksweep-ladder-") as folder:
            backbone = resolve_backbone(str(random_backbone(Path(folder), [WORDS], size)))
            for row in steps(size, backbone, calls, numbers(given.lengths)):
                told(row, given.json)
                if time.monotonic() - start > 60 * given.minutes:
                    print(f"{given.minutes:g} minutes are over")
                    return
            for name, table in profiles(size, backbone, max(calls)):
                with given.json.with_suffix(".txt").open("a") as file:
                    file.write(f"{name}\n{table}\n\n")
                print(f"\n{name}\n{table}", flush=True)


def numbers(text: str) -> tuple[int, ...]:
    """Numbers that commas separate."""
    return tuple(map(int, text.split(",")))


def told(row: Row, file: Path) -> None:
    """Prints and appends a measurement."""
    with file.open("a") as lines:
        lines.write(json.dumps(row) + "\n")
    print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)


def steps(
    size: str, backbone: Backbone, calls: Sequence[int], lengths: Sequence[int]
) -> Iterator[Row]:
    """The measurements of an encoder, the parts first."""
    _, hidden, heads, inner, kind = SIZES[size]
    gate = 2 if kind == "modernbert" else 1
    for num in calls:
        shapes = {"qkv": (hidden, 3 * hidden), "out": (hidden, hidden)}
        shapes |= {"up": (hidden, gate * inner), "down": (inner, hidden)}
        for name, shape in shapes.items():
            row = {"size": size, "part": f"product {name}", "tokens": num}
            yield row | tried(product, num, *shape)
        for trains in (False, True):
            name = "attention, forward and backward" if trains else "attention"
            row = {"size": size, "part": name, "tokens": num}
            yield row | tried(attention, num, LENGTHS[2], heads, hidden // heads, trains)
    for length in lengths:
        row = {"size": size, "rows of": length, "tokens": max(calls)}
        given = (max(calls), length, heads, hidden // heads)
        yield row | {"part": "attention, rows flat"} | tried(attention, *given, False)
        for kernel in BATCHED:
            name = f"attention, rows of one length batched, {kernel.name}"
            yield row | {"part": name} | tried(batched_attention, *given, kernel)
    for num, length, way in [
        *((num, LENGTHS[2], way) for num in calls for way in WAYS),
        *((max(calls), length, WAYS[0]) for length in lengths),
    ]:
        row = {"size": size, "part": "scoring", "rows of": length, "tokens": num, "layers": way}
        yield row | tried(scoring, backbone, num, length, way)
    for num in calls:
        for way in WAYS:
            row = {"size": size, "part": "training", "rows of": LENGTHS[2], "tokens": num}
            yield row | {"layers": way} | tried(training, backbone, num, LENGTHS[2], way)


def tried(measure: Callable[..., Row], *given: Any) -> Row:
    """A measurement, or why there is none: the others are worth their time."""
    try:
        return measure(*given)
    except RuntimeError as error:
        return {"error": [*str(error).splitlines(), type(error).__name__][0]}


def number_type() -> torch.dtype:
    """The 16-bit type of products here."""
    return autocast_type("auto", trial_device()) or torch.bfloat16


def rate_of(flops: float, compute: speed.Compute) -> Row:
    """TFLOP/s of the median call, and their share of the data sheet or of a large product's."""
    _, seconds = speed.times_of(compute, trial_device())
    rate, number = flops / float(np.median(seconds)), number_type()
    share = rate / (peak_rate(number) or matrix_rate(number, 1))
    return {"TFLOP/s": float(f"{rate / 1e12:.3g}"), "share": f"{share:.1%}"}


def product(num_tokens: int, num_in: int, num_out: int) -> Row:
    """A product of a layer."""
    kind: dict[str, Any] = {"device": trial_device(), "dtype": number_type()}
    x, weight = torch.randn(num_tokens, num_in, **kind), torch.randn(num_out, num_in, **kind)
    repeats = 20  # a call of its own would be bound by the host

    def compute() -> None:
        for _ in range(repeats):
            torch.nn.functional.linear(x, weight)

    return rate_of(repeats * 2.0 * num_tokens * num_in * num_out, compute)


def attention(num_tokens: int, length: int, heads: int, size: int, trains: bool) -> Row:
    """Attention over a flat row, as the product attends; a backward pass is 2.5 forward ones."""
    device, rows = trial_device(), max(1, num_tokens // length)
    shape = (3, rows * length, heads, size)
    made = torch.randn(shape, device=device, dtype=number_type(), requires_grad=trains)
    starts = torch.arange(0, rows * length + 1, length, dtype=torch.int32, device=device)
    ends = Ends(starts, starts, length, length)
    attend = flat_rows.attention_row_by_row
    if device.type == "cuda":
        attend = flat_rows.flash_attention

    def compute() -> None:
        output = attend(*made.unbind(), ends, Reach(causal=False), 0.0, None)
        if trains:
            output.sum().backward()

    flops = (3.5 if trains else 1.0) * 4 * rows * length**2 * heads * size
    return rate_of(flops, compute)


def batched_attention(
    num_tokens: int, length: int, heads: int, size: int, kernel: SDPBackend
) -> Row:
    """Attention over rows of one length as a batch, by one of torch's kernels: what rows sorted by
    length would gain over the kernel for a flat row."""
    rows = max(1, num_tokens // length)
    shape = (3, rows, length, heads, size)
    query, key, value = torch.randn(shape, device=trial_device(), dtype=number_type()).unbind()

    def compute() -> None:
        with sdpa_kernel(kernel):
            scaled_dot_product_attention(*(x.transpose(1, 2) for x in (query, key, value)))

    return rate_of(4.0 * rows * length**2 * heads * size, compute)


def scoring(backbone: Backbone, num_tokens: int, length: int, way: str) -> Row:
    """Calls of so many tokens in rows of one length."""
    calls = max(CALLS, LEAST_TOKENS[trial_device().type] // num_tokens)
    some = rows_of(backbone, calls * num_tokens, length)
    return measured(speed.scoring, some, num_tokens, way)


def training(backbone: Backbone, num_tokens: int, length: int, way: str) -> Row:
    """An optimizer step of so many tokens, or of the smallest group if that has more."""
    some = rows_of(backbone, CALLS * num_tokens, length, "parade-attn", dropout=0.1)
    return measured(speed.training, some, num_tokens, way)


def measured(kind: Callable[..., speed.Compute], some: Parts, num_tokens: int, way: str) -> Row:
    """Tokens/s of scoring or training over rows that are read this way."""
    if way == "plain":
        plain = untouched(some.model, some.pairs.backbone).to(trial_device())
        some = Parts(plain, some.pairs, some.documents, some.config)
    some.read(flat=way != "plain" and (None if trial_device().type == "cuda" else True))
    with torch.compiler.set_stance("force_eager" if way == "not compiled" else "default"):
        figures, _ = speed.measured(kind, some, num_tokens, number_type())
    flat = some.model.packs(number_type())
    return figures | {"rows": "flat" if flat else "padded", "compiled": compiled_layers()}


def compiled_layers() -> int:
    """The layers that torch has compiled in this process so far; none on a CPU."""
    return len({*packed._compiled.values()} - {packed._finish})


def rows_of(
    backbone: Backbone, num_tokens: int, length: int, name: str = "maxp", dropout: float = 0.0
) -> Parts:
    """Documents of `num_tokens` or more whose chunks make rows of `length` tokens."""
    window = length - len(QUERY) - NUM_SPECIAL
    per_document = 8 * window
    texts = {f"d{i}": tokens(i, per_document) for i in range(max(4, num_tokens // (8 * length)))}
    cut = {"chunking.window": window, "chunking.stride": window}
    cut |= {"chunking.max_document_tokens": per_document, "model.dropout": dropout}
    return parts(name, backbone, trial_device(), cut, texts)


def profiles(size: str, backbone: Backbone, num_tokens: int) -> Iterator[tuple[str, str]]:
    """The profiler's tables of a scoring call and of a training step."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = trial_device().type == "cuda"
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    by = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    num_tokens = min(num_tokens, 65_536)
    for kind, name in ((speed.scoring, "maxp"), (speed.training, "parade-attn")):
        dropout = 0.1 if kind is speed.training else 0.0
        some = rows_of(backbone, CALLS * num_tokens, LENGTHS[2], name, dropout)
        compute = kind(some, num_tokens, number_type(), speed.Work())
        speed.times_of(compute, trial_device())
        start = time.perf_counter()
        with profile(activities=activities) as trace:
            compute()
            if on_gpu:
                torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        title = f"{size}, {kind.__name__} of {num_tokens:,} tokens a call: {seconds:.2f} s"
        yield title, trace.key_averages().table(sort_by=by, row_limit=15, max_name_column_width=50)


if __name__ == "__main__":
    main(sys.argv[1:])
