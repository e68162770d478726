"""LoRA adapters (Hu et al. 2022) of an encoder's linear layers, by `peft`: the encoder is frozen,
and two thin matrices per layer are trained in its place.

Adapters stay beside the weights while they are trained and scored, so paths that read weights
themselves are not used with them. An export merges them.
"""

from collections.abc import Sequence
from importlib.util import find_spec

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from rank_core.errors import BadInput, not_installed

ADAPTER = ".lora_"
"""A part of the names of an adapter's parameters."""
ALL_LINEAR = "all-linear"  # peft's word for every linear layer of a model
LINEAR = (nn.Linear, Conv1D)
"""Linear layers; GPT-2 has the second, with the matrix turned."""


def has_adapters(encoder: nn.Module) -> bool:
    """True if `add_adapters` has changed the encoder."""
    return hasattr(encoder, "peft_config")


def require_peft() -> None:
    """Raises `BadInput` where peft is not installed."""
    if find_spec("peft") is None:
        raise not_installed("peft, which training.lora_rank needs,", "lora")


def add_adapters(
    encoder: nn.Module, rank: int, *, alpha: float, dropout: float, targets: Sequence[str]
) -> None:
    """Freezes an encoder and adds adapters of a rank and scale alpha / rank, which change nothing
    before the first step. `targets` are the last parts of layers' names, all by default; raises
    `BadInput` for those that the encoder does not have."""
    require_peft()
    from peft import LoraConfig, inject_adapter_in_model

    check_targets(encoder, targets)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]
        lora_dropout=dropout,
        target_modules=list(targets) or ALL_LINEAR,
    )
    inject_adapter_in_model(config, encoder)


def check_targets(encoder: nn.Module, targets: Sequence[str]) -> None:
    """Raises `BadInput` where one of the targets is the end of no linear layer's name: peft passes
    over it."""
    layers = [name for name, part in encoder.named_modules() if isinstance(part, LINEAR)]
    lacking = [
        name for name in targets if not any(f".{own}".endswith(f".{name}") for own in layers)
    ]
    if lacking:
        raise BadInput(
            f"training.lora_targets must name linear layers of the encoder, got {','.join(targets)}"
            f", of which it lacks {', '.join(lacking)}; it has "
            f"{', '.join(sorted({name.rpartition('.')[2] for name in layers}))}"
        )


def thin_base(encoder: nn.Module, products: torch.dtype | None) -> None:
    """Keeps the frozen weights of adapted layers in the type of their products: autocast would
    round them to it in every pass."""
    if products is None or not has_adapters(encoder):
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    for module in encoder.modules():
        if isinstance(module, BaseTunerLayer):
            module.get_base_layer().to(products)


def merge_adapters(encoder: nn.Module) -> None:
    """Adds the adapters to the weights, and removes them."""
    if not has_adapters(encoder):
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, module in list(encoder.named_modules()):
        if isinstance(module, BaseTunerLayer):
            module.merge()
            encoder.set_submodule(name, module.get_base_layer())
    del encoder.peft_config
