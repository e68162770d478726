"""The machine a trial runs on: its device, its memory, its versions."""

import contextlib
import ctypes
import gc
import os
import platform
import resource
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rank_core.errors import OUT_OF_MEMORY


def trial_device() -> torch.device:
    """The current GPU of this process, else the CPU. Whoever starts a process for which no GPU was
    reserved hides them all from it."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def begin_on_device(share: float) -> None:
    """Keeps this process to its `share` of the memory of its GPU, if it has one. Raises the GPU's
    error, within a millisecond, where its context is broken: it stays so until the process ends."""
    device = trial_device()
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(share, device)
        torch.ones(1, device=device).sum().item()


def fast_paths() -> bool:
    """False where `RANKSWEEP_FAST_PATHS=off` asks for the encoders of transformers as they are."""
    return os.environ.get("RANKSWEEP_FAST_PATHS", "").lower() != "off"


def usual_forms() -> bool:
    """True where `RANKSWEEP_FAST_PATHS` is `usual` or `off`: no CPU is asked which form of a
    computation is its faster one."""
    return os.environ.get("RANKSWEEP_FAST_PATHS", "").lower() in ("usual", "off")


@lru_cache(maxsize=1)
def cpu_facts() -> dict[str, str]:
    """The CPU: its model, its cores, and which of the instructions that matter it has."""
    model, flags = platform.processor() or platform.machine(), set[str]()
    with contextlib.suppress(OSError):  # not Linux
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        found = {name.strip(): text.strip() for name, _, text in (x.partition(":") for x in lines)}
        model, flags = found.get("model name", model), set(found.get("flags", "").split())
    known = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    return {"cpu": model, "cores": str(os.cpu_count()), "instructions": " ".join(known)}


def make_deterministic(strict: bool) -> None:
    """Repeats of a trial in this process give the same bits: always on a CPU; on a GPU if `strict`,
    where an operation without a deterministic form is then an error.

    On a GPU deterministic kernels cost speed, and most of the training time is attention's.
    Convolutions in fp32 are of fp32 there, as matrix products are.
    """
    torch.backends.cudnn.allow_tf32 = False  # torch's default: numbers of 19 bits
    # 4 to 7 % of a CPU trial's time, against reads of memory that nothing has written.
    flags: Any = torch.utils.deterministic
    flags.fill_uninitialized_memory = False
    if strict:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # else cuBLAS sums in any order
    # `use_deterministic_algorithms` does the same and imports torch's compiler: 2 s of a process.
    on_cpu = not torch.cuda.is_available()
    torch.set_deterministic_debug_mode("error" if strict else "warn" if on_cpu else "default")


def is_out_of_memory(error: RuntimeError) -> bool:
    """True where the GPU's memory was full, whoever says so: PyTorch's allocator, the CUDA runtime,
    cuBLAS, cuDNN or NCCL."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in OUT_OF_MEMORY)


def gpu_memory(device: torch.device) -> tuple[int, int]:
    """(bytes that this process may still take, bytes that it may take in all): of the GPU, or of
    the share of it that the process was given."""
    free, total = torch.cuda.mem_get_info(device)
    limit = int(total * torch.cuda.get_per_process_memory_fraction(device))
    return min(free, limit - torch.cuda.memory_reserved(device)), limit


def release_memory() -> None:
    """Returns the memory of the last trial to the system and, on a GPU, to the other processes.

    Batches of ever new shapes fragment the heap: without this a reused process grows by some
    hundred megabytes a trial, and each trial reports the memory of those before it.
    """
    gc.collect()
    _freeze_libraries()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError):  # not glibc: nothing to trim
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@lru_cache(maxsize=1)
def _freeze_libraries() -> None:
    """Excludes libraries from garbage collection before the first trial of a process: looking
    through them takes most of the time before the first step of a further trial."""
    gc.freeze()


def reset_peak_memory() -> None:
    """Resets the peak memory, so that a reused process reports the peak of its own trial."""
    release_memory()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):  # not Linux: the reading is then the process's own peak
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Peak bytes: of the device on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def versions() -> dict[str, str]:
    """Libraries and hardware that the numbers of a trial may depend on beside its settings."""
    import ir_measures
    import transformers

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "ir_measures": ir_measures.__version__,
        "device": device,
        "threads": str(torch.get_num_threads()),
    } | ({} if fast_paths() else {"fast_paths": "off"})
