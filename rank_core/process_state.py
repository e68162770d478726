"""The global state of a process that libraries read and set: a door computes with what Python and
PyTorch begin with, whatever its caller has set, and gives the caller's back."""

import os
import random
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

P = ParamSpec("P")
T = TypeVar("T")
OF_RAY = ("RAY_", "TUNE_")
"""Variables that stay: Ray reads them in processes that it starts later."""
_CPU = torch.device("cpu")
_END = object()
_entered, _of_caller, _lock = [0], list[Any](), threading.Lock()
"""How many blocks of `usual` run, and what the first of them met, which the last restores: these
states are of the process, and threads may rank at once."""


@contextmanager
def usual() -> Iterator[None]:
    """A block, or a decorated function, in which gradients, dtype, device, autocast and errors of
    numpy are as at the start of a process. Any number of threads may be in one."""
    with ExitStack() as stack:
        stack.enter_context(np.errstate(all="warn", under="ignore"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.get_default_device() != _CPU:
            stack.enter_context(_CPU)
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        stack.callback(_leave)
        _enter()
        yield


def _enter() -> None:
    with _lock:
        if not _entered[0]:
            dtype, products = torch.get_default_dtype(), torch.get_float32_matmul_precision()
            _of_caller[:] = dtype, products
            torch.set_default_dtype(torch.float32)
            torch.set_float32_matmul_precision("highest")
        _entered[0] += 1


def _leave() -> None:
    with _lock:
        _entered[0] -= 1
        if not _entered[0]:
            torch.set_default_dtype(_of_caller[0])
            torch.set_float32_matmul_precision(_of_caller[1])


@contextmanager
def kept() -> Iterator[None]:
    """A block of `usual` after which the generators, the environment and torch's determinism are
    the caller's again."""
    variables, mode = dict(os.environ), torch.get_deterministic_debug_mode()
    of_python, of_numpy, of_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        with usual():
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)
        for name in os.environ.keys() - variables.keys():
            if not name.startswith(OF_RAY):
                del os.environ[name]
        os.environ |= variables


def each_step_kept(function: Callable[P, Generator[T]]) -> Callable[P, Generator[T]]:
    """A generator whose caller has its own state whenever a value is there. Between its steps only
    torch's determinism goes on, which a trial sets once."""

    @wraps(function)
    def stepping(*args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        mode = torch.get_deterministic_debug_mode()
        steps = function(*args, **kwargs)
        try:
            while True:
                with kept():
                    torch.set_deterministic_debug_mode(mode)
                    item = next(steps, _END)
                    mode = torch.get_deterministic_debug_mode()
                if item is _END:
                    return
                yield item  # type: ignore[misc]
        finally:
            with kept():
                steps.close()

    return stepping
