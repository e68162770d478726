"""The choice between two forms of a computation on a CPU: the usual one, or the other if it is
clearly faster on this processor. One measurement, of about a second, is cached.

`python -m rank_core.encoders.cpu.forms` measures again and prints the seconds, without caching.

Measured is the CPU time of one thread, the minimum over several turns: independent of other
processes and of the number of threads, so that all trials choose alike. The form affects the last
bits of results, so the other form needs a margin beyond measurement noise, and a trial records it
among its versions. `RANKSWEEP_FAST_PATHS=usual` takes the usual forms without measuring.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, scaled_dot_product_attention

from rank_core.cache import cached_directory
from rank_core.encoders.cpu.attention import fused_context, plain_attention, product_context
from rank_core.encoders.cpu.packed_linear import PackedLinear, has_kernels
from rank_core.files import write_json
from rank_core.machine import cpu_facts, settings_restored, trial_device, usual_forms


class Choice(NamedTuple):
    """Two forms of a computation, and the speed-up that the other one needs."""

    usual: str
    other: str
    margin: float = 1.2


CHOICES = {
    "scoring attention fp32": Choice("fused", "products"),
    "scoring attention bf16": Choice("products", "fused"),
    "training attention fp32": Choice("fused", "products"),
    "training attention bf16": Choice("products", "fused"),
    "packed gelu fp32": Choice("inside", "apart"),
    "packed gelu bf16": Choice("inside", "apart"),
    # It changes more than the last bits. Vector units compute bf16 at twice the rate of fp32,
    # matrix units (AMX) at many times, so this margin separates them reliably.
    "precision auto": Choice("fp32", "bf16", margin=4.0),
}
"""{computation: its forms}; `precision auto` is what `training.precision=auto` means on a CPU."""

TURNS = 5
ROWS, HEADS, LENGTH, SIZE = 2, 12, 161, 64  # the attention of a 12-layer BERT over chunks
INNER = 4 * HEADS * SIZE


def form(name: str) -> str:
    """The form of a computation of `CHOICES` on this CPU."""
    return _forms(usual_forms())[name]


def number_of(dtype: torch.dtype) -> str:
    """The number format, as in the names of `CHOICES`."""
    return "fp32" if dtype == torch.float32 else "bf16"


def unusual_forms() -> dict[str, str]:
    """An entry for a trial's versions if its CPU uses other forms than usual; none on a GPU."""
    if trial_device().type != "cpu":
        return {}
    others = [f"{name}: {form(name)}" for name in CHOICES if form(name) != CHOICES[name].usual]
    return {"cpu_forms": ", ".join(others)} if others else {}


@lru_cache(maxsize=2)
def _forms(usual: bool) -> Mapping[str, str]:
    if usual:
        return {name: choice.usual for name, choice in CHOICES.items()}
    facts = [cpu_facts(), torch.__version__, {name: list(c) for name, c in CHOICES.items()}]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def build(folder: Path) -> None:
        seconds = measure()
        measurement = {"facts": facts, "seconds": seconds, "forms": chosen(seconds)}
        write_json(folder / "forms.json", measurement)

    measurement = json.loads((cached_directory("cpu-forms", key, build) / "forms.json").read_text())
    return measurement["forms"]


def chosen(seconds: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """{computation: form} given the seconds of each form; the usual one if not measured."""
    forms = {}
    for name, (usual, other, margin) in CHOICES.items():
        times = seconds.get(name)
        forms[name] = other if times and times[usual] > margin * times[other] else usual
    return forms


def measure() -> dict[str, dict[str, float]]:
    """{computation: {form: seconds on one thread}} of all computations that this CPU supports."""
    with settings_restored(threads=1):
        # Independent of the modes of the first scored batch around it.
        with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
            return {name: _seconds(forms) for name, forms in _computations()}


def _seconds(forms: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """{form: minimum seconds} over `TURNS` turns, after a warm-up."""
    least = dict.fromkeys(forms, float("inf"))
    for turn in range(TURNS + 1):
        for name, compute in forms.items():
            start = time.thread_time()
            compute()
            if turn:
                least[name] = min(least[name], time.thread_time() - start)
    return least


def _computations() -> Iterator[tuple[str, Mapping[str, Callable[[], object]]]]:
    drawn = torch.Generator().manual_seed(0)  # separate from the trial's stream
    mask = torch.ones(ROWS, 1, LENGTH, LENGTH, dtype=torch.bool)
    mask[:, :, :, -3:] = False
    weight, bias = torch.randn(INNER, HEADS * SIZE, generator=drawn) / 30, torch.zeros(INNER)
    linears: dict[str, Callable[[], object]] = {}
    for dtype in filter(has_kernels, (torch.float32, torch.bfloat16)):
        number = number_of(dtype)
        qkv = torch.randn(ROWS, LENGTH, 3, HEADS, SIZE, generator=drawn).to(dtype)
        scoring = {
            "products": partial(product_context, qkv, None),
            "fused": partial(fused_context, qkv, None),
        }
        yield f"scoring attention {number}", scoring
        parts = [part.transpose(1, 2) for part in qkv.unbind(2)]
        training = {
            "products": partial(_learn, plain_attention, parts, mask),
            "fused": partial(_learn, scaled_dot_product_attention, parts, mask),
        }
        yield f"training attention {number}", training
        x_TH, up = qkv[:, :, 0].flatten(2).flatten(0, 1), PackedLinear(weight, bias, dtype)
        linears[number] = partial(up, x_TH)
        apart = partial(_gelu_apart, up, x_TH)
        yield f"packed gelu {number}", {"inside": partial(up, x_TH, "gelu"), "apart": apart}
    if len(linears) == 2:
        yield "precision auto", linears


def _learn(attention: Callable[..., Tensor], parts: list[Tensor], mask: Tensor) -> None:
    with torch.enable_grad():
        query, key, value = (part.detach().requires_grad_() for part in parts)
        attention(query, key, value, mask, 0.0).sum().backward()


def _gelu_apart(up: PackedLinear, x_TH: Tensor) -> Tensor:
    return gelu(up(x_TH))


if __name__ == "__main__":
    measured = measure()
    shown = {"machine": cpu_facts(), "seconds": measured, "forms": chosen(measured)}
    print(json.dumps(shown, indent=1))
