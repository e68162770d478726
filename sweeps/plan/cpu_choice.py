"""What the trials of a sweep share on CPUs, because rounding is to be the same in all of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuChoice:
    """How the CPUs of a sweep compute: the first command that drives it decides for all nodes and
    for all later commands."""

    matrix_units: bool = False  # whether `training.precision=auto` is bf16
    kernels: str = ""  # of scoring in bf16, by their name; "" where no trial needs any


USUAL = CpuChoice()
