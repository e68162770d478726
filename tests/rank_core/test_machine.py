"""Preparation of a process for each trial, the GPU's errors, and items prefetched by a thread."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rank_core import machine
from rank_core.errors import BadInput
from rank_core.machine import ahead, autocast_type, is_out_of_memory, make_deterministic


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"), True),
        (torch.AcceleratorError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("NCCL error: unhandled cuda error, Cuda failure 2 'out of memory'"), True),
        (torch.AcceleratorError("CUDA error: device-side assert triggered"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), False),
    ],
)
def test_a_full_gpu_is_recognised_from_any_library(error, full):
    assert is_out_of_memory(error) is full


@pytest.fixture
def determinism(monkeypatch):
    """Restores what `make_deterministic` sets."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    yield
    torch.use_deterministic_algorithms(before, warn_only=warn_only)
    torch.utils.deterministic.fill_uninitialized_memory = fill


@pytest.mark.parametrize(
    ("gpu", "strict", "enabled", "warn_only"),
    [
        (False, False, True, True),
        (False, True, True, False),
        (True, False, False, True),
        (True, True, True, False),
    ],
)
def test_a_cpu_always_repeats_its_bits_and_a_gpu_where_it_is_asked_to(
    determinism, monkeypatch, gpu, strict, enabled, warn_only
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    make_deterministic(strict)
    assert torch.are_deterministic_algorithms_enabled() is enabled
    if enabled:
        assert torch.is_deterministic_algorithms_warn_only_enabled() is warn_only
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"  # read once, at the first product
    assert torch.utils.deterministic.fill_uninitialized_memory is False
    assert torch.backends.cudnn.allow_tf32 is False


@pytest.mark.parametrize("driver", [torch.bfloat16, None])
def test_the_drivers_cpu_decides_the_precision_of_all_nodes(driver, monkeypatch):
    for instructions, own in (("amx_bf16", torch.bfloat16), ("avx2", None)):
        monkeypatch.setattr(machine, "_decided", {})
        monkeypatch.setenv("RANKSWEEP_FAST_PATHS", "")
        monkeypatch.setattr(machine, "cpu_facts", lambda x=instructions: {"instructions": x})
        assert autocast_type("auto", torch.device("cpu")) == own
        machine.compute_as_decided({"cpu": "bf16" if driver else "fp32"})
        assert autocast_type("auto", torch.device("cpu")) == driver
        assert machine.versions().get("auto_precision") == (driver and "bf16")


def test_what_a_driver_decided_ends_with_its_sweep(monkeypatch):
    monkeypatch.setattr(machine, "_decided", {})
    with machine.settings_restored():
        machine.compute_as_decided({"cpu": "bf16"})
        assert autocast_type("auto", torch.device("cpu")) == torch.bfloat16
    assert machine._decided == {}


GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


def makers():
    """The threads that are making items."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def items(made):
    for number in range(4):
        made.append((number, threading.current_thread()))
        yield number


@pytest.mark.parametrize("number", [1, 2, 9])
def test_on_a_gpu_a_thread_makes_the_next_items_and_ends_with_the_last(number):
    made = []
    coming = ahead(items(made), GPU, number=number)
    assert next(coming) == 0
    assert len(makers()) == 1
    for _ in range(6000):  # it needs no consumer for so many
        if len(made) == min(4, 1 + number):
            break
        time.sleep(0.01)
    assert [item for item, _ in made] == list(range(4))[: 1 + number]
    assert list(coming) == [1, 2, 3]
    assert {thread.name.partition("_")[0] for _, thread in made} == {"ahead"}
    assert makers() == []


@pytest.mark.parametrize("device", [GPU, CPU])
def test_an_error_reaches_the_consumer(device):
    def broken():
        yield 1
        raise KeyError("d7")

    coming = ahead(broken(), device, number=2)
    assert next(coming) == 1
    with pytest.raises(KeyError, match="d7"):
        next(coming)
    assert makers() == []


def test_a_consumer_that_stops_early_leaves_no_thread(monkeypatch):
    begun, third, go_on = [], threading.Event(), threading.Event()
    stop = ThreadPoolExecutor.shutdown

    def shutdown(pool, wait=True, *, cancel_futures=False):
        stop(pool, wait=False, cancel_futures=cancel_futures)
        go_on.set()  # the item in work ends when the others are, or are not, cancelled
        stop(pool, wait=wait)

    def slow():
        for number in range(9):
            begun.append(number)
            if number == 2:
                third.set()
                assert go_on.wait(60)
            yield number

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shutdown)
    coming = ahead(slow(), GPU, number=3)
    assert next(coming) == 0
    assert third.wait(60)
    coming.close()
    assert makers() == []
    assert begun == [0, 1, 2]  # what had not begun is not made


@pytest.mark.parametrize("value", ["of", "0", "usaul"])
def test_an_unknown_value_of_fast_paths_is_refused(monkeypatch, value):
    monkeypatch.setenv("RANKSWEEP_FAST_PATHS", value)
    for paths in (machine.fast_paths, machine.usual_paths):
        with pytest.raises(BadInput, match=f"must be on, usual or off, got '?{value}"):
            paths()
    monkeypatch.setenv("RANKSWEEP_FAST_PATHS", " OFF ")
    assert not machine.fast_paths() and machine.usual_paths()
