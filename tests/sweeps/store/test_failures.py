"""Failures are told apart by their cause, and each kind has its own number of further attempts."""

import pytest

from sweeps.store.failures import LIMITS, Failures, kind_of_reason


@pytest.mark.parametrize(
    "reason, kind",
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB", "device memory"),
        ("OutOfMemory: the GPU memory cannot hold a single group", "device memory"),
        ("AcceleratorError: CUDA error: an illegal memory access", "device"),
        ("AcceleratorError: CUDA error: out of memory", "device memory"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", "device memory"),
        ("RuntimeError: CUDA error: device-side assert triggered", "device"),
        ("RuntimeError: CUDA error: unspecified launch failure", "device"),
        ("RuntimeError: CUDA unknown error - this may be due to", "device"),
        ("RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered", "device"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "device"),
        ("RuntimeError: uncorrectable NVLink error detected during the execution", "device"),
        ("RuntimeError: Xid 79: GPU has fallen off the bus", "device"),
        ("RuntimeError: cusolver error: CUSOLVER_STATUS_EXECUTION_FAILED", "device"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", "device"),
        ("StorageAway: s3://b rejected x: timeout", "storage"),
        ("ValueError: x must be y", "error"),
    ],
)
def test_what_a_trial_says_of_its_end_is_told_apart(reason, kind):
    assert kind_of_reason(reason) == kind


@pytest.mark.parametrize("kind", LIMITS)
def test_every_kind_is_tried_again_as_often_as_its_limit_says(kind):
    failures = Failures()
    again = [failures.count("a", kind) for _ in range(LIMITS[kind] + 1)]
    assert again == [True] * LIMITS[kind] + [False]
    assert failures.count("b", kind) == (LIMITS[kind] > 0)
