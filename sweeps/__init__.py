"""The questions a user can run, one a file; the rooms below them answer."""

import os
import sys
from pathlib import Path

from sweeps.plan.command_line import end_at_interrupts

# Batches of ever new shapes fragment a GPU's memory; PyTorch reads this when it first takes some.
if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # the older name, and the stronger one
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")

if sys.argv[0] == "-m" or Path(sys.argv[0]).resolve().parent == Path(__file__).parent:
    end_at_interrupts()  # this process is `python -m sweeps` or a file of this folder
