"""The commands of `ranksweep`; `python -m sweeps` where it is not installed."""

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from rank_core.errors import unknown
from sweeps.commands.known import COMMANDS, function_of
from sweeps.terminal.command_line import heed_interrupts, run_command


def script() -> int:
    """The console script `ranksweep`; returns the exit code."""
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    return run_command(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"ranksweep {_version()}")
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
    sys.exit(main(sys.argv[1:]))
