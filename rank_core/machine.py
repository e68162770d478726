"""The machine a trial runs on: its device, its memory, its versions."""

import gc
import platform
import resource
from pathlib import Path

import numpy as np
import torch


def trial_device() -> torch.device:
    """The current GPU of this process, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def reset_peak_memory() -> None:
    """Starts the peak memory reading anew, so that a reused process reports its own trial."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        gc.collect()  # not Linux, or not allowed: the reading is then the process's own peak


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
    """What the numbers of a trial may depend on beside its settings."""
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
    }
