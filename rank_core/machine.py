"""The machine that runs a trial: device, memory, library versions, work ahead of a GPU."""

import contextlib
import ctypes
import gc
import os
import platform
import resource
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from rank_core.arguments import refused, unwrapped
from rank_core.errors import OUT_OF_MEMORY, BadInput, shown


def trial_device() -> torch.device:
    """The current GPU of this process, else the CPU. GPUs are hidden from processes for which none
    is reserved."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def device_of(name: str, value: Any) -> torch.device:
    """The device of an argument: a `torch.device`, or its name such as cpu or cuda:1. Raises
    `BadInput` where PyTorch has no such device here."""
    found = unwrapped(value)
    if isinstance(found, bool) or not isinstance(found, str | int | torch.device):
        raise refused(name, "a device of PyTorch, such as cpu, cuda or cuda:1", value)
    try:
        device = torch.device(found)
        torch.zeros(1, device=device).item()
    except Exception as error:  # PyTorch, its drivers and its backends have many kinds
        reason = " ".join(str(error).split("\n")[0].split())
        raise BadInput(
            f"{name} must be a device that PyTorch has here, got {shown(str(found))}: {reason}; "
            "cpu is always there, and without a device a GPU is used where there is one"
        ) from None
    return device


def device_name() -> str:
    """The current GPU of this process by its name, else the kind of its CPU, as in results."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()


def device_class(device: torch.device) -> str:
    """The kind of a device: `cpu`, or `cuda` with or without bf16 in hardware. T4 and V100 emulate
    it, slower than fp32."""
    if device.type != "cuda":
        return device.type
    real = torch.cuda.is_bf16_supported(including_emulation=False)
    return f"cuda {'with' if real else 'without'} bf16"


def begin_on_device(share: float) -> None:
    """Limits this process to `share` of its GPU's memory, if it has a GPU, which grows in segments
    unless the user's environment says otherwise. Raises the GPU's error, within a millisecond, if
    its context is broken, as it then stays until the process ends."""
    _grow_in_segments()
    device = trial_device()
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(share, device)
        # A context that an earlier kernel has broken raises at the next use: better here than after
        # a minute of loading.
        torch.ones(1, device=device).sum().item()


def take_gpu(device: torch.device) -> None:
    """Makes a GPU the current one of this process, one of a trial's several workers."""
    _grow_in_segments()
    torch.cuda.set_device(device)


def _grow_in_segments() -> None:
    # Batches of many shapes fragment a GPU's memory. PyTorch reads the variable when CUDA is
    # initialised, at the latest at the first allocation: a trial sets it, before it touches a GPU,
    # and no import does, because the process may be a user's notebook. The older name of the
    # variable takes precedence over this one.
    if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


def fast_paths() -> bool:
    """False where `RANKSWEEP_FAST_PATHS=off` asks for the unchanged encoders of transformers."""
    return _asked_paths() != "off"


def usual_paths() -> bool:
    """True where `RANKSWEEP_FAST_PATHS` is `usual` or `off`: no CPU computes in a form of its
    own."""
    return _asked_paths() in ("usual", "off")


def _asked_paths() -> str:
    """The value of `RANKSWEEP_FAST_PATHS`; raises `BadInput` for an unknown one."""
    asked = os.environ.get("RANKSWEEP_FAST_PATHS", "")
    if asked.strip().lower() not in ("", "on", "usual", "off"):
        raise BadInput(
            f"the environment variable RANKSWEEP_FAST_PATHS must be on, usual or off, "
            f"got {shown(asked)}"
        )
    return asked.strip().lower()


_decided: dict[str, str] = {}  # {cpu or cuda: what `auto` is}, by a sweep's driver for its nodes


def compute_as_decided(precisions: Mapping[str, str]) -> None:
    """Makes `auto` on the devices of this process what the driver of its sweep decided, as on all
    of its nodes: {cpu or cuda: precision}. On another device it is what suits that."""
    _decided.clear()
    _decided.update(precisions)


def matrix_units() -> bool:
    """True on a CPU with matrix units (AMX), which compute bf16 at many times the rate of fp32;
    not where `RANKSWEEP_FAST_PATHS` is `usual` or `off`."""
    return not usual_paths() and "amx_bf16" in cpu_facts()["instructions"].split()


def autocast_type(precision: str, device: torch.device) -> torch.dtype | None:
    """The autocast type; None for fp32, and for int8, beside which torch computes in fp32. `auto`
    is bf16 or fp16 on a GPU, bf16 on a CPU with matrix units for it, else fp32; in a sweep its
    driver decides."""
    if precision == "auto":
        precision = _decided.get(device.type) or suited_precision(device)
    if precision == "fp16" and device.type == "cpu":
        raise BadInput("training.precision=fp16 needs a GPU; on a CPU use fp32 or bf16")
    types = {"fp32": None, "int8": None, "bf16": torch.bfloat16, "fp16": torch.float16}
    return types[precision]


