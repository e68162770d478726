"""Items prefetched by a thread, for a device of which only the type matters."""

import threading

import pytest
import torch

from rank_core.machine import ahead

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


def makers():
    """The threads that are making items."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def items(made):
    for number in range(4):
        made.append((number, threading.current_thread()))
        yield number


def test_on_a_gpu_a_thread_makes_the_next_item_and_ends_with_the_last():
    made = []
    coming = ahead(items(made), GPU)
    assert next(coming) == 0
    assert len(makers()) == 1
    assert list(coming) == [1, 2, 3]
    assert {thread.name.partition("_")[0] for _, thread in made} == {"ahead"}
    assert makers() == []


@pytest.mark.parametrize("device", [GPU, CPU])
def test_an_error_reaches_the_consumer(device):
    def broken():
        yield 1
        raise KeyError("d7")

    coming = ahead(broken(), device)
    assert next(coming) == 1
    with pytest.raises(KeyError, match="d7"):
        next(coming)
    assert makers() == []


def test_a_consumer_that_stops_early_leaves_no_thread():
    coming = ahead(items([]), GPU)
    next(coming)
    coming.close()
    assert makers() == []
