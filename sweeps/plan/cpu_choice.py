"""What the trials of a sweep share, because rounding is to be the same in all of them."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class CpuChoice:
    """How the CPUs and GPUs of a sweep compute: the first command that drives it decides for all
    nodes and for all later commands."""

    matrix_units: bool = False  # whether `training.precision=auto` is bf16
    kernels: str = ""  # of scoring in bf16, by their name; "" where no trial needs any
    gpu_precision: str = ""  # what `training.precision=auto` is on GPUs; "": what suits each GPU

    def stored(self) -> dict[str, Any]:
        """The choice as `sweep.json` has it."""
        content = asdict(self)
        if not self.gpu_precision:
            del content["gpu_precision"]  # not decided yet
        return content


USUAL = CpuChoice()