def precision_name(precision: str, device: torch.device) -> str:
    """The type of matrix products beside a `training.precision`, such as bfloat16."""
    return str(autocast_type(precision, device) or torch.float32).removeprefix("torch.")


def suited_precision(device: torch.device) -> str:
    """The precision that suits a device: the one in 16 bits that a GPU has in hardware; bf16 on a
    CPU with matrix units, else fp32."""
    if device.type != "cuda":
        return "bf16" if matrix_units() else "fp32"
    # T4 and V100 emulate bf16, slower than fp32.
    return "bf16" if device_class(device) == "cuda with bf16" else "fp16"


@lru_cache(maxsize=1)
def cpu_facts() -> dict[str, str]:
    """The CPU's model, number of cores and relevant instruction sets."""
    model, flags = platform.processor() or platform.machine(), set[str]()
    with contextlib.suppress(OSError):  # not Linux
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        facts = {name.strip(): text.strip() for name, _, text in (x.partition(":") for x in lines)}
        model, flags = facts.get("model name", model), set(facts.get("flags", "").split())
    known = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    return {"cpu": model, "cores": str(os.cpu_count()), "instructions": " ".join(known)}


def make_deterministic(strict: bool) -> None:
    """Makes repeats of a trial in this process bit-equal: always on a CPU; on a GPU only if
    `strict`, which makes an operation without a deterministic form an error.

    Deterministic kernels are slower on a GPU, above all those of attention. Convolutions in fp32
    are computed in fp32 there, as are matrix products.
    """
    torch.backends.cudnn.allow_tf32 = False  # torch's default: 19 bits
    # Filling would cost 4 to 7% of a CPU trial's time.
    flags: Any = torch.utils.deterministic
    flags.fill_uninitialized_memory = False
    # cuBLAS, which otherwise sums in any order, reads it at a process's first product: a strict
    # trial may come after others.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # `use_deterministic_algorithms` does the same, but imports torch's compiler: 2 s per process.
    on_cpu = not torch.cuda.is_available()
    torch.set_deterministic_debug_mode("error" if strict else "warn" if on_cpu else "default")


@contextlib.contextmanager
def settings_restored(threads: int = 0) -> Iterator[None]:
    """Computes on so many threads (0: as before), and restores torch's threads and determinism and
    what a sweep's driver decided, which trials set for their process."""
    before, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    decided = dict(_decided)
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_deterministic_debug_mode(mode)
        compute_as_decided(decided)


def is_out_of_memory(error: RuntimeError) -> bool:
    """True for an error of a full GPU, from PyTorch, the CUDA runtime, cuBLAS, cuDNN or NCCL."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in OUT_OF_MEMORY)


def release_memory() -> None:
    """Returns the memory of the last trial to the system and, on a GPU, to other processes.

    Batches of varying shapes fragment the heap: without this, a reused process grows by some
    hundred megabytes per trial, and trials report each other's memory.
    """
    gc.collect()
    _freeze_libraries()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError):  # not glibc: nothing to trim
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@lru_cache(maxsize=1)
def _freeze_libraries() -> None:
    """Excludes imported libraries from garbage collection; scanning them would take most of the
    time before the first step of a further trial."""
    gc.freeze()


def reset_peak_memory() -> None:
    """Resets the peak memory, so that a reused process reports that of its own trial."""
    release_memory()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):  # not Linux: the peak of the whole process is reported
        # 5 resets the peak of the resident set (proc(5)).
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: of the device on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def versions() -> dict[str, str]:
    """{name: version} of libraries and hardware that may affect a trial's numbers."""
    import ir_measures
    import transformers

    on_gpu = torch.cuda.is_available()
    in_bf16 = not on_gpu and precision_name("auto", torch.device("cpu")) == "bfloat16"
    own = {"auto_precision": "bf16"} if in_bf16 else {}
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "ir_measures": ir_measures.__version__,
        "device": device_name(),
        "threads": str(torch.get_num_threads()),
    } | (own if fast_paths() else {"fast_paths": "off"})


T = TypeVar("T")


def ahead(items: Iterator[T], device: torch.device, *, number: int = 1) -> Iterator[T]:
    """The items, none of which may be None. For a GPU, a thread makes the next `number` items while
    the current one is in use; for a CPU, which is busy anyway, items are made on demand.

    Errors in making an item are raised. No thread remains when the consumer stops early.
    """
    if device.type != "cuda":
        yield from items
        return
    with ThreadPoolExecutor(1, "ahead") as thread:
        # One thread makes the items in order, so that they come in order.
        coming = deque(thread.submit(next, items, None) for _ in range(number))
        try:
            while (item := coming.popleft().result()) is not None:
                coming.append(thread.submit(next, items, None))
                yield item
        finally:
            thread.shutdown(cancel_futures=True)
