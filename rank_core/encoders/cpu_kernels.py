"""The kernels that score fastest on this CPU: measured once for a processor and a version of torch,
and kept in the cache.

Results of different kernels differ by rounding. In fp32 all processors use the same kernels, so
that their results agree; 16-bit results differ between processors anyway. All trials of a sweep use
the kernels that its driver has chosen.
"""

import hashlib
import json
import math
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import torch
from torch import nn

from rank_core.cache import cached_directory
from rank_core.encoders.cpu_layers import FP32, KERNELS, CpuKernels, PackedLayers, has_kernels
from rank_core.errors import BadInput
from rank_core.machine import cpu_facts, decided_kernels, settings_restored, usual_paths
from rank_core.parsing import parsed_json

ROUNDS = 3  # the first is a warm-up
ROWS, LENGTH, SIZE = 24, 161, 384  # a batch on a CPU of an encoder of MiniLM's size
GAIN = 0.95
"""Kernels replace the usual ones if they take less than this share of their time. A smaller gain
may be noise, and two measurements of one processor are to agree."""
FILE = "seconds.json"


def cpu_kernels(dtype: torch.dtype) -> CpuKernels:
    """The kernels for products in `dtype`."""
    return FP32 if dtype == torch.float32 else KERNELS[kernels_name()]


def kernels_name() -> str:
    """The name in `KERNELS` of those that score in 16 bits in this process."""
    if decided := decided_kernels():
        return decided
    if usual_paths() or not has_kernels(torch.bfloat16):
        return usual_kernels()
    return fastest(seconds_of_kernels())


def usual_kernels() -> str:
    """The name of the kernels that suit the features of this CPU. With tiles (AMX), larger blocks
    and torch's fused attention win; elsewhere its 16-bit attention is slower than products."""
    return "fused 4096" if torch.cpu._is_amx_tile_supported() else "products 1024"


def fastest(seconds: dict[str, float]) -> str:
    """The name of the fastest kernels; of the usual ones if these are about as fast."""
    usual = usual_kernels()
    best = min(seconds, key=seconds.__getitem__)
    return best if seconds[best] < GAIN * seconds[usual] else usual


@lru_cache
def seconds_of_kernels() -> dict[str, float]:
    """{name of kernels: seconds for the same rows} on this CPU, from the cache or measured."""
    facts = [cpu_facts(), torch.__version__, sorted(KERNELS)]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def build(folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(measure(KERNELS)))

    # A service may have no folder to write to, and a cache's files may be damaged.
    with suppress(BadInput, OSError, ValueError, AttributeError, TypeError):
        stored = parsed_json((cached_directory("kernels", key, build) / FILE).read_text())
        if stored.keys() == KERNELS.keys() and all(0 < s < math.inf for s in stored.values()):
            return dict(stored)
    return measure(KERNELS)


@torch.no_grad()
def measure(kernels: dict[str, CpuKernels]) -> dict[str, float]:
    """{name of kernels: seconds of one core} for the same rows of a small encoder in bf16; less
    than a second in all."""
    layers = _two_layers()
    packed = {n: PackedLayers(layers, torch.bfloat16, one) for n, one in kernels.items()}
    # Whatever device and type the user has made torch's default.
    hidden_CLH = torch.zeros(ROWS, LENGTH, SIZE, device="cpu", dtype=torch.float32)
    mask = torch.ones(ROWS, 1, LENGTH, LENGTH, device="cpu", dtype=torch.bool)
    mask[::2, ..., -1] = False  # as in most batches, some rows are padded
    seconds: dict[str, list[float]] = {name: [] for name in kernels}
    with settings_restored(threads=1):
        for _ in range(ROUNDS):
            for name, of_encoder in packed.items():
                # The time of this thread, and no other thread to wait for: a measurement beside
                # trials on the same cores gives the same order.
                began = time.thread_time()
                of_encoder(hidden_CLH, mask)
                seconds[name].append(time.thread_time() - began)
    return {name: min(times[1:]) for name, times in seconds.items()}


def _two_layers() -> nn.ModuleList:
    """Layers of MiniLM's size with weights of zero; the last computes only [CLS]."""
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    config = BertConfig(
        hidden_size=SIZE, num_attention_heads=SIZE // 32, intermediate_size=4 * SIZE
    )
    with torch.device("meta"):  # random weights would move the random stream of a trial
        layers = nn.ModuleList(BertLayer(config) for _ in range(2))
    layers.to_empty(device="cpu").float()
    for weight in layers.parameters():
        nn.init.zeros_(weight)
    return layers.eval()
