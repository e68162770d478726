"""The collective operations of a trial; all are identities in a single process.

Whoever starts the processes (Ray Train, torchrun, a test) also starts the process group.
"""

from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import distributed as dist
from torch import nn

T = TypeVar("T")


def world() -> tuple[int, int]:
    """(rank, number of workers)."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Adds up the workers' gradients in place, in one flat message per optimizer step.

    The loss is a sum over pairs, so the sum over workers is the gradient of the global batch.
    """
    if world()[1] == 1:
        return
    parameters = list(parameters)
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    parts = flat.split([gradient.numel() for gradient in gradients])
    for p, part in zip(parameters, parts, strict=True):
        p.grad = part.view_as(p)


def sum_numbers(values: list[float]) -> list[float]:
    """Element-wise sums over the workers."""
    if world()[1] == 1:
        return values
    return [sum(column) for column in zip(*gather(values), strict=True)]


def gather(value: T) -> list[T]:
    """Every worker's value, in rank order, on every worker."""
    size = world()[1]
    if size == 1:
        return [value]
    values: list[T | None] = [None] * size
    dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]
