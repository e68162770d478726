"""Iteration with prefetching: a thread makes the next item while a GPU uses the current one."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def ahead(items: Iterator[T], device: torch.device) -> Iterator[T]:
    """The items, none of which may be None. For a GPU, a thread makes the next item while the
    current one is in use; for a CPU, which is busy anyway, items are made on demand.

    Errors in making an item are raised. No thread remains when the consumer stops early.
    """
    if device.type != "cuda":
        yield from items
        return
    with ThreadPoolExecutor(1, "ahead") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
