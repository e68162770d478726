"""Optimiser, learning-rate schedules and precision."""

import math

import torch

from rank_core.config import Training
from rank_core.errors import BadInput
from rank_core.models.ranker import Ranker


def build_optimizer(model: Ranker, training: Training) -> torch.optim.AdamW:
    """AdamW with a learning rate for the backbone, the head and the aggregator each."""
    rates = {
        "backbone": training.backbone_learning_rate,
        "head": training.head_learning_rate,
        "aggregator": training.aggregator_learning_rate,
    }
    groups = [
        {"params": parameters, "lr": rates[role], "peak_lr": rates[role]}
        for role, parameters in model.learning_rate_groups().items()
        if parameters
    ]
    return torch.optim.AdamW(groups, weight_decay=training.weight_decay, fused=True)


def set_learning_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Every group's peak rate times `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * factor


def schedule_factor(schedule: str, warmup: float, step: int, num_steps: int) -> float:
    """The share of the peak rate at `step` (0-based): linear warm-up, then by schedule constant,
    linearly down to 0, or down a half cosine to 0 (one-cycle)."""
    warmup_steps = math.ceil(warmup * num_steps)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    if schedule == "linear":
        return 1 - done
    if schedule == "one-cycle":
        return 0.5 * (1 + math.cos(math.pi * done))
    return 1.0


def autocast_type(precision: str, device: torch.device) -> torch.dtype | None:
    """The autocast type, None for fp32; `auto` is bf16 or fp16 on a GPU and fp32 elsewhere."""
    if precision == "auto":
        if device.type != "cuda":
            return None
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    if precision == "fp16" and device.type == "cpu":
        raise BadInput("training.precision=fp16 needs a GPU; on a CPU use fp32 or bf16")
    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
