"""The sweeps, a file for each question; the rooms below run them. `load` and `compare`, for
notebooks, are imported on first use."""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.plan.command_line import end_at_interrupts

if TYPE_CHECKING:
    from sweeps._api import compare, load

# Batches of many shapes fragment a GPU's memory; PyTorch reads this at its first allocation.
if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # the older name, which takes precedence
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")

_program = Path(sys.argv[0])
if _program.name in ("-m", "ranksweep") or _program.resolve().parent == Path(__file__).parent:
    end_at_interrupts()  # this process is `ranksweep`, `python -m sweeps` or a file of this folder

__all__ = ["compare", "load"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("sweeps._api"), name)
