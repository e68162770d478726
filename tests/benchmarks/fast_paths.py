"""Each fast path of an encoder on top of those before it, against transformers as it is.

A forward pass for [CLS], as scoring needs it, and one with its backward pass; every turn times all
of them, and the gain is of medians, against the row above.
Run: python -m tests.benchmarks.fast_paths [--size minilm] [--threads 2] [--json FILE]
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from rank_core.encoders.attention import use_own_attention
from rank_core.encoders.cls_only import only_cls
from rank_core.encoders.cpu.packed_layers import can_pack, packed
from rank_core.machine import make_deterministic
from tests.benchmarks.workload import SIZES, median, show

STEPS = ("transformers", "own attention", "[CLS] alone", "packed weights")


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--size", choices=SIZES, default="minilm")
    flags.add_argument("--rows", type=int, default=25)
    flags.add_argument("--tokens", type=int, default=161, help="of a row")
    flags.add_argument("--repeats", type=int, default=9)
    flags.add_argument("--threads", type=int, default=torch.get_num_threads())
    flags.add_argument("--json", type=Path, help="write the figures here")
    options = flags.parse_args(argv)
    torch.set_num_threads(options.threads)
    make_deterministic(strict=False)
    inputs = _inputs(options.rows, options.tokens)
    encoders = [_encoder(options.size, step) for step in range(len(STEPS) - 1)]
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for training in (False, True):
            passes = dict(zip(STEPS, _passes(encoders, inputs, dtype, training), strict=False))
            rows += _rows(passes, dtype, training, options.repeats)
    show(rows, options.json)


def _inputs(num_rows: int, length: int) -> dict[str, Tensor]:
    """Rows of up to `length` tokens, as those of a batch of similar rows."""
    ids = torch.randint(5, 8000, (num_rows, length), generator=torch.Generator().manual_seed(0))
    lengths = length - torch.arange(num_rows) % 3
    return {"input_ids": ids, "attention_mask": (torch.arange(length) < lengths[:, None]).long()}


def _encoder(size: str, steps: int) -> nn.Module:
    """An encoder with the first so many fast paths."""
    layers, hidden, heads, inner = SIZES[size]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=8000,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
    )
    encoder: nn.Module = BertModel(config, add_pooling_layer=False)
    if steps >= 1:
        use_own_attention(encoder, plain=True)
    if steps >= 2:
        only_cls(encoder)
    return encoder


def _passes(
    encoders: list[nn.Module], inputs: dict[str, Tensor], dtype: torch.dtype, training: bool
) -> Iterator[Callable[[], None]]:
    autocast = None if dtype == torch.float32 else dtype
    for encoder in encoders:
        yield _pass(encoder, inputs, autocast, training, packs=False)
    with torch.inference_mode():
        if not training and can_pack(encoders[-1].eval(), dtype):
            yield _pass(encoders[-1], inputs, autocast, training, packs=True)


def _pass(
    encoder: nn.Module,
    inputs: dict[str, Tensor],
    autocast: torch.dtype | None,
    training: bool,
    *,
    packs: bool,
) -> Callable[[], None]:
    def run() -> None:
        encoder.train(training)
        no_grad = contextlib.nullcontext() if training else torch.inference_mode()
        with no_grad, torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            with packed(encoder, autocast) if packs else contextlib.nullcontext():
                cls_CH = encoder(**inputs).last_hidden_state[:, 0]
            if training:
                cls_CH.sum().backward()

    return run


def _rows(
    passes: dict[str, Callable[[], None]], dtype: torch.dtype, training: bool, repeats: int
) -> list[dict[str, str]]:
    seconds: dict[str, list[float]] = {name: [] for name in passes}
    for turn in range(repeats + 1):
        for name, run in passes.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    middle = [median(times) for times in seconds.values()]
    return [
        {
            "type": str(dtype).removeprefix("torch."),
            "pass": "forward and backward" if training else "forward",
            "with": name,
            "ms": f"{now * 1e3:.0f}",
            "gain": f"{before / now:.2f}",
            "in all": f"{middle[0] / now:.2f}",
        }
        for name, before, now in zip(seconds, [middle[0], *middle], middle, strict=False)
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
