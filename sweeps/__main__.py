"""The commands of `ranksweep`; `python -m sweeps` where it is not installed."""

import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from rank_core.errors import unknown
from rank_core.lines import beside, put
from sweeps.commands.known import COMMANDS, function_of
from sweeps.terminal.command_line import heed_interrupts, run_command


def script() -> int:
    """The console script `ranksweep`; returns the exit code."""
    try:
        return main(sys.argv[1:])
    except Exception:  # of any kind: a fault of ours, whose lines pass the same door as all others
        beside(traceback.format_exc().rstrip())
        return 1


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    return run_command(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        put(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        put(f"ranksweep {_version()}")
        return 0
    if argv[0] not in COMMANDS:
        raise unknown("command", argv[0], COMMANDS)
    command = function_of(argv[0])
    heed_interrupts()
    return int(command(argv[1:]))


def _version() -> str:
    try:
        return version("ranksweep")
    except PackageNotFoundError:
        return "(a checkout that is not installed)"


def usage() -> str:
    """The help text: a line for each command."""
    lines = [f"  {f'{name} {takes}':<20}{does}" for name, (_, takes, does) in COMMANDS.items()]
    commands = "\n".join(lines)
    return f"""usage: ranksweep COMMAND ...

{commands}

DIR is a sweep's folder or URI, for example results/window_stride/python-docs.
COMMAND --help describes a command; --version prints the version."""


if __name__ == "__main__":
    sys.exit(script())
