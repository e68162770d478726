"""Items that a thread makes while a GPU works on those before."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def ahead(items: Iterator[T], device: torch.device) -> Iterator[T]:
    """The items, none of which is None: on a GPU the next one is made while this one is used, on a
    CPU, whose cores compute, as they are asked for.

    Raises what making an item raises. A consumer that stops early leaves no thread.
    """
    if device.type != "cuda":
        yield from items
        return
    with ThreadPoolExecutor(1, "ahead") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
