"""Preparation of a process for each trial, and the GPU's errors."""

import gc
import os
import weakref

import pytest
import torch

from rank_core import machine
from rank_core.machine import (
    begin_on_device,
    gpu_memory,
    is_out_of_memory,
    make_deterministic,
    release_memory,
)


def test_garbage_of_trials_is_collected(request):
    class Node:
        pass

    request.addfinalizer(gc.enable)
    gc.disable()  # else a collection may come before the one that is tested
    node = Node()
    node.itself = node
    garbage = weakref.ref(node)
    del node
    release_memory()
    assert garbage() is None


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


def test_a_process_uses_only_its_share_of_a_gpu(monkeypatch):
    device, cuda = torch.device("cuda", 0), torch.cuda
    monkeypatch.setattr(cuda, "mem_get_info", lambda device: (70, 80))
    monkeypatch.setattr(cuda, "memory_reserved", lambda device: 5)
    monkeypatch.setattr(cuda, "get_per_process_memory_fraction", lambda device: 0.5)
    assert gpu_memory(device) == (35, 40)
    monkeypatch.setattr(cuda, "mem_get_info", lambda device: (20, 80))  # others hold the rest
    assert gpu_memory(device) == (20, 40)


def test_a_trial_begins_with_its_share_and_a_sum_that_finds_a_broken_gpu(monkeypatch):
    gpu, did = torch.device("cuda", 0), []

    def ones(n, device):
        did.append((n, device))
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch, "ones", ones)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda *given: did.append(given)
    )
    begin_on_device(1.0)  # a CPU has no context that could break
    monkeypatch.setattr(machine, "trial_device", lambda: gpu)
    with pytest.raises(torch.AcceleratorError):
        begin_on_device(0.25)
    assert did == [(0.25, gpu), (1, gpu)]


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
    assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) is strict
    assert torch.utils.deterministic.fill_uninitialized_memory is False
    assert torch.backends.cudnn.allow_tf32 is False
