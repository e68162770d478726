"""Failures are told apart by their cause, and each kind has its own number of further attempts."""

from collections.abc import Mapping
from typing import Any

import pytest

from sweeps.store.failures import LIMITS, Failures, kind_of_reason, lost_by_kind


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


def trial(seed: int, status: str, attempts: int) -> dict[str, Any]:
    return {"cell": "c", "seed": seed, "status": status, "attempts": attempts}


def failure(seed: int, kind: str) -> dict[str, Any]:
    return {"cell": "c", "seed": seed, "kind": kind}


@pytest.mark.parametrize(
    ("status", "attempts", "kinds", "expected"),
    [
        ("done", 1, [], {}),
        ("done", 3, ["node lost", "node lost"], {"node lost": 2}),
        ("done", 3, ["host memory"], {"out of host memory": 1, "interrupted": 1}),
        ("failed", 2, ["process died", "error"], None),
        ("diverged", 2, ["device"], {"diverged": 1, "device broke": 1}),
        ("running", 1, [], {}),
        ("planned", 2, ["storage"], {"storage away": 1, "interrupted": 1}),
        ("interrupted", 1, [], {"interrupted": 1}),
        ("stopped", 1, [], {}),
    ],
)
def test_every_attempt_but_a_last_good_one_is_lost_by_some_kind(
    status: str, attempts: int, kinds: list[str], expected: Mapping[str, int] | None
) -> None:
    found = lost_by_kind([trial(1, status, attempts)], [failure(1, kind) for kind in kinds])
    if expected is not None:
        assert found == expected
    good = status in ("done", "collapsed", "stopped", "running")
    assert sum(found.values()) == attempts - good
