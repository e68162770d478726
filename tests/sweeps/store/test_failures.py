"""Failures are told apart by their cause, and each kind has its own number of further attempts."""

from collections.abc import Mapping
from typing import Any

import pytest

from sweeps.store.failures import (
    LIMITS,
    Failures,
    first_line,
    kind_of_reason,
    lost_by_kind,
    reason_of,
)


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


@pytest.mark.parametrize("kind", LIMITS)
def test_only_a_trial_that_gets_on_between_lost_nodes_has_its_retries_again(kind):
    failures, most = Failures(), LIMITS[kind]
    again = [failures.count("a", kind, step) for step in range(1, most + 3)]
    assert again == ([True] * (most + 2) if kind == "node lost" else [True] * most + [False] * 2)
    later = [failures.count("a", kind, step=most + 2) for _ in range(most)]
    assert later == [kind == "node lost"] * (most - 1) + [False] * bool(most)


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


FRAMES = """Traceback (most recent call last):
  File "python/ray/_raylet.pyx", line 1, in f
    import x
           ^
"""
LAST = "ImportError: cannot import name 'AutoConfig' from 'transformers' (/home/me/transformers)"
FACTS = "\n\tclass_name: ImplicitFunc\n\tactor_id: ab12\n\tpid: 7"


@pytest.mark.parametrize(
    "text",
    [
        f"The actor died unexpectedly.{FACTS}\nWorker exit detail: code None. {FRAMES}{LAST}",
        f"The actor died.{FACTS}\nexit code 1. {FRAMES}\n{LAST}\n\nAn unexpected error occurred",
        f"\x1b[36mray::A.__init__()\x1b[39m (pid=1)\n{FRAMES}KeyError: 1\n\nDuring handling of the "
        f"above exception, another exception occurred:\n\n{FRAMES}{LAST}",
        f"{FRAMES}{LAST}",
        f"{'The worker has died. ' * 50}\n{FRAMES}{LAST}",
        f"System error: x\ntraceback: {FRAMES}{LAST}",
    ],
)
def test_of_a_traceback_the_last_line_is_the_reason(text):
    line = first_line(RuntimeError(text))
    assert LAST in line and line.startswith("RuntimeError: ") and len(line) < 400
    assert not {"\n", "\x1b", "^"} & {*line} and "Traceback" not in line


PROSE = (
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker "
    "exit detail: Worker unexpectedly exits with a connection error code 2. End of file. Some "
    "common causes include: (1) the process was killed by the OOM killer due to high memory usage, "
    "(2) ray stop --force was called, or (3) consider enabling resource isolation"
    + " and so on"
    * 40
)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (f"The actor died.{FACTS}\n{PROSE}", "The actor died. The actor is dead because its worker "
         "process has died."),
        (f"{PROSE}\n{PROSE}", "has died."),
        ("many words " * 100, "words..."),
        (f"{FRAMES}ValueError: {'many words ' * 100}", "words..."),
        ("x" * 1000, "xxx..."),
    ],
)  # fmt: skip
def test_a_reason_has_whole_sentences_and_fits_in_few_lines(text, ends):
    line = first_line(RuntimeError(text))
    assert line.endswith(ends) and len(line) <= 330


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("x"), "ValueError: x"),
        (ImportError("\nX needs the library Y\nmore"), "ImportError: X needs the library Y"),
        (KeyError("k"), "KeyError: 'k'"),
        (AssertionError(), "AssertionError: test_failures.py:"),
        (OSError(), "OSError: test_failures.py:"),
        (RuntimeError(" \n"), "RuntimeError: test_failures.py:"),
    ],
)
def test_a_reason_begins_with_what_was_wrong(error, reason):
    assert reason_of(error) and first_line(error)  # one that was never raised
    try:
        raise error
    except Exception as raised:
        assert reason_of(raised).splitlines()[0].startswith(reason)
