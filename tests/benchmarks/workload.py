"""What benchmarks share: an encoder of a given size with random weights, and real text."""

import argparse
import json
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModel
from transformers.utils.logging import disable_progress_bar

from rank_core.chunking.batches import BATCH_TOKENS
from rank_core.chunking.token_store import TokenStore, open_token_store
from rank_core.data.load import load_collection
from rank_core.encoders.backbone_types import Backbone, type_of
from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.encoders.cpu_layers import FP32, PackedLinear, has_kernels
from rank_core.machine import cpu_facts, make_deterministic, trial_device
from rank_core.records import Collection
from rank_core.testing.tokenizer import train_tokenizer


class Size(NamedTuple):
    """The size of an encoder."""

    layers: int
    hidden: int
    heads: int
    inner: int  # of a feed-forward layer
    kind: str = "bert"

    def flops(self, num_tokens: float, length: float) -> float:
        """Model FLOPs of a forward pass over rows of about `length` tokens: the products of all
        layers, the last one's for [CLS] only, as if that were all that is read."""
        # ModernBERT's feed-forward layer has a gate, and two of three layers attend to 129 tokens.
        modern = self.kind == "modernbert"
        dense = 2 * (4 * self.hidden**2 + (2 + modern) * self.hidden * self.inner)
        layers, last = self.layers - 1, 4 * self.hidden**2  # keys and values
        whole = -(-layers // 3) if modern else layers
        keys = whole * length + (layers - whole) * min(length, 129)
        return num_tokens * (layers * dense + 4 * keys * self.hidden + last)


SIZES = {
    "tiny": Size(2, 64, 2, 256),
    "tiny-modernbert": Size(4, 64, 2, 96, "modernbert"),
    "minilm": Size(6, 384, 12, 1536),
    "bert-base": Size(12, 768, 12, 3072),
    "modernbert": Size(22, 768, 12, 1152, "modernbert"),  # base
}
MARKS = ("pad", "bos", "eos", "cls", "sep")
PRODUCT = (4096, 768, 3072)  # of a feed-forward layer: tokens, hidden, inner

PEAKS = {
    "A10": 125e12,
    "A100": 312e12,
    "A30": 165e12,
    "A40": 149.7e12,
    "B200": 2250e12,
    "GH200": 989e12,
    "H100": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H200": 989e12,
    "L4": 121e12,
    "L40S": 362e12,
    "RTX 4090": 165e12,
    "RTX A6000": 154.8e12,
    "T4": 65e12,
    "V100": 125e12,
}
"""FLOP/s of dense 16-bit products with fp32 sums, from NVIDIA's data sheets."""


@dataclass(frozen=True)
class Workload:
    """A collection, an encoder and the collection's tokens."""

    collection: Collection
    backbone: Backbone
    tokens: TokenStore


def parser(description: str) -> argparse.ArgumentParser:
    """The flags that all benchmarks share."""
    flags = argparse.ArgumentParser(description=description, allow_abbrev=False)
    flags.add_argument("--collection", default="python-docs")
    flags.add_argument("--size", choices=SIZES, default="minilm")
    flags.add_argument("--repeats", type=int, default=5)
    flags.add_argument("--threads", type=int, default=torch.get_num_threads())
    flags.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS[trial_device().type])
    flags.add_argument("--json", type=Path, help="write the figures here")
    return flags


def workload(collection_name: str, size: str) -> Workload:
    """An encoder of `size` with random weights and a vocabulary of the collection's own words, in a
    process that computes as a trial's does."""
    make_deterministic(strict=False)
    collection = load_collection(collection_name)
    folder = Path(tempfile.mkdtemp(prefix="ranksweep-benchmark-"))
    random_backbone(folder, [*collection.documents.values()][:1000], size)
    backbone = resolve_backbone(str(folder))
    tokens = open_token_store(
        collection.documents,
        content_hash=collection.content_hash,
        tokenizer=load_tokenizer(backbone.folder),
    )
    return Workload(collection, backbone, tokens)


