"""The choice of how the CPUs of a sweep compute."""

from collections.abc import Mapping
from typing import Any

from rank_core.encoders.cpu_kernels import kernels_name
from rank_core.encoders.cpu_layers import KERNELS
from rank_core.machine import matrix_units
from sweeps.plan.cpu_choice import CpuChoice
from sweeps.plan.plan import Plan


def cpu_choice(plan: Plan, stored: Mapping[str, Any]) -> CpuChoice:
    """The choice that a sweep has `stored`; what it lacks is decided by this machine."""
    units = bool(stored.get("matrix_units", matrix_units()))
    known = stored.get("kernels")
    if known not in KERNELS:
        known = kernels_name() if _scores_in_bf16(plan, units) else ""
    return CpuChoice(units, known)


def _scores_in_bf16(plan: Plan, units: bool) -> bool:
    """True if some trial would score in bf16 on a CPU."""
    wanted = {"bf16", "auto"} if units else {"bf16"}
    # A search may propose other cells later.
    return "training.precision" in plan.experiment.swept or any(
        cell.config.training.precision in wanted for cell in plan.cells
    )
