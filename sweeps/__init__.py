"""The sweeps, a file for each question; the rooms below run them."""

import os
import sys
from pathlib import Path

from sweeps.terminal.command_line import end_at_interrupts

# Batches of many shapes fragment a GPU's memory; PyTorch reads this at its first allocation.
if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # the older name, which takes precedence
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")

_program = Path(sys.argv[0])
if _program.name in ("-m", "ranksweep") or _program.resolve().parent == Path(__file__).parent:
    end_at_interrupts()  # this process is `ranksweep`, `python -m sweeps` or a file of this folder
