"""Collective operations of a trial; identities in a single process. The process group is started by
whatever starts the processes (Ray Train, torchrun, a test)."""

from collections.abc import Iterable, Sequence
from functools import partial
from heapq import heapreplace
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.utils.hooks import RemovableHandle

T = TypeVar("T")


def world() -> tuple[int, int]:
    """(rank, number of workers)."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def dealt(sizes: Sequence[int], num_workers: int) -> list[list[int]]:
    """The items of each worker, in order: the largest first, each to the worker that has least so
    far (Graham 1969). Items of one size are dealt in turn."""
    items: list[list[int]] = [[] for _ in range(num_workers)]
    least = [(0, worker) for worker in range(num_workers)]
    # A stable sort: equal sizes keep their order, so that all workers deal the same hands.
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        total, worker = least[0]
        items[worker].append(i)
        heapreplace(least, (total + sizes[i], worker))
    return [sorted(own) for own in items]


class GradientSums:
    """The sum of the workers' gradients, overlapped with the last backward pass of a step.

    The loss is a sum over pairs, so the sum over workers is the gradient of the global batch. It is
    computed bucket by bucket, in the same order on every worker: a bucket's sum starts once its
    gradients are complete and the sums before it have started. `DistributedDataParallel` and FSDP
    do not fit: they hook into `forward`, average, and need a pass on every worker, but a worker may
    have no pair.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], bucket_bytes: int = 25 * 2**20) -> None:
        self._buckets = _buckets(parameters, bucket_bytes) if world()[1] > 1 else []
        self._missing: list[set[nn.Parameter]] = []  # per bucket: gradients still to come
        self._begun: list[tuple[Tensor, dist.Work]] = []  # flat sums of the first buckets
        self._hooks: list[RemovableHandle] = []
        self._repeat = False

    def begin(self) -> None:
        """Registers the hooks; call it before the last backward pass of a step."""
        self._missing = [set(bucket) for bucket in self._buckets]
        for number, bucket in enumerate(self._buckets):
            for parameter in bucket:
                hook = partial(self._arrived, number)
                self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))

    def cancel(self) -> None:
        """Discards the sums; call it after a failed pass. Sums that have started need every worker:
        `finish` waits for them and computes them again."""
        self._drop_hooks()
        self._repeat = bool(self._begun)

    def finish(self) -> None:
        """Waits until every gradient is the sum over the workers; None where no worker has one."""
        if not self._buckets:
            return
        self._drop_hooks()
        self._sum_until(len(self._buckets))
        # Zeros and no gradient differ: AdamW decays weights and moments of the first and skips the
        # second.
        has = [p.grad is not None for bucket in self._buckets for p in bucket]
        # On the host and of one size: a step waits for no GPU and pickles nothing.
        states = torch.tensor([self._repeat, *has], dtype=torch.int8)
        dist.all_reduce(states, dist.ReduceOp.MAX)
        repeat, *anywhere = states.tolist()
        if repeat:
            for _, sum_ in self._begun:
                sum_.wait()
            self._begun.clear()
            self._sum_until(len(self._buckets))
        has_gradient = iter(anywhere)
        for bucket, (flat, sum_) in zip(self._buckets, self._begun, strict=True):
            sum_.wait()
            parts = flat.split([p.numel() for p in bucket])
            for p, part in zip(bucket, parts, strict=True):
                p.grad = part.view_as(p) if next(has_gradient) else None
        self._begun.clear()
        self._repeat = False

    def _arrived(self, number: int, parameter: Tensor) -> None:
        self._missing[number].remove(parameter)  # type: ignore[arg-type]
        # Only up to the first incomplete bucket: a collective that two workers start in another
        # order hangs both.
        ready = next((n for n, some in enumerate(self._missing) if some), len(self._buckets))
        self._sum_until(ready)

    def _sum_until(self, end: int) -> None:
        for bucket in self._buckets[len(self._begun) : end]:
            flat = torch.cat(
                # A worker whose share does not use a parameter still has to take part in its sum.
                [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket]
            )
            self._begun.append((flat, dist.all_reduce(flat, async_op=True)))

    def _drop_hooks(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()


def _buckets(parameters: Iterable[nn.Parameter], num_bytes: int) -> list[list[nn.Parameter]]:
    """The parameters in buckets of about `num_bytes`, last first, as their gradients arrive."""
    buckets: list[list[nn.Parameter]] = []
    room = 0
    # Backward passes go from the last layer to the first.
    for parameter in reversed(list(parameters)):
        if room <= 0:
            buckets.append([])
            room = num_bytes
        buckets[-1].append(parameter)
        room -= parameter.numel() * parameter.element_size()
    return buckets


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
