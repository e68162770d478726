"""The sweeps, a file for each question; the rooms below run them."""

import sys
from pathlib import Path

from sweeps.terminal.command_line import end_at_interrupts

_program = Path(sys.argv[0])
if _program.name in ("-m", "ranksweep") or _program.resolve().parent == Path(__file__).parent:
    end_at_interrupts()  # this process is `ranksweep`, `python -m sweeps` or a file of this folder
