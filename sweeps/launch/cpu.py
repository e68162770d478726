"""The choice of how the CPUs and GPUs of a sweep compute."""

from collections.abc import Mapping
from typing import Any

from rank_core.encoders.cpu_kernels import kernels_name
from rank_core.encoders.cpu_layers import KERNELS
from rank_core.machine import gpu_precision, matrix_units, trial_device
from sweeps.plan.cpu_choice import CpuChoice
from sweeps.plan.options import cluster_address
from sweeps.plan.plan import Plan


def cpu_choice(plan: Plan, stored: Mapping[str, Any]) -> CpuChoice:
    """The choice that a sweep has `stored`; what it lacks is decided by this machine. For the GPUs
    of a cluster the engine decides once it has joined: this machine may have none."""
    units = bool(stored.get("matrix_units", matrix_units()))
    known = stored.get("kernels")
    if known not in KERNELS:
        known = kernels_name() if _scores_in_bf16(plan, units) else ""
    device = trial_device()
    of_gpus = gpu_precision(device) if device.type == "cuda" and not cluster_address() else ""
    return CpuChoice(units, known, stored.get("gpu_precision", of_gpus))


def _scores_in_bf16(plan: Plan, units: bool) -> bool:
    """True if some trial would score in bf16 on a CPU."""
    wanted = {"bf16", "auto"} if units else {"bf16"}
    # A search may propose other cells later.
    return "training.precision" in plan.experiment.swept or any(
        cell.config.training.precision in wanted for cell in plan.cells
    )
