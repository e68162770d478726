"""The questions a user can run, one a file; the rooms below them answer."""

import sys
from pathlib import Path

from sweeps.plan.command_line import end_at_interrupts

if sys.argv[0] == "-m" or Path(sys.argv[0]).resolve().parent == Path(__file__).parent:
    end_at_interrupts()  # this process is `python -m sweeps` or a file of this folder