def random_backbone(folder: Path, texts: list[str], size: str) -> Path:
    """A checkpoint of an encoder with random weights and a vocabulary of these texts."""
    tokenizer = train_tokenizer(texts, 8000)
    layers, hidden, heads, inner, kind = SIZES[size]
    disable_progress_bar()
    torch.manual_seed(0)
    marks = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in MARKS}
    config = AutoConfig.for_model(
        kind,
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        **marks,
    )
    extra = {"add_pooling_layer": False} if type_of(kind).pooler else {}
    AutoModel.from_config(config, **extra).save_pretrained(folder)
    if not type_of(kind).segments:
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
    return folder


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    on_gpu = torch.cuda.is_available()
    device = {"device": torch.cuda.get_device_name()} if on_gpu else cpu_facts()
    return device | {
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def data_sheet_rate(gpu_name: str) -> float | None:
    """FLOP/s of dense 16-bit products by the GPU's data sheet; None where it is not in `PEAKS`."""
    words = re.split(r"[\s-]+", gpu_name)
    known = [name for name in PEAKS if set(name.split()) <= set(words)]
    return PEAKS[max(known, key=len)] if known else None


def peak_rate(dtype: torch.dtype) -> float | None:
    """FLOP/s by the data sheet of this GPU for 16 bits; None where it is not known."""
    if trial_device().type != "cuda" or dtype == torch.float32:
        return None
    return data_sheet_rate(torch.cuda.get_device_name())


@cache
def matrix_rate(dtype: torch.dtype, repeats: int) -> float:
    """FLOP/s of this device on a matrix product of a feed-forward layer's shape."""
    device = trial_device()
    num, hidden, inner = PRODUCT
    num *= 16 if device.type == "cuda" else 1
    a = torch.randn(num, hidden, device=device).to(dtype)
    b = torch.randn(hidden, inner, device=device).to(dtype)
    return _rate(lambda: a @ b, num, repeats, at_once=50 if device.type == "cuda" else 1)


@cache
@torch.inference_mode()
def packed_rate(dtype: torch.dtype, repeats: int) -> float | None:
    """The same with the weight in oneDNN's own layout; None where this device has no such kernel"""
    if trial_device().type != "cpu" or not has_kernels(dtype):
        return None
    num, hidden, inner = PRODUCT
    a = torch.randn(num, hidden).to(dtype)
    product = PackedLinear(torch.randn(inner, hidden), torch.randn(inner), dtype, FP32.block_tokens)
    return _rate(lambda: product(a), num, repeats)


def _rate(product: Callable[[], Any], num_rows: int, repeats: int, at_once: int = 1) -> float:
    """FLOP/s of the best of four times `repeats` calls, each of so many products."""

    def compute() -> None:
        for _ in range(at_once):
            product()

    best = min(turns({"": compute}, 4 * repeats)[""])
    return at_once * 2 * num_rows * PRODUCT[1] * PRODUCT[2] / best


def turns(systems: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each call, turn by turn; what takes long says so as it ends."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(repeats):
        for name, system in systems.items():
            wait_for_device()
            start = time.perf_counter()
            system()
            wait_for_device()
            seconds[name].append(time.perf_counter() - start)
            if seconds[name][-1] > 1:
                print(f"{name}: {seconds[name][-1]:.1f} s", file=sys.stderr, flush=True)
    return seconds


def wait_for_device() -> None:
    """Returns when the device has done what it was asked for: a time is taken then."""
    if trial_device().type == "cuda":
        torch.cuda.synchronize()


def shares(flops: float, dtype: torch.dtype, repeats: int) -> dict[str, str]:
    """Shares of a table's row in the rates of this device, for that many model FLOPs a second."""
    further = {"of the packed rate": packed_rate(dtype, repeats)}
    if trial_device().type == "cuda":
        further = {"of the data sheet": peak_rate(dtype)}
    return {"of the matrix rate": f"{flops / matrix_rate(dtype, repeats):.0%}"} | {
        name: f"{flops / rate:.0%}" if rate else "" for name, rate in further.items()
    }


def print_rates(repeats: int) -> None:
    """The denominators of all shares, in GFLOP/s."""
    for dtype in (torch.float32, torch.bfloat16):
        packed = packed_rate(dtype, repeats)
        text = f", packed {packed / 1e9:,.0f}" if packed else ""
        name = str(dtype).removeprefix("torch.")
        print(f"matrix rate {name}: {matrix_rate(dtype, repeats) / 1e9:,.0f} GFLOP/s{text}")


def encoder_flops(work: Workload, num_tokens: int, num_inputs: int) -> float:
    """Model FLOPs of one forward pass over that many real tokens in that many inputs of about equal
    length."""
    config = AutoConfig.from_pretrained(work.backbone.folder)
    inner, heads = config.intermediate_size, config.num_attention_heads
    size = Size(config.num_hidden_layers, config.hidden_size, heads, inner, config.model_type)
    return size.flops(num_tokens, num_tokens / num_inputs)


def print_table(rows: list[dict[str, str]]) -> None:
    """Rows as a Markdown table."""
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(row[name] for name in names) + " |")


def save(path: Path | None, figures: dict[str, object]) -> None:
    """Figures and machine as JSON."""
    if path is not None:
        path.write_text(json.dumps({"machine": machine(), **figures}, indent=1))


def show(rows: list[dict[str, str]], path: Path | None, **figures: object) -> None:
    """The machine and a table on the terminal, and as JSON with further figures."""
    print(machine())
    print_table(rows)
    save(path, {"rows": rows, **figures})
